// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Names, paths, hard links and symlinks.
#include <algorithm>

#include "tests/suite/helpers.h"

namespace tiffin::suite {
namespace {

constexpr size_t kNameSizes[] = {1, 2, 7, 8, 15, 16, 31, 32, 63, 64, 100, 127, 128, 200, 254, 255};

SUITE_CASES(names, of_size, kNameSizes, {}) {
    std::string name(value, 'n');
    write_file(fs, name, "content");
    check_file(fs, name, "content");
    CHECK_EQUAL(names_in(fs, ""), name);
    std::string other(value, 'o');
    REQUIRE_OK(fs.rename(name, other, 0));
    REQUIRE_OK(fs.mkdir(name, 0755));
    CHECK_EQUAL(names_in(fs, ""), name + " " + other);
    REQUIRE_OK(fs.unlink(other));
    REQUIRE_OK(fs.rmdir(name));
}

SUITE_CASE(names, one_byte_too_long, {}) {
    std::string name(256, 'n');
    write_file(fs, "f", "");
    FileStatus status;
    CHECK_ERROR(fs.open(name, O_RDWR | O_CREAT, 0644), ENAMETOOLONG);
    CHECK_ERROR(fs.open(name, O_RDONLY), ENAMETOOLONG);
    CHECK_ERROR(fs.lstat(name, status), ENAMETOOLONG);
    CHECK_ERROR(fs.mkdir(name, 0755), ENAMETOOLONG);
    CHECK_ERROR(fs.rmdir(name), ENAMETOOLONG);
    CHECK_ERROR(fs.unlink(name), ENAMETOOLONG);
    CHECK_ERROR(fs.link("f", name), ENAMETOOLONG);
    CHECK_ERROR(fs.symlink("f", name), ENAMETOOLONG);
    CHECK_ERROR(fs.rename("f", name, 0), ENAMETOOLONG);
    CHECK_ERROR(fs.rename(name, "g", 0), ENAMETOOLONG);
    CHECK_ERROR(fs.mknod(name, S_IFIFO | 0644, 0, 0), ENAMETOOLONG);
    CHECK_ERROR(fs.lstat(name + "/x", status), ENAMETOOLONG);
    CHECK_EQUAL(names_in(fs, ""), "f");
}

SUITE_CASE(names, hold_every_byte, {Feature::exact_names}) {
    std::vector<std::string> names;
    for (int byte = 1; byte < 256; ++byte) {
        if (byte != '/' && byte != '.') {
            names.push_back(std::string(1, static_cast<char>(byte)));
            names.push_back("x" + std::string(1, static_cast<char>(byte)) + "y");
        }
    }
    for (const std::string& name : names) {
        write_file(fs, name, name);
    }
    for (const std::string& name : names) {
        check_file(fs, name, name);
    }
    CHECK_EQUAL(list_directory(fs, "").size(), names.size() + 2);
}

SUITE_CASE(names, that_look_special, {Feature::exact_names}) {
    for (const char* name :
         {"...", "..a", ".a", " ", "a ", "-", "*", "\xff\xfe", "\\", "CON", "~"}) {
        write_file(fs, name, name);
        check_file(fs, name, name);
        REQUIRE_OK(fs.unlink(name));
        CHECK_TRUE(!exists(fs, name));
    }
}

SUITE_CASE(names, differ_by_case_and_by_form, {Feature::exact_names}) {
    // The same letter composed and decomposed.
    std::vector<std::string> names = {"a", "A", "\xc3\xa4", "a\xcc\x88"};
    for (const std::string& name : names) {
        write_file(fs, name, name);
    }
    for (const std::string& name : names) {
        check_file(fs, name, name);
    }
}

SUITE_CASE(names, one_is_the_beginning_of_the_other, {}) {
    std::string name;
    for (int i = 0; i < 255; ++i) {
        name += static_cast<char>('a' + i % 26);
        write_file(fs, name, std::to_string(i));
    }
    for (size_t size = 1; size <= 255; ++size) {
        check_file(fs, name.substr(0, size), std::to_string(size - 1));
    }
}

SUITE_CASE(paths, dots_and_slashes, {}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    REQUIRE_OK(fs.mkdir("d/e", 0755));
    write_file(fs, "d/e/f", "x");
    check_file(fs, "d/./e//f", "x");
    check_file(fs, "d/e/../e/f", "x");
    CHECK_EQUAL(status_of(fs, "d/e/..").node, status_of(fs, "d").node);
    CHECK_EQUAL(status_of(fs, "d/e/.").node, status_of(fs, "d/e").node);
    CHECK_ERROR(fs.rmdir("d/e/."), EINVAL);
    CHECK_ERROR(fs.rmdir("d/e/.."), ENOTEMPTY);
    CHECK_ERROR(fs.mkdir("d/.", 0755), EEXIST);
    CHECK_ERROR(fs.mkdir("d/e/..", 0755), EEXIST);
    CHECK_ERROR(fs.unlink("d/e/f/"), ENOTDIR);
    CHECK_ERROR(fs.rename("d/e/.", "x", 0), EBUSY);
}

SUITE_CASE(paths, deep_tree, {}) {
    std::string path;
    for (int i = 0; i < 100; ++i) {
        path += (i > 0 ? "/" : "") + std::string("dir") + std::to_string(i);
        REQUIRE_OK(fs.mkdir(path, 0755));
    }
    write_file(fs, path + "/f", "deep");
    check_file(fs, path + "/f", "deep");
    std::string up = path;
    for (int i = 0; i < 99; ++i) {
        up += "/..";
    }
    CHECK_EQUAL(status_of(fs, up).node, status_of(fs, "dir0").node);
}

SUITE_CASE(link, two_names_are_one_file, {}) {
    write_file(fs, "a", "one");
    REQUIRE_OK(fs.mkdir("d", 0755));
    REQUIRE_OK(fs.link("a", "d/b"));
    FileStatus a = status_of(fs, "a");
    FileStatus b = status_of(fs, "d/b");
    CHECK_EQUAL(a.node, b.node);
    CHECK_EQUAL(a.link_count, 2U);
    CHECK_EQUAL(b.link_count, 2U);
    write_file(fs, "d/b", "two");
    check_file(fs, "a", "two");
    REQUIRE_OK(fs.chmod("a", 0600));
    CHECK_EQUAL(status_of(fs, "d/b").mode, uint32_t{S_IFREG | 0600});
    REQUIRE_OK(fs.unlink("a"));
    CHECK_EQUAL(status_of(fs, "d/b").link_count, 1U);
    check_file(fs, "d/b", "two");
}

SUITE_CASE(link, errors, {}) {
    write_file(fs, "a", "");
    write_file(fs, "b", "");
    REQUIRE_OK(fs.mkdir("d", 0755));
    CHECK_ERROR(fs.link("a", "b"), EEXIST);
    CHECK_ERROR(fs.link("a", "d"), EEXIST);
    CHECK_ERROR(fs.link("missing", "x"), ENOENT);
    CHECK_ERROR(fs.link("d", "x"), EPERM);
    CHECK_ERROR(fs.link("a", "missing/x"), ENOENT);
    CHECK_EQUAL(status_of(fs, "a").link_count, 1U);
}

SUITE_CASE(link, five_hundred_names, {}) {
    write_file(fs, "f", "content");
    REQUIRE_OK(fs.mkdir("d", 0755));
    for (int i = 0; i < 500; ++i) {
        REQUIRE_OK(fs.link("f", "d/" + std::to_string(i)));
    }
    CHECK_EQUAL(status_of(fs, "f").link_count, 501U);
    for (int i = 0; i < 500; ++i) {
        REQUIRE_OK(fs.unlink("d/" + std::to_string(i)));
    }
    CHECK_EQUAL(status_of(fs, "f").link_count, 1U);
    check_file(fs, "f", "content");
}

SUITE_CASE(link, of_symlinks_and_special_files, {}) {
    REQUIRE_OK(fs.symlink("target", "s"));
    REQUIRE_OK(fs.link("s", "t"));
    CHECK_EQUAL(status_of(fs, "t").node, status_of(fs, "s").node);
    CHECK_EQUAL(status_of(fs, "s").link_count, 2U);
    REQUIRE_OK(fs.mknod("p", S_IFIFO | 0600, 0, 0));
    REQUIRE_OK(fs.link("p", "q"));
    CHECK_EQUAL(status_of(fs, "q").node, status_of(fs, "p").node);
    REQUIRE_OK(fs.unlink("s"));
    char buffer[10];
    CHECK_EQUAL(fs.readlink("t", buffer, sizeof buffer), 6);
}

SUITE_CASE(link, of_an_open_file, {}) {
    File file(fs, "a", O_RDWR | O_CREAT);
    write_at(fs, file, 0, "x");
    REQUIRE_OK(fs.link_file(file, "b"));
    REQUIRE_OK(fs.unlink("a"));
    file.close();
    check_file(fs, "b", "x");
}

std::string target_of(FileSystemUnderTest& fs, const std::string& path) {
    std::string buffer(8192, '\0');
    buffer.resize(static_cast<size_t>(REQUIRE_OK(fs.readlink(path, buffer.data(), 8192))));
    return buffer;
}

constexpr size_t kTargetSizes[] = {1,   2,   15,  16,   31,   32,   59,   60,   61,
                                   100, 255, 256, 1023, 1024, 1025, 2047, 3000, 4094};

SUITE_CASES(symlink, target_of_size, kTargetSizes, {Feature::long_symlinks}) {
    std::string target = pattern(value);
    std::replace(target.begin(), target.end(), '/', '_');
    REQUIRE_OK(fs.symlink(target, "s"));
    CHECK_TRUE(target_of(fs, "s") == target);
    FileStatus status = status_of(fs, "s");
    CHECK_EQUAL(status.mode & S_IFMT, uint32_t{S_IFLNK});
    CHECK_EQUAL(status.size_bytes, value);
    CHECK_EQUAL(status.link_count, 1U);
}

SUITE_CASE(symlink, longest_target, {}) {
    // 4095 bytes are what a path may have; some file systems need one of them for the end.
    std::string target(4095, 't');
    int64_t answer = fs.symlink(target, "s");
    CHECK_TRUE(answer == 0 || answer == -ENAMETOOLONG);
    if (answer == 0) {
        CHECK_TRUE(target_of(fs, "s") == target);
    }
    CHECK_ERROR(fs.symlink(std::string(4096, 't'), "u"), ENAMETOOLONG);
    CHECK_ERROR(fs.symlink("", "v"), ENOENT);
}

SUITE_CASE(symlink, is_followed, {}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    write_file(fs, "d/f", "content");
    REQUIRE_OK(fs.symlink("d", "s"));
    REQUIRE_OK(fs.symlink("s/f", "t"));
    REQUIRE_OK(fs.symlink("../d/f", "d/u"));
    check_content(read_file(fs, "t"), "content");
    check_content(read_file(fs, "s/u"), "content");
    FileStatus status;
    REQUIRE_OK(fs.stat("t", status));
    CHECK_EQUAL(status.node, status_of(fs, "d/f").node);
}

SUITE_CASE(symlink, loops_and_chains, {}) {
    REQUIRE_OK(fs.symlink("b", "a"));
    REQUIRE_OK(fs.symlink("a", "b"));
    REQUIRE_OK(fs.symlink("self", "self"));
    FileStatus status;
    CHECK_ERROR(fs.stat("a", status), ELOOP);
    CHECK_ERROR(fs.open("self", O_RDONLY), ELOOP);
    CHECK_ERROR(fs.open("self/x", O_RDONLY), ELOOP);
    write_file(fs, "c0", "end");
    for (int i = 1; i <= 41; ++i) {
        REQUIRE_OK(fs.symlink("c" + std::to_string(i - 1), "c" + std::to_string(i)));
    }
    check_content(read_file(fs, "c40"), "end");
    CHECK_ERROR(fs.stat("c41", status), ELOOP);
}

SUITE_CASE(symlink, is_removed_and_renamed_itself, {}) {
    write_file(fs, "f", "x");
    REQUIRE_OK(fs.symlink("f", "s"));
    REQUIRE_OK(fs.rename("s", "t", 0));
    CHECK_TRUE(target_of(fs, "t") == "f");
    REQUIRE_OK(fs.unlink("t"));
    check_file(fs, "f", "x");
    REQUIRE_OK(fs.symlink("d", "s"));
    REQUIRE_OK(fs.mkdir("d", 0755));
    CHECK_ERROR(fs.rmdir("s"), ENOTDIR);
}

SUITE_CASE(symlink, errors, {}) {
    write_file(fs, "f", "x");
    REQUIRE_OK(fs.mkdir("d", 0755));
    char buffer[10];
    CHECK_ERROR(fs.readlink("f", buffer, sizeof buffer), EINVAL);
    CHECK_ERROR(fs.readlink("d", buffer, sizeof buffer), EINVAL);
    CHECK_ERROR(fs.readlink("missing", buffer, sizeof buffer), ENOENT);
    CHECK_ERROR(fs.symlink("x", "f"), EEXIST);
    CHECK_ERROR(fs.symlink("x", "d"), EEXIST);
    REQUIRE_OK(fs.symlink("123456789", "s"));
    CHECK_EQUAL(fs.readlink("s", buffer, 4), 4);
    CHECK_EQUAL(std::string(buffer, 4), "1234");
}

SUITE_CASE(symlink, own_times_and_owner, {}) {
    write_file(fs, "f", "x");
    REQUIRE_OK(fs.symlink("f", "s"));
    REQUIRE_OK(fs.lchown("s", 5, 6));
    CHECK_EQUAL(status_of(fs, "s").user_id, 5U);
    CHECK_EQUAL(status_of(fs, "s").group_id, 6U);
    CHECK_EQUAL(status_of(fs, "f").user_id, 0U);
    set_times(fs, "s", 100, 200);
    CHECK_EQUAL(status_of(fs, "s").modification_time.tv_sec, 200);
    CHECK_TRUE(status_of(fs, "f").modification_time.tv_sec != 200);
    REQUIRE_OK(fs.chown("s", 7, 8));
    CHECK_EQUAL(status_of(fs, "f").user_id, 7U);
    CHECK_EQUAL(status_of(fs, "s").user_id, 5U);
}

}  // namespace
}  // namespace tiffin::suite
