// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/session/privilege_change.h"

#include "fuse/session/request.h"
#include "fuse/session/session.h"

namespace tiffin::fuse {
namespace {

using Change = vfs::AttributeChange;

// That set-group-id stays without group execution, but not for this caller.
void add_group_rule(const Request& request, const vfs::Attributes& attributes, Change& change) {
    constexpr uint32_t group_bits = vfs::mode::set_group_id | vfs::mode::group_execute;
    if ((attributes.mode & group_bits) != vfs::mode::set_group_id ||
        vfs::mode::is_directory(attributes.mode) || request.caller().user_id == 0 ||
        request.caller_is_in_group(attributes.group_id)) {
        return;
    }
    // Not the mode that is right now: another program may change it before this takes effect.
    change.valid |= Change::kill_privileges_bit | Change::kill_set_group_id_bit;
}

// Whether privileges of a file with this mode go by the change.
bool would_clear(uint32_t mode, const Change& change) {
    constexpr uint32_t group_bits = vfs::mode::set_group_id | vfs::mode::group_execute;
    return !vfs::mode::is_directory(mode) &&
           ((mode & vfs::mode::set_user_id) != 0 || (mode & group_bits) == group_bits ||
            (change.valid & Change::kill_set_group_id_bit) != 0);
}

}  // namespace

Result<void> complete_change(const Request& request, vfs::NodeId node, Change& change) {
    constexpr uint32_t owner_bits = Change::user_id_bit | Change::group_id_bit;
    // chown() to the owners that there are: a change of the change time alone for regular files, whose times
    // the kernel keeps, and of nothing for others. Nothing for a regular file is what precedes a write to one
    // that has privileges; that write takes them. (With write_through the kernel keeps no times
    // and the two look alike: such a chown() has no effect there.)
    const bool changes_nothing = (change.valid & ~uint32_t{Change::change_time_bit}) == 0;
    if (!changes_nothing && (change.valid & (owner_bits | Change::kill_privileges_bit)) == 0)
        [[likely]] {
        return {};
    }
    const vfs::Attributes attributes = TRY(request.file_system().get_attributes(node));
    if (change.valid == 0 && vfs::mode::is_regular(attributes.mode)) {
        return {};
    }
    if (changes_nothing) {
        change.valid |= Change::kill_privileges_bit;
    }
    if ((change.valid & Change::mode_bit) == 0) {
        add_group_rule(request, attributes, change);
    }
    // The kernel lets every user do nothing; but this would be a chmod().
    const uint32_t caller = request.caller().user_id;
    if (changes_nothing && caller != 0 && caller != attributes.user_id &&
        would_clear(attributes.mode, change)) {
        return Error::eperm;
    }
    return {};
}

Result<void> clear_privileges(Request& request, vfs::NodeId node) {
    if (request.caller().user_id == 0) {
        return {};
    }
    Result<vfs::Attributes> attributes = request.file_system().get_attributes(node);
    constexpr uint32_t set_id_bits = vfs::mode::set_user_id | vfs::mode::set_group_id;
    if (!attributes.ok() || (attributes.value().mode & set_id_bits) == 0) {
        return {};
    }
    vfs::AttributeChange change;
    change.valid = Change::kill_privileges_bit;
    add_group_rule(request, attributes.value(), change);
    TRY(request.file_system().set_attributes(request.caller(), node, change));
    request.session().forget_attributes(node);
    return {};
}

}  // namespace tiffin::fuse
