// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Every kind of damage, made on purpose: the check finds it and says the right thing, a check that may
// not repair writes nothing, and a repair leaves a volume that is sound and mounts.
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "fuse/check/check.h"
#include "fuse/check/names.h"
#include "tests/unit/check/check_support.h"
#include "tests/unit/check/image_editor.h"

namespace tiffin::check {
namespace {

using test::CrashDevice;
using tiffinfs::Key;
using tiffinfs::Kind;
using tiffinfs::make_key;

constexpr uint64_t kNowhere = 123456;  // a node id that nobody has

struct Damage {
    std::string name;
    Code code;
    std::function<void(ImageEditor&)> inflict;

    friend void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.name; }
};

std::string test_name(const testing::TestParamInfo<Damage>& info) { return info.param.name; }

class DamageTest : public testing::TestWithParam<Damage> {};

TEST_P(DamageTest, IsFoundAndRepaired) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 120);
    ImageEditor editor(device);
    GetParam().inflict(editor);

    device.reset_counts();
    const Report found = run_check(device);
    EXPECT_TRUE(found.has(GetParam().code)) << text_of(found);
    EXPECT_FALSE(found.clean());
    EXPECT_EQ(found.not_repaired, found.harmless + found.damage);
    EXPECT_FALSE(found.changed);
    EXPECT_EQ(device.counts().writes, 0U);

    const Report repaired = repair_completely(device);
    EXPECT_TRUE(repaired.has(GetParam().code)) << text_of(repaired);
    EXPECT_TRUE(repaired.changed);
}

// A name at the wrong place, which a search does not find, and made again for another file: both stay, without an order to
// leave anything out.
TEST(NameDamage, AMisplacedNameThatWasMadeAgainIsKept) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 120);
    ImageEditor image(device);
    const uint64_t node = image.node_of("/tiny");
    image.put(image.place_of(vfs::kRootNode, "another name"),
              ImageEditor::entry(node, vfs::mode::regular, "tiny"));
    image.change_inode(vfs::kRootNode, [](auto& inode) { ++inode.size_bytes; });
    image.change_inode(node, [](auto& inode) { ++inode.link_count; });
    const Report repaired = run_check(device, only_what_is_safe());
    EXPECT_TRUE(repaired.has(Code::entry_hash)) << text_of(repaired);
    EXPECT_EQ(repaired.not_repaired, 0U) << text_of(repaired);
    const test::SeenTree after = see(device);
    EXPECT_TRUE(after.contains("/tiny"));
    EXPECT_TRUE(after.contains("/tiny~1"));
    const Report second = run_check(device);
    EXPECT_TRUE(second.findings.empty()) << text_of(second);
}

// Its size is impossible, and its content is there.
TEST(InlineDamage, ContentOfAnImpossibleSizeIsKept) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 120);
    const std::string before = see(device).at("/tiny").content;
    ImageEditor image(device);
    image.change_inode(image.node_of("/tiny"),
                       [](auto& inode) { inode.size_bytes = uint64_t{1} << 62; });
    const Report repaired = repair_completely(device);
    EXPECT_TRUE(repaired.has(Code::inline_invalid)) << text_of(repaired);
    EXPECT_EQ(see(device).at("/tiny").content, before);
}

// One flipped bit of a mode names another type that exists. The keys tell what it was.
TEST(InodeDamage, AWrongTypeTakesNoContentAlong) {
    using vfs::mode::type_mask;
    const std::pair<const char*, uint32_t> wrong[] = {
        {"/directory/large", vfs::mode::symlink}, {"/directory/large", vfs::mode::socket},
        {"/tiny", vfs::mode::directory},          {"/short-link", vfs::mode::regular},
        {"/directory", vfs::mode::block_device},  {"/", vfs::mode::regular}};
    for (const auto& [path, type] : wrong) {
        CrashDevice device(kDeviceBytes);
        make_populated(device, 120);
        const test::SeenTree before = see(device);
        ImageEditor image(device);
        const uint64_t node = std::string(path) == "/" ? vfs::kRootNode : image.node_of(path);
        image.change_inode(
            node, [type = type](auto& inode) { inode.mode = (inode.mode & ~type_mask) | type; });
        const Report repaired = repair_completely(device);
        EXPECT_TRUE(repaired.has(Code::inode_invalid)) << path << text_of(repaired);
        EXPECT_EQ(difference(see(device), before), "") << path << text_of(repaired);
    }
}

