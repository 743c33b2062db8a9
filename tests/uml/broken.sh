#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A broken invariant: its mount is closed and what is on its device stays as it is; another mount and the machine go on.
# Run by tests/uml/run.
set -euo pipefail
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
rounds=4
insmod "$kernel_modules/drivers/block/brd.ko" rd_nr=$((rounds + 1)) rd_size=$((64 * 1024))
insmod "$kernel_modules/drivers/block/loop.ko"
load_modules
expect_complaints

sound=/tmp/sound
mkdir "$sound"
device=/dev/ram$rounds
make_file_system
mount -t tiffin "$device" "$sound"
echo before >"$sound/file"
sync -f "$sound"

# Each at another place: the n-th release of a lock that somebody has had alone.
for round in $(seq 0 $((rounds - 1))); do
    device=/dev/ram$round
    mount_point=/tmp/broken$round
    mkdir "$mount_point"
    make_file_system
    mount_device rw
    mkdir "$mount_point/durable" "$mount_point/other"
    echo content >"$mount_point/durable/file"
    # Without -f it would wait for the closed mounts, too: docs/kernel.md.
    sync -f "$mount_point"
    echo $((1 + round * 7)) >/sys/module/tiffin_tiffinfs/parameters/break_after
    # It may hang, so nobody waits for it.
    (for i in $(seq 100); do
        echo "$i" >"$mount_point/other/$i"
        sync "$mount_point/other/$i"
    done) 2>/dev/null &
    for _ in $(seq 600); do
        [[ $(</sys/module/tiffin_tiffinfs/parameters/break_after) -ne 0 ]] || break
        sleep 0.1
    done
    [[ $(</sys/module/tiffin_tiffinfs/parameters/break_after) -eq 0 ]] || fail "nothing was broken"
    for _ in $(seq 600); do
        [[ $(dmesg | grep -c "tiffin: ram$round: closed") -eq 0 ]] || break
        sleep 0.1
    done
    [[ $(dmesg | grep -c "tiffin: ram$round: closed") -eq 1 ]] || fail "the mount is not closed"

    say "new calls"
    python3 - "$mount_point" <<'PYTHON' || fail "see above"
import errno, os, sys
for call in (lambda: os.statvfs(sys.argv[1]), lambda: os.stat(sys.argv[1] + "/durable")):
    try:
        call()
        sys.exit("a call has succeeded")
    except OSError as error:
        assert error.errno == errno.EIO, error
PYTHON
    cp "$device" /tmp/image
    say "the other mount"
    echo "round $round" >"$sound/$round"
    sync "$sound/$round"
    cp "$sound/file" "$sound/copy$round"
    cmp "$device" /tmp/image || fail "something was written to the device"
    # As after a loss of power.
    "$bin/fsck.tiffin" -y -f --data /tmp/image >/tmp/fsck 2>&1 || [[ $? -le 1 ]] || fail "fsck.tiffin: $(</tmp/fsck)"
    "$bin/fsck.tiffin" -n -f --data /tmp/image >/tmp/fsck 2>&1 || fail "fsck.tiffin again: $(</tmp/fsck)"
    mkdir -p /tmp/copy
    loop=$(losetup --find --show /tmp/image)
    mount -t tiffin "$loop" /tmp/copy
    [[ $(</tmp/copy/durable/file) == content ]] || fail "what was durable is gone"
    umount /tmp/copy
    losetup --detach "$loop"
done
umount "$sound"
device=/dev/ram$rounds
check_device "the other mount"
! rmmod tiffin_tiffinfs 2>/dev/null || fail "a module in which threads are for ever was unloaded"
say "done"
