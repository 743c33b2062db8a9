// SPDX-License-Identifier: MIT OR GPL-2.0-only
// One mount, as the C++ side of a file system's module knows it, and what each such module has to say of itself.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/base/slot_pool.h"
#include "fs/vfs/content_reader.h"
#include "fs/vfs/file_system.h"
#include "kmod/adapter/device.h"
#include "kmod/vfs/abi.h"

namespace tiffin::kmod {

// A file system's module defines one.
struct FileSystemType {
    // Whether it lies on a block device; otherwise `device` is nullptr.
    bool needs_device;
    uint32_t inline_bytes;        // see tiffin_operations
    uint64_t maximum_file_bytes;  // the same
    Result<vfs::FileSystem*> (*mount)(vfs::BlockDevice* device,
                                      const tiffin_mount_options& options);
    void (*destroy)(vfs::FileSystem* file_system);
};
extern const FileSystemType kFileSystemType;

// One read after the other, each of any length and without waiting for the device; see read_begin() in abi.h.
class PageReader {
  public:
    void begin(tiffin_file_system& fs, uint64_t node, uint64_t offset_bytes,
               Span<const vfs::IoVector> buffers, vfs::Transfer::Completed transferred,
               void* owner);
    [[nodiscard]] bool advance();
    // When advance() has returned true.
    Result<size_t> result() const;

  private:
    enum class Step : uint8_t { map, verify, done };

    bool begin_part();
    void finish_part();
    void fail(Error error);

    Step step_ = Step::done;
    tiffin_file_system* fs_ = nullptr;
    uint64_t node_ = 0;
    uint64_t offset_bytes_ = 0;                         // of the next part
    BufferCursor cursor_{Span<const vfs::IoVector>()};  // where it goes
    size_t part_bytes_ = 0;
    size_t done_bytes_ = 0;
    Result<void> failure_;
    vfs::Transfer::Completed transferred_ = nullptr;
    void* owner_ = nullptr;
    vfs::ContentReader content_;
};

// Readers are large, and reading must not wait for memory longer than it has to: they are kept.
class ReaderPool {
  public:
    ReaderPool() = default;
    ~ReaderPool();
    ReaderPool(const ReaderPool&) = delete;
    ReaderPool& operator=(const ReaderPool&) = delete;

    // nullptr: there is no memory.
    PageReader* take();
    void give_back(PageReader* reader);

  private:
    SlotPool<PageReader> kept_;
};

}  // namespace tiffin::kmod

struct tiffin_file_system {
    explicit tiffin_file_system(const tiffin_services& services, tiffin_device* given_device)
        : device(services, given_device) {}

    tiffin::vfs::FileSystem* core = nullptr;
    tiffin::kmod::KernelDevice device;
    tiffin::kmod::ReaderPool readers;
};

namespace tiffin::kmod {

// An errno as the kernel returns it.
inline int negative(Error error) { return -errno_value(error); }
inline int status_of(const Result<void>& result) {
    return result.ok() ? 0 : negative(result.error());
}
// A number, or a negative errno.
template <typename Number>
auto number_of(const Result<Number>& result) {
    return result.ok() ? static_cast<int64_t>(result.value())
                       : static_cast<int64_t>(negative(result.error()));
}

// data.cc: what goes through blocks.
long read_data(tiffin_file_system* fs, uint64_t node, uint64_t offset_bytes,
               const tiffin_vector* buffers, size_t buffer_count);
void* read_begin(tiffin_file_system* fs, uint64_t node, uint64_t offset_bytes,
                 const tiffin_vector* buffers, size_t buffer_count,
                 void (*transferred)(void* owner), void* owner);
bool read_advance(void* reader);
long read_result(tiffin_file_system* fs, void* reader);
long write_data(tiffin_file_system* fs, uint64_t node, uint64_t offset_bytes,
                const tiffin_vector* buffers, size_t buffer_count, uint32_t flags);
void writer_make(void* memory);
void write_begin(tiffin_file_system* fs, void* writer, uint64_t node, uint64_t offset_bytes,
                 const tiffin_vector* buffers, size_t buffer_count, uint32_t flags,
                 void (*transferred)(void* owner), void* owner);
bool write_advance(void* writer);
long write_result(void* writer);
uint32_t writer_bytes();

}  // namespace tiffin::kmod
