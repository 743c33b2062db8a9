// SPDX-License-Identifier: MIT OR GPL-2.0-only
// fallocate that fails half-way, because memory is short at each place where it is asked for: what
// vfs::FileSystem::allocate() says of an error holds, and where it does not answer one all is done.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "fs/vfs/host.h"
#include "fuse/host/allocation_hooks.h"
#include "tests/unit/tiffinfs/data_fixture.h"

namespace tiffin::tiffinfs {
namespace {

constexpr int64_t kOldSeconds = 1000;
constexpr uint64_t kBlocks = 24;
constexpr uint64_t kSizeBytes = kBlocks * kBlockBytes;

struct Request {
    const char* name;
    uint32_t mode;
    uint64_t offset_bytes;
    uint64_t length_bytes;

    friend void PrintTo(const Request& request, std::ostream* out) { *out << request.name; }
};

std::string request_name(const testing::TestParamInfo<Request>& info) { return info.param.name; }

class PartialAllocate : public testing::TestWithParam<Request> {};

std::string expected_after(const Request& request, std::string text) {
    switch (request.mode & ~vfs::allocate_flag::keep_size) {
        case vfs::allocate_flag::collapse_range:
            return text.erase(request.offset_bytes, request.length_bytes);
        case vfs::allocate_flag::insert_range:
            return text.insert(request.offset_bytes, std::string(request.length_bytes, '\0'));
        default:
            return text.replace(request.offset_bytes, request.length_bytes,
                                std::string(request.length_bytes, '\0'));
    }
}

TEST_P(PartialAllocate, KeepsItsPromise) {
    const Request& request = GetParam();
    uint64_t failures = 0;
    for (uint64_t number = 1;; number += 1 + number / 16) {
        SCOPED_TRACE("allocation " + std::to_string(number));
        ASSERT_LT(number, 1000U);
        DataVolume volume(make_memory_device(16U << 20));
        const uint64_t node = volume.create("file");
        const std::string text = pattern_text(kSizeBytes, 1);
        // Block by block from the end, so that each is an extent of its own.
        for (uint64_t block = kBlocks; block-- > 0;) {
            ASSERT_EQ(volume.write(node, block * kBlockBytes,
                                   text.substr(block * kBlockBytes, kBlockBytes)),
                      static_cast<int64_t>(kBlockBytes));
        }
        volume.remount(0);
        ASSERT_EQ(volume.lookup("file"), node);
        vfs::AttributeChange change;
        change.valid = vfs::AttributeChange::modification_time_bit;
        change.modification_time.seconds = kOldSeconds;
        ASSERT_TRUE(volume.fs().set_attributes({}, node, change).ok());
        int64_t answer = 0;
        bool has_failed = false;
        {
            fuse::AllocationWatch watch;
            watch.fail_allocation(number);
            answer =
                volume.allocate(node, request.mode, request.offset_bytes, request.length_bytes);
            has_failed = watch.failed_allocations() != 0;
        }
        failures += has_failed ? 1 : 0;
        const vfs::Attributes after = volume.attributes(node);
        const std::string content = volume.content(node);
        const std::string expected = expected_after(request, text);
        if (answer == 0) {
            EXPECT_TRUE(content == expected);
        } else {
            ASSERT_EQ(answer, -ENOMEM);
            ASSERT_EQ(content.size(), text.size());
            for (uint64_t i = 0; i < text.size(); ++i) {
                const bool may_be_zero = request.offset_bytes <= i &&
                                         i < request.offset_bytes + request.length_bytes &&
                                         text.size() == expected.size();
                ASSERT_TRUE(content[i] == text[i] || (may_be_zero && content[i] == '\0')) << i;
            }
        }
        EXPECT_EQ(after.size_bytes, content.size());
        if (content != text) {
            EXPECT_NE(after.modification_time.seconds, kOldSeconds);
        }
        EXPECT_EQ(volume.check(), "");
        if (!has_failed) {
            break;
        }
    }
    EXPECT_GT(failures, 3U);
}

// The kernel tells its own times, of a clock that is up to a tick ahead; what it has told does not go back. A time
// far ahead, which a user has set, does.
TEST(AllocateTimes, DoNotGoBackByAPartOfATick) {
    for (const int64_t ahead_ns : {5'000'000, 2'000'000'000}) {
        DataVolume volume(make_memory_device(16U << 20));
        const uint64_t node = volume.create("file");
        ASSERT_EQ(volume.write(node, 0, pattern_text(10 * kBlockBytes, 1)),
                  static_cast<int64_t>(10 * kBlockBytes));
        const int64_t told_ns = host::realtime_ns() + ahead_ns;
        vfs::AttributeChange change;
        change.valid = vfs::AttributeChange::modification_time_bit;
        change.modification_time = {told_ns / 1'000'000'000,
                                    static_cast<uint32_t>(told_ns % 1'000'000'000)};
        ASSERT_TRUE(volume.fs().set_attributes({}, node, change).ok());
        ASSERT_EQ(
            volume.allocate(node, vfs::allocate_flag::punch_hole | vfs::allocate_flag::keep_size,
                            100, 5 * kBlockBytes),
            0);
        const vfs::Timestamp after = volume.attributes(node).modification_time;
        const bool went_back = after.seconds * 1'000'000'000 + after.nanoseconds < told_ns;
        EXPECT_EQ(went_back, ahead_ns > 10'000'000);
    }
}

INSTANTIATE_TEST_SUITE_P(
    All, PartialAllocate,
    testing::Values(
        Request{"Zero", vfs::allocate_flag::zero_range, 5 * kBlockBytes + 100, 12 * kBlockBytes},
        Request{"Punch", vfs::allocate_flag::punch_hole | vfs::allocate_flag::keep_size,
                5 * kBlockBytes + 100, 12 * kBlockBytes},
        Request{"Collapse", vfs::allocate_flag::collapse_range, 5 * kBlockBytes, 12 * kBlockBytes},
        Request{"Insert", vfs::allocate_flag::insert_range, 5 * kBlockBytes, 12 * kBlockBytes}),
    request_name);

}  // namespace
}  // namespace tiffin::tiffinfs
