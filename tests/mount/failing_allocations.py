#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Uses a file system whose daemon often has no memory. Called by failing_allocations.sh.

usage: failing_allocations.py FOLDER RECORD ROUNDS
       failing_allocations.py FOLDER RECORD --verify

Each call may fail with ENOMEM, and what writes or syncs data with EIO, which is how the kernel reports later that it could
not write back. What was said to be done, and synced, must be there; RECORD says what that is, for --verify.
"""

import contextlib
import errno
import hashlib
import json
import os
import random
import sys
from pathlib import Path

refused = 0


def attempt(call, *arguments, also=()):
    """Whether it was done. After a refusal it may be done or not."""
    global refused
    try:
        call(*arguments)
    except OSError as error:
        if error.errno not in (errno.ENOMEM, *also):
            raise
        refused += 1
        return False
    return True


def store(path: Path, content: bytes) -> None:
    with open(path, "wb", buffering=0) as file:
        file.write(content)
        os.fsync(file.fileno())


def use(folder: Path, rounds: int) -> dict[str, str]:
    content_of: dict[str, bytes] = {}
    choice = random.Random(1)
    made = [folder]
    for number in range(rounds):
        place = choice.choice(made)
        path = place / f"file-{number}"
        content = choice.randbytes(choice.choice([0, 10, 4096, 100_000]))
        if attempt(store, path, content, also=(errno.EIO,)):
            content_of[str(path)] = content
        attempt(os.listdir, place)
        attempt(os.setxattr, place, "user.number", str(number).encode())
        if number % 20 == 0 and attempt(os.mkdir, folder / f"folder-{number}"):
            made.append(folder / f"folder-{number}")
        if content_of and number % 3 == 0:
            old = choice.choice(sorted(content_of))
            kept = content_of.pop(old)
            new = str(choice.choice(made) / f"renamed-{number}")
            if attempt(os.rename, old, new):
                content_of[new] = kept
        if content_of and number % 5 == 0:
            name = choice.choice(sorted(content_of))
            del content_of[name]
            attempt(os.unlink, name)
        if content_of and number % 2 == 0:
            name = choice.choice(sorted(content_of))
            attempt(check, name, digest(content_of[name]))
    print(f"{refused} calls were refused, {len(content_of)} files must be there")
    return {name: digest(content) for name, content in content_of.items()}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def check(name: str, expected: str) -> None:
    file = os.open(name, os.O_RDONLY)
    content = b""
    while piece := os.read(file, 1 << 20):
        content += piece
    # The kernel reports with close() that it could not store the times of a file whose name had changed.
    with contextlib.suppress(OSError):
        os.close(file)
    if digest(content) != expected:
        raise AssertionError(f"{name} holds something else")


def main() -> None:
    folder, record = Path(sys.argv[1]), Path(sys.argv[2])
    if sys.argv[3] == "--verify":
        for name, expected in json.loads(record.read_text()).items():
            check(name, expected)
    else:
        record.write_text(json.dumps(use(folder, int(sys.argv[3]))))


main()
