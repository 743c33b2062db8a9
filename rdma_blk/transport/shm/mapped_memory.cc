// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/shm/mapped_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "fs/vfs/numbers.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;
// Room to grow is address space only; a process has 2^47 bytes of it.
constexpr uint64_t kReservedAtLeast = uint64_t{1} << 36;
constexpr uint64_t kReservedAtMost = uint64_t{1} << 44;

bool is_sealed(int memfd, uint64_t size_bytes) {
    const int seals = fcntl(memfd, F_GET_SEALS);
    struct stat status {};
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(memfd, &status) == 0 &&
           static_cast<uint64_t>(status.st_size) >= size_bytes;
}

}  // namespace

Result<AddressRange> reserve_addresses(uint64_t size_bytes) {
    const uint64_t wanted =
        std::clamp(round_up(std::min(size_bytes, kReservedAtMost) * 4, kHugePageBytes),
                   kReservedAtLeast, kReservedAtMost);
    void* reserved = mmap(nullptr, wanted + kHugePageBytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) {
        return Error::enomem;
    }
    // Aligned, so that huge pages fit; what lies around is given back.
    const auto begin = reinterpret_cast<uintptr_t>(reserved);
    const uintptr_t aligned = round_up(begin, kHugePageBytes);
    if (aligned > begin) {
        munmap(reserved, aligned - begin);
    }
    munmap(reinterpret_cast<void*>(aligned + wanted), begin + kHugePageBytes - aligned);
    return AddressRange{reinterpret_cast<unsigned char*>(aligned), wanted};
}

Result<void> MappedMemory::reserve(uint64_t size_bytes) {
    if (address_ == nullptr) {
        const AddressRange range = TRY(reserve_addresses(size_bytes));
        address_ = range.begin;
        reserved_bytes_ = range.size_bytes;
    }
    return {};
}

Result<void> MappedMemory::map_from(uint64_t offset_bytes, uint64_t size_bytes) {
    const int protection = PROT_READ | (is_writable_ ? PROT_WRITE : 0);
    unsigned char* begin = address_ + offset_bytes;
    const uint64_t length = size_bytes - offset_bytes;
    if (mmap(begin, length, protection, MAP_SHARED | MAP_FIXED, memfd_.get(),
             static_cast<off_t>(offset_bytes)) == MAP_FAILED) {
        return static_cast<Error>(errno);
    }
    // A child would keep the memory when this process is ended to take it away; and nobody wants it in a core
    // dump. Huge pages are a wish.
    if (madvise(begin, length, MADV_DONTFORK) != 0) {
        return static_cast<Error>(errno);
    }
    (void)madvise(begin, length, MADV_DONTDUMP);
    (void)madvise(begin, length, MADV_HUGEPAGE);
    return {};
}

Result<void> MappedMemory::map(Socket memfd, uint64_t size_bytes, bool is_writable) {
    if (!is_sealed(memfd.get(), size_bytes)) {
        return Error::eproto;
    }
    TRY(reserve(size_bytes));
    memfd_ = std::move(memfd);
    is_writable_ = is_writable;
    const uint64_t mapped_bytes = std::min(size_bytes, reserved_bytes_);
    const Result<void> mapped = map_from(0, mapped_bytes);
    size_bytes_.store(mapped.ok() ? mapped_bytes : 0, std::memory_order_release);
    return mapped;
}

Result<void> MappedMemory::grow(uint64_t size_bytes) {
    const uint64_t wanted = std::min(size_bytes, reserved_bytes_);
    const uint64_t present = size_bytes_.load();
    if (wanted <= present) {
        return {};
    }
    if (!is_sealed(memfd_.get(), size_bytes)) {
        return Error::eproto;
    }
    // Nothing that is mapped already is touched: others are looking at it, and a mmap() that fails may have removed
    // what was there. The kernel joins both parts. (Memory of hugetlb has sizes of whole huge pages.)
    TRY(map_from(present, wanted));
    size_bytes_.store(wanted, std::memory_order_release);
    return {};
}

void MappedMemory::unmap() {
    size_bytes_.store(0);
    if (address_ != nullptr) {
        munmap(address_, reserved_bytes_);
        address_ = nullptr;
    }
    memfd_.reset();
}

}  // namespace tiffin::rdma_blk
