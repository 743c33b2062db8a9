# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Idmapped mounts: what a file system shows and accepts through a mount whose ids are those on the disk plus 10000.

usage: idmapped.py PLAIN MAPPED     (PLAIN: a directory of a mount; MAPPED: an empty one, where PLAIN comes to be mounted)
"""

import ctypes
import errno
import os
import stat
import struct
import sys
from pathlib import Path
from typing import Callable

SHIFT = 10000
COUNT = 1000
SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_MOUNT_SETATTR = 428, 429, 442
OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH, AT_EMPTY_PATH, MOUNT_ATTR_IDMAP = 1, 4, 0x1000, 0x100000
AT_FDCWD = -100
AT_SYMLINK_FOLLOW = 0x400
CLONE_NEWUSER = 0x10000000
RENAME_WHITEOUT = 4
ACL = "system.posix_acl_access"

libc = ctypes.CDLL(None, use_errno=True)


def call(number: int, *arguments: object) -> int:
    result: int = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}")
    return result


def expect(what: str, found: object, expected: object) -> None:
    if found != expected:
        sys.exit(f"FAILED: {what}: {found}, expected {expected}")


def expect_error(what: str, expected: int, action: Callable[[], object]) -> None:
    try:
        action()
    except OSError as error:
        expect(what, errno.errorcode[error.errno or 0], errno.errorcode[expected])
    else:
        sys.exit(f"FAILED: {what} has succeeded")


def map_of_ids() -> int:
    """A descriptor of a user namespace in which id n is the id SHIFT + n outside."""
    ready, end = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(ready[1], b"x" if libc.unshare(CLONE_NEWUSER) == 0 else b"e")
        os.read(end[0], 1)
        os._exit(0)
    expect("a user namespace", os.read(ready[0], 1), b"x")
    for kind in ("uid_map", "gid_map"):
        Path(f"/proc/{child}/{kind}").write_text(f"0 {SHIFT} {COUNT}", encoding="ascii")
    namespace = os.open(f"/proc/{child}/ns/user", os.O_RDONLY)
    os.write(end[1], b"x")
    os.waitpid(child, 0)
    return namespace


def mount_mapped(plain: str, mapped: str) -> None:
    tree = call(SYS_OPEN_TREE, AT_FDCWD, plain.encode(), OPEN_TREE_CLONE)
    attributes = struct.pack("QQQQ", MOUNT_ATTR_IDMAP, 0, 0, map_of_ids())
    call(SYS_MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, attributes, ctypes.c_size_t(len(attributes)))
    call(SYS_MOVE_MOUNT, tree, b"", AT_FDCWD, mapped.encode(), MOVE_MOUNT_F_EMPTY_PATH)


def as_user(user: int, group: int, action: Callable[[], None]) -> None:
    """In a process of its own, which must not fail."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setresgid(group, group, group)
            os.setresuid(user, user, user)
            action()
            status = 0
        except SystemExit as failure:
            print(failure.code, flush=True)
        except OSError as error:
            print(f"FAILED: as user {user}: {error}", flush=True)
        os._exit(status)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit("FAILED: see above")


def ids(path: str) -> tuple[int, int]:
    status = os.lstat(path)
    return status.st_uid, status.st_gid


def acl_of_user(user: int) -> bytes:
    entries = [(1, 6, -1), (2, 4, user), (4, 4, -1), (16, 6, -1), (32, 0, -1)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)


def make_all(folder: str) -> None:
    """Everything that makes an inode."""
    os.close(os.open(f"{folder}/file", os.O_CREAT | os.O_WRONLY, 0o600))
    os.mkdir(f"{folder}/directory")
    os.symlink("target", f"{folder}/link")
    os.mkfifo(f"{folder}/fifo")
    temporary = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
    if libc.linkat(AT_FDCWD, f"/proc/self/fd/{temporary}".encode(), AT_FDCWD, f"{folder}/temporary".encode(),
                   AT_SYMLINK_FOLLOW) != 0:
        raise OSError(ctypes.get_errno(), "linkat")
    os.close(temporary)


