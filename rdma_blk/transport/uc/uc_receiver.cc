// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/uc/uc_receiver.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace tiffin::rdma_blk {

using sdr::DataRun;
using sdr::PacketKind;

Result<void> UcReceiver::open() {
    descriptions_.reset(new (std::nothrow)
                            Description[size_t{sdr::kUcArenas} * layout_.max_messages]);
    held_.reset(new (std::nothrow) uint32_t[kHeldImmediates]);
    if (descriptions_ == nullptr || held_ == nullptr) {
        return Error::enomem;
    }
    // A registration for each: some devices look at the bounds of a window's registration only.
    for (Arena& arena : arenas_) {
        TRY(arena.memory.map(1, layout_.arena_bytes()));
        arena.registered =
            TRY(device_.register_memory(arena.memory.at(0), arena.memory.all().size(), true));
    }
    return {};
}

void UcReceiver::close() {
    for (Arena& arena : arenas_) {
        arena.window.reset();
    }
}

// ---- Generations -----------------------------------------------------------------------------------------

// A receive can be posted only when the one max_messages before it has ended, and all before that. So the first one of a
// generation says that the generation before the last is over, whose arena it takes.
Result<bool> UcReceiver::open_windows(uint64_t posted, verbs::QueuePair& data) {
    const uint64_t wanted = posted == 0 ? 0 : layout_.generation(posted - 1) + 1;
    if (is_binding_ || next_generation_ >= wanted) {
        return is_binding_;
    }
    // Of generations that came and went unnoticed none is needed.
    const uint64_t oldest = wanted - std::min<uint64_t>(wanted, sdr::kUcArenas);
    const uint64_t generation = std::max(next_generation_, oldest);
    const auto index = static_cast<uint32_t>(generation % sdr::kUcArenas);
    Arena& arena = arenas_[index];
    close_arena(index);
    arena.window = TRY(device_.allocate_window());
    arena.generation = generation;
    verbs::WorkRequest bind;
    bind.kind = verbs::WorkKind::bind_window;
    bind.is_signalled = true;
    bind.id = kBindId;
    bind.window = arena.window.get();
    bind.memory = arena.registered.get();
    bind.address = arena.memory.at(0);
    bind.size_bytes = arena.memory.all().size();
    bind.allows_writes = true;
    TRY(data.post(&bind, 1));
    next_generation_ = generation + 1;
    is_binding_ = true;
    return true;
}

void UcReceiver::on_bound() {
    const auto index = static_cast<uint32_t>((next_generation_ - 1) % sdr::kUcArenas);
    Arena& arena = arenas_[index];
    arena.is_open = true;
    is_binding_ = false;
    windows_[index] = {static_cast<uint32_t>(arena.generation), arena.window->key()};
    statistics_.windows_opened++;
}

// From here on nothing is written to the arena. The window is destroyed: that devices can on every queue pair, while
// invalidating it by a work request breaks an unreliable one of rdma_rxe.
void UcReceiver::close_arena(uint32_t index) {
    Arena& arena = arenas_[index];
    arena.window.reset();
    arena.is_open = false;
    windows_[index] = {};
    for (uint32_t id = 0; id < layout_.max_messages; id++) {
        description(index, static_cast<uint16_t>(id)).is_known = false;
    }
    uint32_t kept = 0;
    for (uint32_t place = 0; place < held_count_; place++) {
        if (sdr::decode_immediate(held_[place]).generation % sdr::kUcArenas != index) {
            held_[kept++] = held_[place];
        }
    }
    statistics_.packets_dropped += held_count_ - kept;
    held_count_ = kept;
}

// ---- What comes ------------------------------------------------------------------------------------------

void UcReceiver::note_packet(uint64_t now_ns, uint64_t number) {
    if (!has_any_ || number > highest_number_) {
        has_any_ = true;
        highest_number_ = number;
        highest_arrival_ns_ = now_ns;
    }
    note_arrival(now_ns);
}

