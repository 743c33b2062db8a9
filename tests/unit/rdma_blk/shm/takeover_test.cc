// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A holder in another process, with the memory mapped, that writes as fast as it can: its lease is taken over, and
// not one of its writes lands afterwards.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>
#include <vector>

#include "rdma_blk/transport/shm/unit_copy.h"
#include "tests/unit/rdma_blk/shm/shm_fixture.h"

namespace tiffin::rdma_blk::test {
namespace {

// What the holder needs to know of the server, which starts after it.
struct Introduction {
    unsigned char key[kVolumeKeyBytes];
    uint16_t port;
};

bool read_all(int descriptor, void* data, size_t size) {
    auto* bytes = static_cast<unsigned char*>(data);
    while (size > 0) {
        const ssize_t count = ::read(descriptor, bytes, size);
        if (count <= 0) {
            return false;
        }
        bytes += count;
        size -= static_cast<size_t>(count);
    }
    return true;
}

class ShmTakeoverTest : public ShmFixture {
  protected:
    void SetUp() override {
        if (unit_copy() == UnitCopy::none) {
            GTEST_SKIP()
                << "not run: neither 64-byte stores nor process_vm_writev(): writes are requests";
        }
        ShmFixture::SetUp();
        // Before there are threads, since it makes a process.
        ASSERT_EQ(pipe(to_holder_), 0);
        ASSERT_EQ(pipe(from_holder_), 0);
        holder_ = fork();
        ASSERT_GE(holder_, 0);
        if (holder_ == 0) {
            ::close(to_holder_[1]);
            ::close(from_holder_[0]);
            _exit(hold());
        }
        ::close(to_holder_[0]);
        ::close(from_holder_[1]);
    }
    void TearDown() override {
        if (holder_ > 0 && !is_reaped_) {
            kill(holder_, SIGKILL);
            (void)reap();
        }
        ::close(to_holder_[1]);
        ::close(from_holder_[0]);
        ShmFixture::TearDown();
    }

