// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/support/crash_device.h"

#include <utility>

#include "fuse/host/device_request.h"

namespace tiffin::test {
namespace {

vfs::DeviceGeometry default_geometry(uint64_t size_bytes) {
    vfs::DeviceGeometry geometry;
    geometry.size_bytes = size_bytes;
    geometry.write_unit_bytes = 512;
    geometry.volatile_cache = true;
    geometry.supports_discard = true;
    return geometry;
}

std::vector<unsigned char> gather(const vfs::IoVector* buffers, size_t buffer_count,
                                  uint64_t length_bytes) {
    std::vector<unsigned char> data;
    data.reserve(length_bytes);
    for (size_t i = 0; i < buffer_count; ++i) {
        const auto* bytes = static_cast<const unsigned char*>(buffers[i].data);
        data.insert(data.end(), bytes, bytes + buffers[i].size_bytes);
    }
    return data;
}

}  // namespace

CrashDevice::CrashDevice(uint64_t size_bytes) : CrashDevice(default_geometry(size_bytes)) {}

CrashDevice::CrashDevice(const vfs::DeviceGeometry& geometry)
    : CrashDevice(SparseImage(geometry.size_bytes), geometry) {}

CrashDevice::CrashDevice(SparseImage image, const vfs::DeviceGeometry& geometry)
    : geometry_(geometry),
      end_bytes_(geometry.size_bytes),
      history_(std::move(image), geometry.write_unit_bytes, geometry.volatile_cache),
      recording_start_(0) {
    TIFFIN_ASSERT(history_.current().size_bytes() == geometry.size_bytes);
}

void CrashDevice::end_at(uint64_t size_bytes) {
    TIFFIN_ASSERT(size_bytes <= geometry_.size_bytes);
    end_bytes_ = size_bytes;
    if (shorter_.empty()) {
        (void)update_size();
    }
}

Result<uint64_t> CrashDevice::update_size() {
    shorter_.push_back(geometry_);
    shorter_.back().size_bytes = end_bytes_;
    shown_.store(&shorter_.back(), std::memory_order_release);
    return shorter_.back().size_bytes;
}

namespace {

bool touches(uint64_t offset_bytes, uint64_t length_bytes, uint64_t byte) {
    return offset_bytes <= byte && byte - offset_bytes < length_bytes;
}

}  // namespace

void CrashDevice::submit(vfs::IoRequest& request) { fuse::complete_synchronously(*this, request); }

Result<void> CrashDevice::read(uint64_t offset_bytes, const vfs::IoVector* buffers,
                               size_t buffer_count) {
    const uint64_t length_bytes =
        TRY(fuse::check_transfer(geometry(), false, offset_bytes, buffers, buffer_count));
    MutexLock lock(mutex_);
    ++counts_.reads;
    counts_.bytes_read += length_bytes;
    const bool fails = due(read_to_fail_);
    if (stopped_ || fails || touches(offset_bytes, length_bytes, unreadable_byte_)) {
        return Error::eio;
    }
    for (size_t i = 0; i < buffer_count; ++i) {
        history_.current().read(offset_bytes, buffers[i].data, buffers[i].size_bytes);
        offset_bytes += buffers[i].size_bytes;
    }
    return {};
}

Result<void> CrashDevice::write(uint64_t offset_bytes, const vfs::IoVector* buffers,
                                size_t buffer_count) {
    const uint64_t length_bytes =
        TRY(fuse::check_transfer(geometry(), true, offset_bytes, buffers, buffer_count));
    std::vector<unsigned char> data = gather(buffers, buffer_count, length_bytes);
    MutexLock lock(mutex_);
    ++counts_.writes;
    counts_.bytes_written += length_bytes;
    const bool fails = due(write_to_fail_);
    if (fails || touches(offset_bytes, length_bytes, unwritable_byte_)) {
        return Error::eio;
    }
    if (touches(offset_bytes, length_bytes, unreadable_byte_)) {
        unreadable_byte_ = kNowhere;
    }
    return change(offset_bytes, std::move(data));
}

Result<void> CrashDevice::flush() {
    MutexLock lock(mutex_);
    ++counts_.flushes;
    const bool fails = due(flush_to_fail_);
    if (stopped_ || fails) {
        return Error::eio;
    }
    history_.flush();
    if (recording_) {
        recorded_.push_back({RecordedIo::Kind::flush, 0, {}});
    }
    return {};
}

Result<void> CrashDevice::discard(uint64_t offset_bytes, uint64_t length_bytes) {
    TRY(fuse::check_discard(geometry(), offset_bytes, length_bytes));
    std::vector<unsigned char> pattern(length_bytes, kDiscardPattern);
    MutexLock lock(mutex_);
    ++counts_.discards;
    return change(offset_bytes, std::move(pattern));
}

Result<void> CrashDevice::change(uint64_t offset_bytes, std::vector<unsigned char> data) {
    if (stopped_) {
        return Error::eio;
    }
    if (stop_is_set_ && writes_until_stop_ == 0) {
        stopped_ = true;
        history_.write_under_way(offset_bytes, std::move(data));
        return Error::eio;
    }
    if (stop_is_set_) {
        --writes_until_stop_;
    }
    if (recording_) {
        recorded_.push_back({RecordedIo::Kind::write, offset_bytes, data});
    }
    history_.write(offset_bytes, std::move(data));
    return {};
}

bool CrashDevice::due(uint64_t& countdown) {
    if (countdown == 0) {
        return false;
    }
    return --countdown == 0;
}

// ---- Counting ------------------------------------------------------------------------------

IoCounts CrashDevice::counts() const {
    MutexLock lock(mutex_);
    return counts_;
}

void CrashDevice::reset_counts() {
    MutexLock lock(mutex_);
    counts_ = IoCounts{};
}

size_t CrashDevice::unflushed_writes() const {
    MutexLock lock(mutex_);
    return history_.unflushed_writes();
}

// ---- Failing -------------------------------------------------------------------------------

void CrashDevice::stop_after_writes(uint64_t count) {
    MutexLock lock(mutex_);
    stop_is_set_ = true;
    writes_until_stop_ = count;
}

void CrashDevice::stop() {
    MutexLock lock(mutex_);
    stopped_ = true;
}

bool CrashDevice::stopped() const {
    MutexLock lock(mutex_);
    return stopped_;
}

void CrashDevice::fail_read(uint64_t number) {
    MutexLock lock(mutex_);
    read_to_fail_ = number;
}

void CrashDevice::fail_write(uint64_t number) {
    MutexLock lock(mutex_);
    write_to_fail_ = number;
}

void CrashDevice::fail_flush(uint64_t number) {
    MutexLock lock(mutex_);
    flush_to_fail_ = number;
}

void CrashDevice::fail_reads_at(uint64_t offset_bytes) {
    MutexLock lock(mutex_);
    unreadable_byte_ = offset_bytes;
}

void CrashDevice::fail_writes_at(uint64_t offset_bytes) {
    MutexLock lock(mutex_);
    unwritable_byte_ = offset_bytes;
}

void CrashDevice::flip_bit(uint64_t offset_bytes, unsigned bit) {
    MutexLock lock(mutex_);
    history_.flip_bit(offset_bytes, bit);
}

void CrashDevice::overwrite(uint64_t offset_bytes, const void* data, size_t size_bytes) {
    MutexLock lock(mutex_);
    const auto* bytes = static_cast<const unsigned char*>(data);
    history_.overwrite(offset_bytes, {bytes, bytes + size_bytes});
}

// ---- After the power failure ---------------------------------------------------------------

SparseImage CrashDevice::crash_image(CrashOutcome outcome, uint64_t seed) {
    MutexLock lock(mutex_);
    return history_.crash_image(outcome, seed);
}

std::unique_ptr<CrashDevice> CrashDevice::after_crash(CrashOutcome outcome, uint64_t seed) {
    return std::make_unique<CrashDevice>(crash_image(outcome, seed), geometry_);
}

// ---- Recording -----------------------------------------------------------------------------

void CrashDevice::start_recording() {
    MutexLock lock(mutex_);
    history_.flush();
    recording_start_ = history_.crash_image(CrashOutcome::drop_unflushed, 0);
    recorded_.clear();
    recording_ = true;
}

CrashDevice::Recording CrashDevice::take_recording() {
    MutexLock lock(mutex_);
    TIFFIN_ASSERT(recording_);
    recording_ = false;
    return {std::exchange(recording_start_, SparseImage(0)), std::exchange(recorded_, {}),
            geometry_};
}

// ---- CrashReplay ---------------------------------------------------------------------------

CrashReplay::CrashReplay(CrashDevice::Recording recording)
    : geometry_(recording.geometry),
      history_(std::move(recording.start), geometry_.write_unit_bytes, geometry_.volatile_cache),
      changes_(std::move(recording.changes)) {}

bool CrashReplay::advance() {
    if (position_ == changes_.size()) {
        return false;
    }
    const RecordedIo& change = changes_[position_++];
    if (change.kind == RecordedIo::Kind::flush) {
        history_.flush();
    } else {
        history_.write(change.offset_bytes, change.data);
    }
    return true;
}

std::unique_ptr<CrashDevice> CrashReplay::after_crash(CrashOutcome outcome, uint64_t seed) {
    const bool under_way =
        position_ < changes_.size() && changes_[position_].kind == RecordedIo::Kind::write;
    if (under_way) {
        history_.write_under_way(changes_[position_].offset_bytes, changes_[position_].data);
    }
    auto device = std::make_unique<CrashDevice>(history_.crash_image(outcome, seed), geometry_);
    if (under_way) {
        history_.drop_write_under_way();
    }
    return device;
}

}  // namespace tiffin::test
