// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The shm client against a real server: what goes directly, what goes by requests, and who may do what.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <thread>
#include <vector>

#include "rdma_blk/transport/shm/unit_copy.h"
#include "tests/unit/rdma_blk/shm/shm_fixture.h"

namespace tiffin::rdma_blk::test {
namespace {

// As /proc/self/maps has it; empty: nothing is there.
std::string protection_of(const void* address) {
    const auto wanted = reinterpret_cast<uintptr_t>(address);
    std::ifstream maps("/proc/self/maps");
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char dash = 0;
    std::string protection;
    std::string rest;
    while (maps >> std::hex >> begin >> dash >> end >> protection && std::getline(maps, rest)) {
        if (begin <= wanted && wanted < end) {
            return protection;
        }
    }
    return {};
}

class ShmMemoryTest : public ShmFixture {
  protected:
    void SetUp() override {
        if (unit_copy() == UnitCopy::none) {
            GTEST_SKIP()
                << "not run: neither 64-byte stores nor process_vm_writev(): writes are requests";
        }
        ShmFixture::SetUp();
        start();
    }
};

TEST_F(ShmMemoryTest, ReadsAndWritesTouchTheServersMemoryAndAskNobody) {
    open(client_);
    EXPECT_STREQ(client_.memory->connection().transport_name, "shm");
    EXPECT_STREQ(client_.memory->connection().transport_reason, "asked for");
    std::vector<unsigned char> data(8192, 0xa5);
    ASSERT_EQ(client_.write(4096, data.data(), data.size()), Outcome::executed);
    EXPECT_EQ(std::memcmp(memory() + 4096, data.data(), data.size()), 0);
    memory()[5000] = 0x11;
    std::vector<unsigned char> seen(8192);
    constexpr uint64_t kReads = 10000;
    const uint64_t calls = client_.memory->statistics().system_calls;
    for (uint64_t i = 0; i < kReads; i++) {
        ASSERT_EQ(client_.read(4096, seen.data(), seen.size()), Outcome::executed);
    }
    EXPECT_EQ(seen[5000 - 4096], 0x11);
    // The session's thread looks around now and then.
    EXPECT_LT(client_.memory->statistics().system_calls - calls, kReads / 10);
    EXPECT_EQ(requests(OperationKind::read), 0U);
    EXPECT_EQ(requests(OperationKind::write), 0U);
    const Statistics statistics = client_.memory->statistics();
    EXPECT_EQ(statistics.operations[static_cast<size_t>(OperationKind::read)], kReads);
    EXPECT_EQ(statistics.operations[static_cast<size_t>(OperationKind::write)], 1U);
    EXPECT_EQ(statistics.bytes_read, kReads * 8192);
    EXPECT_EQ(statistics.bytes_written, 8192U);
    EXPECT_EQ(statistics.outcomes[static_cast<size_t>(Outcome::executed)], kReads + 1);
}

TEST_F(ShmMemoryTest, OperationsEndWithinSubmit) {
    open(client_);
    uint64_t word = 7;
    Io io(OperationKind::write, 64, &word, sizeof(word));
    client_.memory->submit(io.operation);
    EXPECT_EQ(io.operation.finished.load(), 1U);
    static int completed = 0;
    completed = 0;
    Io second(OperationKind::read, 64, &word, sizeof(word));
    second.operation.complete = [](Operation&) { completed++; };
    client_.memory->submit(second.operation);
    EXPECT_EQ(completed, 1);
}

TEST_F(ShmMemoryTest, AtomicsAreThoseOfTheServersMemory) {
    open(client_);
    EXPECT_EQ(client_.add(128, 5), 0U);
    EXPECT_EQ(client_.add(128, 5), 5U);
    Operation swap;
    swap.kind = OperationKind::compare_swap;
    swap.offset_bytes = 128;
    swap.compare = 10;
    swap.operand = 99;
    client_.run(swap);
    ASSERT_EQ(swap.outcome, Outcome::executed);
    EXPECT_EQ(swap.old_value, 10U);
    swap.reset();
    client_.run(swap);
    ASSERT_EQ(swap.outcome, Outcome::executed);
    EXPECT_EQ(swap.old_value, 99U);
    uint64_t word = 0;
    std::memcpy(&word, memory() + 128, sizeof(word));
    EXPECT_EQ(word, 99U);
    EXPECT_EQ(requests(OperationKind::compare_swap), 0U);
    swap.reset();
    swap.offset_bytes = 129;
    client_.run(swap);
    EXPECT_EQ(swap.outcome, Outcome::not_executed);
    EXPECT_EQ(swap.error, Error::einval);
}

TEST_F(ShmMemoryTest, AReaderReadsAndCannotWrite) {
    memory()[100] = 42;
    open(client_, OpenOptions::Mode::read);
    unsigned char seen = 0;
    ASSERT_EQ(client_.read(100, &seen, 1), Outcome::executed);
    EXPECT_EQ(seen, 42);
    EXPECT_EQ(requests(OperationKind::read), 0U);
    EXPECT_EQ(client_.write(100, &seen, 1), Outcome::not_executed);
    EXPECT_EQ(client_.error, Error::erofs);
    const void* address = client_.memory->direct_address(0, 4096);
    ASSERT_NE(address, nullptr);
    // Not by the mapping, nor by the descriptor behind it.
    EXPECT_EQ(mprotect(const_cast<void*>(address), 4096, PROT_READ | PROT_WRITE), -1);
    EXPECT_EQ(errno, EACCES);
    EXPECT_EQ(protection_of(address), "r--s");
}

// Whoever reads by an address does not see afterwards that another client has taken the volume and changed it.
TEST_F(ShmMemoryTest, AReaderOfWhatNobodyChangesHasNoAddress) {
    open(client_, OpenOptions::Mode::read_steady);
    unsigned char seen = 0;
    ASSERT_EQ(client_.read(100, &seen, 1), Outcome::executed);
    EXPECT_EQ(requests(OperationKind::read), 0U);
    EXPECT_EQ(client_.memory->direct_address(0, 4096), nullptr);
    Holder holder;
    ASSERT_TRUE(client_.memory->start_writing(false, holder).ok());
    EXPECT_NE(client_.memory->direct_address(0, 4096), nullptr);
}

TEST_F(ShmMemoryTest, AReaderThatGetsTheLeaseWritesDirectly) {
    open(client_, OpenOptions::Mode::read);
    const void* address = client_.memory->direct_address(0, 4096);
    Holder holder;
    ASSERT_TRUE(client_.memory->start_writing(false, holder).ok());
    uint64_t word = 3;
    ASSERT_EQ(client_.write(0, &word, sizeof(word)), Outcome::executed);
    EXPECT_EQ(requests(OperationKind::write), 0U);
    EXPECT_EQ(client_.memory->direct_address(0, 4096), address) << "addresses stay";
    EXPECT_EQ(protection_of(address), "rw-s");
    EXPECT_EQ(std::memcmp(address, &word, sizeof(word)), 0);
}

TEST_F(ShmMemoryTest, TheControlSpaceIsReadDirectlyAndChangedByRequests) {
    open(client_);
    wire::ControlHeader header{};
    Io read(OperationKind::read, 0, &header, sizeof(header));
    read.operation.space = AddressSpace::control;
    client_.run(read.operation);
    ASSERT_EQ(read.outcome(), Outcome::executed);
    EXPECT_EQ(header.magic, wire::kControlMagic);
    EXPECT_EQ(requests(OperationKind::read), 0U);
    uint64_t word = 77;
    Io write(OperationKind::write, header.words_offset, &word, sizeof(word));
    write.operation.space = AddressSpace::control;
    client_.run(write.operation);
    EXPECT_EQ(write.outcome(), Outcome::executed);
    EXPECT_EQ(requests(OperationKind::write), 1U);
    Io forged(OperationKind::write, header.sessions_offset, &word, sizeof(word));
    forged.operation.space = AddressSpace::control;
    client_.run(forged.operation);
    EXPECT_EQ(forged.outcome(), Outcome::not_executed) << "records of sessions are the server's";
}

TEST_F(ShmMemoryTest, BeyondTheEndIsTheServersAnswer) {
    open(client_);
    uint64_t word = 0;
    EXPECT_EQ(client_.read(kVolumeBytes - 4, &word, sizeof(word)), Outcome::not_executed);
    EXPECT_EQ(client_.error, Error::eio);
    EXPECT_EQ(client_.write(kVolumeBytes, &word, sizeof(word)), Outcome::not_executed);
    EXPECT_EQ(client_.error, Error::eio);
    EXPECT_EQ(client_.memory->direct_address(kVolumeBytes - 4, 8), nullptr);
    EXPECT_EQ(client_.memory->direct_address(UINT64_MAX, 2), nullptr);
    EXPECT_EQ(client_.memory->connection().incarnation, 1U) << "the session goes on";
}

TEST_F(ShmMemoryTest, WhatFollowsAFailureIsCancelled) {
    open(client_);
    uint64_t word = 5;
    Io beyond(OperationKind::write, kVolumeBytes, &word, sizeof(word));
    Io follower(OperationKind::write, 0, &word, sizeof(word));
    follower.operation.after_earlier = true;
    beyond.operation.next = &follower.operation;
    client_.memory->submit(beyond.operation);
    client_.memory->wait(beyond.operation);
    client_.memory->wait(follower.operation);
    EXPECT_EQ(beyond.outcome(), Outcome::not_executed);
    EXPECT_EQ(follower.outcome(), Outcome::not_executed);
    EXPECT_EQ(follower.operation.error, Error::ecanceled);
    EXPECT_EQ(memory()[0], 0);
}

TEST_F(ShmMemoryTest, AnOrderedBatchIsExecutedInOrderWithoutTheServer) {
    open(client_);
    uint64_t first = 1;
    uint64_t second = 2;
    Io one(OperationKind::write, 0, &first, sizeof(first));
    Io two(OperationKind::write, 0, &second, sizeof(second));
    two.operation.after_earlier = true;
    one.operation.next = &two.operation;
    client_.memory->submit(one.operation);
    EXPECT_EQ(one.operation.finished.load(), 1U);
    EXPECT_EQ(two.operation.finished.load(), 1U);
    EXPECT_EQ(memory()[0], 2);
    EXPECT_EQ(requests(OperationKind::write), 0U);
}

TEST_F(ShmMemoryTest, APassedDeadlineIsNotExecuted) {
    open(client_);
    uint64_t word = 9;
    Io io(OperationKind::write, 0, &word, sizeof(word));
    io.operation.deadline_ns = 1;
    client_.run(io.operation);
    EXPECT_EQ(io.outcome(), Outcome::not_executed);
    EXPECT_EQ(io.operation.error, Error::etimedout);
    EXPECT_EQ(memory()[0], 0);
}

TEST_F(ShmMemoryTest, ASecondWriterIsToldWhoHasTheLeaseAndMayRead) {
    open(client_);
    ClientFixture second;
    prepare(second, 2);
    const auto opened = try_open(second, OpenOptions::Mode::write);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error(), Error::ebusy);
    EXPECT_STREQ(second.holder.text, "the test");
    open(second, OpenOptions::Mode::read);
    Holder holder;
    EXPECT_EQ(second.memory->start_writing(false, holder).error(), Error::ebusy);
    unsigned char byte = 0;
    EXPECT_EQ(second.read(0, &byte, 1), Outcome::executed);
}

TEST_F(ShmMemoryTest, AHolderThatCannotBeEndedIsNotTakenOver) {
    open(client_);  // its process is the server's own
    ClientFixture second;
    prepare(second, 2);
    second.options.force = true;
    const auto opened = try_open(second, OpenOptions::Mode::write);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error(), Error::ebusy);
    uint64_t word = 4;
    EXPECT_EQ(client_.write(0, &word, sizeof(word)), Outcome::executed);
}

