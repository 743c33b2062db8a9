// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Plain TCP and UDP: what the network and the system cost without anything of ours. Blocking calls, one thread for
// each connection; UDP also as our transports wait, which look for what comes before they sleep.
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "bench/perf/perf.h"
#include "fs/vfs/host.h"
#include "rdma_blk/transport/busy_poll.h"

namespace tiffin::fuse {
namespace {

constexpr uint64_t kMaxExchangeBytes = 64 << 20;

// What a request begins with; the rest of it is anything.
struct ExchangeHeader {
    uint64_t request_bytes;
    uint64_t reply_bytes;
    uint64_t number;
    uint64_t
        busy_poll_us;  // datagrams: how long the other end looks for the next one before it sleeps
};

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

OrProblem<Addresses> resolve(const std::string& host, uint16_t port, int type, int flags) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = type;
    hints.ai_flags = flags;
    addrinfo* found = nullptr;
    const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (error != 0) {
        return Problem{host + " cannot be found: " + gai_strerror(error), Error::enxio};
    }
    return Addresses(found, &freeaddrinfo);
}

Problem failed(const char* what) {
    return Problem{std::string("plain sockets: ") + what + ": " + system_error_text(errno),
                   static_cast<Error>(errno)};
}

OrProblem<int> connect_to(const std::string& host, uint16_t port, int type) {
    OrProblem<Addresses> addresses = resolve(host, port, type, 0);
    if (!addresses.ok()) {
        return addresses.problem();
    }
    const addrinfo* address = addresses->get();
    const int descriptor = socket(address->ai_family, type | SOCK_CLOEXEC, 0);
    if (descriptor < 0) {
        return failed("socket");
    }
    if (connect(descriptor, address->ai_addr, address->ai_addrlen) != 0) {
        const Problem problem = failed("connect");
        (void)close(descriptor);
        return problem;
    }
    const int one = 1;
    if (type == SOCK_STREAM) {
        (void)setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    return descriptor;
}

bool send_all(int descriptor, const char* data, size_t size_bytes) {
    while (size_bytes > 0) {
        const ssize_t sent = send(descriptor, data, size_bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent <= 0) {
            return false;
        }
        data += sent;
        size_bytes -= static_cast<size_t>(sent);
    }
    return true;
}

bool receive_all(int descriptor, char* data, size_t size_bytes) {
    while (size_bytes > 0) {
        const ssize_t received = recv(descriptor, data, size_bytes, 0);
        if (received < 0 && errno == EINTR) {
            continue;
        }
        if (received <= 0) {
            return false;
        }
        data += received;
        size_bytes -= static_cast<size_t>(received);
    }
    return true;
}

bool is_possible(const ExchangeHeader& header) {
    return header.request_bytes >= sizeof(header) && header.request_bytes <= kMaxExchangeBytes &&
           header.reply_bytes >= sizeof(header) && header.reply_bytes <= kMaxExchangeBytes;
}

void serve_stream(int descriptor) {
    const int one = 1;
    (void)setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    std::vector<char> buffer(64 << 10);
    ExchangeHeader header{};
    while (receive_all(descriptor, reinterpret_cast<char*>(&header), sizeof header) &&
           is_possible(header)) {
        buffer.resize(std::max<size_t>({buffer.size(), header.request_bytes, header.reply_bytes}));
        if (!receive_all(descriptor, buffer.data(), header.request_bytes - sizeof header)) {
            break;
        }
        std::memcpy(buffer.data(), &header, sizeof header);
        if (!send_all(descriptor, buffer.data(), header.reply_bytes)) {
            break;
        }
    }
    (void)close(descriptor);
}

// `receive(flags)` is a receiving call, as whose result it ends: at first without waiting, as long as `poll` says.
template <typename Receive>
ssize_t receive_waiting(rdma_blk::BusyPoll& poll, Receive receive) {
    ssize_t received = -1;
    if (poll.meets([&] { return (received = receive(MSG_DONTWAIT)) >= 0 || errno != EAGAIN; })) {
        return received;
    }
    received = receive(0);
    const int error = errno;
    poll.slept();
    errno = error;
    return received;
}

void serve_datagrams(int descriptor) {
    std::vector<char> buffer(1 << 16);
    uint64_t busy_poll_us = 0;
    rdma_blk::BusyPoll poll(0);
    while (true) {
        sockaddr_storage from{};
        socklen_t from_bytes = 0;
        const ssize_t received = receive_waiting(poll, [&](int flags) {
            from_bytes = sizeof from;
            return recvfrom(descriptor, buffer.data(), buffer.size(), flags,
                            reinterpret_cast<sockaddr*>(&from), &from_bytes);
        });
        ExchangeHeader header{};
        if (received < static_cast<ssize_t>(sizeof header)) {
            if (received < 0 && errno != EINTR) {
                return;
            }
            continue;
        }
        std::memcpy(&header, buffer.data(), sizeof header);
        if (is_possible(header) && header.reply_bytes <= kMaxDatagramBytes) {
            // A datagram that is lost is sent again by who asked.
            (void)sendto(descriptor, buffer.data(), header.reply_bytes, 0,
                         reinterpret_cast<sockaddr*>(&from), from_bytes);
        }
        if (header.busy_poll_us != busy_poll_us &&
            header.busy_poll_us <= rdma_blk::BusyPoll::kMaxUs) {
            busy_poll_us = header.busy_poll_us;
            poll = rdma_blk::BusyPoll(static_cast<uint32_t>(busy_poll_us));
        }
    }
}

// One connection: `depth` requests under way, answered in their order. False when it broke.
bool exchange_on_stream(int descriptor, const PerfExchange& exchange, uint32_t depth,
                        const std::atomic<bool>& stop, LatencyHistogram& latencies) {
    std::vector<char> request(exchange.request_bytes);
    std::vector<char> reply(exchange.reply_bytes);
    std::vector<uint64_t> sent_ns(depth);
    ExchangeHeader header{exchange.request_bytes, exchange.reply_bytes, 0, 0};
    std::memcpy(request.data(), &header, sizeof header);
    uint64_t sent = 0;
    uint64_t received = 0;
    while (!stop.load(std::memory_order_relaxed) || received < sent) {
        while (!stop.load(std::memory_order_relaxed) && sent - received < depth) {
            sent_ns[sent++ % depth] = host::monotonic_ns();
            if (!send_all(descriptor, request.data(), request.size())) {
                return false;
            }
        }
        if (received == sent) {
            break;
        }
        if (!receive_all(descriptor, reply.data(), reply.size())) {
            return false;
        }
        latencies.record(host::monotonic_ns() - sent_ns[received++ % depth]);
    }
    return true;
}

bool exchange_datagrams(int descriptor, const PerfExchange& exchange, uint32_t busy_poll_us,
                        const std::atomic<bool>& stop, LatencyHistogram& latencies) {
    std::vector<char> buffer(std::max(exchange.request_bytes, exchange.reply_bytes));
    const timeval patience{0, 200'000};
    (void)setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    rdma_blk::BusyPoll poll(busy_poll_us);
    ExchangeHeader header{exchange.request_bytes, exchange.reply_bytes, 0, busy_poll_us};
    while (!stop.load(std::memory_order_relaxed)) {
        ++header.number;
        std::memcpy(buffer.data(), &header, sizeof header);
        const uint64_t start_ns = host::monotonic_ns();
        if (send(descriptor, buffer.data(), exchange.request_bytes, 0) < 0) {
            return false;
        }
        while (true) {
            const ssize_t received = receive_waiting(poll, [&](int flags) {
                return recv(descriptor, buffer.data(), buffer.size(), flags);
            });
            if (received < 0 && (errno == EAGAIN || errno == EINTR)) {
                break;  // lost: the next one
            }
            if (received < 0) {
                return false;
            }
            ExchangeHeader answered{};
            std::memcpy(&answered, buffer.data(), sizeof answered);
            if (answered.number == header.number) {
                latencies.record(host::monotonic_ns() - start_ns);
                break;
            }
        }
    }
    return true;
}

template <typename Exchange>
OrProblem<PerfResult> measure(const PerfOptions& options, const std::string& host, uint16_t port,
                              int type, Exchange exchange) {
    std::vector<int> descriptors;
    for (uint32_t i = 0; i < options.threads; ++i) {
        OrProblem<int> descriptor = connect_to(host, port, type);
        if (!descriptor.ok()) {
            for (const int open : descriptors) {
                (void)close(open);
            }
            return descriptor.problem();
        }
        descriptors.push_back(*descriptor);
    }
    std::atomic<bool> stop{false};
    std::atomic<bool> broken{false};
    std::vector<LatencyHistogram> latencies(options.threads);
    std::vector<std::thread> threads;
    const uint64_t start_ns = host::monotonic_ns();
    for (uint32_t i = 0; i < options.threads; ++i) {
        threads.emplace_back([&, i] {
            if (!exchange(descriptors[i], stop, latencies[i])) {
                broken.store(true);
            }
        });
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(options.duration_s));
    stop.store(true);
    PerfResult result;
    for (uint32_t i = 0; i < options.threads; ++i) {
        threads[i].join();
        (void)close(descriptors[i]);
        result.latencies.add(latencies[i]);
    }
    result.seconds = static_cast<double>(host::monotonic_ns() - start_ns) / 1e9;
    if (broken.load()) {
        return Problem{"plain sockets: the other end has closed the connection", Error::eio};
    }
    result.threads = options.threads;
    return result;
}

}  // namespace

OrProblem<EchoServer> EchoServer::open(const std::string& host, uint16_t port) {
    EchoServer server;
    for (const int type : {SOCK_STREAM, SOCK_DGRAM}) {
        OrProblem<Addresses> addresses =
            resolve(host, type == SOCK_STREAM ? port : server.port_, type, AI_PASSIVE);
        if (!addresses.ok()) {
            return addresses.problem();
        }
        const addrinfo* address = addresses->get();
        int& descriptor = type == SOCK_STREAM ? server.stream_ : server.datagram_;
        descriptor = socket(address->ai_family, type | SOCK_CLOEXEC, 0);
        const int one = 1;
        if (descriptor < 0) {
            return failed("socket");
        }
        (void)setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(descriptor, address->ai_addr, address->ai_addrlen) != 0) {
            return failed("bind");
        }
        if (type == SOCK_STREAM && listen(descriptor, 64) != 0) {
            return failed("listen");
        }
        sockaddr_storage bound{};
        socklen_t bound_bytes = sizeof bound;
        if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&bound), &bound_bytes) != 0) {
            return failed("getsockname");
        }
        server.port_ =
            ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                              : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
    }
    return server;
}

