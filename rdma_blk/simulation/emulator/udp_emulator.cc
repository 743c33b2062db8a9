// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/simulation/emulator/udp_emulator.h"

#include <netinet/udp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <vector>

#include "fs/vfs/host.h"
#include "rdma_blk/simulation/emulator/delay_store.h"

namespace tiffin::rdma_blk::simulation {
namespace {

constexpr uint64_t kNetworkHeaderBytes = 28;  // IPv4 and UDP
constexpr uint16_t kMostPaths = 64;
constexpr int kSocketBufferBytes = 4 << 20;
constexpr uint32_t kMostReads = 16;  // from one socket before what is due goes on
constexpr size_t kMostSegments = 64;
constexpr size_t kMostSegmentsBytes = 65000;

// A socket of one side of one path. It stands at way 2 * path (near) or 2 * path + 1 (far): what arrives at a socket
// goes out of its partner, way ^ 1.
struct Side {
    int socket = -1;
    sockaddr_in6 address = {};
    sockaddr_in6 peer = {};
    bool has_peer = false;
    bool is_peer_set = false;  // not learnt
};

// A peer that was set and that the thread has not taken yet. Without a lock, since who sets it may hold one.
class PeerMailbox {
  public:
    PeerMailbox() = default;
    ~PeerMailbox() { delete set_.load(); }
    PeerMailbox(const PeerMailbox&) = delete;
    PeerMailbox& operator=(const PeerMailbox&) = delete;

    void put(const sockaddr_in6& peer) { delete set_.exchange(new sockaddr_in6(peer)); }
    void take(Side& side) {
        if (set_.load(std::memory_order_relaxed) == nullptr) {
            return;
        }
        const std::unique_ptr<const sockaddr_in6> peer(set_.exchange(nullptr));
        if (peer != nullptr) {
            side.peer = *peer;
            side.has_peer = true;
            side.is_peer_set = true;
        }
    }

  private:
    std::atomic<const sockaddr_in6*> set_{nullptr};
};

class Emulator final : public UdpEmulator {
  public:
    explicit Emulator(const EmulatorOptions& options)
        : options_(options),
          mutex_(host::LockClass::leaf),
          sides_(size_t{2} * options.path_count),
          set_peers_(size_t{2} * options.path_count),
          forward_(options.forward, options.seed),
          backward_(options.backward, options.seed ^ 0x6261636b),
          store_(options.most_datagrams, options.most_blocks) {}
    ~Emulator() override;

    Result<void> open();
    sockaddr_in6 near_address(uint16_t path) const override { return address(size_t{2} * path); }
    sockaddr_in6 far_address(uint16_t path) const override { return address(size_t{2} * path + 1); }
    void set_near_peer(uint16_t path, const sockaddr_in6& address) override {
        set_peers_[size_t{2} * path].put(address);
    }
    void set_far_peer(uint16_t path, const sockaddr_in6& address) override {
        set_peers_[size_t{2} * path + 1].put(address);
    }
    void set_longest_datagram(uint32_t longest_bytes) override EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        options_.longest_datagram_bytes = longest_bytes;
    }
    EmulatorCounters counters() override EXCLUDES(mutex_);

  private:
    sockaddr_in6 address(size_t way) const NO_THREAD_SAFETY_ANALYSIS {
        return sides_[way].address;  // does not change after open()
    }
    Result<void> open_side(Side& side, sockaddr_in6 local, uint16_t path);
    static void run(void* argument);
    void work() EXCLUDES(mutex_);
    bool receive(uint64_t now_ns, uint32_t way) REQUIRES(mutex_);
    void accept(uint64_t now_ns, uint32_t way, DelayStore::Block block, size_t size_bytes,
                size_t segment_bytes) REQUIRES(mutex_);
    void forward_due(uint64_t now_ns) REQUIRES(mutex_);
    void send(const Side& side, const iovec* parts, size_t count) REQUIRES(mutex_);