TEST_F(ShmMemoryTest, AHolderOverTcpIsFencedByAForcedTakeover) {
    open(client_, OpenOptions::Mode::write, TransportChoice::tcp);
    EXPECT_STREQ(client_.memory->connection().transport_name, "tcp");
    ClientFixture second;
    prepare(second, 2);
    second.options.force = true;
    open(second);
    uint64_t word = 4;
    EXPECT_NE(client_.write(0, &word, sizeof(word)), Outcome::executed);
    EXPECT_EQ(second.write(0, &word, sizeof(word)), Outcome::executed);
}

TEST_F(ShmMemoryTest, AServerThatIsAwayAtTheEndIsToldWhenItComesBack) {
    open(client_);
    ASSERT_NE(volume().info(host::monotonic_ns()).holder, "");
    server_.reset();
    std::thread closer([this] { client_.close(); });
    start();
    closer.join();
    EXPECT_TRUE(volume().was_memory_kept());
    EXPECT_EQ(volume().info(host::monotonic_ns()).holder, "");
    EXPECT_EQ(volume().info(host::monotonic_ns()).session_count, 0U);
}

TEST_F(ShmMemoryTest, TheLeaseIsFreeAfterClosing) {
    open(client_);
    uint64_t word = 4;
    EXPECT_EQ(client_.write(0, &word, sizeof(word)), Outcome::executed);
    client_.close();
    ClientFixture second;
    prepare(second, 2);
    open(second);
    EXPECT_EQ(second.read(0, &word, sizeof(word)), Outcome::executed);
    EXPECT_EQ(word, 4U);
}