EchoServer::EchoServer(EchoServer&& other) noexcept
    : stream_(std::exchange(other.stream_, -1)),
      datagram_(std::exchange(other.datagram_, -1)),
      port_(other.port_) {}

EchoServer::~EchoServer() {
    for (const int descriptor : {stream_, datagram_}) {
        if (descriptor >= 0) {
            (void)close(descriptor);
        }
    }
}

void EchoServer::serve() {
    std::thread([descriptor = datagram_] { serve_datagrams(descriptor); }).detach();
    while (true) {
        const int descriptor = accept4(stream_, nullptr, nullptr, SOCK_CLOEXEC);
        if (descriptor >= 0) {
            std::thread([descriptor] { serve_stream(descriptor); }).detach();
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

OrProblem<PerfResult> measure_stream(const PerfOptions& options, const PerfExchange& exchange,
                                     const std::string& host, uint16_t port) {
    OrProblem<PerfResult> result =
        measure(options, host, port, SOCK_STREAM,
                [&](int descriptor, const std::atomic<bool>& stop, LatencyHistogram& latencies) {
                    return exchange_on_stream(descriptor, exchange, options.depth, stop, latencies);
                });
    if (result.ok()) {
        result->carrier = "plain TCP";
        result->depth = options.depth;
    }
    return result;
}

OrProblem<PerfResult> measure_datagrams(const PerfOptions& options, const PerfExchange& exchange,
                                        const std::string& host, uint16_t port,
                                        uint32_t busy_poll_us) {
    OrProblem<PerfResult> result =
        measure(options, host, port, SOCK_DGRAM,
                [&](int descriptor, const std::atomic<bool>& stop, LatencyHistogram& latencies) {
                    return exchange_datagrams(descriptor, exchange, busy_poll_us, stop, latencies);
                });
    if (result.ok()) {
        result->carrier = busy_poll_us == 0 ? "plain UDP" : "polling UDP";
        result->depth = 1;
    }
    return result;
}

}  // namespace tiffin::fuse
