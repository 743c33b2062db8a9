// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a UC carrier does, without a thread: two Unreliable Connected queue pairs, arenas and windows, numbers, tags and
// congestion control. uc_carrier.h says how packets travel; whoever has no thread for it uses that.
//
//     channel = TRY(UcChannel::create(device, options));
//     channel->info_get()  <exchange>  channel->start(peer_info);      then as packet_channel.h says
//
// A take() that finds nothing for the fourth time arms the device, and the descriptor, which stays readable until then, is
// so again when something completes. So looking again and again costs no system call, but for one in many looks.
#pragma once

#include <cstdint>
#include <memory>

#include "rdma_blk/sdr/packet_channel.h"
#include "rdma_blk/transport/sdr/mapped_slots.h"
#include "rdma_blk/transport/uc/uc_options.h"
#include "rdma_blk/transport/uc/uc_receiver.h"
#include "rdma_blk/transport/uc/uc_sender.h"
#include "rdma_blk/transport/verbs/verbs.h"

namespace tiffin::rdma_blk {

class UcChannel final : public sdr::PacketChannel {
  public:
    // Takes all memory and the queue pairs. The device outlives the channel. Errors: einval (options out of range), e2big
    // (see landing_layout()), eopnotsupp (the device has no windows of type 2B), enomem, eio (of the device: locked
    // memory, for example), those of epoll.
    static Result<std::unique_ptr<UcChannel>> create(verbs::Device& device,
                                                     const UcOptions& options);
    ~UcChannel() override;
    UcChannel(const UcChannel&) = delete;
    UcChannel& operator=(const UcChannel&) = delete;

    UcInfo info_get() const;
    // The peer's layout holds for both. Errors: einval (it does not fit into the arenas of this end, or the peer's
    // receive_depth is out of range), e2big (packets are larger than the path's MTU), enomem, eio.
    Result<void> start(const UcInfo& peer);

    int descriptor() const override { return events_; }
    Taken take(uint64_t now_ns, const sdr::ExpectedPlace& place) override;
    bool deliver(uint64_t now_ns, sdr::Endpoint& endpoint) override;
    bool transmit(uint64_t now_ns, sdr::Endpoint& endpoint) override;
    uint64_t next_time_ns() const override;
    bool is_blocked() const override { return is_blocked_; }
    bool has_failed() const override { return statistics_.has_failed; }
    uint64_t packets_received() const override;
    uint64_t bytes_received() const override { return packets_received() * layout_.packet_bytes; }
    sdr::ChannelStatistics statistics() const override;
    UcStatistics uc_statistics() const;
    uint64_t packets_sent() const { return sender_->packets_sent(); }  // of the statistics

  private:
    static constexpr uint32_t kDatagramsAtOnce = 64;
    static constexpr uint32_t kPacketsAtOnce = 256;

    UcChannel(verbs::Device& device, const UcOptions& options, const sdr::LandingLayout& layout)
        : device_(device), options_(options), layout_(layout), receiver_(device, layout) {}
    Result<void> open();
    void poll_both();
    Result<void> arm();
    Result<void> deliver_datagrams(uint64_t now_ns, sdr::Endpoint& endpoint);
    void deliver_datagram(uint64_t now_ns, ByteSpan datagram, sdr::Endpoint& endpoint);
    Result<void> deliver_packets(uint64_t now_ns, sdr::Endpoint& endpoint);
    Result<bool> transmit_some(uint64_t now_ns, sdr::Endpoint& endpoint);
    Result<void> post_datagram_receive(uint64_t cell);
    Result<void> post_packet_receives(uint32_t count);

    verbs::Device& device_;
    UcOptions options_;
    sdr::LandingLayout layout_;
    uint32_t connection_id_ = 0;

    MappedSlots datagrams_;  // that come
    std::unique_ptr<verbs::Memory> datagram_memory_;
    std::unique_ptr<verbs::QueuePair> data_;
    std::unique_ptr<verbs::QueuePair> control_;
    UcReceiver receiver_;
    std::unique_ptr<UcSender> sender_;
    UcStatistics statistics_;

    // What take() found: completions of either queue pair.
    std::unique_ptr<verbs::Completion[]> taken_datagrams_;
    std::unique_ptr<verbs::Completion[]> taken_packets_;
    uint32_t taken_datagram_count_ = 0;
    uint32_t taken_packet_count_ = 0;

    int events_ = -1;          // epoll, of both queue pairs' descriptors
    bool is_armed_ = false;    // nothing has come since it was armed
    uint32_t vain_looks_ = 0;  // one after the other
    bool is_blocked_ = false;
    uint64_t retry_ns_ = 0;  // of who is blocked, and has no timeout
    uint64_t arm_calls_ = 0;
};

}  // namespace tiffin::rdma_blk
