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

# load_device_mapper MODULE...: mod, which has the targets linear and error, and others of its kernel's dm-*.ko behind it.
load_device_mapper() {
    local module
    for module in "$@"; do
        insmod "$kernel_modules/drivers/md/dm-$module.ko"
    done
}
# map_device TABLE: the device is `mapped` from here on, which is what the table says. There is no udev to wait for.
map_device() {
    dmsetup create --noudevsync mapped --table "$1"
    dmsetup mknodes
    device=/dev/mapper/mapped
}
# set_table TABLE: what the mapped device is from now on.
set_table() {
    dmsetup suspend --nolockfs --noflush mapped
    dmsetup load mapped --table "$1"
    dmsetup resume --noudevsync mapped
}
unmap_device() { dmsetup remove --noudevsync mapped; }

# In a debugging kernel, unloading also looks for memory that nothing refers to.
kmemleak=/sys/kernel/debug/kmemleak
# Not in all kernels.
[[ -d /sys/kernel/debug/block ]] || mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null || true

load_modules() {
    [[ ! -e $kmemleak ]] || echo clear >$kmemleak
    insmod "$modules/tiffin_vfs.ko"
    insmod "$modules/tiffin_tiffinfs.ko"
}
# check_leaks: fails, and prints them, when there are allocations since load_modules() that nothing refers to.
check_leaks() {
    # Younger ones may be in a register only; the second scan is for what the first had seen in stale memory.
    sleep 6
    echo scan >$kmemleak
    echo scan >$kmemleak
    cat $kmemleak
    [[ -z $(<$kmemleak) ]]
}
# The kernel's log tells what of the core's memory was not released.
unload_modules() {
    rmmod tiffin_tiffinfs tiffin_vfs
    [[ ! -e $kmemleak ]] || check_leaks || fail "memory was not released"
}

make_file_system() { "$bin/mkfs.tiffin" -f "$device" >/tmp/mkfs || fail "mkfs.tiffin: $(</tmp/mkfs)"; }
# mount_device OPTIONS
mount_device() { mount -t tiffin -o "$1" "$device" "$mount_point" || fail "mount -o $1"; }
unmount_device() { umount "$mount_point" || fail "umount"; }
check_device() {
    "$bin/fsck.tiffin" -n -f --data "$device" >/tmp/fsck 2>&1 || fail "fsck.tiffin -n, $1: $(</tmp/fsck)"
}
# From here on the kernel may complain: tests/uml/run does not look at the rest of its log.
expect_complaints() { echo "tiffin-uml: complaints are expected" >/dev/kmsg; }
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
