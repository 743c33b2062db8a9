// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The handshake: both ends agree on keys, strangers learn nothing and cost nothing, and nothing that was
// said can be changed on the way.
#include "rdma_blk/session/handshake.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <string>

namespace tiffin::rdma_blk {
namespace {

constexpr unsigned char kKey[kVolumeKeyBytes] = {1, 2, 3};
constexpr unsigned char kOtherKey[kVolumeKeyBytes] = {1, 2, 4};
constexpr unsigned char kClientUuid[16] = {7};
constexpr unsigned char kServerUuid[16] = {8};
constexpr unsigned char kAddress[] = {127, 0, 0, 1, 10, 20};
constexpr unsigned char kOtherAddress[] = {127, 0, 0, 1, 10, 21};
constexpr uint64_t kNow = 1'000'000'000'000;

class OneVolume final : public VolumeKeys {
  public:
    bool find_key(const char* volume_name, Secret<kVolumeKeyBytes>& key) const override {
        if (std::string("volume") != volume_name) {
            return false;
        }
        std::memcpy(key.bytes, kKey, sizeof(kKey));
        return true;
    }
};

class HandshakeTest : public ::testing::Test {
  protected:
    void SetUp() override { ASSERT_TRUE(initialize_cryptography().ok()); }

    static HandshakeClient client(const char* name = "volume", const unsigned char* key = kKey,
                                  uint16_t flags = 0) {
        return {key, name, kClientUuid, flags};
    }
    HandshakeServer server(uint16_t offered = wire::hello_flag::encrypt, uint16_t required = 0) {
        return {cookies_, volumes_, kServerUuid, offered, required};
    }
    // What read_hello() says about a client's second hello.
    Result<HelloAnswer> second_hello(HandshakeServer& server, HandshakeClient& client,
                                     wire::ServerHello& answer) {
        wire::HelloRetry retry{};
        auto first = server.read_hello(kNow, ByteSpan(kAddress), client.hello(), retry, answer);
        EXPECT_TRUE(first.ok() && *first == HelloAnswer::retry);
        EXPECT_TRUE(client.read_retry(retry).ok());
        return server.read_hello(kNow, ByteSpan(kAddress), client.hello(), retry, answer);
    }

