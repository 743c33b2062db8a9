// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/datagram_path.h"

#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "fs/vfs/host.h"
#include "rdma_blk/transport/sdr/message_use.h"
#include "rdma_blk/wire/parse.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint16_t kMessageCount = 64;
// What one path may do before the others of its thread have their turn.
constexpr uint64_t kBytesInATurn = uint64_t{1} << 20;

// Whose turn this thread is in: what is queued meanwhile is sent at its end.
thread_local const DatagramPath* serving_path = nullptr;

}  // namespace

// ---- Set-up -----------------------------------------------------------------------------------------------

Result<std::shared_ptr<DatagramPath>> DatagramPath::make(const DatagramLimits& limits,
                                                         ServerCounters& counters,
                                                         std::function<void()> wake) {
    std::shared_ptr<DatagramPath> path(new DatagramPath(limits, counters, std::move(wake)));
    path->is_counted_ = true;
    if (counters.sdr_paths.fetch_add(1) >= limits.max_paths) {
        return Error::enospc;
    }
    return path;
}

MessagePathOptions DatagramPath::message_options(const TrafficKeys& keys) const {
    MessagePathOptions options;
    options.message_count = kMessageCount;
    options.drop_ppm = limits_.drop_ppm;
    options.landing_slots = std::min(limits_.landing_slots, kMessageCount);
    options.set_keys(keys, false);
    return options;
}

template <typename End>
void DatagramPath::begin(const End& end) {
    std::memcpy(end_, &end, sizeof(end));
    end_bytes_ = sizeof(end);
    socket_ = messages_->descriptor();
    landed_.reserve(kMessageCount);
    messages_->transmit(host::monotonic_ns());
}

Result<std::shared_ptr<DatagramPath>> DatagramPath::create(
    const DatagramLimits& limits, ServerCounters& counters, const sockaddr_in6& local,
    const sockaddr_in6& peer, const TrafficKeys& keys, const wire::DatagramPathEnd& offer,
    uint32_t known_packet_bytes, std::function<void()> wake) {
    std::shared_ptr<DatagramPath> path = TRY(make(limits, counters, std::move(wake)));
    MessagePathOptions options = path->message_options(keys);
    options.local = local;
    options.local.sin6_port = htons(limits.port);
    options.shares_port = true;
    options.set_repair(offer.repair);
    sockaddr_in6 address = peer;
    address.sin6_port = htons(offer.port);
    options.packet_bytes = std::min(TRY(datagram_packet_bytes(address)), offer.packet_bytes);
    if (known_packet_bytes != 0) {
        options.packet_bytes = std::min(options.packet_bytes, known_packet_bytes);
    }
    MutexLock lock(path->mutex_);
    path->messages_ = TRY(MessagePath::create(options));
    const wire::DatagramPathEnd end = MessagePath::common(path->messages_->end(), offer);
    TRY(path->messages_->start(MessagePath::common(offer, end), address));
    path->begin(end);
    return path;
}

// What both can is known before anything is made: this end's numbers are those of both.
Result<std::shared_ptr<DatagramPath>> DatagramPath::create_uc(
    const DatagramLimits& limits, ServerCounters& counters, const uint8_t address[16],
    const TrafficKeys& keys, const wire::UcPathEnd& offer, std::function<void()> wake) {
    std::shared_ptr<DatagramPath> path = TRY(make(limits, counters, std::move(wake)));
    path->is_uc_ = true;
    std::string problem;
    auto device = verbs::devices().open(address, problem);
    if (!device.ok()) {
        host::log(host::LogLevel::warning, ("no sdr over uc for a client: " + problem).c_str());
        return device.error();
    }
    MessagePathOptions options = path->message_options(keys);
    options.set_repair(offer.repair);
    options.message_count = std::min(kUcPathMessages, offer.message_count);
    options.packet_bytes = std::min((*device)->capabilities().mtu_bytes, offer.packet_bytes);
    auto made = MessagePath::create_uc(options, device.release_value());
    if (!made.ok()) {
        host::log(host::LogLevel::warning,
                  "no sdr over uc for a client: the RDMA device does not do it: no memory windows "
                  "of type 2B, or too "
                  "little memory to lock (ulimit -l?)");
        return made.error();
    }
    MutexLock lock(path->mutex_);
    path->messages_ = made.release_value();
    const wire::UcPathEnd end = path->messages_->uc_end();
    wire::UcPathEnd agreed = offer;
    agreed.packet_bytes = end.packet_bytes;
    agreed.message_count = end.message_count;
    TRY(path->messages_->start_uc(agreed));
    path->begin(end);
    return path;
}

