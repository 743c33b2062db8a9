// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Receives one message from the example "send" and writes it to standard output:
// receive PORT [ADDRESS:PORT_OF_EMULATED_LINK]
#include <vector>

#include "docs/examples/sdr/exchange.h"
#include "fs/vfs/host.h"
#include "rdma_blk/sdr/reliable_connection.h"

using namespace example;

int main(int argument_count, char** arguments) {
    if (argument_count < 2) {
        std::fprintf(stderr, "usage: receive PORT [ADDRESS:PORT_OF_EMULATED_LINK]\n");
        return 2;
    }
    std::vector<unsigned char> bytes(16 << 20);

    auto context = need(sdr::context_create(), "context");
    sdr::QueuePairAttributes queue_pair;  // as the sender's
    auto connection = need(sdr::reliable_connection_create(*context, queue_pair, {}), "connection");

    sdr::UdpOptions options;
    options.packet_bytes = queue_pair.packet_bytes;
    options.send_key[0] = 2;
    options.receive_key[0] = 1;
    auto carrier = need(sdr::UdpCarrier::create(*connection, options), "carrier");

    const int peer = meet(parse_address(arguments[1]), true);
    need(connection->connect(exchange(peer, connection->info_get())), "connect");
    start(*carrier, peer, argument_count > 2 ? arguments[2] : nullptr);

    // The receive that is posted first gets the message that is sent first.
    const auto memory =
        need(context->mr_reg(tiffin::MutableByteSpan(bytes.data(), bytes.size())), "registration");
    carrier->mutex().lock();
    auto posted = connection->recv_post(tiffin::host::monotonic_ns(), memory);
    carrier->mutex().unlock();
    need(std::move(posted), "receive");
    carrier->kick();

    sdr::Completion completion;
    uint64_t seen = 0;
    for (bool is_complete = false; !is_complete;) {
        seen = carrier->wait(seen, 100'000);
        carrier->mutex().lock();
        is_complete = connection->next_completion(completion);
        carrier->mutex().unlock();
    }
    if (!completion.ok || completion.user_immediate != 42) {
        std::fprintf(stderr, "failed\n");
        return 1;
    }
    need(fwrite(bytes.data(), 1, completion.message_bytes, stdout) == completion.message_bytes,
         "write");
    char goodbye = 'x';
    (void)exchange(peer, goodbye);
    return 0;
}
