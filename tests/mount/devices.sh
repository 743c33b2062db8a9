#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Devices: who may open one, what is said when it is in use, read-only, damaged or not there, and that
# everything is on it at the end, however the mount ends.
#
# usage: devices.sh
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
need_programs losetup setpriv sha256sum mkfs.ext4

image=$work/image
second=$work/second
loop=""
mkdir "$second" "$work/there"

give_loop_back() { [[ -z $loop ]] || losetup --detach "$loop" || true; }
trap 'status=$?; give_loop_back; clean_up $status' EXIT

# tells TEXT STATUS COMMAND...: the command ends with the status and says the text.
tells() {
    local text=$1 expected=$2 status=0
    shift 2
    output=$("$@" 2>&1) || status=$?
    [[ $status -eq $expected ]] || fail "$* ended with $status, expected $expected: $output"
    [[ $output == *"$text"* ]] || fail "$* said '$output', expected '$text'"
}
# ... and nothing else, in its only line.
says() {
    local output
    tells "$@"
    [[ $(wc -l <<<"$output") -eq 1 ]] || fail "not one line from ${*:3}: $output"
}

nothing_is_left() {
    ! is_mounted || fail "a mount that failed is there"
    ! pgrep -f "mount.tiffin.*$work" >/dev/null || fail "a mount that failed has left a process"
}

# everybody_says TEXT DEVICE: all programs refuse to open it.
everybody_says() {
    says "$1" 32 "$bin/mount.tiffin" "$2" "$second"
    says "$1" 1 "$bin/mkfs.tiffin" -f "$2"
    says "$1" 8 "$bin/fsck.tiffin" -y "$2"
    says "$1" 8 "$bin/fsck.tiffin" -n "$2"
    says "$1" 1 "$bin/tiffin" info "$2"
    says "$1" 1 "$bin/tiffin" dump "$2" superblock
}

say "nothing there, or something else"
everybody_says "there is no such file" "$image"
everybody_says "is a directory" "$work"
everybody_says "the name of the volume is missing" tiffin://host
everybody_says "is not an option of a remote volume" "tiffin://host/volume?color=red"
everybody_says "there is no key of the volume" "tiffin://host/volume?key_file=$work/key"
says "force is for remote volumes" 32 "$bin/mount.tiffin" mem:64M "$second" -o force
says "its directory does not exist" 1 "$bin/mkfs.tiffin" "$work/no/image" 64M
says "to make a new image, give its size" 1 "$bin/mkfs.tiffin" "$image"
says "holds nothing" 8 "$bin/fsck.tiffin" -y mem:1G
says "holds nothing" 1 "$bin/tiffin" info mem:1G
says "is too small" 32 "$bin/mount.tiffin" mem:1M "$mount_point"
memory_kib=$(awk '$1 == "MemTotal:" { print $2 }' /proc/meminfo)
says "warning: this machine has only" 0 "$bin/mount.tiffin" "mem:$((memory_kib * 2))k" "$mount_point"
umount "$mount_point"
! "$bin/mount.tiffin" mem:64M "$mount_point" 2>&1 | grep . || fail "a warning of a small file system in memory"
umount "$mount_point"
truncate -s 32M "$image"
says "there is no tiffin file system" 32 "$bin/mount.tiffin" "$image" "$mount_point"
# Whatever it is, nobody is told to make a file system there.
mkfs.ext4 -q "$work/ext4" 16M
head -c 32M /dev/urandom >"$work/junk"
for other in "$image" "$work/ext4" "$work/junk"; do
    output=$("$bin/mount.tiffin" "$other" "$mount_point" 2>&1) && fail "$other was mounted"
    [[ $output != *mkfs* ]] || fail "it advises to destroy $other: $output"
done
says "it holds a file system (ext4)" 32 "$bin/mount.tiffin" "$work/ext4" "$mount_point"
says "nor another that is known" 32 "$bin/mount.tiffin" "$work/junk" "$mount_point"
says "no tiffinfs is here" 1 "$bin/tiffin" info "$image"
says "the mount point is missing" 1 "$bin/mount.tiffin" "$image"
says "unknown mount option" 1 "$bin/mount.tiffin" "$image" "$mount_point" -o color
nothing_is_left

use_device "file:$image" 64M
own_image=""
say "mounted"
mount_device
echo content >"$mount_point/file"
ln "$image" "$work/hard-link"
ln -s "$image" "$work/symbolic-link"
for name in "$image" "file:$image" "$work/hard-link" "$work/symbolic-link"; do
    everybody_says "is mounted on $mount_point: unmount it first" "$name"
