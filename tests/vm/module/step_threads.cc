// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Several threads at once, in directories of their own and in one that they share.
#include <atomic>

#include "fs/base/allocate.h"
#include "tests/vm/module/bench.h"

namespace tiffin::vm {
namespace {

constexpr uint32_t kThreads = 4;
constexpr uint32_t kFiles = 24;
constexpr uint32_t kRounds = 2;

struct Worker {
    Worker(Bench& bench, uint32_t worker_number, vfs::NodeId shared_directory)
        : own(bench.device), number(worker_number), shared(shared_directory) {
        own.file_system = bench.file_system;
    }

    Result<void> run();
    Result<void> round(vfs::NodeId directory, uint32_t round_number);
    uint64_t seed(uint32_t file) const { return number * 1000 + file; }
    static uint64_t size_of(uint32_t file) { return 100 + uint64_t{file} * 1500; }

    Bench own;  // the same file system, with a buffer of this thread's
    uint32_t number;
    vfs::NodeId shared;
    bool passed = false;
    host::Thread thread;
};

Result<void> Worker::round(vfs::NodeId directory, uint32_t round_number) {
    vfs::FileSystem& fs = *own.file_system;
    for (uint32_t i = 0; i < kFiles; ++i) {
        const vfs::NodeId file = CHECK_OK(own.create(directory, NumberedName("file", i)));
        CHECK_OK(own.write(file, 0, size_of(i), seed(i)));
        if (i % 8 == 0) {
            CHECK_OK(fs.fsync(file, true));
        }
        fs.forget(file, 1);
    }
    for (uint32_t i = 0; i < kFiles; ++i) {
        const vfs::NodeId file = CHECK_OK(own.find(directory, NumberedName("file", i)));
        TRY(own.verify(file, 0, size_of(i), seed(i)));
        fs.forget(file, 1);
        if (i % 2 == 0) {
            CHECK_OK(fs.unlink({}, directory, NumberedName("file", i)));
        } else {
            // A name that only this thread uses; the last round's file is replaced.
            CHECK_OK(fs.rename({}, directory, NumberedName("file", i), shared,
                               NumberedName("shared", number * 1000 + i), 0));
        }
    }
    CHECK(CHECK_OK(own.count_entries(directory)) == 0);
    CHECK(CHECK_OK(own.count_entries(shared)) >= (round_number > 0 ? kFiles / 2 : 0));
    return {};
}

Result<void> Worker::run() {
    const NumberedName name("thread", number);
    CHECK_OK(own.open());
    const vfs::NodeId directory = CHECK_OK(own.make_directory(shared, name));
    for (uint32_t i = 0; i < kRounds; ++i) {
        TRY(round(directory, i));
    }
    CHECK_OK(own.file_system->remove_directory({}, shared, name));
    own.file_system->forget(directory, 1);
    passed = true;
    return {};
}

}  // namespace

Result<void> run_threads(Bench& bench) {
    vfs::FileSystem& fs = *bench.file_system;
    const vfs::NodeId shared = CHECK_OK(bench.make_directory(vfs::kRootNode, "shared"));
    Worker* workers[kThreads] = {};
    bool started = true;
    for (uint32_t i = 0; i < kThreads; ++i) {
        workers[i] = make_object<Worker>(bench, i, shared);
        started = started && workers[i] != nullptr &&
                  workers[i]
                      ->thread
                      .start(
                          "tiffin-worker",
                          [](void* worker) { (void)static_cast<Worker*>(worker)->run().ok(); },
                          workers[i])
                      .ok();
    }
    bool passed = started;
    for (Worker* worker : workers) {
        if (worker != nullptr && worker->thread.running()) {
            worker->thread.join();
        }
        passed = passed && worker != nullptr && worker->passed;
        destroy_object(worker);
    }
    CHECK(passed);
    CHECK(CHECK_OK(bench.count_entries(shared)) == kThreads * kFiles / 2);
    for (uint32_t thread = 0; thread < kThreads; ++thread) {
        for (uint32_t i = 1; i < kFiles; i += 2) {
            const NumberedName name("shared", thread * 1000 + i);
            const vfs::NodeId file = CHECK_OK(bench.find(shared, name));
            TRY(bench.verify(file, 0, Worker::size_of(i), thread * 1000 + i));
            CHECK_OK(fs.unlink({}, shared, name));
            fs.forget(file, 1);
        }
    }
    CHECK_OK(fs.remove_directory({}, vfs::kRootNode, "shared"));
    return {};
}

}  // namespace tiffin::vm
