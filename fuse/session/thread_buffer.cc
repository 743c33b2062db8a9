// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/session/thread_buffer.h"

#include "fs/vfs/host.h"
#include "fs/vfs/types.h"
#include "fuse/session/thread_object.h"

namespace tiffin::fuse {
namespace {

class Buffer {
  public:
    Buffer() = default;
    ~Buffer() { host::release_pages(memory_, size_bytes_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    unsigned char* at_least(size_t size_bytes) {
        if (size_bytes <= size_bytes_) [[likely]] {
            return memory_;
        }
        size_t rounded = (size_bytes + vfs::kBlockBytes - 1) / vfs::kBlockBytes * vfs::kBlockBytes;
        void* grown = host::allocate_pages(rounded);
        if (grown == nullptr) {
            return nullptr;
        }
        host::release_pages(memory_, size_bytes_);
        memory_ = static_cast<unsigned char*>(grown);
        size_bytes_ = rounded;
        return memory_;
    }

  private:
    unsigned char* memory_ = nullptr;
    size_t size_bytes_ = 0;
};

}  // namespace

unsigned char* thread_buffer(size_t size_bytes) {
    Buffer* buffer = ThreadObject<Buffer>::get();
    return buffer == nullptr ? nullptr : buffer->at_least(size_bytes);
}

}  // namespace tiffin::fuse
