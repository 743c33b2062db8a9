// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How the congestion control of the UDP carrier shares a bottleneck with one CUBIC flow, on a simulated link of 20 ms
// round trip with a queue of half, one and two bandwidth-delay products; the one or the other begins five seconds
// before. Prints the share of the carrier from 20 to 60 seconds of virtual time.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "rdma_blk/sdr/udp/congestion.h"
#include "rdma_blk/simulation/cubic_flow.h"
#include "rdma_blk/simulation/event_queue.h"
#include "rdma_blk/simulation/link.h"

namespace {

using namespace tiffin::rdma_blk;

constexpr uint64_t kPacketBytes = 1500;
constexpr uint64_t kOneWayNs = 10'000'000;
constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kCountFromNs = 20 * kSecondNs;
constexpr uint64_t kEndNs = 60 * kSecondNs;
constexpr uint64_t kLaterStartNs = 5 * kSecondNs;
constexpr uint64_t kFeedbackPackets = 8;

class Bottleneck {
  public:
    Bottleneck(double bits_per_second, double queue_share)
        : cubic_(kSecondNs),
          congestion_(kPacketBytes, 64 << 20),
          link_(options(bits_per_second, queue_share), 3) {}

    // The carrier's share of what got through.
    double run(bool cubic_first) {
        events_.put(cubic_first ? 0 : kLaterStartNs, {What::cubic_timer, 0, 0});
        events_.put(cubic_first ? kLaterStartNs : 0, {What::carrier_timer, 0, 0});
        uint64_t cubic_before = 0;
        uint64_t carrier_before = 0;
        bool counts = false;
        while (events_.next_ns() < kEndNs) {
            const Event event = events_.take();
            if (!counts && events_.now_ns() >= kCountFromNs) {
                counts = true;
                cubic_before = cubic_.acknowledged_packets();
                carrier_before = received_;
            }
            handle(event);
        }
        const auto cubic = static_cast<double>(cubic_.acknowledged_packets() - cubic_before);
        const auto carrier = static_cast<double>(received_ - carrier_before);
        return carrier / (carrier + cubic);
    }

  private:
    enum class What { cubic_answer, cubic_timer, carrier_packet, carrier_feedback, carrier_timer };
    struct Event {
        What what;
        uint64_t number;
        uint64_t value;  // cubic_answer: when it was sent; carrier_feedback: packets received
    };

    static simulation::LinkOptions options(double bits_per_second, double queue_share) {
        simulation::LinkOptions options;
        options.bits_per_second = bits_per_second;
        options.delay_ns = kOneWayNs;
        const double product_bytes = bits_per_second / 8 * 2e-9 * static_cast<double>(kOneWayNs);
        options.queue_bytes = static_cast<uint64_t>(product_bytes * queue_share);
        return options;
    }

    void handle(const Event& event) {
        const uint64_t now_ns = events_.now_ns();
        switch (event.what) {
            case What::cubic_answer:
                cubic_.acknowledge(now_ns, event.number, now_ns - event.value);
                break;
            case What::cubic_timer:
                cubic_runs_ = true;
                cubic_.timer(now_ns);
                events_.put(now_ns + kSecondNs / 10, {What::cubic_timer, 0, 0});
                break;
            case What::carrier_packet:
                receive(now_ns, event.number);
                break;
            case What::carrier_feedback:
                congestion_.on_feedback(now_ns, event.number, event.value,
                                        now_ns - sent_ns_[event.number]);
                break;
            case What::carrier_timer:
                carrier_runs_ = true;
                events_.put(now_ns + kSecondNs / 200, {What::carrier_timer, 0, 0});
                break;
        }
        send(now_ns);
    }

    void receive(uint64_t now_ns, uint64_t number) {
        ++received_;
        highest_ = number;  // this link does not reorder
        if (received_ % kFeedbackPackets == 0 || now_ns - last_feedback_ns_ > kSecondNs / 1000) {
            last_feedback_ns_ = now_ns;
            events_.put(now_ns + kOneWayNs, {What::carrier_feedback, highest_, received_});
        }
    }

    void send(uint64_t now_ns) {
        while (cubic_runs_ && cubic_.may_send()) {
            const uint64_t number = cubic_.send(now_ns);
            link_.send(now_ns, 1, kPacketBytes, [&](const simulation::Arrival& arrival) {
                events_.put(arrival.last_ns + kOneWayNs, {What::cubic_answer, number, now_ns});
            });
        }
        while (carrier_runs_ && congestion_.room_bytes(now_ns) >= kPacketBytes) {
            const uint64_t number = sent_ns_.size();
            sent_ns_.push_back(now_ns);
            congestion_.on_sent(now_ns, number, kPacketBytes);
            link_.send(now_ns, 1, kPacketBytes, [&](const simulation::Arrival& arrival) {
                events_.put(arrival.last_ns, {What::carrier_packet, number, 0});
            });
        }
    }

    simulation::CubicFlow cubic_;
    sdr::Congestion congestion_;
    simulation::Link link_;
    simulation::EventQueue<Event> events_;
    std::vector<uint64_t> sent_ns_;
    uint64_t received_ = 0;
    uint64_t highest_ = 0;
    uint64_t last_feedback_ns_ = 0;
    bool cubic_runs_ = false;
    bool carrier_runs_ = false;
};

}  // namespace

int main() {
    std::printf("%10s %12s %12s %8s\n", "Mbit/s", "queue/BDP", "first", "share");
    for (const double mbit : {100.0, 1000.0}) {
        for (const double queue_share : {0.5, 1.0, 2.0}) {
            for (const bool cubic_first : {true, false}) {
                Bottleneck bottleneck(mbit * 1e6, queue_share);
                std::printf("%10g %12g %12s %8.2f\n", mbit, queue_share,
                            cubic_first ? "CUBIC" : "carrier", bottleneck.run(cubic_first));
            }
        }
    }
    return 0;
}
