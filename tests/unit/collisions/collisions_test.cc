// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: names of one hash are names like others, up to the 256 that a directory or an object's attributes
// can hold, and one more is refused without harm; positions in a directory outlive what comes and goes
// around them. Method: weak_hash.cc gives all names with "same" in them one hash.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/support/test_size.h"
#include "tests/unit/tiffinfs/names_fixture.h"

namespace tiffin::tiffinfs {
namespace {

std::string same(uint64_t number) { return "same-" + std::to_string(number); }

// All slots of the hash are taken by same(0) to same(255).
std::map<std::string, uint64_t> fill_slots(NamesVolume& volume, uint64_t directory) {
    std::map<std::string, uint64_t> nodes;
    for (uint64_t i = 0; i < kEntrySlots; ++i) {
        nodes[same(i)] = volume.create(directory, same(i));
    }
    return nodes;
}

// Lookups and a listing agree with `nodes`.
void expect_names(NamesVolume& volume, uint64_t directory,
                  const std::map<std::string, uint64_t>& nodes) {
    for (const auto& [name, node] : nodes) {
        const uint64_t found = volume.lookup(directory, name);
        EXPECT_EQ(found, node) << name;
        volume.fs().forget(found, 1);
    }
    std::vector<std::string> listed = volume.list(directory);
    std::set<std::string> names(listed.begin(), listed.end());
    EXPECT_EQ(names.size(), listed.size());
    EXPECT_EQ(names.size(), nodes.size() + 2);
    for (const auto& [name, node] : nodes) {
        EXPECT_EQ(names.count(name), 1U) << name;
    }
}

TEST(Collisions, AreNamesLikeOthers) {
    NamesVolume volume;
    const uint64_t directory = volume.make_directory(vfs::kRootNode, "d");
    std::map<std::string, uint64_t> nodes = fill_slots(volume, directory);
    expect_names(volume, directory, nodes);
    EXPECT_EQ(volume.lookup_error(directory, same(kEntrySlots)), ENOENT);

    // Other changes at a full hash.
    EXPECT_EQ(code(volume.fs().create({}, directory, name_of(same(7)), 0644, 0, 0, {})), EEXIST);
    EXPECT_EQ(
        code(volume.fs().rename({}, directory, name_of(same(1)), directory, name_of(same(2)), 0)),
        0);
    nodes[same(2)] = nodes[same(1)];
    nodes.erase(same(1));
    EXPECT_EQ(code(volume.fs().rename({}, directory, name_of(same(3)), directory, name_of(same(4)),
                                      vfs::rename_flag::exchange)),
              0);
    std::swap(nodes[same(3)], nodes[same(4)]);
    EXPECT_EQ(code(volume.fs().rename({}, directory, name_of(same(5)), directory, "other", 0)), 0);
    nodes["other"] = nodes[same(5)];
    nodes.erase(same(5));
    EXPECT_EQ(code(volume.fs().unlink({}, directory, name_of(same(6)))), 0);
    nodes.erase(same(6));
    expect_names(volume, directory, nodes);

    // Replayed from the journal, and read from the device.
    volume.crash();
    expect_names(volume, directory, nodes);
    volume.remount();
    expect_names(volume, directory, nodes);
    EXPECT_EQ(volume.check(), "");
}

TEST(Collisions, BeyondTheLimitAreRefusedWithoutHarm) {
    NamesVolume volume;
    vfs::FileSystem& fs = volume.fs();
    const uint64_t directory = volume.make_directory(vfs::kRootNode, "d");
    const uint64_t other = volume.create(vfs::kRootNode, "other");
    volume.make_directory(vfs::kRootNode, "other-directory");
    const std::map<std::string, uint64_t> nodes = fill_slots(volume, directory);
    const vfs::Name more("one more of the same");
    const vfs::Attributes before = volume.attributes(directory);

    EXPECT_EQ(code(fs.create({}, directory, more, 0644, 0, 0, {})), ENOSPC);
    EXPECT_EQ(code(fs.make_directory({}, directory, more, 0755, {})), ENOSPC);
    EXPECT_EQ(code(fs.make_symlink({}, directory, more, "target", {})), ENOSPC);
    EXPECT_EQ(code(fs.link({}, other, directory, more)), ENOSPC);
    EXPECT_EQ(code(fs.rename({}, vfs::kRootNode, "other", directory, more, 0)), ENOSPC);
    EXPECT_EQ(code(fs.rename({}, vfs::kRootNode, "other-directory", directory, more, 0)), ENOSPC);
    // Nothing of it has happened, and other names have room.
    EXPECT_EQ(volume.attributes(directory).size_bytes, before.size_bytes);
    EXPECT_EQ(volume.attributes(directory).link_count, before.link_count);
    EXPECT_EQ(volume.attributes(other).link_count, 1U);
    EXPECT_NE(volume.lookup(vfs::kRootNode, "other-directory"), 0U);
    expect_names(volume, directory, nodes);
    EXPECT_NE(volume.create(directory, "different"), 0U);
    // Another directory has slots of its own.
    EXPECT_NE(volume.create(vfs::kRootNode, same(0)), 0U);

    // A slot that becomes free is room for one.
    EXPECT_EQ(code(fs.unlink({}, directory, name_of(same(100)))), 0);
    EXPECT_EQ(code(fs.link({}, other, directory, more)), 0);
    EXPECT_EQ(code(fs.create({}, directory, name_of(same(100)), 0644, 0, 0, {})), ENOSPC);
    EXPECT_EQ(volume.check(), "");
}

TEST(Collisions, CostABoundedNumberOfVisits) {
    NamesVolume volume;
    const uint64_t directory = volume.make_directory(vfs::kRootNode, "d");
    // Names as long as they may be, so that they fill many leaves.
    std::vector<std::string> names;
    for (uint64_t i = 0; i < kEntrySlots; ++i) {
        std::string name = same(i);
        name.resize(vfs::kNameMaxBytes, 'x');
        names.push_back(name);
        ASSERT_NE(volume.create(directory, name), 0U);
    }
    const auto visits = [&] {
        const NodeCache::Counters counters = volume.volume().cache().counters();
        return counters.hits + counters.misses;
    };
    const uint64_t levels = volume.volume().tree().root().level + 1U;
    // Some 300 bytes for each of 256 entries, in leaves of 4 KiB that may be half full.
    const uint64_t leaves = kEntrySlots * 300 / 2048 + 2;
    uint64_t most = 0;
    for (const std::string& name : names) {
        const uint64_t before = visits();
        EXPECT_NE(volume.lookup(directory, name), 0U);
        most = std::max(most, visits() - before);
    }
    EXPECT_LE(most, (leaves + 2) * levels);
}

// ---- Positions -----------------------------------------------------------------------------------

// A directory whose names come and go, and what is known about a reader of it.
class Reading {
  public:
    explicit Reading(uint64_t seed) : random_(seed) {
        directory_ = volume_.make_directory(vfs::kRootNode, "d");
        for (uint64_t i = 0; i < 200; ++i) {
            add();
        }
    }

