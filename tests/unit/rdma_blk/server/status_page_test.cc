// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The page for people: what it shows, and that no text of a client gets into its markup.
#include "rdma_blk/server/status_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/rdma_blk/server/server_fixture.h"

namespace tiffin::rdma_blk {
namespace {

using testing::HasSubstr;
using testing::Not;
using wire::SessionMode;

constexpr uint64_t kSecond = 1'000'000'000;

class StatusPageTest : public ServerFixture {
  protected:
    LogSummary log_;
    std::string html(StatusPage& page) { return page.html(host::monotonic_ns(), 3600 * kSecond); }
};

TEST_F(StatusPageTest, ShowsVolumesClientsAndRates) {
    start();
    StatusPage page(*server_, [this] { return log_; });
    EXPECT_THAT(html(page), HasSubstr("No client has a session."));
    page.sample(kSecond);
    auto client = open(1);
    client->write(0, std::string(20480, 'x'));
    client->write(0, std::string(20480, 'x'));
    page.sample(11 * kSecond);
    const std::string text = html(page);
    EXPECT_THAT(text, HasSubstr("<td class=text>volume</td>"));
    EXPECT_THAT(text, HasSubstr("<td>writes</td><td>connected</td>"));
    EXPECT_THAT(text, HasSubstr("written 4 KiB/s"));
    EXPECT_THAT(text, HasSubstr("<td class=n>4 KiB</td>"));
    EXPECT_THAT(text, HasSubstr("No errors."));
    EXPECT_THAT(text, HasSubstr("1970-01-01 01:00:00 UTC"));
    page.sample(16 * kSecond);
    EXPECT_THAT(html(page), HasSubstr("written 0 B/s"));
}

TEST_F(StatusPageTest, TextsAreEscaped) {
    EXPECT_EQ(html_escaped("<a href='x'>\"&amp;"), "&lt;a href=&#39;x&#39;&gt;&quot;&amp;amp;");
    start();
    log_ = {2, 1, 3000 * static_cast<int64_t>(kSecond), "<script>alert(1)</script>"};
    StatusPage page(*server_, [this] { return log_; });
    const std::string text = html(page);
    EXPECT_THAT(text, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;"));
    EXPECT_THAT(text, Not(HasSubstr("<script")));
    EXPECT_THAT(text, HasSubstr("10 min ago"));
}

// As many points as the plot has room for.
TEST_F(StatusPageTest, ThePlotIsBounded) {
    start();
    StatusPage page(*server_, [this] { return log_; });
    for (uint64_t i = 1; i <= 3 * StatusPage::kPoints; i++) {
        page.sample(i * kSecond);
    }
    const std::string text = html(page);
    EXPECT_THAT(text, HasSubstr("points=\"0,100.0 1,100.0 "));
    EXPECT_THAT(text, HasSubstr(" 119,100.0 \"/>"));
    EXPECT_THAT(text, Not(HasSubstr("120,100.0")));
}

}  // namespace
}  // namespace tiffin::rdma_blk
