// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The proofs and keys of the handshake, each as one function; for handshake_client.cc and
// handshake_server.cc only. docs/remote-format.md has the table.
#pragma once

#include <cstdint>

#include "fs/vfs/result.h"
#include "rdma_blk/session/handshake.h"

namespace tiffin::rdma_blk {

struct HandshakeKeys {
    Secret<32> server_proof;  // k_1
    Secret<32> client_proof;  // k_2
    TrafficKeys traffic;      // k_3 to k_9
};

void make_key_pair(Secret<32>& private_key, unsigned char public_key[wire::kPublicKeyBytes]);

void make_hello_proof(const Secret<kVolumeKeyBytes>& key, wire::ClientHello hello,
                      unsigned char proof[wire::kProofBytes]);

// H: both hellos, the server's with its proof as zero.
void make_transcript(const wire::ClientHello& client, wire::ServerHello server,
                     unsigned char transcript[32]);

// Errors: eacces (a public key that makes the shared secret zero).
Result<void> derive_keys(const Secret<kVolumeKeyBytes>& key, const Secret<32>& private_key,
                         const unsigned char peer_public_key[wire::kPublicKeyBytes],
                         const unsigned char transcript[32], HandshakeKeys& keys);

// Of one direction of one path: its ends chose these numbers for it, each its own, by chance.
void derive_path_key(const Secret<kSealKeyBytes>& key, uint32_t receiver_connection_id,
                     uint32_t sender_connection_id, Secret<kSealKeyBytes>& path_key);

void make_server_proof(const Secret<32>& proof_key, const unsigned char transcript[32],
                       unsigned char proof[wire::kProofBytes]);
void make_client_proof(const Secret<32>& proof_key, const unsigned char transcript[32],
                       const unsigned char client_uuid[16], unsigned char proof[wire::kProofBytes]);

// Of the connection that joins, with the secret of the one that opened the incarnation.
void make_join_proof(const Secret<kSealKeyBytes>& session_secret,
                     const Secret<kSealKeyBytes>& joining_secret, const wire::PathJoin& join,
                     unsigned char proof[wire::kProofBytes]);

// See HandshakeServer::owner().
void derive_reader_owner(const unsigned char client_uuid[16], unsigned char owner[16]);

// Compares in a time that does not depend on where they differ.
bool proofs_equal(const unsigned char left[32], const unsigned char right[32]);

}  // namespace tiffin::rdma_blk
