// SPDX-License-Identifier: MIT OR GPL-2.0-only
// All keys of a volume: the leaves of the tree on the device, with changes in memory on top. Replay of
// the journal and repairs are such changes; nothing here writes.
//
// What is removed is kept as ranges, which grow together, so that a search passes over any number of
// removed keys in one step: a made-up journal may remove everything and then search for it a million
// times.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "fs/tiffinfs/format.h"
#include "fs/vfs/block_device.h"
#include "fs/vfs/span.h"
#include "fuse/check/block_io.h"

namespace tiffin::check {

// A leaf that a search can find, and the keys that it can find there: those in [lower, upper).
struct LeafRef {
    tiffinfs::Key lower;
    tiffinfs::Key upper;
    uint64_t block = 0;
    uint64_t generation = 0;
    bool must_rewrite = false;  // it holds keys outside of its bounds
};

struct KeyValue {
    tiffinfs::Key key{};
    std::vector<unsigned char> value;
    ByteSpan bytes() const { return ByteSpan(value.data(), value.size()); }
};

class KeySpace {
  public:
    // Keys with the values that they are given, whatever is on the device.
    using Changes = std::map<tiffinfs::Key, std::vector<unsigned char>>;

    // `leaves` are sorted and do not overlap.
    KeySpace(vfs::BlockDevice& device, const tiffinfs::Superblock& superblock,
             std::vector<LeafRef> leaves);
    KeySpace(const KeySpace&) = delete;
    KeySpace& operator=(const KeySpace&) = delete;

    // ---- Reading. A leaf that has become unreadable gives eio. ----

    // False when there is no such key.
    Result<bool> get(tiffinfs::Key key, KeyValue& found);
    // The smallest key in [first, end).
    Result<bool> find_first(tiffinfs::Key first, tiffinfs::Key end, KeyValue& found);
    // The greatest key in [not_before, at_or_before].
    Result<bool> find_last(tiffinfs::Key at_or_before, tiffinfs::Key not_before, KeyValue& found);
    // Visits all keys in order; the visitor returns false to stop, and must not change anything.
    using Visitor = std::function<bool(tiffinfs::Key, ByteSpan)>;
    Result<void> scan(const Visitor& visitor);
    // The same, without the changes.
    Result<void> scan_device(const Visitor& visitor);
    // The keys of one leaf that a search can find, without the changes.
    Result<void> scan_leaf(const LeafRef& leaf, const Visitor& visitor);

    // ---- Changing, in memory ----
    void put(tiffinfs::Key key, ByteSpan value);
    template <typename T>
    void put_value(tiffinfs::Key key, const T& value) {
        put(key, ByteSpan(reinterpret_cast<const unsigned char*>(&value), sizeof(T)));
    }
    void erase(tiffinfs::Key key);
    // Removes all keys in [first, end).
    void erase_range(tiffinfs::Key first, tiffinfs::Key end);

    const std::vector<LeafRef>& leaves() const { return leaves_; }
    const Changes& changes() const { return changes_; }
    // Whether a key that is on the device is removed (and may be among the changes again).
    bool is_gone(tiffinfs::Key key) const { return gone_range(key) != gone_.end(); }
    // Whether any key of a leaf is.
    Result<bool> leaf_loses_keys(const LeafRef& leaf);
    // How many leaves and ranges all searches together have looked at; for tests.
    uint64_t steps() const { return steps_; }

  private:
    static constexpr size_t kCachedLeaves = 256;
    struct CachedLeaf {
        uint64_t block = 0;  // 0: empty
        Block page;
    };

    // The page of a leaf, checked; valid until the next call.
    Result<const unsigned char*> load(const LeafRef& leaf);
    // The same as find_first() and find_last(), without the changes.
    Result<bool> find_first_on_device(tiffinfs::Key first, tiffinfs::Key end, KeyValue& found);
    Result<bool> find_last_on_device(tiffinfs::Key at_or_before, tiffinfs::Key not_before,
                                     KeyValue& found);
    void hide(tiffinfs::Key first, tiffinfs::Key end);
    using Ranges = std::map<tiffinfs::Key, tiffinfs::Key>;
    // The range of gone_ that contains `key`, or its end().
    Ranges::const_iterator gone_range(tiffinfs::Key key) const;
    // The index of the leaf that covers `key`, or of the first one after it.
    size_t find_leaf(tiffinfs::Key key) const;

    vfs::BlockDevice& device_;
    uint64_t volume_nonce_;
    uint64_t total_blocks_;
    std::vector<LeafRef> leaves_;
    Changes changes_;
    // What counts no more of what is on the device: [first, second), sorted, with gaps between. A range
    // may reach over keys that do not exist.
    Ranges gone_;
    uint64_t steps_ = 0;
    std::vector<std::unique_ptr<CachedLeaf>> cache_;  // null: never used
};

}  // namespace tiffin::check
