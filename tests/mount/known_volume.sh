#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A volume on a disk (a loop device) is known to the system: to file(1), to udev by the rule, and by UUID= and LABEL=
# to mount.tiffin, mount(8) and /etc/fstab. In a mount name space of its own: /dev/disk, the fstab, /usr/sbin and the rules
# that are changed here are not changed for others.
#
# usage: known_volume.sh
#
# Exit status 77: not run.
set -euo pipefail
[[ $(id -u) -eq 0 ]] || { echo "NOT RUN: loop devices and mount name spaces take root" && exit 77; }
if [[ ${1:-} != --inside ]]; then
    exec "$(dirname "$0")/../support/own_mounts" -- "$0" --inside
fi
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
need_programs losetup mount file udevadm

loops=()
away() {
    local loop
    umount --lazy "$(realpath /sbin)" "$work/real-sbin" /etc/fstab /dev/disk /usr/lib/udev/rules.d 2>/dev/null || true
    for loop in "${loops[@]}"; do
        losetup --detach "$loop" || true
    done
}
trap 'status=$?; take_away 2>/dev/null || true; away; clean_up $status' EXIT
# attach FILE: sets `loop`.
attach() {
    loop=$(losetup --find --show "$1") || { echo "NOT RUN: no loop device"; away; clean_up 77; }
    loops+=("$loop")
}
contains() { [[ $1 == *"$2"* ]] || fail "'$1' lacks '$2'"; }

image=$work/image
label="my \"books\" & more"
"$bin/mkfs.tiffin" -q -L "$label" "$image" 16M
attach "$image"
disk=$loop
uuid=$("$bin/tiffin" info "$disk" | sed -n 's/^uuid: //p')

say "file"
magic=$repository/packaging/tiffin.magic
# A new volume has its superblock in the second block, a used one also in the first.
for use in new used; do
    found=$(file --brief --magic-file "$magic" "$image")
    [[ $found == "Tiffin file system, version 1, UUID=$uuid, label \"$label\"" ]] || fail "file says '$found' ($use)"
    "$bin/mount.tiffin" "$disk" "$mount_point"
    "$bin/tiffin" info --udev "$disk" >"$work/mounted" || fail "tiffin info --udev on a mounted disk"
    umount "$mount_point"
    "$bin/fsck.tiffin" -n "$disk" >/dev/null  # waits until the mount has ended
done
[[ $(file --brief --magic-file "$magic" "$0") != *Tiffin* ]] || fail "file takes a script for a volume"

say "udev"
properties=$("$bin/tiffin" info --udev "$disk")
[[ $properties == "$(<"$work/mounted")" ]] || fail "tiffin info --udev differs on a mounted disk: $(<"$work/mounted")"
escaped='my\x20\x22books\x22\x20\x26\x20more'
for property in ID_FS_TYPE=tiffin ID_FS_USAGE=filesystem ID_FS_VERSION=1 "ID_FS_UUID=$uuid" "ID_FS_UUID_ENC=$uuid" \
    "ID_FS_LABEL_ENC=$escaped"; do
    grep -qxF "$property" <<<"$properties" || fail "tiffin info --udev lacks $property: $properties"
done
! "$bin/tiffin" info --udev "$0" 2>"$work/error" || fail "tiffin info --udev takes a script for a volume"
contains "$(<"$work/error")" "holds no Tiffin file system"
# The rule with this program, and udev's own rules before it.
mkdir "$work/rules"
cp /usr/lib/udev/rules.d/60-persistent-storage.rules "$work/rules"
sed "s|@bin@|$bin|" "$repository/packaging/61-tiffin.rules.in" >"$work/rules/61-tiffin.rules"
mount --bind "$work/rules" /usr/lib/udev/rules.d
udevadm test --action=add "/sys/class/block/$(basename "$disk")" >"$work/udev" 2>&1 ||
    fail "udevadm test: $(<"$work/udev")"