def test_makers(plain: str, mapped: str) -> None:
    as_user(SHIFT + 5, SHIFT + 7, lambda: make_all(mapped))
    for name in ("file", "directory", "link", "fifo", "temporary"):
        expect(f"{name} on the disk", ids(f"{plain}/{name}"), (5, 7))
        expect(f"{name} as shown", ids(f"{mapped}/{name}"), (SHIFT + 5, SHIFT + 7))
    # An id that the map has not.
    for attempt in (lambda: os.mkdir(f"{mapped}/unmapped"), lambda: os.symlink("x", f"{mapped}/unmapped"),
                    lambda: os.mkfifo(f"{mapped}/unmapped")):
        as_user(42, 42, lambda attempt=attempt: expect_error("making with an unmapped id", errno.EOVERFLOW, attempt))
    expect("what failed", os.path.lexists(f"{plain}/unmapped"), False)
    # An owner that the map has not is shown as nobody.
    os.close(os.open(f"{plain}/large", os.O_CREAT | os.O_WRONLY))
    os.chown(f"{plain}/large", COUNT + 1, COUNT + 1)
    expect("an owner beyond the map", ids(f"{mapped}/large"), (65534, 65534))


def test_whiteout(plain: str, mapped: str) -> None:
    def move() -> None:
        if libc.renameat2(AT_FDCWD, f"{mapped}/moved".encode(), AT_FDCWD, f"{mapped}/there".encode(), RENAME_WHITEOUT) != 0:
            raise OSError(ctypes.get_errno(), "renameat2")

    os.close(os.open(f"{plain}/moved", os.O_CREAT | os.O_WRONLY))
    os.chown(f"{plain}/moved", 5, 7)
    as_user(SHIFT + 5, SHIFT + 7, move)
    expect("a whiteout", ids(f"{plain}/moved"), (5, 7))
    expect("its kind", stat.S_ISCHR(os.lstat(f"{plain}/moved").st_mode), True)


def test_owners(plain: str, mapped: str) -> None:
    os.chown(f"{mapped}/file", SHIFT + 3, SHIFT + 4)
    expect("chown", ids(f"{plain}/file"), (3, 4))
    expect_error("chown to an unmapped id", errno.EOVERFLOW, lambda: os.chown(f"{mapped}/file", 3, -1))
    expect("chown that failed", ids(f"{plain}/file"), (3, 4))
    os.chown(f"{mapped}/link", SHIFT + 9, -1, follow_symlinks=False)
    expect("lchown", ids(f"{plain}/link"), (9, 7))

    def read(path: str) -> None:
        os.close(os.open(path, os.O_RDONLY))

    as_user(SHIFT + 3, SHIFT + 4, lambda: read(f"{mapped}/file"))
    as_user(SHIFT + 3, SHIFT + 4, lambda: os.chmod(f"{mapped}/file", 0o640))
    as_user(3, 4, lambda: expect_error("reading with the id of the disk", errno.EACCES, lambda: read(f"{mapped}/file")))
    as_user(3, 4, lambda: expect_error("chmod with the id of the disk", errno.EPERM,
                                       lambda: os.chmod(f"{mapped}/file", 0o666)))
    as_user(SHIFT + 3, SHIFT + 4, lambda: os.utime(f"{mapped}/file", (1, 1)))


def test_set_group_id(plain: str, mapped: str) -> None:
    os.mkdir(f"{plain}/shared")
    os.chown(f"{plain}/shared", 5, 8)
    os.chmod(f"{plain}/shared", 0o2777)
    as_user(SHIFT + 5, SHIFT + 7, lambda: make_all(f"{mapped}/shared"))
    expect("the group of the directory", ids(f"{plain}/shared/file"), (5, 8))
    expect("a directory inherits the bit", os.stat(f"{plain}/shared/directory").st_mode & 0o2000, 0o2000)
    # Who is in the group may set the bit, with the ids of the mount.
    as_user(SHIFT + 3, SHIFT + 4, lambda: os.chmod(f"{mapped}/file", 0o2650))
    expect("the bit", os.stat(f"{plain}/file").st_mode & 0o7777, 0o2650)
    as_user(SHIFT + 3, SHIFT + 5, lambda: os.chmod(f"{mapped}/file", 0o2650))
    expect("the bit for another group", os.stat(f"{plain}/file").st_mode & 0o7777, 0o650)


def test_acls(plain: str, mapped: str) -> None:
    os.setxattr(f"{mapped}/file", ACL, acl_of_user(SHIFT + 6))
    expect("an ACL on the disk", os.getxattr(f"{plain}/file", ACL), acl_of_user(6))
    as_user(SHIFT + 6, SHIFT + 6, lambda: os.close(os.open(f"{mapped}/file", os.O_RDONLY)))
    as_user(6, 6, lambda: expect_error("the ACL for the id of the disk", errno.EACCES,
                                       lambda: os.open(f"{mapped}/file", os.O_RDONLY)))


def main() -> None:
    plain, mapped = sys.argv[1:]
    os.umask(0)
    os.chmod(plain, 0o777)
    mount_mapped(plain, mapped)
    for test in (test_makers, test_whiteout, test_owners, test_set_group_id, test_acls):
        test(plain, mapped)


main()
