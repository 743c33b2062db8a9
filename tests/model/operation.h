// SPDX-License-Identifier: MIT OR GPL-2.0-only
// One random operation on a file system: what it is, how it is chosen, and how it is told.
#pragma once

#include <cstdint>
#include <string>

#include "tests/support/choices.h"

namespace tiffin::model {

// How many files a player keeps open at most.
inline constexpr int kSlots = 6;

enum class OperationKind : uint8_t {
    open,
    open_temporary,
    close,
    write,
    append,
    read,
    truncate_file,
    truncate_path,
    allocate,
    copy,
    fsync,
    seek,
    stat,
    stat_file,
    list,
    link,
    link_file,
    unlink,
    make_directory,
    remove_directory,
    rename,
    make_symlink,
    read_symlink,
    make_node,
    change_mode,
    change_owner,
    set_times,
    set_xattr,
    get_xattr,
    list_xattr,
    remove_xattr,
    set_flags,
    synchronize,
    count,
};

// What the members mean depends on the kind; all of them are decided when the operation is chosen, so
// that playing it twice does the same.
struct Operation {
    OperationKind kind = OperationKind::stat;
    std::string path;
    std::string other;  // second path, symlink target, or name of an extended attribute
    int slot = 0;
    int other_slot = 0;
    int64_t offset = 0;
    int64_t other_offset = 0;
    int64_t length = 0;
    uint32_t flags = 0;    // of the call
    uint32_t number = 0;   // mode, user id and the like
    uint64_t seed = 0;     // of data
    bool as_user = false;  // by an ordinary user

    // One line for people, such as "rename a/b c flags 1".
    std::string text() const;
};

struct GeneratorOptions {
    bool ordinary_users = true;  // some writes by a user without capabilities
    bool file_flags = true;
    bool far_offsets = true;  // now and then terabytes out
    bool collapse_insert = true;
    bool special_files = true;  // fifos, sockets, devices
};

// Chooses operations.
class Generator {
  public:
    // `choices` must live as long.
    Generator(test::Choices& choices, const GeneratorOptions& options)
        : choices_(choices), options_(options) {}

    Operation next();
    // 0 to limit - 1.
    uint64_t below(uint64_t limit) { return choices_.below(limit); }

  private:
    OperationKind choose_kind();
    std::string choose_path();
    int64_t choose_offset();
    int64_t choose_length();
    void fill_allocate(Operation& operation);
    void fill_open(Operation& operation);
    void fill_xattr(Operation& operation);

    test::Choices& choices_;
    GeneratorOptions options_;
};

}  // namespace tiffin::model
