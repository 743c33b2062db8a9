#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# The first steps: load, make, mount, a file, unmount, check, unload. Run by tests/uml/run.
# shellcheck disable=SC2154  # its environment
set -eux
bin=$repository/build/release/bin
insmod "$kernel_modules/drivers/block/brd.ko" rd_nr=1 rd_size=262144
insmod "$modules/tiffin_vfs.ko"
insmod "$modules/tiffin_tiffinfs.ko"
"$bin/mkfs.tiffin" /dev/ram0
mount -t tiffin /dev/ram0 /tmp/mnt
df /tmp/mnt
ls -la /tmp/mnt
echo hello >/tmp/mnt/a
cat /tmp/mnt/a
mkdir /tmp/mnt/d
cp /bin/bash /tmp/mnt/d/bash
cmp /bin/bash /tmp/mnt/d/bash
sync
echo 3 >/proc/sys/vm/drop_caches
cmp /bin/bash /tmp/mnt/d/bash
stat /tmp/mnt/d/bash
umount /tmp/mnt
"$bin/fsck.tiffin" -n /dev/ram0
mount -t tiffin /dev/ram0 /tmp/mnt
cmp /bin/bash /tmp/mnt/d/bash
cat /tmp/mnt/a
rm -r /tmp/mnt/d
umount /tmp/mnt
rmmod tiffin_tiffinfs tiffin_vfs
