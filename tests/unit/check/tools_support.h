// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What the tests of the programs share: running one, and an image to run it on.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "fuse/host/device_address.h"
#include "tests/support/test_volume.h"

namespace tiffin::check {

struct Outcome {
    int status = -1;
    std::string output;  // standard output and standard error, where the command leaves them open
};

// The path of a program. Programs are built beside the tests: BUILD/bin and BUILD/tests.
std::string program(const std::string& name);
// Runs a line of shell.
Outcome run_shell(const std::string& line);
// Runs a program, with nothing on its standard input.
Outcome run(const std::string& name, const std::string& arguments);

void expect_contains(const Outcome& outcome, const std::string& text);

class Tools : public testing::Test {
  protected:
    void SetUp() override;
    void TearDown() override;

    // Makes a file system of 64 MiB in a new image.
    void make();
    // Makes the image anew, with nothing in it.
    void make_empty(uint64_t size_bytes);
    // Changes a byte of the image.
    void damage(uint64_t offset);
    void put_text(uint64_t offset, const std::string& text);
    // All that the image holds.
    std::string content() const;
    // Of the image as it is; what comes of a success is given up.
    Result<void> try_mount();

    template <typename Use>
    void with_volume(Use use) {
        auto device = fuse::open_device(image_, {});
        ASSERT_TRUE(device.ok()) << device.problem().text;
        test::TestVolume volume(**device);
        ASSERT_TRUE(volume.mount().ok());
        use(volume);
    }

    std::string folder_;
    std::string image_;
};

}  // namespace tiffin::check
