// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The handshake at both ends, with somebody between them who changes messages, makes up others, and sends them at any
// time. An end that is done has the same keys as the other one, and the server is done only with who knows the key.
//
// Input: steps: a byte, what it says; a message of the other end is followed by three bytes, which of its bytes
// changes (two of them) and by what (0: none).
#include <cstring>

#include "fs/vfs/host.h"
#include "rdma_blk/session/handshake.h"
#include "rdma_blk/wire/parse.h"
#include "tests/fuzz/fuzz_target.h"

namespace tiffin::rdma_blk {
namespace {

enum Step : uint8_t {
    hello,
    answer,
    proof,
    false_hello,
    false_retry,
    false_answer,
    false_proof,
    step_count
};

class OneVolume final : public VolumeKeys {
  public:
    static constexpr unsigned char kKey[kVolumeKeyBytes] = {1, 2, 3};

    bool find_key(const char* volume_name, Secret<kVolumeKeyBytes>& key) const override {
        std::memcpy(key.bytes, kKey, sizeof(kKey));
        return std::strcmp(volume_name, "volume") == 0;
    }
};

class Ends {
  public:
    void step(fuzz::Bytes& bytes) {
        switch (bytes.byte() % step_count) {
            case hello:
                give_hello(changed(client_.hello(), bytes));
                break;
            case answer:
                give_answer(bytes);
                break;
            case proof:
                (void)server_.read_client_proof(changed(proof_, bytes)).ok();
                break;
            case false_hello:
                give_hello(bytes.take<wire::ClientHello>());
                break;
            case false_retry:
                (void)client_.read_retry(bytes.take<wire::HelloRetry>()).ok();
                break;
            case false_answer:
                take_server_hello(bytes.take<wire::ServerHello>());
                break;
            default:
                (void)server_.read_client_proof(bytes.take<wire::ClientProof>()).ok();
        }
        if (server_.done()) {
            TIFFIN_ASSERT(client_is_done_);
            TIFFIN_ASSERT(std::memcmp(&server_.keys(), &client_.keys(), sizeof(TrafficKeys)) == 0);
            TIFFIN_ASSERT(std::strcmp(server_.volume_name(), "volume") == 0);
        }
    }

  private:
    template <typename T>
    static T changed(T message, fuzz::Bytes& bytes) {
        const auto place = bytes.take<uint16_t>();
        reinterpret_cast<unsigned char*>(&message)[place % sizeof(T)] ^= bytes.byte();
        return message;
    }

    // As the parser lets it through.
    void give_hello(const wire::ClientHello& message) {
        const ByteSpan fixed(reinterpret_cast<const unsigned char*>(&message), sizeof(message));
        const auto header = wire::make_header(wire::MessageType::client_hello, 0, fixed, 0);
        auto parsed = wire::parse_client_hello(header, fixed);
        if (!parsed.ok()) {
            return;
        }
        const unsigned char address[6] = {127, 0, 0, 1, 1, 2};
        auto answered = server_.read_hello(1, ByteSpan(address, sizeof(address)), *parsed, retry_,
                                           server_hello_);
        has_retry_ = answered.ok() && *answered == HelloAnswer::retry;
        has_server_hello_ = answered.ok() && *answered == HelloAnswer::accepted;
    }

    void give_answer(fuzz::Bytes& bytes) {
        if (has_retry_) {
            (void)client_.read_retry(changed(retry_, bytes)).ok();
        } else if (has_server_hello_) {
            take_server_hello(changed(server_hello_, bytes));
        }
    }

    void take_server_hello(const wire::ServerHello& message) {
        auto proven = client_.read_server_hello(message);
        if (proven.ok()) {
            proof_ = *proven;
            client_is_done_ = true;
        }
    }

    static constexpr unsigned char kUuid[16] = {7};

    OneVolume volumes_;
    CookieJar cookies_;
    HandshakeClient client_{OneVolume::kKey, "volume", kUuid, 0};
    HandshakeServer server_{cookies_, volumes_, kUuid, 0, 0};
    wire::HelloRetry retry_{};
    wire::ServerHello server_hello_{};
    wire::ClientProof proof_{};
    bool has_retry_ = false;
    bool has_server_hello_ = false;
    bool client_is_done_ = false;
};

}  // namespace
}  // namespace tiffin::rdma_blk

namespace tiffin::fuzz {

std::vector<Input> seeds() {
    using namespace rdma_blk;
    const Input whole = {hello, 0, 0,      0, answer, 0, 0,     0, hello, 0,
                         0,     0, answer, 0, 0,      0, proof, 0, 0,     0};
    Input changed_proof = whole;
    changed_proof.back() = 1;
    const Input early = {proof, 0, 0, 0, answer, 0, 0, 0, hello, 0, 0, 0, false_answer, 1, 2, 3};
    return {whole, changed_proof, early};
}

void repair(Input&) {}

}  // namespace tiffin::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace tiffin;
    static const bool is_ready = rdma_blk::initialize_cryptography().ok();
    TIFFIN_ASSERT(is_ready);
    fuzz::Bytes bytes(data, size);
    rdma_blk::Ends ends;
    for (int steps = 0; steps < 12 && bytes.left() > 0; steps++) {
        ends.step(bytes);
    }
    return 0;
}
