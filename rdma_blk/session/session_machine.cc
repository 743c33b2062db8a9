// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/session/session_machine.h"

#include <algorithm>
#include <utility>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk {
namespace {

// Of silence before it ends a path: one before the probe, or ten when nothing is pending on the only one, and three after it.
constexpr uint64_t kIdleIntervals = 10;
constexpr uint64_t kSilentIntervals = 3;
constexpr uint32_t kMostPatience = 6;
// A suspect path is probed so often at most.
constexpr uint64_t kSuspectProbeNs = 20'000'000;
// ... and one of which samples are wanted.
constexpr uint64_t kSampleNs = 100'000'000;
constexpr uint64_t kFirstAttemptNs = 50'000'000;
constexpr uint64_t kLastAttemptNs = 2'000'000'000;

}  // namespace

// ---- Events -----------------------------------------------------------------------------------------------

void SessionMachine::opened(size_t path, uint64_t now_ns, uint64_t probe_interval_ns,
                            uint64_t delay_ns) {
    lost();
    probe_interval_ns_ = probe_interval_ns;
    active_ = path;
    for (size_t index = 0; index < path_count_; index++) {
        paths_[index].attempt_ns = now_ns;
        paths_[index].attempts = 0;
    }
    joined(path, now_ns, delay_ns);
}

void SessionMachine::lost() {
    for (Path& path : paths_) {
        const bool is_gone =
            path.state == PathState::removed || std::exchange(path.is_retiring, false);
        path.state = is_gone ? PathState::removed : PathState::down;
        path.pending = 0;
        path.is_to_recover = path.is_to_revoke = false;
    }
    recovering_ = over_ = kNoPath;
}

void SessionMachine::sent(size_t path, uint64_t now_ns) {
    Path& one = paths_[path];
    if (!is_pending(path)) {
        one.pending_ns = now_ns;
    }
    one.pending++;
    one.patience = 0;
}

void SessionMachine::answered(size_t path) {
    TIFFIN_ASSERT(paths_[path].pending > 0);
    paths_[path].pending--;
    paths_[path].patience = 0;
}

void SessionMachine::set_asking(bool asks, uint64_t now_ns) {
    if (asks && !is_pending(active_)) {
        paths_[active_].pending_ns = now_ns;
    }
    asks_ = asks;
}

void SessionMachine::heard(size_t path, uint64_t now_ns) {
    paths_[path].heard_ns = now_ns;
    acknowledged(path, now_ns);
}

void SessionMachine::want_sample(size_t path, uint64_t now_ns) {
    Path& one = paths_[path];
    one.wants_sample =
        one.wants_sample || (is_pending(path) && now_ns - one.sampled_ns >= kSampleNs);
}

void SessionMachine::acknowledged(size_t path, uint64_t now_ns) {
    Path& one = paths_[path];
    if (!is_living(path)) {
        return;
    }
    if (one.probed_ns != 0) {
        one.patience = std::min(one.patience + 1, kMostPatience);
    }
    one.life_ns = now_ns;
    one.probed_ns = 0;
    if (one.state == PathState::suspect) {
        one.state = PathState::ready;
        one.ready_ns = now_ns;
        one.is_to_recover = false;
        if (recovering_ == path) {
            // What was sent on it is on its way after all: the answer to the question is of no use any more.
            recovering_ = over_ = kNoPath;
        }
    }
}

// As TCP does, with the first sample alone to begin with. What takes longer than makes a path suspect has mostly waited for a
// packet to be repeated, and so have the probes behind it. Another one goes out at once, and if that takes as long, the link
// has become slower.
void SessionMachine::measured(size_t path, uint64_t delay_ns, uint64_t now_ns, bool was_repeated) {
    Path& one = paths_[path];
    const bool is_late = delay_ns > suspicion_ns(path);
    if (is_late && one.late_ns == 0) {
        one.late_ns = now_ns;
        one.wants_sample = true;
        return;
    }
    if (is_late && (was_repeated || now_ns - delay_ns < one.late_ns)) {
        return;
    }
    one.late_ns = is_late ? now_ns : 0;
    delay_ns = std::min(delay_ns, suspicion_ns(path));
    one.least_delay_ns = std::min(one.least_delay_ns, delay_ns);
    if (++one.sample_count % kSamplesOfLeast == 0) {
        one.earlier_least_delay_ns = std::exchange(one.least_delay_ns, kNever);
    }
    if (one.delay_ns == 0) {
        one.delay_ns = delay_ns;
        one.deviation_ns = delay_ns / 2;
        return;
    }
    const uint64_t difference = std::max(one.delay_ns, delay_ns) - std::min(one.delay_ns, delay_ns);
    one.deviation_ns = one.deviation_ns - one.deviation_ns / 4 + difference / 4;
    one.delay_ns = one.delay_ns - one.delay_ns / 8 + delay_ns / 8;
}

