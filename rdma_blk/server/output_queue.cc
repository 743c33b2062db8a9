// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/output_queue.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "fs/vfs/host.h"
#include "rdma_blk/wire/parse.h"

namespace tiffin::rdma_blk {
namespace {

constexpr size_t kLeastCapacity = size_t{16} * 1024;
constexpr size_t kMostGrowth = size_t{1} << 20;
constexpr size_t kMostAttached = 4;
constexpr size_t kChecksumPieceBytes = size_t{16} * 1024;
constexpr size_t kHeaderBytes = sizeof(wire::MessageHeader);

}  // namespace

OutputQueue::~OutputQueue() { std::free(buffer_); }

Result<void> OutputQueue::make_room(size_t size_bytes) {
    if (capacity_ - end_ >= size_bytes) {
        return {};
    }
    const size_t queued = queued_bytes();
    // Moving to the front is worth it when it makes much room; otherwise the buffer grows.
    if (capacity_ - queued >= size_bytes && start_ >= capacity_ / 2) {
        std::memmove(buffer_, buffer_ + start_, queued);
    } else {
        const size_t capacity = std::max(
            {kLeastCapacity, capacity_ + std::min(capacity_, kMostGrowth), queued + size_bytes});
        auto* buffer = static_cast<unsigned char*>(std::malloc(capacity));
        if (buffer == nullptr) {
            return Error::enomem;
        }
        if (queued > 0) {
            std::memcpy(buffer, buffer_ + start_, queued);
        }
        std::free(buffer_);
        buffer_ = buffer;
        capacity_ = capacity;
    }
    start_ = 0;
    end_ = queued;
    return {};
}

unsigned char* OutputQueue::place_of(const Frame& frame, size_t plain_offset) {
    const size_t tags =
        frame.sealed ? plain_offset / wire::kSealedChunkBytes * wire::kSealTagBytes : 0;
    return frame.begin + kHeaderBytes + plain_offset + tags;
}

// How many bytes from there on are not interrupted by a tag.
size_t OutputQueue::piece_at(const Frame& frame, size_t plain_offset, size_t left) {
    if (!frame.sealed) {
        return left;
    }
    return std::min<size_t>(left, wire::kSealedChunkBytes - plain_offset % wire::kSealedChunkBytes);
}

Result<OutputQueue::Frame> OutputQueue::begin_message(wire::MessageType type, size_t fixed_bytes,
                                                      size_t payload_bytes) {
    Frame frame;
    const bool is_response = type == wire::MessageType::response;
    frame.sealed = type >= wire::MessageType::session_open && (!is_response || seals_requests_);
    TIFFIN_ASSERT(!frame.sealed || seal_ != nullptr);
    frame.plain_bytes = fixed_bytes + payload_bytes;
    frame.total_bytes =
        kHeaderBytes + (frame.sealed ? wire::sealed_bytes(frame.plain_bytes) : frame.plain_bytes);
    TRY(make_room(frame.total_bytes));
    frame.begin = buffer_ + end_;
    return frame;
}

void OutputQueue::put_payload(const Frame& frame, size_t fixed_bytes, ByteSpan payload) {
    for (size_t done = 0; done < payload.size();) {
        const size_t piece = piece_at(frame, fixed_bytes + done, payload.size() - done);
        std::memcpy(place_of(frame, fixed_bytes + done), payload.data() + done, piece);
        done += piece;
    }
}

Result<void> OutputQueue::finish_message(const Frame& frame, wire::MessageType type, ByteSpan fixed,
                                         size_t payload_bytes) {
    const wire::MessageHeader header = wire::make_header(
        type, frame.sealed ? wire::message_flag::sealed : 0, fixed, payload_bytes);
    std::memcpy(frame.begin, &header, sizeof(header));
    std::memcpy(frame.begin + kHeaderBytes, fixed.data(), fixed.size());
    for (size_t done = 0; frame.sealed && done < frame.plain_bytes;) {
        const size_t piece = piece_at(frame, done, frame.plain_bytes - done);
        unsigned char* chunk = place_of(frame, done);
        TRY(seal_->seal(MutableByteSpan(chunk, piece), done == 0 ? &header : nullptr,
                        chunk + piece));
        done += piece;
    }
    end_ += frame.total_bytes;
    return {};
}

Result<void> OutputQueue::add_message(wire::MessageType type, ByteSpan fixed, ByteSpan payload) {
    const Frame frame = TRY(begin_message(type, fixed.size(), payload.size()));
    put_payload(frame, fixed.size(), payload);
    return finish_message(frame, type, fixed, payload.size());
}

Result<void> OutputQueue::add_response(wire::Response response, ByteSpan payload) {
    const auto type = wire::MessageType::response;
    const Frame frame = TRY(begin_message(type, sizeof(response), payload.size()));
    if (!payload.empty()) {
        uint32_t checksum = 0;
        // Each piece is summed up while a cache still has it.
        for (size_t done = 0; done < payload.size();) {
            const size_t offset = sizeof(response) + done;
            const size_t piece =
                std::min(piece_at(frame, offset, payload.size() - done), kChecksumPieceBytes);
            std::memcpy(place_of(frame, offset), payload.data() + done, piece);
            checksum = host::crc32c(checksum, place_of(frame, offset), piece);
            done += piece;
        }
        response.payload_checksum = checksum;
        response.flags |= wire::response_flag::has_checksum;
    }
    return finish_message(
        frame, type, ByteSpan(reinterpret_cast<const unsigned char*>(&response), sizeof(response)),
        payload.size());
}

Result<void> OutputQueue::attach(std::vector<UniqueDescriptor> descriptors) {
    TIFFIN_ASSERT(descriptors.size() <= kMostAttached);
    if (!attached_.empty()) {
        return Error::eagain;
    }
    attached_ = std::move(descriptors);
    return {};
}

ssize_t OutputQueue::send_some(int socket) {
    if (attached_.empty()) {
        return ::send(socket, buffer_ + start_, end_ - start_, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    iovec vector{buffer_ + start_, end_ - start_};
    alignas(cmsghdr) char control[CMSG_SPACE(kMostAttached * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(attached_.size() * sizeof(int));
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(attached_.size() * sizeof(int));
    for (size_t index = 0; index < attached_.size(); index++) {
        const int descriptor = attached_[index].get();
        std::memcpy(CMSG_DATA(head) + index * sizeof(int), &descriptor, sizeof(int));
    }
    const ssize_t sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
        attached_.clear();
    }
    return sent;
}

Result<bool> OutputQueue::send(int socket, Counter& calls) {
    while (start_ < end_) {
        count(calls);
        const ssize_t sent = send_some(socket);
        if (sent < 0) {
            if (errno == EINTR) {
                continue;
            }
            if (errno == EAGAIN || errno == EWOULDBLOCK) {
                return false;
            }
            return errno == EPIPE || errno == ECONNRESET ? Error::enodev : Error::eio;
        }
        start_ += static_cast<size_t>(sent);
    }
    start_ = end_ = 0;
    return true;
}

void OutputQueue::clear() {
    start_ = end_ = 0;
    trim();
}

void OutputQueue::trim() {
    if (empty() && capacity_ > kLeastCapacity) {
        std::free(buffer_);
        buffer_ = nullptr;
        capacity_ = start_ = end_ = 0;
    }
}

}  // namespace tiffin::rdma_blk
