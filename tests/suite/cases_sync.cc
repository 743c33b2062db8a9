// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Durability calls, read-only state and the end of a file system. What a crash leaves is the subject
// of the crash and model tests.
#include "tests/suite/helpers.h"

namespace tiffin::suite {
namespace {

SUITE_CASE(sync, calls_succeed, {}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    CHECK_OK(fs.fsync(file));
    CHECK_OK(fs.fdatasync(file));
    CHECK_OK(fs.syncfs(file));
    write_at(fs, file, 0, pattern(100000));
    CHECK_OK(fs.fdatasync(file));
    write_at(fs, file, 50000, pattern(100000, 2));
    CHECK_OK(fs.fsync(file));
    CHECK_OK(fs.syncfs(file));
    check_file(fs, "f", pattern(100000).substr(0, 50000) + pattern(100000, 2));
}

SUITE_CASE(sync, of_a_reader_and_of_an_unlinked_file, {}) {
    write_file(fs, "f", "x");
    File reader(fs, "f", O_RDONLY);
    CHECK_OK(fs.fsync(reader));
    REQUIRE_OK(fs.unlink("f"));
    CHECK_OK(fs.fsync(reader));
}

SUITE_CASE(sync, after_every_small_change, {}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    std::string expected;
    for (int i = 0; i < 100; ++i) {
        std::string piece = pattern(static_cast<size_t>(i) * 3 + 1, static_cast<uint64_t>(i));
        write_at(fs, file, static_cast<int64_t>(expected.size()), piece);
        expected += piece;
        CHECK_OK(i % 2 == 0 ? fs.fsync(file) : fs.fdatasync(file));
    }
    check_file(fs, "f", expected);
}

SUITE_CASE(sync, o_sync_writes, {}) {
    File file(fs, "f", O_RDWR | O_CREAT | O_SYNC);
    write_at(fs, file, 0, pattern(10000));
    File other(fs, "g", O_RDWR | O_CREAT | O_DSYNC | O_APPEND);
    CHECK_EQUAL(fs.write(other, "abc", 3), 3);
    check_file(fs, "f", pattern(10000));
    check_file(fs, "g", "abc");
}

// Back to writable at the end, whatever happened.
class ReadOnly {
  public:
    explicit ReadOnly(FileSystemUnderTest& fs) : fs_(fs) { REQUIRE_OK(fs_.remount(true)); }
    ~ReadOnly() { fs_.remount(false); }
    ReadOnly(const ReadOnly&) = delete;
    ReadOnly& operator=(const ReadOnly&) = delete;

  private:
    FileSystemUnderTest& fs_;
};

SUITE_CASE(read_only, refuses_every_change, {Feature::read_only_remount}) {
    write_file(fs, "f", "content");
    REQUIRE_OK(fs.mkdir("d", 0755));
    REQUIRE_OK(fs.symlink("f", "s"));
    {
        ReadOnly guard(fs);
        CHECK_ERROR(fs.open("f", O_WRONLY), EROFS);
        CHECK_ERROR(fs.open("f", O_RDONLY | O_TRUNC), EROFS);
        CHECK_ERROR(fs.open("g", O_WRONLY | O_CREAT, 0644), EROFS);
        CHECK_ERROR(fs.truncate("f", 0), EROFS);
        CHECK_ERROR(fs.mkdir("e", 0755), EROFS);
        CHECK_ERROR(fs.rmdir("d"), EROFS);
        CHECK_ERROR(fs.unlink("f"), EROFS);
        CHECK_ERROR(fs.rename("f", "g", 0), EROFS);
        CHECK_ERROR(fs.link("f", "g"), EROFS);
        CHECK_ERROR(fs.symlink("f", "t"), EROFS);
        CHECK_ERROR(fs.mknod("p", S_IFIFO | 0600, 0, 0), EROFS);
        CHECK_ERROR(fs.chmod("f", 0600), EROFS);
        CHECK_ERROR(fs.chown("f", 1, 1), EROFS);
        timespec times[2] = {{1, 0}, {1, 0}};
        CHECK_ERROR(fs.utimens("f", times, 0), EROFS);
        CHECK_ERROR(fs.set_xattr("f", "user.a", "x", 1, 0), EROFS);
        // Reading goes on.
        check_file(fs, "f", "content");
        CHECK_EQUAL(names_in(fs, ""), "d f s");
        File file(fs, "f", O_RDONLY);
        CHECK_OK(fs.fsync(file));
        FileStatus status;
        CHECK_OK(fs.stat("s", status));
    }
    write_file(fs, "f", "changed");
    check_file(fs, "f", "changed");
    REQUIRE_OK(fs.rmdir("d"));
}

SUITE_CASE(read_only, existing_answers_come_first, {Feature::read_only_remount}) {
    write_file(fs, "f", "content");
    ReadOnly guard(fs);
    CHECK_ERROR(fs.mkdir("f", 0755), EEXIST);
    CHECK_ERROR(fs.open("f", O_RDWR | O_CREAT | O_EXCL, 0644), EEXIST);
    CHECK_ERROR(fs.open("missing", O_RDONLY), ENOENT);
    File file(fs, "f", O_RDONLY | O_CREAT);
}

constexpr uint32_t kShutdownModes[] = {0, 1, 2};

SUITE_CASES(shutdown, mode, kShutdownModes, {Feature::shutdown}) {
    write_file(fs, "f", "content");
    File file(fs, "f", O_RDWR);
    CHECK_OK(fs.fsync(file));
    REQUIRE_OK(fs.shutdown(value));
    CHECK_ERROR(fs.open("g", O_WRONLY | O_CREAT, 0644), EIO);
    CHECK_ERROR(fs.mkdir("d", 0755), EIO);
    CHECK_ERROR(fs.fsync(file), EIO);
}

}  // namespace
}  // namespace tiffin::suite
