// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Messages on a stream socket, for both ends: reading them one after the other with payloads put where the
// reader says, and writing many of them with one system call. Sealed bodies are opened and sealed on the
// way. Works on sockets that block and on those that do not.
//
// Receiving:
//     while (true) {
//         switch (TRY(reader.next())) {
//             case need_bytes: TRY(reader.receive(socket, MSG_DONTWAIT)); break;   // or blocking
//             case message:    look at reader.header(), reader.fixed_part(); if reader.payload_bytes() is
//                              not 0: reader.place_payload(...) or reader.skip_payload();
//                              break;
//             case payload:    it is in place, in whole; comes only for payloads that are not empty
//         }
//     }
//
// Sending:
//     writer.add(MessageType::request, request, pieces, count);   // as often as there is room
//     bool all_sent = TRY(writer.send(socket, MSG_DONTWAIT));     // false: again when POLLOUT says so
//
// After any error but eagain the connection must end. Each object for one thread at a time; one thread may
// read while another one writes. Nothing is allocated after create() and set_seal().
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fs/vfs/result.h"
#include "fs/vfs/span.h"
#include "rdma_blk/session/seal.h"
#include "rdma_blk/transport/one_sided.h"
#include "rdma_blk/wire/format.h"
#include "rdma_blk/wire/parse.h"

namespace tiffin::rdma_blk {

class MessageReader {
  public:
    static constexpr size_t kDefaultBufferBytes = size_t{64} * 1024;
    static constexpr size_t kMinBufferBytes = size_t{32} * 1024;

    enum class Event : uint8_t { need_bytes, message, payload };

    // Errors: einval (too small a buffer), enomem.
    static Result<std::unique_ptr<MessageReader>> create(size_t buffer_bytes = kDefaultBufferBytes);

    // For a new connection: forgets everything, the seal included.
    void reset();
    // After the handshake: sealed bodies are opened with `seal`, which must live as long as the
    // connection. `seals_requests`: requests and responses must be sealed, too; otherwise they must not be.
    // Until then every sealed message, and every request and response, is eproto.
    void set_seal(Seal* seal, bool seals_requests);

    // Descriptors that come with messages go there, from now on; nullptr: there can be none.
    void set_descriptors(ReceivedDescriptors* descriptors) { descriptors_ = descriptors; }

    // The next step on what was received. Errors: eproto, eacces (a seal is broken).
    Result<Event> next();
    // One system call: puts what there is into the buffer, or a payload straight to its place. `flags` as
    // for recv(). Returns the number of bytes. Errors: eagain (would block, or SO_RCVTIMEO passed),
    // enodev (the peer has closed), eio.
    Result<size_t> receive(int socket, int flags);
    // Whether receive() has got all that was there when it last looked, as far as can be told: asking again at
    // once is not worth a system call.
    bool drained() const { return drained_; }

    // The present message. The fixed part is valid until the following next() or receive().
    const wire::MessageHeader& header() const { return header_; }
    wire::MessageType type() const { return static_cast<wire::MessageType>(header_.type); }
    ByteSpan fixed_part() const { return fixed_; }
    size_t payload_bytes() const { return payload_bytes_; }

    // Where the payload goes. The list and what it names stay until `payload` comes. Precondition: the
    // pieces have payload_bytes() in total.
    void place_payload(const vfs::IoVector* pieces, size_t count);
    void place_payload(MutableByteSpan place);
    void skip_payload();
    // What has not come yet of a payload that has a place goes nowhere: the place is the caller's again.
    void skip_rest();

    // Whether a request in clear follows the present message, which is there in whole, and its fixed part is in the buffer
    // already. Nothing of it has been checked: good for guessing what will be needed.
    bool peek_request(wire::Request& request) const;

    // Bytes of payloads that went through the buffer.
    uint64_t copied_bytes() const { return copied_bytes_; }

  private:
    enum class State : uint8_t { header, fixed, placing, payload };

    explicit MessageReader(std::unique_ptr<unsigned char[]> buffer, size_t size)
        : buffer_(std::move(buffer)), size_(size) {}

    Result<Event> read_header();
    Result<Event> read_fixed();
    Result<Event> read_payload();
    Result<bool> open_chunk();
    bool is_sealing_right() const;
    size_t buffered_bytes() const { return end_ - start_; }
    size_t plain_bytes() const;
    void consume(size_t count);
    void scatter(const unsigned char* data, size_t count);
    void make_room();
    ssize_t receive_some(int socket, msghdr& message, int flags);

    std::unique_ptr<unsigned char[]> buffer_;
    size_t size_;
    size_t start_ = 0;  // of what was received and not used yet
    size_t end_ = 0;
    State state_ = State::header;
    bool skips_ = false;
    bool drained_ = false;
    bool seals_requests_ = false;
    Seal* seal_ = nullptr;
    ReceivedDescriptors* descriptors_ = nullptr;
    wire::MessageHeader header_{};
    ByteSpan fixed_;
    size_t payload_bytes_ = 0;
    size_t payload_left_ = 0;
    size_t body_left_ = 0;   // sealed: of the body, tags included, that was not opened
    size_t chunk_left_ = 0;  // sealed: opened bytes from start_ on; the tag follows
    vfs::IoVector single_{};
    const vfs::IoVector* pieces_ = nullptr;  // the one that is being filled, up to piece_offset_
    size_t piece_count_ = 0;
    size_t piece_offset_ = 0;
    uint64_t copied_bytes_ = 0;
};

class MessageWriter {
  public:
    static constexpr size_t kStagingBytes = size_t{64} * 1024;

