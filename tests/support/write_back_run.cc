// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/support/write_back_run.h"

#include <iterator>
#include <map>
#include <memory>

#include "fuse/check/check.h"
#include "tests/support/crash_device.h"
#include "tests/support/test_volume.h"
#include "tests/support/units.h"
#include "tests/support/write_back_host.h"

namespace tiffin::test {
namespace {

class Run {
  public:
    Run(Choices& choices, uint64_t volume_bytes)
        : choices_(choices), device_(volume_bytes), volume_(device_) {
        MUST(volume_.make());
        MUST(volume_.mount());
        host_ = std::make_unique<WriteBackHost>(volume_.file_system(), choices_.below(UINT32_MAX));
    }

    WriteBackResult run(uint64_t steps) {
        for (uint64_t i = 0; i < steps && !choices_.ended() && result_.failure.empty(); ++i) {
            step();
        }
        if (host_->short_answers() != 0 && result_.failure.empty()) {
            result_.failure = "a write-back was answered short";
        }
        if (result_.failure.empty()) {
            fail_power();
        }
        return result_;
    }

  private:
    struct File {
        vfs::NodeId node = 0;
        bool is_promised = false;
    };

    void step() {
        if (files_.empty() || choices_.below(4) == 0) {
            create();
            return;
        }
        const auto file =
            std::next(files_.begin(), static_cast<long>(choices_.below(files_.size())));
        const uint64_t choice = choices_.below(16);
        if (choice < 9) {
            write(file->second);
        } else if (choice < 11) {
            host_->write_back(file->second.node, 1);
        } else if (choice < 15) {
            fsync(file);
        } else if (files_.size() > 3) {
            remove(file);
        }
    }

    void create() {
        const std::string path = "/f" + std::to_string(number_++);
        if (const Result<void> made = volume_.create(path); !made.ok()) {
            expect_no_space("create", made.error());
            return;
        }
        files_[path] = {
            MUST(volume_.file_system().lookup(vfs::kRootNode, {path.data() + 1, path.size() - 1}))
                .node};
    }

    void write(File& file) {
        file.is_promised = false;
        const uint64_t offset = choices_.below(300 * kBlock);
        const uint64_t size = 1 + choices_.below(100 * kBlock);
        host_->write(file.node, offset, test_content(choices_.below(UINT32_MAX), size));
    }

    using Place = std::map<std::string, File>::iterator;

    void fsync(Place file) {
        if (const Result<void> synced = host_->fsync(file->second.node); !synced.ok()) {
            expect_no_space("fsync", synced.error());
            ++result_.refused;
            remove(file);  // as a program would: it gives the file up
            return;
        }
        ++result_.kept;
        file->second.is_promised = true;
        compare(volume_, file->first, "after fsync");
    }

    void remove(Place file) {
        host_->drop(file->second.node);
        MUST(volume_.unlink(file->first));
        volume_.file_system().forget(file->second.node, 1);
        files_.erase(file);
    }

    void fail_power() {
        const auto outcome = kCrashOutcomes[choices_.below(std::size(kCrashOutcomes))];
        const auto after = device_.after_crash(outcome, choices_.below(UINT32_MAX));
        TestVolume volume(*after);
        MUST(volume.mount());
        for (const auto& [path, file] : files_) {
            if (file.is_promised) {
                compare(volume, path, "after a power failure");
            }
        }
        MUST(volume.unmount());
        const check::Report report = check::check_file_system(*after, {.verify_data = true});
        for (const check::Finding& finding : report.findings) {
            result_.failure += finding.line() + "\n";
        }
    }

    void compare(TestVolume& volume, const std::string& path, const std::string& when) {
        Result<std::string> content = volume.read(path);
        if (!content.ok() || *content != host_->content(files_.at(path).node)) {
            result_.failure += path + " is not what was written, " + when + "\n";
        }
    }

    void expect_no_space(const std::string& what, Error error) {
        if (error != Error::enospc) {
            result_.failure +=
                what + " fails with error " + std::to_string(errno_value(error)) + "\n";
        }
    }

    Choices& choices_;
    CrashDevice device_;
    TestVolume volume_;
    std::unique_ptr<WriteBackHost> host_;
    std::map<std::string, File> files_;
    uint64_t number_ = 0;
    WriteBackResult result_;
};

}  // namespace

WriteBackResult run_write_back(Choices& choices, uint64_t volume_bytes, uint64_t steps) {
    return Run(choices, volume_bytes).run(steps);
}

}  // namespace tiffin::test
