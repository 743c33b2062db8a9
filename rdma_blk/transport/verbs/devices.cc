// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include <atomic>

#include "rdma_blk/transport/verbs/verbs.h"

namespace tiffin::rdma_blk::verbs {
namespace {

std::atomic<Devices*> replacement{nullptr};

#if !defined(TIFFIN_RDMA)
class NoDevices final : public Devices {
  public:
    bool exist(std::string& problem) override {
        problem = "this build knows no RDMA devices: libibverbs was missing";
        return false;
    }
    Result<std::unique_ptr<Device>> open(const uint8_t address[16], std::string& problem) override {
        (void)address;
        (void)exist(problem);
        return Error::enodev;
    }
};
#endif

}  // namespace

#if !defined(TIFFIN_RDMA)
Devices& system_devices() {
    static NoDevices none;
    return none;
}
#endif

void use_devices(Devices* devices) { replacement.store(devices); }

Devices& devices() {
    Devices* other = replacement.load();
    return other != nullptr ? *other : system_devices();
}

}  // namespace tiffin::rdma_blk::verbs