done
says "the mount point $mount_point is in use" 32 "$bin/mount.tiffin" mem:64M "$mount_point"
unmount_device

if [[ $(id -u) -eq 0 ]]; then
    say "mounted at a second place, as kernels do it"
    device=$image
    mount_device
    options=$("$bin/tiffin" status "$mount_point" | sed -n 's/^options: //p')
    "$bin/mount.tiffin" "$image" "$second" -o "$options" || fail "not mounted a second time"
    mkdir "$second/A"
    echo moved >"$mount_point/A/f"
    mv "$second/A/f" "$second/f"
    [[ $(<"$mount_point/f") == moved ]] || fail "the second mount shows something else"
    says "is mounted on" 32 "$bin/mount.tiffin" "$image" "$work/there" -o "$options,ro"
    umount "$mount_point"
    [[ $(<"$second/f") == moved ]] || fail "the second mount has ended with the first"
    rm "$second/f"
    rmdir "$second/A"
    umount "$second"
    wait_until has_ended "$server"
    server=""
    check_device "mounted twice"
    # Another image under the name of the mounted one is another file system.
    mount_device
    mv "$image" "$work/away"
    "$bin/mkfs.tiffin" -q -L other "$image" 64M
    "$bin/mount.tiffin" "$image" "$second" -o "$options" || fail "the other image is not mounted"
    "$bin/tiffin" status "$second" | grep -qx "label: other" || fail "the wrong file system is shown"
    other=$("$bin/tiffin" status "$second" | sed -n 's/^process: //p')
    umount "$second"
    wait_until has_ended "$other"
    mv "$work/away" "$image"
    unmount_device
    # Flags that a remount has changed are not taken over.
    mount_device
    mount -o remount,bind,nosuid "$mount_point"
    says "is mounted on" 32 "$bin/mount.tiffin" "$image" "$second" -o "$options"
    unmount_device
    # A signal ends all of it.
    mount_device
    "$bin/mount.tiffin" "$image" "$second" -o "$options"
    kill -TERM "$server"
    wait_until has_ended "$server"
    server=""
    ! is_mounted || fail "a signal has left the first mount"
    ! mountpoint -q "$second" || fail "a signal has left the second mount"
    device=file:$image
else
    echo "not run: a second mount: this is not root"
fi

say "free again, as soon as umount is back"
for number in {1..5}; do
    mount_device
    head -c 3000000 /dev/urandom >"$mount_point/$number"
    take_away
    "$bin/fsck.tiffin" -n "$image" >"$work/fsck" 2>&1 || fail "after umount: $(<"$work/fsck")"
done

say "an image inside its mount point"
cp "$image" "$second/inner"
ln -s "$second/inner" "$work/link-to-inner"
says "lies inside the mount point" 32 "$bin/mount.tiffin" "$second/inner" "$second"
says "lies inside the mount point" 32 "$bin/mount.tiffin" "$work/link-to-inner" "$second"

# What is written before a mount ends is there afterwards.
check_end() {
    wait_until has_ended "$server"
    server=""
    ! is_mounted || fail "$1: the mount is still there"
    check_device "$1"
    mount_device
    [[ $(sha256sum <"$mount_point/data") == "$sum" ]] || fail "$1: content is lost"
    rm "$mount_point/data"
    unmount_device
}
write_data() {
    head -c 5000000 /dev/urandom >"$work/data"
    sum=$(sha256sum <"$work/data")
    cp "$work/data" "$mount_point/data"
}
say "SIGTERM, idle and with an open file"
mount_device
write_data
kill -TERM "$server"
check_end "SIGTERM"
mount_device
write_data
exec 8>"$mount_point/open"
kill -TERM "$server"
wait_until has_ended "$server"
exec 8>&-
check_end "SIGTERM with an open file"
say "umount -l with an open file that goes on growing"
mount_device
: >"$work/data"
exec 8>"$mount_point/data"
take_away -l
head -c 5000000 /dev/urandom | tee "$work/data" >&8
sum=$(sha256sum <"$work/data")
exec 8>&-
check_end "umount -l with an open file"

