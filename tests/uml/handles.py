#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Handles of files, which NFS servers keep: what opens them, and which are stale. The calls are tried on ext4, too.

usage: handles.py try FOLDER                 prints what each call answers
       handles.py guess FOLDER
       handles.py keep|find FOLDER FILE      writes handles to FILE; finds what they stand for, after a remount
"""
import ctypes
import errno
import json
import os
import stat
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000


class Handle(ctypes.Structure):
    _fields_ = [("handle_bytes", ctypes.c_uint), ("type", ctypes.c_int), ("handle", ctypes.c_ubyte * 128)]


def handle_of(path, folder=AT_FDCWD, flags=0):
    handle, mount_id = Handle(128), ctypes.c_int()
    if libc.name_to_handle_at(folder, path.encode(), ctypes.byref(handle), ctypes.byref(mount_id), flags) != 0:
        raise OSError(ctypes.get_errno(), "name_to_handle_at")
    return handle


def open_handle(root, handle, flags=os.O_RDONLY):
    file = libc.open_by_handle_at(root, ctypes.byref(handle), flags)
    if file < 0:
        raise OSError(ctypes.get_errno(), "open_by_handle_at")
    return file


def answer(function):
    try:
        return str(function())
    except OSError as error:
        return errno.errorcode[error.errno]


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as caches:
        caches.write("3")


def content(root, handle):
    file = open_handle(root, handle)
    try:
        return os.read(file, 100).decode()
    finally:
        os.close(file)


def entries(root, handle):
    folder = open_handle(root, handle, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return sorted(os.listdir(folder))
    finally:
        os.close(folder)


def path_of(root, handle):
    """What the kernel knows the path of: a directory is connected up to the root."""
    node = open_handle(root, handle, os.O_PATH)
    try:
        return os.readlink(f"/proc/self/fd/{node}").split("/tried", 1)[-1]
    finally:
        os.close(node)


def type_of(root, handle):
    node = open_handle(root, handle, os.O_PATH)
    try:
        return oct(stat.S_IFMT(os.fstat(node).st_mode))
    finally:
        os.close(node)


def try_all(folder):
    def show(what, function):
        print(f"{what}: {answer(function)}")

    os.makedirs(f"{folder}/tried/a/b/c")
    os.chdir(f"{folder}/tried")
    root = os.open(".", os.O_RDONLY)
    for name in ("small", "a/b/c/deep", "gone", "open", "renamed", "linked", "replaced"):
        with open(name, "w", encoding="ascii") as file:
            file.write(name)
    os.link("linked", "a/link")
    os.symlink("small", "symlink")
    os.mkfifo("fifo")
    os.mkdir("removed")
    names = ("small", "a/b/c/deep", "gone", "open", "renamed", "linked", "replaced", "symlink", "fifo", "removed", "a", "a/b/c")
    handles = {name: handle_of(name) for name in names}
    temporary = os.open(".", os.O_TMPFILE | os.O_RDWR)
    os.write(temporary, b"temporary")
    handles["temporary"] = handle_of("", temporary, AT_EMPTY_PATH)

    for cached in ("cached", "from the device"):
        for name in ("small", "a/b/c/deep", "linked", "temporary"):
            show(f"{cached} {name}", lambda: content(root, handles[name]))
        show(f"{cached} a", lambda: entries(root, handles["a"]))
        show(f"{cached} a/b/c", lambda: entries(root, handles["a/b/c"]))
        show(f"{cached} path of a/b/c", lambda: path_of(root, handles["a/b/c"]))
        show(f"{cached} symlink", lambda: type_of(root, handles["symlink"]))
        show(f"{cached} symlink opened", lambda: content(root, handles["symlink"]))
        show(f"{cached} fifo", lambda: type_of(root, handles["fifo"]))
        show(f"{cached} file as a directory", lambda: entries(root, handles["small"]))
        drop_caches()
    show("the same node", lambda: os.fstat(open_handle(root, handles["small"])).st_ino == os.stat("small").st_ino)

    os.rename("renamed", "a/b/elsewhere")
    os.rename("a/b", "moved")
    os.unlink("linked")
    still_open = os.open("open", os.O_RDONLY)
    os.unlink("open")
    os.unlink("gone")
    os.rmdir("removed")
    with open("new", "w", encoding="ascii") as file:
        file.write("new")
    os.rename("new", "replaced")
    for cached in ("cached", "from the device"):
        for name in ("renamed", "linked", "open", "gone", "replaced", "temporary"):
            show(f"after changes {cached} {name}", lambda: content(root, handles[name]))
        show(f"after changes {cached} removed", lambda: entries(root, handles["removed"]))
        show(f"after changes {cached} path of a/b/c", lambda: path_of(root, handles["a/b/c"]))
        drop_caches()
    os.close(still_open)
    os.close(temporary)
    for cached in ("cached", "from the device"):
        for name in ("open", "temporary"):
            show(f"closed {cached} {name}", lambda: content(root, handles[name]))
        drop_caches()
    # Their numbers may be taken again, by other generations.
    for i in range(200):
        with open(f"again-{i}", "w", encoding="ascii") as file:
            file.write("again")
    for name in ("gone", "open", "temporary"):
        show(f"again {name}", lambda: content(root, handles[name]))
    show("again removed", lambda: entries(root, handles["removed"]))

    def changed(name, offset, length=None):
        handle = Handle()
        ctypes.memmove(ctypes.byref(handle), ctypes.byref(handles[name]), ctypes.sizeof(handle))
        if offset is not None:
            handle.handle[offset] ^= 0x55
        if length is not None:
            handle.handle_bytes = length
        return handle

    own = handles["small"]
    # The generation is last in both.
    show("another generation", lambda: content(root, changed("small", own.handle_bytes - 2)))
    show("shorter", lambda: content(root, changed("small", None, 4)))
    show("nothing", lambda: content(root, changed("small", None, 0)))
    other = changed("small", None)
    other.type = 0x77
    show("another type", lambda: content(root, other))
    show("too little room", lambda: libc.name_to_handle_at(AT_FDCWD, b"small", ctypes.byref(Handle(4)), ctypes.byref(ctypes.c_int()), 0)
         and errno.errorcode[ctypes.get_errno()])


def guess(folder):
    """Numbers that nobody has been told: no answer but ESTALE, or a node that has a name."""
    os.chdir(folder)
    root = os.open(".", os.O_RDONLY)
    kept = handle_of(".")
    if kept.handle_bytes != 12:
        sys.exit(f"handles have {kept.handle_bytes} bytes")
    for number in [*range(300), 1 << 31, 1 << 32, (1 << 32) + 1, 1 << 62, 1 << 63, (1 << 64) - 1]:
        for generation in (0, 1, 0xFFFFFFFF):
            handle = Handle(12, kept.type)
            handle.handle[:12] = struct.pack("<QI", number, generation)
            try:
                node = open_handle(root, handle, os.O_PATH)
            except OSError as error:
                assert error.errno == errno.ESTALE, (number, error)
                continue
            status = os.fstat(node)
            assert status.st_nlink > 0 and status.st_ino == number, (number, status)
            os.close(node)


def keep(folder, path):
    os.chdir(folder)
    os.makedirs("kept/below")
    with open("kept/below/file", "w", encoding="ascii") as file:
        file.write("kept")
    kept = {}
    for name in ("kept", "kept/below", "kept/below/file"):
        handle = handle_of(name)
        kept[name] = (handle.type, bytes(handle.handle[:handle.handle_bytes]).hex())
    with open(path, "w", encoding="ascii") as out:
        json.dump(kept, out)


def find(folder, path):
    root = os.open(folder, os.O_RDONLY)
    with open(path, encoding="ascii") as text:
        kept = json.load(text)
    for name, (kind, digits) in kept.items():
        data = bytes.fromhex(digits)
        handle = Handle(len(data), kind)
        handle.handle[:len(data)] = data
        node = open_handle(root, handle, os.O_PATH)
        assert os.fstat(node).st_ino == os.stat(f"{folder}/{name}").st_ino, name
        os.close(node)


if __name__ == "__main__":
    if sys.argv[1] == "try":
        try_all(sys.argv[2])
    elif sys.argv[1] == "guess":
        guess(sys.argv[2])
    else:
        {"keep": keep, "find": find}[sys.argv[1]](*sys.argv[2:])
