// SPDX-License-Identifier: MIT OR GPL-2.0-only
// One connection to a memory server, from the handshake on: the socket, its framing and its seals. While a
// session is being opened it is used from one thread, in turns of question and answer; afterwards its owner
// uses reader and writer as they are. Objects are reused for the next connection, so that reconnecting
// needs no memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "rdma_blk/session/handshake.h"
#include "rdma_blk/session/seal.h"
#include "rdma_blk/transport/tcp/framing.h"
#include "rdma_blk/transport/tcp/socket.h"

namespace tiffin::rdma_blk {

class ClientConnection {
  public:
    // `message_capacity`: of the writer. Errors: enomem.
    static Result<std::unique_ptr<ClientConnection>> create(size_t message_capacity);

    // Takes the socket, which must block, and goes through the handshake. Precondition: closed.
    // Errors: eagain (closed before it has said anything), eacces (wrong key, or no such volume), eproto, etimedout, ecanceled, eio, enomem.
    Result<void> open(Socket socket, const OpenOptions& options, uint64_t deadline_ns,
                      Patience& patience, std::string& problem);
    // Forgets the connection with everything on its way. Nothing touches payloads afterwards.
    void close();
    // Lets every call on the socket end, in other threads, too.
    void interrupt();
    bool is_open() const { return socket_.is_open(); }

    int socket() const { return socket_.get(); }
    MessageReader& reader() { return *reader_; }
    MessageWriter& writer() { return *writer_; }
    // What came with messages on a Unix socket.
    ReceivedDescriptors& descriptors() { return descriptors_; }
    const unsigned char* server_uuid() const { return server_uuid_; }
    // Of this connection; for what else belongs to it.
    const TrafficKeys& keys() const { return keys_; }
    uint8_t version() const { return version_; }  // of the protocol
    // The least round trip of the handshake, as the kernel has measured it: without what the processes take. 0: not known.
    uint64_t delay_ns() const { return delay_ns_; }

    // Sends what was added to the writer and waits for the next message; its payload, if any, is not placed
    // yet. Errors: enodev (the peer has closed), and those of open().
    Result<void> exchange(uint64_t deadline_ns, Patience& patience);
    // Receives the rest of that message into `place`, of its payload's size.
    Result<void> receive_payload(MutableByteSpan place, uint64_t deadline_ns, Patience& patience);

  private:
    ClientConnection(std::unique_ptr<MessageReader> reader, std::unique_ptr<MessageWriter> writer)
        : reader_(std::move(reader)), writer_(std::move(writer)) {}

    Result<void> send_all(uint64_t deadline_ns, Patience& patience);
    Result<void> receive_until(MessageReader::Event wanted, uint64_t deadline_ns,
                               Patience& patience);
    Result<void> shake_hands(const OpenOptions& options, uint64_t deadline_ns, Patience& patience,
                             std::string& problem);

    Socket socket_;
    ReceivedDescriptors descriptors_;
    std::unique_ptr<MessageReader> reader_;
    std::unique_ptr<MessageWriter> writer_;
    std::optional<Seal> seal_out_;
    std::optional<Seal> seal_in_;
    unsigned char server_uuid_[16] = {};
    TrafficKeys keys_;
    uint8_t version_ = 0;
    uint64_t delay_ns_ = 0;
};

}  // namespace tiffin::rdma_blk
