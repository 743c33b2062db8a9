// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Which way requests take where two work: the stream that keeps the session, or datagrams (request_path.h). Where
// nothing is lost the two are equally fast; where packets are lost, a stream waits for each repetition with all that is
// behind it. Nobody knows a network before it is used, so this measures: when the stream has lost packets, both ways
// take requests in turns, and the one on which they were answered sooner is kept, until the next trial.
//
// A state machine that is told of times and events. One thread at a time; no lock, no allocation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rdma_blk/remote_memory.h"

namespace tiffin::rdma_blk {

class WayChoice {
  public:
    enum class Way : uint8_t { stream, datagrams };
    // What is compared with its like.
    enum class Load : uint8_t { small_read, small_write, large_read, large_write, none };
    static constexpr uint64_t kLargeBytes = 16384;

    struct Options {
        // So many packets lost on the stream, and this share of all, are worth a trial. 0: the first look is.
        uint64_t least_losses = 8;
        uint32_t least_loss_ppm = 500;
        // Requests that go one way before it is the other's turn.
        uint32_t window_requests = 64;
    };
    explicit WayChoice(const Options& options) : options_(options) {}

    // ---- When there is a trial ----

    // Since the connection began; what was lost by either end, as far as this one can tell.
    struct StreamCounts {
        uint64_t packets = 0;
        uint64_t lost = 0;
    };
    // When the next look at the stream is due.
    uint64_t next_look_ns() const { return next_look_ns_; }
    void look(uint64_t now_ns, const StreamCounts& counts);
    // Whether there should be datagrams: for a trial, or because they are the way.
    bool wants_datagrams() const { return is_trial_due_ || is_trying_ || way_ == Way::datagrams; }
    // Requests may go as datagrams from here on. / May not: the connection has ended, and with it a trial.
    void datagrams_begin();
    void datagrams_end();
    // They cannot be had, or were and stopped coming through: not tried for a while, longer each time.
    void datagrams_failed(uint64_t now_ns);

    // ---- Requests ----

    // The next one's. Precondition of `datagrams`: they have begun and not ended.
    Way way() const;
    bool is_trying() const { return is_trying_; }
    // But for trials.
    Way settled() const { return way_; }
    // A request is sent: what done() has to be told of it; 0: nothing.
    uint32_t sent(Load load);
    // It has been answered, after so long.
    void done(uint64_t now_ns, uint32_t mark, const Operation& operation, uint64_t duration_ns);

    static Load load_of(const Operation& operation);

    // The last trial, for people. Sums of what all its requests would have taken on either way; 0: there was none.
    uint64_t stream_ns() const { return verdict_ns_[0]; }
    uint64_t datagrams_ns() const { return verdict_ns_[1]; }

  private:
    static constexpr uint32_t kTurns = 3;  // of each way in a trial
    static constexpr size_t kLoads = static_cast<size_t>(Load::none);
    // What is found is kept for this long, and for twice as long each time that it is found again.
    static constexpr uint64_t kLeastPauseNs = 60'000'000'000;
    static constexpr uint64_t kMostPauseNs = 16 * kLeastPauseNs;
    static constexpr uint64_t kLookNs = 1'000'000'000;
    // Of one load on one way, less tells nothing.
    static constexpr uint64_t kLeastRequests = 8;

    struct Sum {
        uint64_t requests = 0;
        uint64_t units = 0;  // requests of small ones, bytes of large ones
        uint64_t duration_ns = 0;
    };

    Way turn(uint32_t request) const;
    void begin_trial();
    void judge(uint64_t now_ns);
    void pause(uint64_t now_ns, Way way);

    const Options options_;
    Way way_ = Way::stream;
    bool has_datagrams_ = false;
    bool is_trial_due_ = false;
    bool is_trying_ = false;
    uint32_t trial_ = 0;  // its number, and the mark of its requests
    uint32_t sent_ = 0;   // in this trial
    uint32_t done_ = 0;
    Sum sums_[2][kLoads];
    StreamCounts seen_;  // when the last trial ended
    uint64_t next_look_ns_ = 0;
    uint64_t quiet_until_ns_ = 0;
    uint64_t pause_ns_ = kLeastPauseNs / 2;
    uint64_t verdict_ns_[2] = {0, 0};
};

}  // namespace tiffin::rdma_blk
