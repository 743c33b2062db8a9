// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Through RemoteMemory: each thread keeps `depth` operations under way, and waits for the oldest.
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

#include "bench/perf/perf.h"
#include "fs/vfs/host.h"
#include "fuse/host/remote_device.h"
#include "rdma_blk/sdr/simulated/emulated_path.h"

namespace tiffin::fuse {
namespace {

using rdma_blk::Operation;
using rdma_blk::OperationKind;
using rdma_blk::Outcome;
using rdma_blk::RemoteMemory;

constexpr uint64_t kPlaceBytes = 4096;

struct Closer {
    void operator()(RemoteMemory* memory) const {
        memory->close();
        delete memory;
    }
};
using OpenMemory = std::unique_ptr<RemoteMemory, Closer>;

struct PageDeleter {
    size_t size_bytes = 0;
    void operator()(unsigned char* memory) const { host::release_pages(memory, size_bytes); }
};
using Pages = std::unique_ptr<unsigned char, PageDeleter>;

struct Slot {
    Operation operation;
    vfs::IoVector buffer;
    rdma_blk::ByteRange range;
    uint64_t start_ns = 0;
};

OperationKind kind_of(const std::string& operation) {
    return operation == "write"          ? OperationKind::write
           : operation == "compare_swap" ? OperationKind::compare_swap
           : operation == "fetch_add"    ? OperationKind::fetch_add
           : operation == "flush"        ? OperationKind::flush
                                         : OperationKind::read;
}

// Only a write changes anything: what atomics find stays as it is.
void prepare(Slot& slot, OperationKind kind, uint64_t offset_bytes, unsigned char* buffer,
             uint64_t size_bytes) {
    Operation& operation = slot.operation;
    operation.reset();
    operation.kind = kind;
    operation.offset_bytes = offset_bytes;
    operation.buffer_count = 0;
    operation.range_count = 0;
    if (kind == OperationKind::read || kind == OperationKind::write) {
        slot.buffer = {buffer, size_bytes};
        operation.buffers = &slot.buffer;
        operation.buffer_count = 1;
    } else if (kind == OperationKind::flush) {
        operation.offset_bytes = 0;
        slot.range = {offset_bytes, size_bytes};
        operation.ranges = &slot.range;
        operation.range_count = 1;
    }
    operation.compare = operation.operand = 0;
}

// Places that are spread over the data, so that no cache of the server's holds them all.
uint64_t next_place(uint64_t& state, uint64_t data_bytes, uint64_t size_bytes) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const uint64_t places = (data_bytes - size_bytes) / kPlaceBytes + 1;
    return (state >> 20) % places * kPlaceBytes;
}

Error run_thread(RemoteMemory& memory, const PerfOptions& options, OperationKind kind,
                 unsigned char* buffers, uint64_t seed, const std::atomic<bool>& stop,
                 LatencyHistogram& latencies) {
    std::vector<Slot> slots(options.depth);
    uint64_t submitted = 0;
    uint64_t completed = 0;
    Error error{};
    while (true) {
        while (!stop.load(std::memory_order_relaxed) && error == Error{} &&
               submitted - completed < options.depth) {
            Slot& slot = slots[submitted % options.depth];
            prepare(slot, kind, next_place(seed, memory.geometry().data_bytes, options.size_bytes),
                    buffers + submitted % options.depth * options.size_bytes, options.size_bytes);
            slot.start_ns = host::monotonic_ns();
            ++submitted;
            slot.operation.more_follows = submitted - completed < options.depth;
            memory.submit(slot.operation);
        }
        if (submitted == completed) {
            return error;
        }
        // The oldest, and those that have come with it.
        do {
            Slot& slot = slots[completed++ % options.depth];
            memory.wait(slot.operation);
            if (slot.operation.outcome != Outcome::executed) {
                error = slot.operation.error;
            } else {
                latencies.record(host::monotonic_ns() - slot.start_ns);
            }
        } while (completed < submitted &&
                 slots[completed % options.depth].operation.finished.load() != 0);
    }
}

// What a read of mapped memory cannot be faster than, one at a time in one thread.
PerfResult measure_copies(RemoteMemory& memory, const PerfOptions& options, unsigned char* buffer) {
    PerfResult result;
    result.carrier = "memory copy";
    result.depth = 1;
    result.threads = 1;
    const uint64_t data_bytes = memory.geometry().data_bytes;
    const uint64_t first_ns = host::monotonic_ns();
    const auto duration_ns = static_cast<uint64_t>(options.duration_s * 1e9);
    uint64_t seed = 1;
    uint64_t now_ns = first_ns;
    while (now_ns - first_ns < duration_ns) {
        const void* source = memory.direct_address(next_place(seed, data_bytes, options.size_bytes),
                                                   options.size_bytes);
        const uint64_t start_ns = host::monotonic_ns();
        if (source == nullptr) {
            break;
        }
        std::memcpy(buffer, source, options.size_bytes);
        // The compiler must not leave out what nobody looks at.
        asm volatile("" : : "r"(buffer) : "memory");
        now_ns = host::monotonic_ns();
        result.latencies.record(now_ns - start_ns);
    }
    result.seconds = static_cast<double>(now_ns - first_ns) / 1e9;
    return result;
}

// Maps all pages, so that no measurement has to.
void touch_pages(RemoteMemory& memory) {
    const uint64_t data_bytes = memory.geometry().data_bytes;
    const auto* data =
        static_cast<const volatile unsigned char*>(memory.direct_address(0, data_bytes));
    for (uint64_t at = 0; data != nullptr && at < data_bytes; at += kPlaceBytes) {
        (void)data[at];
    }
}

void note_costs(const rdma_blk::Statistics& before, const rdma_blk::Statistics& after,
                PerfResult& result) {
    const auto count = static_cast<double>(result.latencies.count());
    const auto each = [count](uint64_t from, uint64_t to) {
        return count == 0 ? 0 : static_cast<double>(to - from) / count;
    };
    result.has_costs = true;
    result.round_trips_per_operation = each(before.round_trips, after.round_trips);
    result.system_calls_per_operation = each(before.system_calls, after.system_calls);
    result.copied_bytes_per_operation = each(before.copied_bytes, after.copied_bytes);
}

using rdma_blk::TransportChoice;
using rdma_blk::sdr::EmulatedPath;
using rdma_blk::simulation::EmulatorCounters;

// Only datagrams pass an emulated link: sdr's. A transport that was not named is sdr then.
OrProblem<std::unique_ptr<EmulatedPath>> put_link(const PerfLink& link,
                                                  RemoteVolumeAddress& address) {
    rdma_blk::RemoteAddress& server = address.servers[0];
    if (server.transport == TransportChoice::automatic) {
        server.transport = TransportChoice::sdr;
    }
    auto path = EmulatedPath::create(emulator_options(link));
    if (!path.ok()) {
        return Problem{"no emulated link: " + system_error_text(errno_value(path.error())),
                       path.error()};
    }
    server.sdr.detour = path->get();
    return path.release_value();
}

EmulatorCounters since(const EmulatorCounters& before, EmulatorCounters now) {
    now.received -= before.received;
    now.forwarded -= before.forwarded;
    now.lost -= before.lost;
    now.tail_dropped -= before.tail_dropped;
    now.duplicated -= before.duplicated;
    now.held -= before.held;
    now.too_long -= before.too_long;
    now.overflowed -= before.overflowed;
    now.undirected -= before.undirected;
    now.failed -= before.failed;
    return now;
}

PerfDatagrams datagrams_of(const rdma_blk::Statistics& before, const rdma_blk::Statistics& after) {
    PerfDatagrams result;
    result.sent = after.datagrams_sent - before.datagrams_sent;
    result.received = after.datagrams_received - before.datagrams_received;
    result.chunks_lost = after.chunks_lost - before.chunks_lost;
    result.chunks_repeated = after.chunks_repeated - before.chunks_repeated;
    result.blocks_decoded = after.blocks_decoded - before.blocks_decoded;
    result.blocks_failed = after.blocks_failed - before.blocks_failed;
    result.reconnections = after.reconnections - before.reconnections;
    result.round_trip_us = after.round_trip_us;
    return result;
}

}  // namespace

