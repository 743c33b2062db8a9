# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Programs that people run: source trees (untar, grep, tar, git clone, a build), Redis, SQLite and RocksDB."""

import contextlib
import random
import re
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from . import Figure, Settings, Workload, output_of

# A program of the generated tree, and the word that grep looks for in some of its files.
SOURCES_TO_BUILD = 24
WORD = "journal_start"


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def source_text(chance: random.Random, lines: int) -> str:
    names = ["inode", "block", "page", "entry", "buffer", "handle", WORD, "extent", "lock", "folder"]
    return "".join(f"    {chance.choice(names)}_{chance.randrange(1000)} = {chance.choice(names)}("
                   f"{chance.randrange(100000)});  /* {chance.choice(names)} */\n" for _ in range(lines))


def make_tree(folder: Path, files: int) -> None:
    """Text in folders of 25 files, 12 KiB in the mean as in Linux's tree, the same at each call."""
    chance = random.Random(1)
    for number in range(files):
        below = folder / f"d{number // 625}" / f"d{number // 25 % 25}"
        below.mkdir(parents=True, exist_ok=True)
        (below / f"file{number}.c").write_text(source_text(chance, 1 + int(chance.expovariate(1 / 220))))


def source_tree(settings: Settings) -> Path:
    """A tar file of a source tree, and a Git repository of it, side by side in the folder that is returned."""
    made = settings.work / "source"
    if not (made / "ready").exists():
        made.mkdir(exist_ok=True)
        tree = Path(settings.tree) if settings.tree else made / "tree"
        if not settings.tree:
            make_tree(tree, max(200, int(20_000 * settings.scale)))
        output_of("tar", "cf", made / "tree.tar", "--exclude=.git", "-C", tree.parent, tree.name)
        output_of("git", "init", "-q", made / "git")
        git = ["git", "-C", made / "git", "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
        output_of(*git, "--work-tree", tree, "add", "--all", "--force")
        output_of(*git, "--work-tree", tree, "commit", "-q", "--no-gpg-sign", "-m", "tree")
        (made / "ready").touch()
    return made


def source_trees(folder: Path, settings: Settings) -> list[Figure]:
    made = source_tree(settings)

    def grep() -> None:
        found = subprocess.run(["grep", "-r", WORD, str(folder / "untar")], check=False, capture_output=True)
        if found.returncode > 1:
            raise RuntimeError(found.stderr.decode(errors="replace")[-200:])

    (folder / "untar").mkdir()
    seconds = {
        "untar": timed(lambda: output_of("tar", "xf", made / "tree.tar", "-C", folder / "untar")),
        "grep -r": timed(grep),
        "tar": timed(lambda: output_of("tar", "cf", folder / "out.tar", "-C", folder, "untar")),
        "git clone": timed(lambda: output_of("git", "clone", "-q", "--no-local", made / "git", folder / "clone")),
        "rm -r": timed(lambda: shutil.rmtree(folder / "untar")),
    }
    return [Figure(row, "s", value, True) for row, value in seconds.items()]


def build(folder: Path, _settings: Settings) -> list[Figure]:
    chance = random.Random(2)
    calls = []
    for number in range(SOURCES_TO_BUILD):
        body = "".join(f"    x = x * {chance.randrange(3, 99)} + (x >> {chance.randrange(1, 9)});\n" for _ in range(120))
        (folder / f"part{number}.c").write_text(
            f"#include \"parts.h\"\n#include <stdio.h>\nunsigned part{number}(unsigned x) {{\n{body}    return x;\n}}\n")
        calls.append(f"part{number}")
    (folder / "parts.h").write_text("".join(f"unsigned {name}(unsigned);\n" for name in calls))
    chain = "".join(f"    x = {name}(x);\n" for name in calls)
    (folder / "main.c").write_text(f"#include \"parts.h\"\n#include <stdio.h>\nint main(void) {{\n    unsigned x = 1;\n"
                                   f"{chain}    printf(\"%u\\n\", x);\n    return 0;\n}}\n")
    objects = " ".join(f"{name}.o" for name in [*calls, "main"])
    (folder / "Makefile").write_text(f"CFLAGS = -O1 -MMD\nprogram: {objects}\n\t$(CC) -o $@ $^\n")
    seconds = timed(lambda: output_of("make", "-s", "-j2", "-C", folder))
    output_of(folder / "program")
    return [Figure("build of a C program", "s", seconds, True)]


def redis(folder: Path, settings: Settings) -> list[Figure]:
    """appendonly, everysec, 100 B, as in the reproduction; redis-tools has the server under the name of a tool."""
    requests = max(5000, int(1_000_000 * settings.scale / 4))
    address = settings.work / "redis.sock"
    server = subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", str(address), "--dir", str(folder), "--appendonly", "yes",
         "--appendfsync", "everysec", "--save", "", "--daemonize", "no"],
        executable=shutil.which("redis-server") or shutil.which("redis-check-rdb"), stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            if address.exists() or server.poll() is not None:
                break
            time.sleep(0.02)
        text = output_of("redis-benchmark", "-s", address, "-t", "set,get", "-n", requests, "-d", 100, "-r", 100_000,
                         "--csv")
    finally:
        server.terminate()
        server.wait(timeout=60)
        address.unlink(missing_ok=True)
    values = {fields[0]: float(fields[1]) for line in text.splitlines()
              if (fields := [part.strip('"') for part in line.split(",")])[0] in ("SET", "GET")}
    return [Figure(f"Redis {name.lower()}", "1/s", values[name]) for name in ("SET", "GET")]


def sqlite(folder: Path, settings: Settings) -> list[Figure]:
    """One insertion in each transaction, durable (synchronous=FULL), with both kinds of journal."""
    figures = []
    for mode in ("delete", "wal"):
        with contextlib.closing(sqlite3.connect(folder / f"{mode}.db", isolation_level=None)) as database:
            database.execute(f"pragma journal_mode={mode}")
            database.execute("pragma synchronous=full")
            database.execute("create table entries (key integer primary key, value blob)")
            count = 0
            start = time.perf_counter()
            while (seconds := time.perf_counter() - start) < settings.seconds / 2:
                database.execute("insert into entries values (?, ?)", (count, b"x" * 100))
                count += 1
        figures.append(Figure(f"SQLite insert, {mode}", "1/s", count / seconds))
    return figures


OPS_PER_S = re.compile(r"^(\w+)\s*:.*?(\d+) ops/sec", re.MULTILINE)


def rocksdb(folder: Path, settings: Settings) -> list[Figure]:
    count = max(20_000, int(2_000_000 * settings.scale))
    text = output_of("db_bench", "--benchmarks=fillrandom,readrandom", f"--db={folder}/db", f"--num={count}",
                     f"--reads={count // 4}", "--value_size=100", "--compression_type=none", "--seed=1", "--threads=1")
    found = dict(OPS_PER_S.findall(text))
    return [Figure(f"RocksDB {name}", "1/s", float(found[name])) for name in ("fillrandom", "readrandom")]


def workloads(settings: Settings) -> list[Workload]:
    tree_mib = 64 + int(20_000 * settings.scale * 5 * 16 / 1024)
    return [
        Workload("source trees", "apps", tree_mib, source_trees, ("tar", "git", "grep")),
        Workload("build", "apps", 32, build, ("make", "gcc")),
        Workload("Redis", "apps", 256, redis, ("redis-benchmark", "redis-check-rdb")),
        Workload("SQLite", "apps", 64, sqlite),
        Workload("RocksDB", "apps", 512, rocksdb, ("db_bench",)),
    ]
