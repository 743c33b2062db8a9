// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Takes the keys as they come, finds out where objects begin and end, and hands each key to the part
// that knows its kind.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "fs/vfs/host.h"
#include "fuse/check/object_parts.h"
#include "fuse/check/objects.h"
#include "fuse/check/text.h"

namespace tiffin::check {

using tiffinfs::InodeValue;
using tiffinfs::Key;
using tiffinfs::Kind;
using tiffinfs::make_key;

namespace {

class ObjectScan {
  public:
    ObjectScan(Context& context, KeySpace& keys, const SpaceMap& nodes, MissingKeys& missing,
               Objects& objects, Repairs& repairs, double expected_objects)
        : keys_(keys),
          state_{context, nodes, objects, repairs, missing, 0, false, {}, {}},
          entries_(state_),
          extents_(state_),
          xattrs_(state_),
          inline_(state_),
          expected_objects_(expected_objects) {}

    bool visit(Key key, ByteSpan value) {
        ++state_.objects.statistics.keys;
        if (key.node == tiffinfs::kVolumeNode) {
            visit_volume_key(key, value);
            return true;
        }
        if (key.node != state_.node) {
            end_object();
            begin_object(key.node);
        }
        visit_object_key(key, value);
        return !state_.context.cancelled();
    }

    void finish() { end_object(); }

  private:
    void begin_object(uint64_t node) {
        state_.node = node;
        state_.has_inode = false;
        state_.inode = InodeValue{};
        as_read_ = InodeValue{};
        state_.where = node_text(node);
        entries_.begin();
        extents_.begin();
        xattrs_.begin();
        inline_.begin();
        inode_damaged_ = false;
        extra_kinds_ = 0;
        if (node <= tiffinfs::kMaximumNode) {
            state_.objects.greatest_node = node;  // they come in order
        }
        state_.context.progress(
            Phase::objects, static_cast<double>(state_.objects.objects.size()) / expected_objects_);
    }

    void visit_volume_key(Key key, ByteSpan value) {
        Objects& objects = state_.objects;
        if (key.kind() == Kind::orphan && value.empty() && key.offset() != 0) {
            objects.orphans.push_back(key.offset());
        } else if (key.kind() == Kind::intent && is_valid_intent(value)) {
            objects.intents.insert(key.offset());
        } else {
            const bool intent = key.kind() == Kind::intent;
            if (state_.context.found(intent ? Code::intent_invalid : Code::key_invalid,
                                     key_text(key), "it makes no sense")) {
                state_.repairs.erase(key);
            }
        }
    }

    static bool is_valid_intent(ByteSpan value) {
        tiffinfs::IntentValue intent;
        if (value.size() != sizeof intent) {
            return false;
        }
        std::memcpy(&intent, value.data(), sizeof intent);
        constexpr uint64_t kMaximum = tiffinfs::kMaximumFileBytes / tiffinfs::kBlockBytes;
        if (intent.first_block > kMaximum || intent.shift_blocks > kMaximum ||
            intent.next_block > kMaximum) {
            return false;
        }
        switch (intent.type) {
            case tiffinfs::IntentType::truncate:
                return true;
            case tiffinfs::IntentType::shift_down:
            case tiffinfs::IntentType::shift_up:
                return intent.shift_blocks != 0;
        }
        return false;
    }

    void visit_object_key(Key key, ByteSpan value) {
        if (key.node > tiffinfs::kMaximumNode) {
            invalid_key(key);
            return;
        }
        switch (key.kind()) {
            case Kind::inode:
                if (key.offset() != 0) {
                    invalid_key(key);
                    return;
                }
                ++state_.objects.statistics.inode_keys;
                state_.has_inode = true;
                if (value.size() == sizeof as_read_) {
                    std::memcpy(&as_read_, value.data(), sizeof as_read_);
                }
                if (!check_inode(state_, value)) {
                    state_.has_inode = false;
                    inode_damaged_ = true;
                }
                return;
            case Kind::entry:
                if (belongs(key, state_.is_directory())) {
                    entries_.visit(key, value);
                }
                return;
            case Kind::extent:
                if (belongs(key, state_.is_regular())) {
                    extents_.visit(key, value);
                }
                return;
            case Kind::xattr:
                xattrs_.visit(key, value);
                return;
            case Kind::inline_data:
                if (key.offset() != 0) {
                    invalid_key(key);
                } else if (belongs(key, state_.is_regular())) {
                    inline_.visit_inline(key, value);
                }
                return;
            case Kind::symlink:
                if (belongs(key, state_.is_symlink())) {
                    inline_.visit_symlink(key, value);
                }
                return;
            case Kind::orphan:
            case Kind::intent:
                break;
        }
        invalid_key(key);
    }

