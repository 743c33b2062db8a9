// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Names, attributes and directories.
#include "fs/vfs/types.h"
#include "tests/vm/module/bench.h"

namespace tiffin::vm {
namespace {

const vfs::Caller kRoot{};

bool equal(const unsigned char* data, size_t size_bytes, vfs::Name text) {
    return vfs::Name(reinterpret_cast<const char*>(data), size_bytes) == text;
}

ByteSpan bytes(vfs::Name text) {
    return {reinterpret_cast<const unsigned char*>(text.data), text.size_bytes};
}

}  // namespace

Result<void> change_names(Bench& bench) {
    vfs::FileSystem& fs = *bench.file_system;
    const vfs::NodeId directory = CHECK_OK(bench.make_directory(vfs::kRootNode, "names"));
    const vfs::NodeId other = CHECK_OK(bench.make_directory(directory, "other"));
    const vfs::NodeId file = CHECK_OK(bench.create(directory, "file"));
    CHECK_OK(bench.write(file, 0, 5000, 1));
    CHECK_ERROR(bench.create(directory, "file"), eexist);

    CHECK(CHECK_OK(fs.link({}, file, other, "link")).link_count == 2);
    CHECK_OK(fs.make_symlink(kRoot, directory, "symlink", "other/link", {}));
    unsigned char target[32];
    const vfs::NodeId symlink = CHECK_OK(bench.find(directory, "symlink"));
    const size_t length = CHECK_OK(fs.read_link(symlink, target));
    CHECK(equal(target, length, "other/link"));

    CHECK_OK(fs.rename({}, directory, "file", other, "moved", 0));
    CHECK_ERROR(fs.lookup(directory, "file"), enoent);
    CHECK(CHECK_OK(bench.find(other, "moved")) == file);
    CHECK_ERROR(fs.rename({}, other, "moved", other, "link", vfs::rename_flag::no_replace), eexist);
    CHECK_ERROR(fs.rename({}, vfs::kRootNode, "names", other, "loop", 0), einval);
    const vfs::NodeId victim = CHECK_OK(bench.create(other, "victim"));
    CHECK_OK(fs.rename({}, other, "link", other, "victim", 0));
    CHECK(CHECK_OK(bench.find(other, "victim")) == file);
    fs.forget(victim, 1);

    CHECK_OK(fs.unlink({}, other, "moved"));
    CHECK_ERROR(fs.remove_directory({}, directory, "other"), enotempty);
    CHECK_ERROR(fs.unlink({}, directory, "other"), eisdir);
    CHECK_OK(fs.unlink({}, other, "victim"));
    // Without a name it lives on until its references are gone.
    TRY(bench.verify(file, 0, 5000, 1));
    fs.forget(file, 4);  // create, link, and two lookups
    CHECK_OK(fs.remove_directory({}, directory, "other"));
    CHECK_OK(fs.unlink({}, directory, "symlink"));
    CHECK_OK(fs.remove_directory({}, vfs::kRootNode, "names"));
    return {};
}

Result<void> change_attributes(Bench& bench) {
    vfs::FileSystem& fs = *bench.file_system;
    const vfs::NodeId file = CHECK_OK(bench.create(vfs::kRootNode, "attributes"));
    CHECK_OK(bench.write(file, 0, 100000, 3));

    vfs::AttributeChange change;
    change.valid = vfs::AttributeChange::mode_bit | vfs::AttributeChange::modification_time_bit |
                   vfs::AttributeChange::size_bit;
    change.mode = 0600;
    change.modification_time = {1234567890, 123456789};
    change.size_bytes = 10001;
    const vfs::Attributes changed = CHECK_OK(fs.set_attributes(kRoot, file, change));
    CHECK((changed.mode & vfs::mode::permission_mask) == 0600);
    CHECK(changed.modification_time == change.modification_time);
    CHECK(changed.size_bytes == 10001);
    // What was cut off does not come back.
    change.valid = vfs::AttributeChange::size_bit;
    change.size_bytes = 50000;
    CHECK_OK(fs.set_attributes(kRoot, file, change));
    TRY(bench.verify(file, 0, 10001, 3));
    TRY(bench.verify_zeros(file, 10001, 50000 - 10001));

    CHECK_OK(fs.set_xattr({}, file, "user.short", bytes("value"), 0));
    bench.buffer.fill(4, 0, 3000);
    CHECK_OK(fs.set_xattr({}, file, "user.long", ByteSpan(bench.buffer.data(), 3000), 0));
    unsigned char value[64];
    CHECK(CHECK_OK(fs.get_xattr(file, "user.short", value)) == 5);
    CHECK(equal(value, 5, "value"));
    CHECK_ERROR(fs.get_xattr(file, "user.long", value), erange);
    CHECK_ERROR(fs.get_xattr(file, "user.none", value), enodata);
    __builtin_memset(bench.buffer.data(), 0, 3000);
    CHECK(CHECK_OK(fs.get_xattr(file, "user.long", {bench.buffer.data(), 3000})) == 3000);
    CHECK(bench.buffer.matches(4, 0, 3000));
    CHECK(CHECK_OK(fs.list_xattr(file, value)) == sizeof "user.short" + sizeof "user.long");
    CHECK_OK(fs.remove_xattr({}, file, "user.short"));
    CHECK_ERROR(fs.remove_xattr({}, file, "user.short"), enodata);
    CHECK_OK(fs.unlink({}, vfs::kRootNode, "attributes"));
    fs.forget(file, 1);
    return {};
}

Result<void> list_directories(Bench& bench) {
    constexpr uint32_t kFiles = 500;
    vfs::FileSystem& fs = *bench.file_system;
    const vfs::NodeId directory = CHECK_OK(bench.make_directory(vfs::kRootNode, "many"));
    for (uint32_t i = 0; i < kFiles; ++i) {
        const vfs::NodeId file = CHECK_OK(bench.create(directory, NumberedName("file", i)));
        fs.forget(file, 1);
    }
    CHECK(CHECK_OK(bench.count_entries(directory)) == kFiles);
    for (uint32_t i = 0; i < kFiles; i += 2) {
        CHECK_OK(fs.unlink({}, directory, NumberedName("file", i)));
    }
    CHECK(CHECK_OK(bench.count_entries(directory)) == kFiles / 2);
    CHECK_ERROR(fs.lookup(directory, NumberedName("file", 0)), enoent);
    fs.forget(CHECK_OK(bench.find(directory, NumberedName("file", 1))), 1);
    for (uint32_t i = 1; i < kFiles; i += 2) {
        CHECK_OK(fs.unlink({}, directory, NumberedName("file", i)));
    }
    CHECK_OK(fs.remove_directory({}, vfs::kRootNode, "many"));
    return {};
}

}  // namespace tiffin::vm
