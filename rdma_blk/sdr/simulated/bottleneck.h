// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The congestion control of the UDP carrier and a CUBIC flow on one link, in virtual time: packets that only have numbers.
// Deterministic; may allocate; one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "rdma_blk/sdr/udp/congestion.h"
#include "rdma_blk/simulation/cubic_flow.h"
#include "rdma_blk/simulation/event_queue.h"
#include "rdma_blk/simulation/link.h"

namespace tiffin::rdma_blk::sdr {

struct BottleneckOptions {
    static constexpr uint64_t kNever = ~uint64_t{0};

    double bits_per_second = 1e8;
    uint64_t one_way_ns = 10'000'000;
    double queue_share = 1;  // of the bandwidth-delay product
    double loss = 0;         // by chance, of both flows' packets
    uint64_t cubic_from_ns = 0;
    uint64_t cubic_until_ns = kNever;
    uint64_t carrier_from_ns = 0;
};

class Bottleneck {
  public:
    static constexpr uint64_t kPacketBytes = 1500;

    explicit Bottleneck(const BottleneckOptions& options, uint64_t seed = 3);

    // What each has got through since the last call, in packets.
    struct Packets {
        uint64_t carrier = 0;
        uint64_t cubic = 0;
        [[nodiscard]] double carrier_share() const {
            return static_cast<double>(carrier) / static_cast<double>(carrier + cubic);
        }
    };
    Packets run_until(uint64_t end_ns);
    // From now on the path takes that much longer, in each direction.
    void lengthen(uint64_t more_ns) { more_ns_ += more_ns; }

    [[nodiscard]] const Congestion& congestion() const { return congestion_; }
    [[nodiscard]] const simulation::CubicFlow& cubic() const { return cubic_; }
    [[nodiscard]] uint64_t queued_ns() const;

  private:
    enum class What { cubic_answer, carrier_packet, carrier_feedback, feedback_due, tick };
    struct Event {
        What what;
        uint64_t number;
        uint64_t value;  // cubic_answer: when it was sent; carrier_feedback: packets received
    };

    void handle(const Event& event);
    void receive(uint64_t now_ns, uint64_t number);
    void report(uint64_t now_ns);
    void send(uint64_t now_ns);

    BottleneckOptions options_;
    simulation::CubicFlow cubic_;
    Congestion congestion_;
    simulation::Link link_;
    simulation::EventQueue<Event> events_;
    std::vector<uint64_t> sent_ns_;  // by the carrier
    uint64_t more_ns_ = 0;
    uint64_t received_ = 0;
    uint64_t highest_ = 0;
    uint64_t unreported_ = 0;
    uint64_t reports_ = 0;
    Packets counted_;
};

}  // namespace tiffin::rdma_blk::sdr
