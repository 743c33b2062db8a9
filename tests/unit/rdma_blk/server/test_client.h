// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A client that says what it is told to, right or wrong: one blocking connection to a server of this process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rdma_blk/remote_memory.h"
#include "rdma_blk/server/unique_descriptor.h"
#include "rdma_blk/session/handshake.h"
#include "rdma_blk/transport/tcp/framing.h"

namespace tiffin::rdma_blk {

class TestClient {
  public:
    // A message that came.
    struct Message {
        wire::MessageType type{};
        wire::MessageHeader header{};
        std::vector<unsigned char> fixed;
        std::vector<unsigned char> payload;
    };

    explicit TestClient(uint16_t port, unsigned char number = 1);

    bool connected() const { return socket_.valid(); }
    int socket() const { return socket_.get(); }
    // Errors: those of HandshakeClient; enodev when the server closes.
    Result<void> handshake(const Secret<kVolumeKeyBytes>& key, const char* volume_name,
                           bool encrypt = false, uint8_t version = wire::kHighestVersion);
    // Its last step, for a test that does the others itself.
    Result<void> finish_handshake(const HandshakeClient& client, const wire::ClientProof& proof);
    // A new session, or (with a session id) the next incarnation of one. False: refused, see refused().
    bool open(wire::SessionMode mode, bool force = false);
    bool resume(const TestClient& earlier, const std::vector<wire::OutstandingEntry>& entries = {});
    // With the proof that `prover` could make; nullptr: `first`, whose session it is.
    bool join(const TestClient& first, uint16_t path_id, const TestClient* prover = nullptr);
    // Asks for what has become of these; false: no answer, or refused.
    bool recover(uint16_t path_id, uint8_t flags,
                 const std::vector<wire::OutstandingEntry>& entries);

    const wire::SessionOpened& opened() const { return opened_; }
    const wire::SessionRefused& refused() const { return refused_; }
    const std::vector<unsigned char>& outcomes() const { return outcomes_; }

    wire::Request make_request(OperationKind kind, uint64_t offset_bytes, uint32_t length_bytes,
                               uint16_t slot = 0);
    // Errors: enodev when the server has closed.
    Result<void> send_request(const wire::Request& request, const std::string& payload = "");
    template <typename T>
    Result<void> send(wire::MessageType type, const T& fixed,
                      const std::vector<unsigned char>& payload = {}) {
        writer_->add(type, fixed, ByteSpan(payload.data(), payload.size()));
        const Result<bool> sent = writer_->send(socket_.get(), 0);
        return sent.ok() ? Result<void>() : sent.error();
    }
    // As they are.
    bool send_bytes(const void* bytes, size_t size);
    // The next message, or (probes are answered unseen) enodev when the server has closed.
    Result<Message> receive();
    // The next response; notices are remembered.
    Result<wire::Response> response(std::string* data = nullptr);
    wire::Response call(const wire::Request& request, const std::string& payload = "",
                        std::string* data = nullptr);
    wire::Response write(uint64_t offset_bytes, const std::string& text, uint16_t slot = 0);
    std::string read(uint64_t offset_bytes, uint32_t length_bytes, uint16_t slot = 0);
    int last_notice() const { return last_notice_; }
    void close() { socket_.reset(); }
    // receive() gives up (etimedout) after this long.
    void set_patience(int seconds);

    unsigned char uuid[16] = {};
    uint64_t next_sequence = 1;
    TrafficKeys keys;     // of the handshake
    uint8_t version = 0;  // likewise
    bool answers_probes = true;
    bool has_reader_key = false;                      // the key of handshake()
    std::vector<wire::Response> recovered_responses;  // that came with the answer of recover()

  private:
    bool take_open_answer();

    UniqueDescriptor socket_;
    std::unique_ptr<MessageReader> reader_;
    std::unique_ptr<MessageWriter> writer_;
    std::unique_ptr<Seal> send_seal_;
    std::unique_ptr<Seal> receive_seal_;
    wire::SessionOpened opened_{};
    wire::SessionRefused refused_{};
    std::vector<unsigned char> outcomes_;
    int last_notice_ = 0;
};

}  // namespace tiffin::rdma_blk