say "damage at the root"
superblocks=$("$bin/tiffin" dump "$image" superblock)
generation=$(sed -n 's/.* generation: //p' <<<"$superblocks" | sort -n | tail -n 1)
root=$(grep -A 5 " generation: $generation\$" <<<"$superblocks" | sed -n '/root_block: /{s/.*root_block: //p;q}')
cp "$image" "$work/damaged"
printf '\377' | dd of="$work/damaged" bs=1 seek=$((root * 4096 + 600)) conv=notrunc status=none
"$bin/mount.tiffin" "$work/damaged" "$second" -o "log=$log" || fail "the older generation is whole"
[[ $(<"$second/file") == content ]] || fail "the older generation lacks a file"
umount "$second"
"$bin/fsck.tiffin" -n "$work/damaged" >"$work/fsck" 2>&1 || fail "fsck.tiffin: $(<"$work/fsck")"
for slot in 0 4096 $((64 * 1024 * 1024 - 8192)) $((64 * 1024 * 1024 - 4096)); do
    printf '\377' | dd of="$work/damaged" bs=1 seek=$((slot + 100)) conv=notrunc status=none
done
says "is damaged (no copy of the superblock is valid" 32 "$bin/mount.tiffin" "$work/damaged" "$second"
nothing_is_left

say "without permission"
chmod 444 "$image"
if [[ $(id -u) -eq 0 ]]; then
    as_nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)
    says "use -o ro" 32 "${as_nobody[@]}" "$bin/mount.tiffin" "$image" "$second"
    says "permission denied" 1 "${as_nobody[@]}" "$bin/mkfs.tiffin" -f "$image"
    says "permission denied" 8 "${as_nobody[@]}" "$bin/fsck.tiffin" -y "$image"
    "${as_nobody[@]}" "$bin/fsck.tiffin" -n "$image" >"$work/fsck" || fail "fsck.tiffin: $(<"$work/fsck")"
else
    echo "not run: opening as another user: this is not root"
fi

say "an image that is named through a symbolic link"
mkdir -p "$work/here/folder"
ln -s "$work/here/folder" "$work/there/link"
for folder in here there; do
    "$bin/mkfs.tiffin" -q -L "$folder" "$work/$folder/image" 64M
done
device=$work/there/link/../image
mount_device
"$bin/tiffin" status "$mount_point" | grep -qx "label: here" || fail "another image was mounted"
unmount_device
(cd "$work/there" && "$bin/mount.tiffin" link/../image "$mount_point")
"$bin/tiffin" status "$mount_point" | grep -qx "label: here" || fail "another image was mounted"
server=$("$bin/tiffin" status "$mount_point" | sed -n 's/^process: //p')
unmount_device
device=$image

say "a starter that has closed its standard descriptors"
"$bin/mount.tiffin" "$image" "$mount_point" -o "log=$log" <&- >&- 2>&-
server=$("$bin/tiffin" status "$mount_point" | sed -n 's/^process: //p')
echo content >"$mount_point/file"
unmount_device
check_device "without standard descriptors"

say "without recovery"
says "norecovery is for read-only mounts" 1 "$bin/mount.tiffin" "$image" "$mount_point" -o norecovery
mount_device
echo durable >"$mount_point/durable"
sync "$mount_point/durable"
kill_server
is_dead() { ! stat -f "$mount_point" >/dev/null 2>&1 && is_mounted; }
says "there is no such file or device" 32 "$bin/mount.tiffin" "$work/missing" "$mount_point"
is_dead || fail "a mount that failed took the dead one away"
head -c 8M /dev/zero >"$work/nothing"
says "there is no" 32 "$bin/mount.tiffin" "$work/nothing" "$mount_point"
is_dead || fail "a mount that failed took the dead one away"
sum=$(sha256sum <"$image")
mount_device ro,noload
ls "$mount_point" >/dev/null
says "norecovery" 32 "$bin/mount.tiffin" "$image" "$mount_point" -o remount,rw
for descriptor in "/proc/$server/fd"/*; do
    [[ $(readlink "$descriptor") != "$image" ]] ||
        grep -q '^flags:.*0$' "/proc/$server/fdinfo/${descriptor##*/}" || fail "the image is open for writing"
done
unmount_device
[[ $(sha256sum <"$image") == "$sum" ]] || fail "a mount without recovery has written"
mount_device
[[ $(<"$mount_point/durable") == durable ]] || fail "the journal was lost without recovery"
unmount_device

say "small files, and limits"
printf small >"$work/small"
says "is too small: it has less than a sector" 1 "$bin/mkfs.tiffin" -f "$work/small"
says "only mount.tiffin knows such names" 8 "$bin/fsck.tiffin" -n UUID=908331c5-be95-4f14-b3bc-35ccd57ca646
status=0
output=$(ulimit -f 20 && "$bin/mkfs.tiffin" "$work/limited" 100M 2>&1) || status=$?
[[ $status -eq 1 && $output == *"File too large"* && ! -e $work/limited ]] ||
    fail "mkfs.tiffin with a limit of file sizes ended with $status: $output"

