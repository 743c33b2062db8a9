#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# mount(8), umount(8), fsck(8) and /etc/fstab with the programs, for root and for a user without
# privileges. In a mount name space of its own: the fstab, fuse.conf and /usr/sbin that are changed here
# are seen by nobody else.
#
# usage: mount_helper.sh
set -euo pipefail
[[ $(id -u) -eq 0 ]] || { echo "not run: it makes a mount name space, which takes root" && exit 77; }
if [[ ${1:-} != --inside ]]; then
    exec "$(dirname "$0")/../support/own_mounts" -- "$0" --inside
fi
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
need_programs setpriv mount fsck fusermount3

# replace FILE: binds a copy over it, which may be changed.
replace() {
    local copy
    copy=$work/$(basename "$1")
    cp "$1" "$copy" 2>/dev/null || : >"$copy"
    mount --bind "$copy" "$1"
}

# mount(8) looks for its helpers in /sbin only, fsck(8) there first.
install_programs() {
    local real=$work/real-sbin sbin=$work/sbin
    mkdir "$real" "$sbin"
    mount --bind "$(realpath /sbin)" "$real"
    ln -s "$real"/* "$sbin"
    ln -sf "$bin/mount.tiffin" "$sbin/mount.fuse.tiffin"
    ln -sf "$bin/fsck.tiffin" "$sbin/fsck.fuse.tiffin"
    ln -sf "$bin"/{mount,fsck,mkfs}.tiffin "$sbin"
    mount --bind "$sbin" "$(realpath /sbin)"
}

mounts_away() {
    umount --lazy "$(realpath /sbin)" "$work/real-sbin" /etc/fstab /etc/fuse.conf /dev/fuse \
        "$user_folder/mnt" "$work/elsewhere" 2>/dev/null || true
}
user_folder=$work/user
trap 'status=$?; mounts_away; clean_up $status' EXIT

has_options() {
    local option options
    options=$(findmnt --noheadings --output OPTIONS "$1") || fail "nothing is mounted on $1"
    for option in ${2//,/ }; do
        [[ ,$options, == *,"$option",* ]] || fail "$1 lacks $option: $options"
    done
    for option in ${3//,/ }; do
        [[ ,$options, != *,"$option",* ]] || fail "$1 has $option: $options"
    done
}
status_has() { "$bin/tiffin" status "$mount_point" | grep -qx "$1" || fail "tiffin status lacks '$1'"; }
# fails TEXT COMMAND...: in one line.
fails() {
    local text=$1 output
    shift
    ! output=$("$@" 2>&1) || fail "succeeded: $*"
    [[ $(wc -l <<<"$output") -eq 1 && $output == *"$text"* ]] ||
        fail "$* said '$output', expected one line with '$text'"
}

install_programs
replace /etc/fstab
image=$work/image
use_device "file:$image" 64M
own_image=""
mkdir "$user_folder"
echo "$image $mount_point fuse.tiffin noauto,noatime,nodev,_netdev,cache=32M,x-comment=1 0 2
$user_folder/image $user_folder/mnt fuse.tiffin noauto,user,log=$user_folder/log 0 0" >>/etc/fstab

say "mount -t fuse.tiffin"
mount -t fuse.tiffin "$image" "$mount_point" -o ro,nosuid,noexec
has_options "$mount_point" ro,nosuid,noexec,default_permissions,allow_other rw,nodev,sync
umount "$mount_point"
mount -t fuse.tiffin "$image" "$mount_point" -o sync,dirsync,nosymfollow,strictatime,commit=1
has_options "$mount_point" rw,sync,dirsync,nosymfollow nosuid,nodev,noexec
status_has "access times: strictatime"
umount "$mount_point"
fails 'unknown mount option "color"' mount -t fuse.tiffin "$image" "$mount_point" -o color
mount -s -t fuse.tiffin "$image" "$mount_point" -o color=red
umount "$mount_point"
"$bin/mount.tiffin" -s "$image" "$mount_point" -o color=red,ro,nosuid
has_options "$mount_point" ro,nosuid rw
umount "$mount_point"
"$bin/mount.tiffin" -r -o noatime "$image" "$mount_point" -w
has_options "$mount_point" rw,noatime ro
umount "$mount_point"
"$bin/mount.tiffin" "$image" "$mount_point" -o rw -r
has_options "$mount_point" ro rw
umount "$mount_point"
mount -f -t fuse.tiffin "$image" "$mount_point"
! is_mounted || fail "mount -f has mounted"
fails "there is no such file" mount -t fuse.tiffin "$work/missing" "$mount_point"

say "fstab"
mount "$mount_point"
has_options "$mount_point" rw,noatime,nodev noexec
status_has "cache budget bytes: 33554432"
status_has "access times: noatime"
echo content >"$mount_point/file"
fails "is in use" mount "$mount_point"
say "remounting"
mount -t fuse.tiffin -o remount,ro "$mount_point"
has_options "$mount_point" ro,noatime,nodev rw
status_has "state: read-only"
"$bin/mount.tiffin" "$image" "$mount_point" -o remount,rw,noexec
has_options "$mount_point" rw,noatime,nodev,noexec ro
status_has "state: read-write"
"$bin/mount.tiffin" "$image" "$mount_point" -o remount,ro
has_options "$mount_point" ro,noatime,nodev,noexec rw
"$bin/mount.tiffin" "$image" "$mount_point" -o remount,nosuid
has_options "$mount_point" ro,noatime,nodev,noexec,nosuid rw
"$bin/mount.tiffin" "$image" "$mount_point" -o remount,rw,exec,suid
has_options "$mount_point" rw,noatime,nodev noexec,nosuid
for option in commit=9 sync cache=64M log=/log strictatime; do
    fails "cannot change" "$bin/mount.tiffin" "$image" "$mount_point" -o "remount,ro,$option"
    has_options "$mount_point" rw ro
done
"$bin/mount.tiffin" "$image" "$mount_point" -o remount,rw,noatime,cache=32M
# All options of the line in fstab come along.
mount -o remount,ro "$mount_point"
has_options "$mount_point" ro,noatime,nodev rw
mount -o remount,rw "$mount_point"
has_options "$mount_point" rw,noatime,nodev ro
echo more >>"$mount_point/file"
umount "$mount_point"
# Without a line there: what the kernel says of the mount.
mkdir "$work/elsewhere"
plain=$work/plain
cp --sparse=always "$image" "$plain"
mount -t fuse.tiffin -o strictatime,commit=1 "$plain" "$work/elsewhere"
[[ $(findmnt --noheadings --output FSTYPE "$work/elsewhere") == fuse.tiffin ]] || fail "findmnt shows another type"
findmnt -t fuse.tiffin "$work/elsewhere" >/dev/null || fail "findmnt -t fuse.tiffin does not find it"
[[ $(df --output=fstype "$work/elsewhere" | tail -n 1) == fuse.tiffin ]] || fail "df shows another type"
for named in "$work/elsewhere" "$plain" "$plain $work/elsewhere"; do
    for type in "" "-t fuse.tiffin"; do
        # shellcheck disable=SC2086  # words
        mount $type -o remount,ro $named || fail "mount $type -o remount,ro $named"
        has_options "$work/elsewhere" ro rw
        # shellcheck disable=SC2086
        mount $type -o remount,rw $named || fail "mount $type -o remount,rw $named"
        has_options "$work/elsewhere" rw ro
    done
done
umount "$work/elsewhere"
# Mounted by its program, with another type.
"$bin/mount.tiffin" -o subtype= "$image" "$work/elsewhere"
[[ $(findmnt --noheadings --output FSTYPE "$work/elsewhere") == fuse ]] || fail "subtype= does not give plain fuse"
mount -t fuse.tiffin -o remount,ro "$work/elsewhere"
has_options "$work/elsewhere" ro rw
kill "$("$bin/tiffin" status "$work/elsewhere" | sed -n 's/^process: //p')"
elsewhere_is_free() { ! mountpoint -q "$work/elsewhere"; }
wait_until elsewhere_is_free

say "another program's mount"
python3 "$repository/tests/mount/lib/other_fuse.py" "$work/elsewhere" &
other=$!
wait_until mountpoint -q "$work/elsewhere"
fails "not on a Tiffin mount" "$bin/mount.tiffin" x "$work/elsewhere" -o remount,ro
has_options "$work/elsewhere" rw ro
umount "$work/elsewhere"
wait "$other" || fail "the other program ended with $?"

say "x-systemd.automount"
# As systemd does it: an entry in the same place that lets only the process group of mount(8) through.
# Nobody reads its pipe, so whoever else comes too early is not kept waiting but fails.
if python3 - "$mount_point" <<'PYTHON'
import ctypes, os, sys
(_, pipe) = os.pipe()
os.set_inheritable(pipe, True)
library = ctypes.CDLL(None, use_errno=True)
data = f"fd={pipe},pgrp={os.getpgrp()},minproto=5,maxproto=5,direct"
if library.mount(b"systemd-1", sys.argv[1].encode(), b"autofs", 0, data.encode()) != 0:
    sys.exit("not run: no autofs: " + os.strerror(ctypes.get_errno()))
PYTHON
then
    mount "$mount_point"
    is_mounted || fail "nothing is mounted on the automount point"
    setsid --wait cat "$mount_point/file" >/dev/null
    umount "$mount_point"
    umount "$mount_point"
fi

say "fsck"
# The type is that of fstab.
fsck "$image" -- -n -f >"$work/fsck" || fail "fsck: $(<"$work/fsck")"
grep -q "clean" "$work/fsck" || fail "fsck has not run fsck.fuse.tiffin: $(<"$work/fsck")"
# As at boot.
fsck -A -a -T -C0 -t fuse.tiffin >"$work/fsck" || fail "fsck -A: $(<"$work/fsck")"
grep -q "clean" "$work/fsck" || fail "fsck -A has not run fsck.fuse.tiffin: $(<"$work/fsck")"
cp "$image" "$work/other"
fsck -t tiffin -f -n "$work/other" >"$work/fsck" || fail "fsck -t tiffin: $(<"$work/fsck")"
grep -q "clean" "$work/fsck" || fail "fsck -t tiffin has not run fsck.tiffin: $(<"$work/fsck")"
printf '\377' | dd of="$image" bs=1 seek=100 conv=notrunc status=none
"$bin/fsck.tiffin" -n "$image" >"$work/fsck" && fail "fsck.tiffin -n misses a damaged superblock"
status=0
fsck "$image" -- -p >"$work/fsck" || status=$?
[[ $status -eq 1 ]] || fail "fsck -p ended with $status, expected 1: $(<"$work/fsck")"
status=0
fsck "$image" -- -p >"$work/fsck" || status=$?
[[ $status -eq 0 ]] || fail "the second fsck -p ended with $status: $(<"$work/fsck")"

# ---- A user without privileges -----------------------------------------------------------------------

as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
# Another uid than the one who mounts.
as_somebody() { setpriv --reuid 65533 --regid 65533 --clear-groups "$@"; }
mount_point=$user_folder/mnt
chown 65534:65534 "$user_folder"
as_nobody "$bin/mkfs.tiffin" -q "$user_folder/image" 64M
as_nobody mkdir "$mount_point"
mount_as_nobody() { as_nobody "$bin/mount.tiffin" "$user_folder/image" "$mount_point" "$@"; }

mknod -m 600 "$work/fuse" c 10 229
mount --bind "$work/fuse" /dev/fuse
say "a user who may not use FUSE"
fails "root can permit it to all users" mount_as_nobody
chmod 666 /dev/fuse
replace /etc/fuse.conf
: >/etc/fuse.conf

say "a user mounts his own image"
mount_as_nobody
has_options "$mount_point" rw,nosuid,nodev,default_permissions allow_other
as_nobody touch "$mount_point/file"
[[ $(stat -c %U "$user_folder/image") == $(as_nobody stat -c %U "$mount_point/file") ]] ||
    fail "the file belongs to somebody else"
! ls "$mount_point" 2>/dev/null || fail "root may enter without allow_other"
as_nobody "$bin/tiffin" scrub -q "$mount_point"
as_nobody fusermount3 -u "$mount_point"
as_nobody "$bin/fsck.tiffin" -n -f "$user_folder/image" >"$work/fsck" || fail "fsck: $(<"$work/fsck")"
fails "write user_allow_other to /etc/fuse.conf" mount_as_nobody -o allow_other
fails "only root can mount with suid" mount_as_nobody -o suid
fails "only root can mount with dev" mount_as_nobody -o dev
fails "permission denied" as_nobody "$bin/mount.tiffin" "$image" "$mount_point"
fails "cannot mount on" as_nobody "$bin/mount.tiffin" mem:16M "$work"
echo user_allow_other >>/etc/fuse.conf
mount_as_nobody -o allow_other,ro,noexec,noatime
has_options "$mount_point" ro,noexec,noatime,nosuid,nodev,allow_other rw
as_somebody ls "$mount_point" >/dev/null || fail "allow_other does not allow others"
fails "only root and the user that mounted" as_somebody "$bin/tiffin" scrub "$mount_point"
fails "only root can" as_nobody "$bin/mount.tiffin" x "$mount_point" -o remount,rw
server=$(as_nobody "$bin/tiffin" status "$mount_point" | sed -n 's/^process: //p')
as_nobody kill "$server"
wait_until has_ended "$server"
! is_mounted || fail "SIGTERM left the mount of a user behind"

say "a user mounts a line of fstab that permits it"
as_nobody mount "$mount_point"
has_options "$mount_point" rw,nosuid,nodev,noexec ro
as_nobody umount "$mount_point"
! is_mounted || fail "the user cannot unmount"
echo "passed"
