// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Clients of rc and a server of this process, over a network that is made up: what goes through windows, what does
// not, and what is done when a queue pair breaks at any point.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "rdma_blk/server/volume_state.h"
#include "rdma_blk/transport/open.h"
#include "tests/support/fake_network.h"
#include "tests/unit/rdma_blk/server/server_fixture.h"

namespace tiffin::rdma_blk {
namespace {

using test::FakeNetwork;

struct Io {
    Operation operation;
    vfs::IoVector buffer;

    Io() = default;
    Io(OperationKind kind, uint64_t offset_bytes, void* data, size_t size_bytes) {
        set(kind, offset_bytes, data, size_bytes);
    }
    void set(OperationKind kind, uint64_t offset_bytes, void* data, size_t size_bytes) {
        operation.kind = kind;
        operation.offset_bytes = offset_bytes;
        buffer = {data, size_bytes};
        operation.buffers = &buffer;
        operation.buffer_count = 1;
    }
};

class Recorder final : public ConnectionListener {
  public:
    void connection_changed(const ConnectionInfo& info) override { last = info.state; }
    std::atomic<ConnectionState> last{ConnectionState::connecting};
};

class Client {
  public:
    Client(uint16_t port, const Secret<kVolumeKeyBytes>& key, unsigned char number) {
        address = {"127.0.0.1", port, TransportChoice::rc};
        std::memcpy(options.key, key.bytes, sizeof(options.key));
        options.mode = OpenOptions::Mode::write;
        options.volume_name = "volume";
        options.holder_text = "the test";
        options.client_uuid[0] = number;
        options.slot_count = 16;
    }
    ~Client() {
        if (memory) {
            memory->close();
        }
    }
    Error try_open() {
        auto opened = open_remote_memory(address, options, &recorder, holder, problem);
        if (!opened.ok()) {
            return opened.error();
        }
        memory = opened.release_value();
        return Error{};
    }
    void open() { ASSERT_EQ(try_open(), Error{}) << problem; }
    Outcome run(Operation& operation) {
        memory->submit(operation);
        memory->wait(operation);
        error = operation.error;
        return operation.outcome;
    }
    Outcome write(uint64_t offset_bytes, const void* data, size_t size_bytes,
                  AddressSpace space = AddressSpace::data) {
        Io io(OperationKind::write, offset_bytes, const_cast<void*>(data), size_bytes);
        io.operation.space = space;
        return run(io.operation);
    }
    Outcome read(uint64_t offset_bytes, void* data, size_t size_bytes,
                 AddressSpace space = AddressSpace::data) {
        Io io(OperationKind::read, offset_bytes, data, size_bytes);
        io.operation.space = space;
        return run(io.operation);
    }
    Outcome add(uint64_t offset_bytes, uint64_t operand, uint64_t& old_value) {
        Operation operation;
        operation.kind = OperationKind::fetch_add;
        operation.offset_bytes = offset_bytes;
        operation.operand = operand;
        const Outcome outcome = run(operation);
        old_value = operation.old_value;
        return outcome;
    }
    Outcome flush() {
        Operation operation;
        operation.kind = OperationKind::flush;
        return run(operation);
    }

