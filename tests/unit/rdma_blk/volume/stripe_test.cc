// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/unit/rdma_blk/volume/device_fixture.h"

namespace tiffin::rdma_blk {
namespace {

TEST(StripeMap, EveryByteHasItsOwnPlace) {
    for (const uint32_t servers : {1U, 2U, 3U, 5U, 16U}) {
        const StripeMap map(servers, 4096);
        const uint64_t smallest = 10 * 4096 + 512;
        const uint64_t size = map.size_bytes(smallest);
        EXPECT_EQ(size, servers == 1 ? smallest : 10 * 4096 * uint64_t{servers});
        std::map<std::pair<uint32_t, uint64_t>, uint64_t> seen;
        for (uint64_t offset = 0; offset < size; offset += 512) {
            const StripeMap::Place place = map.find(offset);
            EXPECT_LT(place.server, servers);
            EXPECT_LE(place.offset_bytes + 512, smallest);
            EXPECT_GE(place.contiguous_bytes, 512U);
            EXPECT_TRUE(seen.insert({{place.server, place.offset_bytes}, offset}).second);
        }
    }
}

TEST(StripeMap, ContiguousBytesLieSideBySide) {
    const StripeMap map(3, 4096);
    for (uint64_t offset = 0; offset < 64 << 10; offset += 1024) {
        const StripeMap::Place place = map.find(offset);
        const StripeMap::Place last = map.find(offset + place.contiguous_bytes - 1);
        EXPECT_EQ(last.server, place.server);
        EXPECT_EQ(last.offset_bytes, place.offset_bytes + place.contiguous_bytes - 1);
        EXPECT_NE(map.find(offset + place.contiguous_bytes).server, place.server);
    }
}

TEST(Stripe, TheFirstOpeningDecidesAndTheLastWordIsOnTheServers) {
    TestVolume volume(3, 1 << 20);
    {
        auto device = volume.open({.write = true, .stripe_bytes = 8192});
        ASSERT_NE(device, nullptr) << volume.problem;
        EXPECT_EQ(device->geometry().size_bytes, 3U << 20);
        ASSERT_TRUE(fuse::write_bytes(*device, 0, fuse::pattern(1 << 20, 1)).ok());
    }
    auto device = volume.open();
    ASSERT_NE(device, nullptr) << volume.problem;
    EXPECT_EQ(device->stripe().stripe_bytes(), 8192U);
    EXPECT_EQ(fuse::read_bytes(*device, 0, 1 << 20), fuse::pattern(1 << 20, 1));
}

TEST(Stripe, WhatIsNotTheVolumeIsRefused) {
    TestVolume volume(3, 1 << 20);
    ASSERT_NE(volume.open({.write = true, .stripe_bytes = 8192}), nullptr);
    const auto refused = [&](std::vector<size_t> order, uint64_t stripe_bytes, const char* text) {
        volume.order = std::move(order);
        EXPECT_EQ(volume.open({.stripe_bytes = stripe_bytes}), nullptr);
        EXPECT_NE(volume.problem.find(text), std::string::npos) << volume.problem;
    };
    refused({0, 2, 1}, 0, "server2 is server 3 of the volume, not server 2");
    refused({0, 1}, 0, "is one of 3, and 2 servers are given");
    refused({2}, 0, "is one of 3, and 1 server is given");
    refused({0, 1, 1}, 0, "are the same server");
    refused({0, 1, 2}, 4096, "was made with stripe=8192");
    volume.servers.push_back(std::make_unique<test::LocalServer>(1 << 20, 3));
    refused({0, 1, 3}, 0, "does not belong to the one on server0");
}

TEST(Stripe, AServerThatLostItsContentIsRefused) {
    TestVolume volume(2, 1 << 20);
    ASSERT_NE(volume.open(), nullptr);
    volume.servers[1]->lose_power();
    EXPECT_EQ(volume.open(), nullptr);
    EXPECT_NE(volume.problem.find("server1 has lost its content"), std::string::npos)
        << volume.problem;
}

TEST(Stripe, AServerWithADiskMayLoseItsWords) {
    TestVolume volume(2, 1 << 20, Durability::power);
    ASSERT_NE(volume.open({.write = true, .stripe_bytes = 4096}), nullptr);
    volume.servers[0]->forgets_words = true;
    volume.servers[1]->forgets_words = true;
    volume.servers[1]->lose_power();
    auto device = volume.open();
    ASSERT_NE(device, nullptr) << volume.problem;
    EXPECT_EQ(device->stripe().stripe_bytes(), 4096U);
    device.reset();
    // They were written again.
    volume.servers[0]->lose_power();
    ASSERT_NE(volume.open(), nullptr) << volume.problem;
}

TEST(Stripe, AnOpeningThatWasCutOffIsCompleted) {
    for (uint64_t writes = 0; writes < 6; ++writes) {
        TestVolume volume(3, 1 << 20);
        uint64_t left = writes;
        bool cut = false;
        RemoteDeviceOptions options{.name = "volume", .write = true, .stripe_bytes = 8192};
        std::vector<ServerToOpen> to_open;
        for (size_t i = 0; i < 3; ++i) {
            to_open.push_back(
                {"server",
                 [&, i](ConnectionListener& listener,
                        std::string&) -> Result<std::unique_ptr<RemoteMemory>> {
                     test::LocalMemory::Options copy;
                     copy.may_write = false;
                     auto memory =
                         std::make_unique<test::LocalMemory>(*volume.servers[i], copy, &listener);
                     memory->set_judge([&](const Operation& operation)
                                           -> std::optional<test::LocalMemory::Fault> {
                         if (operation.kind != OperationKind::write) {
                             return std::nullopt;
                         }
                         if (left == 0) {
                             cut = true;
                             return test::LocalMemory::Fault{};
                         }
                         --left;
                         return std::nullopt;
                     });
                     return std::unique_ptr<RemoteMemory>(std::move(memory));
                 }});
        }
        std::string problem;
        EXPECT_FALSE(RemoteBlockDevice::open(std::move(to_open), options, problem).ok());
        EXPECT_TRUE(cut);
        auto device = volume.open({.write = true, .stripe_bytes = writes < 4 ? 4096U : 0U});
        ASSERT_NE(device, nullptr) << writes << ": " << volume.problem;
        EXPECT_EQ(device->stripe().stripe_bytes(), writes < 4 ? 4096U : 8192U);
    }
}

TEST(Stripe, RefusalsNameTheLayout) {
    TestVolume volume(2, 1 << 20);
    ASSERT_NE(volume.open({.write = true, .stripe_bytes = 8192}), nullptr);
    volume.order = {1, 0};
    EXPECT_EQ(volume.open(), nullptr);
    EXPECT_NE(
        volume.problem.find("it consists of server0, server1, in this order, with stripe=8192"),
        std::string::npos)
        << volume.problem;
    volume.order = {0};
    EXPECT_EQ(volume.open(), nullptr);
    EXPECT_NE(volume.problem.find("it consists of server0, the server of the volume with UUID "),
              std::string::npos)
        << volume.problem;
}

TEST(Stripe, WhatNobodyKnowsIsOnlyRead) {
    StripeFinding findings[2];
    findings[0].name = "one";
    findings[1].name = "two";
    findings[1].member.server_uuid[0] = 1;
    findings[1].words_unknown = true;
    const Span<const StripeFinding> both(findings, 2);
    std::string problem;
    EXPECT_EQ(judge_stripe(both, 0, false, problem).error(), Error::einval);
    EXPECT_EQ(judge_stripe(both, 8192, true, problem).error(), Error::erofs);
    EXPECT_NE(problem.find("the volume on two"), std::string::npos) << problem;
    EXPECT_EQ(judge_stripe(both, 8192, false, problem).value().stripe_bytes, 8192U);
    EXPECT_TRUE(judge_stripe(Span<const StripeFinding>(findings + 1, 1), 0, true, problem).ok());
    findings[1].words_unknown = false;  // new volumes
    EXPECT_TRUE(judge_stripe(both, 0, true, problem).ok());
}

TEST(Stripe, ADamagedDescriptionIsRefused) {
    TestVolume volume(1, 1 << 20);
    ASSERT_NE(volume.open(), nullptr);
    volume.servers[0]->control[8192 + 40] ^= 1;
    EXPECT_EQ(volume.open(), nullptr);
    EXPECT_EQ(volume.error, EIO);
    EXPECT_NE(volume.problem.find("is damaged"), std::string::npos) << volume.problem;
}

}  // namespace
}  // namespace tiffin::rdma_blk