    void invalid_key(Key key) {
        if (state_.context.found(Code::key_invalid, key_text(key), "no structure has this key")) {
            state_.repairs.erase(key);
        }
    }

    // Without an inode it is the keys that tell what the object was.
    bool belongs(Key key, bool fits_type) {
        if (fits_type || !state_.has_inode || takes_type_of(key)) {
            return true;
        }
        const uint32_t bit = 1U << static_cast<uint32_t>(key.kind());
        if ((extra_kinds_ & bit) == 0) {
            extra_kinds_ |= bit;
            if (state_.context.found(
                    Code::inode_extra,
                    fmt::format("{}, {} keys", state_.where, kind_text(key.kind())),
                    fmt::format("an object with mode {} cannot have them",
                                mode_text(state_.inode.mode)))) {
                state_.repairs.erase_range(make_key(state_.node, key.kind(), 0),
                                           tiffinfs::next_key(make_key(state_.node, key.kind(),
                                                                       tiffinfs::kKeyOffsetMask)));
            }
        }
        return false;
    }

    // A type never changes, and what is special has no size: with keys of another type and none of its own, the mode is
    // what is wrong.
    bool takes_type_of(Key key) {
        const uint32_t type = type_of(key.kind());
        if (as_read_.size_bytes == 0 || has_keys_of_its_type() ||
            !state_.context.found(Code::inode_invalid, fmt::format("{}, type", state_.where),
                                  fmt::format("its mode is {}, but it has {} keys",
                                              mode_text(as_read_.mode), kind_text(key.kind())))) {
            return false;
        }
        InodeValue inode = as_read_;
        inode.mode = (inode.mode & ~vfs::mode::type_mask) | type;
        // Without what was corrected for the wrong type.
        state_.repairs.inode(state_.node, inode) = inode;
        return check_inode(state_,
                           ByteSpan(reinterpret_cast<const unsigned char*>(&inode), sizeof inode));
    }

    static uint32_t type_of(Kind kind) {
        if (kind == Kind::entry) {
            return vfs::mode::directory;
        }
        return kind == Kind::symlink ? vfs::mode::symlink : vfs::mode::regular;
    }

    // Those that cannot be read may be of its type.
    bool has_keys_of_its_type() {
        for (const Kind kind : {Kind::entry, Kind::extent, Kind::inline_data, Kind::symlink}) {
            if (type_of(kind) != (as_read_.mode & vfs::mode::type_mask)) {
                continue;
            }
            KeyValue found;
            const Key first = make_key(state_.node, kind, 0);
            Result<bool> exists = keys_.find_first(
                first, tiffinfs::next_key(make_key(state_.node, kind, tiffinfs::kKeyOffsetMask)),
                found);
            if (!exists.ok() || exists.value()) {
                return true;
            }
        }
        return false;
    }

    void end_object() {
        if (state_.node == 0 || state_.node > tiffinfs::kMaximumNode) {
            return;
        }
        extents_.place_what_gave_way();
        if (!state_.has_inode) {
            xattrs_.end();
            replace_inode();
            return;
        }
        entries_.end();
        extents_.end();
        xattrs_.end();
        inline_.end(extents_.any());
        add_object(state_.inode);
    }

    void add_object(const InodeValue& inode) {
        Objects& objects = state_.objects;
        objects.objects.push_back({state_.node, inode.parent, inode.mode, inode.link_count,
                                   inode.inode_flags, 0, entries_.count() != 0});
        ++objects.statistics.inodes;
        objects.statistics.directories += vfs::mode::is_directory(inode.mode) ? 1 : 0;
    }

