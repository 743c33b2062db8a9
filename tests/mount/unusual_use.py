#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""What few programs do with a file system, and some rely on. Called by unusual_use.sh.

usage: unusual_use.py FOLDER
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
TESTS = []


def test(function):
    TESTS.append(function)
    return function


@contextlib.contextmanager
def raises(*numbers):
    try:
        yield
    except OSError as error:
        assert error.errno in numbers, error
        return
    raise AssertionError(f"no error, expected {[errno.errorcode[n] for n in numbers]}")


def write_file(name, content):
    with open(name, "wb") as file:
        file.write(content)


def read_file(name):
    with open(name, "rb") as file:
        return file.read()


@test
def file_beyond_8_tib():
    size = 9 << 40
    file = os.open("large", os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, size)
    os.pwrite(file, b"middle", 5 << 40)
    os.pwrite(file, b"end", size - 3)
    os.fsync(file)
    assert os.pread(file, 6, 5 << 40) == b"middle" and os.pread(file, 9, size - 3) == b"end"
    assert os.pread(file, 100, 1 << 40) == bytes(100)
    assert os.fstat(file).st_size == size and os.fstat(file).st_blocks <= 16
    # Before Linux 6.16 all of a file is data: docs/fuse.md.
    if os.lseek(file, 0, os.SEEK_HOLE) == 0:
        assert os.lseek(file, 0, os.SEEK_DATA) == 5 << 40
        assert os.lseek(file, (5 << 40) + 4096, os.SEEK_DATA) == size - 4096
    else:
        assert [int(part) for part in os.uname().release.split("-")[0].split(".")[:2]] < [6, 16]
        assert os.lseek(file, 1 << 40, os.SEEK_DATA) == 1 << 40
    os.close(file)


@test
def odd_names():
    for name in ("x" * 255, "ü" * 127, "\n\t\x01", " ", "-rf", "a\\b", "*?[", "a,b"):
        write_file(name, name.encode())
        assert name in os.listdir(".") and read_file(name) == name.encode()
        os.unlink(name)
    os.mkdir(b"\xff\xfe")
    assert b"\xff\xfe" in os.listdir(b".")
    with raises(errno.ENAMETOOLONG):
        os.mkdir("x" * 256)


@test
def paths_deeper_than_path_max():
    top = os.getcwd()
    for _ in range(600):
        os.mkdir("directory")
        os.chdir("directory")
    write_file("file", b"deep")
    assert read_file("file") == b"deep"
    os.chdir(top)
    found = subprocess.run(["find", "directory", "-name", "file"], stdout=subprocess.PIPE, check=True)
    assert found.stdout.count(b"/") == 600
    with raises(errno.ENAMETOOLONG):
        os.stat("directory/" * 600)
    subprocess.run(["rm", "-r", "directory"], check=True)


