// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/io_thread.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kEventId = 0;
constexpr uint64_t kFirstListenerId = 1;
// Listeners come and go with volumes; neither numbers run out.
constexpr uint64_t kFirstConnectionId = uint64_t{1} << 32;
// In an event: of the connection's path of datagrams.
constexpr uint64_t kDatagramBit = uint64_t{1} << 63;
constexpr int kMaxEvents = 64;
// Who looks again and again looks at the path of datagrams that had something last, without epoll; but for one in so many
// times, when all have their turn.
constexpr uint32_t kLooksForAll = 4;
constexpr int kAcceptsInATurn = 16;

// The bytes that name a peer: family, address and port.
std::vector<unsigned char> address_bytes(const sockaddr_storage& address) {
    std::vector<unsigned char> bytes;
    const auto append = [&](const void* data, size_t size) {
        const auto* begin = static_cast<const unsigned char*>(data);
        bytes.insert(bytes.end(), begin, begin + size);
    };
    if (address.ss_family == AF_INET) {
        const auto* inet = reinterpret_cast<const sockaddr_in*>(&address);
        append(&inet->sin_addr, sizeof(inet->sin_addr));
        append(&inet->sin_port, sizeof(inet->sin_port));
    } else if (address.ss_family == AF_INET6) {
        const auto* inet = reinterpret_cast<const sockaddr_in6*>(&address);
        append(&inet->sin6_addr, sizeof(inet->sin6_addr));
        append(&inet->sin6_port, sizeof(inet->sin6_port));
    }
    return bytes;
}

// Of a peer's bytes what names the network that one party has: an IPv4 address, or the first half of one of IPv6.
std::vector<unsigned char> source_of(const std::vector<unsigned char>& peer_address) {
    constexpr size_t kPortBytes = sizeof(in_port_t);
    if (peer_address.size() != sizeof(in6_addr) + kPortBytes) {
        const size_t port = std::min(peer_address.size(), kPortBytes);
        return {peer_address.begin(), peer_address.end() - static_cast<ptrdiff_t>(port)};
    }
    in6_addr address{};
    std::memcpy(&address, peer_address.data(), sizeof(address));
    return IN6_IS_ADDR_V4MAPPED(&address)
               ? std::vector<unsigned char>(peer_address.begin() + 12, peer_address.begin() + 16)
               : std::vector<unsigned char>(peer_address.begin(), peer_address.begin() + 8);
}

}  // namespace

Result<std::unique_ptr<IoThread>> IoThread::create(uint64_t tick_interval_ns, uint32_t busy_poll_us,
                                                   ServerCounters& counters) {
    std::unique_ptr<IoThread> thread(new IoThread(tick_interval_ns, busy_poll_us, counters));
    thread->next_id_ = kFirstConnectionId;
    {
        MutexLock lock(thread->mutex_);
        thread->next_listener_id_ = kFirstListenerId;
    }
    thread->epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
    thread->event_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = kEventId;
    if (!thread->epoll_.valid() || !thread->event_.valid() ||
        epoll_ctl(thread->epoll_.get(), EPOLL_CTL_ADD, thread->event_.get(), &event) != 0) {
        return static_cast<Error>(errno);
    }
    return thread;
}

IoThread::~IoThread() { stop(); }

void IoThread::watch_listener(int listener, uint64_t id, bool watch) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = id;
    (void)epoll_ctl(epoll_.get(), watch ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listener, &event);
}

uint64_t IoThread::add_listener(UniqueDescriptor listener) {
    MutexLock lock(mutex_);
    const uint64_t id = next_listener_id_++;
    if (are_listeners_watched_) {
        watch_listener(listener.get(), id, true);
    }
    listeners_[id] = std::make_shared<UniqueDescriptor>(std::move(listener));
    return id;
}

void IoThread::remove_listener(uint64_t id) {
    MutexLock lock(mutex_);
    const auto found = listeners_.find(id);
    if (found != listeners_.end()) {
        watch_listener(found->second->get(), id, false);
        listeners_.erase(found);
    }
}

// Not watched while accept() has nothing to give but errors, as when descriptors run out.
void IoThread::watch_listeners(bool watch) {
    MutexLock lock(mutex_);
    if (watch == are_listeners_watched_) {
        return;
    }
    for (const auto& [id, listener] : listeners_) {
        watch_listener(listener->get(), id, watch);
    }
    are_listeners_watched_ = watch;
}

Result<void> IoThread::start(const char* name) {
    return thread_.start(
        name, [](void* self) { static_cast<IoThread*>(self)->run(); }, this);
}

void IoThread::stop() {
    if (thread_.running()) {
        stopping_.store(true);
        signal();
        thread_.join();
    }
    std::vector<std::shared_ptr<Connection>> left;
    {
        MutexLock lock(mutex_);
        left.swap(adopted_);
        woken_.clear();
    }
    for (const auto& connection : left) {
        connection->close();
    }
}

void IoThread::signal() {
    const uint64_t one = 1;
    // A full counter has been signalled already.
    (void)!write(event_.get(), &one, sizeof(one));
}

