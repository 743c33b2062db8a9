// SPDX-License-Identifier: MIT OR GPL-2.0-only
// One socket of a UDP carrier, with its numbers, its window and its buffers. Used by its own thread; what touches
// the endpoint is called with the carrier's mutex held. Its parts: udp_channel_receive.cc, udp_channel_scatter.cc,
// udp_channel_send.cc, udp_channel_reports.cc.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>

#include "rdma_blk/sdr/packet.h"
#include "rdma_blk/sdr/packet_channel.h"
#include "rdma_blk/sdr/udp/congestion.h"
#include "rdma_blk/sdr/udp/path_probe.h"
#include "rdma_blk/sdr/udp/sent_times.h"
#include "rdma_blk/sdr/udp/socket_address.h"
#include "rdma_blk/sdr/udp/trial_loss.h"
#include "rdma_blk/sdr/udp/udp_carrier.h"

namespace tiffin::rdma_blk::sdr {

class UdpChannel final : public PacketChannel {
  public:
    UdpChannel(const UdpOptions& options, uint16_t index, uint32_t connection_id);
    ~UdpChannel() override;
    UdpChannel(const UdpChannel&) = delete;
    UdpChannel& operator=(const UdpChannel&) = delete;
    // Errors: those of sockets; enomem.
    Result<void> open();
    // Errors: enomem; with UdpOptions::has_one_peer those of connect(2).
    Result<void> connect(const UdpInfo& peer);

    int socket() const { return socket_; }
    sockaddr_in6 address() const { return address_; }
    uint64_t receive_buffer_bytes() const { return receive_buffer_bytes_; }

    // Takes of what the socket has, without blocking, and checks it; true: there probably is more. Without that there may be,
    // too: the socket stays readable.
    bool receive(uint64_t now_ns);
    // The same for one run of packets, whose payloads probably belong to `place`: they are received there. Whatever comes
    // instead is copied away from there before this returns. Until deliver() no receive of that memory may end, and nothing
    // may be received or transmitted.
    bool receive_to(uint64_t now_ns, const ExpectedPlace& place);
    // Hands over what receive() took; false: it took nothing.
    bool deliver(uint64_t now_ns, Endpoint& endpoint) override;
    // Sends what the endpoint has and the window allows; true: there may be more.
    bool transmit(uint64_t now_ns, Endpoint& endpoint) override;
    uint64_t next_time_ns() const override;
    bool is_blocked() const override { return is_blocked_ || is_paced_; }
    uint64_t pace_ns() const { return is_paced_ ? pace_ns_ : 0; }
    uint64_t send_calls() const { return statistics_.send_calls; }
    void add_statistics(UdpStatistics& sum) const;

    // ---- Without a thread of its own: the rest of PacketChannel ----

    int descriptor() const override { return socket_; }
    Taken take(uint64_t now_ns, const ExpectedPlace& place) override;
    // Packets of this size are known to be too large for the path, and do not come in pieces either; smaller ones do.
    bool has_failed() const override { return swallows_packets_; }
    uint64_t packets_received() const override { return statistics_.datagrams_received; }
    uint64_t bytes_received() const override { return bytes_received_; }
    ChannelStatistics statistics() const override;

  private:
    struct Received {
        PacketKind kind = PacketKind::control;
        ByteSpan body;
        ByteSpan payload;  // of data, if it does not follow in `body`
    };
    // What one receive_to() takes: headers apart, payloads where they are expected.
    struct Scatter;
    static constexpr size_t kBufferBytes = 65536;
    // What a datagram of data has beside its packet.
    static constexpr uint32_t kDataDatagramBytes = sizeof(DatagramHeader) + sizeof(DataHeader);
    // What recvmmsg() is given: buffers_, and room for the length of segments.
    struct ReceiveCall {
        static constexpr size_t kControlBytes = CMSG_SPACE(sizeof(int));
        mmsghdr messages[kReceiveBatch] = {};
        iovec parts[kReceiveBatch] = {};
        alignas(cmsghdr) unsigned char controls[kReceiveBatch][kControlBytes] = {};

