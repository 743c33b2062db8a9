// SPDX-License-Identifier: MIT OR GPL-2.0-only
// telldir and seekdir: a position that a reader of a directory was given stays valid, whatever is removed and
// made meanwhile, the entry it stands behind included, and whoever else reads the directory.
#include <algorithm>
#include <random>
#include <set>

#include "tests/suite/helpers.h"

namespace tiffin::suite {
namespace {

bool is_dot(const std::string& name) { return name == "." || name == ".."; }

std::vector<DirectoryRecord> read_from(FileSystemUnderTest& fs, int directory, int64_t position,
                                       size_t buffer_bytes) {
    CHECK_EQUAL(fs.lseek(directory, position, SEEK_SET), position);
    std::vector<DirectoryRecord> records;
    while (REQUIRE_OK(fs.read_directory(directory, buffer_bytes, records)) > 0) {
    }
    return records;
}

// A directory of which everything is known: the order of its first names and what has become of them.
class Positions {
  public:
    Positions(FileSystemUnderTest& fs, int names) : fs_(fs) {
        REQUIRE_OK(fs.mkdir("d", 0755));
        for (int i = 0; i < names; ++i) {
            const std::string name = "name" + std::to_string(i);
            write_file(fs, "d/" + name, "");
            present_.insert(name);
        }
    }

    void tell(int directory) { first_ = read_from(fs_, directory, 0, 4096); }
    const std::vector<DirectoryRecord>& first() const { return first_; }
    const std::set<std::string>& present() const { return present_; }

    void remove(const std::string& name) {
        if (!is_dot(name) && present_.erase(name) != 0) {
            REQUIRE_OK(fs_.unlink("d/" + name));
        }
    }
    void add() {
        const std::string name = "new" + std::to_string(added_++);
        write_file(fs_, "d/" + name, "");
        present_.insert(name);
    }

    // What is read from the position behind first()[index]: of the names that were there at the beginning
    // those that still are and came behind it, once each and in their order; of others that are there, none twice;
    // and no name that has gone.
    void check_from(int directory, size_t index, size_t buffer_bytes) {
        std::vector<std::string> expected;
        for (size_t i = index + 1; i < first_.size(); ++i) {
            if (!is_dot(first_[i].name) && present_.count(first_[i].name) != 0) {
                expected.push_back(first_[i].name);
            }
        }
        std::vector<std::string> old;
        std::set<std::string> seen;
        for (const DirectoryRecord& record :
             read_from(fs_, directory, first_[index].cookie, buffer_bytes)) {
            if (is_dot(record.name)) {
                continue;  // ext4 sorts them among the others
            }
            CHECK_TRUE(seen.insert(record.name).second);
            CHECK_TRUE(present_.count(record.name) != 0);
            if (record.name.compare(0, 4, "name") == 0) {
                old.push_back(record.name);
            }
        }
        if (old != expected) {
            record_failure(__FILE__, __LINE__,
                           "behind entry " + std::to_string(index) + " (" + first_[index].name +
                               "): " + std::to_string(old.size()) + " names, expected " +
                               std::to_string(expected.size()));
        }
    }

    // From the start everything there is.
    void check_rewound(int directory) {
        std::set<std::string> seen;
        for (const DirectoryRecord& record : read_from(fs_, directory, 0, 1000)) {
            CHECK_TRUE(is_dot(record.name) || seen.insert(record.name).second);
        }
        CHECK_TRUE(seen == present_);
    }

