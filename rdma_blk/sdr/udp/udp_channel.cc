// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/sdr/udp/udp_channel.h"

#include <netinet/udp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk::sdr {
namespace {

constexpr uint32_t kDataDatagramBytes = sizeof(DatagramHeader) + sizeof(DataHeader);

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
        path_probe_.reset(new (std::nothrow) PathProbe(std::min(kPathBaseBytes, used), used,
                                                       std::max(used, most)));
        is_made = is_made && path_probe_ != nullptr;
    }
    return is_made ? Result<void>() : Result<void>(Error::enomem);
}

// ---- Receiving -------------------------------------------------------------------------------------------

// Of each datagram but the last of those that the kernel gave as one.
size_t UdpChannel::segment_bytes_of(msghdr& header, size_t size_bytes) {
    for (cmsghdr* entry = CMSG_FIRSTHDR(&header); entry != nullptr;
         entry = CMSG_NXTHDR(&header, entry)) {
        if (entry->cmsg_level == SOL_UDP && entry->cmsg_type == UDP_GRO) {
            int given = 0;
            std::memcpy(&given, CMSG_DATA(entry), sizeof(given));
            return given > 0 ? static_cast<size_t>(given) : size_bytes;
        }
    }
    return size_bytes;
}

UdpChannel::ReceiveCall::ReceiveCall(unsigned char* buffers) {
    for (uint32_t index = 0; index < kReceiveBatch; index++) {
        parts[index] = {buffers + size_t{index} * kBufferBytes, kBufferBytes};
        messages[index].msg_hdr.msg_iov = &parts[index];
        messages[index].msg_hdr.msg_iovlen = 1;
        messages[index].msg_hdr.msg_control = controls[index];
        messages[index].msg_hdr.msg_controllen = kControlBytes;
    }
}

bool UdpChannel::receive(uint64_t now_ns) {
    mmsghdr* const messages = receive_call_->messages;
    received_count_ = 0;
    const int count = recvmmsg(socket_, messages, kReceiveBatch, MSG_DONTWAIT, nullptr);
    statistics_.receive_calls++;
    for (int index = 0; index < count; index++) {
        const size_t size_bytes = messages[index].msg_len;
        const size_t segment_bytes = segment_bytes_of(messages[index].msg_hdr, size_bytes);
        messages[index].msg_hdr.msg_controllen =
            ReceiveCall::kControlBytes;  // the kernel has written what it used
        const unsigned char* bytes = buffers_.get() + static_cast<size_t>(index) * kBufferBytes;
        for (size_t offset = 0; offset < size_bytes; offset += segment_bytes) {
            take_datagram(now_ns,
                          ByteSpan(bytes + offset, std::min(segment_bytes, size_bytes - offset)));
        }
    }
    return count == static_cast<int>(kReceiveBatch);
}

void UdpChannel::take_datagram(uint64_t now_ns, ByteSpan datagram, ByteSpan rest) {
    DatagramHeader header;
    if (datagram.size() > sizeof(header)) {
        std::memcpy(&header, datagram.data(), sizeof(header));
        if ((header.channel & kFeedbackChannel) != 0) {
            take_report(now_ns, datagram);
            return;  // not reported: that would never end
        }
    }
    const bool had_any = !opener_.window().empty();
    const uint64_t highest_before = had_any ? opener_.window().highest() : 0;
    Result<OpenedDatagram> opened = opener_.open(datagram, rest);
    if (!opened.ok() || received_count_ == kMaxReceived) {
        statistics_.datagrams_refused++;
        return;
    }
    statistics_.datagrams_received++;
    bytes_received_ += datagram.size() + rest.size();
    if (!had_any || opened->packet_number > highest_before) {
        highest_arrival_ns_ = now_ns;
    }
    unreported_++;
    feedback_ns_ = std::min(feedback_ns_,
                            unreported_ >= kFeedbackPackets ? now_ns : now_ns + kFeedbackDelayNs);
    received_[received_count_++] = {opened->kind, opened->body, rest};
}

