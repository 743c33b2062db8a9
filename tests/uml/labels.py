#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Makes nodes of each kind under another label of Smack, or as many as there is room for, or shows the labels of all.

usage: labels.py make|fill|show FOLDER
"""
import errno
import os
import socket
import stat
import sys


def make_all(folder):
    os.mkdir(f"{folder}/directory")
    os.close(os.open(f"{folder}/file", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    os.symlink("file", f"{folder}/symlink")
    os.mkfifo(f"{folder}/fifo")
    os.mknod(f"{folder}/device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"{folder}/socket")
    # Without a name, and named later.
    temporary = os.open(folder, os.O_TMPFILE | os.O_RDWR)
    label = os.getxattr(f"/proc/self/fd/{temporary}", "security.SMACK64")
    # With a folder Python calls linkat(), which follows the link.
    descriptors = os.open("/proc/self/fd", os.O_RDONLY)
    os.link(str(temporary), f"{folder}/named-{label.decode()}", src_dir_fd=descriptors, follow_symlinks=True)
    # Below a directory that has just been made.
    os.mkdir(f"{folder}/directory/below")
    os.link(f"{folder}/file", f"{folder}/link")
    os.chmod(f"{folder}/file", 0o666)


def make(folder):
    os.mkdir(f"{folder}/made")
    with open("/proc/self/attr/current", "w", encoding="ascii") as label:
        label.write("Maker")
    make_all(f"{folder}/made")
    make_all(f"{folder}/shared")
    # Without privileges, labels decide; what has just been made has its label in memory.
    if os.fork() == 0:
        os.setuid(1000)
        try:
            os.close(os.open(f"{folder}/made/file", os.O_RDWR))
        except OSError as error:
            print(f"{folder}/made/file by its own label: {error}")
            os._exit(1)
        os._exit(0)
    if os.wait()[1] != 0:
        sys.exit(1)
    if os.fork() == 0:
        with open("/proc/self/attr/current", "w", encoding="ascii") as label:
            label.write("Other")
        os.setuid(1000)
        try:
            os.close(os.open(f"{folder}/made/file", os.O_RDONLY))
        except PermissionError:
            os._exit(0)
        print(f"{folder}/made/file can be read by another label")
        os._exit(1)
    if os.wait()[1] != 0:
        sys.exit(1)


def fill(folder):
    os.mkdir(f"{folder}/many")
    with open(f"{folder}/many/room", "wb") as file:
        file.write(bytes(2 << 20))
    try:
        with open(f"{folder}/many/large", "wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 20))
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    os.sync()
    os.unlink(f"{folder}/many/room")
    os.sync()
    with open("/proc/self/attr/current", "w", encoding="ascii") as label:
        label.write("Maker")
    for number in range(100_000):
        try:
            os.mkdir(f"{folder}/many/{number}")
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
            print(f"{number} directories")
            return
    sys.exit("the volume is not full")


def show(folder):
    for path, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(folders + files):
            if name == "lost+found":
                continue  # ext4's own
            node = f"{path}/{name}"
            labels = sorted(f"{key.removeprefix('security.')}={os.getxattr(node, key, follow_symlinks=False).decode()}"
                            for key in os.listxattr(node, follow_symlinks=False) if key.startswith("security."))
            print(os.path.relpath(node, folder), *labels)


if __name__ == "__main__":
    {"make": make, "fill": fill, "show": show}[sys.argv[1]](sys.argv[2])
