// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Virtual time: events of any number of endpoints, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

namespace tiffin::rdma_blk::simulation {

// Events of the same time come out in the order in which they were put in, so that a run can be repeated. May
// allocate: simulations are tests and measurements. One thread at a time.
template <typename Event>
class EventQueue {
  public:
    // `at_ns` before now counts as now.
    void put(uint64_t at_ns, Event event) {
        entries_.push({at_ns < now_ns_ ? now_ns_ : at_ns, next_sequence_++, std::move(event)});
    }

    // Takes the next event and moves time on to it. Not when empty().
    Event take() {
        now_ns_ = entries_.top().at_ns;
        Event event = entries_.top().event;
        entries_.pop();
        return event;
    }

    [[nodiscard]] bool empty() const { return entries_.empty(); }
    [[nodiscard]] size_t size() const { return entries_.size(); }
    // Of the next event. Not when empty().
    [[nodiscard]] uint64_t next_ns() const { return entries_.top().at_ns; }
    [[nodiscard]] uint64_t now_ns() const { return now_ns_; }

  private:
    struct Entry {
        uint64_t at_ns;
        uint64_t sequence;
        Event event;
        bool operator<(const Entry& other) const {
            return at_ns != other.at_ns ? at_ns > other.at_ns : sequence > other.sequence;
        }
    };

    std::priority_queue<Entry> entries_;
    uint64_t next_sequence_ = 0;
    uint64_t now_ns_ = 0;
};

}  // namespace tiffin::rdma_blk::simulation
