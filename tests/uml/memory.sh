#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Allocations of the core fail: calls may, but what has succeeded is there, and nothing is left behind. Run by tests/uml/run.
set -euo pipefail
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
: "${repository:?tests/uml/run starts this}"
make_device 200
load_modules
make_file_system
fail_every=/sys/module/tiffin_tiffinfs/parameters/fail_every
for every in 97 211; do
    say "each allocation of $every"
    mount_device rw
    echo "$every" >"$fail_every"
    python3 "$repository/tests/uml/failing_memory.py" "$mount_point" /tmp/expected "$every" || fail "see above"
    echo 0 >"$fail_every"
    drop_caches
    python3 "$repository/tests/uml/failing_memory.py" "$mount_point" /tmp/expected verify || fail "see above"
    remount "each allocation of $every"
    python3 "$repository/tests/uml/failing_memory.py" "$mount_point" /tmp/expected verify || fail "after a remount: see above"
    # Unmounting when allocations fail.
    echo "$every" >"$fail_every"
    rm -rf "${mount_point:?}"/* 2>/dev/null || true
    umount "$mount_point" || fail "umount"
    echo 0 >"$fail_every"
    mount_device rw
    find "$mount_point" -mindepth 1 -delete
    unmount_device
    check_device "the end of $every"
done
unload_modules
