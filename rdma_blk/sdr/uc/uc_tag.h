// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The tag of a datagram of the UC carrier's control queue pair: SipHash-2-4, as that of the UDP carrier's datagrams
// (rdma_blk/sdr/udp/datagram.h), of the header before it and the CRC32C of what is behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fs/base/siphash.h"
#include "fs/vfs/host.h"
#include "fs/vfs/span.h"
#include "rdma_blk/sdr/uc/uc_format.h"

namespace tiffin::rdma_blk::sdr {

inline uint64_t uc_tag(const unsigned char key[kUcKeyBytes], const UcHeader& header,
                       ByteSpan body) {
    const uint32_t checksum = host::crc32c(0, body.data(), body.size());
    unsigned char covered[offsetof(UcHeader, tag) + sizeof(checksum)];
    std::memcpy(covered, &header, offsetof(UcHeader, tag));
    std::memcpy(covered + offsetof(UcHeader, tag), &checksum, sizeof(checksum));
    return siphash24(key, covered, sizeof(covered));
}

}  // namespace tiffin::rdma_blk::sdr
