// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/sdr/reliability/erasure_code.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <vector>

#include "tests/unit/rdma_blk/sdr/bytes.h"

namespace tiffin::rdma_blk::sdr {
namespace {

struct CodedGroup {
    CodedGroup(SchemeKind code_kind, const GroupShape& group, size_t chunk_size, uint64_t seed)
        : kind(code_kind), shape(group), chunk_bytes(chunk_size) {
        for (uint32_t index = 0; index < shape.data_chunks; index++) {
            data.push_back(some_bytes(chunk_bytes, seed + index));
        }
        parity.resize(shape.parity_chunks, std::vector<unsigned char>(chunk_bytes));
    }
    template <typename Chunks>
    static std::vector<unsigned char*> pointers(Chunks& chunks) {
        std::vector<unsigned char*> all;
        for (auto& chunk : chunks) {
            all.push_back(chunk.data());
        }
        return all;
    }
    void encode(ErasureCode& code) {
        code.encode(kind, shape, chunk_bytes, pointers(data).data(), pointers(parity).data());
    }
    // Loses what `lost` says (data first, then parity); true when all data came back.
    bool survives(ErasureCode& code, const std::vector<bool>& lost) {
        GroupState state;
        auto damaged = data;
        auto damaged_parity = parity;
        uint64_t missing = 0;
        for (uint32_t index = 0; index < shape.data_chunks + shape.parity_chunks; index++) {
            const bool is_data = index < shape.data_chunks;
            const uint32_t place = is_data ? index : index - shape.data_chunks;
            if (lost[index]) {
                auto& chunk = is_data ? damaged[place] : damaged_parity[place];
                std::fill(chunk.begin(), chunk.end(), 0xdd);
                missing |= is_data ? uint64_t{1} << place : 0;
            } else if (is_data) {
                state.data |= uint64_t{1} << place;
            } else {
                state.parity |= 1U << place;
            }
        }
        const uint64_t wanted = restorable_chunks(kind, shape, state);
        EXPECT_EQ(wanted & ~missing, 0U);
        if (wanted != 0) {
            code.decode(kind, shape, chunk_bytes, state, wanted, pointers(damaged).data(),
                        pointers(damaged_parity).data());
        }
        for (uint32_t index = 0; index < shape.data_chunks; index++) {
            if ((wanted >> index & 1) != 0 || (state.data >> index & 1) != 0) {
                EXPECT_EQ(damaged[index], data[index]) << index;
            }
        }
        return wanted == missing;
    }
    SchemeKind kind;
    GroupShape shape;
    size_t chunk_bytes;
    std::vector<std::vector<unsigned char>> data;
    std::vector<std::vector<unsigned char>> parity;
};

TEST(ErasureCode, MdsRestoresFromAnyChunksThatAreEnough) {
    ErasureCode code;
    ASSERT_TRUE(code.allocate().ok());
    std::mt19937_64 random(1);
    for (int round = 0; round < 1000; round++) {
        GroupShape shape;
        shape.data_chunks = 1 + static_cast<uint32_t>(random() % kMaxDataChunks);
        shape.parity_chunks = 1 + static_cast<uint32_t>(random() % kMaxParityChunks);
        const uint32_t all = shape.data_chunks + shape.parity_chunks;
        CodedGroup group(SchemeKind::erasure_mds, shape, 1 + random() % 200, random());
        group.encode(code);
        std::vector<bool> lost(all, false);
        for (uint32_t count = 0; count < shape.parity_chunks;) {
            const size_t victim = random() % all;
            count += lost[victim] ? 0 : 1;
            lost[victim] = true;
        }
        EXPECT_TRUE(group.survives(code, lost));
    }
}

TEST(ErasureCode, MdsKnowsWhenItIsTooMuch) {
    ErasureCode code;
    ASSERT_TRUE(code.allocate().ok());
    CodedGroup group(SchemeKind::erasure_mds, {0, 32, 8}, 64, 1);
    group.encode(code);
    std::vector<bool> lost(40, false);
    std::fill(lost.begin(), lost.begin() + 9, true);
    EXPECT_FALSE(group.survives(code, lost));
    std::fill(lost.begin(), lost.begin() + 5, false);
    std::fill(lost.begin() + 32, lost.begin() + 36, true);  // 4 data, 4 parity
    EXPECT_TRUE(group.survives(code, lost));
}

// Every pattern of a small code, both kinds, beside what counting says.
TEST(ErasureCode, EveryPatternOfASmallCode) {
    ErasureCode code;
    ASSERT_TRUE(code.allocate().ok());
    const GroupShape shape{0, 7, 3};
    for (const SchemeKind kind : {SchemeKind::erasure_mds, SchemeKind::erasure_xor}) {
        CodedGroup group(kind, shape, 33, 5);
        group.encode(code);
        for (uint32_t pattern = 0; pattern < 1024; pattern++) {
            std::vector<bool> lost(10);
            bool expected = true;
            uint32_t data_lost = 0;
            uint32_t class_lost[3] = {0, 0, 0};
            for (uint32_t index = 0; index < 10; index++) {
                lost[index] = (pattern >> index & 1) != 0;
                data_lost += lost[index] && index < 7 ? 1 : 0;
                class_lost[index < 7 ? index % 3 : index - 7] += lost[index] ? 1 : 0;
            }
            if (kind == SchemeKind::erasure_mds) {
                expected = data_lost == 0 || std::popcount(pattern) <= 3;
            } else {
                for (uint32_t member = 0; member < 3; member++) {
                    const bool only_parity = class_lost[member] == 1 && lost[7 + member];
                    expected = expected && (class_lost[member] <= 1 || only_parity);
                }
            }
            EXPECT_EQ(group.survives(code, lost), expected) << pattern;
        }
    }
}

TEST(ErasureCode, ShorterGroupsHaveTheirShareOfParity) {
    const SchemeChoice scheme{SchemeKind::erasure_mds, 32, 8};
    EXPECT_EQ(group_count(scheme, 1), 1U);
    EXPECT_EQ(group_count(scheme, 32), 1U);
    EXPECT_EQ(group_count(scheme, 33), 2U);
    EXPECT_EQ(group_shape(scheme, 33, 0).parity_chunks, 8U);
    EXPECT_EQ(group_shape(scheme, 33, 1).first_chunk, 32U);
    EXPECT_EQ(group_shape(scheme, 33, 1).data_chunks, 1U);
    EXPECT_EQ(group_shape(scheme, 33, 1).parity_chunks, 1U);
    EXPECT_EQ(group_shape(scheme, 37, 1).parity_chunks, 2U);
}

}  // namespace
}  // namespace tiffin::rdma_blk::sdr
