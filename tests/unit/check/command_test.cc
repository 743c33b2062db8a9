// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffin as a program: what it says to those who mistype a command.
#include "tests/unit/check/tools_support.h"

namespace tiffin::check {
namespace {

TEST_F(Tools, TheNearestCommandIsNamed) {
    for (const char* line : {"scub", "scub /mnt", "srcub /mnt", "scrubb --quiet"}) {
        const Outcome outcome = run("tiffin", line);
        EXPECT_EQ(outcome.status, 2);
        expect_contains(outcome, "did you mean \"scrub\"? (see tiffin --help)");
    }
    expect_contains(run("tiffin", "scub /mnt"), "there is no command \"scub\"");
    expect_contains(run("tiffin", "volume crate books 1G"),
                    "there is no command \"crate\": did you mean \"create\"? (see tiffin volume");
    expect_contains(run("tiffin", "volume create --key books 1G"), "(see tiffin volume create");
}

TEST_F(Tools, OfOtherMistakesNoCommandIsGuessed) {
    expect_contains(run("tiffin", "defragment"),
                    "there is no command \"defragment\" (see tiffin --help)");
    expect_contains(run("tiffin", ""), "A subcommand is required (see tiffin --help)");
    expect_contains(run("tiffin", "volume"), "A subcommand is required (see tiffin volume --help)");
    expect_contains(run("tiffin", "scrub"), "MOUNTPOINT is required (see tiffin scrub --help)");
    expect_contains(run("tiffin", "--quite scrub"), "(see tiffin");
}

}  // namespace
}  // namespace tiffin::check
