#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Fills a volume with copies, and compares those whose writing has succeeded.

usage: fill.py fill FOLDER SIZE          (prints how many there are)
       fill.py check FOLDER SIZE COUNT
"""
import errno
import os
import random
import sys


def content(size):
    return random.Random(size).randbytes(size)


def write(path, data):
    """False: there was no room."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    written = 0
    try:
        while written < len(data):
            written += os.write(file, data[written:])
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False
    finally:
        os.close(file)
    return True


def fill(folder, size):
    write(folder + "/base", bytes(36 << 20))
    data = content(size)
    copies = 0
    try:
        while write(f"{folder}/copy-{copies}", data):
            copies += 1
    except OSError as error:  # of open()
        if error.errno != errno.ENOSPC:
            raise
    print(copies)


def check(folder, size, copies):
    data = content(size)
    for number in range(copies):
        with open(f"{folder}/copy-{number}", "rb") as file:
            if file.read() != data:
                sys.exit(f"copy {number} of {copies} is not what was written")


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        fill(sys.argv[2], int(sys.argv[3]))
    else:
        check(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
