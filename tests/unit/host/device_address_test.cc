// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/device_address.h"

#include "tests/support/device_testing.h"

namespace tiffin::fuse {
namespace {

std::string problem_with(std::string_view text) {
    auto address = parse_device_address(text);
    return address.ok() ? "" : address.problem().text;
}

TEST(DeviceAddress, UnderstandsMemory) {
    auto address = parse_device_address("mem:64M");
    ASSERT_TRUE(address.ok());
    EXPECT_EQ(address->kind, DeviceAddress::Kind::memory);
    EXPECT_EQ(address->size_bytes, 64U << 20);
}

TEST(DeviceAddress, UnderstandsPaths) {
    for (const char* text : {"file:/tmp/image", "/tmp/image"}) {
        auto address = parse_device_address(text);
        ASSERT_TRUE(address.ok()) << text;
        EXPECT_EQ(address->kind, DeviceAddress::Kind::file);
        EXPECT_EQ(address->path, "/tmp/image");
    }
    EXPECT_EQ(parse_device_address("relative")->path, "relative");
    EXPECT_EQ(parse_device_address("file:mem:1G")->path, "mem:1G");
    EXPECT_EQ(parse_device_address("odd:name")->path, "odd:name");
    EXPECT_EQ(parse_device_address("file:a://b")->path, "a://b");
}

TEST(DeviceAddress, RefusesBadInput) {
    EXPECT_NE(problem_with("mem:").find("size is missing"), std::string::npos);
    EXPECT_NE(problem_with("mem:x").find("is not a size"), std::string::npos);
    EXPECT_NE(problem_with("mem:-1").find("is not a size"), std::string::npos);
    EXPECT_NE(problem_with("mem:0").find("too small"), std::string::npos);
    EXPECT_NE(problem_with("mem:4095").find("too small: write a size from 8M up"),
              std::string::npos);
    EXPECT_NE(problem_with("mem:8000000T").find("too large"), std::string::npos);
    EXPECT_NE(problem_with("mem:99999999999999999999").find("too large"), std::string::npos);
    EXPECT_NE(problem_with("").find("path of the device is missing"), std::string::npos);
    EXPECT_NE(problem_with("file:").find("path of the device is missing"), std::string::npos);
    EXPECT_NE(problem_with("nbd://host/disk").find("is not a device address"), std::string::npos);
    EXPECT_NE(problem_with("tiffin://host").find("name of the volume is missing"),
              std::string::npos);
    EXPECT_NE(problem_with(std::string_view("a\0b", 3)), "");
}

TEST(OpenDevice, OpensMemory) {
    auto device = open_device("mem:1M", {});
    ASSERT_TRUE(device.ok());
    EXPECT_EQ((*device)->geometry().size_bytes, 1U << 20);
    EXPECT_TRUE(write_bytes(**device, 0, Bytes(4096)).ok());
}

TEST(OpenDevice, OpensAndCreatesFiles) {
    TemporaryFolder folder;
    const std::string address = "file:" + folder.file("image");
    auto missing = open_device(address, {});
    ASSERT_FALSE(missing.ok());
    EXPECT_EQ(missing.problem().code, Error::enoent);
    {
        auto created = open_device(address, {false, 1 << 20});
        ASSERT_TRUE(created.ok());
        auto second = open_device(address, {});
        ASSERT_FALSE(second.ok());
        EXPECT_EQ(second.problem().code, Error::ebusy);
    }
    auto again = open_device(address, {true, 0});
    ASSERT_TRUE(again.ok());
    EXPECT_TRUE((*again)->geometry().read_only);
}

TEST(OpenDevice, PassesProblemsOn) {
    EXPECT_FALSE(open_device("mem:1000000T", {}).ok());
    EXPECT_FALSE(open_device("mem:abc", {}).ok());
    EXPECT_FALSE(open_device("/dev/null", {}).ok());
}

}  // namespace
}  // namespace tiffin::fuse
