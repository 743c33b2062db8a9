// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A block device for tests: in memory, counts what is done to it, fails when it is told to, and shows
// what a power failure would leave.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "fs/vfs/block_device.h"
#include "fs/vfs/host.h"
#include "tests/support/write_history.h"

namespace tiffin::test {

// What was asked of a device, successful or not.
struct IoCounts {
    uint64_t reads = 0;
    uint64_t writes = 0;
    uint64_t flushes = 0;
    uint64_t discards = 0;
    uint64_t bytes_read = 0;
    uint64_t bytes_written = 0;
};

// One change in a recording; see CrashDevice::start_recording().
struct RecordedIo {
    enum class Kind : uint8_t { write, flush };
    Kind kind = Kind::flush;
    uint64_t offset_bytes = 0;
    std::vector<unsigned char> data;
};

// A device with a volatile cache, unless the geometry says otherwise. Typical use:
//
//     CrashDevice device(64 << 20);
//     ... make a file system ...
//     device.stop_after_writes(n);           // the power fails
//     ... run a workload until it meets eio ...
//     auto after = device.after_crash(CrashOutcome::keep_random_units, seed);
//     ... mount `after`, check ...
//
// Discarded ranges are overwritten with a pattern, as nobody may count on what they read. Requests
// complete within submit(). Any thread may call any function.
class CrashDevice final : public vfs::BlockDevice {
  public:
    static constexpr unsigned char kDiscardPattern = 0xd5;

    // 512-byte write units, a volatile cache, discard supported.
    explicit CrashDevice(uint64_t size_bytes);
    // The size is that of `geometry`; all zeros.
    explicit CrashDevice(const vfs::DeviceGeometry& geometry);
    // With the content of `image`, whose size must be that of `geometry`.
    CrashDevice(SparseImage image, const vfs::DeviceGeometry& geometry);

    const vfs::DeviceGeometry& geometry() const override {
        return *shown_.load(std::memory_order_acquire);
    }
    Result<uint64_t> update_size() override;
    // As an image that is made longer later: it seems to end there, until this is called again with more and
    // update_size() has been called. The first time before any other use.
    void end_at(uint64_t size_bytes);
    void submit(vfs::IoRequest& request) override;
    using vfs::BlockDevice::read;
    using vfs::BlockDevice::write;
    Result<void> read(uint64_t offset_bytes, const vfs::IoVector* buffers,
                      size_t buffer_count) override EXCLUDES(mutex_);
    Result<void> write(uint64_t offset_bytes, const vfs::IoVector* buffers,
                       size_t buffer_count) override EXCLUDES(mutex_);
    Result<void> flush() override EXCLUDES(mutex_);
    Result<void> discard(uint64_t offset_bytes, uint64_t length_bytes) override EXCLUDES(mutex_);

    // ---- Counting ---------------------------------------------------------------------------
    IoCounts counts() const EXCLUDES(mutex_);
    void reset_counts() EXCLUDES(mutex_);
    // Writes and discards that completed since the last flush.
    size_t unflushed_writes() const EXCLUDES(mutex_);

    // ---- Failing ----------------------------------------------------------------------------
    // The power fails after `count` more writes or discards have completed: the next one and all
    // I/O after it get eio. Parts of the write that met the failure may survive. 0: the next write.
    void stop_after_writes(uint64_t count) EXCLUDES(mutex_);
    // The power fails now.
    void stop() EXCLUDES(mutex_);
    bool stopped() const EXCLUDES(mutex_);
    // The `number`th read, write or flush from now on gets eio once, without effect (1: the next).
    // 0 takes an earlier order back.
    void fail_read(uint64_t number) EXCLUDES(mutex_);
    void fail_write(uint64_t number) EXCLUDES(mutex_);
    void fail_flush(uint64_t number) EXCLUDES(mutex_);
    // From now on each read, or write, that touches this byte gets eio, without effect. What cannot be read can be once it
    // has been written, as a bad sector. kNowhere: none.
    static constexpr uint64_t kNowhere = ~uint64_t{0};
    void fail_reads_at(uint64_t offset_bytes) EXCLUDES(mutex_);
    void fail_writes_at(uint64_t offset_bytes) EXCLUDES(mutex_);
    // Changes one bit (0 to 7) of a byte, for good: what was unflushed becomes durable first.
    void flip_bit(uint64_t offset_bytes, unsigned bit) EXCLUDES(mutex_);
    // Overwrites content of any alignment in the same way; not counted.
    void overwrite(uint64_t offset_bytes, const void* data, size_t size_bytes) EXCLUDES(mutex_);

