// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The schemes: what sets them apart. Everything that they share is in Connection.
#include <algorithm>

#include "rdma_blk/sdr/reliability/message_state.h"

namespace tiffin::rdma_blk::sdr {
namespace {

// Selective repeat sends the message from its beginning to its end.
class PlainSendPolicy : public SendPolicy {
  public:
    explicit PlainSendPolicy(bool repeats_by_timer) : repeats_by_timer_(repeats_by_timer) {}

    bool first_pass(Sending& sending, uint32_t most_chunks, SendPart& part) const override {
        part.is_parity = false;
        part.first_chunk = sending.next_chunk;
        part.chunk_count = std::min(most_chunks, sending.chunk_count - sending.next_chunk);
        return part.chunk_count > 0;
    }
    bool repeats_by_timer() const override { return repeats_by_timer_; }

  private:
    bool repeats_by_timer_;
};

// Each group is followed by its parity.
class ErasureSendPolicy final : public SendPolicy {
  public:
    bool first_pass(Sending& sending, uint32_t most_chunks, SendPart& part) const override {
        const uint32_t k = sending.scheme.data_chunks;
        const uint32_t group = sending.parity_groups_sent;
        const uint64_t group_end =
            std::min<uint64_t>(sending.chunk_count, (group + uint64_t{1}) * k);
        part.is_parity = sending.next_chunk == group_end;
        part.group = group;
        part.first_chunk = sending.next_chunk;
        part.chunk_count =
            static_cast<uint32_t>(std::min<uint64_t>(most_chunks, group_end - sending.next_chunk));
        return uint64_t{group} * k < sending.chunk_count;
    }
    bool repeats_by_timer() const override { return false; }
};

class SilentReceivePolicy final : public ReceivePolicy {
  public:
    bool asks() const override { return false; }
    uint32_t judged_end(const QueuePair::ReceiveSlot&) const override { return 0; }
};

// What is missing is lost when kReorderChunks have come behind it.
class NackReceivePolicy final : public ReceivePolicy {
  public:
    bool asks() const override { return true; }
    uint32_t judged_end(const QueuePair::ReceiveSlot& slot) const override {
        return slot.chunks_seen - std::min(slot.chunks_seen, kReorderChunks);
    }
};

// The same for whole groups: whatever can be decoded has been by then.
class ErasureReceivePolicy final : public ReceivePolicy {
  public:
    bool asks() const override { return true; }
    uint32_t judged_end(const QueuePair::ReceiveSlot& slot) const override {
        const uint32_t end = slot.chunks_seen - std::min(slot.chunks_seen, kReorderChunks);
        return end / slot.scheme.data_chunks * slot.scheme.data_chunks;
    }
};

const PlainSendPolicy kTimerSend{true};
const PlainSendPolicy kNackSend{false};
const ErasureSendPolicy kErasureSend;
const SilentReceivePolicy kSilentReceive;
const NackReceivePolicy kNackReceive;
const ErasureReceivePolicy kErasureReceive;

}  // namespace

const SendPolicy& send_policy(SchemeKind kind) {
    switch (kind) {
        case SchemeKind::selective_repeat:
            return kTimerSend;
        case SchemeKind::erasure_xor:
        case SchemeKind::erasure_mds:
            return kErasureSend;
        default:
            return kNackSend;
    }
}

const ReceivePolicy& receive_policy(SchemeKind kind) {
    switch (kind) {
        case SchemeKind::selective_repeat_nack:
            return kNackReceive;
        case SchemeKind::erasure_xor:
        case SchemeKind::erasure_mds:
            return kErasureReceive;
        default:
            return kSilentReceive;
    }
}

}  // namespace tiffin::rdma_blk::sdr
