// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Holes, SEEK_DATA and SEEK_HOLE, and offsets far out.
#include "tests/suite/helpers.h"

namespace tiffin::suite {
namespace {

constexpr int64_t kBlock = 4096;
constexpr int64_t kMiB = 1024 * 1024;
constexpr int64_t kGiB = 1024 * kMiB;
constexpr int64_t kTiB = 1024 * kGiB;

constexpr int64_t kFarOffsets[] = {kGiB * 2 - 1, kGiB * 4 - 1, kGiB * 4,     kTiB,
                                   8 * kTiB - 1, 8 * kTiB,     8 * kTiB + 1, 12 * kTiB + 4095};

SUITE_CASES(sparse, write_at_far_offset, kFarOffsets, {Feature::huge_files}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    std::string data = pattern(10000);
    write_at(fs, file, value, data);
    write_at(fs, file, 0, "start");
    FileStatus status = status_of(fs, file);
    CHECK_EQUAL(status.size_bytes, static_cast<uint64_t>(value) + data.size());
    CHECK_TRUE(status.allocated_bytes < static_cast<uint64_t>(kMiB));
    check_content(read_at(fs, file, value, data.size() + 100), data);
    check_content(read_at(fs, file, value - 5000, 5000), std::string(5000, '\0'));
    check_content(read_at(fs, file, 0, 5000), "start" + std::string(4995, '\0'));
}

SUITE_CASE(sparse, every_other_block_is_a_hole, {}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    std::string expected;
    for (int i = 0; i < 100; ++i) {
        std::string block = pattern(kBlock, static_cast<uint64_t>(i));
        write_at(fs, file, i * 2 * kBlock, block);
        expected += i > 0 ? std::string(kBlock, '\0') : "";
        expected += block;
    }
    check_file(fs, "f", expected);
    // Filling the holes, the last first.
    for (int i = 98; i >= 0; --i) {
        std::string block = pattern(kBlock, 1000 + static_cast<uint64_t>(i));
        write_at(fs, file, (i * 2 + 1) * kBlock, block);
        expected.replace(static_cast<size_t>((i * 2 + 1) * kBlock), kBlock, block);
    }
    check_file(fs, "f", expected);
}

SUITE_CASE(sparse, holes_take_no_space, {}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    for (int i = 0; i < 10; ++i) {
        write_at(fs, file, i * 16 * kMiB, pattern(100));
    }
    CHECK_OK(fs.fsync(file));
    CHECK_TRUE(status_of(fs, file).allocated_bytes <= 10 * 65536);
}

SUITE_CASE(sparse, one_read_over_data_and_holes, {}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    std::string expected(3 * kMiB, '\0');
    for (int64_t offset : {int64_t{100}, 5 * kBlock, kMiB - 10, 2 * kMiB + 77, 3 * kMiB - 200}) {
        std::string data = pattern(200, static_cast<uint64_t>(offset));
        write_at(fs, file, offset, data);
        expected.replace(static_cast<size_t>(offset), data.size(), data);
    }
    std::string read(3 * kMiB + 50, 'x');
    CHECK_EQUAL(fs.pread(file, read.data(), read.size(), 0), 3 * kMiB);
    read.resize(3 * kMiB);
    check_content(read, expected);
}

SUITE_CASE(seek, on_an_empty_file, {Feature::seek_data}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    CHECK_ERROR(fs.lseek(file, 0, SEEK_DATA), ENXIO);
    CHECK_ERROR(fs.lseek(file, 0, SEEK_HOLE), ENXIO);
}

SUITE_CASE(seek, on_a_file_without_holes, {Feature::seek_data}) {
    for (size_t size : {size_t{1}, size_t{600}, size_t{4096}, size_t{100001}}) {
        write_file(fs, "f", pattern(size));
        File file(fs, "f", O_RDONLY);
        auto end = static_cast<int64_t>(size);
        CHECK_EQUAL(fs.lseek(file, 0, SEEK_DATA), 0);
        CHECK_EQUAL(fs.lseek(file, 0, SEEK_HOLE), end);
        CHECK_EQUAL(fs.lseek(file, end - 1, SEEK_DATA), end - 1);
        CHECK_EQUAL(fs.lseek(file, end - 1, SEEK_HOLE), end);
        CHECK_ERROR(fs.lseek(file, end, SEEK_DATA), ENXIO);
        CHECK_ERROR(fs.lseek(file, end, SEEK_HOLE), ENXIO);
        CHECK_ERROR(fs.lseek(file, end + 1, SEEK_HOLE), ENXIO);
    }
}

SUITE_CASE(seek, on_a_file_that_is_one_hole, {Feature::seek_data}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    CHECK_OK(fs.ftruncate(file, kMiB));
    CHECK_ERROR(fs.lseek(file, 0, SEEK_DATA), ENXIO);
    CHECK_EQUAL(fs.lseek(file, 0, SEEK_HOLE), 0);
    CHECK_EQUAL(fs.lseek(file, 5000, SEEK_HOLE), 5000);
    CHECK_ERROR(fs.lseek(file, kMiB, SEEK_HOLE), ENXIO);
}

// Exact places: all extents here are larger and more aligned than any reasonable granularity.
SUITE_CASE(seek, finds_each_piece_of_data, {Feature::seek_data}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    CHECK_OK(fs.ftruncate(file, 10 * kMiB));
    write_at(fs, file, 2 * kMiB, pattern(kMiB));
    write_at(fs, file, 6 * kMiB, pattern(kMiB));
    CHECK_OK(fs.fsync(file));
    CHECK_EQUAL(fs.lseek(file, 0, SEEK_DATA), 2 * kMiB);
    CHECK_EQUAL(fs.lseek(file, 0, SEEK_HOLE), 0);
    CHECK_EQUAL(fs.lseek(file, 2 * kMiB, SEEK_DATA), 2 * kMiB);
    CHECK_EQUAL(fs.lseek(file, 2 * kMiB + 5, SEEK_DATA), 2 * kMiB + 5);
    CHECK_EQUAL(fs.lseek(file, 2 * kMiB + 5, SEEK_HOLE), 3 * kMiB);
    CHECK_EQUAL(fs.lseek(file, 3 * kMiB, SEEK_DATA), 6 * kMiB);
    CHECK_EQUAL(fs.lseek(file, 6 * kMiB, SEEK_HOLE), 7 * kMiB);
    CHECK_ERROR(fs.lseek(file, 7 * kMiB, SEEK_DATA), ENXIO);
    CHECK_EQUAL(fs.lseek(file, 7 * kMiB, SEEK_HOLE), 7 * kMiB);
}

// The page cache of a host may hold the data still: the answer must be the same.
SUITE_CASE(seek, sees_data_that_was_just_written, {Feature::seek_data}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    CHECK_OK(fs.ftruncate(file, 4 * kMiB));
    write_at(fs, file, kMiB, pattern(kMiB));
    CHECK_EQUAL(fs.lseek(file, 0, SEEK_DATA), kMiB);
    CHECK_EQUAL(fs.lseek(file, kMiB, SEEK_HOLE), 2 * kMiB);
    write_at(fs, file, 3 * kMiB, pattern(kMiB));
    CHECK_EQUAL(fs.lseek(file, 2 * kMiB, SEEK_DATA), 3 * kMiB);
    CHECK_EQUAL(fs.lseek(file, 3 * kMiB, SEEK_HOLE), 4 * kMiB);
}

SUITE_CASE(seek, data_before_a_hole_at_the_end, {Feature::seek_data}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    write_at(fs, file, 0, pattern(kMiB));
    CHECK_OK(fs.ftruncate(file, 2 * kMiB));
    CHECK_EQUAL(fs.lseek(file, 0, SEEK_HOLE), kMiB);
    CHECK_ERROR(fs.lseek(file, kMiB, SEEK_DATA), ENXIO);
}

SUITE_CASE(seek, negative_offsets, {Feature::seek_data}) {
    write_file(fs, "f", "abc");
    File file(fs, "f", O_RDONLY);
    // EINVAL by the rules of lseek; Linux's generic code says ENXIO.
    int64_t answer = fs.lseek(file, -1, SEEK_DATA);
    CHECK_TRUE(answer == -ENXIO || answer == -EINVAL);
}

// Data that SEEK_DATA does not show is lost by every program that copies sparsely.
SUITE_CASE(seek, a_sparse_copy_loses_nothing, {Feature::seek_data}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    uint64_t state = 3;
    for (int i = 0; i < 60; ++i) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        write_at(fs, file, static_cast<int64_t>((state >> 33) % (4 * kMiB)),
                 pattern((state >> 20) % 9000, state));
    }
    File copy(fs, "copy", O_RDWR | O_CREAT);
    int64_t size = static_cast<int64_t>(status_of(fs, file).size_bytes);
    CHECK_OK(fs.ftruncate(copy, size));
    for (int64_t at = 0;;) {
        int64_t data = fs.lseek(file, at, SEEK_DATA);
        if (data < 0) {
            CHECK_ERROR(data, ENXIO);
            break;
        }
        at = REQUIRE_OK(fs.lseek(file, data, SEEK_HOLE));
        CHECK_TRUE(at > data);
        write_at(fs, copy, data, read_at(fs, file, data, static_cast<size_t>(at - data)));
    }
    check_content(read_file(fs, "copy"), read_file(fs, "f"));
}

}  // namespace
}  // namespace tiffin::suite
