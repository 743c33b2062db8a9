// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What each type of record does to the tree, for commits and for replay alike.
#include "fs/tiffinfs/volume/transaction_workspace.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {
namespace {

template <typename T>
T read_value(ByteSpan value) {
    T result;
    __builtin_memcpy(&result, value.data(), sizeof(T));
    return result;
}

ExtentValue extent_of(ByteSpan value) { return read_value<ExtentValue>(value); }

int erase_key(TransactionWorkspace& workspace, Key key) {
    bool existed = workspace.context.tree.erase(key, workspace.reservation);
    return existed && key.kind() == Kind::inode ? -1 : 0;
}

}  // namespace

Result<void> prepare_record(TransactionWorkspace& workspace, RecordType type, Key key,
                            ByteSpan value) {
    Tree& tree = workspace.context.tree;
    switch (type) {
        case RecordType::put:
            return tree.prepare(key, key, workspace.pins, Tree::Neighbours::unwanted);
        case RecordType::erase:
            return tree.prepare(key, key, workspace.pins);
        case RecordType::erase_range:
            if (value.size() != sizeof(Key)) {
                return Error::euclean;
            }
            return tree.prepare(key, read_value<Key>(value), workspace.pins);
        case RecordType::write_extent:
            if (!check_new_extent(value, workspace.context.allocator.total_blocks())) {
                return Error::euclean;
            }
            return prepare_extent_change(tree, workspace.context.allocator, key.node, key.offset(),
                                         extent_of(value).block_count, workspace.pins,
                                         workspace.freed, workspace.context.found);
        case RecordType::unmap:
            if (value.size() != sizeof(uint64_t)) {
                return Error::euclean;
            }
            return prepare_extent_change(tree, workspace.context.allocator, key.node, key.offset(),
                                         read_value<uint64_t>(value), workspace.pins,
                                         workspace.freed, workspace.context.found);
    }
    return Error::euclean;
}

int apply_record(TransactionWorkspace& workspace, RecordType type, Key key, ByteSpan value) {
    Tree& tree = workspace.context.tree;
    switch (type) {
        case RecordType::put: {
            bool is_new = tree.put(key, value, workspace.reservation);
            return is_new && key.kind() == Kind::inode ? 1 : 0;
        }
        case RecordType::erase:
            return erase_key(workspace, key);
        case RecordType::erase_range: {
            Key end = read_value<Key>(value);
            int change = 0;
            Key next = key;
            while (tree.find_first_prepared(next, end, workspace.reservation,
                                            workspace.context.found)) {
                next = next_key(workspace.context.found.key);
                change += erase_key(workspace, workspace.context.found.key);
            }
            return change;
        }
        case RecordType::write_extent:
            apply_write_extent(workspace.context, key, value);
            return 0;
        case RecordType::unmap:
            apply_unmap(workspace.context, key, read_value<uint64_t>(value));
            return 0;
    }
    return 0;
}

}  // namespace tiffin::tiffinfs