void UcReceiver::note_arrival(uint64_t now_ns) {
    received_++;
    if (!has_any_) {
        return;  // feedback tells of numbers, and none is known
    }
    unreported_++;
    feedback_ns_ =
        std::min(feedback_ns_,
                 unreported_ >= sdr::kFeedbackPackets ? now_ns : now_ns + sdr::kFeedbackDelayNs);
}

void UcReceiver::on_description(uint64_t now_ns, const sdr::UcHeader& header, ByteSpan body,
                                sdr::Endpoint& endpoint) {
    Result<DataRun> parsed = sdr::parse_data_header(static_cast<PacketKind>(header.kind), body);
    if (!parsed.ok() || header.packet_count == 0) {
        statistics_.datagrams_refused++;
        return;
    }
    DataRun& run = *parsed;
    run.packet_count = header.packet_count;
    const uint64_t generation = layout_.generation(run.message_number);
    if (generation >= next_generation_ - (is_binding_ ? 1 : 0)) {
        statistics_.datagrams_refused++;  // nobody has been told of receives of it
        return;
    }
    statistics_.datagrams_received++;
    note_packet(now_ns, header.packet_number);
    const auto index = static_cast<uint32_t>(generation % sdr::kUcArenas);
    if (!arenas_[index].is_open || arenas_[index].generation != generation) {
        report_late(now_ns, run, endpoint);
        return;
    }
    flush(now_ns, endpoint);  // what was collected is of the description before
    const uint16_t id = layout_.message_id(run.message_number);
    Description& known = description(index, id);
    const bool is_new = !known.is_known;
    if (is_new || known.first_number <= header.packet_number) {
        known.is_known = true;
        known.run = run;
        known.first_number = header.packet_number + 1;
    }
    if (is_new) {
        release_held(now_ns, index, id, endpoint);
    }
}

// The packets of a generation that is over are written nowhere, so only this tells that their sender has not heard of its
// end. Without bytes; the endpoint looks no further than at the number.
void UcReceiver::report_late(uint64_t now_ns, DataRun run, sdr::Endpoint& endpoint) {
    statistics_.runs_late++;
    run.payload = nullptr;
    run.payload_bytes = uint64_t{run.packet_count} * layout_.packet_bytes;
    endpoint.on_data(now_ns, run);
}

void UcReceiver::on_immediate(uint64_t now_ns, uint32_t bits, sdr::Endpoint& endpoint) {
    const sdr::UcImmediate immediate = sdr::decode_immediate(bits);
    const uint32_t index = immediate.generation % sdr::kUcArenas;
    const Arena& arena = arenas_[index];
    statistics_.packets_received++;
    constexpr uint64_t kGenerations = 1U << sdr::kUcGenerationBits;
    if (!arena.is_open || arena.generation % kGenerations != immediate.generation ||
        immediate.message_id >= layout_.max_messages ||
        !layout_.has_cells(immediate.is_parity, immediate.packet, 1)) {
        statistics_.packets_stray++;
        note_arrival(now_ns);
        return;
    }
    const Description& known = description(index, immediate.message_id);
    if (!known.is_known) {
        note_arrival(now_ns);
        hold(bits);
        return;
    }
    if (known.has(immediate)) {
        note_packet(now_ns, known.first_number + immediate.packet - known.run.first_packet);
    } else {
        note_arrival(now_ns);
    }
    take_immediate(now_ns, immediate, endpoint);
}