TEST(InodeDamage, ASizeThatIsTooSmallFreesNoContentUnasked) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 120);
    const std::string before = see(device).at("/directory/large").content;
    ImageEditor image(device);
    image.change_inode(image.node_of("/directory/large"),
                       [](auto& inode) { inode.size_bytes = 10000; });
    const Report repaired = run_check(device, only_what_is_safe());
    EXPECT_TRUE(repaired.has(Code::extent_beyond_end)) << text_of(repaired);
    EXPECT_EQ(see(device).at("/directory/large").content.substr(0, before.size()), before);
    EXPECT_TRUE(run_check(device).clean());
}

// ... and what an earlier repair has marked as lost between its content stays so: it must not read as zeros.
TEST(InodeDamage, ASizeThatIsTooSmallHidesNoLoss) {
    constexpr size_t kBlock = tiffinfs::kBlockBytes;
    CrashDevice device(kDeviceBytes);
    make_populated(device, 120);
    ImageEditor image(device);
    const uint64_t node = image.node_of("/directory/large");
    const std::string before = see(device).at("/directory/large").content;
    const Key first = make_key(node, Kind::extent, 0);
    const Bytes whole = image.get(first);
    tiffinfs::ExtentValue extent;
    __builtin_memcpy(&extent, whole.data(), sizeof extent);
    ASSERT_GT(extent.block_count, 8U);
    // Blocks 4 and 5 are lost.
    const auto part = [&](uint64_t begin, uint64_t end) {
        tiffinfs::ExtentValue piece = extent;
        piece.physical_block += begin;
        piece.block_count = static_cast<uint32_t>(end - begin);
        Bytes bytes = bytes_of(piece);
        bytes.insert(
            bytes.end(),
            whole.begin() + static_cast<ptrdiff_t>(sizeof extent + begin * sizeof(uint32_t)),
            whole.begin() + static_cast<ptrdiff_t>(sizeof extent + end * sizeof(uint32_t)));
        return bytes;
    };
    image.put(first, part(0, 4));
    image.put(make_key(node, Kind::extent, 4),
              bytes_of(tiffinfs::ExtentValue{0, 0, 2, tiffinfs::extent_flag::lost}));
    image.put(make_key(node, Kind::extent, 6), part(6, extent.block_count));
    image.change_inode(node, [](auto& inode) {
        inode.size_bytes = 2 * kBlock;
        inode.allocated_blocks -= 2;
    });
    (void)run_check(device, only_what_is_safe());
    (void)repair_completely(device);
    test::TestVolume volume(device);
    ASSERT_TRUE(volume.mount().ok());
    std::string bytes(kBlock, '\0');
    const vfs::IoVector piece{bytes.data(), bytes.size()};
    const auto read = [&](uint64_t block) {
        Result<size_t> result = volume.file_system().read(node, 0, block * kBlock,
                                                          Span<const vfs::IoVector>(&piece, 1));
        return result.ok() ? Error{} : result.error();
    };
    EXPECT_EQ(read(4), Error::eio);
    EXPECT_EQ(read(5), Error::eio);
    EXPECT_EQ(read(6), Error{});
    EXPECT_TRUE(bytes == before.substr(6 * kBlock, kBlock));
}

// A field that only repeats what other keys tell, too.
TEST(NameDamage, OneWrongFieldTakesNoNameAlong) {
    using Change = std::function<void(ImageEditor&)>;
    const Change changes[] = {
        [](ImageEditor& image) {
            image.put(image.entry_key("/tiny"),
                      ImageEditor::entry(image.node_of("/tiny"), 0170000, "tiny"));
        },
        [](ImageEditor& image) {
            auto entry =
                ImageEditor::entry(image.node_of("/directory"), vfs::mode::directory, "directory");
            entry[offsetof(tiffinfs::EntryValue, name_bytes)] ^= 1;
            image.put(image.entry_key("/directory"), entry);
        },
        [](ImageEditor& image) {
            image.change_inode(image.node_of("/short-link"),
                               [](auto& inode) { ++inode.size_bytes; });
        },
        [](ImageEditor& image) {
            const auto place = [&](std::string_view name) {
                return make_key(image.node_of("/tiny"), Kind::xattr,
                                xattr_hash(image.superblock(), name) << 16);
            };
            const Bytes value = image.get(place("user.small"));
            image.erase(place("user.small"));
            image.put(place("user.other"), value);
        }};
    for (const Change& change : changes) {
        CrashDevice device(kDeviceBytes);
        make_populated(device, 120);
        const test::SeenTree before = see(device);
        ImageEditor image(device);
        change(image);
        EXPECT_FALSE(run_check(device).clean());
        const Report repaired = repair_completely(device);
        EXPECT_EQ(difference(see(device), before), "") << text_of(repaired);
    }
}

