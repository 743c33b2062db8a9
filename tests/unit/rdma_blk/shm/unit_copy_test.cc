// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The copies in whole units against memcpy(): every place in a unit, pieces of every kind, and nothing
// beyond the ends.
#include "rdma_blk/transport/shm/unit_copy.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <vector>

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

// Asks the kernel itself, so that what is tested does not decide whether it is.
bool is_forbidden() {
    unsigned char from = 1;
    unsigned char to = 0;
    const iovec local{&from, 1};
    const iovec remote{&to, 1};
    return process_vm_writev(getpid(), &local, 1, &remote, 1, 0) < 0 &&
           (errno == EPERM || errno == ENOSYS);
}

// On every processor, though it is used only on those without such stores.
TEST(UnitCopy, ByTheKernelIsThatOfMemcpyWithinItsEnds) {
    if (is_forbidden()) {
        GTEST_SKIP() << "not run: process_vm_writev() is forbidden here";
    }
    expect_copies_as_memcpy(UnitCopy::by_kernel);
}

TEST(UnitCopy, ByTheKernelTakesAsManyPiecesAsASystemCallDoes) {
    if (is_forbidden()) {
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
    if (is_forbidden()) {
        GTEST_SKIP() << "not run: process_vm_writev() is forbidden here";
    }
    std::vector<unsigned char> source(kCopyUnitBytes);
    const vfs::IoVector piece{source.data(), source.size()};
    auto* const nowhere = reinterpret_cast<unsigned char*>(uintptr_t{kCopyUnitBytes});
    EXPECT_FALSE(copy_units(UnitCopy::by_kernel, nowhere, &piece, 1));
}

// A process that does nothing but copy, each time other bytes, and is killed somewhere in it.
void expect_whole_units_after_kills(UnitCopy way) {
    constexpr size_t kBytes = 2048 * kCopyUnitBytes;
    constexpr size_t kSkewBytes = 24;  // so that units lie across the source's pages
    void* mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    auto* memory = static_cast<unsigned char*>(mapped);
    size_t mixed_copies = 0;  // kills that met a copy
    for (int round = 0; round < 200; round++) {
        std::memset(memory, 0, kBytes);
        const pid_t writer = fork();
        ASSERT_GE(writer, 0);
        if (writer == 0) {
            static unsigned char source[kBytes + kSkewBytes];
            for (unsigned value = 1;; value++) {
                std::memset(source, static_cast<int>(value % 251 + 1), sizeof source);
                const vfs::IoVector pieces[] = {{source + kSkewBytes, 100},
                                                {source + kSkewBytes + 100, kBytes - 100}};
                if (!copy_units(way, memory, pieces, 2)) {
                    _exit(1);
                }
            }
        }
        while (std::atomic_ref<unsigned char>(memory[kBytes - 1]).load() == 0) {
            ASSERT_EQ(waitpid(writer, nullptr, WNOHANG), 0) << "the writer has given up";
        }
        usleep(static_cast<useconds_t>(round * 7 % 400));
        kill(writer, SIGKILL);
        ASSERT_EQ(waitpid(writer, nullptr, 0), writer);
        bool is_mixed = false;
        for (size_t at = 0; at < kBytes; at += kCopyUnitBytes) {
            for (size_t i = 1; i < kCopyUnitBytes; i++) {
                ASSERT_EQ(memory[at + i], memory[at])
                    << "torn at " << at + i << ", round " << round;
            }
            is_mixed = is_mixed || memory[at] != memory[0];
        }
        mixed_copies += is_mixed ? 1 : 0;
    }
    munmap(mapped, kBytes);
    EXPECT_GT(mixed_copies, 0U);
}

TEST(UnitCopy, ByTheProcessorIsWholeWhenTheProcessIsKilled) {
    if (unit_copy() != UnitCopy::by_processor) {
        GTEST_SKIP() << "not run: this processor has no 64-byte stores";
    }
    expect_whole_units_after_kills(UnitCopy::by_processor);
}

TEST(UnitCopy, ByTheKernelIsWholeWhenTheProcessIsKilled) {
    if (is_forbidden()) {
        GTEST_SKIP() << "not run: process_vm_writev() is forbidden here";
    }
    expect_whole_units_after_kills(UnitCopy::by_kernel);
}

}  // namespace
}  // namespace tiffin::rdma_blk
