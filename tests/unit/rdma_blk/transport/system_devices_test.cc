// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What needs RDMA devices on a machine, or in a build, that has none.
#include <gtest/gtest.h>

#include <string>

#include "rdma_blk/transport/verbs/verbs.h"
#include "tests/unit/rdma_blk/transport/client_fixture.h"

namespace tiffin::rdma_blk::test {
namespace {

TEST(SystemDevices, WhereThereAreNoneItIsSaidInOneLine) {
    std::string why;
    if (verbs::system_devices().exist(why)) {
        printf("not run: this machine has RDMA devices\n");
        return;
    }
    EXPECT_FALSE(why.empty());
    EXPECT_EQ(why.find('\n'), std::string::npos) << why;
    for (const TransportChoice transport : {TransportChoice::rc, TransportChoice::sdr}) {
        ClientFixture client;
        RemoteAddress address{"127.0.0.1", 1, transport};  // nobody is asked
        address.sdr.carrier = SdrCarrier::uc;
        const auto refused = open_remote_memory(address, client.options, &client.recorder,
                                                client.holder, client.problem);
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.error(), Error::eopnotsupp);
        EXPECT_EQ(client.problem, why);
    }
}

}  // namespace
}  // namespace tiffin::rdma_blk::test
