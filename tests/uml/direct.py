#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""The steps of direct.sh.

usage: direct.py STEP FILE [SEED]
"""
import ctypes
import errno
import json
import mmap
import os
import random
import sys

from lib.calls import LIBC, WRITE, Queue, address_of, fallocate

BLOCK = 4096
MIB = 1 << 20


def memory_at(offset, size):
    """`size` bytes of memory that begin `offset` bytes behind a page."""
    return memoryview(mmap.mmap(-1, offset + size + BLOCK))[offset:offset + size]


def alignment(name, seed):
    """Reads and writes at places and from memory of all alignments, of up to three pieces, compared with a model."""
    draw = random.Random(seed)
    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_DIRECT)
    model = bytearray()
    for number in range(60):
        unit = draw.choice([1, 10, 512, BLOCK])
        longest = draw.choice([700, 3 * BLOCK, 20 * BLOCK, 2 * MIB + 5 * BLOCK])
        position = draw.randrange(0, 3 * MIB) // unit * unit
        length = max(draw.randrange(longest) // unit * unit, unit)
        memory = memory_at(draw.choice([0, 1, 512, 4095]) // min(unit, 512) * min(unit, 512), length)
        if draw.random() < 0.6:
            content = draw.randbytes(length)
            memory[:] = content
            assert os.pwrite(file, memory, position) == length, f"write {number}"
            model.extend(bytes(max(position + length - len(model), 0)))
            model[position:position + length] = content
            assert os.fstat(file).st_size == len(model), f"size after write {number}"
        else:
            wanted = model[position:position + length]
            assert os.preadv(file, [memory], position) == len(wanted), f"read {number}"
            assert memory[:len(wanted)] == wanted, f"read {number}: {position}+{length}"
    # The first one that once had the kernel complain.
    os.ftruncate(file, 0)
    assert os.pwrite(file, b"x" * (2 * BLOCK), 100) == 2 * BLOCK
    assert os.pread(file, 3 * BLOCK, 100) == b"x" * (2 * BLOCK)
    assert os.pwrite(file, b"y" * (MIB + 10), 2 * BLOCK + 100) == MIB + 10
    assert os.fstat(file).st_size == MIB + 10 + 2 * BLOCK + 100
    os.close(file)


def prepare_halves(name):
    file = os.open(name, os.O_RDWR | os.O_CREAT)
    os.pwrite(file, b"A" * 2 * BLOCK, 0)
    os.fsync(file)


def halves(name):
    """libaio writes 512 bytes; before it is done, another byte of the block is written through the page cache."""
    queue = Queue(1, 512)
    direct = os.open(name, os.O_RDWR | os.O_DIRECT)
    memory = mmap.mmap(-1, BLOCK)
    memory[:512] = b"B" * 512
    assert queue.submit(direct, WRITE, memory, [0]) == 1
    buffered = os.open(name, os.O_RDWR)
    assert os.pwrite(buffered, b"C", 2048) == 1
    assert queue.events(1) == [512]
    os.fsync(buffered)
    queue.close()


def check_halves(name):
    content = open(name, "rb").read()
    assert content[:512] == b"B" * 512, "what was written directly is lost"
    assert content[2048] == ord("C"), "what was written through the page cache is lost"
    assert content[512:2048] + content[2049:] == b"A" * (2 * BLOCK - 513), "the rest has changed"


def prepare_failure(name):
    """Room behind the end of an empty file, for three megabytes; prints its inode number."""
    file = os.open(name, os.O_RDWR | os.O_CREAT)
    keep_size = 1
    fallocate(file, keep_size, 0, 3 * MIB)
    print(os.fstat(file).st_ino)


def find_failure(name):
    """Of what tiffin dump says of the inode: where its second megabyte is, as the first sector and how many."""
    with open(name, encoding="utf-8") as dump:
        extents = [(entry["key"]["offset"], entry["value"]) for entry in json.load(dump)["keys"]
                   if entry["key"]["kind"] == "extent"]
    place = [value["physical_block"] * BLOCK + MIB - offset for offset, value in extents
             if offset <= MIB and offset + value["block_count"] * BLOCK >= 2 * MIB]
    assert place, f"the second megabyte is in pieces: {extents}"
    print(place[0] // 512, MIB // 512)


def write_direct(name, byte, size, more_flags=0):
    """At the position of a file that has just been opened. Returns how much was written, and the size of the file."""
    file = os.open(name, os.O_RDWR | os.O_DIRECT | more_flags)
    memory = mmap.mmap(-1, size)
    memory[:] = byte * size
    written = os.write(file, memory), os.fstat(file).st_size
    os.close(file)
    return written


def failure(name):
    assert write_direct(name, b"x", 3 * MIB) == (MIB, MIB)


def append_failure(name):
    assert write_direct(name, b"x", 3 * MIB, os.O_APPEND) == (MIB, MIB)


def append_again(name):
    """What failed is at the end again, and works now."""
    assert write_direct(name, b"y", 2 * MIB, os.O_APPEND) == (2 * MIB, 3 * MIB)


def check_append(name):
    with open(name, "rb") as file:
        assert file.read() == b"x" * MIB + b"y" * 2 * MIB


def check_failure(name):
    """What a program was not told it has written is not there, nor does it come back."""
    file = os.open(name, os.O_RDWR)
    assert os.fstat(file).st_size == MIB, f"the size is {os.fstat(file).st_size}"
    os.ftruncate(file, 3 * MIB)
    assert os.pread(file, MIB, 0) == b"x" * MIB
    assert os.pread(file, 2 * MIB, MIB) == bytes(2 * MIB), "what was refused is there"
    os.close(file)


def bad_memory(name):
    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    pages = mmap.mmap(-1, 4 * MIB)
    pages[:] = b"z" * 4 * MIB
    address = address_of(pages)
    # The kernel of user-mode Linux does not look at mprotect().
    hole = address + MIB + 10 * BLOCK
    assert LIBC.munmap(ctypes.c_void_p(hole), ctypes.c_size_t(BLOCK)) == 0
    written = LIBC.pwrite(file, ctypes.c_void_p(address), ctypes.c_size_t(3 * MIB), ctypes.c_int64(0))
    assert written == MIB + 10 * BLOCK, f"{written}: {os.strerror(ctypes.get_errno())}"
    assert os.fstat(file).st_size == written
    assert LIBC.pwrite(file, ctypes.c_void_p(hole), ctypes.c_size_t(BLOCK), ctypes.c_int64(8 * MIB)) == -1
    assert ctypes.get_errno() == errno.EFAULT
    assert os.fstat(file).st_size == written
    # What has been allocated behind the end stays where nothing has been written.
    assert LIBC.fallocate(file, 1, ctypes.c_int64(0), ctypes.c_int64(3 * MIB)) == 0
    blocks = os.fstat(file).st_blocks
    assert LIBC.pwrite(file, ctypes.c_void_p(hole), ctypes.c_size_t(BLOCK), ctypes.c_int64(2 * MIB)) == -1
    assert os.fstat(file).st_blocks == blocks
    os.ftruncate(file, written)


def check_bad_memory(name):
    content = open(name, "rb").read()
    assert content == b"z" * (MIB + 10 * BLOCK), f"{len(content)} bytes"


def main():
    step = globals()[sys.argv[1]]
    step(sys.argv[2], *map(int, sys.argv[3:]))


main()