        explicit ReceiveCall(unsigned char* buffers);
    };
    static constexpr uint32_t kMaxReceived = kReceiveBatch * kMaxSegments;

    static size_t segment_bytes_of(msghdr& header, size_t size_bytes);
    int receive_messages();  // -1: none
    void take_datagram(uint64_t now_ns, ByteSpan datagram, ByteSpan rest = ByteSpan());
    void take_scattered(uint64_t now_ns, const ExpectedPlace& place, Scatter& scatter);
    void take_report(uint64_t now_ns, ByteSpan datagram);
    void on_feedback(uint64_t now_ns, ByteSpan body);
    bool transmit_data(uint64_t now_ns, Endpoint& endpoint);
    void on_probe(uint64_t now_ns, PacketKind kind, ByteSpan body, size_t datagram_bytes);
    void send_run(uint64_t now_ns, const DataRun& run);
    void send_control(uint64_t now_ns, const Transmit& out);
    void send_small(DatagramHeader header, const void* bytes, size_t size_bytes);
    void send_feedback(uint64_t now_ns);
    void serve_probes(uint64_t now_ns);
    void send_probe(PacketKind kind, uint32_t datagram_bytes, uint32_t number);
    void set_fragmentation(int how) const;
    uint32_t find_payload(const DataRun& run, uint64_t offset, uint64_t size_bytes, uint32_t index,
                          iovec* parts, uint32_t most);
    void send_message(iovec* parts, const uint16_t* part_ends, uint32_t datagrams,
                      uint32_t segment_bytes);
    // Whether it is done with, sent or not.
    bool send_at_once(msghdr& message, uint32_t datagrams, uint32_t segment_bytes);
    bool drops();
    uint32_t packets_allowed(uint64_t now_ns);
    void tell_rate(Endpoint& endpoint);

    UdpOptions options_;
    uint16_t index_;
    int socket_ = -1;
    sockaddr_in6 address_ = {};
    SocketAddress peer_;
    bool is_connected_ = false;  // the socket; it is not told the peer's address each time
    uint64_t receive_buffer_bytes_ = 0;
    // Feedback has numbers of its own, so that the others are exactly what feedback tells of.
    DatagramOpener opener_;
    DatagramOpener feedback_opener_;
    std::unique_ptr<DatagramSealer> sealer_;
    std::unique_ptr<DatagramSealer> feedback_sealer_;
    std::unique_ptr<Congestion> congestion_;
    uint64_t told_rate_bytes_per_s_ = 0;
    std::unique_ptr<PathProbe> path_probe_;  // of the first channel only: all take one path
    uint32_t timeouts_when_narrow_ = 0;
    bool swallows_packets_ = false;
    std::unique_ptr<unsigned char[]> buffers_;
    std::unique_ptr<ReceiveCall> receive_call_;
    std::unique_ptr<Received[]> received_;
    uint32_t received_count_ = 0;
    bool had_all_ = false;         // the last call found as many as it asked for
    uint32_t expected_count_ = 1;  // up to kReceiveBatch; what the kernel gives as one is one
    SentTimes sent_times_;
    UdpStatistics statistics_;  // of the thread
    UdpStatistics published_;   // for others; with the mutex held
    TrialLoss trial_loss_;

    // Feedback that is due, and what has come from the peer.
    uint32_t unreported_ = 0;
    uint64_t feedback_ns_ = kNoTimer;
    uint64_t highest_arrival_ns_ = 0;
    uint64_t bytes_received_ = 0;
    // What the peer had counted at its last feedback.
    uint64_t peer_packets_ = 0;
    uint64_t peer_bytes_ = 0;
    // The peer's probe that is to be answered; 0: none.
    uint32_t answered_bytes_ = 0;
    uint32_t answered_number_ = 0;
    // Rate limit: when the next packet may go.
    uint64_t pace_ns_ = 0;
    bool is_paced_ = false;    // waits for pace_ns_
    bool is_blocked_ = false;  // by the window
    // What the kernel said: the path takes no segmentation offload (its MTU is smaller now, or its device cannot);
    // the queue was full in this round.
    bool has_segmentation_ = true;
    bool is_full_ = false;
};

}  // namespace tiffin::rdma_blk::sdr
