// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a writer did not flush, its successor has to: it is told so with the lease.
#include <gtest/gtest.h>

#include "tests/unit/rdma_blk/shm/shm_fixture.h"

namespace tiffin::rdma_blk::test {
namespace {

class InheritedTest : public ShmFixture, public ::testing::WithParamInterface<TransportChoice> {
  protected:
    void SetUp() override {
        ShmFixture::SetUp();
        start(folder_ + "/backing");
        configuration_.listen[0].port = server_->port();  // after a restart, too
        prepare(second_, 2);
    }
    void TearDown() override {
        second_.close();
        ShmFixture::TearDown();
    }
    void open_here(ClientFixture& client, OpenOptions::Mode mode = OpenOptions::Mode::write) {
        ShmFixture::open(client, mode, GetParam());
    }
    static bool inherits(const ClientFixture& client) {
        return client.memory->connection().inherits_unflushed;
    }
    void write_without_flush() {
        open_here(client_);
        EXPECT_FALSE(inherits(client_)) << "a new volume is what its backing has";
        uint64_t word = 21;
        ASSERT_EQ(client_.write(4096, &word, sizeof(word)), Outcome::executed);
        client_.close();
    }

    ClientFixture second_;
};

TEST_P(InheritedTest, TheNextWriterIsToldUntilOneHasFlushedAll) {
    write_without_flush();
    open_here(second_);
    EXPECT_TRUE(inherits(second_));
    second_.close();  // which has not flushed it either
    open_here(second_, OpenOptions::Mode::read);
    EXPECT_FALSE(inherits(second_));
    Holder holder;
    ASSERT_TRUE(second_.memory->start_writing(false, holder).ok());
    EXPECT_TRUE(inherits(second_));
    ASSERT_EQ(second_.flush(), Outcome::executed);
    second_.close();
    open_here(second_);
    EXPECT_FALSE(inherits(second_));
    uint64_t word = 22;
    ASSERT_EQ(second_.write(0, &word, sizeof(word)), Outcome::executed);
    ASSERT_EQ(second_.flush(), Outcome::executed);
    second_.close();
    open_here(second_);
    EXPECT_FALSE(inherits(second_));
}

TEST_P(InheritedTest, AWriterThatEndedWithoutAWordMayHaveWritten) {
    // Over tcp in both cases: the process of a holder that has the memory mapped is killed, and it is this one.
    open(client_, OpenOptions::Mode::write, TransportChoice::tcp);
    second_.options.force = true;
    open_here(second_);
    EXPECT_TRUE(inherits(second_));
}

TEST_P(InheritedTest, AServerThatLostIsGoneOnWithOnlyIfItWasFlushed) {
    keeper_.keeps = false;
    for (const bool flushes : {true, false}) {
        write_without_flush();
        open_here(second_);
        ASSERT_TRUE(inherits(second_));
        if (flushes) {
            ASSERT_EQ(second_.flush(), Outcome::executed);
        }
        restart_as_seen_by(second_);
        uint64_t word = 0;
        const Outcome outcome = second_.read(4096, &word, sizeof(word));
        if (flushes) {
            ASSERT_EQ(outcome, Outcome::executed);
            EXPECT_EQ(word, 21U);
        } else {
            EXPECT_NE(outcome, Outcome::executed);
            EXPECT_EQ(second_.recorder.last(), ConnectionState::memory_lost);
        }
        second_.close();
    }
}

INSTANTIATE_TEST_SUITE_P(Transports, InheritedTest,
                         testing::Values(TransportChoice::tcp, TransportChoice::shm),
                         [](const auto& each) {
                             return each.param == TransportChoice::tcp ? "tcp" : "shm";
                         });

}  // namespace
}  // namespace tiffin::rdma_blk::test
