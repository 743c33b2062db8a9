// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffin://SERVER[,SERVER...]/VOLUME[?OPTION=VALUE&...]: a volume in the memory of other machines. SERVER is
// HOST[:PORT][+HOST[:PORT]...]: several addresses of one server, over links of their own (tcp, sdr, rc).
//
//     transport=auto|tcp|shm|rc|sdr    how to reach the servers (default auto); or one for each link: sdr+tcp
//     sdr_scheme=auto|sr|nack|xor[:K:M]|mds[:K:M]  sdr: how losses are repaired (default auto)
//     sdr_carrier=udp|uc    sdr: what carries packets: datagrams, or queue pairs of RDMA devices (default udp)
//     sdr_drop_ppm=N           sdr, for trials: of a million datagrams sent, so many are lost
//     runtime_directory=PATH   shm: where a server of this host has its sockets (default /run/tiffind)
//     links=standby|spread     several links: the first one that works takes all requests (default standby), or all of
//                              them share the requests (tcp, sdr)
//     stripe=SIZE              several servers, first opening: how much lies on one before the next
//     key_file=PATH            the volume's key, instead of the usual place
//     timeout_s=N              how long to try to reach a server again before all fails; 0: for ever
//     busy_poll_us=N           how long a thread looks for an answer before it sleeps, while they come that
//                              fast (tcp; default 50); 0: not at all
//     encrypt=yes|no           seal everything on the network, not only what sets sessions up
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fuse/host/problem.h"
#include "rdma_blk/remote_memory.h"
#include "rdma_blk/transport/open.h"

namespace tiffin::fuse {

inline constexpr uint64_t kDefaultRemoteTimeoutSeconds = 60;
inline constexpr uint64_t kMaxRemoteTimeoutSeconds = 1'000'000;

struct RemoteVolumeAddress {
    // In the order in which the volume is striped over them; the choice of transports is the same in all.
    std::vector<rdma_blk::RemoteAddress> servers;
    std::string volume;
    uint64_t stripe_bytes = 0;  // 0: as the volume was made
    std::string key_file;       // absolute; empty: the usual place
    uint64_t timeout_s = kDefaultRemoteTimeoutSeconds;
    std::optional<uint32_t> busy_poll_us;  // absent: default_busy_poll_us()
    bool encrypt = false;
};

// Understands what follows "tiffin:"; reaches for nothing.
OrProblem<RemoteVolumeAddress> parse_remote_address(std::string_view text);

// "HOST" or "HOST:PORT", one link of the above.
OrProblem<rdma_blk::RemoteAddress::Link> parse_link_address(std::string_view text);

// "host:port", with brackets where the host has colons.
std::string server_name(const rdma_blk::RemoteAddress& server);

}  // namespace tiffin::fuse
