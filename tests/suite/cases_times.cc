// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Time stamps: which call moves which of them, and what can be set. "a" access, "m" modification,
// "c" change.
#include <linux/falloc.h>
#include <linux/fs.h>

#include "tests/suite/helpers.h"

namespace tiffin::suite {
namespace {

// Access times depend on the mount; the cases that are not about them leave them out.
std::string modified_by(FileSystemUnderTest& fs, const std::string& path,
                        const std::function<void()>& action,
                        Location location = Location::current()) {
    std::string moved = times_moved_by(fs, path, action, location);
    return moved.substr(!moved.empty() && moved[0] == 'a' ? 1 : 0);
}

SUITE_CASE(times, of_a_new_file, {}) {
    let_the_clock_move(fs);
    write_file(fs, "before", "");
    let_the_clock_move(fs);
    write_file(fs, "f", "");
    FileStatus status = status_of(fs, "f");
    FileStatus before = status_of(fs, "before");
    CHECK_TRUE(earlier(before.modification_time, status.access_time));
    CHECK_TRUE(earlier(before.modification_time, status.modification_time));
    CHECK_TRUE(earlier(before.modification_time, status.change_time));
}

SUITE_CASE(times, creation_and_removal_change_the_directory, {}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    CHECK_EQUAL(modified_by(fs, "d", [&] { write_file(fs, "d/f", ""); }), "mc");
    CHECK_EQUAL(modified_by(fs, "d", [&] { REQUIRE_OK(fs.mkdir("d/e", 0755)); }), "mc");
    CHECK_EQUAL(modified_by(fs, "d", [&] { REQUIRE_OK(fs.symlink("x", "d/s")); }), "mc");
    CHECK_EQUAL(modified_by(fs, "d", [&] { REQUIRE_OK(fs.mknod("d/p", S_IFIFO | 0600, 0, 0)); }),
                "mc");
    CHECK_EQUAL(modified_by(fs, "d", [&] { REQUIRE_OK(fs.link("d/f", "d/g")); }), "mc");
    CHECK_EQUAL(modified_by(fs, "d", [&] { REQUIRE_OK(fs.unlink("d/f")); }), "mc");
    CHECK_EQUAL(modified_by(fs, "d", [&] { REQUIRE_OK(fs.rmdir("d/e")); }), "mc");
    CHECK_EQUAL(modified_by(fs, "d", [&] { REQUIRE_OK(fs.rename("d/g", "d/h", 0)); }), "mc");
    CHECK_EQUAL(modified_by(fs, "d", [&] { REQUIRE_OK(fs.rename("d/h", "h", 0)); }), "mc");
    CHECK_EQUAL(modified_by(fs, "d", [&] { REQUIRE_OK(fs.rename("h", "d/h", 0)); }), "mc");
}

SUITE_CASE(times, failed_creation_changes_nothing, {}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    write_file(fs, "d/f", "");
    CHECK_EQUAL(modified_by(fs, "d",
                            [&] {
                                CHECK_ERROR(fs.mkdir("d/f", 0755), EEXIST);
                                CHECK_ERROR(fs.unlink("d/x"), ENOENT);
                                CHECK_ERROR(fs.rmdir("d/f"), ENOTDIR);
                                CHECK_ERROR(fs.open("d/f", O_RDWR | O_CREAT | O_EXCL, 0644),
                                            EEXIST);
                            }),
                "");
}

SUITE_CASE(times, content_of_a_file_in_it_does_not_change_the_directory, {}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    write_file(fs, "d/f", "");
    CHECK_EQUAL(modified_by(fs, "d", [&] { write_file(fs, "d/f", "content"); }), "");
    CHECK_EQUAL(modified_by(fs, "d", [&] { REQUIRE_OK(fs.chmod("d/f", 0600)); }), "");
}

SUITE_CASE(times, writing, {}) {
    write_file(fs, "f", "x");
    File file(fs, "f", O_RDWR);
    CHECK_EQUAL(modified_by(fs, "f", [&] { write_at(fs, file, 0, "y"); }), "mc");
    CHECK_EQUAL(modified_by(fs, "f", [&] { write_at(fs, file, 5000, "y"); }), "mc");
    CHECK_EQUAL(modified_by(fs, "f", [&] { CHECK_EQUAL(fs.pwrite(file, "", 0, 0), 0); }), "");
}

// The time of writing must not be the time at which somebody's cache was written back.
SUITE_CASE(times, written_data_keeps_its_time_when_it_is_written_back, {}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    write_at(fs, file, 0, pattern(100000));
    FileStatus written = status_of(fs, file);
    let_the_clock_move(fs);
    CHECK_OK(fs.fsync(file));
    FileStatus synced = status_of(fs, file);
    CHECK_EQUAL(time_text(synced.modification_time), time_text(written.modification_time));
    let_the_clock_move(fs);
    file.close();
    CHECK_EQUAL(time_text(status_of(fs, "f").modification_time),
                time_text(written.modification_time));
}

SUITE_CASE(times, set_time_survives_write_back, {}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    write_at(fs, file, 0, pattern(100000));
    set_times(fs, "f", 1000, 2000);
    CHECK_OK(fs.fsync(file));
    file.close();
    CHECK_EQUAL(time_text(status_of(fs, "f").modification_time), "2000.000000000");
    CHECK_EQUAL(status_of(fs, "f").size_bytes, 100000U);
}

SUITE_CASE(times, truncation, {}) {
    write_file(fs, "f", pattern(10000));
    File file(fs, "f", O_RDWR);
    CHECK_EQUAL(modified_by(fs, "f", [&] { REQUIRE_OK(fs.ftruncate(file, 5000)); }), "mc");
    CHECK_EQUAL(modified_by(fs, "f", [&] { REQUIRE_OK(fs.ftruncate(file, 9000)); }), "mc");
    CHECK_EQUAL(modified_by(fs, "f", [&] { REQUIRE_OK(fs.truncate("f", 100)); }), "mc");
    CHECK_EQUAL(modified_by(fs, "f", [&] { File again(fs, "f", O_WRONLY | O_TRUNC); }), "mc");
}

SUITE_CASE(times, allocation, {Feature::punch_hole}) {
    write_file(fs, "f", pattern(10000));
    File file(fs, "f", O_RDWR);
    CHECK_EQUAL(modified_by(fs, "f",
                            [&] {
                                REQUIRE_OK(fs.fallocate(
                                    file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 5000));
                            }),
                "mc");
    CHECK_EQUAL(
        modified_by(fs, "f", [&] { REQUIRE_OK(fs.fallocate(file, 0, 0, 20000)); }).find('c') !=
            std::string::npos,
        true);
}

SUITE_CASE(times, copying, {Feature::copy_file_range}) {
    write_file(fs, "a", pattern(10000));
    write_file(fs, "b", "");
    File a(fs, "a", O_RDONLY);
    File b(fs, "b", O_RDWR);
    CHECK_EQUAL(
        modified_by(fs, "b", [&] { CHECK_EQUAL(fs.copy_file_range(a, 0, b, 0, 10000), 10000); }),
        "mc");
    CHECK_EQUAL(
        modified_by(fs, "a", [&] { CHECK_EQUAL(fs.copy_file_range(a, 0, b, 0, 10000), 10000); }),
        "");
}

SUITE_CASE(times, copying_a_hole_reads_it, {Feature::copy_file_range}) {
    write_file(fs, "a", "");
    REQUIRE_OK(fs.truncate("a", 100000));
    write_file(fs, "b", "");
    File a(fs, "a", O_RDONLY);
    File b(fs, "b", O_RDWR);
    CHECK_EQUAL(times_moved_by(
                    fs, "a", [&] { CHECK_EQUAL(fs.copy_file_range(a, 0, b, 0, 100000), 100000); }),
                "a");
}

SUITE_CASE(times, attributes, {}) {
    write_file(fs, "f", "x");
    CHECK_EQUAL(times_moved_by(fs, "f", [&] { REQUIRE_OK(fs.chmod("f", 0600)); }), "c");
    CHECK_EQUAL(times_moved_by(fs, "f", [&] { REQUIRE_OK(fs.chown("f", 1, 2)); }), "c");
    CHECK_EQUAL(times_moved_by(fs, "f", [&] { REQUIRE_OK(fs.link("f", "g")); }), "c");
    CHECK_EQUAL(times_moved_by(fs, "f", [&] { REQUIRE_OK(fs.unlink("g")); }), "c");
    CHECK_EQUAL(times_moved_by(fs, "f", [&] { status_of(fs, "f"); }), "");
    CHECK_EQUAL(times_moved_by(fs, "f", [&] { File opened(fs, "f", O_RDWR); }), "");
}

SUITE_CASE(times, rename_changes_the_file, {}) {
    write_file(fs, "f", "x");
    set_times(fs, "f", 100, 200);
    FileStatus before = status_of(fs, "f");
    let_the_clock_move(fs);
    REQUIRE_OK(fs.rename("f", "g", 0));
    FileStatus after = status_of(fs, "g");
    CHECK_TRUE(same(before.modification_time, after.modification_time));
    CHECK_TRUE(earlier(before.change_time, after.change_time));
}

SUITE_CASE(times, extended_attributes, {Feature::xattr_user}) {
    write_file(fs, "f", "x");
    CHECK_EQUAL(times_moved_by(fs, "f", [&] { CHECK_OK(set_xattr(fs, "f", "user.a", "1")); }), "c");
    CHECK_EQUAL(times_moved_by(fs, "f", [&] { xattr_of(fs, "f", "user.a"); }), "");
    CHECK_EQUAL(times_moved_by(fs, "f", [&] { CHECK_OK(fs.remove_xattr("f", "user.a")); }), "c");
}

SUITE_CASE(times, setting_flags, {Feature::file_flags, Feature::flags_change_time}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    uint32_t flags = 0;
    REQUIRE_OK(fs.get_flags(file, flags));
    CHECK_EQUAL(
        times_moved_by(fs, "f", [&] { CHECK_OK(fs.set_flags(file, flags | FS_NODUMP_FL)); }), "c");
}

SUITE_CASE(times, access_time_of_files, {Feature::access_on_read}) {
    write_file(fs, "f", pattern(100));
    File file(fs, "f", O_RDONLY);
    CHECK_EQUAL(times_moved_by(fs, "f", [&] { read_at(fs, file, 0, 10); }), "a");
}

SUITE_CASE(times, access_time_of_directories, {Feature::access_on_readdir}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    CHECK_EQUAL(times_moved_by(fs, "d", [&] { list_directory(fs, "d"); }), "a");
}

SUITE_CASE(times, access_time_of_files_with_the_no_atime_flag,
           {Feature::access_on_read, Feature::file_flags}) {
    write_file(fs, "f", pattern(100));
    File file(fs, "f", O_RDONLY);
    uint32_t flags = 0;
    REQUIRE_OK(fs.get_flags(file, flags));
    REQUIRE_OK(fs.set_flags(file, flags | FS_NOATIME_FL));
    CHECK_EQUAL(times_moved_by(fs, "f", [&] { read_at(fs, file, 0, 10); }), "");
}

SUITE_CASE(times, are_set_exactly, {}) {
    write_file(fs, "f", "x");
    const timespec cases[] = {{0, 0},
                              {1, 1},
                              {1'600'000'000, 123'456'789},
                              {4'000'000'000, 999'999'999},
                              {2'147'483'647, 5},
                              {2'147'483'648, 6}};
    for (const timespec& access : cases) {
        for (const timespec& modification : cases) {
            timespec times[2] = {access, modification};
            REQUIRE_OK(fs.utimens("f", times, 0));
            FileStatus status = status_of(fs, "f");
            CHECK_EQUAL(time_text(status.access_time), time_text(access));
            CHECK_EQUAL(time_text(status.modification_time), time_text(modification));
        }
    }
}

SUITE_CASE(times, before_1970, {}) {
    write_file(fs, "f", "x");
    timespec times[2] = {{-1, 999'999'999}, {-1'000'000'000, 500}};
    REQUIRE_OK(fs.utimens("f", times, 0));
    FileStatus status = status_of(fs, "f");
    CHECK_EQUAL(status.access_time.tv_sec, -1);
    CHECK_EQUAL(status.access_time.tv_nsec, 999'999'999);
    CHECK_EQUAL(status.modification_time.tv_sec, -1'000'000'000);
    CHECK_EQUAL(status.modification_time.tv_nsec, 500);
}

SUITE_CASE(times, now_and_omit, {}) {
    write_file(fs, "f", "x");
    set_times(fs, "f", 100, 200);
    timespec times[2] = {{0, UTIME_OMIT}, {300, 7}};
    REQUIRE_OK(fs.utimens("f", times, 0));
    CHECK_EQUAL(time_text(status_of(fs, "f").access_time), "100.000000000");
    CHECK_EQUAL(time_text(status_of(fs, "f").modification_time), "300.000000007");
    times[0] = {400, 8};
    times[1] = {0, UTIME_OMIT};
    REQUIRE_OK(fs.utimens("f", times, 0));
    CHECK_EQUAL(time_text(status_of(fs, "f").access_time), "400.000000008");
    CHECK_EQUAL(time_text(status_of(fs, "f").modification_time), "300.000000007");
    times[0] = {0, UTIME_NOW};
    times[1] = {500, 0};
    REQUIRE_OK(fs.utimens("f", times, 0));
    CHECK_TRUE(status_of(fs, "f").access_time.tv_sec > 1'000'000'000);
    CHECK_EQUAL(time_text(status_of(fs, "f").modification_time), "500.000000000");
    times[1] = {0, UTIME_NOW};
    REQUIRE_OK(fs.utimens("f", times, 0));
    CHECK_TRUE(status_of(fs, "f").modification_time.tv_sec > 1'000'000'000);
    times[0] = times[1] = {0, UTIME_OMIT};
    CHECK_EQUAL(times_moved_by(fs, "f", [&] { REQUIRE_OK(fs.utimens("f", times, 0)); }), "");
    times[0] = {0, 1'000'000'000};
    CHECK_ERROR(fs.utimens("f", times, 0), EINVAL);
}

SUITE_CASE(times, setting_moves_the_change_time, {}) {
    write_file(fs, "f", "x");
    FileStatus before = status_of(fs, "f");
    let_the_clock_move(fs);
    set_times(fs, "f", 100, 200);
    CHECK_TRUE(earlier(before.change_time, status_of(fs, "f").change_time));
    File file(fs, "f", O_RDWR);
    timespec times[2] = {{300, 0}, {400, 0}};
    REQUIRE_OK(fs.futimens(file, times));
    CHECK_EQUAL(status_of(fs, "f").modification_time.tv_sec, 400);
}

SUITE_CASE(times, birth_never_moves, {Feature::birth_time}) {
    let_the_clock_move(fs);
    write_file(fs, "before", "x");
    let_the_clock_move(fs);
    write_file(fs, "f", "x");
    FileStatus born = status_of(fs, "f");
    CHECK_TRUE(born.has_birth_time);
    CHECK_TRUE(earlier(status_of(fs, "before").change_time, born.birth_time));
    let_the_clock_move(fs);
    write_file(fs, "f", "yy");
    set_times(fs, "f", 1, 1);
    REQUIRE_OK(fs.chmod("f", 0600));
    REQUIRE_OK(fs.rename("f", "g", 0));
    FileStatus later = status_of(fs, "g");
    CHECK_EQUAL(time_text(later.birth_time), time_text(born.birth_time));
    REQUIRE_OK(fs.mkdir("d", 0755));
    CHECK_TRUE(status_of(fs, "d").has_birth_time);
    CHECK_TRUE(earlier(born.birth_time, status_of(fs, "d").birth_time));
}

}  // namespace
}  // namespace tiffin::suite
