// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/check/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "fuse/check/lost_and_found.h"
#include "fuse/check/names.h"
#include "fuse/check/text.h"

namespace tiffin::check {

using tiffinfs::InodeValue;
using tiffinfs::Key;
using tiffinfs::Kind;
using tiffinfs::make_key;

namespace {

constexpr uint32_t kNone = ~uint32_t{0};

// Changes the inode as it is when all simple changes have been made.
template <typename Change>
void change_inode(Repairs& repairs, uint64_t node, Change change) {
    repairs.later([node, change](KeySpace& keys) -> Result<void> {
        const Key key = make_key(node, Kind::inode, 0);
        KeyValue found;
        InodeValue inode;
        if (TRY(keys.get(key, found)) && found.value.size() == sizeof inode) {
            std::memcpy(&inode, found.value.data(), sizeof inode);
            change(inode);
            keys.put_value(key, inode);
        }
        return {};
    });
}

class LinkCheck {
  public:
    LinkCheck(Context& context, KeySpace& keys, Objects& objects, uint64_t next_node,
              Repairs& repairs)
        : context_(context),
          keys_(keys),
          objects_(objects),
          repairs_(repairs),
          removed_(objects.links.size()),
          lost_(next_node) {}

    void run() {
        check_root();
        check_targets();
        check_directory_names();
        break_circles();
        count_subdirectories();
        for (ObjectInfo& object : objects_.objects) {
            if (context_.cancelled()) {
                return;
            }
            if (object.is_directory()) {
                check_directory(object);
            } else {
                check_other(object);
            }
        }
        check_volume_keys();
        lost_.stage(context_.superblock, repairs_);
    }

  private:
    std::string link_where(const Link& link) const {
        KeyValue found;
        const Result<bool> exists = keys_.get(link.key(), found);
        const bool has_name =
            exists.ok() && exists.value() && found.value.size() > sizeof(tiffinfs::EntryValue);
        return fmt::format(
            "{}, entry {}", path_text(keys_, objects_, link.parent),
            has_name ? name_text(as_text(found.bytes()).substr(sizeof(tiffinfs::EntryValue)))
                     : fmt::format("at {:#x}", link.offset()));
    }

    void check_root() {
        const ObjectInfo* root = objects_.find(vfs::kRootNode);
        if (root != nullptr && root->is_directory()) {
            return;
        }
        if (context_.found(Code::root_missing, "volume", "there is no root directory")) {
            lost_.make_root();
        }
    }

    // Every entry leads to an object of its type.
    void check_targets() {
        size_t i = 0;
        for (const ObjectInfo& object : objects_.objects) {
            for (; has_link(i) && objects_.links[i].child < object.node; ++i) {
                target_missing(i);
            }
            for (; has_link(i) && objects_.links[i].child == object.node; ++i) {
                check_type(objects_.links[i], object);
            }
        }
        for (; has_link(i); ++i) {
            target_missing(i);
        }
    }

    // Whether there is a link to look at: none after an interruption.
    bool has_link(size_t index) { return index < objects_.links.size() && !context_.cancelled(); }

    void target_missing(size_t index) {
        const Link& link = objects_.links[index];
        removed_[index] = true;
        if (context_.found(Code::entry_target, link_where(link),
                           fmt::format("it leads to node {}, which does not exist", link.child))) {
            erase_entry(link);
        }
    }

    void erase_entry(const Link& link) {
        repairs_.erase(link.key());
        change_inode(repairs_, link.parent,
                     [](InodeValue& inode) { inode.size_bytes -= inode.size_bytes > 0 ? 1 : 0; });
    }

    void check_type(const Link& link, const ObjectInfo& object) {
        const uint32_t type = object.mode & vfs::mode::type_mask;
        if (link.type_mode() == type ||
            !context_.found(
                Code::entry_type, link_where(link),
                fmt::format("it says {}, but node {} is {}", mode_text(link.type_mode()),
                            link.child, mode_text(object.mode)))) {
            return;
        }
        repairs_.later([key = link.key(), type](KeySpace& keys) -> Result<void> {
            KeyValue found;
            tiffinfs::EntryValue entry;
            if (TRY(keys.get(key, found)) && found.value.size() > sizeof entry) {
                std::memcpy(&entry, found.value.data(), sizeof entry);
                entry.type = static_cast<uint8_t>(type >> 12);
                std::memcpy(found.value.data(), &entry, sizeof entry);
                keys.put(key, found.bytes());
            }
            return {};
        });
    }

