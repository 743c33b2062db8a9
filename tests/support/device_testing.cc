// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/support/device_testing.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace tiffin::fuse {
namespace {

void check_bounds(vfs::BlockDevice& device) {
    const vfs::DeviceGeometry& geometry = device.geometry();
    const uint32_t unit = geometry.write_unit_bytes;
    Bytes block(unit);
    EXPECT_EQ(error_of(device.read(geometry.size_bytes - unit, block.data(), unit)), 0);
    EXPECT_EQ(error_of(device.read(geometry.size_bytes, block.data(), unit)), EIO);
    EXPECT_EQ(error_of(device.write(geometry.size_bytes, block.data(), unit)), EIO);
    EXPECT_EQ(error_of(device.read(UINT64_MAX - unit + 1, block.data(), unit)), EIO);
    EXPECT_EQ(error_of(device.write(UINT64_MAX - unit + 1, block.data(), unit)), EIO);
    EXPECT_EQ(error_of(device.read(1, block.data(), unit)), EINVAL);
    EXPECT_EQ(error_of(device.write(0, block.data(), unit - 1)), EINVAL);
    EXPECT_EQ(error_of(device.read(0, block.data(), 0)), 0);
    EXPECT_EQ(error_of(device.write(geometry.size_bytes, block.data(), 0)), 0);

    vfs::IoVector huge[2] = {{block.data(), SIZE_MAX - unit + 1}, {block.data(), 2 * size_t{unit}}};
    EXPECT_EQ(error_of(device.read(0, huge, 2)), EIO);
    EXPECT_EQ(error_of(device.write(0, huge, 2)), EIO);
}

void check_scatter_gather(vfs::BlockDevice& device) {
    // More pieces than a system call takes, of odd sizes, some of them empty.
    const Bytes bytes = pattern(size_t{512} * 1024, 5);
    Bytes copy = bytes;
    std::vector<vfs::IoVector> pieces;
    for (size_t at = 0, size = 0; at < copy.size(); at += size) {
        size = std::min(copy.size() - at, (pieces.size() * 37) % 700);
        pieces.push_back({size == 0 ? nullptr : &copy[at], size});
    }
    ASSERT_GT(pieces.size(), 1024U);
    EXPECT_TRUE(device.write(8192, pieces.data(), pieces.size()).ok());
    EXPECT_EQ(read_bytes(device, 8192, bytes.size()), bytes);
    std::fill(copy.begin(), copy.end(), 0);
    EXPECT_TRUE(device.read(8192, pieces.data(), pieces.size()).ok());
    EXPECT_EQ(copy, bytes);
}

void check_discard(vfs::BlockDevice& device) {
    const vfs::DeviceGeometry& geometry = device.geometry();
    const Bytes bytes = pattern(16384, 6);
    ASSERT_TRUE(write_bytes(device, 0, bytes).ok());
    if (!geometry.supports_discard) {
        EXPECT_EQ(error_of(device.discard(4096, 4096)), EOPNOTSUPP);
        return;
    }
    EXPECT_EQ(error_of(device.discard(4096, 8192)), 0);
    EXPECT_EQ(read_bytes(device, 0, 4096), Bytes(bytes.begin(), bytes.begin() + 4096));
    EXPECT_EQ(read_bytes(device, 12288, 4096), Bytes(bytes.begin() + 12288, bytes.end()));
    EXPECT_EQ(read_bytes(device, 4096, 8192).size(), 8192U) << "readable, whatever it reads";
    EXPECT_EQ(error_of(device.discard(0, 0)), 0);
    EXPECT_EQ(error_of(device.discard(1, 4096)), EINVAL);
    EXPECT_EQ(error_of(device.discard(geometry.size_bytes, 4096)), EIO);
    EXPECT_EQ(error_of(device.discard(4096, UINT64_MAX - 4095)), EIO);
}

void check_direct_address(vfs::BlockDevice& device) {
    const vfs::DeviceGeometry& geometry = device.geometry();
    const Bytes bytes = pattern(4096, 7);
    ASSERT_TRUE(write_bytes(device, 4096, bytes).ok());
    const auto* address = static_cast<const unsigned char*>(device.direct_address(4096, 4096));
    if (address != nullptr) {
        EXPECT_EQ(Bytes(address, address + 4096), bytes);
        EXPECT_NE(device.direct_address(0, geometry.size_bytes), nullptr);
    }
    EXPECT_EQ(device.direct_address(0, geometry.size_bytes + 1), nullptr);
    EXPECT_EQ(device.direct_address(geometry.size_bytes, 1), nullptr);
    EXPECT_EQ(device.direct_address(4096, UINT64_MAX), nullptr);
}

}  // namespace

