// SPDX-License-Identifier: MIT OR GPL-2.0-only
#pragma once

#include <atomic>

#include "rdma_blk/transport/sdr/sdr_path.h"

namespace tiffin::rdma_blk::test {

// A path of datagrams that sends, but hears nothing while it is deaf, not even that its requests have arrived.
// One that endures never says itself that it has failed. set_deaf(): any thread; the rest as RequestPath says.
class DeafPath final : public RequestPath {
  public:
    explicit DeafPath(const SdrOptions& options, bool endures = false)
        : path_(options), endures_(endures) {}
    void set_deaf(bool is_deaf) { is_deaf_ = is_deaf; }

    wire::PathTransport transport() const override { return path_.transport(); }
    const char* name() const override { return path_.name(); }
    Result<size_t> offer(const sockaddr_in6& local, const sockaddr_in6& peer,
                         const TrafficKeys& keys, MutableByteSpan parameters) override {
        return path_.offer(local, peer, keys, parameters);
    }
    Result<void> joined(ByteSpan parameters) override { return path_.joined(parameters); }
    void stop() override { path_.stop(); }
    bool is_up() const override { return path_.is_up(); }
    bool has_failed() const override { return !is_deaf_ && !endures_ && path_.has_failed(); }
    uint64_t silence_ns(uint64_t now_ns) const override {
        return is_deaf_ ? 0 : path_.silence_ns(now_ns);
    }
    bool has_room() const override { return path_.has_room(); }
    void send(const wire::Request& request, ByteSpan ranges, const vfs::IoVector* buffers,
              size_t buffer_count) override {
        path_.send(request, ranges, buffers, buffer_count);
    }
    void answered(uint16_t slot) override { path_.answered(slot); }
    bool answered_elsewhere(uint16_t slot) override { return path_.answered_elsewhere(slot); }
    bool is_sending(uint16_t slot) const override { return path_.is_sending(slot); }
    int socket() const override { return is_deaf_ ? -1 : path_.socket(); }
    uint64_t next_time_ns(uint64_t now_ns) const override {
        return is_deaf_ ? ~uint64_t{0} : path_.next_time_ns(now_ns);
    }
    bool receive(uint64_t now_ns) override { return !is_deaf_ && path_.receive(now_ns); }
    void transmit(uint64_t now_ns) override { path_.transmit(now_ns); }
    Result<bool> next_answer(Answer& answer) override {
        return is_deaf_ ? Result<bool>(false) : path_.next_answer(answer);
    }
    void add_statistics(Statistics& statistics) const override { path_.add_statistics(statistics); }

  private:
    SdrPath path_;
    const bool endures_;
    std::atomic<bool> is_deaf_{false};
};

}  // namespace tiffin::rdma_blk::test
