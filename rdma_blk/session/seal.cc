// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/session/seal.h"

#include <sodium.h>

#include <cstring>

#include "fs/vfs/host.h"
#include "rdma_blk/session/key_schedule.h"

namespace tiffin::rdma_blk {

static_assert(crypto_aead_chacha20poly1305_ietf_KEYBYTES == kSealKeyBytes);
static_assert(crypto_aead_chacha20poly1305_ietf_ABYTES == wire::kSealTagBytes);
static_assert(crypto_aead_chacha20poly1305_ietf_NPUBBYTES == 12);

namespace {

void make_nonce(uint64_t number, unsigned char nonce[12]) {
    std::memset(nonce, 0, 4);
    std::memcpy(nonce + 4, &number, sizeof(number));
}

}  // namespace

// ---- On a stream -----------------------------------------------------------------------------------------

Result<void> Seal::next_nonce(unsigned char nonce[12]) {
    if (next_chunk_ >= kMaxChunks) {
        return Error::eproto;
    }
    make_nonce(next_chunk_, nonce);
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

// ---- On a path -------------------------------------------------------------------------------------------

MessageSeal::MessageSeal(const Secret<kSealKeyBytes>& key, uint32_t receiver_connection_id,
                         uint32_t sender_connection_id) {
    derive_path_key(key, receiver_connection_id, sender_connection_id, key_);
}

Result<void> MessageSeal::seal(uint64_t number, uint32_t use, MutableByteSpan message,
                               unsigned char tag[wire::kSealTagBytes]) {
    if (number < next_number_) {
        return Error::eproto;
    }
    next_number_ = number + 1;
    unsigned char nonce[12];
    make_nonce(number, nonce);
    crypto_aead_chacha20poly1305_ietf_encrypt_detached(
        message.data(), tag, nullptr, message.data(), message.size(),
        reinterpret_cast<const unsigned char*>(&use), sizeof(use), nullptr, nonce, key_.bytes);
    return {};
}

Result<void> MessageSeal::open(uint64_t number, uint32_t use, MutableByteSpan message,
                               const unsigned char tag[wire::kSealTagBytes]) const {
    unsigned char nonce[12];
    make_nonce(number, nonce);
    if (crypto_aead_chacha20poly1305_ietf_decrypt_detached(
            message.data(), nullptr, message.data(), message.size(), tag,
            reinterpret_cast<const unsigned char*>(&use), sizeof(use), nonce, key_.bytes) != 0) {
        return Error::eacces;
    }
    return {};
}

}  // namespace tiffin::rdma_blk
