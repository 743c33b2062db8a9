// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The flags of chattr: immutable and append-only.
#include <linux/fs.h>

#include "tests/suite/helpers.h"

namespace tiffin::suite {
namespace {

// A flag that stands until the end of the case, so that cleaning up works after a failure.
class Flagged {
  public:
    Flagged(FileSystemUnderTest& fs, const std::string& path, uint32_t flags)
        : fs_(fs), file_(fs, path, O_RDONLY) {
        uint32_t old = 0;
        REQUIRE_OK(fs_.get_flags(file_, old));
        // Some file systems show flags of their own.
        old_ = old & ~(uint32_t{FS_IMMUTABLE_FL} | FS_APPEND_FL | FS_NODUMP_FL | FS_NOATIME_FL);
        REQUIRE_OK(fs_.set_flags(file_, old_ | flags));
    }
    ~Flagged() { fs_.set_flags(file_, old_); }
    Flagged(const Flagged&) = delete;
    Flagged& operator=(const Flagged&) = delete;

    uint32_t flags() {
        uint32_t flags = 0;
        CHECK_OK(fs_.get_flags(file_, flags));
        return flags & (uint32_t{FS_IMMUTABLE_FL} | FS_APPEND_FL | FS_NODUMP_FL | FS_NOATIME_FL);
    }

