#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# What the process of a mount takes from the one that starts it.
set -euo pipefail
# shellcheck source=tests/mount/lib/fuse.sh
source "$(dirname "$0")/lib/fuse.sh"

# ---- Descriptors ---------------------------------------------------------------------------------
exec 9>"$work/lock"
flock 9
mount_it
exec 9>&-
flock --nonblock "$work/lock" true || fail "the server keeps its starter's lock"
unmount_it

for closed in "<&-" ">&-" "<&- >&-" "<&- >&- 2>&-"; do
    eval "\"$mount_program\" none \"$mount_point\" $closed &"
    starter=$!
    wait_until has_ended "$starter"
    wait "$starter" || fail "mounting with $closed ended with $?"
    process=$(server)
    for descriptor in 0 1 2; do
        [[ $(readlink "/proc/$process/fd/$descriptor") == /dev/null ]] ||
            fail "with $closed descriptor $descriptor of the server is not /dev/null"
    done
    echo content >"$mount_point/file"
    [[ $(<"$mount_point/file") == content ]] || fail "what was written is not there"
    unmount_it
done
echo "passed"