    // A directory has one name; the root has none.
    void check_directory_names() {
        for (const ObjectInfo& object : objects_.objects) {
            if (!object.is_directory()) {
                continue;
            }
            const uint32_t end = objects_.links_end(object);
            const uint32_t kept = object.node == vfs::kRootNode ? kNone : choose_name(object, end);
            for (uint32_t i = object.links_begin; i < end && !context_.cancelled(); ++i) {
                if (i != kept) {
                    remove_directory_name(i, "the directory has another name");
                }
            }
        }
    }

    // The name in the directory that the inode calls its parent, else the first one.
    uint32_t choose_name(const ObjectInfo& object, uint32_t end) const {
        for (uint32_t i = object.links_begin; i < end; ++i) {
            if (objects_.links[i].parent == object.parent) {
                return i;
            }
        }
        return object.links_begin < end ? object.links_begin : kNone;
    }

    void remove_directory_name(uint32_t index, std::string_view why) {
        removed_[index] = true;
        const Link& link = objects_.links[index];
        if (context_.found(Code::directory_links, link_where(link),
                           fmt::format("it leads to {}: {}", node_text(link.child), why))) {
            erase_entry(link);
        }
    }

    uint32_t name_of(const ObjectInfo& object) const {
        const uint32_t end = objects_.links_end(object);
        for (uint32_t i = object.links_begin; i < end; ++i) {
            if (!removed_[i]) {
                return i;
            }
        }
        return kNone;
    }

    // Follows every directory up. The way ends at the root, at a directory without a name, or where
    // it meets itself.
    void break_circles() {
        enum : uint8_t { kUnknown, kOnTheWay, kKnown };
        std::vector<uint8_t> states(objects_.objects.size(), kUnknown);
        std::vector<size_t> way;
        for (size_t start = 0; start < objects_.objects.size() && !context_.cancelled(); ++start) {
            way.clear();
            for (size_t i = start; objects_.objects[i].is_directory() && states[i] != kKnown;) {
                if (states[i] == kOnTheWay) {
                    remove_directory_name(name_of(objects_.objects[i]),
                                          "the directory is inside itself");
                    break;
                }
                states[i] = kOnTheWay;
                way.push_back(i);
                const uint32_t name = name_of(objects_.objects[i]);
                const ObjectInfo* parent =
                    name == kNone ? nullptr : objects_.find(objects_.links[name].parent);
                if (parent == nullptr) {
                    break;
                }
                i = static_cast<size_t>(parent - objects_.objects.data());
            }
            for (const size_t i : way) {
                states[i] = kKnown;
            }
        }
    }

    void count_subdirectories() {
        for (const ObjectInfo& object : objects_.objects) {
            if (object.is_directory()) {
                if (const uint32_t name = name_of(object); name != kNone) {
                    ++subdirectories_[objects_.links[name].parent];
                }
            }
        }
    }

    bool has_orphan_key(const ObjectInfo& object) const {
        return std::binary_search(objects_.orphans.begin(), objects_.orphans.end(), object.node);
    }

    void check_directory(const ObjectInfo& object) {
        const uint32_t name = name_of(object);
        const bool is_root = object.node == vfs::kRootNode;
        if (name == kNone && !is_root) {
            if (has_orphan_key(object) && !object.has_entries) {
                check_link_count(object, 0);
                check_orphan(object, true);
                return;
            }
            if (context_.found(Code::unreachable, node_text(object.node),
                               "no directory contains this directory")) {
                lost_.add(object.node, object.mode);
            }
        }
        const auto found = subdirectories_.find(object.node);
        const uint64_t inside = found == subdirectories_.end() ? 0 : found->second;
        check_link_count(object, 2 + inside);
        check_orphan(object, false);
        const uint64_t parent = is_root         ? object.node
                                : name == kNone ? object.parent
                                                : objects_.links[name].parent;
        if (object.parent != parent &&
            context_.found(Code::directory_parent, node_text(object.node),
                           fmt::format("its parent is {}, not {}", parent, object.parent))) {
            change_inode(repairs_, object.node,
                         [parent](InodeValue& inode) { inode.parent = parent; });
        }
    }

