#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# What a loss of power leaves after each flush: the checker finds nothing, and what fsync took is there. The device logs its
# writes, and the log is replayed. Run by tests/uml/run.
set -euo pipefail
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
: "${repository:?tests/uml/run starts this}" "${kernel_modules:?}" "${bin:?}"
program=$repository/tests/uml/flush_points.py
# The volume, the log, what is replayed, and a copy of that which is mounted.
insmod "$kernel_modules/drivers/block/brd.ko" rd_nr=4 rd_size=65536
load_device_mapper mod log-writes
load_modules
device=/dev/ram0
make_file_system
cp /dev/ram0 /dev/ram2
map_device "0 131072 log-writes /dev/ram0 /dev/ram1"

say "working"
mount_device rw
python3 "$program" work "$mount_point" mapped || fail "see above"
unmount_device
unmap_device

say "replaying"
cat >/tmp/look <<END
#!/bin/bash
set -e
if [[ \$1 == flush ]]; then
    "$bin/fsck.tiffin" -n -f --data /dev/ram2 >/tmp/fsck || { cat /tmp/fsck; exit 1; }
else
    cp /dev/ram2 /dev/ram3
    mount -t tiffin /dev/ram3 "$mount_point"
    python3 "$program" check "$mount_point" "\$((\$2 + 1))"
    umount "$mount_point"
fi
END
chmod +x /tmp/look
python3 "$program" replay /dev/ram1 /dev/ram2 /tmp/look || fail "see above"
unload_modules
