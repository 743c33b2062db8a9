// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/wire/control_area.h"

#include <gtest/gtest.h>

#include <cstring>

namespace tiffin::rdma_blk::wire {
namespace {

ControlHeader header_of(const ControlLayout& layout) {
    ControlHeader header{};
    header.magic = kControlMagic;
    header.version = kControlVersion;
    header.data_bytes = 1 << 20;
    header.control_bytes = layout.control_bytes;
    header.words_offset = layout.words_offset;
    header.words_bytes = layout.words_bytes;
    header.sessions_offset = layout.sessions_offset;
    header.session_count = layout.session_count;
    header.session_stride_bytes = layout.session_stride_bytes;
    header.slot_count = layout.slot_count;
    header.log_entry_count = layout.log_entry_count;
    header.client_offset = layout.client_offset;
    header.write_unit_bytes = 64;
    seal_control_header(header);
    return header;
}

TEST(ControlLayout, PartsOfDifferentWritersLieOnDifferentPages) {
    for (const uint32_t slots : {1U, 63U, 64U, 65U, 1024U}) {
        auto layout = make_control_layout(256, slots, slots, 65536);
        ASSERT_TRUE(layout.ok());
        EXPECT_EQ(layout->words_offset, 2 * kControlPageBytes);
        EXPECT_EQ(layout->sessions_offset % kControlPageBytes, 0U);
        EXPECT_EQ(layout->session_stride_bytes % kControlPageBytes, 0U);
        EXPECT_EQ(layout->client_offset % kControlPageBytes, 0U);
        EXPECT_GE(layout->client_offset, sizeof(SessionRecord) + slots * sizeof(SlotEntry));
        EXPECT_GE(layout->session_stride_bytes,
                  layout->client_offset + sizeof(ClientRecord) + slots * kLogEntryBytes);
        EXPECT_EQ(layout->control_bytes, layout->session_offset(256));
    }
}

TEST(ControlLayout, RefusesCountsOutOfBounds) {
    EXPECT_FALSE(make_control_layout(0, 1, 1, 0).ok());
    EXPECT_FALSE(make_control_layout(kMaxSessions + 1, 1, 1, 0).ok());
    EXPECT_FALSE(make_control_layout(1, 0, 1, 0).ok());
    EXPECT_FALSE(make_control_layout(1, kMaxSlots + 1, 1, 0).ok());
    EXPECT_FALSE(make_control_layout(1, 1, 0, 0).ok());
    EXPECT_FALSE(make_control_layout(1, 1, 1, 100).ok());
    EXPECT_FALSE(make_control_layout(1, 1, 1, ~uint64_t{4095}).ok());
    EXPECT_TRUE(make_control_layout(kMaxSessions, kMaxSlots, kMaxSlots, 0).ok());
}

TEST(ControlHeader, NoticesEveryChangedBit) {
    const ControlLayout layout = make_control_layout(4, 64, 64, 4096).value();
    const ControlHeader good = header_of(layout);
    auto found = check_control_header(good, layout.control_bytes);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found->session_offset(3), layout.session_offset(3));
    EXPECT_FALSE(check_control_header(good, layout.control_bytes - 1).ok());
    for (size_t bit = 0; bit < offsetof(ControlHeader, epoch) * 8; bit++) {
        ControlHeader changed = good;
        reinterpret_cast<unsigned char*>(&changed)[bit / 8] ^=
            static_cast<unsigned char>(1U << (bit % 8));
        EXPECT_FALSE(check_control_header(changed, layout.control_bytes).ok()) << bit;
    }
}

TEST(ControlHeader, RefusesALayoutThatIsNotItsOwn) {
    const ControlLayout layout = make_control_layout(4, 64, 64, 4096).value();
    ControlHeader header = header_of(layout);
    header.client_offset += kControlPageBytes;
    seal_control_header(header);
    EXPECT_FALSE(check_control_header(header, layout.control_bytes).ok());
    header = header_of(layout);
    header.write_unit_bytes = 96;
    seal_control_header(header);
    EXPECT_FALSE(check_control_header(header, layout.control_bytes).ok());
}

}  // namespace
}  // namespace tiffin::rdma_blk::wire
