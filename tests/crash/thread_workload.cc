// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/crash/thread_workload.h"
#include "tests/support/units.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <random>
#include <thread>

namespace tiffin::test {
namespace {

const std::string kShared = "/shared";

std::string own_directory(size_t thread) { return "/own-" + std::to_string(thread); }
std::string shared_prefix(size_t thread) { return kShared + "/" + std::to_string(thread) + "-"; }

bool is_below(const std::string& path, const std::string& directory) {
    return path.size() > directory.size() && path.compare(0, directory.size(), directory) == 0 &&
           path[directory.size()] == '/';
}
std::string parent_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

// What all threads share.
struct Stage {
    Stage(const vfs::DeviceGeometry& geometry, size_t threads)
        : device(geometry), volume(device), completed(threads) {}

    size_t changes() const {
        const IoCounts counts = device.counts();
        return counts.writes + counts.discards + counts.flushes;
    }

    CrashDevice device;
    TestVolume volume;
    std::atomic<uint64_t> moments{0};
    std::deque<std::atomic<size_t>> completed;  // each thread's last step that has returned
};

class Worker {
  public:
    Worker(Stage& stage, size_t index, uint64_t seed)
        : stage_(stage), index_(index), random_(seed * 1000 + index) {
        tree_[own_directory(index)] = {};
        tree_[kShared] = {};
        steps_.push_back({"start", tree_, 0, 0, 0, 0, std::vector<size_t>(stage.completed.size())});
    }

    void run(uint32_t steps) {
        for (uint32_t i = 0; i < steps; ++i) {
            one(i);
        }
    }
    // After the unmounting.
    void finish(uint64_t moment) {
        std::vector<size_t> durable;
        for (const std::atomic<size_t>& completed : stage_.completed) {
            durable.push_back(completed.load());
        }
        steps_.push_back({"unmount", tree_, steps_.back().changes_after, stage_.changes(), moment,
                          moment, durable});
    }
    std::vector<ThreadStep> take_steps() { return std::move(steps_); }

  private:
    // ---- Choosing ----
    uint64_t below(uint64_t limit) { return random_() % limit; }

    std::string any_directory() {
        std::vector<std::string> directories;
        for (const auto& [path, object] : tree_) {
            if (object.is_directory() && std::count(path.begin(), path.end(), '/') < 4) {
                directories.push_back(path);
            }
        }
        return directories[below(directories.size())];
    }
    std::string any_name(char kind) {
        const std::string directory = any_directory();
        return (directory == kShared ? shared_prefix(index_) : directory + "/") + kind +
               std::to_string(below(3));
    }
    // A file that exists; made if there is none where we look.
    std::string any_file() {
        const std::string path = any_name('f');
        if (!exists(path)) {
            create(path);
        }
        return path;
    }
    bool exists(const std::string& path) const { return tree_.count(path) != 0; }
    bool is_empty(const std::string& directory) const {
        return std::none_of(tree_.begin(), tree_.end(),
                            [&](const auto& item) { return is_below(item.first, directory); });
    }

    // ---- Doing ----
    void step(const std::string& text, const std::function<Result<void>()>& operation,
              std::vector<size_t> durable = {}) {
        durable.resize(stage_.completed.size());
        const size_t changes_before = stage_.changes();
        const uint64_t began = stage_.moments.fetch_add(1);
        const Result<void> result = operation();
        const uint64_t ended = stage_.moments.fetch_add(1);
        if (!result.ok()) {
            host::log(host::LogLevel::error, ("thread workload: " + text).c_str());
        }
        TIFFIN_ASSERT(result.ok());
        steps_.push_back(
            {text, tree_, changes_before, stage_.changes(), began, ended, std::move(durable)});
        stage_.completed[index_].store(steps_.size() - 1);
    }
    size_t this_step() const { return steps_.size(); }
    void renamed(const std::string& path) { tree_[parent_of(path)].last_change = this_step(); }

