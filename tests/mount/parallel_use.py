#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Several programs that use one file system at once, with all kinds of calls. Called by parallel_use.sh.

usage: parallel_use.py FOLDER RECORD [--programs N] [--operations N] [--seed N]
       parallel_use.py FOLDER RECORD --verify

Each has a folder of its own, one that all share, and its places in one file that all write to. It remembers
what its files must hold and compares, and at the end writes that to RECORD, for --verify after a remount.
"""

import argparse
import concurrent.futures
import contextlib
import ctypes
import hashlib
import json
import mmap
import os
import random
import sys
import traceback
from pathlib import Path

LARGEST_FILE = 300_000
MOST_PROGRAMS = 16
RECORD_SIZE = 1000  # not a divisor of the block size: records of different programs share blocks
RENAME_EXCHANGE = 2
AT_FDCWD = -100
libc = ctypes.CDLL(None, use_errno=True)


class File:
    """What one of a program's files must hold, under all of its names."""

    def __init__(self):
        self.names = []
        self.content = bytearray()
        self.attributes = {}


class Program:
    def __init__(self, folder: Path, number: int, seed: int):
        self.random = random.Random(seed * 1000 + number)
        self.number = number
        self.own = folder / f"own-{number}"
        self.shared = folder / "shared"
        self.common = folder / "common"
        self.files: list[File] = []
        self.records: dict[int, bytes] = {}
        self.unlinked: list[tuple[int, bytearray]] = []  # still open
        self.next_name = 0
        self.own.mkdir()

    def new_name(self) -> str:
        self.next_name += 1
        # Some collide in their first letters, some are long.
        padding = "x" * self.random.choice([0, 0, 0, 3, 40, 180])
        return str(self.random.choice([self.own, self.shared]) / f"{self.number}-{self.next_name}{padding}")

    def some_bytes(self, most: int) -> bytes:
        return self.random.randbytes(self.random.randint(1, most))

    def any_file(self) -> File:
        return self.random.choice(self.files) if self.files else self.create()

    def any_name(self, file: File) -> str:
        return self.random.choice(file.names)

    # The operations.

    def create(self) -> File:
        file = File()
        file.names.append(self.new_name())
        file.content = bytearray(self.some_bytes(self.random.choice([1, 100, 5000, 70_000])))
        with open(file.names[0], "xb") as opened:
            opened.write(file.content)
        self.files.append(file)
        return file

    def write(self):
        file = self.any_file()
        data = self.some_bytes(self.random.choice([10, 5000, 50_000]))
        offset = self.random.randrange(LARGEST_FILE - len(data))
        if len(file.content) < offset:
            file.content.extend(bytes(offset - len(file.content)))
        file.content[offset:offset + len(data)] = data
        handle = os.open(self.any_name(file), os.O_WRONLY)
        try:
            assert os.pwrite(handle, data, offset) == len(data)
            if self.random.random() < 0.2:
                os.fsync(handle)
        finally:
            os.close(handle)

    def append(self):
        file = self.any_file()
        if len(file.content) > LARGEST_FILE:
            return
        data = self.some_bytes(6000)
        file.content.extend(data)
        with open(self.any_name(file), "ab") as opened:
            opened.write(data)

    def truncate(self):
        file = self.any_file()
        size = self.random.randrange(LARGEST_FILE)
        os.truncate(self.any_name(file), size)
        file.content = file.content[:size].ljust(size, b"\0")

    def map_memory(self):
        file = self.any_file()
        if not file.content:
            return
        offset = self.random.randrange(len(file.content))
        data = self.some_bytes(9000)[:len(file.content) - offset]
        with open(self.any_name(file), "r+b") as opened, mmap.mmap(opened.fileno(), 0) as memory:
            memory[offset:offset + len(data)] = data
        file.content[offset:offset + len(data)] = data

    def write_directly(self):
        file = self.create()
        with mmap.mmap(-1, 4096 * self.random.randint(1, 40)) as memory:
            memory.write(self.random.randbytes(len(memory)))
            handle = os.open(file.names[0], os.O_RDWR | os.O_DIRECT)
            try:
                file.content = bytearray(memory[:]) + file.content[len(memory):]
                assert os.pwrite(handle, memory, 0) == len(memory)
                memory[:] = bytes(len(memory))
                assert os.preadv(handle, [memory], 0) == len(memory)
                assert memory[:] == file.content[:len(memory)]
            finally:
                os.close(handle)

    def copy(self):
        source, target = self.any_file(), self.create()
        with open(self.any_name(source), "rb") as reader, open(target.names[0], "r+b") as writer:
            count = os.copy_file_range(reader.fileno(), writer.fileno(), len(source.content) or 1, 0, 0)
        assert count <= len(source.content)
        target.content[:count] = source.content[:count]

    def read(self):
        file = self.any_file()
        name = self.any_name(file)
        offset = self.random.randrange(len(file.content) + 1)
        with open(name, "rb") as opened:
            assert os.fstat(opened.fileno()).st_size == len(file.content), name
            assert os.fstat(opened.fileno()).st_nlink == len(file.names), name
            found = os.pread(opened.fileno(), 50_000, offset)
        assert found == file.content[offset:offset + 50_000], f"{name} holds something else behind {offset}"

    def rename(self):
        file = self.any_file()
        index = self.random.randrange(len(file.names))
        target = self.new_name()
        os.rename(file.names[index], target)
        file.names[index] = target

    def replace(self):
        file, other = self.any_file(), self.any_file()
        if file is other:
            return
        index = self.random.randrange(len(other.names))
        name = file.names.pop(0)
        os.rename(name, other.names[index])
        file.names.append(other.names.pop(index))
        self.drop_nameless(other)

    def exchange(self):
        file, other = self.any_file(), self.any_file()
        if file is other:
            return
        if libc.renameat2(AT_FDCWD, file.names[0].encode(), AT_FDCWD, other.names[0].encode(), RENAME_EXCHANGE) != 0:
            raise OSError(ctypes.get_errno(), "renameat2")
        file.names[0], other.names[0] = other.names[0], file.names[0]

    def link(self):
        file = self.any_file()
        name = self.new_name()
        os.link(self.any_name(file), name)
        file.names.append(name)

    def unlink(self):
        file = self.any_file()
        name = file.names.pop(self.random.randrange(len(file.names)))
        if not file.names and self.random.random() < 0.3:
            self.unlinked.append((os.open(name, os.O_RDWR), file.content))
        os.unlink(name)
        self.drop_nameless(file)

    def drop_nameless(self, file: File):
        if not file.names:
            self.files.remove(file)

    def use_unlinked(self):
        if not self.unlinked:
            return
        handle, content = self.unlinked.pop(0)
        try:
            os.pwrite(handle, b"still here", len(content))
            assert os.pread(handle, len(content) + 100, 0) == content + b"still here"
        finally:
            os.close(handle)

    def make_directory(self):
        name = self.new_name()
        os.mkdir(name)
        os.symlink("somewhere/else", name + "/link")
        assert os.readlink(name + "/link") == "somewhere/else"
        other_name = self.new_name()
        os.rename(name, other_name)
        os.unlink(other_name + "/link")
        os.rmdir(other_name)

    def set_attribute(self):
        file = self.any_file()
        key = f"user.{self.random.randrange(5)}"
        if key in file.attributes and self.random.random() < 0.5:
            os.removexattr(self.any_name(file), key)
            del file.attributes[key]
        else:
            file.attributes[key] = self.some_bytes(400)
            os.setxattr(self.any_name(file), key, file.attributes[key])
        found = {name: os.getxattr(self.any_name(file), name) for name in os.listxattr(self.any_name(file))}
        assert found == file.attributes

    def list_folder(self):
        folder = self.random.choice([self.own, self.shared])
        mine = sorted(name for name in os.listdir(folder) if name.startswith(f"{self.number}-"))
        expected = sorted(Path(name).name for file in self.files for name in file.names
                          if Path(name).parent == folder)
        assert mine == expected, f"{folder}: {set(mine) ^ set(expected)}"

    def look_at_others(self):
        for name in os.listdir(self.shared)[-3:]:
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                os.stat(self.shared / name)
                (self.shared / name).read_bytes()
        os.statvfs(self.shared)

    def write_record(self):
        # Places of a program: those whose number leaves its number as the remainder.
        place = self.random.randrange(300) * MOST_PROGRAMS + self.number
        self.records[place] = self.random.randbytes(RECORD_SIZE)
        with open(self.common, "r+b") as opened:
            os.pwrite(opened.fileno(), self.records[place], place * RECORD_SIZE)
            if self.random.random() < 0.1:
                os.fsync(opened.fileno())

    def read_records(self):
        with open(self.common, "rb") as opened:
            for place, content in self.records.items():
                found = os.pread(opened.fileno(), RECORD_SIZE, place * RECORD_SIZE)
                assert found == content, f"record {place} of the common file holds something else"

    def sync_folder(self):
        handle = os.open(self.random.choice([self.own, self.shared]), os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    OPERATIONS = {create: 8, write: 8, append: 4, truncate: 3, map_memory: 2, write_directly: 2, copy: 2, read: 12,
                  rename: 4, replace: 2, exchange: 1, link: 2, unlink: 8, use_unlinked: 2, make_directory: 3,
                  set_attribute: 4, list_folder: 2, look_at_others: 4, write_record: 6, read_records: 1,
                  sync_folder: 1}

    def run(self, operations: int) -> dict:
        for _ in range(operations):
            operation, = self.random.choices(list(self.OPERATIONS), list(self.OPERATIONS.values()))
            operation(self)
        while self.unlinked:
            self.use_unlinked()
        self.list_folder()
        self.read_records()
        return {
            "files": {name: [hashlib.sha256(file.content).hexdigest(), len(file.names),
                             {key: value.hex() for key, value in file.attributes.items()}]
                      for file in self.files for name in file.names},
            "records": {str(place): content.hex() for place, content in self.records.items()},
        }


def run_program(folder: Path, number: int, seed: int, operations: int) -> dict:
    try:
        return Program(folder, number, seed).run(operations)
    except Exception:
        print(f"program {number}, seed {seed}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        raise


def use(arguments: argparse.Namespace) -> bool:
    (arguments.folder / "shared").mkdir()
    (arguments.folder / "common").touch()
    # Notices when a program ends by a signal, as it does if a file that it has mapped cannot be read.
    with concurrent.futures.ProcessPoolExecutor(arguments.programs) as pool:
        programs = [pool.submit(run_program, arguments.folder, number, arguments.seed, arguments.operations)
                    for number in range(arguments.programs)]
        if any(program.exception() is not None for program in programs):
            print(*(repr(program.exception()) for program in programs), sep="\n", file=sys.stderr)
            return False
        arguments.record.write_text(json.dumps([program.result() for program in programs]))
    return verify(arguments)


def what_is_there(folder: Path) -> dict[str, list]:
    """Of each name what the file holds, how many names it has, and its attributes."""
    return {str(path): [hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_nlink,
                        {key: os.getxattr(path, key).hex() for key in os.listxattr(path)}]
            for path in folder.glob("*/*") if path.is_file()}


def verify(arguments: argparse.Namespace) -> bool:
    expected = {}
    common = (arguments.folder / "common").read_bytes()
    for program in json.loads(arguments.record.read_text()):
        expected.update(program["files"])
        for place, content in program["records"].items():
            begin = int(place) * RECORD_SIZE
            assert common[begin:begin + RECORD_SIZE] == bytes.fromhex(content), f"record {place} of the common file"
    found = what_is_there(arguments.folder)
    wrong = [name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)]
    for name in wrong[:10]:
        print(f"{name}: found {found.get(name)}, expected {expected.get(name)}", file=sys.stderr)
    print(f"{len(found)} files, {len(common)} bytes in the common one")
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("record", type=Path)
    parser.add_argument("--programs", type=int, default=4, choices=range(1, MOST_PROGRAMS + 1),
                        metavar="N")
    parser.add_argument("--operations", type=int, default=2000, help="of each program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verify", action="store_true")
    arguments = parser.parse_args()
    return 0 if (verify if arguments.verify else use)(arguments) else 1


if __name__ == "__main__":
    sys.exit(main())
