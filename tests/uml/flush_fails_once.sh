#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A device that says once only that a flush has failed: what was to be durable by it may be lost, so no fsync succeeds any
# more. The flush is that of a checkpoint, and held back (planted.h) until a write that comes behind the checkpoint is in
# the journal's memory. Run by tests/uml/run.
set -euo pipefail
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
hold_flush=/sys/module/tiffin_vfs/parameters/hold_flush
make_device 200
# The disk in memory has no cache that must be flushed; a loop device has.
insmod "$kernel_modules/drivers/block/loop.ko"
losetup /dev/loop0 "$device"
device=/dev/loop0
load_modules
make_file_system
mount_device rw
[[ $(<$hold_flush) == 0 ]] || fail "a flush is held back from the beginning"

say "a checkpoint whose flush is held back"
echo 1 >$hold_flush
python3 - "$mount_point" $hold_flush <<'END' || fail "see above"
import ctypes, errno, os, sys, time
folder, hold_flush = sys.argv[1:]
def state():
    return int(open(hold_flush).read())
made = 0
while state() != 2:  # until the journal is so full that there is a checkpoint
    file = os.open(f"{folder}/{made}", os.O_CREAT | os.O_RDWR)
    os.setxattr(file, "user.long", b"x" * 1000)
    os.fsync(file)
    os.close(file)
    made += 1
    assert made < 100000, "there is no checkpoint"
file = os.open(folder + "/behind", os.O_CREAT | os.O_RDWR)
os.pwrite(file, b"y" * 100000, 0)
# In the device and in the journal's memory, but not durable: SYNC_FILE_RANGE_WAIT_BEFORE, WRITE and WAIT_AFTER.
if ctypes.CDLL(None).sync_file_range(file, ctypes.c_int64(0), ctypes.c_int64(0), 7) != 0:
    sys.exit("sync_file_range has failed")
with open(hold_flush, "w") as release:
    release.write("0")
while state() != 3:  # one that has not failed yet promises nothing
    time.sleep(0.001)
try:
    os.fsync(file)
    sys.exit("fsync has succeeded behind a flush that failed")
except OSError as error:
    assert error.errno in (errno.EIO, errno.EROFS), error
END
umount "$mount_point" || true