Key inode_key(uint64_t node) { return make_key(node, Kind::inode, 0); }

// ---- Inodes -------------------------------------------------------------------------------------

const std::vector<Damage> kInodeDamage = {
    {"ModeWithoutType", Code::inode_invalid,
     [](ImageEditor& image) {
         image.change_inode(image.node_of("/tiny"), [](auto& inode) { inode.mode = 0644; });
     }},
    {"ModeWithUnknownBits", Code::inode_invalid,
     [](ImageEditor& image) {
         image.change_inode(image.node_of("/tiny"), [](auto& inode) { inode.mode |= 1U << 20; });
     }},
    {"Nanoseconds", Code::inode_invalid,
     [](ImageEditor& image) {
         image.change_inode(image.node_of("/tiny"),
                            [](auto& inode) { inode.change_time.nanoseconds = 2000000000; });
     }},
    {"UnknownInodeFlags", Code::inode_invalid,
     [](ImageEditor& image) {
         image.change_inode(image.node_of("/tiny"),
                            [](auto& inode) { inode.inode_flags |= 1U << 30; });
     }},
    {"UnknownFileFlags", Code::inode_invalid,
     [](ImageEditor& image) {
         image.change_inode(image.node_of("/tiny"),
                            [](auto& inode) { inode.file_flags = 1U << 30; });
     }},
    {"AttributesHidden", Code::inode_invalid,
     [](ImageEditor& image) {
         image.change_inode(image.node_of("/tiny"), [](auto& inode) {
             inode.inode_flags &= ~tiffinfs::inode_flag::has_xattrs;
         });
     }},
    {"ShortInode", Code::inode_invalid,
     [](ImageEditor& image) {
         image.put(inode_key(image.node_of("/directory/large")), Bytes(100, 1));
     }},
    {"HugeFile", Code::inode_invalid,
     [](ImageEditor& image) {
         image.change_inode(image.node_of("/directory/large"),
                            [](auto& inode) { inode.size_bytes = ~uint64_t{0}; });
     }},
    {"ParentOfAFile", Code::inode_invalid,
     [](ImageEditor& image) {
         image.change_inode(image.node_of("/tiny"), [](auto& inode) { inode.parent = 1; });
     }},
    {"FifoWithContent", Code::inode_invalid,
     [](ImageEditor& image) {
         image.change_inode(image.node_of("/fifo"), [](auto& inode) { inode.size_bytes = 5; });
     }},
    {"FileInodeLost", Code::inode_missing,
     [](ImageEditor& image) { image.erase(inode_key(image.node_of("/directory/large"))); }},
    {"DirectoryInodeLost", Code::inode_missing,
     [](ImageEditor& image) { image.erase(inode_key(image.node_of("/many"))); }},
    {"SymlinkInodeLost", Code::inode_missing,
     [](ImageEditor& image) { image.erase(inode_key(image.node_of("/long-link"))); }},
    {"InlineInodeLost", Code::inode_missing,
     [](ImageEditor& image) { image.erase(inode_key(image.node_of("/tiny"))); }},
    {"EmptyInodeLost", Code::entry_target,
     [](ImageEditor& image) { image.erase(inode_key(image.node_of("/no-content"))); }},
    {"EntriesInAFile", Code::inode_extra,
     [](ImageEditor& image) {
         const uint64_t file = image.node_of("/tiny");
         image.put(image.place_of(file, "x"), ImageEditor::entry(file, vfs::mode::regular, "x"));
     }},
    {"ExtentsInAFifo", Code::inode_extra,
     [](ImageEditor& image) {
         const Key extent = image.extent_key(image.node_of("/directory/inner/sparse"));
         image.put(make_key(image.node_of("/fifo"), Kind::extent, 0), image.get(extent));
     }},
    {"RootInodeLost", Code::inode_missing,
     [](ImageEditor& image) { image.erase(inode_key(vfs::kRootNode)); }},
    {"RootIsAFile", Code::root_missing,
     [](ImageEditor& image) {
         image.change_inode(vfs::kRootNode, [](auto& inode) {
             inode.mode = vfs::mode::regular | 0644;
             inode.size_bytes = 0;
         });
     }},
};
INSTANTIATE_TEST_SUITE_P(Inodes, DamageTest, testing::ValuesIn(kInodeDamage), test_name);

