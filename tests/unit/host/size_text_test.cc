// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/size_text.h"

#include <gtest/gtest.h>

namespace tiffin::fuse {
namespace {

uint64_t parsed(std::string_view text) {
    OrProblem<uint64_t> size = parse_size(text);
    EXPECT_TRUE(size.ok()) << text << ": " << (size.ok() ? "" : size.problem().text);
    return size.ok() ? *size : 0;
}

TEST(ParseSize, UnderstandsSuffixes) {
    EXPECT_EQ(parsed("0"), 0U);
    EXPECT_EQ(parsed("4096"), 4096U);
    EXPECT_EQ(parsed("64K"), 65536U);
    EXPECT_EQ(parsed("64k"), 65536U);
    EXPECT_EQ(parsed("3M"), 3U << 20);
    EXPECT_EQ(parsed("1g"), 1U << 30);
    EXPECT_EQ(parsed("2T"), uint64_t{2} << 40);
    EXPECT_EQ(parsed("2TiB"), uint64_t{2} << 40);
    EXPECT_EQ(parsed("100MiB"), uint64_t{100} << 20);
    EXPECT_EQ(parsed("100MB"), 100'000'000U);
    EXPECT_EQ(parsed("1kB"), 1000U);
    EXPECT_EQ(parsed("18446744073709551615"), UINT64_MAX);
    EXPECT_EQ(parsed("16777215T"), uint64_t{16777215} << 40);
}

TEST(ParseSize, UnderstandsDecimalsBeforeASuffix) {
    EXPECT_EQ(parsed("1.5G"), uint64_t{3} << 29);
    EXPECT_EQ(parsed("0.5K"), 512U);
    EXPECT_EQ(parsed("2.25MB"), 2'250'000U);
    EXPECT_EQ(parsed("1.0001K"), 1024U);
    EXPECT_EQ(parsed("1.999999T"), (uint64_t{1'999'999} << 40) / 1'000'000);
    EXPECT_EQ(parsed("16777215.999999T"),
              (uint64_t{16777215} << 40) + (uint64_t{999'999} << 40) / 1'000'000);
}

TEST(ParseSize, RefusesWhatIsNotASize) {
    for (const char* text :
         {"",    "K",   "-1",   "+1",  " 1",     "1 ",    "1 K",  "1KK",        "1Ki",
          "1B",  "1Kb", "0x10", "1e3", "1P",     "12abc", "\xff", "KiB",        "1iB",
          "1.5", "1.",  "1.G",  ".5G", "1.5.5G", "1.-5G", "1,5G", "1.1234567G", "1.5GBB"}) {
        OrProblem<uint64_t> size = parse_size(text);
        ASSERT_FALSE(size.ok()) << text;
        EXPECT_NE(size.problem().text.find("is not a size"), std::string::npos);
    }
    EXPECT_FALSE(parse_size(std::string_view("1\0", 2)).ok());
}

TEST(ParseSize, RefusesWhatDoesNotFit) {
    for (const char* text :
         {"18446744073709551616", "16777216T", "16777216.5T", "99999999999999999999999999",
          "18446744073709551615K", "99999999999999999999999999T"}) {
        OrProblem<uint64_t> size = parse_size(text);
        ASSERT_FALSE(size.ok()) << text;
        EXPECT_EQ(size.problem().code, Error::erange);
        EXPECT_NE(size.problem().text.find("too large"), std::string::npos);
    }
}

TEST(FormatSize, RoundsDownToOneDecimal) {
    EXPECT_EQ(format_size(0), "0 B");
    EXPECT_EQ(format_size(1023), "1023 B");
    EXPECT_EQ(format_size(1024), "1 KiB");
    EXPECT_EQ(format_size(1536), "1.5 KiB");
    EXPECT_EQ(format_size(uint64_t{64} << 30), "64 GiB");
    EXPECT_EQ(format_size((uint64_t{1} << 40) - 1), "1023.9 GiB");
    EXPECT_EQ(format_size(UINT64_MAX), "15.9 EiB");
}

}  // namespace
}  // namespace tiffin::fuse