void SessionMachine::broken(size_t path, uint64_t now_ns) {
    if (is_living(path)) {
        fail(path, now_ns);
    }
}

void SessionMachine::joined(size_t path, uint64_t now_ns, uint64_t delay_ns) {
    Path& one = paths_[path];
    one.state = PathState::ready;
    one.life_ns = one.heard_ns = one.ready_ns = one.sampled_ns = now_ns;
    one.taking_ns = now_ns + one.hold_ns;
    one.probed_ns = 0;
    one.patience = 0;
    one.attempts = 0;
    one.pending = 0;
    if (one.delay_ns == 0) {
        one.delay_ns = delay_ns;
        one.deviation_ns = delay_ns / 2;
    }
    // What is known of an earlier connection need not be so any more.
    one.least_delay_ns = one.earlier_least_delay_ns = kNever;
}

void SessionMachine::join_failed(size_t path, uint64_t now_ns) {
    Path& one = paths_[path];
    one.state = PathState::down;
    one.attempt_ns = now_ns + std::min(kFirstAttemptNs << one.attempts, kLastAttemptNs);
    one.attempts = std::min(one.attempts + 1, uint32_t{10});
}

void SessionMachine::recovered(size_t path, bool is_revoked) {
    if (path != recovering_) {
        return;
    }
    recovering_ = over_ = kNoPath;
    paths_[path].is_to_revoke = paths_[path].is_to_revoke && !is_revoked;
}

size_t SessionMachine::add(uint64_t now_ns) {
    size_t index = 0;
    while (index < path_count_ && paths_[index].state != PathState::removed) {
        index++;
    }
    if (index == kMaxPaths) {
        return kNoPath;
    }
    path_count_ = std::max(path_count_, index + 1);
    const PathCounts counts = paths_[index].counts;
    paths_[index] = Path{};
    paths_[index].counts = counts;
    paths_[index].attempt_ns = now_ns;
    return index;
}

bool SessionMachine::retire(size_t path) {
    bool has_other = false;
    for (size_t index = 0; index < path_count_; index++) {
        has_other = has_other || (index != path && is_ready(index) && !paths_[index].is_retiring);
    }
    if (!has_other || paths_[path].is_retiring || paths_[path].state == PathState::removed) {
        return false;
    }
    paths_[path].is_retiring = true;
    return true;
}

// ---- What is due ------------------------------------------------------------------------------------------

bool SessionMachine::is_pending(size_t path) const {
    return paths_[path].pending > 0 || (asks_ && path == active_) || path == over_;
}

uint64_t SessionMachine::least_delay_ns(size_t path) const {
    const uint64_t least_ns =
        std::min(paths_[path].least_delay_ns, paths_[path].earlier_least_delay_ns);
    return least_ns == kNever ? 0 : least_ns;
}

uint64_t SessionMachine::suspicion_ns(size_t path) const {
    return std::max(8 * paths_[path].delay_ns + 4 * paths_[path].deviation_ns, kLeastSuspicionNs);
}

SessionMachine::Due SessionMachine::due_of_ready(const Path& path, bool is_pending) const {
    const uint64_t quiet_ns = is_pending ? std::max(path.life_ns, path.pending_ns) : path.life_ns;
    const bool is_only = path_count_ == 1;
    if (path.wants_sample && path.probed_ns == 0 && !is_only) {
        return {path.life_ns, Due::What::probe};
    }
    if (path.probed_ns != 0 && (is_only || !is_pending)) {
        return {path.probed_ns + kSilentIntervals * probe_interval_ns_, Due::What::close};
    }
    if (is_only || !is_pending) {
        const uint64_t intervals = is_only && !is_pending ? kIdleIntervals : 1;
        return {quiet_ns + intervals * probe_interval_ns_, Due::What::probe};
    }
    const uint64_t half_ns = suspicion_ns(static_cast<size_t>(&path - paths_)) / 2;
    if (path.probed_ns == 0) {
        const uint64_t wait_ns = std::min(half_ns << path.patience, probe_interval_ns_);
        return {std::min(quiet_ns + wait_ns, path.sampled_ns + probe_interval_ns_),
                Due::What::probe};
    }
    return {std::max(path.probed_ns + half_ns, quiet_ns + 2 * half_ns), Due::What::suspect};
}

