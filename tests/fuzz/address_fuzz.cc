// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Addresses of remote volumes.
#include "fs/vfs/host.h"
#include "fuse/host/remote_address.h"
#include "rdma_blk/volume/stripe_map.h"
#include "tests/fuzz/fuzz_target.h"

namespace tiffin::fuzz {

std::vector<Input> seeds() {
    return {to_input("//host/volume"), to_input("//127.0.0.1:4847,[::1]:1,other/a.b-c_d"),
            to_input("//host/volume?transport=tcp&stripe=64K&timeout_s=0&encrypt=yes"),
            to_input("//a,b,c/v?key_file=/etc/keys/v.key&transport=auto"),
            to_input("//a+b:1+[::1]/v?links=spread&transport=sdr")};
}

void repair(Input&) {}

}  // namespace tiffin::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace tiffin;
    const auto address =
        fuse::parse_remote_address(std::string_view(reinterpret_cast<const char*>(data), size));
    if (!address.ok()) {
        return 0;
    }
    TIFFIN_ASSERT(!address->servers.empty() && address->servers.size() <= rdma_blk::kMaxServers);
    TIFFIN_ASSERT(!address->volume.empty() && address->volume.size() <= 63);
    TIFFIN_ASSERT(address->stripe_bytes == 0 || rdma_blk::is_stripe_size(address->stripe_bytes));
    TIFFIN_ASSERT(address->timeout_s <= fuse::kMaxRemoteTimeoutSeconds);
    for (const auto& server : address->servers) {
        TIFFIN_ASSERT(!server.host.empty() && !fuse::server_name(server).empty());
    }
    return 0;
}
