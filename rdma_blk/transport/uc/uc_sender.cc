// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/uc/uc_sender.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "rdma_blk/sdr/packet.h"
#include "rdma_blk/sdr/uc/uc_tag.h"

namespace tiffin::rdma_blk {

using sdr::DataRun;
using sdr::PacketKind;

UcSender::UcSender(const UcOptions& options, const sdr::LandingLayout& layout,
                   verbs::QueuePair& data, verbs::QueuePair& control)
    : layout_(layout), data_(data), control_(control), trial_loss_(options.drop_ppm) {
    std::copy(std::begin(options.send_key), std::end(options.send_key), key_);
}

Result<void> UcSender::open(verbs::Device& device) {
    TRY(sent_times_.open());
    // One piece of memory each: cells of a run lie behind each other.
    TRY(cells_.map(1, size_t{kPacketCells} * layout_.packet_bytes));
    TRY(datagrams_.map(1, kDatagramCells * sdr::kMaxUcDatagramBytes));
    cell_memory_ = TRY(device.register_memory(cells_.at(0), cells_.all().size(), false));
    datagram_memory_ =
        TRY(device.register_memory(datagrams_.at(0), datagrams_.all().size(), false));
    return {};
}

Result<void> UcSender::connect(const UcInfo& peer) {
    layout_ = peer.layout;
    peer_connection_id_ = peer.connection_id;
    std::copy(std::begin(peer.arenas), std::end(peer.arenas), peer_arenas_);
    // Half of what the peer can take: it may be late in posting receives again.
    congestion_.reset(new (std::nothrow) sdr::Congestion(
        layout_.packet_bytes, uint64_t{peer.receive_depth} / 2 * layout_.packet_bytes));
    return congestion_ == nullptr ? Result<void>(Error::enomem) : Result<void>();
}

uint32_t UcSender::packets_allowed(uint64_t now_ns) {
    // A run takes its cells and a datagram, a control message a datagram; one is left for feedback.
    if (cells_posted_ - cells_sent_ + kRunPackets > kPacketCells ||
        datagrams_posted_ - datagrams_sent_ + 2 > kDatagramCells) {
        return 0;
    }
    const uint64_t room = congestion_->room_bytes(now_ns) / layout_.packet_bytes;
    return static_cast<uint32_t>(std::min<uint64_t>(room, kRunPackets));
}

sdr::UcHeader UcSender::header(PacketKind kind, const sdr::UcWindow* windows) const {
    sdr::UcHeader header{};
    header.connection_id = peer_connection_id_;
    header.version = sdr::kUcVersion;
    header.kind = static_cast<uint8_t>(kind);
    header.packet_number = next_number_;
    std::copy(windows, windows + sdr::kUcArenas, header.windows);
    return header;
}

// Packets, whether they arrive or not, have numbers.
void UcSender::count(uint64_t now_ns, uint64_t packets) {
    for (uint64_t index = 0; index < packets; index++) {
        sent_times_.note(next_number_, now_ns);
        congestion_->on_sent(now_ns, next_number_, layout_.packet_bytes);
        next_number_++;
    }
}

Result<void> UcSender::send(uint64_t now_ns, const sdr::Transmit& out,
                            const sdr::UcWindow* windows) {
    if (!out.is_control) {
        return send_run(now_ns, out.run, windows);
    }
    const sdr::UcHeader control = header(PacketKind::control, windows);
    count(now_ns, 1);
    return send_datagram(control, out.control, out.control_bytes);
}

// The window of a run's generation. None: it is over, or its parity has no place.
const sdr::UcWindow* UcSender::window_of(const DataRun& run) const {
    const uint64_t generation = layout_.generation(run.message_number);
    const sdr::UcWindow& window = peer_windows_[generation % sdr::kUcArenas];
    const bool is_known = window.key != 0 && window.generation == static_cast<uint32_t>(generation);
    const bool has_cells =
        layout_.has_cells(run.kind == PacketKind::parity, run.first_packet, run.packet_count);
    const bool has_bytes = run.payload != nullptr || run.gather != nullptr;
    return is_known && has_cells && has_bytes ? &window : nullptr;
}

// The description goes first, so that the peer has rarely to wait for it. It goes alone where packets cannot be written:
// when their generation is over, it tells the peer that its end was not heard of here. Those packets have no numbers: the
// peer would miss them, and congestion control would take them for lost.
Result<void> UcSender::send_run(uint64_t now_ns, const DataRun& run, const sdr::UcWindow* windows) {
    sdr::UcHeader description = header(run.kind, windows);
    description.packet_count = static_cast<uint16_t>(run.packet_count);
    sdr::DataHeader data = sdr::make_data_header(run, 0);
    data.flags = run.flags;  // of the last packet; with it they come in its immediate, too
    const sdr::UcWindow* window = window_of(run);
    count(now_ns, 1 + uint64_t{window != nullptr ? run.packet_count : 0});
    TRY(send_datagram(description, &data, sizeof(data)));
    if (window == nullptr) {
        statistics_.packets_homeless += run.packet_count;
        return {};
    }
    return write_packets(run, *window);
}

Result<void> UcSender::write_packets(const DataRun& run, const sdr::UcWindow& window) {
    verbs::WorkRequest works[kRunPackets];
    verbs::Piece pieces[kRunPackets];
    const uint64_t generation = layout_.generation(run.message_number);
    const bool is_parity = run.kind == PacketKind::parity;
    uint32_t posted = 0;
    for (uint32_t index = 0; index < run.packet_count; index++) {
        if (drops()) {
            continue;
        }
        const uint64_t offset_bytes = uint64_t{index} * layout_.packet_bytes;
        const auto size_bytes = static_cast<uint32_t>(
            std::min<uint64_t>(layout_.packet_bytes, run.payload_bytes - offset_bytes));
        unsigned char* cell =
            cells_.at(0) + (cells_posted_ + posted) % kPacketCells * layout_.packet_bytes;
        // The endpoint's memory is its own again before the device has read it.
        if (run.payload != nullptr) {
            std::memcpy(cell, run.payload + offset_bytes, size_bytes);
        } else {
            run.gather->copy(run.gather_offset + offset_bytes, size_bytes, cell);
        }
        pieces[posted] = {cell, size_bytes, cell_memory_->local_key()};
        sdr::UcImmediate immediate;
        immediate.message_id = layout_.message_id(run.message_number);
        immediate.packet = run.first_packet + index;
        immediate.generation = static_cast<uint8_t>(generation % (1U << sdr::kUcGenerationBits));
        immediate.is_parity = is_parity;
        immediate.acknowledge_now =
            index + 1 == run.packet_count && (run.flags & sdr::data_flag::acknowledge_now) != 0;
        verbs::WorkRequest& work = works[posted];
        work.kind = verbs::WorkKind::write_immediate;
        work.pieces = &pieces[posted];
        work.piece_count = 1;
        work.remote_address =
            peer_arenas_[generation % sdr::kUcArenas] +
            layout_.offset_bytes(immediate.message_id, is_parity, immediate.packet);
        work.remote_key = window.key;
        work.immediate = sdr::encode_immediate(immediate);
        posted++;
    }
    if (posted == 0) {
        return {};
    }
    cells_posted_ += posted;
    statistics_.packets_written += posted;
    works[posted - 1].is_signalled = true;  // they complete in order
    works[posted - 1].id = cells_posted_;
    post_calls_++;
    return data_.post(works, posted);
}

Result<void> UcSender::send_feedback(const sdr::FeedbackHeader& feedback,
                                     const sdr::UcWindow* windows) {
    sdr::UcHeader alone = header(PacketKind::feedback, windows);
    alone.packet_number = 0;
    return send_datagram(alone, &feedback, sizeof(feedback));
}

Result<void> UcSender::send_datagram(sdr::UcHeader header, const void* body, size_t body_bytes) {
    if (drops()) {
        return {};
    }
    unsigned char* cell =
        datagrams_.at(0) + datagrams_posted_ % kDatagramCells * sdr::kMaxUcDatagramBytes;
    header.tag =
        sdr::uc_tag(key_, header, ByteSpan(static_cast<const unsigned char*>(body), body_bytes));
    std::memcpy(cell, &header, sizeof(header));
    std::memcpy(cell + sizeof(header), body, body_bytes);
    const verbs::Piece piece{cell, static_cast<uint32_t>(sizeof(header) + body_bytes),
                             datagram_memory_->local_key()};
    verbs::WorkRequest work;
    work.kind = verbs::WorkKind::send;
    work.is_signalled = true;
    work.pieces = &piece;
    work.piece_count = 1;
    datagrams_posted_++;
    statistics_.datagrams_sent++;
    post_calls_++;
    return control_.post(&work, 1);
}

// A datagram that was overtaken tells of older generations: they are over.
void UcSender::on_windows(const sdr::UcWindow* windows) {
    for (uint32_t index = 0; index < sdr::kUcArenas; index++) {
        sdr::UcWindow& known = peer_windows_[index];
        const auto ahead = static_cast<int32_t>(windows[index].generation - known.generation);
        if (windows[index].key != 0 && (known.key == 0 || ahead > 0)) {
            known = windows[index];
        }
    }
}

void UcSender::on_feedback(uint64_t now_ns, const sdr::FeedbackHeader& feedback) {
    if (!sdr::SentTimes::knows(feedback, next_number_)) {
        return;
    }
    congestion_->on_feedback(now_ns, feedback.highest_packet_number, feedback.packets_received,
                             sent_times_.round_trip_ns(now_ns, feedback));
}

bool UcSender::drops() {
    const bool lost = trial_loss_.next();
    statistics_.packets_dropped += lost ? 1 : 0;
    return lost;
}

void UcSender::add_statistics(UcStatistics& sum) const {
    sum.packets_written += statistics_.packets_written;
    sum.packets_homeless += statistics_.packets_homeless;
    sum.packets_dropped += statistics_.packets_dropped;
    sum.datagrams_sent += statistics_.datagrams_sent;
}

}  // namespace tiffin::rdma_blk
