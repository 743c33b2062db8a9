// SPDX-License-Identifier: MIT OR GPL-2.0-only
// SipHash-2-4, as in the paper's section 2.
#include "fs/base/siphash.h"

#include <bit>

namespace tiffin {
namespace {

static_assert(std::endian::native == std::endian::little, "words are loaded as they lie in memory");

struct State {
    uint64_t v0;
    uint64_t v1;
    uint64_t v2;
    uint64_t v3;

    void round() {
        v0 += v1;
        v2 += v3;
        v1 = std::rotl(v1, 13) ^ v0;
        v3 = std::rotl(v3, 16) ^ v2;
        v0 = std::rotl(v0, 32);
        v2 += v1;
        v0 += v3;
        v1 = std::rotl(v1, 17) ^ v2;
        v3 = std::rotl(v3, 21) ^ v0;
        v2 = std::rotl(v2, 32);
    }

    // Two rounds for each word of the message: the 2 of SipHash-2-4.
    void compress(uint64_t word) {
        v3 ^= word;
        round();
        round();
        v0 ^= word;
    }
};

uint64_t load_word(const unsigned char* bytes) {
    uint64_t word;
    __builtin_memcpy(&word, bytes, sizeof(word));
    return word;
}

}  // namespace

uint64_t siphash24(const uint8_t key[16], const void* data, size_t size_bytes) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    const uint64_t key0 = load_word(key);
    const uint64_t key1 = load_word(key + 8);
    State state{key0 ^ 0x736f6d6570736575, key1 ^ 0x646f72616e646f6d, key0 ^ 0x6c7967656e657261,
                key1 ^ 0x7465646279746573};

    const size_t whole_words_bytes = size_bytes & ~size_t{7};
    for (size_t offset = 0; offset < whole_words_bytes; offset += 8) {
        state.compress(load_word(bytes + offset));
    }
    // The last word: the remaining bytes, and the length in the top byte.
    uint64_t last = static_cast<uint64_t>(size_bytes) << 56;
    for (size_t i = whole_words_bytes; i < size_bytes; ++i) {
        last |= static_cast<uint64_t>(bytes[i]) << (8 * (i - whole_words_bytes));
    }
    state.compress(last);

    state.v2 ^= 0xff;
    for (int i = 0; i < 4; ++i) {
        state.round();
    }
    return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

}  // namespace tiffin
