// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What an authenticated peer may say to a channel of UDP sockets about the path: feedback and probes of any content, beside
// packets. Whatever it says, each step sends a bounded number of datagrams, and the channel goes on sending in the end.
//
// Input: steps: a byte, what comes or happens; its arguments, see Peer::step().
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "fs/vfs/host.h"
#include "rdma_blk/sdr/udp/udp_channel.h"
#include "tests/fuzz/fuzz_target.h"

namespace tiffin::rdma_blk::sdr {
namespace {

enum Step : uint8_t { time_passes, feedback, wrong_feedback, probe, reply, packet, step_count };

constexpr uint32_t kPacketBytes = 1200;
constexpr uint32_t kConnection = 7;
constexpr uint32_t kPeerConnection = 8;
constexpr size_t kLargestDatagram = 65507;
constexpr uint32_t kPacketsInATurn = 3;
// Of one transmit(): these, one feedback, one probe and one answer to a probe.
constexpr uint64_t kMostInATurn = kPacketsInATurn + 3;

// Has a few packets to send in each turn.
class Sender final : public Endpoint {
  public:
    void on_data(uint64_t /*now_ns*/, const DataRun& run) override {
        TIFFIN_ASSERT(run.payload != nullptr && run.payload_bytes <= kLargestDatagram);
    }
    void on_control(uint64_t /*now_ns*/, ByteSpan message) override {
        TIFFIN_ASSERT(message.size() <= kLargestDatagram);
    }
    bool next_transmit(uint64_t /*now_ns*/, uint32_t /*max_packets*/, Transmit& out) override {
        if (left_ == 0) {
            return false;
        }
        left_--;
        out = Transmit();
        out.run.message_bytes = kPacketBytes;
        out.run.packet_count = 1;
        out.run.payload = payload_;
        out.run.payload_bytes = kPacketBytes;
        return true;
    }
    uint64_t next_timer_ns() const override { return kNoTimer; }
    void on_timer(uint64_t /*now_ns*/) override {}
    void begin_turn() { left_ = kPacketsInATurn; }

  private:
    uint32_t left_ = 0;
    unsigned char payload_[kPacketBytes] = {};
};

class Peer {
  public:
    Peer() {
        options_.local = loopback();
        options_.has_one_peer = true;
        options_.packet_bytes = kPacketBytes;
        channel_ = std::make_unique<UdpChannel>(options_, 0, kConnection);
        expect_ok(channel_->open());
        // Not connected, as it is there before the channel's port is known.
        socket_ = ::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        sockaddr_in6 own = loopback();
        socklen_t size = sizeof(own);
        TIFFIN_ASSERT(socket_ >= 0 &&
                      ::bind(socket_, reinterpret_cast<sockaddr*>(&own), sizeof(own)) == 0 &&
                      getsockname(socket_, reinterpret_cast<sockaddr*>(&own), &size) == 0);
        channel_address_ = loopback();
        channel_address_.sin6_port = channel_->address().sin6_port;
        UdpInfo info;
        info.connection_id = kPeerConnection;
        info.channel_count = 1;
        info.receive_buffer_bytes = 1 << 20;
        info.addresses[0] = own;
        expect_ok(channel_->connect(info));
    }
    ~Peer() { close(socket_); }
    Peer(const Peer&) = delete;
    Peer& operator=(const Peer&) = delete;

    void step(fuzz::Bytes& bytes) {
        switch (bytes.byte() % step_count) {
            case time_passes:
                now_ns_ += uint64_t{1} << (bytes.byte() % 34);
                break;
            case feedback: {  // of what has been sent, more or less
                FeedbackHeader said{};
                const uint64_t back = bytes.byte();
                said.highest_packet_number = channel_->statistics().packets_sent - back;
                said.packets_received = said.highest_packet_number + 1 - bytes.byte() % 16;
                said.bytes_received = said.packets_received * kPacketBytes;
                said.delay_us = bytes.take<uint16_t>();
                say(PacketKind::feedback, &said, sizeof(said));
                break;
            }
            case wrong_feedback: {
                const fuzz::Input body = bytes.take_bytes(bytes.byte() % 48);
                say(PacketKind::feedback, body.data(), body.size());
                break;
            }
            case probe: {
                const auto header = bytes.take<ProbeHeader>();
                fuzz::Input body(bytes.byte() % 4 == 0 ? header.datagram_bytes % 2048
                                                       : sizeof(header));
                const auto* bytes_of_it = reinterpret_cast<const unsigned char*>(&header);
                std::copy_n(bytes_of_it, std::min(body.size(), sizeof(header)), body.begin());
                say(PacketKind::probe, body.data(), body.size());
                break;
            }
            case reply: {  // to a probe that there was, or not
                ProbeHeader header{bytes.take<uint16_t>(), bytes.byte()};
                say(PacketKind::probe_reply, &header, sizeof(header));
                break;
            }
            default: {
                const auto kind = static_cast<PacketKind>(bytes.byte());
                const fuzz::Input body = bytes.take_bytes(bytes.byte());
                say(kind, body.data(), body.size());
            }
        }
        take_turn();
    }

