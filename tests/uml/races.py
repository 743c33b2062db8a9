#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Several programs change one file at the same time, in all ways that leave known what each must find.

usage: races.py use FOLDER SEED | verify FOLDER | compare FOLDER

The first part of the file has a region for each of several owners, whose ends are within pages. An owner writes, maps,
punches and reads its own region, and finds in it what it has put there. Behind the regions the tail is extended, cut, moved
and punched; its bytes are 0 or TAIL, whatever happens. Another program makes and removes files of FOREIGN bytes, whose blocks
come to be used again.
"""

import ctypes
import fcntl
import hashlib
import mmap
import os
import random
import sys
import time
from typing import Callable

from lib.calls import fallocate

BLOCK = 4096
OWNERS = 4
REGION = 5 * BLOCK + 1000
TAIL_START = (OWNERS * REGION // BLOCK + 1) * BLOCK
TAIL_MOST = TAIL_START + 60 * BLOCK
TAIL, FOREIGN = 0xA5, 0xEE
SECONDS = 2.5
LEAST_STEPS = 40
IOC_COMPARE_INODES = ord("T") << 8 | 2
KEEP_SIZE, PUNCH_HOLE, COLLAPSE, ZERO, INSERT = 1, 2, 8, 16, 32


class Owner:
    def __init__(self, path: str, number: int, rng: random.Random) -> None:
        self.path, self.rng = path, rng
        self.file = os.open(path, os.O_RDWR)
        self.direct = os.open(path, os.O_RDWR | os.O_DIRECT)
        self.memory = mmap.mmap(-1, 4 * BLOCK)
        self.start = number * REGION
        self.content = bytearray(REGION)
        self.first_block = -(-self.start // BLOCK)
        self.end_block = (self.start + REGION) // BLOCK

    def part(self) -> tuple[int, int]:
        offset = self.rng.randrange(REGION)
        return offset, self.rng.randint(1, REGION - offset)

    def blocks(self) -> tuple[int, int]:
        """Whole ones, of nobody else: offset in the file, and length."""
        first = self.rng.randrange(self.first_block, self.end_block)
        return first * BLOCK, self.rng.randint(1, min(4, self.end_block - first)) * BLOCK

    def bytes_for(self, length: int) -> bytes:
        return bytes([self.rng.randint(1, 100)]) * length

    def write(self) -> None:
        offset, length = self.part()
        data = self.bytes_for(length)
        assert os.pwrite(self.file, data, self.start + offset) == length
        self.content[offset : offset + length] = data

    def write_direct(self) -> None:
        offset, length = self.blocks()
        data = self.bytes_for(length)
        self.memory[:length] = data
        assert os.pwritev(self.direct, [memoryview(self.memory)[:length]], offset) == length
        self.content[offset - self.start : offset - self.start + length] = data

    def store(self) -> None:
        offset, length = self.part()
        data = self.bytes_for(length)
        with mmap.mmap(self.file, TAIL_START) as mapped:
            mapped[self.start + offset : self.start + offset + length] = data
            if self.rng.random() < 0.3:
                mapped.flush()
        self.content[offset : offset + length] = data

    def punch(self) -> None:
        offset, length = self.blocks()
        fallocate(self.file, self.rng.choice((PUNCH_HOLE, ZERO)) | KEEP_SIZE, offset, length)
        self.content[offset - self.start : offset - self.start + length] = bytes(length)

    def sync(self) -> None:
        os.fsync(self.file)

    def check(self, found: bytes, offset: int, how: str) -> None:
        wanted = self.content[offset : offset + len(found)]
        if found != wanted:
            place = next(i for i, (a, b) in enumerate(zip(found, wanted)) if a != b)
            sys.exit(f"FAILED: {how}: byte {self.start + offset + place} is {found[place]} instead of {wanted[place]}")

    def read(self) -> None:
        offset, length = self.part()
        found = os.pread(self.file, length, self.start + offset)
        assert len(found) == length, "the file ends too early"
        self.check(found, offset, "read")

    def read_direct(self) -> None:
        offset, length = self.blocks()
        assert os.preadv(self.direct, [memoryview(self.memory)[:length]], offset) == length
        self.check(self.memory[:length], offset - self.start, "direct read")

    def load(self) -> None:
        offset, length = self.part()
        with mmap.mmap(self.file, TAIL_START, prot=mmap.PROT_READ) as mapped:
            self.check(mapped[self.start + offset : self.start + offset + length], offset, "mapping")

    def steps(self) -> list[Callable[[], None]]:
        return [self.write, self.write_direct, self.store, self.punch, self.read, self.read_direct, self.load, self.sync]

    def end(self) -> None:
        found = os.pread(self.file, REGION, self.start)
        self.check(found, 0, "the end")


class TailChanger:
    def __init__(self, path: str, rng: random.Random) -> None:
        self.file, self.rng = os.open(path, os.O_RDWR), rng
        self.direct = os.open(path, os.O_RDWR | os.O_DIRECT)
        self.memory = mmap.mmap(-1, 8 * BLOCK)
        self.memory[:] = bytes([TAIL]) * (8 * BLOCK)

    def size(self) -> int:
        return os.fstat(self.file).st_size

    def truncate(self) -> None:
        os.ftruncate(self.file, self.rng.randint(TAIL_START, TAIL_MOST))

    def write(self) -> None:
        length = self.rng.randint(1, 8 * BLOCK)
        os.pwrite(self.file, bytes([TAIL]) * length, self.rng.randint(TAIL_START, TAIL_MOST))

    def write_direct(self) -> None:
        block = self.rng.randrange(TAIL_START // BLOCK, TAIL_MOST // BLOCK)
        length = self.rng.randint(1, 8) * BLOCK
        os.pwritev(self.direct, [memoryview(self.memory)[:length]], block * BLOCK)

    def store(self) -> None:
        """Up to the end of the last page, behind that of the file."""
        size = self.size()
        pages = -(-size // BLOCK) * BLOCK
        if pages == TAIL_START:
            return
        with mmap.mmap(self.file, size) as mapped:
            mapped[TAIL_START:size] = bytes([TAIL]) * (size - TAIL_START)
            first_byte = ctypes.c_char.from_buffer(mapped)
            ctypes.memset(ctypes.addressof(first_byte) + size, FOREIGN, pages - size)
            del first_byte  # a mapping that is referred to cannot be closed
        if self.rng.random() < 0.7:
            os.pwrite(self.file, bytes([TAIL]), size + self.rng.randint(1, 2 * BLOCK))
            self.read()

    def blocks(self) -> tuple[int, int]:
        first = self.rng.randrange(TAIL_START // BLOCK, TAIL_MOST // BLOCK)
        return first * BLOCK, self.rng.randint(1, 10) * BLOCK

    def punch(self) -> None:
        fallocate(self.file, PUNCH_HOLE | KEEP_SIZE, *self.blocks())

    def reserve(self) -> None:
        fallocate(self.file, self.rng.choice((0, KEEP_SIZE, ZERO)), *self.blocks())

    def move(self) -> None:
        offset, length = self.blocks()
        size = self.size()
        if offset + length < size and self.rng.random() < 0.6:
            fallocate(self.file, COLLAPSE, offset, length)
        elif offset < size and size < 2 * TAIL_MOST:
            fallocate(self.file, INSERT, offset, length)

    def read(self) -> None:
        check_tail(os.pread(self.file, TAIL_MOST, TAIL_START))

    def steps(self) -> list[Callable[[], None]]:
        return [self.truncate, self.write, self.write_direct, self.store, self.punch, self.reserve, self.move, self.read]

    def end(self) -> None:
        self.read()


class TailReader:
    def __init__(self, path: str) -> None:
        self.file = os.open(path, os.O_RDONLY)

    def read(self) -> None:
        check_tail(os.pread(self.file, TAIL_MOST, TAIL_START))

    def steps(self) -> list[Callable[[], None]]:
        return [self.read]

    def end(self) -> None:
        self.read()


class Toucher:
    """Brings the owners' regions back to the page cache, while they are written around it."""

    def __init__(self, path: str) -> None:
        self.file = os.open(path, os.O_RDONLY)

    def touch(self) -> None:
        os.pread(self.file, TAIL_START, 0)

    def drop(self) -> None:
        os.posix_fadvise(self.file, 0, TAIL_START, os.POSIX_FADV_DONTNEED)

    def steps(self) -> list[Callable[[], None]]:
        # What has come back is to stay until its owner looks.
        return [self.touch] * 20 + [self.drop]

    def end(self) -> None:
        pass


