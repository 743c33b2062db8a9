// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/support/fake_network.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace tiffin::rdma_blk::test {

using verbs::Completion;
using verbs::Piece;
using verbs::Status;
using verbs::WorkKind;
using verbs::WorkRequest;

namespace {

// As a network card does: words that others look at meanwhile are written whole.
void copy_to_remote(unsigned char* remote, const void* source, size_t size_bytes) {
    if (size_bytes == sizeof(uint64_t) && reinterpret_cast<uintptr_t>(remote) % size_bytes == 0) {
        uint64_t word = 0;
        std::memcpy(&word, source, sizeof(word));
        __atomic_store_n(reinterpret_cast<uint64_t*>(remote), word, __ATOMIC_RELEASE);
        return;
    }
    std::memcpy(remote, source, size_bytes);
}

// A repetition of a packet may come while the first one is read: with real devices, and with the same bytes. Nobody could
// avoid it, so the thread sanitizer does not look.
#if defined(__clang__) || defined(__GNUC__)
__attribute__((no_sanitize("thread")))
#endif
void copy_unseen(unsigned char* to, const unsigned char* from, size_t size_bytes) {
    auto* place = static_cast<volatile unsigned char*>(to);
    for (size_t index = 0; index < size_bytes; index++) {
        place[index] = from[index];
    }
}

void wait_while(const std::atomic<bool>& condition) {
    for (int i = 0; i < 5000 && condition.load(); i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

}  // namespace

class FakeMemory final : public verbs::Memory {
  public:
    FakeMemory(FakeNetwork& network, unsigned char* begin, uint64_t size_bytes)
        : network_(network) {
        DeviceLock lock(network_.mutex_);
        key_ = network_.next_number_++;
        network_.regions_[key_] = {begin, size_bytes};
    }
    ~FakeMemory() override {
        DeviceLock lock(network_.mutex_);
        network_.regions_.erase(key_);
    }
    uint32_t local_key() const override { return key_; }

  private:
    FakeNetwork& network_;
    uint32_t key_ = 0;
};

class FakeWindow final : public verbs::Window {
  public:
    explicit FakeWindow(FakeNetwork& network) : network_(network) {}
    ~FakeWindow() override {
        DeviceLock lock(network_.mutex_);
        if (!network_.ends_no_pair.load()) {
            network_.bindings_.erase(key_);
        }
    }
    uint32_t key() const override { return key_; }
    void set_key(uint32_t key) { key_ = key; }

  private:
    FakeNetwork& network_;
    uint32_t key_ = 0;
};

class FakeDevice final : public verbs::Device {
  public:
    explicit FakeDevice(FakeNetwork& network) : network_(network) {
        capabilities_.piece_count = 4;
        capabilities_.inline_bytes = 128;
        capabilities_.has_windows = network.has_windows;
        capabilities_.mtu_bytes = network.mtu_bytes;
        capabilities_.device_name = "fake0";
    }
    const verbs::Capabilities& capabilities() const override { return capabilities_; }
    Result<std::unique_ptr<verbs::Memory>> register_memory(void* address, uint64_t size_bytes,
                                                           bool for_windows) override {
        if (size_bytes >
            (for_windows ? network_.max_registration_bytes : network_.max_local_registration_bytes)
                .load()) {
            return Error::eio;
        }
        if (for_windows && network_.stalls_registration.load()) {
            network_.is_stalled.store(true);
            wait_while(network_.stalls_registration);
            network_.is_stalled.store(false);
        }
        return std::unique_ptr<verbs::Memory>(std::make_unique<FakeMemory>(
            network_, static_cast<unsigned char*>(address), size_bytes));
    }
    Result<std::unique_ptr<verbs::Window>> allocate_window() override {
        return std::unique_ptr<verbs::Window>(std::make_unique<FakeWindow>(network_));
    }
    Result<std::unique_ptr<verbs::QueuePair>> create_queue_pair(uint32_t queue_depth,
                                                                bool) override {
        return std::unique_ptr<verbs::QueuePair>(
            std::make_unique<FakeQueuePair>(network_, next_number(), queue_depth));
    }
    Result<std::unique_ptr<verbs::QueuePair>> create_unreliable_queue_pair(uint32_t send_depth,
                                                                           uint32_t) override {
        return std::unique_ptr<verbs::QueuePair>(
            std::make_unique<FakeQueuePair>(network_, next_number(), send_depth, false));
    }

  private:
    uint32_t next_number() {
        DeviceLock lock(network_.mutex_);
        return network_.next_number_++;
    }

    FakeNetwork& network_;
    verbs::Capabilities capabilities_;
};

// ---- The network ------------------------------------------------------------------------------------------

FakeNetwork::FakeNetwork() { verbs::use_devices(this); }

FakeNetwork::~FakeNetwork() { verbs::use_devices(nullptr); }

bool FakeNetwork::exist(std::string& problem) {
    problem = is_present ? "" : "this machine has no RDMA device";
    return is_present;
}

Result<std::unique_ptr<verbs::Device>> FakeNetwork::open(const uint8_t address[16],
                                                         std::string& problem) {
    (void)address;
    if (!exist(problem)) {
        return Error::enodev;
    }
    return std::unique_ptr<verbs::Device>(std::make_unique<FakeDevice>(*this));
}

FakeNetwork::Counts FakeNetwork::counts() {
    DeviceLock lock(mutex_);
    return counts_;
}

void FakeNetwork::break_after(uint64_t count, bool is_executed) {
    DeviceLock lock(mutex_);
    breaks_ = true;
    breaks_executed_ = is_executed;
    breaks_after_ = count;
}

void FakeNetwork::hold(bool holds) {
    DeviceLock lock(mutex_);
    for (auto& [number, pair] : pairs_) {
        pair->is_held_ = holds;
        pair->gives_up_ns_ = holds ? pair->gives_up_ns_ : 0;
        while (!holds && !pair->held_.empty()) {
            const FakeQueuePair::Held held = std::move(pair->held_.front());
            pair->held_.pop_front();
            execute(*pair, held);
        }
    }
    for (const InFlight& late : holds ? std::vector<InFlight>() : std::exchange(in_flight_, {})) {
        (void)transfer(late.sender, late.receiver, late.held);
    }
}

// With a copy of its bytes, as it is on the wire.
void FakeNetwork::make_inline(FakeQueuePair::Held& held) {
    if (held.work.is_inline) {
        return;
    }
    for (const Piece& piece : held.pieces) {
        const auto* bytes = static_cast<const unsigned char*>(piece.address);
        held.inline_bytes.insert(held.inline_bytes.end(), bytes, bytes + piece.size_bytes);
    }
    held.work.is_inline = true;
}

void FakeNetwork::leave_in_flight(const FakeQueuePair& pair, FakeQueuePair::Held held) {
    if (held.work.kind != WorkKind::write) {
        return;
    }
    make_inline(held);
    in_flight_.push_back({pair.address_.queue_pair, pair.peer_, std::move(held)});
}

void FakeNetwork::silence_writer(bool loses_answers_only) {
    DeviceLock lock(mutex_);
    FakeQueuePair* const pair = find(last_writer_);
    if (pair != nullptr) {
        pair->is_deaf_ = loses_answers_only;
        pair->is_held_ = !loses_answers_only;
        pair->gives_up_ns_ = host::monotonic_ns() + 1'000'000'000;
    }
}

size_t FakeNetwork::held_count() {
    DeviceLock lock(mutex_);
    size_t count = 0;
    for (const auto& [number, pair] : pairs_) {
        count += pair->held_.size();
    }
    return count;
}

size_t FakeNetwork::queue_pair_count() {
    DeviceLock lock(mutex_);
    return pairs_.size();
}

size_t FakeNetwork::window_count() {
    DeviceLock lock(mutex_);
    return bindings_.size();
}

std::vector<FakeNetwork::OpenWindow> FakeNetwork::windows() {
    DeviceLock lock(mutex_);
    std::vector<OpenWindow> found;
    for (const auto& [key, binding] : bindings_) {
        found.push_back({binding.queue_pair, binding.size_bytes, binding.allows_writes});
    }
    return found;
}

FakeQueuePair* FakeNetwork::find(uint32_t number) {
    const auto found = pairs_.find(number);
    return found == pairs_.end() ? nullptr : found->second;
}

void FakeNetwork::complete(FakeQueuePair& pair, const WorkRequest& work, Status status) {
    pair.since_signalled_++;
    if (status == Status::success && !work.is_signalled) {
        return;
    }
    Completion completion;
    completion.id = work.id;
    completion.status = status;
    pair.completions_.push_back({completion, std::exchange(pair.since_signalled_, 0)});
    notify(pair);
}

void FakeNetwork::notify(FakeQueuePair& pair) {
    if (std::exchange(pair.is_armed_, false)) {
        const uint64_t one = 1;
        [[maybe_unused]] const ssize_t written = write(pair.event_, &one, sizeof(one));
    }
}

void FakeNetwork::drop_answers(const FakeQueuePair& pair) {
    std::erase_if(late_answers_,
                  [&](const InFlight& late) { return late.sender == pair.address_.queue_pair; });
}

size_t FakeNetwork::deliver_answers() {
    DeviceLock lock(mutex_);
    const std::vector<InFlight> answers = std::exchange(late_answers_, {});
    for (const InFlight& late : answers) {
        const unsigned char* from = late.held.inline_bytes.data();
        for (const Piece& piece : late.held.pieces) {
            std::memcpy(piece.address, from, piece.size_bytes);
            from += piece.size_bytes;
        }
    }
    return answers.size();
}

void FakeNetwork::break_pair(FakeQueuePair& pair) {
    pair.is_broken_ = true;
    drop_answers(pair);
    while (!pair.unanswered_.empty()) {
        complete(pair, pair.unanswered_.front(), Status::lost);
        pair.unanswered_.pop_front();
    }
    while (!pair.held_.empty()) {
        complete(pair, pair.held_.front().work, Status::lost);
        leave_in_flight(pair, std::move(pair.held_.front()));
        pair.held_.pop_front();
    }
}

bool FakeNetwork::owns_pieces(const WorkRequest& work, const std::vector<Piece>& pieces) {
    return work.is_inline ||
           std::all_of(pieces.begin(), pieces.end(), [&](const Piece& piece) REQUIRES(mutex_) {
               const auto found = regions_.find(piece.local_key);
               const auto* begin = static_cast<unsigned char*>(piece.address);
               return found != regions_.end() && begin >= found->second.begin &&
                      begin + piece.size_bytes <= found->second.begin + found->second.size_bytes;
           });
}

void FakeNetwork::execute(FakeQueuePair& pair, const FakeQueuePair::Held& held) {
    const WorkRequest& work = held.work;
    if (pair.is_broken_) {
        complete(pair, work, Status::lost);
        return;
    }
    if (work.kind == WorkKind::bind_window) {
        auto& window = static_cast<FakeWindow&>(*work.window);
        bindings_.erase(window.key());
        window.set_key(next_number_++);
        bindings_[window.key()] = {pair.address_.queue_pair,
                                   static_cast<unsigned char*>(work.address), work.size_bytes,
                                   work.allows_writes};
        counts_.bindings++;
        complete(pair, work, Status::success);
        return;
    }
    if (work.kind == WorkKind::invalidate && ends_no_pair.load()) {
        complete(pair, work, Status::failed);
        return;
    }
    if (work.kind == WorkKind::invalidate) {
        counts_.invalidations++;
        complete(pair, work,
                 bindings_.erase(work.window->key()) == 1 ? Status::success : Status::failed);
        return;
    }
    if (!pair.is_reliable_) {
        const bool is_owned = owns_pieces(work, held.pieces);
        if (is_owned) {
            send_unreliably(pair, held);
        }
        complete(pair, work, is_owned ? Status::success : Status::failed);
        return;
    }
    if (is_filtered.load()) {
        complete(pair, work, Status::lost);
        break_pair(pair);
        return;
    }
    if (breaks_ && breaks_after_ == 0) {
        breaks_ = false;
        if (breaks_executed_) {
            (void)transfer(pair.address_.queue_pair, pair.peer_, held);
        }
        break_pair(pair);
        complete(pair, work, Status::lost);
        return;
    }
    breaks_after_ -= breaks_ ? 1 : 0;
    if (loses_answers.load() || pair.is_deaf_) {
        const bool is_read = work.kind == WorkKind::read;
        if (!is_read || delays_answers.load()) {
            (void)transfer(pair.address_.queue_pair, pair.peer_, held);
        }
        if (is_read && delays_answers.load()) {
            late_answers_.push_back({pair.address_.queue_pair, pair.peer_, held});
            make_inline(late_answers_.back().held);
        }
        pair.unanswered_.push_back(work);
        return;
    }
    const Status status = transfer(pair.address_.queue_pair, pair.peer_, held);
    complete(pair, work, status);
    if (status != Status::success) {
        break_pair(pair);
    }
}

// ---- Unreliable queue pairs -------------------------------------------------------------------------------

void FakeNetwork::send_unreliably(const FakeQueuePair& pair, const FakeQueuePair::Held& held) {
    InFlight packet{pair.address_.queue_pair, pair.peer_, held};
    make_inline(packet.held);
    if (copies_immediates.load() && held.work.kind == WorkKind::write_immediate) {
        copies_.push_back(packet);
    }
    const auto happens = [&](uint32_t ppm)
                             REQUIRES(mutex_) { return ppm > 0 && random_() % 1'000'000 < ppm; };
    if (is_filtered.load() || happens(unreliable_loss_ppm.load())) {
        counts_.unreliable_losses++;
    } else if (happens(unreliable_delay_ppm.load())) {
        counts_.unreliable_delays++;
        delayed_.push_back({1 + random_() % max_delay_packets.load(), std::move(packet)});
    } else {
        arrive(packet);
    }
    for (auto late = delayed_.begin(); late != delayed_.end();) {
        if (--late->packets_left > 0) {
            ++late;
            continue;
        }
        const InFlight arriving = std::move(late->packet);
        late = delayed_.erase(late);
        arrive(arriving);
    }
}

void FakeNetwork::break_pairs() {
    DeviceLock lock(mutex_);
    for (auto& [number, pair] : pairs_) {
        break_pair(*pair);
    }
}

size_t FakeNetwork::deliver_copies(unsigned char content) {
    DeviceLock lock(mutex_);
    std::vector<InFlight> copies = std::exchange(copies_, {});
    for (InFlight& copy : copies) {
        std::fill(copy.held.inline_bytes.begin(), copy.held.inline_bytes.end(), content);
        arrive(copy);
    }
    return copies.size();
}

// Where a write goes, if a window allows it.
unsigned char* FakeNetwork::writable(uint32_t receiver, const WorkRequest& work,
                                     uint64_t size_bytes) {
    const auto found = bindings_.find(work.remote_key);
    if (found == bindings_.end() || found->second.queue_pair != receiver ||
        !found->second.allows_writes) {
        return nullptr;
    }
    const auto begin = reinterpret_cast<uint64_t>(found->second.begin);
    const bool is_inside = work.remote_address >= begin && size_bytes <= found->second.size_bytes &&
                           work.remote_address - begin <= found->second.size_bytes - size_bytes;
    return is_inside ? reinterpret_cast<unsigned char*>(work.remote_address) : nullptr;
}

void FakeNetwork::arrive(const InFlight& packet) {
    FakeQueuePair* peer = find(packet.receiver);
    if (peer == nullptr || peer->is_broken_ || peer->peer_ != packet.sender ||
        peer->receives_.empty()) {
        return;
    }
    const WorkRequest& work = packet.held.work;
    const std::vector<unsigned char>& bytes = packet.held.inline_bytes;
    const verbs::Receive receive = peer->receives_.front();
    Completion completion;
    completion.id = receive.id;
    completion.is_receive = true;
    completion.size_bytes = static_cast<uint32_t>(bytes.size());
    unsigned char* place = nullptr;
    if (work.kind == WorkKind::write_immediate) {
        place = writable(packet.receiver, work, bytes.size());
        completion.has_immediate = true;
        completion.immediate = work.immediate;
    } else if (bytes.size() <= receive.piece.size_bytes) {
        place = static_cast<unsigned char*>(receive.piece.address);
    }
    if (place == nullptr) {
        counts_.refusals++;
        return;
    }
    copy_unseen(place, bytes.data(), bytes.size());
    if (work.kind == WorkKind::write_immediate && !bytes.empty() &&
        changes_next_immediate.exchange(false)) {
        const unsigned char other = bytes[0] ^ 1;
        copy_unseen(place, &other, 1);
    }
    peer->receives_.pop_front();
    peer->completions_.push_back({completion, 0});
    notify(*peer);
}

Status FakeNetwork::transfer(uint32_t sender, uint32_t receiver, const FakeQueuePair::Held& held) {
    const WorkRequest& work = held.work;
    const FakeQueuePair* peer = find(receiver);
    if (peer == nullptr || peer->is_broken_ || peer->peer_ != sender) {
        return Status::lost;
    }
    if (!owns_pieces(work, held.pieces)) {
        return Status::failed;
    }
    uint64_t size = 0;
    for (const Piece& piece : held.pieces) {
        size += piece.size_bytes;
    }
    const auto found = bindings_.find(work.remote_key);
    const auto begin =
        found == bindings_.end() ? uint64_t{0} : reinterpret_cast<uint64_t>(found->second.begin);
    if (found == bindings_.end() || found->second.queue_pair != receiver ||
        work.remote_address < begin || size > found->second.size_bytes ||
        work.remote_address - begin > found->second.size_bytes - size ||
        (work.kind != WorkKind::read && !found->second.allows_writes)) {
        counts_.refusals++;
        return Status::refused;
    }
    auto* remote = reinterpret_cast<unsigned char*>(work.remote_address);
    (work.kind == WorkKind::read ? counts_.reads : counts_.writes)++;
    const unsigned char* inlined = held.inline_bytes.data();
    for (const Piece& piece : held.pieces) {
        if (work.kind == WorkKind::read) {
            std::memcpy(piece.address, remote, piece.size_bytes);
        } else {
            copy_to_remote(remote, work.is_inline ? inlined : piece.address, piece.size_bytes);
            inlined += work.is_inline ? piece.size_bytes : 0;
        }
        remote += piece.size_bytes;
    }
    return Status::success;
}

// ---- A queue pair -----------------------------------------------------------------------------------------

FakeQueuePair::FakeQueuePair(FakeNetwork& network, uint32_t number, uint32_t depth,
                             bool is_reliable)
    : network_(network),
      depth_(depth),
      is_reliable_(is_reliable),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    address_.queue_pair = number;
    address_.mtu = static_cast<uint8_t>(std::countr_zero(network.mtu_bytes.load()) - 7);
    address_.read_depth = 16;
    DeviceLock lock(network_.mutex_);
    network_.pairs_[number] = this;
}

FakeQueuePair::~FakeQueuePair() {
    // What a device does not end it has for ever; this object cannot stand for it any longer.
    forget();
    close(event_);
}

Result<void> FakeQueuePair::connect(const wire::QueuePairAddress& peer) {
    DeviceLock lock(network_.mutex_);
    peer_ = peer.queue_pair;
    return {};
}

Result<void> FakeQueuePair::post(const WorkRequest* work, size_t count) {
    DeviceLock lock(network_.mutex_);
    network_.counts_.posts++;
    for (size_t i = 0; i < count; i++) {
        if (++unpolled_ > depth_ || work[i].piece_count > 4) {
            return Error::eio;  // the caller does not keep to the device's bounds
        }
        Held held{work[i], {work[i].pieces, work[i].pieces + work[i].piece_count}, {}};
        if (work[i].is_inline) {
            network_.counts_.inlined++;
            for (const Piece& piece : held.pieces) {
                const auto* bytes = static_cast<const unsigned char*>(piece.address);
                held.inline_bytes.insert(held.inline_bytes.end(), bytes, bytes + piece.size_bytes);
            }
        }
        const bool is_data =
            work[i].kind != WorkKind::bind_window && work[i].kind != WorkKind::invalidate;
        network_.counts_.fenced += work[i].is_fenced ? 1 : 0;
        network_.counts_.signalled += is_data && work[i].is_signalled ? 1 : 0;
        if (is_data) {
            has_data_.store(true);
            if (work[i].kind == WorkKind::write) {
                network_.last_writer_ = address_.queue_pair;
            }
        }
        if (is_data && is_held_ && !is_broken_) {
            held_.push_back(std::move(held));
        } else {
            network_.execute(*this, held);
        }
    }
    return {};
}

Result<void> FakeQueuePair::post_receives(const verbs::Receive* receives, size_t count) {
    DeviceLock lock(network_.mutex_);
    receives_.insert(receives_.end(), receives, receives + count);
    return {};
}

size_t FakeQueuePair::poll(Completion* completions, size_t capacity) {
    if (has_data_.load()) {
        wait_while(network_.stalls_polls);
    }
    DeviceLock lock(network_.mutex_);
    if (gives_up_ns_ != 0 && !network_.delays_answers.load() &&
        !(held_.empty() && unanswered_.empty()) && host::monotonic_ns() >= gives_up_ns_) {
        network_.break_pair(*this);
    }
    size_t count = 0;
    while (count < capacity && !completions_.empty()) {
        completions[count++] = completions_.front().first;
        unpolled_ -= completions_.front().second;
        completions_.pop_front();
    }
    return count;
}

Result<void> FakeQueuePair::arm() {
    DeviceLock lock(network_.mutex_);
    is_armed_ = true;
    return {};
}

void FakeQueuePair::disarm() {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t size = read(event_, &count, sizeof(count));
}

Result<void> FakeQueuePair::stop() {
    if (has_data_.load() ? network_.ends_no_client.load() : network_.ends_no_pair.load()) {
        return Error::eio;
    }
    DeviceLock lock(network_.mutex_);
    network_.break_pair(*this);
    if (std::exchange(is_armed_, false)) {
        const uint64_t one = 1;
        [[maybe_unused]] const ssize_t written = write(event_, &one, sizeof(one));
    }
    return {};
}

Result<void> FakeQueuePair::destroy() {
    if (has_data_.load() ? network_.ends_no_client.load() : network_.ends_no_pair.load()) {
        return Error::eio;
    }
    {
        DeviceLock lock(network_.mutex_);
        network_.drop_answers(*this);
    }
    forget();
    return {};
}

void FakeQueuePair::forget() {
    DeviceLock lock(network_.mutex_);
    network_.pairs_.erase(address_.queue_pair);
    for (auto place = network_.bindings_.begin(); place != network_.bindings_.end();) {
        place = place->second.queue_pair == address_.queue_pair ? network_.bindings_.erase(place)
                                                                : std::next(place);
    }
}

}  // namespace tiffin::rdma_blk::test
