// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A TcpMemory that measures which way its requests should take (way_choice.h).
#include <string>
#include <utility>

#include "rdma_blk/transport/tcp/stream_info.h"
#include "rdma_blk/transport/tcp/tcp_memory.h"

namespace tiffin::rdma_blk {

// What this end has repeated, and what came to it out of its order: behind a lost one, or overtaken.
void TcpMemory::watch_stream(uint64_t now_ns) {
    if (!choice_ || is_broken_ || now_ns < choice_->next_look_ns()) {
        return;
    }
    tcp_info info;
    WayChoice::StreamCounts counts;
    if (read_stream_info(stream().socket(), info)) {
        counts.packets = uint64_t{info.tcpi_data_segs_out} + info.tcpi_data_segs_in;
        counts.lost = uint64_t{info.tcpi_total_retrans} + info.tcpi_rcv_ooopack;
    }
    choice_->look(now_ns, counts);
    if (choice_->wants_datagrams()) {
        want_join(active());
    }
}

void TcpMemory::note_way(const wire::Request& request, const Operation& operation,
                         bool takes_path) {
    if (!choice_) {
        return;
    }
    SlotNote& note = notes_[request.slot];
    note.is_on_path = takes_path;
    path_pending_ += takes_path ? 1 : 0;
    if (!choice_->is_trying() || (request.flags & wire::request_flag::reply_only) != 0) {
        return;
    }
    note.mark = choice_->sent(WayChoice::load_of(operation));
    note.sent_ns = note.mark == 0 ? 0 : host::monotonic_ns();
}

void TcpMemory::note_answer(SlotNote& note, const Operation& operation) {
    if (!choice_) {
        return;
    }
    TIFFIN_ASSERT(!note.is_on_path || path_pending_ > 0);
    path_pending_ -= note.is_on_path ? 1 : 0;
    note.is_on_path = false;
    if (!choice_->is_trying()) {
        return;
    }
    const WayChoice::Way before = choice_->settled();
    const bool is_first = choice_->stream_ns() == 0;
    const uint64_t now = host::monotonic_ns();
    choice_->done(now, std::exchange(note.mark, 0), operation, now - note.sent_ns);
    if (choice_->is_trying()) {
        return;
    }
    const WayChoice::Way way = choice_->settled();
    note_who_sums_up();
    host::log(way != before || is_first ? host::LogLevel::info : host::LogLevel::debug,
              ("remote memory: requests take " +
               std::string(way == WayChoice::Way::datagrams ? "sdr" : "tcp") + ": in a trial " +
               std::to_string(choice_->datagrams_ns() / 1000) + " us over sdr, " +
               std::to_string(choice_->stream_ns() / 1000) + " us over tcp")
                  .c_str());
    set_state(state_);
}

// Nothing is on its way there, and nothing will be: who receives sleeps on the stream alone.
bool TcpMemory::is_request_path_resting() const {
    return choice_ && path_pending_ == 0 && paths_[at_].requests->is_up() &&
           !takes_request_path(paths_[at_]);
}

// Its timers, and what came late, so that the other end does not take it for dead.
void TcpMemory::serve_resting_path() {
    if (!paths_[at_].has_request_path()) {
        return;
    }
    const uint64_t now = host::monotonic_ns();
    if (now >= path_served_ns_ + kLongestPathSleepNs) {
        path_served_ns_ = now;
        serve_request_path();
    }
}

}  // namespace tiffin::rdma_blk