    // ---- After the power failure ----------------------------------------------------------------
    // What the device would hold if the power failed now; see CrashOutcome.
    SparseImage crash_image(CrashOutcome outcome, uint64_t seed) EXCLUDES(mutex_);
    // A fresh device with that content and the same geometry. This one is not changed.
    std::unique_ptr<CrashDevice> after_crash(CrashOutcome outcome, uint64_t seed) EXCLUDES(mutex_);

    // ---- Recording --------------------------------------------------------------------------
    // Keeps all writes and flushes from now on, for CrashReplay. Flushes first.
    void start_recording() EXCLUDES(mutex_);
    // Ends the recording: what the device held at its start, and what came then.
    struct Recording {
        SparseImage start;
        std::vector<RecordedIo> changes;
        vfs::DeviceGeometry geometry;
    };
    Recording take_recording() EXCLUDES(mutex_);

  private:
    // Counts down an order to fail; true when this operation is the one.
    static bool due(uint64_t& countdown);
    // The common path of write and discard, after the checks.
    Result<void> change(uint64_t offset_bytes, std::vector<unsigned char> data) REQUIRES(mutex_);

    const vfs::DeviceGeometry geometry_;
    // What geometry() shows: geometry_, or the last of those below.
    std::atomic<const vfs::DeviceGeometry*> shown_{&geometry_};
    std::deque<vfs::DeviceGeometry> shorter_;
    std::atomic<uint64_t> end_bytes_;
    mutable host::Mutex mutex_{host::LockClass::leaf};
    WriteHistory history_ GUARDED_BY(mutex_);
    IoCounts counts_ GUARDED_BY(mutex_);
    bool stopped_ GUARDED_BY(mutex_) = false;
    bool stop_is_set_ GUARDED_BY(mutex_) = false;
    uint64_t writes_until_stop_ GUARDED_BY(mutex_) = 0;
    uint64_t read_to_fail_ GUARDED_BY(mutex_) = 0;
    uint64_t write_to_fail_ GUARDED_BY(mutex_) = 0;
    uint64_t flush_to_fail_ GUARDED_BY(mutex_) = 0;
    uint64_t unreadable_byte_ GUARDED_BY(mutex_) = kNowhere;
    uint64_t unwritable_byte_ GUARDED_BY(mutex_) = kNowhere;
    bool recording_ GUARDED_BY(mutex_) = false;
    SparseImage recording_start_ GUARDED_BY(mutex_);
    std::vector<RecordedIo> recorded_ GUARDED_BY(mutex_);
};

// Walks through a recording, one change at a time, and shows what a power failure at each point
// would leave. One run of a workload gives all its crash points:
//
//     CrashReplay replay(device.take_recording());
//     do {
//         auto after = replay.after_crash(outcome, seed);
//         ... mount, check ...
//     } while (replay.advance());
class CrashReplay {
  public:
    explicit CrashReplay(CrashDevice::Recording recording);

    // How many changes have been applied, and how many there are.
    size_t position() const { return position_; }
    size_t size() const { return changes_.size(); }
    // Applies the next change; false when there is none.
    bool advance();

    // The device after a power failure while change number position() is under way (parts of it may
    // have happened; keep_completed and drop_unflushed show it as not begun).
    std::unique_ptr<CrashDevice> after_crash(CrashOutcome outcome, uint64_t seed);

  private:
    vfs::DeviceGeometry geometry_;
    WriteHistory history_;
    std::vector<RecordedIo> changes_;
    size_t position_ = 0;
};

}  // namespace tiffin::test
