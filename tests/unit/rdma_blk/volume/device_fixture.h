// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A block device on servers that are objects of the test.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "rdma_blk/volume/remote_block_device.h"
#include "tests/support/device_testing.h"
#include "tests/support/local_memory.h"

namespace tiffin::rdma_blk {

// Servers, and the sessions of the device that was opened last.
struct TestVolume {
    TestVolume(size_t server_count, uint64_t data_bytes,
               Durability durability = Durability::process) {
        for (size_t i = 0; i < server_count; ++i) {
            servers.push_back(std::make_unique<test::LocalServer>(data_bytes, i));
            servers.back()->geometry.durability = durability;
            order.push_back(i);
        }
    }

    // Through the servers of `order`; `problem` says why not.
    std::unique_ptr<RemoteBlockDevice> open(RemoteDeviceOptions options = {.write = true}) {
        memories.clear();
        options.name = "volume";
        std::vector<ServerToOpen> to_open;
        for (const size_t index : order) {
            to_open.push_back(
                {"server" + std::to_string(index),
                 [this, index](ConnectionListener& listener,
                               std::string&) -> Result<std::unique_ptr<RemoteMemory>> {
                     test::LocalMemory::Options copy = memory_options;
                     copy.may_write = false;
                     copy.seed += static_cast<uint32_t>(index);
                     auto memory =
                         std::make_unique<test::LocalMemory>(*servers[index], copy, &listener);
                     memories.push_back(memory.get());
                     return std::unique_ptr<RemoteMemory>(std::move(memory));
                 }});
        }
        problem.clear();
        auto device = RemoteBlockDevice::open(std::move(to_open), options, problem);
        error = device.ok() ? 0 : errno_value(device.error());
        return device.ok() ? std::move(device.value()) : nullptr;
    }

    test::LocalMemory::Options memory_options;
    std::vector<std::unique_ptr<test::LocalServer>> servers;
    std::vector<size_t> order;
    std::vector<test::LocalMemory*> memories;  // by their place in `order`
    std::string problem;
    int error = 0;
};

}  // namespace tiffin::rdma_blk
