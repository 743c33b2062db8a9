// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Content of regular files: what was written is read, at every size and alignment.
#include <algorithm>

#include "tests/suite/helpers.h"

namespace tiffin::suite {
namespace {

constexpr size_t kMiB = 1024 * 1024;

// Around everything where a layout may change: inline data, sectors, blocks, extents.
constexpr size_t kSizes[] = {0,     1,     2,     63,       64,   65,       511,
                             512,   513,   1023,  1024,     1025, 2047,     2048,
                             2049,  4095,  4096,  4097,     8191, 8192,     8193,
                             65535, 65536, 65537, kMiB - 1, kMiB, kMiB + 1, 3 * kMiB + 17};

constexpr size_t kOffsets[] = {0, 1, 511, 512, 513, 1023, 1024, 4095, 4096, 4097, 12288, kMiB - 1};

SUITE_CASES(content, write_and_read_size, kSizes, {}) {
    std::string data = pattern(value);
    write_file(fs, "f", data);
    check_file(fs, "f", data);
    // Again from a fresh open, in odd pieces.
    File file(fs, "f", O_RDONLY);
    std::string read;
    std::string piece(1777, '\0');
    while (int64_t size = REQUIRE_OK(fs.read(file, piece.data(), piece.size()))) {
        read.append(piece, 0, static_cast<size_t>(size));
    }
    check_content(read, data);
}

SUITE_CASES(content, overwrite_in_the_middle_of_size, kSizes, {}) {
    std::string data = pattern(value, 1);
    write_file(fs, "f", data);
    File file(fs, "f", O_RDWR);
    size_t offset = value / 3;
    std::string patch = pattern(value / 3, 2);
    write_at(fs, file, static_cast<int64_t>(offset), patch);
    data.replace(offset, patch.size(), patch);
    check_file(fs, "f", data);
}

SUITE_CASES(content, append_to_size, kSizes, {}) {
    std::string data = pattern(value, 1);
    write_file(fs, "f", data);
    for (size_t more : {size_t{1}, size_t{700}, size_t{5000}}) {
        File file(fs, "f", O_WRONLY | O_APPEND);
        std::string tail = pattern(more, more);
        CHECK_EQUAL(fs.write(file, tail.data(), tail.size()), static_cast<int64_t>(more));
        data += tail;
        check_file(fs, "f", data);
    }
}

// A write somewhere behind the end leaves zeros before it.
SUITE_CASES(content, first_write_at_offset, kOffsets, {}) {
    for (size_t size : {size_t{1}, size_t{512}, size_t{4096}, size_t{5001}}) {
        File file(fs, "f", O_RDWR | O_CREAT | O_TRUNC);
        std::string data = pattern(size);
        write_at(fs, file, static_cast<int64_t>(value), data);
        check_file(fs, "f", std::string(value, '\0') + data);
    }
}

// All small writes into a file of three blocks: every alignment of start and end matters once.
SUITE_CASES(content, overwrite_at_offset, kOffsets, {}) {
    std::string data = pattern(kMiB + 9000, 1);
    write_file(fs, "f", data);
    File file(fs, "f", O_RDWR);
    for (size_t size : {1, 2, 511, 512, 513, 4095, 4096, 4097, 8192, 8999}) {
        std::string patch = pattern(size, size);
        write_at(fs, file, static_cast<int64_t>(value), patch);
        data.replace(value, size, patch);
        check_content(read_at(fs, file, 0, data.size() + 1), data);
    }
}

SUITE_CASE(content, every_size_up_to_two_blocks_by_appending, {}) {
    File file(fs, "f", O_RDWR | O_CREAT | O_APPEND);
    std::string data = pattern(8500);
    size_t done = 0;
    for (size_t step = 1; done < data.size(); step = step % 97 + 1) {
        size_t size = std::min(step, data.size() - done);
        REQUIRE_OK(fs.write(file, data.data() + done, size));
        done += size;
        if (done % 7 == 0 || done > 8000) {
            check_content(read_at(fs, file, 0, 9000), data.substr(0, done));
        }
    }
    check_file(fs, "f", data);
}

SUITE_CASE(content, grows_from_empty_to_blocks_and_back, {}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    for (int round = 0; round < 3; ++round) {
        for (size_t size : {100, 1000, 1100, 5000, 200000}) {
            std::string data = pattern(size, size + static_cast<size_t>(round));
            CHECK_OK(fs.ftruncate(file, 0));
            write_at(fs, file, 0, data);
            check_file(fs, "f", data);
        }
        for (size_t size : {5000, 1000, 100, 1, 0}) {
            CHECK_OK(fs.ftruncate(file, static_cast<int64_t>(size)));
            check_file(fs, "f",
                       pattern(200000, 200000 + static_cast<size_t>(round)).substr(0, size));
        }
    }
}

// A small file whose second write lands far behind: the small part must survive the move.
SUITE_CASES(content, small_file_then_write_at_offset, kOffsets, {}) {
    std::string data = pattern(300, 1);
    write_file(fs, "f", data);
    File file(fs, "f", O_RDWR);
    std::string more = pattern(800, 2);
    write_at(fs, file, static_cast<int64_t>(value), more);
    data.resize(std::max(data.size(), value + more.size()), '\0');
    data.replace(value, more.size(), more);
    check_file(fs, "f", data);
}

SUITE_CASE(content, random_writes_match_a_copy_in_memory, {}) {
    constexpr size_t size = 2 * kMiB;
    std::string data(size, '\0');
    File file(fs, "f", O_RDWR | O_CREAT);
    CHECK_OK(fs.ftruncate(file, size));
    uint64_t state = 42;
    for (int i = 0; i < 400; ++i) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        size_t offset = (state >> 33) % size;
        size_t length = std::min<size_t>((state >> 20) % 20000, size - offset);
        std::string patch = pattern(length, state);
        write_at(fs, file, static_cast<int64_t>(offset), patch);
        data.replace(offset, length, patch);
        if (i % 50 == 0) {
            check_content(read_at(fs, file, 0, size), data);
        }
    }
    check_file(fs, "f", data);
}

SUITE_CASE(content, backwards_writes_fill_a_file, {}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    std::string data = pattern(300 * 1000);
    for (size_t end = data.size(); end > 0;) {
        size_t start = end >= 1000 ? end - 1000 : 0;
        write_at(fs, file, static_cast<int64_t>(start), data.substr(start, end - start));
        end = start;
    }
    check_file(fs, "f", data);
}

SUITE_CASE(content, write_of_nothing_changes_nothing, {}) {
    write_file(fs, "f", "content");
    File file(fs, "f", O_RDWR);
    CHECK_EQUAL(fs.pwrite(file, "", 0, 0), 0);
    CHECK_EQUAL(fs.pwrite(file, "", 0, 100000), 0);
    check_file(fs, "f", "content");
}

SUITE_CASE(content, read_at_and_beyond_the_end, {}) {
    write_file(fs, "f", pattern(5000));
    File file(fs, "f", O_RDONLY);
    char buffer[100];
    CHECK_EQUAL(fs.pread(file, buffer, sizeof buffer, 4950), 50);
    CHECK_EQUAL(fs.pread(file, buffer, sizeof buffer, 5000), 0);
    CHECK_EQUAL(fs.pread(file, buffer, sizeof buffer, 5001), 0);
    CHECK_EQUAL(fs.pread(file, buffer, sizeof buffer, int64_t{1} << 40), 0);
    CHECK_EQUAL(fs.pread(file, buffer, 0, 0), 0);
    CHECK_ERROR(fs.pread(file, buffer, sizeof buffer, -1), EINVAL);
}

SUITE_CASE(content, file_position_moves_with_reads_and_writes, {}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    CHECK_EQUAL(fs.write(file, "abcdef", 6), 6);
    CHECK_EQUAL(fs.lseek(file, 0, SEEK_CUR), 6);
    CHECK_EQUAL(fs.lseek(file, 2, SEEK_SET), 2);
    char buffer[3] = {};
    CHECK_EQUAL(fs.read(file, buffer, 2), 2);
    CHECK_EQUAL(std::string(buffer), "cd");
    CHECK_EQUAL(fs.lseek(file, -1, SEEK_CUR), 3);
    CHECK_EQUAL(fs.lseek(file, 10, SEEK_END), 16);
    CHECK_EQUAL(fs.write(file, "x", 1), 1);
    CHECK_EQUAL(fs.pwrite(file, "Y", 1, 0), 1);
    CHECK_EQUAL(fs.lseek(file, 0, SEEK_CUR), 17);
    CHECK_ERROR(fs.lseek(file, -1, SEEK_SET), EINVAL);
    check_file(fs, "f", std::string("Ybcdef") + std::string(10, '\0') + "x");
}

SUITE_CASE(content, many_small_files, {}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    for (size_t i = 0; i < 300; ++i) {
        write_file(fs, "d/" + std::to_string(i), pattern(i * 11, i));
    }
    for (size_t i = 0; i < 300; ++i) {
        check_file(fs, "d/" + std::to_string(i), pattern(i * 11, i));
    }
}

SUITE_CASE(content, two_files_written_in_turns, {}) {
    File a(fs, "a", O_RDWR | O_CREAT);
    File b(fs, "b", O_RDWR | O_CREAT);
    std::string data_a = pattern(200 * 4096, 1);
    std::string data_b = pattern(200 * 4096, 2);
    for (size_t i = 0; i < 200; ++i) {
        auto offset = static_cast<int64_t>(i * 4096);
        write_at(fs, a, offset, data_a.substr(i * 4096, 4096));
        write_at(fs, b, offset, data_b.substr(i * 4096, 4096));
    }
    check_file(fs, "a", data_a);
    check_file(fs, "b", data_b);
}

SUITE_CASE(content, eight_mebibytes_in_one_call, {}) {
    std::string data = pattern(8 * kMiB + 123);
    File file(fs, "f", O_RDWR | O_CREAT);
    CHECK_EQUAL(fs.pwrite(file, data.data(), data.size(), 1), static_cast<int64_t>(data.size()));
    std::string read(data.size(), '\0');
    CHECK_EQUAL(fs.pread(file, read.data(), read.size(), 1), static_cast<int64_t>(read.size()));
    check_content(read, data);
}

SUITE_CASE(content, wrong_kind_of_descriptor, {}) {
    char byte = 'x';
    write_file(fs, "f", "abc");
    REQUIRE_OK(fs.mkdir("d", 0755));
    File reader(fs, "f", O_RDONLY);
    CHECK_ERROR(fs.write(reader, &byte, 1), EBADF);
    CHECK_ERROR(fs.pwrite(reader, &byte, 1, 0), EBADF);
    File writer(fs, "f", O_WRONLY);
    CHECK_ERROR(fs.read(writer, &byte, 1), EBADF);
    CHECK_ERROR(fs.pread(writer, &byte, 1, 0), EBADF);
    File directory(fs, "d", O_RDONLY | O_DIRECTORY);
    CHECK_ERROR(fs.read(directory, &byte, 1), EISDIR);
    CHECK_ERROR(fs.pread(directory, &byte, 1, 0), EISDIR);
    CHECK_ERROR(fs.fallocate(reader, 0, 0, 1), EBADF);
    CHECK_ERROR(fs.ftruncate(reader, 0), EINVAL);
    check_file(fs, "f", "abc");
}

}  // namespace
}  // namespace tiffin::suite
