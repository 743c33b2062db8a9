// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: what copy_range() says it has copied is what the source held, and nothing else of the destination changes.
// Method: the source is truncated while another thread copies it.
#include <gtest/gtest.h>

#include <thread>

#include "tests/unit/tiffinfs/data_fixture.h"

namespace tiffin::tiffinfs {
namespace {

constexpr uint64_t kFileBytes = 16U << 20;

TEST(CopyRange, EndsWhereTheSourceEndsMeanwhile) {
    DataVolume volume(std::make_unique<tiffin::test::CrashDevice>(uint64_t{128} << 20));
    const uint64_t source = volume.create("source");
    const uint64_t destination = volume.create("destination");
    int ended_early = 0;
    for (int round = 0; round < 20; ++round) {
        ASSERT_EQ(volume.write(source, 0, std::string(kFileBytes, 's')), int64_t{kFileBytes});
        ASSERT_EQ(volume.write(destination, 0, std::string(kFileBytes, 'd')), int64_t{kFileBytes});
        std::thread truncating([&] {
            while (volume.text_at(destination, 0, 1) == "d") {
            }
            EXPECT_EQ(volume.truncate(source, 0), 0);
        });
        Result<uint64_t> copied = volume.fs().copy_range(source, 0, destination, 0, kFileBytes);
        truncating.join();
        ASSERT_TRUE(copied.ok());
        ended_early += copied.value() < kFileBytes ? 1 : 0;
        const std::string content = volume.content(destination);
        ASSERT_EQ(content.size(), kFileBytes);
        ASSERT_EQ(content.find_first_not_of('s'),
                  copied.value() < kFileBytes ? copied.value() : std::string::npos);
        ASSERT_EQ(content.find_first_not_of('d', copied.value()), std::string::npos);
    }
    EXPECT_GT(ended_early, 0) << "the truncation came too late every time: nothing was tried";
    EXPECT_EQ(volume.check(), "");
}

}  // namespace
}  // namespace tiffin::tiffinfs
