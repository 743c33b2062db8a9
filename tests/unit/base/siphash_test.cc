// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/base/siphash.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tiffin {
namespace {

std::vector<uint8_t> counting_bytes(size_t count) {
    std::vector<uint8_t> bytes(count);
    for (size_t i = 0; i < count; ++i) {
        bytes[i] = static_cast<uint8_t>(i);
    }
    return bytes;
}

// Appendix A of the paper: key 00 01 .. 0f, message 00 01 .. 0e.
TEST(SipHash, GivesTheValueOfThePaper) {
    const std::vector<uint8_t> key = counting_bytes(16);
    const std::vector<uint8_t> message = counting_bytes(15);
    EXPECT_EQ(siphash24(key.data(), message.data(), message.size()), 0xa129ca6149be45e5U);
}

// From vectors.h of the authors' implementation: the same key, messages of 0 to 15 bytes.
TEST(SipHash, GivesTheAuthorsVectors) {
    const uint64_t expected[] = {
        0x726fdb47dd0e0e31, 0x74f839c593dc67fd, 0x0d6c8009d9a94f5a, 0x85676696d7fb7e2d,
        0xcf2794e0277187b7, 0x18765564cd99a68d, 0xcbc9466e58fee3ce, 0xab0200f58b01d137,
        0x93f5f5799a932462, 0x9e0082df0ba9e4b0, 0x7a5dbbc594ddb9f3, 0xf4b32f46226bada7,
        0x751e8fbc860ee5fb, 0x14ea5627c0843d90, 0xf723ca908e7af2ee, 0xa129ca6149be45e5,
    };
    const std::vector<uint8_t> key = counting_bytes(16);
    for (size_t size = 0; size < std::size(expected); ++size) {
        const std::vector<uint8_t> message = counting_bytes(size);
        EXPECT_EQ(siphash24(key.data(), message.data(), size), expected[size]) << size << " bytes";
    }
}

TEST(SipHash, DoesNotDependOnAlignment) {
    const std::vector<uint8_t> key = counting_bytes(16);
    const std::string text = "an entry of a directory";
    const uint64_t expected = siphash24(key.data(), text.data(), text.size());
    for (size_t shift = 1; shift < 8; ++shift) {
        const std::string shifted = std::string(shift, 'x') + text;
        EXPECT_EQ(siphash24(key.data(), shifted.data() + shift, text.size()), expected);
    }
}

TEST(SipHash, DependsOnEveryBitOfTheKey) {
    std::vector<uint8_t> key = counting_bytes(16);
    const uint64_t original = siphash24(key.data(), "name", 4);
    for (size_t bit = 0; bit < 128; ++bit) {
        key[bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
        EXPECT_NE(siphash24(key.data(), "name", 4), original) << "bit " << bit;
        key[bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
    }
}

}  // namespace
}  // namespace tiffin