DatagramPath::~DatagramPath() {
    if (is_counted_) {
        counters_.sdr_paths.fetch_sub(1);
    }
}

void DatagramPath::close() {
    MutexLock lock(mutex_);
    if (!is_closed_) {
        is_closed_ = true;
        publish();
        messages_.reset();
        socket_ = -1;
    }
}

void DatagramPath::tick() {
    MutexLock lock(mutex_);
    if (is_closed_) {
        return;
    }
    const uint64_t datagrams = messages_->datagrams_received();
    if (datagrams != ticked_datagrams_) {
        ticked_datagrams_ = datagrams;
        has_given_back_ = false;
    } else if (!has_given_back_) {
        messages_->give_memory_back();
        has_given_back_ = true;
    }
}

uint64_t DatagramPath::next_time_ns(uint64_t now_ns) const {
    MutexLock lock(mutex_);
    return is_closed_ ? sdr::kNoTimer : messages_->next_time_ns(now_ns);
}

// ---- Requests ---------------------------------------------------------------------------------------------

Result<void> DatagramPath::serve(uint64_t now_ns, VolumeSession& session) {
    serving_path = this;
    const auto result = serve_turn(now_ns, session);
    serving_path = nullptr;
    MutexLock lock(mutex_);
    if (is_closed_) {
        return Error::enodev;
    }
    release_landed(now_ns);
    messages_->transmit(now_ns);
    publish();
    // The client learns only of its own direction: the next path's packets shall pass in this one, too.
    if (!is_uc_) {
        session.set_known_packet_bytes(published_.next_packet_bytes(session.known_packet_bytes()));
    }
    if (!result.ok()) {
        return result;
    }
    return is_broken_ || is_ending_.load() || messages_->has_failed() ? Result<void>(Error::enodev)
                                                                      : Result<void>();
}

bool DatagramPath::look(uint64_t now_ns) {
    MutexLock lock(mutex_);
    return is_closed_ || messages_->look(now_ns) || now_ns >= messages_->next_time_ns(now_ns);
}

Result<void> DatagramPath::serve_turn(uint64_t now_ns, VolumeSession& session) {
    uint64_t begin_bytes = 0;
    for (int turn = 0;; turn++) {
        bool has_more = false;
        {
            MutexLock lock(mutex_);
            if (is_closed_) {
                return {};
            }
            if (turn > 0) {
                messages_->transmit(now_ns);
            } else {
                begin_bytes = messages_->bytes_received();
            }
            has_more = messages_->take(now_ns) &&
                       messages_->bytes_received() - begin_bytes < kBytesInATurn;
            const uint64_t datagrams = messages_->datagrams_received();
            has_heard_ = has_heard_ || datagrams != heard_datagrams_;
            heard_datagrams_ = datagrams;
        }
        TRY(handle_messages(now_ns, session));
        if (!has_more) {
            break;
        }
    }
    return {};
}

Result<void> DatagramPath::handle_messages(uint64_t now_ns, VolumeSession& session) {
    MessagePath::Message message;
    bool is_handled = false;
    while (true) {
        {
            MutexLock lock(mutex_);
            if (is_handled) {
                landed_.push_back(message);
                release_landed(now_ns);
            }
            if (!next_message(message)) {
                return {};
            }
        }
        TRY(handle(message, session));
        is_handled = true;
    }
}

// A request is taken when there is room for its answer, behind those of the requests that were taken before.
bool DatagramPath::next_message(MessagePath::Message& message) {
    if (is_closed_ || is_ending_.load() || messages_->free_messages() <= expected_answers_ ||
        !messages_->next_message(message)) {
        return false;
    }
    expected_answers_ += message.use == static_cast<uint32_t>(MessageUse::wire) ? 1 : 0;
    return true;
}

Result<void> DatagramPath::handle(const MessagePath::Message& message, VolumeSession& session) {
    if (message.use == static_cast<uint32_t>(MessageUse::hello)) {
        MutexLock lock(mutex_);
        if (!messages_->has_room()) {
            return Error::enodev;
        }
        *messages_->begin_message() = 0;
        return messages_->send_message(host::monotonic_ns(), 1, message.use);
    }
    if (message.use != static_cast<uint32_t>(MessageUse::wire)) {
        return Error::eproto;
    }
    const wire::MessageHeader header = TRY(wire::parse_header(message.bytes));
    const size_t begin_bytes = sizeof(header) + wire::fixed_part_bytes(header);
    if (message.bytes.size() != begin_bytes + wire::payload_bytes(header)) {
        return Error::eproto;
    }
    const wire::Request request =
        TRY(wire::parse_request(header, message.bytes.subspan(sizeof(header))));
    const ByteSpan payload = message.bytes.subspan(begin_bytes);
    if ((request.flags & wire::request_flag::has_checksum) != 0 && !payload.empty() &&
        host::crc32c(0, payload.data(), payload.size()) != request.payload_checksum) {
        return Error::eproto;
    }
    has_request_ = true;
    has_taken_request_ = true;
    return session.handle_request(shared_from_this(), request, payload);
}

