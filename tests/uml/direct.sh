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

# fail_second_megabyte STEP FILE [FLAG]: while it cannot be written, what the step does; with an attribute of chattr.
fail_second_megabyte() {
    local inode place first length
    inode=$(step prepare_failure "$2")
    [[ $# -eq 2 ]] || chattr "$3" "$2"
    unmount_device
    "$bin/tiffin" dump --json "$device" inode "$inode" >/tmp/dump
    mount_device rw
    place=$(step find_failure /tmp/dump)
    read -r first length <<<"$place"
    set_table "0 $first linear $disk 0
$first $length error
$((first + length)) $((sectors - first - length)) linear $disk $((first + length))"
    step "$1" "$2"
    set_table "$works"
    drop_caches
}
say "a file that becomes longer, whose second megabyte cannot be written"
fail_second_megabyte failure "$mount_point/long"
step check_failure "$mount_point/long"

say "the same of one that may be appended to only"
fail_second_megabyte append_failure "$mount_point/log" +a
step append_again "$mount_point/log"
unmount_device
mount_device rw
step check_append "$mount_point/log"
chattr -a "$mount_point/log"

say "synchronous ones, beside buffered ones that are written back"
set_table "0 $sectors delay $disk 0 0 $disk 0 2"
cat >/tmp/beside.fio <<END
[global]
directory=$mount_point
filename=beside
size=128k
bs=64k
rw=randwrite
time_based
continue_on_error=all
runtime=4
[direct]
ioengine=libaio
direct=1
sync=dsync
iodepth=8
[buffered]
ioengine=psync
thinktime=1000
END
fallocate -l 1M "$mount_point/beside"
# Where both write to one place fsync says so, with EIO. What matters is that none of them waits for ever.
status=0
timeout --kill-after=5 120 fio --output=/tmp/fio.out /tmp/beside.fio >/tmp/fio.errors 2>&1 || status=$?
{ [[ $status -le 1 ]] && grep -q "^Run status" /tmp/fio.out; } || fail "fio ended with $status: $(tail -n 20 /tmp/fio.out)"
[[ $(grep -c "io_u error" /tmp/fio.errors) -eq $(grep -c "io_u error.*Input/output error" /tmp/fio.errors) ]] ||
    fail "fio: $(grep "io_u error" /tmp/fio.errors)"
set_table "$works"

say "memory that ends too early"
step bad_memory "$mount_point/bad"
drop_caches
step check_bad_memory "$mount_point/bad"
remount "direct I/O"
unmount_device
unmap_device
unload_modules
say "done"
