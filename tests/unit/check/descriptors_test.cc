// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Programs that are started with standard descriptors closed, or with a descriptor that nobody opened:
// what they print must not go to the device, which would get that number.
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/check/tools_support.h"

namespace tiffin::check {
namespace {

constexpr const char* kClosed[] = {"0<&-", "1>&-", "2>&-", "1>&- 2>&-", "0<&- 1>&- 2>&-"};

class Descriptors : public Tools {
  protected:
    // Runs a program in all these ways and expects that the image stays as it is.
    void expect_untouched(const std::string& name, const std::string& arguments, int status) {
        const std::string before = content();
        for (const char* closed : kClosed) {
            const Outcome outcome = run_shell(program(name) + " " + arguments + " 2>&1 " + closed);
            EXPECT_EQ(outcome.status, status) << name << " " << closed << ": " << outcome.output;
            EXPECT_TRUE(content() == before) << name << " " << arguments << " " << closed;
        }
    }
};

TEST_F(Descriptors, MkfsThatFails) {
    make();
    expect_untouched("mkfs.tiffin", "-f -J 60M " + image_, 1);
    expect_untouched("mkfs.tiffin", image_, 1);
}

TEST_F(Descriptors, FsckOfAVolumeWithoutSuperblocks) {
    make_empty(64U << 20);
    expect_untouched("fsck.tiffin", "-y -v " + image_, 8);
}

TEST_F(Descriptors, FsckOfASoundVolume) {
    make();
    expect_untouched("fsck.tiffin", "-y -f -v -C " + image_, 0);
}

TEST_F(Descriptors, MountOfWhatIsNoVolume) {
    make_empty(64U << 20);
    expect_untouched("mount.tiffin", image_ + " " + folder_, 32);
}

TEST_F(Descriptors, TiffinOfWhatIsNoVolume) {
    make_empty(64U << 20);
    expect_untouched("tiffin", "info " + image_, 1);
}

TEST_F(Descriptors, ProgressGoesOnlyWhereSomebodyReadsIt) {
    make();
    const std::string before = content();
    for (int descriptor = 3; descriptor < 10; ++descriptor) {
        const std::string number = std::to_string(descriptor);
        const Outcome outcome = run_shell(program("fsck.tiffin") + " -y -f -C " + number + " " +
                                          image_ + " 2>&1 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-");
        EXPECT_EQ(outcome.status, 16) << outcome.output;
        expect_contains(outcome, "descriptor " + number + " is not open");
        EXPECT_TRUE(content() == before) << descriptor;
    }
}

}  // namespace
}  // namespace tiffin::check
