// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/file_device.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <thread>

#include "fuse/host/log_sink.h"
#include "tests/support/device_testing.h"

namespace {

// While it is set, fdatasync() tells one caller of a failure, and another one that runs at the same time of none: as for
// an open file of Linux.
std::atomic<bool> failure_is_pending{false};

}  // namespace

extern "C" int fdatasync(int descriptor) {
    if (failure_is_pending.exchange(false)) {
        usleep(100000);
        errno = EIO;
        return -1;
    }
    return static_cast<int>(syscall(SYS_fdatasync, descriptor));
}

namespace tiffin::fuse {
namespace {

class FileDeviceTest : public testing::Test {
  protected:
    void make_image(uint64_t size_bytes) {
        std::ofstream(path_).close();
        std::filesystem::resize_file(path_, size_bytes);
    }

    std::unique_ptr<FileDevice> open_device(bool read_only = false) {
        auto device = FileDevice::open(path_, {read_only, 0, false});
        EXPECT_TRUE(device.ok()) << (device.ok() ? "" : device.problem().text);
        return device.ok() ? std::move(*device) : nullptr;
    }

    // The problem that stands in the way of opening `path`; "" when there is none.
    static std::string problem_with(const std::string& path, bool read_only,
                                    uint64_t create_size_bytes = 0) {
        auto device = FileDevice::open(path, {read_only, create_size_bytes, false});
        return device.ok() ? "" : device.problem().text;
    }

    // Whether another process can open the image: 'y', 'n' or '?'.
    char another_process_can_open(bool read_only) {
        const pid_t child = fork();
        if (child == 0) {
            // The copy of our own lock that fork() gave us is of no use: open() makes a new one.
            _exit(problem_with(path_, read_only).empty() ? 7 : 8);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
            return '?';
        }
        return WEXITSTATUS(status) == 7 ? 'y' : WEXITSTATUS(status) == 8 ? 'n' : '?';
    }

