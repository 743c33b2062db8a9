// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Ring Allreduce among N: the buffer is cut into N parts; in each of 2N - 2 stages every node sends one part to the
// next, which it can do when it has received that of the stage before: parts overtake each other where one is repeated,
// and what came ahead of its turn lets nobody go on. It takes no time to add what was received.
#include <algorithm>
#include <memory>

#include "bench/sdr/connection_pair.h"

namespace tiffin::bench_sdr {
namespace {

constexpr uint64_t kMaxEventsForRound = 100'000'000;

class RingRun {
  public:
    explicit RingRun(const Point& point)
        : point_(point), network_(network_options(point)), stages_(2 * point.ring_nodes - 2) {
        part_bytes_ = (point.message_bytes + point.ring_nodes - 1) / point.ring_nodes;
        for (uint32_t node = 0; node < point.ring_nodes; ++node) {
            to_next_.push_back(std::make_unique<ConnectionPair>(network_, point, part_bytes_,
                                                                point.seed * 1000 + 2 * node));
        }
        sent_.resize(point.ring_nodes);
    }

    Outcome run() {
        for (uint64_t i = 0; i < point_.warm_up + point_.samples && outcome_.error.empty(); ++i) {
            one_round(i >= point_.warm_up);
        }
        std::sort(outcome_.times_s.begin(), outcome_.times_s.end());
        uint64_t sent_bytes = 0;
        for (const auto& pair : to_next_) {
            sent_bytes += pair->forward_link().counters().sent_bytes;
        }
        outcome_.sent_share = static_cast<double>(sent_bytes) /
                              (static_cast<double>(point_.warm_up + point_.samples) * stages_ *
                               point_.ring_nodes * static_cast<double>(part_bytes_));
        outcome_.events = network_.steps();
        return std::move(outcome_);
    }

  private:
    void one_round(bool counts) {
        for (const auto& pair : to_next_) {
            for (uint64_t i = 0; i < stages_; ++i) {
                pair->post_receive();
            }
        }
        network_.advance(network_.now_ns() + 2 * point_.round_trip_ns());

        const uint64_t start_ns = network_.now_ns();
        const uint64_t last_step = network_.steps() + kMaxEventsForRound;
        for (uint32_t node = 0; node < point_.ring_nodes; ++node) {
            to_next_[node]->send();
            sent_[node] = 1;
        }
        while (!is_done()) {
            if (!network_.step() || network_.steps() > last_step) {
                outcome_.error = "a stage never ended";
                return;
            }
            for (uint32_t node = 0; node < point_.ring_nodes; ++node) {
                go_on(node);
            }
        }
        ++rounds_;
        for (const auto& pair : to_next_) {
            if (!pair->ok()) {
                outcome_.error = "a message failed";
            }
        }
        if (counts) {
            outcome_.times_s.push_back(static_cast<double>(network_.now_ns() - start_ns) * 1e-9);
        }
    }

    // Parts of this round without one missing before them.
    uint64_t received_this_round(uint32_t node) {
        const uint32_t previous = (node + point_.ring_nodes - 1) % point_.ring_nodes;
        return to_next_[previous]->received_in_order() - rounds_ * stages_;
    }

    // Everything was received, and every sender knows.
    bool is_done() {
        for (const auto& pair : to_next_) {
            if (pair->sent() < (rounds_ + 1) * stages_ ||
                pair->received() < (rounds_ + 1) * stages_) {
                return false;
            }
        }
        return true;
    }

    // Sends the next part where the one before has come.
    void go_on(uint32_t node) {
        const uint64_t received = received_this_round(node);
        while (sent_[node] < stages_ && sent_[node] <= received) {
            to_next_[node]->send();
            ++sent_[node];
        }
    }

    const Point& point_;
    sdr::Network network_;
    uint64_t stages_;
    uint64_t part_bytes_ = 0;
    std::vector<std::unique_ptr<ConnectionPair>> to_next_;  // of node i, to node i + 1
    std::vector<uint64_t> sent_;                            // parts of this round, by node
    uint64_t rounds_ = 0;
    Outcome outcome_;
};

}  // namespace

Outcome measure_ring(const Point& point) { return RingRun(point).run(); }

}  // namespace tiffin::bench_sdr
