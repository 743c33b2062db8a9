// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A link between sockets of the loopback that fails as a test tells it to.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace tiffin::rdma_blk::test {

// Stands between a client and a server, and breaks what passes. Bytes are counted from arm() on.
class FaultyLink {
  public:
    explicit FaultyLink(uint16_t server_port);
    ~FaultyLink();

    uint16_t port() const { return port_; }
    // The connection is cut right behind that many more bytes to the server (or to the client); once.
    void cut_to_server_after(int64_t bytes) { to_server_left_ = bytes; }
    void cut_to_client_after(int64_t bytes) { to_client_left_ = bytes; }
    // No more than so many bytes pass to clients from here on, until thaw_to_client().
    void stall_to_client_after(int64_t bytes) { to_client_credit_ = bytes; }
    // They are all in the client's socket.
    bool is_stalled_to_client() const { return to_client_credit_ == 0; }
    void thaw_to_client() { to_client_credit_ = -1; }
    uint64_t bytes_to_server() const { return to_server_; }
    uint64_t bytes_to_client() const { return to_client_; }
    uint64_t connections() const { return connections_; }
    uint64_t cuts() const { return cuts_; }
    // Nothing passes while stalled; connections stay.
    void stall(bool stalls) { stalls_ = stalls; }
    // What passes is so late, in either direction.
    void delay_us(uint32_t delay_us) { delay_us_ = delay_us; }

  private:
    struct Pair {
        int client = -1;
        int server = -1;
    };
    void run();
    bool forward(int from, int to, std::atomic<int64_t>& left, std::atomic<uint64_t>& total,
                 std::atomic<int64_t>* credit = nullptr);
    void accept_one();

    uint16_t server_port_;
    uint16_t port_ = 0;
    int listener_ = -1;
    std::vector<Pair> pairs_;
    std::atomic<bool> stops_{false};
    std::atomic<bool> stalls_{false};
    std::atomic<uint32_t> delay_us_{0};
    std::atomic<int64_t> to_server_left_{-1};
    std::atomic<int64_t> to_client_left_{-1};
    std::atomic<int64_t> to_client_credit_{-1};  // negative: no bound
    std::atomic<uint64_t> to_server_{0};
    std::atomic<uint64_t> to_client_{0};
    std::atomic<uint64_t> connections_{0};
    std::atomic<uint64_t> cuts_{0};
    std::thread thread_;
};

// Cuts it again and again, at random places up to `most_bytes` further on in each direction, until stop().
class RandomCuts {
  public:
    RandomCuts(FaultyLink& link, uint32_t most_bytes, uint32_t pause_us);
    ~RandomCuts() { stop(); }
    RandomCuts(const RandomCuts&) = delete;
    RandomCuts& operator=(const RandomCuts&) = delete;
    void stop();

  private:
    FaultyLink& link_;
    std::atomic<bool> stops_{false};
    std::thread thread_;
};

}  // namespace tiffin::rdma_blk::test
