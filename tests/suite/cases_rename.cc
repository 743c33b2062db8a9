// SPDX-License-Identifier: MIT OR GPL-2.0-only
// rename and renameat2: everything over everything.
#include <stdio.h>

#include "tests/suite/helpers.h"

namespace tiffin::suite {
namespace {

SUITE_CASE(rename, file_to_a_new_name, {}) {
    write_file(fs, "a", "content");
    uint64_t node = status_of(fs, "a").node;
    REQUIRE_OK(fs.rename("a", "b", 0));
    CHECK_TRUE(!exists(fs, "a"));
    check_file(fs, "b", "content");
    CHECK_EQUAL(status_of(fs, "b").node, node);
    CHECK_EQUAL(status_of(fs, "b").link_count, 1U);
}

SUITE_CASE(rename, file_over_file, {}) {
    write_file(fs, "a", "new");
    write_file(fs, "b", pattern(100000));
    REQUIRE_OK(fs.rename("a", "b", 0));
    CHECK_EQUAL(names_in(fs, ""), "b");
    check_file(fs, "b", "new");
}

SUITE_CASE(rename, file_over_one_of_several_links, {}) {
    write_file(fs, "a", "new");
    write_file(fs, "b", "old");
    REQUIRE_OK(fs.link("b", "c"));
    REQUIRE_OK(fs.rename("a", "b", 0));
    check_file(fs, "b", "new");
    check_file(fs, "c", "old");
    CHECK_EQUAL(status_of(fs, "c").link_count, 1U);
}

SUITE_CASE(rename, into_another_directory, {}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    REQUIRE_OK(fs.mkdir("e", 0755));
    write_file(fs, "d/f", "content");
    REQUIRE_OK(fs.rename("d/f", "e/g", 0));
    CHECK_EQUAL(names_in(fs, "d"), "");
    CHECK_EQUAL(names_in(fs, "e"), "g");
    check_file(fs, "e/g", "content");
    REQUIRE_OK(fs.rmdir("d"));
}

SUITE_CASE(rename, directory_with_its_content, {}) {
    REQUIRE_OK(fs.mkdir("a", 0755));
    REQUIRE_OK(fs.mkdir("a/b", 0755));
    write_file(fs, "a/b/f", "content");
    REQUIRE_OK(fs.mkdir("c", 0755));
    REQUIRE_OK(fs.rename("a", "c/d", 0));
    check_file(fs, "c/d/b/f", "content");
    CHECK_EQUAL(names_in(fs, ""), "c");
}

SUITE_CASE(rename, directory_over_an_empty_directory, {}) {
    REQUIRE_OK(fs.mkdir("a", 0755));
    write_file(fs, "a/f", "x");
    REQUIRE_OK(fs.mkdir("b", 0755));
    uint64_t node = status_of(fs, "a").node;
    REQUIRE_OK(fs.rename("a", "b", 0));
    CHECK_EQUAL(status_of(fs, "b").node, node);
    CHECK_EQUAL(names_in(fs, ""), "b");
    CHECK_EQUAL(names_in(fs, "b"), "f");
}

SUITE_CASE(rename, directory_over_a_full_directory, {}) {
    REQUIRE_OK(fs.mkdir("a", 0755));
    REQUIRE_OK(fs.mkdir("b", 0755));
    write_file(fs, "b/f", "x");
    // POSIX allows both answers.
    int64_t answer = fs.rename("a", "b", 0);
    CHECK_TRUE(answer == -ENOTEMPTY || answer == -EEXIST);
    CHECK_EQUAL(names_in(fs, ""), "a b");
    CHECK_EQUAL(names_in(fs, "b"), "f");
}

SUITE_CASE(rename, different_kinds, {}) {
    write_file(fs, "f", "x");
    REQUIRE_OK(fs.mkdir("d", 0755));
    CHECK_ERROR(fs.rename("f", "d", 0), EISDIR);
    CHECK_ERROR(fs.rename("d", "f", 0), ENOTDIR);
    REQUIRE_OK(fs.symlink("d", "s"));
    CHECK_ERROR(fs.rename("d", "s", 0), ENOTDIR);
    CHECK_ERROR(fs.rename("s", "d", 0), EISDIR);
    REQUIRE_OK(fs.mknod("p", S_IFIFO | 0600, 0, 0));
    CHECK_ERROR(fs.rename("d", "p", 0), ENOTDIR);
    // Everything that is not a directory replaces everything that is not one.
    REQUIRE_OK(fs.rename("s", "f", 0));
    REQUIRE_OK(fs.rename("p", "f", 0));
    CHECK_EQUAL(status_of(fs, "f").mode & S_IFMT, uint32_t{S_IFIFO});
    CHECK_EQUAL(names_in(fs, ""), "d f");
}

SUITE_CASE(rename, missing_names, {}) {
    write_file(fs, "f", "x");
    CHECK_ERROR(fs.rename("missing", "f", 0), ENOENT);
    CHECK_ERROR(fs.rename("missing", "new", 0), ENOENT);
    CHECK_ERROR(fs.rename("f", "missing/new", 0), ENOENT);
    CHECK_ERROR(fs.rename("missing/f", "new", 0), ENOENT);
    check_file(fs, "f", "x");
}

SUITE_CASE(rename, to_itself, {}) {
    write_file(fs, "f", "x");
    REQUIRE_OK(fs.mkdir("d", 0755));
    REQUIRE_OK(fs.rename("f", "f", 0));
    REQUIRE_OK(fs.rename("d", "d", 0));
    check_file(fs, "f", "x");
    CHECK_EQUAL(names_in(fs, ""), "d f");
}

SUITE_CASE(rename, between_two_links_of_one_file_does_nothing, {}) {
    write_file(fs, "a", "x");
    REQUIRE_OK(fs.mkdir("d", 0755));
    REQUIRE_OK(fs.link("a", "d/b"));
    REQUIRE_OK(fs.rename("a", "d/b", 0));
    CHECK_EQUAL(names_in(fs, ""), "a d");
    CHECK_EQUAL(names_in(fs, "d"), "b");
    CHECK_EQUAL(status_of(fs, "a").link_count, 2U);
}

SUITE_CASE(rename, directory_into_itself, {}) {
    REQUIRE_OK(fs.mkdir("a", 0755));
    REQUIRE_OK(fs.mkdir("a/b", 0755));
    REQUIRE_OK(fs.mkdir("a/b/c", 0755));
    CHECK_ERROR(fs.rename("a", "a/x", 0), EINVAL);
    CHECK_ERROR(fs.rename("a", "a/b/x", 0), EINVAL);
    CHECK_ERROR(fs.rename("a", "a/b/c/x", 0), EINVAL);
    CHECK_ERROR(fs.rename("a", "a/b", 0), EINVAL);
    CHECK_ERROR(fs.rename("a/b", "a", 0), ENOTEMPTY);
    CHECK_ERROR(fs.rename("a/b/c", "a", 0), ENOTEMPTY);
    // Up is allowed.
    REQUIRE_OK(fs.rename("a/b/c", "c", 0));
    REQUIRE_OK(fs.rename("a/b", "c/b", 0));
    REQUIRE_OK(fs.rename("a", "c/b/a", 0));
    CHECK_EQUAL(names_in(fs, ""), "c");
    CHECK_EQUAL(names_in(fs, "c/b"), "a");
}

SUITE_CASE(rename, no_replace, {}) {
    write_file(fs, "a", "A");
    write_file(fs, "b", "B");
    REQUIRE_OK(fs.mkdir("d", 0755));
    CHECK_ERROR(fs.rename("a", "b", RENAME_NOREPLACE), EEXIST);
    CHECK_ERROR(fs.rename("a", "d", RENAME_NOREPLACE), EEXIST);
    CHECK_ERROR(fs.rename("d", "a", RENAME_NOREPLACE), EEXIST);
    CHECK_ERROR(fs.rename("a", "a", RENAME_NOREPLACE), EEXIST);
    CHECK_ERROR(fs.rename("missing", "c", RENAME_NOREPLACE), ENOENT);
    check_file(fs, "a", "A");
    check_file(fs, "b", "B");
    REQUIRE_OK(fs.rename("a", "c", RENAME_NOREPLACE));
    REQUIRE_OK(fs.rename("c", "d/a", RENAME_NOREPLACE));
    REQUIRE_OK(fs.rename("d", "e", RENAME_NOREPLACE));
    check_file(fs, "e/a", "A");
}

SUITE_CASE(rename, exchange_files, {Feature::rename_exchange}) {
    write_file(fs, "a", "A");
    REQUIRE_OK(fs.mkdir("d", 0755));
    write_file(fs, "d/b", "B");
    REQUIRE_OK(fs.rename("a", "d/b", RENAME_EXCHANGE));
    check_file(fs, "a", "B");
    check_file(fs, "d/b", "A");
    CHECK_EQUAL(status_of(fs, "a").link_count, 1U);
    CHECK_EQUAL(status_of(fs, "d/b").link_count, 1U);
}

SUITE_CASE(rename, exchange_file_and_directory, {Feature::rename_exchange}) {
    REQUIRE_OK(fs.mkdir("x", 0755));
    REQUIRE_OK(fs.mkdir("y", 0755));
    REQUIRE_OK(fs.mkdir("x/d", 0755));
    write_file(fs, "x/d/inside", "i");
    write_file(fs, "y/f", "F");
    REQUIRE_OK(fs.rename("x/d", "y/f", RENAME_EXCHANGE));
    check_file(fs, "x/d", "F");
    check_file(fs, "y/f/inside", "i");
    CHECK_EQUAL(status_of(fs, "y/f/..").node, status_of(fs, "y").node);
    if (fs.has(Feature::exact_directory_links)) {
        CHECK_EQUAL(status_of(fs, "x").link_count, 2U);
        CHECK_EQUAL(status_of(fs, "y").link_count, 3U);
    }
}

SUITE_CASE(rename, exchange_full_directories, {Feature::rename_exchange}) {
    for (const char* name : {"x", "y", "x/a", "y/b"}) {
        REQUIRE_OK(fs.mkdir(name, 0755));
    }
    write_file(fs, "x/a/1", "1");
    write_file(fs, "y/b/2", "2");
    REQUIRE_OK(fs.rename("x/a", "y/b", RENAME_EXCHANGE));
    check_file(fs, "x/a/2", "2");
    check_file(fs, "y/b/1", "1");
    CHECK_EQUAL(status_of(fs, "x/a/..").node, status_of(fs, "x").node);
    CHECK_EQUAL(status_of(fs, "y/b/..").node, status_of(fs, "y").node);
    REQUIRE_OK(fs.rename("x", "y", RENAME_EXCHANGE));
    check_file(fs, "x/b/1", "1");
}

SUITE_CASE(rename, exchange_errors, {Feature::rename_exchange}) {
    write_file(fs, "a", "A");
    REQUIRE_OK(fs.mkdir("d", 0755));
    REQUIRE_OK(fs.mkdir("d/e", 0755));
    CHECK_ERROR(fs.rename("a", "missing", RENAME_EXCHANGE), ENOENT);
    CHECK_ERROR(fs.rename("missing", "a", RENAME_EXCHANGE), ENOENT);
    CHECK_ERROR(fs.rename("d", "d/e", RENAME_EXCHANGE), EINVAL);
    CHECK_ERROR(fs.rename("d/e", "d", RENAME_EXCHANGE), EINVAL);
    CHECK_ERROR(fs.rename("a", "d", RENAME_EXCHANGE | RENAME_NOREPLACE), EINVAL);
    CHECK_ERROR(fs.rename("a", "b", 0x100), EINVAL);
    REQUIRE_OK(fs.rename("a", "a", RENAME_EXCHANGE));
    check_file(fs, "a", "A");
}

SUITE_CASE(rename, exchange_of_two_links_of_one_file, {Feature::rename_exchange}) {
    write_file(fs, "a", "A");
    REQUIRE_OK(fs.link("a", "b"));
    REQUIRE_OK(fs.rename("a", "b", RENAME_EXCHANGE));
    CHECK_EQUAL(names_in(fs, ""), "a b");
    CHECK_EQUAL(status_of(fs, "a").link_count, 2U);
}

SUITE_CASE(rename, leaves_a_whiteout, {Feature::rename_whiteout}) {
    write_file(fs, "a", "A");
    write_file(fs, "b", "B");
    REQUIRE_OK(fs.mkdir("d", 0755));
    REQUIRE_OK(fs.mkdir("d/e", 0755));
    const auto check_whiteout = [&](const char* name) {
        const auto status = status_of(fs, name);
        CHECK_EQUAL(status.mode, unsigned{S_IFCHR});
        CHECK_EQUAL(status.link_count, 1U);
        CHECK_EQUAL(status.device_major, 0U);
        CHECK_EQUAL(status.device_minor, 0U);
        CHECK_EQUAL(status.user_id, status_of(fs, "").user_id);
    };
    REQUIRE_OK(fs.rename("a", "new", RENAME_WHITEOUT));
    check_whiteout("a");
    check_file(fs, "new", "A");
    REQUIRE_OK(fs.rename("new", "b", RENAME_WHITEOUT));
    check_whiteout("new");
    check_file(fs, "b", "A");
    REQUIRE_OK(fs.rename("d/e", "e", RENAME_WHITEOUT));
    check_whiteout("d/e");
    CHECK_EQUAL(names_in(fs, ""), "a b d e new");
    CHECK_EQUAL(names_in(fs, "d"), "e");
    CHECK_EQUAL(status_of(fs, "d").link_count, 2U);
    CHECK_ERROR(fs.rename("b", "a", RENAME_WHITEOUT | RENAME_NOREPLACE), EEXIST);
    CHECK_ERROR(fs.rename("b", "a", RENAME_WHITEOUT | RENAME_EXCHANGE), EINVAL);
    // What is put over a whiteout is there; a whiteout is removed as any other name is.
    REQUIRE_OK(fs.rename("b", "a", 0));
    check_file(fs, "a", "A");
    REQUIRE_OK(fs.unlink("new"));
    REQUIRE_OK(fs.unlink("d/e"));
    REQUIRE_OK(fs.rmdir("d"));
}

SUITE_CASE(rename, over_an_open_file, {}) {
    write_file(fs, "a", "new");
    File target(fs, "b", O_RDWR | O_CREAT);
    write_at(fs, target, 0, pattern(50000));
    File source(fs, "a", O_RDWR);
    REQUIRE_OK(fs.rename("a", "b", 0));
    check_content(read_at(fs, target, 0, 60000), pattern(50000));
    write_at(fs, source, 3, "er");
    check_file(fs, "b", "newer");
}

// The way programs replace a file safely; no moment without a file of that name.
SUITE_CASE(rename, replaces_again_and_again, {}) {
    for (int i = 0; i < 100; ++i) {
        std::string data = pattern(static_cast<size_t>(100 + i * 50), static_cast<uint64_t>(i));
        File file(fs, "f.new", O_WRONLY | O_CREAT | O_TRUNC);
        write_at(fs, file, 0, data);
        if (i % 10 == 0) {
            CHECK_OK(fs.fsync(file));
        }
        file.close();
        REQUIRE_OK(fs.rename("f.new", "f", 0));
        check_file(fs, "f", data);
    }
    CHECK_EQUAL(names_in(fs, ""), "f");
}

SUITE_CASE(rename, long_and_short_names, {}) {
    std::string short_name = "s";
    std::string long_name(255, 'l');
    write_file(fs, short_name, "x");
    for (int i = 0; i < 10; ++i) {
        REQUIRE_OK(fs.rename(short_name, long_name, 0));
        REQUIRE_OK(fs.rename(long_name, short_name, 0));
    }
    check_file(fs, short_name, "x");
}

SUITE_CASE(rename, in_a_large_directory, {}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    for (int i = 0; i < 1000; ++i) {
        write_file(fs, "d/" + std::to_string(i), std::to_string(i));
    }
    for (int i = 0; i < 1000; ++i) {
        REQUIRE_OK(fs.rename("d/" + std::to_string(i), "d/" + std::to_string(i + 1000), 0));
    }
    CHECK_EQUAL(list_directory(fs, "d").size(), 1002U);
    check_file(fs, "d/1000", "0");
    check_file(fs, "d/1999", "999");
}

SUITE_CASE(rename, of_symlinks_and_special_files, {}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    REQUIRE_OK(fs.symlink("t", "s"));
    REQUIRE_OK(fs.mknod("p", S_IFIFO | 0600, 0, 0));
    REQUIRE_OK(fs.mknod("c", S_IFCHR | 0600, 1, 3));
    for (const char* name : {"s", "p", "c"}) {
        uint64_t node = status_of(fs, name).node;
        REQUIRE_OK(fs.rename(name, std::string("d/") + name, 0));
        CHECK_EQUAL(status_of(fs, std::string("d/") + name).node, node);
    }
    CHECK_EQUAL(names_in(fs, "d"), "c p s");
}

}  // namespace
}  // namespace tiffin::suite
