// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/metrics/families.h"

#include <prometheus/text_serializer.h>

#include <limits>

namespace tiffin::metrics {

void add_value(Family& family, Labels labels, double value) {
    prometheus::ClientMetric metric;
    metric.label = std::move(labels);
    metric.counter.value = value;
    metric.gauge.value = value;
    family.metric.push_back(std::move(metric));
}

void add_histogram(Family& family, Labels labels,
                   const std::vector<std::pair<uint64_t, double>>& buckets, uint64_t beyond,
                   double sum_s) {
    prometheus::ClientMetric metric;
    metric.label = std::move(labels);
    uint64_t total = 0;
    for (const auto& [count, bound_s] : buckets) {
        total += count;
        metric.histogram.bucket.push_back({total, bound_s});
    }
    total += beyond;
    metric.histogram.bucket.push_back({total, std::numeric_limits<double>::infinity()});
    metric.histogram.sample_count = total;
    metric.histogram.sample_sum = sum_s;
    family.metric.push_back(std::move(metric));
}

Family& Families::add(std::string name, std::string help, Type type) {
    families_.push_back(Family{std::move(name), std::move(help), type, {}});
    return families_.back();
}

std::string Families::text() const {
    return prometheus::TextSerializer().Serialize({families_.begin(), families_.end()});
}

}  // namespace tiffin::metrics
