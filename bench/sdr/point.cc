// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "bench/sdr/point.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <sstream>

#include "rdma_blk/sdr/model/erasure_coding.h"
#include "rdma_blk/sdr/model/estimate.h"
#include "rdma_blk/sdr/model/selective_repeat.h"

namespace tiffin::bench_sdr {
namespace {

using Setter = std::function<void(Point&, const std::string&)>;

const std::map<std::string, Setter>& setters() {
    static const std::map<std::string, Setter> all = {
        {"scheme", [](Point& p, const std::string& v) { p.scheme = v; }},
        {"bytes", [](Point& p, const std::string& v) { p.message_bytes = std::stoull(v); }},
        {"drop", [](Point& p, const std::string& v) { p.drop_rate = std::stod(v); }},
        {"burst", [](Point& p, const std::string& v) { p.mean_burst_packets = std::stod(v); }},
        {"control_lost", [](Point& p, const std::string& v) { p.control_is_lost = v == "1"; }},
        {"gbit", [](Point& p, const std::string& v) { p.gbit_per_s = std::stod(v); }},
        {"rtt_ms", [](Point& p, const std::string& v) { p.round_trip_ms = std::stod(v); }},
        {"packet",
         [](Point& p, const std::string& v) { p.packet_bytes = uint32_t(std::stoul(v)); }},
        {"k", [](Point& p, const std::string& v) { p.data_chunks = uint32_t(std::stoul(v)); }},
        {"m", [](Point& p, const std::string& v) { p.parity_chunks = uint32_t(std::stoul(v)); }},
        {"nodes", [](Point& p, const std::string& v) { p.ring_nodes = uint32_t(std::stoul(v)); }},
        {"samples", [](Point& p, const std::string& v) { p.samples = std::stoull(v); }},
        {"warm_up", [](Point& p, const std::string& v) { p.warm_up = std::stoull(v); }},
        {"seed", [](Point& p, const std::string& v) { p.seed = std::stoull(v); }},
    };
    return all;
}

sdr::SchemeKind kind_of(const std::string& scheme) {
    static const std::map<std::string, sdr::SchemeKind> kinds = {
        {"sr_rto", sdr::SchemeKind::selective_repeat},
        {"sr_nack", sdr::SchemeKind::selective_repeat_nack},
        {"ec_xor", sdr::SchemeKind::erasure_xor},
        {"ec_mds", sdr::SchemeKind::erasure_mds},
        {"auto", sdr::SchemeKind::selective_repeat_nack},
    };
    const auto found = kinds.find(scheme);
    return found == kinds.end() ? sdr::SchemeKind::none : found->second;
}

}  // namespace

std::string parse_point(const std::string& line, Point& point) {
    std::istringstream words(line);
    std::string word;
    while (words >> word) {
        const size_t equals = word.find('=');
        const auto setter = setters().find(word.substr(0, equals));
        if (equals == std::string::npos || setter == setters().end()) {
            return "unknown: " + word;
        }
        try {
            setter->second(point, word.substr(equals + 1));
        } catch (const std::exception&) {
            return "not a number: " + word;
        }
    }
    if (kind_of(point.scheme) == sdr::SchemeKind::none) {
        return "unknown scheme: " + point.scheme;
    }
    return point.message_bytes == 0 ? "nothing to do: " + line : "";
}

double Outcome::mean_s() const {
    double sum = 0;
    for (const double time_s : times_s) {
        sum += time_s;
    }
    return sum / static_cast<double>(times_s.size());
}

double Outcome::standard_error_s() const {
    const double mean = mean_s();
    double sum = 0;
    for (const double time_s : times_s) {
        sum += (time_s - mean) * (time_s - mean);
    }
    return std::sqrt(sum) / static_cast<double>(times_s.size());
}

double Outcome::quantile_s(double quantile) const {
    const auto rank =
        static_cast<size_t>(std::ceil(quantile * static_cast<double>(times_s.size())));
    return times_s[std::clamp<size_t>(rank, 1, times_s.size()) - 1];
}

sdr::QueuePairAttributes queue_pair_attributes(const Point& point) {
    sdr::QueuePairAttributes attributes;
    attributes.packet_bytes = point.packet_bytes;
    attributes.packets_per_chunk_log2 = 0;
    // A ring's receives are all posted at its start.
    attributes.max_messages = point.ring_nodes > 0 ? 4 * std::bit_ceil(point.ring_nodes) : 4;
    attributes.max_message_bytes = point.message_bytes;
    attributes.bytes_in_flight = attributes.max_messages * point.message_bytes;
    return attributes;
}

sdr::ReliabilityAttributes reliability_attributes(const Point& point) {
    sdr::ReliabilityAttributes attributes;
    attributes.scheme.kind = kind_of(point.scheme);
    if (attributes.scheme.is_erasure()) {
        attributes.scheme.data_chunks = static_cast<uint8_t>(point.data_chunks);
        attributes.scheme.parity_chunks = static_cast<uint8_t>(point.parity_chunks);
        attributes.parity_buffer_chunks =
            std::max(attributes.parity_buffer_chunks, point.parity_chunks);
    }
    attributes.automatic = point.scheme == "auto";
    attributes.initial_round_trip_us = static_cast<uint32_t>(point.round_trip_ms * 1000);
    attributes.link_rate_bytes_per_s = static_cast<uint64_t>(point.gbit_per_s * 1e9 / 8);
    attributes.without_bytes = true;
    // Nothing here is given up: a link that loses everything would hang, and has no place in the evaluation.
    attributes.give_up_ns = std::max(sdr::kDefaultGiveUpNs, 100 * point.round_trip_ns());
    return attributes;
}

ModelFigures predict(const Point& point) {
    ModelFigures figures;
    if (point.ring_nodes > 0 || point.mean_burst_packets > 1 || point.scheme == "auto") {
        return figures;
    }
    figures.exists = true;
    const double round_trip_s = point.round_trip_ms / 1000;
    const sdr::ModelPath path{point.chunk_time_s(), round_trip_s, point.drop_rate};
    const auto chunks = static_cast<double>(point.chunks());
    if (point.scheme == "sr_rto" || point.scheme == "sr_nack") {
        const double timeout_s = point.scheme == "sr_rto"
                                     ? round_trip_s * sdr::kTimeoutRoundTripsPercent / 100
                                     : round_trip_s;
        figures.mean_s = sdr::selective_repeat_mean_s(path, chunks, timeout_s);
        figures.p99_s = sdr::selective_repeat_quantile_s(path, chunks, timeout_s, 0.99);
        figures.p999_s = sdr::selective_repeat_quantile_s(path, chunks, timeout_s, 0.999);
        figures.lower_bound = sdr::selective_repeat_is_lower_bound(path, chunks, timeout_s);
        if (point.scheme == "sr_nack") {
            figures.estimate_s = sdr::estimate_repeat_on_request_s(path, point.chunks(),
                                                                   sdr::kRepeatNackPercent / 100.0);
        }
        return figures;
    }
    const sdr::ModelErasureCode code{
        point.scheme == "ec_xor" ? sdr::ModelCode::exclusive_or : sdr::ModelCode::mds,
        point.data_chunks, point.parity_chunks};
    // What is repeated is asked for by the receiver, so one round trip is its timeout; and it waits for silence.
    const sdr::ModelFallback fallback{sdr::kSilencePercent / 100.0, round_trip_s};
    figures.mean_s = sdr::erasure_coding_mean_s(path, code, point.chunks(), fallback);
    figures.p99_s = sdr::erasure_coding_quantile_s(path, code, point.chunks(), fallback, 0.99);
    figures.p999_s = sdr::erasure_coding_quantile_s(path, code, point.chunks(), fallback, 0.999);
    figures.fallback_probability = sdr::fallback_probability(code, point.chunks(), point.drop_rate);
    figures.lower_bound = sdr::selective_repeat_is_lower_bound(path, chunks, round_trip_s);
    figures.estimate_s =
        sdr::estimate_erasure_coding_s(path, code, point.chunks(), sdr::kRepeatNackPercent / 100.0);
    return figures;
}

}  // namespace tiffin::bench_sdr
