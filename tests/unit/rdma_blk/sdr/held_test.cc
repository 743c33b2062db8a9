// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Requests and answers between two connections that hold acknowledgements and clear-to-send back for data to tell
// them: what that saves, and that it loses nothing, whatever the network loses.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "rdma_blk/sdr/reliable_connection.h"
#include "tests/unit/rdma_blk/sdr/unruly_network.h"

namespace tiffin::rdma_blk::sdr {
namespace {

constexpr uint64_t kCapacity = 20'000;
constexpr uint16_t kMessages = 8;

// The left end asks, the right end answers with the same bytes.
class Dialogue {
  public:
    Dialogue(uint64_t seed, uint32_t hold_us, size_t count, uint32_t depth)
        : random_(seed),
          count_(count),
          depth_(depth),
          memory_(size_t{4} * kMessages * kCapacity),
          context_(context_create().release_value()) {
        QueuePairAttributes queue_pair;
        queue_pair.packet_bytes = 1408;
        queue_pair.max_messages = kMessages;
        queue_pair.max_message_bytes = kCapacity;
        ReliabilityAttributes attributes;
        attributes.hold_us = hold_us;
        attributes.initial_round_trip_us = 1000;
        attributes.give_up_ns = 100'000'000'000;
        for (std::unique_ptr<ReliableConnection>& end : ends_) {
            end = reliable_connection_create(*context_, queue_pair, attributes).release_value();
        }
        EXPECT_TRUE(ends_[0]->connect(ends_[1]->info_get()).ok());
        EXPECT_TRUE(ends_[1]->connect(ends_[0]->info_get()).ok());
    }

