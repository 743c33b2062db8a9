// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Crafted leaves: only one whose values fill its heap side by side may be changed.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fs/tiffinfs/tree/node.h"

namespace tiffin::tiffinfs {
namespace {

class LeafHeap : public testing::Test {
  protected:
    static constexpr uint64_t kLeafNonce = 1;
    static constexpr uint64_t kLeafBlock = 77;

    // Values of these sizes, the first at the end of the block.
    void make(const std::vector<uint16_t>& sizes) {
        format_page(page_, kLeafNonce, kLeafBlock, 1, 0);
        for (uint32_t i = 0; i < sizes.size(); ++i) {
            const std::vector<unsigned char> value(sizes[i], static_cast<unsigned char>(i));
            leaf_put(page_, i, make_key(i + 1, Kind::inode, 0),
                     ByteSpan(value.data(), value.size()));
        }
    }

    LeafSlot& slot(uint32_t index) {
        return reinterpret_cast<LeafSlot*>(page_ + sizeof(NodeHeader))[index];
    }

    // Empty when the leaf is accepted.
    std::string problem() {
        seal_page(page_);
        const char* reason = "";
        return check_page(page_, kLeafNonce, kLeafBlock, 1, 0, 1000, reason) ? "" : reason;
    }

    alignas(8) unsigned char page_[kBlockBytes];
};

TEST_F(LeafHeap, SideBySide) {
    make({});
    EXPECT_EQ(problem(), "");
    make({128, 0, 1, 63, 64, 65, 1280});
    EXPECT_EQ(problem(), "");
    make({0, 0});
    EXPECT_EQ(problem(), "");
    // A whole heap in another order.
    make({128, 100, 128});
    const uint16_t first = slot(0).value_offset;
    slot(0).value_offset = slot(2).value_offset;
    slot(2).value_offset = first;
    EXPECT_EQ(problem(), "");
}

// The sizes add up, since bytes that belong to nobody make up for those that belong to two.
TEST_F(LeafHeap, TwoValuesAtOnePlace) {
    for (const uint32_t lost : {0U, 1U, 2U}) {
        for (const uint32_t shared : {0U, 1U, 2U}) {
            make({128, 128, 128});
            slot(lost).value_offset = slot(shared).value_offset;
            EXPECT_EQ(problem().empty(), lost == shared) << lost << " " << shared;
        }
    }
}

TEST_F(LeafHeap, ValuesThatOverlapInPart) {
    make({128, 128, 128});
    slot(1).value_offset -= 1;
    EXPECT_NE(problem(), "");
    make({128, 128, 128});
    slot(1).value_offset += 64;
    EXPECT_NE(problem(), "");
    // One inside another, of which each begins or ends where a third one does.
    make({128, 64, 128});
    slot(1).value_offset = slot(0).value_offset;
    EXPECT_NE(problem(), "");
    make({128, 64, 128});
    slot(1).value_offset = kBlockBytes - 64;
    EXPECT_NE(problem(), "");
}

// Removing the value around it would leave it outside of the heap.
TEST_F(LeafHeap, EmptyValueInsideAnother) {
    make({128, 0, 128});
    const uint16_t between = slot(1).value_offset;
    for (const int distance : {-127, -1, 1, 127}) {
        slot(1).value_offset = static_cast<uint16_t>(between + distance);
        EXPECT_NE(problem(), "") << distance;
    }
    for (const int distance : {-128, 0, 128}) {
        slot(1).value_offset = static_cast<uint16_t>(between + distance);
        EXPECT_EQ(problem(), "") << distance;
    }
}

}  // namespace
}  // namespace tiffin::tiffinfs
