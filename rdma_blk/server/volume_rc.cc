// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A volume's queue pairs: for clients of rc.
#include <algorithm>

#include "rdma_blk/server/volume.h"

namespace tiffin::rdma_blk {

// Registers the memory with a device when the first client comes from its network, and again when it has grown.
Result<std::shared_ptr<RcRegion>> Volume::find_rc_region(const uint8_t address[16]) {
    uint64_t data_bytes = 0;
    {
        MutexLock lock(mutex_);
        data_bytes = state_.data_bytes;
    }
    std::array<uint8_t, 16> key{};
    std::copy_n(address, key.size(), key.begin());
    MutexLock lock(rc_mutex_);
    std::shared_ptr<RcRegion>& region = rc_regions_[key];
    if (!region || region->data_bytes < data_bytes) {
        std::string problem;
        auto made =
            RcRegion::create(address, memory_.data, data_bytes, memory_.control, layout_, problem);
        if (!made.ok()) {
            if (!region) {
                host::log(host::LogLevel::warning,
                          ("volume " + name_ + ": no rc: " + problem).c_str());
                return made.error();
            }
            // Better what it was before it grew than nothing.
            host::log(host::LogLevel::warning,
                      ("volume " + name_ + ": rc reaches no more than before: " + problem).c_str());
            return region;
        }
        region = made.release_value();
        host::log(host::LogLevel::info, ("volume " + name_ + ": memory registered with " +
                                         region->device->capabilities().device_name)
                                            .c_str());
    }
    return region;
}

wire::RefusalReason Volume::join_rc(const std::shared_ptr<VolumeSession>& session,
                                    uint32_t incarnation, const SessionPath& connection,
                                    bool is_only, const wire::RcPathOffer& offer,
                                    const uint8_t address[16], wire::RcPathAnswer& answer) {
    const auto refused = [&](wire::RefusalReason why) {
        count(counters_.sessions_refused[static_cast<size_t>(why)]);
        return why;
    };
    if (!options_.offers_rc) {
        return refused(wire::RefusalReason::no_transport);
    }
    const auto region = find_rc_region(address);
    if (!region.ok()) {
        return refused(wire::RefusalReason::no_transport);
    }
    auto path = RcPath::create(region.value(), offer.client);
    if (!path.ok()) {
        host::log(host::LogLevel::warning,
                  ("volume " + name_ + ": no queue pair for a client").c_str());
        return refused(wire::RefusalReason::no_room);
    }
    const Result<void> joined =
        session->join_rc(incarnation, connection, is_only, path.release_value(), answer);
    if (!joined.ok()) {
        return refused(joined.error() == Error::estale ? wire::RefusalReason::stale_incarnation
                                                       : wire::RefusalReason::no_room);
    }
    return wire::RefusalReason{};
}

}  // namespace tiffin::rdma_blk
