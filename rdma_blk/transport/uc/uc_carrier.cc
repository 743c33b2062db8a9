// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The thread of a UC carrier: takes what has completed, hands over, sends, sleeps.
#include "rdma_blk/transport/uc/uc_carrier.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include "rdma_blk/sdr/tunables.h"
#include "rdma_blk/sdr/wake_event.h"
#include "rdma_blk/sdr/watched_mutex.h"
#include "rdma_blk/transport/uc/uc_channel.h"

namespace tiffin::rdma_blk {
namespace {

// What is taken before anything is sent: each time as much as the channel takes at once.
constexpr int kTurnTakes = 4;

class Carrier final : public UcCarrier {
  public:
    Carrier(sdr::Endpoint& endpoint, std::unique_ptr<UcChannel> channel)
        : endpoint_(endpoint), info_(channel->info_get()), channel_(std::move(channel)) {}
    ~Carrier() override;

    Result<void> open() { return wake_.open(); }
    UcInfo info_get() const override { return info_; }
    Result<void> start(const UcInfo& peer) override EXCLUDES(watched_.mutex);
    host::Mutex& mutex() override RETURN_CAPABILITY(watched_.mutex) { return watched_.mutex; }
    void kick() override { wake_.kick(); }
    uint64_t wait(uint64_t seen, uint64_t timeout_us) override EXCLUDES(watched_.mutex) {
        return watched_.wait(seen, timeout_us);
    }
    UcStatistics statistics() override EXCLUDES(watched_.mutex);

  private:
    struct Turn {
        bool is_hungry = false;  // there may be more at once
        uint64_t next_ns = 0;    // when the next one is due although nothing comes
    };

    static void run(void* argument);
    void work() EXCLUDES(watched_.mutex);
    Turn serve() EXCLUDES(watched_.mutex);
    uint64_t next_time_ns(uint64_t now_ns) const REQUIRES(watched_.mutex);
    void stop();

    sdr::Endpoint& endpoint_;
    const UcInfo info_;
    sdr::WatchedMutex watched_;  // the endpoint, the channel, and what is done with them
    std::unique_ptr<UcChannel> channel_ PT_GUARDED_BY(watched_.mutex);
    int descriptor_ = -1;  // the channel's

    sdr::WakeEvent wake_;
    bool is_kicked_ = false;  // by it; the thread's
    std::atomic<bool> stopping_{false};
    host::Thread thread_;
};

Carrier::~Carrier() { stop(); }

// What the endpoint has is what was promised: no other layout, though it might fit.
Result<void> Carrier::start(const UcInfo& peer) {
    if (peer.layout != info_.layout) {
        return Error::einval;
    }
    watched_.mutex.lock();
    descriptor_ = channel_->descriptor();
    const Result<void> started = channel_->start(peer);
    watched_.mutex.unlock();
    TRY(started);
    return thread_.start("tiffin-uc", run, this);
}

void Carrier::stop() {
    stopping_.store(true, std::memory_order_release);
    kick();
    if (thread_.running()) {
        thread_.join();
    }
}

UcStatistics Carrier::statistics() {
    watched_.mutex.lock();
    const UcStatistics now = channel_->uc_statistics();
    watched_.mutex.unlock();
    return now;
}

// ---- The thread ------------------------------------------------------------------------------------------

void Carrier::run(void* argument) { static_cast<Carrier*>(argument)->work(); }

void Carrier::work() {
    while (!stopping_.load(std::memory_order_acquire)) {
        const Turn turn = serve();
        if (!turn.is_hungry && turn.next_ns > host::monotonic_ns() &&
            wake_.sleep(descriptor_, turn.next_ns)) {
            is_kicked_ = true;
        }
    }
}

Carrier::Turn Carrier::serve() {
    Turn turn;
    bool has_changed = std::exchange(is_kicked_, false);
    watched_.mutex.lock();
    const uint64_t now_ns = host::monotonic_ns();
    const bool had_failed = channel_->has_failed();
    for (int takes = 0; takes < kTurnTakes; takes++) {
        const UcChannel::Taken taken = channel_->take(now_ns, {});
        turn.is_hungry = taken.may_have_more;
        if (!taken.has_any) {
            break;
        }
        has_changed = channel_->deliver(now_ns, endpoint_) || has_changed;
    }
    // An endpoint whose device has failed still has timers: one that sends finds out that nobody answers.
    if (endpoint_.next_timer_ns() <= now_ns) {
        endpoint_.on_timer(now_ns);
        has_changed = true;
    }
    const uint64_t sent_before = channel_->packets_sent();
    const bool has_more = channel_->transmit(now_ns, endpoint_);
    turn.is_hungry = turn.is_hungry || has_more;
    has_changed = has_changed || channel_->packets_sent() != sent_before ||
                  channel_->has_failed() != had_failed;
    turn.next_ns = next_time_ns(now_ns);
    if (has_changed) {
        watched_.note_change();
    }
    watched_.mutex.unlock();
    return turn;
}

uint64_t Carrier::next_time_ns(uint64_t now_ns) const {
    const uint64_t timer_ns = endpoint_.next_timer_ns();
    // What the endpoint has to send waits for a completion, feedback or this.
    const bool is_stuck = channel_->is_blocked() || channel_->has_failed();
    return std::min(channel_->next_time_ns(),
                    is_stuck ? std::max(timer_ns, now_ns + sdr::kBlockedRetryNs) : timer_ns);
}

}  // namespace

Result<std::unique_ptr<UcCarrier>> UcCarrier::create(sdr::Endpoint& endpoint, verbs::Device& device,
                                                     const UcOptions& options) {
    const bool is_endpoints = (endpoint.packet_bytes() == 0 ||
                               endpoint.packet_bytes() == options.queue_pair.packet_bytes) &&
                              (endpoint.channel_count() == 0 || endpoint.channel_count() == 1);
    if (!is_endpoints) {
        return Error::einval;
    }
    std::unique_ptr<UcChannel> channel = TRY(UcChannel::create(device, options));
    auto* carrier = new (std::nothrow) Carrier(endpoint, std::move(channel));
    std::unique_ptr<UcCarrier> owner(carrier);
    if (carrier == nullptr) {
        return Error::enomem;
    }
    TRY(carrier->open());
    return owner;
}

}  // namespace tiffin::rdma_blk
