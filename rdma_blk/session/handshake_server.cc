// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include <algorithm>
#include <cstring>

#include "rdma_blk/session/handshake.h"
#include "rdma_blk/session/key_schedule.h"

namespace tiffin::rdma_blk {

HandshakeServer::HandshakeServer(const CookieJar& cookies, const VolumeKeys& volumes,
                                 const unsigned char server_uuid[16], uint16_t flags,
                                 uint16_t required, uint8_t highest_version)
    : cookies_(cookies),
      volumes_(volumes),
      offered_(flags),
      required_(required),
      highest_version_(highest_version) {
    std::memcpy(server_uuid_, server_uuid, sizeof(server_uuid_));
}

Result<HelloAnswer> HandshakeServer::read_hello(uint64_t now_ns, ByteSpan peer_address,
                                                const wire::ClientHello& hello,
                                                wire::HelloRetry& retry,
                                                wire::ServerHello& server) {
    if (state_ != State::waiting) {
        return Error::eproto;
    }
    if (!cookies_.check(now_ns, peer_address, hello)) {
        cookies_.make(now_ns, peer_address, hello, retry.cookie);
        return HelloAnswer::retry;
    }
    state_ = State::failed;
    return answer_hello(hello, server);
}

Result<HelloAnswer> HandshakeServer::answer_hello(const wire::ClientHello& hello,
                                                  wire::ServerHello& server) {
    Secret<kVolumeKeyBytes> key;
    // With a key of zeros for a name that does not exist, both cases take the same way and time.
    const bool exists = volumes_.find_key(hello.volume_name, key);
    if ((hello.flags & wire::hello_flag::reader) != 0) {
        Secret<kVolumeKeyBytes> reader_key;
        derive_reader_key(key, reader_key);
        key = reader_key;
    }
    unsigned char expected[wire::kProofBytes];
    make_hello_proof(key, hello, expected);
    if (!proofs_equal(expected, hello.proof) || !exists) {
        return Error::eacces;
    }
    if (hello.lowest_version > highest_version_ || hello.highest_version < wire::kLowestVersion ||
        (required_ & ~hello.flags) != 0) {
        return Error::eproto;
    }
    server = wire::ServerHello{};
    version_ = std::min(hello.highest_version, highest_version_);
    server.version = version_;
    server.flags = hello.flags & offered_;
    std::memcpy(server.server_uuid, server_uuid_, sizeof(server.server_uuid));
    Secret<32> private_key;
    make_key_pair(private_key, server.public_key);
    make_transcript(hello, server, transcript_);
    HandshakeKeys keys;
    TRY(derive_keys(key, private_key, hello.public_key, transcript_, keys));
    make_server_proof(keys.server_proof, transcript_, server.proof);
    client_proof_key_ = keys.client_proof;
    keys_ = keys.traffic;
    flags_ = server.flags;
    keys_.encrypts = (flags_ & wire::hello_flag::encrypt) != 0;
    std::memcpy(volume_name_, hello.volume_name, sizeof(volume_name_));
    state_ = State::answered;
    return HelloAnswer::accepted;
}

Result<void> HandshakeServer::read_client_proof(const wire::ClientProof& proof) {
    if (state_ != State::answered) {
        return Error::eproto;
    }
    state_ = State::failed;
    unsigned char expected[wire::kProofBytes];
    make_client_proof(client_proof_key_, transcript_, proof.client_uuid, expected);
    if (!proofs_equal(expected, proof.proof)) {
        return Error::eacces;
    }
    std::memcpy(client_uuid_, proof.client_uuid, sizeof(client_uuid_));
    std::memcpy(owner_, client_uuid_, sizeof(owner_));
    if (is_reader()) {
        derive_reader_owner(client_uuid_, owner_);
    }
    state_ = State::done;
    return {};
}

}  // namespace tiffin::rdma_blk
