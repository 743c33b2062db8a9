// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Sequences of operations. The first byte chooses: beside the model of tests/model on a volume with room or a full
// one, with remounts and power failures in between, or through a host with write-back on a volume that fills up
// (tests/support/write_back_run.h). What follows chooses the operations. Whatever the bytes are, both answer alike
// and what was promised is kept, and the checker finds nothing at the end.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <random>

#include "fuse/host/log_sink.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/model/model_run.h"
#include "tests/support/write_back_run.h"

namespace {

using namespace tiffin;

constexpr uint64_t kVolumeBytes = 64U << 20;
constexpr uint64_t kFillingVolumeBytes = 8U << 20;
constexpr uint64_t kOperations = 300;
constexpr uint64_t kShortestStretch = 4;

[[noreturn]] void fail(const std::string& what) {
    std::fprintf(stderr, "%s\n", what.c_str());
    std::abort();
}

}  // namespace

std::vector<fuzz::Input> fuzz::seeds() {
    std::vector<Input> inputs;
    for (uint64_t seed = 1; seed <= 9; ++seed) {
        std::mt19937_64 random(seed);
        Input input(200 + random() % 2000);
        for (unsigned char& byte : input) {
            byte = static_cast<unsigned char>(random());
        }
        input[0] = static_cast<unsigned char>(seed % 3);
        inputs.push_back(std::move(input));
    }
    return inputs;
}

void fuzz::repair(Input& /*input*/) {}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    fuse::CapturedLog log;  // what happens to a full volume is not worth a line
    test::ByteChoices choices(data, size);
    const uint64_t kind = choices.below(3);
    if (kind == 2) {
        const std::string failure =
            test::run_write_back(choices, kFillingVolumeBytes, kOperations).failure;
        if (!failure.empty()) {
            fail(failure);
        }
        return 0;
    }
    try {
        const std::unique_ptr<model::Subject> subject =
            kind == 0 ? model::make_core_subject(kVolumeBytes) : model::make_full_core_subject();
        std::string failure;
        {
            model::ModelRun run(*subject, choices, kShortestStretch);
            failure = run.run(kOperations);
        }
        if (!failure.empty()) {
            fail(failure);
        }
        subject->remount();  // with a check
    } catch (const std::exception& exception) {
        fail(exception.what());
    }
    return 0;
}
