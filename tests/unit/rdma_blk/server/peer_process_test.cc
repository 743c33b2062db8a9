// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Processes that have memory mapped: found, not found, not to be told, and who is killed for a lease.
#include "rdma_blk/server/peer_process.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "tests/unit/rdma_blk/server/volume_fixture.h"

namespace tiffin::rdma_blk {
namespace {

class PeerProcessTest : public VolumeFixture {
  protected:
    void SetUp() override {
        VolumeFixture::SetUp();
        child_ = fork();
        ASSERT_GE(child_, 0);
        if (child_ == 0) {
            while (true) {
                pause();
            }
        }
        ticks_ = start_ticks(child_);
        ASSERT_NE(ticks_, 0U);
    }
    void TearDown() override {
        if (child_ > 0) {
            end_child();
        }
        VolumeFixture::TearDown();
    }
    void end_child() {
        kill(child_, SIGKILL);
        (void)waitpid(child_, nullptr, 0);
        child_ = -1;
    }
    bool is_child_alive() const { return waitpid(child_, nullptr, WNOHANG) == 0; }
    static uint64_t start_ticks(pid_t id) {
        FILE* file = std::fopen(("/proc/" + std::to_string(id) + "/stat").c_str(), "re");
        uint64_t ticks = 0;
        if (file != nullptr) {
            char rest[32];
            const int found = std::fscanf(
                file,
                "%*d (%*[^)]) %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                "%*s %*s %31s",
                rest);
            ticks = found == 1 ? std::stoull(rest) : 0;
            std::fclose(file);
        }
        return ticks;
    }

    pid_t child_ = -1;
    uint64_t ticks_ = 0;
};

TEST_F(PeerProcessTest, IsFoundByItsNumberAndItsStart) {
    auto found = PeerProcess::find(child_, ticks_);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ((*found)->id(), child_);
    EXPECT_FALSE((*found)->is_gone());
    EXPECT_EQ(PeerProcess::find(child_, ticks_ + 1).error(), Error::enoent);
    const pid_t id = child_;
    end_child();
    EXPECT_TRUE((*found)->is_gone());
    EXPECT_EQ(PeerProcess::find(id, ticks_).error(), Error::enoent);
}

TEST_F(PeerProcessTest, WhatCannotBeLookedUpIsNotGone) {
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none{0, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    const auto found = PeerProcess::find(child_, ticks_);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    ASSERT_FALSE(found.ok());
    EXPECT_NE(found.error(), Error::enoent);
}

TEST_F(PeerProcessTest, IsKilledForALeaseOnceButNotForItsOwn) {
    start(true);
    Client first = client(1);
    Client second = client(2);
    ASSERT_EQ(open(first, wire::SessionMode::write).kind, Volume::OpenAnswer::Kind::opened);
    ASSERT_EQ(open(second, wire::SessionMode::read).kind, Volume::OpenAnswer::Kind::opened);
    const auto process = PeerProcess::find(child_, ticks_);
    ASSERT_TRUE(process.ok());
    ASSERT_TRUE(volume_->map(first.session, 1, process.value()).is_granted);
    const auto held = static_cast<uint8_t>(wire::RefusalReason::held);
    // The process itself, which closed its first session without the server's hearing of it.
    auto answer = volume_->request_lease(second.session, wire::open_flag::force, now_ns_,
                                         process.value().get());
    EXPECT_EQ(answer.reply.reason, held);
    EXPECT_EQ(answer.ending, nullptr);
    EXPECT_TRUE(is_child_alive());
    // Somebody who is not there any more.
    second.session->path_lost(*second.path);
    answer = volume_->request_lease(second.session, wire::open_flag::force, now_ns_);
    EXPECT_EQ(answer.reply.reason, held);
    EXPECT_TRUE(is_child_alive());
    Client third = client(3);
    ASSERT_EQ(open(third, wire::SessionMode::read).kind, Volume::OpenAnswer::Kind::opened);
    for (int i = 0; i < 3; i++) {
        answer = volume_->request_lease(third.session, wire::open_flag::force, now_ns_);
        if (answer.ending == nullptr) {
            break;
        }
        EXPECT_EQ(answer.reply.reason, held);
        ASSERT_TRUE(answer.ending->wait_until_gone(10'000));
    }
    EXPECT_EQ(answer.reply.reason, 0);
    EXPECT_EQ(volume_->counters().kills.load(), 1U);
    int status = 0;
    ASSERT_EQ(waitpid(child_, &status, 0), child_);
    child_ = -1;
    EXPECT_TRUE(WIFSIGNALED(status));
}

}  // namespace
}  // namespace tiffin::rdma_blk
