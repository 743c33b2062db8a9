#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# O_DIRECT at any alignment, beside the page cache, and on a device that fails or is slow in places. Run by tests/uml/run.
set -euo pipefail
: "${repository:?tests/uml/run starts this}"
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
make_device 64
load_device_mapper mod delay
load_modules
disk=$device
sectors=$((64 * 2048))

works="0 $sectors linear $disk 0"
map_device "$works"
make_file_system
mount_device rw
step() { python3 "$repository/tests/uml/direct.py" "$@" || fail "see above"; }

say "any alignment"
for seed in 1 2 3; do
    step alignment "$mount_point/random" $seed
done

say "a part of a block, beside a buffered write to another part of it"
step prepare_halves "$mount_point/halves"
drop_caches
# Writes take 300 ms.
set_table "0 $sectors delay $disk 0 0 $disk 0 300"
step halves "$mount_point/halves"
set_table "$works"
drop_caches
step check_halves "$mount_point/halves"

say "a file that becomes longer, whose second megabyte cannot be written"
inode=$(step prepare_failure "$mount_point/long")
unmount_device
"$bin/tiffin" dump --json "$device" inode "$inode" >/tmp/dump
mount_device rw
place=$(step find_failure /tmp/dump)
read -r first length <<<"$place"
set_table "0 $first linear $disk 0
$first $length error
$((first + length)) $((sectors - first - length)) linear $disk $((first + length))"
step failure "$mount_point/long"
set_table "$works"
drop_caches
step check_failure "$mount_point/long"

say "memory that ends too early"
step bad_memory "$mount_point/bad"
drop_caches
step check_bad_memory "$mount_point/bad"
remount "direct I/O"
unmount_device
unmap_device
unload_modules
say "done"
