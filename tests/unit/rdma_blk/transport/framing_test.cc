// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Messages over a socket pair: cut anywhere, gathered from pieces, sealed and in clear.
#include "rdma_blk/transport/tcp/framing.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <vector>

namespace tiffin::rdma_blk {
namespace {

using wire::MessageType;
using Bytes = std::vector<unsigned char>;

class FramingTest : public ::testing::TestWithParam<bool> {
  protected:
    void SetUp() override {
        ASSERT_TRUE(initialize_cryptography().ok());
        ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sockets_));
        for (size_t i = 0; i < kSealKeyBytes; i++) {
            key_.bytes[i] = static_cast<unsigned char>(i);
        }
        seal_ = std::make_unique<Seal>(key_);
        open_ = std::make_unique<Seal>(key_);
        writer_ = MUST(MessageWriter::create(8));
        reader_ = MUST(MessageReader::create());
        ASSERT_TRUE(writer_->set_seal(seal_.get(), GetParam()).ok());
        reader_->set_seal(open_.get(), GetParam());
    }
    void TearDown() override {
        close(sockets_[0]);
        close(sockets_[1]);
    }

    static wire::Request write_request(uint64_t sequence, size_t bytes) {
        wire::Request request{};
        request.session_id = 5;
        request.sequence = sequence;
        request.incarnation = 1;
        request.operation = 2;
        request.length_bytes = static_cast<uint32_t>(bytes);
        return request;
    }
    static Bytes random_bytes(size_t count, unsigned seed) {
        std::mt19937 random(seed);
        Bytes bytes(count);
        for (auto& byte : bytes) {
            byte = static_cast<unsigned char>(random());
        }
        return bytes;
    }

    void add_request(uint64_t sequence, const Bytes& payload) {
        writer_->add(MessageType::request, write_request(sequence, payload.size()),
                     ByteSpan(payload.data(), payload.size()));
    }
    // Reads one request and its payload, into `pieces` parts; sends whenever the writer has more.
    void read_request(uint64_t sequence, const Bytes& expected, size_t pieces) {
        wire::Request request{};
        Bytes place(expected.size());
        std::vector<vfs::IoVector> parts;
        bool is_done = false;
        while (!is_done) {
            auto event = reader_->next();
            ASSERT_TRUE(event.ok()) << errno_value(event.error());
            switch (*event) {
                case MessageReader::Event::need_bytes: {
                    ASSERT_TRUE(writer_->send(sockets_[0], MSG_DONTWAIT).ok());
                    ASSERT_TRUE(reader_->receive(sockets_[1], 0).ok());
                    break;
                }
                case MessageReader::Event::message: {
                    request = MUST(wire::parse_request(reader_->header(), reader_->fixed_part()));
                    ASSERT_EQ(reader_->payload_bytes(), expected.size());
                    is_done = expected.empty();
                    for (size_t i = 0; i < pieces && !is_done; i++) {
                        const size_t from = expected.size() * i / pieces;
                        const size_t to = expected.size() * (i + 1) / pieces;
                        parts.push_back({place.data() + from, to - from});
                    }
                    if (!is_done) {
                        reader_->place_payload(parts.data(), parts.size());
                    }
                    break;
                }
                case MessageReader::Event::payload:
                    is_done = true;
                    break;
            }
        }
        EXPECT_EQ(request.sequence, sequence);
        EXPECT_EQ(place, expected);
    }

    int sockets_[2] = {-1, -1};
    Secret<kSealKeyBytes> key_;
    std::unique_ptr<Seal> seal_;
    std::unique_ptr<Seal> open_;
    std::unique_ptr<MessageWriter> writer_;
    std::unique_ptr<MessageReader> reader_;
};

TEST_P(FramingTest, MessagesOfAllSizesArriveInOrder) {
    const size_t sizes[] = {1, 100, 4096, 16384 - 88, 16384 - 87, 16384, 65536, 1 << 20, 70000};
    uint64_t sequence = 0;
    for (const size_t size : sizes) {
        for (size_t pieces = 1; pieces <= 200; pieces = pieces * 3 + 1) {
            const Bytes payload = random_bytes(size, static_cast<unsigned>(size));
            std::vector<vfs::IoVector> parts;
            for (size_t i = 0; i < pieces; i++) {
                const size_t from = size * i / pieces;
                parts.push_back({const_cast<unsigned char*>(payload.data()) + from,
                                 size * (i + 1) / pieces - from});
            }
            sequence++;
            writer_->add(MessageType::request, write_request(sequence, size), parts.data(),
                         parts.size());
            read_request(sequence, payload, pieces);
            EXPECT_TRUE(writer_->empty());
            EXPECT_EQ(writer_->sent_count(), writer_->added_count());
        }
    }
}