    // Room for that many messages, at least 1. Errors: einval, enomem.
    static Result<std::unique_ptr<MessageWriter>> create(size_t message_capacity);

    void reset();
    // As for the reader. Errors: enomem.
    Result<void> set_seal(Seal* seal, bool seals_requests);

    bool full() const { return added_ - sent_ == capacity_; }
    bool empty() const { return added_ == sent_ && staged_start_ == staged_end_; }

    // Appends a message. The payload (the list of pieces, too) stays the caller's and unchanged until
    // sent_count() has reached the added_count() of right after this call. Precondition: not full().
    template <typename T>
    void add(wire::MessageType type, const T& fixed, const vfs::IoVector* pieces = nullptr,
             size_t piece_count = 0) {
        add_message(type, ByteSpan(reinterpret_cast<const unsigned char*>(&fixed), sizeof(T)),
                    pieces, piece_count, vfs::IoVector{});
    }
    template <typename T>
    void add(wire::MessageType type, const T& fixed, ByteSpan payload) {
        add_message(type, ByteSpan(reinterpret_cast<const unsigned char*>(&fixed), sizeof(T)),
                    nullptr, payload.empty() ? 0 : 1,
                    vfs::IoVector{const_cast<unsigned char*>(payload.data()), payload.size()});
    }

    // With a copy of the payload. False: there is no memory for that.
    template <typename T>
    [[nodiscard]] bool add_copy(wire::MessageType type, const T& fixed, ByteSpan payload) {
        add(type, fixed, payload);
        return keep_copy(message(added_ - 1));
    }

    // Messages added, and those of which the caller's memory is not needed any more, since creation
    // or reset().
    uint64_t added_count() const { return added_; }
    uint64_t sent_count() const { return sent_; }

    // The memory of requests is not needed any more: those that were not begun are not sent, and the rest of one that was
    // begun is copied. False: there is no memory for that, and nothing has changed.
    bool let_go_of_requests();
    // The same for one request: it has been answered, whatever of it waits here.
    bool let_go_of_request(uint16_t slot, uint64_t sequence);

    // Hands over to the socket as much as it takes. `flags` as for send(); MSG_NOSIGNAL is added. True:
    // everything; false: the socket would block. Errors: eio, enodev (the peer has closed), eproto.
    Result<bool> send(int socket, int flags);

    uint64_t system_calls() const { return system_calls_; }
    // Of the stream, since reset(): what the socket has taken, and the rest of the messages that sent_count() counts.
    uint64_t taken_bytes() const { return handed_bytes_ + (staged_end_ - staged_start_); }

  private:
    static constexpr size_t kMaxVectors = 128;
    struct Message {
        unsigned char head[sizeof(wire::MessageHeader) + wire::kMaxFixedPartBytes];
        size_t head_bytes;
        size_t payload_bytes;
        vfs::IoVector single;         // used when pieces is nullptr
        const vfs::IoVector* pieces;  // piece_count of them
        size_t piece_count;
        bool sealed;
        bool is_request;
        std::unique_ptr<unsigned char[]> copy;  // of the payload, in place of the caller's memory
    };

    MessageWriter(std::unique_ptr<Message[]> messages, size_t capacity)
        : messages_(std::move(messages)), capacity_(capacity) {}

    void add_message(wire::MessageType type, ByteSpan fixed, const vfs::IoVector* pieces,
                     size_t piece_count, vfs::IoVector single);
    Message& message(uint64_t number) { return messages_[number % capacity_]; }
    Result<bool> send_plain(int socket, int flags);
    Result<bool> send_staged(int socket, int flags);
    Result<void> stage_sealed();
    Result<size_t> send_vectors(int socket, iovec* vectors, size_t count, int flags);
    void advance_plain(size_t sent_bytes);
    bool keep_copy(Message& kept);
    bool let_go_of(uint64_t number);
    void finish_first();
    void gather(Message& source, size_t offset, unsigned char* destination, size_t count);

    std::unique_ptr<Message[]> messages_;  // a ring
    size_t capacity_;
    uint64_t added_ = 0;
    uint64_t sent_ = 0;
    size_t position_ = 0;  // in the message sent_: bytes that are gone, of head and payload
    Seal* seal_ = nullptr;
    bool seals_requests_ = false;
    std::unique_ptr<unsigned char[]> staging_;  // sealed bytes on their way
    size_t staged_start_ = 0;
    size_t staged_end_ = 0;
    uint64_t system_calls_ = 0;
    uint64_t handed_bytes_ = 0;
};

}  // namespace tiffin::rdma_blk
