// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/memory_device.h"

#include "tests/support/device_testing.h"

namespace tiffin::fuse {
namespace {

std::unique_ptr<MemoryDevice> make_device(uint64_t size_bytes, bool read_only = false) {
    auto device = MemoryDevice::create(size_bytes, read_only);
    EXPECT_TRUE(device.ok());
    return device.ok() ? std::move(*device) : nullptr;
}

TEST(MemoryDevice, KeepsTheContract) {
    auto device = make_device(4 << 20);
    ASSERT_NE(device, nullptr);
    EXPECT_EQ(device->geometry().write_unit_bytes, 64U);
    EXPECT_FALSE(device->geometry().volatile_cache);
    EXPECT_NE(device->direct_address(0, 1), nullptr);
    check_device_contract(*device);
}

TEST(MemoryDevice, TakesRequestsFromManyThreads) {
    auto device = make_device(4 << 20);
    ASSERT_NE(device, nullptr);
    check_concurrent_submits(*device);
}

TEST(MemoryDevice, CompletesWithinSubmit) {
    auto device = make_device(1 << 20);
    ASSERT_NE(device, nullptr);
    bool completed = false;
    vfs::IoRequest request;
    request.operation = vfs::IoOperation::discard;
    request.length_bytes = 4096;
    request.owner = &completed;
    request.complete = [](vfs::IoRequest& done, Result<void> result) {
        *static_cast<bool*>(done.owner) = result.ok();
    };
    device->submit(request);
    EXPECT_TRUE(completed);
}

TEST(MemoryDevice, DiscardedPagesReadAsZeros) {
    auto device = make_device(1 << 20);
    ASSERT_NE(device, nullptr);
    const Bytes bytes = pattern(16384, 1);
    ASSERT_TRUE(write_bytes(*device, 0, bytes).ok());
    ASSERT_TRUE(device->discard(64, 12288).ok());
    EXPECT_EQ(read_bytes(*device, 0, 4096), Bytes(bytes.begin(), bytes.begin() + 4096));
    EXPECT_EQ(read_bytes(*device, 4096, 8192), Bytes(8192));
    EXPECT_EQ(read_bytes(*device, 12288, 4096), Bytes(bytes.begin() + 12288, bytes.end()));
}

TEST(MemoryDevice, RefusesChangesWhenReadOnly) {
    auto device = make_device(1 << 20, true);
    ASSERT_NE(device, nullptr);
    EXPECT_TRUE(device->geometry().read_only);
    EXPECT_EQ(error_of(write_bytes(*device, 0, Bytes(64))), EROFS);
    EXPECT_EQ(error_of(device->discard(0, 4096)), EROFS);
    EXPECT_EQ(read_bytes(*device, 0, 64), Bytes(64));
    EXPECT_TRUE(device->flush().ok());
}

TEST(MemoryDevice, ChecksItsSize) {
    EXPECT_FALSE(MemoryDevice::create(0).ok());
    EXPECT_FALSE(MemoryDevice::create(4095).ok());
    EXPECT_FALSE(MemoryDevice::create(UINT64_MAX).ok());
    EXPECT_FALSE(MemoryDevice::create(uint64_t{1} << 60).ok());
    auto odd = make_device(10000);
    ASSERT_NE(odd, nullptr);
    EXPECT_EQ(odd->geometry().size_bytes, 8192U);
}

}  // namespace
}  // namespace tiffin::fuse
