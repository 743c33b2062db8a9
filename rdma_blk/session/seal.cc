// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/session/seal.h"

#include <sodium.h>

#include <cstring>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk {

static_assert(crypto_aead_chacha20poly1305_ietf_KEYBYTES == kSealKeyBytes);
static_assert(crypto_aead_chacha20poly1305_ietf_ABYTES == wire::kSealTagBytes);
static_assert(crypto_aead_chacha20poly1305_ietf_NPUBBYTES == 12);

Result<void> Seal::next_nonce(unsigned char nonce[12]) {
    if (next_chunk_ >= kMaxChunks) {
        return Error::eproto;
    }
    std::memset(nonce, 0, 4);
    std::memcpy(nonce + 4, &next_chunk_, sizeof(next_chunk_));
    next_chunk_++;
    return {};
}

Result<void> Seal::seal(MutableByteSpan chunk, const wire::MessageHeader* header,
                        unsigned char tag[wire::kSealTagBytes]) {
    TIFFIN_ASSERT(!chunk.empty() && chunk.size() <= wire::kSealedChunkBytes);
    unsigned char nonce[12];
    TRY(next_nonce(nonce));
    crypto_aead_chacha20poly1305_ietf_encrypt_detached(
        chunk.data(), tag, nullptr, chunk.data(), chunk.size(),
        reinterpret_cast<const unsigned char*>(header), header == nullptr ? 0 : sizeof(*header),
        nullptr, nonce, key_.bytes);
    return {};
}

Result<void> Seal::open(MutableByteSpan chunk, const wire::MessageHeader* header,
                        const unsigned char tag[wire::kSealTagBytes]) {
    TIFFIN_ASSERT(!chunk.empty() && chunk.size() <= wire::kSealedChunkBytes);
    unsigned char nonce[12];
    TRY(next_nonce(nonce));
    if (crypto_aead_chacha20poly1305_ietf_decrypt_detached(
            chunk.data(), nullptr, chunk.data(), chunk.size(), tag,
            reinterpret_cast<const unsigned char*>(header), header == nullptr ? 0 : sizeof(*header),
            nonce, key_.bytes) != 0) {
        return Error::eacces;
    }
    return {};
}

}  // namespace tiffin::rdma_blk
