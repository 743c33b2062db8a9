#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# What the kernel has taken from a program, and still keeps in its queue for a slow mount, is not lost when the mount ends, and
# not refused because the file became immutable since. The kernel does not wait for such pages at syncfs.
#
# usage: queued_writes.sh SLOW_DEVICE [told]      (the library slow_device; told: the kernel tells how many requests it has)
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
[[ $(id -u) -eq 0 ]] || { echo "not run: umount takes root" && exit 77; }
slow_device=$(realpath "$1")
counts=/sys/fs/fuse/connections
if [[ ${2:-} == told ]] && ! mountpoint -q "$counts"; then
    # Elsewhere nothing changes.
    # shellcheck disable=SC2016  # for the inner shell
    exec "$(dirname "$0")/../support/own_mounts" -- bash -c 'mount -t fusectl none "$1" && shift && exec "$@"' _ "$counts" "$0" "$@"
fi
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
need_programs chattr python3
queued=$(dirname "$0")/lib/queued.py

use_device "file:$work/image" 64M
mkfifo "$work/said" "$work/answer"
writer=""
trap 'status=$?; kill $writer 2>/dev/null || true; clean_up $status' EXIT

mount_slow() {
    LD_PRELOAD=$slow_device mount_device
    grep -qF "$slow_device" "/proc/$server/maps" || fail "the daemon's device is not slow"
}
# queue FILE: keeps it open.
queue() {
    python3 "$queued" write "$mount_point/$1" "$work/answer" >"$work/said" &
    writer=$!
    read -r _ <"$work/said" || fail "nothing was queued"
}
finish() {
    : >"$work/answer"
    wait "$writer" || fail "the program ended with $?"
    writer=""
}
# expect FILE WHEN: mounts, reads and unmounts.
expect() {
    mount_device
    python3 "$queued" check "$mount_point/$1" || fail "what was written is lost, $2"
    chattr -i "$mount_point/$1"
    unmount_device
    check_device "$2"
}

say "SIGTERM while the file is open"
mount_slow
queue used
kill "$server"
wait_until has_ended "$server"
finish
expect used "after SIGTERM with an open file"

say "a file that becomes immutable"
mount_slow
queue fixed
# Not chattr(1), which closes the file once before: that waits for the pages.
python3 "$queued" fix "$mount_point/fixed" || fail "the file could not be made immutable"
finish
unmount_device
expect fixed "after the file became immutable"

say "SIGTERM after a program that has mapped the file"
mount_slow
python3 "$queued" map "$mount_point/mapped" || fail "the file could not be mapped"
kill "$server"
wait_until has_ended "$server"
expect mapped "after SIGTERM and writes to a mapping"

say "read-only after a program that has mapped the file"
mount_slow
python3 "$queued" map "$mount_point/fixed_later" || fail "the file could not be mapped"
"$bin/mount.tiffin" -o remount,ro "$device" "$mount_point"
unmount_device
expect fixed_later "after a remount and writes to a mapping"

say "a shutdown that flushes"
mount_slow
python3 "$queued" shut_down "$mount_point/flushed" || fail "no shutdown"
unmount_device
expect flushed "after a shutdown that flushes"

mount_device
connection=$counts/$(mountpoint -d "$mount_point" | cut -d: -f2)
if [[ ${2:-} == told ]]; then
    say "as many requests as the kernel passes on, all for something else than a thread"
    echo 1 >"$connection/max_background"  # the one that sets the flag is one
    : >"$mount_point/alone"
    timeout 30 chattr +i "$mount_point/alone" || fail "it waits for itself"
    chattr -i "$mount_point/alone"
fi
unmount_device

server=""
echo "passed"
