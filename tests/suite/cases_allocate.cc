// SPDX-License-Identifier: MIT OR GPL-2.0-only
// fallocate: all modes, at all alignments.
#include <linux/falloc.h>

#include <algorithm>
#include <utility>

#include "tests/suite/helpers.h"

namespace tiffin::suite {
namespace {

constexpr int64_t kBlock = 4096;
constexpr int64_t kMiB = 1024 * 1024;

constexpr int kKeep = FALLOC_FL_KEEP_SIZE;
constexpr int kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
constexpr int kZero = FALLOC_FL_ZERO_RANGE;
constexpr int kCollapse = FALLOC_FL_COLLAPSE_RANGE;
constexpr int kInsert = FALLOC_FL_INSERT_RANGE;

// Offset and length around every boundary; printed as "offset_length".
struct Range {
    int64_t offset;
    int64_t length;
};
std::ostream& operator<<(std::ostream& stream, const Range& range) {
    return stream << range.offset << "_" << range.length;
}
constexpr Range kRanges[] = {{0, 1},           {0, 4096},    {1, 4095},      {1, 4096},
                             {511, 2},         {4095, 2},    {4096, 4096},   {4097, 8190},
                             {100, 100},       {0, 1 << 20}, {5000, 100000}, {65536, 65536},
                             {150000, 200000}, {204799, 1},  {204800, 5000}, {300000, 10}};

// The file of the range cases: 204,800 bytes of data.
constexpr size_t kFileBytes = 50 * kBlock;

SUITE_CASES(allocate, plain, kRanges, {}) {
    std::string data = pattern(kFileBytes);
    write_file(fs, "f", data);
    File file(fs, "f", O_RDWR);
    CHECK_OK(fs.fallocate(file, 0, value.offset, value.length));
    data.resize(std::max<size_t>(data.size(), static_cast<size_t>(value.offset + value.length)),
                '\0');
    check_file(fs, "f", data);
}

SUITE_CASES(allocate, keep_size, kRanges, {Feature::punch_hole}) {
    std::string data = pattern(kFileBytes);
    write_file(fs, "f", data);
    File file(fs, "f", O_RDWR);
    CHECK_OK(fs.fallocate(file, kKeep, value.offset, value.length));
    check_file(fs, "f", data);
    // What was allocated behind the end reads as zeros once the file grows over it.
    CHECK_OK(fs.ftruncate(file, kFileBytes + 2 * kMiB));
    check_file(fs, "f", data + std::string(2 * kMiB, '\0'));
}

SUITE_CASES(allocate, punch_hole, kRanges, {Feature::punch_hole}) {
    std::string data = pattern(kFileBytes);
    write_file(fs, "f", data);
    File file(fs, "f", O_RDWR);
    CHECK_OK(fs.fallocate(file, kPunch, value.offset, value.length));
    int64_t end = std::min<int64_t>(value.offset + value.length, kFileBytes);
    for (int64_t i = value.offset; i < end; ++i) {
        data[static_cast<size_t>(i)] = '\0';
    }
    check_file(fs, "f", data);
    // And what is written there again is there.
    write_at(fs, file, value.offset, "again");
    data.resize(std::max<size_t>(data.size(), static_cast<size_t>(value.offset) + 5), '\0');
    data.replace(static_cast<size_t>(value.offset), 5, "again");
    check_file(fs, "f", data);
}

SUITE_CASES(allocate, zero_range, kRanges, {Feature::zero_range}) {
    std::string data = pattern(kFileBytes);
    write_file(fs, "f", data);
    File file(fs, "f", O_RDWR);
    CHECK_OK(fs.fallocate(file, kZero, value.offset, value.length));
    auto end = static_cast<size_t>(value.offset + value.length);
    data.resize(std::max(data.size(), end), '\0');
    std::fill(data.begin() + value.offset, data.begin() + static_cast<int64_t>(end), '\0');
    check_file(fs, "f", data);
}

SUITE_CASES(allocate, zero_range_keeping_the_size, kRanges, {Feature::zero_range}) {
    std::string data = pattern(kFileBytes);
    write_file(fs, "f", data);
    File file(fs, "f", O_RDWR);
    CHECK_OK(fs.fallocate(file, kZero | kKeep, value.offset, value.length));
    for (int64_t i = value.offset; i < value.offset + value.length; ++i) {
        if (static_cast<size_t>(i) < data.size()) {
            data[static_cast<size_t>(i)] = '\0';
        }
    }
    check_file(fs, "f", data);
}

SUITE_CASE(allocate, on_an_empty_file, {}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    CHECK_OK(fs.fallocate(file, 0, 100, 1000000));
    FileStatus status = status_of(fs, file);
    CHECK_EQUAL(status.size_bytes, 1000100U);
    CHECK_TRUE(status.allocated_bytes >= 1000000);
    check_file(fs, "f", std::string(1000100, '\0'));
    std::string data = pattern(5000);
    write_at(fs, file, 500000, data);
    std::string expected(1000100, '\0');
    expected.replace(500000, data.size(), data);
    check_file(fs, "f", expected);
}

SUITE_CASE(allocate, small_file_keeps_its_bytes, {}) {
    for (size_t size : {1, 100, 1000, 1024, 2000}) {
        std::string data = pattern(size);
        write_file(fs, "f", data);
        File file(fs, "f", O_RDWR);
        CHECK_OK(fs.fallocate(file, 0, 0, 10000));
        data.resize(10000, '\0');
        check_file(fs, "f", data);
    }
}

SUITE_CASE(allocate, small_file_with_a_hole_punched, {Feature::punch_hole}) {
    std::string data = pattern(700);
    write_file(fs, "f", data);
    File file(fs, "f", O_RDWR);
    CHECK_OK(fs.fallocate(file, kPunch, 100, 50));
    data.replace(100, 50, std::string(50, '\0'));
    check_file(fs, "f", data);
    CHECK_OK(fs.fallocate(file, kPunch, 600, 10000));
    data.replace(600, 100, std::string(100, '\0'));
    check_file(fs, "f", data);
    CHECK_OK(fs.fallocate(file, kPunch, 0, 700));
    check_file(fs, "f", std::string(700, '\0'));
}

SUITE_CASE(allocate, small_file_zeroed, {Feature::zero_range}) {
    std::string data = pattern(300);
    write_file(fs, "f", data);
    File file(fs, "f", O_RDWR);
    CHECK_OK(fs.fallocate(file, kZero, 10, 20));
    data.replace(10, 20, std::string(20, '\0'));
    check_file(fs, "f", data);
    CHECK_OK(fs.fallocate(file, kZero, 290, 3000));
    data.resize(290);
    data.resize(3290, '\0');
    check_file(fs, "f", data);
}

SUITE_CASE(allocate, keep_size_counts_as_allocated, {Feature::punch_hole}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    CHECK_OK(fs.fallocate(file, kKeep, 0, 4 * kMiB));
    FileStatus status = status_of(fs, file);
    CHECK_EQUAL(status.size_bytes, 0U);
    CHECK_TRUE(status.allocated_bytes >= static_cast<uint64_t>(4 * kMiB));
    check_file(fs, "f", "");
}

SUITE_CASE(allocate, what_is_behind_the_end_goes_with_a_truncation, {Feature::punch_hole}) {
    const std::string data = pattern(static_cast<size_t>(kMiB));
    write_file(fs, "f", data);
    File file(fs, "f", O_RDWR);
    CHECK_OK(fs.fsync(file));
    const uint64_t before = status_of(fs, file).allocated_bytes;
    CHECK_OK(fs.fallocate(file, kKeep, 0, 4 * kMiB));
    CHECK_TRUE(status_of(fs, file).allocated_bytes >= static_cast<uint64_t>(4 * kMiB));
    CHECK_OK(fs.ftruncate(file, kMiB));  // its size already
    CHECK_TRUE(status_of(fs, file).allocated_bytes <= before);
    check_file(fs, "f", data);
}

// Space that was allocated can be written even when the volume has none left.
SUITE_CASE(allocate, promises_space, {Feature::small_volume}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    CHECK_OK(fs.fallocate(file, 0, 0, 8 * kMiB));
    fill_volume(fs, "filler", static_cast<size_t>(kMiB));
    fill_volume(fs, "filler", 4096);
    std::string data = pattern(static_cast<size_t>(8 * kMiB), 5);
    write_at(fs, file, 0, data);
    CHECK_OK(fs.fsync(file));
    check_file(fs, "f", data);
    CHECK_OK(fs.unlink("filler"));
}

SUITE_CASE(allocate, punched_space_is_free_again, {Feature::punch_hole}) {
    write_file(fs, "f", pattern(static_cast<size_t>(8 * kMiB)));
    File file(fs, "f", O_RDWR);
    CHECK_OK(fs.fsync(file));
    CHECK_OK(fs.fallocate(file, kPunch, kMiB, 6 * kMiB));
    CHECK_OK(fs.fsync(file));
    CHECK_TRUE(status_of(fs, file).allocated_bytes <= static_cast<uint64_t>(3 * kMiB));
    CHECK_EQUAL(status_of(fs, file).size_bytes, static_cast<uint64_t>(8 * kMiB));
}

SUITE_CASE(allocate, punched_holes_are_found, {Feature::punch_hole, Feature::seek_data}) {
    write_file(fs, "f", pattern(static_cast<size_t>(4 * kMiB)));
    File file(fs, "f", O_RDWR);
    CHECK_OK(fs.fallocate(file, kPunch, kMiB, kMiB));
    CHECK_EQUAL(fs.lseek(file, 0, SEEK_HOLE), kMiB);
    CHECK_EQUAL(fs.lseek(file, kMiB, SEEK_DATA), 2 * kMiB);
    CHECK_EQUAL(fs.lseek(file, 2 * kMiB, SEEK_HOLE), 4 * kMiB);
}

SUITE_CASE(allocate, punch_everything_and_write_again, {Feature::punch_hole}) {
    write_file(fs, "f", pattern(300000));
    File file(fs, "f", O_RDWR);
    for (int i = 0; i < 10; ++i) {
        CHECK_OK(fs.fallocate(file, kPunch, 0, 300000));
        check_file(fs, "f", std::string(300000, '\0'));
        std::string data = pattern(300000, static_cast<uint64_t>(i));
        write_at(fs, file, 0, data);
        check_file(fs, "f", data);
    }
}

SUITE_CASE(allocate, errors, {Feature::punch_hole}) {
    write_file(fs, "f", "abc");
    REQUIRE_OK(fs.mkdir("d", 0755));
    File file(fs, "f", O_RDWR);
    CHECK_ERROR(fs.fallocate(file, 0, 0, 0), EINVAL);
    CHECK_ERROR(fs.fallocate(file, 0, -1, 10), EINVAL);
    CHECK_ERROR(fs.fallocate(file, 0, 0, -10), EINVAL);
    CHECK_ERROR(fs.fallocate(file, FALLOC_FL_PUNCH_HOLE, 0, 1), EOPNOTSUPP);
    CHECK_ERROR(fs.fallocate(file, 0x800, 0, 1), EOPNOTSUPP);
    CHECK_ERROR(fs.fallocate(file, 0, INT64_MAX - 10, 100), EFBIG);
    File directory(fs, "d", O_RDONLY | O_DIRECTORY);
    CHECK_ERROR(fs.fallocate(directory, 0, 0, 1), EBADF);
    check_file(fs, "f", "abc");
}

SUITE_CASE(allocate, more_than_the_volume_has, {Feature::small_volume}) {
    write_file(fs, "f", "abc");
    File file(fs, "f", O_RDWR);
    CHECK_ERROR(fs.fallocate(file, 0, 0, int64_t{1} << 40), ENOSPC);
    check_content(read_at(fs, file, 0, 3), "abc");
    // Some file systems keep the part that they could allocate.
    CHECK_OK(fs.ftruncate(file, 3));
    write_file(fs, "g", pattern(100000));
    check_file(fs, "g", pattern(100000));
}

SUITE_CASE(collapse, removes_the_middle, {Feature::collapse_insert}) {
    std::string data = pattern(kFileBytes + 100);
    write_file(fs, "f", data);
    File file(fs, "f", O_RDWR);
    CHECK_OK(fs.fallocate(file, kCollapse, 10 * kBlock, 5 * kBlock));
    data.erase(10 * kBlock, 5 * kBlock);
    check_file(fs, "f", data);
    CHECK_OK(fs.fallocate(file, kCollapse, 0, kBlock));
    data.erase(0, kBlock);
    check_file(fs, "f", data);
}

SUITE_CASE(collapse, removes_holes_and_unwritten_blocks,
           {Feature::collapse_insert, Feature::punch_hole}) {
    write_file(fs, "f", pattern(kFileBytes));
    File file(fs, "f", O_RDWR);
    CHECK_OK(fs.fallocate(file, kPunch, 4 * kBlock, 4 * kBlock));
    CHECK_OK(fs.fallocate(file, kZero, 20 * kBlock, 4 * kBlock));
    std::string data = read_file(fs, "f");
    CHECK_OK(fs.fallocate(file, kCollapse, 6 * kBlock, 16 * kBlock));
    data.erase(6 * kBlock, 16 * kBlock);
    check_file(fs, "f", data);
}

SUITE_CASE(collapse, errors, {Feature::collapse_insert}) {
    std::string data = pattern(kFileBytes);
    write_file(fs, "f", data);
    File file(fs, "f", O_RDWR);
    CHECK_ERROR(fs.fallocate(file, kCollapse, 1, kBlock), EINVAL);
    CHECK_ERROR(fs.fallocate(file, kCollapse, 0, kBlock + 1), EINVAL);
    CHECK_ERROR(fs.fallocate(file, kCollapse, 0, kFileBytes), EINVAL);
    CHECK_ERROR(fs.fallocate(file, kCollapse, 40 * kBlock, 10 * kBlock), EINVAL);
    CHECK_ERROR(fs.fallocate(file, kCollapse, 60 * kBlock, kBlock), EINVAL);
    // Every other mode together with these is refused; Linux's own check says which way.
    int64_t answer = fs.fallocate(file, kCollapse | kKeep, 0, kBlock);
    CHECK_TRUE(answer == -EINVAL || answer == -EOPNOTSUPP);
    check_file(fs, "f", data);
}

SUITE_CASE(insert, makes_room_in_the_middle, {Feature::collapse_insert}) {
    std::string data = pattern(kFileBytes + 100);
    write_file(fs, "f", data);
    File file(fs, "f", O_RDWR);
    CHECK_OK(fs.fallocate(file, kInsert, 7 * kBlock, 3 * kBlock));
    data.insert(7 * kBlock, std::string(3 * kBlock, '\0'));
    check_file(fs, "f", data);
    CHECK_OK(fs.fallocate(file, kInsert, 0, 100 * kBlock));
    data.insert(0, std::string(100 * kBlock, '\0'));
    check_file(fs, "f", data);
    write_at(fs, file, 50 * kBlock + 3, "inside");
    data.replace(50 * kBlock + 3, 6, "inside");
    check_file(fs, "f", data);
}

SUITE_CASE(insert, splits_a_large_extent, {Feature::collapse_insert}) {
    std::string data = pattern(static_cast<size_t>(4 * kMiB));
    write_file(fs, "f", data);
    File file(fs, "f", O_RDWR);
    for (int64_t block : {513, 100, 700, 1}) {
        CHECK_OK(fs.fallocate(file, kInsert, block * kBlock, kBlock));
        data.insert(static_cast<size_t>(block * kBlock), std::string(kBlock, '\0'));
    }
    check_file(fs, "f", data);
}

SUITE_CASE(insert, and_collapse_are_inverse, {Feature::collapse_insert}) {
    std::string data = pattern(kFileBytes + 999);
    write_file(fs, "f", data);
    File file(fs, "f", O_RDWR);
    for (int64_t block = 0; block < 50; block += 7) {
        CHECK_OK(fs.fallocate(file, kInsert, block * kBlock, 9 * kBlock));
        CHECK_OK(fs.fallocate(file, kCollapse, block * kBlock, 9 * kBlock));
        check_file(fs, "f", data);
    }
}

SUITE_CASE(insert, errors, {Feature::collapse_insert}) {
    std::string data = pattern(kFileBytes);
    write_file(fs, "f", data);
    File file(fs, "f", O_RDWR);
    CHECK_ERROR(fs.fallocate(file, kInsert, 100, kBlock), EINVAL);
    CHECK_ERROR(fs.fallocate(file, kInsert, 0, 100), EINVAL);
    CHECK_ERROR(fs.fallocate(file, kInsert, kFileBytes, kBlock), EINVAL);
    CHECK_ERROR(fs.fallocate(file, kInsert, kFileBytes + kBlock, kBlock), EINVAL);
    check_file(fs, "f", data);
}

SUITE_CASE(allocate, random_modes_match_a_copy_in_memory,
           {Feature::punch_hole, Feature::zero_range}) {
    constexpr size_t size = 1 << 20;
    std::string data(size, '\0');
    File file(fs, "f", O_RDWR | O_CREAT);
    CHECK_OK(fs.ftruncate(file, size));
    uint64_t state = 11;
    for (int i = 0; i < 300; ++i) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        size_t offset = (state >> 33) % size;
        size_t length = std::min<size_t>((state >> 20) % 30000 + 1, size - offset);
        auto at = static_cast<int64_t>(offset);
        auto span = static_cast<int64_t>(length);
        switch (state >> 62) {
            case 0:
                write_at(fs, file, at, pattern(length, state));
                data.replace(offset, length, pattern(length, state));
                break;
            case 1:
                CHECK_OK(fs.fallocate(file, kPunch, at, span));
                data.replace(offset, length, std::string(length, '\0'));
                break;
            case 2:
                CHECK_OK(fs.fallocate(file, kZero, at, span));
                data.replace(offset, length, std::string(length, '\0'));
                break;
            default:
                CHECK_OK(fs.fallocate(file, 0, at, span));
        }
        if (i % 30 == 0) {
            check_content(read_at(fs, file, 0, size), data);
        }
    }
    check_file(fs, "f", data);
}

}  // namespace
}  // namespace tiffin::suite