void IoThread::adopt(std::shared_ptr<Connection> connection) {
    connection->set_runner(this);
    {
        MutexLock lock(mutex_);
        adopted_.push_back(std::move(connection));
    }
    connection_count_.fetch_add(1);
    signal();
}

void IoThread::wake(std::shared_ptr<Connection> connection) {
    {
        MutexLock lock(mutex_);
        woken_.push_back(std::move(connection));
    }
    signal();
}

void IoThread::run() {
    now_ns_ = host::monotonic_ns();
    next_tick_ns_ = now_ns_ + tick_interval_ns_;
    while (!stopping_.load()) {
        run_once();
    }
    while (!entries_.empty()) {
        drop(entries_.begin()->first);
    }
}

int IoThread::wait_for_events(epoll_event* events) {
    uint64_t until_ns = more_.empty() ? next_tick_ns_ : 0;
    for (const uint64_t id : datagram_ids_) {
        until_ns = std::min(until_ns, entries_[id].connection->datagram_time_ns(now_ns_));
    }
    count(counters_.wait_calls);
    const auto look = [&](int timeout_ms) {
        return epoll_wait(epoll_.get(), events, kMaxEvents, timeout_ms);
    };
    if (until_ns <= now_ns_) {
        return look(0);
    }
    int event_count = 0;
    const auto finds = [&] {
        const bool is_for_all = lively_id_ == 0 || ++looks_ % kLooksForAll == 0;
        return is_for_all ? (event_count = look(0)) > 0 : looks_at_lively_path();
    };
    if (busy_poll_.meets(finds)) {
        return event_count;
    }
    // The turn that ended, and looking, took time: what datagrams acknowledge is waited for in milliseconds.
    const uint64_t now_ns = host::monotonic_ns();
    const uint64_t wait_ns = until_ns - std::min(now_ns, until_ns);
    event_count = look(static_cast<int>((wait_ns + 999'999) / 1'000'000));
    busy_poll_.slept();
    return event_count;
}

bool IoThread::looks_at_lively_path() {
    const auto found = entries_.find(lively_id_);
    if (found == entries_.end() || found->second.connection->datagram_socket() < 0) {
        lively_id_ = 0;
        return false;
    }
    is_lively_due_ = found->second.connection->look_at_datagrams(host::monotonic_ns());
    return is_lively_due_;
}

// The clock is read once: a turn is short, and a tick that is late by one does no harm.
void IoThread::run_once() {
    epoll_event events[kMaxEvents];
    const int event_count = wait_for_events(events);
    now_ns_ = host::monotonic_ns();
    turn_.clear();
    turn_.swap(more_);
    if (std::exchange(is_lively_due_, false)) {
        serve_datagrams(lively_id_);
    }
    for (int index = 0; index < event_count; index++) {
        const uint64_t id = events[index].data.u64;
        if (id == kEventId) {
            take_inbox();
        } else if (id < kFirstConnectionId) {
            accept_from(id);
        } else if ((id & kDatagramBit) != 0) {
            lively_id_ = id & ~kDatagramBit;
            serve_datagrams(lively_id_);
        } else {
            lively_id_ = 0;
            turn_.push_back(id);
            drop_when_gone(id, events[index].events);
        }
    }
    std::sort(turn_.begin(), turn_.end());
    turn_.erase(std::unique(turn_.begin(), turn_.end()), turn_.end());
    for (const uint64_t id : turn_) {
        serve(id);
    }
    serve_late_datagrams();
    if (now_ns_ >= next_tick_ns_) {
        tick();
    }
}

// What is due although nothing came: repetitions, acknowledgements.
void IoThread::serve_late_datagrams() {
    for (size_t index = datagram_ids_.size(); index > 0;
         index--) {  // the last one may take another's place
        const uint64_t id = datagram_ids_[index - 1];
        if (entries_[id].connection->datagram_time_ns(now_ns_) <= now_ns_) {
            serve_datagrams(id);
        }
    }
}

void IoThread::serve_datagrams(uint64_t id) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) {
        return;
    }
    if (!found->second.connection->serve_datagrams(now_ns_)) {
        drop(id);
        return;
    }
    update(id, found->second);
}

void IoThread::take_inbox() {
    uint64_t ignored = 0;
    (void)!read(event_.get(), &ignored, sizeof(ignored));
    std::vector<std::shared_ptr<Connection>> adopted;
    std::vector<std::shared_ptr<Connection>> woken;
    {
        MutexLock lock(mutex_);
        adopted.swap(adopted_);
        woken.swap(woken_);
    }
    for (std::shared_ptr<Connection>& connection : adopted) {
        const uint64_t id = next_id_++;
        epoll_event event{};
        event.data.u64 = id;
        if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection->socket(), &event) != 0) {
            connection_count_.fetch_sub(1);
            connection->close();
            continue;
        }
        ids_[connection.get()] = id;
        entries_[id] = Entry{std::move(connection), 0};
        more_.push_back(id);  // it may have bytes that were read already
    }
    for (std::shared_ptr<Connection>& connection : woken) {
        const auto found = ids_.find(connection.get());
        if (found != ids_.end()) {
            more_.push_back(found->second);
        } else if (connection->runner() != this) {
            connection->runner()->wake(connection);  // it was handed over meanwhile
        }
    }
}

