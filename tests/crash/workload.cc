// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/crash/workload.h"
#include "tests/support/units.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

namespace tiffin::test {

namespace {

// Makes everything durable, again and again, as long as it lives.
class Committer {
  public:
    Committer(TestVolume& volume, bool active) {
        if (active) {
            thread_ = std::thread([this, &volume] {
                while (!stopping_.load()) {
                    MUST(volume.sync());
                }
            });
        }
    }
    ~Committer() {
        stopping_ = true;
        if (thread_.joinable()) {
            thread_.join();
        }
    }
    Committer(const Committer&) = delete;
    Committer& operator=(const Committer&) = delete;

  private:
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

}  // namespace

AllowedSteps allowed_steps(const std::vector<Step>& steps, size_t changes) {
    AllowedSteps allowed;
    for (size_t i = 0; i < steps.size(); ++i) {
        if (steps[i].changes_after <= changes) {
            allowed.first = std::max(allowed.first, steps[i].durable_step);
        }
        if (steps[i].changes_before <= changes) {
            allowed.last = i;
        }
    }
    return allowed;
}

WorkloadRunner::WorkloadRunner(const vfs::DeviceGeometry& geometry,
                               void (*prepare)(TestVolume& volume),
                               const tiffinfs::MountOptions& options)
    : options_(options), device_(geometry), volume_(device_) {
    start(prepare);
}

WorkloadRunner::WorkloadRunner(const vfs::DeviceGeometry& geometry, uint64_t first_bytes)
    : options_(TestVolume::quiet_options()), device_(geometry), volume_(device_) {
    device_.end_at(first_bytes);
    start(nullptr);
}

void WorkloadRunner::start(void (*prepare)(TestVolume& volume)) {
    MUST(volume_.make());
    if (prepare != nullptr) {
        MUST(volume_.mount());
        prepare(volume_);
        MUST(volume_.unmount());
    }
    device_.start_recording();
    device_.reset_counts();
    MUST(volume_.mount(options_));
    steps_.push_back({"start", MUST(volume_.see()), 0, 0, 0});
}

size_t WorkloadRunner::changes() const {
    const IoCounts counts = device_.counts();
    return counts.writes + counts.discards + counts.flushes;
}

template <typename Operation>
void WorkloadRunner::step(const std::string& text, Operation operation) {
    const size_t before = changes();
    const Result<void> result = [&] {
        Committer committer(volume_, commits_meanwhile_ && text != "remount");
        return operation();
    }();
    if (!result.ok()) {
        host::log(host::LogLevel::error, ("workload: " + text).c_str());
    }
    TIFFIN_ASSERT(result.ok());
    const size_t after = changes();
    steps_.push_back({text, MUST(volume_.see()), before, after, durable_step_});
}

void WorkloadRunner::create(const std::string& path) {
    touched(path);
    step("create " + path, [&] { return volume_.create(path); });
}
void WorkloadRunner::make_directory(const std::string& path) {
    touched(path);
    step("mkdir " + path, [&] { return volume_.make_directory(path); });
}
void WorkloadRunner::make_symlink(const std::string& path, const std::string& target) {
    touched(path);
    step("symlink " + path, [&] { return volume_.make_symlink(path, target); });
}
void WorkloadRunner::write(const std::string& path, uint64_t offset_bytes, std::string_view data) {
    TIFFIN_ASSERT(exists(path));
    touched(path);
    step(
        "write " + path + " " + std::to_string(data.size()) + " at " + std::to_string(offset_bytes),
        [&] { return volume_.write(path, offset_bytes, data); });
}
void WorkloadRunner::truncate(const std::string& path, uint64_t size_bytes) {
    touched(path);
    step("truncate " + path + " to " + std::to_string(size_bytes),
         [&] { return volume_.truncate(path, size_bytes); });
}
void WorkloadRunner::allocate(const std::string& path, uint32_t mode, uint64_t offset_bytes,
                              uint64_t length_bytes) {
    touched(path);
    step("fallocate " + path,
         [&] { return volume_.allocate(path, mode, offset_bytes, length_bytes); });
}
void WorkloadRunner::link(const std::string& path, const std::string& new_path) {
    touched(path);
    touched(new_path);
    step("link " + path + " " + new_path, [&] { return volume_.link(path, new_path); });
}
void WorkloadRunner::unlink(const std::string& path) {
    last_change_.erase(path);
    step("unlink " + path, [&] { return volume_.unlink(path); });
}
void WorkloadRunner::remove_directory(const std::string& path) {
    last_change_.erase(path);
    step("rmdir " + path, [&] { return volume_.remove_directory(path); });
}
void WorkloadRunner::rename(const std::string& path, const std::string& new_path, uint32_t flags) {
    touched(new_path);
    if ((flags & vfs::rename_flag::exchange) != 0) {
        touched(path);
    } else {
        last_change_.erase(path);
    }
    step("rename " + path + " " + new_path, [&] { return volume_.rename(path, new_path, flags); });
}
void WorkloadRunner::set_xattr(const std::string& path, const std::string& name,
                               std::string_view value) {
    touched(path);
    step("setxattr " + path, [&] { return volume_.set_xattr(path, name, value); });
}
void WorkloadRunner::remove_xattr(const std::string& path, const std::string& name) {
    touched(path);
    step("removexattr " + path, [&] { return volume_.remove_xattr(path, name); });
}

void WorkloadRunner::fsync(const std::string& path) {
    step("fsync " + path, [&] {
        const Result<void> result = volume_.fsync(path);
        if (const auto found = last_change_.find(path); found != last_change_.end()) {
            durable_step_ = std::max(durable_step_, found->second);
        }
        return result.ok() ? Result<void>() : Result<void>(result.error());
    });
}
void WorkloadRunner::sync() {
    step("sync", [&] {
        durable_step_ = steps_.size() - 1;
        return volume_.sync();
    });
}
void WorkloadRunner::remount() {
    step("remount", [&]() -> Result<void> {
        durable_step_ = steps_.size() - 1;
        TRY(volume_.unmount());
        return volume_.mount(options_);
    });
}

void WorkloadRunner::grow(uint64_t size_bytes) {
    step("grow", [&]() -> Result<void> {
        durable_step_ = steps_.size() - 1;
        device_.end_at(size_bytes);
        const vfs::Growth growth = TRY(volume_.file_system().grow());
        return growth.to_bytes == size_bytes ? Result<void>() : Error::einval;
    });
}

RecordedWorkload WorkloadRunner::finish() {
    MUST(volume_.unmount());
    return {device_.take_recording(), std::move(steps_)};
}

RecordedWorkload run_script(const vfs::DeviceGeometry& geometry) {
    WorkloadRunner run(geometry);
    // Files of all forms, made durable one by one.
    run.make_directory("/docs");
    run.create("/docs/letter");
    run.write("/docs/letter", 0, "Dear reader,");
    run.fsync("/docs/letter");
    run.create("/docs/report");
    run.write("/docs/report", 0, test_content(1, 5 * kBlock + 100));
    run.write("/docs/report", 2 * kBlock + 50, test_content(2, 300));
    run.fsync("/docs/report");
    // What editors do: the new version beside the old one, then in its place.
    for (int version = 0; version < 3; ++version) {
        run.create("/docs/report.new");
        run.write("/docs/report.new", 0, test_content(10 + version, 3 * kBlock + version));
        run.fsync("/docs/report.new");
        run.rename("/docs/report.new", "/docs/report");
    }
    run.sync();
    // Sizes up and down, holes, reserved space.
    run.truncate("/docs/letter", 5);
    run.truncate("/docs/letter", 9000);
    run.write("/docs/letter", 40 * kBlock, test_content(3, kBlock));
    run.allocate("/docs/letter", vfs::allocate_flag::keep_size, 50 * kBlock, 10 * kBlock);
    run.write("/docs/letter", 52 * kBlock, test_content(4, 2 * kBlock));
    run.fsync("/docs/letter");
    run.allocate("/docs/letter", vfs::allocate_flag::punch_hole | vfs::allocate_flag::keep_size,
                 41 * kBlock, 12 * kBlock);
    run.truncate("/docs/letter", 2000);
    run.fsync("/docs/letter");
    // Names.
    run.make_directory("/docs/old");
    run.link("/docs/report", "/docs/old/copy");
    run.make_symlink("/latest", "docs/report");
    run.make_symlink("/long", std::string(2500, 'l'));
    run.rename("/docs/old", "/archive");
    run.rename("/docs/report", "/archive/report");
    run.sync();
    run.rename("/archive/report", "/docs/letter", vfs::rename_flag::exchange);
    run.unlink("/archive/copy");
    run.set_xattr("/archive/report", "user.note", "short");
    run.set_xattr("/archive/report", "user.long", test_content(5, 3000));
    run.fsync("/archive/report");
    run.remove_xattr("/archive/report", "user.note");
    run.remount();
    // Deleting, and using the space again.
    run.unlink("/docs/letter");
    run.create("/docs/letter");
    run.write("/docs/letter", 0, test_content(6, 6 * kBlock));
    run.fsync("/docs/letter");
    run.unlink("/archive/report");
    run.remove_directory("/archive");
    run.make_directory("/archive");
    run.write("/docs/letter", kBlock, test_content(7, kBlock));
    run.write("/docs/letter", kBlock, test_content(8, kBlock));
    run.fsync("/docs/letter");
    run.rename("/docs", "/archive/docs");
    run.remount();
    run.unlink("/latest");
    run.sync();
    return run.finish();
}

RecordedWorkload run_long_operations(const vfs::DeviceGeometry& geometry) {
    // No step begins while changed nodes fill most of the cache, and one step or two are enough for that: so
    // checkpoints cut each operation, however seldom the other thread comes to commit.
    tiffinfs::MountOptions options = TestVolume::quiet_options();
    options.volume.cache_bytes = 5 * kBlock;
    const auto prepare = [](TestVolume& volume) {
        // Every other block is a hole: each block is an extent of its own.
        constexpr uint32_t kExtents = 400;
        for (const char* path : {"/fragments", "/victim"}) {
            for (uint32_t i = 0; i < kExtents; ++i) {
                MUST(volume.write(path, uint64_t{2} * i * kBlock, test_content(i, kBlock)));
            }
        }
    };
    WorkloadRunner run(geometry, prepare, options);
    run.commit_meanwhile();
    run.allocate("/fragments", vfs::allocate_flag::collapse_range, 8 * kBlock, 6 * kBlock);
    run.fsync("/fragments");
    run.allocate("/fragments", vfs::allocate_flag::insert_range, 20 * kBlock, 3 * kBlock);
    run.write("/fragments", 21 * kBlock, "in the gap");
    run.fsync("/fragments");
    run.truncate("/fragments", 5 * kBlock + 17);
    run.truncate("/fragments", 300 * kBlock);
    run.fsync("/fragments");
    run.unlink("/victim");
    run.create("/next");
    run.write("/next", 0, test_content(1000, 20 * kBlock));
    run.fsync("/next");
    run.remount();
    run.truncate("/fragments", 0);
    run.sync();
    return run.finish();
}

namespace {

// Names are few, so that operations meet each other.
class RandomWorkload {
  public:
    RandomWorkload(const vfs::DeviceGeometry& geometry, uint64_t seed)
        : RandomWorkload(geometry, seed, geometry.size_bytes) {}
    RandomWorkload(const vfs::DeviceGeometry& geometry, uint64_t seed, uint64_t first_bytes)
        : run_(geometry, first_bytes), random_(seed) {
        run_.make_directory("/a");
        run_.make_directory("/b");
        if (seed % 2 == 0) {
            run_.commit_meanwhile();
        }
    }

