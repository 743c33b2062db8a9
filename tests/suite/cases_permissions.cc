// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Permissions: whoever checks them, they are checked. Every call by every caller is compared with other file
// systems in tests/conformance; here are the rules that POSIX spells out.
#include <cstdio>

#include "tests/suite/helpers.h"

namespace tiffin::suite {
namespace {

constexpr uint32_t kKeep = 0xffffffff;

SUITE_CASE(permissions, of_files, {Feature::permissions}) {
    write_file(fs, "f", "x");
    REQUIRE_OK(fs.chmod("f", 0640));
    REQUIRE_OK(fs.chown("f", 1000, 2000));
    {
        ActingAs owner(fs, 1000, 3000);
        File file(fs, "f", O_RDWR);
        CHECK_OK(fs.chmod("f", 0640));
        CHECK_ERROR(fs.chown("f", 1001, kKeep), EPERM);
    }
    {
        ActingAs member(fs, 1001, 2000);
        File file(fs, "f", O_RDONLY);
        CHECK_ERROR(fs.open("f", O_WRONLY), EACCES);
        CHECK_ERROR(fs.chmod("f", 0666), EPERM);
    }
    ActingAs other(fs, 1001, 3000);
    CHECK_ERROR(fs.open("f", O_RDONLY), EACCES);
    CHECK_ERROR(fs.truncate("f", 0), EACCES);
}

SUITE_CASE(permissions, of_directories, {Feature::permissions}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    write_file(fs, "d/f", "x");
    ActingAs user(fs, 1000, 1000);
    CHECK_ERROR(fs.open("d/g", O_WRONLY | O_CREAT, 0644), EACCES);
    CHECK_ERROR(fs.unlink("d/f"), EACCES);
    CHECK_ERROR(fs.mkdir("d/e", 0755), EACCES);
    CHECK_ERROR(fs.rename("d/f", "d/h", 0), EACCES);
}

SUITE_CASE(permissions, search_bit, {Feature::permissions}) {
    REQUIRE_OK(fs.mkdir("d", 0744));
    write_file(fs, "d/f", "x");
    ActingAs user(fs, 1000, 1000);
    FileStatus status;
    CHECK_ERROR(fs.lstat("d/f", status), EACCES);
    CHECK_OK(fs.lstat("d", status));
    CHECK_EQUAL(list_directory(fs, "d").size(), 3U);
}

SUITE_CASE(permissions, sticky_directory, {Feature::permissions}) {
    REQUIRE_OK(fs.mkdir("d", 0777));
    REQUIRE_OK(fs.chmod("d", 01777));
    {
        ActingAs user(fs, 1000, 1000);
        write_file(fs, "d/f", "x");
    }
    ActingAs other(fs, 1001, 1001);
    CHECK_ERROR(fs.unlink("d/f"), EPERM);
    CHECK_ERROR(fs.rename("d/f", "d/g", 0), EPERM);
}

// In a sticky directory only the owner of a name's file, or of the directory, may remove, rename or
// replace it; whoever may write may add names.
SUITE_CASE(permissions, sticky_directory_and_renaming,
           {Feature::permissions, Feature::rename_exchange}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    REQUIRE_OK(fs.chmod("d", 01777));
    REQUIRE_OK(fs.chown("d", 1002, 1002));
    REQUIRE_OK(fs.mkdir("open", 0755));
    REQUIRE_OK(fs.chmod("open", 0777));
    {
        ActingAs owner(fs, 1000, 1000);
        write_file(fs, "d/f", "x");
        REQUIRE_OK(fs.mkdir("d/e", 0777));
    }
    {
        ActingAs other(fs, 1001, 1001);
        write_file(fs, "open/mine", "y");
        REQUIRE_OK(fs.mkdir("open/empty", 0777));
        CHECK_ERROR(fs.rename("open/mine", "d/f", 0), EPERM);
        CHECK_ERROR(fs.rename("open/empty", "d/e", 0), EPERM);
        CHECK_ERROR(fs.rename("d/f", "open/f", 0), EPERM);
        CHECK_ERROR(fs.rename("open/mine", "d/f", RENAME_EXCHANGE), EPERM);
        CHECK_ERROR(fs.rmdir("d/e"), EPERM);
        CHECK_OK(fs.rename("open/mine", "d/mine", 0));
        CHECK_OK(fs.rename("d/mine", "open/mine", 0));
    }
    check_file(fs, "d/f", "x");
    ActingAs owner_of_the_directory(fs, 1002, 1002);
    CHECK_OK(fs.rename("d/f", "d/g", 0));
    CHECK_OK(fs.unlink("d/g"));
}

// A directory that moves gets another "..", which is a change of its own content.
SUITE_CASE(permissions, moving_a_directory_needs_the_right_to_write_it, {Feature::permissions}) {
    for (const char* parent : {"a", "b"}) {
        REQUIRE_OK(fs.mkdir(parent, 0755));
        REQUIRE_OK(fs.chmod(parent, 0777));
    }
    REQUIRE_OK(fs.mkdir("a/d", 0755));
    ActingAs user(fs, 1000, 1000);
    CHECK_ERROR(fs.rename("a/d", "b/d", 0), EACCES);
    CHECK_OK(fs.rename("a/d", "a/e", 0));
}

// utimensat: the owner may set any time; who may write may set both to now, and nothing else.
SUITE_CASE(permissions, setting_times, {Feature::permissions}) {
    write_file(fs, "f", "x");
    REQUIRE_OK(fs.chown("f", 1000, 1000));
    const timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
    const timespec one_now[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
    const timespec other_now[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
    const timespec nothing[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
    const timespec values[2] = {{1000000000, 1}, {1000000001, 999999999}};
    {
        ActingAs owner(fs, 1000, 1000);
        REQUIRE_OK(fs.chmod("f", 0));  // the owner needs no permission
        for (const timespec* times : {now, one_now, other_now, nothing, values}) {
            CHECK_OK(fs.utimens("f", times, 0));
        }
        REQUIRE_OK(fs.chmod("f", 0622));
    }
    {
        ActingAs writer(fs, 1001, 1001);
        CHECK_OK(fs.utimens("f", now, 0));
        CHECK_OK(fs.utimens("f", nothing, 0));
        CHECK_ERROR(fs.utimens("f", one_now, 0), EPERM);
        CHECK_ERROR(fs.utimens("f", other_now, 0), EPERM);
        CHECK_ERROR(fs.utimens("f", values, 0), EPERM);
    }
    REQUIRE_OK(fs.chmod("f", 0644));
    ActingAs reader(fs, 1001, 1001);
    CHECK_ERROR(fs.utimens("f", now, 0), EACCES);
    CHECK_OK(fs.utimens("f", nothing, 0));
    CHECK_ERROR(fs.utimens("f", values, 0), EPERM);
}

// chmod by somebody who is not in the file's group takes the set-group-id bit away, without an error.
SUITE_CASE(permissions, set_group_id_needs_the_group, {Feature::permissions}) {
    write_file(fs, "f", "x");
    write_file(fs, "g", "x");
    REQUIRE_OK(fs.chown("f", 1000, 2000));
    REQUIRE_OK(fs.chown("g", 1000, 1000));
    ActingAs owner(fs, 1000, 1000);
    CHECK_OK(fs.chmod("f", 02755));
    CHECK_EQUAL(status_of(fs, "f").mode & 07777, 0755U);
    CHECK_OK(fs.chmod("g", 02755));
    CHECK_EQUAL(status_of(fs, "g").mode & 07777, 02755U);
    // Only to a group that the owner is in, and to no other user.
    CHECK_ERROR(fs.chown("f", kKeep, 2001), EPERM);
    CHECK_ERROR(fs.chown("f", 1001, kKeep), EPERM);
    CHECK_OK(fs.chown("f", kKeep, 1000));
}

// chown to the owner that there is takes set-id bits away like any other, so only the owner may; where there
// are none, everybody may do nothing.
SUITE_CASE(permissions, chown_of_nothing,
           {Feature::permissions, Feature::set_id_clearing, Feature::chown_of_nothing}) {
    write_file(fs, "f", "x");
    REQUIRE_OK(fs.chown("f", 1000, 2000));
    REQUIRE_OK(fs.chmod("f", 04755));
    {
        ActingAs other(fs, 1001, 1001);
        CHECK_ERROR(fs.chown("f", kKeep, kKeep), EPERM);
    }
    CHECK_EQUAL(status_of(fs, "f").mode & 07777, 04755U);
    {
        ActingAs owner(fs, 1000, 1000);
        CHECK_OK(fs.chown("f", kKeep, kKeep));
        CHECK_EQUAL(status_of(fs, "f").mode & 07777, 0755U);
    }
    REQUIRE_OK(fs.chmod("f", 06755));
    CHECK_OK(fs.chown("f", kKeep, kKeep));
    CHECK_EQUAL(status_of(fs, "f").mode & 07777, 0755U);
    ActingAs other(fs, 1001, 1001);
    CHECK_OK(fs.chown("f", kKeep, kKeep));
}

// Without group execution set-group-id stays for members of the group only.
SUITE_CASE(permissions, set_group_id_without_execution,
           {Feature::permissions, Feature::set_id_clearing}) {
    for (uint32_t group : {2000U, 1000U}) {
        const uint32_t kept = group == 1000 ? 02000 : 0;
        write_file(fs, "f", "12345");
        REQUIRE_OK(fs.chown("f", 1000, group));
        REQUIRE_OK(fs.chmod("f", 02766));
        {
            ActingAs owner(fs, 1000, 1000);
            CHECK_OK(fs.chown("f", 1000, kKeep));
        }
        CHECK_EQUAL(status_of(fs, "f").mode & 07777, 0766U | kept);
        REQUIRE_OK(fs.chmod("f", 02766));
        {
            ActingAs owner(fs, 1000, 1000);
            CHECK_OK(fs.truncate("f", 2));
        }
        CHECK_EQUAL(status_of(fs, "f").mode & 07777, 0766U | kept);
    }
}

// Names of trusted attributes are for root; others are not even told how much room they take.
SUITE_CASE(permissions, trusted_names_are_not_listed,
           {Feature::permissions, Feature::xattr_trusted}) {
    write_file(fs, "f", "x");
    REQUIRE_OK(set_xattr(fs, "f", "user.a", "v"));
    REQUIRE_OK(set_xattr(fs, "f", "trusted.a", "v"));
    char names[64];
    CHECK_EQUAL(fs.list_xattr("f", names, 0), 17);
    ActingAs user(fs, 1000, 1000);
    CHECK_EQUAL(fs.list_xattr("f", names, 0), 7);
    CHECK_EQUAL(fs.list_xattr("f", names, 7), 7);
    CHECK_ERROR(fs.list_xattr("f", names, 6), ERANGE);
}

}  // namespace
}  // namespace tiffin::suite
