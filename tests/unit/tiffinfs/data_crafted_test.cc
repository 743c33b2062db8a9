// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: no image, however it was made, makes an operation on data crash, hang or read outside. Method: the
// values and keys of a sound tree are changed at random, checksums are set right again, and everything is
// done to the files that are left. Seeds are printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "fs/tiffinfs/tree/node.h"
#include "tests/support/test_size.h"
#include "tests/support/units.h"
#include "tests/unit/tiffinfs/data_fixture.h"

namespace tiffin::tiffinfs {
namespace {

constexpr uint64_t kImageBytes = 16 * kMiB;

// An unmounted volume with small, large, fragmented and reserved files.
test::SparseImage make_image() {
    auto owned = std::make_unique<test::CrashDevice>(kImageBytes);
    test::CrashDevice* device = owned.get();
    DataVolume volume(std::move(owned));
    volume.write(volume.create("small"), 0, "some text");
    volume.write(volume.create("large"), 0, pattern_text(kMiB, 1));
    uint64_t fragments = volume.create("fragments");
    for (uint64_t i = 0; i < 100; ++i) {
        volume.write(fragments, 2 * i * kBlockBytes, pattern_text(100, i));
    }
    uint64_t reserved = volume.create("reserved");
    volume.allocate(reserved, 0, 0, kMiB);
    volume.write(reserved, 300000, pattern_text(100000, 2));
    volume.unmount();
    return device->crash_image(test::CrashOutcome::keep_completed, 0);
}

// Blocks that hold leaves with extents or small files.
std::vector<uint64_t> find_leaves(test::CrashDevice& device) {
    std::vector<uint64_t> leaves;
    std::vector<unsigned char> page(kBlockBytes);
    for (uint64_t block = 0; block < kImageBytes / kBlockBytes; ++block) {
        EXPECT_TRUE(device.read(block * kBlockBytes, page.data(), kBlockBytes).ok());
        const auto* header = reinterpret_cast<const NodeHeader*>(page.data());
        if (header->magic == kNodeMagic && header->level == 0 && header->block == block) {
            leaves.push_back(block);
        }
    }
    return leaves;
}

uint64_t interesting_number(std::mt19937_64& random) {
    constexpr uint64_t kNumbers[] = {0, 1, 2, 255, 256, 257, 4095, 4096, 8192, 16383, 16384, 65535};
    switch (random() % 4) {
        case 0:
            return kNumbers[random() % std::size(kNumbers)];
        case 1:
            return ~kNumbers[random() % std::size(kNumbers)];
        case 2:
            return random() % 4096;
        default:
            return uint64_t{1} << random() % 64;
    }
}

// Changes numbers in some values, or keys, of a leaf, and seals it again.
void change_leaf(std::mt19937_64& random, unsigned char* page) {
    auto* header = reinterpret_cast<NodeHeader*>(page);
    for (uint64_t i = 0; i < 1 + random() % 3 && header->count > 0; ++i) {
        auto index = static_cast<uint32_t>(random() % header->count);
        ByteSpan value = leaf_value(page, index);
        auto* bytes = const_cast<unsigned char*>(value.data());
        uint64_t number = interesting_number(random);
        if (value.size() >= 8 && random() % 8 != 0) {
            size_t width = random() % 2 == 0 ? 8 : 4;
            size_t offset = random() % (std::min<size_t>(value.size(), 64) / width) * width;
            std::memcpy(bytes + offset, &number, width);
        } else {
            auto* slots = reinterpret_cast<LeafSlot*>(page + sizeof(NodeHeader));
            Key key = slots[index].key;
            key.kind_and_offset ^= number & 0xffff;
            slots[index].key = key;
        }
    }
    seal_page(page);
}

// Everything that can be done to the data of a file, in an order given by `random`. Only that it ends
// matters.
void do_everything(DataVolume& volume, uint64_t node, std::mt19937_64& random) {
    std::string buffer(70000, 'b');
    for (int i = 0; i < 12; ++i) {
        uint64_t offset = random() % (2 * kMiB);
        uint64_t aligned = offset / kBlockBytes * kBlockBytes;
        switch (random() % 10) {
            case 0:
            case 1:
                volume.read(node, offset, buffer);
                break;
            case 2:
                volume.write(node, offset, buffer);
                break;
            case 3:
                volume.truncate(node, offset);
                break;
            case 4:
                volume.allocate(node,
                                vfs::allocate_flag::punch_hole | vfs::allocate_flag::keep_size,
                                offset, 50000);
                break;
            case 5:
                volume.allocate(node, vfs::allocate_flag::zero_range, offset, 50000);
                break;
            case 6:
                volume.allocate(node, vfs::allocate_flag::collapse_range, aligned, 8192);
                break;
            case 7:
                volume.allocate(node, vfs::allocate_flag::insert_range, aligned, 8192);
                break;
            case 8:
                volume.seek(node, offset, vfs::SeekTarget::data);
                volume.seek(node, offset, vfs::SeekTarget::hole);
                break;
            default:
                volume.allocate(node, 0, offset, 100000);
        }
    }
    volume.truncate(node, 0);
}

TEST(DataCrafted, NothingCrashesOnAnyTree) {
    test::SparseImage image = make_image();
    vfs::DeviceGeometry geometry;
    geometry.size_bytes = kImageBytes;
    // Sanitizers make it slow. TIFFIN_SEED repeats one run.
    uint64_t first = 1;
    uint64_t last = ::tiffin::test::test_size(300, 60);
    if (const char* text = std::getenv("TIFFIN_SEED"); text != nullptr) {
        first = last = std::strtoull(text, nullptr, 10);
    }
    for (uint64_t seed = first; seed <= last; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::mt19937_64 random(seed);
        auto device = std::make_unique<test::CrashDevice>(image.copy(), geometry);
        std::vector<uint64_t> leaves = find_leaves(*device);
        ASSERT_FALSE(leaves.empty());
        std::vector<unsigned char> page(kBlockBytes);
        for (uint64_t i = 0; i < 1 + random() % 4; ++i) {
            uint64_t block = leaves[random() % leaves.size()];
            ASSERT_TRUE(device->read(block * kBlockBytes, page.data(), kBlockBytes).ok());
            change_leaf(random, page.data());
            device->overwrite(block * kBlockBytes, page.data(), kBlockBytes);
        }
        MountOptions options;
        options.volume.errors = ErrorsPolicy::continue_running;
        options.volume.commit_interval_ms = 0;
        DataVolume volume(std::move(device), options);
        if (!volume.mounted()) {
            continue;
        }
        for (const char* name : {"small", "large", "fragments", "reserved"}) {
            Result<vfs::Attributes> found =
                volume.fs().lookup(vfs::kRootNode, vfs::Name(name, std::strlen(name)));
            if (found.ok()) {
                do_everything(volume, found->node, random);
            }
        }
        vfs::ScrubProgress progress;
        for (int i = 0; i < 10000 && !progress.finished; ++i) {
            ASSERT_TRUE(volume.fs().scrub(progress).ok());
        }
        EXPECT_TRUE(progress.finished);
        for (const char* name : {"small", "large", "fragments", "reserved"}) {
            (void)volume.fs().unlink({}, vfs::kRootNode, vfs::Name(name, std::strlen(name))).ok();
        }
        volume.abandon();
    }
}

}  // namespace
}  // namespace tiffin::tiffinfs