    void create(const std::string& path) {
        tree_[path] = {std::make_shared<std::string>(), this_step()};
        renamed(path);
        step("create " + path, [&] { return stage_.volume.create(path); });
    }
    // A change of content: `change` changes the copy in memory as `operation` does the file.
    void change(const std::string& path, const std::string& text,
                const std::function<void(std::string&)>& change,
                const std::function<Result<void>()>& operation) {
        OwnObject& object = tree_[path];
        std::string content = *object.content;
        change(content);
        object = {std::make_shared<std::string>(std::move(content)), this_step()};
        step(text + " " + path, operation);
    }
    void write(const std::string& path, uint64_t offset, const std::string& data) {
        change(
            path, "write " + std::to_string(data.size()) + " at " + std::to_string(offset),
            [&](std::string& content) {
                content.resize(std::max<size_t>(content.size(), offset + data.size()));
                content.replace(offset, data.size(), data);
            },
            [&] { return stage_.volume.write(path, offset, data); });
    }
    void truncate(const std::string& path, uint64_t size) {
        change(
            path, "truncate to " + std::to_string(size),
            [&](std::string& content) { content.resize(size); },
            [&] { return stage_.volume.truncate(path, size); });
    }
    void allocate(const std::string& path, uint32_t mode, uint64_t offset, uint64_t length) {
        change(
            path, "fallocate mode " + std::to_string(mode),
            [&](std::string& content) {
                if ((mode & vfs::allocate_flag::keep_size) == 0) {
                    content.resize(std::max<size_t>(content.size(), offset + length));
                }
                if ((mode & vfs::allocate_flag::punch_hole) != 0 && offset < content.size()) {
                    const size_t count = std::min<size_t>(length, content.size() - offset);
                    content.replace(offset, count, count, '\0');
                }
            },
            [&] { return stage_.volume.allocate(path, mode, offset, length); });
    }
    void make_directory(const std::string& path) {
        tree_[path] = {nullptr, this_step()};
        renamed(path);
        step("mkdir " + path, [&] { return stage_.volume.make_directory(path); });
    }
    void remove(const std::string& path) {
        const bool directory = tree_[path].is_directory();
        tree_.erase(path);
        renamed(path);
        step((directory ? "rmdir " : "unlink ") + path, [&] {
            return directory ? stage_.volume.remove_directory(path) : stage_.volume.unlink(path);
        });
    }
    // What lies at and below `from`, taken out of the tree.
    OwnTree take(const std::string& from) {
        OwnTree taken;
        for (auto next = tree_.begin(); next != tree_.end();) {
            if (next->first == from || is_below(next->first, from)) {
                taken[next->first.substr(from.size())] = next->second;
                next = tree_.erase(next);
            } else {
                ++next;
            }
        }
        return taken;
    }
    void put(const std::string& to, const OwnTree& taken) {
        for (const auto& [path, object] : taken) {
            tree_[to + path] = object;
        }
        tree_[to].last_change = this_step();
        renamed(to);
    }
    void rename(const std::string& from, const std::string& to, uint32_t flags) {
        const bool exchange = flags == vfs::rename_flag::exchange;
        const OwnTree moved = take(from);
        const OwnTree replaced = take(to);
        put(to, moved);
        renamed(from);
        if (exchange) {
            put(from, replaced);
        }
        step("rename " + from + " " + to + (exchange ? " exchange" : ""),
             [&] { return stage_.volume.rename(from, to, flags); });
    }
    void fsync(const std::string& path) {
        std::vector<size_t> durable(stage_.completed.size());
        durable[index_] = tree_[path].last_change;
        step(
            "fsync " + path, [&] { return stage_.volume.fsync(path); }, durable);
    }
    void sync() {
        std::vector<size_t> durable;
        for (const std::atomic<size_t>& completed : stage_.completed) {
            durable.push_back(completed.load());
        }
        step(
            "sync", [&] { return stage_.volume.sync(); }, durable);
    }

