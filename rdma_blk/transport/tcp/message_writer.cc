// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "fs/vfs/host.h"
#include "rdma_blk/transport/tcp/framing.h"

namespace tiffin::rdma_blk {

Result<std::unique_ptr<MessageWriter>> MessageWriter::create(size_t message_capacity) {
    if (message_capacity == 0) {
        return Error::einval;
    }
    std::unique_ptr<Message[]> messages(new (std::nothrow) Message[message_capacity]);
    if (!messages) {
        return Error::enomem;
    }
    std::unique_ptr<MessageWriter> made(new (std::nothrow)
                                            MessageWriter(std::move(messages), message_capacity));
    if (!made) {
        return Error::enomem;
    }
    return made;
}

void MessageWriter::reset() {
    while (sent_ != added_) {
        finish_first();
    }
    added_ = sent_ = handed_bytes_ = 0;
    position_ = 0;
    seal_ = nullptr;
    seals_requests_ = false;
    staged_start_ = staged_end_ = 0;
}

Result<void> MessageWriter::set_seal(Seal* seal, bool seals_requests) {
    if (seal != nullptr && staging_ == nullptr) {
        staging_.reset(new (std::nothrow) unsigned char[kStagingBytes]);
        if (staging_ == nullptr) {
            return Error::enomem;
        }
    }
    seal_ = seal;
    seals_requests_ = seals_requests;
    return {};
}

void MessageWriter::add_message(wire::MessageType type, ByteSpan fixed, const vfs::IoVector* pieces,
                                size_t piece_count, vfs::IoVector single) {
    TIFFIN_ASSERT(!full());
    Message& added = message(added_);
    added.pieces = pieces;
    added.piece_count = piece_count;
    added.single = single;
    added.payload_bytes = pieces == nullptr ? single.size_bytes : 0;
    for (size_t i = 0; pieces != nullptr && i < piece_count; i++) {
        added.payload_bytes += pieces[i].size_bytes;
    }
    const bool by_session =
        type == wire::MessageType::request || type == wire::MessageType::response;
    const uint16_t flags = by_session && seals_requests_ ? wire::message_flag::sealed : 0;
    const wire::MessageHeader header = wire::make_header(type, flags, fixed, added.payload_bytes);
    added.sealed = wire::is_sealed(header);
    added.is_request = type == wire::MessageType::request;
    TIFFIN_ASSERT(!added.sealed || seal_ != nullptr);
    std::memcpy(added.head, &header, sizeof(header));
    std::memcpy(added.head + sizeof(header), fixed.data(), fixed.size());
    added.head_bytes = sizeof(header) + fixed.size();
    added_++;
}

Result<bool> MessageWriter::send(int socket, int flags) {
    while (!empty()) {
        const bool is_staged =
            staged_start_ < staged_end_ || (added_ != sent_ && message(sent_).sealed);
        const bool went =
            is_staged ? TRY(send_staged(socket, flags)) : TRY(send_plain(socket, flags));
        if (!went) {
            return false;
        }
    }
    return true;
}

bool MessageWriter::keep_copy(Message& kept) {
    if (kept.payload_bytes == 0 || kept.copy) {
        return true;
    }
    std::unique_ptr<unsigned char[]> copy(new (std::nothrow) unsigned char[kept.payload_bytes]);
    if (!copy) {
        return false;
    }
    gather(kept, kept.head_bytes, copy.get(), kept.payload_bytes);
    kept.single = vfs::IoVector{copy.get(), kept.payload_bytes};
    kept.pieces = nullptr;
    kept.piece_count = 1;
    kept.copy = std::move(copy);
    return true;
}

bool MessageWriter::let_go_of(uint64_t number) {
    if (number == sent_ && position_ != 0) {
        return keep_copy(message(number));
    }
    message(number) = Message{};  // has no bytes, and keeps its number
    return true;
}

bool MessageWriter::let_go_of_requests() {
    for (uint64_t number = sent_; number != added_; number++) {
        if (message(number).is_request && !let_go_of(number)) {
            return false;  // the first one, so that all are as before
        }
    }
    return true;
}

bool MessageWriter::let_go_of_request(uint16_t slot, uint64_t sequence) {
    for (uint64_t number = sent_; number != added_; number++) {
        const Message& one = message(number);
        if (!one.is_request) {
            continue;
        }
        wire::Request request;
        std::memcpy(&request, one.head + sizeof(wire::MessageHeader), sizeof(request));
        if (request.slot == slot && request.sequence == sequence && !let_go_of(number)) {
            return false;
        }
    }
    return true;
}

void MessageWriter::finish_first() {
    message(sent_).copy.reset();
    sent_++;
}

Result<size_t> MessageWriter::send_vectors(int socket, iovec* vectors, size_t count, int flags) {
    msghdr message{};
    message.msg_iov = vectors;
    message.msg_iovlen = count;
    while (true) {
        system_calls_++;
        const ssize_t sent = sendmsg(socket, &message, flags | MSG_NOSIGNAL);
        if (sent >= 0) {
            handed_bytes_ += static_cast<uint64_t>(sent);
            return static_cast<size_t>(sent);
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return Error::eagain;
        }
        if (errno != EINTR) {
            return errno == EPIPE || errno == ECONNRESET ? Error::enodev : Error::eio;
        }
    }
}

// One call with as much of the messages in clear as its vectors take. False: the socket is full.
Result<bool> MessageWriter::send_plain(int socket, int flags) {
    iovec vectors[kMaxVectors];
    size_t count = 0;
    size_t bytes = 0;
    size_t skip = position_;
    const auto append = [&](void* data, size_t size) {
        const size_t skipped = std::min(skip, size);
        skip -= skipped;
        if (size > skipped) {
            vectors[count++] = {static_cast<unsigned char*>(data) + skipped, size - skipped};
            bytes += size - skipped;
        }
    };
    for (uint64_t number = sent_; number != added_ && count < kMaxVectors; number++) {
        Message& next = message(number);
        if (next.sealed) {
            break;
        }
        append(next.head, next.head_bytes);
        const vfs::IoVector* pieces = next.pieces == nullptr ? &next.single : next.pieces;
        for (size_t i = 0; i < next.piece_count && count < kMaxVectors; i++) {
            append(pieces[i].data, pieces[i].size_bytes);
        }
    }
    auto sent = send_vectors(socket, vectors, count, flags);
    if (!sent.ok()) {
        return sent.error() == Error::eagain ? Result<bool>(false) : Result<bool>(sent.error());
    }
    advance_plain(*sent);
    return *sent == bytes || (flags & MSG_DONTWAIT) == 0;
}

void MessageWriter::advance_plain(size_t sent_bytes) {
    position_ += sent_bytes;
    while (sent_ != added_) {
        const Message& first = message(sent_);
        const size_t whole = first.head_bytes + first.payload_bytes;
        if (first.sealed || position_ < whole) {
            return;
        }
        position_ -= whole;
        finish_first();
    }
}

Result<bool> MessageWriter::send_staged(int socket, int flags) {
    if (staged_start_ == staged_end_) {
        staged_start_ = staged_end_ = 0;
        TRY(stage_sealed());
    }
    iovec vector{staging_.get() + staged_start_, staged_end_ - staged_start_};
    auto sent = send_vectors(socket, &vector, 1, flags);
    if (!sent.ok()) {
        return sent.error() == Error::eagain ? Result<bool>(false) : Result<bool>(sent.error());
    }
    staged_start_ += *sent;
    return staged_start_ == staged_end_ || (flags & MSG_DONTWAIT) == 0;
}

// Seals as many chunks as the staging memory takes. A message whose last chunk is in there is done with.
Result<void> MessageWriter::stage_sealed() {
    while (sent_ != added_ && message(sent_).sealed) {
        Message& source = message(sent_);
        wire::MessageHeader header;
        std::memcpy(&header, source.head, sizeof(header));
        const size_t body_bytes = source.head_bytes - sizeof(header) + source.payload_bytes;
        const size_t plain = std::min<size_t>(body_bytes - position_, wire::kSealedChunkBytes);
        if (staged_end_ + sizeof(header) + plain + wire::kSealTagBytes > kStagingBytes) {
            return {};
        }
        const bool is_first = position_ == 0;
        if (is_first) {
            std::memcpy(staging_.get() + staged_end_, &header, sizeof(header));
            staged_end_ += sizeof(header);
        }
        unsigned char* chunk = staging_.get() + staged_end_;
        gather(source, sizeof(header) + position_, chunk, plain);
        TRY(seal_->seal(MutableByteSpan(chunk, plain), is_first ? &header : nullptr,
                        chunk + plain));
        staged_end_ += plain + wire::kSealTagBytes;
        position_ += plain;
        if (position_ == body_bytes) {
            position_ = 0;
            finish_first();
        }
    }
    return {};
}

// Copies bytes of head and payload, taken as one.
void MessageWriter::gather(Message& source, size_t offset, unsigned char* destination,
                           size_t count) {
    const auto copy = [&](const void* data, size_t size) {
        const size_t skipped = std::min(offset, size);
        offset -= skipped;
        const size_t part = std::min(size - skipped, count);
        if (part > 0) {
            std::memcpy(destination, static_cast<const unsigned char*>(data) + skipped, part);
            destination += part;
            count -= part;
        }
    };
    copy(source.head, source.head_bytes);
    const vfs::IoVector* pieces = source.pieces == nullptr ? &source.single : source.pieces;
    for (size_t i = 0; i < source.piece_count && count > 0; i++) {
        copy(pieces[i].data, pieces[i].size_bytes);
    }
    TIFFIN_ASSERT(count == 0);
}

}  // namespace tiffin::rdma_blk
