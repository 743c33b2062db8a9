// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Threads, time, chance and checksums.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "fs/vfs/host.h"

namespace tiffin::fuse {
namespace {

uint32_t crc_of(const std::string& text) { return host::crc32c(0, text.data(), text.size()); }

TEST(Crc32c, KnownVectors) {
    EXPECT_EQ(crc_of("123456789"), 0xe3069283U);
    EXPECT_EQ(crc_of(""), 0U);
    EXPECT_EQ(crc_of("a"), 0xc1d04330U);
    // RFC 3720, B.4.
    EXPECT_EQ(crc_of(std::string(32, '\0')), 0x8a9136aaU);
    EXPECT_EQ(crc_of(std::string(32, '\xff')), 0x62a8ab43U);
    std::string ascending;
    std::string descending;
    for (int i = 0; i < 32; ++i) {
        ascending += static_cast<char>(i);
        descending += static_cast<char>(31 - i);
    }
    EXPECT_EQ(crc_of(ascending), 0x46dd794eU);
    EXPECT_EQ(crc_of(descending), 0x113fdb5cU);
}

// One bit at a time, from the definition.
uint32_t slow_crc32c(const unsigned char* data, size_t size_bytes) {
    uint32_t crc = 0xffffffffU;
    for (size_t i = 0; i < size_bytes; ++i) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; ++bit) {
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0);
        }
    }
    return ~crc;
}

TEST(Crc32c, MatchesTheDefinitionAtAllLengthsAndAlignments) {
    std::vector<unsigned char> data(4200);
    uint32_t state = 1;
    for (unsigned char& byte : data) {
        state = state * 1664525 + 1013904223;
        byte = static_cast<unsigned char>(state >> 24);
    }
    for (size_t length = 0; length < 300; ++length) {
        const size_t start = length % 17;
        ASSERT_EQ(host::crc32c(0, &data[start], length), slow_crc32c(&data[start], length))
            << length;
    }
    EXPECT_EQ(host::crc32c(0, data.data(), 4096), slow_crc32c(data.data(), 4096));
}

TEST(Crc32c, Continues) {
    const char text[] = "123456789";
    for (size_t split = 0; split <= 9; ++split) {
        const uint32_t first = host::crc32c(0, text, split);
        EXPECT_EQ(host::crc32c(first, text + split, 9 - split), 0xe3069283U);
    }
}

TEST(Thread, RunsAndJoins) {
    struct Shared {
        std::atomic<bool> ran{false};
        char name[16] = {};
        bool signals_blocked = false;
    } shared;
    host::Thread thread;
    EXPECT_FALSE(thread.running());
    ASSERT_TRUE(thread
                    .start(
                        "a-name-that-is-too-long",
                        [](void* argument) {
                            auto* here = static_cast<Shared*>(argument);
                            pthread_getname_np(pthread_self(), here->name, sizeof here->name);
                            sigset_t blocked;
                            pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
                            here->signals_blocked = sigismember(&blocked, SIGTERM) == 1;
                            here->ran = true;
                        },
                        &shared)
                    .ok());
    EXPECT_TRUE(thread.running());
    thread.join();
    EXPECT_FALSE(thread.running());
    EXPECT_TRUE(shared.ran);
    EXPECT_STREQ(shared.name, "a-name-that-is-");
    EXPECT_TRUE(shared.signals_blocked);
    sigset_t here;
    pthread_sigmask(SIG_SETMASK, nullptr, &here);
    EXPECT_EQ(sigismember(&here, SIGTERM), 0) << "the starter's own signals are as before";
}

TEST(ThreadDeathTest, MustBeJoined) {
    EXPECT_DEATH(
        {
            host::Thread thread;
            (void)thread.start(
                "t", [](void*) {}, nullptr);
        },
        "assertion failed");
}

TEST(Time, MonotonicNeverGoesBack) {
    uint64_t last = host::monotonic_ns();
    for (int i = 0; i < 1000; ++i) {
        const uint64_t now = host::monotonic_ns();
        EXPECT_GE(now, last);
        last = now;
    }
    EXPECT_GT(host::realtime_ns(), int64_t{1600000000} * 1000000000);
}

TEST(RandomBytes, FillsTheWholeRangeAndNoMore) {
    std::vector<unsigned char> seen_nonzero(1000);
    // A byte that stays zero in 20 rounds was not written (probability of a wrong alarm: 2^-150).
    for (int round = 0; round < 20; ++round) {
        std::vector<unsigned char> buffer(1002, 0);
        host::random_bytes(&buffer[1], 1000);
        EXPECT_EQ(buffer[0], 0);
        EXPECT_EQ(buffer[1001], 0);
        for (size_t i = 0; i < 1000; ++i) {
            seen_nonzero[i] |= buffer[i + 1];
        }
    }
    for (unsigned char byte : seen_nonzero) {
        EXPECT_NE(byte, 0);
    }
    host::random_bytes(nullptr, 0);
}

TEST(ConcurrencyHint, IsSmall) { EXPECT_LT(host::concurrency_hint(), 100000U); }

}  // namespace
}  // namespace tiffin::fuse
