// SPDX-License-Identifier: MIT OR GPL-2.0-only
// One good message of each type, and a look at any message through its own parser.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "rdma_blk/wire/parse.h"

namespace tiffin::rdma_blk::wire {

struct Sample {
    std::string name;
    std::vector<unsigned char>
        bytes;  // header, fixed part, payload; not sealed, whatever the flag says
};

std::vector<Sample> sample_messages();

// Good parameters of paths.
RcPathAnswer rc_answer();
DatagramPathEnd datagram_end();
UcPathEnd uc_end();

// Parses header, fixed part and payload as a receiver would; `bytes` may be anything. The result tells
// whether all was accepted. Aborts the test when something accepted is outside of its bounds.
bool parse_like_a_receiver(const std::vector<unsigned char>& bytes);

// Makes the checksum right again, after a change, when header and type allow.
void repair_checksum(std::vector<unsigned char>& bytes);

}  // namespace tiffin::rdma_blk::wire