    // Reads from the start, a few entries at a time; between the parts names are removed and made.
    void read_through() {
        std::set<std::string> always = present_;
        std::map<std::string, int> seen;
        made_.clear();
        for (const std::string& name : present_) {
            made_[name] = 1;
        }
        uint64_t cookie = 0;
        while (true) {
            NameList part(1 + random_() % 9);
            ASSERT_EQ(code(volume_.fs().read_directory(directory_, 0, cookie, false, part)), 0);
            if (part.names.empty()) {
                break;
            }
            for (const std::string& name : part.names) {
                ++seen[name];
            }
            cookie = part.last_cookie;
            // Often what was just read, at whose position the reader stands.
            change(part.names, always);
        }
        for (const std::string& name : always) {
            EXPECT_EQ(seen[name], 1) << name;
        }
        for (const auto& [name, count] : seen) {
            // A name that was removed and made again is another entry.
            EXPECT_LE(count, made_[name] + (name[0] == '.' ? 1 : 0)) << name;
        }
    }
    std::string check() { return volume_.check(); }

  private:
    void add() {
        // A few names only, so that they come back; some at other hashes.
        const std::string name =
            (random_() % 4 == 0 ? "other-" : "same-") + std::to_string(random_() % 240);
        if (present_.insert(name).second) {
            volume_.fs().forget(volume_.create(directory_, name), 1);
            ++made_[name];
        }
    }
    void remove(const std::string& name, std::set<std::string>& always) {
        if (present_.erase(name) != 0) {
            EXPECT_EQ(code(volume_.fs().unlink({}, directory_, name_of(name))), 0);
            always.erase(name);
        }
    }
    void change(const std::vector<std::string>& read, std::set<std::string>& always) {
        for (uint64_t i = random_() % 4; i > 0; --i) {
            if (random_() % 2 == 0) {
                remove(read[random_() % read.size()], always);
            } else if (!present_.empty()) {
                auto place = present_.begin();
                std::advance(place, static_cast<long>(random_() % present_.size()));
                remove(std::string(*place), always);
            }
            add();
        }
    }

