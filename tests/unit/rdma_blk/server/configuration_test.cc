// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffind's configuration: what is taken, and where mistakes are said to be.
#include "rdma_blk/server/configuration.h"

#include <gtest/gtest.h>

#include <random>

namespace tiffin::rdma_blk {
namespace {

std::string problem_with(const std::string& text) {
    Configuration configuration;
    std::string problem;
    const bool ok = parse_configuration(text, "file", configuration, problem);
    EXPECT_EQ(ok, problem.empty());
    return problem;
}

TEST(Configuration, AllKeysAreTaken) {
    Configuration c;
    std::string problem;
    ASSERT_TRUE(parse_configuration(R"(
listen = ["127.0.0.1:1", "[::1]:65535"]
threads = 4
memory_limit = "1G"
huge_pages = "no"
lock_memory = "require"
max_connections = 16384
max_sessions = 4096
slots = 1024
busy_poll_us = 1000
cpu_latency_us = 0
staging_bytes = "2M"
send_buffer_bytes = 65536
handshake_timeout_ms = 100
max_handshakes = 1
probe_interval_ms = 50
lease_timeout_s = 3600
stall_timeout_s = 1
shm_fencing = "refuse"
sdr_port = 65535
max_sdr_sessions = 0
sdr_landing_slots = 64
metrics = ""
state_directory = "/s"
runtime_directory = "/r"
[volume.first]
size = "64M"
[volume."second.one"]
size = 8192
backing = "/dev/sdx"
words_bytes = 8192
)",
                                    "file", c, problem))
        << problem;
    ASSERT_EQ(c.listen.size(), 2U);
    EXPECT_EQ(c.listen[1].host, "::1");
    EXPECT_EQ(c.listen[1].port, 65535);
    EXPECT_EQ(c.memory_limit_bytes, uint64_t{1} << 30);
    EXPECT_EQ(c.lock_memory, Wish::require);
    EXPECT_EQ(c.slots, 1024);
    EXPECT_EQ(c.busy_poll_us, 1000U);
    EXPECT_EQ(c.cpu_latency_us, 0U);
    EXPECT_FALSE(c.shm_kills);
    EXPECT_EQ(c.sdr_port, 65535);
    EXPECT_EQ(c.max_sdr_sessions, 0U);
    EXPECT_EQ(c.sdr_landing_slots, 64);
    EXPECT_EQ(c.volumes["first"].size_bytes, 64U << 20);
    EXPECT_EQ(c.volumes["second.one"].backing, "/dev/sdx");
}

TEST(Configuration, MistakesAreNamedWithTheirLine) {
    EXPECT_EQ(problem_with("threads = 2\nthread = 3\n"), "file:2: thread is not known");
    EXPECT_EQ(problem_with("\n\nthreads = 0\n"), "file:3: threads must be a number from 1 to 256");
    EXPECT_EQ(problem_with("threads = -1\n"), "file:1: threads must be a number from 1 to 256");
    EXPECT_EQ(problem_with("threads = \"2\"\n"), "file:1: threads must be a number from 1 to 256");
    EXPECT_EQ(problem_with("slots = 1025\n").rfind("file:1: slots must be", 0), 0U);
    EXPECT_EQ(problem_with("huge_pages = true\n"), "file:1: huge_pages must be a text in quotes");
    EXPECT_EQ(problem_with("huge_pages = \"yes\"\n"),
              "file:1: huge_pages must be \"no\", \"try\" or \"require\"");
    EXPECT_EQ(problem_with("listen = \"host:4847\"\n").rfind("file:1: listen", 0), 0U);
    EXPECT_EQ(problem_with("sdr_landing_slots = 65\n"),
              "file:1: sdr_landing_slots must be a number from 1 to 64");
    EXPECT_EQ(problem_with("listen = []\n"), "file:1: listen must have 1 to 16 addresses");
    EXPECT_EQ(problem_with("listen = [\"[::]:1\", \"127.0.0.1:1\", \"[::]:1\"]\n"),
              "file:1: listen has an address twice");
    EXPECT_EQ(problem_with("listen = \"[::]:1\"\nmetrics = \"[::]:1\"\n"),
              "file:1: metrics has an address that listen has, too");
    EXPECT_EQ(problem_with("[volume.a]\nsize = 4096\nbacking = \"/x\"\n"
                           "[volume.b]\nsize = 4096\nbacking = \"/x\"\n"),
              "file:1: the volumes a and b have the same backing");
    EXPECT_EQ(problem_with("state_directory = \"x\"\n"),
              "file:1: state_directory must be an absolute path");
    EXPECT_EQ(problem_with("[volume.a]\nsizes = 1\n"), "file:2: volume.a.sizes is not known");
    EXPECT_EQ(problem_with("threads = 1\n[volume.a]\n"), "file:2: volume.a.size is missing");
    EXPECT_EQ(problem_with("[volume.a]\nsize = 5000\n"),
              "file:1: volume.a: sizes must be multiples of 4096");
    EXPECT_EQ(problem_with("[volume.\"a/b\"]\nsize = 4096\n").rfind("file:1: volume.a/b", 0), 0U);
    EXPECT_EQ(problem_with("threads = \n").rfind("file:1: ", 0), 0U);
}

TEST(Configuration, ALeaseOutlastsTheSilenceOfALivingClient) {
    const std::string rule = "lease_timeout_s must be at least 14 times probe_interval_ms: ";
    EXPECT_EQ(problem_with("lease_timeout_s = 13\n"), "file:1: " + rule + "14");
    EXPECT_EQ(problem_with("lease_timeout_s = 14\n"), "");
    EXPECT_EQ(problem_with("probe_interval_ms = 4286\n"), "file:1: " + rule + "61");
    EXPECT_EQ(problem_with("probe_interval_ms = 4285\n"), "");
    EXPECT_EQ(problem_with("probe_interval_ms = 50\nlease_timeout_s = 1\n"), "");
    EXPECT_EQ(problem_with("probe_interval_ms = 60000\nlease_timeout_s = 839\n"),
              "file:2: " + rule + "840");
}

TEST(Configuration, AProblemIsOneLine) {
    const std::string problem = problem_with("ist0= i\n");
    EXPECT_FALSE(problem.empty());
    EXPECT_EQ(problem.find('\n'), std::string::npos) << problem;
}

TEST(Configuration, OtherCharactersThanAsciiBelongInLinesOfComment) {
    const std::string problem =
        ": a character that is not ASCII; in a string it is written as \\uXXXX";
    // The parser's test for white space is undefined for these letters.
    EXPECT_EQ(problem_with("threads = 2\nslo\u0490s = 4\n"), "file:2" + problem);
    EXPECT_EQ(problem_with("threads = 2 \u00a0\n"), "file:1" + problem);
    EXPECT_EQ(problem_with("listen = [\"127.0.0.1:1\",0\"[:9\u03e2\"]\n"), "file:1" + problem);
    EXPECT_EQ(problem_with("listen = 171[\"u\u03ff\n"), "file:1" + problem);
    EXPECT_EQ(problem_with("# \u0490\n\t # \u0490\nstate_directory = \"/\\u0490\"\n"), "");
}

TEST(Configuration, DamagedTextsAreRefusedOrTaken) {
    const std::string text =
        "listen = [\"[::]:4847\"]\nthreads = 4\nmemory_limit = \"1G\"\n[volume.a]\nsize = 4096\n";
    std::mt19937 random(1);
    int refused = 0;
    for (int number = 0; number < 2000; number++) {
        std::string damaged = text;
        damaged[random() % damaged.size()] = static_cast<char>(random());
        damaged.resize(random() % 4 == 0 ? random() % damaged.size() : damaged.size());
        refused += problem_with(damaged).empty() ? 0 : 1;
    }
    EXPECT_GT(refused, 100);
}

TEST(Configuration, AReloadLeavesWhatNeedsARestart) {
    Configuration running;
    Configuration fresh;
    fresh.lease_timeout_s = 90;
    EXPECT_TRUE(needs_restart_of_volumes(running, fresh));
    fresh.max_sessions = 7;
    EXPECT_FALSE(needs_restart(running, fresh));
    fresh.threads = 9;
    fresh.listen = {{"127.0.0.1", 1}};
    fresh.state_directory = "/elsewhere";
    EXPECT_TRUE(needs_restart(running, fresh));
    const Configuration result = reloaded_configuration(running, fresh);
    EXPECT_EQ(result.lease_timeout_s, 90U);
    EXPECT_EQ(result.max_sessions, 7U);
    EXPECT_EQ(result.threads, running.threads);
    EXPECT_EQ(result.listen, running.listen);
    EXPECT_EQ(result.state_directory, running.state_directory);
    EXPECT_FALSE(needs_restart(running, result));
    EXPECT_FALSE(needs_restart_of_volumes(result, fresh));
}

TEST(Configuration, SizesAreNumbersOrTexts) {
    for (const char* size : {"1536M", "1.5G", "1610612736"}) {
        Configuration c;
        std::string problem;
        EXPECT_TRUE(parse_configuration("memory_limit = \"" + std::string(size) + "\"\n", "file", c,
                                        problem))
            << problem;
        EXPECT_EQ(c.memory_limit_bytes, uint64_t{3} << 29);
    }
    for (const char* wrong : {"", "M", "-1", "1X", "1MM", "99999999999T", "1 M"}) {
        EXPECT_NE(problem_with("memory_limit = \"" + std::string(wrong) + "\"\n"), "") << wrong;
    }
}

}  // namespace
}  // namespace tiffin::rdma_blk
