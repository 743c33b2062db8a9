// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/session/request_loop.h"

#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "fuse/session/libfuse.h"
#include "fuse/session/tuning.h"

namespace tiffin::fuse {
namespace {

// Interrupts the wait of a thread for a request.
constexpr int kWakeSignal = SIGUSR1;

// For so long after two requests were served at once no thread is parked.
constexpr uint64_t kCrowdNs = 10'000'000;
// A leader that has found requests waiting for so long, without a pause, needs help.
constexpr uint64_t kPileNs = 30'000;
// How often the guard looks whether the leader goes on. No request waits for longer than twice this behind one
// that takes long: such a leader is one no more.
constexpr uint64_t kGuardUs = 1000;
// For wait_until_queue_is_answered().
constexpr auto kLook = std::chrono::milliseconds(1);
constexpr uint32_t kEmptyLooks = 5;
// A thread that meets requests awake says so once in so many.
constexpr uint64_t kBurstRequests = 64;

void ignore_signal(int /*number*/) {}

// For counters that one thread writes.
void count(std::atomic<uint64_t>& counter) {
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

// Polling would only keep the next program that asks from its processor.
bool has_one_processor() {
    cpu_set_t processors;
    return sched_getaffinity(0, sizeof processors, &processors) == 0 && CPU_COUNT(&processors) == 1;
}

// What a file of the kernel's has, which may not be there.
std::optional<uint64_t> read_number(const std::string& path) {
    std::ifstream file(path);
    uint64_t number = 0;
    return file >> number ? std::optional(number) : std::nullopt;
}

// Whether a thread of this process sleeps, or cannot be looked at. While it copies what the kernel has it runs, or waits for
// memory, which counts as something else.
bool is_asleep(pid_t thread) {
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string line;
    std::getline(file, line);
    const size_t name_end = line.rfind(')');
    return name_end == std::string::npos || line.compare(name_end + 1, 2, " S") == 0;
}

constexpr uint32_t kUnknownOperation = 0;

uint32_t operation_of(const fuse_buf& buffer) {
    fuse_in_header header{};
    if (buffer.size < sizeof header || (buffer.flags & FUSE_BUF_IS_FD) != 0) {
        return kUnknownOperation;
    }
    std::memcpy(&header, buffer.mem, sizeof header);
    return header.opcode;
}

// Whether a program waits for the answer.
bool has_answer(uint32_t operation) {
    return operation != FUSE_FORGET && operation != FUSE_BATCH_FORGET &&
           operation != FUSE_INTERRUPT;
}

// Memory for a request as libfuse receives it. The data of a write begins on a page, so that devices with
// direct I/O take it as it is.
class RequestBuffer {
  public:
    RequestBuffer()
        : page_bytes_(static_cast<size_t>(getpagesize())),
          memory_(static_cast<char*>(std::aligned_alloc(page_bytes_, kPages * page_bytes_))) {}
    ~RequestBuffer() { std::free(memory_); }
    RequestBuffer(const RequestBuffer&) = delete;
    RequestBuffer& operator=(const RequestBuffer&) = delete;

    // Where a request is received; nullptr when there is no memory.
    char* begin() const {
        return memory_ == nullptr ? nullptr : memory_ + page_bytes_ - kHeaderBytes;
    }

  private:
    // In front of written data (struct fuse_in_header, struct fuse_write_in).
    static constexpr size_t kHeaderBytes = 80;
    // The kernel's largest request, which libfuse's bound is before both have agreed on one, a page for
    // headers, and one for where the data begins.
    static constexpr size_t kPages = 256 + 2;

    size_t page_bytes_;
    char* memory_;
};

}  // namespace

struct RequestLoop::Thread {
    explicit Thread(RequestLoop& owner) : loop(owner) {}

    RequestLoop& loop;
    // Not for the thread of run().
    std::thread thread;
    pthread_t handle{};
    RequestBuffer memory;
    fuse_buf buffer{};
    // It has a request, and has not answered it.
    bool is_awaited = false;
    // As the leader: when it last found that no request waited.
    uint64_t last_pause_ns = 0;
    std::atomic<pid_t> id{0};
    // Odd while it has a request; then whether that is a write, or may be.
    std::atomic<uint64_t> turn{0};
    std::atomic<bool> is_writing{false};
    // Those that have an answer, which alone the kernel counts.
    std::atomic<uint64_t> requests{0};
    // Written by the thread alone, read by counters().
    std::atomic<uint64_t> met_awake{0};
    std::atomic<uint64_t> slept{0};