    void run(const NetworkOptions& options) {
        UnrulyNetwork network(options, 1408, random_(), *ends_[0], *ends_[1]);
        network_ = &network;
        EXPECT_TRUE(network.run(
            uint64_t{1000} * 1'000'000'000, [this] { act(); }, [this] { return done_ == count_; }))
            << done_ << " of " << count_;
        packets_ = network.packets_sent();
        // Until all is acknowledged.
        EXPECT_TRUE(network.run(
            network.now_ns() + 10'000'000'000, [this] { act(); },
            [this] { return sends_done_ == 2 * count_; }));
    }

    bool is_small = false;  // all messages are of one packet

    uint64_t packets() const { return packets_; }
    const ReliabilityStatistics& statistics(int end) const {
        return ends_[end]->reliability_statistics();
    }

  private:
    // Slots of this end's memory: for what it sends, and for what it receives.
    unsigned char* place(int end, bool sends, uint64_t number) {
        const size_t slot = (static_cast<size_t>(end) * 2 + (sends ? 1 : 0)) * kMessages;
        return memory_.data() + (slot + number % kMessages) * kCapacity;
    }
    RegisteredMemory registered(unsigned char* place, uint64_t size) {
        RegisteredMemory memory = context_->mr_reg(MutableByteSpan(place, size)).release_value();
        context_->mr_dereg(memory);
        return memory;
    }
    void act() {
        for (int end = 0; end < 2; end++) {
            while (ends_[end]
                       ->recv_post(network_->now_ns(),
                                   registered(place(end, false, posted_[end]), kCapacity))
                       .ok()) {
                posted_[end]++;
            }
            take(end);
        }
        while (asked_ < count_ && asked_ - done_ < depth_) {
            const uint64_t size = !is_small && random_() % 4 == 0 ? 1 + random_() % kCapacity : 100;
            std::vector<unsigned char> bytes(size);
            for (unsigned char& byte : bytes) {
                byte = static_cast<unsigned char>(random_());
            }
            if (!send(0, bytes)) {
                break;
            }
            questions_.push_back(std::move(bytes));
            asked_++;
        }
        while (!to_answer_.empty() && send(1, to_answer_.front())) {
            to_answer_.pop_front();
        }
    }
    bool send(int end, const std::vector<unsigned char>& bytes) {
        unsigned char* const from = place(end, true, sent_[end]);
        // Its earlier message must have ended: else its memory is still in use.
        if (sent_[end] - ended_[end] >= kMessages) {
            return false;
        }
        std::memcpy(from, bytes.data(), bytes.size());
        if (!ends_[end]->send_post(network_->now_ns(), registered(from, bytes.size()), 0).ok()) {
            return false;
        }
        sent_[end]++;
        is_sent_[end].push_back(false);
        return true;
    }
    void take(int end) {
        Completion completion;
        while (ends_[end]->next_completion(completion)) {
            ASSERT_TRUE(completion.ok);
            if (completion.is_send) {
                sends_done_++;
                is_sent_[end][completion.message_number] = true;
                while (ended_[end] < sent_[end] && is_sent_[end][ended_[end]]) {
                    ended_[end]++;
                }
                continue;
            }
            const unsigned char* from = place(end, false, completion.message_number);
            std::vector<unsigned char> bytes(from, from + completion.message_bytes);
            if (end == 1) {
                to_answer_.push_back(std::move(bytes));
                continue;
            }
            // Answers may overtake each other: each is for one of the questions.
            const auto found = std::find(questions_.begin(), questions_.end(), bytes);
            ASSERT_NE(found, questions_.end()) << "an answer to nothing";
            questions_.erase(found);
            done_++;
        }
    }

    std::mt19937_64 random_;
    size_t count_;
    uint32_t depth_;
    std::vector<unsigned char> memory_;
    std::unique_ptr<Context> context_;
    std::unique_ptr<ReliableConnection> ends_[2];
    UnrulyNetwork* network_ = nullptr;
    uint64_t posted_[2] = {};
    uint64_t sent_[2] = {};
    uint64_t ended_[2] = {};
    std::vector<bool> is_sent_[2];
    std::vector<std::vector<unsigned char>> questions_;
    std::deque<std::vector<unsigned char>> to_answer_;
    size_t asked_ = 0;
    size_t done_ = 0;
    size_t sends_done_ = 0;
    uint64_t packets_ = 0;
};

NetworkOptions quick_network() {
    NetworkOptions options;
    options.delay_ns = 20'000;
    options.packet_interval_ns = 100;
    return options;
}

TEST(Held, AnswersAcknowledgeRequests) {
    constexpr size_t kCount = 640;
    Dialogue at_once(7, 0, kCount, 1);
    at_once.is_small = true;
    at_once.run(quick_network());
    EXPECT_GE(at_once.packets(), 4 * kCount);
    Dialogue dialogue(7, 1000, kCount, 1);
    dialogue.is_small = true;
    dialogue.run(quick_network());
    // A packet for each message, and few beside them.
    EXPECT_LT(dialogue.packets(), 2 * kCount + kCount / 8);
    for (int end = 0; end < 2; end++) {
        EXPECT_LT(dialogue.statistics(end).acknowledgements_sent, kCount / 16);
        EXPECT_EQ(dialogue.statistics(end).chunks_repeated, 0U);
        EXPECT_GT(dialogue.statistics(end).round_trip_us, 0U);
    }
}

TEST(Held, NothingIsLostWithWhatTells) {
    for (uint64_t seed = 1; seed <= 60; seed++) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        NetworkOptions options = quick_network();
        options.loss = seed % 4 == 0 ? 0.2 : 0.02;
        options.repeat = seed % 3 == 0 ? 0.1 : 0;
        options.jitter_ns = seed % 2 == 0 ? 0 : 15'000;
        options.straggle = seed % 5 == 0 ? 0.02 : 0;
        options.straggle_ns = 400'000;
        Dialogue dialogue(seed, 1 + static_cast<uint32_t>(seed * 31 % 1999), 200,
                          1 + static_cast<uint32_t>(seed % kMessages));
        dialogue.run(options);
        if (HasFailure()) {
            return;
        }
    }
}

}  // namespace
}  // namespace tiffin::rdma_blk::sdr
