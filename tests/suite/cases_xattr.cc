// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Extended attributes.
#include <sys/xattr.h>

#include "tests/suite/helpers.h"

namespace tiffin::suite {
namespace {

using Names = std::vector<std::string>;

constexpr size_t kValueSizes[] = {0,   1,   63,   64,   100,  255,  256,
                                  511, 512, 1000, 1024, 2000, 3000, 3500};
constexpr size_t kLargeValueSizes[] = {4095, 4096, 4097, 8192, 32768, 65535, 65536};

template <typename Sizes>
void set_get_replace_remove(FileSystemUnderTest& fs, const Sizes& size) {
    write_file(fs, "f", "content");
    std::string value = pattern(size);
    CHECK_OK(set_xattr(fs, "f", "user.name", value));
    CHECK_TRUE(xattr_of(fs, "f", "user.name") == value);
    CHECK_EQUAL(fs.get_xattr("f", "user.name", nullptr, 0), static_cast<int64_t>(size));
    value = pattern(size, 2);
    CHECK_OK(set_xattr(fs, "f", "user.name", value, XATTR_REPLACE));
    CHECK_TRUE(xattr_of(fs, "f", "user.name") == value);
    CHECK_OK(set_xattr(fs, "f", "user.name", "short"));
    CHECK_TRUE(xattr_of(fs, "f", "user.name") == "short");
    CHECK_OK(set_xattr(fs, "f", "user.name", value));
    CHECK_OK(fs.remove_xattr("f", "user.name"));
    CHECK_ERROR(fs.get_xattr("f", "user.name", nullptr, 0), ENODATA);
    check_file(fs, "f", "content");
}

SUITE_CASES(xattr, value_of_size, kValueSizes, {Feature::xattr_user}) {
    set_get_replace_remove(fs, value);
}

SUITE_CASES(xattr, large_value_of_size, kLargeValueSizes,
            {Feature::xattr_user, Feature::xattr_64k}) {
    set_get_replace_remove(fs, value);
}

SUITE_CASE(xattr, largest_value_of_several_names, {Feature::xattr_user, Feature::xattr_64k}) {
    write_file(fs, "f", pattern(10000));
    for (uint64_t i = 0; i < 10; ++i) {
        CHECK_OK(set_xattr(fs, "f", "user.n" + std::to_string(i), pattern(65536, i)));
    }
    for (uint64_t i = 0; i < 10; ++i) {
        CHECK_TRUE(xattr_of(fs, "f", "user.n" + std::to_string(i)) == pattern(65536, i));
    }
    check_file(fs, "f", pattern(10000));
}

SUITE_CASE(xattr, too_large, {Feature::xattr_user}) {
    write_file(fs, "f", "");
    CHECK_ERROR(set_xattr(fs, "f", "user.n", std::string(65537, 'x')), E2BIG);
    CHECK_ERROR(set_xattr(fs, "f", "user." + std::string(251, 'n'), "x"), ERANGE);
    CHECK_EQUAL(xattr_names(fs, "f").size(), 0U);
}

SUITE_CASE(xattr, longest_name, {Feature::xattr_user}) {
    write_file(fs, "f", "");
    std::string name = "user." + std::string(250, 'n');
    CHECK_OK(set_xattr(fs, "f", name, "value"));
    CHECK_TRUE(xattr_of(fs, "f", name) == "value");
    CHECK_TRUE(xattr_names(fs, "f") == Names{name});
}

SUITE_CASE(xattr, create_and_replace_flags, {Feature::xattr_user}) {
    write_file(fs, "f", "");
    CHECK_ERROR(set_xattr(fs, "f", "user.a", "1", XATTR_REPLACE), ENODATA);
    CHECK_OK(set_xattr(fs, "f", "user.a", "1", XATTR_CREATE));
    CHECK_ERROR(set_xattr(fs, "f", "user.a", "2", XATTR_CREATE), EEXIST);
    CHECK_EQUAL(xattr_of(fs, "f", "user.a"), "1");
    CHECK_OK(set_xattr(fs, "f", "user.a", "2", XATTR_REPLACE));
    CHECK_EQUAL(xattr_of(fs, "f", "user.a"), "2");
}

SUITE_CASE(xattr, small_buffers, {Feature::xattr_user}) {
    write_file(fs, "f", "");
    CHECK_OK(set_xattr(fs, "f", "user.a", "12345"));
    char buffer[64];
    CHECK_ERROR(fs.get_xattr("f", "user.a", buffer, 4), ERANGE);
    CHECK_EQUAL(fs.get_xattr("f", "user.a", buffer, 5), 5);
    CHECK_ERROR(fs.list_xattr("f", buffer, 3), ERANGE);
    CHECK_EQUAL(fs.list_xattr("f", nullptr, 0), 7);
    CHECK_EQUAL(fs.list_xattr("f", buffer, 7), 7);
}

SUITE_CASE(xattr, missing, {Feature::xattr_user}) {
    write_file(fs, "f", "");
    char buffer[10];
    CHECK_ERROR(fs.get_xattr("f", "user.a", buffer, sizeof buffer), ENODATA);
    CHECK_ERROR(fs.remove_xattr("f", "user.a"), ENODATA);
    CHECK_ERROR(fs.get_xattr("missing", "user.a", buffer, sizeof buffer), ENOENT);
    CHECK_ERROR(set_xattr(fs, "missing", "user.a", "x"), ENOENT);
    CHECK_EQUAL(fs.list_xattr("f", nullptr, 0), 0);
}

SUITE_CASE(xattr, unknown_prefix, {}) {
    write_file(fs, "f", "");
    CHECK_ERROR(set_xattr(fs, "f", "unknown.a", "x"), EOPNOTSUPP);
    CHECK_ERROR(set_xattr(fs, "f", "nodot", "x"), EOPNOTSUPP);
    char buffer[10];
    CHECK_ERROR(fs.get_xattr("f", "unknown.a", buffer, sizeof buffer), EOPNOTSUPP);
}

SUITE_CASE(xattr, hold_any_bytes, {Feature::xattr_user}) {
    write_file(fs, "f", "");
    std::string value("\0\1\2\xff\0", 5);
    CHECK_OK(set_xattr(fs, "f", "user.a", value));
    CHECK_TRUE(xattr_of(fs, "f", "user.a") == value);
    std::string name = "user.\x01\xff. /=";
    CHECK_OK(set_xattr(fs, "f", name, "x"));
    CHECK_EQUAL(xattr_of(fs, "f", name), "x");
}

SUITE_CASE(xattr, of_a_directory, {Feature::xattr_user}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    CHECK_OK(set_xattr(fs, "d", "user.a", "1"));
    write_file(fs, "d/f", "");
    CHECK_EQUAL(xattr_of(fs, "d", "user.a"), "1");
    CHECK_EQUAL(xattr_names(fs, "d/f").size(), 0U);
    REQUIRE_OK(fs.unlink("d/f"));
    REQUIRE_OK(fs.rmdir("d"));
    REQUIRE_OK(fs.mkdir("d", 0755));
    CHECK_EQUAL(xattr_names(fs, "d").size(), 0U);
}

SUITE_CASE(xattr, trusted_and_security, {Feature::xattr_trusted, Feature::xattr_security}) {
    write_file(fs, "f", "");
    REQUIRE_OK(fs.symlink("f", "s"));
    REQUIRE_OK(fs.mknod("p", S_IFIFO | 0600, 0, 0));
    for (const char* path : {"f", "s", "p"}) {
        CHECK_OK(set_xattr(fs, path, "trusted.a", "T"));
        CHECK_OK(set_xattr(fs, path, "security.tiffin", "S"));
        CHECK_EQUAL(xattr_of(fs, path, "trusted.a"), "T");
        CHECK_EQUAL(xattr_of(fs, path, "security.tiffin"), "S");
        CHECK_TRUE((xattr_names(fs, path) == Names{"security.tiffin", "trusted.a"}));
    }
}

SUITE_CASE(xattr, same_name_in_different_spaces,
           {Feature::xattr_user, Feature::xattr_trusted, Feature::xattr_security}) {
    write_file(fs, "f", "");
    CHECK_OK(set_xattr(fs, "f", "user.tiffin", "U"));
    CHECK_OK(set_xattr(fs, "f", "trusted.tiffin", "T"));
    CHECK_OK(set_xattr(fs, "f", "security.tiffin", "S"));
    CHECK_OK(fs.remove_xattr("f", "trusted.tiffin"));
    CHECK_EQUAL(xattr_of(fs, "f", "user.tiffin"), "U");
    CHECK_EQUAL(xattr_of(fs, "f", "security.tiffin"), "S");
    CHECK_TRUE((xattr_names(fs, "f") == Names{"security.tiffin", "user.tiffin"}));
}

SUITE_CASE(xattr, list_is_complete, {Feature::xattr_user}) {
    write_file(fs, "f", "");
    Names expected;
    for (int i = 10; i < 40; ++i) {
        std::string name = "user.name" + std::to_string(i);
        expected.push_back(name);
        CHECK_OK(set_xattr(fs, "f", name, "v" + std::to_string(i)));
    }
    CHECK_TRUE(xattr_names(fs, "f") == expected);
    for (int i = 10; i < 40; i += 2) {
        CHECK_OK(fs.remove_xattr("f", "user.name" + std::to_string(i)));
    }
    CHECK_EQUAL(xattr_names(fs, "f").size(), 15U);
    CHECK_EQUAL(xattr_of(fs, "f", "user.name11"), "v11");
}

SUITE_CASE(xattr, a_thousand_on_one_file, {Feature::xattr_user, Feature::many_xattrs}) {
    write_file(fs, "f", "content");
    for (uint64_t i = 0; i < 1000; ++i) {
        CHECK_OK(set_xattr(fs, "f", "user.name" + std::to_string(i), pattern(i % 200, i)));
    }
    CHECK_EQUAL(xattr_names(fs, "f").size(), 1000U);
    for (uint64_t i = 0; i < 1000; i += 13) {
        CHECK_TRUE(xattr_of(fs, "f", "user.name" + std::to_string(i)) == pattern(i % 200, i));
    }
    for (int i = 0; i < 1000; ++i) {
        CHECK_OK(fs.remove_xattr("f", "user.name" + std::to_string(i)));
    }
    CHECK_EQUAL(xattr_names(fs, "f").size(), 0U);
    check_file(fs, "f", "content");
}

SUITE_CASE(xattr, follow_the_file, {Feature::xattr_user}) {
    write_file(fs, "f", "");
    CHECK_OK(set_xattr(fs, "f", "user.a", "1"));
    REQUIRE_OK(fs.rename("f", "g", 0));
    REQUIRE_OK(fs.link("g", "h"));
    CHECK_EQUAL(xattr_of(fs, "h", "user.a"), "1");
    REQUIRE_OK(fs.unlink("g"));
    CHECK_EQUAL(xattr_of(fs, "h", "user.a"), "1");
    REQUIRE_OK(fs.unlink("h"));
    write_file(fs, "h", "");
    CHECK_ERROR(fs.get_xattr("h", "user.a", nullptr, 0), ENODATA);
}

SUITE_CASE(xattr, user_space_only_on_files_and_directories, {Feature::xattr_user}) {
    REQUIRE_OK(fs.symlink("f", "s"));
    REQUIRE_OK(fs.mknod("p", S_IFIFO | 0666, 0, 0));
    CHECK_ERROR(set_xattr(fs, "s", "user.a", "1"), EPERM);
    CHECK_ERROR(set_xattr(fs, "p", "user.a", "1"), EPERM);
}

}  // namespace
}  // namespace tiffin::suite
