// SPDX-License-Identifier: MIT OR GPL-2.0-only
#if defined(TIFFIN_RDMA)
#include "rdma_blk/transport/verbs/rdma_device.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace tiffin::rdma_blk::verbs {
namespace {

constexpr uint32_t kMaxPieces = 16;

class RdmaDevices final : public Devices {
  public:
    bool exist(std::string& problem) override {
        int count = 0;
        ibv_device** list = ibv_get_device_list(&count);
        if (list != nullptr) {
            ibv_free_device_list(list);
        }
        if (count == 0) {
            problem = "this machine has no RDMA device";
        }
        return count > 0;
    }
    Result<std::unique_ptr<Device>> open(const uint8_t address[16], std::string& problem) override;
};

// Opens `device` if one of its ports has the address.
ibv_context* open_if_addressed(ibv_device* device, const uint8_t address[16],
                               ibv_gid_entry& entry) {
    constexpr size_t kMaxEntries = 512;
    ibv_context* context = ibv_open_device(device);
    if (context == nullptr) {
        return nullptr;
    }
    std::unique_ptr<ibv_gid_entry[]> entries(new (std::nothrow) ibv_gid_entry[kMaxEntries]);
    const ssize_t count =
        entries == nullptr ? 0 : ibv_query_gid_table(context, entries.get(), kMaxEntries, 0);
    for (ssize_t i = 0; i < count; i++) {
        // An address handle has 8 bits for the index.
        if (entries[i].gid_type == IBV_GID_TYPE_ROCE_V2 && entries[i].gid_index <= UINT8_MAX &&
            std::memcmp(entries[i].gid.raw, address, sizeof(entries[i].gid.raw)) == 0) {
            entry = entries[i];
            return context;
        }
    }
    ibv_close_device(context);
    return nullptr;
}

Result<std::unique_ptr<Device>> RdmaDevices::open(const uint8_t address[16], std::string& problem) {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    ibv_context* found = nullptr;
    ibv_gid_entry entry{};
    for (int i = 0; list != nullptr && i < count && found == nullptr; i++) {
        found = open_if_addressed(list[i], address, entry);
    }
    if (list != nullptr) {
        ibv_free_device_list(list);
    }
    if (found == nullptr) {
        problem = count == 0 ? "this machine has no RDMA device"
                             : "no RDMA device (RoCE v2) has the address of this connection";
        return Error::enodev;
    }
    return RdmaDevice::create(found, static_cast<uint8_t>(entry.port_num), entry.gid_index,
                              entry.gid, problem);
}

}  // namespace

Devices& system_devices() {
    static RdmaDevices all;
    return all;
}

Result<std::unique_ptr<Device>> RdmaDevice::create(ibv_context* context, uint8_t port,
                                                   uint32_t gid_index, const ibv_gid& gid,
                                                   std::string& problem) {
    std::unique_ptr<RdmaDevice> device(new (std::nothrow) RdmaDevice(context));
    if (!device) {
        ibv_close_device(context);
        return Error::enomem;
    }
    device->port_ = port;
    device->gid_index_ = gid_index;
    device->gid_ = gid;
    ibv_device_attr attributes{};
    ibv_port_attr port_attributes{};
    if (ibv_query_device(context, &attributes) != 0 ||
        ibv_query_port(context, port, &port_attributes) != 0) {
        problem = "the RDMA device does not say what it can";
        return Error::eio;
    }
    device->mtu_ = port_attributes.active_mtu;
    device->read_depth_ = static_cast<uint8_t>(std::clamp(attributes.max_qp_init_rd_atom, 1, 16));
    device->responder_depth_ = static_cast<uint8_t>(std::clamp(attributes.max_qp_rd_atom, 1, 16));
    device->domain_ = ibv_alloc_pd(context);
    if (device->domain_ == nullptr) {
        problem = "the RDMA device gives no protection domain";
        return Error::eio;
    }
    Capabilities& capabilities = device->capabilities_;
    capabilities.piece_count =
        std::min(static_cast<uint32_t>(std::max(attributes.max_sge, 1)), kMaxPieces);
    capabilities.inline_bytes = RdmaQueuePair::kInlineBytes;
    capabilities.has_windows = (attributes.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0;
    capabilities.mtu_bytes = uint32_t{128} << static_cast<unsigned>(device->mtu_);
    capabilities.device_name = ibv_get_device_name(context->device);
    return std::unique_ptr<Device>(std::move(device));
}

RdmaDevice::~RdmaDevice() {
    if (domain_ != nullptr) {
        ibv_dealloc_pd(domain_);
    }
    ibv_close_device(context_);
}

Result<std::unique_ptr<Memory>> RdmaDevice::register_memory(void* address, uint64_t size_bytes,
                                                            bool for_windows) {
    const int rights = IBV_ACCESS_LOCAL_WRITE | (for_windows ? IBV_ACCESS_MW_BIND : 0);
    ibv_mr* region = ibv_reg_mr(domain_, address, size_bytes, rights);
    if (region == nullptr) {
        return Error::eio;
    }
    std::unique_ptr<Memory> memory(new (std::nothrow) RdmaMemory(region));
    if (!memory) {
        ibv_dereg_mr(region);
        return Error::enomem;
    }
    return memory;
}

Result<std::unique_ptr<Window>> RdmaDevice::allocate_window() {
    ibv_mw* window = ibv_alloc_mw(domain_, IBV_MW_TYPE_2);
    if (window == nullptr) {
        return Error::eio;
    }
    std::unique_ptr<Window> made(new (std::nothrow) RdmaWindow(window));
    if (!made) {
        ibv_dealloc_mw(window);
        return Error::enomem;
    }
    return made;
}

Result<std::unique_ptr<QueuePair>> RdmaDevice::create_queue_pair(uint32_t queue_depth,
                                                                 bool has_events) {
    return RdmaQueuePair::create(*this, {true, queue_depth, 1, has_events});
}

Result<std::unique_ptr<QueuePair>> RdmaDevice::create_unreliable_queue_pair(
    uint32_t send_depth, uint32_t receive_depth) {
    return RdmaQueuePair::create(*this, {false, send_depth, receive_depth, true});
}

}  // namespace tiffin::rdma_blk::verbs
#endif  // TIFFIN_RDMA
