// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Cases of the suite: how they are registered and how they check. A case is a plain function; it
// finds an empty directory as the root of the file system under test, and leaves there what it likes.
//
//     SUITE_CASE(rename, file_over_file, {}) {
//         write_file(fs, "a", "one");
//         CHECK_OK(fs.rename("a", "b", 0));
//         CHECK_ERROR(fs.rename("a", "b", 0), ENOENT);
//     }
//
// A check that fails is recorded and the case goes on; REQUIRE_ checks and the helpers end it.
#pragma once

#include <cerrno>
#include <cstdint>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/suite/features.h"
#include "tests/suite/under_test.h"

namespace tiffin::suite {

using CaseFunction = std::function<void(FileSystemUnderTest& fs)>;

struct Case {
    std::string name;  // "group.case"
    FeatureSet needs;
    CaseFunction run;
};

// All cases, by name. Call it after static initialisation.
const std::vector<Case>& all_cases();

// Adds a case; returns a value so that a namespace-scope variable can call it.
bool register_case(const std::string& name, FeatureSet needs, CaseFunction run);

// The cases that `features` leave out, as "name: needs feature, ...", in the order of all_cases().
std::vector<std::string> cases_not_run(const FeatureSet& features);

// Runs one case and returns its failures, empty when all is well. One case at a time in a process.
std::vector<std::string> run_case(const Case& test_case, FileSystemUnderTest& fs);

#define SUITE_CASE(group, name, ...)                                                \
    static void group##_##name(::tiffin::suite::FileSystemUnderTest& fs);           \
    static const bool group##_##name##_registered = ::tiffin::suite::register_case( \
        #group "." #name, ::tiffin::suite::FeatureSet __VA_ARGS__, group##_##name); \
    static void group##_##name([[maybe_unused]] ::tiffin::suite::FileSystemUnderTest& fs)

// One case for each element of `values`; the body sees it as `value`, and the value's text becomes
// the end of the case's name.
#define SUITE_CASES(group, name, values, ...)                                                    \
    template <typename Value>                                                                    \
    static void group##_##name(::tiffin::suite::FileSystemUnderTest& fs, const Value& value);    \
    static const bool group##_##name##_registered = [] {                                         \
        for (const auto& element : (values)) {                                                   \
            auto copy = element;                                                                 \
            ::tiffin::suite::register_case(                                                      \
                #group "." #name "_" + ::tiffin::suite::to_text(copy),                           \
                ::tiffin::suite::FeatureSet __VA_ARGS__,                                         \
                [copy](::tiffin::suite::FileSystemUnderTest& fs) { group##_##name(fs, copy); }); \
        }                                                                                        \
        return true;                                                                             \
    }();                                                                                         \
    template <typename Value>                                                                    \
    static void group##_##name([[maybe_unused]] ::tiffin::suite::FileSystemUnderTest& fs,        \
                               const Value& value)

// ---- Checks ------------------------------------------------------------------------------------

// Thrown to end a case whose failure has been recorded.
struct CaseEnded {};

// Records a failure of the running case; any thread.
void record_failure(const char* file, int line, const std::string& text);
[[noreturn]] void end_case();

// "ENOENT", or the number when it has no name.
std::string errno_text(int64_t error);

template <typename T>
std::string to_text(const T& value) {
    std::ostringstream stream;
    stream << value;
    return stream.str();
}

// The answer of a call, as a person reads it: "0", "4096" or "-ENOENT".
inline std::string answer_text(int64_t answer) {
    return answer < 0 ? "-" + errno_text(-answer) : std::to_string(answer);
}

inline int64_t check_ok(const char* file, int line, const char* text, int64_t answer) {
    if (answer < 0) {
        record_failure(file, line,
                       std::string(text) + ": expected success, got " + answer_text(answer));
    }
    return answer;
}

inline int64_t require_ok(const char* file, int line, const char* text, int64_t answer) {
    if (check_ok(file, line, text, answer) < 0) {
        end_case();
    }
    return answer;
}

inline void check_error(const char* file, int line, const char* text, int64_t answer,
                        int64_t expected) {
    if (answer != -expected) {
        record_failure(file, line,
                       std::string(text) + ": expected -" + errno_text(expected) + ", got " +
                           answer_text(answer));
    }
}

template <typename A, typename B>
void check_equal(const char* file, int line, const char* text, const A& actual, const B& expected) {
    if (!(actual == expected)) {
        record_failure(
            file, line,
            std::string(text) + ": expected " + to_text(expected) + ", got " + to_text(actual));
    }
}

inline void check_true(const char* file, int line, const char* text, bool condition) {
    if (!condition) {
        record_failure(file, line, std::string(text) + ": expected to hold");
    }
}

#define CHECK_OK(call) ::tiffin::suite::check_ok(__FILE__, __LINE__, #call, (call))
#define REQUIRE_OK(call) ::tiffin::suite::require_ok(__FILE__, __LINE__, #call, (call))
#define CHECK_ERROR(call, error) \
    ::tiffin::suite::check_error(__FILE__, __LINE__, #call, (call), (error))
#define CHECK_EQUAL(actual, expected) \
    ::tiffin::suite::check_equal(__FILE__, __LINE__, #actual " == " #expected, (actual), (expected))
#define CHECK_TRUE(condition) \
    ::tiffin::suite::check_true(__FILE__, __LINE__, #condition, (condition))

}  // namespace tiffin::suite
