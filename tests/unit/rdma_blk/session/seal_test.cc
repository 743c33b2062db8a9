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

// ---- Messages of paths ---------------------------------------------------------------------------------------

constexpr uint32_t kReceiver = 7;
constexpr uint32_t kSender = 9;
constexpr uint32_t kUse = 2;

class MessageSealTest : public SealTest {
  protected:
    static Chunk sealed(MessageSeal& seal, uint64_t number, size_t size_bytes = 100) {
        Chunk message{std::vector<unsigned char>(size_bytes, 0x5a)};
        EXPECT_TRUE(seal.seal(number, kUse, message.span(), message.tag).ok());
        return message;
    }
    static bool opens(const MessageSeal& seal, uint64_t number, uint32_t use, Chunk message) {
        const bool has_opened = seal.open(number, use, message.span(), message.tag).ok();
        EXPECT_TRUE(!has_opened ||
                    message.bytes == std::vector<unsigned char>(message.bytes.size(), 0x5a));
        return has_opened;
    }
    MessageSeal seal_{key_, kReceiver, kSender};
};

TEST_F(MessageSealTest, OpensWhatWasSealedInAnyOrder) {
    const MessageSeal receiver(key_, kReceiver, kSender);
    const Chunk first = sealed(seal_, 3, 1);
    const Chunk second = sealed(seal_, 4, size_t{1} << 20);
    EXPECT_NE(second.bytes, std::vector<unsigned char>(size_t{1} << 20, 0x5a));
    EXPECT_TRUE(opens(receiver, 4, kUse, second));
    EXPECT_TRUE(opens(receiver, 3, kUse, first));
}

TEST_F(MessageSealTest, RefusesAnotherNumberUsePathAndWhatWasChanged) {
    const MessageSeal receiver(key_, kReceiver, kSender);
    const Chunk message = sealed(seal_, 5);
    EXPECT_FALSE(opens(receiver, 6, kUse, message));
    EXPECT_FALSE(opens(receiver, 5, kUse + 1, message));
    EXPECT_FALSE(opens(MessageSeal(key_, kSender, kReceiver), 5, kUse, message));
    EXPECT_FALSE(opens(MessageSeal(key_, kReceiver, kSender + 1), 5, kUse, message));
    Chunk changed = message;
    changed.bytes[99] ^= 1;
    EXPECT_FALSE(opens(receiver, 5, kUse, changed));
    changed = message;
    changed.bytes.pop_back();
    EXPECT_FALSE(opens(receiver, 5, kUse, changed));
    EXPECT_TRUE(opens(receiver, 5, kUse, message));
}

// Two messages under one nonce would tell their difference.
TEST_F(MessageSealTest, NoNumberIsUsedTwice) {
    (void)sealed(seal_, 8);
    Chunk again{std::vector<unsigned char>(4, 0x5a)};
    EXPECT_EQ(seal_.seal(8, kUse, again.span(), again.tag).error(), Error::eproto);
    EXPECT_EQ(seal_.seal(7, kUse, again.span(), again.tag).error(), Error::eproto);
    EXPECT_EQ(again.bytes, std::vector<unsigned char>(4, 0x5a));
    EXPECT_TRUE(seal_.seal(9, kUse, again.span(), again.tag).ok());
}

}  // namespace
}  // namespace tiffin::rdma_blk
