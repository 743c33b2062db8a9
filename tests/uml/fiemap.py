#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Where the kernel says files are on the device (FS_IOC_FIEMAP), compared with what is there.

usage: fiemap.py FOLDER DEVICE     (a mount of the module, and its device)
"""
import ctypes
import errno
import fcntl
import os
import struct
import sys

FS_IOC_FIEMAP = 0xC020660B
LAST, UNWRITTEN, INLINE, NOT_ALIGNED = 0x1, 0x800, 0x200, 0x100
KEEP_SIZE = 1
HEADER, EXTENT = struct.Struct("=QQLLLL"), struct.Struct("=QQQQQLLLL")
BLOCK = 4096


def fiemap(file, start=0, length=2**64 - 1, capacity=64, flags=0):
    """The extents (offset, place on the device, length, flags), and how many there are, also where none are wanted."""
    request = bytearray(HEADER.size + capacity * EXTENT.size)
    HEADER.pack_into(request, 0, start, length, flags, 0, capacity, 0)
    fcntl.ioctl(file, FS_IOC_FIEMAP, request)
    count = HEADER.unpack_from(request)[3]
    extents = [EXTENT.unpack_from(request, HEADER.size + i * EXTENT.size) for i in range(min(count, capacity))]
    return [(offset, place, length, flags) for offset, place, length, _, _, flags, *_ in extents], count


def blocks(extents):
    """Which block of the file has which flags, but LAST."""
    return {
        block: flags & ~LAST
        for offset, _, length, flags in extents
        for block in range(offset // BLOCK, (offset + length) // BLOCK)
    }


def main():
    folder, device = sys.argv[1:]
    content = os.urandom(100 * BLOCK)
    file = os.open(os.path.join(folder, "fiemap"), os.O_RDWR | os.O_CREAT)
    assert fiemap(file) == ([], 0), "an empty file"

    os.pwrite(file, content[:500], 0)
    (extent,), _ = fiemap(file)
    assert extent == (0, 0, 500, LAST | INLINE | NOT_ALIGNED), extent

    os.ftruncate(file, 0)
    os.pwrite(file, content[: 10 * BLOCK], 0)
    os.pwrite(file, content[20 * BLOCK : 30 * BLOCK], 20 * BLOCK)
    os.posix_fallocate(file, 40 * BLOCK, 10 * BLOCK)
    os.pwrite(file, content[45 * BLOCK : 47 * BLOCK], 45 * BLOCK)
    # What waits in the page cache has a place, too.
    extents, count = fiemap(file)
    expected = {block: 0 for block in (*range(10), *range(20, 30), 45, 46)}
    expected |= {block: UNWRITTEN for block in (*range(40, 45), *range(47, 50))}
    assert blocks(extents) == expected, extents
    assert [flags & LAST for *_, flags in extents] == [0] * (count - 1) + [LAST], extents
    assert fiemap(file, capacity=0) == ([], count)
    assert fiemap(file, capacity=2) == (extents[:2], 2)

    os.fsync(file)
    disk = os.open(device, os.O_RDONLY)
    for offset, place, length, flags in extents:
        if not flags & UNWRITTEN:
            assert os.pread(disk, length, place) == content[offset : offset + length], (offset, place, length)

    # A part: not the last one, and the last one.
    extents, _ = fiemap(file, 22 * BLOCK, 3 * BLOCK)
    assert blocks(extents).keys() >= {22, 23, 24} and not extents[-1][3] & LAST, extents
    extents, _ = fiemap(file, 48 * BLOCK, BLOCK)
    assert blocks(extents).keys() >= {48} and extents[-1][3] & LAST, extents
    assert fiemap(file, 12 * BLOCK, 3 * BLOCK) == ([], 0), "a hole"
    assert fiemap(file, 1000 * BLOCK) == ([], 0), "behind the end"

    # Reserved behind the end of file; an empty file is one, too.
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    assert libc.fallocate(file, KEEP_SIZE, 60 * BLOCK, 5 * BLOCK) == 0, os.strerror(ctypes.get_errno())
    extents, _ = fiemap(file)
    assert blocks(extents) == expected | {block: UNWRITTEN for block in range(60, 65)}, extents
    assert [flags & LAST for *_, flags in extents[-2:]] == [0, LAST], extents
    os.ftruncate(file, 50 * BLOCK)
    assert blocks(fiemap(file)[0]) == expected, "truncated to its size"
    empty = os.open(os.path.join(folder, "fiemap-empty"), os.O_RDWR | os.O_CREAT)
    assert libc.fallocate(empty, KEEP_SIZE, 0, 3 * BLOCK) == 0, os.strerror(ctypes.get_errno())
    assert blocks(fiemap(empty)[0]) == {block: UNWRITTEN for block in range(3)}
    os.close(empty)
    try:
        fiemap(file, flags=0x8000)
    except OSError as error:
        assert error.errno == errno.EBADR, error
    else:
        sys.exit("an unknown flag was accepted")

    # More than one mapping holds.
    for block in range(0, 1000, 2):
        os.pwrite(file, b"x", block * BLOCK)
    os.posix_fallocate(file, 1001 * BLOCK, 3000 * BLOCK)
    extents, count = fiemap(file, capacity=2000)
    assert blocks(extents).keys() >= set(range(0, 1000, 2)) | set(range(1001, 4001)), count


main()
