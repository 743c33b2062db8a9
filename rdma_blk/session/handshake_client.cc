// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include <cstring>

#include "fs/vfs/host.h"
#include "rdma_blk/session/handshake.h"
#include "rdma_blk/session/key_schedule.h"

namespace tiffin::rdma_blk {

HandshakeClient::HandshakeClient(const unsigned char key[kVolumeKeyBytes], const char* volume_name,
                                 const unsigned char client_uuid[16], uint16_t flags,
                                 uint8_t highest_version) {
    const size_t name_bytes = std::strlen(volume_name);
    TIFFIN_ASSERT(name_bytes > 0 && name_bytes <= wire::kMaxVolumeNameBytes);
    std::memcpy(key_.bytes, key, sizeof(key_.bytes));
    std::memcpy(client_uuid_, client_uuid, sizeof(client_uuid_));
    hello_.lowest_version = wire::kLowestVersion;
    hello_.highest_version = highest_version;
    hello_.flags = flags;
    std::memcpy(hello_.volume_name, volume_name, name_bytes);
    make_key_pair(private_key_, hello_.public_key);
}

Result<void> HandshakeClient::read_retry(const wire::HelloRetry& retry) {
    if (state_ != State::first) {
        return Error::eproto;
    }
    state_ = State::second;
    std::memcpy(hello_.cookie, retry.cookie, sizeof(hello_.cookie));
    make_hello_proof(key_, hello_, hello_.proof);
    return {};
}

Result<wire::ClientProof> HandshakeClient::read_server_hello(const wire::ServerHello& server) {
    if (state_ != State::second) {
        return Error::eproto;
    }
    state_ = State::failed;
    if (server.version < hello_.lowest_version || server.version > hello_.highest_version) {
        return Error::eproto;
    }
    unsigned char transcript[32];
    make_transcript(hello_, server, transcript);
    HandshakeKeys keys;
    TRY(derive_keys(key_, private_key_, server.public_key, transcript, keys));
    unsigned char expected[wire::kProofBytes];
    make_server_proof(keys.server_proof, transcript, expected);
    if (!proofs_equal(expected, server.proof)) {
        return Error::eacces;
    }
    // What was asked for and is not granted must not be missed: sealing is no wish.
    if ((hello_.flags & ~server.flags) != 0) {
        return Error::eproto;
    }
    wire::ClientProof proof{};
    std::memcpy(proof.client_uuid, client_uuid_, sizeof(proof.client_uuid));
    make_client_proof(keys.client_proof, transcript, client_uuid_, proof.proof);
    keys_ = keys.traffic;
    version_ = server.version;
    flags_ = server.flags;
    keys_.encrypts = (flags_ & wire::hello_flag::encrypt) != 0;
    std::memcpy(server_uuid_, server.server_uuid, sizeof(server_uuid_));
    private_key_ = Secret<32>();
    state_ = State::done;
    return proof;
}

}  // namespace tiffin::rdma_blk