// ---- Names --------------------------------------------------------------------------------------

const std::vector<Damage> kNameDamage = {
    {"SlashInName", Code::entry_invalid,
     [](ImageEditor& image) {
         image.put(image.entry_key("/tiny"),
                   ImageEditor::entry(image.node_of("/tiny"), vfs::mode::regular, "ti/y"));
     }},
    {"DotDot", Code::entry_invalid,
     [](ImageEditor& image) {
         image.put(image.place_of(vfs::kRootNode, ".."),
                   ImageEditor::entry(vfs::kRootNode, vfs::mode::directory, ".."));
     }},
    {"EntryTooShort", Code::entry_invalid,
     [](ImageEditor& image) { image.put(image.entry_key("/tiny"), Bytes(4, 7)); }},
    {"EntryWithWrongLength", Code::entry_invalid,
     [](ImageEditor& image) {
         Bytes entry = ImageEditor::entry(image.node_of("/tiny"), vfs::mode::regular, "tiny");
         entry.push_back('x');
         image.put(image.entry_key("/tiny"), entry);
     }},
    {"EntryOfUnknownType", Code::entry_invalid,
     [](ImageEditor& image) {
         image.put(image.entry_key("/tiny"),
                   ImageEditor::entry(image.node_of("/tiny"), 0170000, "tiny"));
     }},
    {"WrongHash", Code::entry_hash,
     [](ImageEditor& image) {
         const Bytes entry = image.get(image.entry_key("/tiny"));
         image.erase(image.entry_key("/tiny"));
         image.put(image.place_of(vfs::kRootNode, "another name"), entry);
     }},
    {"DuplicateName", Code::entry_duplicate,
     [](ImageEditor& image) {
         Key second = image.entry_key("/tiny");
         const Bytes entry = image.get(second);
         second.kind_and_offset += 1;  // the next slot
         image.put(second, entry);
     }},
    {"TargetMissing", Code::entry_target,
     [](ImageEditor& image) {
         image.put(image.place_of(vfs::kRootNode, "dangling"),
                   ImageEditor::entry(kNowhere, vfs::mode::regular, "dangling"));
         image.change_inode(vfs::kRootNode, [](auto& inode) { ++inode.size_bytes; });
     }},
    {"WrongType", Code::entry_type,
     [](ImageEditor& image) {
         image.put(image.entry_key("/tiny"),
                   ImageEditor::entry(image.node_of("/tiny"), vfs::mode::fifo, "tiny"));
     }},
    {"DirectoryWithTwoNames", Code::directory_links,
     [](ImageEditor& image) {
         image.put(image.place_of(vfs::kRootNode, "second"),
                   ImageEditor::entry(image.node_of("/empty"), vfs::mode::directory, "second"));
         image.change_inode(vfs::kRootNode, [](auto& inode) { ++inode.size_bytes; });
     }},
    {"RootInsideADirectory", Code::directory_links,
     [](ImageEditor& image) {
         image.put(image.place_of(image.node_of("/empty"), "root"),
                   ImageEditor::entry(vfs::kRootNode, vfs::mode::directory, "root"));
     }},
    {"DirectoryInsideItself", Code::directory_links,
     [](ImageEditor& image) {
         // /directory/inner/deep takes the place of /directory as the parent of inner.
         const uint64_t deep = image.node_of("/directory/inner/deep");
         const Key old_key = image.entry_key("/directory/inner");
         const Bytes entry = image.get(old_key);
         image.erase(old_key);
         image.put(image.place_of(deep, "inner"), entry);
     }},
    {"EntryCount", Code::directory_entries,
     [](ImageEditor& image) {
         image.change_inode(image.node_of("/many"), [](auto& inode) { inode.size_bytes -= 3; });
     }},
    {"EntriesMissing", Code::entries_missing,
     [](ImageEditor& image) {
         image.change_inode(image.node_of("/many"), [](auto& inode) { inode.size_bytes += 3; });
     }},
    {"ParentPointer", Code::directory_parent,
     [](ImageEditor& image) {
         image.change_inode(image.node_of("/directory/inner"),
                            [](auto& inode) { inode.parent = vfs::kRootNode; });
     }},
    {"LinkCountOfAFile", Code::link_count,
     [](ImageEditor& image) {
         image.change_inode(image.node_of("/tiny"), [](auto& inode) { inode.link_count = 7; });
     }},
    {"LinkCountOfADirectory", Code::link_count,
     [](ImageEditor& image) {
         image.change_inode(vfs::kRootNode, [](auto& inode) { inode.link_count = 2; });
     }},
    {"FileWithoutName", Code::unreachable,
     [](ImageEditor& image) {
         image.erase(image.entry_key("/directory/large"));
         image.change_inode(image.node_of("/directory"), [](auto& inode) { --inode.size_bytes; });
     }},
    {"DirectoryWithoutName", Code::unreachable,
     [](ImageEditor& image) {
         image.erase(image.entry_key("/directory"));
         image.change_inode(vfs::kRootNode, [](auto& inode) {
             --inode.size_bytes;
             --inode.link_count;
         });
     }},
    {"OrphanOfNobody", Code::orphan_key,
     [](ImageEditor& image) {
         image.put(make_key(tiffinfs::kVolumeNode, Kind::orphan, kNowhere), {});
     }},
    {"OrphanWithName", Code::orphan_key,
     [](ImageEditor& image) {
         image.put(make_key(tiffinfs::kVolumeNode, Kind::orphan, image.node_of("/tiny")), {});
     }},
    {"NoLinksAndNoOrphanKey", Code::orphan_key,
     [](ImageEditor& image) {
         const uint64_t node = image.node_of("/directory/large");
         image.erase(image.entry_key("/directory/large"));
         image.change_inode(image.node_of("/directory"), [](auto& inode) { --inode.size_bytes; });
         image.change_inode(node, [](auto& inode) { inode.link_count = 0; });
     }},
    {"IntentOfNobody", Code::intent_invalid,
     [](ImageEditor& image) {
         const tiffinfs::IntentValue intent{tiffinfs::IntentType::truncate, 0, 1, 0, 0};
         image.put(make_key(tiffinfs::kVolumeNode, Kind::intent, kNowhere), bytes_of(intent));
     }},
    {"ImpossibleIntent", Code::intent_invalid,
     [](ImageEditor& image) {
         image.put(make_key(tiffinfs::kVolumeNode, Kind::intent, image.node_of("/tiny")),
                   Bytes(32, 0xff));
     }},
    {"UnknownKind", Code::key_invalid,
     [](ImageEditor& image) {
         image.put(make_key(image.node_of("/tiny"), static_cast<Kind>(13), 5), Bytes(3, 1));
     }},
    {"UnknownVolumeKey", Code::key_invalid,
     [](ImageEditor& image) {
         image.put(make_key(tiffinfs::kVolumeNode, Kind::entry, 5), Bytes(3, 1));
     }},
    {"ImpossibleNode", Code::key_invalid,
     [](ImageEditor& image) {
         image.put(Key{~uint64_t{0} - 1, make_key(0, Kind::inode, 0).kind_and_offset},
                   Bytes(128, 0));
     }},
    {"NodeWithoutSuccessor", Code::key_invalid,
     [](ImageEditor& image) {
         const Bytes inode = image.get(inode_key(image.node_of("/tiny")));
         image.put(inode_key(tiffinfs::kKeyOffsetMask), inode);
     }},
};
INSTANTIATE_TEST_SUITE_P(Names, DamageTest, testing::ValuesIn(kNameDamage), test_name);

