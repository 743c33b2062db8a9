// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Opening: the flags, files without a name, and files that lose theirs while open.
#include "tests/suite/helpers.h"

namespace tiffin::suite {
namespace {

SUITE_CASE(open, missing_without_creation, {}) {
    CHECK_ERROR(fs.open("f", O_RDONLY), ENOENT);
    CHECK_ERROR(fs.open("f", O_RDWR | O_TRUNC), ENOENT);
    CHECK_ERROR(fs.open("d/f", O_RDWR | O_CREAT, 0644), ENOENT);
    CHECK_EQUAL(names_in(fs, ""), "");
}

SUITE_CASE(open, creates_with_mode_and_umask, {}) {
    fs.set_umask(027);
    File file(fs, "f", O_WRONLY | O_CREAT, 0666);
    CHECK_EQUAL(status_of(fs, "f").mode, uint32_t{S_IFREG | 0640});
    fs.set_umask(0);
    File other(fs, "g", O_WRONLY | O_CREAT, 06777);
    CHECK_EQUAL(status_of(fs, "g").mode, uint32_t{S_IFREG | 06777});
}

SUITE_CASE(open, existing_keeps_its_mode_and_content, {}) {
    write_file(fs, "f", "content");
    REQUIRE_OK(fs.chmod("f", 0600));
    File file(fs, "f", O_RDWR | O_CREAT, 0777);
    CHECK_EQUAL(status_of(fs, file).mode, uint32_t{S_IFREG | 0600});
    check_file(fs, "f", "content");
}

SUITE_CASE(open, exclusive, {}) {
    File file(fs, "f", O_RDWR | O_CREAT | O_EXCL);
    CHECK_ERROR(fs.open("f", O_RDWR | O_CREAT | O_EXCL, 0644), EEXIST);
    REQUIRE_OK(fs.symlink("missing", "s"));
    CHECK_ERROR(fs.open("s", O_RDWR | O_CREAT | O_EXCL, 0644), EEXIST);
    REQUIRE_OK(fs.mkdir("d", 0755));
    CHECK_ERROR(fs.open("d", O_RDWR | O_CREAT | O_EXCL, 0644), EEXIST);
    CHECK_TRUE(!exists(fs, "missing"));
}

SUITE_CASE(open, creates_through_a_dangling_symlink, {}) {
    REQUIRE_OK(fs.symlink("target", "s"));
    File file(fs, "s", O_WRONLY | O_CREAT);
    write_at(fs, file, 0, "x");
    check_file(fs, "target", "x");
}

SUITE_CASE(open, directory_flags, {}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    write_file(fs, "f", "");
    REQUIRE_OK(fs.symlink("d", "s"));
    CHECK_ERROR(fs.open("d", O_WRONLY), EISDIR);
    CHECK_ERROR(fs.open("d", O_RDWR), EISDIR);
    CHECK_ERROR(fs.open("f", O_RDONLY | O_DIRECTORY), ENOTDIR);
    CHECK_ERROR(fs.open("s", O_RDONLY | O_NOFOLLOW), ELOOP);
    CHECK_ERROR(fs.open("f/", O_RDONLY), ENOTDIR);
    File through(fs, "s", O_RDONLY | O_DIRECTORY);
    File plain(fs, "d", O_RDONLY);
    CHECK_EQUAL(status_of(fs, through).node, status_of(fs, plain).node);
}

SUITE_CASE(open, not_a_directory_in_the_path, {}) {
    write_file(fs, "f", "");
    CHECK_ERROR(fs.open("f/x", O_RDONLY), ENOTDIR);
    CHECK_ERROR(fs.open("f/x", O_RDWR | O_CREAT, 0644), ENOTDIR);
    CHECK_ERROR(fs.mkdir("f/x", 0755), ENOTDIR);
    CHECK_ERROR(fs.unlink("f/x"), ENOTDIR);
    CHECK_ERROR(fs.rmdir("f/x"), ENOTDIR);
    CHECK_ERROR(fs.rename("f/x", "y", 0), ENOTDIR);
    CHECK_ERROR(fs.rename("f", "f/x", 0), ENOTDIR);
    CHECK_ERROR(fs.link("f", "f/x"), ENOTDIR);
    CHECK_ERROR(fs.symlink("t", "f/x"), ENOTDIR);
}

SUITE_CASE(append, always_goes_to_the_end, {}) {
    write_file(fs, "f", "12345");
    File file(fs, "f", O_RDWR | O_APPEND);
    CHECK_EQUAL(fs.lseek(file, 0, SEEK_SET), 0);
    CHECK_EQUAL(fs.write(file, "6", 1), 1);
    CHECK_EQUAL(fs.lseek(file, 0, SEEK_CUR), 6);
    // Linux appends with pwrite too.
    CHECK_EQUAL(fs.pwrite(file, "7", 1, 0), 1);
    check_file(fs, "f", "1234567");
}

SUITE_CASE(append, from_two_descriptors, {}) {
    File a(fs, "f", O_WRONLY | O_CREAT | O_APPEND);
    File b(fs, "f", O_WRONLY | O_CREAT | O_APPEND);
    std::string expected;
    for (int i = 0; i < 200; ++i) {
        std::string line = "line " + std::to_string(i) + "\n";
        CHECK_EQUAL(fs.write(i % 2 == 0 ? a : b, line.data(), line.size()),
                    static_cast<int64_t>(line.size()));
        expected += line;
    }
    check_file(fs, "f", expected);
}

SUITE_CASE(append, after_truncation_by_somebody_else, {}) {
    write_file(fs, "f", pattern(10000));
    File file(fs, "f", O_WRONLY | O_APPEND);
    CHECK_EQUAL(fs.write(file, "a", 1), 1);
    CHECK_OK(fs.truncate("f", 100));
    CHECK_EQUAL(fs.write(file, "b", 1), 1);
    check_file(fs, "f", pattern(10000).substr(0, 100) + "b");
}

SUITE_CASE(unlinked, open_file_lives_on, {}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    write_at(fs, file, 0, pattern(10000));
    REQUIRE_OK(fs.unlink("f"));
    CHECK_TRUE(!exists(fs, "f"));
    CHECK_EQUAL(status_of(fs, file).link_count, 0U);
    check_content(read_at(fs, file, 0, 20000), pattern(10000));
    write_at(fs, file, 10000, "more");
    check_content(read_at(fs, file, 10000, 10), "more");
    CHECK_OK(fs.fchmod(file, 0600));
    CHECK_OK(fs.fsync(file));
    // A new file of that name is another file.
    write_file(fs, "f", "new");
    check_content(read_at(fs, file, 10000, 10), "more");
    CHECK_TRUE(status_of(fs, "f").node != status_of(fs, file).node);
}

SUITE_CASE(unlinked, space_comes_back_when_closed, {Feature::exact_space}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    write_at(fs, file, 0, pattern(8 << 20));
    CHECK_OK(fs.fsync(file));
    CHECK_OK(fs.syncfs(file));
    SpaceStatus before;
    REQUIRE_OK(fs.statfs(before));
    REQUIRE_OK(fs.unlink("f"));
    SpaceStatus unlinked;
    REQUIRE_OK(fs.statfs(unlinked));
    CHECK_TRUE(unlinked.free_blocks < before.free_blocks + 1000);
    file.close();
    SpaceStatus closed;
    REQUIRE_OK(fs.statfs(closed));
    // The work behind the last close may be queued; syncfs waits for it.
    File root(fs, "", O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < 1000 && closed.free_blocks < before.free_blocks + 2000; ++i) {
        CHECK_OK(fs.syncfs(root));
        usleep(10000);
        REQUIRE_OK(fs.statfs(closed));
    }
    CHECK_TRUE(closed.free_blocks >= before.free_blocks + 2000);
}

SUITE_CASE(unlinked, file_replaced_by_rename_lives_on, {}) {
    write_file(fs, "a", "old");
    write_file(fs, "b", "new");
    File old(fs, "a", O_RDWR);
    REQUIRE_OK(fs.rename("b", "a", 0));
    check_content(read_at(fs, old, 0, 10), "old");
    CHECK_EQUAL(status_of(fs, old).link_count, 0U);
    write_at(fs, old, 0, "OLD");
    check_file(fs, "a", "new");
    check_content(read_at(fs, old, 0, 10), "OLD");
}

SUITE_CASE(unlinked, cannot_get_a_name_again, {}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    REQUIRE_OK(fs.unlink("f"));
    CHECK_ERROR(fs.link_file(file, "g"), ENOENT);
    CHECK_EQUAL(names_in(fs, ""), "");
}

SUITE_CASE(unlinked, removed_directory_stays_readable_and_empty, {}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    File directory(fs, "d", O_RDONLY | O_DIRECTORY);
    REQUIRE_OK(fs.rmdir("d"));
    CHECK_EQUAL(status_of(fs, directory).link_count, 0U);
    std::vector<DirectoryRecord> records;
    // The kernel itself says ENOENT for a removed directory; without one there may be dots.
    int64_t answer = fs.read_directory(directory, 4096, records);
    CHECK_TRUE(answer == -ENOENT || answer >= 0);
    for (const DirectoryRecord& record : records) {
        CHECK_TRUE(record.name == "." || record.name == "..");
    }
    CHECK_ERROR(fs.open_at(directory, "x", O_WRONLY | O_CREAT, 0644), ENOENT);
    CHECK_ERROR(fs.open_at(directory, "x", O_RDONLY, 0), ENOENT);
}

SUITE_CASE(tmpfile, is_a_file_without_a_name, {Feature::tmpfile}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    File file(fs, "d", O_TMPFILE | O_RDWR, 0640);
    FileStatus status = status_of(fs, file);
    CHECK_EQUAL(status.link_count, 0U);
    CHECK_EQUAL(status.mode, uint32_t{S_IFREG | 0640});
    write_at(fs, file, 0, pattern(100000));
    check_content(read_at(fs, file, 0, 200000), pattern(100000));
    CHECK_EQUAL(names_in(fs, "d"), "");
}

SUITE_CASE(tmpfile, gets_a_name, {Feature::tmpfile}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    {
        File file(fs, "d", O_TMPFILE | O_RDWR, 0644);
        write_at(fs, file, 0, "content");
        CHECK_OK(fs.link_file(file, "d/name"));
        CHECK_EQUAL(status_of(fs, file).link_count, 1U);
        CHECK_OK(fs.link_file(file, "d/second"));
        CHECK_EQUAL(status_of(fs, file).link_count, 2U);
        CHECK_ERROR(fs.link_file(file, "d/second"), EEXIST);
    }
    check_file(fs, "d/name", "content");
    CHECK_EQUAL(names_in(fs, "d"), "name second");
}

SUITE_CASE(tmpfile, exclusive_never_gets_a_name, {Feature::tmpfile}) {
    File file(fs, "", O_TMPFILE | O_RDWR | O_EXCL, 0644);
    CHECK_ERROR(fs.link_file(file, "name"), ENOENT);
    CHECK_EQUAL(names_in(fs, ""), "");
}

SUITE_CASE(tmpfile, many_at_once, {Feature::tmpfile}) {
    for (int round = 0; round < 3; ++round) {
        std::vector<int> files;
        for (int i = 0; i < 100; ++i) {
            files.push_back(static_cast<int>(REQUIRE_OK(fs.open("", O_TMPFILE | O_RDWR, 0600))));
            write_at(fs, files.back(), 0, pattern(static_cast<size_t>(i) * 50));
        }
        for (size_t i = 0; i < files.size(); ++i) {
            check_content(read_at(fs, files[i], 0, 10000), pattern(i * 50));
            CHECK_OK(fs.close(files[i]));
        }
    }
    CHECK_EQUAL(names_in(fs, ""), "");
}

SUITE_CASE(tmpfile, errors, {Feature::tmpfile}) {
    write_file(fs, "f", "");
    CHECK_ERROR(fs.open("f", O_TMPFILE | O_RDWR, 0600), ENOTDIR);
    CHECK_ERROR(fs.open("missing", O_TMPFILE | O_RDWR, 0600), ENOENT);
    CHECK_ERROR(fs.open("", O_TMPFILE | O_RDONLY, 0600), EINVAL);
}

SUITE_CASE(nodes, ids_differ_and_are_never_reused, {Feature::node_ids_never_reused}) {
    std::vector<uint64_t> seen;
    for (int i = 0; i < 200; ++i) {
        write_file(fs, "f", "x");
        uint64_t node = status_of(fs, "f").node;
        for (uint64_t other : seen) {
            CHECK_TRUE(other != node);
        }
        seen.push_back(node);
        REQUIRE_OK(fs.unlink("f"));
        if (i % 20 == 0) {
            File root(fs, "", O_RDONLY | O_DIRECTORY);
            CHECK_OK(fs.syncfs(root));
        }
    }
}

SUITE_CASE(nodes, generation_is_stable, {Feature::generation}) {
    write_file(fs, "f", "x");
    File file(fs, "f", O_RDONLY);
    uint64_t first = 0;
    uint64_t second = 0;
    CHECK_OK(fs.get_generation(file, first));
    CHECK_OK(fs.rename("f", "g", 0));
    CHECK_OK(fs.chmod("g", 0600));
    CHECK_OK(fs.get_generation(file, second));
    CHECK_EQUAL(first, second);
}

}  // namespace
}  // namespace tiffin::suite