    void check_other(const ObjectInfo& object) {
        uint64_t names = 0;
        const uint32_t end = objects_.links_end(object);
        for (uint32_t i = object.links_begin; i < end; ++i) {
            names += removed_[i] ? 0 : 1;
        }
        if (names == 0 && object.link_count != 0) {
            // In doubt for keeping it: a user that does not need it can delete it.
            if (context_.found(Code::unreachable, node_text(object.node), "it has no name")) {
                lost_.add(object.node, object.mode);
                check_orphan(object, false);
            }
            return;
        }
        check_link_count(object, names);
        check_orphan(object, names == 0);
    }

    void check_link_count(const ObjectInfo& object, uint64_t expected) {
        if (object.link_count != expected &&
            context_.found(
                Code::link_count, node_text(object.node),
                fmt::format("link count is {}, should be {}", object.link_count, expected))) {
            change_inode(repairs_, object.node, [expected](InodeValue& inode) {
                inode.link_count = static_cast<uint32_t>(expected);
            });
        }
    }

    // An object without links has an orphan key and says so; others have neither.
    void check_orphan(const ObjectInfo& object, bool expected) {
        const bool flag = (object.inode_flags & tiffinfs::inode_flag::orphan) != 0;
        const bool key = has_orphan_key(object);
        if (flag == expected && key == expected) {
            return;
        }
        if (!context_.found(Code::orphan_key, node_text(object.node),
                            expected ? "it has no links, but is not listed for deletion"
                                     : "it has links, but is listed for deletion")) {
            return;
        }
        const Key orphan_key = make_key(tiffinfs::kVolumeNode, Kind::orphan, object.node);
        if (expected) {
            repairs_.put(orphan_key, {});
        } else {
            repairs_.erase(orphan_key);
        }
        change_inode(repairs_, object.node, [expected](InodeValue& inode) {
            inode.inode_flags &= ~tiffinfs::inode_flag::orphan;
            inode.inode_flags |= expected ? tiffinfs::inode_flag::orphan : 0;
        });
    }

    // Orphans and intents of objects that do not exist.
    void check_volume_keys() {
        for (const uint64_t node : objects_.orphans) {
            if (objects_.find(node) == nullptr &&
                context_.found(Code::orphan_key, node_text(node),
                               "it is listed for deletion and does not exist")) {
                repairs_.erase(make_key(tiffinfs::kVolumeNode, Kind::orphan, node));
            }
        }
        for (const uint64_t node : objects_.intents) {
            const ObjectInfo* object = objects_.find(node);
            if ((object == nullptr || !vfs::mode::is_regular(object->mode)) &&
                context_.found(Code::intent_invalid, node_text(node),
                               "unfinished work is recorded for what is not a file")) {
                repairs_.erase(make_key(tiffinfs::kVolumeNode, Kind::intent, node));
            }
        }
    }

    Context& context_;
    KeySpace& keys_;
    Objects& objects_;
    Repairs& repairs_;
    std::vector<bool> removed_;  // names that do not count
    std::unordered_map<uint64_t, uint64_t> subdirectories_;
    LostAndFound lost_;
};

}  // namespace

void check_links(Context& context, KeySpace& keys, Objects& objects, uint64_t next_node,
                 Repairs& repairs) {
    context.progress(Phase::links, 0);
    objects.sort_links();
    LinkCheck(context, keys, objects, next_node, repairs).run();
    context.progress(Phase::links, 1);
}

std::string path_text(KeySpace& keys, Objects& objects, uint64_t node) {
    // A bound for damaged volumes, where the way up may not end.
    constexpr int kMaximumDepth = 256;
    std::string path;
    uint64_t current = node;
    uint64_t passed = 0;  // a node on the way
    for (int depth = 0; depth < kMaximumDepth && current != vfs::kRootNode; ++depth) {
        const ObjectInfo* object = objects.find(current);
        // Without a name, or inside itself. An object may have any number of names: only the first is looked at.
        if (object == nullptr || object->links_begin >= objects.links.size() ||
            objects.links[object->links_begin].child != current || current == passed) {
            return node_text(node);
        }
        if (std::has_single_bit(depth + 1U)) {
            passed = current;
        }
        const Link& link = objects.links[object->links_begin];
        KeyValue found;
        const Result<bool> exists = keys.get(link.key(), found);
        if (!exists.ok() || !exists.value() || found.value.size() <= sizeof(tiffinfs::EntryValue)) {
            return node_text(node);
        }
        path.insert(0, as_text(found.bytes()).substr(sizeof(tiffinfs::EntryValue)));
        path.insert(0, 1, '/');
        current = link.parent;
    }
    return fmt::format("{} ({})", name_text(path.empty() ? "/" : path), node_text(node));
}

}  // namespace tiffin::check
