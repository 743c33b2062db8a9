// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/base/text.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "fuse/host/log_sink.h"

namespace tiffin {
namespace {

template <typename... Pieces>
std::string text_of(Pieces... pieces) {
    TextBuffer<200> text;
    (text.append(pieces), ...);
    EXPECT_FALSE(text.truncated());
    EXPECT_EQ(text.size_bytes(), std::string(text.c_str()).size());
    return text.c_str();
}

TEST(Text, WritesNumbers) {
    EXPECT_EQ(text_of(0), "0");
    EXPECT_EQ(text_of(std::numeric_limits<uint64_t>::max()), "18446744073709551615");
    EXPECT_EQ(text_of(std::numeric_limits<int64_t>::max()), "9223372036854775807");
    EXPECT_EQ(text_of(std::numeric_limits<int64_t>::min()), "-9223372036854775808");
    EXPECT_EQ(text_of(int8_t{-128}, ' ', uint8_t{255}, ' ', uint16_t{65535}, ' ', -1L),
              "-128 255 65535 -1");
}

TEST(Text, WritesHexadecimal) {
    EXPECT_EQ(text_of(Hex{0}), "0x0");
    EXPECT_EQ(text_of(Hex{0x2f}), "0x2f");
    EXPECT_EQ(text_of(Hex{0x1000}), "0x1000");
    EXPECT_EQ(text_of(Hex{~uint64_t{0}}), "0xffffffffffffffff");
}

TEST(Text, WritesTextCharactersAndTruthValues) {
    const char* nothing = nullptr;
    EXPECT_EQ(text_of("node ", 'x', " is ", true, ", not ", false), "node x is true, not false");
    EXPECT_EQ(text_of("", nothing), "(null)");
}

TEST(Text, EscapesNames) {
    const char name[] = {'a', '\n', '\\', '\x1b', '\x7f', '\xc3', '\xa9', '\0', 'z'};
    EXPECT_EQ(text_of(vfs::Name(name, sizeof(name))), "a\\x0a\\x5c\\x1b\\x7f\xc3\xa9\\x00z");
    EXPECT_EQ(text_of(vfs::Name()), "");
}

TEST(Text, CutsWhatDoesNotFit) {
    TextBuffer<8> exact;
    exact.append("12345678");
    EXPECT_STREQ(exact.c_str(), "12345678");
    EXPECT_FALSE(exact.truncated());
    exact.append("");
    EXPECT_FALSE(exact.truncated());

    exact.append('9');
    EXPECT_STREQ(exact.c_str(), "12345...");
    EXPECT_TRUE(exact.truncated());
    exact.append("more");
    exact.append_unsigned(1);
    EXPECT_STREQ(exact.c_str(), "12345...");

    TextBuffer<3> tiny;
    tiny.append_hex(0x123456);
    EXPECT_STREQ(tiny.c_str(), "...");
}

TEST(Text, LogsOneLine) {
    fuse::CapturedLog log;
    log_line(host::LogLevel::error, "block ", 17, " of ", vfs::Name("file"), " at ", Hex{255});
    ASSERT_EQ(log.lines().size(), 1U);
    EXPECT_EQ(log.lines()[0], "error: block 17 of file at 0xff");
}

TEST(Text, LogsAtMost240Characters) {
    fuse::CapturedLog log;
    const std::string prefix = "warning: ";
    log_line(host::LogLevel::warning, std::string(240, 'a').c_str());
    log_line(host::LogLevel::warning, std::string(100000, 'a').c_str(), 1);
    ASSERT_EQ(log.lines().size(), 2U);
    EXPECT_EQ(log.lines()[0], prefix + std::string(240, 'a'));
    EXPECT_EQ(log.lines()[1], prefix + std::string(237, 'a') + "...");
}

}  // namespace
}  // namespace tiffin
