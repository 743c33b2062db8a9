// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/memory_device.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "fuse/host/device_request.h"
#include "fuse/host/size_text.h"

namespace tiffin::fuse {

OrProblem<std::unique_ptr<MemoryDevice>> MemoryDevice::create(uint64_t size_bytes, bool read_only) {
    const uint64_t whole_bytes = size_bytes - size_bytes % kPageBytes;
    if (whole_bytes == 0) {
        return Problem{"a memory device needs at least 4096 bytes"};
    }
    if (whole_bytes > PTRDIFF_MAX) {
        return Problem{"a memory device of " + format_size(size_bytes) + " is too large",
                       Error::erange};
    }
    void* memory = mmap(nullptr, whole_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return Problem{"cannot reserve " + format_size(whole_bytes) + " of memory (" +
                           system_error_text(errno) + "): choose a smaller size",
                       Error::enomem};
    }
    // Only advice: without huge pages everything works, with more misses in the TLB.
    (void)madvise(memory, whole_bytes, MADV_HUGEPAGE);
    return std::unique_ptr<MemoryDevice>(
        new MemoryDevice(static_cast<unsigned char*>(memory), whole_bytes, read_only));
}

MemoryDevice::MemoryDevice(unsigned char* memory, uint64_t size_bytes, bool read_only)
    : memory_(memory) {
    geometry_.size_bytes = size_bytes;
    geometry_.write_unit_bytes = 64;
    geometry_.volatile_cache = false;
    geometry_.supports_discard = true;
    geometry_.read_only = read_only;
}

MemoryDevice::~MemoryDevice() { TIFFIN_ASSERT(munmap(memory_, geometry_.size_bytes) == 0); }

void MemoryDevice::submit(vfs::IoRequest& request) { complete_synchronously(*this, request); }

const void* MemoryDevice::direct_address(uint64_t offset_bytes, uint64_t size_bytes) {
    if (offset_bytes > geometry_.size_bytes || size_bytes > geometry_.size_bytes - offset_bytes) {
        return nullptr;
    }
    return memory_ + offset_bytes;
}

Result<void> MemoryDevice::read(uint64_t offset_bytes, const vfs::IoVector* buffers,
                                size_t buffer_count) {
    TRY(check_transfer(geometry_, false, offset_bytes, buffers, buffer_count));
    const unsigned char* source = memory_ + offset_bytes;
    for (size_t i = 0; i < buffer_count; ++i) {
        // Empty pieces may have no address, which memcpy must not see.
        if (buffers[i].size_bytes != 0) {
            memcpy(buffers[i].data, source, buffers[i].size_bytes);
            source += buffers[i].size_bytes;
        }
    }
    return {};
}

Result<void> MemoryDevice::write(uint64_t offset_bytes, const vfs::IoVector* buffers,
                                 size_t buffer_count) {
    TRY(check_transfer(geometry_, true, offset_bytes, buffers, buffer_count));
    unsigned char* destination = memory_ + offset_bytes;
    for (size_t i = 0; i < buffer_count; ++i) {
        if (buffers[i].size_bytes != 0) {
            memcpy(destination, buffers[i].data, buffers[i].size_bytes);
            destination += buffers[i].size_bytes;
        }
    }
    return {};
}

Result<void> MemoryDevice::discard(uint64_t offset_bytes, uint64_t length_bytes) {
    TRY(check_discard(geometry_, offset_bytes, length_bytes));
    const uint64_t end = (offset_bytes + length_bytes) / kPageBytes * kPageBytes;
    const uint64_t begin = (offset_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    if (begin < end && madvise(memory_ + begin, end - begin, MADV_DONTNEED) != 0) {
        // Locked memory (mlockall) cannot be given back.
        memset(memory_ + begin, 0, end - begin);
    }
    return {};
}

}  // namespace tiffin::fuse
