// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/session/options.h"

#include <algorithm>

#include "fuse/session/option_table.h"

namespace tiffin::fuse {
namespace {

Problem without_value(const std::string& name, const char* argument) {
    return Problem{"the mount option " + name + " wants a value: " + name + "=" + argument};
}

}  // namespace

std::optional<Problem> add_mount_option(const std::string& word, MountOptions& options,
                                        UnknownOptions unknown) {
    const size_t name_end = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, name_end);
    const bool has_value = name_end < word.size();
    for (const MountOption& option : mount_option_table()) {
        for (const OptionName& known : option.names) {
            if (name.empty() || name != known.name || (has_value && option.argument == nullptr)) {
                continue;
            }
            if (!has_value && option.argument != nullptr) {
                return without_value(name, option.argument);
            }
            return known.apply(name, has_value ? word.substr(name_end + 1) : "", options);
        }
    }
    if (is_ignored_mount_option(word) || unknown == UnknownOptions::skip) {
        return std::nullopt;
    }
    return Problem{"unknown mount option \"" + word + "\": see mount.tiffin --help"};
}

std::vector<std::string> split_mount_options(std::string_view text) {
    std::vector<std::string> words;
    std::string word;
    bool is_quoted = false;
    for (size_t i = 0; i <= text.size(); ++i) {
        const char next = i < text.size() ? text[i] : '\0';
        if (next == '\\' && i + 1 < text.size()) {
            word += text[++i];
        } else if (next == '"' && (is_quoted || (i > 0 && text[i - 1] == '=' &&
                                                 text.find('"', i + 1) != text.npos))) {
            is_quoted = !is_quoted;
        } else if (i < text.size() && (next != ',' || is_quoted)) {
            word += next;
        } else if (!word.empty()) {
            words.push_back(word);
            word.clear();
        }
    }
    return words;
}

std::string quoted_mount_option(const std::string& word) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || word.find(',') == std::string::npos) {
        return word;
    }
    return word.substr(0, equals + 1) + '"' + word.substr(equals + 1) + '"';
}

std::optional<Problem> add_mount_options(std::string_view text, MountOptions& options,
                                         UnknownOptions unknown) {
    for (const std::string& word : split_mount_options(text)) {
        if (std::optional<Problem> problem = add_mount_option(word, options, unknown)) {
            return problem;
        }
    }
    return std::nullopt;
}

bool has_mount_option(const std::string& words, const std::string& word) {
    return ("," + words + ",").find("," + word + ",") != std::string::npos;
}

std::optional<Problem> check_remount_options(const std::string& asked, const std::string& running,
                                             const MountEntry& shown) {
    MountOptions before;
    before.source = shown.source;
    // The kernel's line says what applies, whether it was asked for or is the default.
    before.allow_other = has_mount_option(shown.super_options, "allow_other");
    (void)add_mount_options(running, before, UnknownOptions::skip);
    MountOptions after = before;
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
    for (const MountOption& option : mount_option_table()) {
        if (!option.may_become(before, after)) {
            return Problem{std::string("a mount that runs cannot change ") + option.title +
                               ": leave it out, or unmount and mount with it",
                           Error::einval};
        }
    }
    return std::nullopt;
}

OrProblem<std::vector<std::string>> kernel_mount_options(const MountOptions& options,
                                                         bool is_root) {
    if (!is_root && (options.suid == true || options.dev == true)) {
        return Problem{
            std::string("only root can mount with ") + (options.suid == true ? "suid" : "dev"),
            Error::eperm};
    }
    std::vector<std::string> result = options.security_contexts;
    auto add_if = [&](bool condition, const char* word) {
        if (condition) {
            result.emplace_back(word);
        }
    };
    add_if(options.file_system.read_only, "ro");
    add_if(options.file_system.synchronous, "sync");
    add_if(options.directory_sync, "dirsync");
    add_if(options.file_system.access_times == AccessTimeUpdates::never, "noatime");
    add_if(options.allow_other.value_or(is_root), "allow_other");
    // libfuse's own default is nosuid and nodev.
    add_if(options.suid.value_or(is_root), "suid");
    add_if(options.dev.value_or(is_root), "dev");
    add_if(options.exec == false, "noexec");
    add_if(options.follow_symlinks == false, "nosymfollow");
    return result;
}

std::string mount_options_help() {
    std::string text;
    for (const MountOption& option : mount_option_table()) {
        for (const OptionName& name : option.names) {
            if (name.help != nullptr) {
                std::string shown(name.name);
                shown += option.argument != nullptr ? std::string("=") + option.argument : "";
                shown.resize(std::max<size_t>(shown.size() + 1, 28), ' ');
                text.append("  ").append(shown).append(name.help).append("\n");
            }
        }
    }
    return text;
}

}  // namespace tiffin::fuse
