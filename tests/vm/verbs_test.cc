// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What rc and the UC carrier need of real devices: run by tests/vm/rdma in its virtual machine, with two devices on one network.
//
// usage: vm_verbs_test ADDRESS ADDRESS     IPv4, of each device's port
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "fs/vfs/host.h"
#include "tests/vm/test_devices.h"

namespace tiffin::rdma_blk::verbs {
namespace {

struct End {
    std::unique_ptr<Device> device;
    alignas(4096) unsigned char bytes[16384] = {};
    std::unique_ptr<Memory> memory;
    std::unique_ptr<QueuePair> pair;

    std::unique_ptr<Memory> part;  // of the second 4096 bytes

    void open(int index, bool for_windows) {
        device = test::open_device(index);
        ASSERT_NE(device, nullptr);
        ASSERT_TRUE(device->capabilities().has_windows);
        memory = device->register_memory(bytes, sizeof(bytes), for_windows).release_value();
        part = device->register_memory(bytes + 4096, 4096, for_windows).release_value();
        pair = device->create_queue_pair(16, true).release_value();
    }
    Status execute(const WorkRequest& work) { return execute_on(*pair, work); }
    static Status execute_on(QueuePair& queue_pair, const WorkRequest& work) {
        if (!queue_pair.post(&work, 1).ok()) {
            return Status::failed;
        }
        Completion completion;
        for (int i = 0; i < 10'000; i++) {
            if (queue_pair.poll(&completion, 1) == 1) {
                EXPECT_EQ(completion.id, work.id);
                return completion.status;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        ADD_FAILURE() << "no completion";
        return Status::failed;
    }
};

class VerbsTest : public ::testing::Test {
  protected:
    void SetUp() override {
        client_.open(0, false);
        server_.open(1, true);
        ASSERT_TRUE(server_.pair->connect(client_.pair->address()).ok());
        ASSERT_TRUE(client_.pair->connect(server_.pair->address()).ok());
        window_ = server_.device->allocate_window().release_value();
    }
    void bind(bool allows_writes, QueuePair* pair = nullptr) {
        WorkRequest work;
        work.kind = WorkKind::bind_window;
        work.is_signalled = true;
        work.window = window_.get();
        work.memory = server_.part.get();
        work.address = server_.bytes + 4096;
        work.size_bytes = 4096;
        work.allows_writes = allows_writes;
        ASSERT_EQ(End::execute_on(pair != nullptr ? *pair : *server_.pair, work), Status::success);
    }
    WorkRequest request(WorkKind kind, uint64_t offset_bytes, uint32_t size_bytes) {
        piece_ = {client_.bytes, size_bytes, client_.memory->local_key()};
        WorkRequest work;
        work.kind = kind;
        work.is_signalled = true;
        work.id = 7;
        work.pieces = &piece_;
        work.piece_count = 1;
        work.remote_address = reinterpret_cast<uint64_t>(server_.bytes) + offset_bytes;
        work.remote_key = window_->key();
        return work;
    }

    End client_;
    End server_;
    Piece piece_;
    std::unique_ptr<Window> window_;  // before the devices
};

TEST_F(VerbsTest, ReadsAndWritesPassAWindow) {
    bind(true);
    std::memset(client_.bytes, 5, 4096);
    EXPECT_EQ(client_.execute(request(WorkKind::write, 4096, 4096)), Status::success);
    EXPECT_EQ(server_.bytes[4096], 5);
    EXPECT_EQ(server_.bytes[8191], 5);
    EXPECT_EQ(server_.bytes[8192], 0);
    std::memset(server_.bytes + 4096, 9, 64);
    EXPECT_EQ(client_.execute(request(WorkKind::read, 4096, 64)), Status::success);
    EXPECT_EQ(client_.bytes[63], 9);
}

TEST_F(VerbsTest, SmallWritesAreInlined) {
    bind(true);
    unsigned char outside[100];  // not registered
    std::memset(outside, 6, sizeof(outside));
    WorkRequest work = request(WorkKind::write, 4096, sizeof(outside));
    piece_ = {outside, sizeof(outside), 0};
    work.is_inline = true;
    EXPECT_EQ(client_.execute(work), Status::success);
    EXPECT_EQ(server_.bytes[4096 + 99], 6);
}

TEST_F(VerbsTest, OneSignalForManyAndAnErrorForTheRest) {
    bind(true);
    WorkRequest works[4];
    Piece pieces[4];
    for (int i = 0; i < 4; i++) {
        works[i] = request(WorkKind::write, 4096 + static_cast<uint64_t>(i) * 64, 64);
        pieces[i] = piece_;
        works[i].pieces = &pieces[i];
        works[i].id = static_cast<uint64_t>(i) + 1;
        works[i].is_signalled = i == 3;
    }
    works[2].remote_address += 1 << 20;  // outside
    ASSERT_TRUE(client_.pair->post(works, 4).ok());
    Completion completions[4];
    size_t count = 0;
    for (int i = 0; i < 10'000 && count < 2; i++) {
        count += client_.pair->poll(completions + count, 4 - count);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_EQ(count, 2U);
    EXPECT_EQ(completions[0].id, 3U);
    EXPECT_EQ(completions[0].status, Status::refused);
    EXPECT_EQ(completions[1].id, 4U);
    EXPECT_EQ(completions[1].status, Status::lost);
}

// With the window over a registration of its own, as the server does it: rdma_rxe does not check windows' bounds.
TEST_F(VerbsTest, OutsideOfTheWindowIsRefused) {
    bind(true);
    EXPECT_EQ(client_.execute(request(WorkKind::read, 0, 64)), Status::refused);
}

TEST_F(VerbsTest, BehindTheWindowIsRefused) {
    bind(true);
    EXPECT_EQ(client_.execute(request(WorkKind::write, 8160, 64)), Status::refused);
    EXPECT_EQ(server_.bytes[8192], 0);
}

TEST_F(VerbsTest, AReadersWindowRefusesWrites) {
    bind(false);
    EXPECT_EQ(client_.execute(request(WorkKind::read, 4096, 64)), Status::success);
    EXPECT_EQ(client_.execute(request(WorkKind::write, 4096, 64)), Status::refused);
    EXPECT_EQ(server_.bytes[4096], 0);
}

TEST_F(VerbsTest, AnotherQueuePairCannotUseTheWindow) {
    bind(true);
    auto other_client = client_.device->create_queue_pair(16, true).release_value();
    auto other_server = server_.device->create_queue_pair(16, true).release_value();
    ASSERT_TRUE(other_server->connect(other_client->address()).ok());
    ASSERT_TRUE(other_client->connect(other_server->address()).ok());
    std::memset(client_.bytes, 5, 64);
    EXPECT_EQ(End::execute_on(*other_client, request(WorkKind::write, 4096, 64)), Status::refused);
    EXPECT_EQ(server_.bytes[4096], 0);
    EXPECT_EQ(client_.execute(request(WorkKind::write, 4096, 64)), Status::success);
}

TEST_F(VerbsTest, WhatWasInvalidatedIsClosedAtOnce) {
    bind(true);
    const WorkRequest before = request(WorkKind::write, 4096, 64);
    EXPECT_EQ(client_.execute(before), Status::success);
    WorkRequest close;
    close.kind = WorkKind::invalidate;
    close.is_signalled = true;
    close.window = window_.get();
    ASSERT_EQ(server_.execute(close), Status::success);
    std::memset(server_.bytes, 0, sizeof(server_.bytes));
    std::memset(client_.bytes, 7, 64);
    EXPECT_EQ(client_.execute(before), Status::refused);
    EXPECT_EQ(server_.bytes[4096], 0);
}

TEST_F(VerbsTest, ADestroyedPeerIsNoticed) {
    bind(true);
    const WorkRequest work = request(WorkKind::write, 4096, 64);
    window_.reset();  // rdma_rxe waits 50 s for the windows of a queue pair that is to be destroyed
    server_.pair.reset();
    EXPECT_EQ(client_.execute(work), Status::lost);
    EXPECT_EQ(server_.bytes[4096], 0);
}

TEST_F(VerbsTest, CompletionsWakeASleeper) {
    bind(true);
    ASSERT_TRUE(client_.pair->arm().ok());
    const WorkRequest work = request(WorkKind::read, 4096, 64);
    ASSERT_TRUE(client_.pair->post(&work, 1).ok());
    fd_set set;
    FD_ZERO(&set);
    FD_SET(client_.pair->event_descriptor(), &set);
    timeval limit{10, 0};
    EXPECT_EQ(select(client_.pair->event_descriptor() + 1, &set, nullptr, nullptr, &limit), 1);
    client_.pair->disarm();
    Completion completion;
    EXPECT_EQ(client_.pair->poll(&completion, 1), 1U);
}

TEST_F(VerbsTest, AStoppedQueuePairGivesEverythingBack) {
    bind(true);
    (void)client_.pair->stop();
    EXPECT_EQ(client_.execute(request(WorkKind::write, 4096, 64)), Status::lost);
}

}  // namespace
}  // namespace tiffin::rdma_blk::verbs

namespace tiffin::rdma_blk::test {

const char* device_addresses[2] = {};

std::unique_ptr<verbs::Device> open_device(int index) {
    uint8_t address[16] = {};
    std::memset(address + 10, 0xff, 2);
    EXPECT_EQ(inet_pton(AF_INET, device_addresses[index], address + 12), 1);
    std::string problem;
    auto opened = verbs::devices().open(address, problem);
    EXPECT_TRUE(opened.ok()) << problem;
    return opened.ok() ? opened.release_value() : nullptr;
}

}  // namespace tiffin::rdma_blk::test

int main(int argc, char** argv) {
    ::testing::InitGoogleTest(&argc, argv);
    if (argc != 3) {
        std::fprintf(stderr, "usage: vm_verbs_test ADDRESS ADDRESS\n");
        return 2;
    }
    tiffin::rdma_blk::test::device_addresses[0] = argv[1];
    tiffin::rdma_blk::test::device_addresses[1] = argv[2];
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    return RUN_ALL_TESTS();
}
