// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/sdr/simulated/network.h"

#include <algorithm>

namespace tiffin::rdma_blk::sdr {

using simulation::Arrival;

Network::Node Network::add(Endpoint& endpoint) {
    nodes_.push_back({.endpoint = &endpoint});
    return nodes_.size() - 1;
}

Network::LinkNumber Network::add_link(const simulation::LinkOptions& options, uint64_t seed) {
    links_.emplace_back(options, seed);
    return links_.size() - 1;
}

void Network::connect(Node first, Node second, LinkNumber first_to_second,
                      LinkNumber second_to_first) {
    nodes_[first].peer = second;
    nodes_[first].link = first_to_second;
    nodes_[second].peer = first;
    nodes_[second].link = second_to_first;
}

// Sends while the link is free, then sees to it that the node is called again.
void Network::kick(Node number) {
    NodeState& node = nodes_[number];
    const auto index = static_cast<uint32_t>(number);
    while (!node.waits_for_link) {
        const uint64_t free_ns = links_[node.link].free_ns();
        if (free_ns > now_ns_) {
            node.waits_for_link = true;
            events_.put(free_ns, {What::link_free, index, 0});
        } else if (node.endpoint->next_transmit(now_ns_, options_.max_run_packets, *transmit_)) {
            send(node, *transmit_);
        } else {
            break;
        }
    }
    const uint64_t timer_ns = node.endpoint->next_timer_ns();
    // What is due and cannot be sent before the link is free: this is called again then.
    const bool is_stuck = node.waits_for_link && timer_ns <= now_ns_;
    if (timer_ns < node.timer_ns && !is_stuck) {
        node.timer_ns = timer_ns;
        events_.put(timer_ns, {What::timer, index, 0});
    }
}

bool Network::step() {
    if (events_.empty()) {
        return false;
    }
    const Event event = events_.take();
    now_ns_ = std::max(now_ns_, events_.now_ns());
    ++steps_;
    handle(event);
    return true;
}

void Network::advance(uint64_t until_ns) {
    while (next_event_ns() <= until_ns) {
        step();
    }
    now_ns_ = std::max(now_ns_, until_ns);
}

uint64_t Network::next_event_ns() const { return events_.empty() ? kNoTimer : events_.next_ns(); }

void Network::handle(const Event& event) {
    NodeState& node = nodes_[event.node];
    switch (event.what) {
        case What::data:
            node.endpoint->on_data(now_ns_, parcels_[event.parcel].run);
            free_parcels_.push_back(event.parcel);
            break;
        case What::control: {
            const Parcel& parcel = parcels_[event.parcel];
            node.endpoint->on_control(now_ns_, ByteSpan(parcel.bytes.data(), parcel.bytes.size()));
            free_parcels_.push_back(event.parcel);
            break;
        }
        case What::link_free:
            node.waits_for_link = false;
            break;
        case What::timer:
            if (node.timer_ns > now_ns_) {
                return;  // replaced by an earlier one, which has been
            }
            node.timer_ns = kNoTimer;
            if (node.endpoint->next_timer_ns() <= now_ns_) {
                node.endpoint->on_timer(now_ns_);
            }
            break;
    }
    kick(event.node);
}

void Network::send(NodeState& from, const Transmit& transmit) {
    if (!transmit.is_control) {
        send_run(from, transmit.run);
        return;
    }
    links_[from.link].send(
        now_ns_, 1, transmit.control_bytes + options_.header_bytes, [&](const Arrival& arrival) {
            const uint32_t index = take_parcel();
            parcels_[index].bytes.assign(transmit.control,
                                         transmit.control + transmit.control_bytes);
            events_.put(arrival.last_ns, {What::control, static_cast<uint32_t>(from.peer), index});
        });
}

void Network::send_run(NodeState& from, const DataRun& run) {
    // The message's last packet may be shorter, but takes the time of a whole one.
    const uint64_t stride = options_.packet_bytes;
    links_[from.link].send(
        now_ns_, run.packet_count, stride + options_.header_bytes, [&](const Arrival& arrival) {
            const uint32_t index = take_parcel();
            Parcel& parcel = parcels_[index];
            const uint64_t offset = arrival.first * stride;
            parcel.run = run;
            parcel.run.first_packet += static_cast<uint32_t>(arrival.first);
            parcel.run.packet_count = static_cast<uint32_t>(arrival.count);
            parcel.run.payload_bytes = std::min(arrival.count * stride, run.payload_bytes - offset);
            if (arrival.first + arrival.count < run.packet_count) {
                parcel.run.flags = 0;  // they are the last packet's
            }
            if (run.payload != nullptr) {
                parcel.bytes.assign(run.payload + offset,
                                    run.payload + offset + parcel.run.payload_bytes);
                parcel.run.payload = parcel.bytes.data();
            } else if (run.gather != nullptr) {
                parcel.bytes.resize(parcel.run.payload_bytes);
                run.gather->copy(run.gather_offset + offset, parcel.run.payload_bytes,
                                 parcel.bytes.data());
                parcel.run.payload = parcel.bytes.data();
                parcel.run.gather = nullptr;
            }
            events_.put(arrival.last_ns, {What::data, static_cast<uint32_t>(from.peer), index});
        });
}

uint32_t Network::take_parcel() {
    if (free_parcels_.empty()) {
        parcels_.emplace_back();
        return static_cast<uint32_t>(parcels_.size() - 1);
    }
    const uint32_t index = free_parcels_.back();
    free_parcels_.pop_back();
    return index;
}

}  // namespace tiffin::rdma_blk::sdr