    void try_rename(const std::string& from, const std::string& to) {
        if (from == to || is_below(from, to) || is_below(to, from) || !exists(from)) {
            return;
        }
        const bool exchange = exists(to) && below(2) == 0;
        if (exists(to) && !exchange && tree_[to].is_directory() && !is_empty(to)) {
            return;
        }
        rename(from, to, exchange ? vfs::rename_flag::exchange : 0);
    }

    void one(uint64_t number) {
        const uint64_t content_seed = (index_ + 1) * 1'000'000 + number;
        switch (below(16)) {
            case 0:
            case 1:
                write(any_file(), below(6) * kBlock + below(2) * below(kBlock),
                      test_content(content_seed, 1 + below(3 * kBlock)));
                break;
            case 2:
                write(any_file(), below(300), test_content(content_seed, 1 + below(700)));
                break;
            case 3:
                truncate(any_file(), below(8 * kBlock));
                break;
            case 4:
                allocate(any_file(), below(2) == 0 ? vfs::allocate_flag::keep_size : 0,
                         below(8) * kBlock, (1 + below(4)) * kBlock);
                break;
            case 5:  // whole blocks: what lies beside them is a transaction of its own
                allocate(any_file(), vfs::allocate_flag::punch_hole | vfs::allocate_flag::keep_size,
                         below(4) * kBlock, (1 + below(3)) * kBlock);
                break;
            case 6:
            case 7:
            case 8:
                try_rename(any_file(), any_name('f'));
                break;
            case 9:
                try_rename(any_name('d'), any_name('d'));
                break;
            case 10:
                if (const std::string path = any_name('d'); !exists(path)) {
                    make_directory(path);
                } else if (is_empty(path)) {
                    remove(path);
                }
                break;
            case 11:
                remove(any_file());
                break;
            case 12:
            case 13:
                fsync(any_file());
                break;
            case 14:
                fsync(any_directory());
                break;
            default:
                if (below(3) == 0) {
                    sync();
                }
                break;
        }
    }

    Stage& stage_;
    const size_t index_;
    std::mt19937_64 random_;
    OwnTree tree_;
    std::vector<ThreadStep> steps_;
};

}  // namespace

bool is_path_of(size_t thread, const std::string& path) {
    const std::string own = own_directory(thread);
    return path == kShared || path == own || is_below(path, own) ||
           path.compare(0, shared_prefix(thread).size(), shared_prefix(thread)) == 0;
}

RecordedThreads run_threads(const vfs::DeviceGeometry& geometry, uint64_t seed, uint32_t threads,
                            uint32_t steps) {
    Stage stage(geometry, threads);
    MUST(stage.volume.make());
    MUST(stage.volume.mount());
    MUST(stage.volume.make_directory(kShared));
    for (size_t i = 0; i < threads; ++i) {
        MUST(stage.volume.make_directory(own_directory(i)));
    }
    MUST(stage.volume.unmount());
    stage.device.start_recording();
    stage.device.reset_counts();
    tiffinfs::MountOptions options = TestVolume::quiet_options();
    if (seed % 2 == 0) {
        options.volume.cache_bytes = 5 * kBlock;  // a checkpoint every few steps
    }
    MUST(stage.volume.mount(options));
    std::deque<Worker> workers;
    for (size_t i = 0; i < threads; ++i) {
        workers.emplace_back(stage, i, seed);
    }
    std::vector<std::thread> running;
    for (Worker& worker : workers) {
        running.emplace_back([&worker, steps] { worker.run(steps); });
    }
    for (std::thread& thread : running) {
        thread.join();
    }
    MUST(stage.volume.unmount());
    std::vector<std::vector<ThreadStep>> recorded;
    for (Worker& worker : workers) {
        worker.finish(stage.moments.fetch_add(1));
        recorded.push_back(worker.take_steps());
    }
    return {stage.device.take_recording(), std::move(recorded)};
}

}  // namespace tiffin::test
