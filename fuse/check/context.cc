// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/check/context.h"

#include <functional>

namespace tiffin::check {
namespace {

// The check goes on without what such a finding is about; other repairs are made where there was a yes.
bool is_left_out_at_once(Code code) {
    switch (code) {
        case Code::node_unreadable:
        case Code::node_invalid:
        case Code::node_shared:
        case Code::node_bounds:
        case Code::journal_damaged:
        case Code::journal_record:
            return true;
        default:
            return false;
    }
}

}  // namespace

bool Context::may_repair(Code code, std::string_view where, std::string_view what) {
    if (!options_.repair) {
        return false;
    }
    std::optional<bool>& answer = answers_[static_cast<size_t>(code)];
    if (!answer.has_value()) {
        answer =
            !options_.may_repair ||
            options_.may_repair({code, code_severity(code), std::string(where), std::string(what)});
    }
    return *answer;
}

bool Context::is_new(Code code, std::string_view where) {
    const uint64_t hash =
        std::hash<std::string_view>()(where) * kCodeCount + static_cast<uint64_t>(code);
    return seen_.insert(hash).second;
}

bool Context::found(Code code, std::string_view where, std::string_view what) {
    if (trial_) {
        trial_missing_parts_ += is_left_out_at_once(code) ? 1 : 0;
        return false;
    }
    const bool repair = may_repair(code, where, what);
    repair_wanted_ = repair_wanted_ || repair;
    must_not_write_ = must_not_write_ || (!repair && is_left_out_at_once(code));
    if (is_new(code, where)) {
        add(code, code_severity(code), where, what, repair);
    }
    return repair;
}

void Context::found_for_good(Code code, std::string_view where, std::string_view what) {
    if (!trial_ && is_new(code, where)) {
        add(code, code_severity(code), where, what, false);
    }
}

void Context::note(Code code, std::string_view where, std::string_view what) {
    if (!trial_ && is_new(code, where)) {
        add(code, Severity::note, where, what, false);
    }
}

void Context::add(Code code, Severity severity, std::string_view where, std::string_view what,
                  bool repaired) {
    uint64_t& count = report_.counts[static_cast<size_t>(code)];
    Finding finding{code, severity, std::string(where), std::string(what), repaired};
    if (options_.on_finding) {
        options_.on_finding(finding);
    }
    if (count == 0 || report_.findings.size() < Report::kMaximumFindings) {
        report_.findings.push_back(std::move(finding));
    }
    ++count;
    if (severity == Severity::note) {
        ++report_.notes;
        return;
    }
    ++(severity == Severity::damage ? report_.damage : report_.harmless);
    report_.not_repaired += repaired ? 0 : 1;
}

void Context::begin_trial() {
    trial_ = true;
    trial_missing_parts_ = 0;
}

uint64_t Context::end_trial() {
    trial_ = false;
    return trial_missing_parts_;
}

void Context::progress(Phase phase, double fraction) {
    // Often called: only steps that are visible on a display go on.
    if (!options_.on_progress ||
        (phase == last_phase_ && fraction >= last_fraction_ && fraction < last_fraction_ + 0.005)) {
        return;
    }
    last_phase_ = phase;
    last_fraction_ = fraction;
    options_.on_progress({phase, fraction < 1 ? fraction : 1});
}

bool Context::cancelled() {
    if (!report_.cancelled && options_.is_cancelled && options_.is_cancelled()) {
        report_.cancelled = true;
    }
    return report_.cancelled;
}

void Context::take_back(Code code) {
    for (Finding& finding : report_.findings) {
        if (finding.code == code && finding.repaired) {
            finding.repaired = false;
            ++report_.not_repaired;
        }
    }
}

void Context::nothing_repaired() {
    for (Finding& finding : report_.findings) {
        finding.repaired = false;
    }
    report_.not_repaired = report_.harmless + report_.damage;
}

void Context::repair_failed(std::string_view what) {
    nothing_repaired();
    found_for_good(Code::repair_failed, "volume", what);
}

}  // namespace tiffin::check
