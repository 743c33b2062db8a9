// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a connection has to send: messages, sealed when they must be, in one buffer. Payloads are copied, as the
// memory they come from goes on changing; a read's checksum is that of the copy. Not for several threads.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fs/vfs/result.h"
#include "fs/vfs/span.h"
#include "rdma_blk/server/counters.h"
#include "rdma_blk/server/unique_descriptor.h"
#include "rdma_blk/session/seal.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk {

class OutputQueue {
  public:
    OutputQueue() = default;
    ~OutputQueue();
    OutputQueue(const OutputQueue&) = delete;
    OutputQueue& operator=(const OutputQueue&) = delete;

    // After the handshake; as MessageWriter's.
    void set_seal(Seal* seal, bool seals_requests) {
        seal_ = seal;
        seals_requests_ = seals_requests;
    }

    // Errors: enomem, eproto (the seal is used up): the connection must end.
    template <typename T>
    Result<void> add(wire::MessageType type, const T& fixed, ByteSpan payload = ByteSpan()) {
        return add_message(
            type, ByteSpan(reinterpret_cast<const unsigned char*>(&fixed), sizeof(T)), payload);
    }
    // Sets the response's checksum when there is a payload.
    Result<void> add_response(wire::Response response, ByteSpan payload);

    size_t queued_bytes() const { return end_ - start_; }
    bool empty() const { return start_ == end_; }
    // Descriptors that go with what is sent next, so at the latest with what was added next. For Unix sockets.
    // Errors: eagain (those before are still here).
    Result<void> attach(std::vector<UniqueDescriptor> descriptors);

    // Without blocking, as much as the socket takes; `calls` counts system calls. True: all. Errors: eio,
    // enodev.
    Result<bool> send(int socket, Counter& calls);
    // Gives the memory back when nothing is queued.
    void trim();
    // Forgets what is queued, too.
    void clear();

  private:
    // A message that is being built behind what is queued.
    struct Frame {
        unsigned char* begin = nullptr;
        size_t plain_bytes = 0;
        size_t total_bytes = 0;
        bool sealed = false;
    };

    Result<Frame> begin_message(wire::MessageType type, size_t fixed_bytes, size_t payload_bytes);
    void put_payload(const Frame& frame, size_t fixed_bytes, ByteSpan payload);
    Result<void> finish_message(const Frame& frame, wire::MessageType type, ByteSpan fixed,
                                size_t payload_bytes);
    Result<void> add_message(wire::MessageType type, ByteSpan fixed, ByteSpan payload);
    static unsigned char* place_of(const Frame& frame, size_t plain_offset);
    static size_t piece_at(const Frame& frame, size_t plain_offset, size_t left);
    Result<void> make_room(size_t size_bytes);
    ssize_t send_some(int socket);

    unsigned char* buffer_ = nullptr;
    size_t capacity_ = 0;
    size_t start_ = 0;
    size_t end_ = 0;
    Seal* seal_ = nullptr;
    bool seals_requests_ = false;
    std::vector<UniqueDescriptor> attached_;
};

}  // namespace tiffin::rdma_blk