// Feedback and probes, with numbers of their own.
void UdpChannel::take_report(uint64_t now_ns, ByteSpan datagram) {
    Result<OpenedDatagram> opened = feedback_opener_.open(datagram);
    if (!opened.ok()) {
        statistics_.datagrams_refused++;
        return;
    }
    statistics_.datagrams_received++;
    if (opened->kind == PacketKind::feedback) {
        on_feedback(now_ns, opened->body);
    } else if (opened->kind == PacketKind::probe || opened->kind == PacketKind::probe_reply) {
        on_probe(now_ns, opened->kind, opened->body, datagram.size());
    } else {
        statistics_.datagrams_refused++;
    }
}

void UdpChannel::on_probe(uint64_t now_ns, PacketKind kind, ByteSpan body, size_t datagram_bytes) {
    ProbeHeader probe;
    if (body.size() < sizeof(probe)) {
        statistics_.datagrams_refused++;
        return;
    }
    std::memcpy(&probe, body.data(), sizeof(probe));
    if (kind == PacketKind::probe_reply) {
        if (path_probe_ != nullptr) {
            path_probe_->on_reply(now_ns, {probe.datagram_bytes, probe.probe_number});
        }
    } else if (probe.datagram_bytes == datagram_bytes) {
        // One at a time: a peer that sends more of them before it is answered gets one answer.
        answered_bytes_ = probe.datagram_bytes;
        answered_number_ = probe.probe_number;
    }
}

void UdpChannel::on_feedback(uint64_t now_ns, ByteSpan body) {
    if (body.size() != sizeof(FeedbackHeader) || congestion_ == nullptr) {
        return;
    }
    FeedbackHeader feedback;
    std::memcpy(&feedback, body.data(), sizeof(feedback));
    const uint64_t next = sealer_->next_number();
    if (!SentTimes::knows(feedback, next)) {
        return;
    }
    if (path_probe_ != nullptr && feedback.packets_received > peer_packets_) {
        const uint64_t packets = feedback.packets_received - peer_packets_;
        const uint64_t used = kDataDatagramBytes + options_.packet_bytes;
        // All of them were that long.
        if (packets <= SentTimes::kCount &&
            feedback.bytes_received - peer_bytes_ == packets * used) {
            path_probe_->on_used_size_came(now_ns);
        }
        peer_packets_ = feedback.packets_received;
        peer_bytes_ = feedback.bytes_received;
    }
    congestion_->on_feedback(now_ns, feedback.highest_packet_number, feedback.packets_received,
                             sent_times_.round_trip_ns(now_ns, feedback));
}

bool UdpChannel::deliver(uint64_t now_ns, Endpoint& endpoint) {
    const bool has_any = received_count_ > 0;
    for (uint32_t index = 0; index < received_count_; index++) {
        const Received& received = received_[index];
        if (received.kind == PacketKind::control) {
            endpoint.on_control(now_ns, received.body);
        } else if (received.kind == PacketKind::data || received.kind == PacketKind::parity) {
            const bool is_apart = !received.payload.empty();
            Result<DataRun> run = is_apart ? parse_data_header(received.kind, received.body)
                                           : parse_data(received.kind, received.body);
            if (run.ok() && is_apart) {
                run->payload = received.payload.data();
                run->payload_bytes = received.payload.size();
            }
            if (run.ok()) {
                endpoint.on_data(now_ns, *run);
            } else {
                statistics_.datagrams_refused++;
            }
        }
    }
    received_count_ = 0;
    return has_any;
}

// ---- Sending ---------------------------------------------------------------------------------------------

uint32_t UdpChannel::packets_allowed(uint64_t now_ns) {
    const uint64_t segment_bytes =
        sizeof(DatagramHeader) + sizeof(DataHeader) + options_.packet_bytes;
    const uint64_t fit = std::clamp<uint64_t>(kMaxSegmentsBytes / segment_bytes, 1, kMaxSegments);
    is_paced_ = options_.rate_limit_bytes_per_s != 0 && now_ns < pace_ns_;
    if (is_paced_) {
        return 0;
    }
    const uint64_t room = congestion_->room_bytes(now_ns) / options_.packet_bytes;
    is_blocked_ = room == 0;
    return static_cast<uint32_t>(std::min(room, fit));
}