    NamesVolume volume_;
    std::mt19937_64 random_;
    uint64_t directory_ = 0;
    std::set<std::string> present_;
    std::map<std::string, int> made_;  // how often, since the present reading began or before
};

TEST(Collisions, PositionsOutliveRemovalsAndNewNames) {
    for (uint64_t seed = 1; seed <= test::test_size(20, 3); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Reading reading(seed);
        for (int round = 0; round < 5; ++round) {
            reading.read_through();
        }
        ASSERT_EQ(reading.check(), "");
    }
}

// Every position that a reader was given goes on behind the entry that it stands for, also when that one and
// its neighbours are gone, and again after other names have taken their slots.
TEST(Collisions, EveryPositionStaysValid) {
    NamesVolume volume;
    vfs::FileSystem& fs = volume.fs();
    const uint64_t directory = volume.make_directory(vfs::kRootNode, "d");
    constexpr uint64_t kNames = 60;
    for (uint64_t i = 0; i < kNames; ++i) {
        volume.create(directory, same(i));
    }
    std::vector<std::string> order;
    std::vector<uint64_t> cookies;
    for (uint64_t cookie = 0;;) {
        NameList one(1);
        ASSERT_EQ(code(fs.read_directory(directory, 0, cookie, false, one)), 0);
        if (one.names.empty()) {
            break;
        }
        order.push_back(one.names[0]);
        cookie = one.last_cookie;
        cookies.push_back(cookie);
    }
    ASSERT_EQ(order.size(), kNames + 2);

    const auto expect_rest = [&](const std::set<std::string>& removed) {
        for (size_t i = 0; i < order.size(); ++i) {
            NameList rest;
            ASSERT_EQ(code(fs.read_directory(directory, 0, cookies[i], false, rest)), 0);
            std::vector<std::string> expected;
            for (size_t k = i + 1; k < order.size(); ++k) {
                if (removed.count(order[k]) == 0) {
                    expected.push_back(order[k]);
                }
            }
            std::erase_if(rest.names, [](const std::string& name) {
                return name.find("new") != std::string::npos;
            });
            ASSERT_EQ(rest.names, expected) << "behind " << order[i];
        }
    };
    expect_rest({});
    std::set<std::string> removed;
    for (size_t i = 2; i < order.size(); i += 3) {
        for (const std::string& name : {order[i], order[std::min(i + 1, order.size() - 1)]}) {
            if (removed.insert(name).second) {
                ASSERT_EQ(code(fs.unlink({}, directory, name_of(name))), 0);
            }
        }
    }
    expect_rest(removed);
    for (size_t i = 0; i < removed.size(); ++i) {
        volume.create(directory, "new of the same " + std::to_string(i));
    }
    expect_rest(removed);
    EXPECT_EQ(volume.check(), "");
}

// ---- Extended attributes ---------------------------------------------------------------------------

ByteSpan bytes_of(const std::string& text) {
    return ByteSpan(reinterpret_cast<const unsigned char*>(text.data()), text.size());
}

TEST(Collisions, OfAttributesAreBoundedAsWell) {
    NamesVolume volume;
    vfs::FileSystem& fs = volume.fs();
    const uint64_t node = volume.create(vfs::kRootNode, "f");
    const auto name = [](uint64_t i) { return "user.same-" + std::to_string(i); };
    const auto value = [](uint64_t i) { return std::string(i % 3 == 0 ? 3000 : 20, 'a' + i % 26); };
    for (uint64_t i = 0; i < 256; ++i) {
        ASSERT_EQ(code(fs.set_xattr({}, node, name_of(name(i)), bytes_of(value(i)), 0)), 0) << i;
    }
    EXPECT_EQ(code(fs.set_xattr({}, node, "user.more of the same", bytes_of("x"), 0)), ENOSPC);
    EXPECT_EQ(code(fs.set_xattr({}, node, "user.other", bytes_of("x"), 0)), 0);
    EXPECT_EQ(code(fs.set_xattr({}, node, name_of(name(9)), bytes_of("less"), 0)), 0);
    EXPECT_EQ(code(fs.remove_xattr({}, node, name_of(name(10)))), 0);
    EXPECT_EQ(code(fs.get_xattr(node, name_of(name(10)), {})), ENODATA);
    EXPECT_EQ(code(fs.set_xattr({}, node, "user.more of the same", bytes_of("x"), 0)), 0);
    volume.remount();
    for (uint64_t i = 0; i < 256; ++i) {
        if (i == 10) {
            continue;
        }
        std::string found(4000, '\0');
        Result<size_t> size = volume.fs().get_xattr(
            node, name_of(name(i)),
            MutableByteSpan(reinterpret_cast<unsigned char*>(found.data()), found.size()));
        ASSERT_EQ(code(size), 0) << i;
        EXPECT_EQ(found.substr(0, *size), i == 9 ? "less" : value(i)) << i;
    }
    EXPECT_EQ(volume.check(), "");
}

}  // namespace
}  // namespace tiffin::tiffinfs
