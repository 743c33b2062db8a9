// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a session counts for each kind of request: how many, how many failed, bytes, and how long
// they took, as a histogram with buckets of powers of two. Recording takes no lock and shares no
// cache line with other threads.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tiffin::fuse {

// The requests of the kernel, in the order in which people look for them.
enum class Operation : uint8_t {
    lookup,
    forget,
    get_attributes,
    get_extended_attributes,  // statx
    set_attributes,
    create,
    make_node,
    make_directory,
    make_symlink,
    make_temporary,
    link,
    read_link,
    unlink,
    remove_directory,
    rename,
    open,
    release,
    read,
    write,
    flush,
    fsync,
    allocate,
    seek,
    copy_range,
    open_directory,
    release_directory,
    read_directory,
    read_directory_plus,
    fsync_directory,
    get_xattr,
    set_xattr,
    list_xattr,
    remove_xattr,
    file_system_statistics,
    control,
    count,
};

inline constexpr size_t kOperationCount = static_cast<size_t>(Operation::count);

// The kernel's name of a request ("LOOKUP"), as other FUSE tools print it.
const char* operation_name(Operation operation);

// The sums of one operation. Bucket b of the histogram counts requests that took at least 2^b and
// less than 2^(b+1) nanoseconds; the first also those under 1 ns, the last everything longer.
struct OperationTotals {
    static constexpr size_t kBuckets = 40;

    uint64_t count = 0;
    uint64_t errors = 0;
    uint64_t bytes = 0;  // of data or entries, in either direction
    uint64_t total_ns = 0;
    std::array<uint64_t, kBuckets> buckets{};
};

// The latency that `fraction` (0 to 1) of the requests did not exceed, interpolated within its
// bucket; 0 when there were none.
uint64_t percentile_ns(const OperationTotals& totals, double fraction);
// 0 when there were none.
inline uint64_t mean_ns(const OperationTotals& totals) {
    return totals.count == 0 ? 0 : totals.total_ns / totals.count;
}

// Counters of a session. Any thread; a reader sees each counter at some moment, not all at the same.
class Statistics {
  public:
    void record(Operation operation, uint64_t latency_ns, uint64_t bytes, bool failed);
    OperationTotals totals(Operation operation) const;

  private:
    struct Counters {
        std::atomic<uint64_t> count{0};
        std::atomic<uint64_t> errors{0};
        std::atomic<uint64_t> bytes{0};
        std::atomic<uint64_t> total_ns{0};
        std::array<std::atomic<uint64_t>, OperationTotals::kBuckets> buckets{};
    };
    // Threads are spread over stripes, so that two of them rarely write to the same cache line.
    struct alignas(128) Stripe {
        std::array<Counters, kOperationCount> operations{};
    };
    static constexpr size_t kStripes = 32;

    std::array<Stripe, kStripes> stripes_{};
};

}  // namespace tiffin::fuse
