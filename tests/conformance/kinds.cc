// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/conformance/kinds.h"

#include <sys/stat.h>
#include <unistd.h>

namespace tiffin::conformance {
namespace {

void nothing(Scene& scene) { scene.watch("x"); }
void file(Scene& scene) { scene.file("x"); }
void directory(Scene& scene) { scene.directory("x"); }
void full_directory(Scene& scene) {
    scene.directory("x");
    scene.file("x/f");
}
void link_to_file(Scene& scene) {
    scene.file("f");
    scene.symlink("f", "x");
}
void link_to_directory(Scene& scene) {
    scene.directory("d");
    scene.symlink("d", "x");
    scene.watch("d/new");
}
void dangling_link(Scene& scene) {
    scene.symlink("new", "x");
    scene.watch("new");
}
void loop(Scene& scene) {
    scene.symlink("y", "x");
    scene.symlink("x", "y");
}

}  // namespace

std::string long_name(size_t bytes) { return std::string(bytes, 'x'); }

std::string long_path(size_t bytes) {
    std::string path;
    while (path.size() + 3 <= bytes) {
        path += "./";
    }
    path += path.size() + 2 == bytes ? "/x" : "x";
    return path;
}

void make_chain(const std::string& target, int count) {
    for (int i = 1; i <= count; ++i) {
        const std::string next = i == 1 ? target : std::to_string(i - 1);
        if (::symlink(next.c_str(), std::to_string(i).c_str()) < 0) {
            broken("symlink " + next);
        }
    }
}

const std::vector<Kind>& object_kinds() {
    static const std::vector<Kind> kinds = {
        {"missing", "x", nothing},
        {"file", "x", file},
        {"directory", "x", directory},
        {"full directory", "x", full_directory},
        {"link to file", "x", link_to_file},
        {"link to directory", "x", link_to_directory},
        {"dangling link", "x", dangling_link},
        {"loop", "x", loop},
        {"fifo", "x", [](Scene& scene) { scene.fifo("x"); }},
        {"socket", "x", [](Scene& scene) { scene.socket("x"); }},
        // The null device, and a block device that does not exist.
        {"char device", "x", [](Scene& scene) { scene.node("x", S_IFCHR | 0666, 1, 3); }},
        {"block device", "x", [](Scene& scene) { scene.node("x", S_IFBLK | 0666, 240, 200); }},
    };
    return kinds;
}

const std::vector<Kind>& path_kinds() {
    static const std::vector<Kind> kinds = {
        {"missing/", "x/", nothing},
        {"file/", "x/", file},
        {"directory/", "x/", directory},
        {"directory//", "x//", directory},
        {"link to file/", "x/", link_to_file},
        {"link to directory/", "x/", link_to_directory},
        {"dangling link/", "x/", dangling_link},
        {"loop/", "x/", loop},
        {"fifo/", "x/", [](Scene& scene) { scene.fifo("x"); }},
        {"directory/.", "x/.", directory},
        {"directory/..", "x/..", directory},
        {"full directory/..", "x/..", full_directory},
        {"file/.", "x/.", file},
        {"file/..", "x/..", file},
        {"missing/..", "x/..", nothing},
        {"link to directory/.", "x/.", link_to_directory},
        {".", ".", nothing},
        {"./", "./", nothing},
        {"..", "..",
         [](Scene& scene) {
             scene.go_below();
             scene.watch("..");
         }},
        {"directory/missing", "x/new",
         [](Scene& scene) {
             scene.directory("x");
             scene.watch("x/new");
         }},
        {"missing/missing", "x/y", nothing},
        {"file/missing", "x/y", file},
        {"fifo/missing", "x/y", [](Scene& scene) { scene.fifo("x"); }},
        {"link to file/missing", "x/y", link_to_file},
        {"link to directory/missing", "x/new", link_to_directory},
        {"dangling link/missing", "x/y", dangling_link},
        {"loop/missing", "x/y", loop},
        {"link into missing directory", "x", [](Scene& scene) { scene.symlink("y/z", "x"); }},
        {"link to directory with a slash", "x",
         [](Scene& scene) {
             scene.directory("d");
             scene.symlink("d/", "x");
         }},
        {"link to missing with a slash", "x",
         [](Scene& scene) {
             scene.watch("d");
             scene.symlink("d/", "x");
         }},
        {"link to file with a slash", "x",
         [](Scene& scene) {
             scene.file("f");
             scene.symlink("f/", "x");
         }},
        {"name of 255 bytes, missing", long_name(255),
         [](Scene& scene) { scene.watch(long_name(255)); }},
        {"name of 255 bytes, file", long_name(255),
         [](Scene& scene) { scene.file(long_name(255)); }},
        {"name of 256 bytes", long_name(256), nothing},
        {"name of 256 bytes as a directory", long_name(256) + "/x", nothing},
        {"name of 256 bytes in a missing directory", "x/" + long_name(256), nothing},
        {"name of 256 bytes below a file", "x/" + long_name(256), file},
        {"name of 256 bytes after a link", "x/" + long_name(256), link_to_directory},
        {"path of 4095 bytes", long_path(4095), file},
        {"path of 4096 bytes", long_path(4096), file},
        {"empty path", "", nothing},
    };
    return kinds;
}

}  // namespace tiffin::conformance
