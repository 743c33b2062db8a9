// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Sends standard input as one message to the example "receive": send ADDRESS:PORT [ADDRESS:PORT_OF_EMULATED_LINK]
#include <vector>

#include "docs/examples/sdr/exchange.h"
#include "fs/vfs/host.h"
#include "rdma_blk/sdr/reliable_connection.h"

using namespace example;

int main(int argument_count, char** arguments) {
    if (argument_count < 2) {
        std::fprintf(stderr, "usage: send ADDRESS:PORT [ADDRESS:PORT_OF_EMULATED_LINK]\n");
        return 2;
    }
    std::vector<unsigned char> bytes(16 << 20);
    bytes.resize(fread(bytes.data(), 1, bytes.size(), stdin));
    if (getchar() != EOF) {
        std::fprintf(stderr, "send: that is more than 16 MiB, for which there is room here\n");
        return 2;
    }

    auto context = need(sdr::context_create(), "context");
    sdr::QueuePairAttributes queue_pair;  // packets that fit into Ethernet, messages up to 64 MiB
    sdr::ReliabilityAttributes reliability;
    reliability.scheme = {sdr::SchemeKind::erasure_mds, 32,
                          8};  // a fifth of the bandwidth, no waiting
    auto connection =
        need(sdr::reliable_connection_create(*context, queue_pair, reliability), "connection");

    sdr::UdpOptions options;
    options.packet_bytes = queue_pair.packet_bytes;
    options.send_key[0] = 1;  // real programs agree on random keys
    options.receive_key[0] = 2;
    auto carrier = need(sdr::UdpCarrier::create(*connection, options), "carrier");

    const int peer = meet(parse_address(arguments[1]), false);
    need(connection->connect(exchange(peer, connection->info_get())), "connect");
    start(*carrier, peer, argument_count > 2 ? arguments[2] : nullptr);

    const auto memory =
        need(context->mr_reg(tiffin::MutableByteSpan(bytes.data(), bytes.size())), "registration");
    carrier->mutex().lock();
    auto posted = connection->send_post(tiffin::host::monotonic_ns(), memory, 42);
    carrier->mutex().unlock();
    need(std::move(posted), "send");
    carrier->kick();

    sdr::Completion completion;
    uint64_t seen = 0;
    for (bool is_complete = false; !is_complete;) {
        seen = carrier->wait(seen, 100'000);
        carrier->mutex().lock();
        is_complete = connection->next_completion(completion);
        carrier->mutex().unlock();
    }
    carrier->mutex().lock();
    const sdr::ReliabilityStatistics statistics = connection->reliability_statistics();
    carrier->mutex().unlock();
    std::fprintf(stderr, "%s: %llu chunks, %llu of parity, %llu again\n",
                 completion.ok ? "sent" : "failed",
                 static_cast<unsigned long long>(statistics.chunks_sent),
                 static_cast<unsigned long long>(statistics.parity_chunks_sent),
                 static_cast<unsigned long long>(statistics.chunks_repeated));
    char goodbye = 'x';  // the peer has everything and may go
    (void)exchange(peer, goodbye);
    return completion.ok ? 0 : 1;
}
