// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/session/key_schedule.h"

#include <sodium.h>

#include <cstring>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk {

static_assert(crypto_scalarmult_BYTES == wire::kPublicKeyBytes);
static_assert(crypto_auth_BYTES == wire::kProofBytes && crypto_auth_KEYBYTES == 32);
static_assert(crypto_kdf_KEYBYTES == 32);

namespace {

constexpr char kHelloLabel[] = "tiffin hello 1";
constexpr char kReaderLabel[] = "tiffin reader 1";
constexpr char kReaderOwnerLabel[] = "tiffin reader owner 1";
constexpr char kMasterLabel[] = "tiffin master 1";
constexpr char kPathLabel[] = "tiffin path 1";
constexpr char kJoinLabel[] = "tiffin join 1";
constexpr char kKeyContext[] = "tiffinrm";
static_assert(sizeof(kKeyContext) - 1 == crypto_kdf_CONTEXTBYTES);

// BLAKE2b over pieces. The functions of libsodium used here fail for sizes that are not theirs only.
class Hash {
  public:
    explicit Hash(const unsigned char* key = nullptr) {
        crypto_generichash_init(&state_, key, key == nullptr ? 0 : 32, 32);
    }
    ~Hash() { sodium_memzero(&state_, sizeof(state_)); }
    Hash(const Hash&) = delete;
    Hash& operator=(const Hash&) = delete;

    void add(const void* data, size_t size_bytes) {
        crypto_generichash_update(&state_, static_cast<const unsigned char*>(data), size_bytes);
    }
    void finish(unsigned char result[32]) { crypto_generichash_final(&state_, result, 32); }

  private:
    crypto_generichash_state state_;
};

}  // namespace

Result<void> initialize_cryptography() {
    if (sodium_init() < 0) {
        return Error::eio;
    }
    return {};
}

template <size_t N>
Secret<N>::~Secret() {
    sodium_memzero(bytes, N);
}
template struct Secret<32>;

void derive_reader_key(const Secret<kVolumeKeyBytes>& key, Secret<kVolumeKeyBytes>& reader_key) {
    Hash hash(key.bytes);
    hash.add(kReaderLabel, sizeof(kReaderLabel) - 1);
    hash.finish(reader_key.bytes);
}

void derive_reader_owner(const unsigned char client_uuid[16], unsigned char owner[16]) {
    unsigned char digest[32];
    Hash hash;
    hash.add(kReaderOwnerLabel, sizeof(kReaderOwnerLabel) - 1);
    hash.add(client_uuid, 16);
    hash.finish(digest);
    std::memcpy(owner, digest, 16);
}

void make_key_pair(Secret<32>& private_key, unsigned char public_key[wire::kPublicKeyBytes]) {
    host::random_bytes(private_key.bytes, sizeof(private_key.bytes));
    crypto_scalarmult_base(public_key, private_key.bytes);
}

void make_hello_proof(const Secret<kVolumeKeyBytes>& key, wire::ClientHello hello,
                      unsigned char proof[wire::kProofBytes]) {
    Secret<32> hello_key;
    Hash hash(key.bytes);
    hash.add(kHelloLabel, sizeof(kHelloLabel) - 1);
    hash.finish(hello_key.bytes);
    std::memset(hello.proof, 0, sizeof(hello.proof));
    crypto_auth(proof, reinterpret_cast<const unsigned char*>(&hello), sizeof(hello),
                hello_key.bytes);
}

void make_transcript(const wire::ClientHello& client, wire::ServerHello server,
                     unsigned char transcript[32]) {
    std::memset(server.proof, 0, sizeof(server.proof));
    Hash hash;
    hash.add(&client, sizeof(client));
    hash.add(&server, sizeof(server));
    hash.finish(transcript);
}

