// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The right to use a volume: the handshake at the start of each connection, before anything else. Both sides
// prove that they know the volume's key, without telling it, and agree on keys of their own that cannot be
// computed later. docs/remote.md, "Authentication", says why; docs/remote-format.md what is in the proofs.
//
//     client                                    server
//     hello()                      ─────────▶   read_hello(): retry
//     read_retry()                 ◀─────────
//     hello(), with the cookie     ─────────▶   read_hello(): accepted, with its answer
//     read_server_hello()          ◀─────────
//     ... gives the proof          ─────────▶   read_client_proof()
//     keys()                                    keys()
//
// Messages are the fixed parts of rdma_blk/wire/format.h, parsed. No input or output, no clock; random
// bytes come from host::random_bytes(). Any failure ends the connection; eacces: the other side does not know
// the key (or the volume: a server does not say which).
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/vfs/result.h"
#include "fs/vfs/span.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk {

inline constexpr size_t kVolumeKeyBytes = 32;
inline constexpr size_t kSealKeyBytes = 32;

// Once for each process, before anything else here. Errors: eio.
Result<void> initialize_cryptography();

// Bytes that are wiped when they are no longer needed.
template <size_t N>
struct Secret {
    unsigned char bytes[N] = {};

    Secret() = default;
    Secret(const Secret&) = default;
    Secret& operator=(const Secret&) = default;
    ~Secret();
};

// The right to read a volume, and nothing else: who has it cannot compute the volume's key.
void derive_reader_key(const Secret<kVolumeKeyBytes>& key, Secret<kVolumeKeyBytes>& reader_key);

// What both sides have in the end.
struct TrafficKeys {
    Secret<kSealKeyBytes> seal_to_server;
    Secret<kSealKeyBytes> seal_to_client;
    Secret<kSealKeyBytes> tag_to_server;  // of datagrams
    Secret<kSealKeyBytes> tag_to_client;
    Secret<kSealKeyBytes> path_to_server;  // from which MessageSeal makes its own
    Secret<kSealKeyBytes> path_to_client;
    Secret<kSealKeyBytes>
        session_secret;  // proves that a joining client belongs to the session that this connection opened
    bool encrypts = false;  // hello_flag::encrypt was agreed on
};

// Cookies show that the sender from an address can receive there as well, without keeping anything. One
// for each server process; any threads.
class CookieJar {
  public:
    static constexpr uint64_t kPeriodNs = 30'000'000'000;

    CookieJar();  // with a random secret

    // `peer_address`: any bytes that name the peer, at most 64.
    void make(uint64_t now_ns, ByteSpan peer_address, const wire::ClientHello& hello,
              unsigned char cookie[wire::kCookieBytes]) const;
    // Cookies of this period and the one before are accepted.
    bool check(uint64_t now_ns, ByteSpan peer_address, const wire::ClientHello& hello) const;

  private:
    Secret<32> secret_;
};

class HandshakeClient {
  public:
    // `flags`: hello_flag wanted; with reader, `key` is a reader key. Preconditions: the name has 1 to wire::kMaxVolumeNameBytes bytes;
    // initialize_cryptography() has been called.
    HandshakeClient(const unsigned char key[kVolumeKeyBytes], const char* volume_name,
                    const unsigned char client_uuid[16], uint16_t flags,
                    uint8_t highest_version = wire::kHighestVersion);

    // The first message, and after read_retry() the second one of the same type.
    wire::ClientHello hello() const { return hello_; }
    // Errors: eproto (a second retry).
    Result<void> read_retry(const wire::HelloRetry& retry);
    // Checks the server's proof; the result is the last message. Errors: eacces, eproto.
    Result<wire::ClientProof> read_server_hello(const wire::ServerHello& server);

    // Valid after read_server_hello().
    const TrafficKeys& keys() const { return keys_; }
    const unsigned char* server_uuid() const { return server_uuid_; }
    uint16_t flags() const { return flags_; }
    uint8_t version() const { return version_; }  // of the protocol

  private:
    enum class State : uint8_t { first, second, done, failed };

    Secret<kVolumeKeyBytes> key_;
    Secret<32> private_key_;
    wire::ClientHello hello_{};
    unsigned char client_uuid_[16];
    unsigned char server_uuid_[16] = {};
    uint16_t flags_ = 0;
    uint8_t version_ = 0;
    State state_ = State::first;
    TrafficKeys keys_;
};

enum class HelloAnswer : uint8_t { retry, accepted };

// The keys of a server's volumes. A name that does not exist: false.
class VolumeKeys {
  public:
    virtual bool find_key(const char* volume_name, Secret<kVolumeKeyBytes>& key) const = 0;

  protected:
    ~VolumeKeys() = default;
};

// One for each connection; before a hello with a good cookie it holds nothing but its place.
class HandshakeServer {
  public:
    // `flags`: hello_flag that this server can do; `required`: those that a client must ask for.
    HandshakeServer(const CookieJar& cookies, const VolumeKeys& volumes,
                    const unsigned char server_uuid[16], uint16_t flags, uint16_t required,
                    uint8_t highest_version = wire::kHighestVersion);

    // retry: send `retry`; it may be sent without keeping this object. accepted: send `server`.
    // Errors: eacces (unknown volume, wrong key), eproto (no common version, a required flag is missing,
    // not the time for a hello).
    Result<HelloAnswer> read_hello(uint64_t now_ns, ByteSpan peer_address,
                                   const wire::ClientHello& hello, wire::HelloRetry& retry,
                                   wire::ServerHello& server);
    // Errors: eacces, eproto.
    Result<void> read_client_proof(const wire::ClientProof& proof);

    // Valid after read_client_proof().
    bool done() const { return state_ == State::done; }
    const TrafficKeys& keys() const { return keys_; }
    const char* volume_name() const { return volume_name_; }
    const unsigned char* client_uuid() const { return client_uuid_; }
    // By which sessions are found again. A reader's differs from that of each client that has the volume's key, whatever
    // client_uuid() it names, so that it cannot take over such a client's session.
    const unsigned char* owner() const { return owner_; }
    bool is_reader() const { return (flags_ & wire::hello_flag::reader) != 0; }
    uint16_t flags() const { return flags_; }
    uint8_t version() const { return version_; }  // of the protocol

  private:
    enum class State : uint8_t { waiting, answered, done, failed };

    Result<HelloAnswer> answer_hello(const wire::ClientHello& hello, wire::ServerHello& server);

    const CookieJar& cookies_;
    const VolumeKeys& volumes_;
    unsigned char server_uuid_[16];
    uint16_t offered_;
    uint16_t required_;
    uint8_t highest_version_;
    uint8_t version_ = 0;
    uint16_t flags_ = 0;
    State state_ = State::waiting;
    char volume_name_[wire::kMaxVolumeNameBytes + 1] = {};
    unsigned char client_uuid_[16] = {};
    unsigned char owner_[16] = {};
    unsigned char transcript_[32] = {};
    Secret<32> client_proof_key_;
    TrafficKeys keys_;
};

}  // namespace tiffin::rdma_blk
