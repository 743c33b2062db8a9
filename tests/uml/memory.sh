#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Allocations of the core fail: calls may, but what has succeeded is there, and nothing is left behind; and no call waits
# without limit. Run by tests/uml/run.
#
# usage: memory.sh [EVERY...]
set -euo pipefail
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
: "${repository:?tests/uml/run starts this}"
make_device 200
load_modules
make_file_system
fail_every=/sys/module/tiffin_tiffinfs/parameters/fail_every
[[ $# -gt 0 ]] || set -- 5 97 211
for every in "$@"; do
    say "one allocation of $every"
    mount_device rw
    echo "$every" >"$fail_every"
    python3 "$repository/tests/uml/failing_memory.py" "$mount_point" /tmp/expected "$every" || fail "see above"
    echo 0 >"$fail_every"
    drop_caches
    python3 "$repository/tests/uml/failing_memory.py" "$mount_point" /tmp/expected verify || fail "see above"
    remount "one allocation of $every"
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

say "all allocations"
mount_device rw
python3 - "$mount_point/file" "$fail_every" <<'END' || fail "see above"
import errno, os, sys
def set_failing(every):
    with open(sys.argv[2], "w") as parameter:
        parameter.write(str(every))
# The first change of a mount finds nothing in its caches.
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.pwrite(file, b"b" * 900, 0)
set_failing(1)
try:
    os.fsync(file)
    sys.exit("fsync has succeeded without memory")
except OSError as error:
    assert error.errno == errno.ENOMEM, error
set_failing(0)
os.pwrite(file, b"c" * 900, 0)
os.fsync(file)
END
drop_caches
[[ $(tr -d c <"$mount_point/file" | wc -c) -eq 0 ]] || fail "what was written after the failure is not there"
unmount_device
check_device "all allocations"
unload_modules
