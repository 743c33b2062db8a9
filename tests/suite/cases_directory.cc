// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Directories: making, removing, link counts, and reading them while they change.
#include <dirent.h>

#include <map>
#include <set>

#include "tests/suite/helpers.h"

namespace tiffin::suite {
namespace {

SUITE_CASE(directory, mode_and_umask, {}) {
    REQUIRE_OK(fs.mkdir("a", 0777));
    CHECK_EQUAL(status_of(fs, "a").mode, uint32_t{S_IFDIR | 0755});
    fs.set_umask(0);
    REQUIRE_OK(fs.mkdir("b", 01777));
    CHECK_EQUAL(status_of(fs, "b").mode, uint32_t{S_IFDIR | 01777});
    CHECK_EQUAL(status_of(fs, "b").user_id, 0U);
}

SUITE_CASE(directory, starts_with_the_dots, {}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    std::map<std::string, DirectoryRecord> found;
    for (const DirectoryRecord& record : list_directory(fs, "d")) {
        found[record.name] = record;
    }
    CHECK_EQUAL(found.size(), 2U);
    CHECK_EQUAL(found["."].node, status_of(fs, "d").node);
    CHECK_EQUAL(found[".."].node, status_of(fs, "").node);
    CHECK_EQUAL(int{found["."].type}, int{DT_DIR});
    CHECK_EQUAL(int{found[".."].type}, int{DT_DIR});
}

SUITE_CASE(directory, dot_dot_follows_a_move, {}) {
    REQUIRE_OK(fs.mkdir("a", 0755));
    REQUIRE_OK(fs.mkdir("b", 0755));
    REQUIRE_OK(fs.mkdir("a/d", 0755));
    CHECK_EQUAL(status_of(fs, "a/d/..").node, status_of(fs, "a").node);
    REQUIRE_OK(fs.rename("a/d", "b/e", 0));
    CHECK_EQUAL(status_of(fs, "b/e/..").node, status_of(fs, "b").node);
    for (const DirectoryRecord& record : list_directory(fs, "b/e")) {
        if (record.name == "..") {
            CHECK_EQUAL(record.node, status_of(fs, "b").node);
        }
    }
}

SUITE_CASE(directory, records_tell_types_and_nodes, {}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    write_file(fs, "d/file", "");
    REQUIRE_OK(fs.mkdir("d/directory", 0755));
    REQUIRE_OK(fs.symlink("x", "d/symlink"));
    REQUIRE_OK(fs.mknod("d/fifo", S_IFIFO | 0600, 0, 0));
    REQUIRE_OK(fs.mknod("d/socket", S_IFSOCK | 0600, 0, 0));
    REQUIRE_OK(fs.mknod("d/character", S_IFCHR | 0600, 1, 3));
    REQUIRE_OK(fs.mknod("d/block", S_IFBLK | 0600, 7, 99));
    std::map<std::string, int> types = {
        {"file", DT_REG},    {"directory", DT_DIR}, {"symlink", DT_LNK}, {"fifo", DT_FIFO},
        {"socket", DT_SOCK}, {"character", DT_CHR}, {"block", DT_BLK}};
    size_t seen = 0;
    for (const DirectoryRecord& record : list_directory(fs, "d")) {
        if (record.name[0] != '.') {
            ++seen;
            CHECK_EQUAL(int{record.type}, types[record.name]);
            CHECK_EQUAL(record.node, status_of(fs, "d/" + record.name).node);
        }
    }
    CHECK_EQUAL(seen, types.size());
}

SUITE_CASE(directory, link_count_is_two_plus_sub_directories, {Feature::exact_directory_links}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    CHECK_EQUAL(status_of(fs, "d").link_count, 2U);
    for (uint32_t i = 0; i < 20; ++i) {
        REQUIRE_OK(fs.mkdir("d/" + std::to_string(i), 0755));
        CHECK_EQUAL(status_of(fs, "d").link_count, 3 + i);
    }
    write_file(fs, "d/f", "");
    CHECK_EQUAL(status_of(fs, "d").link_count, 22U);
    REQUIRE_OK(fs.mkdir("e", 0755));
    REQUIRE_OK(fs.rename("d/0", "e/0", 0));
    CHECK_EQUAL(status_of(fs, "d").link_count, 21U);
    CHECK_EQUAL(status_of(fs, "e").link_count, 3U);
    // Replacing an empty directory takes one away.
    REQUIRE_OK(fs.rename("d/1", "d/2", 0));
    CHECK_EQUAL(status_of(fs, "d").link_count, 20U);
    REQUIRE_OK(fs.rename("d/3", "e/0", 0));
    CHECK_EQUAL(status_of(fs, "d").link_count, 19U);
    CHECK_EQUAL(status_of(fs, "e").link_count, 3U);
    REQUIRE_OK(fs.rmdir("e/0"));
    CHECK_EQUAL(status_of(fs, "e").link_count, 2U);
}

SUITE_CASE(directory, removal_errors, {}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    REQUIRE_OK(fs.mkdir("d/e", 0755));
    write_file(fs, "f", "");
    CHECK_ERROR(fs.rmdir("d"), ENOTEMPTY);
    CHECK_ERROR(fs.rmdir("f"), ENOTDIR);
    CHECK_ERROR(fs.rmdir("missing"), ENOENT);
    CHECK_ERROR(fs.unlink("d"), EISDIR);
    CHECK_ERROR(fs.unlink("missing"), ENOENT);
    CHECK_ERROR(fs.mkdir("d", 0755), EEXIST);
    CHECK_ERROR(fs.mkdir("f", 0755), EEXIST);
    CHECK_ERROR(fs.mkdir("missing/x", 0755), ENOENT);
    REQUIRE_OK(fs.rmdir("d/e"));
    REQUIRE_OK(fs.rmdir("d"));
    CHECK_EQUAL(names_in(fs, ""), "f");
}

SUITE_CASE(directory, empty_again_after_everything_left, {}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < 200; ++i) {
            write_file(fs, "d/" + std::to_string(i), "");
        }
        CHECK_ERROR(fs.rmdir("d"), ENOTEMPTY);
        for (int i = 0; i < 200; ++i) {
            REQUIRE_OK(fs.unlink("d/" + std::to_string((i * 77) % 200)));
        }
        CHECK_EQUAL(names_in(fs, "d"), "");
    }
    REQUIRE_OK(fs.rmdir("d"));
}

