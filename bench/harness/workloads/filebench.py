# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""The Filebench workloads of the reproduction (arXiv:2112.06810), each defined once: for bench/filebench_load, which runs
everywhere, and as a workload file for Filebench itself, where it is given."""

import json
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lib.paths import BENCH

from . import SYNCED, Figure, Settings, Workload, output_of

LOAD = BENCH / "filebench_load"
KIB, MIB = 1 << 10, 1 << 20
SIZES = {"4k": 4 * KIB, "32k": 32 * KIB, "128k": 128 * KIB, "1024k": MIB}
FILE_BYTES = 4096 * MIB  # of the reproduction; Settings.scale is relative to it
# Where one file has to be, and how often a sequential writer may write.
LEAST_FILE_BYTES = 64 * MIB


@dataclass(frozen=True)
class Definition:
    """The driver's settings, by their names there (bench/filebench/filebench_load.cc)."""
    flow: tuple[str, ...]
    files: int = 1
    width: int = 1_000_000
    mean_bytes: int = 16 * KIB
    gamma: int = 0
    present: int = 100
    threads: int = 1
    io_bytes: int = MIB
    append_bytes: int = 16 * KIB
    loops: int = 0

    def settings(self) -> dict[str, str]:
        values = {key: str(value) for key, value in self.__dict__.items() if key != "flow"}
        return {"flow": ",".join(self.flow), **values}

    def footprint_mib(self) -> int:
        grows = self.loops * self.io_bytes if self.flow == ("append_sequential",) else 0
        return 32 + (self.files * (self.mean_bytes + 4 * KIB) + grows) // MIB


