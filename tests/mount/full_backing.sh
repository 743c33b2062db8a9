#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A sparse image on a file system that fills up: what could not be stored is not called durable, the log says where room
# is missing, and what was synchronised before is there once there is room.
#
# usage: full_backing.sh
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
[[ $(id -u) -eq 0 ]] || { echo "not run: it mounts a tmpfs, which takes root" && exit 77; }
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"

backing=$work/backing
mkdir "$backing"
mount -t tmpfs -o size=16M none "$backing"
trap 'status=$?; take_away -l 2>/dev/null || true; umount -l "$backing" 2>/dev/null || true; clean_up $status' EXIT
use_device "file:$backing/image" 128M
own_image=""

mount_device
head -c 1000000 /dev/urandom >"$work/content"
cp "$work/content" "$mount_point/before"
sync "$mount_point/before"
# Nothing is left for what comes.
head -c 100M /dev/zero >"$backing/filler" 2>/dev/null && fail "the tmpfs is not full"
durable=()
for ((i = 0; i < 40; i++)); do
    # A create may succeed in memory; then it is fsync that tells.
    if echo "$i" 2>/dev/null >"$mount_point/file-$i" && sync "$mount_point/file-$i" 2>/dev/null &&
        cp "$work/content" "$mount_point/large-$i" 2>/dev/null && sync "$mount_point/large-$i" 2>/dev/null; then
        durable+=("$i")
    fi
done
[[ ${#durable[@]} -lt 40 ]] || fail "everything was durable on a full file system"
grep -q "make room there" "$log" ||
    fail "the log does not say that room is missing"
# A program that only writes learns it from write(), long before it has written 16 times as much as there was room for.
! dd if=/dev/zero of="$mount_point/before" conv=notrunc bs=1M seek=2 count=512 2>"$work/error" || fail "dd has written 512 MiB"
grep -q "error writing" "$work/error" || fail "dd: $(<"$work/error")"
# Only creates, without an fsync: syncing the directory tells.
touch "$mount_point/only-created" 2>/dev/null && sync "$mount_point" 2>/dev/null && fail "a create is called durable"
unmount_device

rm "$backing/filler"
mount_device
cmp "$work/content" "$mount_point/before" || fail "what was synchronised before is damaged"
for i in "${durable[@]}"; do
    [[ $(cat "$mount_point/file-$i") == "$i" ]] || fail "file-$i was durable, and is lost"
    cmp "$work/content" "$mount_point/large-$i" || fail "large-$i was durable, and is damaged"
done
unmount_device
# That errors were met stays noted until the checker has looked; nothing else may be wrong.
"$bin/fsck.tiffin" -f -y "$device" >"$work/fsck" 2>&1 || [[ $? -eq 1 ]] || fail "fsck.tiffin -f -y: $(<"$work/fsck")"
[[ $(grep "harmless:\|damage:" "$work/fsck") == *errors-flag* && $(grep -c "harmless:\|damage:" "$work/fsck") -eq 1 ]] ||
    fail "the checker finds more than the note of the errors: $(<"$work/fsck")"
check_device "after its backing was full"

# Growth that finds no room for the new end leaves the volume as it is.
truncate -s 256M "$backing/image"
mount_device
echo kept >"$mount_point/kept"
sync "$mount_point/kept"
head -c 100M /dev/zero >"$backing/filler" 2>/dev/null && fail "the tmpfs is not full"
! "$bin/tiffin" grow "$mount_point" >"$work/grow" 2>&1 || fail "it grows where there is no room: $(<"$work/grow")"
"$bin/tiffin" status "$mount_point" | grep -qx "state: read-write" || fail "growth that failed has made it read-only"
rm "$backing/filler"
echo more >"$mount_point/more"
sync "$mount_point/more"
"$bin/tiffin" grow "$mount_point" | grep -q "grown from 128 MiB to 256 MiB" || fail "it does not grow once there is room"
unmount_device
check_device "after growth"

# What cannot be stored any more when a mount becomes read-only: it does, and says so.
mount_device
head -c 100M /dev/zero >"$backing/filler" 2>/dev/null && fail "the tmpfs is not full"
head -c 3000000 /dev/urandom >"$mount_point/kept" || true
! "$bin/mount.tiffin" "$device" "$mount_point" -o remount,ro 2>"$work/remount" || fail "nothing is said of what is lost"
grep -q "it is read-only now, but part of" "$work/remount" || fail "remount,ro: $(<"$work/remount")"
! touch "$mount_point/other" 2>/dev/null || fail "it is not read-only"
rm "$backing/filler"
unmount_device

# The checker, too, says where room is missing: for a whole tree that was written only once.
use_device "file:$backing/image" 128M
own_image=""
mount_device
(cd "$mount_point" && touch file-{1..3000})
unmount_device
block=$("$bin/tiffin" dump "$device" tree | sed -n 's/^level 0  block \([0-9]*\) .*/\1/p' | tail -n 1)
printf damage | dd of="$backing/image" bs=1 seek=$((block * 4096 + 2000)) conv=notrunc status=none
head -c 100M /dev/zero >"$backing/filler" 2>/dev/null && fail "the tmpfs is not full"
status=0
"$bin/fsck.tiffin" -f -y "$device" >"$work/fsck" 2>&1 || status=$?
[[ $status -eq 8 ]] || fail "fsck.tiffin on a full file system ends with $status: $(<"$work/fsck")"
grep -q "No space left on device (of the file system that holds the image: make room there)" "$work/fsck" ||
    fail "fsck.tiffin does not say that room is missing: $(<"$work/fsck")"
rm "$backing/filler"
"$bin/fsck.tiffin" -f -y "$device" >"$work/fsck" 2>&1 || [[ $? -eq 1 ]] || fail "fsck.tiffin -f -y: $(<"$work/fsck")"
check_device "after a repair that had no room"
echo "passed"
