#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A server that never comes back: after timeout_s everything fails with EIO, and goes on to do so; the log says why.
#
# usage: unreachable.sh [tcp|shm|sdr]
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"
need_programs python3 timeout

# ends_with_eio WHAT: it ends, long before the timeout that is the default.
ends_with_eio() {
    timeout 40 python3 - "$1" "$mount_point" <<'PYTHON' || fail "$1 ended with $?, and not with EIO"
import errno, os, sys

what, folder = sys.argv[1:]
try:
    if what == "fsync":
        file = os.open(folder + "/written", os.O_RDWR | os.O_CREAT)
        while True:  # over shm nothing is missed before the session finds out
            os.pwrite(file, os.urandom(100), 0)
            os.fsync(file)
    elif what == "read":
        with open(folder + "/large", "rb") as file:
            file.read()
    else:
        os.mkdir(folder + "/more")
except OSError as error:
    sys.exit(None if error.errno == errno.EIO else f"{what}: {error}")
sys.exit(f"{what}: no error")
PYTHON
}

start_server
use_device "$(make_volume books 64M)&timeout_s=3"
mount_device
head -c 1000000 /dev/urandom >"$mount_point/large"
unmount_device
mount_device

say "killed for good"
kill_server
ends_with_eio fsync
wait_until grep -q "could not be reached for as long as timeout_s= allows; everything fails with EIO" "$log"
is_shut_down() { "$bin/tiffin" status "$mount_point" | grep -qx "state: shut down"; }
wait_until is_shut_down
ends_with_eio read
ends_with_eio mkdir

say "a server again, which changes nothing"
start_server
ends_with_eio read
ends_with_eio mkdir
unmount_device
[[ $(grep -c "could not be reached" "$log") -eq 1 ]] || fail "not one line in the log: $(<"$log")"

if [[ $transport == tcp ]]; then
    say "a server that has stopped when it is mounted"
    stopped=$(worker)
    kill -STOP "$stopped"
    status=0
    "$bin/mount.tiffin" "$device" "$mount_point" -o "log=$log" 2>"$work/said" || status=$?
    kill -CONT "$stopped"
    [[ $status -eq 32 ]] || fail "mounting ended with $status: $(<"$work/said")"
    grep -q "nothing has answered in time" "$work/said" || fail "mounting says $(<"$work/said")"
fi
echo "passed"