def one_file(operation: str, io_bytes: int, threads: int, scale: float) -> Definition:
    size_bytes = max(LEAST_FILE_BYTES, int(FILE_BYTES * scale)) // MIB * MIB
    if operation == "append_sequential":
        return Definition((operation,), mean_bytes=0, io_bytes=io_bytes, loops=size_bytes // io_bytes)
    loops = size_bytes // io_bytes if operation == "write_random" else 0
    return Definition((operation,), mean_bytes=size_bytes, threads=threads, io_bytes=io_bytes, loops=loops)


READ_FILE = ("open", "read_whole", "close")
APPEND = ("append_random", "fsync", "close")


def definitions(settings: Settings, sizes: tuple[str, ...]) -> dict[str, Definition]:
    """By row. Thread counts are 1 and twice the processors; the personalities have their own."""
    many = 2 * settings.processors
    made = {}
    for size in sizes:
        for threads in (1, many):
            suffix = f"{size} T{threads}"
            made[f"seq_read {suffix}"] = one_file("read_sequential", SIZES[size], threads, settings.scale)
            made[f"rand_read {suffix}"] = one_file("read_random", SIZES[size], threads, settings.scale)
            made[f"rand_write {suffix}"] = one_file("write_random", SIZES[size], threads, settings.scale)
        made[f"seq_write {size} T1"] = one_file("append_sequential", SIZES[size], 1, settings.scale)
    created = max(1000, int(800_000 * settings.scale))
    deleted = max(1000, int(600_000 * settings.scale))
    for threads in (1, many):
        made[f"createfiles T{threads}"] = Definition(
            ("create", "write_whole", "close"), files=created, mean_bytes=KIB, present=50, threads=threads)
        made[f"deletefiles T{threads}"] = Definition(
            ("delete",), files=deleted, width=100, threads=threads, loops=int(deleted * 55 / 600))
    made["varmail"] = Definition(
        ("delete", "create", *APPEND, "open", "read_whole", *APPEND, *READ_FILE), files=1000, gamma=1, present=80,
        threads=16)
    made["fileserver"] = Definition(
        ("create", "write_whole", "close", "open", "append_random", "close", *READ_FILE, "delete", "stat"),
        files=max(500, int(10_000 * settings.scale)), width=20, mean_bytes=128 * KIB, gamma=1, present=80, threads=50)
    made["webserver"] = Definition(
        (*READ_FILE * 10, "append_log"), files=1000, width=20, gamma=1, threads=100)
    return made


COUNTED = ("createfiles", "deletefiles", "varmail", "fileserver", "webserver")


def figures(row: str, result: dict) -> list[Figure]:
    timeline = {"timeline": result["timeline_operations"]} if "timeline_operations" in result else {}
    if row.startswith(COUNTED):
        return [Figure(row, "op/s", result["operations"] / result["seconds"], detail=timeline)]
    read = "read" in row
    size_bytes = result["bytes_read" if read else "bytes_written"]
    found = [Figure(row, "MB/s", size_bytes / 1e6 / result["seconds"])]
    if not read and "sync_seconds" in result:
        found.append(Figure(row + SYNCED, "MB/s", size_bytes / 1e6 / (result["seconds"] + result["sync_seconds"])))
    return found


def by_driver(row: str, definition: Definition, folder: Path, settings: Settings) -> list[Figure]:
    values = {**definition.settings(), "seconds": str(settings.seconds)}
    return figures(row, json.loads(output_of(LOAD, folder, *(f"{key}={value}" for key, value in values.items()))))


# The driver's operations as Filebench calls them.
FLOWOPS = {
    "create": "createfile name={n},filesetname=bigset,fd=1", "open": "openfile name={n},filesetname=bigset,fd=1",
    "close": "closefile name={n},fd=1", "delete": "deletefile name={n},filesetname=bigset",
    "stat": "statfile name={n},filesetname=bigset", "fsync": "fsync name={n},fd=1",
    "write_whole": "writewholefile name={n},srcfd=1,fd=1,iosize={io}",
    "read_whole": "readwholefile name={n},fd=1,iosize={io}",
    "append_random": "appendfilerand name={n},iosize={append},fd=1",
    "append_log": "appendfilerand name={n},filesetname=logset,iosize={append},fd=2",
    "read_sequential": "read name={n},filesetname=bigset,iosize={io}",
    "read_random": "read name={n},filesetname=bigset,iosize={io},random",
    "write_random": "write name={n},filesetname=bigset,iosize={io},random",
    "append_sequential": "appendfile name={n},filesetname=bigset,iosize={io}",
}


def workload_file(definition: Definition, folder: Path, seconds: float) -> str:
    size = f"cvar(type=cvar-gamma,parameters=mean:{definition.mean_bytes};gamma:1.5)" if definition.gamma \
        else str(definition.mean_bytes)
    lines = [f"set $size={size}",
             f"define fileset name=bigset,path={folder},size=$size,entries={definition.files},"
             f"dirwidth={definition.width},prealloc={definition.present}"]
    if "append_log" in definition.flow:
        lines.append(f"define fileset name=logset,path={folder},size=$size,entries=1,dirwidth=20,prealloc")
    if definition.loops or "create" in definition.flow:
        lines.insert(0, "set mode quit firstdone")
    lines += ["define process name=worker,instances=1", "{",
              f"  thread name=workerthread,memsize=10m,instances={definition.threads}", "  {"]
    lines += ["    flowop " + FLOWOPS[operation].format(n=f"op{number}", io=definition.io_bytes,
                                                        append=definition.append_bytes)
              for number, operation in enumerate(definition.flow)]
    if definition.loops:  # which counts itself, too
        lines.append(f"    flowop finishoncount name=countend,value={definition.loops * (len(definition.flow) + 1)}")
    return "\n".join([*lines, "  }", "}", f"run {max(1, round(seconds))}", ""])


SUMMARY = re.compile(r"IO Summary:\s*(\d+) ops\s+([\d.]+) ops/s.*?([\d.]+)mb/s")


def by_filebench(row: str, definition: Definition, folder: Path, settings: Settings) -> list[Figure]:
    script = settings.work / "workload.f"
    script.write_text(workload_file(definition, folder, settings.seconds))
    # It places shared memory where address randomization may have put something else.
    text = output_of("setarch", "-R", settings.filebench, "-f", script)
    found = SUMMARY.search(text)
    if found is None:
        raise RuntimeError("filebench: no summary: " + text.strip()[-200:])
    if row.startswith(COUNTED):
        return [Figure(f"{row}, filebench", "op/s", float(found[2]))]
    return [Figure(f"{row}, filebench", "MB/s", float(found[3]) * MIB / 1e6)]


def both(row: str, definition: Definition, folder: Path, settings: Settings) -> list[Figure]:
    measured = []
    for name, run in (("driver", by_driver), ("filebench", by_filebench)):
        if name == "driver" or settings.filebench:
            (folder / name).mkdir()
            measured += run(row, definition, folder / name, settings)
    return measured


def workloads(settings: Settings, is_quick: bool) -> list[Workload]:
    sizes = ("4k", "128k") if is_quick else tuple(SIZES)
    made = [Workload(row, "micro", definition.footprint_mib() * (2 if settings.filebench else 1),
                     partial(both, row, definition), (str(LOAD),))
            for row, definition in definitions(settings, sizes).items()]
    many = 2 * settings.processors
    made = [one for one in made
            if not is_quick or one.name not in (f"seq_read 4k T{many}", f"rand_read 4k T{many}")]
    # The reproduction's table of RAM block devices: the same workloads, on the devices.
    made += [Workload(f"{row} (RAM)", "ram", definition.footprint_mib(), partial(by_driver, f"{row} (RAM)", definition),
                      (str(LOAD),))
             for row, definition in definitions(settings, ("128k",)).items() if "128k" in row]
    return made
