// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/session/statistics.h"

#include <algorithm>
#include <bit>

#include "fs/vfs/host.h"

namespace tiffin::fuse {
namespace {

constexpr std::array<const char*, kOperationCount> kNames = {
    "LOOKUP",   "FORGET",     "GETATTR",     "STATX",       "SETATTR",  "CREATE",
    "MKNOD",    "MKDIR",      "SYMLINK",     "TMPFILE",     "LINK",     "READLINK",
    "UNLINK",   "RMDIR",      "RENAME",      "OPEN",        "RELEASE",  "READ",
    "WRITE",    "FLUSH",      "FSYNC",       "FALLOCATE",   "LSEEK",    "COPY_FILE_RANGE",
    "OPENDIR",  "RELEASEDIR", "READDIR",     "READDIRPLUS", "FSYNCDIR", "GETXATTR",
    "SETXATTR", "LISTXATTR",  "REMOVEXATTR", "STATFS",      "IOCTL",
};
static_assert(kNames.back() != nullptr, "each operation has a name");

size_t bucket_of(uint64_t latency_ns) {
    size_t width = static_cast<size_t>(std::bit_width(latency_ns));
    return std::min(width == 0 ? 0 : width - 1, OperationTotals::kBuckets - 1);
}

size_t stripe_of_this_thread() {
    static std::atomic<size_t> next{0};
    thread_local const size_t mine = next.fetch_add(1, std::memory_order_relaxed);
    return mine;
}

void add(std::atomic<uint64_t>& counter, uint64_t value) {
    counter.fetch_add(value, std::memory_order_relaxed);
}

}  // namespace

const char* operation_name(Operation operation) {
    TIFFIN_ASSERT(operation < Operation::count);
    return kNames[static_cast<size_t>(operation)];
}

void Statistics::record(Operation operation, uint64_t latency_ns, uint64_t bytes, bool failed) {
    Stripe& stripe = stripes_[stripe_of_this_thread() % kStripes];
    Counters& counters = stripe.operations[static_cast<size_t>(operation)];
    add(counters.count, 1);
    add(counters.total_ns, latency_ns);
    add(counters.buckets[bucket_of(latency_ns)], 1);
    if (bytes != 0) {
        add(counters.bytes, bytes);
    }
    if (failed) {
        add(counters.errors, 1);
    }
}

OperationTotals Statistics::totals(Operation operation) const {
    OperationTotals totals;
    for (const Stripe& stripe : stripes_) {
        const Counters& counters = stripe.operations[static_cast<size_t>(operation)];
        totals.count += counters.count.load(std::memory_order_relaxed);
        totals.errors += counters.errors.load(std::memory_order_relaxed);
        totals.bytes += counters.bytes.load(std::memory_order_relaxed);
        totals.total_ns += counters.total_ns.load(std::memory_order_relaxed);
        for (size_t i = 0; i < totals.buckets.size(); ++i) {
            totals.buckets[i] += counters.buckets[i].load(std::memory_order_relaxed);
        }
    }
    return totals;
}

uint64_t percentile_ns(const OperationTotals& totals, double fraction) {
    uint64_t in_buckets = 0;
    for (uint64_t bucket : totals.buckets) {
        in_buckets += bucket;
    }
    if (in_buckets == 0) {
        return 0;
    }
    double wanted = std::clamp(fraction, 0.0, 1.0) * static_cast<double>(in_buckets);
    double below = 0;
    for (size_t i = 0; i < totals.buckets.size(); ++i) {
        auto here = static_cast<double>(totals.buckets[i]);
        if (here > 0 && below + here >= wanted) {
            auto start = static_cast<double>(i == 0 ? 0 : uint64_t{1} << i);
            auto width = static_cast<double>(i == 0 ? 2 : uint64_t{1} << i);
            return static_cast<uint64_t>(start + width * std::max(wanted - below, 0.0) / here);
        }
        below += here;
    }
    return uint64_t{1} << OperationTotals::kBuckets;
}

}  // namespace tiffin::fuse
