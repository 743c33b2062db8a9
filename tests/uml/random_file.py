#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Changes one file in all ways at random, as fsx does, and compares it with what it has to hold.

usage: random_file.py PATH SEED STEPS
"""
import ctypes
import errno
import mmap
import os
import random
import sys

from lib.calls import LIBC, fallocate

MAXIMUM = 400_000
BLOCK = 4096
KEEP_SIZE, PUNCH_HOLE, COLLAPSE, ZERO, INSERT = 1, 2, 8, 16, 32


class RandomFile:
    def __init__(self, path):
        self.path = path
        self.content = bytearray()
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.log = []

    def grow(self, size):
        self.content.extend(bytes(max(0, size - len(self.content))))

    def zero(self, start, end):
        end = min(end, len(self.content))
        if start < end:
            self.content[start:end] = bytes(end - start)

    def write(self, start, length):
        data = random.randbytes(length)
        assert os.pwrite(self.file, data, start) == length
        self.grow(start)
        self.content[start:start + length] = data

    def store(self, start, length):
        """Through a mapping; also behind the end of the file in its last page, where it must not stay."""
        if not self.content:
            return
        start %= len(self.content)
        length = min(length, len(self.content) - start)
        pages = -(-len(self.content) // BLOCK) * BLOCK
        data = random.randbytes(length)
        with mmap.mmap(self.file, len(self.content)) as mapped:
            mapped[start:start + length] = data
            if random.random() < 0.3:
                mapped.flush()
        self.content[start:start + length] = data
        if pages > len(self.content) and random.random() < 0.5:
            address = LIBC.mmap(None, pages, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, self.file, 0)
            ctypes.memset(address + len(self.content), 0x5a, pages - len(self.content))
            LIBC.munmap(ctypes.c_void_p(address), pages)

    def load(self):
        if self.content:
            with mmap.mmap(self.file, len(self.content), prot=mmap.PROT_READ) as mapped:
                self.compare(mapped[:], "mapped")

    def truncate(self, size):
        os.ftruncate(self.file, size)
        self.grow(size)
        del self.content[size:]

    def allocate(self, start, length):
        mode = random.choice((0, KEEP_SIZE, PUNCH_HOLE | KEEP_SIZE, ZERO, ZERO | KEEP_SIZE, COLLAPSE, INSERT))
        if mode in (COLLAPSE, INSERT):
            start, length = start // BLOCK * BLOCK, max(length // BLOCK, 1) * BLOCK
            if start >= len(self.content) or (mode == COLLAPSE and start + length >= len(self.content)) or \
                    (mode == INSERT and len(self.content) + length > 2 * MAXIMUM):
                return
        fallocate(self.file, mode, start, length)
        if mode == COLLAPSE:
            del self.content[start:start + length]
        elif mode == INSERT:
            self.content[start:start] = bytes(length)
        else:
            if not mode & KEEP_SIZE:
                self.grow(start + length)
            if mode & (PUNCH_HOLE | ZERO):
                self.zero(start, start + length)

    def seek_all(self):
        """Everything that is no data reads as zeros."""
        position = 0
        while position < len(self.content):
            try:
                data = os.lseek(self.file, position, os.SEEK_DATA)
            except OSError as error:
                assert error.errno == errno.ENXIO
                data = len(self.content)
            if any(self.content[position:data]):
                self.fail(f"SEEK_DATA from {position} gave {data}")
            if data == len(self.content):
                break
            position = os.lseek(self.file, data, os.SEEK_HOLE)

    def compare(self, found, how):
        if found != self.content:
            size = min(len(found), len(self.content))
            place = next((i for i in range(size) if found[i] != self.content[i]), size)
            self.fail(f"{how}: {len(found)} bytes instead of {len(self.content)}, or another byte at {place}")

    def check(self):
        self.compare(os.pread(self.file, 4 * MAXIMUM, 0), "read")
        if os.fstat(self.file).st_size != len(self.content):
            self.fail("size")

    def fail(self, what):
        print("\n".join(self.log[-12:]))
        sys.exit(f"{self.path}: {what}")

    def step(self):
        start, length = random.randrange(MAXIMUM), random.randrange(1, random.choice((100, 5000, 80_000)))
        choice = random.randrange(20)
        self.log.append(f"{choice} {start} {length} of {len(self.content)}")
        if choice < 6:
            self.write(start, length)
        elif choice < 9:
            self.store(start, length)
        elif choice < 11:
            self.truncate(start)
        elif choice < 15:
            self.allocate(start, length)
        elif choice < 16:
            os.fsync(self.file)
        elif choice < 17:
            os.fsync(self.file)
            os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_DONTNEED)
        elif choice < 18:
            self.seek_all()
        elif choice < 19:
            self.load()
        self.check()


def main():
    path, seed, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    LIBC.mmap.restype = ctypes.c_void_p
    LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    random.seed(seed)
    file = RandomFile(path)
    for _ in range(steps):
        file.step()
    os.fsync(file.file)
    with open(path + ".expected", "wb") as expected:
        expected.write(file.content)


if __name__ == "__main__":
    main()
