// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/model/subject.h"

#include <algorithm>
#include <stdexcept>

#include "tests/suite/case.h"
#include "tests/suite/core_under_test.h"
#include "tests/suite/core_volume.h"
#include "tests/suite/posix_under_test.h"
#include "tests/suite/targets.h"

namespace tiffin::model {

namespace {

class CoreSubject : public Subject {
  public:
    explicit CoreSubject(uint64_t volume_bytes)
        : volume_(volume_bytes), fs_(suite::core_target().features) {
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

  protected:
    suite::CoreVolume volume_;

  private:
    suite::CoreUnderTest fs_;
};

// A file without a name has all the space, but what it gives back when an operation finds none. It is gone
// with each mount.
class FullCoreSubject final : public CoreSubject {
  public:
    FullCoreSubject() : CoreSubject(kSmallVolumeBytes) { fill(); }

    bool make_room() override {
        if (filler_bytes_ == 0) {
            return false;
        }
        // Every time a little more, since operations differ in what they need.
        room_bytes_ *= 2;
        filler_bytes_ -= std::min(filler_bytes_, room_bytes_);
        vfs::AttributeChange change;
        change.valid = vfs::AttributeChange::size_bit;
        change.size_bytes = filler_bytes_;
        if (!volume_.file_system().set_attributes({}, filler_, change).ok()) {
            throw std::runtime_error("the filler cannot be truncated on a full volume");
        }
        return true;
    }

    void synchronize() override {
        CoreSubject::synchronize();
        extend();
    }
    void remount() override {
        CoreSubject::remount();
        fill();
    }
    void crash(test::CrashOutcome outcome, uint64_t seed) override {
        CoreSubject::crash(outcome, seed);
        fill();
    }

  private:
    static constexpr uint64_t kSmallVolumeBytes = 64ULL << 20;
    static constexpr uint64_t kRoomBytes = 1U << 20;

    void fill() {
        filler_bytes_ = 0;
        Result<vfs::Attributes> made =
            volume_.file_system().make_temporary({}, vfs::kRootNode, 0600, {});
        if (made.ok()) {
            filler_ = made->node;
            extend();
        }
    }

    void extend() {
        room_bytes_ = kRoomBytes;
        for (uint64_t step : {uint64_t{1} << 20, uint64_t{1} << 16, uint64_t{1} << 12}) {
            while (volume_.file_system().allocate(filler_, 0, filler_bytes_, step).ok()) {
                filler_bytes_ += step;
            }
        }
    }

    vfs::NodeId filler_ = 0;
    uint64_t filler_bytes_ = 0;
    uint64_t room_bytes_ = kRoomBytes;
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

std::unique_ptr<Subject> make_full_core_subject() { return std::make_unique<FullCoreSubject>(); }

std::unique_ptr<Subject> make_core_subject(uint64_t volume_bytes) {
    return std::make_unique<CoreSubject>(volume_bytes);
}

std::unique_ptr<Subject> make_directory_subject(const std::string& directory) {
    return std::make_unique<DirectorySubject>(directory);
}

}  // namespace tiffin::model
