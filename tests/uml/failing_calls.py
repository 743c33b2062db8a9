#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Makes one call of a file system fail, and looks at what comes of it. Before that, the same calls without a failure: after each,
the inodes in memory agree with the file system.

usage: failing_calls.py DEVICE MOUNT_POINT PROGRAMS [OPERATION...]
"""

import ctypes
import errno
import fcntl
import mmap
import os
import stat
import struct
import subprocess
import sys
from typing import Any, Callable

DEVICE, MOUNT_POINT, PROGRAMS = sys.argv[1:4]
PARAMETERS = "/sys/module/tiffin_vfs/parameters"
LIBC = ctypes.CDLL(None, use_errno=True)
BLOCK = 4096
IOC_COMPARE_INODES = ord("T") << 8 | 2
IOC_GETFLAGS, IOC_SETFLAGS = 0x80086601, 0x40086602
IOC_FIEMAP = 0xC020660B
FITRIM = 0xC0185879
FIFREEZE, FITHAW = 0xC0045877, 0xC0045878
KEEP_SIZE, PUNCH_HOLE, COLLAPSE, ZERO, INSERT = 1, 2, 8, 16, 32
MS_RDONLY, MS_REMOUNT = 1, 32
AT_FDCWD, AT_SYMLINK_FOLLOW, RENAME_EXCHANGE, O_TMPFILE = -100, 0x400, 2, 0o20200000
ACL = struct.pack("<I" + "HHI" * 5, 2, 1, 7, 0xFFFFFFFF, 2, 6, 1000, 4, 5, 0xFFFFFFFF, 16, 7, 0xFFFFFFFF, 32, 4, 0xFFFFFFFF)

# All of kmod/vfs/abi.h that can fail but: unmount, after which nothing is left to look at; read_begin, which fails for want of
# memory only; write, of file systems without blocks; and reserve, which only full volumes need.
OPERATIONS = (
    "mount statistics sync remount freeze thaw lookup find_node get_attributes set_attributes set_flags create make_directory "
    "make_symlink make_temporary link read_link unlink remove_directory rename read_directory read promise fsync "
    "allocate seek list_extents get_xattr list_xattr set_xattr remove_xattr scrub grow describe trim shutdown"
).split()
# From which call on nobody has to be told: the attributes after a change are asked for again, and sync() tells nothing;
# syncfs(), which does, makes the first two calls; a target is read when an inode is made, and again by readlink(); a write
# that could not read the rest of its last page tries that again; and the VFS takes a capability that cannot be read for none.
SILENT_FROM = {"get_attributes": 1, "sync": 3, "read_link": 1, "read": 1, "get_xattr": 1}


# What fails without a fault, too: there is no such name, and no ACL.
MEANT = {"stat", "getfacl"}


def libc(name: str, *arguments: Any) -> int:
    result: int = getattr(LIBC, name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


class Calls:
    """All kinds of calls, one after the other; each may fail. With `compares`, the inodes are compared after each."""

    def __init__(self, folder: str, planted: int, compares: bool = False) -> None:
        self.folder = folder
        self.planted = planted
        self.compares = compares
        self.met = False
        self.failures: list[str] = []
        self.expected: dict[str, bytes] = {}  # what fsync has taken

    def call(self, what: str, function: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        try:
            return function(*arguments, **more)
        except OSError as error:
            # What fails because of what has failed before is refused for its own reason.
            consequences = (errno.ENOENT, errno.EEXIST, errno.EBADF, errno.ENOTEMPTY, errno.ENODATA, errno.EINVAL, errno.ENXIO)
            # The VFS has one error for handles.
            told = error.errno == self.planted or error.errno == errno.ESTALE and what == "open handle"
            # And one for content that has been lost.
            lost = error.errno == errno.EIO and len(self.failures) > 0
            if not told and not lost and error.errno not in consequences:
                sys.exit(f"FAILED: {what}: {error}")
            if told or self.compares and what not in MEANT:
                self.failures.append(f"{what} ({error.strerror})" if self.compares else what)
            return None
        finally:
            if self.compares:
                compare_inodes(what)
            elif not self.met and parameter("fail_after") == 0:
                self.met = True
                look_at_all()
                compare_inodes(f"{what}, right after it")

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def program(self, *arguments: str) -> None:
        """A program that says which error it has met."""
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            if os.strerror(self.planted) not in done.stderr + done.stdout:
                sys.exit(f"FAILED: {arguments}: {done.stderr}")
            self.failures.append(arguments[0])

    def content(self, name: str, data: bytes, flags: int = 0) -> None:
        file = self.call(f"open {name}", os.open, self.path(name), os.O_RDWR | os.O_CREAT | flags)
        if file is None:
            return
        memory = mmap.mmap(-1, max(len(data), BLOCK))
        memory[: len(data)] = data
        written = self.call("write", os.writev, file, [memoryview(memory)[: len(data)]])
        synced = self.call("fsync", lambda: os.fsync(file) is None)
        if written == len(data) and synced:
            self.expected[name] = data
        self.call("read", os.preadv, file, [memory], 0)
        os.close(file)

    def stores(self, name: str) -> None:
        """In a child, which a store without room ends."""
        child = os.fork()
        if child == 0:
            try:
                file = os.open(self.path(name), os.O_RDWR | os.O_CREAT)
                os.ftruncate(file, 5 * BLOCK)
                with mmap.mmap(file, 5 * BLOCK) as mapped:
                    for place in range(0, 5 * BLOCK, BLOCK):
                        mapped[place] = 7
                    mapped.flush()
                os._exit(0)
            except OSError as error:
                os._exit(1 if error.errno == self.planted else 2)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status in (1, -7):
            self.failures.append("mapped store")
        elif status != 0:
            sys.exit(f"FAILED: the stores ended with {status}")

    def names(self) -> None:
        path, call = self.path, self.call
        call("mkdir", os.mkdir, path("folder"))
        call("mkdir", os.mkdir, path("folder/inner"))
        for name in ("a", "b", "folder/c"):
            self.content(name, name.encode() * 3000)
        call("mknod", os.mknod, path("fifo"), stat.S_IFIFO | 0o600)
        call("symlink", os.symlink, "target" * 20, path("symlink"))
        call("readlink", os.readlink, path("symlink"))
        call("link", os.link, path("a"), path("linked"))
        if call("rename", lambda: os.rename(path("b"), path("moved")) is None) and "b" in self.expected:
            self.expected["moved"] = self.expected.pop("b")
        call("exchange", libc, "renameat2", AT_FDCWD, path("fifo").encode(), AT_FDCWD, path("symlink").encode(), RENAME_EXCHANGE)
        self.content("victim", b"v" * 100)
        if call("replace", lambda: os.rename(path("linked"), path("victim")) is None):
            self.expected.pop("victim", None)
        temporary = call("tmpfile", os.open, self.folder, O_TMPFILE | os.O_RDWR)
        if temporary is not None:
            call("write", os.write, temporary, b"t" * 5000)
            opened = f"/proc/self/fd/{temporary}".encode()
            call("linkat", libc, "linkat", AT_FDCWD, opened, AT_FDCWD, path("named").encode(), AT_SYMLINK_FOLLOW)
            os.close(temporary)
        temporary = call("tmpfile", os.open, self.folder, O_TMPFILE | os.O_RDWR)
        if temporary is not None:
            os.close(temporary)
        call("listdir", os.listdir, self.folder)
        call("stat", os.stat, path("nothing"))
        self.content("gone", b"g" * 5000)
        if call("unlink", lambda: os.unlink(path("gone")) is None):
            self.expected.pop("gone", None)
        call("rmdir", os.rmdir, path("folder/inner"))

    def attributes(self) -> None:
        path, call = self.path, self.call
        call("chmod", os.chmod, path("a"), 0o640)
        call("chown", os.chown, path("folder/c"), 1000, 1000)
        call("utime", os.utime, path("a"), ns=(10**18, 10**18))
        call("setxattr", os.setxattr, path("a"), "user.small", b"value")
        call("setxattr", os.setxattr, path("a"), "user.large", b"v" * 9000)
        call("getxattr", os.getxattr, path("a"), "user.large")
        call("listxattr", os.listxattr, path("a"))
        call("removexattr", os.removexattr, path("a"), "user.small")
        call("setfacl", os.setxattr, path("a"), "system.posix_acl_access", ACL)
        call("getfacl", os.getxattr, path("folder/c"), "system.posix_acl_access")
        file = call("open", os.open, path("a"), os.O_RDONLY)
        if file is not None:
            flags = call("get flags", fcntl.ioctl, file, IOC_GETFLAGS, bytes(8))
            for value in (0x40, 0):
                call("set flags", fcntl.ioctl, file, IOC_SETFLAGS, struct.pack("Q", value) if flags else bytes(8))
            os.close(file)

    def data(self) -> None:
        path, call = self.path, self.call
        self.content("direct", b"d" * 5 * BLOCK, os.O_DIRECT)
        file = call("open", os.open, path("ranges"), os.O_RDWR | os.O_CREAT)
        if file is not None:
            for place in (0, 7 * BLOCK, 100):
                call("pwrite", os.pwrite, file, b"r" * 3 * BLOCK, place)
            for mode in (0, KEEP_SIZE, PUNCH_HOLE | KEEP_SIZE, ZERO, COLLAPSE, INSERT):
                call(f"fallocate {mode}", libc, "fallocate", file, mode, ctypes.c_long(BLOCK), ctypes.c_long(2 * BLOCK))
            for size in (3 * BLOCK + 5, 20 * BLOCK, 10):
                call("truncate", os.ftruncate, file, size)
            call("pwrite", os.pwrite, file, b"e" * BLOCK, 5 * BLOCK)
            call("seek", os.lseek, file, 0, os.SEEK_DATA)
            call("seek", os.lseek, file, 0, os.SEEK_HOLE)
            call("fiemap", fcntl.ioctl, file, IOC_FIEMAP, struct.pack("QQIIII", 0, 1 << 40, 1, 0, 8, 0) + bytes(56 * 8))
            call("fdatasync", os.fdatasync, file)
            os.close(file)
        self.stores("mapped")
        # What is read now is not in memory.
        drop_caches(1)
        file = call("open", os.open, path("direct"), os.O_RDWR)
        if file is not None:
            self.expected.pop("direct", None)
            call("part of a page", os.pwrite, file, b"part", 5000)
            os.close(file)
        for name in ("direct", "mapped", "ranges"):
            file = call("open", os.open, path(name), os.O_RDONLY)
            if file is not None:
                call("read", os.read, file, 1 << 20)
                os.close(file)

    def handles(self) -> None:
        """By a handle, after the inode has left memory."""
        handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
        mount_id = ctypes.c_int()
        name = self.path("folder/c").encode()
        if self.call("handle", libc, "name_to_handle_at", AT_FDCWD, name, handle, ctypes.byref(mount_id), 0) is None:
            return
        drop_caches(3)
        folder = os.open(self.folder, os.O_RDONLY)
        file = self.call("open handle", libc, "open_by_handle_at", folder, handle, os.O_RDONLY)
        if file is not None:
            os.close(file)
        os.close(folder)

    def whole(self, operation: str) -> None:
        call = self.call
        folder = os.open(self.folder, os.O_RDONLY)
        call("syncfs", libc, "syncfs", folder)
        call("statvfs", os.statvfs, self.folder)
        call("fsync", os.fsync, folder)
        call("trim", fcntl.ioctl, folder, FITRIM, struct.pack("QQQ", 0, 1 << 40, 0))
        if operation in ("freeze", "thaw"):
            if call("freeze", fcntl.ioctl, folder, FIFREEZE, 0) is not None:
                # A thaw that fails leaves it frozen.
                while call("thaw", fcntl.ioctl, folder, FITHAW, 0) is None:
                    pass
        if operation == "remount":
            for flags in (MS_RDONLY, 0, MS_RDONLY, 0):
                call("remount", libc, "mount", None, MOUNT_POINT.encode(), None, MS_REMOUNT | flags, None)
            call("remount", libc, "mount", None, MOUNT_POINT.encode(), None, MS_REMOUNT, None)
        if operation in ("scrub", "grow"):
            self.program(f"{PROGRAMS}/tiffin", operation, self.folder)
        if operation == "describe":
            self.program(f"{PROGRAMS}/tiffin", "status", self.folder)
        if operation == "shutdown":
            call("shutdown", fcntl.ioctl, folder, 0x8004587D, struct.pack("I", 1))
        os.close(folder)

    def all(self, operation: str) -> None:
        if operation == "sync":
            self.whole(operation)
        self.names()
        self.attributes()
        self.data()
        self.handles()
        self.whole(operation)


def drop_caches(what: int) -> None:
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write(str(what))


def set_parameter(name: str, value: object) -> None:
    with open(f"{PARAMETERS}/{name}", "w", encoding="ascii") as file:
        file.write(str(value))


def parameter(name: str) -> int:
    with open(f"{PARAMETERS}/{name}", encoding="ascii") as file:
        return int(file.read())


def run(*arguments: str) -> str:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"FAILED: {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout


def mount() -> None:
    run("mount", "-i", "-t", "tiffin", DEVICE, MOUNT_POINT)


def look_at_all() -> None:
    """Attributes that could not be asked for are asked for again."""
    for folder, folders, files in os.walk(MOUNT_POINT):
        for name in folders + files:
            os.lstat(f"{folder}/{name}")
    os.stat(MOUNT_POINT)


def compare_inodes(what: str) -> None:
    """All that are in memory."""
    folder = os.open(MOUNT_POINT, os.O_RDONLY)
    differing = fcntl.ioctl(folder, IOC_COMPARE_INODES)
    os.close(folder)
    if differing != 0:
        sys.exit(f"FAILED: {what}: {differing} inodes differ: see the kernel's log")


def referenced_nodes() -> int:
    for line in run(f"{PROGRAMS}/tiffin", "status", MOUNT_POINT).splitlines():
        if line.strip().startswith("nodes referenced"):
            return int(line.split()[-1])
    sys.exit("FAILED: tiffin status does not say how many nodes are referenced")


def check_references(what: str) -> None:
    """With no inode in memory the kernel refers to nothing."""
    for _ in range(5):
        # The first times it forgets that something has been used.
        drop_caches(3)
        left = referenced_nodes()
        if left == 0:
            return
    sys.exit(f"FAILED: {what}: {left} nodes are referenced")


def fail_one(operation: str, number: int, error: int) -> bool:
    """Whether there were so many calls."""
    what = f"call {number} of {operation}, {errno.errorcode[error]}"
    set_parameter("fail_operation", operation)
    set_parameter("fail_error", error)
    if operation == "mount":
        set_parameter("fail_after", 1)
        done = subprocess.run(["mount", "-i", "-t", "tiffin", DEVICE, MOUNT_POINT], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            sys.exit("FAILED: mount has succeeded")
        mount()
        os.sync()
        run("umount", MOUNT_POINT)
        return True
    mount()
    folder = f"{MOUNT_POINT}/{number}-{error}"
    os.mkdir(folder)
    calls = Calls(folder, error)
    set_parameter("fail_after", number)
    calls.all(operation)
    met = calls.met or parameter("fail_after") == 0
    set_parameter("fail_after", 0)
    if met and not calls.failures and number < SILENT_FROM.get(operation, number + 1):
        sys.exit(f"FAILED: {what}: no call has failed")
    if operation != "shutdown" or calls.failures:
        look_at_all()
        compare_inodes(what)
        check_references(what)
        for name, data in calls.expected.items():
            with open(f"{folder}/{name}", "rb") as file:
                if file.read() != data:
                    sys.exit(f"FAILED: {what}: {name} has another content")
        run("rm", "-r", folder)
        compare_inodes(what)
    print(f"{what}: {', '.join(calls.failures) if met else 'there are fewer'}", flush=True)
    run("umount", MOUNT_POINT)
    return met


def main() -> None:
    os.makedirs(MOUNT_POINT, exist_ok=True)
    mount()
    os.mkdir(f"{MOUNT_POINT}/whole")
    calls = Calls(f"{MOUNT_POINT}/whole", errno.EIO, compares=True)
    calls.all("")
    if calls.failures:
        sys.exit(f"FAILED: without a fault: {calls.failures}")
    run("rm", "-r", f"{MOUNT_POINT}/whole")
    check_references("all calls")
    run("umount", MOUNT_POINT)
    for operation in sys.argv[4:] or OPERATIONS:
        # What has been changed is asked for in many places.
        for number in range(1, 200, 3) if operation == "get_attributes" else (1, 2, 5):
            if not fail_one(operation, number, (errno.EIO, errno.ENOMEM)[number % 2]):
                if number == 1:
                    sys.exit(f"FAILED: {operation} is not called at all")
                break
        run(f"{PROGRAMS}/fsck.tiffin", "-n", "-f", "--data", DEVICE)


main()
