// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/tcp/client_connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cstring>
#include <new>
#include <utility>

#include "fs/vfs/host.h"
#include "rdma_blk/transport/tcp/stream_info.h"

namespace tiffin::rdma_blk {

using wire::MessageType;

namespace {

uint64_t kernel_delay_ns(int socket) {
    tcp_info info;
    const bool is_known = read_stream_info(socket, info) && info.tcpi_min_rtt != UINT32_MAX;
    return is_known ? uint64_t{info.tcpi_min_rtt} * 1000 : 0;
}

bool is_unix(int socket) {
    int domain = 0;
    socklen_t length = sizeof(domain);
    return getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

}  // namespace

Result<std::unique_ptr<ClientConnection>> ClientConnection::create(size_t message_capacity) {
    auto reader = TRY(MessageReader::create());
    auto writer = TRY(MessageWriter::create(message_capacity));
    std::unique_ptr<ClientConnection> made(
        new (std::nothrow) ClientConnection(std::move(reader), std::move(writer)));
    if (!made) {
        return Error::enomem;
    }
    return made;
}

void ClientConnection::close() {
    socket_.reset();
    descriptors_.clear();
    reader_->reset();
    writer_->reset();
    seal_in_.reset();
    seal_out_.reset();
}

void ClientConnection::interrupt() {
    if (socket_.is_open()) {
        shutdown(socket_.get(), SHUT_RDWR);
    }
}

Result<void> ClientConnection::send_all(uint64_t deadline_ns, Patience& patience) {
    while (!TRY(writer_->send(socket_.get(), MSG_DONTWAIT))) {
        TRY(wait_ready(socket_.get(), POLLOUT, deadline_ns, patience));
    }
    return {};
}

Result<void> ClientConnection::receive_until(MessageReader::Event wanted, uint64_t deadline_ns,
                                             Patience& patience) {
    while (true) {
        const auto event = TRY(reader_->next());
        if (event == wanted) {
            return {};
        }
        if (event != MessageReader::Event::need_bytes) {
            return Error::eproto;
        }
        TRY(wait_ready(socket_.get(), POLLIN, deadline_ns, patience));
        const auto received = reader_->receive(socket_.get(), MSG_DONTWAIT);
        if (!received.ok() && received.error() != Error::eagain) {
            return received.error();
        }
    }
}

Result<void> ClientConnection::exchange(uint64_t deadline_ns, Patience& patience) {
    TRY(send_all(deadline_ns, patience));
    return receive_until(MessageReader::Event::message, deadline_ns, patience);
}

Result<void> ClientConnection::receive_payload(MutableByteSpan place, uint64_t deadline_ns,
                                               Patience& patience) {
    if (place.size() != reader_->payload_bytes()) {
        return Error::eproto;
    }
    if (place.empty()) {
        return {};
    }
    reader_->place_payload(place);
    return receive_until(MessageReader::Event::payload, deadline_ns, patience);
}

Result<void> ClientConnection::open(Socket socket, const OpenOptions& options, uint64_t deadline_ns,
                                    Patience& patience, std::string& problem) {
    TIFFIN_ASSERT(!socket_.is_open());
    socket_ = std::move(socket);
    reader_->set_descriptors(is_unix(socket_.get()) ? &descriptors_ : nullptr);
    auto result = shake_hands(options, deadline_ns, patience, problem);
    if (!result.ok()) {
        problem = result.error() == Error::etimedout ? kNoAnswerInTime : problem;
        close();
    }
    return result;
}

Result<void> ClientConnection::shake_hands(const OpenOptions& options, uint64_t deadline_ns,
                                           Patience& patience, std::string& problem) {
    HandshakeClient handshake(
        options.key, options.volume_name, options.client_uuid,
        static_cast<uint16_t>((options.encrypt ? wire::hello_flag::encrypt : 0) |
                              (options.has_reader_key ? wire::hello_flag::reader : 0)));
    problem = "what answers there is not a memory server";
    writer_->add(MessageType::client_hello, handshake.hello());
    const auto greeted = exchange(deadline_ns, patience);
    if (!greeted.ok() && (greeted.error() == Error::enodev || greeted.error() == Error::eio)) {
        problem =
            "the connection was closed before a word was said: the server has no place for another "
            "one at "
            "present (its log says so), or what answers there is not a memory server";
        return Error::eagain;
    }
    TRY(greeted);
    const auto retry = TRY(wire::parse_hello_retry(reader_->header(), reader_->fixed_part()));
    TRY(handshake.read_retry(retry));
    writer_->add(MessageType::client_hello, handshake.hello());
    // From here on a server that ends the connection does not like who we say we are.
    problem = "refused: wrong key, or no such volume (the server does not say which)";
    auto answered = exchange(deadline_ns, patience);
    if (!answered.ok()) {
        return answered.error() == Error::enodev || answered.error() == Error::eio
                   ? Error::eacces
                   : answered.error();
    }
    const auto hello = TRY(wire::parse_server_hello(reader_->header(), reader_->fixed_part()));
    const auto proof = TRY(handshake.read_server_hello(hello));
    writer_->add(MessageType::client_proof, proof);
    TRY(send_all(deadline_ns, patience));
    problem.clear();
    delay_ns_ = kernel_delay_ns(socket_.get());
    keys_ = handshake.keys();
    version_ = handshake.version();
    seal_out_.emplace(handshake.keys().seal_to_server);
    seal_in_.emplace(handshake.keys().seal_to_client);
    TRY(writer_->set_seal(&*seal_out_, options.encrypt));
    reader_->set_seal(&*seal_in_, options.encrypt);
    std::memcpy(server_uuid_, handshake.server_uuid(), sizeof(server_uuid_));
    // Whoever waits in a blocking recv() looks around now and then.
    const timeval interval{0, Patience::kIntervalMs * 1000L};
    if (setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &interval, sizeof(interval)) != 0) {
        return Error::eio;
    }
    return {};
}

}  // namespace tiffin::rdma_blk
