// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Changing the size of files: what is cut off is gone, and never comes back as old bytes.
#include <utility>

#include "tests/suite/helpers.h"

namespace tiffin::suite {
namespace {

constexpr size_t kMiB = 1024 * 1024;
constexpr size_t kSizes[] = {0,    1,    511,   512,   513,      1024, 1025,    4095,
                             4096, 4097, 65535, 65536, kMiB - 1, kMiB, kMiB + 1};

SUITE_CASES(truncate, down_to_size_and_up_again, kSizes, {}) {
    constexpr size_t full = kMiB + 8192;
    std::string data = pattern(full);
    write_file(fs, "f", data);
    CHECK_OK(fs.truncate("f", static_cast<int64_t>(value)));
    check_file(fs, "f", data.substr(0, value));
    CHECK_OK(fs.truncate("f", full));
    check_file(fs, "f", data.substr(0, value) + std::string(full - value, '\0'));
}

SUITE_CASES(truncate, small_file_up_to_size, kSizes, {}) {
    write_file(fs, "f", pattern(200));
    CHECK_OK(fs.truncate("f", static_cast<int64_t>(value)));
    std::string expected = pattern(200);
    expected.resize(value, '\0');
    check_file(fs, "f", expected);
}

// The part of the last block behind the end must be zeros when the file grows by writing.
SUITE_CASES(truncate, write_behind_the_end_after_cut_to_size, kSizes, {}) {
    std::string data = pattern(kMiB + 5000);
    write_file(fs, "f", data);
    File file(fs, "f", O_RDWR);
    CHECK_OK(fs.ftruncate(file, static_cast<int64_t>(value)));
    write_at(fs, file, static_cast<int64_t>(value + 100), "tail");
    check_file(fs, "f", data.substr(0, value) + std::string(100, '\0') + "tail");
}

SUITE_CASE(truncate, by_one_byte_at_a_time, {}) {
    std::string data = pattern(4200);
    write_file(fs, "f", data);
    File file(fs, "f", O_RDWR);
    for (size_t size = data.size(); size > 3900; --size) {
        CHECK_OK(fs.ftruncate(file, static_cast<int64_t>(size)));
        check_content(read_at(fs, file, 0, 5000), data.substr(0, size));
    }
}

SUITE_CASE(truncate, up_makes_a_hole, {}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    CHECK_OK(fs.ftruncate(file, 64 * kMiB));
    FileStatus status = status_of(fs, file);
    CHECK_EQUAL(status.size_bytes, 64 * kMiB);
    CHECK_TRUE(status.allocated_bytes < kMiB);
    check_content(read_at(fs, file, 63 * kMiB, 4096), std::string(4096, '\0'));
}

SUITE_CASE(truncate, down_frees_what_was_allocated, {}) {
    write_file(fs, "f", pattern(4 * kMiB));
    File file(fs, "f", O_RDWR);
    CHECK_OK(fs.fsync(file));
    CHECK_TRUE(status_of(fs, file).allocated_bytes >= 4 * kMiB);
    CHECK_OK(fs.ftruncate(file, kMiB));
    CHECK_OK(fs.fsync(file));
    CHECK_TRUE(status_of(fs, file).allocated_bytes < 2 * kMiB);
    CHECK_OK(fs.ftruncate(file, 0));
    CHECK_OK(fs.fsync(file));
    CHECK_TRUE(status_of(fs, file).allocated_bytes <= 65536);
}

SUITE_CASE(truncate, again_and_again_to_odd_sizes, {}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    std::string data;
    uint64_t state = 7;
    for (int i = 0; i < 300; ++i) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        size_t size = (state >> 33) % 20000;
        if (i % 3 == 0) {
            std::string patch = pattern((state >> 20) % 6000, state);
            size_t offset = size;
            write_at(fs, file, static_cast<int64_t>(offset), patch);
            if (!patch.empty()) {
                data.resize(std::max(data.size(), offset + patch.size()), '\0');
                data.replace(offset, patch.size(), patch);
            }
        } else {
            CHECK_OK(fs.ftruncate(file, static_cast<int64_t>(size)));
            data.resize(size, '\0');
        }
        check_content(read_at(fs, file, 0, 30000), data);
    }
}

SUITE_CASE(truncate, with_o_trunc, {}) {
    for (size_t size : {size_t{0}, size_t{10}, size_t{1000}, size_t{5000}, 2 * kMiB}) {
        write_file(fs, "f", pattern(size));
        File file(fs, "f", O_WRONLY | O_TRUNC);
        CHECK_EQUAL(status_of(fs, file).size_bytes, 0U);
        check_file(fs, "f", "");
    }
}

SUITE_CASE(truncate, through_a_symlink_and_another_descriptor, {}) {
    write_file(fs, "f", pattern(9000));
    REQUIRE_OK(fs.symlink("f", "s"));
    File reader(fs, "f", O_RDONLY);
    CHECK_OK(fs.truncate("s", 100));
    CHECK_EQUAL(status_of(fs, reader).size_bytes, 100U);
    check_content(read_at(fs, reader, 0, 9000), pattern(9000).substr(0, 100));
}

SUITE_CASE(truncate, of_an_unlinked_open_file, {}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    write_at(fs, file, 0, pattern(100000));
    REQUIRE_OK(fs.unlink("f"));
    CHECK_OK(fs.ftruncate(file, 50000));
    CHECK_OK(fs.ftruncate(file, 70000));
    check_content(read_at(fs, file, 0, 100000),
                  pattern(100000).substr(0, 50000) + std::string(20000, '\0'));
}

SUITE_CASE(truncate, errors, {}) {
    write_file(fs, "f", "abc");
    REQUIRE_OK(fs.mkdir("d", 0755));
    CHECK_ERROR(fs.truncate("f", -1), EINVAL);
    CHECK_ERROR(fs.truncate("d", 0), EISDIR);
    CHECK_ERROR(fs.truncate("missing", 0), ENOENT);
    CHECK_ERROR(fs.truncate("f/x", 0), ENOTDIR);
    File file(fs, "f", O_RDWR);
    CHECK_ERROR(fs.ftruncate(file, -5), EINVAL);
    check_file(fs, "f", "abc");
}

SUITE_CASE(truncate, beyond_the_largest_size, {Feature::huge_files}) {
    write_file(fs, "f", "abc");
    int64_t answer = fs.truncate("f", INT64_MAX);
    // Either the file system takes sizes up to the last byte of an offset, or it says EFBIG.
    CHECK_TRUE(answer == 0 || answer == -EFBIG);
    if (answer == 0) {
        CHECK_EQUAL(status_of(fs, "f").size_bytes, static_cast<uint64_t>(INT64_MAX));
        CHECK_OK(fs.truncate("f", 3));
    }
    check_file(fs, "f", "abc");
}

SUITE_CASE(truncate, up_to_eight_tebibytes_and_down, {Feature::huge_files}) {
    constexpr int64_t tebibyte = int64_t{1} << 40;
    write_file(fs, "f", pattern(5000));
    CHECK_OK(fs.truncate("f", 8 * tebibyte + 12345));
    CHECK_EQUAL(status_of(fs, "f").size_bytes, static_cast<uint64_t>(8 * tebibyte + 12345));
    File file(fs, "f", O_RDWR);
    check_content(read_at(fs, file, 8 * tebibyte, 20000), std::string(12345, '\0'));
    write_at(fs, file, 8 * tebibyte, pattern(4096, 2));
    CHECK_OK(fs.ftruncate(file, 2500));
    check_file(fs, "f", pattern(5000).substr(0, 2500));
    CHECK_OK(fs.ftruncate(file, 8 * tebibyte + 4096));
    check_content(read_at(fs, file, 8 * tebibyte, 4096), std::string(4096, '\0'));
}

}  // namespace
}  // namespace tiffin::suite
