#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A broken invariant: its mount is closed and what is on its device stays as it is; another mount and the machine go on.
# Before the first change of an operation it is an error, and the volume is shut down, but everything comes to an end.
# Run by tests/uml/run.
set -euo pipefail
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
rounds=4
insmod "$kernel_modules/drivers/block/brd.ko" rd_nr=$((rounds + 1)) rd_size=$((64 * 1024))
insmod "$kernel_modules/drivers/block/loop.ko"
load_modules
parameters=/sys/module/tiffin_tiffinfs/parameters
sound=/tmp/sound
mkdir "$sound"
mount_sound() {
    device=/dev/ram$rounds
    make_file_system
    mount -t tiffin "$device" "$sound"
    echo before >"$sound/file"
    sync -f "$sound"
}

# check_durable IMAGE: as after a loss of power.
check_durable() {
    local loop
    "$bin/fsck.tiffin" -y -f --data "$1" >/tmp/fsck 2>&1 || [[ $? -le 1 ]] || fail "fsck.tiffin: $(</tmp/fsck)"
    "$bin/fsck.tiffin" -n -f --data "$1" >/tmp/fsck 2>&1 || fail "fsck.tiffin again: $(</tmp/fsck)"
    mkdir -p /tmp/copy
    loop=$(losetup --find --show "$1")
    mount -t tiffin "$loop" /tmp/copy
    [[ $(</tmp/copy/durable/file) == content ]] || fail "what was durable is gone"
    umount /tmp/copy
    losetup --detach "$loop"
}

say "before the first change"
mount_sound
device=/dev/ram0
mount_point=/tmp/early
mkdir "$mount_point"
for places in 1 2 5 13 34 89; do
    make_file_system
    mount_device rw
    mkdir "$mount_point/durable" "$mount_point/other"
    echo content >"$mount_point/durable/file"
    sync -f "$mount_point"
    said=$(dmesg | grep -c 'broken invariant' || true)
    echo "$places" >$parameters/break_before_change_after
    # All kinds of changes, until one fails; and pages that are written back meanwhile.
    python3 - "$mount_point" <<'PYTHON' || fail "see above"
import errno, os, sys
os.chdir(sys.argv[1] + "/other")
for i in range(1000):
    try:
        with open(f"{i}", "wb") as file:
            file.write(bytes(5000))
            os.fsync(file.fileno())
            file.truncate(10)
        os.setxattr(f"{i}", "user.name", b"value")
        os.link(f"{i}", f"{i}l")
        os.rename(f"{i}l", f"{i}m")
        os.mkdir(f"{i}d")
    except OSError as error:
        assert error.errno == errno.EIO, error
        break
else:
    sys.exit("nothing has failed")
try:
    os.mkdir("later")
    sys.exit("a change has succeeded")
except OSError as error:
    assert error.errno == errno.EIO, error
PYTHON
    [[ $(<$parameters/break_before_change_after) -eq 0 ]] || fail "nothing was broken"
    [[ $(dmesg | grep -c 'broken invariant') -gt $said ]] || fail "the kernel's log does not say it"
    cp "$device" /tmp/image
    unmount_device
    cmp "$device" /tmp/image || fail "something was written to the device"
    check_durable /tmp/image
done
umount "$sound"
# Nothing has stayed behind.
unload_modules
load_modules
mount_sound
expect_complaints

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
    echo $((1 + round * 7)) >$parameters/break_after
    # It may hang, so nobody waits for it.
    (for i in $(seq 100); do
        echo "$i" >"$mount_point/other/$i"
        sync "$mount_point/other/$i"
    done) 2>/dev/null &
    for _ in $(seq 600); do
        [[ $(<$parameters/break_after) -ne 0 ]] || break
        sleep 0.1
    done
    [[ $(<$parameters/break_after) -eq 0 ]] || fail "nothing was broken"
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
    # The mount has the device open, so what cp has read of it would be compared with itself.
    echo 1 >/proc/sys/vm/drop_caches
    cmp "$device" /tmp/image || fail "something was written to the device"
    check_durable /tmp/image
done
umount "$sound"
device=/dev/ram$rounds
check_device "the other mount"
! rmmod tiffin_tiffinfs 2>/dev/null || fail "a module in which threads are for ever was unloaded"
say "done"
