// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What is wrong with a history is found: the tests of failover rely on it.
#include "tests/support/word_history.h"

#include <gtest/gtest.h>

namespace tiffin::test {
namespace {

constexpr uint64_t value_of(uint64_t version, uint32_t low) {
    return version * WordHistory::kStep + low;
}

TEST(WordHistoryTest, ChangesInAnyOrderAreOneHistory) {
    WordHistory history(value_of(7, 100));
    history.changed(value_of(8, 90), value_of(9, 95), 7);
    EXPECT_EQ(history.known_version(), 9U);
    history.changed(value_of(7, 100), value_of(8, 90), 7);
    history.seen(value_of(9, 95), 9);
    history.finished(value_of(9, 95));
    EXPECT_EQ(history.change_count(), 2U);
    EXPECT_TRUE(history.problems().empty()) << history.problems().front();
}

TEST(WordHistoryTest, ManyChangesNeedNoMoreThanTheWindow) {
    WordHistory history(0);
    for (uint64_t version = 0; version < 3 * WordHistory::kWindow; version++) {
        history.changed(value_of(version, 0), value_of(version + 1, 0), version);
    }
    history.finished(value_of(3 * WordHistory::kWindow, 0));
    EXPECT_TRUE(history.problems().empty()) << history.problems().front();
}

TEST(WordHistoryTest, FaultsAreFound) {
    const auto finds = [](auto play) {
        WordHistory history(0);
        play(history);
        return !history.problems().empty();
    };
    EXPECT_TRUE(finds([](WordHistory& history) {  // two were told the same
        history.changed(0, value_of(1, 5), 0);
        history.changed(0, value_of(1, 5), 0);
    }));
    EXPECT_TRUE(finds([](WordHistory& history) {  // another's value
        history.changed(0, value_of(1, 5), 0);
        history.changed(value_of(1, 6), value_of(2, 0), 0);
    }));
    EXPECT_TRUE(finds([](WordHistory& history) {  // an old value, after a newer one was known
        history.changed(0, value_of(1, 5), 0);
        history.seen(0, history.known_version());
    }));
    EXPECT_TRUE(finds([](WordHistory& history) {  // executed twice
        history.changed(0, value_of(1, 5), 0);
        history.finished(value_of(2, 10));
    }));
    EXPECT_TRUE(finds([](WordHistory& history) {  // lost
        history.changed(0, value_of(1, 5), 0);
        history.finished(0);
    }));
    EXPECT_TRUE(finds([](WordHistory& history) {  // nobody was told of one in the middle
        for (uint64_t version = 0; version < 2 * WordHistory::kWindow; version++) {
            if (version != 10) {
                history.changed(value_of(version, 0), value_of(version + 1, 0), version);
            }
        }
    }));
    EXPECT_TRUE(finds([](WordHistory& history) { history.seen(value_of(1 << 20, 0), 0); }));
}

}  // namespace
}  // namespace tiffin::test
