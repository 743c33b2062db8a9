// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Two ends of a connection over UC carriers, on whatever devices there are: those of tests/support/fake_network.h, or of
// rdma_rxe in a virtual machine.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <vector>

#include "fs/vfs/host.h"
#include "rdma_blk/sdr/reliable_connection.h"
#include "rdma_blk/transport/uc/uc_carrier.h"
#include "tests/unit/rdma_blk/sdr/bytes.h"

namespace tiffin::rdma_blk {

struct UcCase {
    const char* name;
    sdr::SchemeChoice scheme;
    uint8_t packets_per_chunk_log2;
    uint32_t drop_ppm;
    uint64_t give_up_ns = 60'000'000'000;
};

class UcEnds {
  public:
    struct End {
        std::unique_ptr<sdr::ReliableConnection> connection;
        std::unique_ptr<UcCarrier> carrier;
    };

    explicit UcEnds(const UcCase& options) : case_(options) {}
    End& left() { return left_; }
    End& right() { return right_; }
    sdr::QueuePairAttributes queue_attributes() const {
        sdr::QueuePairAttributes attributes;
        attributes.packet_bytes = 1024;
        attributes.packets_per_chunk_log2 = case_.packets_per_chunk_log2;
        attributes.max_message_bytes = 512 << 10;
        attributes.max_messages = 4;
        return attributes;
    }

    void start(verbs::Device& left, verbs::Device& right) {
        context_ = sdr::context_create().release_value();
        make(left_, left);
        make(right_, right);
        ASSERT_TRUE(left_.connection->connect(right_.connection->info_get()).ok());
        ASSERT_TRUE(right_.connection->connect(left_.connection->info_get()).ok());
        ASSERT_TRUE(left_.carrier->start(right_.carrier->info_get()).ok());
        ASSERT_TRUE(right_.carrier->start(left_.carrier->info_get()).ok());
    }

    // The left end only, for a peer that is none of these ends; its carrier has yet to be started.
    UcCarrier& start_alone(verbs::Device& left) {
        context_ = sdr::context_create().release_value();
        make(left_, left);
        EXPECT_TRUE(left_.connection->connect(left_.connection->info_get()).ok());
        return *left_.carrier;
    }

    // Messages in both directions at once, `depth` of them on their way in each; sizes from one byte to the largest.
    void exchange(uint32_t messages, uint32_t depth) {
        const sdr::QueuePairAttributes attributes = queue_attributes();
        exchanges_.emplace_back();
        std::vector<unsigned char>& source = exchanges_.back().source;
        source = sdr::some_bytes(attributes.max_message_bytes + 64 * messages, 1);
        const auto source_memory =
            context_->mr_reg(MutableByteSpan(source.data(), source.size())).release_value();
        auto& directions = exchanges_.back().directions;
        directions[0].sender = directions[1].receiver = &left_;
        directions[1].sender = directions[0].receiver = &right_;
        for (Direction& direction : directions) {
            direction.is_there.resize(messages);
            direction.target.resize(depth * attributes.max_message_bytes);
            direction.target_memory =
                context_->mr_reg(MutableByteSpan(direction.target.data(), direction.target.size()))
                    .release_value();
        }
        const auto is_over = [&] {
            return std::all_of(
                std::begin(directions), std::end(directions), [&](const Direction& direction) {
                    return direction.received == messages && direction.sent == messages;
                });
        };
        while (!is_over()) {
            for (Direction& direction : directions) {
                post(direction, messages, depth, source_memory);
            }
            take(left_, directions[0], directions[1], source, depth);
            take(right_, directions[1], directions[0], source, depth);
            if (::testing::Test::HasFatalFailure() || ::testing::Test::HasNonfatalFailure()) {
                return;
            }
        }
        first_number_ += messages;
    }

