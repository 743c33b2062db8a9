#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A volume that fills up while programs write through the kernel's cache: what write, fsync, close and cp
# said to have succeeded is there after a remount, and what was lost is told, with the exact error.
#
# usage: filling_volume.sh file:PATH [SEED]             (what PATH holds is lost)
set -euo pipefail
[[ $# -ge 1 ]] || { echo "usage: $(basename "$0") file:PATH [SEED]" >&2; exit 2; }
address=$1
seed=${2:-1}
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
need_programs python3 cmp

remount() {
    unmount_device
    check_device "$1"
    mount_device ""
}

say "cp until the volume is full"
for size in 5000 700000 3000000; do
    use_device "$address" 64M
    mount_device ""
    head -c 57000000 /dev/zero >"$mount_point/fill"
    sync -d "$mount_point/fill"
    head -c "$size" /dev/urandom >"$work/source"
    copies=0
    while cp "$work/source" "$mount_point/copy-$copies" 2>"$work/error"; do
        copies=$((copies + 1))
        ((copies < 5000)) || fail "the volume of 64 MiB does not fill up"
    done
    grep -q "No space left on device" "$work/error" || fail "cp: $(<"$work/error")"
    remount "cp of $size bytes"
    for ((i = 0; i < copies; i++)); do
        cmp -s "$work/source" "$mount_point/copy-$i" ||
            fail "copy $i of $copies, of $size bytes, differs after cp has succeeded"
    done
    unmount_device
done

say "errors of fsync, close, syncfs and msync"
use_device "$address" 64M
mount_device ""
python3 "$(dirname "$0")/filling_volume.py" errors "$mount_point" || fail "errors"
remount "errors"
unmount_device
use_device "$address" 64M
mount_device write_through
python3 "$(dirname "$0")/filling_volume.py" read "$mount_point" || fail "read"
unmount_device
use_device "$address" 64M
mount_device ""

say "a program that only writes, and one that is closed by a reader first"
# The kernel caches but a share of what is free, so both learn it long before they have written 64 times as much.
! dd if=/dev/zero of="$mount_point/fill" bs=1M count=4096 2>"$work/error" || fail "dd has written 4 GiB"
grep -q "error writing" "$work/error" || fail "dd: $(<"$work/error")"
rm "$mount_point/fill"
python3 "$(dirname "$0")/filling_volume.py" stolen "$mount_point" || fail "closed by a reader first"
remount "a program that only writes"

if [[ $(id -u) -eq 0 ]]; then
    say "the kernel's share of dirty pages"
    limit=/sys/class/bdi/0:$(stat -c %d "$mount_point")/max_bytes
    rm -f "$mount_point"/*
    head -c 50000000 /dev/zero >"$mount_point/fill"
    sync -d "$mount_point/fill"
    # The kernel keeps a share of what may be dirty at all: some bytes more or less than was asked for.
    (($(<"$limit") < 9 << 20)) || fail "nearly full, $(<"$limit") bytes may be dirty"
    # Also before anything is written back.
    remount "the kernel's share"
    limit=/sys/class/bdi/0:$(stat -c %d "$mount_point")/max_bytes
    is_limited() { (($(<"$limit") < 9 << 20)); }
    wait_until is_limited
    rm "$mount_point/fill"
    space_is_back() { (($(df --output=avail -B1 "$mount_point" | tail -n 1) > 50000000)); }
    wait_until space_is_back
    head -c 4000000 /dev/zero >"$mount_point/fill"
    sync -d "$mount_point/fill"
    (($(<"$limit") >= 12 << 20)) || fail "nearly empty, only $(<"$limit") bytes may be dirty"
    rm "$mount_point/fill"
fi
unmount_device

say "programs on a volume that fills and empties, seed $seed"
use_device "$address" 64M
mount_device ""
python3 "$(dirname "$0")/filling_volume.py" programs "$mount_point" "$work/expected" "$seed" ||
    fail "programs, seed $seed"
remount "programs"
python3 "$(dirname "$0")/filling_volume.py" verify "$mount_point" "$work/expected" ||
    fail "programs after a remount, seed $seed"
unmount_device
echo "passed"