    // Time-outs end whatever the peer has said about what is on the way.
    void expect_that_it_goes_on() {
        constexpr int kTurns = 10;
        const uint64_t before = channel_->statistics().packets_sent;
        for (int turn = 0; turn < kTurns; turn++) {
            const uint64_t next_ns = channel_->next_time_ns();
            now_ns_ = next_ns == kNoTimer ? now_ns_ : std::max(now_ns_, next_ns);
            take_turn();
        }
        TIFFIN_ASSERT(channel_->statistics().packets_sent > before);
    }

  private:
    static void expect_ok(const Result<void>& result) { TIFFIN_ASSERT(result.ok()); }
    static sockaddr_in6 loopback() {
        sockaddr_in6 address{};
        address.sin6_family = AF_INET6;
        address.sin6_addr = in6addr_loopback;
        return address;
    }

    void say(PacketKind kind, const void* body, size_t body_bytes) {
        const bool is_report = kind == PacketKind::feedback || kind == PacketKind::probe ||
                               kind == PacketKind::probe_reply;
        DatagramHeader header =
            (is_report ? report_sealer_ : sealer_).seal(kind, host::crc32c(0, body, body_bytes));
        fuzz::Input datagram(sizeof(header) + body_bytes);
        std::memcpy(datagram.data(), &header, sizeof(header));
        if (body_bytes > 0) {
            std::memcpy(datagram.data() + sizeof(header), body, body_bytes);
        }
        TIFFIN_ASSERT(sendto(socket_, datagram.data(), datagram.size(), 0,
                             reinterpret_cast<const sockaddr*>(&channel_address_),
                             sizeof(channel_address_)) >= 0);
    }

    void take_turn() {
        now_ns_ += 1000;
        (void)channel_->receive(now_ns_);
        (void)channel_->deliver(now_ns_, sender_);
        const uint64_t before = channel_->statistics().packets_sent;
        sender_.begin_turn();
        (void)channel_->transmit(now_ns_, sender_);
        const ChannelStatistics now = channel_->statistics();
        TIFFIN_ASSERT(now.packets_sent - before <= kMostInATurn);
        TIFFIN_ASSERT(now.path_packet_bytes <= kMaxUdpPacketBytes);
        unsigned char ignored[1];
        while (recv(socket_, ignored, sizeof(ignored), MSG_TRUNC) > 0) {
        }
    }

    static constexpr unsigned char kKey[kTagKeyBytes] = {};

    UdpOptions options_;
    std::unique_ptr<UdpChannel> channel_;
    Sender sender_;
    int socket_ = -1;
    sockaddr_in6 channel_address_ = {};
    DatagramSealer sealer_{kKey, kConnection, 0};
    DatagramSealer report_sealer_{kKey, kConnection, kFeedbackChannel};
    uint64_t now_ns_ = 1'000'000'000;
};

}  // namespace
}  // namespace tiffin::rdma_blk::sdr

namespace tiffin::fuzz {

std::vector<Input> seeds() {
    using namespace rdma_blk::sdr;
    const Input path = {feedback, 1,     0,   100, 0,        time_passes, 20, feedback, 2, 1, 50,
                        0,        probe, 176, 4,   0,        0,           1,  0,        0, 0, 0,
                        reply,    40,    5,   0,   feedback, 1,           0,  10,       0};
    const Input lies = {wrong_feedback,
                        32,
                        255,
                        255,
                        255,
                        255,
                        255,
                        255,
                        255,
                        127,
                        1,
                        2,
                        3,
                        4,
                        5,
                        6,
                        7,
                        8,
                        9,
                        wrong_feedback,
                        3,
                        1,
                        2,
                        3,
                        reply,
                        255,
                        255,
                        1,
                        packet,
                        1,
                        4,
                        1,
                        2,
                        3,
                        4,
                        feedback,
                        200,
                        15,
                        255,
                        255,
                        time_passes,
                        33,
                        packet,
                        3,
                        2,
                        9,
                        9};
    return {path, lies};
}

void repair(Input&) {}

}  // namespace tiffin::fuzz

namespace {

// For the first socket with UDP_GRO the kernel changes its own code, and back with the last: milliseconds each time.
// One that stays spares each input that.
void keep_a_socket_with_gro() {
    static const int socket = ::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    static const int ignored = setsockopt(socket, SOL_UDP, UDP_GRO, &on, sizeof(on));
    (void)ignored;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace tiffin;
    keep_a_socket_with_gro();
    fuzz::Bytes bytes(data, size);
    rdma_blk::sdr::Peer peer;
    constexpr int kMostSteps = 200;
    for (int step = 0; step < kMostSteps && bytes.left() > 0; step++) {
        peer.step(bytes);
    }
    peer.expect_that_it_goes_on();
    return 0;
}
