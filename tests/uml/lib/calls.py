# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""System calls that Python does not have."""
import ctypes
import os
import struct

LIBC = ctypes.CDLL(None, use_errno=True)
NR_IO_SETUP, NR_IO_DESTROY, NR_IO_GETEVENTS, NR_IO_SUBMIT = 206, 207, 208, 209
READ, WRITE = 0, 1


def fallocate(file, mode, offset, length):
    if LIBC.fallocate(file, mode, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), f"fallocate {mode} {offset} {length}")


def system_call(number, *arguments):
    result = LIBC.syscall(number, *[ctypes.c_void_p(argument) for argument in arguments])
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def address_of(memory):
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


class Queue:
    """Requests of libaio's interface, as many as `depth` and each of `size` bytes."""

    def __init__(self, depth, size):
        self.depth, self.size = depth, size
        context = ctypes.c_ulong(0)
        system_call(NR_IO_SETUP, depth, ctypes.addressof(context))
        self.context = context.value

    def submit(self, file, operation, memory, offsets):
        base = address_of(memory)
        blocks = [
            bytearray(struct.pack("<QIIHHIQQqQII", number, 0, 0, operation, 0, file, base + number * self.size, self.size, offset, 0, 0, 0))
            for number, offset in enumerate(offsets)
        ]
        pointers = (ctypes.c_void_p * len(blocks))(*[address_of(block) for block in blocks])
        return system_call(NR_IO_SUBMIT, self.context, len(blocks), ctypes.addressof(pointers))

    def events(self, at_least):
        events = (ctypes.c_char * (32 * self.depth))()
        count = system_call(NR_IO_GETEVENTS, self.context, at_least, self.depth, ctypes.addressof(events), 0)
        return [struct.unpack_from("<QQqq", events, 32 * i)[2] for i in range(count)]

    def close(self):
        system_call(NR_IO_DESTROY, self.context)
