// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/sdr/packet.h"

#include <cstring>

#include "rdma_blk/sdr/tunables.h"

namespace tiffin::rdma_blk::sdr {
namespace {

template <typename T>
T read_at(const unsigned char* bytes, size_t offset) {
    T value;
    std::memcpy(&value, bytes + offset, sizeof(value));
    return value;
}

bool is_known(uint8_t scheme) { return scheme <= static_cast<uint8_t>(SchemeKind::erasure_mds); }

// An erasure code has k and m in their bounds (XOR: groups of the same size), another scheme has none.
bool is_consistent(const SchemeChoice& scheme) {
    if (!scheme.is_erasure()) {
        return scheme.data_chunks == 0 && scheme.parity_chunks == 0;
    }
    return scheme.data_chunks >= 1 && scheme.data_chunks <= kMaxDataChunks &&
           scheme.parity_chunks >= 1 && scheme.parity_chunks <= kMaxParityChunks &&
           scheme.parity_chunks <= scheme.data_chunks;
}

size_t entry_bytes(ControlKind kind) {
    switch (kind) {
        case ControlKind::clear_to_send:
            return sizeof(ClearToSendEntry);
        case ControlKind::acknowledgement:
        case ControlKind::repeat_request:
            return sizeof(GapEntry);
        case ControlKind::user:
            return 1;
        default:
            return 0;
    }
}

// Gaps ascend, do not touch, and lie in [begin, limit).
Result<void> check_gaps(const ControlView& view, uint64_t begin, uint64_t limit) {
    uint64_t end = begin;
    for (size_t index = 0; index < view.entry_count; index++) {
        const GapEntry gap = view.gap(index);
        const bool ascends = index == 0 ? gap.first_chunk >= end : gap.first_chunk > end;
        if (!ascends || gap.chunk_count == 0) {
            return Error::eproto;
        }
        end = uint64_t{gap.first_chunk} + gap.chunk_count;
        if (end > limit) {
            return Error::eproto;
        }
    }
    return {};
}

Result<void> check_acknowledgement(const ControlView& view) {
    const AcknowledgementBody& body = view.acknowledgement;
    if (body.window_begin > body.window_end || body.window_end > kMaxPacketsPerMessage ||
        body.cumulative > kMaxPacketsPerMessage) {
        return Error::eproto;
    }
    return check_gaps(view, body.window_begin, body.window_end);
}

void set_entry_count(Transmit& out, uint16_t count) {
    std::memcpy(out.control + offsetof(ControlHeader, entry_count), &count, sizeof(count));
}

bool add_entry(const void* entry, size_t entry_bytes, Transmit& out) {
    if (out.control_bytes + entry_bytes > kMaxControlBytes) {
        return false;
    }
    std::memcpy(out.control + out.control_bytes, entry, entry_bytes);
    out.control_bytes += entry_bytes;
    const auto count = read_at<uint16_t>(out.control, offsetof(ControlHeader, entry_count));
    set_entry_count(out, static_cast<uint16_t>(count + 1));
    return true;
}

}  // namespace

Result<DataRun> parse_data_header(PacketKind kind, ByteSpan bytes) {
    if (bytes.size() < sizeof(DataHeader)) {
        return Error::eproto;
    }
    const auto header = read_at<DataHeader>(bytes.data(), 0);
    DataRun run;
    run.kind = kind;
    run.flags = header.flags;
    run.scheme = {static_cast<SchemeKind>(header.scheme), header.data_chunks, header.parity_chunks};
    run.message_number = header.message_number;
    run.message_bytes = header.message_bytes;
    run.first_packet = header.packet_index;
    run.packet_count = 1;
    run.user_immediate = header.user_immediate;
    run.send_time_us = header.send_time_us;
    run.round_trip_us = header.round_trip_us;
    run.delivered_until = header.delivered_until;
    run.posted_until = header.posted_until;
    if (!is_known(header.scheme) || !is_consistent(run.scheme) ||
        (header.flags & ~data_flag::all) != 0 || run.message_bytes == 0 ||
        run.first_packet >= kMaxPacketsPerMessage ||
        (kind == PacketKind::parity && !run.scheme.is_erasure())) {
        return Error::eproto;
    }
    return run;
}

Result<DataRun> parse_data(PacketKind kind, ByteSpan bytes) {
    DataRun run = TRY(parse_data_header(kind, bytes));
    run.payload = bytes.data() + sizeof(DataHeader);
    run.payload_bytes = bytes.size() - sizeof(DataHeader);
    if (run.payload_bytes == 0 || run.payload_bytes > kMaxPacketBytes) {
        return Error::eproto;
    }
    return run;
}

DataHeader make_data_header(const DataRun& run, uint32_t index) {
    DataHeader header{};
    header.message_number = run.message_number;
    header.message_bytes = run.message_bytes;
    header.packet_index = run.first_packet + index;
    header.user_immediate = run.user_immediate;
    header.send_time_us = run.send_time_us;
    header.round_trip_us = run.round_trip_us;
    header.delivered_until = run.delivered_until;
    header.posted_until = run.posted_until;
    header.scheme = static_cast<uint8_t>(run.scheme.kind);
    header.data_chunks = run.scheme.data_chunks;
    header.parity_chunks = run.scheme.parity_chunks;
    header.flags = index + 1 == run.packet_count ? run.flags : uint8_t{0};
    return header;
}

ClearToSendEntry ControlView::clear_to_send_entry(size_t index) const {
    return read_at<ClearToSendEntry>(entries, index * sizeof(ClearToSendEntry));
}

GapEntry ControlView::gap(size_t index) const {
    return read_at<GapEntry>(entries, index * sizeof(GapEntry));
}

Result<ControlView> parse_control(ByteSpan bytes) {
    if (bytes.size() < sizeof(ControlHeader) || bytes.size() > kMaxControlBytes) {
        return Error::eproto;
    }
    const auto header = read_at<ControlHeader>(bytes.data(), 0);
    if (header.kind < static_cast<uint8_t>(ControlKind::clear_to_send) ||
        header.kind > static_cast<uint8_t>(ControlKind::error)) {
        return Error::eproto;
    }
    ControlView view;
    view.kind = static_cast<ControlKind>(header.kind);
    view.flags = header.flags;
    view.entry_count = header.entry_count;
    view.message_number = header.message_number;
    const bool is_acknowledgement = view.kind == ControlKind::acknowledgement;
    const uint8_t known_flags = is_acknowledgement ? acknowledgement_flag::all : uint8_t{0};
    const size_t body_bytes = is_acknowledgement ? sizeof(AcknowledgementBody) : 0;
    if ((view.flags & ~known_flags) != 0 ||
        bytes.size() != sizeof(header) + body_bytes + view.entry_count * entry_bytes(view.kind) ||
        (entry_bytes(view.kind) == 0 && view.entry_count != 0)) {
        return Error::eproto;
    }
    view.entries = bytes.data() + sizeof(header) + body_bytes;
    if (is_acknowledgement) {
        view.missed_runs = header.missed_runs;
        view.acknowledgement = read_at<AcknowledgementBody>(bytes.data(), sizeof(header));
        TRY(check_acknowledgement(view));
    }
    if (view.kind == ControlKind::repeat_request) {
        TRY(check_gaps(view, 0, kMaxPacketsPerMessage));
    }
    return view;
}

void make_control(ControlKind kind, uint8_t flags, uint64_t message_number, Transmit& out) {
    ControlHeader header{};
    header.kind = static_cast<uint8_t>(kind);
    header.flags = flags;
    header.message_number = message_number;
    std::memcpy(out.control, &header, sizeof(header));
    out.control_bytes = sizeof(header);
    out.is_control = true;
}

void make_user_control(ByteSpan message, Transmit& out) {
    make_control(ControlKind::user, 0, 0, out);
    std::memcpy(out.control + out.control_bytes, message.data(), message.size());
    out.control_bytes += message.size();
    set_entry_count(out, static_cast<uint16_t>(message.size()));
}

bool add_clear_to_send(const ClearToSendEntry& entry, Transmit& out) {
    return add_entry(&entry, sizeof(entry), out);
}

void make_acknowledgement(uint8_t flags, uint64_t message_number, const AcknowledgementBody& body,
                          uint32_t missed_runs, Transmit& out) {
    make_control(ControlKind::acknowledgement, flags, message_number, out);
    std::memcpy(out.control + offsetof(ControlHeader, missed_runs), &missed_runs,
                sizeof(missed_runs));
    std::memcpy(out.control + out.control_bytes, &body, sizeof(body));
    out.control_bytes += sizeof(body);
}

bool add_gap(const GapEntry& gap, Transmit& out) { return add_entry(&gap, sizeof(gap), out); }

}  // namespace tiffin::rdma_blk::sdr
