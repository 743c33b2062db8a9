// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Two endpoints and a network that loses, repeats, delays and reorders single packets, in virtual time. Packets are
// copied when they are sent, as on a real network: what their sender does to its memory later does not show.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include "rdma_blk/sdr/endpoint.h"
#include "rdma_blk/sdr/packet.h"

namespace tiffin::rdma_blk::sdr {

struct NetworkOptions {
    double loss = 0;
    double repeat = 0;
    double straggle = 0;  // share of packets that come up to straggle_ns later
    uint64_t delay_ns = 1'000'000;
    uint64_t jitter_ns = 0;
    uint64_t straggle_ns = 0;
    uint64_t packet_interval_ns = 1000;  // between the packets of one end
    uint32_t max_packets = 64;           // of a run
    uint32_t window_packets = 0;         // on the way from one end and not heard of; 0: no limit
    bool places = false;  // what arrives is received where it is expected, as far as it can be
    uint64_t blackout_begin_ns = 0;  // everything is lost in between
    uint64_t blackout_end_ns = 0;
};

class UnrulyNetwork {
  public:
    UnrulyNetwork(const NetworkOptions& options, uint64_t packet_bytes, uint64_t seed,
                  Endpoint& left, Endpoint& right)
        : options_(options), packet_bytes_(packet_bytes), random_(seed), ends_{&left, &right} {}

    uint64_t now_ns() const { return now_ns_; }
    uint64_t packets_sent() const { return packets_sent_; }
    uint64_t packets_of(int end) const { return packets_of_[end]; }
    uint64_t packets_at_place() const { return packets_at_place_; }

    // Until `done` says so, or nothing can happen any more, or `limit_ns`. `act` is called after every event.
    // True: `done`.
    bool run(uint64_t limit_ns, const std::function<void()>& act,
             const std::function<bool()>& done) {
        act();
        while (!done() && now_ns_ <= limit_ns) {
            transmit(0);
            transmit(1);
            act();
            const uint64_t next_ns = next_event_ns();
            if (next_ns == kNoTimer) {
                return done();
            }
            // What act() has just posted is sent soon, whenever the next event is. Where nothing is to be sent, nothing happens
            // before that.
            const bool has_any = ends_[0]->may_transmit(now_ns_) || ends_[1]->may_transmit(now_ns_);
            now_ns_ =
                std::max(now_ns_, has_any ? std::min(next_ns, now_ns_ + 10'000'000) : next_ns);
            deliver();
            for (Endpoint* end : ends_) {
                if (end->next_timer_ns() <= now_ns_) {
                    end->on_timer(now_ns_);
                }
            }
            act();
        }
        return done();
    }

  private:
    struct Packet {
        int to = 0;
        bool is_control = false;
        PacketKind kind = PacketKind::data;
        std::vector<unsigned char> bytes;
    };

    bool chance(double share) {
        return std::uniform_real_distribution<double>(0, 1)(random_) < share;
    }

    // What one end may send now: its link is free at most once per packet_interval_ns.
    void transmit(int from) {
        Transmit out;
        while (free_ns_[from] <= now_ns_ && room(from) > 0) {
            // Who says that there is nothing has nothing.
            const bool may_transmit = ends_[from]->may_transmit(now_ns_);
            if (!ends_[from]->next_transmit(now_ns_, std::min(room(from), options_.max_packets),
                                            out)) {
                break;
            }
            EXPECT_TRUE(may_transmit);
            if (out.is_control) {
                send({1 - from, true, PacketKind::control,
                      std::vector<unsigned char>(out.control, out.control + out.control_bytes)},
                     from);
                continue;
            }
            uint64_t offset = 0;
            for (uint32_t index = 0; index < out.run.packet_count; index++) {
                const DataHeader header = make_data_header(out.run, index);
                const uint64_t size = std::min(packet_bytes_, out.run.payload_bytes - offset);
                Packet packet{1 - from, false, out.run.kind,
                              std::vector<unsigned char>(sizeof(header) + size)};
                std::memcpy(packet.bytes.data(), &header, sizeof(header));
                if (out.run.gather != nullptr) {
                    out.run.gather->copy(out.run.gather_offset + offset, size,
                                         packet.bytes.data() + sizeof(header));
                } else {
                    std::memcpy(packet.bytes.data() + sizeof(header), out.run.payload + offset,
                                size);
                }
                offset += size;
                send(std::move(packet), from);
            }
        }
    }
    // What a carrier's window lets out: a packet leaves it a round trip after it was sent.
    uint32_t room(int from) {
        std::deque<uint64_t>& window = windows_[from];
        while (!window.empty() && window.front() <= now_ns_) {
            window.pop_front();
        }
        const auto used = static_cast<uint32_t>(window.size());
        return options_.window_packets == 0
                   ? options_.max_packets
                   : options_.window_packets - std::min(used, options_.window_packets);
    }
    void send(Packet packet, int from) {
        packets_sent_++;
        packets_of_[from]++;
        free_ns_[from] = std::max(free_ns_[from], now_ns_) + options_.packet_interval_ns;
        if (options_.window_packets > 0) {
            windows_[from].push_back(free_ns_[from] + 2 * options_.delay_ns);
        }
        const bool is_black =
            now_ns_ >= options_.blackout_begin_ns && now_ns_ < options_.blackout_end_ns;
        if (is_black || chance(options_.loss)) {
            return;
        }
        const int copies = chance(options_.repeat) ? 2 : 1;
        for (int copy = 0; copy < copies; copy++) {
            uint64_t at_ns = free_ns_[from] + options_.delay_ns;
            at_ns += options_.jitter_ns == 0 ? 0 : random_() % options_.jitter_ns;
            if (options_.straggle_ns > 0 && chance(options_.straggle)) {
                at_ns += random_() % options_.straggle_ns;
            }
            in_flight_.emplace(at_ns, packet);
        }
    }

