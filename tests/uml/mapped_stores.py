#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Stores a number of its own to each page of a file, through a mapping, or looks whether that is there.

usage: mapped_stores.py write | verify PATH MIB
"""

import mmap
import os
import struct
import sys

action, path, size = sys.argv[1], sys.argv[2], int(sys.argv[3]) << 20
if action == "write":
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, size)
    with mmap.mmap(file, size) as mapped:
        for place in range(0, size, 4096):
            struct.pack_into("<Q", mapped, place, place * 2654435761)
else:
    with open(path, "rb") as stored:
        for place in range(0, size, 4096):
            page = stored.read(4096)
            if struct.unpack_from("<Q", page)[0] != place * 2654435761 or any(page[8:]):
                sys.exit(f"another byte in the page at {place}")
