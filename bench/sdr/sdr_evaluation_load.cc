// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Measures points of the evaluation of software-defined reliability (docs/sdr-evaluation.md), in virtual time.
//
//     sdr_evaluation_load KEY=VALUE...    one point
//     sdr_evaluation_load < POINTS        one for each line of words KEY=VALUE
//
// Keys: scheme (sr_rto, sr_nack, ec_xor, ec_mds, auto), bytes, drop, burst, control_lost, gbit, rtt_ms, packet,
// k, m, nodes (of a ring Allreduce; 0: single messages), samples (0: only the model), warm_up, seed. Prints an object of JSON for each
// point, on a line, with the model's figures beside. bench/sdr/evaluate makes points and reads what comes out.
#include <cstdio>
#include <iostream>
#include <string>

#include "bench/sdr/point.h"

namespace {

using namespace tiffin::bench_sdr;

void print_outcome(const Outcome& outcome) {
    std::printf(", \"mean_s\": %.9g, \"standard_error_s\": %.3g, ", outcome.mean_s(),
                outcome.standard_error_s());
    std::printf("\"p50_s\": %.9g, \"p99_s\": %.9g, \"p999_s\": %.9g, \"max_s\": %.9g, ",
                outcome.quantile_s(0.5), outcome.quantile_s(0.99), outcome.quantile_s(0.999),
                outcome.times_s.back());
    std::printf("\"sent_share\": %.6g, \"failed_groups\": %llu, \"fallbacks\": %llu, ",
                outcome.sent_share, static_cast<unsigned long long>(outcome.failed_groups),
                static_cast<unsigned long long>(outcome.fallbacks));
    std::printf("\"repeated_chunks\": %llu, \"coded_messages\": %llu, \"events\": %llu",
                static_cast<unsigned long long>(outcome.repeated_chunks),
                static_cast<unsigned long long>(outcome.coded_messages),
                static_cast<unsigned long long>(outcome.events));
}

void print(const std::string& line, const Point& point, const Outcome& outcome) {
    std::printf("{\"point\": \"%s\", \"scheme\": \"%s\", \"bytes\": %llu, \"drop\": %g, ",
                line.c_str(), point.scheme.c_str(),
                static_cast<unsigned long long>(point.message_bytes), point.drop_rate);
    if (!outcome.error.empty()) {
        std::printf("\"error\": \"%s\"}\n", outcome.error.c_str());
        return;
    }
    std::printf("\"samples\": %zu", outcome.times_s.size());
    if (!outcome.times_s.empty()) {
        print_outcome(outcome);
    }
    const ModelFigures model = predict(point);
    if (model.exists) {
        std::printf(", \"model_mean_s\": %.9g, \"model_p99_s\": %.9g, \"model_p999_s\": %.9g, ",
                    model.mean_s, model.p99_s, model.p999_s);
        std::printf("\"model_fallback\": %.6g, \"model_is_lower_bound\": %s",
                    model.fallback_probability, model.lower_bound ? "true" : "false");
        if (model.estimate_s > 0) {
            std::printf(", \"estimate_mean_s\": %.9g", model.estimate_s);
        }
    }
    std::printf("}\n");
    std::fflush(stdout);
}

bool measure(const std::string& line) {
    Point point;
    const std::string problem = parse_point(line, point);
    if (!problem.empty()) {
        std::fprintf(stderr, "sdr_evaluation_load: %s\n", problem.c_str());
        return false;
    }
    const Outcome outcome = point.samples == 0     ? Outcome{}
                            : point.ring_nodes > 0 ? measure_ring(point)
                                                   : measure_messages(point);
    print(line, point, outcome);
    return outcome.error.empty();
}

}  // namespace

int main(int argc, char** argv) {
    bool ok = true;
    std::string line;
    for (int i = 1; i < argc; ++i) {
        line += (i > 1 ? " " : "") + std::string(argv[i]);
    }
    if (argc > 1) {
        return measure(line) ? 0 : 1;
    }
    while (std::getline(std::cin, line)) {
        ok = measure(line) && ok;
    }
    return ok ? 0 : 1;
}
