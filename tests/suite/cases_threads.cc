// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Many threads at once. What they do at the same time may have many outcomes; what is checked is
// what holds in all of them.
#include <atomic>
#include <set>

#include "tests/suite/helpers.h"

namespace tiffin::suite {
namespace {

constexpr int kThreads = 8;

uint64_t next(uint64_t& state) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return state >> 33;
}

SUITE_CASE(threads, each_in_its_own_directory, {}) {
    run_threads(kThreads, [&](int thread) {
        std::string directory = "d" + std::to_string(thread);
        REQUIRE_OK(fs.mkdir(directory, 0755));
        for (int i = 0; i < 100; ++i) {
            std::string path = directory + "/" + std::to_string(i);
            std::string data =
                pattern(static_cast<size_t>(i) * 70, static_cast<uint64_t>(thread * 1000 + i));
            write_file(fs, path, data);
            check_file(fs, path, data);
            if (i % 3 == 0) {
                REQUIRE_OK(fs.rename(path, path + "x", 0));
            } else if (i % 3 == 1) {
                REQUIRE_OK(fs.unlink(path));
            }
        }
    });
    for (int thread = 0; thread < kThreads; ++thread) {
        CHECK_EQUAL(list_directory(fs, "d" + std::to_string(thread)).size(), 67U + 2);
    }
}

SUITE_CASE(threads, creating_in_one_directory, {}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    run_threads(kThreads, [&](int thread) {
        for (int i = 0; i < 100; ++i) {
            write_file(fs, "d/" + std::to_string(thread) + "-" + std::to_string(i), "x");
        }
    });
    std::set<std::string> names;
    for (const DirectoryRecord& record : list_directory(fs, "d")) {
        CHECK_TRUE(names.insert(record.name).second);
    }
    CHECK_EQUAL(names.size(), size_t{kThreads} * 100 + 2);
}

SUITE_CASE(threads, one_wins_each_exclusive_creation, {}) {
    std::atomic<int> won = 0;
    run_threads(kThreads, [&](int) {
        for (int i = 0; i < 100; ++i) {
            int64_t answer = fs.open("f" + std::to_string(i), O_WRONLY | O_CREAT | O_EXCL, 0644);
            if (answer >= 0) {
                ++won;
                CHECK_OK(fs.close(static_cast<int>(answer)));
            } else {
                CHECK_ERROR(answer, EEXIST);
            }
        }
    });
    CHECK_EQUAL(won.load(), 100);
}

SUITE_CASE(threads, one_wins_each_removal, {}) {
    for (int i = 0; i < 100; ++i) {
        write_file(fs, "f" + std::to_string(i), "x");
    }
    std::atomic<int> won = 0;
    run_threads(kThreads, [&](int) {
        for (int i = 0; i < 100; ++i) {
            int64_t answer = fs.unlink("f" + std::to_string(i));
            if (answer == 0) {
                ++won;
            } else {
                CHECK_ERROR(answer, ENOENT);
            }
        }
    });
    CHECK_EQUAL(won.load(), 100);
    CHECK_EQUAL(names_in(fs, ""), "");
}

SUITE_CASE(threads, appends_do_not_overwrite_each_other, {}) {
    write_file(fs, "f", "");
    constexpr size_t record_bytes = 100;
    run_threads(kThreads, [&](int thread) {
        File file(fs, "f", O_WRONLY | O_APPEND);
        std::string record(record_bytes, static_cast<char>('a' + thread));
        for (int i = 0; i < 100; ++i) {
            CHECK_EQUAL(fs.write(file, record.data(), record.size()),
                        static_cast<int64_t>(record_bytes));
        }
    });
    std::string data = read_file(fs, "f");
    CHECK_EQUAL(data.size(), record_bytes * 100 * kThreads);
    std::vector<int> counts(kThreads);
    for (size_t at = 0; at + record_bytes <= data.size(); at += record_bytes) {
        CHECK_TRUE(data.substr(at, record_bytes) == std::string(record_bytes, data[at]));
        ++counts.at(static_cast<size_t>(data[at] - 'a'));
    }
    for (int count : counts) {
        CHECK_EQUAL(count, 100);
    }
}

SUITE_CASE(threads, writing_to_different_parts_of_one_file, {}) {
    constexpr size_t part_bytes = 256 * 1024 + 123;
    File file(fs, "f", O_RDWR | O_CREAT);
    run_threads(kThreads, [&](int thread) {
        std::string data = pattern(part_bytes, static_cast<uint64_t>(thread));
        auto start = static_cast<size_t>(thread) * part_bytes;
        for (size_t at = 0; at < part_bytes; at += 3000) {
            write_at(fs, file, static_cast<int64_t>(start + at), data.substr(at, 3000));
        }
    });
    std::string expected;
    for (int thread = 0; thread < kThreads; ++thread) {
        expected += pattern(part_bytes, static_cast<uint64_t>(thread));
    }
    check_file(fs, "f", expected);
}

// A write of one block is seen whole or not at all.
SUITE_CASE(threads, reading_while_another_writes, {Feature::atomic_blocks}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    write_at(fs, file, 0, std::string(4096, 'a'));
    std::atomic<bool> done = false;
    run_threads(4, [&](int thread) {
        if (thread == 0) {
            for (int i = 0; i < 500; ++i) {
                write_at(fs, file, 0, std::string(4096, static_cast<char>('a' + i % 26)));
            }
            done = true;
            return;
        }
        while (!done) {
            std::string data = read_at(fs, file, 0, 4096);
            if (data != std::string(4096, data[0])) {
                record_failure(__FILE__, __LINE__, "a block holds parts of two writes");
                return;
            }
        }
    });
}

SUITE_CASE(threads, truncating_while_another_writes, {}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    run_threads(4, [&](int thread) {
        uint64_t state = static_cast<uint64_t>(thread) + 1;
        for (int i = 0; i < 300; ++i) {
            auto offset = static_cast<int64_t>(next(state) % 100000);
            if (thread % 2 == 0) {
                write_at(fs, file, offset, std::string(3000, 'x'));
            } else {
                CHECK_OK(fs.ftruncate(file, offset));
            }
        }
    });
    // Every byte was either written or is a hole.
    std::string data = read_file(fs, "f");
    CHECK_EQUAL(data.find_first_not_of(std::string("x\0", 2)), std::string::npos);
    CHECK_EQUAL(status_of(fs, file).size_bytes, data.size());
}

SUITE_CASE(threads, rename_swaps_keep_exactly_two_names, {Feature::rename_exchange}) {
    write_file(fs, "a", "A");
    write_file(fs, "b", "B");
    run_threads(kThreads, [&](int) {
        for (int i = 0; i < 100; ++i) {
            REQUIRE_OK(fs.rename("a", "b", 2 /* RENAME_EXCHANGE */));
        }
    });
    // An even number of swaps.
    check_file(fs, "a", "A");
    check_file(fs, "b", "B");
}

// A name that is replaced all the time is there all the time.
SUITE_CASE(threads, a_replaced_name_never_misses, {}) {
    write_file(fs, "f", "0");
    std::atomic<bool> done = false;
    run_threads(4, [&](int thread) {
        if (thread == 0) {
            for (int i = 0; i < 300; ++i) {
                write_file(fs, "new", std::to_string(i));
                REQUIRE_OK(fs.rename("new", "f", 0));
            }
            done = true;
            return;
        }
        while (!done) {
            int64_t answer = fs.open("f", O_RDONLY);
            if (answer < 0) {
                CHECK_OK(answer);
                return;
            }
            CHECK_OK(fs.close(static_cast<int>(answer)));
        }
    });
}

// Moving directories into each other from several sides must never cut a part of the tree off.
SUITE_CASE(threads, directories_moved_across_each_other, {}) {
    constexpr int count = 6;
    for (int i = 0; i < count; ++i) {
        REQUIRE_OK(fs.mkdir("d" + std::to_string(i), 0755));
    }
    run_threads(kThreads, [&](int thread) {
        uint64_t state = static_cast<uint64_t>(thread) + 77;
        for (int i = 0; i < 200; ++i) {
            std::string a = "d" + std::to_string(next(state) % count);
            std::string b = "d" + std::to_string(next(state) % count);
            int64_t answer =
                next(state) % 2 == 0 ? fs.rename(a, b + "/" + a, 0) : fs.rename(b + "/" + a, a, 0);
            if (answer != 0 && answer != -ENOENT && answer != -EINVAL && answer != -ENOTEMPTY &&
                answer != -EEXIST && answer != -ELOOP && answer != -ENOTDIR) {
                CHECK_OK(answer);
            }
        }
    });
    // Every directory is somewhere, once.
    std::vector<std::string> queue = {""};
    std::multiset<std::string> found;
    while (!queue.empty()) {
        std::string path = queue.back();
        queue.pop_back();
        uint32_t directories = 0;
        for (const DirectoryRecord& record : list_directory(fs, path)) {
            if (record.name[0] == 'd') {
                found.insert(record.name);
                std::string child = path.empty() ? record.name : path + "/" + record.name;
                CHECK_EQUAL(status_of(fs, child + "/..").node, status_of(fs, path).node);
                queue.push_back(child);
                ++directories;
            }
        }
        if (!path.empty() && fs.has(Feature::exact_directory_links)) {
            CHECK_EQUAL(status_of(fs, path).link_count, 2 + directories);
        }
    }
    CHECK_EQUAL(found.size(), size_t{count});
}

// Everything at once in one directory; afterwards names, link counts and content must agree.
SUITE_CASE(threads, storm_in_a_shared_directory, {}) {
    REQUIRE_OK(fs.mkdir("d", 0755));
    REQUIRE_OK(fs.mkdir("e", 0755));
    constexpr uint64_t names = 20;
    run_threads(kThreads, [&](int thread) {
        uint64_t state = static_cast<uint64_t>(thread) * 31 + 7;
        auto path = [&] {
            return (next(state) % 2 == 0 ? "d/" : "e/") + std::to_string(next(state) % names);
        };
        for (int i = 0; i < 300; ++i) {
            int64_t answer = 0;
            switch (next(state) % 6) {
                case 0:
                case 1: {
                    answer = fs.open(path(), O_RDWR | O_CREAT, 0644);
                    if (answer >= 0) {
                        auto file = static_cast<int>(answer);
                        std::string data(1 + next(state) % 6000, 'z');
                        CHECK_OK(fs.pwrite(file, data.data(), data.size(), 0));
                        CHECK_OK(fs.close(file));
                        answer = 0;
                    }
                    break;
                }
                case 2:
                    answer = fs.unlink(path());
                    break;
                case 3:
                    answer = fs.rename(path(), path(), 0);
                    break;
                case 4:
                    answer = fs.link(path(), path());
                    break;
                default: {
                    FileStatus status;
                    answer = fs.lstat(path(), status);
                }
            }
            if (answer != 0 && answer != -ENOENT && answer != -EEXIST) {
                CHECK_OK(answer);
            }
        }
    });
    std::multiset<uint64_t> links;
    for (const char* directory : {"d", "e"}) {
        std::set<std::string> seen;
        for (const DirectoryRecord& record : list_directory(fs, directory)) {
            if (record.name[0] == '.') {
                continue;
            }
            CHECK_TRUE(seen.insert(record.name).second);
            links.insert(record.node);
        }
    }
    for (const char* directory : {"d", "e"}) {
        for (const DirectoryRecord& record : list_directory(fs, directory)) {
            if (record.name[0] == '.') {
                continue;
            }
            std::string path = std::string(directory) + "/" + record.name;
            CHECK_EQUAL(status_of(fs, path).link_count, links.count(record.node));
            std::string data = read_file(fs, path);
            CHECK_TRUE(data == std::string(data.size(), 'z'));
        }
    }
}

SUITE_CASE(threads, making_and_removing_one_directory, {}) {
    run_threads(kThreads, [&](int thread) {
        for (int i = 0; i < 150; ++i) {
            int64_t answer = 0;
            if (thread % 2 == 0) {
                answer = fs.mkdir("d", 0755);
                CHECK_TRUE(answer == 0 || answer == -EEXIST);
                answer = fs.open("d/f", O_WRONLY | O_CREAT, 0644);
                if (answer >= 0) {
                    CHECK_OK(fs.close(static_cast<int>(answer)));
                } else {
                    CHECK_ERROR(answer, ENOENT);
                }
            } else {
                answer = fs.unlink("d/f");
                CHECK_TRUE(answer == 0 || answer == -ENOENT);
                answer = fs.rmdir("d");
                CHECK_TRUE(answer == 0 || answer == -ENOENT || answer == -ENOTEMPTY);
            }
        }
    });
    if (exists(fs, "d")) {
        remove_tree(fs, "d");
    }
    CHECK_EQUAL(names_in(fs, ""), "");
}

SUITE_CASE(threads, syncing_while_others_write, {}) {
    run_threads(kThreads, [&](int thread) {
        std::string path = "f" + std::to_string(thread);
        File file(fs, path, O_RDWR | O_CREAT);
        for (int i = 0; i < 30; ++i) {
            write_at(fs, file, i * 5000, pattern(5000, static_cast<uint64_t>(i)));
            CHECK_OK(i % 3 == 0 ? fs.syncfs(file) : fs.fsync(file));
        }
    });
    for (int thread = 0; thread < kThreads; ++thread) {
        std::string data = read_file(fs, "f" + std::to_string(thread));
        CHECK_EQUAL(data.size(), 150000U);
        check_content(data.substr(145000), pattern(5000, 29));
    }
}

SUITE_CASE(threads, extended_attributes_of_one_file, {Feature::xattr_user}) {
    write_file(fs, "f", "x");
    run_threads(kThreads, [&](int thread) {
        std::string name = "user.n" + std::to_string(thread);
        for (uint64_t i = 0; i < 100; ++i) {
            CHECK_OK(set_xattr(fs, "f", name, pattern(50, i)));
            CHECK_TRUE(xattr_of(fs, "f", name) == pattern(50, i));
        }
    });
    CHECK_EQUAL(xattr_names(fs, "f").size(), size_t{kThreads});
}

}  // namespace
}  // namespace tiffin::suite
