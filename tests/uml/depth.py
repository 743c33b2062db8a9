#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Requests on a device that is stopped: those that nobody has to wait for are accepted, and completed when it works again.

usage: depth.py FILE DEVICE      (a name of dmsetup's)
"""
import ctypes
import mmap
import os
import subprocess
import sys
import threading
import time

from lib.calls import LIBC, READ, WRITE, Queue, address_of

DEPTH = 32
BLOCK = 64 << 10


def dmsetup(*arguments):
    subprocess.run(["dmsetup", *arguments], check=True)


def pattern(number):
    return bytes([number]) * BLOCK


def resident_pages(file, size):
    with mmap.mmap(file, size) as mapped:
        states = (ctypes.c_ubyte * (size // mmap.PAGESIZE))()
        if LIBC.mincore(ctypes.c_void_p(address_of(mapped)), ctypes.c_size_t(size), states) != 0:
            raise OSError(ctypes.get_errno(), "mincore")
        return sum(state & 1 for state in states)


def stopped(device, submit, check_in_flight):
    """Nothing that is waited for may happen while the device is stopped, or this never ends."""
    dmsetup("suspend", "--nolockfs", "--noflush", device)
    submit()
    check_in_flight()
    dmsetup("resume", "--noudevsync", device)


def check_direct(path, device, operation):
    file = os.open(path, os.O_RDWR | os.O_DIRECT)
    queue = Queue(DEPTH, BLOCK)
    memory = mmap.mmap(-1, DEPTH * BLOCK)
    offsets = [BLOCK * number for number in range(DEPTH)]
    if operation == WRITE:
        for number in range(DEPTH):
            memory[number * BLOCK:(number + 1) * BLOCK] = pattern(100 + number)

    def submit():
        accepted = queue.submit(file, operation, memory, offsets)
        assert accepted == DEPTH, accepted

    def check_in_flight():
        assert queue.events(0) == [], "requests have completed on a stopped device"

    stopped(device, submit, check_in_flight)
    results = queue.events(DEPTH)
    assert results == [BLOCK] * DEPTH, results
    queue.close()
    if operation == READ:
        for number in range(DEPTH):
            assert memory[number * BLOCK:(number + 1) * BLOCK] == pattern(number), number
    os.close(file)


def check_readahead(path, device):
    file = os.open(path, os.O_RDWR)
    size = DEPTH * BLOCK
    os.posix_fadvise(file, 0, size, os.POSIX_FADV_DONTNEED)
    assert resident_pages(file, size) == 0

    def submit():
        for number in range(DEPTH):
            os.posix_fadvise(file, number * BLOCK, BLOCK, os.POSIX_FADV_WILLNEED)

    def check_in_flight():
        assert resident_pages(file, size) == 0, "pages were filled by a stopped device"

    stopped(device, submit, check_in_flight)
    for number in range(DEPTH):
        assert os.pread(file, BLOCK, number * BLOCK) == pattern(number), number
    os.close(file)


def check_write_to_mapping_that_is_read_into(path, device):
    """A direct write to pages that are being filled by a direct read: these cannot leave the page cache, but no program has to know."""
    name = path + "-mapped"
    source = os.open(path, os.O_RDONLY | os.O_DIRECT)
    target = os.open(name, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    new = mmap.mmap(-1, BLOCK)
    new[:] = pattern(7)
    os.pwrite(target, new, 0)
    mapped = mmap.mmap(target, BLOCK)
    assert mapped[:] == pattern(7)
    queue = Queue(DEPTH, BLOCK)
    written = []

    def write():
        try:
            written.append(os.pwrite(target, new, 0))
        except OSError as error:
            written.append(error)

    writer = threading.Thread(target=write)

    def submit():
        queue.submit(source, READ, mapped, [0])
        writer.start()

    def check_in_flight():
        time.sleep(0.3)
        assert queue.events(0) == [] and written == [], "a stopped device has done something"

    stopped(device, submit, check_in_flight)
    writer.join()
    assert written == [BLOCK], written
    assert queue.events(1) == [BLOCK]
    assert mapped[:] in (pattern(7), pattern(0)) or set(mapped[:]) == {7, 0}
    assert os.pwrite(target, new, 0) == BLOCK
    assert mapped[:] == pattern(7)
    queue.close()
    os.close(source)
    os.close(target)


def main():
    path, device = sys.argv[1:]
    with open(path, "wb") as file:
        for number in range(DEPTH):
            file.write(pattern(number))
        os.fsync(file.fileno())
    check_readahead(path, device)
    print(f"{DEPTH} ranges ahead of a reader", flush=True)
    check_direct(path, device, READ)
    print(f"{DEPTH} direct reads", flush=True)
    for _ in range(5):
        check_write_to_mapping_that_is_read_into(path, device)
    print("direct writes to a mapping that direct reads fill", flush=True)
    check_direct(path, device, WRITE)
    print(f"{DEPTH} direct writes", flush=True)
    with open(path, "rb") as file:
        for number in range(DEPTH):
            assert file.read(BLOCK) == pattern(100 + number), number


if __name__ == "__main__":
    main()
