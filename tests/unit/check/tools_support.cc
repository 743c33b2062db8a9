// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/unit/check/tools_support.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace tiffin::check {

namespace files = std::filesystem;

std::string program(const std::string& name) {
    const files::path self = files::read_symlink("/proc/self/exe");
    return (self.parent_path().parent_path() / "bin" / name).string();
}

Outcome run_shell(const std::string& line) {
    Outcome outcome;
    FILE* pipe = popen(line.c_str(), "r");
    if (pipe == nullptr) {
        return outcome;
    }
    char buffer[4096];
    while (const size_t got = fread(buffer, 1, sizeof buffer, pipe)) {
        outcome.output.append(buffer, got);
    }
    const int status = pclose(pipe);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return outcome;
}

Outcome run(const std::string& name, const std::string& arguments) {
    return run_shell(program(name) + " " + arguments + " 2>&1 </dev/null");
}

void expect_contains(const Outcome& outcome, const std::string& text) {
    EXPECT_NE(outcome.output.find(text), std::string::npos) << outcome.output;
}

void Tools::SetUp() {
    char name[] = "/tmp/tiffin-tools-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    image_ = folder_ + "/image";
    for (const char* needed : {"mkfs.tiffin", "fsck.tiffin", "mount.tiffin", "tiffin"}) {
        ASSERT_TRUE(files::exists(program(needed))) << "build " << needed << " first";
    }
}

Result<void> Tools::try_mount() {
    auto device = fuse::open_device(image_, {});
    if (!device.ok()) {
        return device.problem().code;
    }
    return test::TestVolume(**device).mount();
}

void Tools::TearDown() { files::remove_all(folder_); }

void Tools::make() {
    const Outcome made = run("mkfs.tiffin", "-q " + image_ + " 64M");
    ASSERT_EQ(made.status, 0) << made.output;
    ASSERT_EQ(made.output, "");
}

void Tools::make_empty(uint64_t size_bytes) {
    files::remove(image_);
    std::ofstream(image_).put('\0');
    files::resize_file(image_, size_bytes);
}

void Tools::damage(uint64_t offset) {
    std::fstream file(image_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const char byte = static_cast<char>(file.get() ^ 0x10);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(byte);
    ASSERT_TRUE(file.good());
}

void Tools::put_text(uint64_t offset, const std::string& text) {
    std::fstream file(image_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file << text;
    ASSERT_TRUE(file.good());
}

std::string Tools::content() const {
    std::ostringstream text;
    text << std::ifstream(image_, std::ios::binary).rdbuf();
    return text.str();
}

}  // namespace tiffin::check
