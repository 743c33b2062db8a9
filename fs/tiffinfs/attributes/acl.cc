// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/tiffinfs/attributes/acl.h"

namespace tiffin::tiffinfs {
namespace {

constexpr uint32_t kAllPermissions = 7;
constexpr uint32_t kModePermissions = 0777;

size_t entry_count(size_t acl_bytes) { return (acl_bytes - sizeof(AclHeader)) / sizeof(AclEntry); }

// Entries need not be aligned in memory.
AclEntry load_entry(ByteSpan acl, size_t index) {
    AclEntry entry;
    __builtin_memcpy(&entry, acl.data() + sizeof(AclHeader) + index * sizeof(entry), sizeof(entry));
    return entry;
}

void store_entry(MutableByteSpan acl, size_t index, const AclEntry& entry) {
    __builtin_memcpy(acl.data() + sizeof(AclHeader) + index * sizeof(entry), &entry, sizeof(entry));
}

// Checks the order of entries: owner, users, owning group, groups, mask, others. The mask must be
// there when users or groups are.
class OrderChecker {
  public:
    bool accept(const AclEntry& entry) {
        if ((entry.permissions & ~kAllPermissions) != 0) {
            return false;
        }
        switch (entry.tag) {
            case acl_tag::owner:
                return advance(State::start, State::users);
            case acl_tag::user:
                needs_mask_ = true;
                return state_ == State::users && entry.id != kAclNoId;
            case acl_tag::owning_group:
                return advance(State::users, State::groups);
            case acl_tag::group:
                needs_mask_ = true;
                return state_ == State::groups && entry.id != kAclNoId;
            case acl_tag::mask:
                return advance(State::groups, State::others);
            case acl_tag::others:
                return advance(State::others, State::end) ||
                       (!needs_mask_ && advance(State::groups, State::end));
            default:
                return false;
        }
    }
    bool complete() const { return state_ == State::end; }

  private:
    enum class State { start, users, groups, others, end };

    bool advance(State from, State to) {
        if (state_ != from) {
            return false;
        }
        state_ = to;
        return true;
    }

    State state_ = State::start;
    bool needs_mask_ = false;
};

// Where the entries are that stand for the three classes of a mode.
struct ClassEntries {
    size_t owner = 0;
    size_t group = 0;  // the mask where there is one
    size_t others = 0;
    bool extended = false;  // has more than the three
};

ClassEntries find_classes(ByteSpan acl) {
    ClassEntries classes;
    for (size_t i = 0; i < entry_count(acl.size()); ++i) {
        switch (load_entry(acl, i).tag) {
            case acl_tag::owner:
                classes.owner = i;
                break;
            case acl_tag::owning_group:
            case acl_tag::mask:  // comes later
                classes.group = i;
                break;
            case acl_tag::others:
                classes.others = i;
                break;
            default:
                break;
        }
    }
    classes.extended = entry_count(acl.size()) > 3;
    return classes;
}

void set_permissions(MutableByteSpan acl, size_t index, uint32_t permissions) {
    AclEntry entry = load_entry(acl, index);
    entry.permissions = static_cast<uint16_t>(permissions & kAllPermissions);
    store_entry(acl, index, entry);
}

}  // namespace

Result<uint32_t> check_acl(ByteSpan acl) {
    AclHeader header;
    if (acl.size() < sizeof(header) || (acl.size() - sizeof(header)) % sizeof(AclEntry) != 0) {
        return Error::einval;
    }
    __builtin_memcpy(&header, acl.data(), sizeof(header));
    if (header.version != kAclVersion) {
        return Error::eopnotsupp;
    }
    const size_t count = entry_count(acl.size());
    OrderChecker order;
    for (size_t i = 0; i < count; ++i) {
        if (!order.accept(load_entry(acl, i))) {
            return Error::einval;
        }
    }
    if (count != 0 && !order.complete()) {
        return Error::einval;
    }
    return static_cast<uint32_t>(count);
}

void normalize_acl(MutableByteSpan acl) {
    for (size_t i = 0; i < entry_count(acl.size()); ++i) {
        AclEntry entry = load_entry(acl, i);
        if (entry.tag != acl_tag::user && entry.tag != acl_tag::group) {
            entry.id = kAclNoId;
            store_entry(acl, i, entry);
        }
    }
}

bool acl_to_mode(ByteSpan acl, uint32_t& mode) {
    const ClassEntries classes = find_classes(acl);
    mode = (mode & ~kModePermissions) | uint32_t{load_entry(acl, classes.owner).permissions} << 6 |
           uint32_t{load_entry(acl, classes.group).permissions} << 3 |
           uint32_t{load_entry(acl, classes.others).permissions};
    return !classes.extended;
}

void apply_mode_to_acl(MutableByteSpan acl, uint32_t mode) {
    const ClassEntries classes = find_classes(acl);
    set_permissions(acl, classes.owner, mode >> 6);
    set_permissions(acl, classes.group, mode >> 3);
    set_permissions(acl, classes.others, mode);
}

bool inherit_acl(MutableByteSpan acl, uint32_t& mode) {
    uint32_t allowed = mode;
    const bool complete = acl_to_mode(acl, allowed);
    mode &= allowed;
    apply_mode_to_acl(acl, mode);
    return complete;
}

}  // namespace tiffin::tiffinfs