bool UdpChannel::transmit(uint64_t now_ns, Endpoint& endpoint) {
    const bool is_feedback_due = now_ns >= feedback_ns_;
    if (is_feedback_due && unreported_ >= kFeedbackPackets) {
        send_feedback(now_ns);  // the peer may wait for it to go on
    }
    const bool has_more = transmit_data(now_ns, endpoint);
    // Behind data it wakes nobody.
    if (is_feedback_due && feedback_ns_ != kNoTimer) {
        send_feedback(now_ns);
    }
    serve_probes(now_ns);
    published_ = statistics_;
    return has_more;
}

bool UdpChannel::transmit_data(uint64_t now_ns, Endpoint& endpoint) {
    is_full_ = false;
    for (uint32_t sent = 0; sent < kReceiveBatch && !is_full_; sent++) {
        const uint32_t packets = packets_allowed(now_ns);
        Transmit out;
        if (packets == 0 || !endpoint.may_transmit(now_ns) ||
            !endpoint.next_transmit(now_ns, packets, out)) {
            return false;
        }
        if (out.is_control) {
            send_control(now_ns, out);
        } else {
            send_run(now_ns, out.run);
        }
    }
    return true;
}

// Headers and payloads are gathered: the kernel takes the bytes from the message's memory.
void UdpChannel::send_run(uint64_t now_ns, const DataRun& run) {
    struct Headers {
        DatagramHeader datagram;
        DataHeader data;
    };
    static_assert(sizeof(Headers) == sizeof(DatagramHeader) + sizeof(DataHeader));
    if (run.payload == nullptr && run.gather == nullptr) {
        statistics_.datagrams_failed += run.packet_count;
        return;
    }
    Headers headers[kMaxSegments];
    iovec parts[kMaxSendParts];
    uint16_t part_ends[kMaxSegments];  // of each datagram
    uint64_t offset = 0;
    uint32_t queued = 0;
    uint32_t part_count = 0;
    for (uint32_t index = 0; index < run.packet_count; index++) {
        const uint64_t size_bytes =
            std::min<uint64_t>(options_.packet_bytes, run.payload_bytes - offset);
        Headers& header = headers[queued];
        header.data = make_data_header(run, index);
        parts[part_count] = {&header, sizeof(header)};
        iovec* const payload = parts + part_count + 1;
        // The others of this call need at least two each.
        const uint32_t most = kMaxSendParts - part_count - 1 - 2 * (kMaxSegments - 1 - queued);
        const uint32_t payload_parts = find_payload(run, offset, size_bytes, queued, payload, most);
        uint32_t checksum = host::crc32c(0, &header.data, sizeof(header.data));
        for (uint32_t part = 0; part < payload_parts; part++) {
            checksum = host::crc32c(checksum, payload[part].iov_base, payload[part].iov_len);
        }
        const uint64_t number = sealer_->next_number();
        header.datagram = sealer_->seal(run.kind, checksum);
        sent_times_.note(number, now_ns);
        congestion_->on_sent(now_ns, number, size_bytes);
        offset += size_bytes;
        if (!drops()) {
            part_count += 1 + payload_parts;
            part_ends[queued] = static_cast<uint16_t>(part_count);
            queued++;
        }
        const bool is_last = index + 1 == run.packet_count;
        const bool is_full =
            queued == kMaxSegments || (queued + 1) * (sizeof(Headers) + options_.packet_bytes) >
                                          std::max<uint64_t>(kMaxSegmentsBytes, 1);
        if (queued > 0 && (is_last || is_full)) {
            send_message(parts, part_ends, queued, sizeof(Headers) + options_.packet_bytes);
            queued = 0;
            part_count = 0;
        }
    }
    if (options_.rate_limit_bytes_per_s != 0) {
        pace_ns_ = std::max(pace_ns_, now_ns) +
                   run.payload_bytes * 1'000'000'000 / options_.rate_limit_bytes_per_s;
    }
}

