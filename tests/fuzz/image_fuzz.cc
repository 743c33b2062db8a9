// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Damaged volumes: the bytes choose which blocks of a populated volume are damaged, how, and whether a mount comes
// before the repair. See tests/support/damage_trial.h for what must hold.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "fuse/host/log_sink.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/damage_trial.h"

std::vector<tiffin::fuzz::Input> tiffin::fuzz::seeds() {
    std::vector<Input> inputs;
    for (uint64_t seed = 1; seed <= 16; ++seed) {
        std::mt19937_64 random(seed);
        Input input(48);
        for (unsigned char& byte : input) {
            byte = static_cast<unsigned char>(random());
        }
        inputs.push_back(std::move(input));
    }
    return inputs;
}

void tiffin::fuzz::repair(Input& /*input*/) {}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    tiffin::fuse::CapturedLog log;  // what is damaged on purpose is in the log many times
    static tiffin::test::DamageTrials trials;
    tiffin::test::ByteChoices choices(data, size);
    if (const std::string failure = trials.run(choices); !failure.empty()) {
        std::fprintf(stderr, "%s\n", failure.c_str());
        std::abort();
    }
    return 0;
}