  private:
    FileSystemUnderTest& fs_;
    std::vector<DirectoryRecord> first_;
    std::set<std::string> present_;
    int added_ = 0;
};

// The entry that the position stands behind goes, and those around it; others fill what a host caches of the
// directory without them.
SUITE_CASE(positions, stay_when_their_entries_go, {}) {
    Positions positions(fs, 120);
    File directory(fs, "d", O_RDONLY | O_DIRECTORY);
    positions.tell(directory);
    const size_t count = positions.first().size();
    for (size_t i = 3; i + 3 < count; i += 9) {
        for (size_t k = i - 1; k <= i + 1; ++k) {
            positions.remove(positions.first()[k].name);
        }
        positions.check_from(directory, i, 400);
        list_directory(fs, "d");
        list_directory(fs, "d");
        positions.check_from(directory, i, 4096);
        positions.check_from(directory, i - 1, 700);
    }
    positions.check_rewound(directory);
}

SUITE_CASE(positions, stay_while_names_come_and_go, {}) {
    std::mt19937_64 random(7);
    Positions positions(fs, 300);
    File directory(fs, "d", O_RDONLY | O_DIRECTORY);
    positions.tell(directory);
    const size_t count = positions.first().size();
    constexpr size_t kBufferSizes[] = {300, 1000, 4096, 65536};
    for (size_t round = 0; round < 20; ++round) {
        for (int i = 0; i < 10; ++i) {
            positions.remove(positions.first()[random() % count].name);
        }
        for (int i = 0; i < 7; ++i) {
            positions.add();
        }
        if (round % 3 == 0) {
            list_directory(fs, "d");
        }
        for (const size_t buffer_bytes : kBufferSizes) {
            positions.check_from(directory, random() % count, buffer_bytes);
        }
        positions.check_from(directory, count - 1, 1000);
        positions.check_rewound(directory);
    }
}

// A reader that began before names came must not decide what one sees that begins after it: a host that caches what
// the first one reads, and lets the second one go on in that, loses names.
SUITE_CASE(positions, of_two_readers, {}) {
    Positions positions(fs, 400);
    for (const size_t first_bytes : {300, 4096}) {
        const std::set<std::string> before = positions.present();
        File first(fs, "d", O_RDONLY | O_DIRECTORY);
        std::vector<DirectoryRecord> seen_by_first;
        REQUIRE_OK(fs.read_directory(first, 4096, seen_by_first));
        for (int i = 0; i < 100; ++i) {
            positions.add();
        }
        File second(fs, "d", O_RDONLY | O_DIRECTORY);
        std::vector<DirectoryRecord> seen_by_second;
        REQUIRE_OK(fs.read_directory(second, first_bytes, seen_by_second));
        while (REQUIRE_OK(fs.read_directory(first, 4096, seen_by_first)) > 0) {
        }
        while (REQUIRE_OK(fs.read_directory(second, 4096, seen_by_second)) > 0) {
        }
        std::set<std::string> names;
        for (const DirectoryRecord& record : seen_by_second) {
            CHECK_TRUE(is_dot(record.name) || names.insert(record.name).second);
        }
        CHECK_TRUE(names == positions.present());
        std::set<std::string> names_of_first;
        for (const DirectoryRecord& record : seen_by_first) {
            CHECK_TRUE(is_dot(record.name) || names_of_first.insert(record.name).second);
        }
        CHECK_TRUE(std::includes(names_of_first.begin(), names_of_first.end(), before.begin(),
                                 before.end()));
    }
}

// The position of a reader in the middle, not moved by hand.
SUITE_CASE(positions, of_a_reader_in_the_middle, {}) {
    Positions positions(fs, 400);
    File directory(fs, "d", O_RDONLY | O_DIRECTORY);
    positions.tell(directory);
    CHECK_EQUAL(fs.lseek(directory, 0, SEEK_SET), 0);
    std::vector<DirectoryRecord> seen;
    std::set<std::string> kept = positions.present();
    std::mt19937_64 random(3);
    int step = 0;
    while (REQUIRE_OK(fs.read_directory(directory, 600, seen)) > 0) {
        CHECK_EQUAL(fs.lseek(directory, 0, SEEK_CUR), seen.back().cookie);
        for (int i = 0; i < 5; ++i) {
            const std::string& name =
                i == 0 ? seen.back().name
                       : positions.first()[random() % positions.first().size()].name;
            kept.erase(name);
            positions.remove(name);
        }
        // Where new names come last, a reader would never be done with them.
        if (step++ < 50) {
            positions.add();
        }
        list_directory(fs, "d");
    }
    std::set<std::string> names;
    for (const DirectoryRecord& record : seen) {
        CHECK_TRUE(is_dot(record.name) || names.insert(record.name).second);
    }
    for (const std::string& name : kept) {
        CHECK_TRUE(names.count(name) != 0);
    }
}

}  // namespace
}  // namespace tiffin::suite