    EmulatorOptions options_ GUARDED_BY(mutex_);
    host::Mutex mutex_;  // everything; held while the thread is not asleep
    std::vector<Side> sides_ GUARDED_BY(mutex_);
    std::vector<PeerMailbox> set_peers_;  // of the sides
    Link forward_ GUARDED_BY(mutex_);
    Link backward_ GUARDED_BY(mutex_);
    DelayStore store_ GUARDED_BY(mutex_);
    EmulatorCounters counters_ GUARDED_BY(mutex_);
    std::vector<pollfd> waits_;  // of the sides, then stop_
    int stop_ = -1;              // eventfd
    host::Thread thread_;
};

Emulator::~Emulator() {
    if (thread_.running()) {
        const uint64_t one = 1;
        (void)!write(stop_, &one, sizeof(one));
        thread_.join();
    }
    for (const pollfd& wait : waits_) {
        close(wait.fd);
    }
}

Result<void> Emulator::open() NO_THREAD_SAFETY_ANALYSIS {  // before the thread begins
    for (uint16_t path = 0; path < options_.path_count; path++) {
        TRY(open_side(sides_[size_t{2} * path], options_.near_address, path));
        TRY(open_side(sides_[size_t{2} * path + 1], options_.far_address, path));
    }
    stop_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (stop_ < 0) {
        return static_cast<Error>(errno);
    }
    waits_.push_back({stop_, POLLIN, 0});
    return thread_.start("link-emulator", run, this);
}

Result<void> Emulator::open_side(Side& side, sockaddr_in6 local, uint16_t path) {
    side.socket = ::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (side.socket < 0) {
        return static_cast<Error>(errno);
    }
    waits_.push_back({side.socket, POLLIN, 0});
    const int on = 1;
    const int off = 0;
    // Best effort: smaller buffers lose more, and an old kernel has no GRO for UDP.
    (void)setsockopt(side.socket, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    (void)setsockopt(side.socket, SOL_UDP, UDP_GRO, &on, sizeof(on));
    (void)setsockopt(side.socket, SOL_SOCKET, SO_RCVBUF, &kSocketBufferBytes, sizeof(int));
    (void)setsockopt(side.socket, SOL_SOCKET, SO_SNDBUF, &kSocketBufferBytes, sizeof(int));
    local.sin6_family = AF_INET6;
    local.sin6_port = local.sin6_port == 0 ? 0 : htons(ntohs(local.sin6_port) + path);
    socklen_t size = sizeof(side.address);
    if (bind(side.socket, reinterpret_cast<const sockaddr*>(&local), sizeof(local)) != 0 ||
        getsockname(side.socket, reinterpret_cast<sockaddr*>(&side.address), &size) != 0) {
        return static_cast<Error>(errno);
    }
    return {};
}

EmulatorCounters Emulator::counters() {
    const MutexLock lock(mutex_);
    EmulatorCounters sum = counters_;
    for (const Link* link : {&forward_, &backward_}) {
        sum.lost += link->counters().lost_packets;
        sum.tail_dropped += link->counters().tail_dropped_packets;
        sum.duplicated += link->counters().duplicated_packets;
        sum.held += link->counters().held_packets;
    }
    return sum;
}

void Emulator::run(void* argument) {
    // The default of 50 us would be added to every delay.
    (void)prctl(PR_SET_TIMERSLACK, 1);
    static_cast<Emulator*>(argument)->work();
}

void Emulator::work() {
    const size_t stop = waits_.size() - 1;
    while ((waits_[stop].revents & POLLIN) == 0) {
        uint64_t next_ns = 0;
        bool has_more = false;
        {
            const MutexLock lock(mutex_);
            const uint64_t now_ns = host::monotonic_ns();
            for (uint32_t way = 0; way < stop; way++) {
                if (waits_[way].revents != 0) {
                    has_more = receive(now_ns, way) || has_more;
                }
            }
            forward_due(host::monotonic_ns());
            next_ns = store_.next_ns();
        }
        const uint64_t now_ns = host::monotonic_ns();
        const uint64_t sleep_ns =
            has_more || next_ns <= now_ns ? 0 : std::min<uint64_t>(next_ns - now_ns, 900'000'000);
        const timespec sleep{0, static_cast<long>(sleep_ns)};
        (void)ppoll(waits_.data(), waits_.size(), &sleep, nullptr);
    }
}

// True: there may be more.
bool Emulator::receive(uint64_t now_ns, uint32_t way) {
    Side& side = sides_[way];
    for (uint32_t read = 0; read < kMostReads; read++) {
        const DelayStore::Block block = store_.take_block();
        unsigned char nowhere = 0;
        iovec part{&nowhere, sizeof(nowhere)};  // without memory, what comes is read and dropped
        if (block != DelayStore::kNoBlock) {
            part = {store_.bytes(block), DelayStore::kBlockBytes};
        }
        alignas(cmsghdr) unsigned char control[CMSG_SPACE(sizeof(int))];
        sockaddr_in6 from{};
        msghdr message{};
        message.msg_name = &from;
        message.msg_namelen = sizeof(from);
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof(control);
        const ssize_t size = recvmsg(side.socket, &message, MSG_DONTWAIT | MSG_TRUNC);
        if (size >= 0) {
            if (!side.is_peer_set) {
                side.peer = from;
                side.has_peer = true;
            }
            size_t segment_bytes = static_cast<size_t>(size);
            const cmsghdr* entry = CMSG_FIRSTHDR(&message);
            if (entry != nullptr && entry->cmsg_level == SOL_UDP && entry->cmsg_type == UDP_GRO) {
                int given = 0;
                std::memcpy(&given, CMSG_DATA(entry), sizeof(given));
                segment_bytes = given > 0 ? static_cast<size_t>(given) : segment_bytes;
            }
            accept(now_ns, way, block, static_cast<size_t>(size), segment_bytes);
        }
        if (block != DelayStore::kNoBlock) {
            store_.release(block);
        }
        if (size < 0 && errno != EINTR && errno != ECONNREFUSED) {
            return false;  // nothing is there
        }
    }
    return true;
}

// Onto the link, one by one.
void Emulator::accept(uint64_t now_ns, uint32_t way, DelayStore::Block block, size_t size_bytes,
                      size_t segment_bytes) {
    Link& link = way % 2 == 0 ? forward_ : backward_;
    size_t offset = 0;
    do {  // an empty datagram is one, too
        const size_t length = std::min(segment_bytes, size_bytes - offset);
        counters_.received++;
        if (length > options_.longest_datagram_bytes) {
            counters_.too_long++;
        } else {
            uint64_t arrivals[2] = {};  // the second of a duplicate
            uint32_t count = 0;
            link.send(now_ns, 1, length + kNetworkHeaderBytes,
                      [&](const Arrival& arrival) { arrivals[count++] = arrival.last_ns; });
            for (uint32_t index = 0; index < count; index++) {
                const DelayStore::Datagram datagram{.due_ns = arrivals[index],
                                                    .way = way ^ 1,
                                                    .block = block,
                                                    .offset = static_cast<uint32_t>(offset),
                                                    .size_bytes = static_cast<uint32_t>(length)};
                const bool is_kept = block != DelayStore::kNoBlock && store_.put(datagram);
                counters_.overflowed += is_kept ? 0 : 1;
            }
        }
        offset += length;
    } while (offset < size_bytes);
}

// What follows each other on the same way, of the same size but for the last, goes in one call. Peers are looked at
// after what has come was received: what was sent after one was set goes there.
void Emulator::forward_due(uint64_t now_ns) {
    for (size_t way = 0; way < sides_.size(); way++) {
        set_peers_[way].take(sides_[way]);
    }
    while (store_.next_ns() <= now_ns) {
        iovec parts[kMostSegments];
        DelayStore::Block blocks[kMostSegments];
        const uint32_t way = store_.next().way;
        const size_t segment_bytes = store_.next().size_bytes;
        size_t count = 0;
        size_t sum_bytes = 0;
        bool may_follow = true;
        while (may_follow && count < kMostSegments && store_.next_ns() <= now_ns &&
               store_.next().way == way && store_.next().size_bytes <= segment_bytes &&
               (count == 0 || sum_bytes + segment_bytes <= kMostSegmentsBytes)) {
            const DelayStore::Datagram datagram = store_.take();
            may_follow = datagram.size_bytes == segment_bytes && segment_bytes > 0;
            parts[count] = {store_.bytes(datagram.block) + datagram.offset, datagram.size_bytes};
            blocks[count++] = datagram.block;
            sum_bytes += datagram.size_bytes;
        }
        if (sides_[way].has_peer) {
            send(sides_[way], parts, count);
        } else {
            counters_.undirected += count;
        }
        for (size_t index = 0; index < count; index++) {
            store_.release(blocks[index]);
        }
    }
}

void Emulator::send(const Side& side, const iovec* parts, size_t count) {
    sockaddr_in6 peer = side.peer;
    msghdr message{};
    message.msg_name = &peer;
    message.msg_namelen = sizeof(peer);
    message.msg_iov = const_cast<iovec*>(parts);  // only read
    message.msg_iovlen = count;
    alignas(cmsghdr) unsigned char control[CMSG_SPACE(sizeof(uint16_t))] = {};
    if (count > 1) {
        message.msg_control = control;
        message.msg_controllen = sizeof(control);
        cmsghdr* entry = CMSG_FIRSTHDR(&message);
        entry->cmsg_level = SOL_UDP;
        entry->cmsg_type = UDP_SEGMENT;
        entry->cmsg_len = CMSG_LEN(sizeof(uint16_t));
        const auto size = static_cast<uint16_t>(parts[0].iov_len);
        std::memcpy(CMSG_DATA(entry), &size, sizeof(size));
    }
    ssize_t sent = sendmsg(side.socket, &message, MSG_NOSIGNAL);
    // A socket tells of an earlier datagram that nobody listened to at most once.
    if (sent < 0 && errno == ECONNREFUSED) {
        sent = sendmsg(side.socket, &message, MSG_NOSIGNAL);
    }
    if (sent >= 0) {
        counters_.forwarded += count;
    } else if (count > 1 && (errno == EINVAL || errno == EIO || errno == EMSGSIZE)) {
        for (size_t index = 0; index < count; index++) {  // segments do not fit into this path
            send(side, parts + index, 1);
        }
    } else {
        counters_.failed += count;
    }
}

}  // namespace

Result<std::unique_ptr<UdpEmulator>> UdpEmulator::create(const EmulatorOptions& options) {
    const bool is_valid = options.path_count > 0 && options.path_count <= kMostPaths &&
                          options.most_datagrams > 0 && options.most_blocks > 0 &&
                          options.forward.bits_per_second > 0 &&
                          options.backward.bits_per_second > 0;
    if (!is_valid) {
        return Error::einval;
    }
    auto emulator = std::make_unique<Emulator>(options);
    TRY(emulator->open());
    return std::unique_ptr<UdpEmulator>(std::move(emulator));
}

}  // namespace tiffin::rdma_blk::simulation
