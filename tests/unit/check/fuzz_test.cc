// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Random damage. Whatever a device holds, a check ends, a repair ends, and after a repair the volume is
// sound. Every failure names a seed that repeats it.
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "fs/tiffinfs/tree/node.h"
#include "fuse/check/check.h"
#include "fuse/check/describe.h"
#include "fuse/host/log_sink.h"
#include "tests/support/test_size.h"
#include "tests/unit/check/check_support.h"
#include "tests/unit/check/image_editor.h"

namespace tiffin::check {
namespace {

using test::CrashDevice;
using test::CrashOutcome;
using test::TestVolume;
using tiffinfs::kBlockBytes;

uint64_t rounds(uint64_t wanted) { return test::test_size(wanted, wanted / 20 + 1); }

// What is damaged on purpose is in the log many thousand times.
class Fuzz : public testing::Test {
  protected:
    Fuzz() : device_(kDeviceBytes) {
        make_populated(device_, 300);
        (void)see(device_);
    }

    std::unique_ptr<CrashDevice> copy() {
        return device_.after_crash(CrashOutcome::drop_unflushed, 0);
    }

    // Mounts, looks at what can be seen, changes a little. Errors are all right.
    static void try_to_use(CrashDevice& device, bool read_only) {
        TestVolume volume(device);
        tiffinfs::MountOptions options = TestVolume::quiet_options();
        options.volume.read_only = read_only;
        if (!volume.mount(options).ok()) {
            return;
        }
        (void)volume.see().ok();
        for (const char* path : {"/tiny", "/directory/large", "/directory/inner/sparse",
                                 "/reserved", "/short-link", "/long-link", "/many/file-5"}) {
            (void)volume.read(path).ok();
            (void)volume.write(path, 5000, "changed").ok();
            (void)volume.set_xattr(path, "user.new", "value").ok();
        }
        (void)volume.list("/many").ok();
        (void)volume.create("/new").ok();
        (void)volume.rename("/many/file-7", "/empty/file").ok();
        (void)volume.truncate("/directory/large", 100).ok();
        (void)volume.unlink("/reserved").ok();
        (void)volume.sync().ok();
        (void)volume.unmount().ok();
    }

    // Shows all there is to show.
    static void dump(CrashDevice& device) {
        size_t bytes = to_text(describe_superblocks(device)).size();
        for (const fuse::OrProblem<Json>& described :
             {describe_volume(device), describe_tree(device), describe_journal(device),
              describe_bitmap(device, 0), describe_object(device, 1), describe_object(device, 5),
              describe_directory(device, 1), describe_directory(device, 12)}) {
            bytes += described.ok() ? to_text(*described).size() + described->dump().size() : 0;
        }
        const fuse::OrProblem<Json> tree = describe_tree(device);
        for (size_t i = 0; tree.ok() && i < tree->size() && i < 20; ++i) {
            const fuse::OrProblem<Json> node = describe_node(device, (*tree)[i]["block"]);
            bytes += node.ok() ? to_text(*node).size() : 0;
        }
        ASSERT_GT(bytes, 0U);
    }

    // After a repair: nothing is found, it mounts, and after that still nothing is found.
    void expect_repairable(CrashDevice& device) {
        const Report repaired = run_check(device, {.repair = true});
        ASSERT_FALSE(repaired.has(Code::repair_failed)) << text_of(repaired);
        const Report second = run_check(device);
        ASSERT_TRUE(only_lost_content(second)) << "after the repair of\n"
                                               << text_of(repaired) << "there is\n"
                                               << text_of(second);
        TestVolume volume(device);
        ASSERT_TRUE(volume.mount().ok());
        (void)volume.see().ok();  // file data may be lost
        ASSERT_TRUE(volume.unmount().ok());
        const Report third = run_check(device);
        ASSERT_TRUE(only_lost_content(third)) << text_of(third) << last_lines();
    }

