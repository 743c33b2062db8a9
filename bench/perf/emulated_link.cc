// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "bench/perf/emulated_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

namespace tiffin::fuse {
namespace {

// A connection that hears nothing for 10 s has failed, and opening one takes some round trips.
constexpr double kMostDelayNs = 1e9;
constexpr double kLeastBitsPerSecond = 1e5;
constexpr double kMostBitsPerSecond = 1e12;
constexpr double kMostBurst = 1e6;
constexpr double kLeastQueueBytes = 256 * 1024;

struct Unit {
    std::string_view name;
    double factor;
};

// A number and one of the units; nothing: it is neither.
template <size_t kCount>
std::optional<double> parse_quantity(std::string_view text, const Unit (&units)[kCount]) {
    double number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc{}) {
        return std::nullopt;
    }
    const std::string_view name(rest, static_cast<size_t>(end - rest));
    for (const Unit& unit : units) {
        if (unit.name == name) {
            return number * unit.factor;
        }
    }
    return std::nullopt;
}

std::optional<double> parse_delay_ns(std::string_view text) {
    static constexpr Unit kUnits[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    return parse_quantity(text, kUnits);
}

std::optional<double> parse_rate(std::string_view text) {
    static constexpr Unit kUnits[] = {{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
    return parse_quantity(text, kUnits);
}

}  // namespace

OrProblem<std::optional<PerfLink>> parse_link(const PerfLinkArguments& arguments) {
    if (!arguments.loss && !arguments.burst && arguments.delay.empty() && arguments.rate.empty()) {
        return std::optional<PerfLink>();
    }
    PerfLink link;
    link.loss = arguments.loss.value_or(0);
    if (!(link.loss >= 0 && link.loss < 1)) {
        return Problem{"--loss is a share of the datagrams, from 0 to less than 1, such as 0.01"};
    }
    link.burst = arguments.burst.value_or(1);
    if (!(link.burst >= 1 && link.burst <= kMostBurst) || (arguments.burst && link.loss == 0)) {
        return Problem{
            "--burst says how many datagrams are lost at once, at least 1, and needs --loss"};
    }
    if (link.burst > 1 && link.loss / (1 - link.loss) > link.burst) {
        return Problem{"so much loss takes longer bursts: between two of them something arrives"};
    }
    if (!arguments.delay.empty()) {
        const std::optional<double> delay_ns = parse_delay_ns(arguments.delay);
        if (!delay_ns || !(*delay_ns >= 0 && *delay_ns <= kMostDelayNs)) {
            return Problem{"--delay is a time of up to 1s with us, ms or s, such as 10ms"};
        }
        link.delay_ns = static_cast<uint64_t>(*delay_ns);
    }
    if (!arguments.rate.empty()) {
        const std::optional<double> rate = parse_rate(arguments.rate);
        if (!rate || !(*rate >= kLeastBitsPerSecond && *rate <= kMostBitsPerSecond)) {
            return Problem{
                "--rate is a number from 100kbit to 1000gbit with kbit, mbit or gbit, such as "
                "100mbit"};
        }
        link.bits_per_second = *rate;
    }
    return std::optional<PerfLink>(link);
}

rdma_blk::simulation::EmulatorOptions emulator_options(const PerfLink& link) {
    rdma_blk::simulation::EmulatorOptions options;
    rdma_blk::simulation::LinkOptions& forward = options.forward;
    forward.bits_per_second = link.bits_per_second;
    forward.delay_ns = link.delay_ns;
    forward.loss = rdma_blk::simulation::burst_loss(link.loss, link.burst);
    if (link.has_rate()) {
        const double round_trip_bytes =
            link.bits_per_second / 8 * 2 * static_cast<double>(link.delay_ns) * 1e-9;
        forward.queue_bytes = static_cast<uint64_t>(std::max(round_trip_bytes, kLeastQueueBytes));
    }
    options.backward = forward;
    return options;
}

std::string describe_link(const PerfLink& link) {
    std::string text = fmt::format("{:g} % of datagrams lost", link.loss * 100);
    if (link.burst > 1) {
        text += fmt::format(" in bursts of {:g}", link.burst);
    }
    text += fmt::format(", {:g} ms", static_cast<double>(link.delay_ns) / 1e6);
    if (link.has_rate()) {
        text += fmt::format(", {:g} Mbit/s", link.bits_per_second / 1e6);
    }
    return text + " each way";
}

}  // namespace tiffin::fuse