Result<void> derive_keys(const Secret<kVolumeKeyBytes>& key, const Secret<32>& private_key,
                         const unsigned char peer_public_key[wire::kPublicKeyBytes],
                         const unsigned char transcript[32], HandshakeKeys& keys) {
    Secret<32> shared;
    if (crypto_scalarmult(shared.bytes, private_key.bytes, peer_public_key) != 0) {
        return Error::eacces;
    }
    Secret<32> master;
    Hash hash(key.bytes);
    hash.add(kMasterLabel, sizeof(kMasterLabel) - 1);
    hash.add(shared.bytes, sizeof(shared.bytes));
    hash.add(transcript, 32);
    hash.finish(master.bytes);
    Secret<32>* const derived[] = {
        &keys.server_proof,           &keys.client_proof,           &keys.traffic.seal_to_server,
        &keys.traffic.seal_to_client, &keys.traffic.tag_to_server,  &keys.traffic.tag_to_client,
        &keys.traffic.path_to_server, &keys.traffic.path_to_client, &keys.traffic.session_secret};
    uint64_t number = 1;
    for (Secret<32>* one : derived) {
        crypto_kdf_derive_from_key(one->bytes, sizeof(one->bytes), number++, kKeyContext,
                                   master.bytes);
    }
    return {};
}

void derive_path_key(const Secret<kSealKeyBytes>& key, uint32_t receiver_connection_id,
                     uint32_t sender_connection_id, Secret<kSealKeyBytes>& path_key) {
    const uint32_t ids[] = {receiver_connection_id, sender_connection_id};
    Hash hash(key.bytes);
    hash.add(kPathLabel, sizeof(kPathLabel) - 1);
    hash.add(ids, sizeof(ids));
    hash.finish(path_key.bytes);
}

void make_server_proof(const Secret<32>& proof_key, const unsigned char transcript[32],
                       unsigned char proof[wire::kProofBytes]) {
    crypto_auth(proof, transcript, 32, proof_key.bytes);
}

void make_client_proof(const Secret<32>& proof_key, const unsigned char transcript[32],
                       const unsigned char client_uuid[16],
                       unsigned char proof[wire::kProofBytes]) {
    unsigned char proved[48];
    std::memcpy(proved, transcript, 32);
    std::memcpy(proved + 32, client_uuid, 16);
    crypto_auth(proof, proved, sizeof(proved), proof_key.bytes);
}

void make_join_proof(const Secret<kSealKeyBytes>& session_secret,
                     const Secret<kSealKeyBytes>& joining_secret, const wire::PathJoin& join,
                     unsigned char proof[wire::kProofBytes]) {
    Secret<32> proved;
    Hash hash(joining_secret.bytes);
    hash.add(kJoinLabel, sizeof(kJoinLabel) - 1);
    hash.add(&join.session_id, sizeof(join.session_id));
    hash.add(&join.incarnation, sizeof(join.incarnation));
    hash.add(&join.path_id, sizeof(join.path_id));
    hash.finish(proved.bytes);
    crypto_auth(proof, proved.bytes, sizeof(proved.bytes), session_secret.bytes);
}

bool proofs_equal(const unsigned char left[32], const unsigned char right[32]) {
    return sodium_memcmp(left, right, 32) == 0;
}

// ---- Cookies -----------------------------------------------------------------------------------------

namespace {

void make_period_cookie(const unsigned char secret[32], uint64_t period, ByteSpan peer_address,
                        const wire::ClientHello& hello, unsigned char cookie[wire::kCookieBytes]) {
    Hash hash(secret);
    const uint64_t sizes[] = {period, peer_address.size()};
    hash.add(sizes, sizeof(sizes));
    hash.add(peer_address.data(), peer_address.size());
    hash.add(hello.public_key, sizeof(hello.public_key));
    hash.add(hello.volume_name, sizeof(hello.volume_name));
    hash.finish(cookie);
}

}  // namespace

CookieJar::CookieJar() { host::random_bytes(secret_.bytes, sizeof(secret_.bytes)); }

void CookieJar::make(uint64_t now_ns, ByteSpan peer_address, const wire::ClientHello& hello,
                     unsigned char cookie[wire::kCookieBytes]) const {
    make_period_cookie(secret_.bytes, now_ns / kPeriodNs, peer_address, hello, cookie);
}

bool CookieJar::check(uint64_t now_ns, ByteSpan peer_address,
                      const wire::ClientHello& hello) const {
    const uint64_t period = now_ns / kPeriodNs;
    for (uint64_t back = 0; back <= 1 && back <= period; back++) {
        unsigned char cookie[wire::kCookieBytes];
        make_period_cookie(secret_.bytes, period - back, peer_address, hello, cookie);
        if (proofs_equal(cookie, hello.cookie)) {
            return true;
        }
    }
    return false;
}

}  // namespace tiffin::rdma_blk
