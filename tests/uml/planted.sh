#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Faults that are planted in the module, to see that the checks would find them: promised room that is not given back, and, in
# a kernel with kmemleak, memory of the framework that is not released. Run by tests/uml/run.
set -euo pipefail
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
# shellcheck source=tests/uml/lib/promises.sh
source "$(dirname "$0")/lib/promises.sh"
parameters=/sys/module/tiffin_vfs/parameters
make_device 200
load_modules
make_file_system

say "promises that are kept"
mount_device rw
echo 1 >$parameters/keeps_promises
! check_promises >/tmp/found || fail "nobody noticed that promised room is not given back"
grep -q "blocks are missing" /tmp/found || fail "something else was noticed: $(</tmp/found)"
echo 0 >$parameters/keeps_promises
unmount_device
mount_device rw
check_promises || fail "something is noticed without a fault"
unmount_device
check_device "promises that were kept"

say "names that have changed, though not durably"
mount_device dirsync
(cd "$mount_point" && touch a b c && mkdir d e)
# COMMAND...: its commit fails; then each name is found exactly if it is listed.
commit_fails() {
    echo fsync >$parameters/fail_operation
    echo 1 >$parameters/fail_after
    ! "$@" 2>/tmp/said || fail "$* has told of no error"
    [[ $(<$parameters/fail_after) -eq 0 ]] || fail "$* has committed nothing"
    local name listed found
    for name in a a2 b c d e f; do
        listed=$(find "$mount_point" -mindepth 1 -maxdepth 1 -name "$name" | wc -l)
        found=$(stat "$mount_point/$name" >/dev/null 2>&1 && echo 1 || echo 0)
        [[ $listed -eq $found ]] || fail "after $*: $name is listed $listed times, and found $found times"
    done
}
commit_fails mv "$mount_point/a" "$mount_point/a2"
commit_fails mv -T "$mount_point/c" "$mount_point/a2"
commit_fails rm "$mount_point/b"
commit_fails rmdir "$mount_point/d"
commit_fails mv "$mount_point/e" "$mount_point/f"
unmount_device
check_device "names whose commit failed"

if [[ -e $kmemleak ]]; then
    say "a mount that is not released"
    echo 1 >$parameters/leaks_mounts
    mount_device rw
    unmount_device
    echo 0 >$parameters/leaks_mounts
    # Not to be loaded again: KASAN would take a module's memory for what was there before.
    rmmod tiffin_tiffinfs tiffin_vfs
    ! check_leaks >/tmp/found || fail "kmemleak did not notice a mount that was not released"
    grep -q "unreferenced object" /tmp/found || fail "something else was noticed: $(</tmp/found)"
else
    unload_modules
fi
say "done"
