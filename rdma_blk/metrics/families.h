// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Families of metrics for Prometheus, on their way from counters to text. One thread at a time.
#pragma once

#include <prometheus/metric_family.h>

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace tiffin::metrics {

using Family = prometheus::MetricFamily;
using Type = prometheus::MetricType;
using Labels = std::vector<prometheus::ClientMetric::Label>;

// Of a counter or gauge.
void add_value(Family& family, Labels labels, double value);

// Of a histogram. `buckets`: counts, not cumulative, each with the upper bound of its bucket in seconds, ascending;
// what took longer than the last bound is `beyond`.
void add_histogram(Family& family, Labels labels,
                   const std::vector<std::pair<uint64_t, double>>& buckets, uint64_t beyond,
                   double sum_s);

class Families {
  public:
    // The family stays where it is as long as this exists.
    Family& add(std::string name, std::string help, Type type);
    // A family with one value.
    void add(std::string name, std::string help, Type type, Labels labels, double value) {
        add_value(add(std::move(name), std::move(help), type), std::move(labels), value);
    }

    // In Prometheus' text format.
    std::string text() const;

  private:
    std::deque<Family> families_;
};

inline constexpr const char* kTextFormat = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace tiffin::metrics
