// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How the congestion control of the UDP carrier shares a bottleneck with one CUBIC flow, on a simulated link of 20 ms
// round trip with a queue of half, one and two bandwidth-delay products; the one or the other begins five seconds
// before. Prints the share of the carrier from 20 to 60 seconds of virtual time, and what it gets alone when one packet
// in a hundred is lost by chance.
//
// usage: bottleneck_share_load [ROUND_TRIP_MS]
#include <cstdio>
#include <cstdlib>

#include "rdma_blk/sdr/simulated/bottleneck.h"

using tiffin::rdma_blk::sdr::Bottleneck;
using tiffin::rdma_blk::sdr::BottleneckOptions;

int main(int argument_count, char** arguments) {
    constexpr uint64_t kSecondNs = 1'000'000'000;
    constexpr uint64_t kLaterStartNs = 5 * kSecondNs;
    const double round_trip_ms = argument_count > 1 ? std::atof(arguments[1]) : 20;
    if (round_trip_ms <= 0) {
        std::fprintf(stderr, "usage: bottleneck_share_load [ROUND_TRIP_MS]\n");
        return 2;
    }
    std::printf("%10s %12s %12s %8s\n", "Mbit/s", "queue/BDP", "first", "share");
    for (const double mbit : {100.0, 1000.0}) {
        for (const double queue_share : {0.5, 1.0, 2.0}) {
            BottleneckOptions options;
            options.bits_per_second = mbit * 1e6;
            options.one_way_ns = static_cast<uint64_t>(round_trip_ms * 5e5);
            options.queue_share = queue_share;
            for (const bool cubic_first : {true, false}) {
                options.cubic_from_ns = cubic_first ? 0 : kLaterStartNs;
                options.carrier_from_ns = cubic_first ? kLaterStartNs : 0;
                Bottleneck bottleneck(options);
                bottleneck.run_until(20 * kSecondNs);
                std::printf("%10g %12g %12s %8.2f\n", mbit, queue_share,
                            cubic_first ? "CUBIC" : "carrier",
                            bottleneck.run_until(60 * kSecondNs).carrier_share());
            }
            options.cubic_from_ns = BottleneckOptions::kNever;
            options.carrier_from_ns = 0;
            options.loss = 0.01;
            Bottleneck alone(options);
            const double bits = static_cast<double>(alone.run_until(30 * kSecondNs).carrier) * 8 *
                                static_cast<double>(Bottleneck::kPacketBytes);
            std::printf("%10g %12g %12s %8.2f\n", mbit, queue_share, "1 % lost",
                        bits / 30 / options.bits_per_second);
        }
    }
    return 0;
}
