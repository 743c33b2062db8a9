// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/model/subject.h"

#include <stdexcept>

#include "tests/suite/case.h"
#include "tests/suite/core_under_test.h"
#include "tests/suite/core_volume.h"
#include "tests/suite/posix_under_test.h"
#include "tests/suite/targets.h"

namespace tiffin::model {

namespace {

constexpr uint64_t kVolumeBytes = 256ULL << 20;

class CoreSubject final : public Subject {
  public:
    CoreSubject() : volume_(kVolumeBytes), fs_(suite::core_target().features) {
        fs_.attach(volume_.file_system());
    }

    suite::FileSystemUnderTest& file_system() override { return fs_; }
    GeneratorOptions generator_options() const override { return {}; }
    bool can_be_remounted() const override { return true; }

    void synchronize() override {
        if (Result<void> result = volume_.file_system().sync(true); !result.ok()) {
            throw std::runtime_error("sync: " + suite::errno_text(errno_value(result.error())));
        }
    }

    void remount() override {
        fs_.detach();
        volume_.unmount();
        check_and_mount("after unmounting");
    }

    void crash(test::CrashOutcome outcome, uint64_t seed) override {
        fs_.detach();
        volume_.crash(outcome, seed);
        check_and_mount("after a power failure");
    }

  private:
    void check_and_mount(const std::string& when) {
        if (std::string findings = volume_.check(); !findings.empty()) {
            throw std::runtime_error("checker, " + when + ": " + findings);
        }
        volume_.mount();
        fs_.attach(volume_.file_system());
    }

    suite::CoreVolume volume_;
    suite::CoreUnderTest fs_;
};

class DirectorySubject final : public Subject {
  public:
    explicit DirectorySubject(const std::string& directory)
        : target_(suite::mounted_target(directory)), fs_(directory, target_.features) {}

    suite::FileSystemUnderTest& file_system() override { return fs_; }
    GeneratorOptions generator_options() const override {
        GeneratorOptions options;
        // The kernel would check permissions and follow special files to their drivers.
        options.ordinary_users = false;
        options.special_files = false;
        options.collapse_insert = target_.features.contains(suite::Feature::collapse_insert);
        return options;
    }
    bool can_be_remounted() const override { return false; }
    void synchronize() override {}
    void remount() override {}
    void crash(test::CrashOutcome /*outcome*/, uint64_t /*seed*/) override {}

  private:
    suite::Target target_;
    suite::PosixUnderTest fs_;
};

}  // namespace

std::unique_ptr<Subject> make_core_subject() { return std::make_unique<CoreSubject>(); }

std::unique_ptr<Subject> make_directory_subject(const std::string& directory) {
    return std::make_unique<DirectorySubject>(directory);
}

}  // namespace tiffin::model
