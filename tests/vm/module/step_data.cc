// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The data path that a kernel host will use, damage, a full device, and a loss of power.
#include "fs/base/allocate.h"
#include "fs/base/text.h"
#include "fs/vfs/content_writer.h"
#include "tests/vm/module/bench.h"

namespace tiffin::vm {
namespace {

constexpr uint64_t kBlock = vfs::kBlockBytes;
constexpr uint64_t kGrantBytes = 64 * kBlock;

// About 30 KiB: not for a stack.
struct Transfer {
    vfs::ReadMapping mapping;
    vfs::ContentWriter writer;
};

class OwnedTransfer {
  public:
    OwnedTransfer() : transfer_(make_object<Transfer>()) {}
    ~OwnedTransfer() { destroy_object(transfer_); }
    OwnedTransfer(const OwnedTransfer&) = delete;
    OwnedTransfer& operator=(const OwnedTransfer&) = delete;
    Transfer* get() { return transfer_; }

  private:
    Transfer* transfer_;
};

// As a kernel's write-back would: goes on when the I/O has completed, and not before.
Result<void> write_lower(Bench& bench, vfs::NodeId node, Transfer& transfer) {
    bench.buffer.fill(9, 0, kGrantBytes);
    const vfs::IoVector from{bench.buffer.data(), kGrantBytes};
    host::Semaphore transferred;
    transfer.writer.begin(
        *bench.file_system, node, 0, Span<const vfs::IoVector>(&from, 1),
        vfs::write_flag::write_back | vfs::write_flag::keep_times,
        [](void* owner) { static_cast<host::Semaphore*>(owner)->post(); }, &transferred);
    while (!transfer.writer.advance()) {
        transferred.wait();
    }
    CHECK(CHECK_OK(transfer.writer.result()) == kGrantBytes);
    return {};
}

Result<void> read_lower(Bench& bench, vfs::NodeId node, Transfer& transfer) {
    vfs::FileSystem& fs = *bench.file_system;
    uint64_t done = 0;
    while (done < kGrantBytes) {
        CHECK_OK(fs.map_read(node, done, kGrantBytes - done, transfer.mapping));
        CHECK(transfer.mapping.length_bytes > 0);
        for (uint32_t i = 0; i < transfer.mapping.segment_count; ++i) {
            const vfs::ReadSegment& segment = transfer.mapping.segments[i];
            CHECK(segment.kind == vfs::SegmentKind::device);
            const vfs::IoVector into{bench.buffer.data() + segment.file_offset_bytes,
                                     segment.length_bytes};
            CHECK_OK(fs.device()->read(segment.device_offset_bytes, &into, 1));
            CHECK_OK(
                fs.verify_read(transfer.mapping, i, Span<const vfs::IoVector>(&into, 1), true));
        }
        done += transfer.mapping.length_bytes;
        fs.release_read(transfer.mapping);
    }
    CHECK(bench.buffer.matches(9, 0, kGrantBytes));
    return {};
}

}  // namespace

Result<void> use_lower_path(Bench& bench) {
    OwnedTransfer transfer;
    CHECK(transfer.get() != nullptr);
    const vfs::NodeId file = CHECK_OK(bench.create(vfs::kRootNode, "lower"));
    TRY(write_lower(bench, file, *transfer.get()));
    TRY(read_lower(bench, file, *transfer.get()));
    TRY(bench.verify(file, 0, kGrantBytes, 9));
    CHECK_OK(bench.file_system->unlink({}, vfs::kRootNode, "lower"));
    bench.file_system->forget(file, 1);
    return {};
}

Result<void> detect_damage(Bench& bench) {
    OwnedTransfer transfer;
    CHECK(transfer.get() != nullptr);
    vfs::FileSystem& fs = *bench.file_system;
    const vfs::NodeId file = CHECK_OK(bench.create(vfs::kRootNode, "damaged"));
    CHECK_OK(bench.write(file, 0, 2 * kBlock, 5));
    CHECK_OK(fs.fsync(file, false));
    vfs::ReadMapping& mapping = transfer.get()->mapping;
    CHECK_OK(fs.map_read(file, 0, kBlock, mapping));
    const uint64_t place = mapping.segments[0].device_offset_bytes;
    fs.release_read(mapping);

    bench.device.damage(place + 100);
    CHECK_ERROR(bench.verify(file, 0, kBlock, 5), eio);
    TRY(bench.verify(file, kBlock, kBlock, 5));
    bench.device.damage(place + 100);
    TRY(bench.verify(file, 0, kBlock, 5));
    CHECK_OK(fs.unlink({}, vfs::kRootNode, "damaged"));
    fs.forget(file, 1);
    return {};
}

// The way to ENOSPC and back: reclaiming, checkpoints, the reserve.
Result<void> fill_device(Bench& bench) {
    vfs::FileSystem& fs = *bench.file_system;
    const uint64_t free_before = CHECK_OK(fs.statistics()).available_blocks;
    const vfs::NodeId file = CHECK_OK(bench.create(vfs::kRootNode, "filler"));
    const uint64_t device_bytes = bench.device.geometry().size_bytes;
    uint64_t size_bytes = 0;
    Result<void> written;
    while (written.ok()) {
        CHECK(size_bytes < device_bytes);
        written = bench.write(file, size_bytes, kBufferBytes / 2, 6);
        size_bytes += kBufferBytes / 2;
    }
    CHECK(written.error() == Error::enospc);
    CHECK(CHECK_OK(bench.size_of(file)) >= free_before * kBlock / 2);
    // Deleting and overwriting work on a full volume.
    TRY(bench.verify(file, 0, kBufferBytes, 6));
    CHECK_OK(bench.write(file, 0, 3 * kBlock, 6));
    CHECK_OK(fs.unlink({}, vfs::kRootNode, "filler"));
    fs.forget(file, 1);
    const vfs::NodeId next = CHECK_OK(bench.create(vfs::kRootNode, "next"));
    CHECK_OK(bench.write(next, 0, kBufferBytes, 7));
    TRY(bench.verify(next, 0, kBufferBytes, 7));
    CHECK_OK(fs.unlink({}, vfs::kRootNode, "next"));
    fs.forget(next, 1);
    return {};
}

Result<void> recover(Bench& bench) {
    const vfs::NodeId directory = CHECK_OK(bench.make_directory(vfs::kRootNode, "recovered"));
    for (uint32_t i = 0; i < 50; ++i) {
        const vfs::NodeId file = CHECK_OK(bench.create(directory, NumberedName("file", i)));
        CHECK_OK(bench.write(file, 0, 100 + 500 * i, i));
        if (i % 10 == 9) {
            CHECK_OK(bench.file_system->fsync(file, false));
        }
    }
    TRY(bench.crash());
    TRY(bench.mount());
    // The last fsync covers all that came before it.
    const vfs::NodeId found = CHECK_OK(bench.find(vfs::kRootNode, "recovered"));
    for (uint32_t i = 0; i < 50; ++i) {
        const vfs::NodeId file = CHECK_OK(bench.find(found, NumberedName("file", i)));
        CHECK(CHECK_OK(bench.size_of(file)) == 100 + 500 * i);
        TRY(bench.verify(file, 0, 100 + 500 * i, i));
    }
    return check_files(bench);
}

Result<void> scrub(Bench& bench) {
    CHECK_OK(bench.file_system->sync(true));
    vfs::ScrubProgress progress;
    while (!progress.finished) {
        CHECK_OK(bench.file_system->scrub(progress));
    }
    CHECK(progress.errors_found == 0);
    CHECK(progress.checked_bytes >= kBufferBytes);
    // The files have their content still, as the last step sees.
    CHECK(CHECK_OK(bench.file_system->trim(0, bench.device.geometry().size_bytes, 0)) > 0);
    return {};
}

}  // namespace tiffin::vm
