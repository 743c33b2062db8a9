// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The paths of a session: which of them its requests take, and when one is suspected, given up, and made again.
// docs/remote.md, "Several links", says why.
//
// A state machine that is told of times and events. No input or output, no clock, no lock, no allocation; one thread at
// a time. Its owner:
//
//     opened:   opened(), once for each incarnation, with the path on which that was opened
//     events:   sent(), answered(), heard(), acknowledged(), measured(), broken(), joined(), join_failed(), recovered(), as
//               they happen
//     after events, and at next_time_ns(): next() until it gives none, and does what it says:
//         connect   makes a connection of that path and joins it: joined() or join_failed()
//         probe     sends a probe, if the peer has acknowledged nothing (acknowledged())
//         leave     a path that is to be taken away has nothing on its way any more: its connection is closed
//         remove    ... and the server has ended it: its place is free
//         close     the path has been given up: its connection is closed, nothing of it touches a buffer afterwards
//         recover   asks over `over` what became of the requests that were sent on `path` (wire::PathRecover), and has the
//                   server end that path first if must_revoke() says so: recovered()
//     sends requests on active() while is_ready() of it, or with set_spreads() on all paths that may_take(); when
//         has_living() is false the incarnation is over
//
// With one path nothing is ever suspected: silence ends it after some probe intervals.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tiffin::rdma_blk {

class SessionMachine {
  public:
    static constexpr size_t kMaxPaths = 8;
    static constexpr size_t kNoPath = kMaxPaths;
    static constexpr uint64_t kNever = ~uint64_t{0};
    // A path is suspect after 8 delays and 4 deviations, and not before this.
    static constexpr uint64_t kLeastSuspicionNs = 1'000'000;
    // ... and given up when it stays silent for so long, or for 16 times what makes it suspect: a packet that was lost is
    // repeated by then.
    static constexpr uint64_t kLeastCondemnationNs = 1'000'000'000;
    // For how long a path that has failed is not preferred again; twice as long each time that it fails within kSteadyNs.
    static constexpr uint64_t kLeastHoldNs = 1'000'000'000;
    static constexpr uint64_t kMostHoldNs = 64'000'000'000;
    static constexpr uint64_t kSteadyNs = 60'000'000'000;
    static constexpr uint32_t kSamplesOfLeast = 4;

    enum class PathState : uint8_t {
        down,     // no connection
        joining,  // being made
        ready,
        suspect,  // silent with something pending: takes nothing new
        removed,  // taken away; its place is free
    };
    struct Action {
        enum class Kind : uint8_t { none, connect, probe, close, recover, leave, remove };
        Kind kind = Kind::none;
        size_t path = 0;
        size_t over = 0;  // recover
    };
    struct PathCounts {
        uint64_t suspicions = 0;
        uint64_t failures = 0;      // given up, by silence or by an error
        uint64_t failovers = 0;     // requests left it for one of these reasons
        uint64_t suspected_ns = 0;  // the last time
    };

    // 1 to kMaxPaths, in the order in which they are preferred.
    explicit SessionMachine(size_t path_count) : path_count_(path_count) {}

    // ---- Events ----

    // `delay_ns`, here and where one is joined: the network's, until a probe has been measured; 0: not known.
    void opened(size_t path, uint64_t now_ns, uint64_t probe_interval_ns, uint64_t delay_ns);
    // The incarnation is over: no path is left.
    void lost();
    // A request went out on the path. / Its answer came, or it went out on another one.
    void sent(size_t path, uint64_t now_ns);
    void answered(size_t path);
    // Something but a request waits for an answer on the active path, or does no longer.
    void set_asking(bool asks, uint64_t now_ns);
    // That should have come by now: the active path is probed as soon as if a request had just been sent.
    void doubt_active() { paths_[active_].patience = 0; }
    // Bytes have come on the path.
    void heard(size_t path, uint64_t now_ns);
    // The peer's TCP has acknowledged some: the link is well, and nothing is known of the server's process.
    void acknowledged(size_t path, uint64_t now_ns);
    // The path is probed, though it is not silent, if something is pending on it, unless it was just now.
    void want_sample(size_t path, uint64_t now_ns);
    // How long a probe's answer took. More than suspicion_ns() counts as that, and not before a probe that was sent after such
    // an answer takes as long. `was_repeated`: packets of this end were meanwhile, so that it says nothing (Karn's algorithm).
    void measured(size_t path, uint64_t delay_ns, uint64_t now_ns, bool was_repeated = false);
    // Its connection has failed; the owner has closed it.
    void broken(size_t path, uint64_t now_ns);
    void joined(size_t path, uint64_t now_ns, uint64_t delay_ns);
    void join_failed(size_t path, uint64_t now_ns);
    // The server has answered the question about `path`; `is_revoked`: it has ended that path.
    void recovered(size_t path, bool is_revoked);