    RemoteAddress address;
    OpenOptions options;
    Recorder recorder;
    Holder holder;
    std::string problem;
    std::unique_ptr<RemoteMemory> memory;
    std::atomic<Error> error{Error::eio};  // of whatever was completed last
};

class RcTest : public ServerFixture {
  protected:
    void SetUp() override {
        ServerFixture::SetUp();
        configuration_.probe_interval_ms = 200;
        configuration_.lease_timeout_s = 1;
    }
    std::unique_ptr<Client> make_client(unsigned char number = 1) {
        return std::make_unique<Client>(server_->port(), key_, number);
    }
    template <typename Condition>
    static void wait_for(Condition condition) {
        for (int i = 0; i < 5000 && !condition(); i++) {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        ASSERT_TRUE(condition());
    }

    FakeNetwork network_;
};

TEST_F(RcTest, ReadsAndWritesDoNotPassTheServersProcessor) {
    start();
    auto client = make_client();
    client->open();
    EXPECT_STREQ(client->memory->connection().transport_name, "rc");
    std::vector<unsigned char> out(100'000, 7);
    std::vector<unsigned char> in(out.size());
    EXPECT_EQ(client->write(4096, out.data(), out.size()), Outcome::executed);
    EXPECT_EQ(client->write(0, "small", 5), Outcome::executed);
    EXPECT_EQ(client->read(4096, in.data(), in.size()), Outcome::executed);
    EXPECT_EQ(in, out);
    EXPECT_EQ(std::memcmp(memory() + 4096, out.data(), out.size()), 0);
    EXPECT_EQ(std::memcmp(memory(), "small", 5), 0);
    EXPECT_EQ(volume().counters().requests[1].load(), 0U);
    EXPECT_EQ(volume().counters().requests[2].load(), 0U);
    const FakeNetwork::Counts counts = network_.counts();
    EXPECT_GE(counts.inlined, 1U);
    EXPECT_EQ(counts.refusals, 0U);
    // 100,000 bytes each way through bounce buffers.
    EXPECT_EQ(client->memory->statistics().copied_bytes, 200'000U);
}

TEST_F(RcTest, MemoryOfAnArenaIsNotCopied) {
    start();
    auto client = make_client();
    client->open();
    std::vector<unsigned char> arena(1 << 20, 3);
    ASSERT_TRUE(client->memory->add_arena(MutableByteSpan(arena.data(), arena.size())).ok());
    EXPECT_EQ(client->write(0, arena.data(), 65536), Outcome::executed);
    EXPECT_EQ(client->read(0, arena.data() + 65536, 65536), Outcome::executed);
    EXPECT_EQ(client->memory->statistics().copied_bytes, 0U);
    EXPECT_EQ(memory()[65535], 3);
}

TEST_F(RcTest, TheLargestTransferIsWhatTheDeviceTakesAtOnce) {
    start();
    auto client = make_client();
    client->open();
    const uint32_t most = client->memory->limits().transfer_bytes;
    ASSERT_EQ(most, 4 * 65536U);  // the device's four pieces of a bounce buffer each
    std::vector<unsigned char> out(most + 1, 7);
    std::vector<unsigned char> in(most);
    EXPECT_EQ(client->write(0, out.data(), most), Outcome::executed);
    EXPECT_EQ(client->read(0, in.data(), most), Outcome::executed);
    EXPECT_EQ(std::memcmp(in.data(), out.data(), most), 0);
    EXPECT_EQ(client->write(0, out.data(), most + 1), Outcome::not_executed);
    EXPECT_EQ(client->error, Error::einval);
    EXPECT_EQ(client->memory->statistics().reconnections, 0U);
}

TEST_F(RcTest, WhatFindsNoBounceBufferWaitsForOne) {
    constexpr size_t kWrites = 100;  // of four pieces each, of which there are 256
    configuration_.slots = 128;
    start();
    auto client = make_client();
    client->options.slot_count = 128;
    client->open();
    ASSERT_GE(client->memory->limits().operations_in_flight, kWrites);
    const uint32_t most = client->memory->limits().transfer_bytes;
    std::vector<unsigned char> bytes(most, 9);
    std::vector<Io> ios(kWrites);
    network_.hold(true);
    for (size_t i = 0; i < kWrites; i++) {
        ios[i].set(OperationKind::write, i % 16 * most, bytes.data(), most);
        ios[i].operation.next = i + 1 < kWrites ? &ios[i + 1].operation : nullptr;
    }
    client->memory->submit(ios[0].operation);
    // With the log behind each of them, and a heartbeat perhaps.
    EXPECT_GE(network_.held_count(), 128U);
    EXPECT_LE(network_.held_count(), 129U);
    network_.hold(false);
    for (Io& io : ios) {
        client->memory->wait(io.operation);
        EXPECT_EQ(io.operation.outcome, Outcome::executed);
    }
    EXPECT_TRUE(std::all_of(memory(), memory() + kVolumeBytes,
                            [](unsigned char byte) { return byte == 9; }));
    EXPECT_EQ(client->memory->statistics().reconnections, 0U);
}

TEST_F(RcTest, ABatchIsOneDoorbellOneSignalAndOneRoundTrip) {
    start();
    auto client = make_client();
    client->open();
    unsigned char bytes[4096] = {1};
    Io data(OperationKind::write, 0, bytes, sizeof(bytes));
    Io journal(OperationKind::write, 8192, bytes, 64);
    journal.operation.after_earlier = true;
    data.operation.next = &journal.operation;
    const FakeNetwork::Counts before = network_.counts();
    const uint64_t round_trips = client->memory->statistics().round_trips;
    client->memory->submit(data.operation);
    client->memory->wait(data.operation);
    client->memory->wait(journal.operation);
    const FakeNetwork::Counts after = network_.counts();
    EXPECT_EQ(journal.operation.outcome, Outcome::executed);
    // A heartbeat may have come between.
    EXPECT_LE(after.posts - before.posts, 2U);
    EXPECT_LE(after.signalled - before.signalled, 2U);
    EXPECT_LE(client->memory->statistics().round_trips - round_trips, 2U);
    // Writes are executed in order anyway; only behind reads is a fence needed.
    EXPECT_EQ(after.fenced, before.fenced);
    Io read(OperationKind::read, 0, bytes, sizeof(bytes));
    Io write(OperationKind::write, 8192, bytes, sizeof(bytes));
    write.operation.after_earlier = true;
    read.operation.next = &write.operation;
    client->memory->submit(read.operation);
    client->memory->wait(read.operation);
    client->memory->wait(write.operation);
    EXPECT_EQ(network_.counts().fenced, before.fenced + 1);
}

TEST_F(RcTest, WhatIsNotAllowedIsRefusedWithoutBreakingAnything) {
    start();
    auto client = make_client();
    client->open();
    unsigned char bytes[64] = {};
    EXPECT_EQ(client->read(kVolumeBytes - 32, bytes, 64), Outcome::not_executed);
    EXPECT_EQ(client->error, Error::eio);
    EXPECT_EQ(client->write(0, bytes, 64, AddressSpace::control), Outcome::not_executed);
    EXPECT_EQ(client->error, Error::eio);
    EXPECT_EQ(client->read(0, bytes, 64, AddressSpace::control), Outcome::executed);
    EXPECT_EQ(std::memcmp(bytes, "TFRCORE1", 8), 0);
    EXPECT_EQ(client->write(8192, "word", 4, AddressSpace::control), Outcome::executed);
    EXPECT_EQ(network_.counts().refusals, 0U);
    EXPECT_EQ(client->memory->statistics().reconnections, 0U);
}

TEST_F(RcTest, AReaderCannotWriteUntilItHasTheLease) {
    start();
    auto client = make_client();
    client->options.mode = OpenOptions::Mode::read;
    client->open();
    EXPECT_EQ(client->write(0, "x", 1), Outcome::not_executed);
    EXPECT_EQ(client->error, Error::erofs);
    ASSERT_TRUE(client->memory->start_writing(false, client->holder).ok());
    EXPECT_EQ(client->write(0, "x", 1), Outcome::executed);
    EXPECT_EQ(client->memory->statistics().reconnections, 0U);
    EXPECT_EQ(client->recorder.last, ConnectionState::ready);
}

TEST_F(RcTest, AtomicsOfTheServersProcessorGoOverTheControlConnection) {
    start();
    auto client = make_client();
    client->open();
    uint64_t old_value = 1;
    EXPECT_EQ(client->add(64, 5, old_value), Outcome::executed);
    EXPECT_EQ(old_value, 0U);
    EXPECT_EQ(client->add(64, 5, old_value), Outcome::executed);
    EXPECT_EQ(old_value, 5U);
    EXPECT_EQ(client->flush(), Outcome::executed);
}

TEST_F(RcTest, OrderBetweenDeviceAndControlConnection) {
    start();
    auto client = make_client();
    client->open();
    uint64_t value = 40;
    Io write(OperationKind::write, 0, &value, sizeof(value));
    Operation atomic;
    atomic.kind = OperationKind::fetch_add;
    atomic.operand = 2;
    atomic.after_earlier = true;
    uint64_t result = 0;
    Io read(OperationKind::read, 0, &result, sizeof(result));
    read.operation.after_earlier = true;
    write.operation.next = &atomic;
    atomic.next = &read.operation;
    client->memory->submit(write.operation);
    client->memory->wait(read.operation);
    client->memory->wait(atomic);
    client->memory->wait(write.operation);
    EXPECT_EQ(atomic.old_value, 40U);
    EXPECT_EQ(result, 42U);
}

TEST_F(RcTest, ABrokenQueuePairIsReplacedAndWritesAreRepeated) {
    start();
    auto client = make_client();
    client->open();
    for (const bool is_executed : {false, true}) {
        network_.break_after(3, is_executed);
        for (uint64_t i = 0; i < 10; i++) {
            EXPECT_EQ(client->write(i * 512, &i, sizeof(i)), Outcome::executed);
        }
        for (uint64_t i = 0; i < 10; i++) {
            uint64_t found = 99;
            EXPECT_EQ(client->read(i * 512, &found, sizeof(found)), Outcome::executed);
            EXPECT_EQ(found, i);
        }
    }
    EXPECT_EQ(client->memory->statistics().reconnections, 2U);
    EXPECT_EQ(client->recorder.last, ConnectionState::ready);
    // Of each session one, at both ends.
    wait_for([&] { return network_.queue_pair_count() == 2; });
}

// Every point of a batch as the moment of the cut, with the answer lost or the request.
TEST_F(RcTest, OnlyWhatWasNotExecutedIsWrittenAgain) {
    constexpr uint64_t kWrites = 48;
    constexpr uint64_t kGranule = 16;  // changes between two log writes
    configuration_.slots = 64;
    start();
    auto client = make_client();
    client->options.slot_count = 64;
    client->open();
    uint64_t recovered_before = 0;
    uint64_t resent_before = 0;
    for (uint64_t cut = 0; cut < kWrites; cut++) {
        const bool is_executed = cut % 2 != 0;
        std::vector<uint64_t> values(kWrites);
        std::vector<Io> ios(kWrites);
        for (uint64_t i = 0; i < kWrites; i++) {
            values[i] = cut << 32 | (i + 1);
            ios[i].set(OperationKind::write, i * 512, &values[i], sizeof(uint64_t));
            ios[i].operation.next = i + 1 < kWrites ? &ios[i + 1].operation : nullptr;
        }
        network_.loses_answers = true;
        network_.break_after(cut, is_executed);
        client->memory->submit(ios[0].operation);
        network_.loses_answers = false;
        network_.break_pairs();  // if a log write was to be the last one
        for (uint64_t i = 0; i < kWrites; i++) {
            client->memory->wait(ios[i].operation);
            ASSERT_EQ(ios[i].operation.outcome, Outcome::executed);
            ASSERT_EQ(std::memcmp(memory() + i * 512, &values[i], sizeof(uint64_t)), 0)
                << "write " << i << " of the batch that broke after " << cut;
        }
        const Statistics statistics = client->memory->statistics();
        const uint64_t recovered = statistics.recovered_operations - recovered_before;
        const uint64_t resent = statistics.resent_operations - resent_before;
        recovered_before = statistics.recovered_operations;
        resent_before = statistics.resent_operations;
        EXPECT_LE(resent, kWrites - std::min(cut, kWrites) + kGranule) << "cut after " << cut;
        EXPECT_LE(recovered, cut + 1);
    }
    EXPECT_GT(recovered_before, kWrites);
}

// What was overwritten since by somebody who may, must not come back.
TEST_F(RcTest, WhatTheLogCoversIsNotWrittenAgain) {
    start();
    auto client = make_client();
    client->open();
    std::vector<unsigned char> bytes(65536, 7);
    Io logged(OperationKind::write, 0, bytes.data(), bytes.size());
    Io other(OperationKind::write, 65536, bytes.data(), 512);
    logged.operation.next = &other.operation;
    network_.loses_answers = true;
    client->memory->submit(logged.operation);
    memory()[0] = 99;
    network_.loses_answers = false;
    network_.break_pairs();
    client->memory->wait(logged.operation);
    client->memory->wait(other.operation);
    EXPECT_EQ(logged.operation.outcome, Outcome::executed);
    EXPECT_EQ(other.operation.outcome, Outcome::executed);
    EXPECT_EQ(memory()[0], 99);
    EXPECT_EQ(memory()[65536], 7) << "behind the log";
}

// The place in the control space had another session's log.
TEST_F(RcTest, AnEarlierSessionsLogSaysNothing) {
    start();
    auto first = make_client(1);
    first->open();
    std::vector<unsigned char> bytes(65536, 1);
    for (int i = 0; i < 20; i++) {
        ASSERT_EQ(first->write(0, bytes.data(), bytes.size()), Outcome::executed);
    }
    first->memory->close();
    first->memory.reset();
    auto second = make_client(2);
    second->open();
    network_.break_after(0, false);
    EXPECT_EQ(second->write(4096, "new", 3), Outcome::executed);
    EXPECT_EQ(std::memcmp(memory() + 4096, "new", 3), 0);
    EXPECT_EQ(second->memory->statistics().recovered_operations, 0U);
}

// One for each 16 small changes, or 64 KiB of them; none for reads.
TEST_F(RcTest, HowOftenTheLogIsWritten) {
    start();
    auto client = make_client();
    client->open();
    std::vector<unsigned char> bytes(65536, 1);
    const auto writes_of = [&](int count, size_t size, bool reads) {
        const uint64_t before = network_.counts().writes;
        for (int i = 0; i < count; i++) {
            EXPECT_EQ(
                reads ? client->read(0, bytes.data(), size) : client->write(0, bytes.data(), size),
                Outcome::executed);
        }
        return network_.counts().writes - before;
    };
    // Heartbeats come between.
    EXPECT_NEAR(static_cast<double>(writes_of(160, 64, false)), 170.0, 2.0);
    EXPECT_NEAR(static_cast<double>(writes_of(160, 8192, false)), 180.0, 2.0);
    EXPECT_NEAR(static_cast<double>(writes_of(20, 65536, false)), 40.0, 2.0);
    EXPECT_LE(writes_of(100, 4096, true), 2U);
}

TEST_F(RcTest, AServerThatStartsAgainSaysWhatItsMemoryHasGot) {
    start();
    const uint16_t port = server_->port();
    auto client = make_client();
    client->open();
    std::vector<unsigned char> bytes(65536, 7);
    configuration_.listen = {{"127.0.0.1", port}};
    // A client that sees the answer before the end of the connection, as on a machine that is busy, asks nothing.
    uint64_t recovered = 0;
    for (int attempt = 0; attempt < 20 && recovered == 0; attempt++) {
        Io logged(OperationKind::write, 0, bytes.data(), bytes.size());
        memory()[0] = 0;
        network_.stalls_polls = true;
        client->memory->submit(logged.operation);
        // The client's own thread may be within a poll: it posts after that, and the server would not have the write.
        const bool is_posted = network_.counts().writes != 0 && memory()[0] == 7;
        if (!is_posted) {
            network_.stalls_polls = false;
            client->memory->wait(logged.operation);
            continue;
        }
        std::thread waiter([&] { client->memory->wait(logged.operation); });
        restart();
        memory()[0] = 99;
        network_.stalls_polls = false;
        waiter.join();
        EXPECT_EQ(logged.operation.outcome, Outcome::executed);
        EXPECT_EQ(memory()[0], 99);
        recovered = client->memory->statistics().recovered_operations;
    }
    EXPECT_EQ(recovered, 1U);
}

TEST_F(RcTest, ADeadlineEndsThePathAndNothingLateArrives) {
    start();
    auto client = make_client();
    client->open();
    uint64_t value = 1;
    ASSERT_EQ(client->write(0, &value, sizeof(value)), Outcome::executed);
    network_.hold(true);
    value = 2;
    Io late(OperationKind::write, 0, &value, sizeof(value));
    late.operation.deadline_ns = host::monotonic_ns() + 20'000'000;
    EXPECT_EQ(client->run(late.operation), Outcome::unknown);
    EXPECT_EQ(client->error, Error::etimedout);
    // Once anything else has been executed it is decided, though the packet is still on its way.
    uint64_t found = 0;
    EXPECT_EQ(client->read(0, &found, sizeof(found)), Outcome::executed);
    EXPECT_EQ(found, 1U);
    network_.hold(false);
    EXPECT_EQ(client->read(0, &found, sizeof(found)), Outcome::executed);
    EXPECT_EQ(found, 1U);
    EXPECT_EQ(client->memory->statistics().aborts, 1U);
}

TEST_F(RcTest, FencingClosesWindowsBeforeTheNextWriterIsLetIn) {
    start();
    auto old_holder = make_client(1);
    old_holder->open();
    std::atomic<uint64_t> executed{0};
    std::thread writer([&] {
        uint64_t value = 1;
        while (old_holder->write(4096, &value, sizeof(value)) == Outcome::executed) {
            value++;
            executed++;
        }
    });
    wait_for([&] { return executed.load() > 100; });
    auto other = make_client(2);
    EXPECT_EQ(other->try_open(), Error::ebusy);
    EXPECT_EQ(std::string(other->holder.text), "the test");
    other->options.force = true;
    other->open();
    uint64_t mine = ~uint64_t{0};
    ASSERT_EQ(other->write(4096, &mine, sizeof(mine)), Outcome::executed);
    writer.join();
    uint64_t found = 0;
    ASSERT_EQ(other->read(4096, &found, sizeof(found)), Outcome::executed);
    EXPECT_EQ(found, mine);
    EXPECT_EQ(old_holder->error, Error::estale);
    wait_for([&] { return old_holder->recorder.last == ConnectionState::fenced; });
    EXPECT_GE(network_.counts().invalidations, 4U);
}

TEST_F(RcTest, NobodyGetsTheLeaseWhileADeviceLetsItsFormerHolderThrough) {
    start();
    auto old_holder = make_client(1);
    old_holder->open();
    network_.hold(true);
    uint64_t old_value = 1;
    Io late(OperationKind::write, 4096, &old_value, sizeof(old_value));
    old_holder->memory->submit(late.operation);
    ASSERT_GE(network_.held_count(), 1U);
    network_.ends_no_pair = true;
    auto other = make_client(2);
    other->options.force = true;
    EXPECT_EQ(other->try_open(), Error::enospc);
    EXPECT_EQ(volume().info(host::monotonic_ns()).holder, "");
    EXPECT_EQ(other->try_open(), Error::enospc) << "it is not forgotten with the session";
    network_.ends_no_pair = false;
    other->open();
    network_.hold(false);
    uint64_t found = 1;
    EXPECT_EQ(other->read(4096, &found, sizeof(found)), Outcome::executed);
    EXPECT_EQ(found, 0U);
    old_holder->memory->wait(late.operation);
}

TEST_F(RcTest, NobodyReadsSteadilyWhileADeviceLetsAFormerHolderThrough) {
    start();
    for (const bool is_closed : {false, true}) {
        auto writer = make_client(1);
        writer->open();
        auto reader = make_client(2);
        reader->options.mode = OpenOptions::Mode::read_steady;
        reader->options.force = true;
        network_.ends_no_pair = true;
        if (is_closed) {
            writer.reset();
            EXPECT_EQ(volume().info(host::monotonic_ns()).holder, "");
        }
        EXPECT_EQ(reader->try_open(), Error::enospc);
        EXPECT_EQ(reader->try_open(), Error::enospc) << "it is not forgotten with the lease";
        network_.ends_no_pair = false;
        reader->open();
    }
}

TEST_F(RcTest, ALeaseDoesNotWaitForARegistration) {
    start();
    auto slow = make_client(1);
    slow->options.mode = OpenOptions::Mode::read;
    network_.stalls_registration = true;
    std::thread opening([&] { EXPECT_EQ(slow->try_open(), Error{}); });
    wait_for([&] { return network_.is_stalled.load(); });
    auto writer = make_client(2);
    writer->address.transport = TransportChoice::tcp;
    writer->options.mode = OpenOptions::Mode::read;
    writer->open();
    EXPECT_TRUE(writer->memory->start_writing(false, writer->holder).ok());
    EXPECT_TRUE(network_.is_stalled.load()) << "the lease came behind it";
    network_.stalls_registration = false;
    opening.join();
}

TEST_F(RcTest, ASessionGoesOnWhenTheDeviceHasEndedItsEarlierPath) {
    start();
    auto client = make_client();
    client->open();
    network_.ends_no_pair = true;
    const uint64_t refused =
        volume().counters().sessions_refused[static_cast<size_t>(wire::RefusalReason::no_room)];
    network_.break_after(0, false);
    uint64_t value = 5;
    Io write(OperationKind::write, 0, &value, sizeof(value));
    client->memory->submit(write.operation);
    wait_for([&] {
        return volume()
                   .counters()
                   .sessions_refused[static_cast<size_t>(wire::RefusalReason::no_room)] > refused;
    });
    EXPECT_EQ(write.operation.finished.load(), 0U);
    network_.ends_no_pair = false;
    client->memory->wait(write.operation);
    EXPECT_EQ(write.operation.outcome, Outcome::executed);
}

// Whether others' queue pairs are kept out is the device's to show (tests/vm); ours is whom windows are opened for.
TEST_F(RcTest, AReaderHasNoWindowThatWritesData) {
    start();
    auto reader = make_client(1);
    reader->options.mode = OpenOptions::Mode::read;
    reader->open();
    const auto of_reader = network_.windows();
    ASSERT_EQ(of_reader.size(), 3U);
    size_t written = 0;
    for (const auto& window : of_reader) {
        EXPECT_EQ(window.queue_pair, of_reader[0].queue_pair);
        if (window.allows_writes) {
            written++;
            EXPECT_LE(window.size_bytes, 4096U);  // its own part of the control space
        }
    }
    EXPECT_EQ(written, 1U);
    auto writer = make_client(2);
    writer->open();
    size_t of_writer = 0;
    size_t data_written = 0;
    for (const auto& window : network_.windows()) {
        of_writer += window.queue_pair != of_reader[0].queue_pair ? 1 : 0;
        data_written += window.allows_writes && window.size_bytes == kVolumeBytes ? 1 : 0;
    }
    EXPECT_EQ(of_writer, 4U);
    EXPECT_EQ(data_written, 1U);
}

TEST_F(RcTest, AWriteOnItsWayDoesNotLandAfterATakeover) {
    start();
    auto old_holder = make_client(1);
    old_holder->open();
    network_.hold(true);
    uint64_t old_value = 1;
    Io late(OperationKind::write, 4096, &old_value, sizeof(old_value));
    old_holder->memory->submit(late.operation);
    ASSERT_GE(network_.held_count(), 1U);
    auto other = make_client(2);
    other->options.force = true;
    other->open();
    uint64_t mine = 2;
    ASSERT_EQ(other->write(4096, &mine, sizeof(mine)), Outcome::executed);
    network_.hold(false);
    old_holder->memory->wait(late.operation);
    EXPECT_EQ(late.operation.outcome, Outcome::unknown);
    EXPECT_EQ(late.operation.error, Error::estale);
    EXPECT_EQ(std::memcmp(memory() + 4096, &mine, sizeof(mine)), 0);
}

TEST_F(RcTest, AServerThatStartsAgainWithItsMemoryIsFoundAgain) {
    start();
    const uint16_t port = server_->port();
    auto client = make_client();
    client->open();
    uint64_t value = 11;
    ASSERT_EQ(client->write(0, &value, sizeof(value)), Outcome::executed);
    configuration_.listen = {{"127.0.0.1", port}};
    restart();
    uint64_t found = 0;
    EXPECT_EQ(client->read(0, &found, sizeof(found)), Outcome::executed);
    EXPECT_EQ(found, 11U);
    value = 12;
    EXPECT_EQ(client->write(0, &value, sizeof(value)), Outcome::executed);
    EXPECT_EQ(std::memcmp(memory(), &value, sizeof(value)), 0);
}

TEST_F(RcTest, AServerThatLostItsMemoryIsNotTrusted) {
    start();
    const uint16_t port = server_->port();
    auto client = make_client();
    client->open();
    uint64_t value = 11;
    ASSERT_EQ(client->write(0, &value, sizeof(value)), Outcome::executed);
    configuration_.listen = {{"127.0.0.1", port}};
    keeper_.keeps = false;
    restart();
    // Not executed, or unknown: it may have been on its way when the old path was still believed in.
    EXPECT_NE(client->read(0, &value, sizeof(value)), Outcome::executed);
    EXPECT_NE(client->read(0, &value, sizeof(value)), Outcome::executed);
    EXPECT_EQ(client->error, Error::estale);
    EXPECT_EQ(client->recorder.last, ConnectionState::memory_lost);
}

TEST_F(RcTest, WhatWasFlushedSurvivesWithABackingAndTheSessionGoesOn) {
    start(folder_ + "/backing");
    const uint16_t port = server_->port();
    auto client = make_client();
    client->open();
    uint64_t value = 11;
    uint64_t old_value = 0;
    ASSERT_EQ(client->write(0, &value, sizeof(value)), Outcome::executed);
    ASSERT_EQ(client->add(64, 5, old_value), Outcome::executed);
    ASSERT_EQ(client->flush(), Outcome::executed);
    configuration_.listen = {{"127.0.0.1", port}};
    keeper_.keeps = false;
    restart();
    uint64_t found = 0;
    EXPECT_EQ(client->read(0, &found, sizeof(found)), Outcome::executed);
    EXPECT_EQ(found, 11U);
    EXPECT_EQ(client->add(64, 1, old_value), Outcome::executed);
    EXPECT_EQ(old_value, 5U);
    // Nothing but a change that is not flushed makes the difference.
    ASSERT_EQ(client->write(0, &value, sizeof(value)), Outcome::executed);
    restart();
    EXPECT_NE(client->read(0, &found, sizeof(found)), Outcome::executed);
    EXPECT_EQ(client->recorder.last, ConnectionState::memory_lost);
}

TEST_F(RcTest, AVolumeThatGrowsGetsLargerWindows) {
    start();
    auto client = make_client();
    client->open();
    std::string problem;
    ASSERT_TRUE(server_->resize_volume("volume", 2 * kVolumeBytes, problem).ok()) << problem;
    wait_for([&] {
        return std::atomic_ref<const uint64_t>(client->memory->geometry().data_bytes).load() >
               kVolumeBytes;
    });
    EXPECT_EQ(client->write(kVolumeBytes, "new", 3), Outcome::executed);
    EXPECT_EQ(std::memcmp(memory() + kVolumeBytes, "new", 3), 0);
    EXPECT_EQ(client->memory->statistics().reconnections, 0U);
}

TEST_F(RcTest, WhenTheServerCannotRegisterWhatHasGrownTheRestStaysReachable) {
    start();
    auto client = make_client();
    client->options.reconnect_timeout_ms = 2000;
    client->open();
    network_.max_registration_bytes = kVolumeBytes;
    std::string problem;
    ASSERT_TRUE(server_->resize_volume("volume", 2 * kVolumeBytes, problem).ok()) << problem;
    wait_for([&] {
        return std::atomic_ref<const uint64_t>(client->memory->geometry().data_bytes).load() >
               kVolumeBytes;
    });
    EXPECT_EQ(client->write(kVolumeBytes, "new", 3), Outcome::not_executed);
    EXPECT_EQ(client->error, Error::eio);
    EXPECT_EQ(client->write(0, "old", 3), Outcome::executed);
    EXPECT_EQ(std::memcmp(memory(), "old", 3), 0);
    network_.max_registration_bytes = ~uint64_t{0};
    EXPECT_EQ(client->write(kVolumeBytes, "new", 3), Outcome::executed);
}

// The server has no time for an answer: its only thread that may wait registers memory.
TEST_F(RcTest, WhileTheServerIsAskedForAPathDeadlinesHoldAndCloseReturns) {
    start();
    auto client = make_client();
    client->open();
    network_.stalls_registration = true;
    network_.break_after(0, false);
    uint64_t value = 1;
    Io kicked(OperationKind::write, 0, &value, sizeof(value));
    client->memory->submit(kicked.operation);
    wait_for([&] { return network_.is_stalled.load(); });
    Io late(OperationKind::write, 0, &value, sizeof(value));
    late.operation.deadline_ns = host::monotonic_ns() + 20'000'000;
    EXPECT_EQ(client->run(late.operation), Outcome::not_executed);
    EXPECT_EQ(client->error, Error::etimedout);
    EXPECT_TRUE(network_.is_stalled.load());
    client->memory->close();
    EXPECT_TRUE(network_.is_stalled.load());
    EXPECT_EQ(kicked.operation.outcome, Outcome::unknown);
    client->memory.reset();
    network_.stalls_registration = false;
}

// It lives, and what it was asked for takes it longer than a server may be away.
TEST_F(RcTest, ARegistrationThatTakesLongEndsNoSession) {
    start();
    auto client = make_client();
    client->options.reconnect_timeout_ms = 200;
    client->open();
    network_.stalls_registration = true;
    network_.break_after(0, false);
    uint64_t value = 1;
    Io write(OperationKind::write, 0, &value, sizeof(value));
    client->memory->submit(write.operation);
    wait_for([&] { return network_.is_stalled.load(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    network_.stalls_registration = false;
    client->memory->wait(write.operation);
    EXPECT_EQ(write.operation.outcome, Outcome::executed);
    EXPECT_EQ(client->memory->connection().state, ConnectionState::ready);
}

TEST_F(RcTest, AReadersPathThatComesAfterTheLeaseWasAskedForIsReplaced) {
    start();
    auto client = make_client();
    client->options.mode = OpenOptions::Mode::read;
    client->open();
    network_.stalls_registration = true;
    network_.break_after(0, false);  // a heartbeat finds it
    wait_for([&] { return network_.is_stalled.load(); });
    std::thread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        network_.stalls_registration = false;
    });
    EXPECT_TRUE(client->memory->start_writing(false, client->holder).ok());
    later.join();
    EXPECT_EQ(client->write(0, "x", 1), Outcome::executed);
}

TEST_F(RcTest, AHeartbeatInANewSessionCancelsNothing) {
    start(folder_ + "/backing");
    const uint16_t port = server_->port();
    auto other = make_client(1);
    other->options.mode = OpenOptions::Mode::read;
    other->open();  // has the first place in the control space
    auto client = make_client(2);
    client->open();
    other->memory->close();
    other->memory.reset();
    network_.hold(true);
    wait_for([&] { return network_.held_count() > 0; });  // a heartbeat
    uint64_t value = 12;
    Io journal(OperationKind::write, 0, &value, sizeof(value));
    journal.operation.after_earlier = true;
    client->memory->submit(journal.operation);
    configuration_.listen = {{"127.0.0.1", port}};
    keeper_.keeps = false;
    restart();
    client->memory->wait(journal.operation);
    EXPECT_EQ(journal.operation.outcome, Outcome::executed);
    EXPECT_EQ(std::memcmp(memory(), &value, sizeof(value)), 0);
}

// The device has acknowledged a write, and nobody has looked yet; then the server loses its memory.
TEST_F(RcTest, WhatIsSeenOnlyAfterTheServerLostItsMemoryIsNotBelieved) {
    start(folder_ + "/backing");
    const uint16_t port = server_->port();
    auto client = make_client();
    client->open();
    const uint64_t session_id = client->memory->connection().session_id;
    network_.stalls_polls = true;
    uint64_t value = 12;
    Io write(OperationKind::write, 0, &value, sizeof(value));
    client->memory->submit(write.operation);
    std::thread waiter([&] { client->memory->wait(write.operation); });
    EXPECT_EQ(std::memcmp(memory(), &value, sizeof(value)), 0);
    configuration_.listen = {{"127.0.0.1", port}};
    keeper_.keeps = false;
    restart();
    wait_for([&] { return client->memory->connection().session_id != session_id; });
    EXPECT_EQ(write.operation.outcome, Outcome::pending);
    network_.stalls_polls = false;
    waiter.join();
    EXPECT_EQ(write.operation.outcome, Outcome::executed);
    EXPECT_EQ(std::memcmp(memory(), &value, sizeof(value)), 0);
}

TEST_F(RcTest, WhoseDeviceIsLostForGoodDoesNotKeepTheLease) {
    start(folder_ + "/backing");
    auto client = make_client(1);
    client->options.reconnect_timeout_ms = 200;
    client->open();
    network_.is_filtered = true;
    EXPECT_NE(client->write(0, "x", 1), Outcome::executed);
    EXPECT_EQ(client->error, Error::enodev);
    network_.is_filtered = false;
    auto other = make_client(2);
    wait_for([&] { return other->memory || other->try_open() == Error{}; });
    EXPECT_EQ(client->recorder.last, ConnectionState::closed);
    EXPECT_TRUE(other->memory->connection().inherits_unflushed) << "the write may have come";
    EXPECT_EQ(other->flush(), Outcome::executed);
    other->memory->close();
    auto third = make_client(3);
    third->open();
    EXPECT_FALSE(third->memory->connection().inherits_unflushed);
}

TEST_F(RcTest, AWriteOnItsWayAtTheEndIsNotCalledFlushed) {
    start(folder_ + "/backing");
    auto client = make_client(1);
    client->open();
    network_.is_filtered = true;
    Io io(OperationKind::write, 0, const_cast<char*>("x"), 1);
    client->memory->submit(io.operation);
    client->memory->close();
    EXPECT_EQ(io.operation.outcome, Outcome::unknown);
    network_.is_filtered = false;
    auto other = make_client(2);
    other->open();
    EXPECT_TRUE(other->memory->connection().inherits_unflushed);
}

// As after a server of an earlier version, which did not keep the durable words.
TEST_F(RcTest, SaysThatDurableWordsAreUnknown) {
    start(folder_ + "/backing");
    server_.reset();
    const StateDirectory files(configuration_.state_directory);
    VolumeState state = MUST(files.load("volume"));
    state.words_are_known = false;
    ASSERT_TRUE(files.save(state).ok());
    start();
    auto client = make_client();
    client->open();
    EXPECT_STREQ(client->memory->connection().transport_name, "rc");
    EXPECT_TRUE(client->memory->connection().words_unknown);
}

TEST_F(RcTest, WithoutADeviceItSaysSoInOneLine) {
    start();
    network_.is_present = false;
    auto client = make_client();
    EXPECT_EQ(client->try_open(), Error::eopnotsupp);
    EXPECT_EQ(client->problem, "this machine has no RDMA device");
    client->address.transport = TransportChoice::automatic;
    client->open();
    EXPECT_STREQ(client->memory->connection().transport_name, "tcp");
}

TEST_F(RcTest, AServerWithoutADeviceSaysSo) {
    network_.is_present = false;
    start();
    network_.is_present = true;
    auto client = make_client();
    EXPECT_EQ(client->try_open(), Error::eopnotsupp);
    EXPECT_EQ(client->problem, "the server offers no rc: it has no RDMA device");
    auto other = make_client(2);
    other->address.transport = TransportChoice::automatic;
    other->open();
    EXPECT_STREQ(other->memory->connection().transport_name, "tcp");
}

TEST_F(RcTest, WhatIsToBeEncryptedDoesNotGoOverRc) {
    start();
    auto client = make_client();
    client->options.encrypt = true;
    EXPECT_EQ(client->try_open(), Error::einval);
    EXPECT_EQ(client->problem, "rc does not encrypt: transport=tcp and transport=sdr do");
    client->address.transport = TransportChoice::automatic;
    client->open();
    EXPECT_STREQ(client->memory->connection().transport_name, "tcp");
    EXPECT_STREQ(client->memory->connection().transport_reason, "rc does not encrypt");
    EXPECT_EQ(network_.counts().posts, 0U);
}

TEST_F(RcTest, AutomaticChoiceTakesTcpWhenNothingComesThroughTheDevices) {
    start();
    network_.is_filtered = true;
    auto client = make_client();
    EXPECT_EQ(client->try_open(), Error::eopnotsupp);
    EXPECT_NE(client->problem.find("no answer through the RDMA devices"), std::string::npos);
    client->address.transport = TransportChoice::automatic;
    client->open();
    EXPECT_STREQ(client->memory->connection().transport_name, "tcp");
    EXPECT_NE(std::string(client->memory->connection().transport_reason).find("rc was tried"),
              std::string::npos);
    EXPECT_EQ(client->write(0, "x", 1), Outcome::executed);
}

TEST_F(RcTest, AutomaticChoiceTakesTcpWhenMemoryCannotBeRegistered) {
    start();
    for (const bool is_server : {false, true}) {
        (is_server ? network_.max_registration_bytes : network_.max_local_registration_bytes) = 64;
        auto client = make_client(is_server ? 2 : 1);
        EXPECT_EQ(client->try_open(), Error::eopnotsupp);
        EXPECT_NE(client->problem, "");
        client->address.transport = TransportChoice::automatic;
        client->open();
        EXPECT_STREQ(client->memory->connection().transport_name, "tcp");
        network_.max_local_registration_bytes = ~uint64_t{0};
    }
}

TEST_F(RcTest, AutomaticChoiceTakesRcWhereBothEndsHaveADevice) {
    start();
    auto client = make_client();
    client->address.transport = TransportChoice::automatic;
    client->open();
    EXPECT_STREQ(client->memory->connection().transport_name, "rc");
}

TEST_F(RcTest, ASessionThatEndsLeavesNothingOpen) {
    start();
    for (unsigned char number = 1; number < 5; number++) {
        make_client(number)->open();
    }
    wait_for([&] { return network_.queue_pair_count() == 0 && network_.window_count() == 0; });
}

TEST_F(RcTest, ManyThreadsAndCallbacks) {
    start();
    auto client = make_client();
    client->open();
    std::vector<std::thread> threads;
    for (uint64_t thread = 0; thread < 4; thread++) {
        threads.emplace_back([&, thread] {
            std::vector<unsigned char> bytes(5000, static_cast<unsigned char>(thread + 1));
            for (int i = 0; i < 200; i++) {
                ASSERT_EQ(client->write(thread * 65536, bytes.data(), bytes.size()),
                          Outcome::executed);
                std::vector<unsigned char> found(bytes.size());
                ASSERT_EQ(client->read(thread * 65536, found.data(), found.size()),
                          Outcome::executed);
                ASSERT_EQ(found, bytes);
            }
        });
    }
    std::atomic<int> done{0};
    uint64_t words[64];
    Io ios[64];
    for (int i = 0; i < 64; i++) {
        words[i] = static_cast<uint64_t>(i);
        ios[i].set(OperationKind::write, (1 << 20) + i * 8, &words[i], 8);
        ios[i].operation.owner = &done;
        ios[i].operation.complete = [](Operation& operation) {
            static_cast<std::atomic<int>*>(operation.owner)->fetch_add(1);
        };
        client->memory->submit(ios[i].operation);
    }
    for (auto& thread : threads) {
        thread.join();
    }
    wait_for([&] { return done.load() == 64; });
    EXPECT_EQ(std::memcmp(memory() + (1 << 20), words, sizeof(words)), 0);
}

// Connections that break anywhere: every acknowledged write is there, in its order, and every atomic once.
class RcSeeds : public RcTest, public ::testing::WithParamInterface<int> {};

TEST_P(RcSeeds, EveryAcknowledgedWriteIsThere) {
    start();
    configuration_.listen = {{"127.0.0.1", server_->port()}};
    auto client = make_client();
    client->open();
    std::mt19937 random(static_cast<unsigned>(GetParam()));
    constexpr size_t kBatch = 8;
    constexpr uint64_t kCounter = 4096;
    uint64_t values[kBatch];
    Io ios[kBatch];
    uint64_t next = 1;
    uint64_t expected[kBatch] = {};
    uint64_t sum = 0;
    for (int round = 0; round < 60; round++) {
        if (random() % 4 == 0) {
            network_.break_after(random() % (2 * kBatch), random() % 2 == 0);
        }
        const size_t count = 1 + random() % kBatch;
        bool is_used[kBatch] = {};
        uint64_t to_be_read[kBatch] = {};
        for (size_t i = 0; i < count; i++) {
            const size_t place = random() % kBatch;
            Operation& operation = ios[i].operation;
            operation.reset();
            operation.buffer_count = 0;
            operation.after_earlier = random() % 2 == 0;
            const unsigned kind = random() % 8;
            if (kind == 0) {
                operation.kind = OperationKind::flush;
            } else if (kind == 1) {
                operation.kind = OperationKind::fetch_add;
                operation.offset_bytes = kCounter;
                operation.operand = next;
                sum += next++;
            } else if (kind == 2) {
                ios[i].set(OperationKind::read, place * 64, &values[i], 8);
                operation.after_earlier = true;
                to_be_read[i] = expected[place];
                is_used[place] = true;
            } else {
                values[i] = next++;
                expected[place] = values[i];
                ios[i].set(OperationKind::write, place * 64, &values[i], 8);
                // At one place there is an order only if it is asked for.
                operation.after_earlier = operation.after_earlier || is_used[place];
                is_used[place] = true;
            }
        }
        // The list must be whole before it is submitted.
        for (size_t i = 0; i + 1 < count; i++) {
            ios[i].operation.next = &ios[i + 1].operation;
        }
        client->memory->submit(ios[0].operation);
        if (round % 20 == 10) {
            restart();  // the keeper has the memory
        }
        for (size_t i = 0; i < count; i++) {
            client->memory->wait(ios[i].operation);
            ASSERT_EQ(ios[i].operation.outcome, Outcome::executed) << "round " << round;
            if (ios[i].operation.kind == OperationKind::read) {
                ASSERT_EQ(values[i], to_be_read[i]) << "round " << round << ", operation " << i;
            }
        }
        for (size_t i = 0; i < kBatch; i++) {
            uint64_t found = 0;
            ASSERT_EQ(client->read(i * 64, &found, sizeof(found)), Outcome::executed);
            ASSERT_EQ(found, expected[i]) << "round " << round << ", place " << i;
        }
        uint64_t found = 0;
        ASSERT_EQ(client->read(kCounter, &found, sizeof(found)), Outcome::executed);
        ASSERT_EQ(found, sum) << "round " << round;
    }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RcSeeds, ::testing::Range(1, 9));

}  // namespace
}  // namespace tiffin::rdma_blk
