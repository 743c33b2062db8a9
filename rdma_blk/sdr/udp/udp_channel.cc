// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/sdr/udp/udp_channel.h"

#include <netinet/udp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

namespace tiffin::rdma_blk::sdr {
namespace {

Result<void> last_error() { return static_cast<Error>(errno); }

}  // namespace

UdpChannel::UdpChannel(const UdpOptions& options, uint16_t index, uint32_t connection_id)
    : options_(options),
      index_(index),
      opener_(options.receive_key, connection_id, index),
      feedback_opener_(options.receive_key, connection_id, index | kFeedbackChannel),
      trial_loss_(options.drop_ppm) {}

UdpChannel::~UdpChannel() {
    if (socket_ >= 0) {
        close(socket_);
    }
}

Result<void> UdpChannel::open() {
    buffers_.reset(new (std::nothrow) unsigned char[kReceiveBatch * kBufferBytes]);
    received_.reset(new (std::nothrow) Received[kMaxReceived]);
    if (buffers_ == nullptr || received_ == nullptr) {
        return Error::enomem;
    }
    TRY(sent_times_.open());
    receive_call_.reset(new (std::nothrow) ReceiveCall(buffers_.get()));
    if (receive_call_ == nullptr) {
        return Error::enomem;
    }
    address_ = options_.local;
    address_.sin6_port = index_ > 0 ? 0 : address_.sin6_port;
    SocketAddress local(address_);
    socket_ = ::socket(local.family(), SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket_ < 0) {
        return last_error();
    }
    const int on = 1;
    const int off = 0;
    // Best effort: buffers may be smaller than asked for, and an old kernel has no GRO for UDP.
    (void)setsockopt(socket_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    (void)setsockopt(socket_, SOL_UDP, UDP_GRO, &on, sizeof(on));
    if (setsockopt(socket_, SOL_SOCKET, SO_RCVBUFFORCE, &kSocketBufferBytes, sizeof(int)) != 0) {
        (void)setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &kSocketBufferBytes, sizeof(int));
    }
    (void)setsockopt(socket_, SOL_SOCKET, SO_SNDBUF, &kSocketBufferBytes, sizeof(int));
    if (options_.shares_port &&
        setsockopt(socket_, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) != 0) {
        return last_error();
    }
    socklen_t size = local.size();
    int given = 0;
    socklen_t given_size = sizeof(given);
    if (bind(socket_, local.get(), size) != 0 || getsockname(socket_, local.get(), &size) != 0 ||
        getsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &given, &given_size) != 0) {
        return last_error();
    }
    address_.sin6_family = AF_INET6;
    address_.sin6_port = local.port();
    // The kernel counts its own overhead: about half is for payload.
    receive_buffer_bytes_ = static_cast<uint64_t>(given) / 2;
    return {};
}

Result<void> UdpChannel::connect(const UdpInfo& peer) {
    const sockaddr_in6& address = peer.addresses[index_];
    peer_ = SocketAddress(address);
    // The kernel prefers a socket that has a peer over all others of its port.
    is_connected_ = options_.shares_port || options_.has_one_peer;
    if (is_connected_ && ::connect(socket_, peer_.get(), peer_.size()) != 0) {
        return last_error();
    }
    sealer_.reset(new (std::nothrow) DatagramSealer(options_.send_key, peer.connection_id, index_));
    feedback_sealer_.reset(new (std::nothrow) DatagramSealer(options_.send_key, peer.connection_id,
                                                             index_ | kFeedbackChannel));
    congestion_.reset(new (std::nothrow)
                          Congestion(options_.packet_bytes, peer.receive_buffer_bytes));
    bool is_made = sealer_ != nullptr && feedback_sealer_ != nullptr && congestion_ != nullptr;
    if (index_ == 0) {
        Result<uint32_t> known = udp_path_packet_bytes(address);
        const uint32_t used = kDataDatagramBytes + options_.packet_bytes;
        const uint32_t most = kDataDatagramBytes + (known.ok() ? *known : options_.packet_bytes);
        path_probe_.reset(new (std::nothrow) PathProbe(std::min(kPathLeastBytes, used),
                                                       std::min(kPathBaseBytes, used), used,
                                                       std::max(used, most)));
        is_made = is_made && path_probe_ != nullptr;
    }
    return is_made ? Result<void>() : Result<void>(Error::enomem);
}

uint64_t UdpChannel::next_time_ns() const {
    uint64_t next_ns = feedback_ns_;
    if (is_blocked_) {
        next_ns = std::min(next_ns, congestion_->timeout_at_ns());
    }
    if (path_probe_ != nullptr) {
        next_ns = std::min(next_ns, path_probe_->next_ns());
    }
    if (is_paced_) {
        next_ns = std::min(next_ns, pace_ns_);
    }
    return next_ns;
}

void UdpChannel::add_statistics(UdpStatistics& sum) const {
    sum.datagrams_sent += published_.datagrams_sent;
    sum.datagrams_received += published_.datagrams_received;
    sum.datagrams_refused += published_.datagrams_refused;
    sum.datagrams_dropped += published_.datagrams_dropped;
    sum.datagrams_failed += published_.datagrams_failed;
    sum.send_calls += published_.send_calls;
    sum.receive_calls += published_.receive_calls;
    sum.path_packet_bytes = std::max(sum.path_packet_bytes, published_.path_packet_bytes);
    sum.path_is_too_narrow = sum.path_is_too_narrow || published_.path_is_too_narrow;
}

PacketChannel::Taken UdpChannel::take(uint64_t now_ns, const ExpectedPlace& place) {
    const uint64_t before = statistics_.datagrams_received;
    Taken taken;
    taken.may_have_more = place.bytes != nullptr ? receive_to(now_ns, place) : receive(now_ns);
    taken.has_any = statistics_.datagrams_received != before;
    return taken;
}

ChannelStatistics UdpChannel::statistics() const {
    ChannelStatistics result;
    result.packets_sent = published_.datagrams_sent;
    result.packets_received = published_.datagrams_received;
    result.packets_refused = published_.datagrams_refused;
    result.packets_dropped = published_.datagrams_dropped + published_.datagrams_failed;
    result.send_calls = published_.send_calls;
    result.receive_calls = published_.receive_calls;
    result.path_packet_bytes = published_.path_packet_bytes;
    result.path_is_too_narrow = published_.path_is_too_narrow;
    return result;
}

}  // namespace tiffin::rdma_blk::sdr