SUITE_CASE(directory, open_during_removal, {}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    File held(fs, "d", O_RDONLY | O_DIRECTORY);
    REQUIRE_OK(fs.rmdir("d"));
    REQUIRE_OK(fs.mkdir("d", 0700));
    CHECK_TRUE(status_of(fs, held).node != status_of(fs, "d").node);
    CHECK_EQUAL(status_of(fs, held).link_count, 0U);
}

SUITE_CASE(directory, fsync, {}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    write_file(fs, "d/f", "x");
    File directory(fs, "d", O_RDONLY | O_DIRECTORY);
    CHECK_OK(fs.fsync(directory));
    CHECK_OK(fs.fdatasync(directory));
}

SUITE_CASE(directory, relative_opening_survives_a_move, {}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    File directory(fs, "d", O_RDONLY | O_DIRECTORY);
    REQUIRE_OK(fs.rename("d", "e", 0));
    int64_t file = REQUIRE_OK(fs.open_at(directory, "f", O_WRONLY | O_CREAT, 0644));
    CHECK_OK(fs.close(static_cast<int>(file)));
    CHECK_EQUAL(names_in(fs, "e"), "f");
}

// ---- Reading -----------------------------------------------------------------------------------

void make_files(FileSystemUnderTest& fs, const std::string& directory, int count) {
    REQUIRE_OK(fs.mkdir(directory, 0755));
    for (int i = 0; i < count; ++i) {
        int64_t file =
            REQUIRE_OK(fs.open(directory + "/name" + std::to_string(i), O_WRONLY | O_CREAT, 0644));
        CHECK_OK(fs.close(static_cast<int>(file)));
    }
}

constexpr size_t kBufferSizes[] = {300, 512, 1000, 4096, 32768, 1 << 20};