// Requests that wait have been copied. While that is too much, their slots take nothing new; those that are posted
// still do, so that the request that the others wait for, which was sent before them, arrives.
void DatagramPath::release_landed(uint64_t now_ns) {
    while (!landed_.empty() && held_bytes_.load() <= limits_.held_bytes) {
        messages_->release(now_ns, landed_.back());
        landed_.pop_back();
    }
}

// ---- Answers: any thread ----------------------------------------------------------------------------------

void DatagramPath::send_response(const wire::Response& response, ByteSpan payload) {
    {
        MutexLock lock(mutex_);
        expected_answers_ -= expected_answers_ > 0 ? 1 : 0;
        if (is_closed_ || is_broken_ || is_ending_.load()) {
            return;
        }
        if (!messages_->has_room()) {
            is_broken_ = true;  // has failed, or an answer that next_message() did not expect
        } else {
            unsigned char* const begin = messages_->begin_message();
            constexpr size_t kHeadBytes = sizeof(wire::MessageHeader) + sizeof(response);
            if (!payload.empty()) {
                std::memcpy(begin + kHeadBytes, payload.data(), payload.size());
            }
            wire::Response answer = response;
            if (messages_->needs_checksum(kHeadBytes + payload.size())) {
                answer.payload_checksum = host::crc32c(0, begin + kHeadBytes, payload.size());
                answer.flags |= wire::response_flag::has_checksum;
            }
            (void)wire::encode(wire::MessageType::response, 0, answer, payload.size(), begin);
            const auto queued =
                messages_->send_message(host::monotonic_ns(), kHeadBytes + payload.size(),
                                        static_cast<uint32_t>(MessageUse::wire));
            is_broken_ = !queued.ok();
        }
    }
    wake();
}

void DatagramPath::request_ignored() {
    {
        MutexLock lock(mutex_);
        expected_answers_ -= expected_answers_ > 0 ? 1 : 0;
    }
    wake();  // what had no room for its answer has it now
}

void DatagramPath::end(const wire::Notice* /*notice*/) {
    is_ending_.store(true);
    wake();
}

void DatagramPath::hold(size_t payload_bytes, size_t /*answer_bytes*/) {
    held_bytes_.fetch_add(payload_bytes);
}

void DatagramPath::release_held(size_t payload_bytes, size_t /*answer_bytes*/) {
    held_bytes_.fetch_sub(payload_bytes);
    wake();
}

void DatagramPath::wake() {
    if (serving_path != this) {
        wake_();
    }
}

// ---- Counters ---------------------------------------------------------------------------------------------

void DatagramPath::publish() {
    const MessagePathStatistics now = messages_->statistics();
    count_if_any(counters_.sdr_datagrams_sent, now.datagrams_sent - published_.datagrams_sent);
    count_if_any(counters_.sdr_datagrams_received,
                 now.datagrams_received - published_.datagrams_received);
    if (is_uc_) {
        count_if_any(counters_.sdr_uc_packets_sent, now.datagrams_sent - published_.datagrams_sent);
        count_if_any(counters_.sdr_uc_packets_received,
                     now.datagrams_received - published_.datagrams_received);
    }
    count_if_any(counters_.sdr_datagrams_refused,
                 now.datagrams_refused - published_.datagrams_refused);
    count_if_any(counters_.sdr_datagrams_dropped,
                 now.datagrams_dropped - published_.datagrams_dropped);
    count_if_any(counters_.sdr_chunks_lost, now.chunks_lost - published_.chunks_lost);
    count_if_any(counters_.sdr_chunks_repeated, now.chunks_repeated - published_.chunks_repeated);
    count_if_any(counters_.sdr_blocks_decoded, now.blocks_decoded - published_.blocks_decoded);
    count_if_any(counters_.sdr_blocks_failed, now.blocks_failed - published_.blocks_failed);
    count_if_any(counters_.sdr_bytes_copied, now.bytes_copied - published_.bytes_copied);
    published_ = now;
}

}  // namespace tiffin::rdma_blk
