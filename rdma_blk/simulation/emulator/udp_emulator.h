// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A link between two UDP endpoints in real time: passes on what they send as a Link (rdma_blk/simulation/link.h) would,
// with its rate, delay, queue, losses, duplicates and reordering. In this process, between two others, or between two
// network namespaces or machines.
//
//     near end <---> near socket | link | far socket <---> far end
//
// Each end sends to the emulator's socket on its side and receives from it. A path is one such pair of sockets; all
// paths of an emulator share its two links, one for each direction. An end is where set_near_peer() or set_far_peer()
// says or, until then, where the last datagram on its side came from.
//
// One thread does all the work. Times are kept as well as the machine has processors for it: never too early, and as
// late as the thread is woken. Rate and queue count 28 bytes more for each datagram (IPv4 and UDP). Memory is bounded:
// what finds no room is dropped and counted. May allocate: this is for trials, tests and measurements.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <memory>

#include "fs/vfs/result.h"
#include "rdma_blk/simulation/link.h"

namespace tiffin::rdma_blk::simulation {

// Of a link whose rate is not to count.
inline constexpr double kUnlimitedBitsPerSecond = 1e15;

struct EmulatorOptions {
    LinkOptions forward;  // from the near to the far end
    LinkOptions backward;
    uint64_t seed = 1;  // of losses and the like: the same for the same datagrams in the same order
    uint16_t path_count = 1;  // 1 to 64
    // Where the sockets lie; any address if it is unspecified. Path i has port + i; port 0: any.
    sockaddr_in6 near_address = {};
    sockaddr_in6 far_address = {};
    // Longer ones vanish without a word, as on a path whose MTU nobody tells: their payload, in bytes.
    uint32_t longest_datagram_bytes = 65507;
    // What may wait for its time, of both directions: in datagrams, and in blocks of 64 KiB that were received at once.
    uint32_t most_datagrams = 65536;
    uint32_t most_blocks = 4096;
};

struct EmulatorCounters {
    uint64_t received = 0;
    uint64_t forwarded = 0;     // with duplicates
    uint64_t lost = 0;          // by the links' models of loss
    uint64_t tail_dropped = 0;  // by the links' queues
    uint64_t duplicated = 0;
    uint64_t held = 0;
    uint64_t too_long = 0;
    uint64_t overflowed = 0;  // no room in memory
    uint64_t undirected = 0;  // nobody knows yet where the other end is
    uint64_t failed = 0;      // that the kernel did not take
};

class UdpEmulator {
  public:
    // Opens the sockets and starts the thread. Errors: einval (options out of range), those of sockets and threads.
    static Result<std::unique_ptr<UdpEmulator>> create(const EmulatorOptions& options);
    // What still waits is dropped.
    virtual ~UdpEmulator() = default;

    // Where the ends send to; the host part is that of the options.
    [[nodiscard]] virtual sockaddr_in6 near_address(uint16_t path) const = 0;
    [[nodiscard]] virtual sockaddr_in6 far_address(uint16_t path) const = 0;

    // From any thread, also with locks held. `path` is below path_count. What comes later goes there.
    virtual void set_near_peer(uint16_t path, const sockaddr_in6& address) = 0;
    virtual void set_far_peer(uint16_t path, const sockaddr_in6& address) = 0;
    // The path becomes narrower or wider.
    virtual void set_longest_datagram(uint32_t longest_bytes) = 0;
    virtual EmulatorCounters counters() = 0;
};

}  // namespace tiffin::rdma_blk::simulation
