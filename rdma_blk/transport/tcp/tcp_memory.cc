// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/tcp/tcp_memory.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "rdma_blk/transport/back_off.h"
#include "rdma_blk/transport/time_units.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint32_t kFirstAttempts = 6;  // for a second and a half
constexpr uint64_t kOpenTimeoutNs = 10'000 * kMillisecondNs;
// Of a link, where there are several: a lost packet is repeated after one second.
constexpr uint64_t kFirstTurnNs = 1'500 * kMillisecondNs;
// A link that is ended without need costs a queue pair and a connection, not the session.
constexpr uint64_t kOneSidedCondemnationNs = 50 * kMillisecondNs;

}  // namespace

// ---- Opening ----------------------------------------------------------------------------------------

TcpMemory::TcpMemory(const RemoteAddress& address, const OpenOptions& options,
                     ConnectionListener* listener, OneSidedUser* user,
                     const StreamExtension& extension)
    : address_(address),
      volume_name_(options.volume_name),
      holder_text_(options.holder_text),
      options_(options),
      listener_(listener),
      user_(user),
      extension_(extension),
      paths_(1 + address.more_links.size()),
      has_several_(!address.more_links.empty()),
      makes_requests_(extension.make_requests != nullptr),
      transport_reason_(extension.transport_reason),
      machine_(paths_.size()),
      busy_poll_(options.busy_poll_us),
      thread_poll_(options.busy_poll_us) {
    paths_.reserve(kMaxLinks);
    links_.reserve(kMaxLinks);
    links_.push_back({address.host, address.port});
    links_.insert(links_.end(), address.more_links.begin(), address.more_links.end());
    options_.volume_name = volume_name_.c_str();
    options_.holder_text = holder_text_.c_str();
    if (user_ != nullptr) {
        machine_.set_least_condemnation_ns(kOneSidedCondemnationNs);
    } else if (address_.link_policy == LinkPolicy::spread) {
        machine_.set_spreads();
    }
}

TcpMemory::~TcpMemory() {
    TIFFIN_ASSERT(!thread_.running());
    if (event_ >= 0) {
        ::close(event_);
    }
    explicit_bzero(options_.key, sizeof(options_.key));
}

Result<void> TcpMemory::prepare(uint16_t slot_count) {
    TRY(initialize_cryptography());
    for (size_t link = 0; link < paths_.size(); link++) {
        StreamPath& path = paths_[link];
        path.connection = TRY(ClientConnection::create(slot_count + StreamPath::kControlMessages));
        path.requests = extension_.make_requests ? extension_.make_requests(link) : nullptr;
    }
    entries_.resize(slot_count);
    outcomes_.resize(wire::kMaxSlots);
    event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event_ < 0) {
        return Error::eio;
    }
    Locked lock(*this);
    slots_ = TRY(RequestSlots::create(slot_count));
    slots_->collect_completions(completed_);
    sent_ = TRY(SentRequests::create(*slots_, machine_));
    if (address_.link_trial == LinkTrial::resend_all) {
        sent_->set_resends_all();
    }
    notes_.resize(slot_count);
    if (extension_.measured) {
        choice_.emplace(*extension_.measured);
    }
    return {};
}

Result<Socket> TcpMemory::connect(size_t link, uint64_t deadline_ns, Patience& patience,
                                  std::string& problem) {
    if (!extension_.socket_path.empty()) {
        return connect_unix(extension_.socket_path, problem);
    }
    const int segment_bytes = paths_[link].segments.next_bytes(host::monotonic_ns());
    RemoteAddress address = address_;
    address.host = links_[link].host;
    address.port = links_[link].port;
    return connect_tcp(address, segment_bytes, deadline_ns, patience, problem);
}

// A server that has no place for a connection at this moment may have one in the next.
Result<void> TcpMemory::connect_first(size_t link, uint64_t deadline_ns, std::string& problem) {
    for (uint32_t attempt = 0;; attempt++) {
        Socket socket = TRY(connect(link, deadline_ns, *this, problem));
        const auto opened =
            paths_[link].connection->open(std::move(socket), options_, deadline_ns, *this, problem);
        const uint64_t wait_ns = back_off_ns(attempt);
        if (opened.ok() || opened.error() != Error::eagain || attempt + 1 == kFirstAttempts ||
            host::monotonic_ns() + wait_ns >= deadline_ns) {
            return opened.ok() || opened.error() != Error::eagain ? opened
                                                                  : Result<void>(Error::eio);
        }
        usleep(static_cast<useconds_t>(wait_ns / 1000));
    }
}

