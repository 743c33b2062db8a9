// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A volume by itself: leases and fencing, sessions that end and come back, restarts with and without memory.
#include "rdma_blk/server/volume.h"

#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>

#include "tests/unit/rdma_blk/server/ordered_requests.h"
#include "tests/unit/rdma_blk/server/volume_fixture.h"

namespace tiffin::rdma_blk {
namespace {

using Kind = Volume::OpenAnswer::Kind;
using wire::RefusalReason;
using wire::SessionMode;

constexpr auto kExecuted = static_cast<uint8_t>(Outcome::executed);
constexpr auto kNotExecuted = static_cast<uint8_t>(Outcome::not_executed);

class VolumeTest : public VolumeFixture {};

TEST_F(VolumeTest, AWriterWritesAndAReaderReadsItAndMayNotWrite) {
    start(true);
    Client writer = client(1);
    Client reader = client(2);
    ASSERT_EQ(open(writer, SessionMode::write).kind, Kind::opened);
    ASSERT_EQ(open(reader, SessionMode::read).kind, Kind::opened);
    EXPECT_EQ(write(writer, 100, "hello").outcome, kExecuted);
    const auto read = send(reader, request(reader, OperationKind::read, 100, 5));
    EXPECT_EQ(read.payload_bytes, 5U);
    EXPECT_EQ(std::string(reader.path->payloads.back().begin(), reader.path->payloads.back().end()),
              "hello");
    const auto refused = write(reader, 100, "x");
    EXPECT_EQ(refused.error, errno_value(Error::erofs));
    EXPECT_EQ(content(100, 5), "hello");
    EXPECT_EQ(volume_->counters().refused_read_only.load(), 1U);
}

TEST_F(VolumeTest, ASecondWriterIsToldTheHolderUntilTheLeaseIsGivenBack) {
    start(true);
    Client first = client(1);
    Client second = client(2);
    ASSERT_EQ(open(first, SessionMode::write).kind, Kind::opened);
    now_ns_ += 5 * kSecondNs;
    const auto answer = open(second, SessionMode::write);
    ASSERT_EQ(answer.kind, Kind::refused);
    EXPECT_EQ(answer.refused.reason, static_cast<uint8_t>(RefusalReason::held));
    EXPECT_STREQ(answer.refused.holder_text, "client 1");
    EXPECT_EQ(answer.refused.held_for_ms, 5000U);
    EXPECT_TRUE(volume_->close_session(first.session, first.path));
    ASSERT_EQ(open(second, SessionMode::write).kind, Kind::opened);
    EXPECT_EQ(second.opened.epoch, first.opened.epoch + 1);
}

TEST_F(VolumeTest, AHolderWithoutAConnectionIsNamedWithItsSilence) {
    start(true);
    Client writer = client(1);
    Client second = client(2);
    Client reader = client(3);
    ASSERT_EQ(open(writer, SessionMode::write).kind, Kind::opened);
    ASSERT_EQ(open(reader, SessionMode::read).kind, Kind::opened);
    now_ns_ += 5 * kSecondNs;
    EXPECT_STREQ(open(second, SessionMode::write).refused.holder_text, "client 1");
    writer.session->path_lost(*writer.path);
    EXPECT_STREQ(open(second, SessionMode::write).refused.holder_text,
                 "client 1 (silent for 5 s, expires in 55 s)");
    now_ns_ += 7 * kSecondNs;
    EXPECT_STREQ(volume_->request_lease(reader.session, 0, now_ns_).reply.holder_text,
                 "client 1 (silent for 12 s, expires in 48 s)");
}

TEST_F(VolumeTest, OneWriterOrAnyNumberOfSteadyReaders) {
    start(true);
    Client writer = client(1);
    Client reader = client(2);
    Client other = client(3);
    ASSERT_EQ(open(writer, SessionMode::write).kind, Kind::opened);
    auto answer = open(reader, SessionMode::read_steady);
    ASSERT_EQ(answer.kind, Kind::refused);
    EXPECT_EQ(answer.refused.reason, static_cast<uint8_t>(RefusalReason::held));
    EXPECT_STREQ(answer.refused.holder_text, "client 1");
    EXPECT_TRUE(volume_->close_session(writer.session, writer.path));
    ASSERT_EQ(open(reader, SessionMode::read_steady).kind, Kind::opened);
    ASSERT_EQ(open(other, SessionMode::read_steady).kind, Kind::opened);
    EXPECT_TRUE(volume_->close_session(other.session, other.path));
    answer = open(writer, SessionMode::write);
    ASSERT_EQ(answer.kind, Kind::refused);
    EXPECT_STREQ(answer.refused.holder_text, "client 2");
    // A process that goes on with the memory knows it, and its name, too.
    restart(true);
    ASSERT_EQ(resume(reader, {}).kind, Kind::opened);
    ASSERT_EQ(open(other, SessionMode::read).kind, Kind::opened);
    const auto reply = volume_->request_lease(other.session, 0, now_ns_).reply;
    EXPECT_EQ(reply.reason, static_cast<uint8_t>(RefusalReason::held));
    EXPECT_EQ(reply.flags, wire::lease_flag::held_by_reader);
    EXPECT_STREQ(reply.holder_text, "client 2");
    EXPECT_FALSE(volume_->end_for_good(false, now_ns_).empty());
    // By itself the reader becomes the writer.
    EXPECT_EQ(volume_->request_lease(reader.session, 0, now_ns_).reply.reason, 0);
    EXPECT_EQ(open(writer, SessionMode::read_steady).kind, Kind::refused);
}

TEST_F(VolumeTest, AReaderIsFencedBeforeAWriterByForceAndWhenItHasNoConnection) {
    for (const bool force : {true, false}) {
        volume_.reset();
        start(true);
        Client reader = client(1);
        Client writer = client(2);
        ASSERT_EQ(open(reader, SessionMode::read_steady).kind, Kind::opened);
        if (!force) {
            reader.session->path_lost(*reader.path);
        }
        ASSERT_EQ(open(writer, SessionMode::write, force).kind, Kind::opened);
        EXPECT_EQ(reader.path->ended, force);
        const auto read = request(reader, OperationKind::read, 0, 1);
        EXPECT_EQ(reader.session->handle_request(reader.path, read, ByteSpan()).error(),
                  Error::estale);
        const auto resumed = resume(reader, {});
        ASSERT_EQ(resumed.kind, Kind::refused);
        EXPECT_EQ(resumed.refused.reason, static_cast<uint8_t>(RefusalReason::fenced));
    }
}

TEST_F(VolumeTest, ASteadyReaderEndsTheLeaseOfASilentWriter) {
    start(true);
    Client writer = client(1);
    Client reader = client(2);
    ASSERT_EQ(open(writer, SessionMode::write).kind, Kind::opened);
    now_ns_ += 60 * kSecondNs;
    ASSERT_EQ(open(reader, SessionMode::read_steady).kind, Kind::opened);
    EXPECT_TRUE(writer.path->ended);
    EXPECT_EQ(reader.opened.epoch, writer.opened.epoch + 1);
    EXPECT_EQ(resume(writer, {}).refused.reason, static_cast<uint8_t>(RefusalReason::fenced));
}

TEST_F(VolumeTest, AReaderKeyTakesNothingFromASilentWriter) {
    start(true);
    Client writer = client(1);
    Client reader = client(2);
    ASSERT_EQ(open(writer, SessionMode::write).kind, Kind::opened);
    now_ns_ += 60 * kSecondNs;
    EXPECT_EQ(open(reader, SessionMode::read_steady, false, true).refused.reason,
              static_cast<uint8_t>(RefusalReason::held));
    EXPECT_FALSE(writer.path->ended);
    EXPECT_TRUE(volume_->close_session(writer.session, writer.path));
    EXPECT_EQ(open(reader, SessionMode::read_steady, false, true).kind, Kind::opened);
}

TEST_F(VolumeTest, ASilentHolderLosesTheLeaseAndIsFencedForGood) {
    start(true);
    Client first = client(1);
    Client second = client(2);
    ASSERT_EQ(open(first, SessionMode::write).kind, Kind::opened);
    now_ns_ += 60 * kSecondNs;
    ASSERT_EQ(open(second, SessionMode::write).kind, Kind::opened);
    EXPECT_TRUE(first.path->ended);
    EXPECT_EQ(first.path->last_notice, static_cast<int>(wire::NoticeReason::fenced));
    const auto write = request(first, OperationKind::write, 0, 1);
    EXPECT_EQ(first.session->handle_request(first.path, write, ByteSpan()).error(), Error::estale);
    const auto resumed = resume(first, {});
    ASSERT_EQ(resumed.kind, Kind::refused);
    EXPECT_EQ(resumed.refused.reason, static_cast<uint8_t>(RefusalReason::fenced));
}

// Its disk takes longer than a lease lasts. The holder asks again and again meanwhile.
TEST_F(VolumeTest, WhoComesBackDuringItsFlushIsNotSilent) {
    struct SlowFlusher final : Flusher {
        void start(FlushJob job) override { flush = std::move(job); }
        FlushJob flush;
    } flusher;
    flusher_ = &flusher;
    start(true);
    Client holder = client(1);
    Client other = client(2);
    ASSERT_EQ(open(holder, SessionMode::write).kind, Kind::opened);
    send(holder, request(holder, OperationKind::flush, 0, 0));
    holder.session->path_lost(*holder.path);
    for (int i = 0; i < 10; i++) {
        now_ns_ += 10 * kSecondNs;
        ASSERT_EQ(resume(holder, {}).kind, Kind::try_again);
    }
    now_ns_ += 59 * kSecondNs;
    EXPECT_EQ(open(other, SessionMode::write).refused.held_for_ms, 59000U);
    holder.session->finish_flush(flusher.flush, {});
    EXPECT_EQ(resume(holder, {}).kind, Kind::opened);
    flusher.flush.session.reset();
}

TEST_F(VolumeTest, ThePauseOfTheServerIsNotTheHoldersSilence) {
    options_.probe_interval_ms = 1000;
    start(true);
    Client first = client(1);
    Client second = client(2);
    ASSERT_EQ(open(first, SessionMode::write).kind, Kind::opened);
    const auto tick_for = [&](uint64_t seconds) {
        for (uint64_t i = 0; i < seconds; i++) {
            now_ns_ += kSecondNs;
            volume_->tick(now_ns_);
        }
    };
    tick_for(30);
    now_ns_ += 1000 * kSecondNs;  // stopped; the second client is the first to be read
    EXPECT_EQ(open(second, SessionMode::write).kind, Kind::refused);
    tick_for(29);
    EXPECT_EQ(open(second, SessionMode::write).kind, Kind::refused);
    now_ns_ += 1000 * kSecondNs;
    volume_->tick(now_ns_);  // this time a tick is
    EXPECT_EQ(open(second, SessionMode::write).refused.held_for_ms, 59000U);
    // What it does not say while the server listens is silence.
    tick_for(1);
    EXPECT_EQ(open(second, SessionMode::write).kind, Kind::opened);
    EXPECT_TRUE(first.path->ended);
}

TEST_F(VolumeTest, AnEpochIsDurableBeforeItIsGranted) {
    start(true);
    Client first = client(1);
    Client second = client(2);
    ASSERT_EQ(open(first, SessionMode::write).kind, Kind::opened);
    EXPECT_EQ(directory_->load("volume")->epoch, first.opened.epoch);
    std::filesystem::remove_all(folder_);  // from now on nothing can be saved
    const auto answer = open(second, SessionMode::write, true);
    EXPECT_EQ(answer.kind, Kind::refused);
    EXPECT_EQ(write(first, 0, "still").outcome, kExecuted);  // nobody was fenced for nothing
}

// The server dies with the memory after an epoch is durable and before its client has heard of it: nobody else has had a
// lease, so the client gets the same one, and not one that says that it was fenced.
TEST_F(VolumeTest, AGrantWhoseAnswerWasLostWithTheServerIsGivenOnceMore) {
    constexpr auto kWrite = wire::SessionMode::write;
    const auto open_again = [this](Client& writer, uint64_t epoch) {
        wire::SessionOpen open = message(writer, kWrite, false);
        open.epoch = epoch;
        (void)take(writer, volume_->open_session(open, ByteSpan(), writer.uuid, false, writer.path,
                                                 now_ns_));
        return volume_->info(now_ns_).epoch;
    };
    start(true);
    Client writer = client(1);
    open(writer, kWrite);
    uint64_t first = writer.opened.epoch;
    for (int i = 0; i < 3; i++) {
        restart(false);
        EXPECT_EQ(open_again(writer, first), first + 1) << i;
    }
    EXPECT_EQ(directory_->load("volume")->epoch, first + 1);
    // A reader that comes first makes it wait, and says that nobody has written since.
    restart(false);
    Client first_reader = client(4);
    open(first_reader, wire::SessionMode::read_steady);
    wire::SessionOpen waiting = message(writer, kWrite, false);
    waiting.epoch = first;
    const auto refused =
        volume_->open_session(waiting, ByteSpan(), writer.uuid, false, writer.path, now_ns_);
    EXPECT_EQ(refused.kind, Kind::refused);
    EXPECT_EQ(refused.refused.epoch, first);
    // One that has lost its connection may come back, and has to see that there was a writer: it is waited for, and then shut out.
    first_reader.session->path_lost(*first_reader.path);
    const auto still_refused =
        volume_->open_session(waiting, ByteSpan(), writer.uuid, false, writer.path, now_ns_);
    EXPECT_EQ(still_refused.kind, Kind::refused);
    EXPECT_EQ(still_refused.refused.epoch, first);
    EXPECT_FALSE(first_reader.session->is_fenced());
    now_ns_ += 120 * kSecondNs;
    EXPECT_EQ(open_again(writer, first), first + 2);
    EXPECT_TRUE(first_reader.session->is_fenced());
    first++;
    // Who has got it asks with that one.
    restart(false);
    EXPECT_EQ(open_again(writer, first + 1), first + 2);
    // A new opening of the same client does not say that it had one.
    restart(false);
    EXPECT_EQ(open_again(writer, 0), first + 3);
    // Somebody else had a lease meanwhile.
    restart(false);
    Client other = client(2);
    open(other, kWrite);
    EXPECT_EQ(other.opened.epoch, first + 4);
    restart(false);
    EXPECT_EQ(open_again(writer, first + 3), first + 5);
    // ... or is a reader that has ended it.
    restart(false);
    EXPECT_EQ(open_again(writer, first + 5), first + 6);
    now_ns_ += 120 * kSecondNs;
    Client reader = client(3);
    open(reader, wire::SessionMode::read_steady);
    EXPECT_EQ(volume_->info(now_ns_).epoch, first + 7);
    restart(false);
    EXPECT_EQ(open_again(writer, first + 6), first + 8);
}

TEST_F(VolumeTest, RequestsOfAnotherEpochAreRefusedAndCounted) {
    start(true);
    Client writer = client(1);
    ASSERT_EQ(open(writer, SessionMode::write).kind, Kind::opened);
    auto stale = request(writer, OperationKind::write, 0, 1);
    stale.epoch--;
    EXPECT_EQ(send(writer, stale, "x").error, errno_value(Error::estale));
    EXPECT_EQ(volume_->counters().refused_stale.load(), 1U);
    EXPECT_EQ(content(0, 1), std::string(1, '\0'));
}

TEST_F(VolumeTest, AFencedSessionsFlushCopiesNothingMore) {
    start(true);
    Client writer = client(1);
    ASSERT_EQ(open(writer, SessionMode::write).kind, Kind::opened);
    write(writer, 0, "mine");
    char copy[4] = {};
    auto* bytes = reinterpret_cast<unsigned char*>(copy);
    ASSERT_TRUE(writer.session->copy_stable(bytes, volume_->memory().data, sizeof(copy)));
    EXPECT_EQ(std::string(copy, sizeof(copy)), "mine");
    Client other = client(2);
    ASSERT_EQ(open(other, SessionMode::write, true).kind, Kind::opened);
    EXPECT_EQ(write(other, 0, "his.").outcome, kExecuted);
    EXPECT_FALSE(writer.session->copy_stable(bytes, volume_->memory().data, sizeof(copy)));
    EXPECT_EQ(std::string(copy, sizeof(copy)), "mine");
    EXPECT_TRUE(other.session->copy_stable(bytes, volume_->memory().data, sizeof(copy)));
}

TEST_F(VolumeTest, AReaderBecomesTheWriter) {
    start(true);
    Client reader = client(1);
    Client other = client(2);
    ASSERT_EQ(open(reader, SessionMode::read).kind, Kind::opened);
    ASSERT_EQ(open(other, SessionMode::write).kind, Kind::opened);
    auto reply = volume_->request_lease(reader.session, 0, now_ns_).reply;
    EXPECT_EQ(reply.reason, static_cast<uint8_t>(RefusalReason::held));
    EXPECT_STREQ(reply.holder_text, "client 2");
    const auto held = static_cast<size_t>(RefusalReason::held);
    EXPECT_EQ(volume_->counters().sessions_refused[held].load(), 1U);
    reply = volume_->request_lease(reader.session, wire::open_flag::force, now_ns_).reply;
    EXPECT_EQ(reply.reason, 0);
    EXPECT_TRUE(other.path->ended);
    reader.opened.epoch = reply.epoch;
    EXPECT_EQ(write(reader, 0, "now").outcome, kExecuted);
}

TEST_F(VolumeTest, WhatIsOrderedWaitsForItsPredecessorAndIsHeldForItsPath) {
    start(true);
    Client writer = client(1);
    ASSERT_EQ(open(writer, SessionMode::write).kind, Kind::opened);
    const auto first = request(writer, OperationKind::write, 0, 4, 0);
    const auto second = ordered_after(first, request(writer, OperationKind::write, 0, 4, 1));
    send(writer, second, "late");
    EXPECT_TRUE(writer.path->responses.empty());
    EXPECT_GT(writer.path->held_bytes, 4U);
    send(writer, first, "soon");
    EXPECT_EQ(writer.path->responses.size(), 2U);
    EXPECT_EQ(writer.path->held_bytes, 0U);
    EXPECT_EQ(content(0, 4), "late");
}

TEST_F(VolumeTest, TheAnswerToWhatWaitsTakesAnyPathThatLives) {
    for (const bool is_repeated : {false, true}) {
        SCOPED_TRACE(is_repeated);
        volume_.reset();
        start(true);
        Client writer = client(1);
        ASSERT_EQ(open(writer, SessionMode::write).kind, Kind::opened);
        const auto stream = writer.path;
        const auto other = std::make_shared<RecordingPath>();
        ASSERT_TRUE(writer.session->join(writer.opened.incarnation, other));
        const auto first = request(writer, OperationKind::write, 0, 4, 0);
        const auto second = ordered_after(first, request(writer, OperationKind::write, 0, 4, 1));
        writer.path = other;
        send(writer, second, "late");
        EXPECT_GT(other->held_bytes, 0U);
        writer.path = stream;
        if (is_repeated) {  // though the server knows nothing of the other one's end yet
            send(writer, second, "late");
            EXPECT_EQ(other->ignored, 1);
        } else {
            writer.session->path_lost(*other);
        }
        EXPECT_EQ(other->held_bytes > 0, is_repeated);
        EXPECT_EQ(stream->held_bytes, 0U);
        EXPECT_EQ(stream->ignored, 0);
        send(writer, first, "soon");
        EXPECT_EQ(other->held_bytes, 0U);
        EXPECT_EQ(other->responses.size(), 0U);
        ASSERT_EQ(stream->responses.size(), 2U);
        EXPECT_EQ(stream->responses[1].sequence, second.sequence);
        EXPECT_EQ(stream->held_bytes, 0U);
        EXPECT_EQ(content(0, 4), "late");
    }
}

TEST_F(VolumeTest, WithKeptMemorySessionsGoOnAndRepliesAreRemembered) {
    start(true);
    Client writer = client(1);
    ASSERT_EQ(open(writer, SessionMode::write).kind, Kind::opened);
    EXPECT_EQ(write(writer, 0, "kept", 0).outcome, kExecuted);
    auto add = request(writer, OperationKind::fetch_add, 64, 8, 1);
    add.operand = 5;
    EXPECT_EQ(send(writer, add).value, 0U);
    const uint64_t content_incarnation = volume_->content_incarnation();
    restart(true);
    EXPECT_EQ(volume_->content_incarnation(), content_incarnation);
    wire::OutstandingEntry entry{};
    entry.sequence = add.sequence;
    entry.slot = 1;
    entry.operation = add.operation;
    const auto answer = resume(writer, {entry});
    ASSERT_EQ(answer.kind, Kind::opened);
    ASSERT_EQ(answer.outcomes.size(), 1U);
    EXPECT_EQ(answer.outcomes[0], kExecuted);
    EXPECT_EQ(content(0, 4), "kept");
    add.incarnation = writer.opened.incarnation;
    add.flags = wire::request_flag::reply_only;
    EXPECT_EQ(send(writer, add).value, 0U);
    EXPECT_EQ(volume_->memory().data[64], 5);                // once
    EXPECT_EQ(write(writer, 8, "more").outcome, kExecuted);  // the lease was kept as well
}

TEST_F(VolumeTest, WithoutMemoryTheContentIsGoneAndTheIncarnationsSaySo) {
    start(true);
    Client writer = client(1);
    ASSERT_EQ(open(writer, SessionMode::write).kind, Kind::opened);
    write(writer, 0, "lost");
    restart(false);
    EXPECT_EQ(content(0, 4), std::string(4, '\0'));
    const auto answer = resume(writer, {});
    ASSERT_EQ(answer.kind, Kind::refused);
    EXPECT_EQ(answer.refused.reason, static_cast<uint8_t>(RefusalReason::no_session));
    EXPECT_EQ(answer.refused.content_incarnation, writer.opened.content_incarnation + 1);
    EXPECT_EQ(answer.refused.empty_since_incarnation, answer.refused.content_incarnation);
    // Somebody else writes; the first one must not start again as if nothing had happened.
    Client other = client(2);
    ASSERT_EQ(open(other, SessionMode::write).kind, Kind::opened);
    EXPECT_EQ(resume(writer, {}).refused.reason, static_cast<uint8_t>(RefusalReason::fenced));
}

TEST_F(VolumeTest, AGrantThatWasInterruptedLeavesNoWriter) {
    start(true);
    Client writer = client(1);
    ASSERT_EQ(open(writer, SessionMode::write).kind, Kind::opened);
    VolumeState state = directory_->load("volume").release_value();
    state.epoch++;  // saved, and then the process ended
    ASSERT_TRUE(directory_->save(state).ok());
    restart(true);
    EXPECT_EQ(resume(writer, {}).refused.reason, static_cast<uint8_t>(RefusalReason::fenced));
    Client other = client(2);
    ASSERT_EQ(open(other, SessionMode::write).kind, Kind::opened);
    EXPECT_EQ(other.opened.epoch, state.epoch + 1);
}

TEST_F(VolumeTest, SessionsAreBoundedAndSilentReadersMakeRoom) {
    start(true);
    std::vector<Client> clients;
    for (unsigned char number = 1; number <= 4; number++) {
        clients.push_back(client(number));
        ASSERT_EQ(open(clients.back(), SessionMode::read).kind, Kind::opened);
    }
    Client late = client(9);
    EXPECT_EQ(open(late, SessionMode::read).refused.reason,
              static_cast<uint8_t>(RefusalReason::no_room));
    clients[2].session->path_lost(*clients[2].path);
    EXPECT_EQ(open(late, SessionMode::read).kind, Kind::refused);  // it may come back
    now_ns_ += 61 * kSecondNs;
    EXPECT_EQ(open(late, SessionMode::read).kind, Kind::opened);
    EXPECT_EQ(resume(clients[2], {}).refused.reason,
              static_cast<uint8_t>(RefusalReason::no_session));
}

TEST_F(VolumeTest, AReaderKeyDoesNotTakeTheLastPlaces) {
    const auto open_by_key = [this](Client& opened, bool is_reader) {
        return open(opened, is_reader ? SessionMode::read : SessionMode::write, false, is_reader)
            .kind;
    };
    start(true);
    std::vector<Client> readers;
    for (unsigned char number = 1; number <= 3; number++) {
        readers.push_back(client(number));
        ASSERT_EQ(open_by_key(readers.back(), true), Kind::opened);
    }
    Client late = client(9);
    EXPECT_EQ(open_by_key(late, true), Kind::refused);
    restart(true);  // from here on nobody knows whose they were, until they come back
    EXPECT_EQ(open_by_key(late, true), Kind::refused);
    for (Client& reader : readers) {
        ASSERT_EQ(resume(reader, {}, true).kind, Kind::opened);
    }
    Client writer = client(8);
    ASSERT_EQ(open_by_key(writer, false), Kind::opened);
    // One of its own makes room for a reader, and nobody else's.
    EXPECT_TRUE(volume_->close_session(writer.session, writer.path));
    Client watcher = client(7);
    ASSERT_EQ(open(watcher, SessionMode::read).kind, Kind::opened);
    watcher.session->path_lost(*watcher.path);
    now_ns_ += 61 * kSecondNs;
    EXPECT_EQ(open_by_key(late, true), Kind::refused);
    readers[1].session->path_lost(*readers[1].path);
    EXPECT_EQ(open_by_key(late, true), Kind::opened);
    EXPECT_EQ(resume(watcher, {}).kind, Kind::opened);
    EXPECT_EQ(resume(readers[1], {}, true).kind, Kind::refused);
}

TEST_F(VolumeTest, AnOpeningThatIsRepeatedReplacesItselfInsteadOfFindingTheLeaseHeld) {
    start(true);
    Client writer = client(1);
    ASSERT_EQ(open(writer, SessionMode::write).kind, Kind::opened);
    const uint64_t first_id = writer.opened.session_id;
    ASSERT_EQ(open(writer, SessionMode::write).kind, Kind::opened);
    EXPECT_NE(writer.opened.session_id, first_id);
    EXPECT_EQ(volume_->info(now_ns_).session_count, 1U);
    EXPECT_EQ(write(writer, 0, "mine").outcome, kExecuted);
}

// A client that comes back after a restart expects the epoch behind its own; another one means that somebody else has written.
TEST_F(VolumeTest, AnOpeningThatIsRepeatedGetsTheLeaseThatItHas) {
    start(true);
    Client writer = client(1);
    ASSERT_EQ(open(writer, SessionMode::write).kind, Kind::opened);
    const uint64_t epoch = writer.opened.epoch;
    restart(false);
    for (int attempt = 0; attempt < 3; attempt++) {
        writer.next_sequence = 1;
        ASSERT_EQ(open(writer, SessionMode::write).kind, Kind::opened);
        EXPECT_EQ(writer.opened.epoch, epoch + 1);
        EXPECT_EQ(write(writer, 0, "mine").outcome, kExecuted);
    }
    // Not so when the lease was given up, or somebody else had it.
    ASSERT_EQ(open(writer, SessionMode::read).kind, Kind::opened);
    ASSERT_EQ(open(writer, SessionMode::write).kind, Kind::opened);
    EXPECT_EQ(writer.opened.epoch, epoch + 2);
    Client other = client(2);
    ASSERT_EQ(open(other, SessionMode::write, true).kind, Kind::opened);
    ASSERT_EQ(open(writer, SessionMode::write, true).kind, Kind::opened);
    EXPECT_EQ(writer.opened.epoch, epoch + 4);
}

TEST_F(VolumeTest, GrowingKeepsContentAndTellsSessions) {
    start(true);
    Client writer = client(1);
    ASSERT_EQ(open(writer, SessionMode::write).kind, Kind::opened);
    write(writer, (1 << 20) - 4, "last");
    EXPECT_EQ(write(writer, 1 << 20, "x").error, errno_value(Error::eio));
    EXPECT_EQ(volume_->resize(4096).error(), Error::einval);
    ASSERT_TRUE(volume_->resize(8 << 20).ok());
    EXPECT_EQ(writer.path->last_notice, static_cast<int>(wire::NoticeReason::resized));
    EXPECT_EQ(content((1 << 20) - 4, 4), "last");
    EXPECT_EQ(write(writer, 1 << 20, "beyond").outcome, kExecuted);
    restart(true);
    EXPECT_EQ(content(1 << 20, 6), "beyond");
    EXPECT_EQ(volume_->info(now_ns_).data_bytes, 8U << 20);
}

// A child of this process, if there is one and it has been stopped before its end; else 0.
pid_t stop_a_child() {
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
        pid_t child = 0;
        if (!(std::ifstream(thread.path() / "children") >> child) || kill(child, SIGSTOP) != 0) {
            continue;
        }
        siginfo_t stopped{};
        if (waitid(P_PID, static_cast<id_t>(child), &stopped, WSTOPPED | WEXITED | WNOWAIT) == 0 &&
            stopped.si_code == CLD_STOPPED) {
            return child;
        }
    }
    return 0;
}

// It takes a minute for 100 GiB: in a child, which stands still here.
TEST_F(VolumeTest, AVolumeThatGrowsServesMeanwhile) {
    start(true);
    Client writer = client(1);
    ASSERT_EQ(open(writer, SessionMode::write).kind, Kind::opened);
    uint64_t size_bytes = 1 << 20;
    const uint64_t step_bytes = 64 << 20;
    std::thread growing;
    pid_t child = 0;
    for (int attempt = 0; attempt < 8 && child == 0; attempt++) {
        size_bytes += step_bytes;
        std::atomic<bool> is_over{false};
        growing = std::thread([&] {
            EXPECT_TRUE(volume_->resize(size_bytes).ok());
            is_over = true;
        });
        while (child == 0 && !is_over) {
            child = stop_a_child();
        }
        if (child == 0) {
            growing.join();
        } else {
            volume_->tick(now_ns_);
            Client reader = client(2);
            EXPECT_EQ(open(reader, SessionMode::read).kind, Kind::opened);
            EXPECT_EQ(reader.opened.data_bytes, size_bytes - step_bytes);
            EXPECT_EQ(write(writer, size_bytes - 1, "x").error, errno_value(Error::eio));
            kill(child, SIGCONT);
            growing.join();
        }
    }
    EXPECT_NE(child, 0);
    EXPECT_EQ(volume_->info(now_ns_).data_bytes, size_bytes);
    EXPECT_EQ(write(writer, size_bytes - 1, "x").outcome, kExecuted);
}

TEST_F(VolumeTest, AResizeThatWasInterruptedKeepsTheMemory) {
    start(true);
    Client writer = client(1);
    ASSERT_EQ(open(writer, SessionMode::write).kind, Kind::opened);
    write(writer, 0, "kept");
    ASSERT_TRUE(volume_->resize(2 << 20).ok());
    const uint64_t content_incarnation = volume_->content_incarnation();
    // As if the process had ended between the new size and its checksum.
    reinterpret_cast<wire::ControlHeader*>(volume_->memory().control)->checksum ^= 1;
    restart(true);
    EXPECT_TRUE(volume_->was_memory_kept());
    EXPECT_EQ(content(0, 4), "kept");
    EXPECT_EQ(volume_->content_incarnation(), content_incarnation);
    const auto* header = reinterpret_cast<wire::ControlHeader*>(volume_->memory().control);
    EXPECT_TRUE(wire::check_control_header(*header, header->control_bytes).ok());
    EXPECT_EQ(resume(writer, {}).kind, Kind::opened);
}

TEST_F(VolumeTest, KeptMemoryThatMakesNoSenseIsNotSaidToBeKept) {
    start(true);
    const uint64_t content_incarnation = volume_->content_incarnation();
    reinterpret_cast<wire::ControlHeader*>(volume_->memory().control)->session_stride_bytes ^= 8;
    restart(true);
    EXPECT_FALSE(volume_->was_memory_kept());
    EXPECT_EQ(volume_->content_incarnation(), content_incarnation + 1);
}

TEST_F(VolumeTest, KeptMemoryOfAnotherVersionIsLeftToIt) {
    start(true);
    Client writer = client(1);
    ASSERT_EQ(open(writer, SessionMode::write).kind, Kind::opened);
    write(writer, 0, "kept");
    auto* header = reinterpret_cast<wire::ControlHeader*>(volume_->memory().control);
    header->version++;
    KeptMemory kept;
    kept.data.reset(dup(volume_->data_descriptor()));
    kept.control.reset(dup(volume_->control_descriptor()));
    static constexpr unsigned char kServerUuid[16] = {8};
    const VolumeState state = MUST(directory_->load("volume"));  // just saved
    EXPECT_EQ(Volume::start(*directory_, state, false, std::move(kept), options_, kServerUuid,
                            nullptr, nullptr, now_ns_)
                  .error(),
              Error::eproto);
    header->version--;
    restart(true);
    EXPECT_TRUE(volume_->was_memory_kept());
    EXPECT_EQ(content(0, 4), "kept");
    EXPECT_EQ(volume_->content_incarnation(), state.content_incarnation);
}

TEST_F(VolumeTest, AFlushOfRangesBeyondTheEndIsRefused) {
    start(true);
    Client writer = client(1);
    ASSERT_EQ(open(writer, SessionMode::write).kind, Kind::opened);
    const wire::FlushRange range{(1 << 20) - 16, 32};
    const std::string payload(reinterpret_cast<const char*>(&range), sizeof(range));
    const auto flush = request(writer, OperationKind::flush, 0, sizeof(range));
    EXPECT_EQ(send(writer, flush, payload).outcome, kNotExecuted);
    const auto all = request(writer, OperationKind::flush, 0, 0);
    EXPECT_EQ(send(writer, all).value, writer.opened.content_incarnation);
}

TEST_F(VolumeTest, DamagedStateIsNoticed) {
    start(true);
    const std::string path = folder_ + "/volume.volume";
    FILE* file = std::fopen(path.c_str(), "r+");
    ASSERT_NE(file, nullptr);
    std::fseek(file, 60, SEEK_SET);
    const int letter = std::fgetc(file);
    std::fseek(file, 60, SEEK_SET);
    std::fputc(letter ^ 1, file);
    std::fclose(file);
    EXPECT_EQ(directory_->load("volume").error(), Error::euclean);
}

}  // namespace
}  // namespace tiffin::rdma_blk
