// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/session/seal.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace tiffin::rdma_blk {
namespace {

struct Chunk {
    std::vector<unsigned char> bytes;
    unsigned char tag[wire::kSealTagBytes] = {};
    MutableByteSpan span() { return {bytes.data(), bytes.size()}; }
};

Chunk sealed(Seal& seal, size_t size_bytes, const wire::MessageHeader* header) {
    Chunk chunk{std::vector<unsigned char>(size_bytes, 0x5a)};
    EXPECT_TRUE(seal.seal(chunk.span(), header, chunk.tag).ok());
    return chunk;
}

class SealTest : public ::testing::Test {
  protected:
    void SetUp() override { ASSERT_TRUE(initialize_cryptography().ok()); }
    Secret<kSealKeyBytes> key_;
    wire::MessageHeader header_{wire::kMessageMagic, 1, 64, 1, 100, 0};
};

TEST_F(SealTest, OpensWhatWasSealedInItsOrder) {
    Seal sender(key_);
    Seal receiver(key_);
    for (const size_t size : {size_t{1}, size_t{100}, size_t{wire::kSealedChunkBytes}}) {
        const wire::MessageHeader* header = size == 100 ? nullptr : &header_;
        Chunk chunk = sealed(sender, size, header);
        EXPECT_NE(chunk.bytes, std::vector<unsigned char>(size, 0x5a));
        ASSERT_TRUE(receiver.open(chunk.span(), header, chunk.tag).ok());
        EXPECT_EQ(chunk.bytes, std::vector<unsigned char>(size, 0x5a));
    }
}

TEST_F(SealTest, RefusesWhatWasChangedRepeatedOrSwapped) {
    Seal sender(key_);
    const Chunk first = sealed(sender, 64, &header_);
    const Chunk second = sealed(sender, 64, &header_);
    Chunk changed = first;
    changed.bytes[63] ^= 1;
    EXPECT_FALSE(Seal(key_).open(changed.span(), &header_, changed.tag).ok());
    changed = first;
    changed.tag[0] ^= 1;
    EXPECT_FALSE(Seal(key_).open(changed.span(), &header_, changed.tag).ok());
    changed = first;
    wire::MessageHeader other = header_;
    other.type ^= 1;
    EXPECT_FALSE(Seal(key_).open(changed.span(), &other, changed.tag).ok());
    changed = second;
    EXPECT_FALSE(Seal(key_).open(changed.span(), &header_, changed.tag).ok()) << "out of order";
    Seal receiver(key_);
    changed = first;
    ASSERT_TRUE(receiver.open(changed.span(), &header_, changed.tag).ok());
    changed = first;
    EXPECT_FALSE(receiver.open(changed.span(), &header_, changed.tag).ok()) << "twice";
    Secret<kSealKeyBytes> other_key;
    other_key.bytes[0] = 1;
    changed = first;
    EXPECT_FALSE(Seal(other_key).open(changed.span(), &header_, changed.tag).ok());
}

}  // namespace
}  // namespace tiffin::rdma_blk
