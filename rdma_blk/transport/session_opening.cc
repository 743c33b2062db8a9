// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/session_opening.h"

#include <algorithm>
#include <cstring>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk {
namespace {

wire::SessionOpen make_session_open(const OpenOptions& options, const SessionFacts& facts,
                                    uint64_t next_sequence, size_t entry_count) {
    wire::SessionOpen open{};
    std::memcpy(open.client_uuid, options.client_uuid, sizeof(open.client_uuid));
    open.session_id = facts.session_id;
    const bool is_new = facts.session_id == 0;
    open.incarnation = is_new ? 1 : facts.incarnation;
    open.epoch = facts.is_writer ? facts.epoch : 0;
    open.next_sequence = is_new ? 1 : next_sequence;
    open.slot_count = options.slot_count;
    open.outstanding_count = static_cast<uint16_t>(entry_count);
    const bool writes = facts.is_writer || options.mode == OpenOptions::Mode::write;
    open.mode = static_cast<uint8_t>(writes ? OpenOptions::Mode::write : options.mode);
    // Only the first opening takes the lease by force: who was fenced must not fence back.
    open.flags = options.force && facts.incarnation == 0 ? wire::open_flag::force : 0;
    std::strncpy(open.holder_text, options.holder_text, sizeof(open.holder_text) - 1);
    return open;
}

}  // namespace

Result<OpeningAnswer> open_session(ClientConnection& connection, const OpenOptions& options,
                                   const SessionFacts& facts, uint64_t next_sequence,
                                   Span<const wire::OutstandingEntry> entries,
                                   unsigned char* outcomes, uint64_t deadline_ns,
                                   Patience& patience) {
    const wire::SessionOpen open = make_session_open(options, facts, next_sequence, entries.size());
    connection.writer().add(wire::MessageType::session_open, open,
                            ByteSpan(reinterpret_cast<const unsigned char*>(entries.data()),
                                     entries.size() * sizeof(wire::OutstandingEntry)));
    TRY(connection.exchange(deadline_ns, patience));
    MessageReader& reader = connection.reader();
    OpeningAnswer answer;
    if (reader.type() == wire::MessageType::session_refused) {
        answer.refused = TRY(wire::parse_session_refused(reader.header(), reader.fixed_part()));
        return answer;
    }
    answer.opened = TRY(wire::parse_session_opened(reader.header(), reader.fixed_part()));
    answer.is_opened = true;
    const bool is_resumed = (answer.opened.flags & wire::session_flag::resumed) != 0;
    if (answer.opened.probe_interval_ms == 0 || answer.opened.incarnation != open.incarnation ||
        answer.opened.outstanding_count != entries.size() ||
        reader.payload_bytes() != entries.size() || is_resumed != (facts.session_id != 0) ||
        (is_resumed && answer.opened.session_id != facts.session_id)) {
        return Error::eproto;
    }
    const MutableByteSpan place(outcomes, entries.size());
    TRY(connection.receive_payload(place, deadline_ns, patience));
    for (size_t i = 0; i < place.size(); i++) {
        TRY(wire::parse_outcome(place, i));
    }
    return answer;
}

bool is_content_lost(const SessionFacts& facts, uint64_t content_incarnation,
                     uint64_t empty_since_incarnation) {
    return empty_since_incarnation > facts.content_incarnation ||
           (content_incarnation > facts.content_incarnation && facts.has_unflushed);
}

void set_holder(Holder& holder, const char (&text)[wire::kHolderTextBytes]) {
    static_assert(sizeof(holder.text) == wire::kHolderTextBytes);
    std::memcpy(holder.text, text, sizeof(holder.text));
    holder.text[sizeof(holder.text) - 1] = '\0';
    for (char& c : holder.text) {
        if (c != '\0' && (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)) {
            c = '?';
        }
    }
}

Error refusal_error(const wire::SessionRefused& refused, Holder& holder, std::string& problem) {
    switch (static_cast<wire::RefusalReason>(refused.reason)) {
        case wire::RefusalReason::held:
            set_holder(holder, refused.holder_text);
            problem = std::string("in use by ") +
                      (holder.text[0] != '\0' ? holder.text : "a client without a name");
            problem += ", last heard of " + std::to_string(refused.held_for_ms) + " ms ago";
            return Error::ebusy;
        case wire::RefusalReason::fenced:
            problem = "the session was fenced";
            return Error::estale;
        case wire::RefusalReason::no_session:
            problem = "the server does not know the session";
            return Error::estale;
        case wire::RefusalReason::no_room:
            problem = "the server has no room for another session";
            return Error::enospc;
        case wire::RefusalReason::read_only:
            problem = "the volume cannot be written";
            return Error::erofs;
        case wire::RefusalReason::stopping:
            problem = "the server is stopping";
            return Error::eio;
        case wire::RefusalReason::no_transport:
            problem = "the server does not offer this transport";
            return Error::eopnotsupp;
        case wire::RefusalReason::stale_incarnation:
        case wire::RefusalReason::malformed:
            break;
    }
    problem = "the server refuses the session, reason " + std::to_string(refused.reason);
    return Error::eproto;
}

Geometry geometry_of(const wire::SessionOpened& opened) {
    Geometry geometry;
    geometry.data_bytes = opened.data_bytes;
    geometry.control_bytes = opened.control_bytes;
    geometry.write_unit_bytes = opened.write_unit_bytes;
    geometry.durability = static_cast<Durability>(opened.durability);
    geometry.read_only = (opened.flags & wire::session_flag::read_only) != 0;
    std::memcpy(geometry.server_uuid, opened.server_uuid, sizeof(geometry.server_uuid));
    std::memcpy(geometry.volume_uuid, opened.volume_uuid, sizeof(geometry.volume_uuid));
    return geometry;
}

Limits limits_of(const wire::SessionOpened& opened, uint16_t slot_count) {
    constexpr uint32_t kMaxPieces = 256;  // 1 MiB of pages
    Limits limits;
    limits.transfer_bytes = opened.transfer_bytes;
    limits.eager_bytes = std::min(opened.eager_bytes, opened.transfer_bytes);
    limits.inline_bytes = opened.transfer_bytes;
    limits.buffer_count = kMaxPieces;
    limits.flush_range_count = wire::kMaxFlushRanges;
    limits.operations_in_flight = std::min(opened.slot_count, slot_count);
    return limits;
}

}  // namespace tiffin::rdma_blk