@test
def memory_shared_by_processes():
    file = os.open("shared", os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, 1 << 20)
    mine = mmap.mmap(file, 1 << 20)
    mine[:5] = b"mine!"
    child = os.fork()
    if child == 0:
        theirs = mmap.mmap(os.open("shared", os.O_RDWR), 1 << 20)
        seen = theirs[:5] == b"mine!"
        theirs[100:107] = b"theirs!"
        os._exit(0 if seen else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert mine[100:107] == b"theirs!" and os.pread(file, 7, 100) == b"theirs!"
    os.pwrite(file, b"written", 5000)
    assert mine[5000:5007] == b"written"
    mine.flush()
    mine.close()
    os.close(file)


@test
def direct_io():
    file = os.open("direct", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    data = mmap.mmap(-1, 1 << 20)
    data[:] = os.urandom(1 << 20)
    back = mmap.mmap(-1, 1 << 20)
    assert os.pwritev(file, [data], 0) == 1 << 20
    assert os.preadv(file, [back], 0) == 1 << 20 and back[:] == data[:]
    assert read_file("direct") == data[:]
    os.pwritev(file, [memoryview(data)[:512]], 512)
    assert read_file("direct")[512:1024] == data[:512]
    os.close(file)


@test
def locks_between_processes():
    first = os.open("locked", os.O_RDWR | os.O_CREAT)
    second = os.open("locked", os.O_RDWR)
    fcntl.flock(first, fcntl.LOCK_EX)
    with raises(errno.EAGAIN):
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(first, fcntl.LOCK_UN)
    fcntl.lockf(first, fcntl.LOCK_EX, 10, 0)
    child = os.fork()
    if child == 0:
        third = os.open("locked", os.O_RDWR)
        with raises(errno.EAGAIN, errno.EACCES):
            fcntl.lockf(third, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)
        fcntl.lockf(third, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 10)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    os.close(first)
    os.close(second)


@test
def inotify():
    watch = libc.inotify_init1(os.O_NONBLOCK)
    os.mkdir("watched")
    assert libc.inotify_add_watch(watch, b"watched", 0xFFF) >= 0
    write_file("watched/a", b"x")
    os.rename("watched/a", "watched/b")
    os.unlink("watched/b")
    events, seen, place = os.read(watch, 1 << 16), 0, 0
    while place < len(events):
        _, mask, _, length = struct.unpack_from("iIII", events, place)
        seen |= mask
        place += 16 + length
    # Modified, closed after writing, moved from and to, created, deleted.
    assert seen & 0x3CA == 0x3CA, hex(seen)
    os.close(watch)


@test
def sendfile_and_splice():
    data = os.urandom(3_000_001)
    write_file("source", data)
    source = os.open("source", os.O_RDONLY)
    sent = os.open("sent", os.O_RDWR | os.O_CREAT)
    done = 0
    while done < len(data):
        done += os.sendfile(sent, source, done, len(data) - done)
    assert read_file("sent") == data
    pipe_out, pipe_in = os.pipe()
    spliced = os.open("spliced", os.O_RDWR | os.O_CREAT)
    done = 0
    while done < len(data):
        length = os.splice(source, pipe_in, 65536, offset_src=done)
        while length > 0:
            moved = os.splice(pipe_out, spliced, length, offset_dst=done)
            length -= moved
            done += moved
    assert read_file("spliced") == data
    for file in (source, sent, spliced, pipe_out, pipe_in):
        os.close(file)


@test
def file_handles():
    class Handle(ctypes.Structure):
        _fields_ = [("handle_bytes", ctypes.c_uint), ("type", ctypes.c_int),
                    ("handle", ctypes.c_char * 128)]

    write_file("by_handle", b"found")
    os.makedirs("above/below")
    folder = os.open(".", os.O_RDONLY)

    def handle_of(path):
        handle, mount_id = Handle(128), ctypes.c_int()
        assert libc.name_to_handle_at(AT_FDCWD, path, ctypes.byref(handle), ctypes.byref(mount_id), 0) == 0, ctypes.get_errno()
        return handle

    def open_handle(handle, flags=os.O_RDONLY):
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as caches:
            caches.write("2")
        return libc.open_by_handle_at(folder, ctypes.byref(handle), flags)

    handle, directory = handle_of(b"by_handle"), handle_of(b"above/below")
    file = open_handle(handle)
    assert file >= 0, ctypes.get_errno()
    assert os.read(file, 100) == b"found"
    os.close(file)
    # The kernel asks for what lies above, up to the root.
    below = open_handle(directory, os.O_RDONLY | os.O_DIRECTORY)
    assert below >= 0, ctypes.get_errno()
    assert os.readlink(f"/proc/self/fd/{below}").endswith("/above/below")
    os.close(below)
    os.rmdir("above/below")
    os.rmdir("above")
    os.unlink("by_handle")
    assert open_handle(handle) < 0 and ctypes.get_errno() == errno.ESTALE
    os.close(folder)


@test
def special_files():
    os.mknod("null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    write_file("null", b"gone")
    assert read_file("null") == b""
    server = socket.socket(socket.AF_UNIX)
    server.bind("socket")
    server.listen()
    socket.socket(socket.AF_UNIX).connect("socket")


@test
def programs():
    shutil.copy("/usr/bin/sleep", "sleep")
    running = subprocess.Popen(["./sleep", "100"])
    with raises(errno.ETXTBSY):
        os.open("sleep", os.O_WRONLY)
    running.kill()
    running.wait()
    shutil.copy("/usr/bin/id", "id")
    os.chown("id", 12345, 12346)
    os.chmod("id", 0o6755)
    printed = subprocess.run(["./id"], stdout=subprocess.PIPE, check=True).stdout
    assert b"euid=12345" in printed and b"egid=12346" in printed, printed
    write_file("script", b"#!/bin/sh\necho it runs\n")
    os.chmod("script", 0o755)
    assert subprocess.run(["./script"], stdout=subprocess.PIPE, check=True).stdout == b"it runs\n"


@test
def large_directory():
    os.mkdir("many")
    for number in range(20000):
        os.close(os.open(f"many/file-{number}", os.O_CREAT | os.O_WRONLY))
    assert sorted(os.listdir("many")) == sorted(f"file-{number}" for number in range(20000))
    # Removing while reading: nothing is skipped.
    for entry in os.scandir("many"):
        os.unlink(entry.path)
    os.rmdir("many")


@test
def killed_clients():
    script = """while :; do dd if=/dev/zero of=written bs=64K count=100 conv=fsync status=none
                cp -r /usr/include/linux copied; rm -r copied; done"""
    clients = []
    for number in range(4):
        os.mkdir(f"client-{number}")
        clients.append(subprocess.Popen(["bash", "-c", script], cwd=f"client-{number}",
                                        stderr=subprocess.DEVNULL, start_new_session=True))
    time.sleep(2)
    for client in clients:
        os.killpg(client.pid, signal.SIGKILL)
    for client in clients:
        client.wait()
    for number in range(4):
        shutil.rmtree(f"client-{number}")


def main():
    os.chdir(sys.argv[1])
    for function in TESTS:
        print(f"-- {function.__name__}", flush=True)
        function()
        for entry in os.scandir("."):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)


main()