    TemporaryFolder folder_;
    std::string path_ = folder_.file("image");
};

TEST_F(FileDeviceTest, KeepsTheContract) {
    make_image(4 << 20);
    auto device = open_device();
    ASSERT_NE(device, nullptr);
    EXPECT_EQ(device->geometry().size_bytes, 4U << 20);
    EXPECT_EQ(device->geometry().write_unit_bytes, 512U);
    EXPECT_TRUE(device->geometry().volatile_cache);
    EXPECT_EQ(device->path(), path_);
    check_device_contract(*device);
}

TEST_F(FileDeviceTest, AFailedFlushFailsThoseBesideIt) {
    CapturedLog log;
    make_image(1 << 20);
    auto device = open_device();
    ASSERT_NE(device, nullptr);
    failure_is_pending = true;
    std::thread first([&] { EXPECT_EQ(device->flush().error(), Error::eio); });
    while (failure_is_pending) {
        std::this_thread::yield();
    }
    EXPECT_EQ(device->flush().error(), Error::eio);
    first.join();
    EXPECT_EQ(device->flush().error(), Error::eio);
}

TEST_F(FileDeviceTest, TakesRequestsFromManyThreads) {
    make_image(4 << 20);
    auto device = open_device();
    ASSERT_NE(device, nullptr);
    check_concurrent_submits(*device);
}

TEST_F(FileDeviceTest, KeepsItsContent) {
    make_image(1 << 20);
    const Bytes bytes = pattern(8192, 3);
    {
        auto device = open_device();
        ASSERT_NE(device, nullptr);
        ASSERT_TRUE(write_bytes(*device, 4096, bytes).ok());
        ASSERT_TRUE(device->flush().ok());
    }
    auto device = open_device(true);
    ASSERT_NE(device, nullptr);
    EXPECT_EQ(read_bytes(*device, 4096, 8192), bytes);
}

TEST_F(FileDeviceTest, RefusesChangesWhenReadOnly) {
    make_image(1 << 20);
    auto device = open_device(true);
    ASSERT_NE(device, nullptr);
    EXPECT_TRUE(device->geometry().read_only);
    EXPECT_EQ(error_of(write_bytes(*device, 0, Bytes(512))), EROFS);
    EXPECT_FALSE(device->discard(0, 4096).ok());
    EXPECT_TRUE(device->flush().ok());
}

TEST_F(FileDeviceTest, ReadsFirstAndWritesLater) {
    make_image(1 << 20);
    FileDevice::Options options;
    options.read_only = true;
    options.may_write_later = true;
    auto first = FileDevice::open(path_, options);
    auto second = FileDevice::open(path_, options);
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_FALSE((*first)->geometry().read_only);
    // Not while somebody else reads; and who was refused goes on reading.
    EXPECT_EQ(error_of((*first)->start_writing()), EBUSY);
    EXPECT_FALSE(problem_with(path_, false).empty());
    second->reset();
    ASSERT_TRUE((*first)->start_writing().ok());
    EXPECT_TRUE((*first)->start_writing().ok());
    EXPECT_FALSE(problem_with(path_, true).empty());
    EXPECT_TRUE(write_bytes(**first, 0, pattern(4096, 5)).ok());
}

TEST_F(FileDeviceTest, DiscardFreesSpace) {
    make_image(1 << 20);
    auto device = open_device();
    ASSERT_NE(device, nullptr);
    ASSERT_TRUE(write_bytes(*device, 0, pattern(1 << 20, 1)).ok());
    ASSERT_TRUE(device->flush().ok());
    const auto allocated = [this] {
        struct stat status {};
        EXPECT_EQ(stat(path_.c_str(), &status), 0);
        return status.st_blocks;
    };
    const auto before = allocated();
    if (device->geometry().supports_discard) {
        ASSERT_TRUE(device->discard(0, uint64_t{512} * 1024).ok());
        EXPECT_LT(allocated(), before);
    } else {
        EXPECT_EQ(error_of(device->discard(0, uint64_t{512} * 1024)), EOPNOTSUPP);
        EXPECT_EQ(allocated(), before);
    }
    EXPECT_EQ(std::filesystem::file_size(path_), 1U << 20);
}

// ---- Exclusion -----------------------------------------------------------------------------

TEST_F(FileDeviceTest, AWriterExcludesEverybody) {
    make_image(1 << 20);
    auto device = open_device();
    ASSERT_NE(device, nullptr);
    EXPECT_EQ(another_process_can_open(false), 'n');
    EXPECT_EQ(another_process_can_open(true), 'n');
    const std::string problem = problem_with(path_, false);
    EXPECT_NE(problem.find("is in use by another process"), std::string::npos) << problem;
    EXPECT_NE(problem.find(path_), std::string::npos) << problem;
    device.reset();
    EXPECT_EQ(another_process_can_open(false), 'y');
}

TEST_F(FileDeviceTest, ReadersShareAndExcludeWriters) {
    make_image(1 << 20);
    auto device = open_device(true);
    ASSERT_NE(device, nullptr);
    EXPECT_EQ(another_process_can_open(true), 'y');
    EXPECT_EQ(another_process_can_open(false), 'n');
    device.reset();
    EXPECT_EQ(another_process_can_open(false), 'y');
}

TEST_F(FileDeviceTest, TheLockSurvivesForkAndEndsWithTheProcess) {
    make_image(1 << 20);
    int to_child[2];
    ASSERT_EQ(pipe(to_child), 0);
    auto device = open_device();
    ASSERT_NE(device, nullptr);
    const pid_t child = fork();
    if (child == 0) {
        // As a daemon does: the parent leaves, the child keeps the device until it is told to end.
        close(to_child[1]);
        char byte = 0;
        [[maybe_unused]] const ssize_t count = read(to_child[0], &byte, 1);
        _exit(0);
    }
    ASSERT_GT(child, 0);
    device.reset();
    EXPECT_EQ(another_process_can_open(false), 'n');
    close(to_child[0]);
    close(to_child[1]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(another_process_can_open(false), 'y');
}

// ---- Creating ------------------------------------------------------------------------------

TEST_F(FileDeviceTest, CreatesAFileWhenAsked) {
    auto device = FileDevice::open(path_, {false, 1 << 20});
    ASSERT_TRUE(device.ok()) << device.problem().text;
    EXPECT_EQ((*device)->geometry().size_bytes, 1U << 20);
    EXPECT_TRUE((*device)->created());
    struct stat status {};
    ASSERT_EQ(stat(path_.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 077U, 0U) << "images are for their owner";
}

TEST_F(FileDeviceTest, LeavesTheSizeOfAnExistingFile) {
    make_image(1 << 20);
    auto device = FileDevice::open(path_, {false, 4 << 20});
    ASSERT_TRUE(device.ok()) << device.problem().text;
    EXPECT_EQ((*device)->geometry().size_bytes, 1U << 20);
    EXPECT_FALSE((*device)->created());
}

TEST_F(FileDeviceTest, ImpossibleSizesLeaveNoFile) {
    EXPECT_NE(problem_with(path_, false, UINT64_MAX), "");
    EXPECT_NE(problem_with(path_, false, uint64_t{1} << 62), "");
    EXPECT_FALSE(std::filesystem::exists(path_));
}

// ---- Bad input -----------------------------------------------------------------------------

TEST_F(FileDeviceTest, SaysWhatIsWrong) {
    EXPECT_NE(problem_with(path_, false).find("there is no such file"), std::string::npos);
    EXPECT_NE(problem_with(path_, true, 1 << 20).find("there is no such file"), std::string::npos);
    EXPECT_NE(problem_with(folder_.file("no/such/folder"), false, 4096), "");
    EXPECT_NE(problem_with(folder_.file(""), false).find("is a directory"), std::string::npos);
    EXPECT_NE(problem_with("/dev/null", false).find("neither a regular file nor a block device"),
              std::string::npos);
    EXPECT_NE(problem_with("", false).find("is empty"), std::string::npos);
    EXPECT_NE(problem_with(std::string(5000, 'x'), false), "");
    make_image(0);
    EXPECT_NE(problem_with(path_, false).find("is empty"), std::string::npos);
    make_image(511);
    EXPECT_NE(problem_with(path_, false).find("is too small"), std::string::npos);
    make_image(1025);
    auto device = open_device();
    ASSERT_NE(device, nullptr);
    EXPECT_EQ(device->geometry().size_bytes, 1024U) << "whole units only";
}

TEST_F(FileDeviceTest, APipeDoesNotMakeItWait) {
    ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
    EXPECT_NE(problem_with(path_, true).find("neither a regular file"), std::string::npos);
    EXPECT_NE(problem_with(path_, false).find("neither a regular file"), std::string::npos);
}

TEST_F(FileDeviceTest, AFileThatShrinksGivesErrorsAndALogLine) {
    make_image(1 << 20);
    auto device = open_device();
    ASSERT_NE(device, nullptr);
    std::filesystem::resize_file(path_, 4096);
    CapturedLog log;
    Bytes bytes(8192);
    EXPECT_EQ(error_of(device->read(0, bytes.data(), bytes.size())), EIO);
    EXPECT_TRUE(log.contains(path_ + ": read at byte 0 failed"));
    EXPECT_EQ(read_bytes(*device, 0, 4096), Bytes(4096));
    for (int i = 0; i < 100; ++i) {
        EXPECT_FALSE(device->read(65536, bytes.data(), bytes.size()).ok());
    }
    EXPECT_LE(log.lines().size(), 20U) << "a broken disk must not fill the log";
}

TEST_F(FileDeviceTest, AFullDiskIsAnErrorNotALoss) {
    // /dev/full is no block device, but a file-size limit fails writes in the same way.
    make_image(1 << 20);
    auto device = open_device();
    ASSERT_NE(device, nullptr);
    const pid_t child = fork();
    if (child == 0) {
        rlimit limit{4096, 4096};
        signal(SIGXFSZ, SIG_IGN);
        const bool limited = setrlimit(RLIMIT_FSIZE, &limit) == 0;
        const bool first = write_bytes(*device, 0, Bytes(4096, 1)).ok();
        const int second = error_of(write_bytes(*device, 0, Bytes(8192, 2)));
        _exit(limited && first && second == EIO ? 7 : 8);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

}  // namespace
}  // namespace tiffin::fuse
