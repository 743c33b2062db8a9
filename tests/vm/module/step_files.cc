// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Files of all shapes, which must read back the same after every mount.
#include "tests/vm/module/bench.h"

namespace tiffin::vm {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;

constexpr uint64_t kSmallBytes = 300;  // inline in the tree
constexpr uint64_t kLargeBytes = kMiB;
constexpr uint64_t kOddOffset = 123457;  // a write that shares its blocks with others
constexpr uint64_t kOddBytes = 54321;
constexpr uint64_t kHole = 512 * kKiB;
constexpr uint64_t kFar = uint64_t{1} << 40;  // a sparse file of a tebibyte

enum Seed : uint64_t { small_seed = 1, large_seed, odd_seed, sparse_seed };

}  // namespace

Result<void> make_and_mount(Bench& bench) {
    CHECK(!CHECK_OK(tiffinfs::holds_file_system(bench.device)));
    tiffinfs::MakeOptions options;
    options.label = "in-kernel";
    options.journal_bytes = kMiB;
    CHECK_OK(tiffinfs::make_file_system(bench.device, options));
    CHECK(CHECK_OK(tiffinfs::holds_file_system(bench.device)));
    TRY(bench.mount());
    const vfs::FileSystemStatistics statistics = CHECK_OK(bench.file_system->statistics());
    CHECK(statistics.total_blocks > 0 && statistics.free_blocks <= statistics.total_blocks);
    CHECK(CHECK_OK(bench.count_entries(vfs::kRootNode)) == 0);
    return {};
}

Result<void> write_files(Bench& bench) {
    const vfs::NodeId directory = CHECK_OK(bench.make_directory(vfs::kRootNode, "files"));
    const vfs::NodeId small = CHECK_OK(bench.create(directory, "small"));
    CHECK_OK(bench.write(small, 0, kSmallBytes, small_seed));

    const vfs::NodeId large = CHECK_OK(bench.create(directory, "large"));
    CHECK_OK(bench.write(large, 0, kLargeBytes, large_seed));
    CHECK_OK(bench.write(large, kOddOffset, kOddBytes, odd_seed));

    const vfs::NodeId sparse = CHECK_OK(bench.create(directory, "sparse"));
    CHECK_OK(bench.write(sparse, 0, 4 * kKiB, sparse_seed));
    CHECK_OK(bench.write(sparse, kHole, 8 * kKiB, sparse_seed));
    CHECK_OK(bench.write(sparse, kFar, 100, sparse_seed));

    // In thousands of pieces that are no neighbours on the device: extents fill several tree nodes.
    const vfs::NodeId scattered = CHECK_OK(bench.create(directory, "scattered"));
    for (uint64_t i = 0; i < 400; ++i) {
        CHECK_OK(bench.write(scattered, i * 64 * kKiB, 4 * kKiB, i));
    }
    for (const vfs::NodeId node : {small, large, sparse, scattered}) {
        CHECK_OK(bench.file_system->fsync(node, false));
    }
    CHECK_OK(bench.file_system->fsync(directory, false));
    return {};
}

Result<void> check_files(Bench& bench) {
    const vfs::NodeId directory = CHECK_OK(bench.find(vfs::kRootNode, "files"));
    CHECK(CHECK_OK(bench.count_entries(directory)) == 4);

    const vfs::NodeId small = CHECK_OK(bench.find(directory, "small"));
    CHECK(CHECK_OK(bench.size_of(small)) == kSmallBytes);
    TRY(bench.verify(small, 0, kSmallBytes, small_seed));

    const vfs::NodeId large = CHECK_OK(bench.find(directory, "large"));
    CHECK(CHECK_OK(bench.size_of(large)) == kLargeBytes);
    TRY(bench.verify(large, 0, kOddOffset, large_seed));
    TRY(bench.verify(large, kOddOffset, kOddBytes, odd_seed));
    const uint64_t behind = kOddOffset + kOddBytes;
    TRY(bench.verify(large, behind, kLargeBytes - behind, large_seed));

    const vfs::NodeId sparse = CHECK_OK(bench.find(directory, "sparse"));
    CHECK(CHECK_OK(bench.size_of(sparse)) == kFar + 100);
    TRY(bench.verify(sparse, 0, 4 * kKiB, sparse_seed));
    TRY(bench.verify_zeros(sparse, 4 * kKiB, kHole - 4 * kKiB));
    TRY(bench.verify(sparse, kHole, 8 * kKiB, sparse_seed));
    TRY(bench.verify_zeros(sparse, kFar / 2, 64 * kKiB));
    TRY(bench.verify(sparse, kFar, 100, sparse_seed));
    using vfs::SeekTarget;
    CHECK(CHECK_OK(bench.file_system->seek(sparse, 0, SeekTarget::hole)) == 4 * kKiB);
    CHECK(CHECK_OK(bench.file_system->seek(sparse, 4 * kKiB, SeekTarget::data)) == kHole);

    const vfs::NodeId scattered = CHECK_OK(bench.find(directory, "scattered"));
    for (uint64_t i = 0; i < 400; ++i) {
        TRY(bench.verify(scattered, i * 64 * kKiB, 4 * kKiB, i));
    }
    TRY(bench.verify_zeros(scattered, 4 * kKiB, 60 * kKiB));
    return {};
}

Result<void> remount(Bench& bench) {
    TRY(bench.unmount());
    TRY(bench.mount());
    return check_files(bench);
}

}  // namespace tiffin::vm
