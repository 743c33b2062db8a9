// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Reading symlinks. Their targets are chunks in the tree, in order.
#include "fs/base/text.h"
#include "fs/tiffinfs/objects/file_system.h"
#include "fs/tiffinfs/objects/operations.h"

namespace tiffin::tiffinfs {
namespace {

// Copies the chunks of a target of known size, as far as the buffer goes.
class TargetReader final : public TreeVisitor {
  public:
    TargetReader(uint64_t size_bytes, MutableByteSpan buffer)
        : size_bytes_(size_bytes), buffer_(buffer) {}

    bool visit(Key key, ByteSpan value) override {
        found_any_ = true;
        const uint64_t left = size_bytes_ - seen_;
        if (key.offset() != seen_ / kSymlinkChunkBytes ||
            value.size() != (left < kSymlinkChunkBytes ? left : kSymlinkChunkBytes)) {
            return false;
        }
        const size_t room = buffer_.size() - copied_;
        const size_t size = value.size() < room ? value.size() : room;
        __builtin_memcpy(buffer_.data() + copied_, value.data(), size);
        copied_ += size;
        seen_ += value.size();
        return seen_ < size_bytes_;
    }

    size_t copied() const { return copied_; }
    bool complete() const { return seen_ == size_bytes_; }
    bool found_any() const { return found_any_; }

  private:
    uint64_t size_bytes_;
    MutableByteSpan buffer_;
    uint64_t seen_ = 0;
    size_t copied_ = 0;
    bool found_any_ = false;
};

Result<size_t> read_target(Volume& volume, const Object& object, MutableByteSpan buffer)
    REQUIRES_SHARED(object.state) {
    TRY(check_alive(object));
    if (!vfs::mode::is_symlink(object.inode.mode)) {
        return Error::einval;
    }
    TargetReader reader(object.inode.size_bytes, buffer);
    TRY(volume.tree().scan(make_key(object.node, Kind::symlink, 0),
                           next_key(make_key(object.node, Kind::symlink, kKeyOffsetMask)), reader));
    if (!reader.found_any()) [[unlikely]] {
        log_line(host::LogLevel::error, "symlink: the target is lost since a repair: node ",
                 object.node);
        return Error::eio;
    }
    if (!reader.complete()) {
        return volume.report_damage("the target of a symlink is malformed", object.node, 0);
    }
    return reader.copied();
}

}  // namespace

Result<size_t> TiffinFileSystem::read_link(vfs::NodeId node, MutableByteSpan buffer) {
    TRY(volume_->check_running());
    ObjectPin pin = TRY(objects_.get(node));
    size_t size = 0;
    {
        Object& object = *pin;
        BiasedSharedLock lock(object.state, object.node);
        size = TRY(read_target(*volume_, object, buffer));
    }
    touch_access_time(*this, *pin);
    return size;
}

}  // namespace tiffin::tiffinfs
