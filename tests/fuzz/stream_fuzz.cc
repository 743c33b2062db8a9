// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A stream of messages as a connection receives it: cut into pieces anywhere, in clear, sealed by a stranger, or
// sealed with the right key, so that the sealed forms are reached as well.
//
// Input: a byte with the form, a byte with the size of the pieces, the stream.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "fs/vfs/host.h"
#include "rdma_blk/transport/tcp/framing.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/rdma_blk/wire/messages.h"

namespace tiffin::rdma_blk {
namespace {

enum Form : uint8_t { before_handshake, in_clear, sealed_by_a_stranger, sealed };

// The messages of a stream in clear, each sealed. What is no message stays as it is.
fuzz::Input seal_stream(const fuzz::Input& stream, Seal& seal) {
    fuzz::Input out;
    size_t start = 0;
    while (start < stream.size()) {
        wire::MessageHeader header;
        const size_t left = stream.size() - start;
        if (left < sizeof(header)) {
            break;
        }
        std::memcpy(&header, stream.data() + start, sizeof(header));
        const size_t plain = std::min<size_t>(header.body_bytes, left - sizeof(header));
        header.flags |= wire::message_flag::sealed;
        header.body_bytes = static_cast<uint32_t>(wire::sealed_bytes(plain));
        header.checksum = 0;
        header.checksum = host::crc32c(0, &header, sizeof(header));
        const auto* head = reinterpret_cast<const unsigned char*>(&header);
        out.insert(out.end(), head, head + sizeof(header));
        for (size_t done = 0; done < plain; done += wire::kSealedChunkBytes) {
            const size_t size = std::min<size_t>(plain - done, wire::kSealedChunkBytes);
            const auto first =
                stream.begin() + static_cast<ptrdiff_t>(start + sizeof(header) + done);
            fuzz::Input chunk(first, first + static_cast<ptrdiff_t>(size));
            unsigned char tag[wire::kSealTagBytes];
            const auto done_so =
                seal.seal(MutableByteSpan(chunk.data(), size), done == 0 ? &header : nullptr, tag);
            TIFFIN_ASSERT(done_so.ok());
            out.insert(out.end(), chunk.begin(), chunk.end());
            out.insert(out.end(), tag, tag + sizeof(tag));
        }
        start += sizeof(header) + plain;
    }
    out.insert(out.end(), stream.begin() + static_cast<ptrdiff_t>(start), stream.end());
    return out;
}

struct Sockets {
    int ends[2] = {-1, -1};
    Sockets() { TIFFIN_ASSERT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0); }
    ~Sockets() {
        close(ends[0]);
        close(ends[1]);
    }
};

// False: the connection must end.
bool read_all(MessageReader& reader, int socket, fuzz::Input& payload) {
    while (true) {
        auto event = reader.next();
        if (!event.ok()) {
            return false;
        }
        switch (*event) {
            case MessageReader::Event::need_bytes:
                if (!reader.receive(socket, MSG_DONTWAIT).ok()) {
                    return true;
                }
                break;
            case MessageReader::Event::message:
                TIFFIN_ASSERT(reader.fixed_part().size() <= wire::kMaxFixedPartBytes);
                TIFFIN_ASSERT(reader.payload_bytes() <= wire::kMaxTransferBytes);
                if (reader.type() == wire::MessageType::request) {
                    (void)wire::parse_request(reader.header(), reader.fixed_part());
                }
                if (reader.payload_bytes() % 2 == 1) {
                    reader.skip_payload();
                } else if (reader.payload_bytes() != 0) {
                    payload.resize(reader.payload_bytes());
                    reader.place_payload(MutableByteSpan(payload.data(), payload.size()));
                }
                break;
            case MessageReader::Event::payload:
                break;
        }
    }
}

}  // namespace
}  // namespace tiffin::rdma_blk

namespace tiffin::fuzz {

std::vector<Input> seeds() {
    std::vector<Input> inputs;
    for (uint8_t form = 0; form < 4; form++) {
        Input all = {form, 100};
        for (const auto& sample : rdma_blk::wire::sample_messages()) {
            Input one = {form, 0};
            one.insert(one.end(), sample.bytes.begin(), sample.bytes.end());
            inputs.push_back(one);
            all.insert(all.end(), sample.bytes.begin(), sample.bytes.end());
        }
        inputs.push_back(all);
    }
    return inputs;
}

void repair(Input& input) {
    if (input.size() > 2) {
        Input message(input.begin() + 2, input.end());
        rdma_blk::wire::repair_checksum(message);
        std::copy(message.begin(), message.end(), input.begin() + 2);
    }
}

}  // namespace tiffin::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace tiffin;
    using namespace tiffin::rdma_blk;
    static const bool is_ready = initialize_cryptography().ok();
    TIFFIN_ASSERT(is_ready);
    static const std::unique_ptr<MessageReader> reader = MUST(MessageReader::create());
    fuzz::Bytes bytes(data, size);
    const uint8_t form = bytes.byte() % 4;
    const size_t piece_bytes = size_t{bytes.byte()} + 1;
    fuzz::Input stream = bytes.take_bytes(bytes.left());
    Secret<kSealKeyBytes> key;
    Seal sender(key);
    key.bytes[0] = form == sealed_by_a_stranger ? 1 : 0;
    Seal receiver(key);
    reader->reset();
    if (form >= sealed_by_a_stranger) {
        stream = seal_stream(stream, sender);
    }
    if (form != before_handshake) {
        reader->set_seal(&receiver, form >= sealed_by_a_stranger);
    }
    const Sockets sockets;
    fuzz::Input payload;
    for (size_t done = 0; done < stream.size(); done += piece_bytes) {
        const size_t count = std::min(piece_bytes, stream.size() - done);
        TIFFIN_ASSERT(send(sockets.ends[0], stream.data() + done, count, 0) ==
                      static_cast<ssize_t>(count));
        if (!read_all(*reader, sockets.ends[1], payload)) {
            break;
        }
    }
    return 0;
}
