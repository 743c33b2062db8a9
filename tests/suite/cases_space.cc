// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Space: statfs tells the truth, and a full volume loses nothing.
#include "tests/suite/helpers.h"

namespace tiffin::suite {
namespace {

constexpr int64_t kMiB = 1024 * 1024;

SpaceStatus space_of(FileSystemUnderTest& fs) {
    SpaceStatus status;
    REQUIRE_OK(fs.statfs(status));
    return status;
}

// Freed space may come back after queued work; syncfs gives it the occasion. A file system that
// never gives it back makes the caller's check fail.
SpaceStatus space_with_free(FileSystemUnderTest& fs, uint64_t blocks) {
    SpaceStatus status = space_of(fs);
    File root(fs, "", O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < 1000 && status.free_blocks < blocks; ++i) {
        // It may tell once more that there was no space.
        int64_t answer = fs.syncfs(root);
        CHECK_TRUE(answer == 0 || answer == -ENOSPC);
        usleep(10000);
        status = space_of(fs);
    }
    return status;
}

// What earlier cases deleted is freed in the background: waits until that is over.
SpaceStatus settled_space(FileSystemUnderTest& fs) {
    SpaceStatus status = space_of(fs);
    int equal = 0;
    for (int i = 0; i < 500 && equal < 5; ++i) {
        usleep(10000);
        SpaceStatus next = space_of(fs);
        equal = next.free_blocks == status.free_blocks ? equal + 1 : 0;
        status = next;
    }
    return status;
}

SUITE_CASE(statfs, makes_sense, {}) {
    SpaceStatus status = space_of(fs);
    CHECK_TRUE(status.block_bytes >= 512);
    CHECK_TRUE(status.total_blocks > 0);
    CHECK_TRUE(status.free_blocks <= status.total_blocks);
    CHECK_TRUE(status.available_blocks <= status.free_blocks);
    CHECK_TRUE(status.free_nodes <= status.total_nodes);
    CHECK_EQUAL(status.name_max_bytes, 255U);
}

SUITE_CASE(statfs, moves_by_what_is_written, {Feature::exact_space}) {
    SpaceStatus before = settled_space(fs);
    {
        File file(fs, "f", O_RDWR | O_CREAT);
        write_at(fs, file, 0, pattern(static_cast<size_t>(16 * kMiB)));
        CHECK_OK(fs.fsync(file));
    }
    SpaceStatus after = space_of(fs);
    uint64_t used_bytes = (before.free_blocks - after.free_blocks) * before.block_bytes;
    CHECK_TRUE(used_bytes >= static_cast<uint64_t>(16 * kMiB));
    CHECK_TRUE(used_bytes <= static_cast<uint64_t>(18 * kMiB));
    REQUIRE_OK(fs.unlink("f"));
    uint64_t expected = before.free_blocks - static_cast<uint64_t>(kMiB) / before.block_bytes;
    CHECK_TRUE(space_with_free(fs, expected).free_blocks >= expected);
}

SUITE_CASE(statfs, counts_allocated_space, {Feature::exact_space, Feature::punch_hole}) {
    SpaceStatus before = settled_space(fs);
    File file(fs, "f", O_RDWR | O_CREAT);
    CHECK_OK(fs.fallocate(file, 0, 0, 16 * kMiB));
    CHECK_OK(fs.fsync(file));
    SpaceStatus after = space_of(fs);
    CHECK_TRUE((before.free_blocks - after.free_blocks) * before.block_bytes >=
               static_cast<uint64_t>(16 * kMiB));
}

SUITE_CASE(statfs, many_rewrites_take_no_space, {Feature::exact_space}) {
    write_file(fs, "f", pattern(static_cast<size_t>(2 * kMiB)));
    File file(fs, "f", O_RDWR);
    CHECK_OK(fs.fsync(file));
    SpaceStatus before = space_of(fs);
    for (uint64_t i = 0; i < 40; ++i) {
        write_at(fs, file, 0, pattern(static_cast<size_t>(2 * kMiB), i));
        CHECK_OK(fs.fsync(file));
    }
    uint64_t expected = before.free_blocks - static_cast<uint64_t>(4 * kMiB) / before.block_bytes;
    CHECK_TRUE(space_with_free(fs, expected).free_blocks >= expected);
}

SUITE_CASE(statfs, many_files_come_and_go, {Feature::exact_space}) {
    SpaceStatus before = settled_space(fs);
    REQUIRE_OK(fs.mkdir("d", 0755));
    for (int i = 0; i < 500; ++i) {
        write_file(fs, "d/" + std::to_string(i), pattern(5000));
    }
    remove_tree(fs, "d");
    uint64_t expected = before.free_blocks - static_cast<uint64_t>(2 * kMiB) / before.block_bytes;
    CHECK_TRUE(space_with_free(fs, expected).free_blocks >= expected);
}

SUITE_CASE(full, write_says_so, {Feature::small_volume, Feature::synchronous_enospc}) {
    File file(fs, "g", O_WRONLY | O_CREAT);
    int64_t size = fill_volume(fs, "f", 1 << 20);
    CHECK_TRUE(size > kMiB);
    std::string data = pattern(static_cast<size_t>(4 * kMiB));
    int64_t answer = 0;
    while ((answer = fs.write(file, data.data(), data.size())) > 0) {
    }
    CHECK_ERROR(answer, ENOSPC);
}

SUITE_CASE(full, loses_nothing, {Feature::small_volume}) {
    write_file(fs, "kept", pattern(100000, 7));
    {
        File kept(fs, "kept", O_RDWR);
        CHECK_OK(fs.fsync(kept));
    }
    fill_volume(fs, "f", 1 << 20);
    fill_volume(fs, "g", 4096);
    check_file(fs, "kept", pattern(100000, 7));
    // What the full file is said to have is there.
    std::string chunk = pattern(1 << 20, 1 << 20);
    File file(fs, "f", O_RDONLY);
    check_content(read_at(fs, file, 0, 1 << 20), chunk);
    check_content(read_at(fs, file, 5 * kMiB, 1 << 20), chunk);
}

SUITE_CASE(full, can_be_emptied_and_filled_again, {Feature::small_volume}) {
    int64_t first = fill_volume(fs, "f", 1 << 20);
    for (int round = 0; round < 3; ++round) {
        REQUIRE_OK(fs.unlink("f"));
        uint64_t wanted = static_cast<uint64_t>(first - first / 20) / space_of(fs).block_bytes;
        space_with_free(fs, wanted);
        int64_t size = fill_volume(fs, "f", 1 << 20);
        CHECK_TRUE(size >= first - first / 10);
    }
    REQUIRE_OK(fs.unlink("f"));
    space_with_free(fs, static_cast<uint64_t>(kMiB) / space_of(fs).block_bytes);
    write_file(fs, "g", pattern(100000));
    check_file(fs, "g", pattern(100000));
}

SUITE_CASE(full, by_small_files, {Feature::small_volume}) {
    const int64_t filler = fill_volume(fs, "filler", 1 << 20);
    // Some thousand files fill that again; more would only take longer.
    REQUIRE_OK(fs.truncate("filler", filler > 34 * kMiB ? filler - 24 * kMiB : 10 * kMiB));
    space_with_free(fs, static_cast<uint64_t>(8 * kMiB) / space_of(fs).block_bytes);
    REQUIRE_OK(fs.mkdir("d", 0755));
    int64_t answer = 0;
    std::vector<std::string> complete;
    for (int i = 0; i < 200000; ++i) {
        std::string path = "d/" + std::to_string(i);
        answer = fs.open(path, O_WRONLY | O_CREAT, 0644);
        if (answer < 0) {
            break;
        }
        std::string data = pattern(3000, static_cast<uint64_t>(i));
        int64_t written = fs.write(static_cast<int>(answer), data.data(), data.size());
        int64_t synced = fs.fsync(static_cast<int>(answer));
        CHECK_OK(fs.close(static_cast<int>(answer)));
        if (written != 3000 || synced != 0) {
            answer = written < 0 ? written : synced != 0 ? synced : -ENOSPC;
            break;
        }
        complete.push_back(path);
    }
    CHECK_ERROR(answer, ENOSPC);
    CHECK_TRUE(complete.size() > 500);
    for (size_t i = 0; i < complete.size(); i += 1 + complete.size() / 50) {
        check_file(fs, complete[i], pattern(3000, i));
    }
    // Removal must work without any space.
    remove_tree(fs, "d");
    REQUIRE_OK(fs.unlink("filler"));
}

SUITE_CASE(full, truncation_makes_room, {Feature::small_volume}) {
    fill_volume(fs, "f", 1 << 20);
    fill_volume(fs, "g", 4096);
    REQUIRE_OK(fs.truncate("f", 2 * kMiB));
    File f(fs, "f", O_RDONLY);
    space_with_free(fs, static_cast<uint64_t>(4 * kMiB) / space_of(fs).block_bytes);
    write_file(fs, "h", pattern(static_cast<size_t>(kMiB)));
    check_file(fs, "h", pattern(static_cast<size_t>(kMiB)));
    check_content(read_at(fs, f, kMiB, 1 << 20), pattern(1 << 20, 1 << 20));
}

// A file that has its blocks can be changed in place when nothing is free.
SUITE_CASE(full, overwriting_works, {Feature::small_volume}) {
    write_file(fs, "old", pattern(static_cast<size_t>(kMiB), 1));
    File old(fs, "old", O_RDWR);
    CHECK_OK(fs.fsync(old));
    fill_volume(fs, "f", 1 << 20);
    fill_volume(fs, "g", 4096);
    for (uint64_t i = 2; i < 6; ++i) {
        for (int64_t offset = 0; offset < kMiB; offset += 65536) {
            write_at(fs, old, offset, pattern(65536, i));
            CHECK_OK(fs.fsync(old));
        }
    }
    for (int64_t offset = 0; offset < kMiB; offset += 65536) {
        check_content(read_at(fs, old, offset, 65536), pattern(65536, 5));
    }
}

SUITE_CASE(full, renaming_and_removing_work, {Feature::small_volume}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    for (int i = 0; i < 50; ++i) {
        write_file(fs, "d/" + std::to_string(i), "x");
    }
    fill_volume(fs, "f", 1 << 20);
    fill_volume(fs, "g", 4096);
    for (int i = 0; i < 25; ++i) {
        REQUIRE_OK(fs.unlink("d/" + std::to_string(i)));
    }
    for (int i = 25; i < 50; ++i) {
        int64_t answer = fs.rename("d/" + std::to_string(i), "d/" + std::to_string(i - 25), 0);
        CHECK_TRUE(answer == 0 || answer == -ENOSPC);
        if (answer < 0) {
            REQUIRE_OK(fs.unlink("d/" + std::to_string(i)));
        }
    }
    remove_tree(fs, "d");
}

}  // namespace
}  // namespace tiffin::suite
