// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Reading directories: what the records say, and positions in them.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/conformance/answer.h"
#include "tests/conformance/groups.h"

namespace tiffin::conformance {
namespace {

struct Record {
    std::string name;
    uint64_t node;
    int64_t next;
    unsigned char type;
};

int open_directory() { return ::open("d", O_RDONLY | O_DIRECTORY | O_CLOEXEC); }

// One getdents64; appends to `records`. Returns its result.
long read_once(int directory, size_t size, std::vector<Record>& records) {
    std::vector<char> buffer(size);
    const long count = ::syscall(SYS_getdents64, directory, buffer.data(), size);
    for (long at = 0; at < count;) {
        const auto* record = reinterpret_cast<const dirent64*>(buffer.data() + at);
        records.push_back({record->d_name, record->d_ino, record->d_off, record->d_type});
        at += record->d_reclen;
    }
    return count;
}

// All that is left; returns 0 or the error.
long read_all(int directory, size_t size, std::vector<Record>& records) {
    long count = 0;
    while ((count = read_once(directory, size, records)) > 0) {
    }
    return count;
}

std::string names(std::vector<Record> records) {
    std::sort(records.begin(), records.end(),
              [](const Record& a, const Record& b) { return a.name < b.name; });
    std::string text;
    for (const Record& record : records) {
        text += (text.empty() ? "" : " ") + record.name;
    }
    return text.size() > 100 ? quoted(text) : text;
}

std::string all_names(int directory) {
    std::vector<Record> records;
    const long end = read_all(directory, 4096, records);
    return end < 0 ? error_name(errno) : names(records);
}

std::string types() {
    std::vector<Record> records;
    if (read_all(open_directory(), 4096, records) < 0) {
        return error_name(errno);
    }
    std::sort(records.begin(), records.end(),
              [](const Record& a, const Record& b) { return a.name < b.name; });
    std::string text;
    for (const Record& record : records) {
        struct stat status {};
        const bool found = ::lstat(("d/" + record.name).c_str(), &status) == 0;
        text += record.name + "=" + std::to_string(record.type) +
                (found && status.st_ino == record.node ? "" : " with another node") +
                (IFTODT(status.st_mode) == record.type ? " " : " and another type ");
    }
    return text;
}

std::string every_position() {
    const int directory = open_directory();
    std::vector<Record> records;
    if (read_all(directory, 4096, records) < 0) {
        return error_name(errno);
    }
    for (size_t i = 0; i + 1 < records.size(); ++i) {
        std::vector<Record> rest;
        if (::lseek(directory, records[i].next, SEEK_SET) < 0 ||
            read_once(directory, 4096, rest) <= 0 || rest[0].name != records[i + 1].name) {
            return "after record " + std::to_string(i) + " comes another one";
        }
    }
    return "ok " + std::to_string(records.size());
}

struct Action {
    const char* name;
    std::string (*run)();
};

const Action kActions[] = {
    {"names", [] { return all_names(open_directory()); }},
    {"types and nodes", types},
    {"the dots come first",
     [] {
         std::vector<Record> records;
         read_all(open_directory(), 4096, records);
         return records.size() < 2 ? std::string("too few")
                                   : records[0].name + " " + records[1].name;
     }},
    {"records in small buffers",
     [] {
         std::vector<Record> records;
         const long end = read_all(open_directory(), 48, records);
         return counted(end) + " " + names(records);
     }},
    {"a buffer without room",
     [] {
         std::vector<Record> records;
         return counted(read_once(open_directory(), 16, records));
     }},
    {"position at the beginning", [] { return counted(::lseek(open_directory(), 0, SEEK_CUR)); }},
    {"every position", every_position},
    {"rewinding",
     [] {
         const int directory = open_directory();
         const std::string first = all_names(directory);
         return counted(::lseek(directory, 0, SEEK_SET)) +
                (all_names(directory) == first ? " the same" : " others");
     }},
    {"a new name after rewinding",
     [] {
         const int directory = open_directory();
         all_names(directory);
         ::mkdir("d/added", 0755);
         ::lseek(directory, 0, SEEK_SET);
         return all_names(directory);
     }},
    {"a removed name after rewinding",
     [] {
         const int directory = open_directory();
         all_names(directory);
         ::unlink("d/file");
         ::lseek(directory, 0, SEEK_SET);
         return all_names(directory);
     }},
    {"a name made after the end was read",
     [] {
         const int directory = open_directory();
         all_names(directory);
         const std::string again = all_names(directory);
         return again.empty() ? std::string("nothing more") : again;
     }},
    {"seeking to -1", [] { return counted(::lseek(open_directory(), -1, SEEK_SET)); }},
    {"seeking by an unknown whence", [] { return counted(::lseek(open_directory(), 0, 9)); }},
    {"seeking in a removed directory",
     [] {
         const int directory = open_directory();
         std::vector<Record> records;
         read_once(directory, 64, records);
         for (const char* name : {"d/file", "d/fifo", "d/link", "d/other name"}) {
             ::unlink(name);
         }
         ::rmdir("d/directory");
         const std::string removed = answer(::rmdir("d"));
         ::lseek(directory, 0, SEEK_SET);
         std::vector<Record> rest;
         return removed + ", " + counted(read_all(directory, 4096, rest)) + " " + names(rest);
     }},
    {"read",
     [] {
         char buffer[64];
         return counted(::read(open_directory(), buffer, sizeof buffer));
     }},
    {"parent's node",
     [] {
         std::vector<Record> records;
         read_all(open_directory(), 4096, records);
         struct stat status {};
         ::stat(".", &status);
         for (const Record& record : records) {
             if (record.name == "..") {
                 return std::string(record.node == status.st_ino ? "right" : "wrong");
             }
         }
         return std::string("missing");
     }},
    {"after moving to another parent",
     [] {
         ::mkdir("new", 0755);
         ::rename("d", "new/d");
         struct stat parent {};
         struct stat above {};
         ::stat("new", &parent);
         ::stat("new/d/..", &above);
         std::vector<Record> records;
         read_all(::open("new/d", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 4096, records);
         std::string text = parent.st_ino == above.st_ino ? "dot dot right" : "dot dot wrong";
         for (const Record& record : records) {
             if (record.name == "..") {
                 text += record.node == parent.st_ino ? ", record right" : ", record wrong";
             }
         }
         return text;
     }},
};

}  // namespace

void add_directory_trials(Trials& trials) {
    for (const Action& action : kActions) {
        trials.add(
            std::string(action.name) + ", some entries", Caller::root,
            [](Scene& scene) {
                scene.directory("d");
                scene.file("d/file");
                scene.directory("d/directory");
                scene.fifo("d/fifo");
                scene.symlink("file", "d/link");
                scene.link("d/file", "d/other name");
            },
            action.run);
        trials.add(
            std::string(action.name) + ", empty", Caller::root,
            [](Scene& scene) { scene.directory("d"); }, action.run);
        trials.add(
            std::string(action.name) + ", hundreds", Caller::root,
            [](Scene& scene) {
                scene.directory("d");
                for (int i = 0; i < 300; ++i) {
                    if (::mknod(("d/" + std::to_string(i)).c_str(), S_IFREG | 0644, 0) < 0) {
                        broken("mknod");
                    }
                }
            },
            action.run);
    }
}

}  // namespace tiffin::conformance