    // What becomes of one message to a peer that answers no more.
    sdr::Completion send_in_vain(End& end) {
        static unsigned char bytes[100] = {};
        const auto memory = context_->mr_reg(MutableByteSpan(bytes, sizeof(bytes))).release_value();
        sdr::Completion completion;
        end.carrier->mutex().lock();
        const bool is_posted = end.connection->send_post(host::monotonic_ns(), memory, 0).ok();
        end.carrier->mutex().unlock();
        end.carrier->kick();
        EXPECT_TRUE(is_posted);
        if (is_posted) {
            completion = next_completion(end);
        }
        context_->mr_dereg(memory);
        return completion;
    }

    // The largest message, sent from that many pieces of memory and a head, from the left to the right.
    void send_in_pieces(size_t piece_count) {
        const uint64_t most = queue_attributes().max_message_bytes;
        std::vector<unsigned char> source = sdr::some_bytes(most, 3);
        std::vector<vfs::IoVector> pieces;
        uint64_t offset = most / 100;
        for (size_t index = 0; index < piece_count; index++) {
            const uint64_t left = most - offset;
            const bool is_last = index + 1 == piece_count;
            const uint64_t size = is_last ? left : left / (piece_count - index) / (1 + index % 3);
            pieces.push_back({source.data() + offset, size});
            offset += size;
        }
        const sdr::GatherList list(ByteSpan(source.data(), most / 100), pieces.data(), piece_count);
        const std::vector<unsigned char>& target = post_receive(right_);
        right_.carrier->kick();
        left_.carrier->mutex().lock();
        const bool is_posted =
            left_.connection
                ->send_post(host::monotonic_ns(), sdr::RegisteredMemory::gathered(list), 5)
                .ok();
        left_.carrier->mutex().unlock();
        ASSERT_TRUE(is_posted);
        left_.carrier->kick();
        const sdr::Completion received = next_completion(right_);
        EXPECT_TRUE(received.ok);
        EXPECT_EQ(received.message_bytes, most);
        EXPECT_EQ(target, source);
        EXPECT_TRUE(next_completion(left_).ok);
        first_number_++;
    }

    // One that nothing comes for. The carrier is not kicked.
    const std::vector<unsigned char>& post_receive(End& end) {
        exchanges_.emplace_back();
        std::vector<unsigned char>& target = exchanges_.back().directions[0].target;
        target.resize(queue_attributes().max_message_bytes);
        const auto memory =
            context_->mr_reg(MutableByteSpan(target.data(), target.size())).release_value();
        end.carrier->mutex().lock();
        EXPECT_TRUE(end.connection->recv_post(host::monotonic_ns(), memory).ok());
        end.carrier->mutex().unlock();
        return target;
    }

    static sdr::ReliabilityStatistics reliability(End& end) {
        end.carrier->mutex().lock();
        const sdr::ReliabilityStatistics statistics = end.connection->reliability_statistics();
        end.carrier->mutex().unlock();
        return statistics;
    }

