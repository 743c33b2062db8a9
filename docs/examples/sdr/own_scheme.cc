// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A reliability scheme of one's own on the bare queue pair, both ends in one program: everything is sent once, then
// the receiver tells in a bitmap which chunks it misses, until it misses none. A tenth of all packets gets lost.
#include <vector>

#include "docs/examples/sdr/exchange.h"
#include "fs/vfs/host.h"
#include "rdma_blk/sdr/queue_pair.h"

using namespace example;

namespace {

constexpr uint32_t kChunks = 1000;

struct End {
    std::unique_ptr<sdr::QueuePair> queue_pair;
    std::unique_ptr<sdr::UdpCarrier> carrier;
};

End make_end(sdr::Context& context, unsigned char side) {
    End end;
    sdr::QueuePairAttributes attributes;
    end.queue_pair = need(context.qp_create(attributes), "queue pair");
    sdr::UdpOptions options;
    options.local = parse_address("127.0.0.1:0");
    options.packet_bytes = attributes.packet_bytes;
    options.drop_ppm = 100'000;
    options.send_key[0] = side;
    options.receive_key[0] = static_cast<unsigned char>(3 - side);
    end.carrier = need(sdr::UdpCarrier::create(*end.queue_pair, options), "carrier");
    return end;
}

// The receiver's half: tells what has arrived. False: all of it has.
bool tell_missing(End& end, uint64_t message) {
    const sdr::BitmapView view = need(end.queue_pair->recv_bitmap_get(message), "bitmap");
    (void)end.queue_pair->control_send(
        tiffin::ByteSpan(reinterpret_cast<const unsigned char*>(view.words), (kChunks + 7) / 8));
    return !view.is_complete();
}

// The sender's half: sends again what the last bitmap lacks. Returns how many chunks these were.
uint32_t send_missing(End& end, uint64_t message, const sdr::RegisteredMemory& memory) {
    uint64_t words[(kChunks + 63) / 64] = {};
    unsigned char* bytes = reinterpret_cast<unsigned char*>(words);
    bool was_told = false;
    while (end.queue_pair->control_poll(tiffin::MutableByteSpan(bytes, sizeof(words))).ok()) {
        was_told = true;
    }
    uint32_t sent = 0;
    const uint64_t chunk_bytes = end.queue_pair->attributes().chunk_bytes();
    for (uint32_t chunk = 0; was_told && chunk < kChunks; chunk++) {
        if (!sdr::bitmap_has(words, chunk)) {
            const uint64_t offset = chunk * chunk_bytes;
            const auto part = memory.slice(offset, chunk_bytes);
            // A full queue refuses: what is not sent now will be missing again.
            sent += end.queue_pair->send_stream_continue(message, offset, part).ok() ? 1 : 0;
        }
    }
    return sent;
}

}  // namespace

int main() {
    // Before the carriers, so that it outlives them: they send from it until they are destroyed.
    std::vector<unsigned char> from(kChunks * sdr::QueuePairAttributes().chunk_bytes());
    std::vector<unsigned char> to(from.size());
    for (size_t index = 0; index < from.size(); index++) {
        from[index] = static_cast<unsigned char>(index * 7 + index / 1000);
    }

    auto context = need(sdr::context_create(), "context");
    End left = make_end(*context, 1);
    End right = make_end(*context, 2);
    need(left.queue_pair->qp_connect(right.queue_pair->qp_info_get()), "connect");
    need(right.queue_pair->qp_connect(left.queue_pair->qp_info_get()), "connect");
    const auto source =
        need(context->mr_reg(tiffin::MutableByteSpan(from.data(), from.size())), "registration");
    const auto target =
        need(context->mr_reg(tiffin::MutableByteSpan(to.data(), to.size())), "registration");
    const uint64_t received = need(right.queue_pair->recv_post(target), "receive");
    const uint64_t sent = need(left.queue_pair->send_stream_start(from.size(), 0), "send");
    need(left.queue_pair->send_stream_continue(sent, 0, source), "send");
    need(left.carrier->start(right.carrier->info_get()), "start");
    need(right.carrier->start(left.carrier->info_get()), "start");

    uint32_t repeated = 0;
    for (bool is_missing = true; is_missing;) {
        usleep(5000);
        right.carrier->mutex().lock();
        is_missing = tell_missing(right, received);
        right.carrier->mutex().unlock();
        right.carrier->kick();
        left.carrier->mutex().lock();
        repeated += send_missing(left, sent, source);
        left.carrier->mutex().unlock();
        left.carrier->kick();
    }
    right.carrier->mutex().lock();
    need(right.queue_pair->recv_complete(received), "complete");
    right.carrier->mutex().unlock();
    // The message's number and memory are free when what was queued of it has gone.
    left.carrier->mutex().lock();
    need(left.queue_pair->send_stream_end(sent), "end");
    while (!left.queue_pair->send_poll(sent).ok()) {
        left.carrier->mutex().unlock();
        usleep(1000);
        left.carrier->mutex().lock();
    }
    left.carrier->mutex().unlock();
    std::printf("%u chunks, %u sent again, %s\n", kChunks, repeated,
                from == to ? "all as they were sent" : "WRONG");
    return from == to ? 0 : 1;
}
