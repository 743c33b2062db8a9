// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include <algorithm>

#include "bench/sdr/connection_pair.h"

namespace tiffin::bench_sdr {
namespace {

// Far above what a message needs: a protocol that makes no progress in virtual time would run for ever.
constexpr uint64_t kMaxEventsForMessage = 50'000'000;

class MessageRun {
  public:
    explicit MessageRun(const Point& point)
        : point_(point),
          network_(network_options(point)),
          pair_(network_, point, point.message_bytes, point.seed * 1000) {}

    Outcome run() {
        for (uint64_t i = 0; i < point_.warm_up + point_.samples && outcome_.error.empty(); ++i) {
            if (i == point_.warm_up) {
                sent_bytes_before_ = pair_.forward_link().counters().sent_bytes;
            }
            one_message(i >= point_.warm_up);
        }
        std::sort(outcome_.times_s.begin(), outcome_.times_s.end());
        outcome_.sent_share =
            static_cast<double>(pair_.forward_link().counters().sent_bytes - sent_bytes_before_) /
            (static_cast<double>(point_.samples) * static_cast<double>(point_.message_bytes));
        outcome_.events = network_.steps();
        return std::move(outcome_);
    }

  private:
    void one_message(bool counts) {
        const sdr::ReliabilityStatistics sender_before = pair_.sender_statistics();
        const sdr::ReliabilityStatistics receiver_before = pair_.receiver_statistics();
        // The receive is known at the sender, and all of the message before is gone from the network.
        pair_.post_receive();
        network_.advance(std::max(network_.now_ns(), pair_.forward_link().free_ns()) +
                         point_.round_trip_ns() + 1000);

        const uint64_t start_ns = network_.now_ns();
        const uint64_t done = pair_.sent() + 1;
        const uint64_t last_step = network_.steps() + kMaxEventsForMessage;
        pair_.send();
        while (pair_.sent() < done) {
            if (!network_.step() || network_.steps() > last_step) {
                outcome_.error = "a message was never acknowledged";
                return;
            }
        }
        if (pair_.received() != pair_.sent() || !pair_.ok()) {
            outcome_.error = "a message failed";
            return;
        }
        if (counts) {
            outcome_.times_s.push_back(static_cast<double>(network_.now_ns() - start_ns) * 1e-9);
            count(sender_before, receiver_before);
        }
    }

    void count(const sdr::ReliabilityStatistics& sender_before,
               const sdr::ReliabilityStatistics& receiver_before) {
        const sdr::ReliabilityStatistics& sender = pair_.sender_statistics();
        const uint64_t failed =
            pair_.receiver_statistics().groups_failed - receiver_before.groups_failed;
        outcome_.failed_groups += failed;
        outcome_.fallbacks += failed > 0 ? 1 : 0;
        outcome_.repeated_chunks += sender.chunks_repeated - sender_before.chunks_repeated;
        outcome_.coded_messages +=
            sender.parity_chunks_sent > sender_before.parity_chunks_sent ? 1 : 0;
    }

    const Point& point_;
    sdr::Network network_;
    ConnectionPair pair_;
    Outcome outcome_;
    uint64_t sent_bytes_before_ = 0;
};

}  // namespace

Outcome measure_messages(const Point& point) { return MessageRun(point).run(); }

}  // namespace tiffin::bench_sdr
