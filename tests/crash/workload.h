// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Scripts of operations on a recording device, with a note of what was visible after each step and what
// had been acknowledged as durable by then.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/crash_device.h"
#include "tests/support/test_volume.h"

namespace tiffin::test {

struct Step {
    std::string text;           // for messages
    SeenTree visible;           // after it
    size_t changes_before = 0;  // recorded writes and flushes when it began
    size_t changes_after = 0;   // and when it had returned
    size_t durable_step = 0;    // by its end, all steps up to this one were durable
};

// What came of a workload.
struct RecordedWorkload {
    CrashDevice::Recording recording;
    std::vector<Step> steps;  // the first one is the state at the start
};

// The steps that a volume may show after a power failure: all of [first, last].
struct AllowedSteps {
    size_t first = 0;
    size_t last = 0;
};
AllowedSteps allowed_steps(const std::vector<Step>& steps, size_t changes);

// Runs operations and takes notes. Each operation is one transaction of the file system, so that it is
// seen as a whole or not at all. An operation that fails ends the test.
class WorkloadRunner {
  public:
    // `prepare` fills the volume before the recording begins; nullptr: it stays empty.
    explicit WorkloadRunner(const vfs::DeviceGeometry& geometry,
                            void (*prepare)(TestVolume& volume) = nullptr,
                            const tiffinfs::MountOptions& options = TestVolume::quiet_options());
    // The device ends at `first_bytes` at first, and so does the volume; see grow().
    WorkloadRunner(const vfs::DeviceGeometry& geometry, uint64_t first_bytes);

    // From now on another thread commits all the time, so that operations of several transactions are
    // cut in between. The recording then differs from run to run.
    void commit_meanwhile() { commits_meanwhile_ = true; }

    void create(const std::string& path);
    void make_directory(const std::string& path);
    void make_symlink(const std::string& path, const std::string& target);
    void write(const std::string& path, uint64_t offset_bytes, std::string_view data);
    void truncate(const std::string& path, uint64_t size_bytes);
    void allocate(const std::string& path, uint32_t mode, uint64_t offset_bytes,
                  uint64_t length_bytes);
    void link(const std::string& path, const std::string& new_path);
    void unlink(const std::string& path);
    void remove_directory(const std::string& path);
    void rename(const std::string& path, const std::string& new_path, uint32_t flags = 0);
    void set_xattr(const std::string& path, const std::string& name, std::string_view value);
    void remove_xattr(const std::string& path, const std::string& name);
    void fsync(const std::string& path);
    void sync();
    void remount();
    // The device becomes longer, and the volume grows.
    void grow(uint64_t size_bytes);

    bool exists(const std::string& path) const { return steps_.back().visible.count(path) != 0; }
    const SeenTree& visible() const { return steps_.back().visible; }
    // Unmounts and returns everything.
    RecordedWorkload finish();

  private:
    void start(void (*prepare)(TestVolume& volume));
    template <typename Operation>
    void step(const std::string& text, Operation operation);
    void touched(const std::string& path) { last_change_[path] = steps_.size(); }
    size_t changes() const;

    const tiffinfs::MountOptions options_;
    CrashDevice device_;
    TestVolume volume_;
    std::vector<Step> steps_;
    size_t durable_step_ = 0;
    bool commits_meanwhile_ = false;
    std::map<std::string, size_t> last_change_;  // the step that last changed the object of a path
};

// A little of everything, in an order that people rely on.
RecordedWorkload run_script(const vfs::DeviceGeometry& geometry);
// Operations that take several transactions and must be finished by recovery.
RecordedWorkload run_long_operations(const vfs::DeviceGeometry& geometry);
// A volume of `first_bytes` that grows twice, up to the size of the device, between random operations.
RecordedWorkload run_growth(const vfs::DeviceGeometry& geometry, uint64_t first_bytes,
                            uint64_t seed);
// `steps` random operations; with even seeds somebody else commits all the time.
RecordedWorkload run_random(const vfs::DeviceGeometry& geometry, uint64_t seed, uint32_t steps);

}  // namespace tiffin::test
