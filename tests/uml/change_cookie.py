# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""The change attribute that NFS asks the module for (as an ioctl of modules that are built for tests): another one after each
change, however soon, and the same while nothing changes.

usage: change_cookie.py DIRECTORY [CONTINUED]     (CONTINUED: what an earlier call has printed; it is not to have changed)
"""

import fcntl
import mmap
import os
import struct
import sys
from typing import Callable

IOC_CHANGE_COOKIE = 2 << 30 | 8 << 16 | ord("T") << 8 | 1
BLOCK = 4096


def cookie(path: str) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOATIME)
    try:
        answer: int = struct.unpack("Q", fcntl.ioctl(descriptor, IOC_CHANGE_COOKIE, bytes(8)))[0]
    finally:
        os.close(descriptor)
    return answer


def changes(what: str, path: str, action: Callable[[], object], expected: bool = True) -> None:
    # Often, so that some are within one tick of the clock.
    for _ in range(20):
        before = cookie(path)
        action()
        if (cookie(path) > before) != expected:
            sys.exit(f"FAILED: {what}: {before} before, {cookie(path)} afterwards")


def main() -> None:
    directory = sys.argv[1]
    path = f"{directory}/counted"
    if len(sys.argv) > 2:
        now = f"{cookie(path)} {cookie(directory)}"
        if now != sys.argv[2]:
            sys.exit(f"FAILED: after mounting again: {now}, before: {sys.argv[2]}")
        return
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    changes("a write", path, lambda: os.pwrite(file, b"x" * BLOCK, 0))
    changes("truncation", path, lambda: os.ftruncate(file, os.fstat(file).st_size + 1))
    changes("chmod", path, lambda: os.fchmod(file, 0o600))
    changes("setxattr", path, lambda: os.setxattr(path, "user.x", b"1"))
    changes("fallocate", path, lambda: os.posix_fallocate(file, 0, os.fstat(file).st_size + BLOCK))

    def store() -> None:
        with mmap.mmap(file, BLOCK) as mapping:
            mapping[0:1] = b"y"
            mapping.flush()

    changes("a store by a mapping", path, store)
    changes("a new name", directory, lambda: (os.symlink("x", f"{directory}/l"), os.unlink(f"{directory}/l")))
    changes("reading", path, lambda: os.pread(file, BLOCK, 0), expected=False)
    changes("fsync", path, lambda: os.fsync(file), expected=False)
    os.close(file)
    print(cookie(path), cookie(directory))


main()
