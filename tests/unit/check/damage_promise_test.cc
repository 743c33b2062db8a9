// SPDX-License-Identifier: MIT OR GPL-2.0-only
// fsck's promise, at random: of a populated volume with damage each file afterwards is intact, or an error, or named
// as damaged; before and after a mount in between. See damage_trial.h. Every failure names a seed that repeats it.
#include <gtest/gtest.h>

#include <string>

#include "fuse/host/log_sink.h"
#include "tests/support/damage_trial.h"
#include "tests/support/test_size.h"

namespace tiffin::check {
namespace {

TEST(DamagePromise, EachFileIsIntactOrNamed) {
    fuse::CapturedLog log;  // what is damaged on purpose is in the log many times
    test::DamageTrials trials;
    const uint64_t count = test::test_size(250, 40);
    for (uint64_t seed = test::first_seed(); seed < test::first_seed() + count; ++seed) {
        test::RandomChoices choices(seed);
        EXPECT_EQ(trials.run(choices), "") << "seed " << seed;
    }
    const test::DamageTrials::Met& met = trials.met();
    EXPECT_GT(met.intact, 0U);
    EXPECT_GT(met.errors, 0U);
    if (!test::is_reduced()) {
        EXPECT_GT(met.missing, 0U);
        EXPECT_GT(met.named, 0U);
        EXPECT_GT(met.refused, 0U);
    }
}

}  // namespace
}  // namespace tiffin::check
