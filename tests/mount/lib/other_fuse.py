#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Serves a FUSE file system that is not Tiffin's: an empty directory. As root; until it is unmounted.

usage: other_fuse.py MOUNTPOINT
"""
import ctypes
import errno
import os
import struct
import sys

GETATTR, STATFS, INIT = 3, 17, 26
FORGET, INTERRUPT, BATCH_FORGET = 2, 36, 42


def answer(operation: int) -> bytes | None:
    if operation == INIT:
        return struct.pack("=IIIIHHIIHHI", 7, 31, 4096, 0, 0, 0, 65536, 1, 0, 0, 0) + bytes(28)
    if operation == GETATTR:
        # A directory, valid for a second.
        return struct.pack("=QII", 1, 0, 0) + struct.pack(
            "=QQQQQQIIIIIIIIII", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, 0, 0, 0, 4096, 0
        )
    if operation == STATFS:
        return bytes(80)
    return None


def main() -> None:
    device = os.open("/dev/fuse", os.O_RDWR)
    data = f"fd={device},rootmode=40000,user_id=0,group_id=0"
    library = ctypes.CDLL(None, use_errno=True)
    if library.mount(b"other", sys.argv[1].encode(), b"fuse", 0, data.encode()) != 0:
        sys.exit("cannot mount: " + os.strerror(ctypes.get_errno()))
    while True:
        try:
            request = os.read(device, 1 << 20)
        except OSError as error:
            sys.exit(0 if error.errno == errno.ENODEV else str(error))
        _, operation, unique = struct.unpack_from("=IIQ", request)
        if operation in (FORGET, INTERRUPT, BATCH_FORGET):
            continue
        body = answer(operation)
        error = 0 if body is not None else -errno.ENOSYS
        body = body or b""
        os.write(device, struct.pack("=IiQ", 16 + len(body), error, unique) + body)


main()