// A link that is down does not keep a session from being opened over another, nor long: most links answer in milliseconds, so
// those that do not have a second turn, with all the time that is left.
Result<void> TcpMemory::connect_first_of_all(uint64_t deadline_ns, std::string& problem) {
    const size_t count = paths_.size();
    Result<void> connected = Error::eio;
    for (size_t turn = count > 1 ? 0 : count; turn < 2 * count; turn++) {
        at_ = turn % count;
        paths_[at_].connection->close();
        const uint64_t now = host::monotonic_ns();
        const uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
        const uint64_t share = left / (count - at_);
        connected = connect_first(at_, now + (turn < count ? std::min(share, kFirstTurnNs) : share),
                                  problem);
        if (connected.ok() || connected.error() == Error::eacces) {
            break;
        }
    }
    return connected;
}

Result<void> TcpMemory::open_first(Holder& holder, std::string& problem) {
    // What a first turn takes, a second one does not lack.
    const uint64_t first_turn_ns = paths_.size() > 1 ? paths_.size() * kFirstTurnNs : 0;
    const uint64_t deadline = host::monotonic_ns() + kOpenTimeoutNs + first_turn_ns;
    TRY(connect_first_of_all(deadline, problem));
    SessionFacts facts;
    problem = "the server does not answer as it should";
    auto opened = open_session(stream(), options_, facts, 1, {}, outcomes_.data(), deadline, *this);
    if (!opened.ok()) {
        problem = opened.error() == Error::etimedout ? kNoAnswerInTime : problem;
        return opened.error();
    }
    const OpeningAnswer& answer = opened.value();
    if (!answer.is_opened) {
        return refusal_error(answer.refused, holder, problem);
    }
    geometry_ = geometry_of(answer.opened);
    limits_ = limits_of(answer.opened, options_.slot_count);
    problem.clear();
    Locked lock(*this);
    facts_.is_writer = options_.mode == OpenOptions::Mode::write;
    return adopt(answer.opened);
}

Result<std::unique_ptr<TcpMemory>> TcpMemory::open(const RemoteAddress& address,
                                                   const OpenOptions& options,
                                                   ConnectionListener* listener, Holder& holder,
                                                   std::string& problem, OneSidedUser* user,
                                                   const StreamExtension& extension) {
    const size_t name_bytes = std::strlen(options.volume_name);
    if (name_bytes == 0 || name_bytes > wire::kMaxVolumeNameBytes || options.slot_count == 0 ||
        options.slot_count > wire::kMaxSlots) {
        problem = "a volume's name has 1 to 63 bytes, a session 1 to 1024 slots";
        return Error::einval;
    }
    std::unique_ptr<TcpMemory> memory(new (std::nothrow)
                                          TcpMemory(address, options, listener, user, extension));
    if (!memory) {
        return Error::enomem;
    }
    TRY(memory->prepare(options.slot_count));
    TRY(memory->open_first(holder, problem));
    auto started = memory->thread_.start("tiffin-tcp", run_thread, memory.get());
    if (started.ok() && !address.more_links.empty()) {
        started = memory->linker_.start("tiffin-links", run_linker, memory.get());
    }
    if (!started.ok()) {
        problem = "no thread can be started";
        memory->close();
        return started.error();
    }
    return memory;
}

// ---- Questions -----------------------------------------------------------------------------------------

ConnectionInfo TcpMemory::connection() const {
    Locked lock(*this);
    return present_info();
}

ConnectionInfo TcpMemory::present_info() const {
    ConnectionInfo info;
    info.state = state_;
    info.transport_name = extension_.one_sided != nullptr ? extension_.one_sided->name() : "tcp";
    info.transport_reason = transport_reason_;
    const RequestPath* const requests = paths_[machine_.active()].requests.get();
    if (requests != nullptr) {
        const bool is_up = requests->is_up();
        info.transport_name = is_up ? requests->name() : "tcp";
        info.transport_reason = is_up ? transport_reason_ : "no datagrams come through at present";
    }
    if (choice_) {
        const bool takes_datagrams = choice_->settled() == WayChoice::Way::datagrams;
        const bool is_up = takes_datagrams && requests->is_up();
        info.transport_name = is_up ? requests->name() : "tcp";
        info.transport_reason = takes_datagrams             ? "faster than tcp in a trial"
                                : choice_->stream_ns() == 0 ? transport_reason_
                                                            : "faster than sdr in a trial";
    }
    info.session_id = facts_.session_id;
    info.incarnation = facts_.incarnation;
    info.epoch = facts_.epoch;
    info.content_incarnation = facts_.content_incarnation;
    info.empty_since_incarnation = facts_.empty_since_incarnation;
    info.inherits_unflushed = facts_.inherits_unflushed;
    info.words_unknown = (session_flags_ & wire::session_flag::words_unknown) != 0;
    return info;
}