    bool prepare() {
        buffer.mem = memory.begin();
        return buffer.mem != nullptr;
    }
};

thread_local RequestLoop::Thread* RequestLoop::serving = nullptr;

RequestLoop::RequestLoop(fuse_session* session, RequestLoopOptions options)
    : session_(session),
      options_(std::move(options)),
      busy_poll_ns_(has_one_processor() ? 0 : uint64_t{options_.busy_poll_us} * 1000) {}

RequestLoop::~RequestLoop() = default;

int RequestLoop::run() {
    struct sigaction action {};
    action.sa_handler = ignore_signal;
    sigaction(kWakeSignal, &action, nullptr);
    // The parent process may have blocked it.
    sigset_t wake;
    sigemptyset(&wake);
    sigaddset(&wake, kWakeSignal);
    pthread_sigmask(SIG_UNBLOCK, &wake, nullptr);
    return options_.by_libfuse ? run_by_libfuse() : run_here();
}

int RequestLoop::run_here() {
    auto first = std::make_unique<Thread>(*this);
    if (!first->prepare()) {
        return ENOMEM;
    }
    first->handle = pthread_self();
    Thread& self = *first;
    running_.fetch_add(1);
    waiting_.fetch_add(1);
    {
        MutexLock lock(mutex_);
        threads_.reserve(options_.max_threads);
        threads_.push_back(std::move(first));
    }
    serve(self);
    std::vector<std::unique_ptr<Thread>> all;
    {
        MutexLock lock(mutex_);
        all.swap(threads_);
    }
    for (const auto& thread : all) {
        if (thread->thread.joinable()) {
            thread->thread.join();
        }
    }
    return error_.load();
}

// Only libfuse's own loop ends the threads that it starts for io_uring.
int RequestLoop::run_by_libfuse() {
    fuse_loop_config* config = fuse_loop_cfg_create();
    auto self = std::make_unique<Thread>(*this);
    if (config == nullptr) {
        return ENOMEM;
    }
    self->handle = pthread_self();
    {
        MutexLock lock(mutex_);
        threads_.push_back(std::move(self));
    }
    running_.fetch_add(1);
    fuse_loop_cfg_set_clone_fd(config, 1);
    fuse_loop_cfg_set_max_threads(config, options_.max_threads);
    const int result = fuse_session_loop_mt(session_, config);
    fuse_loop_cfg_destroy(config);
    running_.fetch_sub(1);
    return result < 0 ? -result : 0;
}

void RequestLoop::stop() {
    ended_.store(true);
    fuse_session_exit(session_);
    leave_parking();
    // A thread may be just before its wait when the signal comes: so again until none is left.
    while (running_.load() > 0) {
        {
            MutexLock lock(mutex_);
            for (const auto& thread : threads_) {
                pthread_kill(thread->handle, kWakeSignal);
            }
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}

RequestLoop::Turns RequestLoop::count_turns() const {
    Turns turns{};
    MutexLock lock(mutex_);
    for (const auto& thread : threads_) {
        const uint64_t turn = thread->turn.load();
        turns.received += thread->requests.load();
        turns.serving += turn % 2;
    }
    return turns;
}

bool RequestLoop::wait_until_queue_is_answered(std::chrono::milliseconds limit,
                                               const std::string& connection) const {
    if (options_.by_libfuse || serving != nullptr) {
        return false;
    }
    const auto end = std::chrono::steady_clock::now() + limit;
    const auto look_again = [&] {
        std::this_thread::sleep_for(kLook);
        return !ended_.load() && std::chrono::steady_clock::now() < end;
    };
    // An administrator may have lowered it.
    const uint64_t passed_on = std::min<uint64_t>(
        kMaxBackgroundRequests,
        read_number(connection + "/max_background").value_or(kMaxBackgroundRequests));
    // Several looks where the kernel does not tell, or counts many that wait for something else than a thread, as this call
    // may: a thread that has just received a request does not count yet.
    std::optional<uint64_t> present;
    for (uint32_t empty_looks = 0;;) {
        present = read_number(connection + "/waiting");
        if (present && *present < passed_on) {
            break;
        }
        const bool is_empty = !is_ready() && count_turns().serving < passed_on;
        empty_looks = is_empty ? empty_looks + 1 : 0;
        if (empty_looks == kEmptyLooks) {
            break;
        }
        if (!look_again()) {
            return ended_.load();
        }
    }
    // The others are received in the order in which they came.
    const uint64_t last = count_turns().received + present.value_or(0);
    while (is_ready() && count_turns().received < last) {
        if (!look_again()) {
            return ended_.load();
        }
    }
    std::vector<std::pair<const Thread*, uint64_t>> all;
    {
        MutexLock lock(mutex_);
        for (const auto& thread : threads_) {
            all.emplace_back(thread.get(), thread->turn.load());
        }
    }
    for (const auto& [thread, turn] : all) {
        while (may_be_in_turn(thread, turn)) {
            if (!look_again()) {
                return ended_.load();
            }
        }
    }
    return true;
}

// Whether the thread may still have a write that it took, or was taking, when its turn was `turn`: others may take minutes.
// Threads stay until the loop ends, when there are none.
bool RequestLoop::may_be_in_turn(const Thread* thread, uint64_t turn) const {
    MutexLock lock(mutex_);
    return std::any_of(threads_.begin(), threads_.end(), [&](const auto& each) {
        if (each.get() != thread) {
            return false;
        }
        const uint64_t now = each->turn.load();
        if (now % 2 != 0 && !each->is_writing.load()) {
            return false;
        }
        if (turn % 2 != 0) {
            return now == turn;
        }
        const bool took_none = is_asleep(each->id.load()) && each->turn.load() == turn;
        return !took_none && now < turn + 2;
    });
}

// Several requests at once are several threads' work; one that waits for a device does not hold up the others.
void RequestLoop::start_thread() {
    MutexLock lock(mutex_);
    if (ended_.load() || threads_.size() >= options_.max_threads) {
        return;
    }
    auto thread = std::make_unique<Thread>(*this);
    if (!thread->prepare()) {
        return;  // The requests wait for the threads there are; the next one tries again.
    }
    running_.fetch_add(1);
    waiting_.fetch_add(1);
    try {
        thread->thread = std::thread([this, &self = *thread] {
            pthread_setname_np(pthread_self(), "tiffin-serve");
            serve(self);
        });
    } catch (const std::system_error&) {
        waiting_.fetch_sub(1);
        running_.fetch_sub(1);
        return;
    }
    thread->handle = thread->thread.native_handle();
    threads_.push_back(std::move(thread));
}

void RequestLoop::answered() {
    if (serving != nullptr && serving->is_awaited) {
        serving->is_awaited = false;
        serving->loop.awaited_.fetch_sub(1, std::memory_order_relaxed);
    }
}

void RequestLoop::serve(Thread& self) {
    serving = &self;
    self.id.store(gettid());
    while (!ended_.load(std::memory_order_relaxed) && fuse_session_exited(session_) == 0) {
        const int received = receive(self);
        if (received == -EINTR || received == -EAGAIN) {
            continue;
        }
        if (received <= 0) {
            // 0 when another thread has met the end, or an error, before.
            int none = 0;
            error_.compare_exchange_strong(none, -received);
            break;
        }
        const uint32_t operation = operation_of(self.buffer);
        self.is_writing.store(operation == FUSE_WRITE || operation == kUnknownOperation,
                              std::memory_order_relaxed);
        count(self.turn);
        if (waiting_.fetch_sub(1) == 1) {
            start_thread();
        }
        self.is_awaited = has_answer(operation);
        if (self.is_awaited) {
            count(self.requests);
        }
        if (self.is_awaited && awaited_.fetch_add(1, std::memory_order_relaxed) > 0) {
            note_crowd();
        }
        fuse_session_process_buf(session_, &self.buffer);
        answered();  // what libfuse answers itself
        count(self.turn);
        if (busy_poll_ns_ != 0) {
            last_answer_ns_.store(host::monotonic_ns(), std::memory_order_relaxed);
        }
        waiting_.fetch_add(1);
    }
    serving = nullptr;
    running_.fetch_sub(1);
    // The connection has ended or does not work: that counts for all threads.
    stop();
}

// As fuse_session_receive_buf(): the size, 0 when the connection has ended, or a negative error number.
int RequestLoop::receive(Thread& self) {
    while (polling_pays_.load(std::memory_order_relaxed)) {
        if (!is_leader(self)) {
            if (is_crowded() || ended_.load(std::memory_order_relaxed)) {
                break;
            }
            park();
            continue;
        }
        if (!poll(self)) {
            polling_pays_.store(false, std::memory_order_relaxed);
            break;
        }
        count(self.met_awake);
        count(leader_turns_);
        if (self.met_awake.load(std::memory_order_relaxed) % kBurstRequests == 0 &&
            options_.on_burst) {
            options_.on_burst();
        }
        return fuse_session_receive_buf(session_, &self.buffer);
    }
    return sleep_for_request(self);
}

bool RequestLoop::is_leader(Thread& self) {
    Thread* leader = leader_.load(std::memory_order_relaxed);
    return leader == &self || (leader == nullptr && leader_.compare_exchange_strong(
                                                        leader, &self, std::memory_order_relaxed));
}

int RequestLoop::sleep_for_request(Thread& self) {
    Thread* leader = &self;
    leader_.compare_exchange_strong(leader, nullptr, std::memory_order_relaxed);
    count(self.slept);
    const int received = fuse_session_receive_buf(session_, &self.buffer);
    if (busy_poll_ns_ != 0) {
        const uint64_t idle_ns =
            host::monotonic_ns() - last_answer_ns_.load(std::memory_order_relaxed);
        polling_pays_.store(idle_ns < busy_poll_ns_, std::memory_order_relaxed);
    }
    return received;
}

// Whether a request came in time. A thread that sleeps may take it first: then the leader sleeps over its
// read, as it would have anyway.
bool RequestLoop::poll(Thread& self) {
    const uint64_t start_ns = host::monotonic_ns();
    if (is_ready()) {
        if (start_ns - self.last_pause_ns > kPileNs &&
            parked_.load(std::memory_order_relaxed) > 0) {
            note_crowd();
            leave_parking();
        }
        return true;
    }
    bool ready = false;
    uint64_t now_ns = start_ns;
    while (!ready && now_ns - start_ns < busy_poll_ns_) {
        // Other threads that want this processor come first: perhaps one of them will ask.
        sched_yield();
        ready = is_ready();
        now_ns = host::monotonic_ns();
    }
    self.last_pause_ns = now_ns;
    return ready;
}

bool RequestLoop::is_crowded() const {
    return host::monotonic_ns() < crowded_until_ns_.load(std::memory_order_relaxed);
}

void RequestLoop::note_crowd() {
    crowded_until_ns_.store(host::monotonic_ns() + kCrowdNs, std::memory_order_relaxed);
}

// Sleeps away from the kernel's queue until there is something to do there.
void RequestLoop::park() {
    MutexLock lock(parking_);
    parked_.fetch_add(1, std::memory_order_relaxed);
    bool guards = false;
    uint64_t seen_turns = leader_turns_.load(std::memory_order_relaxed);
    while (polling_pays_.load(std::memory_order_relaxed) && !is_crowded() && !ended_.load()) {
        if (!guards && is_guarded_) {
            parking_ends_.wait(parking_);
            continue;
        }
        guards = true;
        is_guarded_ = true;
        parking_ends_.wait_for(parking_, kGuardUs);
        const uint64_t turns = leader_turns_.load(std::memory_order_relaxed);
        if (turns == seen_turns) {
            note_crowd();
            leader_.store(nullptr, std::memory_order_relaxed);
        }
        seen_turns = turns;
    }
    parked_.fetch_sub(1, std::memory_order_relaxed);
    if (guards) {
        // The others see what ended this, or one of them becomes the guard.
        is_guarded_ = false;
        parking_ends_.notify_all();
    }
}

// After a change of what park() waits for.
void RequestLoop::leave_parking() {
    MutexLock lock(parking_);
    parking_ends_.notify_all();
}

bool RequestLoop::is_ready() const {
    pollfd wanted{fuse_session_fd(session_), POLLIN, 0};
    return ::poll(&wanted, 1, 0) != 0;
}

RequestLoop::Counters RequestLoop::counters() const {
    Counters sum{};
    MutexLock lock(mutex_);
    for (const auto& thread : threads_) {
        sum.met_awake += thread->met_awake.load(std::memory_order_relaxed);
        sum.slept += thread->slept.load(std::memory_order_relaxed);
    }
    return sum;
}

}  // namespace tiffin::fuse
