# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""What filling_volume.sh does on its mount. usage: errors MNT | read MNT | stolen MNT | programs MNT EXPECTED SEED | verify MNT EXPECTED"""
import ctypes
import errno
import json
import hashlib
import mmap
import os
import random
import shutil
import sqlite3
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
MIB = 1 << 20


def answer(function, *arguments):
    """The name of the errno with which the call fails, or "ok"."""
    try:
        function(*arguments)
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]


def syncfs(file):
    if LIBC.syncfs(file) != 0:
        raise OSError(ctypes.get_errno(), "syncfs")


def must(got, expected, what):
    if got != expected:
        sys.exit(f"{what}: {got} instead of {expected}")


def allocate_all(path):
    """A file that takes all space that fallocate may take."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    size = 0
    for step in (MIB, 65536, 4096):
        while answer(os.posix_fallocate, file, size, step) == "ok":
            size += step
    return file


class Victim:
    """A file whose data does not fit the volume."""

    DATA = os.urandom(8 * MIB)

    def __init__(self, path):
        self.path = path
        self.files = [os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(4)]

    def overfill(self):
        must(os.pwrite(self.files[0], self.DATA, 0), len(self.DATA), "a cached write")

    def remove(self):
        for file in self.files:
            os.close(file)
        os.unlink(self.path)


def errors(folder):
    fsynced, closed, synced, mapped, direct, written = victims = [Victim(f"{folder}/victim{i}") for i in range(6)]
    filler = allocate_all(folder + "/filler")
    os.mkdir(folder + "/new")
    created = 0
    # Small files need no blocks of their own: some still fit.
    while (made := answer(os.mknod, f"{folder}/new/{created}")) == "ok" and created < 20_000:
        created += 1
    must(made, "ENOSPC", f"create, after {created} files")

    fsynced.overfill()
    # Each open file is told once.
    for file in fsynced.files:
        must(answer(os.fsync, file), "ENOSPC", "the first fsync")
        must(answer(os.fsync, file), "ok", "the second fsync")
    closed.overfill()
    # The inode tells whoever closes first.
    must(answer(os.close, closed.files.pop()), "ENOSPC", "the first close")
    must(answer(os.close, closed.files.pop()), "ok", "the second close")
    must(answer(os.fsync, closed.files[1]), "ENOSPC", "fsync after another one's close")
    synced.overfill()
    answers = [answer(syncfs, filler) for _ in range(3)]
    if "ENOSPC" not in answers[:2] or answers[2] != "ok":
        sys.exit(f"syncfs: {answers}")
    for file in synced.files:
        must(answer(os.fsync, file), "ENOSPC", "fsync after syncfs")
    # Stores to mapped pages.
    os.ftruncate(mapped.files[0], 8 * MIB)
    with mmap.mmap(mapped.files[0], 8 * MIB) as memory:
        for i in range(0, 8 * MIB, 4096):
            memory[i] = 1
        must(answer(memory.flush), "ENOSPC", "msync")
        must(answer(memory.flush), "ok", "the second msync")
    # What is direct or synchronous is refused by write() itself.
    file = os.open(direct.path, os.O_WRONLY | os.O_SYNC)
    size = 0
    while (refused := answer(os.pwrite, file, bytes(4096), size)) == "ok" and size < MIB:
        size += 4096
    must(refused, "ENOSPC", f"a write with O_SYNC, after {size} bytes")
    os.close(file)
    refused_at_write(written, filler)
    for victim in victims:
        victim.remove()
    os.close(filler)
    os.unlink(folder + "/filler")
    shutil.rmtree(folder + "/new")


def read_after_refusal(folder):
    """With write_through, where a read asks for attributes, too: a page that was refused keeps nobody from reading."""
    file = os.open(folder + "/mapped", os.O_RDWR | os.O_CREAT)
    filler = allocate_all(folder + "/filler")
    os.ftruncate(file, 8 * MIB)
    with mmap.mmap(file, 8 * MIB) as memory:
        for i in range(0, 8 * MIB, 4096):
            memory[i] = 1
        must(answer(memory.flush), "ENOSPC", "msync")
    for _ in range(20):
        must(answer(os.pread, file, 2 * MIB, 8 * MIB - 4096), "ok", "a read past the end")
        must(answer(os.lseek, file, 0, os.SEEK_END), "ok", "lseek")
        time.sleep(0.01)
    for one in (file, filler):
        os.close(one)


def refused_at_write(victim, filler):
    """Once data was refused, a write to the cache is, too, until there is space; and nothing else."""
    victim.overfill()
    must(answer(os.close, os.open(victim.path, os.O_RDONLY)), "ENOSPC", "a reader's close")
    file = victim.files[0]
    # The kernel has dropped the refused pages soon, and asks then.
    for _ in range(1000):
        if (refused := answer(os.pwrite, file, bytes(4096), 0)) != "ok":
            break
        answer(os.fsync, file)
    must(refused, "ENOSPC", "a write after a refusal")
    must(answer(os.pwrite, victim.files[1], bytes(4096), 0), "ENOSPC", "a write by another open file")
    must(answer(os.stat, victim.path), "ok", "stat")
    must(answer(os.fstat, file), "ok", "fstat")
    must(answer(os.lseek, file, 0, os.SEEK_END), "ok", "lseek")
    must(answer(os.pread, file, MIB, os.fstat(file).st_size), "ok", "a read at the end")
    answer(os.fsync, file)  # tells of what was refused
    os.ftruncate(filler, 0)
    for _ in range(1000):
        if answer(os.pwrite, file, bytes(4096), 0) == "ok" and (refused := answer(os.fsync, file)) == "ok":
            break
        time.sleep(0.01)
    must(refused, "ok", "a write and fsync when there is space again")


def stolen(folder):
    """A reader's close takes the error that a writer's close would tell: write() has told it before."""
    path = folder + "/stolen"
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    told = "ok"
    for _ in range(1600):
        if (told := answer(os.write, file, os.urandom(65536))) != "ok":
            break
        answer(os.close, os.open(path, os.O_RDONLY))
    must(told, "ENOSPC", "one of the writes")
    os.close(file)
    os.unlink(path)


class Database:
    """SQLite with a write-ahead log: what it has committed stays, whatever failed."""

    def __init__(self, path):
        self.path = path
        self.committed = 0
        self.refused = 0

    def work(self, transactions):
        try:
            database = sqlite3.connect(self.path, isolation_level=None)
            database.execute("pragma journal_mode=wal")
            database.execute("pragma synchronous=full")
            database.execute("create table if not exists t(n integer primary key, v blob)")
            for _ in range(transactions):
                database.execute("begin")
                database.execute("insert into t values(?, ?)",
                                 (self.committed + 1, random.randbytes(random.randrange(60000))))
                database.execute("commit")
                self.committed += 1
            database.close()
        except sqlite3.Error as error:
            self.refused += 1
            if "malformed" in str(error):
                sys.exit(f"SQLite: {error}")
        self.verify()

    def verify(self):
        verify_database(self.path, self.committed)


def verify_database(path, committed):
    if committed == 0:
        return
    database = sqlite3.connect("file:" + path + "?mode=ro", uri=True)
    try:
        result = database.execute("pragma integrity_check").fetchone()[0]
        count = database.execute("select count(*) from t where n <= ?", (committed,)).fetchone()[0]
    except sqlite3.Error as error:
        # Opening can need space, for the shared index of the log.
        if "malformed" in str(error) or "not a database" in str(error):
            sys.exit(f"SQLite: {path}: {error}")
        return
    finally:
        database.close()
    must(result, "ok", f"integrity of {path}")
    must(count, committed, f"rows of {path}")


class RandomFile:
    """Writes, stores, truncations and allocations at random, as fsx does; what fsync has taken is kept."""

    SIZE = 600_000

    def __init__(self, path):
        self.path = path
        self.content = bytearray()
        self.kept = None
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def step(self):
        self.kept = None
        start = random.randrange(self.SIZE)
        length = random.randrange(1, 100_000)
        choice = random.randrange(8)
        if choice < 4:
            data = random.randbytes(length)
            os.pwrite(self.file, data, start)
            self.grow(start + length)
            self.content[start:start + length] = data
        elif choice == 4:
            os.ftruncate(self.file, start)
            self.grow(start)
            del self.content[start:]
        elif choice == 5:
            os.posix_fallocate(self.file, start, length)
            self.grow(start + length)
        elif choice == 6 and self.content:
            with mmap.mmap(self.file, len(self.content)) as mapped:
                start %= len(self.content)
                data = random.randbytes(min(length, len(self.content) - start))
                mapped[start:start + len(data)] = data
                self.content[start:start + len(data)] = data
        else:
            os.fsync(self.file)
            self.kept = bytes(self.content)
            if os.pread(self.file, 2 * self.SIZE, 0) != self.kept:
                sys.exit(f"{self.path}: not what was written")

    def grow(self, size):
        self.content.extend(bytes(max(0, size - len(self.content))))

    def close(self):
        try:
            os.close(self.file)
        except OSError:
            self.kept = None


def programs(folder, expected_path, seed):
    random.seed(seed)
    with open(folder + "/base", "wb") as base:
        base.write(random.randbytes(20 * MIB))
    fillers, files = [], {}
    databases = [Database(f"{folder}/database-{i}") for i in range(3)]
    refused = number = 0
    for _ in range(700):
        choice = random.randrange(100)
        try:
            if choice < 10:
                name = f"{folder}/filler-{number}"
                number += 1
                file = os.open(name, os.O_WRONLY | os.O_CREAT)
                fillers.append(name)
                try:
                    os.write(file, random.randbytes(random.randrange(6 * MIB)))
                    os.fsync(file)
                finally:
                    os.close(file)
            elif choice < 11 and fillers and random.random() < 0.6:
                for name in fillers:
                    os.unlink(name)
                fillers.clear()
            elif choice < 16:
                random.choice(databases).work(8)
            elif len(files) < 8:
                name = f"{folder}/random-{number}"
                number += 1
                files[name] = RandomFile(name)
            else:
                name = random.choice(list(files))
                files[name].step()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            refused += 1
            # A program that was refused gives its file up.
            if choice >= 16 and name in files:
                files.pop(name).close()
                os.unlink(name)
    expected = {"databases": {}, "files": {}}
    for file in files.values():
        file.close()
        if file.kept is not None:
            expected["files"][os.path.basename(file.path)] = hashlib.sha256(file.kept).hexdigest()
    for database in databases:
        expected["databases"][os.path.basename(database.path)] = database.committed
    with open(expected_path, "w", encoding="utf-8") as out:
        json.dump(expected, out)
    rows = sum(database.committed for database in databases)
    print(f"{refused} operations refused, {sum(d.refused for d in databases)} by SQLite, {rows} rows")
    if refused < 5 or rows < 20:
        sys.exit("the volume did not fill up, or nothing fitted: the test tests nothing")


def verify(folder, expected_path):
    with open(expected_path, encoding="utf-8") as text:
        expected = json.load(text)
    for name, digest in expected["files"].items():
        with open(f"{folder}/{name}", "rb") as file:
            must(hashlib.sha256(file.read()).hexdigest(), digest, name)
    for name, committed in expected["databases"].items():
        verify_database(f"{folder}/{name}", committed)


if __name__ == "__main__":
    command, mount = sys.argv[1:3]
    if command == "errors":
        errors(mount)
    elif command == "read":
        read_after_refusal(mount)
    elif command == "stolen":
        stolen(mount)
    elif command == "programs":
        programs(mount, sys.argv[3], int(sys.argv[4]))
    else:
        verify(mount, sys.argv[3])