class Foreigner:
    def __init__(self, folder: str, rng: random.Random) -> None:
        self.folder, self.rng = folder, rng

    def replace(self) -> None:
        path = f"{self.folder}/foreign{self.rng.randrange(4)}"
        with open(path, "wb") as file:
            file.write(bytes([FOREIGN]) * self.rng.randint(1, 40 * BLOCK))
            if self.rng.random() < 0.5:
                os.fsync(file.fileno())
        if self.rng.random() < 0.7:
            os.unlink(path)

    def steps(self) -> list[Callable[[], None]]:
        return [self.replace]

    def end(self) -> None:
        os.sync()


class TimeSetter:
    """Writes, which moves times, and then sets them, while others write inodes back."""

    def __init__(self, folder: str, rng: random.Random) -> None:
        self.path, self.rng = f"{folder}/times", rng
        self.set_ns = 0
        self.change()

    def change(self) -> None:
        with open(self.path, "ab") as file:
            file.write(b"t" * self.rng.randint(1, 3000))
        if self.rng.random() < 0.5:
            time.sleep(self.rng.random() / 50)
        self.set_ns = self.rng.randrange(10**18, 2 * 10**18)
        os.utime(self.path, ns=(self.set_ns, self.set_ns))
        self.look()

    def look(self) -> None:
        # After this the inode shows what the file system has.
        os.setxattr(self.path, "user.asks", b"")
        found = os.stat(self.path).st_mtime_ns
        if found != self.set_ns:
            sys.exit(f"FAILED: the modification time is {found} instead of {self.set_ns}")

    def steps(self) -> list[Callable[[], None]]:
        return [self.change, self.look]

    def end(self) -> None:
        self.look()


