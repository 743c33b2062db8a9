// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Where the bytes of a striped device lie: units of equal size, dealt out to the servers in turn.
#pragma once

#include <cstdint>

namespace tiffin::rdma_blk {

inline constexpr uint32_t kMaxServers = 16;
inline constexpr uint64_t kDefaultStripeBytes = 256 << 10;
// A power of two; the smallest is a page, so that no write unit is cut.
inline constexpr uint64_t kMinStripeBytes = 4096;
inline constexpr uint64_t kMaxStripeBytes = uint64_t{1} << 30;

constexpr bool is_stripe_size(uint64_t size_bytes) {
    return size_bytes >= kMinStripeBytes && size_bytes <= kMaxStripeBytes &&
           (size_bytes & (size_bytes - 1)) == 0;
}

class StripeMap {
  public:
    // A place on one server, and how many bytes of the device follow there without a gap.
    struct Place {
        uint32_t server = 0;
        uint64_t offset_bytes = 0;
        uint64_t contiguous_bytes = 0;
    };

    StripeMap() = default;
    // With one server the size of the unit has no meaning.
    StripeMap(uint32_t server_count, uint64_t stripe_bytes)
        : server_count_(server_count), stripe_bytes_(stripe_bytes) {}

    uint32_t server_count() const { return server_count_; }
    uint64_t stripe_bytes() const { return stripe_bytes_; }

    // How large the device is when the smallest of the servers has `smallest_bytes`.
    uint64_t size_bytes(uint64_t smallest_bytes) const {
        return server_count_ == 1 ? smallest_bytes
                                  : smallest_bytes / stripe_bytes_ * stripe_bytes_ * server_count_;
    }

    Place find(uint64_t offset_bytes) const {
        if (server_count_ == 1) {
            return {0, offset_bytes, UINT64_MAX - offset_bytes};
        }
        const uint64_t unit = offset_bytes / stripe_bytes_;
        const uint64_t within = offset_bytes % stripe_bytes_;
        return {static_cast<uint32_t>(unit % server_count_),
                unit / server_count_ * stripe_bytes_ + within, stripe_bytes_ - within};
    }

  private:
    uint32_t server_count_ = 1;
    uint64_t stripe_bytes_ = kDefaultStripeBytes;
};

}  // namespace tiffin::rdma_blk
