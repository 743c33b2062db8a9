// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a mount's metrics say of the log and of names, without a mount; tests/mount/metrics.sh has the rest.
#include "fuse/tools/common/mount_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tiffin::fuse {
namespace {

using testing::HasSubstr;
using testing::Not;

class MountMetricsTest : public testing::Test {
  protected:
    CapturedLog captured_;
    RememberingLogSink log_{captured_};
};

TEST_F(MountMetricsTest, WithoutAnErrorThereIsNoLastOne) {
    MountMetrics metrics({"mem:1G", "/mnt", "tiffin"}, log_);
    log_.write(host::LogLevel::info, "hello");
    log_.write(host::LogLevel::warning, "careful");
    const std::string text = metrics.text();
    EXPECT_THAT(text, HasSubstr("\ntiffin_log_messages_total{level=\"error\"} 0\n"));
    EXPECT_THAT(text, HasSubstr("\ntiffin_log_messages_total{level=\"warning\"} 1\n"));
    EXPECT_THAT(text, Not(HasSubstr("reason=")));
}

TEST_F(MountMetricsTest, TheLastErrorHasItsTimeAndReason) {
    MountMetrics metrics({"mem:1G", "/mnt", "tiffin"}, log_);
    log_.write(host::LogLevel::error, "the first");
    const int64_t before_ns = host::realtime_ns();
    log_.write(host::LogLevel::error, "a \"quoted\" last\xff one");
    EXPECT_GE(log_.counts().last_error_ns, before_ns);
    EXPECT_EQ(log_.complaint(), "the first");
    const std::string text = metrics.text();
    EXPECT_THAT(text, HasSubstr("\ntiffin_log_messages_total{level=\"error\"} 2\n"));
    EXPECT_THAT(text, HasSubstr("\ntiffin_last_error_timestamp_seconds{reason=\"a \\\"quoted\\\" "
                                "last\xEF\xBF\xBD one\"} 1"));
}

TEST_F(MountMetricsTest, NamesNeedNotBeText) {
    MountMetrics metrics({"file:/a\"\\\n\xfe", "/mnt/\xc3\xa4", "tiffin"}, log_);
    EXPECT_THAT(
        metrics.text(),
        HasSubstr("device=\"file:/a\\\"\\\\\\n\xEF\xBF\xBD\",mount_point=\"/mnt/\xc3\xa4\""));
}

TEST_F(MountMetricsTest, AWrongAddressIsAProblem) {
    MountMetrics metrics({"mem:1G", "/mnt", "tiffin"}, log_);
    const auto problem = metrics.listen("8080");
    ASSERT_TRUE(problem.has_value());
    EXPECT_THAT(problem->text, HasSubstr("\"8080\" is not ADDRESS:PORT"));
    const auto elsewhere = metrics.listen("192.0.2.1:9848");  // for documentation: nobody has it
    ASSERT_TRUE(elsewhere.has_value());
    EXPECT_THAT(elsewhere->text, HasSubstr("cannot be served at 192.0.2.1:9848: "));
}

}  // namespace
}  // namespace tiffin::fuse