umount /usr/lib/udev/rules.d
for property in ID_FS_TYPE=tiffin "ID_FS_UUID=$uuid"; do
    grep -qxF "$property" "$work/udev" || fail "the rule does not set $property: $(<"$work/udev")"
done
links=$(sed -n 's/^DEVLINKS=//p' "$work/udev")
contains " $links " " /dev/disk/by-uuid/$uuid "
contains " $links " " /dev/disk/by-label/$escaped "
# As a part of a volume of device-mapper, and as one that is suspended.
for flag in DM_UDEV_DISABLE_OTHER_RULES_FLAG DM_NOSCAN DM_SUSPENDED; do
    echo "ENV{$flag}=\"1\"" >"$work/rules/60-zz-part.rules"
    mount --bind "$work/rules" /usr/lib/udev/rules.d
    udevadm test --action=add "/sys/class/block/$(basename "$disk")" >"$work/udev" 2>&1 || fail "udevadm test: $(<"$work/udev")"
    umount /usr/lib/udev/rules.d
    grep -qxF "$flag=1" "$work/udev" || fail "$flag is not set: $(<"$work/udev")"
    ! grep -q '^ID_FS_TYPE=tiffin\|^DEVLINKS=.*by-uuid' "$work/udev" || fail "$flag: the disk is read: $(<"$work/udev")"
done

say "UUID= and LABEL= without udev"
mkdir -p /dev/disk
mount -t tmpfs none /dev/disk
for tag in "UUID=$uuid" "UUID=\"${uuid^^}\"" "LABEL=$label"; do
    "$bin/mount.tiffin" "$tag" "$mount_point"
    [[ $(findmnt --noheadings --output SOURCE "$mount_point") == "$disk" ]] || fail "mounted by $tag: $(findmnt "$mount_point")"
    umount "$mount_point"
    "$bin/fsck.tiffin" -n "$disk" >/dev/null
done
refused() {
    local text=$1
    shift
    ! "$@" >"$work/error" 2>&1 || fail "succeeded: $*"
    contains "$(<"$work/error")" "$text"
}
refused "no disk has a Tiffin file system with LABEL=none" "$bin/mount.tiffin" LABEL=none "$mount_point"
refused "the value is missing" "$bin/mount.tiffin" UUID= "$mount_point"
cp "$image" "$work/copy"
attach "$work/copy"
refused "both have UUID=$uuid: name the device" "$bin/mount.tiffin" "UUID=$uuid" "$mount_point"

say "fstab, with the links that udev makes"
mkdir "$work/real-sbin" "$work/sbin" /dev/disk/by-uuid /dev/disk/by-label
mount --bind "$(realpath /sbin)" "$work/real-sbin"
ln -s "$work/real-sbin"/* "$work/sbin"
ln -sf "$bin/mount.tiffin" "$work/sbin/mount.fuse.tiffin"
mount --bind "$work/sbin" "$(realpath /sbin)"
ln -s "$disk" "/dev/disk/by-uuid/$uuid"
ln -s "$disk" "/dev/disk/by-label/$escaped"
cp /etc/fstab "$work/fstab" 2>/dev/null || : >"$work/fstab"
mount --bind "$work/fstab" /etc/fstab 2>/dev/null || fail "there is no /etc/fstab"
"$bin/mount.tiffin" "LABEL=$label" "$mount_point"  # by the link: there are two of them
umount "$mount_point"
"$bin/fsck.tiffin" -n "$disk" >/dev/null
echo "UUID=$uuid $mount_point fuse.tiffin noauto 0 0" >>/etc/fstab
mount "$mount_point"
[[ $(findmnt --noheadings --output SOURCE "$mount_point") == "$disk" ]] || fail "mounted by fstab: $(findmnt "$mount_point")"
umount "$mount_point"
"$bin/fsck.tiffin" -n "$disk" >/dev/null
echo "passed"