SUITE_CASES(readdir, with_buffer_size, kBufferSizes, {}) {
    make_files(fs, "d", 500);
    File directory(fs, "d", O_RDONLY | O_DIRECTORY);
    std::vector<DirectoryRecord> records;
    while (REQUIRE_OK(fs.read_directory(directory, value, records)) > 0) {
    }
    std::set<std::string> names;
    for (const DirectoryRecord& record : records) {
        names.insert(record.name);
    }
    CHECK_EQUAL(records.size(), 502U);
    CHECK_EQUAL(names.size(), 502U);
    // At the end it stays at the end.
    CHECK_EQUAL(fs.read_directory(directory, value, records), 0);
}

SUITE_CASE(readdir, rewinding_starts_again, {}) {
    make_files(fs, "d", 50);
    File directory(fs, "d", O_RDONLY | O_DIRECTORY);
    for (int round = 0; round < 3; ++round) {
        std::vector<DirectoryRecord> records;
        CHECK_EQUAL(fs.lseek(directory, 0, SEEK_SET), 0);
        while (REQUIRE_OK(fs.read_directory(directory, 1000, records)) > 0) {
        }
        CHECK_EQUAL(records.size(), 52U);
        write_file(fs, "d/x", "");
        REQUIRE_OK(fs.unlink("d/x"));
    }
}

SUITE_CASE(readdir, seeking_to_each_cookie, {}) {
    make_files(fs, "d", 60);
    File directory(fs, "d", O_RDONLY | O_DIRECTORY);
    std::vector<DirectoryRecord> all;
    while (REQUIRE_OK(fs.read_directory(directory, 4096, all)) > 0) {
    }
    REQUIRE_OK(all.size() == 62 ? 0 : -EIO);
    std::set<int64_t> cookies;
    for (size_t i = 0; i < all.size(); ++i) {
        cookies.insert(all[i].cookie);
        CHECK_EQUAL(fs.lseek(directory, all[i].cookie, SEEK_SET), all[i].cookie);
        std::vector<DirectoryRecord> rest;
        while (REQUIRE_OK(fs.read_directory(directory, 4096, rest)) > 0) {
        }
        CHECK_EQUAL(rest.size(), all.size() - i - 1);
        for (size_t k = 0; k < rest.size(); ++k) {
            CHECK_EQUAL(rest[k].name, all[i + 1 + k].name);
        }
    }
    CHECK_EQUAL(cookies.size(), all.size());
}

SUITE_CASE(readdir, cookies_survive_removals, {}) {
    make_files(fs, "d", 200);
    File directory(fs, "d", O_RDONLY | O_DIRECTORY);
    std::vector<DirectoryRecord> first;
    REQUIRE_OK(fs.read_directory(directory, 2000, first));
    int64_t cookie = first.back().cookie;
    // Everything that was seen goes away, and the rest must still come.
    std::set<std::string> expected;
    for (int i = 0; i < 200; ++i) {
        expected.insert("name" + std::to_string(i));
    }
    for (const DirectoryRecord& record : first) {
        expected.erase(record.name);
        if (record.name[0] != '.') {
            REQUIRE_OK(fs.unlink("d/" + record.name));
        }
    }
    CHECK_EQUAL(fs.lseek(directory, cookie, SEEK_SET), cookie);
    std::vector<DirectoryRecord> rest;
    while (REQUIRE_OK(fs.read_directory(directory, 2000, rest)) > 0) {
    }
    std::set<std::string> seen;
    for (const DirectoryRecord& record : rest) {
        if (record.name == "." || record.name == "..") {
            continue;  // ext4 sorts them among the others
        }
        if (!seen.insert(record.name).second || expected.count(record.name) == 0) {
            record_failure(__FILE__, __LINE__, "seen, but removed or seen twice: " + record.name);
        }
    }
    for (const std::string& name : expected) {
        if (seen.count(name) == 0) {
            record_failure(__FILE__, __LINE__, "never seen: " + name);
        }
    }
}

