// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What changes the map of a file without writing data: the long operations, in bounded transactions.
#include "tests/vm/module/bench.h"

namespace tiffin::vm {
namespace {

constexpr uint64_t kBlock = vfs::kBlockBytes;
constexpr uint64_t kFileBytes = 256 * kBlock;

}  // namespace

Result<void> change_space(Bench& bench) {
    using namespace vfs::allocate_flag;
    vfs::FileSystem& fs = *bench.file_system;
    const vfs::NodeId file = CHECK_OK(bench.create(vfs::kRootNode, "space"));
    CHECK_OK(bench.write(file, 0, kFileBytes, 8));

    CHECK_OK(fs.allocate(file, punch_hole | keep_size, 10 * kBlock, 20 * kBlock));
    TRY(bench.verify(file, 0, 10 * kBlock, 8));
    TRY(bench.verify_zeros(file, 10 * kBlock, 20 * kBlock));
    TRY(bench.verify(file, 30 * kBlock, 10 * kBlock, 8));
    // Reserved and read as zeros.
    CHECK_OK(fs.allocate(file, 0, kFileBytes, kFileBytes));
    CHECK(CHECK_OK(bench.size_of(file)) == 2 * kFileBytes);
    TRY(bench.verify_zeros(file, kFileBytes, kFileBytes));
    CHECK_OK(fs.allocate(file, zero_range, 40 * kBlock, 10 * kBlock));
    TRY(bench.verify_zeros(file, 40 * kBlock, 10 * kBlock));

    // Twenty blocks go and come back elsewhere: what lies behind moves there and back.
    CHECK_OK(fs.allocate(file, collapse_range, 10 * kBlock, 20 * kBlock));
    CHECK(CHECK_OK(bench.size_of(file)) == 2 * kFileBytes - 20 * kBlock);
    TRY(bench.verify_zeros(file, 20 * kBlock, 10 * kBlock));
    CHECK_OK(fs.allocate(file, insert_range, 0, 20 * kBlock));
    TRY(bench.verify_zeros(file, 0, 20 * kBlock));
    CHECK(CHECK_OK(bench.size_of(file)) == 2 * kFileBytes);
    TRY(bench.verify(file, 50 * kBlock, kFileBytes - 50 * kBlock, 8));

    const vfs::NodeId copy = CHECK_OK(bench.create(vfs::kRootNode, "copy"));
    const uint64_t copied = 100 * kBlock;
    CHECK(CHECK_OK(fs.copy_range(file, copied, copy, copied, copied)) == copied);
    TRY(bench.verify(copy, copied, copied, 8));
    TRY(bench.verify_zeros(copy, 0, copied));

    for (const vfs::Name name : {vfs::Name("space"), vfs::Name("copy")}) {
        CHECK_OK(fs.unlink({}, vfs::kRootNode, name));
    }
    fs.forget(file, 1);
    fs.forget(copy, 1);
    return {};
}

}  // namespace tiffin::vm
