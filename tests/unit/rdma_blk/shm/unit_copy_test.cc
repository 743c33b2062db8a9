// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The copy in whole units against memcpy(): every place in a unit, pieces of every kind, and nothing beyond the ends.
#include "rdma_blk/transport/shm/unit_copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace tiffin::rdma_blk {
namespace {

constexpr size_t kGuardBytes = 64;
constexpr unsigned char kGuard = 0xee;

// One behind the other, from `source` to each offset of two units.
void expect_copied(const std::vector<size_t>& sizes) {
    size_t total = 0;
    for (const size_t size : sizes) {
        total += size;
    }
    std::vector<unsigned char> source(total + 1);
    for (size_t i = 0; i < source.size(); i++) {
        source[i] = static_cast<unsigned char>(i * 7 + 1);
    }
    std::vector<vfs::IoVector> pieces;
    size_t at = 0;
    for (const size_t size : sizes) {
        pieces.push_back({source.data() + at, size});
        at += size;
    }
    for (size_t offset = 0; offset < 2 * kCopyUnitBytes; offset++) {
        std::vector<unsigned char> memory(4 * kCopyUnitBytes + total + kGuardBytes, kGuard);
        const size_t beyond = reinterpret_cast<uintptr_t>(memory.data()) % kCopyUnitBytes;
        const size_t begin = kCopyUnitBytes - beyond + offset;
        std::vector<unsigned char> expected = memory;
        if (total != 0) {
            std::memcpy(&expected[begin], source.data(), total);
        }
        copy_units(&memory[begin], pieces.data(), pieces.size());
        ASSERT_EQ(memory, expected) << "at " << offset << " of a unit, " << total << " bytes";
    }
}

TEST(UnitCopy, IsThatOfMemcpyWithinItsEnds) {
    if (!can_copy_units()) {
        GTEST_SKIP() << "not run: this processor has no 64-byte stores";
    }
    for (size_t size = 0; size <= 6 * kCopyUnitBytes; size++) {
        expect_copied({size});
    }
    for (const size_t first : {0, 1, 20, 63, 64, 65, 200}) {
        for (const size_t second : {0, 1, 30, 64, 127}) {
            for (const size_t third : {0, 5, 64, 300}) {
                expect_copied({first, second, third});
                expect_copied({first, 0, second, 3, 0, third});
            }
        }
    }
    for (const size_t size : {kStreamedBytes - 1, kStreamedBytes, kStreamedBytes + 77}) {
        expect_copied({size});
        expect_copied({100, size - 100 - 4096, 3, 4093});
    }
}

}  // namespace
}  // namespace tiffin::rdma_blk