    CookieJar cookies_;
    OneVolume volumes_;
};

TEST_F(HandshakeTest, BothEndsGetTheSameKeysAndNamesOfEachOther) {
    HandshakeClient one = client("volume", kKey, wire::hello_flag::encrypt);
    HandshakeServer other = server();
    wire::ServerHello hello{};
    ASSERT_TRUE(second_hello(other, one, hello).ok());
    EXPECT_FALSE(other.done());
    auto proof = one.read_server_hello(hello);
    ASSERT_TRUE(proof.ok());
    ASSERT_TRUE(other.read_client_proof(*proof).ok());
    EXPECT_TRUE(other.done());
    EXPECT_EQ(std::memcmp(&one.keys(), &other.keys(), offsetof(TrafficKeys, encrypts)), 0);
    EXPECT_TRUE(one.keys().encrypts && other.keys().encrypts);
    EXPECT_EQ(std::memcmp(one.server_uuid(), kServerUuid, 16), 0);
    EXPECT_EQ(std::memcmp(other.client_uuid(), kClientUuid, 16), 0);
    EXPECT_STREQ(other.volume_name(), "volume");
    EXPECT_EQ(one.flags(), wire::hello_flag::encrypt);
    EXPECT_EQ(other.flags(), wire::hello_flag::encrypt);
}

TEST_F(HandshakeTest, KeysDifferForEachConnectionAndUse) {
    std::set<std::string> keys;
    for (int round = 0; round < 3; round++) {
        HandshakeClient one = client();
        HandshakeServer other = server();
        wire::ServerHello hello{};
        ASSERT_TRUE(second_hello(other, one, hello).ok());
        ASSERT_TRUE(one.read_server_hello(hello).ok());
        const TrafficKeys& made = one.keys();
        for (const auto* key : {&made.seal_to_server, &made.seal_to_client, &made.tag_to_server,
                                &made.tag_to_client, &made.path_to_server, &made.path_to_client}) {
            keys.emplace(reinterpret_cast<const char*>(key->bytes), kSealKeyBytes);
        }
    }
    EXPECT_EQ(keys.size(), 18U);
}

TEST_F(HandshakeTest, RefusesAWrongKeyAndAnUnknownVolumeAlike) {
    for (HandshakeClient one : {client("volume", kOtherKey), client("other", kKey),
                                client("other", Secret<32>().bytes)}) {
        HandshakeServer other = server();
        wire::ServerHello hello{};
        auto answer = second_hello(other, one, hello);
        ASSERT_FALSE(answer.ok());
        EXPECT_EQ(answer.error(), Error::eacces);
        const wire::ServerHello nothing{};
        EXPECT_EQ(std::memcmp(&hello, &nothing, sizeof(hello)), 0);
    }
}

TEST_F(HandshakeTest, CookiesAreForOneAddressAndTime) {
    HandshakeClient one = client();
    wire::ClientHello hello = one.hello();
    cookies_.make(kNow, ByteSpan(kAddress), hello, hello.cookie);
    EXPECT_TRUE(cookies_.check(kNow, ByteSpan(kAddress), hello));
    EXPECT_TRUE(cookies_.check(kNow + CookieJar::kPeriodNs, ByteSpan(kAddress), hello));
    EXPECT_FALSE(cookies_.check(kNow + 2 * CookieJar::kPeriodNs, ByteSpan(kAddress), hello));
    EXPECT_FALSE(cookies_.check(kNow, ByteSpan(kOtherAddress), hello));
    EXPECT_FALSE(CookieJar().check(kNow, ByteSpan(kAddress), hello));
    hello.public_key[0] ^= 1;
    EXPECT_FALSE(cookies_.check(kNow, ByteSpan(kAddress), hello));
}

TEST_F(HandshakeTest, AServerWithoutTheKeyIsNotBelieved) {
    HandshakeClient one = client();
    HandshakeServer other = server();
    wire::ServerHello hello{};
    ASSERT_TRUE(second_hello(other, one, hello).ok());
    for (size_t byte = 0; byte < sizeof(hello); byte++) {
        HandshakeClient copy = one;
        wire::ServerHello changed = hello;
        reinterpret_cast<unsigned char*>(&changed)[byte] ^= 1;
        EXPECT_FALSE(copy.read_server_hello(changed).ok()) << "byte " << byte;
    }
    EXPECT_TRUE(one.read_server_hello(hello).ok());
}

TEST_F(HandshakeTest, NothingInTheSecondHelloCanBeChanged) {
    HandshakeClient one = client("volume", kKey, wire::hello_flag::encrypt);
    wire::HelloRetry retry{};
    cookies_.make(kNow, ByteSpan(kAddress), one.hello(), retry.cookie);
    ASSERT_TRUE(one.read_retry(retry).ok());
    for (size_t byte = 0; byte < sizeof(wire::ClientHello); byte++) {
        HandshakeServer other = server();
        wire::ClientHello changed = one.hello();
        reinterpret_cast<unsigned char*>(&changed)[byte] ^= 1;
        wire::ServerHello answer{};
        auto said = other.read_hello(kNow, ByteSpan(kAddress), changed, retry, answer);
        EXPECT_TRUE(!said.ok() || *said == HelloAnswer::retry) << "byte " << byte;
    }
}

TEST_F(HandshakeTest, AClientWithoutTheKeyIsNotBelieved) {
    HandshakeClient one = client();
    HandshakeServer other = server();
    wire::ServerHello hello{};
    ASSERT_TRUE(second_hello(other, one, hello).ok());
    const wire::ClientProof proof = one.read_server_hello(hello).value();
    for (size_t byte = 0; byte < sizeof(proof); byte++) {
        HandshakeServer copy = other;
        wire::ClientProof changed = proof;
        reinterpret_cast<unsigned char*>(&changed)[byte] ^= 1;
        EXPECT_FALSE(copy.read_client_proof(changed).ok()) << "byte " << byte;
        EXPECT_FALSE(copy.done());
        EXPECT_FALSE(copy.read_client_proof(proof).ok()) << "one attempt only";
    }
}

TEST_F(HandshakeTest, APublicKeyOfZerosIsRefused) {
    HandshakeClient one = client();
    HandshakeServer other = server();
    wire::ServerHello hello{};
    ASSERT_TRUE(second_hello(other, one, hello).ok());
    std::memset(hello.public_key, 0, sizeof(hello.public_key));
    auto proof = one.read_server_hello(hello);
    ASSERT_FALSE(proof.ok());
    EXPECT_EQ(proof.error(), Error::eacces);
}

TEST_F(HandshakeTest, SealingIsGrantedWhenAskedForAndDemandedWhenRequired) {
    HandshakeClient asks = client("volume", kKey, wire::hello_flag::encrypt);
    HandshakeServer cannot = server(0, 0);
    wire::ServerHello hello{};
    ASSERT_TRUE(second_hello(cannot, asks, hello).ok());
    EXPECT_FALSE(asks.read_server_hello(hello).ok());
    HandshakeClient does_not_ask = client();
    HandshakeServer demands = server(wire::hello_flag::encrypt, wire::hello_flag::encrypt);
    auto answer = second_hello(demands, does_not_ask, hello);
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error(), Error::eproto);
}

TEST_F(HandshakeTest, MessagesOutOfTurnAreRefused) {
    HandshakeClient one = client();
    EXPECT_FALSE(one.read_server_hello(wire::ServerHello{}).ok());
    EXPECT_TRUE(one.read_retry(wire::HelloRetry{}).ok());
    EXPECT_FALSE(one.read_retry(wire::HelloRetry{}).ok());
    HandshakeServer other = server();
    EXPECT_FALSE(other.read_client_proof(wire::ClientProof{}).ok());
}

}  // namespace
}  // namespace tiffin::rdma_blk