  private:
    FileSystemUnderTest& fs_;
    File file_;
    uint32_t old_ = 0;
};

SUITE_CASE(flags, are_kept, {Feature::file_flags}) {
    write_file(fs, "f", "x");
    for (uint32_t flags :
         {uint32_t{FS_NODUMP_FL}, uint32_t{FS_IMMUTABLE_FL}, uint32_t{FS_APPEND_FL},
          uint32_t{FS_NOATIME_FL}, uint32_t{FS_NODUMP_FL | FS_NOATIME_FL}}) {
        Flagged flagged(fs, "f", flags);
        CHECK_EQUAL(flagged.flags(), flags);
    }
    Flagged none(fs, "f", 0);
    CHECK_EQUAL(none.flags(), 0U);
}

SUITE_CASE(flags, unknown_ones_are_refused, {Feature::file_flags}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    int64_t answer = fs.set_flags(file, 0x80000000U);
    CHECK_TRUE(answer == -EOPNOTSUPP || answer == -EINVAL);
}

// Where nobody looks at the flags when a file is opened, writing is refused at the latest when it is
// closed, and nothing changes.
SUITE_CASE(flags, immutable_file_cannot_be_written, {Feature::file_flags}) {
    write_file(fs, "f", "content");
    {
        Flagged flagged(fs, "f", FS_IMMUTABLE_FL);
        int64_t answer = fs.open("f", O_WRONLY);
        if (answer >= 0) {
            auto file = static_cast<int>(answer);
            answer = fs.pwrite(file, "x", 1, 0);
            if (answer >= 0) {
                answer = fs.fsync(file);
            }
            fs.close(file);  // may say it again
        }
        CHECK_ERROR(answer, EPERM);
    }
    if (fs.has(Feature::flags_at_open)) {
        check_file(fs, "f", "content");
    }
}

SUITE_CASE(flags, writers_are_refused_at_open, {Feature::file_flags, Feature::flags_at_open}) {
    write_file(fs, "f", "content");
    {
        Flagged flagged(fs, "f", FS_IMMUTABLE_FL);
        CHECK_ERROR(fs.open("f", O_WRONLY), EPERM);
        CHECK_ERROR(fs.open("f", O_RDWR), EPERM);
        CHECK_ERROR(fs.open("f", O_WRONLY | O_APPEND), EPERM);
    }
    {
        Flagged flagged(fs, "f", FS_APPEND_FL);
        CHECK_ERROR(fs.open("f", O_WRONLY), EPERM);
        CHECK_ERROR(fs.open("f", O_RDWR), EPERM);
        File file(fs, "f", O_WRONLY | O_APPEND);
    }
    check_file(fs, "f", "content");
}

SUITE_CASE(flags, immutable_file, {Feature::file_flags}) {
    write_file(fs, "f", "content");
    REQUIRE_OK(fs.link("f", "g"));
    Flagged flagged(fs, "f", FS_IMMUTABLE_FL);
    CHECK_ERROR(fs.open("f", O_RDWR | O_TRUNC), EPERM);
    CHECK_ERROR(fs.truncate("f", 0), EPERM);
    CHECK_ERROR(fs.unlink("f"), EPERM);
    CHECK_ERROR(fs.unlink("g"), EPERM);
    CHECK_ERROR(fs.link("f", "h"), EPERM);
    CHECK_ERROR(fs.rename("f", "h", 0), EPERM);
    write_file(fs, "other", "");
    CHECK_ERROR(fs.rename("other", "f", 0), EPERM);
    CHECK_ERROR(fs.chmod("f", 0600), EPERM);
    CHECK_ERROR(fs.chown("f", 1, 1), EPERM);
    timespec times[2] = {{1, 0}, {1, 0}};
    CHECK_ERROR(fs.utimens("f", times, 0), EPERM);
    check_file(fs, "f", "content");
    CHECK_EQUAL(names_in(fs, ""), "f g other");
}

SUITE_CASE(flags, immutable_file_and_attributes, {Feature::file_flags, Feature::xattr_user}) {
    write_file(fs, "f", "content");
    Flagged flagged(fs, "f", FS_IMMUTABLE_FL);
    CHECK_ERROR(set_xattr(fs, "f", "user.a", "x"), EPERM);
    CHECK_ERROR(fs.remove_xattr("f", "user.a"), EPERM);
}

SUITE_CASE(flags, immutable_directory, {Feature::file_flags}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    write_file(fs, "d/f", "content");
    REQUIRE_OK(fs.mkdir("d/e", 0755));
    write_file(fs, "x", "");
    Flagged flagged(fs, "d", FS_IMMUTABLE_FL);
    // Linux says EACCES where the directory itself would have to be written.
    auto refused = [](int64_t answer) { return answer == -EPERM || answer == -EACCES; };
    CHECK_TRUE(refused(fs.open("d/g", O_WRONLY | O_CREAT, 0644)));
    CHECK_TRUE(refused(fs.mkdir("d/h", 0755)));
    CHECK_TRUE(refused(fs.symlink("x", "d/s")));
    CHECK_TRUE(refused(fs.mknod("d/p", S_IFIFO | 0600, 0, 0)));
    CHECK_TRUE(refused(fs.unlink("d/f")));
    CHECK_TRUE(refused(fs.rmdir("d/e")));
    CHECK_TRUE(refused(fs.rename("d/f", "y", 0)));
    CHECK_TRUE(refused(fs.rename("x", "d/x", 0)));
    CHECK_TRUE(refused(fs.link("x", "d/x")));
    // Files in it are not.
    File file(fs, "d/f", O_RDWR);
    write_at(fs, file, 0, "C");
    check_file(fs, "d/f", "Content");
    CHECK_EQUAL(names_in(fs, "d"), "e f");
}

SUITE_CASE(flags, append_only_file, {Feature::file_flags}) {
    write_file(fs, "f", "one");
    Flagged flagged(fs, "f", FS_APPEND_FL);
    CHECK_ERROR(fs.open("f", O_WRONLY | O_APPEND | O_TRUNC), EPERM);
    CHECK_ERROR(fs.truncate("f", 0), EPERM);
    CHECK_ERROR(fs.unlink("f"), EPERM);
    CHECK_ERROR(fs.rename("f", "g", 0), EPERM);
    CHECK_ERROR(fs.link("f", "g"), EPERM);
    File file(fs, "f", O_WRONLY | O_APPEND);
    CHECK_EQUAL(fs.write(file, "two", 3), 3);
    check_file(fs, "f", "onetwo");
}

SUITE_CASE(flags, append_only_file_and_times, {Feature::file_flags}) {
    write_file(fs, "f", "one");
    Flagged flagged(fs, "f", FS_APPEND_FL);
    const timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
    REQUIRE_OK(fs.utimens("f", now, 0));
    const timespec given[2] = {{1, 0}, {1, 0}};
    CHECK_ERROR(fs.utimens("f", given, 0), EPERM);
    const timespec modification_given[2] = {{0, UTIME_NOW}, {1, 0}};
    CHECK_ERROR(fs.utimens("f", modification_given, 0), EPERM);
    const timespec access_given[2] = {{1, 0}, {0, UTIME_NOW}};
    CHECK_ERROR(fs.utimens("f", access_given, 0), EPERM);
}

SUITE_CASE(flags, append_only_directory, {Feature::file_flags}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    write_file(fs, "d/f", "x");
    Flagged flagged(fs, "d", FS_APPEND_FL);
    write_file(fs, "d/g", "y");
    CHECK_ERROR(fs.unlink("d/f"), EPERM);
    CHECK_ERROR(fs.rename("d/f", "d/h", 0), EPERM);
    CHECK_EQUAL(names_in(fs, "d"), "f g");
}

}  // namespace
}  // namespace tiffin::suite
