// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/tcp/name_lookup.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

struct Counted final : Patience {
    bool go_on() override { return ++asked <= limit; }

    int asked = 0;
    int limit = INT32_MAX;
};

RemoteAddress host_named(const char* name) {
    RemoteAddress address;
    address.host = name;
    address.port = 4847;
    return address;
}

TEST(NameLookup, DigitsNeedNoResolver) {
    Counted patience;
    std::string problem;
    for (const char* digits : {"127.0.0.1", "::1"}) {
        auto found = look_up(host_named(digits), 0, patience, problem);
        ASSERT_TRUE(found.ok()) << problem;
        EXPECT_EQ((*found)->ai_family, digits[0] == ':' ? AF_INET6 : AF_INET);
        EXPECT_EQ((*found)->ai_socktype, SOCK_STREAM);
    }
    EXPECT_EQ(patience.asked, 0);
}

TEST(NameLookup, ThisHostIsFound) {
    Counted patience;
    std::string problem;
    auto found =
        look_up(host_named("localhost"), host::monotonic_ns() + 60 * kSecondNs, patience, problem);
    ASSERT_TRUE(found.ok()) << problem;
    EXPECT_TRUE((*found)->ai_family == AF_INET || (*found)->ai_family == AF_INET6);
}

// ---- A name server that does not answer, in namespaces of a process of its own ------------------------------

constexpr int kNotPermitted = 77;
#if defined(__SANITIZE_THREAD__)
constexpr bool kIsThreadSanitizer = true;
#elif defined(__has_feature)
constexpr bool kIsThreadSanitizer = __has_feature(thread_sanitizer);
#else
constexpr bool kIsThreadSanitizer = false;
#endif

bool put_on_top(const char* path, const char* text) {
    char name[] = "/tmp/tiffin-lookup.XXXXXX";
    const int file = mkstemp(name);
    const bool is_done = file >= 0 && write(file, text, strlen(text)) > 0 &&
                         mount(name, path, nullptr, MS_BIND, nullptr) == 0;
    unlink(name);
    close(file);
    return is_done;
}

// A socket that takes questions, and keeps them.
bool make_silent_name_server() {
    if (unshare(CLONE_NEWNET | CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        !put_on_top("/etc/resolv.conf", "nameserver 127.0.0.1\n") ||
        !put_on_top("/etc/nsswitch.conf", "hosts: files dns\n")) {
        return false;
    }
    const int server = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifreq request{};
    request.ifr_name[0] = 'l';
    request.ifr_name[1] = 'o';
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(53);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return ioctl(server, SIOCSIFFLAGS, &request) == 0 &&
           bind(server, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

// The exit status of a process in which `test` is asked.
template <typename Test>
int status_where_nobody_answers(Test test) {
    const pid_t child = fork();
    if (child == 0) {
        _exit(!make_silent_name_server() ? kNotPermitted : test() ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The resolver by itself would give up after ten seconds and more, with eio.
TEST(NameLookup, ASilentNameServerIsNotWaitedForBeyondTheTime) {
    if (kIsThreadSanitizer) {
        GTEST_SKIP() << "not run: the thread sanitizer allows no thread after a fork";
    }
    const int status = status_where_nobody_answers([] {
        Counted patience;
        std::string problem;
        const uint64_t deadline = host::monotonic_ns() + kSecondNs / 10;
        const auto late = look_up(host_named("far.example"), deadline, patience, problem);
        Counted impatience;
        impatience.limit = 2;
        const auto cancelled = look_up(host_named("far.example"),
                                       host::monotonic_ns() + 600 * kSecondNs, impatience, problem);
        return !late.ok() && late.error() == Error::etimedout && !cancelled.ok() &&
               cancelled.error() == Error::ecanceled && impatience.asked == 3 &&
               problem.find("far.example") != std::string::npos;
    });
    if (status == kNotPermitted) {
        GTEST_SKIP() << "not run: namespaces need root";
    }
    EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tiffin::rdma_blk
