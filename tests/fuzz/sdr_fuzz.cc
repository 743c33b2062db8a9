// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a peer may send to a reliable connection that has messages in both directions: packets of any content in any
// order. Nothing outside of the posted receives may change, and whatever it sends in answer must be well-formed.
//
// Input: packets, each a byte (0: time passes; else PacketKind, above 6 as control), a byte of size, its bytes.
#include <cstring>

#include "fs/vfs/host.h"
#include "rdma_blk/sdr/packet.h"
#include "rdma_blk/sdr/reliable_connection.h"
#include "tests/fuzz/fuzz_target.h"

namespace tiffin::rdma_blk::sdr {
namespace {

constexpr size_t kMessageBytes = 64 * 100;
constexpr size_t kGuardBytes = 64;

class Peer {
  public:
    Peer() {
        QueuePairAttributes queue_attributes;
        queue_attributes.packet_bytes = 64;
        queue_attributes.packets_per_chunk_log2 = 1;
        queue_attributes.max_messages = 2;
        queue_attributes.max_message_bytes = kMessageBytes;
        context_ = MUST(context_create());
        connection_ = MUST(reliable_connection_create(*context_, queue_attributes, {}));
        auto connected = connection_->connect(connection_->info_get());
        TIFFIN_ASSERT(connected.ok());
        std::memset(memory_, 0xa5, sizeof(memory_));
        const RegisteredMemory target =
            MUST(context_->mr_reg(MutableByteSpan(memory_ + kGuardBytes, kMessageBytes)));
        const RegisteredMemory source =
            MUST(context_->mr_reg(MutableByteSpan(source_, kMessageBytes)));
        for (int count = 0; count < 2; count++) {
            TIFFIN_ASSERT(connection_->recv_post(now_ns_, target).ok());
            TIFFIN_ASSERT(connection_->send_post(now_ns_, source, 1).ok());
        }
    }

    void step(fuzz::Bytes& bytes) {
        const uint8_t kind = bytes.byte();
        const fuzz::Input packet = bytes.take_bytes(bytes.byte());
        const ByteSpan span(packet.data(), packet.size());
        now_ns_ += kind == 0 ? uint64_t{packet.size()} * 1'000'000 : 1000;
        if (kind == 1 || kind == 2) {
            auto run = parse_data(static_cast<PacketKind>(kind), span);
            if (run.ok()) {
                connection_->on_data(now_ns_, *run);
            }
        } else if (kind != 0) {
            connection_->on_control(now_ns_, span);
        }
        if (connection_->next_timer_ns() <= now_ns_) {
            connection_->on_timer(now_ns_);
        }
        check_answers();
    }

    void check_memory() const {
        for (size_t index = 0; index < kGuardBytes; index++) {
            TIFFIN_ASSERT(memory_[index] == 0xa5);
            TIFFIN_ASSERT(memory_[sizeof(memory_) - 1 - index] == 0xa5);
        }
    }

  private:
    void check_answers() {
        Transmit out;
        // What one packet causes is bounded: two messages, their repetitions, and answers.
        int count = 0;
        while (connection_->next_transmit(now_ns_, 8, out)) {
            TIFFIN_ASSERT(++count < 1000);
            if (out.is_control) {
                TIFFIN_ASSERT(parse_control(ByteSpan(out.control, out.control_bytes)).ok());
            } else {
                TIFFIN_ASSERT(out.run.payload >= source_ &&
                              out.run.payload + out.run.payload_bytes <= source_ + kMessageBytes);
            }
        }
        Completion completion;
        while (connection_->next_completion(completion)) {
        }
    }

    uint64_t now_ns_ = 1'000'000'000;
    unsigned char memory_[kMessageBytes + 2 * kGuardBytes];
    unsigned char source_[kMessageBytes] = {};
    std::unique_ptr<Context> context_;
    std::unique_ptr<ReliableConnection> connection_;
};

void add_packet(fuzz::Input& input, PacketKind kind, const void* header, size_t header_bytes,
                size_t payload_bytes) {
    input.push_back(static_cast<unsigned char>(kind));
    input.push_back(static_cast<unsigned char>(header_bytes + payload_bytes));
    const auto* bytes = static_cast<const unsigned char*>(header);
    input.insert(input.end(), bytes, bytes + header_bytes);
    input.resize(input.size() + payload_bytes, 0x77);
}

void add_data(fuzz::Input& input, PacketKind kind, SchemeChoice scheme, uint32_t index) {
    DataRun run;
    run.scheme = scheme;
    run.message_bytes = kMessageBytes;
    run.first_packet = index;
    run.packet_count = 1;
    run.round_trip_us = 100;
    const DataHeader header = make_data_header(run, 0);
    add_packet(input, kind, &header, sizeof(header), 64);
}

fuzz::Input transfer(SchemeChoice scheme) {
    fuzz::Input input;
    for (const uint32_t index : {0U, 1U, 2U, 5U, 40U, 99U}) {
        add_data(input, PacketKind::data, scheme, index);
    }
    if (scheme.is_erasure()) {
        for (const uint32_t index : {0U, 1U, 2U, 3U}) {
            add_data(input, PacketKind::parity, scheme, index);
        }
    }
    input.insert(input.end(), {0, 0});
    return input;
}

fuzz::Input conversation() {
    fuzz::Input input;
    Transmit out;
    make_control(ControlKind::clear_to_send, 0, 0, out);
    (void)add_clear_to_send({kMessageBytes}, out);
    (void)add_clear_to_send({kMessageBytes}, out);
    add_packet(input, PacketKind::control, out.control, out.control_bytes, 0);
    AcknowledgementBody body{};
    body.cumulative = 3;
    body.window_begin = 3;
    body.window_end = 40;
    make_acknowledgement(0, 0, body, 0, out);
    (void)add_gap({5, 2}, out);
    (void)add_gap({9, 1}, out);
    add_packet(input, PacketKind::control, out.control, out.control_bytes, 0);
    make_control(ControlKind::repeat_request, 0, 0, out);
    (void)add_gap({4, 3}, out);
    add_packet(input, PacketKind::control, out.control, out.control_bytes, 0);
    make_acknowledgement(acknowledgement_flag::done, 1, {}, 0, out);
    add_packet(input, PacketKind::control, out.control, out.control_bytes, 0);
    make_control(ControlKind::clear_to_send_request, 0, 1, out);
    add_packet(input, PacketKind::control, out.control, out.control_bytes, 0);
    input.insert(input.end(), {0, 0});
    return input;
}

}  // namespace
}  // namespace tiffin::rdma_blk::sdr

namespace tiffin::fuzz {

using namespace rdma_blk::sdr;

std::vector<Input> seeds() {
    return {transfer({SchemeKind::selective_repeat, 0, 0}),
            transfer({SchemeKind::selective_repeat_nack, 0, 0}),
            transfer({SchemeKind::erasure_xor, 4, 2}), transfer({SchemeKind::erasure_mds, 4, 2}),
            conversation()};
}

void repair(Input& /*input*/) {}  // nothing here has a checksum: the carrier has looked at it

}  // namespace tiffin::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    tiffin::fuzz::Bytes bytes(data, size);
    tiffin::rdma_blk::sdr::Peer peer;
    while (bytes.left() > 0) {
        peer.step(bytes);
    }
    peer.check_memory();
    return 0;
}