    // Makes an inode for what is left of an object whose own is lost.
    void replace_inode() {
        const std::string_view problem =
            inode_damaged_ ? "its inode makes no sense" : "it has no inode";
        if (!state_.context.found(inode_damaged_ ? Code::inode_invalid : Code::inode_missing,
                                  state_.where, problem)) {
            return;
        }
        InodeValue inode{};
        inode.mode = lost_type();
        if (inode.mode == 0) {
            // Nothing worth getting back.
            state_.repairs.erase_range(Key{state_.node, 0}, Key{state_.node + 1, 0});
            return;
        }
        fill_lost_inode(inode);
        state_.objects.new_inodes.push_back(state_.node);
        state_.repairs.inode(state_.node, inode) = inode;
        add_object(inode);
    }

    uint32_t lost_type() const {
        if (state_.node == vfs::kRootNode || entries_.count() != 0) {
            return vfs::mode::directory | 0700;
        }
        if (extents_.any() || inline_.has_inline()) {
            return vfs::mode::regular | 0600;
        }
        if (inline_.has_symlink()) {
            return vfs::mode::symlink | 0777;
        }
        return 0;
    }

    void fill_lost_inode(InodeValue& inode) {
        const int64_t now_ns = host::realtime_ns();
        const tiffinfs::DiskTime now{now_ns / 1000000000,
                                     static_cast<uint32_t>(now_ns % 1000000000), 0};
        inode.access_time = inode.modification_time = inode.change_time = inode.birth_time = now;
        inode.generation = state_.node;
        inode.link_count = 1;
        inode.inode_flags = xattrs_.any() ? tiffinfs::inode_flag::has_xattrs : 0;
        if (vfs::mode::is_directory(inode.mode)) {
            inode.link_count = 2;
            inode.size_bytes = entries_.count();
            inode.parent = vfs::kRootNode;
        } else if (vfs::mode::is_symlink(inode.mode)) {
            inode.size_bytes = inline_.symlink_bytes();
            if (!inline_.symlink_is_whole()) {
                inline_.lose_symlink();
                inode.size_bytes = std::max<uint64_t>(inode.size_bytes, 1);
            }
        } else if (extents_.any()) {
            extents_.end_without_inode(inode);
        } else {
            inode.size_bytes = inline_.inline_bytes();
            inode.inode_flags |= tiffinfs::inode_flag::inline_data;
        }
    }

    KeySpace& keys_;
    ScanState state_;
    InodeValue as_read_{};
    EntryCheck entries_;
    ExtentCheck extents_;
    XattrCheck xattrs_;
    InlineCheck inline_;
    double expected_objects_;
    bool inode_damaged_ = false;
    uint32_t extra_kinds_ = 0;
};

}  // namespace

std::string node_text(uint64_t node) { return fmt::format("node {}", node); }

ObjectInfo* Objects::find(uint64_t node) {
    const auto found = std::lower_bound(
        objects.begin(), objects.end(), node,
        [](const ObjectInfo& object, uint64_t wanted) { return object.node < wanted; });
    return found != objects.end() && found->node == node ? &*found : nullptr;
}

void Objects::sort_links() {
    std::sort(links.begin(), links.end(), [](const Link& a, const Link& b) {
        return a.child != b.child
                   ? a.child < b.child
                   : std::pair(a.parent, a.offset()) < std::pair(b.parent, b.offset());
    });
    uint32_t index = 0;
    for (ObjectInfo& object : objects) {
        while (index < links.size() && links[index].child < object.node) {
            ++index;
        }
        object.links_begin = index;
    }
}

uint32_t Objects::links_end(const ObjectInfo& object) const {
    uint32_t end = object.links_begin;
    while (end < links.size() && links[end].child == object.node) {
        ++end;
    }
    return end;
}

Result<void> scan_objects(Context& context, KeySpace& keys, const SpaceMap& nodes,
                          MissingKeys& missing, Objects& objects, Repairs& repairs) {
    const double expected = static_cast<double>(context.superblock.node_count) + 1;
    ObjectScan scan(context, keys, nodes, missing, objects, repairs, expected);
    TRY(keys.scan([&](Key key, ByteSpan value) { return scan.visit(key, value); }));
    scan.finish();
    return {};
}

}  // namespace tiffin::check