    std::string last_lines() const {
        std::string text;
        const std::vector<std::string> lines = log_.lines();
        for (size_t i = lines.size() < 8 ? 0 : lines.size() - 8; i < lines.size(); ++i) {
            text += lines[i] + "\n";
        }
        return text;
    }

    CrashDevice device_;
    fuse::CapturedLog log_;
};

struct ByteRange {
    uint64_t block;
    uint32_t first;
    uint32_t end;
};

void add_nodes(ImageEditor& editor, uint64_t block, uint32_t level, std::vector<uint64_t>& nodes) {
    nodes.push_back(block);
    if (level == 0) {
        return;
    }
    Block page;
    editor.read(block, page);
    tiffinfs::NodeHeader header;
    __builtin_memcpy(&header, page.bytes, sizeof header);
    for (uint32_t i = 0; i < header.count; ++i) {
        add_nodes(editor, tiffinfs::inner_entries(page.bytes)[i].child_block, level - 1, nodes);
    }
}

std::vector<uint64_t> tree_nodes(ImageEditor& editor) {
    std::vector<uint64_t> nodes;
    add_nodes(editor, editor.superblock().root_block, editor.superblock().root_level, nodes);
    return nodes;
}

// All bytes that describe the volume and that nobody may change unnoticed.
std::vector<ByteRange> metadata(ImageEditor& editor) {
    std::vector<ByteRange> ranges;
    const uint64_t total = editor.superblock().total_blocks;
    for (const uint64_t block : {uint64_t{0}, uint64_t{1}, total - 2, total - 1}) {
        ranges.push_back({block, 0, tiffinfs::kSuperblockBytes});
    }
    ranges.push_back({editor.bitmap_slot_block(0), 0, kBlockBytes});
    for (const uint64_t block : tree_nodes(editor)) {
        ranges.push_back({block, 0, kBlockBytes});
    }
    return ranges;
}

TEST_F(Fuzz, OneBitInUseIsAlwaysFound) {
    ImageEditor original(device_);
    const std::vector<ByteRange> ranges = metadata(original);
    for (uint64_t seed = test::first_seed(); seed < test::first_seed() + rounds(400); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::mt19937_64 random(seed);
        auto device = copy();
        ImageEditor editor(*device);
        if (seed % 2 == 0) {
            // Without an older generation to go back to.
            const uint64_t older = (editor.superblock().generation + 1) % 2;
            editor.destroy_superblock(older, 0);
            editor.destroy_superblock(older, 1);
        }
        // Small structures as often as large ones.
        const ByteRange& range = ranges[seed % 3 == 0 ? random() % 5 : random() % ranges.size()];
        editor.flip_bit(range.block,
                        range.first + static_cast<uint32_t>(random() % (range.end - range.first)),
                        random() % 8);
        ASSERT_FALSE(run_check(*device).clean());
        expect_repairable(*device);
        if (HasFatalFailure()) {
            return;
        }
    }
}

TEST_F(Fuzz, ManyBits) {
    ImageEditor original(device_);
    const std::vector<ByteRange> ranges = metadata(original);
    for (uint64_t seed = test::first_seed(); seed < test::first_seed() + rounds(100); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::mt19937_64 random(seed);
        auto device = copy();
        ImageEditor editor(*device);
        for (int i = 0; i < 12; ++i) {
            // Not the superblocks: with all of them gone nothing can be repaired.
            const ByteRange& range = ranges[4 + random() % (ranges.size() - 4)];
            editor.flip_bit(range.block, static_cast<uint32_t>(random() % kBlockBytes),
                            random() % 8);
        }
        ASSERT_FALSE(run_check(*device).clean());
        dump(*device);
        try_to_use(*device->after_crash(CrashOutcome::drop_unflushed, 0), seed % 2 == 0);
        expect_repairable(*device);
        if (HasFatalFailure()) {
            return;
        }
    }
}

// Nodes with valid checksums around contents that nobody would write.
TEST_F(Fuzz, CraftedNodes) {
    ImageEditor original(device_);
    const std::vector<uint64_t> nodes = tree_nodes(original);
    for (uint64_t seed = test::first_seed(); seed < test::first_seed() + rounds(400); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::mt19937_64 random(seed);
        auto device = copy();
        ImageEditor editor(*device);
        const uint64_t changed_nodes = 1 + random() % 4;
        for (uint64_t i = 0; i < changed_nodes; ++i) {
            const uint64_t block = nodes[random() % nodes.size()];
            Block page;
            editor.read(block, page);
            const uint64_t changes = 1 + random() % 16;
            for (uint64_t j = 0; j < changes; ++j) {
                // Behind the fields that tie it to its place; those are checked elsewhere.
                const uint64_t offset = 33 + random() % (kBlockBytes - 33);
                page.bytes[offset] = static_cast<unsigned char>(
                    random() % 4 == 0 ? random() : page.bytes[offset] ^ 1U << random() % 8);
            }
            editor.write_node(block, page);
        }
        (void)run_check(*device, {.verify_data = true});
        dump(*device);
        auto used = device->after_crash(CrashOutcome::drop_unflushed, 0);
        try_to_use(*used, seed % 2 == 0);
        (void)run_check(*used);
        expect_repairable(*device);
        if (HasFatalFailure()) {
            return;
        }
    }
}

// Values with impossible contents in the right places.
TEST_F(Fuzz, CraftedValues) {
    ImageEditor original(device_);
    const std::vector<uint64_t> nodes = tree_nodes(original);
    for (uint64_t seed = test::first_seed(); seed < test::first_seed() + rounds(400); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::mt19937_64 random(seed);
        auto device = copy();
        ImageEditor editor(*device);
        for (uint64_t i = 0; i < 1 + seed % 5; ++i) {
            const uint64_t block = nodes[random() % nodes.size()];
            Block page;
            editor.read(block, page);
            tiffinfs::NodeHeader header;
            __builtin_memcpy(&header, page.bytes, sizeof header);
            if (header.level != 0 || header.count == 0) {
                continue;
            }
            const uint32_t slot = static_cast<uint32_t>(random() % header.count);
            const tiffinfs::Key key = tiffinfs::leaf_key(page.bytes, slot);
            const ByteSpan value = tiffinfs::leaf_value(page.bytes, slot);
            Bytes changed(value.begin(), value.end());
            if (random() % 4 == 0) {
                changed.resize(random() % (changed.size() + 1));
            }
            for (unsigned char& byte : changed) {
                if (random() % 16 == 0) {
                    byte = static_cast<unsigned char>(random() % 2 == 0 ? random() : 0xff);
                }
            }
            tiffinfs::leaf_put(page.bytes, slot, key, ByteSpan(changed.data(), changed.size()));
            editor.write_node(block, page);
        }
        auto used = device->after_crash(CrashOutcome::drop_unflushed, 0);
        try_to_use(*used, seed % 2 == 0);
        expect_repairable(*device);
        if (HasFatalFailure()) {
            return;
        }
    }
}

// Superblocks with valid checksums and fields changed at random.
TEST_F(Fuzz, CraftedSuperblocks) {
    for (uint64_t seed = test::first_seed(); seed < test::first_seed() + rounds(300); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::mt19937_64 random(seed);
        auto device = copy();
        ImageEditor editor(*device);
        tiffinfs::Superblock superblock = editor.superblock();
        auto* bytes = reinterpret_cast<unsigned char*>(&superblock);
        const size_t first = random() % 2 == 0 ? offsetof(tiffinfs::Superblock, total_blocks)
                                               : offsetof(tiffinfs::Superblock, incarnation);
        const size_t changes = 1 + random() % 4;
        for (size_t i = 0; i < changes; ++i) {
            const size_t offset = first + random() % 96;
            bytes[offset] = static_cast<unsigned char>(random());
        }
        superblock.generation = editor.superblock().generation;
        superblock.checksum = 0;
        superblock.checksum = host::crc32c(0, &superblock, sizeof superblock);
        for (uint32_t copy = 0; copy < 2; ++copy) {
            const uint64_t block = tiffinfs::superblock_block(editor.superblock().total_blocks,
                                                              superblock.generation, copy);
            device->overwrite(block * kBlockBytes, &superblock, sizeof superblock);
        }
        (void)run_check(*device, {.verify_data = true});
        dump(*device);
        auto used = device->after_crash(CrashOutcome::drop_unflushed, 0);
        try_to_use(*used, seed % 2 == 0);
        const Report repaired = run_check(*device, {.repair = true});
        if (repaired.is_volume && !repaired.has(Code::repair_failed)) {
            const Report second = run_check(*device);
            ASSERT_TRUE(only_lost_content(second)) << text_of(repaired) << "then\n"
                                                   << text_of(second);
        }
    }
}

// Frames with valid checksums and records made up.
TEST_F(Fuzz, CraftedJournal) {
    for (uint64_t seed = test::first_seed(); seed < test::first_seed() + rounds(300); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::mt19937_64 random(seed);
        auto device = copy();
        ImageEditor editor(*device);
        Bytes records;
        const uint32_t count = 1 + static_cast<uint32_t>(random() % 6);
        for (uint32_t i = 0; i < count; ++i) {
            const auto type = static_cast<tiffinfs::RecordType>(1 + random() % 5);
            const auto kind = static_cast<tiffinfs::Kind>(1 + random() % 8);
            tiffinfs::Key key = tiffinfs::make_key(1 + random() % 20, kind,
                                                   random() % 4 == 0 ? random() : random() % 300);
            Bytes value;
            if (type == tiffinfs::RecordType::write_extent) {
                key = tiffinfs::make_key(key.node, tiffinfs::Kind::extent, random() % 400);
                value = bytes_of(tiffinfs::ExtentValue{random() % editor.superblock().total_blocks,
                                                       1, 1 + static_cast<uint32_t>(random() % 50),
                                                       tiffinfs::extent_flag::unwritten});
            } else if (type == tiffinfs::RecordType::unmap) {
                key = tiffinfs::make_key(key.node, tiffinfs::Kind::extent, random() % 400);
                value = bytes_of(uint64_t{random() % 100});
            } else if (type == tiffinfs::RecordType::erase_range) {
                value = bytes_of(tiffinfs::Key{key.node, key.kind_and_offset + random() % 1000});
            } else if (type == tiffinfs::RecordType::put) {
                value.resize(random() % 200);
                for (unsigned char& byte : value) {
                    byte = static_cast<unsigned char>(random());
                }
            }
            const Bytes record = ImageEditor::record(type, key, value);
            records.insert(records.end(), record.begin(), record.end());
        }
        editor.append_frame(records, count);
        dump(*device);
        auto used = device->after_crash(CrashOutcome::drop_unflushed, 0);
        try_to_use(*used, seed % 2 == 0);
        expect_repairable(*device);
        if (HasFatalFailure()) {
            return;
        }
    }
}

TEST_F(Fuzz, Noise) {
    for (uint64_t seed = test::first_seed(); seed < test::first_seed() + rounds(50); ++seed) {
        std::mt19937_64 random(seed);
        auto device = copy();
        for (int i = 0; i < 2000; ++i) {
            const uint64_t bytes = random();
            device->overwrite(random() % (kDeviceBytes - 8), &bytes, sizeof bytes);
        }
        (void)run_check(*device, {.verify_data = true});
        dump(*device);
        (void)run_check(*device, {.repair = true});
        try_to_use(*device, false);
    }
}

}  // namespace
}  // namespace tiffin::check