OrProblem<PerfResult> measure_remote(const PerfOptions& options,
                                     std::optional<PerfResult>& copies) {
    OrProblem<RemoteVolumeAddress> address =
        parse_remote_address(std::string_view(options.address).substr(strlen("tiffin:")));
    if (!address.ok()) {
        return address.problem();
    }
    std::unique_ptr<EmulatedPath> link;  // outlives the session
    if (options.link) {
        auto put = put_link(*options.link, *address);
        if (!put.ok()) {
            return put.problem();
        }
        link = std::move(*put);
    }
    const OperationKind kind = kind_of(options.operation);
    const bool needs_lease = kind != OperationKind::read;
    auto opened = open_remote_session(*address, {.read_only = !needs_lease});
    if (!opened.ok()) {
        return opened.problem();
    }
    const OpenMemory memory(opened->release());
    if (options.size_bytes > memory->limits().transfer_bytes ||
        options.size_bytes > memory->geometry().data_bytes) {
        return Problem{"operations of " + std::to_string(options.size_bytes) +
                       " bytes are too large for this volume and transport: at most " +
                       std::to_string(memory->limits().transfer_bytes)};
    }
    const uint64_t thread_bytes =
        (options.depth * options.size_bytes + kPlaceBytes - 1) / kPlaceBytes * kPlaceBytes;
    const uint64_t total_bytes = thread_bytes * options.threads;
    const Pages buffers(static_cast<unsigned char*>(host::allocate_pages(total_bytes)),
                        PageDeleter{total_bytes});
    if (buffers == nullptr) {
        return Problem{"not enough memory for the buffers", Error::enomem};
    }
    std::memset(buffers.get(), 0x5a, total_bytes);
    if (Result<void> added = memory->add_arena(MutableByteSpan(buffers.get(), total_bytes));
        !added.ok()) {
        return Problem{"the buffers cannot be registered", added.error()};
    }
    touch_pages(*memory);
    std::atomic<bool> stop{false};
    std::counting_semaphore<> failed{0};
    std::vector<LatencyHistogram> latencies(options.threads);
    std::vector<Error> errors(options.threads);
    std::vector<std::thread> threads;
    const rdma_blk::Statistics before = memory->statistics();
    const EmulatorCounters link_before =
        link == nullptr ? EmulatorCounters() : link->emulator().counters();
    const uint64_t start_ns = host::monotonic_ns();
    for (uint32_t i = 0; i < options.threads; ++i) {
        threads.emplace_back([&, i] {
            errors[i] = run_thread(*memory, options, kind, buffers.get() + i * thread_bytes, i + 1,
                                   stop, latencies[i]);
            if (errors[i] != Error{}) {
                failed.release();
            }
        });
    }
    (void)failed.try_acquire_for(std::chrono::duration<double>(options.duration_s));
    stop.store(true);
    PerfResult result;
    for (uint32_t i = 0; i < options.threads; ++i) {
        threads[i].join();
        result.latencies.add(latencies[i]);
    }
    result.seconds = static_cast<double>(host::monotonic_ns() - start_ns) / 1e9;
    result.carrier = memory->connection().transport_name;
    result.depth = options.depth;
    result.threads = options.threads;
    const rdma_blk::Statistics after = memory->statistics();
    note_costs(before, after, result);
    for (const Error error : errors) {
        if (error != Error{}) {
            return Problem{"an operation failed: " + system_error_text(errno_value(error)), error};
        }
    }
    if (result.carrier == "sdr" || result.carrier == "sdr-uc") {
        result.datagrams = datagrams_of(before, after);
        if (link != nullptr) {
            result.datagrams->link = since(link_before, link->emulator().counters());
        }
    } else if (link != nullptr) {
        return Problem{"the path of datagrams has failed on this link, and tcp took its place",
                       Error::eio};
    }
    const bool copies_bytes = kind == OperationKind::read || kind == OperationKind::write;
    if (!options.no_baseline && copies_bytes && memory->direct_address(0, 1) != nullptr) {
        copies = measure_copies(*memory, options, buffers.get());
    }
    return result;
}

}  // namespace tiffin::fuse
