// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: writes of disjoint ranges of one file are under way together, overlapping ones one after the other, and each is
// whole; a thread may have many under way; bytes that change while they are written are no damage. Method: a device that
// keeps writes until as many as expected are there, and threads that check what they find.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "fs/tiffinfs/objects/range_claims.h"
#include "fs/vfs/content_reader.h"
#include "fs/vfs/content_writer.h"
#include "tests/support/test_size.h"
#include "tests/support/units.h"
#include "tests/unit/tiffinfs/data_fixture.h"

namespace tiffin::tiffinfs {
namespace {

// Keeps writes of single blocks until so many are there, and completes them together. Those that wait for others in
// vain, because one is not sent before another is complete, are let go after some seconds.
class GatheringDevice final : public vfs::BlockDevice {
  public:
    explicit GatheringDevice(std::unique_ptr<vfs::BlockDevice> device)
        : device_(std::move(device)), releaser_([this] { release_late(); }) {}
    ~GatheringDevice() override {
        gather(0);
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        changed_.notify_all();
        releaser_.join();
    }

    // From now on `count` at a time; 0: none is kept.
    void gather(uint32_t count) {
        const std::lock_guard lock(mutex_);
        wanted_ = count;
        most_ = 0;
        release_if(kept_.size() >= wanted_);
    }
    // The most that were kept together.
    size_t most_kept() {
        const std::lock_guard lock(mutex_);
        return most_;
    }

    // Called at the beginning of each write, and no longer once this is called again.
    void before_write(std::function<void()> function) {
        const std::lock_guard lock(function_mutex_);
        before_write_ = std::move(function);
    }
    // In the next `count` reads a byte changes.
    void spoil_reads(uint32_t count) { reads_to_spoil_ = count; }

    const vfs::DeviceGeometry& geometry() const override { return device_->geometry(); }
    Result<void> read(uint64_t offset_bytes, const vfs::IoVector* buffers, size_t count) override {
        TRY(device_->read(offset_bytes, buffers, count));
        if (reads_to_spoil_ > 0) {
            --reads_to_spoil_;
            ++*static_cast<unsigned char*>(buffers[count - 1].data);
        }
        return {};
    }
    void submit(vfs::IoRequest& request) override {
        size_t size = 0;
        for (size_t i = 0; i < request.buffer_count; ++i) {
            size += request.buffers[i].size_bytes;
        }
        if (request.operation == vfs::IoOperation::write) {
            const std::shared_lock lock(function_mutex_);
            if (before_write_) {
                before_write_();
            }
        }
        const std::lock_guard lock(mutex_);
        if (wanted_ == 0 || request.operation != vfs::IoOperation::write || size != kBlockBytes) {
            return device_->submit(request);
        }
        kept_.push_back(&request);
        most_ = std::max(most_, kept_.size());
        changed_.notify_all();
        release_if(kept_.size() >= wanted_);
    }

  private:
    void release_if(bool condition) {
        if (condition) {
            std::vector<vfs::IoRequest*> released;
            released.swap(kept_);
            for (vfs::IoRequest* request : released) {
                device_->submit(*request);
            }
        }
    }
    void release_late() {
        std::unique_lock lock(mutex_);
        while (!stopping_) {
            changed_.wait(lock, [this] { return stopping_ || !kept_.empty(); });
            const size_t before = kept_.size();
            changed_.wait_for(lock, std::chrono::seconds(3),
                              [&] { return stopping_ || kept_.size() != before; });
            release_if(kept_.size() == before);
        }
    }

    std::unique_ptr<vfs::BlockDevice> device_;
    std::mutex mutex_;
    std::condition_variable changed_;
    uint32_t wanted_ = 0;
    size_t most_ = 0;
    bool stopping_ = false;
    std::shared_mutex function_mutex_;
    std::function<void()> before_write_;
    uint32_t reads_to_spoil_ = 0;
    std::vector<vfs::IoRequest*> kept_;
    std::thread releaser_;
};

class ParallelWrite : public testing::Test {
  protected:
    ParallelWrite() {
        auto device = std::make_unique<GatheringDevice>(make_memory_device(64 * kMiB));
        device_ = device.get();
        volume_ = std::make_unique<DataVolume>(std::move(device));
        node_ = volume_->create("f");
        EXPECT_EQ(volume_->write(node_, 0, pattern_text(4 * kMiB, 1)),
                  static_cast<int64_t>(4 * kMiB));
    }
    template <typename Function>
    static void in_threads(unsigned count, Function function) {
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < count; ++i) {
            threads.emplace_back([i, &function] { function(i); });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
    }