say "loop devices"
if [[ $(id -u) -ne 0 ]] || ! loop=$(losetup --find --show "$image" 2>"$work/losetup"); then
    loop=""
    echo "not run: no loop device here: $(cat "$work/losetup" 2>/dev/null); all before has passed"
    exit 77
fi
device=$loop
mount_device
everybody_says "is mounted on $mount_point: unmount it first" "$image"
everybody_says "is mounted on $mount_point: unmount it first" "file:$loop"
[[ $(<"$mount_point/file") == content ]] || fail "the loop device shows something else"
unmount_device
device=$image
mount_device
everybody_says "is mounted on $mount_point: unmount it first" "$loop"
unmount_device
losetup --detach "$loop"
loop=$(losetup --find --show --read-only "$image")
device=$loop
says "is read-only; to mount it read-only, use -o ro" 32 "$bin/mount.tiffin" "$loop" "$mount_point"
says "is read-only" 1 "$bin/mkfs.tiffin" -f "$loop"
says "is read-only" 8 "$bin/fsck.tiffin" -f -y "$loop"
nothing_is_left
mount_device ro
[[ $(<"$mount_point/file") == content ]] || fail "the read-only loop device shows something else"
! touch "$mount_point/file" 2>/dev/null || fail "a read-only mount was written to"
unmount_device
says "clean" 0 "$bin/fsck.tiffin" -n "$loop"
losetup --detach "$loop"
loop=""

say "what mkfs.tiffin discards"
# old_content FILE: whether content of before is on the disk, or in the image.
old_content() { [[ $(stat --format %b "$1") -gt $((8 * 2048)) ]]; }
head -c 16M /dev/urandom >"$work/old"
dd if="$work/old" of="$image" bs=1M seek=40 conv=notrunc,fsync status=none
old_content "$image" || fail "the image has no blocks to lose"
"$bin/mkfs.tiffin" -q -f "$image"
old_content "$image" || fail "an image was discarded"
loop=$(losetup --find --show "$image")
"$bin/mkfs.tiffin" -q -f -n "$loop"
! "$bin/mkfs.tiffin" -q -f -J 60M "$loop" 2>/dev/null || fail "a journal of nearly all of the device was made"
"$bin/mkfs.tiffin" -q -f --nodiscard "$loop"
old_content "$image" || fail "a disk was discarded that was not to be"
if [[ $(<"/sys/block/${loop##*/}/queue/discard_max_bytes") -ne 0 ]]; then
    "$bin/mkfs.tiffin" -q -f "$loop"
    ! old_content "$image" || fail "a disk was not discarded"
else
    echo "not run: the loop device cannot discard"
fi
says "clean" 0 "$bin/fsck.tiffin" -n "$loop"

say "a volume that is smaller than its disk"
disk_bytes=$(stat --format %s "$image")
says "does not fit" 1 "$bin/mkfs.tiffin" -f "$loop" "$((disk_bytes + 4096))"
says "clean" 0 "$bin/fsck.tiffin" -n "$loop"
"$bin/mkfs.tiffin" -q -f --nodiscard "$loop" 20M
says "clean" 0 "$bin/fsck.tiffin" -n "$loop"
device=$loop
mount_device
cp -r "$repository/docs" "$mount_point/"
unmount_device
dd if=/dev/zero of="$loop" bs=4096 count=2 conv=notrunc,fsync status=none
tells "'fsck.tiffin --size SIZE' finds those at its end" 8 "$bin/fsck.tiffin" -y "$loop"
says "a volume on it is not larger" 8 "$bin/fsck.tiffin" -y --size 1G "$loop"
tells "is it the right device" 8 "$bin/fsck.tiffin" -y --size 21M "$loop"
says "--size" 16 "$bin/fsck.tiffin" -y --size 1Q "$loop"
tells "repaired" 1 "$bin/fsck.tiffin" -y --size 20M "$loop"
says "clean" 0 "$bin/fsck.tiffin" -n "$loop"
mount_device
diff -r "$repository/docs" "$mount_point/docs" || fail "files are not what they were before the superblocks were lost"
"$bin/tiffin" grow "$mount_point" >"$work/grown"
grep -q "grown from 20 MiB to 64 MiB" "$work/grown" || fail "it was not made with 20 MiB: $(<"$work/grown")"
unmount_device
says "clean" 0 "$bin/fsck.tiffin" -n "$loop"
echo "passed"