// What is there the whole time is seen exactly once, whatever comes and goes around it.
SUITE_CASE(readdir, while_others_come_and_go, {}) {
    make_files(fs, "d", 400);
    File directory(fs, "d", O_RDONLY | O_DIRECTORY);
    std::map<std::string, int> seen;
    int step = 0;
    for (;;) {
        std::vector<DirectoryRecord> records;
        if (REQUIRE_OK(fs.read_directory(directory, 700, records)) == 0) {
            break;
        }
        for (const DirectoryRecord& record : records) {
            ++seen[record.name];
        }
        if (step < 100) {
            // Names that other sides of the directory get, and lose again.
            write_file(fs, "d/new" + std::to_string(step), "");
            REQUIRE_OK(fs.unlink("d/name" + std::to_string(399 - step)));
            if (step % 2 == 1) {
                REQUIRE_OK(fs.unlink("d/new" + std::to_string(step - 1)));
            }
        }
        ++step;
    }
    for (int i = 0; i < 300; ++i) {
        CHECK_EQUAL(seen["name" + std::to_string(i)], 1);
    }
    for (const auto& [name, count] : seen) {
        CHECK_EQUAL(count, 1);
    }
}

SUITE_CASE(readdir, removing_what_was_just_read, {}) {
    make_files(fs, "d", 1000);
    for (;;) {
        File directory(fs, "d", O_RDONLY | O_DIRECTORY);
        std::vector<DirectoryRecord> records;
        int removed = 0;
        for (;;) {
            records.clear();
            if (REQUIRE_OK(fs.read_directory(directory, 1024, records)) == 0) {
                break;
            }
            for (const DirectoryRecord& record : records) {
                if (record.name[0] != '.') {
                    REQUIRE_OK(fs.unlink("d/" + record.name));
                    ++removed;
                }
            }
        }
        if (removed == 0) {
            break;
        }
    }
    REQUIRE_OK(fs.rmdir("d"));
}

SUITE_CASE(readdir, two_readers_at_once, {}) {
    make_files(fs, "d", 100);
    File a(fs, "d", O_RDONLY | O_DIRECTORY);
    File b(fs, "d", O_RDONLY | O_DIRECTORY);
    std::vector<DirectoryRecord> from_a;
    std::vector<DirectoryRecord> from_b;
    bool more = true;
    while (more) {
        more = REQUIRE_OK(fs.read_directory(a, 300, from_a)) > 0;
        more = REQUIRE_OK(fs.read_directory(b, 900, from_b)) > 0 || more;
    }
    CHECK_EQUAL(from_a.size(), 102U);
    CHECK_EQUAL(from_b.size(), 102U);
}

SUITE_CASE(readdir, ten_thousand_entries, {}) {
    constexpr int count = 10000;
    make_files(fs, "d", count);
    std::set<std::string> names;
    for (const DirectoryRecord& record : list_directory(fs, "d")) {
        CHECK_TRUE(names.insert(record.name).second);
    }
    CHECK_EQUAL(names.size(), count + 2U);
    for (int i = 0; i < count; i += 97) {
        CHECK_EQUAL(status_of(fs, "d/name" + std::to_string(i)).size_bytes, 0U);
    }
    CHECK_TRUE(!exists(fs, "d/name10000"));
    for (int i = 0; i < count; i += 2) {
        REQUIRE_OK(fs.unlink("d/name" + std::to_string(i)));
    }
    CHECK_EQUAL(list_directory(fs, "d").size(), count / 2 + 2U);
    for (int i = 1; i < count; i += 2) {
        REQUIRE_OK(fs.rename("d/name" + std::to_string(i), "d/other" + std::to_string(i), 0));
    }
    CHECK_EQUAL(list_directory(fs, "d").size(), count / 2 + 2U);
    for (int i = 1; i < count; i += 2) {
        REQUIRE_OK(fs.unlink("d/other" + std::to_string(i)));
    }
    REQUIRE_OK(fs.rmdir("d"));
}

SUITE_CASE(readdir, names_of_every_size, {}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    std::set<std::string> expected = {".", ".."};
    for (size_t size = 1; size <= 255; ++size) {
        std::string name = std::string(size, static_cast<char>('a' + size % 26));
        write_file(fs, "d/" + name, "");
        expected.insert(name);
    }
    std::set<std::string> seen;
    for (const DirectoryRecord& record : list_directory(fs, "d")) {
        CHECK_TRUE(seen.insert(record.name).second);
    }
    CHECK_TRUE(seen == expected);
}

}  // namespace
}  // namespace tiffin::suite
