// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A link between two programs that speak UDP, as a process of its own: link_emulator [NAME=VALUE...]
//
// Prints "near PORT far PORT" when it is ready, and what it counted when it is ended by SIGTERM or SIGINT.
#include <arpa/inet.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "rdma_blk/simulation/emulator/udp_emulator.h"

namespace {

using namespace tiffin::rdma_blk::simulation;

constexpr const char* kUsage =
    "usage: link_emulator [NAME=VALUE...]\n"
    "  near=PORT far=PORT   where the two ends send to (0: any)\n"
    "  paths=COUNT          that many ports from there on, all on one link (1)\n"
    "  mbit=RATE            of each direction (unlimited)\n"
    "  queue_kib=SIZE       what may wait for the link (unlimited)\n"
    "  delay_ms=TIME        of each direction (0)\n"
    "  loss=SHARE           of the datagrams of each direction (0)\n"
    "  burst=COUNT          how many are lost at once, in the mean (1: each by itself); more than "
    "loss / (1 - loss)\n"
    "  duplicate=SHARE      of datagrams that arrive twice (0)\n"
    "  hold=SHARE held_ms=TIME   of datagrams that are held back by up to that time (0)\n"
    "  mtu=BYTES            longer packets vanish, counted with 28 bytes of IPv4 and UDP\n"
    "  seed=NUMBER          of chance (1)\n";

struct Arguments {
    EmulatorOptions options;
    double loss = 0;
    double burst = 1;
};

uint16_t port_of(double value) { return htons(static_cast<uint16_t>(value)); }

// False: there is no such name, or the value is not one for it.
bool take(Arguments& arguments, const std::string& name, double value) {
    EmulatorOptions& options = arguments.options;
    LinkOptions& link = options.forward;
    const bool is_share = value >= 0 && value <= 1;
    if (name == "near" && value >= 0 && value < 65536) {
        options.near_address.sin6_port = port_of(value);
    } else if (name == "far" && value >= 0 && value < 65536) {
        options.far_address.sin6_port = port_of(value);
    } else if (name == "paths" && value >= 1 && value <= 64) {
        options.path_count = static_cast<uint16_t>(value);
    } else if (name == "mbit" && value > 0) {
        link.bits_per_second = value * 1e6;
    } else if (name == "queue_kib" && value > 0) {
        link.queue_bytes = static_cast<uint64_t>(value * 1024);
    } else if (name == "delay_ms" && value >= 0 && value < 60e3) {
        link.delay_ns = static_cast<uint64_t>(value * 1e6);
    } else if (name == "loss" && value >= 0 && value < 1) {
        arguments.loss = value;
    } else if (name == "burst" && value >= 1) {
        arguments.burst = value;
    } else if (name == "duplicate" && is_share) {
        link.duplicate_rate = value;
    } else if (name == "hold" && is_share) {
        link.hold_rate = value;
    } else if (name == "held_ms" && value >= 0 && value < 60e3) {
        link.held_ns = static_cast<uint64_t>(value * 1e6);
    } else if (name == "mtu" && value > 28 && value < 65536) {
        options.longest_datagram_bytes = static_cast<uint32_t>(value) - 28;
    } else if (name == "seed" && value >= 0) {
        options.seed = static_cast<uint64_t>(value);
    } else {
        return false;
    }
    return true;
}

bool parse(int count, char** words, Arguments& arguments) {
    arguments.options.forward.bits_per_second = kUnlimitedBitsPerSecond;
    for (int index = 1; index < count; index++) {
        const std::string word = words[index];
        const size_t equals = word.find('=');
        if (equals == std::string::npos || equals + 1 == word.size()) {
            return false;
        }
        char* end = nullptr;
        const double value = std::strtod(word.c_str() + equals + 1, &end);
        if (*end != 0 || !take(arguments, word.substr(0, equals), value)) {
            return false;
        }
    }
    if (arguments.burst > 1 && arguments.loss / (1 - arguments.loss) > arguments.burst) {
        return false;  // between two bursts something arrives
    }
    arguments.options.forward.loss = burst_loss(arguments.loss, arguments.burst);
    arguments.options.backward = arguments.options.forward;
    return true;
}

void print(const EmulatorCounters& counters) {
    const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
    std::fprintf(
        stderr,
        "received %llu, forwarded %llu, lost %llu, tail drops %llu, doubled %llu, held %llu, "
        "too long %llu, without memory %llu, to nobody %llu, failed %llu\n",
        number(counters.received), number(counters.forwarded), number(counters.lost),
        number(counters.tail_dropped), number(counters.duplicated), number(counters.held),
        number(counters.too_long), number(counters.overflowed), number(counters.undirected),
        number(counters.failed));
}

}  // namespace

int main(int count, char** words) {
    Arguments arguments;
    if (!parse(count, words, arguments)) {
        std::fputs(kUsage, stderr);
        return 2;
    }
    // Before the thread begins, so that it blocks them, too.
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, nullptr);
    auto emulator = UdpEmulator::create(arguments.options);
    if (!emulator.ok()) {
        std::fprintf(stderr, "link_emulator: %s\n", std::strerror(errno_value(emulator.error())));
        return 1;
    }
    std::printf("near %u far %u\n", ntohs((*emulator)->near_address(0).sin6_port),
                ntohs((*emulator)->far_address(0).sin6_port));
    std::fflush(stdout);
    int received = 0;
    sigwait(&ends, &received);
    print((*emulator)->counters());
    return 0;
}
