// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Packets as bytes: what is built is read back, what is broken is refused, and no bytes do harm.
#include "rdma_blk/sdr/packet.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "rdma_blk/sdr/queue_pair.h"
#include "tests/unit/rdma_blk/sdr/bytes.h"

namespace tiffin::rdma_blk::sdr {
namespace {

DataRun sample_run() {
    DataRun run;
    run.scheme = {SchemeKind::erasure_mds, 32, 8};
    run.message_number = 5'000'000'000;
    run.message_bytes = 1000;
    run.first_packet = 3;
    run.packet_count = 2;
    run.user_immediate = 77;
    run.flags = data_flag::acknowledge_now;
    run.send_time_us = 123;
    run.round_trip_us = 456;
    return run;
}

std::vector<unsigned char> datagram_of(const DataHeader& header, size_t payload_bytes) {
    std::vector<unsigned char> bytes(sizeof(header) + payload_bytes, 9);
    std::memcpy(bytes.data(), &header, sizeof(header));
    return bytes;
}

Result<DataRun> parsed(const std::vector<unsigned char>& bytes,
                       PacketKind kind = PacketKind::data) {
    return parse_data(kind, ByteSpan(bytes.data(), bytes.size()));
}

TEST(Packet, DataIsReadAsItWasBuilt) {
    const DataRun run = sample_run();
    const std::vector<unsigned char> bytes = datagram_of(make_data_header(run, 1), 64);
    const DataRun back = parsed(bytes).release_value();
    EXPECT_EQ(back.first_packet, 4U);
    EXPECT_EQ(back.packet_count, 1U);
    EXPECT_EQ(back.scheme, run.scheme);
    EXPECT_EQ(back.message_number, run.message_number);
    EXPECT_EQ(back.message_bytes, run.message_bytes);
    EXPECT_EQ(back.user_immediate, run.user_immediate);
    EXPECT_EQ(back.send_time_us, run.send_time_us);
    EXPECT_EQ(back.round_trip_us, run.round_trip_us);
    EXPECT_EQ(back.flags, data_flag::acknowledge_now);
    EXPECT_EQ(make_data_header(run, 0).flags, 0);  // of the last packet of the run only
    EXPECT_EQ(back.payload, bytes.data() + sizeof(DataHeader));
    EXPECT_EQ(back.payload_bytes, 64U);
}

TEST(Packet, BrokenDataIsRefused) {
    const auto refused = [](auto change) {
        DataHeader header = make_data_header(sample_run(), 0);
        change(header);
        return parsed(datagram_of(header, 64)).ok() == false;
    };
    EXPECT_FALSE(refused([](DataHeader&) {}));
    EXPECT_TRUE(refused([](DataHeader& header) { header.scheme = 5; }));
    EXPECT_TRUE(refused([](DataHeader& header) { header.data_chunks = 0; }));
    EXPECT_TRUE(refused([](DataHeader& header) { header.data_chunks = kMaxDataChunks + 1; }));
    EXPECT_TRUE(refused([](DataHeader& header) { header.parity_chunks = kMaxParityChunks + 1; }));
    EXPECT_TRUE(refused([](DataHeader& header) { header.data_chunks = 7; }));
    EXPECT_TRUE(refused([](DataHeader& header) { header.scheme = 1; }));  // and k, m
    EXPECT_TRUE(refused([](DataHeader& header) { header.flags = 8; }));
    EXPECT_TRUE(refused([](DataHeader& header) { header.message_bytes = 0; }));
    EXPECT_TRUE(refused([](DataHeader& header) { header.packet_index = kMaxPacketsPerMessage; }));
    EXPECT_FALSE(parsed(datagram_of(make_data_header(sample_run(), 0), 0)).ok());
    DataRun plain = sample_run();
    plain.scheme = {};
    EXPECT_FALSE(parsed(datagram_of(make_data_header(plain, 0), 1), PacketKind::parity).ok());
}

TEST(Packet, AcknowledgementsAreReadAsTheyWereBuilt) {
    Transmit out;
    AcknowledgementBody body{};
    body.cumulative = 10;
    body.window_begin = 10;
    body.window_end = 100;
    make_acknowledgement(acknowledgement_flag::done, 42, body, 3, out);
    ASSERT_TRUE(add_gap({10, 5}, out));
    ASSERT_TRUE(add_gap({20, 80}, out));
    const ControlView view =
        parse_control(ByteSpan(out.control, out.control_bytes)).release_value();
    EXPECT_EQ(view.kind, ControlKind::acknowledgement);
    EXPECT_EQ(view.message_number, 42U);
    EXPECT_EQ(view.missed_runs, 3U);
    EXPECT_EQ(view.entry_count, 2U);
    EXPECT_EQ(view.gap(1).first_chunk, 20U);
    EXPECT_EQ(view.gap(1).chunk_count, 80U);
    EXPECT_EQ(view.acknowledgement.window_end, 100U);
}

TEST(Packet, BrokenGapsAreRefused) {
    const auto refused = [](std::vector<GapEntry> gaps) {
        Transmit out;
        AcknowledgementBody body{};
        body.window_begin = 10;
        body.window_end = 100;
        make_acknowledgement(0, 1, body, 0, out);
        for (const GapEntry& gap : gaps) {
            EXPECT_TRUE(add_gap(gap, out));
        }
        return parse_control(ByteSpan(out.control, out.control_bytes)).ok() == false;
    };
    EXPECT_FALSE(refused({{10, 1}, {12, 88}}));
    EXPECT_TRUE(refused({{9, 1}}));
    EXPECT_TRUE(refused({{10, 0}}));
    EXPECT_TRUE(refused({{10, 2}, {12, 1}}));
    EXPECT_TRUE(refused({{10, 2}, {11, 1}}));
    EXPECT_TRUE(refused({{99, 2}}));
    EXPECT_TRUE(refused({{99, ~0U}}));
}

TEST(Packet, ControlMessagesAreBounded) {
    Transmit out;
    make_acknowledgement(0, 1, {}, 0, out);
    size_t count = 0;
    while (add_gap({static_cast<uint32_t>(2 * count), 1}, out)) {
        count++;
    }
    EXPECT_EQ(count, kMaxGaps);
    EXPECT_LE(out.control_bytes, kMaxControlBytes);
}

// Every byte string is either refused or does no harm: sizes are those that a carrier may deliver.
TEST(Packet, RandomBytesDoNoHarm) {
    std::mt19937_64 random(1);
    auto context = context_create().release_value();
    QueuePairAttributes attributes;
    attributes.packet_bytes = 64;
    attributes.max_messages = 2;
    attributes.max_message_bytes = 1024;
    auto queue_pair = context->qp_create(attributes).release_value();
    ASSERT_TRUE(queue_pair->qp_connect(queue_pair->qp_info_get()).ok());
    std::vector<unsigned char> memory(1024 + 64, 0xee);
    const auto registered = context->mr_reg(MutableByteSpan(memory.data(), 1024)).release_value();
    ASSERT_TRUE(queue_pair->recv_post(registered).ok());
    for (int round = 0; round < 200'000; round++) {
        // A packet of the message that waits, or a control message, with some bytes changed.
        std::vector<unsigned char> bytes = some_bytes(random() % 160, random());
        DataRun run = sample_run();
        run.message_number = 0;
        const DataHeader header = make_data_header(run, 0);
        if (round % 3 == 0) {
            bytes = datagram_of(header, random() % 3 == 0 ? random() % 80 : 64);
        } else if (round % 3 == 1 && bytes.size() >= sizeof(ControlHeader)) {
            std::memset(bytes.data(), 0, sizeof(ControlHeader));
            bytes[0] = static_cast<unsigned char>(1 + random() % 6);
            bytes[2] = static_cast<unsigned char>(random() % 20);
        }
        for (uint64_t changes = random() % 3; changes > 0 && !bytes.empty(); changes--) {
            bytes[random() % bytes.size()] = static_cast<unsigned char>(random() % 5);
        }
        const ByteSpan view(bytes.data(), bytes.size());
        queue_pair->on_control(round, view);
        for (const PacketKind kind : {PacketKind::data, PacketKind::parity}) {
            Result<DataRun> read = parse_data(kind, view);
            if (read.ok()) {
                queue_pair->on_data(round, *read);
            }
        }
    }
    EXPECT_GT(queue_pair->statistics().packets_malformed, 0U);
    EXPECT_GT(queue_pair->statistics().packets_placed, 0U);
    EXPECT_GT(queue_pair->statistics().control_malformed, 0U);
    for (size_t index = 1024; index < memory.size(); index++) {
        EXPECT_EQ(memory[index], 0xee);
    }
}

}  // namespace
}  // namespace tiffin::rdma_blk::sdr
