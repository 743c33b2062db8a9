#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Uses a file system whose allocations fail now and then, and remembers what has succeeded.

usage: failing_memory.py FOLDER EXPECTED SEED
       failing_memory.py FOLDER EXPECTED verify
"""
import errno
import hashlib
import json
import os
import random
import sys

FILES = 40
STEPS = 1500


class Refused(Exception):
    pass


def call(function, *arguments):
    try:
        return function(*arguments)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        raise Refused from error


def write_all(path, data):
    file = call(os.open, path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        done = 0
        while done < len(data):
            done += call(os.write, file, data[done:])
        call(os.fsync, file)
    finally:
        os.close(file)


def work(folder, expected_path, seed):
    rng = random.Random(seed)
    expected = {}  # name: digest, or None when nobody knows
    refused = 0
    for step in range(STEPS):
        name = f"file-{rng.randrange(FILES)}"
        other = f"file-{rng.randrange(FILES)}"
        data = rng.randbytes(rng.choice((10, 900, 5000, 300_000)))
        choice = rng.randrange(10)
        before = dict(expected)
        try:
            if choice < 5:
                expected[name] = None
                write_all(f"{folder}/{name}", data)
                expected[name] = hashlib.sha256(data).hexdigest()
            elif choice < 6 and name in expected and name != other:
                expected[other] = expected.pop(name)
                call(os.rename, f"{folder}/{name}", f"{folder}/{other}")
            elif choice < 7 and name in expected:
                del expected[name]
                call(os.unlink, f"{folder}/{name}")
            elif choice < 8:
                call(os.mkdir, f"{folder}/folder-{step}")
                call(os.rmdir, f"{folder}/folder-{step}")
            elif choice < 9:
                call(os.setxattr, folder, f"user.{step % 7}", data[:2000])
            else:
                call(os.listdir, folder)
                if name in expected:
                    call(os.stat, f"{folder}/{name}")
        except Refused:
            refused += 1
            if choice in (5, 6):
                expected = before  # an operation that fails changes nothing
        except FileNotFoundError:
            # A file whose creation was refused.
            if before.get(name) is not None:
                sys.exit(f"{name} is missing")
            expected = before
            expected.pop(name, None)
    with open(expected_path, "w", encoding="utf-8") as out:
        json.dump(expected, out)
    print(f"{refused} of {STEPS} calls refused")
    if refused == 0:
        sys.exit("nothing was refused: the test tests nothing")


def verify(folder, expected_path):
    with open(expected_path, encoding="utf-8") as text:
        expected = json.load(text)
    for name, digest in expected.items():
        if digest is None:
            continue
        with open(f"{folder}/{name}", "rb") as file:
            if hashlib.sha256(file.read()).hexdigest() != digest:
                sys.exit(f"{name} has another content")
    for name in os.listdir(folder):
        if name.startswith("file-") and name not in expected:
            sys.exit(f"{name} is there, although it was removed")


if __name__ == "__main__":
    if sys.argv[3] == "verify":
        verify(sys.argv[1], sys.argv[2])
    else:
        work(sys.argv[1], sys.argv[2], int(sys.argv[3]))
