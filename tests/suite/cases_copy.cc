// SPDX-License-Identifier: MIT OR GPL-2.0-only
// copy_file_range inside one file system.
#include "tests/suite/helpers.h"

namespace tiffin::suite {
namespace {

// The call may copy less than it was asked for; programs call it in a loop.
int64_t copy_all(FileSystemUnderTest& fs, int source, int64_t from, int destination, int64_t to,
                 uint64_t length) {
    uint64_t done = 0;
    while (done < length) {
        int64_t answer = fs.copy_file_range(source, from + static_cast<int64_t>(done), destination,
                                            to + static_cast<int64_t>(done), length - done);
        if (answer < 0) {
            return answer;
        }
        if (answer == 0) {
            break;
        }
        done += static_cast<uint64_t>(answer);
    }
    return static_cast<int64_t>(done);
}

constexpr size_t kSizes[] = {1, 100, 1025, 4095, 4096, 4097, 100000, (3 << 20) + 5};

SUITE_CASES(copy, whole_file_of_size, kSizes, {Feature::copy_file_range}) {
    std::string data = pattern(value);
    write_file(fs, "a", data);
    File a(fs, "a", O_RDONLY);
    File b(fs, "b", O_RDWR | O_CREAT);
    CHECK_EQUAL(copy_all(fs, a, 0, b, 0, value), static_cast<int64_t>(value));
    check_file(fs, "b", data);
    check_file(fs, "a", data);
    // The two are independent afterwards.
    write_at(fs, b, 0, "B");
    check_file(fs, "a", data);
}

SUITE_CASE(copy, unaligned_pieces, {Feature::copy_file_range}) {
    std::string source = pattern(50000, 1);
    std::string expected = pattern(60000, 2);
    write_file(fs, "a", source);
    write_file(fs, "b", expected);
    File a(fs, "a", O_RDONLY);
    File b(fs, "b", O_RDWR);
    struct Piece {
        size_t from, to, length;
    };
    for (Piece piece : {Piece{1, 2, 3}, Piece{4096, 1, 8192}, Piece{5, 4096, 4096},
                        Piece{30000, 59000, 5000}, Piece{0, 20000, 20001}}) {
        CHECK_EQUAL(copy_all(fs, a, static_cast<int64_t>(piece.from), b,
                             static_cast<int64_t>(piece.to), piece.length),
                    static_cast<int64_t>(piece.length));
        expected.resize(std::max(expected.size(), piece.to + piece.length), '\0');
        expected.replace(piece.to, piece.length, source, piece.from, piece.length);
        check_file(fs, "b", expected);
    }
}

SUITE_CASE(copy, stops_at_the_end_of_the_source, {Feature::copy_file_range}) {
    write_file(fs, "a", pattern(1000));
    File a(fs, "a", O_RDONLY);
    File b(fs, "b", O_RDWR | O_CREAT);
    CHECK_EQUAL(fs.copy_file_range(a, 900, b, 0, 5000), 100);
    CHECK_EQUAL(fs.copy_file_range(a, 1000, b, 0, 5000), 0);
    CHECK_EQUAL(fs.copy_file_range(a, 2000, b, 0, 5000), 0);
    CHECK_EQUAL(fs.copy_file_range(a, 0, b, 0, 0), 0);
    check_file(fs, "b", pattern(1000).substr(900));
}

SUITE_CASE(copy, within_one_file, {Feature::copy_file_range}) {
    std::string data = pattern(100000);
    write_file(fs, "f", data);
    File file(fs, "f", O_RDWR);
    CHECK_EQUAL(copy_all(fs, file, 100, file, 50000, 40000), 40000);
    data.replace(50000, 40000, data, 100, 40000);
    check_file(fs, "f", data);
    CHECK_EQUAL(copy_all(fs, file, 50000, file, 0, 1000), 1000);
    data.replace(0, 1000, data, 50000, 1000);
    check_file(fs, "f", data);
}

SUITE_CASE(copy, overlapping_ranges_are_refused, {Feature::copy_file_range}) {
    std::string data = pattern(20000);
    write_file(fs, "f", data);
    File file(fs, "f", O_RDWR);
    CHECK_ERROR(fs.copy_file_range(file, 0, file, 100, 1000), EINVAL);
    CHECK_ERROR(fs.copy_file_range(file, 100, file, 0, 1000), EINVAL);
    CHECK_ERROR(fs.copy_file_range(file, 0, file, 0, 1), EINVAL);
    CHECK_EQUAL(fs.copy_file_range(file, 0, file, 10000, 10000), 10000);
    data.replace(10000, 10000, data, 0, 10000);
    check_file(fs, "f", data);
}

SUITE_CASE(copy, of_a_sparse_file, {Feature::copy_file_range}) {
    File a(fs, "a", O_RDWR | O_CREAT);
    CHECK_OK(fs.ftruncate(a, 2 << 20));
    write_at(fs, a, 300000, pattern(70000));
    write_file(fs, "b", pattern(2 << 20, 9));
    File b(fs, "b", O_RDWR);
    CHECK_EQUAL(copy_all(fs, a, 0, b, 0, 2 << 20), 2 << 20);
    check_content(read_file(fs, "b"), read_file(fs, "a"));
}

SUITE_CASE(copy, sees_what_was_just_written, {Feature::copy_file_range}) {
    File a(fs, "a", O_RDWR | O_CREAT);
    File b(fs, "b", O_RDWR | O_CREAT);
    for (uint64_t i = 0; i < 20; ++i) {
        std::string data = pattern(30000, i);
        write_at(fs, a, 0, data);
        write_at(fs, b, 1000, pattern(500, i + 100));
        CHECK_EQUAL(copy_all(fs, a, 0, b, 0, data.size()), 30000);
        check_file(fs, "b", data);
    }
}

SUITE_CASE(copy, errors, {Feature::copy_file_range}) {
    write_file(fs, "a", "abc");
    REQUIRE_OK(fs.mkdir("d", 0755));
    File a(fs, "a", O_RDONLY);
    File writer(fs, "a", O_WRONLY);
    File directory(fs, "d", O_RDONLY | O_DIRECTORY);
    File b(fs, "b", O_RDWR | O_CREAT);
    CHECK_ERROR(fs.copy_file_range(b, 0, a, 0, 3), EBADF);
    CHECK_ERROR(fs.copy_file_range(writer, 0, b, 0, 3), EBADF);
    CHECK_ERROR(fs.copy_file_range(directory, 0, b, 0, 3), EISDIR);
    File appender(fs, "b", O_WRONLY | O_APPEND);
    CHECK_ERROR(fs.copy_file_range(a, 0, appender, 0, 3), EBADF);
    check_file(fs, "b", "");
}

}  // namespace
}  // namespace tiffin::suite