    RecordedWorkload run(uint32_t steps) {
        for (uint32_t i = 0; i < steps; ++i) {
            one(i);
        }
        return run_.finish();
    }
    // The same with growth to each of `sizes` in between, and enough content to fill what is there before.
    RecordedWorkload run_growing(const std::vector<uint64_t>& sizes) {
        uint32_t number = 0;
        for (const uint64_t size_bytes : sizes) {
            const std::string path = "/big-" + std::to_string(size_bytes);
            run_.create(path);
            run_.write(path, 0, test_content(number, 200 * kBlock));
            run_.fsync(path);
            one(++number);
            run_.grow(size_bytes);
            one(++number);
        }
        for (uint32_t i = 0; i < 8; ++i) {
            one(++number);
        }
        return run_.finish();
    }

  private:
    uint64_t below(uint64_t limit) { return random_() % limit; }

    std::string any_path() {
        static constexpr const char* kDirectories[] = {"/", "/a/", "/b/"};
        return kDirectories[below(3)] + std::string("file-") + std::to_string(below(5));
    }

    // A file that exists; made if there is none where we look.
    std::string any_file() {
        std::string path = any_path();
        if (!run_.exists(path)) {
            run_.create(path);
        }
        return path;
    }

    void one(uint64_t number) {
        switch (below(12)) {
            case 0:
            case 1:
            case 2:
                run_.write(any_file(), below(8) * kBlock + below(2) * below(kBlock),
                           test_content(number, 1 + below(4 * kBlock)));
                break;
            case 3:
                run_.write(any_file(), below(300), test_content(number, 1 + below(700)));
                break;
            case 4:
                run_.truncate(any_file(), below(10 * kBlock));
                break;
            case 5: {
                const std::string path = any_file();
                run_.allocate(path, below(2) == 0 ? vfs::allocate_flag::keep_size : 0,
                              below(12) * kBlock, (1 + below(6)) * kBlock);
                break;
            }
            case 6: {
                const std::string from = any_file();
                const std::string to = any_path();
                if (from != to) {
                    const bool exchange = run_.exists(to) && below(2) == 0;
                    run_.rename(from, to, exchange ? vfs::rename_flag::exchange : 0);
                }
                break;
            }
            case 7:
                run_.unlink(any_file());
                break;
            case 8:
                run_.set_xattr(any_file(), "user.x", test_content(number, below(2500)));
                break;
            case 9:
            case 10:
                run_.fsync(any_file());
                break;
            case 11:
                if (below(8) == 0) {
                    run_.remount();
                } else {
                    run_.sync();
                }
                break;
            default:
                break;
        }
    }

    WorkloadRunner run_;
    std::mt19937_64 random_;
};

}  // namespace

RecordedWorkload run_random(const vfs::DeviceGeometry& geometry, uint64_t seed, uint32_t steps) {
    return RandomWorkload(geometry, seed).run(steps);
}

RecordedWorkload run_growth(const vfs::DeviceGeometry& geometry, uint64_t first_bytes,
                            uint64_t seed) {
    RandomWorkload workload(geometry, seed, first_bytes);
    const uint64_t middle = first_bytes + (geometry.size_bytes - first_bytes) / 2;
    return workload.run_growing({middle - middle % kBlock, geometry.size_bytes});
}

}  // namespace tiffin::test
