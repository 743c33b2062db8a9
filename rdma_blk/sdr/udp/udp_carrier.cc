// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The threads of a UDP carrier: each receives on its socket, hands over, sends, sleeps.
#include "rdma_blk/sdr/udp/udp_carrier.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <new>

#include "rdma_blk/sdr/tunables.h"
#include "rdma_blk/sdr/udp/udp_channel.h"
#include "rdma_blk/sdr/wake_event.h"
#include "rdma_blk/sdr/watched_mutex.h"

namespace tiffin::rdma_blk::sdr {
namespace {

class Carrier final : public UdpCarrier {
  public:
    Carrier(Endpoint& endpoint, const UdpOptions& options)
        : endpoint_(endpoint), options_(options) {}
    ~Carrier() override { stop(); }

    Result<void> open();
    UdpInfo info_get() const override;
    Result<void> start(const UdpInfo& peer) override;
    host::Mutex& mutex() override RETURN_CAPABILITY(watched_.mutex) { return watched_.mutex; }
    void kick() override;
    uint64_t wait(uint64_t seen, uint64_t timeout_us) override EXCLUDES(watched_.mutex) {
        return watched_.wait(seen, timeout_us);
    }
    UdpStatistics statistics() override EXCLUDES(watched_.mutex);

  private:
    struct Worker {
        Carrier* carrier = nullptr;
        uint16_t index = 0;
        WakeEvent wake;
        bool is_kicked = false;  // by it
        std::unique_ptr<UdpChannel> channel;
        host::Thread thread;
    };

    static void run(void* argument);
    void work(Worker& worker) EXCLUDES(watched_.mutex);
    uint64_t serve(Worker& worker) EXCLUDES(watched_.mutex);
    void stop();