void IoThread::accept_from(uint64_t listener_id) {
    std::shared_ptr<UniqueDescriptor> listener;
    {
        MutexLock lock(mutex_);
        const auto found = listeners_.find(listener_id);
        if (found == listeners_.end()) {
            return;  // an event that came before it went
        }
        listener = found->second;
    }
    for (int turn = 0; turn < kAcceptsInATurn; turn++) {
        sockaddr_storage address{};
        socklen_t length = sizeof(address);
        UniqueDescriptor socket(accept4(listener->get(), reinterpret_cast<sockaddr*>(&address),
                                        &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!socket.valid()) {
            if (errno == EINTR || errno == ECONNABORTED) {
                continue;
            }
            if (errno != EAGAIN && errno != EWOULDBLOCK) {
                watch_listeners(false);
            }
            return;
        }
        const int on = 1;
        (void)setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        std::vector<unsigned char> peer_address = address_bytes(address);
        make_room_for(peer_address);
        auto connection = acceptor_.accept(std::move(socket), std::move(peer_address));
        if (connection) {
            adopt(std::move(connection));
            take_inbox();  // at once, so that the next one finds it counted
        }
    }
}

void IoThread::make_room_for(const std::vector<unsigned char>& peer_address) {
    std::map<std::vector<unsigned char>, std::vector<uint64_t>> strangers;  // by source
    size_t count = 0;
    for (const auto& [id, entry] : entries_) {
        if (entry.connection->is_stranger()) {
            strangers[source_of(entry.connection->peer_address())].push_back(id);
            count++;
        }
    }
    if (count < acceptor_.most_strangers()) {
        return;
    }
    const std::vector<unsigned char> newcomer = source_of(peer_address);
    size_t most = 0;
    uint64_t oldest = 0;
    for (const auto& [source, ids] : strangers) {
        const size_t places = ids.size() + (source == newcomer ? 1 : 0);
        const uint64_t first = *std::min_element(ids.begin(), ids.end());
        if (places > most || (places == most && first < oldest)) {
            most = places;
            oldest = first;
        }
    }
    acceptor_.displaced();
    drop(oldest);
}

void IoThread::serve(uint64_t id) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) {
        return;
    }
    const std::shared_ptr<Connection> connection = found->second.connection;
    if (!connection->serve(now_ns_)) {
        drop(id);
        return;
    }
    if (acceptor_.hand_over && connection->is_attached()) {
        (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->socket(), nullptr);
        ids_.erase(connection.get());
        entries_.erase(found);
        connection_count_.fetch_sub(1);
        acceptor_.hand_over(connection);
        return;
    }
    update(id, found->second);
}

// A connection that is not read just now does not notice that its peer is gone, and epoll would go on saying so.
void IoThread::drop_when_gone(uint64_t id, uint32_t events) {
    const auto found = entries_.find(id);
    if ((events & (EPOLLERR | EPOLLHUP)) != 0 && found != entries_.end() &&
        !found->second.connection->wants_read()) {
        drop(id);
    }
}

void IoThread::update(uint64_t id, Entry& entry) {
    if (entry.connection->has_more()) {
        more_.push_back(id);
    }
    if (entry.connection->datagram_path_number() != entry.datagram_path_number) {
        // The earlier one, if any, is closed and so not watched any more.
        entry.datagram_path_number = entry.connection->datagram_path_number();
        datagram_ids_.erase(std::remove(datagram_ids_.begin(), datagram_ids_.end(), id),
                            datagram_ids_.end());
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.u64 = id | kDatagramBit;
        if (entry.datagram_path_number != 0) {
            (void)epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, entry.connection->datagram_socket(),
                            &event);
            datagram_ids_.push_back(id);
        }
    }
    const uint32_t events = (entry.connection->wants_read() ? EPOLLIN : 0U) |
                            (entry.connection->wants_write() ? EPOLLOUT : 0U);
    if (events != entry.events) {
        epoll_event event{};
        event.events = events;
        event.data.u64 = id;
        (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, entry.connection->socket(), &event);
        entry.events = events;
    }
}

void IoThread::drop(uint64_t id) {
    const auto found = entries_.find(id);
    const std::shared_ptr<Connection> connection = found->second.connection;
    (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->socket(), nullptr);
    ids_.erase(connection.get());
    entries_.erase(found);
    datagram_ids_.erase(std::remove(datagram_ids_.begin(), datagram_ids_.end(), id),
                        datagram_ids_.end());
    connection_count_.fetch_sub(1);
    connection->close();
}

void IoThread::tick() {
    const uint64_t now_ns = host::monotonic_ns();
    next_tick_ns_ = now_ns + tick_interval_ns_;
    watch_listeners(true);
    std::vector<uint64_t> over;
    for (auto& [id, entry] : entries_) {
        if (!entry.connection->tick(now_ns)) {
            over.push_back(id);
        } else {
            update(id, entry);
        }
    }
    for (const uint64_t id : over) {
        drop(id);
    }
}

}  // namespace tiffin::rdma_blk