TEST_P(FramingTest, SeveralMessagesGoInOneSystemCall) {
    Bytes payload[4];
    for (unsigned i = 0; i < 4; i++) {
        payload[i] = random_bytes(4096, i);
        writer_->add(MessageType::request, write_request(i + 1, 4096),
                     ByteSpan(payload[i].data(), 4096));
    }
    EXPECT_TRUE(MUST(writer_->send(sockets_[0], MSG_DONTWAIT)));
    EXPECT_EQ(writer_->system_calls(), 1U);
    for (unsigned i = 0; i < 4; i++) {
        read_request(i + 1, payload[i], 1);
        // All of it has come; what is sealed cannot be looked at.
        wire::Request next{};
        EXPECT_EQ(reader_->peek_request(next), !GetParam() && i < 3);
        EXPECT_EQ(next.sequence, !GetParam() && i < 3 ? i + 2 : 0);
    }
}

TEST_P(FramingTest, BytesThatComeOneByOneMakeTheSameMessages) {
    const Bytes payload = random_bytes(20000, 1);
    add_request(1, payload);
    wire::Probe probe{};
    probe.id = 77;
    writer_->add(MessageType::probe, probe);
    EXPECT_TRUE(MUST(writer_->send(sockets_[0], 0)));
    Bytes stream(1 << 16);
    const ssize_t size = read(sockets_[1], stream.data(), stream.size());
    ASSERT_GT(size, 20000);
    Bytes place(payload.size());
    int messages = 0;
    int payloads = 0;
    for (ssize_t i = 0; i < size; i++) {
        ASSERT_EQ(1, write(sockets_[0], &stream[static_cast<size_t>(i)], 1));
        ASSERT_TRUE(reader_->receive(sockets_[1], 0).ok());
        for (auto event = MUST(reader_->next()); event != MessageReader::Event::need_bytes;
             event = MUST(reader_->next())) {
            if (event == MessageReader::Event::payload) {
                payloads++;
            } else if (++messages == 1) {
                reader_->place_payload(MutableByteSpan(place.data(), place.size()));
            } else {
                EXPECT_EQ(77U,
                          MUST(wire::parse_probe(reader_->header(), reader_->fixed_part())).id);
            }
        }
    }
    EXPECT_EQ(messages, 2);
    EXPECT_EQ(payloads, 1);
    EXPECT_EQ(place, payload);
}

TEST_P(FramingTest, PayloadsCanBeSkipped) {
    const Bytes payload = random_bytes(100000, 1);
    add_request(1, payload);
    add_request(2, payload);
    bool is_skipped = false;
    while (!is_skipped) {
        switch (MUST(reader_->next())) {
            case MessageReader::Event::need_bytes:
                ASSERT_TRUE(writer_->send(sockets_[0], MSG_DONTWAIT).ok());
                ASSERT_TRUE(reader_->receive(sockets_[1], 0).ok());
                break;
            case MessageReader::Event::message:
                reader_->skip_payload();
                break;
            case MessageReader::Event::payload:
                is_skipped = true;
                break;
        }
    }
    read_request(2, payload, 3);
}

// As for a link that is silent: another one sends the same, and receives it.
TEST_P(FramingTest, WhatHasBegunGoesOnWithoutTheCallersMemory) {
    const Bytes payload = random_bytes(1000000, 1);
    Bytes sent = payload;
    const std::vector<vfs::IoVector> pieces = {{sent.data(), 1000},
                                               {sent.data() + 1000, sent.size() - 1000}};
    Bytes other = random_bytes(3000, 2);
    writer_->add(MessageType::request, write_request(1, payload.size()), pieces.data(),
                 pieces.size());
    add_request(2, other);
    const bool is_all_sent = MUST(writer_->send(sockets_[0], MSG_DONTWAIT));
    ASSERT_FALSE(is_all_sent);
    EXPECT_TRUE(writer_->let_go_of_requests());
    EXPECT_TRUE(writer_->let_go_of_requests()) << "once more";
    std::fill(sent.begin(), sent.end(), 0);
    std::fill(other.begin(), other.end(), 0);
    // Of those that were not begun, nothing is sent.
    add_request(3, payload);
    read_request(1, payload, 3);
    read_request(3, payload, 2);
    EXPECT_TRUE(writer_->empty());
    EXPECT_EQ(writer_->sent_count(), 3U);
    EXPECT_TRUE(writer_->let_go_of_requests()) << "there is nothing to let go of";
}

