#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Writes files and says of each when it is durable, or removed for good; or looks whether that is so.

usage: durable.py --write PREFIX FOLDER     never ends
       durable.py LIST FOLDER
"""

import hashlib
import os
import random
import sys
import termios


# So many of each program's files stay: however fast the machine is, the volume does not get full.
KEPT = 20


def sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def write(prefix: str, folder: str) -> None:
    rng = random.Random(prefix)
    number = 0
    while True:
        number += 1
        name = f"{prefix}-{number}"
        data = rng.randbytes(rng.choice((100, 3000, 70_000, 600_000)))
        with open(f"{folder}/{name}.new", "wb") as file:
            for place in range(0, len(data), 50_000):
                file.write(data[place : place + 50_000])
            file.flush()
            os.fsync(file.fileno())
        os.rename(f"{folder}/{name}.new", f"{folder}/{name}")
        sync_folder(folder)
        print(f"durable {name} {hashlib.sha256(data).hexdigest()} .", flush=True)
        if number > KEPT:
            # From when it is being removed nobody knows.
            old = f"{prefix}-{number - KEPT}"
            print(f"removed {old} .", flush=True)
            if os.isatty(sys.stdout.fileno()):
                termios.tcdrain(sys.stdout)
            os.unlink(f"{folder}/{old}")
            sync_folder(folder)


def verify(list_path: str, folder: str) -> None:
    with open(list_path, encoding="ascii") as file:
        lines = [line.split() for line in file]
    removed = {line[1] for line in lines if line[0] == "removed"}
    for line in lines:
        if line[0] != "durable" or line[1] in removed:
            continue
        with open(f"{folder}/{line[1]}", "rb") as file:
            if hashlib.sha256(file.read()).hexdigest() != line[2]:
                sys.exit(f"FAILED: {line[1]} has another content")


if sys.argv[1] == "--write":
    write(sys.argv[2], sys.argv[3])
else:
    verify(sys.argv[1], sys.argv[2])
