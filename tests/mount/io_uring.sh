#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# FUSE over io_uring: the end by a signal while threads wait for the device, and more requests that wait for write-back than
# the kernel has places for.
#
# usage: io_uring.sh
#
# Exit status 77: not run, as the kernel's administrator has not enabled it.
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
if [[ $(cat /sys/module/fuse/parameters/enable_uring 2>/dev/null) != Y ]]; then
    echo "NOT RUN: /sys/module/fuse/parameters/enable_uring is not Y"
    exit 77
fi
use_device "file:$work/image" 64M

say "a signal while threads wait for the device"
mount_device io_uring
"$bin/tiffin" status "$mount_point" | grep -q "^FUSE features: .*io_uring" || fail "io_uring is not used"
for i in {1..6}; do
    (cd "$mount_point" && exec 2>/dev/null && while dd if=/dev/zero of="$i" bs=8k count=4 conv=fsync; do :; done) &
done
sleep 0.5
kill -s TERM "$server"
wait
wait_until has_ended "$server"
! grep "assertion" "$log" || fail "the signal has stopped the server within a request"
mount_device ""
unmount_device
! grep "replayed" "$log" || fail "the server has not unmounted the volume"

say "many programs that look for holes"
mount_device io_uring
seekers=()
for i in {1..40}; do
    python3 -c 'import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for i in range(20):
    os.pwrite(file, b"x", 1 << 20)
    os.lseek(file, 0, os.SEEK_DATA)
    os.ftruncate(file, 0)' "$mount_point/$i" &
    seekers+=($!)
done
for seeker in "${seekers[@]}"; do
    wait "$seeker" || fail "a program that looks for holes has failed"
done
unmount_device
echo "passed"
