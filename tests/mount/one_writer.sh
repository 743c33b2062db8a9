#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A volume has one writer, however it is seen: through loop devices, from an offset on, through a loop device over another
# one, by a name that is gone or cannot be read as one, in another mount namespace. While it is mounted by one way, all others
# are refused, and mkfs -f does not overwrite it; parts of one file that do not overlap have a writer each.
#
# A reader keeps writers away in the same way, and so does a partition.
#
# usage: one_writer.sh
#
# Exit status 77: not run.
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
not_run() { echo "NOT RUN: $*"; exit 77; }
[[ $(id -u) -eq 0 ]] || not_run "loop devices are root's"
need_programs losetup unshare addpart

image=$work/image
second=$work/second
mkdir "$second"
loops=()
give_loops_back() {
    local i
    for ((i = ${#loops[@]} - 1; i >= 0; i--)); do
        losetup --detach "${loops[i]}" 2>/dev/null || true
    done
    loops=()
}
trap 'status=$?; umount "$mount_point" "$second" 2>/dev/null || true; give_loops_back; clean_up $status' EXIT

# loop_over FILE [OPTION...]: in $loop.
loop_over() {
    loop=$(losetup --find --show "${@:2}" "$1") || not_run "no loop device here"
    loops+=("$loop")
}
new_image() {
    give_loops_back
    rm -f "$image"
    "$bin/mkfs.tiffin" -q "$image" "${1:-64M}"
}
# is_refused COMMAND...: because somebody else has the content.
is_refused() {
    local output status=0
    output=$("$@" 2>&1) || status=$?
    [[ $status -ne 0 ]] || fail "not refused: $*"
    [[ $output == *"in use by another process"* || $output == *"is mounted on"* ]] || fail "$* said '$output'"
}
# only USED OTHER: while USED is mounted, OTHER cannot be, and is not overwritten; and what USED has is whole afterwards.
only() {
    device=$1
    mount_device ""
    echo kept >"$mount_point/kept"
    sync "$mount_point/kept"
    is_refused "$bin/mount.tiffin" "$2" "$second"
    is_refused "$bin/mkfs.tiffin" -q -f "$2"
    is_refused "$bin/fsck.tiffin" -f -y "$2"
    [[ $(<"$mount_point/kept") == kept ]] || fail "the content is gone"
    unmount_device
    "$bin/fsck.tiffin" -n -f --data "$1" >/dev/null || fail "the volume is damaged"
}
each_way() {
    only "$1" "$2"
    only "$2" "$1"
}

say "a loop device over another one"
new_image
loop_over "$image"
lower=$loop
loop_over "$lower"
only "$image" "$loop"
only "$loop" "$image"
only "$lower" "$loop"
only "$loop" "$lower"

say "a file below a loop device with an offset"
new_image 72M
loop_over "$image" --offset 1M
"$bin/mkfs.tiffin" -q -f "$loop"
device=$loop
mount_device ""
is_refused "$bin/mkfs.tiffin" -q -f "$image"
is_refused "$bin/mount.tiffin" "$image" "$second"
upper=$loop
loop_over "$image"
is_refused "$bin/mkfs.tiffin" -q -f "$loop"
loop_over "$image" --offset 4M
is_refused "$bin/mkfs.tiffin" -q -f "$loop"
unmount_device
"$bin/fsck.tiffin" -n -f --data "$upper" >/dev/null || fail "the volume is damaged"

say "a loop device with an offset into an image"
new_image
for offset in 4096 1M; do
    loop_over "$image" --offset "$offset"
    device=$image
    mount_device ""
    is_refused "$bin/mkfs.tiffin" -q -f "$loop"
    unmount_device
    "$bin/fsck.tiffin" -n -f --data "$image" >/dev/null || fail "the volume is damaged"
done

say "two parts of one file"
new_image 128M
loop_over "$image" --offset 0 --sizelimit 64M
first=$loop
loop_over "$image" --offset 64M --sizelimit 64M
"$bin/mkfs.tiffin" -q -f "$first"
"$bin/mkfs.tiffin" -q -f "$loop"
device=$first
mount_device ""
"$bin/mount.tiffin" "$loop" "$second" || fail "parts that do not overlap do not have a writer each"
umount "$second"
unmount_device

# keeps_writers_away USED OTHER: while USED is mounted to be read, OTHER is not written.
keeps_writers_away() {
    device=$1
    mount_device ro
    is_refused "$bin/mkfs.tiffin" -q -f "$2"
    is_refused "$bin/mount.tiffin" "$2" "$second"
    is_refused "$bin/fsck.tiffin" -f -y "$2"
    unmount_device
    "$bin/fsck.tiffin" -n -f --data "$1" >/dev/null || fail "the volume is damaged"
}

say "a reader of an image, and writers of a part of it"
new_image
loop_over "$image" --offset 1M
keeps_writers_away "$image" "$loop"
loop_over "$image" --sizelimit 8M
keeps_writers_away "$image" "$loop"
loop_over "$image"
keeps_writers_away "$image" "$loop"
keeps_writers_away "$loop" "$image"

say "a partition"
new_image 80M
loop_over "$image" --partscan
disk=$loop
partition_sectors=131072
addpart "$disk" 1 2048 "$partition_sectors"
partition=${disk}p1
wait_until test -b "$partition"
"$bin/mkfs.tiffin" -q -f "$partition"
keeps_writers_away "$partition" "$disk"
keeps_writers_away "$partition" "$image"
loop_over "$image" --offset 4M
keeps_writers_away "$partition" "$loop"
only "$partition" "$disk"
only "$partition" "$image"
only "$partition" "$loop"
loop_over "$partition"
each_way "$partition" "$loop"
keeps_writers_away "$partition" "$loop"
keeps_writers_away "$loop" "$partition"
keeps_writers_away "$loop" "$disk"
# Those who partition a disk hold it while they make file systems on it, and udev while it looks at it.
flock "$disk" "$bin/mkfs.tiffin" -q -f "$partition" || fail "a partition of a locked disk is refused"
flock --no-fork "$disk" "$bin/mkfs.tiffin" -q -f "$partition" || fail "a partition of a disk that its own process has locked is refused"
device=$disk
"$bin/mkfs.tiffin" -q -f "$image"
mount_device ro
is_refused "$bin/mkfs.tiffin" -q -f "$partition"
unmount_device
"$bin/mkfs.tiffin" -q -f "$partition"
addpart "$disk" 2 $((2048 + partition_sectors)) 16384
wait_until test -b "${disk}p2"
device=$partition
mount_device ""
"$bin/mkfs.tiffin" -q -f "${disk}p2" || fail "a partition's writer keeps others from the next partition"
unmount_device

say "the kernel's module asks, too, before it mounts a disk that is the image"
new_image
loop_over "$image"
device=$image
mount_device ""
is_refused "$bin/mount.tiffin" -o kernel "$loop" "$second"
unmount_device

say "a name that is gone"
new_image
ln "$image" "$work/other name"
loop_over "$image"
rm "$image"
each_way "$work/other name" "$loop"
mv "$work/other name" "$image"

say "a name of two lines"
new_image
mv "$image" "$work/two
lines"
loop_over "$work/two
lines"
each_way "$work/two
lines" "$loop"
give_loops_back
rm "$work/two
lines"

say "another mount namespace"
new_image
loop_over "$image"
device=$image
mount_device ""
# shellcheck disable=SC2016
is_refused "$repository/tests/support/own_mounts" --keep "$work" -- bash -c 'mount -t tmpfs none "$1" && mkdir "$1/there" && "$2" "$3" "$1/there"' \
    _ "$work" "$bin/mount.tiffin" "$loop"
# shellcheck disable=SC2016
is_refused "$repository/tests/support/own_mounts" --keep "$work" -- bash -c 'mount -t tmpfs none "$1" && "$2" -q -f "$3"' _ "$work" "$bin/mkfs.tiffin" "$loop"
unmount_device

give_loops_back
echo "passed"
