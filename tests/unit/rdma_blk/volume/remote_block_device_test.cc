// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "fuse/host/log_sink.h"
#include "tests/support/test_size.h"
#include "tests/support/units.h"
#include "tests/unit/rdma_blk/volume/device_fixture.h"

namespace tiffin::rdma_blk {
namespace {

using fuse::Bytes;
using fuse::error_of;
using fuse::pattern;
using fuse::read_bytes;
using fuse::write_bytes;
using test::LocalMemory;

// A request of submit() that can be waited for.
struct Waited {
    Waited(vfs::IoOperation operation, uint64_t offset_bytes, Bytes& bytes)
        : buffer{bytes.data(), bytes.size()} {
        request.operation = operation;
        request.offset_bytes = offset_bytes;
        request.buffers = &buffer;
        request.buffer_count = 1;
        request.owner = this;
        request.complete = [](vfs::IoRequest& completed, Result<void> result) {
            auto* self = static_cast<Waited*>(completed.owner);
            self->error = error_of(result);
            self->done.post();
        };
    }
    int wait() {
        done.wait();
        return error;
    }
    vfs::IoVector buffer;
    vfs::IoRequest request;
    host::Semaphore done;
    int error = -1;
};

// Counts what the log is told of errors while it exists.
class ErrorLines final : public fuse::LogSink {
  public:
    ErrorLines() : previous_(fuse::set_log_sink(this)) {}
    ~ErrorLines() override { fuse::set_log_sink(previous_); }
    ErrorLines(const ErrorLines&) = delete;
    ErrorLines& operator=(const ErrorLines&) = delete;
    void write(host::LogLevel level, const char* message) override {
        (void)message;
        count_ += level == host::LogLevel::error ? 1 : 0;
    }
    uint32_t count() const { return count_; }

