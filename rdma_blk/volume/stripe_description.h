// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What each server of a volume knows about the others: written into the durable words of its control space
// when the volume is first opened for writing, and compared at every opening. So a server that is missing,
// foreign, or named in another order is found before anything is read or written. It is as lasting as the
// content: on disk with a server that has a backing, else in memory.
// docs/remote-format.md has the table.
//
// It is written in two steps: to all servers as `forming`, then as `formed`. While none is formed there
// is nothing on the volume yet, and it is written anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "fs/vfs/result.h"
#include "fs/vfs/span.h"
#include "rdma_blk/volume/stripe_map.h"
#include "rdma_blk/wire/control_area.h"

namespace tiffin::rdma_blk {

inline constexpr uint64_t kStripeMagic = 0x3153505254534654;  // "TFSTRPS1"
inline constexpr uint32_t kStripeVersion = 1;

enum class StripeState : uint64_t { absent = 0, forming = 1, formed = 2 };

struct StripeMember {
    uint8_t server_uuid[16];
    uint8_t volume_uuid[16];
    uint64_t
        empty_since_incarnation;  // when this was written: greater means that the content is gone
};
static_assert(sizeof(StripeMember) == 40);

struct StripeDescription {
    uint64_t magic;
    uint64_t state;  // StripeState; written alone, and not under the checksum
    uint32_t version;
    uint32_t checksum;  // CRC32C of all, this field and `state` as zero
    uint16_t server_count;
    uint16_t server_index;  // of the server that has this
    uint32_t reserved0;
    uint64_t stripe_bytes;
    StripeMember members[kMaxServers];
    uint8_t reserved[1024 - 40 - kMaxServers * sizeof(StripeMember)];
};
static_assert(sizeof(StripeDescription) == wire::kDurableWordsBytes);

// One server as it was found: who it is, and what it has.
struct StripeFinding {
    const char* name = "";  // for messages
    StripeMember member = {};
    StripeDescription description = {};
    bool words_unknown = false;  // ConnectionInfo's
};

// Of the members alone. Errors, with `problem` set: einval (one server twice).
Result<void> check_members(Span<const StripeFinding> findings, std::string& problem);

// What the servers, in the order of the address, are.
struct StripeVerdict {
    uint64_t stripe_bytes = 0;
    bool complete = false;  // nothing has to be written
    bool is_known = false;  // a server had the description
};

// `stripe_bytes` is what was asked for; 0: what is there, else the default. When no server knows how several were
// striped that may have content (words_unknown), the unit has to be given, and the volume can only be read: nothing
// shows that unit and order are right. Errors, with `problem` set to a line for people, which says how the volume is
// striped: einval (not the servers of one volume in their order, or another unit), erofs (as above), eio (a server has
// lost its content, or its description is damaged), eopnotsupp (a newer version).
Result<StripeVerdict> judge_stripe(Span<const StripeFinding> findings, uint64_t stripe_bytes,
                                   bool may_write, std::string& problem);

// The description of server `index`, with its checksum, as `forming`.
// Whether all servers had one when this one got its state.
bool is_formed(const StripeDescription& description);

void make_stripe_description(Span<const StripeFinding> findings, uint32_t index,
                             uint64_t stripe_bytes, StripeDescription& description);

}  // namespace tiffin::rdma_blk
