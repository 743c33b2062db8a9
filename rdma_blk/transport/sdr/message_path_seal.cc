// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What stands in front of messages: over queue pairs a tag, since packets have none there; where the connection encrypts, the
// tag of the cipher, over sockets, too; else nothing.
#include <cstring>
#include <new>

#include "fs/base/siphash.h"
#include "fs/vfs/host.h"
#include "rdma_blk/transport/sdr/message_path.h"

namespace tiffin::rdma_blk {
namespace {

static_assert(sizeof(uint64_t) == wire::kUcMessageTagBytes);
static_assert(sizeof(MessagePathOptions::send_key) <= kSealKeyBytes);

// A number is used once in each direction of a path, and a path that has carried more than its hello is the last one of its
// connection, whose keys these are.
uint64_t tag_of(const unsigned char* key, uint64_t number, uint32_t use, ByteSpan bytes) {
    struct Covered {
        uint64_t number;
        uint64_t size_bytes;
        uint32_t use;
        uint32_t checksum;
    };
    static_assert(sizeof(Covered) == 24);
    const Covered covered{number, bytes.size(), use, host::crc32c(0, bytes.data(), bytes.size())};
    return siphash24(key, &covered, sizeof(covered));
}

}  // namespace

void MessagePathOptions::set_keys(const TrafficKeys& keys, bool is_client) {
    const auto& tag_out = is_client ? keys.tag_to_server : keys.tag_to_client;
    const auto& tag_in = is_client ? keys.tag_to_client : keys.tag_to_server;
    std::memcpy(send_key, tag_out.bytes, sizeof(send_key));
    std::memcpy(receive_key, tag_in.bytes, sizeof(receive_key));
    encrypts = keys.encrypts;
    seal_send_key = is_client ? keys.path_to_server : keys.path_to_client;
    seal_receive_key = is_client ? keys.path_to_client : keys.path_to_server;
}

Result<void> MessagePath::start_seals(uint32_t peer_connection_id, uint32_t own_connection_id) {
    if (!options_.encrypts) {
        return {};
    }
    seal_out_.reset(new (std::nothrow)
                        MessageSeal(options_.seal_send_key, peer_connection_id, own_connection_id));
    seal_in_.reset(new (std::nothrow) MessageSeal(options_.seal_receive_key, own_connection_id,
                                                  peer_connection_id));
    options_.seal_send_key = options_.seal_receive_key = Secret<kSealKeyBytes>();
    return seal_out_ == nullptr || seal_in_ == nullptr ? Result<void>(Error::enomem)
                                                       : Result<void>();
}

// Of a message that lies behind the place of its tag.
Result<void> MessagePath::tag_message(uint64_t number, uint32_t use, MutableByteSpan tagged) {
    if (tag_bytes_ == 0) {
        return {};
    }
    const MutableByteSpan message = tagged.subspan(tag_bytes_);
    if (seal_out_ != nullptr) {
        return seal_out_->seal(number, use, message, tagged.data());
    }
    const uint64_t tag =
        tag_of(options_.send_key, number, use, ByteSpan(message.data(), message.size()));
    std::memcpy(tagged.data(), &tag, sizeof(tag));
    return {};
}

// The message behind its tag. Errors: eacces: it is not what the peer has sent.
Result<ByteSpan> MessagePath::check_message(uint64_t number, uint32_t use,
                                            MutableByteSpan tagged) const {
    if (tag_bytes_ == 0) {
        return ByteSpan(tagged.data(), tagged.size());
    }
    if (tagged.size() <= tag_bytes_) {
        return Error::eacces;
    }
    const MutableByteSpan message = tagged.subspan(tag_bytes_);
    const ByteSpan bytes(message.data(), message.size());
    if (seal_in_ != nullptr) {
        TRY(seal_in_->open(number, use, message, tagged.data()));
        return bytes;
    }
    uint64_t tag = 0;
    std::memcpy(&tag, tagged.data(), sizeof(tag));
    return tag == tag_of(options_.receive_key, number, use, bytes) ? Result<ByteSpan>(bytes)
                                                                   : Error::eacces;
}

}  // namespace tiffin::rdma_blk
