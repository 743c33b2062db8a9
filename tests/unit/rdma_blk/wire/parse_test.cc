// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Parsers: good messages pass, every changed bit is noticed, and what passes with a repaired checksum
// keeps its bounds.
#include "rdma_blk/wire/parse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>

#include "tests/support/test_size.h"
#include "tests/unit/rdma_blk/wire/messages.h"

namespace tiffin::rdma_blk::wire {
namespace {

TEST(Parse, AcceptsGoodMessages) {
    for (const Sample& message : sample_messages()) {
        EXPECT_TRUE(parse_like_a_receiver(message.bytes)) << message.name;
    }
}

TEST(Parse, NoticesEveryChangedBitOfHeaderAndFixedPart) {
    for (const Sample& message : sample_messages()) {
        const MessageHeader header =
            parse_header(ByteSpan(message.bytes.data(), message.bytes.size())).value();
        // What is sealed has a tag instead.
        const size_t checked = sizeof(header) + (is_sealed(header) ? 0 : fixed_part_bytes(header));
        for (size_t bit = 0; bit < checked * 8; bit++) {
            std::vector<unsigned char> changed = message.bytes;
            changed[bit / 8] ^= static_cast<unsigned char>(1U << (bit % 8));
            EXPECT_FALSE(parse_like_a_receiver(changed)) << message.name << ", bit " << bit;
        }
    }
}

// A reader has none on the words. Without another one a client would ask for a better path for ever.
TEST(Parse, OnlyTheWindowOnTheWordsMayBeMissing) {
    RcPathAnswer answer = rc_answer();
    const ByteSpan bytes(reinterpret_cast<const unsigned char*>(&answer), sizeof(answer));
    ASSERT_TRUE(parse_rc_path_answer(bytes).ok());
    for (size_t i = 0; i < kRcWindowCount; i++) {
        const RcWindow window = std::exchange(answer.windows[i], RcWindow{});
        EXPECT_EQ(parse_rc_path_answer(bytes).ok(), i == 2) << i;
        answer.windows[i] = window;
    }
}

constexpr SdrRepair kGoodRepairs[] = {{0, 0, 0}, {1, 0, 0}, {2, 0, 0},   {3, 1, 1},
                                      {4, 1, 1}, {3, 8, 8}, {4, 16, 16}, {4, 64, 16}};
// An unknown scheme, a code without k or m or with too much of it, and k and m of what is no code.
constexpr SdrRepair kBadRepairs[] = {{5, 0, 0},  {5, 32, 8}, {3, 0, 0},   {4, 32, 0}, {4, 0, 1},
                                     {4, 65, 8}, {3, 4, 5},  {4, 64, 17}, {0, 32, 8}, {2, 1, 1}};

TEST(Parse, EndsOfDatagramPathsHaveTheirBounds) {
    const DatagramPathEnd good = datagram_end();
    const auto is_taken = [](const DatagramPathEnd& end, size_t size = sizeof(DatagramPathEnd)) {
        return parse_datagram_path_end(ByteSpan(reinterpret_cast<const unsigned char*>(&end), size))
            .ok();
    };
    EXPECT_TRUE(is_taken(good));
    EXPECT_FALSE(is_taken(good, sizeof(good) - 1));
    const auto is_taken_with = [&](auto change) {
        DatagramPathEnd end = good;
        change(end);
        return is_taken(end);
    };
    EXPECT_FALSE(is_taken_with([](DatagramPathEnd& end) { end.port = 0; }));
    EXPECT_FALSE(is_taken_with([](DatagramPathEnd& end) { end.message_count = 0; }));
    EXPECT_FALSE(is_taken_with([](DatagramPathEnd& end) { end.message_count = 96; }));
    EXPECT_FALSE(is_taken_with([](DatagramPathEnd& end) { end.message_count = 2048; }));
    EXPECT_FALSE(is_taken_with([](DatagramPathEnd& end) { end.packet_bytes = 63; }));
    EXPECT_FALSE(is_taken_with([](DatagramPathEnd& end) { end.packet_bytes = 65444; }));
    EXPECT_FALSE(is_taken_with([](DatagramPathEnd& end) { end.message_bytes--; }));
    EXPECT_FALSE(is_taken_with([](DatagramPathEnd& end) { end.receive_buffer_bytes = 0; }));
    EXPECT_FALSE(is_taken_with([](DatagramPathEnd& end) { end.landing_slots = 0; }));
    EXPECT_FALSE(is_taken_with([](DatagramPathEnd& end) { end.landing_slots = 65; }));
    for (const SdrRepair& repair : kGoodRepairs) {
        EXPECT_TRUE(is_taken_with([&](DatagramPathEnd& end) { end.repair = repair; }));
    }
    for (const SdrRepair& repair : kBadRepairs) {
        EXPECT_FALSE(is_taken_with([&](DatagramPathEnd& end) { end.repair = repair; }));
    }
}

TEST(Parse, EndsOfPathsOfQueuePairsHaveTheirBounds) {
    const UcPathEnd good = uc_end();
    const auto is_taken = [](const UcPathEnd& end, size_t size = sizeof(UcPathEnd)) {
        return parse_uc_path_end(ByteSpan(reinterpret_cast<const unsigned char*>(&end), size)).ok();
    };
    EXPECT_TRUE(is_taken(good));
    EXPECT_FALSE(is_taken(good, sizeof(good) - 1));
    const auto is_taken_with = [&](auto change) {
        UcPathEnd end = good;
        change(end);
        return is_taken(end);
    };
    EXPECT_TRUE(is_taken_with([](UcPathEnd& end) { end.message_bytes = kSealedPathMessageBytes; }));
    EXPECT_FALSE(is_taken_with([](UcPathEnd& end) { end.packet_bytes = 128; }));
    EXPECT_FALSE(is_taken_with([](UcPathEnd& end) { end.packet_bytes = 8192; }));
    EXPECT_FALSE(is_taken_with([](UcPathEnd& end) { end.packet_bytes = 1000; }));
    EXPECT_FALSE(is_taken_with([](UcPathEnd& end) { end.message_bytes--; }));
    EXPECT_FALSE(is_taken_with([](UcPathEnd& end) { end.message_bytes++; }));
    EXPECT_FALSE(is_taken_with([](UcPathEnd& end) { end.receive_depth = 63; }));
    EXPECT_FALSE(is_taken_with([](UcPathEnd& end) { end.receive_depth = 65537; }));
    EXPECT_FALSE(is_taken_with([](UcPathEnd& end) { end.message_count = 0; }));
    EXPECT_FALSE(is_taken_with([](UcPathEnd& end) { end.message_count = 12; }));
    EXPECT_FALSE(is_taken_with([](UcPathEnd& end) { end.message_count = 128; }));
    EXPECT_FALSE(is_taken_with([](UcPathEnd& end) { end.landing_slots = 0; }));
    EXPECT_FALSE(is_taken_with([](UcPathEnd& end) { end.landing_slots = 17; }));
    for (const SdrRepair& repair : kGoodRepairs) {
        EXPECT_TRUE(is_taken_with([&](UcPathEnd& end) { end.repair = repair; }));
    }
    for (const SdrRepair& repair : kBadRepairs) {
        EXPECT_FALSE(is_taken_with([&](UcPathEnd& end) { end.repair = repair; }));
    }
    EXPECT_FALSE(is_taken_with([](UcPathEnd& end) { end.data.mtu = 6; }));
    EXPECT_FALSE(is_taken_with([](UcPathEnd& end) { end.control.read_depth = 0; }));
    EXPECT_FALSE(is_taken_with([](UcPathEnd& end) { end.control.queue_pair = 1U << 24; }));
}

TEST(Parse, RefusesShortMessages) {
    for (const Sample& message : sample_messages()) {
        for (size_t size = 0; size < message.bytes.size(); size++) {
            EXPECT_FALSE(parse_like_a_receiver(
                std::vector<unsigned char>(message.bytes.begin(), message.bytes.begin() + size)))
                << message.name << ", " << size << " bytes";
        }
    }
}

// A hostile peer makes its checksums right. Some changes are legal then (another offset), others are not;
// parse_like_a_receiver() checks the bounds of all that is accepted.
TEST(Parse, KeepsBoundsOfMutatedMessages) {
    const std::vector<Sample> samples = sample_messages();
    std::mt19937_64 random(1);
    size_t accepted = 0;
    size_t refused = 0;
    const size_t rounds = test::test_size(200000, 20000);
    for (size_t round = 0; round < rounds; round++) {
        std::vector<unsigned char> bytes = samples[random() % samples.size()].bytes;
        const size_t changes = 1 + random() % 3;
        for (size_t change = 0; change < changes; change++) {
            const unsigned char values[] = {0, 1, 0x7f, 0xff, static_cast<unsigned char>(random())};
            const size_t begin = random() % bytes.size();
            const size_t end = std::min(bytes.size(), begin + 1 + random() % 8);
            std::fill(bytes.begin() + begin, bytes.begin() + end, values[random() % 5]);
        }
        repair_checksum(bytes);
        (parse_like_a_receiver(bytes) ? accepted : refused)++;
    }
    EXPECT_GT(accepted, rounds / 100);
    EXPECT_GT(refused, rounds / 100);
}

TEST(Parse, RefusesRandomBytes) {
    std::mt19937_64 random(2);
    for (int round = 0; round < 10000; round++) {
        std::vector<unsigned char> bytes(random() % 300);
        std::generate(bytes.begin(), bytes.end(), [&] { return random(); });
        EXPECT_FALSE(parse_like_a_receiver(bytes));
    }
}

Result<Request> request_with(void (*change)(Request& request), size_t payload_size_bytes = 0) {
    Request request{};
    request.sequence = 5;
    request.operation = 1;
    request.length_bytes = 4096;
    change(request);
    unsigned char bytes[sizeof(MessageHeader) + sizeof(Request)];
    encode(MessageType::request, 0, request, payload_size_bytes, bytes);
    const MessageHeader header = parse_header(ByteSpan(bytes)).value();
    return parse_request(header, ByteSpan(bytes).subspan(sizeof(MessageHeader)));
}

TEST(ParseRequest, RefusesWhatDoesNotFitTogether) {
    EXPECT_TRUE(request_with([](Request&) {}).ok());
    EXPECT_FALSE(request_with([](Request&) {}, 8).ok()) << "a read with a payload";
    EXPECT_FALSE(request_with([](Request& r) { r.operation = 0; }).ok());
    EXPECT_FALSE(request_with([](Request& r) { r.operation = 6; }).ok());
    EXPECT_FALSE(request_with([](Request& r) { r.space = 2; }).ok());
    EXPECT_FALSE(request_with([](Request& r) { r.sequence = 0; }).ok());
    EXPECT_FALSE(request_with([](Request& r) { r.sequence = kCounterLimit; }).ok());
    EXPECT_FALSE(request_with([](Request& r) { r.after = 5; }).ok()) << "after itself";
    EXPECT_FALSE(request_with([](Request& r) { r.offset_bytes = ~uint64_t{0}; }).ok());
    EXPECT_FALSE(request_with([](Request& r) { r.offset_bytes = kMaxSpaceBytes; }).ok());
    EXPECT_FALSE(request_with([](Request& r) { r.length_bytes = kMaxTransferBytes + 1; }).ok());
    EXPECT_FALSE(request_with([](Request& r) { r.operation = 2; }, 4095).ok()) << "short payload";
    EXPECT_TRUE(request_with([](Request& r) { r.operation = 2; }, 4096).ok());
    EXPECT_FALSE(request_with([](Request& r) { r.operation = 3; }).ok())
        << "an atomic of 4096 bytes";
    EXPECT_FALSE(request_with([](Request& r) {
                     r.operation = 4;
                     r.length_bytes = 8;
                     r.offset_bytes = 12;
                 }).ok())
        << "an atomic that is not aligned";
    EXPECT_FALSE(request_with(
                     [](Request& r) {
                         r.operation = 5;
                         r.length_bytes = 24;
                     },
                     24)
                     .ok())
        << "one and a half ranges";
}

TEST(ParseHeader, KnowsSealedSizes) {
    for (const size_t payload : {size_t{0}, size_t{1}, size_t{16295}, size_t{16296}, size_t{16297},
                                 size_t{kMaxTransferBytes}}) {
        Request request{};
        const ByteSpan fixed(reinterpret_cast<const unsigned char*>(&request), sizeof(request));
        const MessageHeader header =
            make_header(MessageType::request, message_flag::sealed, fixed, payload);
        EXPECT_EQ(header.body_bytes, sealed_bytes(sizeof(Request) + payload));
        auto parsed =
            parse_header(ByteSpan(reinterpret_cast<const unsigned char*>(&header), sizeof(header)));
        ASSERT_TRUE(parsed.ok());
        EXPECT_EQ(payload_bytes(*parsed), payload);
    }
}

TEST(ParseHeader, RefusesWrongSealing) {
    for (const Sample& message : sample_messages()) {
        std::vector<unsigned char> bytes = message.bytes;
        MessageHeader header;
        std::memcpy(&header, bytes.data(), sizeof(header));
        const bool by_session = header.type >= static_cast<uint8_t>(MessageType::request);
        const uint32_t plain = static_cast<uint32_t>(bytes.size() - sizeof(header));
        header.flags ^= message_flag::sealed;
        header.body_bytes = is_sealed(header) ? sealed_bytes(plain) : plain;
        const ByteSpan changed(reinterpret_cast<const unsigned char*>(&header), sizeof(header));
        EXPECT_EQ(parse_header(changed).ok(), by_session) << message.name;
    }
}

TEST(ParseShmParameters, KeepsTheirBounds) {
    const auto parse = [](ShmParameters parameters, size_t size) {
        return parse_shm_parameters(
            ByteSpan(reinterpret_cast<const unsigned char*>(&parameters), size));
    };
    const ShmParameters good{4096, 8192, 1, {}};
    ASSERT_TRUE(parse(good, sizeof(good)).ok());
    EXPECT_EQ(parse(good, sizeof(good))->data_bytes, 4096U);
    EXPECT_FALSE(parse(good, sizeof(good) - 1).ok());
    EXPECT_FALSE(parse(good, 0).ok());
    EXPECT_FALSE(parse({0, 8192, 1, {}}, sizeof(good)).ok());
    EXPECT_FALSE(parse({kMaxSpaceBytes + 1, 8192, 1, {}}, sizeof(good)).ok());
    EXPECT_FALSE(parse({4096, 0, 1, {}}, sizeof(good)).ok());
    EXPECT_FALSE(parse({4096, UINT64_MAX, 1, {}}, sizeof(good)).ok());
    EXPECT_FALSE(parse({4096, 8192, 2, {}}, sizeof(good)).ok());
}

}  // namespace
}  // namespace tiffin::rdma_blk::wire
