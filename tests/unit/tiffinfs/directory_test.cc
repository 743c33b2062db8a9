// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Entries of directories: hashes, collisions, cookies, and entries that are none.
#include "fs/tiffinfs/names/directory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace tiffin::tiffinfs {
namespace {

constexpr uint64_t kDirectory = 42;
constexpr uint64_t kHash = 0x123456789abcd;

struct Entry {
    Key key{};
    std::vector<unsigned char> value;

    ByteSpan bytes() const { return ByteSpan(value.data(), value.size()); }
};

Entry make_entry(uint64_t slot, const std::string& name, uint64_t node = 77,
                 uint32_t type_mode = vfs::mode::regular) {
    Entry entry;
    entry.key = make_key(kDirectory, Kind::entry, kHash << kEntrySlotBits | slot);
    const EntryValue header{node, static_cast<uint8_t>(type_mode >> 12),
                            static_cast<uint8_t>(name.size())};
    entry.value.resize(sizeof(header) + name.size());
    std::memcpy(entry.value.data(), &header, sizeof(header));
    std::memcpy(entry.value.data() + sizeof(header), name.data(), name.size());
    return entry;
}

vfs::Name name_of(const std::string& text) { return vfs::Name(text.data(), text.size()); }

// What Tree::scan would do.
void feed(EntrySearch& search, const std::vector<Entry>& entries) {
    for (const Entry& entry : entries) {
        if (search.first() <= entry.key && entry.key < search.end() &&
            !search.visit(entry.key, entry.bytes())) {
            return;
        }
    }
}

TEST(EntryHash, IsKeyedAndFitsAnOffset) {
    const uint8_t one_key[16] = {1};
    const uint8_t other_key[16] = {2};
    const uint64_t hash = entry_hash(one_key, "name");
    EXPECT_EQ(hash, entry_hash(one_key, "name"));
    EXPECT_NE(hash, entry_hash(other_key, "name"));
    EXPECT_NE(hash, entry_hash(one_key, "nams"));
    for (int i = 0; i < 10'000; ++i) {
        const std::string name = std::to_string(i);
        const uint64_t value = entry_hash(one_key, name_of(name));
        ASSERT_GE(value, 1U);
        ASSERT_LT(value, uint64_t{1} << 52);
    }
}

TEST(EntryCookies, AreUniqueAndBelowTheLimit) {
    const uint64_t smallest = uint64_t{1} << kEntrySlotBits;
    EXPECT_GT(cookie_after(smallest), kCookieAfterDotDot);
    EXPECT_LT(cookie_after(kKeyOffsetMask), uint64_t{1} << 63);
    EXPECT_LT(kCookieAfterDot, kCookieAfterDotDot);
}

TEST(EntrySearch, FindsAmongCollisions) {
    EntrySearch search(kDirectory, kHash, "c");
    feed(search, {make_entry(0, "a", 10), make_entry(1, "b", 11),
                  make_entry(2, "c", 12, vfs::mode::directory), make_entry(3, "d", 13)});
    ASSERT_TRUE(search.found());
    EXPECT_FALSE(search.damaged());
    EXPECT_EQ(search.node(), 12U);
    EXPECT_EQ(search.type_mode(), vfs::mode::directory);
    EXPECT_EQ(search.offset(), kHash << kEntrySlotBits | 2);
}

TEST(EntrySearch, OffersTheLowestFreeSlot) {
    EntrySearch empty(kDirectory, kHash, "x");
    feed(empty, {});
    EXPECT_FALSE(empty.found());
    EXPECT_EQ(empty.free_offset(), kHash << kEntrySlotBits);

    EntrySearch gap(kDirectory, kHash, "x");
    feed(gap, {make_entry(0, "a"), make_entry(1, "b"), make_entry(3, "d")});
    EXPECT_EQ(gap.free_offset(), kHash << kEntrySlotBits | 2);

    EntrySearch front(kDirectory, kHash, "x");
    feed(front, {make_entry(1, "b")});
    EXPECT_EQ(front.free_offset(), kHash << kEntrySlotBits);
}

TEST(EntrySearch, IsFullAfter256) {
    std::vector<Entry> entries;
    for (uint64_t slot = 0; slot < kEntrySlots - 1; ++slot) {
        entries.push_back(make_entry(slot, "n" + std::to_string(slot)));
    }
    EntrySearch last(kDirectory, kHash, "x");
    feed(last, entries);
    ASSERT_TRUE(last.has_free_slot());
    EXPECT_EQ(last.free_offset(), kHash << kEntrySlotBits | 255);

    entries.push_back(make_entry(255, "n255"));
    EntrySearch full(kDirectory, kHash, "x");
    feed(full, entries);
    EXPECT_FALSE(full.has_free_slot());
    EntrySearch present(kDirectory, kHash, "n255");
    feed(present, entries);
    EXPECT_TRUE(present.found());
}

TEST(EntrySearch, TheGreatestHashHasARangeToo) {
    const uint64_t greatest = (uint64_t{1} << 52) - 1;
    EntrySearch search(kDirectory, greatest, "x");
    EXPECT_TRUE(search.first() < search.end());
    EXPECT_EQ(search.first().kind(), Kind::entry);
    EXPECT_EQ(search.end(), make_key(kDirectory, Kind::extent, 0));
}

TEST(EntrySearch, ReportsDamage) {
    Entry damaged = make_entry(0, "a");
    damaged.value.pop_back();
    EntrySearch search(kDirectory, kHash, "x");
    feed(search, {damaged});
    EXPECT_TRUE(search.damaged());
    EXPECT_FALSE(search.found());
}

TEST(ParseEntry, RefusesWhatCouldNotHaveBeenWritten) {
    EntryView view;
    const Entry good = make_entry(0, "name");
    ASSERT_TRUE(parse_entry(good.key, good.bytes(), view));
    EXPECT_EQ(view.name, vfs::Name("name"));
    EXPECT_EQ(view.node, 77U);
    EXPECT_EQ(view.type_mode, vfs::mode::regular);

    for (size_t size = 0; size < good.value.size(); ++size) {
        EXPECT_FALSE(parse_entry(good.key, good.bytes().first(size), view)) << size;
    }
    for (const std::string& name : {std::string(), std::string("."), std::string(".."),
                                    std::string("a/b"), std::string("a\0b", 3)}) {
        const Entry bad = make_entry(0, name);
        EXPECT_FALSE(parse_entry(bad.key, bad.bytes(), view)) << name;
    }
    const Entry no_node = make_entry(0, "name", 0);
    EXPECT_FALSE(parse_entry(no_node.key, no_node.bytes(), view));
    const Entry no_type = make_entry(0, "name", 77, 0);
    EXPECT_FALSE(parse_entry(no_type.key, no_type.bytes(), view));
    const Key low_offset = make_key(kDirectory, Kind::entry, 2);
    EXPECT_FALSE(parse_entry(low_offset, good.bytes(), view));
}

TEST(EntryBatch, HoldsWhatFitsAndSaysSo) {
    alignas(8) unsigned char memory[128];
    EntryBatch batch(memory, sizeof(memory), 2);
    const Entry first = make_entry(0, "first", 5);
    const Entry second = make_entry(1, std::string(60, 's'), 6);
    const Entry third = make_entry(2, "third", 7);
    EXPECT_TRUE(batch.visit(first.key, first.bytes()));
    EXPECT_TRUE(batch.visit(second.key, second.bytes()));
    EXPECT_FALSE(batch.visit(third.key, third.bytes()));  // two at most
    ASSERT_EQ(batch.count(), 2U);
    EXPECT_FALSE(batch.at_end());

    size_t position = 0;
    EntryView view = batch.next(position);
    EXPECT_EQ(view.name, vfs::Name("first"));
    EXPECT_EQ(view.node, 5U);
    EXPECT_EQ(view.offset, first.key.offset());
    view = batch.next(position);
    EXPECT_EQ(view.name.size_bytes, 60U);
    EXPECT_EQ(view.node, 6U);
}

}  // namespace
}  // namespace tiffin::tiffinfs
