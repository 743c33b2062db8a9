// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/wire/control_area.h"

#include <cstring>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk::wire {
namespace {

constexpr size_t kFixedHeaderBytes = offsetof(ControlHeader, epoch);
constexpr uint64_t kMaxWordsBytes = uint64_t{1} << 40;

constexpr uint64_t round_to_pages(uint64_t size_bytes) {
    return (size_bytes + kControlPageBytes - 1) / kControlPageBytes * kControlPageBytes;
}

uint32_t header_checksum(const ControlHeader& header) {
    unsigned char fixed[kFixedHeaderBytes];
    std::memcpy(fixed, &header, sizeof(fixed));
    std::memset(fixed + offsetof(ControlHeader, checksum), 0, sizeof(header.checksum));
    return host::crc32c(0, fixed, sizeof(fixed));
}

}  // namespace

Result<ControlLayout> make_control_layout(uint32_t session_count, uint32_t slot_count,
                                          uint32_t log_entry_count, uint64_t words_bytes) {
    if (session_count == 0 || session_count > kMaxSessions || slot_count == 0 ||
        slot_count > kMaxSlots || log_entry_count == 0 || log_entry_count > kMaxSlots ||
        words_bytes % kControlPageBytes != 0 || words_bytes > kMaxWordsBytes) {
        return Error::einval;
    }
    ControlLayout layout;
    layout.words_offset = kLeaseOffset + sizeof(LeaseRecord);
    layout.words_bytes = words_bytes;
    layout.sessions_offset = layout.words_offset + words_bytes;
    layout.session_count = session_count;
    layout.slot_count = slot_count;
    layout.log_entry_count = log_entry_count;
    layout.client_offset = static_cast<uint32_t>(
        sizeof(SessionRecord) + round_to_pages(uint64_t{slot_count} * sizeof(SlotEntry)));
    layout.session_stride_bytes = static_cast<uint32_t>(
        layout.client_offset +
        round_to_pages(sizeof(ClientRecord) + uint64_t{log_entry_count} * kLogEntryBytes));
    static_assert(sizeof(ClientRecord) + sizeof(CompletionLog) <= kControlPageBytes);
    layout.control_bytes = layout.session_offset(session_count);
    return layout;
}

Result<ControlLayout> check_control_header(const ControlHeader& header, uint64_t control_bytes) {
    if (header.magic != kControlMagic || header.version != kControlVersion ||
        header.checksum != header_checksum(header)) {
        return Error::eproto;
    }
    Result<ControlLayout> layout = make_control_layout(header.session_count, header.slot_count,
                                                       header.log_entry_count, header.words_bytes);
    if (!layout.ok() || layout->words_offset != header.words_offset ||
        layout->sessions_offset != header.sessions_offset ||
        layout->session_stride_bytes != header.session_stride_bytes ||
        layout->client_offset != header.client_offset ||
        layout->control_bytes != header.control_bytes || header.control_bytes != control_bytes ||
        header.data_bytes == 0 || header.data_bytes > kMaxSpaceBytes ||
        header.write_unit_bytes == 0 || header.write_unit_bytes > 4096 ||
        (header.write_unit_bytes & (header.write_unit_bytes - 1)) != 0) {
        return Error::eproto;
    }
    return layout;
}

void seal_control_header(ControlHeader& header) { header.checksum = header_checksum(header); }

}  // namespace tiffin::rdma_blk::wire