    GatheringDevice* device_ = nullptr;
    std::unique_ptr<DataVolume> volume_;
    uint64_t node_ = 0;
};

constexpr unsigned kDepth = 16;

TEST_F(ParallelWrite, SixteenThreadsHaveSixteenWritesOfOneFileUnderWay) {
    device_->gather(kDepth);
    in_threads(kDepth, [this](unsigned i) {
        EXPECT_EQ(volume_->write(node_, i * 37 * kBlockBytes, pattern_text(kBlockBytes, i)),
                  int64_t{kBlockBytes});
    });
    EXPECT_EQ(device_->most_kept(), kDepth);
    device_->gather(0);
    for (unsigned i = 0; i < kDepth; ++i) {
        EXPECT_EQ(volume_->text_at(node_, i * 37 * kBlockBytes, kBlockBytes),
                  pattern_text(kBlockBytes, i));
    }
    EXPECT_EQ(volume_->check(), "");
}

// Also behind the end of the file, and into holes and blocks that fallocate has reserved.
TEST_F(ParallelWrite, SixteenWritesThatMakeAFileLongerAreUnderWayTogether) {
    const uint64_t node = volume_->create("g");
    ASSERT_EQ(volume_->write(node, 0, pattern_text(2 * kBlockBytes, 1)), int64_t{2} * kBlockBytes);
    ASSERT_EQ(volume_->allocate(node, 0, 8 * kBlockBytes, 8 * kBlockBytes), 0);
    device_->gather(kDepth);
    in_threads(kDepth, [&](unsigned i) {
        EXPECT_EQ(volume_->write(node, (2 + i) * kBlockBytes, pattern_text(kBlockBytes, i)),
                  int64_t{kBlockBytes});
    });
    EXPECT_EQ(device_->most_kept(), kDepth);
    device_->gather(0);
    EXPECT_EQ(volume_->attributes(node).size_bytes, (2 + kDepth) * kBlockBytes);
    for (unsigned i = 0; i < kDepth; ++i) {
        EXPECT_EQ(volume_->text_at(node, (2 + i) * kBlockBytes, kBlockBytes),
                  pattern_text(kBlockBytes, i));
    }
    EXPECT_EQ(volume_->check(), "");
}

// A thread that does not wait for the device, as a kernel's write-back.
TEST_F(ParallelWrite, OneThreadHasSixteenWritesUnderWay) {
    struct OneWrite {
        vfs::ContentWriter writer;
        std::string text;
        vfs::IoVector buffer;
        std::atomic<bool> transferred{false};
        bool done = false;
    };
    std::vector<std::unique_ptr<OneWrite>> writes;
    device_->gather(kDepth);
    for (unsigned i = 0; i < kDepth; ++i) {
        writes.push_back(std::make_unique<OneWrite>());
        OneWrite& one = *writes.back();
        one.text = pattern_text(kBlockBytes, i);
        one.buffer = {one.text.data(), one.text.size()};
        one.writer.begin(
            volume_->fs(), node_, i * 3 * kBlockBytes, Span<const vfs::IoVector>(&one.buffer, 1),
            vfs::write_flag::write_back,
            [](void* owner) { static_cast<OneWrite*>(owner)->transferred = true; }, &one);
        one.done = one.writer.advance();
        EXPECT_FALSE(one.done);
    }
    EXPECT_EQ(device_->most_kept(), kDepth);
    device_->gather(0);
    for (const auto& one : writes) {
        EXPECT_TRUE(one->transferred);
        EXPECT_TRUE(one->writer.advance());
        EXPECT_EQ(one->writer.result().value_or(0), kBlockBytes);
    }
    for (unsigned i = 0; i < kDepth; ++i) {
        EXPECT_EQ(volume_->text_at(node_, i * 3 * kBlockBytes, kBlockBytes), writes[i]->text);
    }
    EXPECT_EQ(volume_->check(), "");
}

// The same for reading: nobody waits in a thread.
TEST_F(ParallelWrite, OneThreadHasReadsUnderWay) {
    struct OneRead {
        vfs::ContentReader reader;
        std::string text;
        std::atomic<bool> transferred{false};
    };
    std::vector<std::unique_ptr<OneRead>> reads;
    for (unsigned i = 0; i < kDepth; ++i) {
        reads.push_back(std::make_unique<OneRead>());
        OneRead& one = *reads.back();
        one.text.resize(100'000);
        ASSERT_TRUE(
            one.reader.map(volume_->fs(), volume_->device(), node_, i * 5000 + 10, one.text.size())
                .ok());
        const vfs::IoVector buffer{one.text.data(), one.text.size()};
        const BufferCursor cursor{Span<const vfs::IoVector>(&buffer, 1)};
        ASSERT_TRUE(one.reader.place(cursor));
        EXPECT_TRUE(one.reader.begin_fetch(
            [](void* owner) { static_cast<OneRead*>(owner)->transferred = true; }, &one));
    }
    for (unsigned i = 0; i < kDepth; ++i) {
        OneRead& one = *reads[i];
        EXPECT_TRUE(one.transferred);
        EXPECT_TRUE(one.reader.finish_fetch().ok());
        const vfs::IoVector buffer{one.text.data(), one.text.size()};
        one.reader.copy_to(BufferCursor(Span<const vfs::IoVector>(&buffer, 1)));
        one.reader.release();
        EXPECT_EQ(one.text, volume_->text_at(node_, i * 5000 + 10, one.text.size()));
    }
}

// Requests of several parts, each thread with bytes of its own: the last one's is there as a whole, and readers never
// see a block of two.
// Each replaces blocks and gives back as many; but until the first is committed, they take more than the reserve has.
TEST_F(ParallelWrite, WriteBackOfMappedBlocksWaitsForRoomThatOthersHold) {
    const uint64_t filler = volume_->create("filler");
    for (uint64_t size_bytes : {kMiB, uint64_t{kBlockBytes}}) {
        uint64_t end_bytes = volume_->attributes(filler).size_bytes;
        while (volume_->write(filler, end_bytes, pattern_text(size_bytes, 2)) ==
               static_cast<int64_t>(size_bytes)) {
            end_bytes += size_bytes;
        }
    }
    device_->before_write([] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
    constexpr unsigned kWriters = 8;
    constexpr uint64_t kPart = 4 * kMiB / kWriters;
    for (unsigned round = 0; round < 3; ++round) {
        in_threads(kWriters, [&](unsigned i) {
            EXPECT_EQ(volume_->write(node_, i * kPart, pattern_text(kPart, 100 * round + i),
                                     vfs::write_flag::write_back),
                      static_cast<int64_t>(kPart));
        });
        for (unsigned i = 0; i < kWriters; ++i) {
            ASSERT_TRUE(volume_->text_at(node_, i * kPart, kPart) ==
                        pattern_text(kPart, 100 * round + i));
        }
    }
    device_->before_write({});
    EXPECT_EQ(volume_->check(), "");
}

TEST_F(ParallelWrite, OverlappingWritesAreWhole) {
    constexpr uint64_t kLength = 3 * kMiB + 5000;
    const uint64_t rounds = test::test_size(12, 4);
    std::atomic<bool> writing{true};
    std::atomic<uint64_t> mixed{0};
    std::thread reader([&] {
        while (writing) {
            const std::string text = volume_->text_at(node_, 8192, kBlockBytes);
            mixed += text.find_first_not_of(text[0]) != std::string::npos && text[0] >= 'a' &&
                             text[0] <= 'd' && text[1] == text[0] && text[2] == text[0]
                         ? 1
                         : 0;
        }
    });
    in_threads(4, [&](unsigned i) {
        const std::string text(kLength, static_cast<char>('a' + i));
        for (uint64_t round = 0; round < rounds; ++round) {
            EXPECT_EQ(volume_->write(node_, 1000, text), static_cast<int64_t>(kLength));
        }
    });
    writing = false;
    reader.join();
    const std::string text = volume_->text_at(node_, 1000, kLength);
    EXPECT_EQ(text, std::string(kLength, text[0]));
    EXPECT_EQ(mixed, 0U);
    EXPECT_EQ(volume_->check(), "");
}

TEST_F(ParallelWrite, AppendsStayWholeBesideOtherWritesAndTruncations) {
    const uint64_t node = volume_->create("log");
    const uint64_t records = test::test_size(400, 100);
    constexpr size_t kRecordBytes = 100;
    std::atomic<bool> appending{true};
    std::thread other([&] {
        for (uint64_t i = 0; appending; ++i) {
            EXPECT_EQ(volume_->write(node_, i % 512 * kBlockBytes, "elsewhere"), 9);
            // Longer by nothing: it claims the end of the file, too.
            EXPECT_EQ(volume_->allocate(node, vfs::allocate_flag::keep_size, 0, kMiB), 0);
        }
    });
    in_threads(4, [&](unsigned i) {
        for (uint64_t n = 0; n < records; ++n) {
            std::string record = std::to_string(i * records + n);
            record.resize(kRecordBytes, '.');
            EXPECT_EQ(volume_->write(node, 0, record, vfs::write_flag::append),
                      static_cast<int64_t>(kRecordBytes));
        }
    });
    appending = false;
    other.join();
    const std::string text = volume_->content(node);
    ASSERT_EQ(text.size(), 4 * records * kRecordBytes);
    std::set<std::string> found;
    for (size_t at = 0; at < text.size(); at += kRecordBytes) {
        found.insert(text.substr(at, text.find('.', at) - at));
    }
    EXPECT_EQ(found.size(), 4 * records);
    EXPECT_EQ(volume_->check(), "");
}

// A program changes its buffer while a direct write of it is under way: here when the device begins to write.
TEST_F(ParallelWrite, BytesThatChangeMeanwhileAreNoDamage) {
    std::string text = pattern_text(64 * kBlockBytes, 1);
    for (const size_t place : {size_t{0}, text.size() / 2 + 1, text.size() - 1}) {
        bool changed = false;
        device_->before_write([&] {
            text[place] = static_cast<char>(text[place] + (changed ? 0 : 1));
            changed = true;
        });
        EXPECT_EQ(volume_->write(node_, 1000, text, vfs::write_flag::unstable_buffers),
                  static_cast<int64_t>(text.size()));
        device_->before_write({});
        EXPECT_TRUE(changed);
        std::string written = text;
        written[place] = static_cast<char>(written[place] - 1);
        EXPECT_EQ(volume_->text_at(node_, 1000, text.size()), written);
    }
    EXPECT_EQ(volume_->check(), "");
}

// The same with a direct read: it is read again, into memory of the reader's, before anything is called damaged.
TEST_F(ParallelWrite, BuffersThatChangeWhileTheyAreReadIntoAreNoDamage) {
    const std::string expected = volume_->text_at(node_, 1000, 64 * kBlockBytes);
    std::string text(expected.size(), '\0');
    device_->spoil_reads(1);
    EXPECT_EQ(volume_->read(node_, 1000, text), static_cast<int64_t>(text.size()));
    EXPECT_EQ(text, expected);
    // Where the device itself answers wrong bytes that is damage.
    device_->spoil_reads(2);
    EXPECT_EQ(volume_->read(node_, 1000, text), -EIO);
    device_->spoil_reads(0);
    EXPECT_EQ(volume_->check(), "");
}

// ---- Claims ------------------------------------------------------------------------------------------

TEST(RangeClaims, OverlappingOnesAreHeldInTheirOrder) NO_THREAD_SAFETY_ANALYSIS {
    RangeClaims claims;
    RangeClaim first;
    RangeClaim disjoint;
    RangeClaim refused;
    claims.acquire(first, 0, 10);
    claims.acquire(disjoint, 10, 20);
    EXPECT_FALSE(claims.try_acquire(refused, 5, 6));
    EXPECT_FALSE(claims.try_acquire(refused, 0, RangeClaim::kEndOfFile));
    std::vector<int> order;
    std::mutex mutex;
    std::atomic<int> waiting{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
        threads.emplace_back([&, i]() NO_THREAD_SAFETY_ANALYSIS {
            RangeClaim claim;
            ++waiting;
            claims.acquire(claim, 5, 15);
            {
                const std::lock_guard lock(mutex);
                order.push_back(i);
            }
            claims.release(claim);
        });
        while (waiting <= i) {
            std::this_thread::yield();
        }
        // It is in the list as soon as nobody else can have its range.
        RangeClaim probe;
        while (claims.try_acquire(probe, 14, 15)) {
            claims.release(probe);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    // A later one does not overtake those who wait, although nobody holds its blocks.
    EXPECT_FALSE(claims.try_acquire(refused, 14, 15));
    EXPECT_TRUE(claims.try_acquire(refused, 20, 30));
    claims.release(refused);
    claims.release(first);
    {
        const std::lock_guard lock(mutex);
        EXPECT_TRUE(order.empty());
    }
    claims.release(disjoint);
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
    claims.acquire(first, 0, RangeClaim::kEndOfFile);
    EXPECT_TRUE(first.covers_file());
    claims.release(first);
}

}  // namespace
}  // namespace tiffin::tiffinfs
