// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A client's requests as reliable SDR messages over UDP, or over UC queue pairs. docs/sdr.md says why; the path is driven by the threads of the
// session (request_path.h).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "rdma_blk/transport/open.h"
#include "rdma_blk/transport/request_path.h"
#include "rdma_blk/transport/sdr/message_path.h"
#include "rdma_blk/transport/sdr/message_use.h"

namespace tiffin::rdma_blk {

class SdrPath final : public RequestPath {
  public:
    explicit SdrPath(const SdrOptions& options)
        : options_(options), sent_numbers_(wire::kMaxSlots, MessagePath::kNoMessage) {}

    wire::PathTransport transport() const override {
        return is_uc() ? wire::PathTransport::uc : wire::PathTransport::udp;
    }
    const char* name() const override { return is_uc() ? "sdr-uc" : "sdr"; }
    Result<size_t> offer(const sockaddr_in6& local, const sockaddr_in6& peer,
                         const TrafficKeys& keys, MutableByteSpan parameters) override;
    Result<void> joined(ByteSpan parameters) override;
    void stop() override;
    bool is_up() const override { return is_up_; }
    bool has_failed() const override;
    uint64_t silence_ns(uint64_t now_ns) const override;
    bool has_room() const override { return messages_->has_room(); }
    void send(const wire::Request& request, ByteSpan ranges, const vfs::IoVector* buffers,
              size_t buffer_count) override;
    void answered(uint16_t slot) override;
    bool answered_elsewhere(uint16_t slot) override;
    bool is_sending(uint16_t slot) const override;
    int socket() const override;
    uint64_t next_time_ns(uint64_t now_ns) const override;
    bool receive(uint64_t now_ns) override;
    void transmit(uint64_t now_ns) override;
    Result<bool> next_answer(Answer& answer) override;
    void add_statistics(Statistics& statistics) const override;

  private:
    bool is_uc() const { return options_.carrier == SdrCarrier::uc; }
    MessagePathOptions message_options(const TrafficKeys& keys) const;
    Result<size_t> offer_sockets(const sockaddr_in6& local, const sockaddr_in6& peer,
                                 MessagePathOptions options, MutableByteSpan parameters);
    Result<size_t> offer_queue_pairs(const sockaddr_in6& local, MessagePathOptions options,
                                     MutableByteSpan parameters);
    Result<void> start_messages(ByteSpan parameters);
    bool is_started() const { return messages_ != nullptr && messages_->is_started(); }
    void count_ended(MessagePathStatistics& sum) const;

    const SdrOptions options_;
    std::unique_ptr<MessagePath> messages_;
    std::optional<MessagePath::Message> taken_;  // the answer that was given last
    sockaddr_in6 peer_ = {};
    // See MessagePathStatistics::next_packet_bytes().
    uint32_t known_packet_bytes_ = 0;
    // Of each slot's request, while the network may read the caller's buffers.
    std::vector<uint64_t> sent_numbers_;
    uint64_t answered_bytes_ = 0;  // which their callers' buffers were given by a copy
    bool is_up_ = false;
    bool is_broken_ = false;       // a request was not taken
    MessagePathStatistics ended_;  // of earlier connections
};

}  // namespace tiffin::rdma_blk
