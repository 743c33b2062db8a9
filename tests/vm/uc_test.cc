// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Unreliable Connected queue pairs of real devices, and the carrier of SDR on them. tests/vm/rdma_guest.sh runs the lossy
// cases on links that lose packets.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/unit/rdma_blk/uc/uc_ends.h"
#include "tests/vm/test_devices.h"

namespace tiffin::rdma_blk {
namespace {

using sdr::SchemeKind;
using verbs::Completion;
using verbs::Status;
using verbs::WorkKind;
using verbs::WorkRequest;

// One side writes into the memory of the other.
class UcVerbsTest : public ::testing::Test {
  protected:
    void SetUp() override {
        from_device_ = test::open_device(0);
        to_device_ = test::open_device(1);
        ASSERT_TRUE(from_device_ != nullptr && to_device_ != nullptr);
        from_memory_ = from_device_->register_memory(from_, sizeof(from_), false).release_value();
        to_memory_ = to_device_->register_memory(to_, sizeof(to_), true).release_value();
        from_pair_ = from_device_->create_unreliable_queue_pair(16, 16).release_value();
        to_pair_ = to_device_->create_unreliable_queue_pair(16, 16).release_value();
        ASSERT_TRUE(from_pair_->connect(to_pair_->address()).ok());
        ASSERT_TRUE(to_pair_->connect(from_pair_->address()).ok());
        const verbs::Receive receives[8] = {};
        ASSERT_TRUE(to_pair_->post_receives(receives, 8).ok());
    }
    static bool next(verbs::QueuePair& pair, Completion& completion) {
        for (int i = 0; i < 60'000; i++) {
            if (pair.poll(&completion, 1) == 1) {
                return true;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return false;
    }
    std::unique_ptr<verbs::Window> open_window() {
        auto window = to_device_->allocate_window().release_value();
        WorkRequest bind;
        bind.kind = WorkKind::bind_window;
        bind.is_signalled = true;
        bind.window = window.get();
        bind.memory = to_memory_.get();
        bind.address = to_;
        bind.size_bytes = sizeof(to_);
        bind.allows_writes = true;
        EXPECT_TRUE(to_pair_->post(&bind, 1).ok());
        Completion completion;
        EXPECT_TRUE(next(*to_pair_, completion));
        EXPECT_EQ(completion.status, Status::success);
        EXPECT_FALSE(completion.is_receive);
        return window;
    }
    // Sent: that is all that the sender learns.
    void write(uint32_t key, unsigned char content, uint32_t immediate) {
        std::memset(from_, content, sizeof(from_));
        const verbs::Piece piece{from_, 1024, from_memory_->local_key()};
        WorkRequest work;
        work.kind = WorkKind::write_immediate;
        work.is_signalled = true;
        work.pieces = &piece;
        work.piece_count = 1;
        work.remote_address = reinterpret_cast<uint64_t>(to_) + 1024;
        work.remote_key = key;
        work.immediate = immediate;
        ASSERT_TRUE(from_pair_->post(&work, 1).ok());
        Completion completion;
        ASSERT_TRUE(next(*from_pair_, completion));
        ASSERT_EQ(completion.status, Status::success);
    }
    void expect_arrival(unsigned char content, uint32_t immediate) {
        Completion completion;
        ASSERT_TRUE(next(*to_pair_, completion));
        EXPECT_EQ(completion.status, Status::success);
        EXPECT_TRUE(completion.is_receive);
        EXPECT_TRUE(completion.has_immediate);
        EXPECT_EQ(completion.immediate, immediate);
        EXPECT_EQ(completion.size_bytes, 1024U);
        EXPECT_EQ(to_[1023], 0);
        EXPECT_EQ(to_[1024], content);
        EXPECT_EQ(to_[2047], content);
        EXPECT_EQ(to_[2048], 0);
    }

    alignas(4096) unsigned char from_[4096] = {};
    alignas(4096) unsigned char to_[4096] = {};
    std::unique_ptr<verbs::Device> from_device_;
    std::unique_ptr<verbs::Device> to_device_;
    std::unique_ptr<verbs::Memory> from_memory_;
    std::unique_ptr<verbs::Memory> to_memory_;
    std::unique_ptr<verbs::QueuePair> from_pair_;
    std::unique_ptr<verbs::QueuePair> to_pair_;
};

TEST_F(UcVerbsTest, AWriteWithImmediateArrives) {
    const auto window = open_window();
    write(window->key(), 5, 0x12345678);
    expect_arrival(5, 0x12345678);
}

// A packet that is late finds another window over the same memory, and is written nowhere. What is sent behind it
// arrives, and first of all.
TEST_F(UcVerbsTest, APacketOfAnOldGenerationLandsNowhere) {
    auto window = open_window();
    const uint32_t old_key = window->key();
    write(old_key, 5, 1);
    expect_arrival(5, 1);
    window.reset();
    write(old_key, 6, 2);
    window = open_window();
    ASSERT_NE(window->key(), old_key);
    write(old_key, 7, 3);
    const auto other = open_window();  // takes its time, like the device with what came
    EXPECT_EQ(to_[1024], 5);
    EXPECT_EQ(to_[2047], 5);
    write(window->key(), 8, 4);
    expect_arrival(8, 4);
    Completion completion;
    EXPECT_EQ(to_pair_->poll(&completion, 1), 0U);
}

TEST_F(UcVerbsTest, AWindowOfAnotherQueuePairTakesNothing) {
    const auto window = open_window();
    auto other = from_device_->create_unreliable_queue_pair(16, 16).release_value();
    auto its_peer = to_device_->create_unreliable_queue_pair(16, 16).release_value();
    ASSERT_TRUE(other->connect(its_peer->address()).ok());
    ASSERT_TRUE(its_peer->connect(other->address()).ok());
    const verbs::Receive receives[8] = {};
    ASSERT_TRUE(its_peer->post_receives(receives, 8).ok());
    std::swap(other, from_pair_);
    write(window->key(), 6, 1);
    std::swap(other, from_pair_);
    write(window->key(), 7, 2);
    expect_arrival(7, 2);
    Completion completion;
    EXPECT_EQ(its_peer->poll(&completion, 1), 0U);
}

class UcCleanTransferTest : public ::testing::Test {
  protected:
    void SetUp() override {
        left_ = test::open_device(0);
        right_ = test::open_device(1);
        ASSERT_TRUE(left_ != nullptr && right_ != nullptr);
    }
    std::unique_ptr<verbs::Device> left_;
    std::unique_ptr<verbs::Device> right_;
};

class UcTransferTest : public UcCleanTransferTest, public ::testing::WithParamInterface<UcCase> {};

// Sent minus received: lost on the way, or late.
uint64_t missing(const UcStatistics& sender, const UcStatistics& receiver) {
    return sender.packets_written - std::min(sender.packets_written, receiver.packets_received);
}

void print(const char* end, const UcStatistics& statistics,
           const sdr::ReliabilityStatistics& reliability) {
    std::printf(
        "%s: packets written %llu, received %llu, held %llu, stray %llu; chunks repeated %llu, "
        "decoded %llu\n",
        end, static_cast<unsigned long long>(statistics.packets_written),
        static_cast<unsigned long long>(statistics.packets_received),
        static_cast<unsigned long long>(statistics.packets_held),
        static_cast<unsigned long long>(statistics.packets_stray),
        static_cast<unsigned long long>(reliability.chunks_repeated),
        static_cast<unsigned long long>(reliability.chunks_decoded));
}

constexpr uint32_t kMessages = 12;

void exchange(UcEnds& ends, uint64_t& lost, uint64_t& repaired) {
    ends.exchange(kMessages, 3);
    const UcStatistics left = ends.left().carrier->statistics();
    const UcStatistics right = ends.right().carrier->statistics();
    const sdr::ReliabilityStatistics left_chunks = UcEnds::reliability(ends.left());
    const sdr::ReliabilityStatistics right_chunks = UcEnds::reliability(ends.right());
    print("left", left, left_chunks);
    print("right", right, right_chunks);
    EXPECT_FALSE(left.has_failed);
    EXPECT_FALSE(right.has_failed);
    EXPECT_EQ(left.windows_opened, kMessages / 4);
    EXPECT_EQ(right.windows_opened, kMessages / 4);
    lost =
        missing(left, right) + missing(right, left) + left.packets_dropped + right.packets_dropped;
    repaired = left_chunks.chunks_repeated + left_chunks.chunks_decoded +
               right_chunks.chunks_repeated + right_chunks.chunks_decoded;
}

TEST_F(UcCleanTransferTest, MessagesArriveInBothDirections) {
    UcEnds ends(UcCase{"", {SchemeKind::selective_repeat_nack, 0, 0}, 2, 0});
    ends.start(*left_, *right_);
    uint64_t lost = 0;
    uint64_t repaired = 0;
    exchange(ends, lost, repaired);
}

// On links that lose packets, by themselves or by the case's hook.
TEST_P(UcTransferTest, LossyLinksAreRepaired) {
    UcEnds ends(GetParam());
    ends.start(*left_, *right_);
    uint64_t lost = 0;
    uint64_t repaired = 0;
    exchange(ends, lost, repaired);
    EXPECT_GT(lost, 0U);
    EXPECT_GT(repaired, 0U);
}

INSTANTIATE_TEST_SUITE_P(
    Schemes, UcTransferTest,
    ::testing::Values(UcCase{"repeat", {SchemeKind::selective_repeat, 0, 0}, 0, 0},
                      UcCase{"nack", {SchemeKind::selective_repeat_nack, 0, 0}, 2, 0},
                      UcCase{"mds", {SchemeKind::erasure_mds, 16, 4}, 0, 0}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace tiffin::rdma_blk
