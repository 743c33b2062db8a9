// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Modes, owners, set-user-id and set-group-id, special files.
#include "tests/suite/helpers.h"

namespace tiffin::suite {
namespace {

constexpr uint32_t kKeep = 0xffffffff;

uint32_t permissions_of(FileSystemUnderTest& fs, const std::string& path) {
    return status_of(fs, path).mode & 07777;
}

constexpr uint32_t kModes[] = {0, 0111, 0222, 0444, 0755, 01777, 02755, 04755, 06755, 07777};

SUITE_CASES(mode, chmod_to, kModes, {}) {
    write_file(fs, "f", "x");
    REQUIRE_OK(fs.mkdir("d", 0755));
    REQUIRE_OK(fs.chmod("f", value));
    REQUIRE_OK(fs.chmod("d", value));
    CHECK_EQUAL(status_of(fs, "f").mode, S_IFREG | value);
    CHECK_EQUAL(status_of(fs, "d").mode, S_IFDIR | value);
    File file(fs, "f", O_RDWR);
    REQUIRE_OK(fs.fchmod(file, 0600));
    CHECK_EQUAL(permissions_of(fs, "f"), 0600U);
    check_file(fs, "f", "x");
}

SUITE_CASE(mode, chmod_cannot_change_the_type, {}) {
    write_file(fs, "f", "x");
    REQUIRE_OK(fs.chmod("f", S_IFDIR | 0700));
    CHECK_EQUAL(status_of(fs, "f").mode, uint32_t{S_IFREG | 0700});
}

SUITE_CASE(mode, chmod_of_missing, {}) { CHECK_ERROR(fs.chmod("missing", 0600), ENOENT); }

SUITE_CASE(owner, chown, {}) {
    write_file(fs, "f", "x");
    REQUIRE_OK(fs.chown("f", 1000, 2000));
    CHECK_EQUAL(status_of(fs, "f").user_id, 1000U);
    CHECK_EQUAL(status_of(fs, "f").group_id, 2000U);
    REQUIRE_OK(fs.chown("f", kKeep, 3000));
    CHECK_EQUAL(status_of(fs, "f").user_id, 1000U);
    CHECK_EQUAL(status_of(fs, "f").group_id, 3000U);
    REQUIRE_OK(fs.chown("f", 4000000000U, kKeep));
    CHECK_EQUAL(status_of(fs, "f").user_id, 4000000000U);
    CHECK_EQUAL(status_of(fs, "f").group_id, 3000U);
    REQUIRE_OK(fs.chown("f", kKeep, kKeep));
    CHECK_EQUAL(status_of(fs, "f").user_id, 4000000000U);
    CHECK_ERROR(fs.chown("missing", 1, 1), ENOENT);
}

SUITE_CASE(owner, new_files_belong_to_their_creator, {}) {
    REQUIRE_OK(fs.mkdir("d", 0777));
    REQUIRE_OK(fs.chmod("d", 0777));
    {
        ActingAs user(fs, 1234, 5678);
        write_file(fs, "d/f", "x");
        REQUIRE_OK(fs.mkdir("d/e", 0755));
        REQUIRE_OK(fs.symlink("x", "d/s"));
        REQUIRE_OK(fs.mknod("d/p", S_IFIFO | 0600, 0, 0));
    }
    for (const char* path : {"d/f", "d/e", "d/s", "d/p"}) {
        CHECK_EQUAL(status_of(fs, path).user_id, 1234U);
        CHECK_EQUAL(status_of(fs, path).group_id, 5678U);
    }
}

SUITE_CASE(owner, set_group_id_directory_passes_its_group_on, {}) {
    REQUIRE_OK(fs.mkdir("d", 0777));
    REQUIRE_OK(fs.chown("d", 0, 4321));
    REQUIRE_OK(fs.chmod("d", 02777));
    {
        ActingAs user(fs, 1234, 5678);
        write_file(fs, "d/f", "x");
        REQUIRE_OK(fs.mkdir("d/e", 0755));
        REQUIRE_OK(fs.mkdir("d/e/g", 0755));
        REQUIRE_OK(fs.symlink("x", "d/s"));
    }
    CHECK_EQUAL(status_of(fs, "d/f").group_id, 4321U);
    CHECK_EQUAL(permissions_of(fs, "d/f"), 0644U);
    // Directories also pass the bit on.
    CHECK_EQUAL(status_of(fs, "d/e").group_id, 4321U);
    CHECK_EQUAL(permissions_of(fs, "d/e"), 02755U);
    CHECK_EQUAL(status_of(fs, "d/e/g").group_id, 4321U);
    CHECK_EQUAL(permissions_of(fs, "d/e/g"), 02755U);
    CHECK_EQUAL(status_of(fs, "d/s").group_id, 4321U);
}

SUITE_CASE(owner, set_group_id_directory_and_tmpfile, {Feature::tmpfile}) {
    REQUIRE_OK(fs.mkdir("d", 0777));
    REQUIRE_OK(fs.chown("d", 0, 4321));
    REQUIRE_OK(fs.chmod("d", 02777));
    File file(fs, "d", O_TMPFILE | O_RDWR, 0644);
    CHECK_EQUAL(status_of(fs, file).group_id, 4321U);
}

// A program that runs with somebody's rights must not keep them when its text is changed.
void make_set_id_file(FileSystemUnderTest& fs, uint32_t mode) {
    write_file(fs, "f", pattern(5000));
    REQUIRE_OK(fs.chown("f", 1000, 1000));
    REQUIRE_OK(fs.chmod("f", mode));
    CHECK_EQUAL(permissions_of(fs, "f"), mode);
}

SUITE_CASE(set_id, cleared_by_a_write, {Feature::set_id_clearing}) {
    make_set_id_file(fs, 06777);
    ActingAs user(fs, 1001, 1001);
    File file(fs, "f", O_RDWR);
    write_at(fs, file, 0, "x");
    CHECK_EQUAL(permissions_of(fs, "f"), 0777U);
}

SUITE_CASE(set_id, cleared_by_an_append, {Feature::set_id_clearing}) {
    make_set_id_file(fs, 06777);
    ActingAs user(fs, 1001, 1001);
    File file(fs, "f", O_WRONLY | O_APPEND);
    CHECK_EQUAL(fs.write(file, "x", 1), 1);
    CHECK_EQUAL(permissions_of(fs, "f"), 0777U);
}

// Past the cache of a kernel, which believes the mode that it knows.
SUITE_CASE(direct, takes_set_id_bits_away, {Feature::set_id_clearing, Feature::direct_io}) {
    make_set_id_file(fs, 06777);
    {
        ActingAs user(fs, 1001, 1001);
        File file(fs, "f", O_RDWR | O_DIRECT);
        alignas(4096) static const char block[4096] = {};
        CHECK_EQUAL(fs.pwrite(file, block, sizeof block, 0), 4096);
    }
    CHECK_EQUAL(permissions_of(fs, "f"), 0777U);
}

SUITE_CASE(set_id, cleared_by_allocation, {Feature::set_id_clearing}) {
    make_set_id_file(fs, 06777);
    {
        ActingAs user(fs, 1001, 1001);
        File file(fs, "f", O_RDWR);
        CHECK_OK(fs.fallocate(file, 0, 0, 100'000));
    }
    CHECK_EQUAL(permissions_of(fs, "f"), 0777U);
}

// Without group execution the bit stays only for members of the group.
SUITE_CASE(permissions, foreign_groups_lose_set_group_id,
           {Feature::set_id_clearing, Feature::permissions}) {
    make_set_id_file(fs, 06767);
    REQUIRE_OK(fs.chmod("f", 06766));
    {
        ActingAs user(fs, 1001, 1001);
        File file(fs, "f", O_RDWR);
        CHECK_OK(fs.fallocate(file, 0, 0, 100'000));
    }
    CHECK_EQUAL(permissions_of(fs, "f"), 0766U);
}

SUITE_CASE(set_id, cleared_by_copying, {Feature::set_id_clearing, Feature::copy_file_range}) {
    write_file(fs, "source", pattern(20'000));
    make_set_id_file(fs, 06777);
    {
        ActingAs user(fs, 1001, 1001);
        File source(fs, "source", O_RDONLY);
        File file(fs, "f", O_RDWR);
        CHECK_EQUAL(fs.copy_file_range(source, 0, file, 0, 20'000), 20'000);
    }
    CHECK_EQUAL(permissions_of(fs, "f"), 0777U);
}

SUITE_CASE(set_id, cleared_by_truncation, {Feature::set_id_clearing}) {
    make_set_id_file(fs, 06777);
    ActingAs user(fs, 1001, 1001);
    File file(fs, "f", O_RDWR);
    CHECK_OK(fs.ftruncate(file, 10));
    CHECK_EQUAL(permissions_of(fs, "f"), 0777U);
}

SUITE_CASE(set_id, cleared_by_opening_with_truncation, {Feature::set_id_clearing}) {
    make_set_id_file(fs, 06777);
    ActingAs user(fs, 1001, 1001);
    File file(fs, "f", O_RDWR | O_TRUNC);
    CHECK_EQUAL(permissions_of(fs, "f"), 0777U);
}

SUITE_CASE(set_id, of_a_file_without_group_execution_marks_locking, {Feature::set_id_clearing}) {
    make_set_id_file(fs, 06767);
    REQUIRE_OK(fs.chmod("f", 06766));
    ActingAs user(fs, 1001, 1000);
    File file(fs, "f", O_RDWR);
    write_at(fs, file, 0, "x");
    // Set-group-id without group execution stays for members of the group.
    CHECK_EQUAL(permissions_of(fs, "f") & 04000U, 0U);
}

SUITE_CASE(set_id, kept_when_root_writes, {}) {
    make_set_id_file(fs, 06777);
    File file(fs, "f", O_RDWR);
    write_at(fs, file, 0, "x");
    CHECK_EQUAL(permissions_of(fs, "f"), 06777U);
}

SUITE_CASE(set_id, cleared_by_chown, {}) {
    make_set_id_file(fs, 06777);
    REQUIRE_OK(fs.chown("f", 1001, kKeep));
    CHECK_EQUAL(permissions_of(fs, "f"), 0777U);
    REQUIRE_OK(fs.chmod("f", 06777));
    REQUIRE_OK(fs.chown("f", kKeep, 1001));
    CHECK_EQUAL(permissions_of(fs, "f"), 0777U);
    // Without group execution the bit means mandatory locking, and stays.
    REQUIRE_OK(fs.chmod("f", 06767));
    REQUIRE_OK(fs.chmod("f", 06747));
    REQUIRE_OK(fs.chown("f", 1000, 1000));
    CHECK_EQUAL(permissions_of(fs, "f"), 02747U);
}

SUITE_CASE(set_id, of_directories_is_kept_by_chown, {}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    REQUIRE_OK(fs.chmod("d", 06777));
    REQUIRE_OK(fs.chown("d", 1000, 1000));
    CHECK_EQUAL(permissions_of(fs, "d"), 06777U);
}

// File capabilities are privileges of the text too.
SUITE_CASE(set_id, file_capabilities_go_with_a_write,
           {Feature::set_id_clearing, Feature::xattr_security}) {
    // VFS_CAP_REVISION_2, cap_net_raw permitted.
    const std::string capability(
        "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        "\x00\x00\x00\x00",
        20);
    write_file(fs, "f", "program");
    REQUIRE_OK(fs.chmod("f", 0777));
    CHECK_OK(set_xattr(fs, "f", "security.capability", capability));
    CHECK_TRUE(xattr_of(fs, "f", "security.capability") == capability);
    {
        ActingAs user(fs, 1001, 1001);
        File file(fs, "f", O_RDWR);
        write_at(fs, file, 0, "x");
    }
    CHECK_ERROR(fs.get_xattr("f", "security.capability", nullptr, 0), ENODATA);
    CHECK_OK(set_xattr(fs, "f", "security.capability", capability));
    REQUIRE_OK(fs.chown("f", 1000, 1000));
    CHECK_ERROR(fs.get_xattr("f", "security.capability", nullptr, 0), ENODATA);
}

// ---- Special files -----------------------------------------------------------------------------

struct Special {
    const char* name;
    uint32_t type;
    uint32_t device_major;
    uint32_t device_minor;
};
std::ostream& operator<<(std::ostream& stream, const Special& special) {
    return stream << special.name;
}
constexpr Special kSpecials[] = {{"fifo", S_IFIFO, 0, 0},      {"socket", S_IFSOCK, 0, 0},
                                 {"character", S_IFCHR, 1, 3}, {"block", S_IFBLK, 7, 200},
                                 {"regular", S_IFREG, 0, 0},   {"typeless", 0, 0, 0}};

void make_special(FileSystemUnderTest& fs, const Special& value) {
    REQUIRE_OK(fs.mknod("x", value.type | 0666, value.device_major, value.device_minor));
    FileStatus status = status_of(fs, "x");
    uint32_t type = value.type == 0 ? uint32_t{S_IFREG} : value.type;
    CHECK_EQUAL(status.mode, type | 0644);
    CHECK_EQUAL(status.link_count, 1U);
    CHECK_EQUAL(status.size_bytes, 0U);
    CHECK_EQUAL(status.device_major, value.device_major);
    CHECK_EQUAL(status.device_minor, value.device_minor);
    CHECK_ERROR(fs.mknod("x", value.type | 0666, 0, 0), EEXIST);
    REQUIRE_OK(fs.chmod("x", 0600));
    REQUIRE_OK(fs.chown("x", 3, 4));
    REQUIRE_OK(fs.rename("x", "y", 0));
    CHECK_EQUAL(status_of(fs, "y").mode, type | 0600);
    CHECK_EQUAL(status_of(fs, "y").device_minor, value.device_minor);
    REQUIRE_OK(fs.unlink("y"));
}

SUITE_CASES(special, make, kSpecials, {}) { make_special(fs, value); }

SUITE_CASE(special, largest_device_numbers, {Feature::large_device_numbers}) {
    make_special(fs, {"", S_IFCHR, 4095, 1048575});
}

SUITE_CASE(special, truncation_is_refused, {}) {
    REQUIRE_OK(fs.mknod("p", S_IFIFO | 0666, 0, 0));
    CHECK_ERROR(fs.truncate("p", 0), EINVAL);
}

}  // namespace
}  // namespace tiffin::suite
