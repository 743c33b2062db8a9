#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Idmapped mounts of the module, and of ext4, to see that the test is right. Run by tests/uml/run.
set -euo pipefail
: "${repository:?tests/uml/run starts this}"
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
insmod "$kernel_modules/drivers/block/brd.ko" rd_nr=2 rd_size=$((64 * 1024))
load_modules
make_file_system
mount_device rw
mkdir /tmp/ext4 /tmp/mapped
mkfs.ext4 -q -F /dev/ram1
mount -t ext4 /dev/ram1 /tmp/ext4

for place in /tmp/ext4 "$mount_point"; do
    say "$place"
    mkdir "$place/try"
    python3 "$(dirname "$0")/idmapped.py" "$place/try" /tmp/mapped || fail "$place: see above"
    umount /tmp/mapped
done
# What the disk says is that which was shown without the map.
remount "with idmapped mounts"
[[ $(stat --format %u:%g "$mount_point/try/file") == 3:4 ]] || fail "the owner is another one after mounting again"
unmount_device
umount /tmp/ext4
unload_modules
say "done"