Statistics TcpMemory::statistics() const {
    Locked lock(*this);
    Statistics result = statistics_;
    for (size_t i = 0; i < std::size(result.outcomes); i++) {
        result.outcomes[i] += slots_->statistics().completed[i];
    }
    result.replayed_operations = slots_->statistics().replayed;
    if (has_several()) {
        result.failovers = machine_.failovers();
        result.resent_operations = slots_->statistics().resent;
        result.recovered_operations = slots_->statistics().recovered;
        result.path_count = static_cast<uint32_t>(paths_.size());
        for (size_t index = 0; index < paths_.size(); index++) {
            result.paths[index] = path_status(index);
            result.resent_bytes += paths_[index].resent_bytes;
        }
    }
    for (size_t index = 0; index < paths_.size(); index++) {
        // The active one last: what is no sum is of that.
        const auto& requests = paths_[(machine_.active() + 1 + index) % paths_.size()].requests;
        if (requests != nullptr) {
            requests->add_statistics(result);
        }
    }
    return result;
}

PathStatus TcpMemory::path_status(size_t index) const {
    static_assert(kMaxLinks == SessionMachine::kMaxPaths &&
                  kMaxLinks == std::size(Statistics{}.paths));
    constexpr const char* kStates[] = {"down", "joining", "ready", "suspect", "removed"};
    PathStatus status;
    status.state = machine_.may_take(index, host::monotonic_ns())
                       ? "active"
                       : kStates[static_cast<size_t>(machine_.state(index))];
    std::strncpy(status.address, links_[index].text().c_str(), sizeof(status.address) - 1);
    std::strncpy(status.problem, paths_[index].problem.c_str(), sizeof(status.problem) - 1);
    const RequestPath* const requests = paths_[index].requests.get();
    status.transport = requests != nullptr && requests->is_up() ? requests->name() : "tcp";
    status.delay_us = static_cast<uint32_t>(machine_.delay_ns(index) / 1000);
    status.bytes_sent = paths_[index].sent_bytes;
    status.bytes_received = paths_[index].received_bytes;
    status.suspicions = machine_.counts(index).suspicions;
    status.failures = machine_.counts(index).failures;
    status.failovers = machine_.counts(index).failovers;
    status.resent_operations = sent_->counts(index).again;
    status.resent_bytes = paths_[index].resent_bytes;
    status.recovered_operations = sent_->counts(index).recovered;
    status.suspected_ns = machine_.counts(index).suspected_ns;
    status.settled_ns = sent_->counts(index).settled_ns;
    return status;
}

Result<void> TcpMemory::add_arena(MutableByteSpan memory) {
    (void)memory;
    return {};
}

// ---- What is unflushed -----------------------------------------------------------------------------------

// With the lease: what earlier writers have left is flushed, or lost, with what this session writes.
void TcpMemory::note_inherited(bool is_unflushed) {
    facts_.inherits_unflushed = is_unflushed;
    change_count_ += is_unflushed ? 1 : 0;
}

// Of the writer, at its end. What has no known outcome may have changed something that was not counted.
bool TcpMemory::has_flushed_all() const {
    const auto& completed = slots_->statistics().completed;
    return facts_.is_writer && all_changes() <= flushed_count_ && slots_->pending_changes() == 0 &&
           completed[static_cast<size_t>(Outcome::unknown)] == 0;
}

uint64_t TcpMemory::all_changes() const {
    return change_count_ + (user_ != nullptr ? user_->change_count() : 0) +
           (extension_.one_sided != nullptr ? extension_.one_sided->change_count() : 0);
}

bool TcpMemory::has_pending() const {
    Locked lock(*this);
    return slots_->pending_count() > 0 || !inbox_.is_empty();
}

uint64_t TcpMemory::change_mark() const {
    Locked lock(*this);
    return all_changes();
}

void TcpMemory::changes_flushed(uint64_t mark) {
    Locked lock(*this);
    flushed_count_ = std::max(flushed_count_, mark);
}

}  // namespace tiffin::rdma_blk
