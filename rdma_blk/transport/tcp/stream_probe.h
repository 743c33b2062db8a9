// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The probe on a stream, and what the peer's TCP acknowledges: how a link that is slow differs from a server that has
// stopped, whose TCP acknowledges all the same, but no more than what has been sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "rdma_blk/wire/format.h"
#include "rdma_blk/wire/parse.h"

namespace tiffin::rdma_blk {

class StreamProbe {
  public:
    // On the stream.
    static constexpr size_t kBytes =
        sizeof(wire::MessageHeader) + wire::sealed_bytes(sizeof(wire::Probe));

    // While one has not arrived, TCP repeats it, and another one would wait for the same.
    bool may_send() const { return !is_unanswered() || has_arrived(); }
    // `number`: MessageWriter::added_count() behind it. What is sent behind one that is unanswered shows only that the peer
    // acknowledges: the first one is measured.
    void sent(uint64_t id, uint64_t number, uint64_t now_ns) {
        if (!is_unanswered()) {
            id_ = id;
            number_ = number;
            end_bytes_ = 0;
            sent_ns_ = now_ns;
        }
    }
    // MessageWriter::sent_count() and taken_bytes().
    void taken(uint64_t sent_count, uint64_t taken_bytes) {
        if (is_unanswered() && end_bytes_ == 0 && sent_count >= number_) {
            end_bytes_ = taken_bytes;
        }
    }
    // Whether it was the one that is measured.
    bool answered(uint64_t id) {
        const bool is_first = is_unanswered() && id == id_;
        sent_ns_ = is_first ? 0 : sent_ns_;
        return is_first;
    }
    bool is_unanswered() const { return sent_ns_ != 0; }
    uint64_t sent_ns() const { return sent_ns_; }

    enum class Acknowledged : uint8_t {
        nothing,
        probes,  // there was nothing else to acknowledge when this was asked last
        others,  // or it may be so
    };
    // `bytes`: of the stream, so far. Of what has been acknowledged since this was asked last. To be asked right before a
    // probe is sent.
    Acknowledged acknowledged(uint64_t bytes) {
        const uint64_t before = std::exchange(acknowledged_bytes_, bytes);
        if (bytes <= before) {
            return Acknowledged::nothing;
        }
        const bool had_all = is_unanswered() && end_bytes_ != 0 && before + kBytes >= end_bytes_;
        return had_all ? Acknowledged::probes : Acknowledged::others;
    }

  private:
    bool has_arrived() const { return end_bytes_ != 0 && acknowledged_bytes_ >= end_bytes_; }

    uint64_t id_ = 0;  // of the first one that is not answered
    uint64_t number_ = 0;
    uint64_t end_bytes_ = 0;           // of the stream, about; 0: the socket has not taken it yet
    uint64_t sent_ns_ = 0;             // 0: it has been answered
    uint64_t acknowledged_bytes_ = 0;  // when it was asked last
};

}  // namespace tiffin::rdma_blk
