// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The carrier that is no network: endpoints on links in virtual time.
//
//     Network network({});
//     const auto a = network.add(sender), b = network.add(receiver);
//     network.connect(a, b, network.add_link(options, seed), network.add_link(back, seed + 1));
//     <post something to an endpoint>; network.kick(a);
//     while (network.step()) { look at completions; network.kick() what was asked for more }
//
// A run that arrives is given to its endpoint in the pieces that the link left of it, each when its last packet is
// there. So what an endpoint learns from a packet in the middle of a piece it learns late, by up to the time of
// max_run_packets on the wire: choose that small beside a round trip. With max_run_packets = 1 and chunks of one packet
// every packet arrives at its own time.
//
// Deterministic. May allocate: this is for tests and measurements. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "rdma_blk/sdr/endpoint.h"
#include "rdma_blk/sdr/tunables.h"
#include "rdma_blk/simulation/event_queue.h"
#include "rdma_blk/simulation/link.h"

namespace tiffin::rdma_blk::sdr {

struct NetworkOptions {
    // QueuePairAttributes::packet_bytes of all endpoints.
    uint32_t packet_bytes = kDefaultPacketBytes;
    // What every packet takes on the wire besides its payload or control message.
    uint64_t header_bytes = 0;
    // The most that is asked of an endpoint at once.
    uint32_t max_run_packets = 64;
};

class Network {
  public:
    using Node = size_t;
    using LinkNumber = size_t;

    explicit Network(const NetworkOptions& options) : options_(options) {}

    // The endpoint outlives the network.
    Node add(Endpoint& endpoint);
    LinkNumber add_link(const simulation::LinkOptions& options, uint64_t seed);
    // Each node is connected once; several may share a link, which then has to have room in its queue.
    void connect(Node first, Node second, LinkNumber first_to_second, LinkNumber second_to_first);

    // To be called after something was asked of an endpoint from outside.
    void kick(Node node);

    // Handles the next event; false: there is none.
    bool step();
    // Handles everything up to that time, and makes it now.
    void advance(uint64_t until_ns);
    // When the next event is; kNoTimer: none.
    [[nodiscard]] uint64_t next_event_ns() const;
    [[nodiscard]] uint64_t now_ns() const { return now_ns_; }
    [[nodiscard]] uint64_t steps() const { return steps_; }

    [[nodiscard]] const simulation::Link& link(LinkNumber number) const { return links_[number]; }

  private:
    enum class What : uint8_t { data, control, link_free, timer };
    struct Event {
        What what;
        uint32_t node;
        uint32_t parcel;  // data and control: what arrives
    };
    // Something that travels, with room for its bytes. Kept for the next one when it has arrived.
    struct Parcel {
        DataRun run;
        std::vector<unsigned char> bytes;
    };
    struct NodeState {
        Endpoint* endpoint = nullptr;
        Node peer = 0;
        LinkNumber link = 0;
        uint64_t timer_ns = kNoTimer;  // the event that counts; others of this node are old
        bool waits_for_link = false;
    };

    void handle(const Event& event);
    void send(NodeState& from, const Transmit& transmit);
    void send_run(NodeState& from, const DataRun& run);
    uint32_t take_parcel();

    NetworkOptions options_;
    simulation::EventQueue<Event> events_;
    std::vector<NodeState> nodes_;
    std::vector<simulation::Link> links_;
    std::vector<Parcel> parcels_;
    std::vector<uint32_t> free_parcels_;
    std::unique_ptr<Transmit> transmit_ = std::make_unique<Transmit>();
    uint64_t now_ns_ = 0;
    uint64_t steps_ = 0;
};

}  // namespace tiffin::rdma_blk::sdr