    Endpoint& endpoint_;
    UdpOptions options_;
    uint32_t connection_id_ = 0;
    WatchedMutex watched_;  // the endpoint, and what channels do with it
    std::atomic<bool> stopping_{false};
    Worker workers_[kMaxChannels];
};

Result<void> Carrier::open() {
    host::random_bytes(&connection_id_, sizeof(connection_id_));
    for (uint16_t index = 0; index < options_.channel_count; index++) {
        Worker& worker = workers_[index];
        worker.carrier = this;
        worker.index = index;
        TRY(worker.wake.open());
        worker.channel.reset(new (std::nothrow) UdpChannel(options_, index, connection_id_));
        if (worker.channel == nullptr) {
            return Error::enomem;
        }
        TRY(worker.channel->open());
    }
    return {};
}

UdpInfo Carrier::info_get() const {
    UdpInfo info{};
    info.connection_id = connection_id_;
    info.channel_count = options_.channel_count;
    info.receive_buffer_bytes = workers_[0].channel->receive_buffer_bytes();
    for (uint16_t index = 0; index < options_.channel_count; index++) {
        info.addresses[index] = workers_[index].channel->address();
    }
    return info;
}

Result<void> Carrier::start(const UdpInfo& peer) {
    if (peer.channel_count != options_.channel_count || peer.receive_buffer_bytes == 0) {
        return Error::einval;
    }
    Result<uint32_t> fits = udp_path_packet_bytes(peer.addresses[0]);
    if (fits.ok() && options_.packet_bytes > fits.value()) {
        return Error::e2big;  // each would go in fragments, and none with segmentation offload
    }
    for (uint16_t index = 0; index < options_.channel_count; index++) {
        TRY(workers_[index].channel->connect(peer));
    }
    for (uint16_t index = 0; index < options_.channel_count; index++) {
        TRY(workers_[index].thread.start("tiffin-sdr", run, &workers_[index]));
    }
    return {};
}

void Carrier::stop() {
    stopping_.store(true, std::memory_order_release);
    kick();
    for (Worker& worker : workers_) {
        if (worker.thread.running()) {
            worker.thread.join();
        }
    }
}

void Carrier::kick() {
    for (uint16_t index = 0; index < options_.channel_count; index++) {
        workers_[index].wake.kick();
    }
}

UdpStatistics Carrier::statistics() {
    UdpStatistics sum;
    watched_.mutex.lock();
    for (uint16_t index = 0; index < options_.channel_count; index++) {
        workers_[index].channel->add_statistics(sum);
    }
    watched_.mutex.unlock();
    return sum;
}

void Carrier::run(void* argument) {
    auto& worker = *static_cast<Worker*>(argument);
    worker.carrier->work(worker);
}

void Carrier::work(Worker& worker) {
    while (!stopping_.load(std::memory_order_acquire)) {
        const uint64_t next_ns = serve(worker);
        if (next_ns > host::monotonic_ns() &&
            worker.wake.sleep(worker.channel->socket(), next_ns)) {
            worker.is_kicked = true;
        }
    }
}

// One round; returns when the next one is due although nothing comes.
uint64_t Carrier::serve(Worker& worker) {
    UdpChannel& channel = *worker.channel;
    uint64_t now_ns = host::monotonic_ns();
    bool has_more = channel.receive(now_ns);
    watched_.mutex.lock();
    now_ns = host::monotonic_ns();
    bool has_changed = channel.deliver(now_ns, endpoint_) || worker.is_kicked;
    worker.is_kicked = false;
    if (endpoint_.next_timer_ns() <= now_ns) {
        endpoint_.on_timer(now_ns);
        has_changed = true;
    }
    const uint64_t calls_before = channel.send_calls();
    has_more = channel.transmit(now_ns, endpoint_) || has_more;
    has_changed = has_changed || channel.send_calls() != calls_before;
    uint64_t next_ns = std::min(channel.next_time_ns(), endpoint_.next_timer_ns());
    if (channel.is_blocked() && next_ns <= now_ns) {
        next_ns = channel.pace_ns() > now_ns
                      ? channel.pace_ns()
                      : now_ns + kBlockedRetryNs;  // the window opens by feedback
    }
    if (has_changed) {
        watched_.note_change();
    }
    watched_.mutex.unlock();
    return has_more ? 0 : next_ns;
}

}  // namespace

Result<std::unique_ptr<UdpCarrier>> UdpCarrier::create(Endpoint& endpoint,
                                                       const UdpOptions& options) {
    if (options.packet_bytes == 0 || options.packet_bytes > kMaxUdpPacketBytes ||
        options.channel_count == 0 || options.channel_count > kMaxChannels ||
        (endpoint.packet_bytes() != 0 && endpoint.packet_bytes() != options.packet_bytes) ||
        (endpoint.channel_count() != 0 && endpoint.channel_count() != options.channel_count)) {
        return Error::einval;
    }
    auto* carrier = new (std::nothrow) Carrier(endpoint, options);
    std::unique_ptr<UdpCarrier> owner(carrier);
    if (carrier == nullptr) {
        return Error::enomem;
    }
    TRY(carrier->open());
    return owner;
}

Result<uint32_t> udp_path_packet_bytes(const sockaddr_in6& peer) {
    constexpr int kHeaderBytes = 64 + 8;  // of this library, of UDP
    const bool is_ipv4 = IN6_IS_ADDR_V4MAPPED(&peer.sin6_addr);
    const int socket_descriptor = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket_descriptor < 0) {
        return static_cast<Error>(errno);
    }
    int mtu = 0;
    socklen_t size = sizeof(mtu);
    const bool is_known =
        connect(socket_descriptor, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)) == 0 &&
        getsockopt(socket_descriptor, is_ipv4 ? IPPROTO_IP : IPPROTO_IPV6,
                   is_ipv4 ? IP_MTU : IPV6_MTU, &mtu, &size) == 0;
    const int error = errno;
    close(socket_descriptor);
    if (!is_known) {
        return static_cast<Error>(error);
    }
    const int payload = std::min(mtu, 65535) - (is_ipv4 ? 20 : 40) - kHeaderBytes;
    return static_cast<uint32_t>(std::clamp<int>(payload, kMinPacketBytes, kMaxUdpPacketBytes));
}

}  // namespace tiffin::rdma_blk::sdr