void check_device_contract(vfs::BlockDevice& device) {
    const vfs::DeviceGeometry& geometry = device.geometry();
    ASSERT_GE(geometry.size_bytes, 1U << 20);
    ASSERT_NE(geometry.write_unit_bytes, 0U);
    ASSERT_EQ(4096 % geometry.write_unit_bytes, 0U);
    ASSERT_EQ(geometry.size_bytes % geometry.write_unit_bytes, 0U);
    EXPECT_FALSE(geometry.read_only);

    EXPECT_EQ(read_bytes(device, 65536, 4096), Bytes(4096)) << "new devices are zero";
    const Bytes bytes = pattern(12288, 1);
    ASSERT_TRUE(write_bytes(device, 4096, bytes).ok());
    EXPECT_EQ(read_bytes(device, 4096, bytes.size()), bytes);
    const Bytes unit = pattern(geometry.write_unit_bytes, 2);
    const uint64_t last = geometry.size_bytes - unit.size();
    ASSERT_TRUE(write_bytes(device, last, unit).ok());
    EXPECT_EQ(read_bytes(device, last, unit.size()), unit);
    EXPECT_EQ(error_of(device.flush()), 0);

    check_bounds(device);
    check_scatter_gather(device);
    check_discard(device);
    check_direct_address(device);
}

namespace {

// Requests of one thread that are under way together.
struct Batch {
    static constexpr size_t kRequests = 64;
    static constexpr size_t kBytes = 4096;

    std::mutex mutex;
    std::condition_variable changed;
    size_t completed = 0;
    size_t failed = 0;
    vfs::IoRequest requests[kRequests];
    vfs::IoVector vectors[kRequests];
    Bytes buffers[kRequests];

    static void complete(vfs::IoRequest& request, Result<void> result) {
        auto* batch = static_cast<Batch*>(request.owner);
        std::lock_guard lock(batch->mutex);
        ++batch->completed;
        batch->failed += result.ok() ? 0 : 1;
        batch->changed.notify_one();
    }

    void run(vfs::BlockDevice& device, vfs::IoOperation operation, uint64_t start_bytes) {
        completed = 0;
        for (size_t i = 0; i < kRequests; ++i) {
            vectors[i] = {buffers[i].data(), kBytes};
            requests[i].operation = operation;
            requests[i].offset_bytes = start_bytes + i * kBytes;
            requests[i].buffers = &vectors[i];
            requests[i].buffer_count = 1;
            requests[i].complete = complete;
            requests[i].owner = this;
            device.submit(requests[i]);
        }
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return completed == kRequests; });
    }
};

void submit_from_one_thread(vfs::BlockDevice& device, uint32_t thread_number) {
    Batch batch;
    const uint64_t start = uint64_t{thread_number} * Batch::kRequests * Batch::kBytes;
    for (uint32_t round = 0; round < 5; ++round) {
        const uint32_t seed = thread_number * 1000 + round * 100;
        for (size_t i = 0; i < Batch::kRequests; ++i) {
            batch.buffers[i] = pattern(Batch::kBytes, seed + static_cast<uint32_t>(i));
        }
        batch.run(device, vfs::IoOperation::write, start);
        for (Bytes& buffer : batch.buffers) {
            buffer.assign(Batch::kBytes, 0);
        }
        batch.run(device, vfs::IoOperation::read, start);
        for (size_t i = 0; i < Batch::kRequests; ++i) {
            EXPECT_EQ(batch.buffers[i], pattern(Batch::kBytes, seed + static_cast<uint32_t>(i)));
        }
    }
    EXPECT_EQ(batch.failed, 0U);

    // Errors come through the completion, too.
    batch.run(device, vfs::IoOperation::read, device.geometry().size_bytes);
    EXPECT_EQ(batch.failed, Batch::kRequests);
    batch.failed = 0;
    batch.run(device, vfs::IoOperation::flush, 0);
    EXPECT_EQ(batch.failed, 0U);
}

}  // namespace

void check_concurrent_submits(vfs::BlockDevice& device) {
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 6; ++t) {
        threads.emplace_back([&device, t] { submit_from_one_thread(device, t); });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

}  // namespace tiffin::fuse