// ---- Content ------------------------------------------------------------------------------------

void change_extent(ImageEditor& image, const std::string& path,
                   const std::function<void(tiffinfs::ExtentValue&)>& change) {
    const Key key = image.extent_key(image.node_of(path));
    Bytes value = image.get(key);
    tiffinfs::ExtentValue extent;
    __builtin_memcpy(&extent, value.data(), sizeof extent);
    change(extent);
    __builtin_memcpy(value.data(), &extent, sizeof extent);
    image.put(key, value);
}

Key xattr_key(ImageEditor& image, const std::string& path, std::string_view name, uint32_t chunk) {
    return make_key(image.node_of(path), Kind::xattr,
                    xattr_hash(image.superblock(), name) << 16 | chunk);
}

const std::vector<Damage> kContentDamage = {
    {"InlineLongerThanSize", Code::inline_invalid,
     [](ImageEditor& image) {
         image.change_inode(image.node_of("/tiny"), [](auto& inode) { inode.size_bytes = 3; });
     }},
    {"InlineTooLarge", Code::inline_invalid,
     [](ImageEditor& image) {
         image.change_inode(image.node_of("/tiny"), [](auto& inode) { inode.size_bytes = 5000; });
     }},
    {"InlineDenied", Code::inline_invalid,
     [](ImageEditor& image) {
         image.change_inode(image.node_of("/tiny"), [](auto& inode) {
             inode.inode_flags &= ~tiffinfs::inode_flag::inline_data;
         });
     }},
    {"InlineAndExtents", Code::inline_invalid,
     [](ImageEditor& image) {
         image.change_inode(image.node_of("/reserved"), [](auto& inode) {
             inode.inode_flags |= tiffinfs::inode_flag::inline_data;
         });
     }},
    {"SymlinkChunkLost", Code::symlink_invalid,
     [](ImageEditor& image) {
         image.erase(make_key(image.node_of("/long-link"), Kind::symlink, 1));
     }},
    {"SymlinkFirstChunkLost", Code::symlink_invalid,
     [](ImageEditor& image) {
         image.erase(make_key(image.node_of("/long-link"), Kind::symlink, 0));
     }},
    {"SymlinkSize", Code::symlink_invalid,
     [](ImageEditor& image) {
         image.change_inode(image.node_of("/short-link"), [](auto& inode) { ++inode.size_bytes; });
     }},
    {"XattrChunkLost", Code::xattr_invalid,
     [](ImageEditor& image) { image.erase(xattr_key(image, "/directory", "user.large", 2)); }},
    {"XattrFirstChunkLost", Code::xattr_invalid,
     [](ImageEditor& image) { image.erase(xattr_key(image, "/directory", "user.large", 0)); }},
    {"XattrLastChunkLost", Code::xattr_invalid,
     [](ImageEditor& image) { image.erase(xattr_key(image, "/directory", "user.large", 4)); }},
    {"XattrElsewhere", Code::xattr_invalid,
     [](ImageEditor& image) {
         const Bytes value = image.get(xattr_key(image, "/tiny", "user.small", 0));
         image.put(xattr_key(image, "/tiny", "user.other", 0), value);
     }},
    {"XattrOfUnknownPrefix", Code::xattr_invalid,
     [](ImageEditor& image) {
         const tiffinfs::XattrValue header{0, 5};
         Bytes value = bytes_of(header);
         for (const char c : std::string_view("odd.x")) {
             value.push_back(static_cast<unsigned char>(c));
         }
         image.put(xattr_key(image, "/tiny", "odd.x", 0), value);
     }},
    {"ExtentOutsideTheDevice", Code::extent_invalid,
     [](ImageEditor& image) {
         change_extent(image, "/directory/large",
                       [](auto& extent) { extent.physical_block = uint64_t{1} << 40; });
     }},
    {"ExtentInTheJournal", Code::extent_invalid,
     [](ImageEditor& image) {
         change_extent(image, "/directory/large", [](auto& extent) { extent.physical_block = 10; });
     }},
    {"ExtentOfUnknownFlags", Code::extent_invalid,
     [](ImageEditor& image) {
         change_extent(image, "/directory/large", [](auto& extent) { extent.flags = 8; });
     }},
    {"ExtentsOverlap", Code::extent_overlap,
     [](ImageEditor& image) {
         const uint64_t node = image.node_of("/reserved");
         const Key key = image.extent_key(node);
         image.put(make_key(node, Kind::extent, key.offset() + 2), image.get(key));
     }},
    {"ExtentBeyondTheEnd", Code::extent_beyond_end,
     [](ImageEditor& image) {
         image.change_inode(image.node_of("/directory/large"),
                            [](auto& inode) { inode.size_bytes = 10000; });
     }},
    {"AllocatedBlocks", Code::allocated_blocks,
     [](ImageEditor& image) {
         image.change_inode(image.node_of("/directory/large"),
                            [](auto& inode) { inode.allocated_blocks = 1; });
     }},
    {"ContentMissing", Code::content_missing,
     [](ImageEditor& image) {
         image.change_inode(image.node_of("/directory/large"),
                            [](auto& inode) { inode.allocated_blocks += 1; });
     }},
    {"BlocksOfTwoFiles", Code::extent_shared,
     [](ImageEditor& image) {
         const Key first = image.extent_key(image.node_of("/directory/large"));
         const auto value = image.value<tiffinfs::ExtentValue>(first);
         change_extent(image, "/directory/inner/sparse",
                       [&](auto& extent) { extent.physical_block = value.physical_block; });
     }},
    {"BlocksOfATreeNode", Code::extent_shared,
     [](ImageEditor& image) {
         const uint64_t root = image.superblock().root_block;
         const uint64_t group = tiffinfs::group_of(root);
         change_extent(image, "/directory/inner/sparse", [&](auto& extent) {
             extent.physical_block = std::max(root - 1, group * tiffinfs::kBlocksPerGroup + 2);
         });
     }},
};
INSTANTIATE_TEST_SUITE_P(Content, DamageTest, testing::ValuesIn(kContentDamage), test_name);

