// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "fs/vfs/host.h"
#include "rdma_blk/transport/tcp/framing.h"

namespace tiffin::rdma_blk {
namespace {

constexpr size_t kMaxVectors = 64;
constexpr size_t kSealedChunk = wire::kSealedChunkBytes + wire::kSealTagBytes;

bool is_request_or_response(const wire::MessageHeader& header) {
    return header.type == static_cast<uint8_t>(wire::MessageType::request) ||
           header.type == static_cast<uint8_t>(wire::MessageType::response);
}

}  // namespace

Result<std::unique_ptr<MessageReader>> MessageReader::create(size_t buffer_bytes) {
    if (buffer_bytes < kMinBufferBytes) {
        return Error::einval;
    }
    std::unique_ptr<unsigned char[]> buffer(new (std::nothrow) unsigned char[buffer_bytes]);
    if (!buffer) {
        return Error::enomem;
    }
    std::unique_ptr<MessageReader> made(new (std::nothrow)
                                            MessageReader(std::move(buffer), buffer_bytes));
    if (!made) {
        return Error::enomem;
    }
    return made;
}

void MessageReader::reset() {
    start_ = end_ = 0;
    state_ = State::header;
    drained_ = false;
    seal_ = nullptr;
    seals_requests_ = false;
    payload_bytes_ = payload_left_ = body_left_ = chunk_left_ = 0;
}

void MessageReader::set_seal(Seal* seal, bool seals_requests) {
    seal_ = seal;
    seals_requests_ = seals_requests;
}

Result<MessageReader::Event> MessageReader::next() {
    switch (state_) {
        case State::header:
            return read_header();
        case State::fixed:
            return read_fixed();
        case State::placing:
            break;  // the caller has forgotten the payload
        case State::payload:
            return read_payload();
    }
    TIFFIN_ASSERT(state_ != State::placing);
    return Error::eproto;
}

// A peer may neither leave out the seal that was agreed on nor use one that was not.
bool MessageReader::is_sealing_right() const {
    if (is_request_or_response(header_)) {
        return seal_ != nullptr && wire::is_sealed(header_) == seals_requests_;
    }
    return !wire::is_sealed(header_) || seal_ != nullptr;
}

Result<MessageReader::Event> MessageReader::read_header() {
    if (buffered_bytes() < sizeof(wire::MessageHeader)) {
        return Event::need_bytes;
    }
    header_ = TRY(wire::parse_header(ByteSpan(buffer_.get() + start_, buffered_bytes())));
    if (!is_sealing_right()) {
        return Error::eproto;
    }
    start_ += sizeof(wire::MessageHeader);
    payload_bytes_ = payload_left_ = wire::payload_bytes(header_);
    body_left_ = wire::is_sealed(header_) ? header_.body_bytes : 0;
    chunk_left_ = 0;
    state_ = State::fixed;
    return read_fixed();
}

// Opens the next chunk when it is there in whole. False: not yet.
Result<bool> MessageReader::open_chunk() {
    const size_t bytes = std::min(body_left_, kSealedChunk);
    if (buffered_bytes() < bytes) {
        return false;
    }
    const size_t plain = bytes - wire::kSealTagBytes;
    unsigned char* chunk = buffer_.get() + start_;
    const bool is_first = body_left_ == header_.body_bytes;
    TRY(seal_->open(MutableByteSpan(chunk, plain), is_first ? &header_ : nullptr, chunk + plain));
    body_left_ -= bytes;
    chunk_left_ = plain;
    return true;
}

// What can be used now.
size_t MessageReader::plain_bytes() const {
    return wire::is_sealed(header_) ? chunk_left_ : buffered_bytes();
}

void MessageReader::consume(size_t count) {
    start_ += count;
    if (wire::is_sealed(header_)) {
        chunk_left_ -= count;
        if (chunk_left_ == 0) {
            start_ += wire::kSealTagBytes;
        }
    }
}

Result<MessageReader::Event> MessageReader::read_fixed() {
    if (wire::is_sealed(header_) && chunk_left_ == 0 && !TRY(open_chunk())) {
        return Event::need_bytes;
    }
    const size_t fixed_bytes = wire::fixed_part_bytes(header_);
    if (plain_bytes() < fixed_bytes) {
        return wire::is_sealed(header_) ? Result<Event>(Error::eproto)
                                        : Result<Event>(Event::need_bytes);
    }
    fixed_ = ByteSpan(buffer_.get() + start_, fixed_bytes);
    consume(fixed_bytes);
    state_ = payload_bytes_ > 0 ? State::placing : State::header;
    return Event::message;
}

void MessageReader::place_payload(const vfs::IoVector* pieces, size_t count) {
    TIFFIN_ASSERT(state_ == State::placing);
    pieces_ = pieces;
    piece_count_ = count;
    piece_offset_ = 0;
    skips_ = false;
    state_ = State::payload;
}

void MessageReader::place_payload(MutableByteSpan place) {
    single_ = vfs::IoVector{place.data(), place.size()};
    place_payload(&single_, 1);
}

void MessageReader::skip_payload() {
    place_payload(nullptr, 0);
    skips_ = true;
}

void MessageReader::skip_rest() {
    TIFFIN_ASSERT(state_ == State::payload);
    skips_ = true;
}

void MessageReader::scatter(const unsigned char* data, size_t count) {
    while (count > 0) {
        TIFFIN_ASSERT(piece_count_ > 0);
        const size_t room = pieces_->size_bytes - piece_offset_;
        const size_t part = std::min(room, count);
        if (part > 0 && data != nullptr) {
            std::memcpy(static_cast<unsigned char*>(pieces_->data) + piece_offset_, data, part);
            data += part;
        }
        count -= part;
        piece_offset_ += part;
        if (piece_offset_ == pieces_->size_bytes) {
            pieces_++;
            piece_count_--;
            piece_offset_ = 0;
        }
    }
}

Result<MessageReader::Event> MessageReader::read_payload() {
    while (payload_left_ > 0) {
        if (wire::is_sealed(header_) && chunk_left_ == 0 && !TRY(open_chunk())) {
            return Event::need_bytes;
        }
        const size_t part = std::min(plain_bytes(), payload_left_);
        if (part == 0) {
            return Event::need_bytes;
        }
        if (!skips_) {
            scatter(buffer_.get() + start_, part);
            copied_bytes_ += part;
        }
        payload_left_ -= part;
        consume(part);
    }
    state_ = State::header;
    return Event::payload;
}

bool MessageReader::peek_request(wire::Request& request) const {
    wire::MessageHeader next;
    if (state_ != State::header || buffered_bytes() < sizeof(next) + sizeof(request)) {
        return false;
    }
    std::memcpy(&next, buffer_.get() + start_, sizeof(next));
    if (next.type != static_cast<uint8_t>(wire::MessageType::request) || wire::is_sealed(next)) {
        return false;
    }
    std::memcpy(&request, buffer_.get() + start_ + sizeof(next), sizeof(request));
    return true;
}

// Moves what is left to the front when a whole chunk, or a header with its fixed part, would not fit behind.
void MessageReader::make_room() {
    if (start_ == end_) {
        start_ = end_ = 0;
    } else if (size_ - start_ < kMinBufferBytes) {
        TIFFIN_ASSERT(chunk_left_ == 0);  // next() uses what is open before it asks for more
        std::memmove(buffer_.get(), buffer_.get() + start_, end_ - start_);
        end_ -= start_;
        start_ = 0;
    }
}

ssize_t MessageReader::receive_some(int socket, msghdr& message, int flags) {
    if (descriptors_ == nullptr) {
        return recvmsg(socket, &message, flags);
    }
    alignas(cmsghdr) char control[CMSG_SPACE(ReceivedDescriptors::kCapacity * sizeof(int))];
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t received = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
    if (received < 0) {
        return received;
    }
    for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
         head = CMSG_NXTHDR(&message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        for (size_t offset = CMSG_LEN(0); offset + sizeof(int) <= head->cmsg_len;
             offset += sizeof(int)) {
            int descriptor = -1;
            std::memcpy(&descriptor, reinterpret_cast<const char*>(head) + offset,
                        sizeof(descriptor));
            descriptors_->add(descriptor);
        }
    }
    return received;
}

Result<size_t> MessageReader::receive(int socket, int flags) {
    make_room();
    TIFFIN_ASSERT(end_ < size_);  // next() was not called until it asked for more
    iovec vectors[kMaxVectors];
    size_t count = 0;
    size_t direct_bytes = 0;
    // What goes straight to its place: sealed payloads must be opened first, and what is in the buffer
    // comes before.
    if (state_ == State::payload && !skips_ && !wire::is_sealed(header_) && start_ == end_) {
        size_t offset = piece_offset_;
        for (size_t i = 0; i < piece_count_ && count < kMaxVectors - 1; i++) {
            vectors[count].iov_base = static_cast<unsigned char*>(pieces_[i].data) + offset;
            vectors[count].iov_len = pieces_[i].size_bytes - offset;
            direct_bytes += vectors[count++].iov_len;
            offset = 0;
        }
    }
    // The buffer takes what follows, when nothing of the payload is missing before it.
    const bool uses_buffer = direct_bytes == 0 || direct_bytes == payload_left_;
    if (uses_buffer) {
        vectors[count++] = {buffer_.get() + end_, size_ - end_};
    }
    msghdr message{};
    message.msg_iov = vectors;
    message.msg_iovlen = count;
    const ssize_t received = receive_some(socket, message, flags);
    if (received <= 0) {
        drained_ = true;
        if (received == 0) {
            return Error::enodev;
        }
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? Error::eagain
                                                                         : Error::eio;
    }
    const auto bytes = static_cast<size_t>(received);
    drained_ = bytes < direct_bytes + (uses_buffer ? size_ - end_ : 0);
    const size_t direct = std::min(bytes, direct_bytes);
    scatter(nullptr, direct);
    payload_left_ -= direct;
    end_ += bytes - direct;
    return bytes;
}

}  // namespace tiffin::rdma_blk
