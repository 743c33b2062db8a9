# SPDX-License-Identifier: MIT OR GPL-2.0-only
# What the scripts that run inside user-mode Linux share. tests/uml/run gives them $repository, $bin (the programs), $modules
# and $kernel_modules.
# shellcheck shell=bash disable=SC2154

mount_point=/tmp/mnt
device=/dev/ram0

say() { echo "== $*"; }
fail() {
    echo "FAILED: $*"
    exit 1
}

# make_device MIB: a disk in memory, empty.
make_device() {
    ! lsmod | grep -q '^brd' || rmmod brd
    insmod "$kernel_modules/drivers/block/brd.ko" rd_nr=1 "rd_size=$(($1 * 1024))"
}

load_modules() {
    insmod "$modules/tiffin_vfs.ko"
    insmod "$modules/tiffin_tiffinfs.ko"
}
# The kernel's log tells what was not released.
unload_modules() { rmmod tiffin_tiffinfs tiffin_vfs; }

make_file_system() { "$bin/mkfs.tiffin" -f "$device" >/tmp/mkfs || fail "mkfs.tiffin: $(</tmp/mkfs)"; }
# mount_device OPTIONS
mount_device() { mount -t tiffin -o "$1" "$device" "$mount_point" || fail "mount -o $1"; }
unmount_device() { umount "$mount_point" || fail "umount"; }
check_device() {
    "$bin/fsck.tiffin" -n -f --data "$device" >/tmp/fsck 2>&1 || fail "fsck.tiffin -n, $1: $(</tmp/fsck)"
}
# What is read next comes from the device.
drop_caches() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
}
# Unmounts, checks, mounts again.
remount() {
    unmount_device
    check_device "$1"
    mount_device rw
}