    // Waits for one; the test's own timeout ends a hang.
    static sdr::Completion next_completion(End& end) {
        sdr::Completion completion;
        for (uint64_t seen = 0;;) {
            end.carrier->mutex().lock();
            const bool is_there = end.connection->next_completion(completion);
            end.carrier->mutex().unlock();
            if (is_there) {
                return completion;
            }
            seen = end.carrier->wait(seen, 10'000);
        }
    }

  private:
    struct Direction {
        End* sender = nullptr;
        End* receiver = nullptr;
        std::vector<unsigned char> target;
        sdr::RegisteredMemory target_memory;
        uint32_t receives = 0;  // posted
        uint32_t sends = 0;
        std::vector<bool> is_there;
        uint32_t there_until = 0;  // messages before this are there
        uint32_t received = 0;
        uint32_t sent = 0;
        uint64_t seen = 0;  // of the sender's carrier
    };
    struct Exchange {
        std::vector<unsigned char> source;
        Direction directions[2];
    };

    // Of message n of an exchange: where it begins in the source, and how long it is.
    static uint64_t begin_of(uint64_t number) { return 64 * number; }
    uint64_t size_of(uint64_t number) const {
        const uint64_t most = queue_attributes().max_message_bytes;
        const uint64_t sizes[] = {1, 1024, 5000, 200'000, 1025, most, 65'536, 33};
        return sizes[number % 8];
    }

    void make(End& end, verbs::Device& device) {
        sdr::ReliabilityAttributes attributes;
        attributes.scheme = case_.scheme;
        attributes.give_up_ns = case_.give_up_ns;
        end.connection =
            reliable_connection_create(*context_, queue_attributes(), attributes).release_value();
        UcOptions options;
        options.queue_pair = queue_attributes();
        options.code = case_.scheme;
        options.drop_ppm = case_.drop_ppm;
        auto carrier = UcCarrier::create(*end.connection, device, options);
        ASSERT_TRUE(carrier.ok()) << static_cast<int>(carrier.error());
        end.carrier = carrier.release_value();
    }

    void post(Direction& direction, uint32_t messages, uint32_t depth,
              const sdr::RegisteredMemory& source) const {
        const uint64_t most = queue_attributes().max_message_bytes;
        const uint64_t now_ns = host::monotonic_ns();
        direction.receiver->carrier->mutex().lock();
        while (direction.receives < std::min(messages, direction.there_until + depth)) {
            const auto memory =
                direction.target_memory.slice((direction.receives % depth) * most, most);
            if (!direction.receiver->connection->recv_post(now_ns, memory).ok()) {
                break;  // completions wait to be taken first
            }
            direction.receives++;
        }
        direction.receiver->carrier->mutex().unlock();
        direction.receiver->carrier->kick();
        direction.sender->carrier->mutex().lock();
        while (direction.sends < messages) {
            const uint32_t index = direction.sends;
            const auto memory = source.slice(begin_of(index), size_of(index));
            if (!direction.sender->connection->send_post(now_ns, memory, index).ok()) {
                break;  // as many as can be are on their way
            }
            direction.sends++;
        }
        direction.sender->carrier->mutex().unlock();
        direction.sender->carrier->kick();
    }

    // What has completed at `end`, which sends in `out` and receives in `in`; waits for something.
    void take(End& end, Direction& out, Direction& in, const std::vector<unsigned char>& source,
              uint32_t depth) const {
        const uint64_t most = queue_attributes().max_message_bytes;
        end.carrier->mutex().lock();
        sdr::Completion completion;
        bool has_any = false;
        while (end.connection->next_completion(completion)) {
            has_any = true;
            EXPECT_TRUE(completion.ok) << static_cast<int>(completion.error);
            if (completion.is_send) {
                out.sent++;
                continue;
            }
            const uint64_t index = completion.message_number - first_number_;
            if (index >= in.is_there.size() || in.is_there[index]) {
                ADD_FAILURE() << "message " << completion.message_number << " came again";
                continue;
            }
            EXPECT_EQ(completion.user_immediate, index);
            EXPECT_EQ(completion.message_bytes, size_of(index));
            const unsigned char* came = in.target.data() + index % depth * most;
            EXPECT_EQ(std::memcmp(came, source.data() + begin_of(index), completion.message_bytes),
                      0)
                << "message " << completion.message_number;
            in.is_there[index] = true;
            in.received++;
            while (in.there_until < in.is_there.size() && in.is_there[in.there_until]) {
                in.there_until++;
            }
        }
        end.carrier->mutex().unlock();
        if (!has_any) {
            out.seen = end.carrier->wait(out.seen, 1000);
        }
    }

    UcCase case_;
    std::unique_ptr<sdr::Context> context_;
    // After a failure the carriers still read and write what an exchange has posted: it is kept until they have gone.
    std::list<Exchange> exchanges_;
    End left_;
    End right_;
    uint64_t first_number_ = 0;  // of this exchange's messages
};

}  // namespace tiffin::rdma_blk
