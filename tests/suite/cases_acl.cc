// SPDX-License-Identifier: MIT OR GPL-2.0-only
// POSIX access control lists, in Linux's layout of the extended attribute.
#include <algorithm>

#include "tests/suite/helpers.h"

namespace tiffin::suite {
namespace {

const char* const kAccess = "system.posix_acl_access";
const char* const kDefault = "system.posix_acl_default";

constexpr uint16_t kUserObject = 0x01;
constexpr uint16_t kUser = 0x02;
constexpr uint16_t kGroupObject = 0x04;
constexpr uint16_t kGroup = 0x08;
constexpr uint16_t kMask = 0x10;
constexpr uint16_t kOther = 0x20;
constexpr uint32_t kNoId = 0xffffffff;

struct Entry {
    uint16_t tag;
    uint16_t permissions;
    uint32_t id;
};

void put(std::string& text, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) {
        text += static_cast<char>(value >> (8 * i));
    }
}

// Version 2, little-endian, entries in the order of their tags.
std::string acl(const std::vector<Entry>& entries) {
    std::string text;
    put(text, 2, 4);
    for (const Entry& entry : entries) {
        put(text, entry.tag, 2);
        put(text, entry.permissions, 2);
        put(text, entry.id, 4);
    }
    return text;
}

const std::vector<Entry> kWithUser = {{kUserObject, 6, kNoId},
                                      {kUser, 7, 1000},
                                      {kGroupObject, 4, kNoId},
                                      {kMask, 7, kNoId},
                                      {kOther, 0, kNoId}};

SUITE_CASE(acl, three_entries_are_the_mode, {Feature::acl}) {
    write_file(fs, "f", "");
    CHECK_OK(
        set_xattr(fs, "f", kAccess,
                  acl({{kUserObject, 7, kNoId}, {kGroupObject, 5, kNoId}, {kOther, 1, kNoId}})));
    CHECK_EQUAL(status_of(fs, "f").mode, uint32_t{S_IFREG | 0751});
    // An ACL that says no more than the mode is not kept.
    CHECK_ERROR(fs.get_xattr("f", kAccess, nullptr, 0), ENODATA);
    CHECK_EQUAL(xattr_names(fs, "f").size(), 0U);
}

SUITE_CASE(acl, mask_becomes_the_group_bits, {Feature::acl}) {
    write_file(fs, "f", "");
    CHECK_OK(set_xattr(fs, "f", kAccess, acl(kWithUser)));
    CHECK_EQUAL(status_of(fs, "f").mode, uint32_t{S_IFREG | 0670});
    CHECK_TRUE(xattr_of(fs, "f", kAccess) == acl(kWithUser));
    // xfs lists its own form of it as well.
    std::vector<std::string> names = xattr_names(fs, "f");
    CHECK_EQUAL(std::count(names.begin(), names.end(), kAccess), 1);
}

SUITE_CASE(acl, chmod_changes_the_mask, {Feature::acl}) {
    write_file(fs, "f", "");
    CHECK_OK(set_xattr(fs, "f", kAccess, acl(kWithUser)));
    CHECK_OK(fs.chmod("f", 0745));
    CHECK_EQUAL(status_of(fs, "f").mode, uint32_t{S_IFREG | 0745});
    CHECK_TRUE(xattr_of(fs, "f", kAccess) == acl({{kUserObject, 7, kNoId},
                                                  {kUser, 7, 1000},
                                                  {kGroupObject, 4, kNoId},
                                                  {kMask, 4, kNoId},
                                                  {kOther, 5, kNoId}}));
}

SUITE_CASE(acl, removal_keeps_the_mode, {Feature::acl}) {
    write_file(fs, "f", "");
    CHECK_OK(set_xattr(fs, "f", kAccess, acl(kWithUser)));
    CHECK_OK(fs.remove_xattr("f", kAccess));
    CHECK_EQUAL(status_of(fs, "f").mode, uint32_t{S_IFREG | 0670});
    CHECK_ERROR(fs.get_xattr("f", kAccess, nullptr, 0), ENODATA);
}

SUITE_CASE(acl, default_is_inherited_by_files, {Feature::acl}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    CHECK_OK(set_xattr(fs, "d", kDefault, acl(kWithUser)));
    CHECK_EQUAL(status_of(fs, "d").mode, uint32_t{S_IFDIR | 0755});
    fs.set_umask(077);
    // The mode that is asked for limits the entries; the umask does not.
    File file(fs, "d/f", O_RDWR | O_CREAT, 0666);
    CHECK_EQUAL(status_of(fs, file).mode, uint32_t{S_IFREG | 0660});
    CHECK_TRUE(xattr_of(fs, "d/f", kAccess) == acl({{kUserObject, 6, kNoId},
                                                    {kUser, 7, 1000},
                                                    {kGroupObject, 4, kNoId},
                                                    {kMask, 6, kNoId},
                                                    {kOther, 0, kNoId}}));
    CHECK_ERROR(fs.get_xattr("d/f", kDefault, nullptr, 0), ENODATA);
}

SUITE_CASE(acl, default_is_inherited_by_directories, {Feature::acl}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    CHECK_OK(set_xattr(fs, "d", kDefault, acl(kWithUser)));
    fs.set_umask(077);
    REQUIRE_OK(fs.mkdir("d/e", 0755));
    CHECK_EQUAL(status_of(fs, "d/e").mode, uint32_t{S_IFDIR | 0650});
    CHECK_TRUE(xattr_of(fs, "d/e", kDefault) == acl(kWithUser));
    CHECK_TRUE(xattr_of(fs, "d/e", kAccess) == acl({{kUserObject, 6, kNoId},
                                                    {kUser, 7, 1000},
                                                    {kGroupObject, 4, kNoId},
                                                    {kMask, 5, kNoId},
                                                    {kOther, 0, kNoId}}));
    REQUIRE_OK(fs.mkdir("d/e/g", 0777));
    CHECK_TRUE(xattr_of(fs, "d/e/g", kDefault) == acl(kWithUser));
}

SUITE_CASE(acl, default_of_three_entries_makes_a_mode, {Feature::acl}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    CHECK_OK(
        set_xattr(fs, "d", kDefault,
                  acl({{kUserObject, 7, kNoId}, {kGroupObject, 7, kNoId}, {kOther, 5, kNoId}})));
    fs.set_umask(077);
    File file(fs, "d/f", O_RDWR | O_CREAT, 0666);
    CHECK_EQUAL(status_of(fs, file).mode, uint32_t{S_IFREG | 0664});
    CHECK_ERROR(fs.get_xattr("d/f", kAccess, nullptr, 0), ENODATA);
}

SUITE_CASE(acl, default_does_not_reach_symlinks, {Feature::acl}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    CHECK_OK(set_xattr(fs, "d", kDefault, acl(kWithUser)));
    REQUIRE_OK(fs.symlink("x", "d/s"));
    CHECK_EQUAL(xattr_names(fs, "d/s").size(), 0U);
    REQUIRE_OK(fs.mknod("d/p", S_IFIFO | 0666, 0, 0));
    CHECK_EQUAL(status_of(fs, "d/p").mode, uint32_t{S_IFIFO | 0660});
}

SUITE_CASE(acl, default_removed, {Feature::acl}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    CHECK_OK(set_xattr(fs, "d", kDefault, acl(kWithUser)));
    CHECK_OK(fs.remove_xattr("d", kDefault));
    CHECK_ERROR(fs.get_xattr("d", kDefault, nullptr, 0), ENODATA);
    File file(fs, "d/f", O_RDWR | O_CREAT, 0666);
    CHECK_EQUAL(status_of(fs, file).mode, uint32_t{S_IFREG | 0644});
}

SUITE_CASE(acl, default_only_on_directories, {Feature::acl}) {
    write_file(fs, "f", "");
    // EACCES from Linux itself.
    int64_t answer = set_xattr(fs, "f", kDefault, acl(kWithUser));
    CHECK_TRUE(answer == -EACCES || answer == -EINVAL);
    CHECK_ERROR(fs.get_xattr("f", kDefault, nullptr, 0), ENODATA);
}

SUITE_CASE(acl, bad_lists_are_refused, {Feature::acl}) {
    write_file(fs, "f", "");
    CHECK_ERROR(set_xattr(fs, "f", kAccess, acl({{kUserObject, 6, kNoId}})), EINVAL);
    CHECK_ERROR(set_xattr(fs, "f", kAccess,
                          acl({{kUserObject, 6, kNoId},
                               {kUser, 7, 1000},
                               {kGroupObject, 4, kNoId},
                               {kOther, 0, kNoId}})),
                EINVAL);
    CHECK_ERROR(
        set_xattr(fs, "f", kAccess,
                  acl({{kUserObject, 9, kNoId}, {kGroupObject, 4, kNoId}, {kOther, 0, kNoId}})),
        EINVAL);
    CHECK_ERROR(set_xattr(fs, "f", kAccess, acl(kWithUser).substr(0, 11)), EINVAL);
    int64_t answer = set_xattr(fs, "f", kAccess, std::string("\x09\0\0\0", 4));
    CHECK_TRUE(answer == -EOPNOTSUPP || answer == -EINVAL);
    CHECK_EQUAL(status_of(fs, "f").mode, uint32_t{S_IFREG | 0644});
}

SUITE_CASE(acl, many_users_and_groups, {Feature::acl}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    std::vector<Entry> entries = {{kUserObject, 7, kNoId}};
    for (uint32_t i = 0; i < 100; ++i) {
        entries.push_back({kUser, static_cast<uint16_t>(i % 8), 2000 + i});
    }
    entries.push_back({kGroupObject, 5, kNoId});
    for (uint32_t i = 0; i < 100; ++i) {
        entries.push_back({kGroup, static_cast<uint16_t>(i % 8), 3000 + i});
    }
    entries.push_back({kMask, 7, kNoId});
    entries.push_back({kOther, 5, kNoId});
    CHECK_OK(set_xattr(fs, "d", kAccess, acl(entries)));
    CHECK_OK(set_xattr(fs, "d", kDefault, acl(entries)));
    CHECK_TRUE(xattr_of(fs, "d", kAccess) == acl(entries));
    REQUIRE_OK(fs.mkdir("d/e", 0777));
    CHECK_TRUE(xattr_of(fs, "d/e", kAccess) == acl(entries));
}

SUITE_CASE(acl, is_obeyed, {Feature::acl, Feature::permissions}) {
    write_file(fs, "f", "secret");
    CHECK_OK(fs.chmod("f", 0600));
    {
        ActingAs user(fs, 1000, 1000);
        CHECK_ERROR(fs.open("f", O_RDONLY), EACCES);
    }
    CHECK_OK(set_xattr(fs, "f", kAccess,
                       acl({{kUserObject, 6, kNoId},
                            {kUser, 4, 1000},
                            {kGroupObject, 0, kNoId},
                            {kMask, 4, kNoId},
                            {kOther, 0, kNoId}})));
    {
        ActingAs user(fs, 1000, 1000);
        check_file(fs, "f", "secret");
        CHECK_ERROR(fs.open("f", O_WRONLY), EACCES);
    }
    ActingAs user(fs, 1001, 1001);
    CHECK_ERROR(fs.open("f", O_RDONLY), EACCES);
}

}  // namespace
}  // namespace tiffin::suite