  private:
    fuse::LogSink* previous_;
    std::atomic<uint32_t> count_{0};
};

struct Shape {
    size_t servers;
    LocalMemory::Delivery delivery;
    Durability durability;
    uint32_t operations;  // of the pool
};

class EveryShape : public testing::TestWithParam<Shape> {};

TEST_P(EveryShape, KeepsTheContract) {
    const Shape shape = GetParam();
    for (uint32_t seed = 1; seed <= test::test_size(3, 3, 1); ++seed) {
        TestVolume volume(shape.servers, 6 * kMiB, shape.durability);
        volume.memory_options.delivery = shape.delivery;
        volume.memory_options.seed = seed * 100;
        volume.memory_options.limits.transfer_bytes = 64 << 10;
        auto device = volume.open({.write = true,
                                   .stripe_bytes = 16384,
                                   .operation_count = shape.operations,
                                   .request_count = shape.operations});
        ASSERT_NE(device, nullptr) << volume.problem;
        fuse::check_device_contract(*device);
        fuse::check_concurrent_submits(*device);
        EXPECT_TRUE(device->flush().ok());
        for (auto& server : volume.servers) {
            if (shape.durability == Durability::power) {
                EXPECT_EQ(server->durable, server->data);
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, EveryShape,
    testing::Values(Shape{1, LocalMemory::Delivery::at_once, Durability::process, 256},
                    Shape{1, LocalMemory::Delivery::threaded, Durability::power, 256},
                    Shape{1, LocalMemory::Delivery::threaded, Durability::process, 2},
                    Shape{3, LocalMemory::Delivery::at_once, Durability::power, 1},
                    Shape{3, LocalMemory::Delivery::threaded, Durability::power, 4},
                    Shape{4, LocalMemory::Delivery::threaded, Durability::process, 256}));

// A writer that was killed has written, and whoever came after it has read that and goes by it.
TEST(RemoteBlockDevice, AFlushCoversWhatEarlierWritersLeftUnflushed) {
    for (const bool reads_first : {false, true}) {
        TestVolume volume(2, 6 * kMiB, Durability::power);
        auto device = volume.open({.write = true, .stripe_bytes = 64 << 10});
        ASSERT_NE(device, nullptr);
        ASSERT_TRUE(write_bytes(*device, 3 * kMiB, pattern(100 << 10, 1)).ok());
        device = nullptr;
        ASSERT_NE(volume.servers[0]->durable, volume.servers[0]->data);
        device = volume.open({.write = !reads_first});
        ASSERT_NE(device, nullptr) << volume.problem;
        if (reads_first) {
            ASSERT_TRUE(device->start_writing().ok());
        }
        ASSERT_TRUE(device->flush().ok());
        for (size_t i = 0; i < volume.servers.size(); i++) {
            EXPECT_EQ(volume.servers[i]->durable, volume.servers[i]->data);
            EXPECT_EQ(volume.memories[i]->flushed_mark(), volume.memories[i]->change_mark());
        }
        // Once is enough, and after it nothing is left for the next one.
        const uint64_t flushes = volume.memories[0]->counts().flushes;
        ASSERT_TRUE(device->flush().ok());
        EXPECT_EQ(volume.memories[0]->counts().flushes, flushes);
        device = nullptr;
        device = volume.open();
        ASSERT_NE(device, nullptr);
        ASSERT_TRUE(device->flush().ok());
        EXPECT_EQ(volume.memories[0]->counts().flushes, 0U);
    }
}

TEST(RemoteBlockDevice, CountsOperationsAndBatches) {
    TestVolume volume(2, 16 * kMiB);
    auto device = volume.open({.write = true, .stripe_bytes = 256 << 10});
    ASSERT_NE(device, nullptr);
    const auto submits = [&](size_t server) { return volume.memories[server]->counts().submits; };
    const auto operations = [&](size_t server) {
        return volume.memories[server]->counts().operations;
    };
    uint64_t batches[2] = {submits(0), submits(1)};
    uint64_t count[2] = {operations(0), operations(1)};
    ASSERT_TRUE(write_bytes(*device, 4096, Bytes(4096)).ok());
    EXPECT_EQ(submits(0) - batches[0], 1U);
    EXPECT_EQ(operations(0) - count[0], 1U);
    EXPECT_EQ(submits(1), batches[1]);
    // Four units, two on each server: one batch for each.
    ASSERT_TRUE(write_bytes(*device, kMiB, Bytes(kMiB)).ok());
    EXPECT_EQ(submits(0) - batches[0], 2U);
    EXPECT_EQ(submits(1) - batches[1], 1U);
    EXPECT_EQ(operations(0) - count[0], 3U);
    EXPECT_EQ(operations(1) - count[1], 2U);
    // Nothing to flush: memory is all there is.
    ASSERT_TRUE(device->flush().ok());
    EXPECT_FALSE(device->geometry().volatile_cache);
    EXPECT_EQ(submits(0) - batches[0], 2U);
}

// The last request says that no more follows, whatever server it is for, and whatever becomes of it.
TEST(RemoteBlockDevice, WhatIsGatheredIsStartedByTheLastRequest) {
    for (const uint64_t last_offset : {uint64_t{0}, kMiB, 100 * kMiB}) {
        TestVolume volume(2, 6 * kMiB);
        auto device = volume.open({.write = true, .stripe_bytes = kMiB});
        ASSERT_NE(device, nullptr) << volume.problem;
        Bytes bytes(4096);
        std::vector<std::unique_ptr<Waited>> requests;
        for (const uint64_t offset : {uint64_t{0}, kMiB, 2 * kMiB, 3 * kMiB, last_offset}) {
            requests.push_back(std::make_unique<Waited>(vfs::IoOperation::write, offset, bytes));
            requests.back()->request.more_follows = requests.size() < 5;
            device->submit(requests.back()->request);
        }
        const bool is_beyond_the_end = last_offset == 100 * kMiB;
        EXPECT_EQ(requests.back()->wait(), is_beyond_the_end ? EIO : 0);
        requests.pop_back();
        for (auto& request : requests) {
            EXPECT_EQ(request->wait(), 0);
        }
    }
}

// Of one server; what comes from another one would be missed meanwhile.
TEST(RemoteBlockDevice, WhoWaitsCanHelpOneServer) {
    for (const size_t server_count : {1, 2}) {
        TestVolume volume(server_count, 6 * kMiB);
        auto device = volume.open({.write = true, .stripe_bytes = kMiB});
        ASSERT_NE(device, nullptr) << volume.problem;
        std::atomic<uint32_t> completions{1};
        EXPECT_EQ(device->help(completions, 0), server_count == 1);
        Bytes bytes(4096);
        Waited request(vfs::IoOperation::write, 0, bytes);
        device->submit(request.request);
        (void)device->help(completions, 1);
        EXPECT_EQ(request.wait(), 0);
    }
}

TEST(RemoteBlockDevice, IsAsDeepAsItsPool) {
    TestVolume volume(1, 16 * kMiB);
    auto device = volume.open({.write = true, .operation_count = 32, .request_count = 64});
    ASSERT_NE(device, nullptr);
    LocalMemory& memory = *volume.memories[0];
    memory.hold();
    std::vector<Bytes> bytes(100, Bytes(4096));
    std::vector<std::unique_ptr<Waited>> requests;
    for (size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = pattern(4096, static_cast<uint32_t>(i));
        requests.push_back(std::make_unique<Waited>(vfs::IoOperation::write, i * 4096, bytes[i]));
        device->submit(requests.back()->request);
    }
    EXPECT_EQ(memory.pending(), 32U);
    memory.let_go();
    for (auto& request : requests) {
        EXPECT_EQ(request->wait(), 0);
    }
    EXPECT_EQ(memory.counts().deepest, 32U);
    for (size_t i = 0; i < bytes.size(); ++i) {
        EXPECT_EQ(read_bytes(*device, i * 4096, 4096), bytes[i]);
    }
}

// Random requests from several threads, synchronous and not, with flushes between them, while operations
// fail: each thread knows what its part must hold, or that it may hold either.
void run_random(uint32_t seed, Durability durability, bool with_faults) {
    TestVolume volume(1 + seed % 3, 4 * kMiB, durability);
    volume.memory_options.seed = seed;
    volume.memory_options.limits.transfer_bytes = 32 << 10;
    auto device =
        volume.open({.write = true, .stripe_bytes = 8192, .operation_count = 1 + seed % 7});
    ASSERT_NE(device, nullptr);
    std::atomic<uint64_t> failures{0};
    std::atomic<uint32_t> judged{0};
    if (with_faults) {
        for (LocalMemory* memory : volume.memories) {
            memory->set_judge([&](const Operation&) -> std::optional<LocalMemory::Fault> {
                if (++judged % 37 != 0) {
                    return std::nullopt;
                }
                ++failures;
                return LocalMemory::Fault{Outcome::not_executed, Error::eio, false};
            });
        }
    }
    constexpr uint32_t kThreads = 3;
    const uint64_t part = device->geometry().size_bytes / kThreads / 65536 * 65536;
    std::atomic<uint64_t> errors{0};
    std::vector<std::thread> threads;
    for (uint32_t thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&, thread] {
            std::mt19937 random(seed * 10 + thread);
            Bytes expected(part);
            const uint64_t base = thread * part;
            for (uint32_t i = 0; i < 60; ++i) {
                const uint64_t offset = random() % (part / 512) * 512;
                const uint64_t length =
                    (1 + random() % std::min<uint64_t>((part - offset) / 512, 200)) * 512;
                Bytes bytes = pattern(length, random());
                const uint32_t choice = random() % 8;
                if (choice == 0) {
                    errors += device->flush().ok() ? 0 : 1;
                } else if (choice < 4) {
                    Bytes found(length);
                    Waited request(vfs::IoOperation::read, base + offset, found);
                    device->submit(request.request);
                    if (request.wait() != 0) {
                        ++errors;
                        continue;
                    }
                    EXPECT_TRUE(std::equal(found.begin(), found.end(),
                                           expected.begin() + static_cast<std::ptrdiff_t>(offset)))
                        << seed;
                } else {
                    // Until it succeeds, so that it is known what is there.
                    while (true) {
                        Waited request(vfs::IoOperation::write, base + offset, bytes);
                        if (choice < 6) {
                            device->submit(request.request);
                        } else {
                            request.error =
                                error_of(device->write(base + offset, bytes.data(), bytes.size()));
                            request.done.post();
                        }
                        if (request.wait() == 0) {
                            break;
                        }
                        ++errors;
                    }
                    std::copy(bytes.begin(), bytes.end(),
                              expected.begin() + static_cast<std::ptrdiff_t>(offset));
                }
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(failures == 0, errors == 0) << seed;
    for (LocalMemory* memory : volume.memories) {
        memory->set_judge({});
    }
    EXPECT_TRUE(device->flush().ok());
    for (auto& server : volume.servers) {
        if (durability == Durability::power) {
            EXPECT_EQ(server->durable, server->data) << seed;
        }
    }
}

TEST(RemoteBlockDevice, RandomRequests) {
    for (uint32_t seed = 0; seed < 12; ++seed) {
        run_random(seed, seed % 2 == 0 ? Durability::power : Durability::process, false);
    }
}

TEST(RemoteBlockDevice, RandomRequestsThatFail) {
    for (uint32_t seed = 0; seed < 12; ++seed) {
        run_random(seed, seed % 2 == 0 ? Durability::power : Durability::process, true);
    }
}

TEST(RemoteBlockDevice, AFailedPieceFailsTheRequestOnly) {
    TestVolume volume(2, 4 * kMiB);
    auto device = volume.open({.write = true, .stripe_bytes = 8192});
    ASSERT_NE(device, nullptr);
    volume.memories[1]->set_judge(
        [](const Operation& operation) -> std::optional<LocalMemory::Fault> {
            if (operation.offset_bytes != 8192) {
                return std::nullopt;
            }
            return LocalMemory::Fault{Outcome::not_executed, Error::eio, false};
        });
    Bytes bytes = pattern(65536, 4);
    EXPECT_EQ(error_of(write_bytes(*device, 0, bytes)), EIO);
    Waited request(vfs::IoOperation::write, 0, bytes);
    device->submit(request.request);
    EXPECT_EQ(request.wait(), EIO);
    EXPECT_EQ(error_of(write_bytes(*device, 0, Bytes(16384))), 0);
}

TEST(RemoteBlockDevice, FlushesWhatWasWrittenAndNoMore) {
    TestVolume volume(1, 64 * kMiB, Durability::power);
    auto device = volume.open();
    ASSERT_NE(device, nullptr);
    EXPECT_TRUE(device->geometry().volatile_cache);
    ASSERT_TRUE(write_bytes(*device, 5 * kMiB, pattern(4096, 1)).ok());
    EXPECT_EQ(device->status()[0].dirty_bytes, DirtyMap::kChunkBytes);
    const auto before = volume.memories[0]->counts();
    ASSERT_TRUE(device->flush().ok());
    auto after = volume.memories[0]->counts();
    EXPECT_EQ(after.flushes - before.flushes, 1U);
    EXPECT_EQ(after.flushed_bytes - before.flushed_bytes, DirtyMap::kChunkBytes);
    ASSERT_TRUE(device->flush().ok());
    EXPECT_EQ(volume.memories[0]->counts().flushes, after.flushes) << "nothing is dirty";
    // More ranges than one operation takes.
    for (uint64_t i = 0; i < 20; ++i) {
        ASSERT_TRUE(write_bytes(*device, 2 * i * DirtyMap::kChunkBytes, pattern(64, 2)).ok());
    }
    ASSERT_TRUE(device->flush().ok());
    EXPECT_EQ(volume.memories[0]->counts().flushes - after.flushes, 3U);
    EXPECT_EQ(volume.servers[0]->durable, volume.servers[0]->data);
}

TEST(RemoteBlockDevice, WhatCouldNotBeFlushedIsFlushedLater) {
    TestVolume volume(2, 4 * kMiB, Durability::power);
    auto device = volume.open({.write = true, .stripe_bytes = 65536});
    ASSERT_NE(device, nullptr);
    ASSERT_TRUE(write_bytes(*device, 0, pattern(kMiB, 1)).ok());
    volume.memories[1]->set_judge(
        [](const Operation& operation) -> std::optional<LocalMemory::Fault> {
            if (operation.kind != OperationKind::flush) {
                return std::nullopt;
            }
            return LocalMemory::Fault{Outcome::not_executed, Error::eio, false};
        });
    EXPECT_EQ(error_of(device->flush()), EIO);
    EXPECT_NE(volume.servers[1]->durable, volume.servers[1]->data);
    EXPECT_EQ(error_of(device->flush()), EIO) << "nothing is forgotten";
    volume.memories[1]->set_judge({});
    EXPECT_EQ(error_of(device->flush()), 0);
    EXPECT_EQ(volume.servers[1]->durable, volume.servers[1]->data);
}

// A server that loses its memory now has lost what was written, and the session must know it.
TEST(RemoteBlockDevice, NothingIsCalledFlushedBeforeTheLastRange) {
    TestVolume volume(1, 4 * kMiB, Durability::power);
    auto device = volume.open();
    ASSERT_NE(device, nullptr);
    LocalMemory& memory = *volume.memories[0];
    const uint64_t before = memory.flushed_mark();
    for (uint64_t i = 0; i < 20; ++i) {  // three rounds
        ASSERT_TRUE(write_bytes(*device, 2 * i * DirtyMap::kChunkBytes, pattern(64, 2)).ok());
    }
    int flushes = 0;
    memory.set_judge([&](const Operation& operation) -> std::optional<LocalMemory::Fault> {
        if (operation.kind == OperationKind::flush && ++flushes == 3) {
            return LocalMemory::Fault{Outcome::not_executed, Error::eio, false};
        }
        return std::nullopt;
    });
    EXPECT_EQ(error_of(device->flush()), EIO);
    EXPECT_EQ(flushes, 3);
    EXPECT_EQ(memory.flushed_mark(), before);
    memory.set_judge({});
    ASSERT_TRUE(device->flush().ok());
    EXPECT_EQ(memory.flushed_mark(), memory.change_mark());
}

// What is written while a flush is under way, elsewhere, is not part of it.
TEST(RemoteBlockDevice, AWriteBesideAFlushIsNotCalledFlushed) {
    TestVolume volume(1, 4 * kMiB, Durability::power);
    auto device = volume.open();
    ASSERT_NE(device, nullptr);
    LocalMemory& memory = *volume.memories[0];
    ASSERT_TRUE(write_bytes(*device, 0, pattern(4096, 1)).ok());
    const uint64_t mark = memory.change_mark();
    memory.hold();
    std::thread flusher([&] { EXPECT_TRUE(device->flush().ok()); });
    memory.wait_until_pending(1);
    Bytes elsewhere = pattern(4096, 3);
    Waited write(vfs::IoOperation::write, kMiB, elsewhere);
    device->submit(write.request);
    memory.wait_until_pending(2);
    memory.let_go();
    flusher.join();
    EXPECT_EQ(write.wait(), 0);
    EXPECT_EQ(memory.flushed_mark(), mark);
    EXPECT_EQ(memory.change_mark(), mark + 1);
}

TEST(RemoteBlockDevice, WritesWaitForTheFlushOfTheirPlaceOnly) {
    TestVolume volume(1, 4 * kMiB, Durability::power);
    auto device = volume.open();
    ASSERT_NE(device, nullptr);
    ASSERT_TRUE(write_bytes(*device, 0, pattern(4096, 1)).ok());
    LocalMemory& memory = *volume.memories[0];
    memory.hold();
    std::thread flusher([&] { EXPECT_TRUE(device->flush().ok()); });
    memory.wait_until_pending(1);
    Bytes here = pattern(4096, 2);
    Bytes elsewhere = pattern(4096, 3);
    Waited held(vfs::IoOperation::write, 0, here);
    Waited free(vfs::IoOperation::write, kMiB, elsewhere);
    device->submit(held.request);
    device->submit(free.request);
    std::thread synchronous([&] { EXPECT_TRUE(write_bytes(*device, 8192, here).ok()); });
    memory.wait_until_pending(2);
    EXPECT_EQ(memory.pending(), 2U) << "the flush and the write elsewhere";
    memory.let_go();
    flusher.join();
    synchronous.join();
    EXPECT_EQ(held.wait(), 0);
    EXPECT_EQ(free.wait(), 0);
    EXPECT_EQ(read_bytes(*device, 0, 4096), here);
    EXPECT_NE(volume.servers[0]->durable, volume.servers[0]->data) << "written after the flush";
    ASSERT_TRUE(device->flush().ok());
    EXPECT_EQ(volume.servers[0]->durable, volume.servers[0]->data);
}

TEST(RemoteBlockDevice, WritesDoNotWaitForWhatIsFlushedElsewhere) {
    constexpr uint64_t kStripe = 65536;
    TestVolume volume(2, 4 * kMiB, Durability::power);
    auto device = volume.open({.write = true, .stripe_bytes = kStripe});
    ASSERT_NE(device, nullptr);
    ASSERT_TRUE(write_bytes(*device, 0, pattern(4096, 1)).ok());
    ASSERT_TRUE(write_bytes(*device, kStripe, pattern(4096, 1)).ok());
    for (LocalMemory* memory : volume.memories) {
        memory->hold();
    }
    std::thread flusher([&] { EXPECT_TRUE(device->flush().ok()); });
    for (LocalMemory* memory : volume.memories) {
        memory->wait_until_pending(1);
    }
    Bytes bytes = pattern(4096, 2);
    Waited write(vfs::IoOperation::write, 0, bytes);
    device->submit(write.request);
    std::thread synchronous([&] { EXPECT_TRUE(write_bytes(*device, 8192, bytes).ok()); });
    volume.memories[0]->let_go();
    EXPECT_EQ(write.wait(), 0);
    synchronous.join();
    EXPECT_EQ(volume.memories[1]->pending(), 1U) << "its flush";
    volume.memories[1]->let_go();
    flusher.join();
}

TEST(RemoteBlockDevice, FlushThroughSubmit) {
    TestVolume volume(1, 4 * kMiB, Durability::power);
    auto device = volume.open();
    ASSERT_NE(device, nullptr);
    ASSERT_TRUE(write_bytes(*device, 0, pattern(4096, 1)).ok());
    Bytes none;
    Waited flush(vfs::IoOperation::flush, 0, none);
    device->submit(flush.request);
    EXPECT_EQ(flush.wait(), 0);
    EXPECT_EQ(volume.servers[0]->durable, volume.servers[0]->data);
}

TEST(RemoteBlockDevice, AReconnectionIsADelay) {
    TestVolume volume(2, 4 * kMiB);
    auto device = volume.open({.write = true, .stripe_bytes = 65536});
    ASSERT_NE(device, nullptr);
    volume.memories[1]->change_state(ConnectionState::reconnecting);
    Bytes bytes = pattern(kMiB, 1);
    Waited request(vfs::IoOperation::write, 0, bytes);
    device->submit(request.request);
    volume.memories[1]->wait_until_pending(8);
    volume.memories[1]->change_state(ConnectionState::ready);
    EXPECT_EQ(request.wait(), 0);
    EXPECT_EQ(read_bytes(*device, 0, kMiB), bytes);
    EXPECT_EQ(device->status()[1].statistics.reconnections, 1U);
}

TEST(RemoteBlockDevice, TheEndOfASessionIsTheEndOfAll) {
    for (const ConnectionState state :
         {ConnectionState::fenced, ConnectionState::memory_lost, ConnectionState::closed}) {
        ErrorLines errors;
        TestVolume volume(2, 4 * kMiB, Durability::power);
        auto device = volume.open({.write = true, .stripe_bytes = 65536, .operation_count = 4});
        ASSERT_NE(device, nullptr);
        std::atomic<int> told{0};
        device->on_failure([&told] { told++; });
        volume.memories[1]->hold();
        Bytes bytes = pattern(kMiB, 1);
        std::vector<std::unique_ptr<Waited>> requests;
        for (int i = 0; i < 5; ++i) {
            requests.push_back(std::make_unique<Waited>(vfs::IoOperation::write, 0, bytes));
            device->submit(requests.back()->request);
        }
        volume.memories[1]->wait_until_pending(1);
        volume.memories[1]->change_state(state);
        for (auto& request : requests) {
            EXPECT_EQ(request->wait(), EIO);
        }
        EXPECT_EQ(error_of(write_bytes(*device, 0, bytes)), EIO);
        EXPECT_TRUE(read_bytes(*device, 0, 4096).empty()) << "also where the server is well";
        EXPECT_EQ(error_of(device->flush()), EIO);
        EXPECT_EQ(device->direct_address(0, 4096), nullptr);
        while (told == 0) {
            std::this_thread::yield();
        }
        std::atomic<bool> is_told_late{false};
        device->on_failure([&is_told_late] { is_told_late = true; });
        while (!is_told_late) {
            std::this_thread::yield();
        }
        device->on_failure({});
        EXPECT_EQ(told, 1);
        device.reset();
        EXPECT_EQ(errors.count(), 1U);
    }
}

TEST(RemoteBlockDevice, LeasesAreTakenInOneOrder) {
    std::vector<uint32_t> log;
    TestVolume volume(4, kMiB);
    volume.order = {2, 0, 3, 1};
    for (auto& server : volume.servers) {
        server->lease_log = &log;
    }
    ASSERT_NE(volume.open(), nullptr);
    EXPECT_EQ(log, (std::vector<uint32_t>{0, 1, 2, 3}));
    // One refusal gives all back, before anything is written.
    int other = 0;
    volume.servers[2]->writer = &other;
    const auto control = volume.servers[0]->control;
    EXPECT_EQ(volume.open(), nullptr);
    EXPECT_EQ(volume.error, EBUSY);
    EXPECT_NE(volume.problem.find("is being written by another session"), std::string::npos);
    EXPECT_EQ(volume.servers[0]->writer, nullptr);
    EXPECT_EQ(volume.servers[0]->control, control);
    EXPECT_NE(volume.open({.write = true, .force = true}), nullptr) << volume.problem;
}

TEST(RemoteBlockDevice, OneServerTwiceIsRefusedAndFencesNobody) {
    std::vector<uint32_t> log;
    TestVolume volume(2, kMiB);
    volume.order = {1, 0, 1};
    for (auto& server : volume.servers) {
        server->lease_log = &log;
    }
    EXPECT_EQ(volume.open(), nullptr);
    EXPECT_EQ(volume.error, EINVAL);
    EXPECT_NE(volume.problem.find("server1 and server1 are the same server"), std::string::npos)
        << volume.problem;
    EXPECT_TRUE(log.empty());
}

TEST(RemoteBlockDevice, ReadsFirstAndWritesLater) {
    TestVolume volume(2, kMiB);
    auto device = volume.open({.write = false});
    ASSERT_NE(device, nullptr) << volume.problem;
    EXPECT_TRUE(device->geometry().read_only);
    EXPECT_EQ(error_of(write_bytes(*device, 0, Bytes(4096))), EROFS);
    EXPECT_EQ(volume.memories[0]->counts().writes, 0U);
    ASSERT_TRUE(device->start_writing().ok());
    EXPECT_FALSE(device->geometry().read_only);
    EXPECT_EQ(error_of(write_bytes(*device, 0, Bytes(4096))), 0);
}

// Disks keep the data, not the control space: a guess of the unit would read the wrong places.
TEST(RemoteBlockDevice, AForgottenStripeIsNotGuessed) {
    for (const bool forgets : {false, true}) {
        TestVolume volume(2, 4 * kMiB, Durability::power);
        {
            auto device = volume.open({.write = true, .stripe_bytes = 65536});
            ASSERT_NE(device, nullptr);
            ASSERT_TRUE(write_bytes(*device, 0, pattern(kMiB, 7)).ok());
            ASSERT_TRUE(device->flush().ok());
        }
        for (auto& server : volume.servers) {
            server->forgets_words = forgets;
            server->lose_power();
        }
        auto device = volume.open({.write = false});
        EXPECT_EQ(device == nullptr, forgets) << volume.problem;
        if (forgets) {
            EXPECT_NE(volume.problem.find("stripe=SIZE"), std::string::npos) << volume.problem;
            EXPECT_EQ(volume.open({.write = true, .stripe_bytes = 65536}), nullptr);
            device = volume.open({.write = false, .stripe_bytes = 65536});
            ASSERT_NE(device, nullptr);
            EXPECT_EQ(device->start_writing().error(), Error::erofs);
        }
        EXPECT_EQ(read_bytes(*device, 0, kMiB), pattern(kMiB, 7));
    }
}

TEST(RemoteBlockDevice, MappedMemoryIsHandedOut) {
    TestVolume volume(1, kMiB);
    volume.memory_options.mapped = true;
    auto device = volume.open();
    ASSERT_NE(device, nullptr);
    EXPECT_EQ(device->direct_address(4096, 4096), volume.servers[0]->data.data() + 4096);
    EXPECT_EQ(device->direct_address(kMiB, 1), nullptr);
    device.reset();
    TestVolume striped(2, kMiB);
    striped.memory_options.mapped = true;
    auto striped_device = striped.open();
    ASSERT_NE(striped_device, nullptr);
    EXPECT_EQ(striped_device->direct_address(4096, 4096), nullptr);
}

}  // namespace
}  // namespace tiffin::rdma_blk
