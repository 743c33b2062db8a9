// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Answers on a path beside the stream (request_path.h), while an answer on the stream is half received.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <deque>
#include <mutex>

#include "rdma_blk/transport/tcp/tcp_memory.h"
#include "tests/unit/rdma_blk/transport/client_fixture.h"

namespace tiffin::rdma_blk::test {
namespace {

// Answers what it is given as executed, and says what the test puts into its mouth.
class AnsweringPath final : public RequestPath {
  public:
    AnsweringPath() : event_(eventfd(0, EFD_NONBLOCK)) {}
    ~AnsweringPath() override { ::close(event_); }

    void set_up(bool is_up) { is_up_ = is_up; }
    // Keeps requests, and so their buffers, to itself.
    void set_silent(bool is_silent) { is_silent_ = is_silent; }
    void fail() { has_failed_ = true; }
    // Requests whose buffers may still be read.
    size_t held() const { return held_; }
    wire::Request last_request() {
        const std::lock_guard lock(mutex_);
        return last_request_;
    }
    void say(const wire::Response& response, ByteSpan payload) {
        const std::lock_guard lock(mutex_);
        answers_.push_back({response, payload});
        const uint64_t one = 1;
        EXPECT_EQ(::write(event_, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
    }
    static wire::Response answer_to(const wire::Request& request) {
        wire::Response response{};
        response.session_id = request.session_id;
        response.incarnation = request.incarnation;
        response.sequence = request.sequence;
        response.slot = request.slot;
        response.operation = request.operation;
        response.outcome = static_cast<uint8_t>(Outcome::executed);
        return response;
    }

    wire::PathTransport transport() const override { return wire::PathTransport::udp; }
    const char* name() const override { return "test"; }
    // It is there without a word of the server.
    Result<size_t> offer(const sockaddr_in6& /*local*/, const sockaddr_in6& /*peer*/,
                         const TrafficKeys& /*keys*/, MutableByteSpan /*parameters*/) override {
        return Error::eopnotsupp;
    }
    Result<void> joined(ByteSpan /*parameters*/) override { return {}; }
    void stop() override {
        held_ = 0;
        stops_++;
    }
    int stops() const { return stops_; }
    bool is_up() const override { return is_up_; }
    bool has_failed() const override { return has_failed_; }
    uint64_t silence_ns(uint64_t /*now_ns*/) const override { return 0; }
    bool has_room() const override { return true; }
    void send(const wire::Request& request, ByteSpan /*ranges*/, const vfs::IoVector* /*buffers*/,
              size_t /*buffer_count*/) override {
        {
            const std::lock_guard lock(mutex_);
            last_request_ = request;
        }
        held_++;
        if (is_silent_) {
            return;
        }
        say(answer_to(request), ByteSpan());
    }
    void answered(uint16_t /*slot*/) override { held_ -= held_ > 0 ? 1 : 0; }
    bool answered_elsewhere(uint16_t /*slot*/) override { return true; }
    bool is_sending(uint16_t /*slot*/) const override { return false; }
    int socket() const override { return event_; }
    uint64_t next_time_ns(uint64_t /*now_ns*/) const override { return ~uint64_t{0}; }
    bool receive(uint64_t /*now_ns*/) override {
        uint64_t count = 0;
        return ::read(event_, &count, sizeof(count)) > 0;
    }
    void transmit(uint64_t /*now_ns*/) override {}
    Result<bool> next_answer(Answer& answer) override {
        const std::lock_guard lock(mutex_);
        if (answers_.empty()) {
            return false;
        }
        answer = answers_.front();
        answers_.pop_front();
        return true;
    }
    void add_statistics(Statistics& /*statistics*/) const override {}

  private:
    const int event_;
    std::atomic<bool> is_up_{false};
    std::atomic<bool> is_silent_{false};
    std::atomic<bool> has_failed_{false};
    std::atomic<int> stops_{0};
    std::atomic<size_t> held_{0};
    std::mutex mutex_;
    wire::Request last_request_{};
    std::deque<Answer> answers_;
};

// A minute is long for all that is waited for here.
template <typename Condition>
bool comes_true(Condition condition) {
    for (int i = 0; i < 60'000 && !condition(); i++) {
        usleep(1000);
    }
    return condition();
}

class RequestPathTest : public ::testing::Test {
  protected:
    void SetUp() override { open(std::nullopt); }
    void open(const std::optional<WayChoice::Options>& measured) {
        StreamExtension extension;
        extension.make_requests = [this](size_t) { return path_; };
        extension.measured = measured;
        const RemoteAddress address{"127.0.0.1", link_.port(), TransportChoice::tcp};
        auto opened = TcpMemory::open(address, client_.options, &client_.recorder, client_.holder,
                                      client_.problem, nullptr, extension);
        ASSERT_TRUE(opened.ok()) << client_.problem;
        client_.memory = opened.release_value();
        for (size_t i = 0; i < kBytes; i++) {
            written_[i] = static_cast<unsigned char>(i * 7);
        }
        ASSERT_EQ(client_.write(0, written_.data(), kBytes), Outcome::executed);
    }

    // Reads all of it over the stream, of which a part arrives; another thread waits for the rest.
    void begin_read() {
        link_.stall_to_client_after(static_cast<int64_t>(kBytes / 3));
        read_.set(OperationKind::read, 0, seen_.data(), kBytes);
        client_.memory->submit(read_.operation);
        reader_ = std::thread([this] {
            client_.memory->wait(read_.operation);
            has_read_ = true;
        });
        ASSERT_TRUE(comes_true([this] { return link_.is_stalled_to_client(); }));
        path_->set_up(true);
        // More than the looks at the path alone between two at the stream: the part has been received for certain.
        for (int i = 0; i < 200; i++) {
            ASSERT_EQ(client_.write(kBytes, written_.data(), 100), Outcome::executed);
        }
    }
    void finish_read() {
        link_.thaw_to_client();
        reader_.join();
        EXPECT_EQ(read_.outcome(), Outcome::executed);
        EXPECT_EQ(seen_, written_);
    }

    static constexpr size_t kBytes = 65536;
    std::vector<unsigned char> written_ = std::vector<unsigned char>(kBytes);
    std::vector<unsigned char> seen_ = std::vector<unsigned char>(kBytes);
    MemoryServer server_;
    FaultyLink link_{server_.port()};
    std::shared_ptr<AnsweringPath> path_ = std::make_shared<AnsweringPath>();
    Io read_;
    std::thread reader_;
    std::atomic<bool> has_read_{false};
    ClientFixture client_;
};

TEST_F(RequestPathTest, AnAnswerOnThePathLeavesTheOneOnTheStreamAlone) {
    begin_read();
    finish_read();
    EXPECT_EQ(client_.memory->statistics().reconnections, 0U);
}

// Its buffer would be the caller's again, while the rest is still being received into it.
TEST_F(RequestPathTest, WhatTheStreamIsJustBringingIsNotTakenFromThePath) {
    begin_read();
    path_->set_up(false);
    wire::Request request = path_->last_request();
    request.sequence = 2;  // the read's
    request.slot = 0;
    request.operation = static_cast<uint8_t>(OperationKind::read);
    wire::Response twice = AnsweringPath::answer_to(request);
    twice.payload_bytes = kBytes;
    path_->say(twice, ByteSpan(written_.data(), kBytes));
    EXPECT_TRUE(
        comes_true([this] { return client_.recorder.last() == ConnectionState::reconnecting; }));
    EXPECT_FALSE(has_read_);
    finish_read();
    EXPECT_EQ(client_.memory->statistics().reconnections, 1U);
}

// What a completion found: it is called the moment the buffer becomes the caller's.
struct Completed {
    AnsweringPath* path = nullptr;
    std::atomic<size_t> held{~size_t{0}};
    std::atomic<bool> is_there{false};

    static void complete(Operation& operation) {
        auto& self = *static_cast<Completed*>(operation.owner);
        self.held = self.path->held();
        self.is_there = true;
    }
};

class BufferReturnTest : public RequestPathTest {
  protected:
    void write_on_path(uint64_t deadline_ns) {
        path_->set_up(true);
        completed_.path = path_.get();
        write_.set(OperationKind::write, 0, written_.data(), 100);
        write_.operation.deadline_ns = deadline_ns;
        write_.operation.owner = &completed_;
        write_.operation.complete = Completed::complete;
        client_.memory->submit(write_.operation);
    }
    void expect_given_back() {
        ASSERT_TRUE(comes_true([this] { return completed_.is_there.load(); }));
        EXPECT_EQ(completed_.held, 0U);
    }

    Io write_;
    Completed completed_;
};

TEST_F(BufferReturnTest, WithAnAnswer) {
    write_on_path(0);
    expect_given_back();
    EXPECT_EQ(write_.outcome(), Outcome::executed);
}

TEST_F(BufferReturnTest, AfterItsDeadlineOnlyWithThePath) {
    path_->set_silent(true);
    write_on_path(host::monotonic_ns() + 20'000'000);
    expect_given_back();
    EXPECT_EQ(write_.outcome(), Outcome::unknown);
    EXPECT_EQ(client_.memory->statistics().aborts, 1U);
}

TEST_F(BufferReturnTest, AtTheEndOfTheSessionOnlyWithThePath) {
    path_->set_silent(true);
    write_on_path(0);
    // Another thread may be the one that takes what was submitted to the path.
    ASSERT_TRUE(comes_true([this] { return path_->held() == 1; }));
    client_.close();
    expect_given_back();
}

class RestingPathTest : public RequestPathTest {
  protected:
    void SetUp() override { open(WayChoice::Options()); }
};

// Requests take the stream, and go on with it.
TEST_F(RestingPathTest, ThatFailsIsLeftWithoutTheConnection) {
    path_->set_up(true);
    ASSERT_EQ(client_.write(0, written_.data(), 100), Outcome::executed);
    path_->fail();
    EXPECT_TRUE(comes_true([this] {
        return client_.write(0, written_.data(), 100) == Outcome::executed && path_->stops() > 0;
    }));
    path_->set_up(false);
    EXPECT_EQ(client_.write(0, written_.data(), 100), Outcome::executed);
    EXPECT_EQ(client_.memory->statistics().reconnections, 0U);
    EXPECT_EQ(client_.memory->statistics().aborts, 0U);
}

}  // namespace
}  // namespace tiffin::rdma_blk::test