SessionMachine::Due SessionMachine::due_of_suspect(size_t index) const {
    const Path& path = paths_[index];
    const Path& active = paths_[active_];
    // A server that has stopped is no fault of one link: another one has to have been heard since.
    const bool is_alone =
        active_ != index && is_ready(active_) && active.heard_ns > path.counts.suspected_ns;
    const uint64_t silence_ns = is_alone
                                    ? std::max(16 * suspicion_ns(index), least_condemnation_ns_)
                                    : (kSilentIntervals + 1) * probe_interval_ns_;
    const uint64_t others_ns = is_alone ? active.ready_ns : 0;
    const uint64_t close_ns =
        std::max({path.life_ns, path.counts.suspected_ns, others_ns}) + silence_ns;
    const uint64_t probe_ns = path.probed_ns + std::max(suspicion_ns(index), kSuspectProbeNs);
    return probe_ns < close_ns ? Due{probe_ns, Due::What::probe} : Due{close_ns, Due::What::close};
}

SessionMachine::Due SessionMachine::due(size_t index) const {
    const Path& path = paths_[index];
    switch (path.state) {
        case PathState::ready:
            if (path.is_retiring && index != active_ && path.pending == 0 && over_ != index) {
                return {0, Due::What::leave};
            }
            return due_of_ready(path, is_pending(index));
        case PathState::suspect:
            return due_of_suspect(index);
        case PathState::down:
            // Not before the server has ended the earlier one.
            if (path.is_retiring && !path.is_to_revoke) {
                return {0, Due::What::remove};
            }
            if (!path.is_retiring && !path.is_to_revoke && is_ready(active_)) {
                return {path.attempt_ns, Due::What::connect};
            }
            break;
        case PathState::joining:
        case PathState::removed:
            break;
    }
    return {};
}

// A path that is preferred takes requests again when it has been well for long enough.
bool SessionMachine::may_fail_back(size_t path) const {
    return path < active_ && is_ready(path) && !paths_[path].is_retiring &&
           paths_[path].probed_ns == 0;
}

bool SessionMachine::may_take(size_t index, uint64_t now_ns) const {
    const Path& path = paths_[index];
    return is_ready(index) &&
           (index == active_ || (spreads_ && !path.is_retiring && now_ns >= path.taking_ns));
}

uint64_t SessionMachine::next_time_ns() const {
    uint64_t time_ns = kNever;
    for (size_t index = 0; index < path_count_; index++) {
        time_ns = std::min(time_ns, due(index).time_ns);
        if (may_fail_back(index)) {
            const Path& path = paths_[index];
            // While the active one has failed lately itself, it stays until either may take requests.
            const uint64_t taking_ns = std::min(path.taking_ns, paths_[active_].taking_ns);
            time_ns = std::min(time_ns, std::max(path.ready_ns + path.hold_ns, taking_ns));
        }
    }
    return time_ns;
}

// ---- Decisions --------------------------------------------------------------------------------------------

SessionMachine::Action SessionMachine::next(uint64_t now_ns) {
    for (size_t index = 0; index < path_count_;) {
        const Due found = due(index);
        if (found.time_ns > now_ns) {
            index++;
            continue;
        }
        apply(index, found.what, now_ns);
        switch (found.what) {
            case Due::What::connect:
                return {Action::Kind::connect, index, 0};
            case Due::What::probe:
                return {Action::Kind::probe, index, 0};
            case Due::What::close:
                return {Action::Kind::close, index, 0};
            case Due::What::leave:
                return {Action::Kind::leave, index, 0};
            case Due::What::remove:
                return {Action::Kind::remove, index, 0};
            case Due::What::suspect:
                break;  // something else may be due at once
        }
    }
    choose_active(now_ns);
    for (size_t index = 0; index < path_count_ && recovering_ == kNoPath; index++) {
        Path& path = paths_[index];
        if (path.is_to_recover && index != active_ && is_ready(active_)) {
            path.is_to_recover = false;
            if (!is_pending(active_)) {
                paths_[active_].pending_ns = now_ns;
            }
            recovering_ = index;
            over_ = active_;
            return {Action::Kind::recover, index, active_};
        }
    }
    return {};
}

