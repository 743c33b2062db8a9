#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Reads of files in many pieces: data, holes and unwritten blocks in one request, at any offset. With
# mem: the kernel gets the answer from the device's own memory, with file: through buffers.
#
# usage: fragmented_reads.sh DEVICE_ADDRESS [SEED]      (mem:SIZE or file:PATH; what PATH holds is lost)
set -euo pipefail
[[ $# -ge 1 ]] || { echo "usage: $(basename "$0") DEVICE_ADDRESS [SEED]" >&2; exit 2; }
address=$1
seed=${2:-1}
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
need_programs python3

use_device "$address" 1G
mount_device noatime
say "seed $seed"
python3 - "$mount_point" "$seed" <<'PYTHON'
import ctypes
import mmap
import os
import random
import sys

random.seed(int(sys.argv[2]))
path = sys.argv[1] + "/file"
libc = ctypes.CDLL(None, use_errno=True)
SIZE = 12 << 20
KEEP_SIZE, PUNCH_HOLE = 1, 2
expected = bytearray(SIZE)
file = os.open(path, os.O_RDWR | os.O_CREAT)
os.ftruncate(file, SIZE)


def place(length):
    start = random.randrange(SIZE)
    return start, min(length, SIZE - start)


def allocate(mode, start, length):
    if libc.fallocate(file, mode, ctypes.c_long(start), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


for i in range(2000):
    start, length = place(random.choice([1, 100, 4096, 5000, 65536, 200000]))
    data = random.randbytes(length)
    os.pwrite(file, data, start)
    expected[start:start + length] = data
    if i % 5 == 0:
        start, length = place(random.randrange(1, 40000))
        allocate(PUNCH_HOLE | KEEP_SIZE, start, length)
        expected[start:start + length] = bytes(length)
        start, length = place(random.randrange(1, 40000))
        allocate(0, start, length)
    if i % 50 == 0:
        os.fsync(file)
os.fsync(file)
os.close(file)

# Around the kernel's cache, so that each read reaches the file system.
direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
buffer = mmap.mmap(-1, 4 << 20)
for i in range(600):
    start = random.randrange(SIZE + 8192) // 512 * 512
    view = memoryview(buffer)[:random.choice([512, 4096, 12288, 1 << 20, 3 << 20])]
    length = os.preadv(direct, [view], start)
    wanted = expected[start:start + len(view)]
    if length != len(wanted) or view[:length] != wanted:
        sys.exit(f"{len(view)} bytes at {start} are not what was written")
PYTHON
"$bin/tiffin" scrub -q "$mount_point"
unmount_device
if ! in_memory; then
    "$bin/fsck.tiffin" -n "$device" >"$work/fsck" || fail "fsck.tiffin: $(<"$work/fsck")"
fi
echo "passed"
