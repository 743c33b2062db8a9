# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Fills the kernel's queue of a slow FUSE mount with writes of one file.

usage: queued.py write FILE ANSWER
       queued.py map FILE
       queued.py shut_down FILE
       queued.py fix FILE
       queued.py check FILE

write: writes every second page of FILE to the kernel's cache, and has the kernel send them: far more requests than it passes
on at once. FILE stays open until a line can be read from ANSWER.
map: writes the same to a mapping of FILE, whose descriptor is closed, and ends.
shut_down: writes the same to the kernel's cache, and has the mount flush everything and stop.
fix: makes FILE immutable.
check: fails unless all of that is there.
"""
import ctypes
import fcntl
import mmap
import os
import struct
import sys

PAGES = 400
PAGE = 4096
SYNC_FILE_RANGE_WRITE = 2
FS_IOC_SETFLAGS = 0x40086602
FS_IMMUTABLE_FL = 0x10
FS_IOC_SHUTDOWN = 0x8004587D
libc = ctypes.CDLL(None, use_errno=True)


def page(number: int) -> bytes:
    return (f"page {number} ".encode() * PAGE)[:PAGE]


def check(path: str) -> None:
    with open(path, "rb") as file:
        for number in range(PAGES):
            file.seek(number * 2 * PAGE)
            if file.read(PAGE) != page(number):
                sys.exit(f"page {number} of {PAGES} that were written is not there")


def fix(path: str) -> None:
    file = os.open(path, os.O_RDONLY)
    fcntl.ioctl(file, FS_IOC_SETFLAGS, struct.pack("l", FS_IMMUTABLE_FL))


def map_and_leave(path: str) -> None:
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    os.ftruncate(file, 2 * PAGES * PAGE)
    mapping = mmap.mmap(file, 2 * PAGES * PAGE)
    os.close(file)
    for number in range(PAGES):
        mapping[number * 2 * PAGE : (number * 2 + 1) * PAGE] = page(number)


def write_all(path: str) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    for number in range(PAGES):
        os.pwrite(file, page(number), number * 2 * PAGE)
    return file


def shut_down(path: str) -> None:
    write_all(path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    fcntl.ioctl(folder, FS_IOC_SHUTDOWN, struct.pack("I", 0))


def write(path: str, answer: str) -> None:
    file = write_all(path)
    if libc.sync_file_range(file, ctypes.c_long(0), ctypes.c_long(0), SYNC_FILE_RANGE_WRITE) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    print("queued", flush=True)
    with open(answer, encoding="ascii") as line:
        line.read()


if sys.argv[1] == "check":
    check(sys.argv[2])
elif sys.argv[1] == "map":
    map_and_leave(sys.argv[2])
elif sys.argv[1] == "shut_down":
    shut_down(sys.argv[2])
elif sys.argv[1] == "fix":
    fix(sys.argv[2])
else:
    write(sys.argv[2], sys.argv[3])
