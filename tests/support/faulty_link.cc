// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/support/faulty_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "fs/vfs/host.h"
#include "tests/support/loopback.h"

namespace tiffin::rdma_blk::test {

FaultyLink::FaultyLink(uint16_t server_port) : server_port_(server_port) {
    listener_ = listen_on_loopback(port_);
    thread_ = std::thread([this] { run(); });
}

FaultyLink::~FaultyLink() {
    stops_ = true;
    thread_.join();
    for (const Pair& pair : pairs_) {
        close(pair.client);
        close(pair.server);
    }
    close(listener_);
}

void FaultyLink::accept_one() {
    const int client = accept(listener_, nullptr, nullptr);
    TIFFIN_ASSERT(client >= 0);
    const int server = try_to_connect_to_loopback(server_port_);
    if (server < 0) {  // it is being started again
        close(client);
        return;
    }
    set_no_delay(client);
    pairs_.push_back({client, server});
    connections_++;
}

// False: the pair is to be closed.
bool FaultyLink::forward(int from, int to, std::atomic<int64_t>& left, std::atomic<uint64_t>& total,
                         std::atomic<int64_t>* credit) {
    unsigned char buffer[65536];
    // Both may be set meanwhile; that counts from the next time on.
    const int64_t allowed = left;
    const int64_t credit_left = credit == nullptr ? -1 : credit->load();
    if (allowed == 0) {
        return false;
    }
    if (credit_left == 0) {
        return true;
    }
    size_t wanted = sizeof(buffer);
    for (const int64_t bound : {allowed, credit_left}) {
        wanted = bound < 0 ? wanted : std::min(wanted, static_cast<size_t>(bound));
    }
    const ssize_t size = recv(from, buffer, wanted, 0);
    if (size <= 0) {
        return false;
    }
    usleep(delay_us_);
    // Counted before the receiver can have it, and so know about it.
    total += static_cast<uint64_t>(size);
    if (::send(to, buffer, static_cast<size_t>(size), MSG_NOSIGNAL) != size) {
        return false;
    }
    if (allowed > 0) {
        left = allowed - size;
    }
    if (credit_left > 0) {
        *credit = credit_left - size;
    }
    return true;
}

void FaultyLink::run() {
    while (!stops_) {
        std::vector<pollfd> ready{{listener_, POLLIN, 0}};
        for (const Pair& pair : pairs_) {
            ready.push_back({stalls_ ? -1 : pair.client, POLLIN, 0});
            ready.push_back({stalls_ || is_stalled_to_client() ? -1 : pair.server, POLLIN, 0});
        }
        poll(ready.data(), ready.size(), 1);
        for (size_t i = pairs_.size(); i > 0; i--) {
            Pair& pair = pairs_[i - 1];
            bool lives = true;
            if (ready[2 * i - 1].revents != 0) {
                lives = forward(pair.client, pair.server, to_server_left_, to_server_);
            }
            if (lives && ready[2 * i].revents != 0) {
                lives = forward(pair.server, pair.client, to_client_left_, to_client_,
                                &to_client_credit_);
            }
            for (auto* left : {&to_server_left_, &to_client_left_}) {
                if (*left == 0) {
                    lives = false;
                    *left = -1;
                    cuts_++;
                }
            }
            if (!lives) {
                close(pair.client);
                close(pair.server);
                pairs_.erase(pairs_.begin() + static_cast<ptrdiff_t>(i - 1));
            }
        }
        if ((ready[0].revents & POLLIN) != 0) {
            accept_one();
        }
    }
}

RandomCuts::RandomCuts(FaultyLink& link, uint32_t most_bytes, uint32_t pause_us)
    : link_(link), thread_([this, most_bytes, pause_us] {
          std::mt19937 random(99);
          while (!stops_) {
              link_.cut_to_server_after(static_cast<int64_t>(random() % most_bytes));
              link_.cut_to_client_after(static_cast<int64_t>(random() % most_bytes));
              usleep(pause_us);
          }
          link_.cut_to_server_after(-1);
          link_.cut_to_client_after(-1);
      }) {}

void RandomCuts::stop() {
    stops_ = true;
    if (thread_.joinable()) {
        thread_.join();
    }
}

}  // namespace tiffin::rdma_blk::test