// Precondition: it has a cell in an open arena, and its message is described.
void UcReceiver::take_immediate(uint64_t now_ns, const sdr::UcImmediate& immediate,
                                sdr::Endpoint& endpoint) {
    const uint32_t index = immediate.generation % sdr::kUcArenas;
    Description& known = description(index, immediate.message_id);
    // The kind is said here, the scheme there: only together can they contradict each other.
    if (immediate.is_parity && !known.run.scheme.is_erasure()) {
        statistics_.packets_stray++;
        return;
    }
    const PacketKind kind = immediate.is_parity ? PacketKind::parity : PacketKind::data;
    const bool follows = collected_.packet_count > 0 && collected_.kind == kind &&
                         collected_.message_number == known.run.message_number &&
                         collected_.first_packet + collected_.packet_count == immediate.packet &&
                         (collected_.flags & sdr::data_flag::acknowledge_now) == 0;
    if (!follows) {
        flush(now_ns, endpoint);
        collected_ = known.run;
        collected_.kind = kind;
        collected_.flags &= static_cast<uint8_t>(~sdr::data_flag::acknowledge_now);
        // What a description tells of the other direction it tells once, with its own packets: numbers of 16 bits must
        // not become old.
        constexpr auto kKept =
            static_cast<uint8_t>(~(sdr::data_flag::tells_delivered | sdr::data_flag::tells_posted));
        if (known.has(immediate)) {
            known.run.flags &= kKept;
        } else {
            collected_.flags &= kKept;
        }
        collected_.first_packet = immediate.packet;
        collected_.packet_count = 0;
        collected_.payload =
            arenas_[index].memory.at(0) +
            layout_.offset_bytes(immediate.message_id, immediate.is_parity, immediate.packet);
    }
    collected_.packet_count++;
    if (immediate.acknowledge_now) {
        collected_.flags |= sdr::data_flag::acknowledge_now;
    }
}

void UcReceiver::flush(uint64_t now_ns, sdr::Endpoint& endpoint) {
    if (collected_.packet_count == 0) {
        return;
    }
    DataRun run = collected_;
    collected_.packet_count = 0;
    run.payload_bytes = uint64_t{run.packet_count} * layout_.packet_bytes;
    if (run.kind == PacketKind::data) {
        const uint64_t first_byte = uint64_t{run.first_packet} * layout_.packet_bytes;
        if (first_byte >= run.message_bytes) {
            statistics_.packets_stray += run.packet_count;
            return;
        }
        run.payload_bytes = std::min(run.payload_bytes, run.message_bytes - first_byte);
    }
    endpoint.on_data(now_ns, run);
}

void UcReceiver::hold(uint32_t bits) {
    if (held_count_ == kHeldImmediates) {
        statistics_.packets_dropped++;
        return;
    }
    statistics_.packets_held++;
    held_[held_count_++] = bits;
}

void UcReceiver::release_held(uint64_t now_ns, uint32_t arena, uint16_t message_id,
                              sdr::Endpoint& endpoint) {
    uint32_t kept = 0;
    for (uint32_t place = 0; place < held_count_; place++) {
        const sdr::UcImmediate immediate = sdr::decode_immediate(held_[place]);
        if (immediate.generation % sdr::kUcArenas == arena && immediate.message_id == message_id) {
            take_immediate(now_ns, immediate, endpoint);
        } else {
            held_[kept++] = held_[place];
        }
    }
    held_count_ = kept;
}

// ---- Feedback --------------------------------------------------------------------------------------------

sdr::FeedbackHeader UcReceiver::take_feedback(uint64_t now_ns) {
    sdr::FeedbackHeader feedback{};
    feedback.highest_packet_number = highest_number_;
    feedback.packets_received = received_;
    feedback.bytes_received = received_ * layout_.packet_bytes;
    feedback.delay_us = static_cast<uint32_t>((now_ns - highest_arrival_ns_) / 1000);
    unreported_ = 0;
    feedback_ns_ = sdr::kNoTimer;
    return feedback;
}

void UcReceiver::add_statistics(UcStatistics& sum) const {
    sum.packets_received += statistics_.packets_received;
    sum.packets_stray += statistics_.packets_stray;
    sum.packets_held += statistics_.packets_held;
    sum.packets_dropped += statistics_.packets_dropped;
    sum.datagrams_received += statistics_.datagrams_received;
    sum.datagrams_refused += statistics_.datagrams_refused;
    sum.runs_late += statistics_.runs_late;
    sum.windows_opened += statistics_.windows_opened;
}

}  // namespace tiffin::rdma_blk