// One of several requests that wait is answered over another link.
TEST_P(FramingTest, LetsGoOfOneRequest) {
    const Bytes payload = random_bytes(1000000, 1);
    Bytes sent = payload;
    Bytes answered = random_bytes(3000, 2);
    const Bytes other = random_bytes(3000, 3);
    add_request(1, sent);
    add_request(2, answered);
    add_request(3, other);
    const bool is_all_sent = MUST(writer_->send(sockets_[0], MSG_DONTWAIT));
    ASSERT_FALSE(is_all_sent);
    const auto let_go = [&](uint64_t number) {
        const wire::Request request = write_request(number, 0);
        EXPECT_TRUE(writer_->let_go_of_request(request.slot, request.sequence));
    };
    let_go(1);
    let_go(2);
    let_go(4);
    std::fill(sent.begin(), sent.end(), 0);
    std::fill(answered.begin(), answered.end(), 0);
    read_request(1, payload, 3);
    read_request(3, other, 2);
    EXPECT_TRUE(writer_->empty());
    EXPECT_EQ(writer_->sent_count(), 3U);
}

TEST_P(FramingTest, ACopyIsOfWhatThePayloadWasThen) {
    const Bytes payload = random_bytes(1000000, 1);
    Bytes sent = payload;
    ASSERT_TRUE(writer_->add_copy(MessageType::request, write_request(1, sent.size()),
                                  ByteSpan(sent.data(), sent.size())));
    std::fill(sent.begin(), sent.end(), 0);
    read_request(1, payload, 2);
}

TEST_P(FramingTest, TheRestOfAPayloadCanBeSkipped) {
    const Bytes payload = random_bytes(1000000, 1);
    add_request(1, payload);
    add_request(2, payload);
    Bytes place(payload.size());
    size_t received = 0;
    bool is_past = false;
    while (!is_past) {
        switch (MUST(reader_->next())) {
            case MessageReader::Event::need_bytes:
                if (received > 100000 && received < payload.size() / 2) {
                    reader_->skip_rest();
                    std::fill(place.begin(), place.end(), 7);
                    received = payload.size();
                }
                ASSERT_TRUE(writer_->send(sockets_[0], MSG_DONTWAIT).ok());
                received += MUST(reader_->receive(sockets_[1], 0));
                break;
            case MessageReader::Event::message:
                reader_->place_payload(MutableByteSpan(place.data(), place.size()));
                break;
            case MessageReader::Event::payload:
                is_past = true;
                break;
        }
    }
    EXPECT_EQ(place, Bytes(place.size(), 7)) << "nothing is written there any more";
    read_request(2, payload, 3);
}

TEST_P(FramingTest, WhatWasNotAgreedOnIsRefused) {
    reader_->set_seal(open_.get(), !GetParam());
    writer_->add(MessageType::request, write_request(1, 0));
    EXPECT_TRUE(MUST(writer_->send(sockets_[0], 0)));
    ASSERT_TRUE(reader_->receive(sockets_[1], 0).ok());
    auto event = reader_->next();
    ASSERT_FALSE(event.ok());
    EXPECT_EQ(event.error(), Error::eproto);
}

TEST_P(FramingTest, RequestsBeforeTheHandshakeAreRefused) {
    reader_->reset();
    writer_->add(MessageType::request, write_request(1, 0));
    EXPECT_TRUE(MUST(writer_->send(sockets_[0], 0)));
    ASSERT_TRUE(reader_->receive(sockets_[1], 0).ok());
    EXPECT_FALSE(reader_->next().ok());
}

TEST_P(FramingTest, TheEndOfTheStreamIsToldApart) {
    EXPECT_EQ(Error::eagain, reader_->receive(sockets_[1], MSG_DONTWAIT).error());
    shutdown(sockets_[0], SHUT_WR);
    EXPECT_EQ(Error::enodev, reader_->receive(sockets_[1], MSG_DONTWAIT).error());
    shutdown(sockets_[1], SHUT_RDWR);
    writer_->add(MessageType::request, write_request(1, 0));
    EXPECT_EQ(Error::enodev, writer_->send(sockets_[0], MSG_DONTWAIT).error());
}

INSTANTIATE_TEST_SUITE_P(SealedAndInClear, FramingTest, ::testing::Bool());

}  // namespace
}  // namespace tiffin::rdma_blk