// Where the bytes of a packet are that is the `index`th of its call; the number of parts, of which there are not more
// than `most`: what is in more pieces is copied.
uint32_t UdpChannel::find_payload(const DataRun& run, uint64_t offset, uint64_t size_bytes,
                                  uint32_t index, iovec* parts, uint32_t most) {
    if (run.payload != nullptr) {
        parts[0] = {const_cast<unsigned char*>(run.payload + offset), size_bytes};  // only read
        return 1;
    }
    uint32_t count = 0;
    const bool has_all = run.gather->visit(
        run.gather_offset + offset, size_bytes, [&](const unsigned char* bytes, uint64_t size) {
            if (count == most) {
                return false;
            }
            parts[count++] = {const_cast<unsigned char*>(bytes), size};
            return true;
        });
    if (!has_all) {
        // What was received has been handed over: its memory is free.
        unsigned char* const copy = buffers_.get() + uint64_t{index} * options_.packet_bytes;
        run.gather->copy(run.gather_offset + offset, size_bytes, copy);
        parts[0] = {copy, size_bytes};
        count = 1;
    }
    return count;
}

void UdpChannel::send_control(uint64_t now_ns, const Transmit& out) {
    const uint64_t number = sealer_->next_number();
    sent_times_.note(number, now_ns);
    congestion_->on_sent(now_ns, number, out.control_bytes);
    const uint32_t checksum = host::crc32c(0, out.control, out.control_bytes);
    send_small(sealer_->seal(PacketKind::control, checksum), out.control, out.control_bytes);
}

void UdpChannel::send_small(DatagramHeader header, const void* bytes, size_t size_bytes) {
    if (drops()) {
        return;
    }
    iovec parts[2] = {{&header, sizeof(header)}, {const_cast<void*>(bytes), size_bytes}};
    const uint16_t part_end = 2;
    send_message(parts, &part_end, 1, 0);
}

void UdpChannel::send_feedback(uint64_t now_ns) {
    FeedbackHeader feedback{};
    feedback.highest_packet_number = opener_.window().highest();
    feedback.packets_received = opener_.window().received();
    feedback.bytes_received = bytes_received_;
    feedback.delay_us = static_cast<uint32_t>((now_ns - highest_arrival_ns_) / 1000);
    unreported_ = 0;
    feedback_ns_ = kNoTimer;
    const uint32_t checksum = host::crc32c(0, &feedback, sizeof(feedback));
    send_small(feedback_sealer_->seal(PacketKind::feedback, checksum), &feedback, sizeof(feedback));
}

// Answers the peer's probe, sends the next one of this end's, and does what they have shown.
void UdpChannel::serve_probes(uint64_t now_ns) {
    if (answered_bytes_ != 0) {
        send_probe(PacketKind::probe_reply, answered_bytes_, answered_number_);
        answered_bytes_ = 0;
    }
    if (path_probe_ == nullptr) {
        return;
    }
    if (congestion_->timeouts_in_a_row() >= kBlackHoleTimeouts && !path_probe_->is_too_narrow()) {
        path_probe_->on_black_hole(now_ns);
    }
    PathProbe::Probe probe;
    if (path_probe_->next_probe(now_ns, probe)) {
        set_fragmentation(IP_PMTUDISC_PROBE);  // it must not be cut in pieces
        send_probe(PacketKind::probe, probe.datagram_bytes, probe.number);
        // Data may be, where it does not fit: better than not at all (RFC 8899, 4.5).
        set_fragmentation(path_probe_->is_too_narrow() ? IP_PMTUDISC_DONT : IP_PMTUDISC_WANT);
    }
    statistics_.path_is_too_narrow = path_probe_->is_too_narrow();
    const uint32_t confirmed = path_probe_->confirmed_bytes();
    statistics_.path_packet_bytes =
        confirmed > kDataDatagramBytes ? confirmed - kDataDatagramBytes : 0;
}

// A reply is as small as can be; a probe has the size that it asks for.
void UdpChannel::send_probe(PacketKind kind, uint32_t datagram_bytes, uint32_t number) {
    const size_t body_bytes =
        kind == PacketKind::probe ? datagram_bytes - sizeof(DatagramHeader) : sizeof(ProbeHeader);
    // What was received has been handed over: its memory is free.
    unsigned char* const body = buffers_.get();
    std::memset(body, 0, body_bytes);
    const ProbeHeader header{datagram_bytes, number};
    std::memcpy(body, &header, sizeof(header));
    const uint64_t calls = statistics_.send_calls;
    const uint64_t failed = statistics_.datagrams_failed;
    send_small(feedback_sealer_->seal(kind, host::crc32c(0, body, body_bytes)), body, body_bytes);
    statistics_.send_calls = calls;         // nothing that anybody waits for
    statistics_.datagrams_failed = failed;  // too large is an answer, too
}