    // The other process: becomes the writer, says so, and writes for ever.
    int hold() {
        Introduction introduction{};
        if (!read_all(to_holder_[0], &introduction, sizeof(introduction))) {
            return 2;
        }
        ClientFixture client;
        prepare(client, 9);
        client.options.mode = OpenOptions::Mode::write;
        std::memcpy(client.options.key, introduction.key, sizeof(introduction.key));
        RemoteAddress address{"127.0.0.1", introduction.port, TransportChoice::shm};
        address.runtime_directory = configuration_.runtime_directory;
        auto opened = open_remote_memory(address, client.options, &client.recorder, client.holder,
                                         client.problem);
        if (!opened.ok()) {
            return 3;
        }
        client.memory = opened.release_value();
        std::vector<uint64_t> words(4096 / sizeof(uint64_t));
        for (uint64_t round = 1;; round++) {
            words.assign(words.size(), round);
            const uint64_t offset_bytes = round % (kVolumeBytes / 4096) * 4096;
            if (client.write(offset_bytes, words.data(), 4096) != Outcome::executed) {
                return 4;
            }
            if (round == 1000 && ::write(from_holder_[1], "w", 1) != 1) {
                return 5;
            }
        }
    }
    void introduce() {
        Introduction introduction{};
        std::memcpy(introduction.key, key_.bytes, sizeof(key_.bytes));
        introduction.port = server_->port();
        ASSERT_EQ(::write(to_holder_[1], &introduction, sizeof(introduction)),
                  static_cast<ssize_t>(sizeof(introduction)));
        char writes = 0;
        ASSERT_TRUE(read_all(from_holder_[0], &writes, 1)) << "the holder ended: " << reap();
    }
    int reap() {
        int status = 0;
        (void)waitpid(holder_, &status, 0);
        is_reaped_ = true;
        return status;
    }
    std::vector<unsigned char> content() {
        return std::vector<unsigned char>(memory(), memory() + kVolumeBytes);
    }
    // The holder's writes change the content all the time, unless it is gone.
    bool is_changing() {
        const auto before = content();
        for (int i = 0; i < 1000; i++) {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
            if (content() != before) {
                return true;
            }
        }
        return false;
    }
    // `before`: taken right after the lease was granted.
    void expect_nothing_lands(const std::vector<unsigned char>& before) {
        for (int i = 0; i < 50; i++) {
            ASSERT_EQ(std::memcmp(before.data(), memory(), before.size()), 0);
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
    }
    void expect_every_unit_is_whole() {
        const auto all = content();
        for (size_t unit = 0; unit < all.size(); unit += 64) {
            for (size_t word = 8; word < 64; word += 8) {
                ASSERT_EQ(std::memcmp(&all[unit], &all[unit + word], 8), 0) << "torn at " << unit;
            }
        }
    }

    pid_t holder_ = -1;
    bool is_reaped_ = false;
    int to_holder_[2] = {-1, -1};
    int from_holder_[2] = {-1, -1};
};

TEST_F(ShmTakeoverTest, ByForceItIsKilledAndNothingLandsAfterwards) {
    start();
    introduce();
    ASSERT_TRUE(is_changing());
    client_.options.force = true;
    open(client_);
    const auto at_grant = content();
    const int status = reap();
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
    expect_nothing_lands(at_grant);
    expect_every_unit_is_whole();
    uint64_t word = 1;
    EXPECT_EQ(client_.write(0, &word, sizeof(word)), Outcome::executed);
    EXPECT_EQ(volume().counters().fences.load(), 1U);
}

TEST_F(ShmTakeoverTest, AReaderTakesItOverInTheSameWay) {
    start();
    introduce();
    open(client_, OpenOptions::Mode::read);
    Holder holder;
    EXPECT_EQ(client_.memory->start_writing(false, holder).error(), Error::ebusy);
    ASSERT_TRUE(is_changing());
    ASSERT_TRUE(client_.memory->start_writing(true, holder).ok());
    const auto at_grant = content();
    EXPECT_TRUE(WIFSIGNALED(reap()));
    expect_nothing_lands(at_grant);
}

TEST_F(ShmTakeoverTest, ItIsNotKilledForASessionThatThereIsNoRoomFor) {
    configuration_.max_sessions = 2;
    start();
    introduce();
    open(client_, OpenOptions::Mode::read);
    ClientFixture second;
    prepare(second, 2);
    second.options.force = true;
    const auto opened = try_open(second, OpenOptions::Mode::write);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error(), Error::enospc);
    EXPECT_TRUE(is_changing());
    EXPECT_EQ(volume().counters().kills.load(), 0U);
}

TEST_F(ShmTakeoverTest, ItIsNotKilledForALeaseThatCannotBeRecorded) {
    start();
    introduce();
    open(client_, OpenOptions::Mode::read);
    const std::string hidden = configuration_.state_directory + ".hidden";
    std::filesystem::rename(configuration_.state_directory, hidden);
    Holder holder;
    EXPECT_FALSE(client_.memory->start_writing(true, holder).ok());
    EXPECT_TRUE(is_changing());
    EXPECT_EQ(volume().counters().kills.load(), 0U);
    std::filesystem::rename(hidden, configuration_.state_directory);
    ASSERT_TRUE(client_.memory->start_writing(true, holder).ok());
    EXPECT_EQ(volume().counters().kills.load(), 1U);
}

TEST_F(ShmTakeoverTest, WithRefuseItStays) {
    configuration_.shm_kills = false;
    start();
    introduce();
    client_.options.force = true;
    const auto opened = try_open(client_, OpenOptions::Mode::write);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error(), Error::ebusy);
    EXPECT_TRUE(is_changing());
    EXPECT_EQ(volume().counters().fences.load(), 0U);
    // Once it has ended by itself, nobody stands in the way.
    kill(holder_, SIGKILL);
    (void)reap();
    open(client_);
    expect_nothing_lands(content());
    expect_every_unit_is_whole();
}

TEST_F(ShmTakeoverTest, AServerThatStartedAgainStillFindsTheProcess) {
    start();
    introduce();
    restart();
    ASSERT_TRUE(volume().was_memory_kept());
    client_.options.force = true;
    open(client_);
    const auto at_grant = content();
    EXPECT_TRUE(WIFSIGNALED(reap()));
    expect_nothing_lands(at_grant);
}

TEST_F(ShmTakeoverTest, AStoppedHolderIsSilentAndThenKilled) {
    start();
    introduce();
    kill(holder_, SIGSTOP);
    const auto opened = try_open(client_, OpenOptions::Mode::write);
    ASSERT_FALSE(opened.ok()) << "before its silence is long enough";
    EXPECT_EQ(opened.error(), Error::ebusy);
    Result<void> later = Error::ebusy;
    for (int i = 0; i < 200 && !later.ok(); i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        later = try_open(client_, OpenOptions::Mode::write);
    }
    ASSERT_TRUE(later.ok());
    const auto at_grant = content();
    EXPECT_TRUE(WIFSIGNALED(reap()));
    expect_nothing_lands(at_grant);
}

TEST_F(ShmTakeoverTest, ABusyHolderIsNotSilent) {
    start();
    introduce();
    // Longer than the lease lasts without a sign of life.
    std::this_thread::sleep_for(std::chrono::milliseconds(2600));
    const auto opened = try_open(client_, OpenOptions::Mode::write);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error(), Error::ebusy);
    EXPECT_TRUE(is_changing());
}

TEST_F(ShmTakeoverTest, AHolderThatDiesLeavesWholeUnitsAndItsLease) {
    start();
    introduce();
    kill(holder_, SIGKILL);
    (void)reap();
    expect_every_unit_is_whole();
    open(client_);  // at once, and without force: nobody needs to be waited for
    uint64_t word = 1;
    EXPECT_EQ(client_.write(0, &word, sizeof(word)), Outcome::executed);
}

}  // namespace
}  // namespace tiffin::rdma_blk::test
