// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Runs a fuzzer without a fuzzing engine, always in the same way: its seeds, then random changes to them.
//
// usage: fuzz_NAME [--corpus FOLDER] [--runs N] [--seed N] [--write-corpus FOLDER] [FILE...]
//
//   --corpus FOLDER        takes the files in it as seeds, too
//   --runs N               changed inputs (default 20000)
//   --seed N               of the random numbers (default 1)
//   --write-corpus FOLDER  only writes the seeds there, for libfuzzer_NAME
//   FILE...                only these inputs, such as the one with which libfuzzer_NAME has ended
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "tests/fuzz/fuzz_target.h"

namespace {

using tiffin::fuzz::Input;

constexpr size_t kMaxInputBytes = 4096;
// Values at which arithmetic goes wrong.
constexpr uint64_t kInteresting[] = {0,
                                     1,
                                     7,
                                     0x7f,
                                     0x80,
                                     0xff,
                                     0xffff,
                                     0x7fffffff,
                                     0x80000000,
                                     0xffffffff,
                                     (uint64_t{1} << 62) - 1,
                                     uint64_t{1} << 62,
                                     INT64_MAX,
                                     UINT64_MAX - 15,
                                     UINT64_MAX};

void change(Input& input, const std::vector<Input>& seeds, std::mt19937_64& random) {
    const size_t place = input.empty() ? 0 : random() % input.size();
    switch (random() % 8) {
        case 0:
            if (!input.empty()) {
                input[place] ^= static_cast<unsigned char>(1U << random() % 8);
            }
            break;
        case 1:
            if (!input.empty()) {
                input[place] = static_cast<unsigned char>(random());
            }
            break;
        case 2: {
            const uint64_t value = kInteresting[random() % std::size(kInteresting)];
            const size_t width = size_t{1} << random() % 4;
            if (place + width <= input.size()) {
                std::memcpy(input.data() + place, &value, width);
            }
            break;
        }
        case 3:
            input.resize(place);
            break;
        case 4:
            input.insert(input.begin() + static_cast<ptrdiff_t>(place), random() % 16,
                         static_cast<unsigned char>(random()));
            break;
        case 5: {
            const size_t count = std::min<size_t>(random() % 16, input.size() - place);
            input.erase(input.begin() + static_cast<ptrdiff_t>(place),
                        input.begin() + static_cast<ptrdiff_t>(place + count));
            break;
        }
        case 6: {  // two inputs, one behind the other
            const Input& other = seeds[random() % seeds.size()];
            input.insert(input.end(), other.begin(), other.end());
            break;
        }
        default: {  // a piece of another one
            const Input& other = seeds[random() % seeds.size()];
            const size_t count = std::min({other.size(), input.size() - place, random() % 64});
            std::copy_n(other.begin(), count, input.begin() + static_cast<ptrdiff_t>(place));
            break;
        }
    }
    input.resize(std::min(input.size(), kMaxInputBytes));
}

void run(const Input& input) {
    // Memory of exactly that size, so that the address sanitizer sees every read behind it.
    const std::vector<uint8_t> exact(input.begin(), input.end());
    LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

int write_corpus(const std::string& folder, const std::vector<Input>& seeds) {
    for (size_t i = 0; i < seeds.size(); i++) {
        std::ofstream file(folder + "/seed-" + std::to_string(i), std::ios::binary);
        file.write(reinterpret_cast<const char*>(seeds[i].data()),
                   static_cast<std::streamsize>(seeds[i].size()));
        if (!file.flush()) {
            std::fprintf(stderr, "%s cannot be written\n", folder.c_str());
            return EXIT_FAILURE;
        }
    }
    return EXIT_SUCCESS;
}

// False when it cannot be read; says so.
bool read_input(const std::string& path, Input& input) {
    std::ifstream file(path, std::ios::binary);
    input.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (!file) {
        std::fprintf(stderr, "%s cannot be read\n", path.c_str());
        return false;
    }
    return true;
}

bool read_corpus(const std::string& folder, std::vector<Input>& seeds) {
    std::error_code error;
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
        paths.push_back(entry.path());
    }
    if (paths.empty()) {
        std::fprintf(stderr, "%s has no files\n", folder.c_str());
        return false;
    }
    std::sort(paths.begin(), paths.end());
    for (const std::string& path : paths) {
        if (!read_input(path, seeds.emplace_back())) {
            return false;
        }
    }
    return true;
}

}  // namespace

int main(int argument_count, char** arguments) {
    std::vector<Input> seeds = tiffin::fuzz::seeds();
    uint64_t runs = 20000;
    uint64_t seed = 1;
    int next = 1;
    for (; next + 1 < argument_count && std::strncmp(arguments[next], "--", 2) == 0; next += 2) {
        const std::string option = arguments[next];
        if (option == "--write-corpus") {
            return write_corpus(arguments[next + 1], seeds);
        }
        if (option == "--corpus") {
            if (!read_corpus(arguments[next + 1], seeds)) {
                return EXIT_FAILURE;
            }
            continue;
        }
        if (option != "--runs" && option != "--seed") {
            std::fprintf(stderr, "unknown: %s\n", arguments[next]);
            return EXIT_FAILURE;
        }
        (option == "--runs" ? runs : seed) = std::strtoull(arguments[next + 1], nullptr, 0);
    }
    if (next < argument_count) {
        for (Input input; next < argument_count; next++) {
            if (!read_input(arguments[next], input)) {
                return EXIT_FAILURE;
            }
            run(input);
        }
        return EXIT_SUCCESS;
    }
    for (const Input& input : seeds) {
        run(input);
    }
    for (uint64_t number = 0; number < runs; number++) {
        // Each input by itself, so that one that fails can be made again.
        std::mt19937_64 random(seed * 1'000'003 + number);
        Input input = seeds[random() % seeds.size()];
        for (uint64_t changes = 1 + random() % 8; changes > 0; changes--) {
            change(input, seeds, random);
        }
        if (random() % 4 != 0) {
            tiffin::fuzz::repair(input);
        }
        run(input);
    }
    std::printf("%zu seeds and %llu changes to them, with seed %llu: passed\n", seeds.size(),
                static_cast<unsigned long long>(runs), static_cast<unsigned long long>(seed));
    return EXIT_SUCCESS;
}