    // For users whose requests go beside the paths, and may be repeated only when the server has ended a path: so long a
    // suspect path must be silent, in place of kLeastCondemnationNs.
    void set_least_condemnation_ns(uint64_t least_ns) { least_condemnation_ns_ = least_ns; }

    // Requests go on all paths, not only on the active one.
    void set_spreads() { spreads_ = true; }

    // ---- Links that come and go: not of sessions that began with one ----

    // One more path, the last one in preference, or in the place of one that was removed, whose counts go on. kNoPath: there
    // are kMaxPaths.
    size_t add(uint64_t now_ns);
    // The path takes nothing new. It is removed when nothing is on its way on it any more. False: no other one is ready, or it
    // is to be removed already.
    bool retire(size_t path);

    // ---- Decisions ----

    Action next(uint64_t now_ns);
    uint64_t next_time_ns() const;

    // ---- State ----

    size_t path_count() const { return path_count_; }
    size_t active() const { return active_; }
    PathState state(size_t path) const { return paths_[path].state; }
    bool is_ready(size_t path) const { return state(path) == PathState::ready; }
    // Whether it takes requests: the active one; if they are spread, others that are not to be taken away, too. One that had
    // failed must have been well for as long as a path that is preferred; one that was only suspected need not.
    bool may_take(size_t path, uint64_t now_ns) const;
    bool is_living(size_t path) const {
        return is_ready(path) || state(path) == PathState::suspect;
    }
    bool has_living() const;
    bool must_revoke(size_t path) const { return paths_[path].is_to_revoke; }
    // About which path the server is being asked; kNoPath: none. And over which.
    size_t recovering() const { return recovering_; }
    size_t recovering_over() const { return over_; }
    uint64_t delay_ns(size_t path) const { return paths_[path].delay_ns; }
    // Of the last probes, so nearly without what other requests add; 0: none has been answered.
    uint64_t least_delay_ns(size_t path) const;
    uint64_t suspicion_ns(size_t path) const;
    uint64_t hold_ns(size_t path) const { return paths_[path].hold_ns; }
    const PathCounts& counts(size_t path) const { return paths_[path].counts; }
    // Of all paths.
    uint64_t failovers() const;

  private:
    struct Path {
        PathState state = PathState::down;
        uint64_t life_ns = 0;  // when it was heard last, or something was acknowledged
        uint64_t heard_ns = 0;
        uint64_t pending_ns = 0;  // since when something is pending
        uint64_t probed_ns = 0;   // 0: not since it was heard
        // When it was probed last. One that is never silent is probed, too: else only those probes would be measured that
        // meet a failure.
        uint64_t sampled_ns = 0;
        uint32_t pending = 0;
        // Doublings of the silence after which it is probed: it has answered probes, and nothing else for a reason.
        uint32_t patience = 0;
        uint64_t delay_ns = 0;
        uint64_t deviation_ns = 0;
        uint64_t least_delay_ns = kNever;          // of the present samples
        uint64_t earlier_least_delay_ns = kNever;  // of so many before them
        uint32_t sample_count = 0;
        // When the last answer to a probe came, if it took longer than makes the path suspect; else 0.
        uint64_t late_ns = 0;
        bool wants_sample = false;  // another one says whether it is the link
        uint64_t ready_ns = 0;
        uint64_t hold_ns = 0;
        uint64_t taking_ns = 0;  // when it may take requests beside the active one
        uint64_t attempt_ns = 0;
        uint32_t attempts = 0;  // that failed, in a row
        bool is_to_recover = false;
        bool is_to_revoke = false;
        bool is_retiring = false;
        PathCounts counts;
    };
    struct Due {
        uint64_t time_ns = kNever;
        enum class What : uint8_t {
            connect,
            probe,
            suspect,
            close,
            leave,
            remove
        } what = What::probe;
    };

    Due due(size_t path) const;
    Due due_of_ready(const Path& path, bool is_pending) const;
    Due due_of_suspect(size_t index) const;
    bool is_pending(size_t path) const;
    bool may_fail_back(size_t path) const;
    void apply(size_t index, Due::What what, uint64_t now_ns);
    void suspect(size_t index, uint64_t now_ns);
    void fail(size_t index, uint64_t now_ns);
    void hold(Path& path, uint64_t now_ns);
    void note_failover(size_t index);
    void ask_again_elsewhere(size_t lost);
    void choose_active(uint64_t now_ns);
    void set_active(size_t path, uint64_t now_ns);
    size_t first_ready(uint64_t now_ns) const;

    size_t path_count_;
    Path paths_[kMaxPaths];
    size_t active_ = 0;
    size_t recovering_ = kNoPath;
    size_t over_ = kNoPath;
    uint64_t probe_interval_ns_ = 1'000'000'000;
    uint64_t least_condemnation_ns_ = kLeastCondemnationNs;
    bool asks_ = false;
    bool spreads_ = false;
};

}  // namespace tiffin::rdma_blk
