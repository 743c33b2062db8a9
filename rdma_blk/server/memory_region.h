// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Memory of a volume that can outlive its process: a memfd, mapped at an address that stays when it grows.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "fs/vfs/result.h"
#include "rdma_blk/server/unique_descriptor.h"

namespace tiffin::rdma_blk {

// How much something that costs privileges or set-up is wanted.
enum class Wish : uint8_t { no, try_it, require };

struct MemoryOptions {
    Wish huge_pages = Wish::no;  // 2 MiB; only for sizes that are a multiple of that
    Wish lock = Wish::no;        // never swapped
};

class MemoryRegion {
  public:
    // New memory, all zero, sealed against shrinking (and other seals); all of it is allocated. `name` is for /proc.
    // Errors: enomem (it does not fit into the machine or the control group), eperm (a requirement that cannot be met),
    // efbig (the limit of file sizes).
    static Result<std::unique_ptr<MemoryRegion>> create(const std::string& name,
                                                        uint64_t size_bytes,
                                                        const MemoryOptions& options);
    // What an earlier process left; of larger memory, the beginning. Errors: enomem, einval (smaller).
    static Result<std::unique_ptr<MemoryRegion>> adopt(UniqueDescriptor memfd, uint64_t size_bytes,
                                                       const MemoryOptions& options);
    ~MemoryRegion();
    MemoryRegion(const MemoryRegion&) = delete;
    MemoryRegion& operator=(const MemoryRegion&) = delete;

    unsigned char* data() const { return address_; }
    uint64_t size_bytes() const { return size_bytes_; }
    int descriptor() const { return memfd_.get(); }
    // Another one, for another process to map. Who has one for reading cannot map it for writing, unless it
    // has the server's user or root's rights and opens the file anew. Errors: those of the system.
    Result<UniqueDescriptor> open_again(bool for_writing) const;
    bool has_huge_pages() const { return has_huge_pages_; }
    bool is_locked() const { return is_locked_; }

    // Makes it larger; the address stays, the new part is zero and allocated. One call at a time, while others look at it and
    // use what there is. Errors: enomem, efbig (beyond the address
    // space that was reserved), einval (smaller; not a multiple of its huge pages), eperm (cannot be locked).
    Result<void> grow(uint64_t size_bytes);
    // After a growth from `size_bytes`, whose part nobody else has got to know: gives that back.
    void undo_growth(uint64_t size_bytes);

  private:
    bool map_more(uint64_t offset_bytes, uint64_t length_bytes);
    MemoryRegion() = default;
    static Result<std::unique_ptr<MemoryRegion>> map_whole(UniqueDescriptor memfd,
                                                           uint64_t size_bytes,
                                                           const MemoryOptions& options,
                                                           bool is_new);
    Result<void> map(const MemoryOptions& options);
    Result<void> populate(uint64_t offset_bytes, uint64_t end_bytes) const;
    Result<void> lock_from(uint64_t offset_bytes);

    UniqueDescriptor memfd_;
    unsigned char* address_ = nullptr;
    uint64_t reserved_bytes_ = 0;
    std::atomic<uint64_t> size_bytes_{0};
    Wish lock_ = Wish::no;
    bool has_huge_pages_ = false;
    std::atomic<bool> is_locked_{false};
};

}  // namespace tiffin::rdma_blk
