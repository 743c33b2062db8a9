// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Set-up: contexts, registration, creation and connection of queue pairs.
#include <bit>
#include <new>

#include "rdma_blk/sdr/queue_pair.h"

namespace tiffin::rdma_blk::sdr {
namespace {

bool is_valid(const QueuePairAttributes& attributes) {
    return attributes.packet_bytes >= kMinPacketBytes &&
           attributes.packet_bytes <= kMaxPacketBytes &&
           attributes.packets_per_chunk_log2 <= kMaxPacketsPerChunkLog2 &&
           attributes.max_messages >= 1 && attributes.max_messages <= kMaxMessages &&
           std::has_single_bit(attributes.max_messages) && attributes.max_message_bytes >= 1 &&
           attributes.max_message_bytes <=
               uint64_t{kMaxPacketsPerMessage} * attributes.packet_bytes &&
           attributes.bytes_in_flight >= 1 && attributes.channel_count >= 1;
}

}  // namespace

Result<std::unique_ptr<Context>> context_create() {
    std::unique_ptr<Context> context(new (std::nothrow) Context);
    if (context == nullptr) {
        return Error::enomem;
    }
    return context;
}

Result<RegisteredMemory> Context::mr_reg(MutableByteSpan memory) {
    if (memory.empty()) {
        return Error::einval;
    }
    if (region_count_ == kMaxMemoryRegions) {
        return Error::enospc;
    }
    region_count_++;
    RegisteredMemory registered;
    registered.data_ = memory.data();
    registered.size_bytes_ = memory.size();
    return registered;
}

void Context::mr_dereg(const RegisteredMemory& /*memory*/) { region_count_--; }

Result<std::unique_ptr<QueuePair>> Context::qp_create(const QueuePairAttributes& attributes) {
    if (!is_valid(attributes)) {
        return Error::einval;
    }
    std::unique_ptr<QueuePair> queue_pair(new (std::nothrow) QueuePair(attributes));
    if (queue_pair == nullptr) {
        return Error::enomem;
    }
    TRY(queue_pair->allocate());
    return queue_pair;
}

QueuePair::QueuePair(const QueuePairAttributes& attributes)
    : attributes_(attributes), slot_mask_(uint64_t{attributes.max_messages} - 1) {}

QueuePair::~QueuePair() = default;

Result<void> QueuePair::allocate() {
    const bool own_chunks = attributes_.packets_per_chunk_log2 > 0;
    const size_t packet_words = bitmap_words(attributes_.packets_of(attributes_.max_message_bytes));
    const size_t chunk_words =
        own_chunks ? bitmap_words(attributes_.chunks_of(attributes_.max_message_bytes)) : 0;
    const size_t count = attributes_.max_messages;
    words_per_bitmap_ = packet_words + chunk_words;
    send_slots_.reset(new (std::nothrow) SendSlot[count]);
    queue_.reset(new (std::nothrow) SendRange[kSendQueueRanges]);
    receive_slots_.reset(new (std::nothrow) ReceiveSlot[count]);
    receive_words_.reset(new (std::nothrow) uint64_t[count * words_per_bitmap_]());
    controls_out_.reset(new (std::nothrow) UserControlQueue);
    controls_in_.reset(new (std::nothrow) UserControlQueue);
    if (send_slots_ == nullptr || queue_ == nullptr || receive_slots_ == nullptr ||
        receive_words_ == nullptr || controls_out_ == nullptr || controls_in_ == nullptr) {
        return Error::enomem;
    }
    for (size_t index = 0; index < count; index++) {
        ReceiveSlot& slot = receive_slots_[index];
        slot.packets = receive_words_.get() + index * words_per_bitmap_;
        slot.chunks = own_chunks ? slot.packets + packet_words : slot.packets;
    }
    return {};
}

QueuePairInfo QueuePair::qp_info_get() const {
    QueuePairInfo info;
    info.packet_bytes = attributes_.packet_bytes;
    info.packets_per_chunk_log2 = attributes_.packets_per_chunk_log2;
    info.max_messages = attributes_.max_messages;
    return info;
}

Result<void> QueuePair::qp_connect(const QueuePairInfo& peer) {
    if (connected_) {
        return Error::eexist;
    }
    if (peer.version != kPacketVersion || peer.packet_bytes != attributes_.packet_bytes ||
        peer.packets_per_chunk_log2 != attributes_.packets_per_chunk_log2 ||
        peer.max_messages != attributes_.max_messages) {
        return Error::einval;
    }
    connected_ = true;
    return {};
}

}  // namespace tiffin::rdma_blk::sdr
