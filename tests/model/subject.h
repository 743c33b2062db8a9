// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The file system that is compared with the model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tests/model/operation.h"
#include "tests/suite/under_test.h"
#include "tests/support/write_history.h"

namespace tiffin::model {

// Functions throw std::runtime_error when the subject does not do what it must. Files that are open
// must be closed before its mount is ended.
class Subject {
  public:
    virtual ~Subject() = default;

    virtual suite::FileSystemUnderTest& file_system() = 0;
    virtual GeneratorOptions generator_options() const = 0;

    // False: the functions below may not be called.
    virtual bool can_be_remounted() const = 0;
    // Makes everything durable.
    virtual void synchronize() = 0;
    // Unmounts, checks, mounts.
    virtual void remount() = 0;
    // Frees some space, where none was left; false when that cannot be the reason.
    virtual bool make_room() { return false; }
    // Loses its power, is checked, and mounted again.
    virtual void crash(test::CrashOutcome outcome, uint64_t seed) = 0;
};

// A tiffinfs in this process, on a device of this size.
std::unique_ptr<Subject> make_core_subject(uint64_t volume_bytes = 256ULL << 20);
// The same on a volume that is filled again and again until nothing goes in.
std::unique_ptr<Subject> make_full_core_subject();
// A directory of a mounted file system, to test the test.
std::unique_ptr<Subject> make_directory_subject(const std::string& directory);

}  // namespace tiffin::model
