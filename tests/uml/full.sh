#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A full volume: what write and fsync took is there after a remount, and what did not fit was refused. Run by tests/uml/run.
set -euo pipefail
: "${repository:?tests/uml/run starts this}"
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
make_device 64
load_modules
make_file_system
mount_device rw

# Content of up to 1 KiB lies in the tree.
for size in 500 1000 5000 700000 3000000; do
    say "copies of $size bytes until the volume is full"
    copies=$(python3 "$repository/tests/uml/fill.py" fill "$mount_point" "$size") || fail "filling"
    sync -f "$mount_point" || fail "what was written is refused by sync"
    remount "$copies copies of $size bytes"
    python3 "$repository/tests/uml/fill.py" check "$mount_point" "$size" "$copies" || fail "$copies copies"
    rm "$mount_point"/*
done

say "overwriting and mappings on a full volume"
python3 - "$mount_point" <<'END' || fail "see above"
import errno, mmap, os, sys
folder = sys.argv[1]
MIB = 1 << 20
mapped_file = os.open(folder + "/mapped", os.O_RDWR | os.O_CREAT)
os.posix_fallocate(mapped_file, 0, 4 * MIB)
old = os.open(folder + "/old", os.O_RDWR | os.O_CREAT)
os.write(old, b"a" * (4 * MIB))
os.fsync(old)
hole = os.open(folder + "/hole", os.O_RDWR | os.O_CREAT)
# Small ones that were large: their content has blocks.
small = [os.open(f"{folder}/small{i}", os.O_RDWR | os.O_CREAT) for i in range(400)]
for file in small:
    os.ftruncate(file, MIB)
    os.ftruncate(file, 500)
# Of which a size is all there is.
sparse = [f"{folder}/sparse{i}" for i in range(1500)]
for path in sparse:
    os.close(os.open(path, os.O_CREAT))
    os.truncate(path, 1000)
short = [f"{folder}/short{i}" for i in range(1500)]
for path in short:
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.write(file, b"s")
    os.ftruncate(file, 1000)
    os.close(file)
stored = os.open(folder + "/stored", os.O_RDWR | os.O_CREAT)
os.write(stored, b"s" * 1000)
os.sync()
filler = os.open(folder + "/filler", os.O_WRONLY | os.O_CREAT)
written = 0
try:
    while True:
        written += os.write(filler, bytes(MIB))
except OSError as error:
    assert error.errno == errno.ENOSPC, error
os.fsync(filler)
assert os.fstat(filler).st_size == written, (os.fstat(filler).st_size, written)
# What has its blocks can be written.
for _ in range(3):
    assert os.pwrite(old, b"b" * (4 * MIB), 0) == 4 * MIB
    os.fsync(old)
with mmap.mmap(mapped_file, 4 * MIB) as mapped:
    for i in range(0, 4 * MIB, 4096):
        mapped[i] = 1
    mapped.flush()
os.fsync(mapped_file)
# And what has not is refused at once: small files that were large,
for _ in range(3):
    try:
        while True:
            os.write(filler, bytes(4096))
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    os.fsync(filler)
refused = 0
for file in small:
    try:
        os.pwrite(file, b"x", 0)
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
        refused += 1
    os.fsync(file)
    os.ftruncate(file, 0)
    os.close(file)
assert refused > 0
refused = 0
for path in sparse:
    file = os.open(path, os.O_RDWR)
    try:
        os.pwrite(file, b"x" * 1000, 0)
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
        refused += 1
    os.fsync(file)
    os.close(file)
assert refused > 0
# What is written back of a file is more than what was overwritten.
for path in short:
    file = os.open(path, os.O_RDWR)
    assert os.pwrite(file, b"t", 0) == 1
    os.close(file)
os.sync()
for path in short:
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    assert os.pread(file, 1001, 0) == b"t" + bytes(999)
    os.close(file)
assert os.pwrite(stored, b"t" * 1000, 0) == 1000
os.fsync(stored)
# a hole, by write() and by a signal to who stores to it.
os.ftruncate(hole, 8 * MIB)
try:
    total = 0
    while total < 8 * MIB:
        total += os.pwrite(hole, b"c" * MIB, total)
    sys.exit("a hole could be filled on a full volume")
except OSError as error:
    assert error.errno == errno.ENOSPC, error
os.ftruncate(hole, 0)
os.ftruncate(hole, 8 * MIB)
child = os.fork()
if child == 0:
    with mmap.mmap(hole, 8 * MIB) as mapped:
        for i in range(0, 8 * MIB, 4096):
            mapped[i] = 1
    os._exit(0)
_, status = os.waitpid(child, 0)
assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == 7, status  # SIGBUS
os.fsync(hole)
END
remount "a full volume"
cmp "$mount_point/old" <(head -c 4194304 /dev/zero | tr '\0' b) || fail "what was overwritten is not there"
unmount_device
check_device "at the end"
unload_modules
