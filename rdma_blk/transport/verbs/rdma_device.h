// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Verbs by libibverbs, on RoCE: a port is found by the address of the host that its GID table has.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <string>

#include "rdma_blk/transport/verbs/verbs.h"

namespace tiffin::rdma_blk::verbs {

class RdmaDevice final : public Device {
  public:
    // `context` is closed with it.
    static Result<std::unique_ptr<Device>> create(ibv_context* context, uint8_t port,
                                                  uint32_t gid_index, const ibv_gid& gid,
                                                  std::string& problem);
    ~RdmaDevice() override;

    const Capabilities& capabilities() const override { return capabilities_; }
    Result<std::unique_ptr<Memory>> register_memory(void* address, uint64_t size_bytes,
                                                    bool for_windows) override;
    Result<std::unique_ptr<Window>> allocate_window() override;
    Result<std::unique_ptr<QueuePair>> create_queue_pair(uint32_t queue_depth,
                                                         bool has_events) override;
    Result<std::unique_ptr<QueuePair>> create_unreliable_queue_pair(
        uint32_t send_depth, uint32_t receive_depth) override;

    ibv_context* context() const { return context_; }
    ibv_pd* domain() const { return domain_; }
    uint8_t port() const { return port_; }
    uint32_t gid_index() const { return gid_index_; }
    const ibv_gid& gid() const { return gid_; }
    ibv_mtu mtu() const { return mtu_; }
    // Reads and atomics that one of its queue pairs may have on their way, as requester and as responder.
    uint8_t read_depth() const { return read_depth_; }
    uint8_t responder_depth() const { return responder_depth_; }

  private:
    explicit RdmaDevice(ibv_context* context) : context_(context) {}

    ibv_context* context_;
    ibv_pd* domain_ = nullptr;
    uint8_t port_ = 0;
    uint32_t gid_index_ = 0;
    ibv_gid gid_{};
    ibv_mtu mtu_ = IBV_MTU_1024;
    uint8_t read_depth_ = 1;
    uint8_t responder_depth_ = 1;
    Capabilities capabilities_;
};

class RdmaMemory final : public Memory {
  public:
    explicit RdmaMemory(ibv_mr* region) : region_(region) {}
    ~RdmaMemory() override { ibv_dereg_mr(region_); }
    uint32_t local_key() const override { return region_->lkey; }
    ibv_mr* region() const { return region_; }

  private:
    ibv_mr* region_;
};

class RdmaWindow final : public Window {
  public:
    explicit RdmaWindow(ibv_mw* window) : window_(window), key_(window->rkey) {}
    ~RdmaWindow() override { ibv_dealloc_mw(window_); }
    uint32_t key() const override { return key_; }
    ibv_mw* window() const { return window_; }
    // The low byte of a key is its owner's: another one for each binding, so that old ones are refused.
    uint32_t next_key() { return key_ = ibv_inc_rkey(key_); }

  private:
    ibv_mw* window_;
    uint32_t key_;
};

class RdmaQueuePair final : public QueuePair {
  public:
    static constexpr uint32_t kInlineBytes = 128;

    struct Shape {
        bool is_reliable = true;
        uint32_t send_depth = 0;
        uint32_t receive_depth = 1;  // 1 where nobody posts receives: some devices take no 0
        bool has_events = true;
    };

    static Result<std::unique_ptr<QueuePair>> create(const RdmaDevice& device, const Shape& shape);
    ~RdmaQueuePair() override;

    const wire::QueuePairAddress& address() const override { return address_; }
    Result<void> connect(const wire::QueuePairAddress& peer) override;
    Result<void> post(const WorkRequest* work, size_t count) override;
    Result<void> post_receives(const Receive* receives, size_t count) override;
    size_t poll(Completion* completions, size_t capacity) override;
    int event_descriptor() const override { return channel_->fd; }
    Result<void> arm() override;
    void disarm() override;
    Result<void> stop() override;
    Result<void> destroy() override;

  private:
    RdmaQueuePair(const RdmaDevice& device, bool is_reliable)
        : device_(device), is_reliable_(is_reliable) {}
    Result<void> initialize(const Shape& shape);
    Result<void> make_ready_to_receive(const wire::QueuePairAddress& peer);
    Result<void> make_ready_to_send(const wire::QueuePairAddress& peer);

    const RdmaDevice& device_;
    const bool is_reliable_;
    ibv_comp_channel* channel_ = nullptr;  // none without events
    ibv_cq* queue_ = nullptr;
    ibv_qp* pair_ = nullptr;
    wire::QueuePairAddress address_{};
};

}  // namespace tiffin::rdma_blk::verbs