TEST_F(ShmMemoryTest, AGrownVolumeIsReachedDirectly) {
    open(client_);
    const void* address = client_.memory->direct_address(0, 8);
    std::string problem;
    ASSERT_TRUE(server_->resize_volume("volume", 2 * kVolumeBytes, problem).ok()) << problem;
    uint64_t word = 8;
    Outcome outcome = Outcome::pending;
    // By a request, until the news of it has come.
    for (int i = 0; i < 1000 && client_.memory->direct_address(kVolumeBytes, 8) == nullptr; i++) {
        outcome = client_.write(kVolumeBytes, &word, sizeof(word));
        EXPECT_EQ(outcome, Outcome::executed);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ASSERT_NE(client_.memory->direct_address(kVolumeBytes, 8), nullptr);
    EXPECT_EQ(client_.memory->direct_address(0, 8), address);
    const uint64_t before = requests(OperationKind::write);
    EXPECT_EQ(client_.write(kVolumeBytes + 4096, &word, sizeof(word)), Outcome::executed);
    EXPECT_EQ(requests(OperationKind::write), before);
}

TEST_F(ShmMemoryTest, ManyThreadsCountEachOperationOnce) {
    open(client_);
    constexpr int kThreads = 8;
    constexpr int kRounds = 2000;
    std::vector<std::thread> threads;
    for (int number = 0; number < kThreads; number++) {
        threads.emplace_back([&, number] {
            uint64_t word = 0;
            for (int round = 0; round < kRounds; round++) {
                Operation add;
                add.kind = OperationKind::fetch_add;
                add.offset_bytes = 0;
                add.operand = 1;
                client_.run(add);
                Io io(OperationKind::write, 4096 + number * 64, &word, sizeof(word));
                client_.run(io.operation);
                word++;
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    uint64_t total = 0;
    std::memcpy(&total, memory(), sizeof(total));
    EXPECT_EQ(total, uint64_t{kThreads} * kRounds);
    const Statistics statistics = client_.memory->statistics();
    EXPECT_EQ(statistics.operations[static_cast<size_t>(OperationKind::fetch_add)],
              uint64_t{kThreads} * kRounds);
    EXPECT_EQ(statistics.operations[static_cast<size_t>(OperationKind::write)],
              uint64_t{kThreads} * kRounds);
    EXPECT_EQ(client_.memory->change_mark(), 2 * uint64_t{kThreads} * kRounds);
}

// ---- Servers that come and go ----------------------------------------------------------------------------

TEST_F(ShmMemoryTest, AServerThatStartsAgainWithItsMemoryIsGoneOnWith) {
    open(client_);
    uint64_t word = 21;
    ASSERT_EQ(client_.write(0, &word, sizeof(word)), Outcome::executed);
    const void* address = client_.memory->direct_address(0, 8);
    restart_as_seen_by(client_);
    word = 22;
    ASSERT_EQ(client_.write(64, &word, sizeof(word)), Outcome::executed);
    EXPECT_EQ(client_.add(0, 1), 21U);
    EXPECT_EQ(client_.recorder.last(), ConnectionState::ready);
    EXPECT_GE(client_.memory->statistics().reconnections, 1U);
    EXPECT_EQ(memory()[64], 22);
    EXPECT_EQ(memory()[0], 22);
    for (int i = 0; i < 1000 && client_.memory->direct_address(0, 8) == nullptr; i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(client_.memory->direct_address(0, 8), address);
}

TEST_F(ShmMemoryTest, AServerThatLostWhatWasWrittenIsNoticed) {
    keeper_.keeps = false;
    open(client_);
    uint64_t word = 21;
    ASSERT_EQ(client_.write(0, &word, sizeof(word)), Outcome::executed);
    restart_as_seen_by(client_);
    EXPECT_NE(client_.read(0, &word, sizeof(word)), Outcome::executed);
    EXPECT_EQ(client_.error, Error::estale);
    EXPECT_EQ(client_.recorder.last(), ConnectionState::memory_lost);
    EXPECT_EQ(client_.memory->direct_address(0, 8), nullptr);
}

TEST_F(ShmMemoryTest, FlushedContentOfADiskIsGoneOnWithInNewMemory) {
    server_.reset();
    std::filesystem::remove_all(folder_ + "/state");
    keeper_.keeps = false;
    start(folder_ + "/backing");
    open(client_);
    uint64_t word = 21;
    ASSERT_EQ(client_.write(0, &word, sizeof(word)), Outcome::executed);
    ASSERT_EQ(client_.flush(), Outcome::executed);
    const auto* direct =
        static_cast<const volatile uint64_t*>(client_.memory->direct_address(0, 8));
    restart_as_seen_by(client_);
    ASSERT_EQ(client_.read(0, &word, sizeof(word)), Outcome::executed);
    EXPECT_EQ(word, 21U);
    word = 22;
    ASSERT_EQ(client_.write(0, &word, sizeof(word)), Outcome::executed);
    EXPECT_EQ(memory()[0], 22);
    for (int i = 0; i < 1000 && client_.memory->direct_address(0, 8) == nullptr; i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(*direct, 22U) << "an address that was given shows the new memory";
}

TEST_F(ShmMemoryTest, UnflushedContentOfADiskIsMissed) {
    server_.reset();
    std::filesystem::remove_all(folder_ + "/state");
    keeper_.keeps = false;
    start(folder_ + "/backing");
    open(client_);
    uint64_t word = 21;
    ASSERT_EQ(client_.write(0, &word, sizeof(word)), Outcome::executed);
    ASSERT_EQ(client_.flush(), Outcome::executed);
    ASSERT_EQ(client_.write(4096, &word, sizeof(word)), Outcome::executed);
    restart_as_seen_by(client_);
    EXPECT_NE(client_.read(0, &word, sizeof(word)), Outcome::executed);
    EXPECT_EQ(client_.recorder.last(), ConnectionState::memory_lost);
}

TEST_F(ShmMemoryTest, ADeletedVolumeEndsTheSession) {
    open(client_);
    std::string problem;
    ASSERT_TRUE(server_->delete_volume("volume", true, problem).ok()) << problem;
    for (int i = 0; i < 1000 && client_.recorder.last() == ConnectionState::ready; i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(client_.recorder.last(), ConnectionState::memory_lost);
    uint64_t word = 0;
    EXPECT_NE(client_.read(0, &word, sizeof(word)), Outcome::executed);
}

// ---- The choice -----------------------------------------------------------------------------------------

TEST_F(ShmMemoryTest, TheShortestWayIsChosenAndSaidWhy) {
    open(client_, OpenOptions::Mode::read, TransportChoice::automatic);
    EXPECT_STREQ(client_.memory->connection().transport_name, "shm");
    EXPECT_STREQ(client_.memory->connection().transport_reason, "the server is this host");
}

TEST_F(ShmMemoryTest, WithoutASocketItIsTcp) {
    configuration_.runtime_directory = folder_ + "/elsewhere";
    open(client_, OpenOptions::Mode::read, TransportChoice::automatic);
    EXPECT_STREQ(client_.memory->connection().transport_name, "tcp");
    EXPECT_STREQ(client_.memory->connection().transport_reason,
                 "the volume has no socket on this host");
    client_.close();
    const auto opened = try_open(client_, OpenOptions::Mode::read, TransportChoice::shm);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error(), Error::enoent);
    EXPECT_NE(client_.problem.find("volume.volume.sock"), std::string::npos) << client_.problem;
}

TEST_F(ShmMemoryTest, ASocketThatNobodyServesIsPassedOver) {
    server_.reset();
    std::filesystem::create_directories(folder_ + "/stale");
    const std::string path = folder_ + "/stale/volume.volume.sock";
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
    const UniqueDescriptor stale(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(stale.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
    start();
    const std::string right = configuration_.runtime_directory;
    configuration_.runtime_directory = folder_ + "/stale";
    open(client_, OpenOptions::Mode::read, TransportChoice::automatic);
    EXPECT_STREQ(client_.memory->connection().transport_name, "tcp");
    client_.close();
    // A server that starts takes such a socket's place.
    server_.reset();
    start();
    open(client_, OpenOptions::Mode::read, TransportChoice::automatic);
    EXPECT_STREQ(client_.memory->connection().transport_name, "shm");
}

TEST_F(ShmMemoryTest, SocketsComeAndGoWithTheirVolumes) {
    const std::string path = folder_ + "/run/volume.other.sock";
    std::string problem;
    ASSERT_TRUE(server_->create_volume({"other", kVolumeBytes, 4096, ""}, problem).ok()) << problem;
    EXPECT_TRUE(std::filesystem::exists(path));
    ASSERT_TRUE(server_->delete_volume("other", true, problem).ok()) << problem;
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_TRUE(std::filesystem::exists(folder_ + "/run/volume.volume.sock"));
    server_->stop();
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/run/volume.volume.sock"));
}

TEST_F(ShmMemoryTest, AWrongKeyIsRefusedThereAsWell) {
    key_.bytes[0] ^= 1;
    const auto opened = try_open(client_, OpenOptions::Mode::read);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error(), Error::eacces);
}

}  // namespace
}  // namespace tiffin::rdma_blk::test
