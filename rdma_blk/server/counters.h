// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What the server counts, for metrics, administration and tests. Each number is exact; together they are no
// snapshot. Any threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tiffin::rdma_blk {

using Counter = std::atomic<uint64_t>;

inline void count(Counter& counter, uint64_t by = 1) {
    counter.fetch_add(by, std::memory_order_relaxed);
}
// For differences that mostly are none: adding waits until all that was written before is in the cache.
inline void count_if_any(Counter& counter, uint64_t by) {
    if (by != 0) {
        count(counter, by);
    }
}

// How long something took, by powers of four of the first bound.
template <uint64_t kFirst, size_t kCount>
struct Durations {
    static constexpr size_t kBounds = kCount;

    static constexpr uint64_t bound_ns(size_t index) { return kFirst << (2 * index); }
    void note(uint64_t duration_ns) {
        size_t index = 0;
        while (index < kBounds && duration_ns > bound_ns(index)) {
            index++;
        }
        count(buckets[index]);
        count(sum_ns, duration_ns);
    }

    Counter buckets[kBounds +
                    1]{};  // each up to its bound and above the one before; the last one: the rest
    Counter sum_ns{0};
};

using FlushDurations = Durations<250'000, 8>;  // 0.25 ms to 4.1 s
using TurnDurations = Durations<1'000, 11>;    // 1 us to 1 s

// Of one volume, since its start in this process.
struct VolumeCounters {
    Counter requests[6]{};  // by OperationKind: arrived, whatever became of them
    Counter bytes_read{0};
    Counter bytes_written{0};
    Counter executed{0};
    Counter answered_again{0};  // from a kept reply
    Counter ignored{0};         // repetitions of what is being executed, and old ones
    Counter refused_read_only{0};
    Counter refused_stale{0};  // fenced, or of another epoch
    Counter refused_range{0};
    Counter refused_other{0};
    Counter malformed{0};  // ended their connection
    Counter fences{0};
    Counter kills{0};  // of processes that had the memory mapped, for a takeover
    Counter sessions_opened{0};
    Counter sessions_resumed{0};
    Counter paths_joined{0};         // connections beside the one that opened the incarnation
    Counter paths_revoked{0};        // ended as their client asked for it over another one
    Counter recoveries{0};           // questions about what was sent on a path that failed
    Counter sessions_refused[10]{};  // by wire::RefusalReason; leases and paths, too
    Counter flushes{0};
    Counter flush_errors{0};
    Counter flushed_bytes{0};
    FlushDurations flush_durations;  // from the turn of a request to its answer, with a backing
    // From when a thread wakes up until it has sent the answers to all requests of one connection that had come by then.
    TurnDurations turn_durations;
};

// Of the whole server.
struct ServerCounters {
    Counter connections_accepted{0};
    Counter connections_refused{0};  // by max_connections and max_handshakes
    Counter handshakes_done{0};
    Counter handshakes_denied{0};  // wrong key, unknown volume
    Counter handshakes_failed{0};  // malformed, no common version
    Counter handshakes_timed_out{0};
    Counter handshakes_displaced{0};  // by others, when there were too many
    Counter malformed_messages{0};
    Counter stalled_connections{0};
    Counter unread_answer_bytes{0};  // now: in queues of connections, of each whole 64 KiB
    Counter silent_connections{0};
    Counter probes_sent{0};
    // Paths of transport sdr: how many there are now, and what their datagrams met (MessagePathStatistics).
    Counter sdr_paths{0};
    Counter sdr_datagrams_sent{0};
    Counter sdr_datagrams_received{0};
    Counter sdr_datagrams_refused{0};
    Counter sdr_datagrams_dropped{0};
    Counter sdr_uc_packets_sent{
        0};  // over queue pairs; of the datagrams above, as are those received
    Counter sdr_uc_packets_received{0};
    Counter sdr_chunks_lost{0};
    Counter sdr_chunks_repeated{0};
    Counter sdr_blocks_decoded{0};
    Counter sdr_blocks_failed{0};
    Counter sdr_bytes_copied{0};  // of what has come, into its landing slot
    // System calls of the threads that serve connections: what a request costs beside its work.
    Counter wait_calls{0};
    Counter receive_calls{0};
    Counter send_calls{0};
};

}  // namespace tiffin::rdma_blk