class Syncer:
    def steps(self) -> list[Callable[[], None]]:
        return [os.sync]

    def end(self) -> None:
        pass


def check_tail(found: bytes) -> None:
    other = found.translate(None, bytes([0, TAIL]))
    if other:
        place = found.index(other[:1])
        sys.exit(f"FAILED: byte {TAIL_START + place} of the tail is {other[0]}")


def program(make: Callable[[], object]) -> int:
    """A child that takes its steps for some time; its random numbers are those of `make`."""
    child = os.fork()
    if child == 0:
        try:
            user = make()
            rng: random.Random = getattr(user, "rng", random.Random(0))
            ends = time.monotonic() + SECONDS
            steps = 0
            while time.monotonic() < ends or steps < LEAST_STEPS:
                rng.choice(user.steps())()  # type: ignore[attr-defined]
                steps += 1
            user.end()  # type: ignore[attr-defined]
        except SystemExit as end:
            print(end.code, flush=True)
            os._exit(1)
        except BaseException as error:  # pylint: disable=broad-exception-caught
            print(f"FAILED: {type(error).__name__}: {error}", flush=True)
            os._exit(1)
        os._exit(0)
    return child


def digests(folder: str) -> dict[str, str]:
    found = {}
    for name in sorted(os.listdir(folder)):
        if name != "digests":
            with open(f"{folder}/{name}", "rb") as file:
                found[name] = f"{os.fstat(file.fileno()).st_mtime_ns} {hashlib.sha256(file.read()).hexdigest()}"
    return found


def use(folder: str, seed: int) -> None:
    path = f"{folder}/file"
    with open(path, "wb") as file:
        file.truncate(TAIL_START)
    makers: list[Callable[[], object]] = [
        lambda number=number: Owner(path, number, random.Random(seed * 100 + number))  # type: ignore[misc]
        for number in range(OWNERS)
    ]
    makers.append(lambda: TailChanger(path, random.Random(seed * 100 + OWNERS)))
    makers.append(lambda: TailReader(path))
    makers.append(lambda: Toucher(path))
    makers.append(lambda: TimeSetter(folder, random.Random(seed * 100 + OWNERS + 2)))
    makers.append(Syncer)
    makers.append(lambda: Foreigner(folder, random.Random(seed * 100 + OWNERS + 1)))
    children = [program(make) for make in makers]
    failed = [child for child in children if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0]
    if failed:
        sys.exit(f"FAILED: {len(failed)} programs")
    cached = digests(folder)
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3")
    if digests(folder) != cached:
        sys.exit("FAILED: the device has other content, or times, than the page cache had")
    with open(f"{folder}/digests", "w", encoding="ascii") as file:
        file.write(repr(cached))


def main() -> None:
    action, folder = sys.argv[1:3]
    if action == "use":
        use(folder, int(sys.argv[3]))
    elif action == "verify":
        with open(f"{folder}/digests", encoding="ascii") as file:
            if file.read() != repr(digests(folder)):
                sys.exit("FAILED: another content after the remount")
    else:
        file_descriptor = os.open(folder, os.O_RDONLY)
        differing = fcntl.ioctl(file_descriptor, IOC_COMPARE_INODES)
        if differing != 0:
            sys.exit(f"FAILED: {differing} inodes differ from the file system")


main()