    uint64_t next_event_ns() const {
        uint64_t next_ns = in_flight_.empty() ? kNoTimer : in_flight_.begin()->first;
        for (int end = 0; end < 2; end++) {
            const uint64_t timer_ns = ends_[end]->next_timer_ns();
            // A timer that is past waits for the link: it wants to send.
            next_ns = std::min(
                next_ns, timer_ns <= now_ns_ ? std::max(now_ns_ + 1, free_ns_[end]) : timer_ns);
            if (free_ns_[end] > now_ns_) {
                next_ns = std::min(next_ns, free_ns_[end]);
            }
            if (!windows_[end].empty()) {
                next_ns = std::min(next_ns, std::max(windows_[end].front(), now_ns_ + 1));
            }
        }
        return next_ns;
    }

    void deliver() {
        while (!in_flight_.empty() && in_flight_.begin()->first <= now_ns_) {
            std::vector<Packet> packets;
            take_packet(packets);
            // What arrives at the same time is received in one call.
            const size_t most = options_.places ? 1 + random_() % 8 : 1;
            while (packets.size() < most && !in_flight_.empty() &&
                   in_flight_.begin()->first <= now_ns_ &&
                   in_flight_.begin()->second.to == packets[0].to) {
                take_packet(packets);
            }
            if (options_.places) {
                deliver_to_place(packets);
            } else {
                deliver(packets[0], nullptr);
            }
        }
    }
    void take_packet(std::vector<Packet>& packets) {
        packets.push_back(std::move(in_flight_.begin()->second));
        in_flight_.erase(in_flight_.begin());
    }
    // `payload`: where it lies instead.
    void deliver(const Packet& packet, const unsigned char* payload) {
        Endpoint& end = *ends_[packet.to];
        const ByteSpan bytes(packet.bytes.data(), packet.bytes.size());
        if (packet.is_control) {
            end.on_control(now_ns_, bytes);
            return;
        }
        DataRun run = parse_data(packet.kind, bytes).release_value();
        run.payload = payload == nullptr ? run.payload : payload;
        end.on_data(now_ns_, run);
    }
    // As a carrier does that does not know what comes: all of it goes where the next packets are expected, and more.
    void deliver_to_place(const std::vector<Packet>& packets) {
        const ExpectedPlace place = ends_[packets[0].to]->expected_place();
        std::vector<const unsigned char*> payloads(packets.size(), nullptr);
        if (place.bytes != nullptr) {
            const uint64_t touched =
                std::min<uint64_t>(place.size_bytes, (packets.size() + 1) * packet_bytes_);
            std::memset(place.bytes, static_cast<int>(random_()), touched);
        }
        for (size_t index = 0; index < packets.size(); index++) {
            const uint64_t offset = index * packet_bytes_;
            const Packet& packet = packets[index];
            if (place.bytes == nullptr || packet.is_control || packet.kind != PacketKind::data) {
                continue;
            }
            const ByteSpan bytes(packet.bytes.data(), packet.bytes.size());
            const DataRun run = parse_data(packet.kind, bytes).release_value();
            if (run.message_number == place.message_number &&
                run.first_packet == place.first_packet + index &&
                offset + run.payload_bytes <= place.size_bytes) {
                std::memcpy(place.bytes + offset, run.payload, run.payload_bytes);
                payloads[index] = place.bytes + offset;
                packets_at_place_++;
            }
        }
        for (size_t index = 0; index < packets.size(); index++) {
            deliver(packets[index], payloads[index]);
        }
    }

    NetworkOptions options_;
    uint64_t packet_bytes_;
    std::mt19937_64 random_;
    Endpoint* ends_[2];
    std::multimap<uint64_t, Packet> in_flight_;
    uint64_t now_ns_ = 1'000'000'000;
    uint64_t free_ns_[2] = {0, 0};
    std::deque<uint64_t> windows_[2];  // when each packet leaves it
    uint64_t packets_sent_ = 0;
    uint64_t packets_of_[2] = {0, 0};
    uint64_t packets_at_place_ = 0;
};

}  // namespace tiffin::rdma_blk::sdr
