// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/session/remount_options.h"

#include "fuse/session/options.h"

namespace tiffin::fuse {
namespace {

using Options = MountOptions;

struct FixedOption {
    const char* name;
    bool (*is_equal)(const Options& a, const Options& b);
};

constexpr FixedOption kFixedOptions[] = {
    {"sync and async",
     [](const Options& a, const Options& b) {
         return a.file_system.synchronous == b.file_system.synchronous;
     }},
    {"dirsync",
     [](const Options& a, const Options& b) { return a.directory_sync == b.directory_sync; }},
    {"relatime, strictatime and noatime",
     [](const Options& a, const Options& b) {
         return a.file_system.access_times == b.file_system.access_times;
     }},
    {"errors", [](const Options& a,
                  const Options& b) { return a.file_system.errors == b.file_system.errors; }},
    {"cache",
     [](const Options& a, const Options& b) {
         return a.file_system.cache_bytes == b.file_system.cache_bytes;
     }},
    {"commit",
     [](const Options& a, const Options& b) {
         return a.file_system.commit_interval_ms == b.file_system.commit_interval_ms;
     }},
    {"norecovery",
     [](const Options& a, const Options& b) {
         return a.file_system.no_recovery == b.file_system.no_recovery;
     }},
    {"allow_other",
     [](const Options& a, const Options& b) { return a.allow_other == b.allow_other; }},
    {"context",
     [](const Options& a, const Options& b) { return a.security_contexts == b.security_contexts; }},
    {"strict_flags",
     [](const Options& a, const Options& b) { return a.strict_flags == b.strict_flags; }},
    {"write_through",
     [](const Options& a, const Options& b) { return a.write_through == b.write_through; }},
    {"cache_directories",
     [](const Options& a, const Options& b) { return a.cache_directories == b.cache_directories; }},
    {"io_uring", [](const Options& a, const Options& b) { return a.io_uring == b.io_uring; }},
    {"max_threads",
     [](const Options& a, const Options& b) { return a.max_threads == b.max_threads; }},
    {"busy_poll_us",
     [](const Options& a, const Options& b) { return a.busy_poll_us == b.busy_poll_us; }},
    {"cpu_latency_us",
     [](const Options& a, const Options& b) { return a.cpu_latency_us == b.cpu_latency_us; }},
    {"fsname", [](const Options& a, const Options& b) { return a.source == b.source; }},
    {"subtype", [](const Options& a, const Options& b) { return a.subtype == b.subtype; }},
    {"log", [](const Options& a, const Options& b) { return a.log_path == b.log_path; }},
};

}  // namespace

std::optional<Problem> check_remount_options(const std::string& asked, const std::string& running,
                                             const MountEntry& shown) {
    Options before;
    before.source = shown.source;
    // The kernel's line says what applies, whether it was asked for or is the default.
    before.allow_other = has_mount_option(shown.super_options, "allow_other");
    (void)add_mount_options(running, before, UnknownOptions::skip);
    Options after = before;
    after.security_contexts.clear();
    for (const std::string& word : split_mount_options(asked)) {
        if (has_mount_option(shown.options, word) || has_mount_option(shown.super_options, word)) {
            continue;
        }
        if (std::optional<Problem> problem = add_mount_option(word, after)) {
            return problem;
        }
    }
    if (after.security_contexts.empty()) {
        after.security_contexts = before.security_contexts;
    }
    for (const FixedOption& fixed : kFixedOptions) {
        if (!fixed.is_equal(before, after)) {
            return Problem{std::string("a mount that runs cannot change ") + fixed.name +
                               ": leave it out, or unmount and mount with it",
                           Error::einval};
        }
    }
    return std::nullopt;
}

}  // namespace tiffin::fuse
