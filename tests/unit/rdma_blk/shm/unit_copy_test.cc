// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The copies in whole units, and by the caches, against memcpy(): every place in a unit, pieces of every kind, and nothing
// beyond the ends.
#include "rdma_blk/transport/shm/unit_copy.h"

#include <gtest/gtest.h>
#include <limits.h>

#include <cstring>
#include <vector>

#include "rdma_blk/transport/shm/streamed_copy.h"

namespace tiffin::rdma_blk {
namespace {

constexpr size_t kGuardBytes = 64;
constexpr unsigned char kGuard = 0xee;

// One behind the other, from `source` to each offset of two units.
void expect_copied(UnitCopy way, const std::vector<size_t>& sizes) {
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
        ASSERT_TRUE(copy_units(way, &memory[begin], pieces.data(), pieces.size()));
        ASSERT_EQ(memory, expected) << "at " << offset << " of a unit, " << total << " bytes";
    }
}

void expect_copies_as_memcpy(UnitCopy way) {
    for (size_t size = 0; size <= 6 * kCopyUnitBytes; size++) {
        expect_copied(way, {size});
    }
    for (const size_t first : {0, 1, 20, 63, 64, 65, 200}) {
        for (const size_t second : {0, 1, 30, 64, 127}) {
            for (const size_t third : {0, 5, 64, 300}) {
                expect_copied(way, {first, second, third});
                expect_copied(way, {first, 0, second, 3, 0, third});
            }
        }
    }
    for (const size_t size : {kStreamedBytes - 1, kStreamedBytes, kStreamedBytes + 77}) {
        expect_copied(way, {size});
        expect_copied(way, {100, size - 100 - 4096, 3, 4093});
    }
}

TEST(UnitCopy, ByTheProcessorIsThatOfMemcpyWithinItsEnds) {
    if (unit_copy() != UnitCopy::by_processor) {
        GTEST_SKIP() << "not run: this processor has no 64-byte stores";
    }
    expect_copies_as_memcpy(UnitCopy::by_processor);
}

// On every processor, though it is used only on those without such stores.
TEST(UnitCopy, ByTheKernelIsThatOfMemcpyWithinItsEnds) {
    if (unit_copy() == UnitCopy::none) {
        GTEST_SKIP() << "not run: process_vm_writev() is forbidden here";
    }
    expect_copies_as_memcpy(UnitCopy::by_kernel);
}

TEST(UnitCopy, ByTheKernelTakesAsManyPiecesAsASystemCallDoes) {
    if (unit_copy() == UnitCopy::none) {
        GTEST_SKIP() << "not run: process_vm_writev() is forbidden here";
    }
    std::vector<unsigned char> source(IOV_MAX * 3);
    std::vector<vfs::IoVector> pieces;
    for (size_t i = 0; i < source.size(); i++) {
        source[i] = static_cast<unsigned char>(i * 5 + 3);
    }
    for (size_t i = 0; i < IOV_MAX; i++) {
        pieces.push_back({&source[i * 3], 3});
    }
    std::vector<unsigned char> memory(source.size());
    ASSERT_TRUE(copy_units(UnitCopy::by_kernel, memory.data(), pieces.data(), pieces.size()));
    EXPECT_EQ(memory, source);
}

TEST(UnitCopy, ByTheKernelSaysThatItCouldNot) {
    if (unit_copy() == UnitCopy::none) {
        GTEST_SKIP() << "not run: process_vm_writev() is forbidden here";
    }
    std::vector<unsigned char> source(kCopyUnitBytes);
    const vfs::IoVector piece{source.data(), source.size()};
    auto* const nowhere = reinterpret_cast<unsigned char*>(uintptr_t{kCopyUnitBytes});
    EXPECT_FALSE(copy_units(UnitCopy::by_kernel, nowhere, &piece, 1));
}

TEST(StreamedCopy, IsThatOfMemcpyWithinItsEnds) {
    for (const size_t size : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{200},
                              kStreamedBytes, kStreamedBytes + 77}) {
        std::vector<unsigned char> source(size + 3);
        for (size_t i = 0; i < source.size(); i++) {
            source[i] = static_cast<unsigned char>(i * 11 + 5);
        }
        for (size_t offset = 0; offset < 2 * kCopyUnitBytes; offset++) {
            std::vector<unsigned char> memory(3 * kCopyUnitBytes + size + kGuardBytes, kGuard);
            std::vector<unsigned char> expected = memory;
            const size_t skipped = offset % 3;
            if (size != 0) {
                std::memcpy(&expected[offset], &source[skipped], size);
            }
            copy_streamed(&memory[offset], ByteSpan(&source[skipped], size));
            ASSERT_EQ(memory, expected) << "at " << offset << ", " << size << " bytes";
        }
    }
}

}  // namespace
}  // namespace tiffin::rdma_blk
