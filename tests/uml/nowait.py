#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Reads and writes that must not wait (RWF_NOWAIT): what is in the page cache is read, everything else is EAGAIN.

usage: nowait.py FOLDER     (of an empty mount of the module)
"""
import errno
import mmap
import os
import sys

KIB = 1024
SIZE = 64 * KIB
RWF_NOWAIT = 8


def expect_again(what, call):
    try:
        result = call()
    except OSError as error:
        assert error.errno == errno.EAGAIN, f"{what}: {error}"
    else:
        sys.exit(f"{what}: {result} instead of EAGAIN")


def read_uncached(what, file, memory, content, offset):
    """Newer kernels begin to read ahead even then, and a disk in memory is done before they look again."""
    if os.uname().release.startswith("6.1."):
        expect_again(what, lambda: os.preadv(file, [memory], offset, RWF_NOWAIT))
        return
    try:
        length = os.preadv(file, [memory], offset, RWF_NOWAIT)
    except BlockingIOError:
        return
    assert memory[:length] == content[offset : offset + length], what


def main():
    name = os.path.join(sys.argv[1], "nowait")
    content = os.urandom(SIZE)
    file = os.open(name, os.O_RDWR | os.O_CREAT)
    os.pwrite(file, content, 0)
    os.fsync(file)
    memory = mmap.mmap(-1, SIZE)

    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as caches:
        caches.write("1")
    read_uncached("a read of what is not cached", file, memory, content, 0)
    # Cached pages, up to one that is not.
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as caches:
        caches.write("1")
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    assert os.pread(file, 8 * KIB, 0) == content[: 8 * KIB]
    assert os.preadv(file, [memory], 0, RWF_NOWAIT) >= 8 * KIB
    assert memory[: 8 * KIB] == content[: 8 * KIB]
    read_uncached("a read behind them", file, memory, content, 8 * KIB)
    assert os.pread(file, SIZE, 0) == content
    assert os.preadv(file, [memory], 0, RWF_NOWAIT) == SIZE
    assert memory[:] == content
    assert os.preadv(file, [memory], SIZE, RWF_NOWAIT) == 0

    expect_again("a write", lambda: os.pwritev(file, [b"x"], 0, RWF_NOWAIT))
    direct = os.open(name, os.O_RDWR | os.O_DIRECT)
    expect_again("a direct read", lambda: os.preadv(direct, [memory], 0, RWF_NOWAIT))
    expect_again("a direct write", lambda: os.pwritev(direct, [memory], 0, RWF_NOWAIT))
    assert os.pread(file, SIZE, 0) == content, "a write that was refused has changed the file"


main()