// ---- Space and superblock -----------------------------------------------------------------------

const std::vector<Damage> kSpaceDamage = {
    {"UsedBlockMarkedFree", Code::bitmap_wrong,
     [](ImageEditor& image) { image.set_used(image.superblock().root_block, false); }},
    {"FreeBlockMarkedUsed", Code::bitmap_leak,
     [](ImageEditor& image) { image.set_used(image.superblock().total_blocks - 5, true); }},
    {"BitmapDamaged", Code::bitmap_invalid,
     [](ImageEditor& image) { image.flip_bit(image.bitmap_slot_block(0), 500, 1); }},
    {"BitmapHeaderDamaged", Code::bitmap_invalid,
     [](ImageEditor& image) { image.flip_bit(image.bitmap_slot_block(0), 20, 1); }},
    {"UsedBlocks", Code::counter,
     [](ImageEditor& image) {
         tiffinfs::Superblock superblock = image.superblock();
         superblock.used_blocks += 10;
         image.write_superblock(superblock);
     }},
    {"NodeCount", Code::counter,
     [](ImageEditor& image) {
         tiffinfs::Superblock superblock = image.superblock();
         --superblock.node_count;
         image.write_superblock(superblock);
     }},
    {"NextNode", Code::counter,
     [](ImageEditor& image) {
         tiffinfs::Superblock superblock = image.superblock();
         superblock.next_node = 5;
         image.write_superblock(superblock);
     }},
    {"ErrorsFlag", Code::errors_flag,
     [](ImageEditor& image) {
         tiffinfs::Superblock superblock = image.superblock();
         superblock.state |= tiffinfs::superblock_state::errors;
         image.write_superblock(superblock);
     }},
    {"NewestFirstCopy", Code::superblock_copy,
     [](ImageEditor& image) { image.destroy_superblock(image.superblock().generation % 2, 0); }},
    {"NewestSecondCopy", Code::superblock_copy,
     [](ImageEditor& image) { image.destroy_superblock(image.superblock().generation % 2, 1); }},
    {"OlderFirstCopy", Code::superblock_copy,
     [](ImageEditor& image) {
         image.destroy_superblock((image.superblock().generation + 1) % 2, 0);
     }},
    {"OlderSecondCopy", Code::superblock_copy,
     [](ImageEditor& image) {
         image.destroy_superblock((image.superblock().generation + 1) % 2, 1);
     }},
};
INSTANTIATE_TEST_SUITE_P(Space, DamageTest, testing::ValuesIn(kSpaceDamage), test_name);

}  // namespace
}  // namespace tiffin::check