void SessionMachine::apply(size_t index, Due::What what, uint64_t now_ns) {
    switch (what) {
        case Due::What::connect:
            paths_[index].state = PathState::joining;
            break;
        case Due::What::probe:
            paths_[index].probed_ns = paths_[index].sampled_ns = now_ns;
            paths_[index].wants_sample = false;
            break;
        case Due::What::suspect:
            suspect(index, now_ns);
            break;
        case Due::What::close:
            fail(index, now_ns);
            break;
        case Due::What::leave:
            // Nothing waits for an answer on it, but the server may have been asked to answer there.
            paths_[index].state = PathState::down;
            paths_[index].is_to_recover = paths_[index].is_to_revoke = true;
            break;
        case Due::What::remove:
            paths_[index].state = PathState::removed;
            paths_[index].is_retiring = false;
            break;
    }
}

void SessionMachine::hold(Path& path, uint64_t now_ns) {
    const bool flaps = path.hold_ns != 0 && now_ns - path.ready_ns < kSteadyNs;
    path.hold_ns = flaps ? std::min(2 * path.hold_ns, kMostHoldNs) : kLeastHoldNs;
}

// That of the active path is counted when another one has taken over.
void SessionMachine::note_failover(size_t index) {
    Path& path = paths_[index];
    path.counts.failovers += spreads_ && index != active_ && path.pending > 0 ? 1 : 0;
}

void SessionMachine::suspect(size_t index, uint64_t now_ns) {
    Path& path = paths_[index];
    note_failover(index);
    path.state = PathState::suspect;
    path.counts.suspected_ns = now_ns;
    path.is_to_recover = true;
    path.counts.suspicions++;
    hold(path, now_ns);
    ask_again_elsewhere(index);
}

void SessionMachine::fail(size_t index, uint64_t now_ns) {
    Path& path = paths_[index];
    if (path.state == PathState::ready) {
        note_failover(index);
        hold(path, now_ns);
    }
    path.state = PathState::down;
    path.counts.failures++;
    path.attempt_ns = now_ns + kFirstAttemptNs;
    path.is_to_recover = path.is_to_revoke = true;
    ask_again_elsewhere(index);
}

// What was asked over a path that is lost has no answer, and so has a question about one that must be ended now.
void SessionMachine::ask_again_elsewhere(size_t lost) {
    if (recovering_ != kNoPath && (over_ == lost || recovering_ == lost)) {
        paths_[recovering_].is_to_recover = true;
        recovering_ = over_ = kNoPath;
    }
}

// One that has failed lately only if there is no other, and one that is to be taken away, which stays until there is.
size_t SessionMachine::first_ready(uint64_t now_ns) const {
    size_t found = kNoPath;
    int best = 0;
    for (size_t index = 0; index < path_count_; index++) {
        const Path& path = paths_[index];
        const int rank = path.is_retiring ? 1 : now_ns < path.taking_ns ? 2 : 3;
        if (is_ready(index) && rank > best) {
            found = index;
            best = rank;
        }
    }
    return found;
}

// What is asked for beside requests is expected on this path from now on.
void SessionMachine::set_active(size_t path, uint64_t now_ns) {
    if (asks_ && !is_pending(path)) {
        paths_[path].pending_ns = now_ns;
        paths_[path].patience = 0;
    }
    active_ = path;
}

void SessionMachine::choose_active(uint64_t now_ns) {
    if (!is_ready(active_) || paths_[active_].is_retiring) {
        const size_t other = first_ready(now_ns);
        if (other != kNoPath && (!is_ready(active_) || !paths_[other].is_retiring)) {
            paths_[active_].counts.failovers += is_ready(active_) ? 0 : 1;
            set_active(other, now_ns);
        }
        return;
    }
    if (now_ns < paths_[active_].taking_ns) {
        // It had to take over: until there is one again that has not failed lately.
        const size_t other = first_ready(now_ns);
        if (now_ns >= paths_[other].taking_ns) {
            set_active(other, now_ns);
        }
        return;
    }
    for (size_t index = 0; index < active_; index++) {
        if (may_fail_back(index) && now_ns >= paths_[index].ready_ns + paths_[index].hold_ns) {
            set_active(index, now_ns);
            return;
        }
    }
}

uint64_t SessionMachine::failovers() const {
    uint64_t count = 0;
    for (const Path& path : paths_) {
        count += path.counts.failovers;
    }
    return count;
}

bool SessionMachine::has_living() const {
    for (size_t index = 0; index < path_count_; index++) {
        if (is_living(index)) {
            return true;
        }
    }
    return false;
}

}  // namespace tiffin::rdma_blk