// IP_PMTUDISC_WANT, _PROBE or _DONT; IPv6 has the same numbers. Best effort.
void UdpChannel::set_fragmentation(int how) const {
    static_assert(IP_PMTUDISC_WANT == IPV6_PMTUDISC_WANT &&
                  IP_PMTUDISC_DONT == IPV6_PMTUDISC_DONT &&
                  IP_PMTUDISC_PROBE == IPV6_PMTUDISC_PROBE);
    (void)setsockopt(socket_, IPPROTO_IP, IP_MTU_DISCOVER, &how, sizeof(how));
    (void)setsockopt(socket_, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &how, sizeof(how));
}

// What the socket does not take is lost, as on any link: the protocol sends it again. But a path that does not take
// segments, because its MTU has become smaller or its device cannot make them, takes them one by one (and fragments).
void UdpChannel::send_message(iovec* parts, const uint16_t* part_ends, uint32_t datagrams,
                              uint32_t segment_bytes) {
    msghdr message{};
    if (!is_connected_) {
        message.msg_name = peer_.get();
        message.msg_namelen = peer_.size();
    }
    message.msg_iov = parts;
    message.msg_iovlen = part_ends[datagrams - 1];
    if (has_segmentation_ || datagrams == 1) {
        if (send_at_once(message, datagrams, segment_bytes)) {
            return;
        }
        has_segmentation_ = false;
    }
    message.msg_control = nullptr;
    message.msg_controllen = 0;
    uint32_t begin = 0;
    for (uint32_t index = 0; index < datagrams; index++) {
        message.msg_iov = parts + begin;
        message.msg_iovlen = part_ends[index] - begin;
        (void)send_at_once(message, 1, 0);  // one datagram is always done with
        begin = part_ends[index];
    }
}

bool UdpChannel::send_at_once(msghdr& message, uint32_t datagrams, uint32_t segment_bytes) {
    alignas(cmsghdr) unsigned char control[CMSG_SPACE(sizeof(uint16_t))] = {};
    if (datagrams > 1) {
        message.msg_control = control;
        message.msg_controllen = sizeof(control);
        cmsghdr* entry = CMSG_FIRSTHDR(&message);
        entry->cmsg_level = SOL_UDP;
        entry->cmsg_type = UDP_SEGMENT;
        entry->cmsg_len = CMSG_LEN(sizeof(uint16_t));
        const auto size = static_cast<uint16_t>(segment_bytes);
        std::memcpy(CMSG_DATA(entry), &size, sizeof(size));
    }
    statistics_.send_calls++;
    ssize_t sent = sendmsg(socket_, &message, MSG_NOSIGNAL);
    if (sent < 0 && is_connected_ && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS) {
        // A connected socket tells in the next call what an earlier datagram met (ICMP), and sends nothing then.
        sent = sendmsg(socket_, &message, MSG_NOSIGNAL);
    }
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        if (!is_full_) {  // the kernel gets a moment to make room, once in a round
            pollfd writable{socket_, POLLOUT, 0};
            (void)poll(&writable, 1, 1);
            sent = sendmsg(socket_, &message, MSG_NOSIGNAL);
        }
        is_full_ = true;
    }
    if (sent >= 0) {
        statistics_.datagrams_sent += datagrams;
        return true;
    }
    const bool was_full = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS;
    if (datagrams > 1 && !was_full && (errno == EINVAL || errno == EIO || errno == EMSGSIZE)) {
        return false;
    }
    (was_full ? statistics_.datagrams_dropped : statistics_.datagrams_failed) += datagrams;
    return true;
}

bool UdpChannel::drops() {
    const bool lost = trial_loss_.next();
    statistics_.datagrams_dropped += lost ? 1 : 0;
    return lost;
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

// ---- Without a thread of its own -------------------------------------------------------------------------

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
