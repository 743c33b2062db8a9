# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""What bench/kernel measures inside user-mode Linux: file systems of the same kernel, in turns on the same disk.

usage: kernel_guest.py DEVICE_MIB BENCHMARK FILTER MIN_TIME_S ROUNDS FIO_S PARTS PEERS   (PARTS and PEERS separated by +)

Prints lines "sample {...}", each with the file system, the part, the operation and what it took in microseconds.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

DEVICE = os.environ["device"]
FOLDER = Path(os.environ["mount_point"])
BIN = Path(os.environ["bin"])
MODULES = os.environ["modules"]
REPOSITORY = Path(os.environ["repository"])
# By file system: how it is made, and how it is mounted. tiffin-fuse is the same file system in a daemon, under this kernel's
# FUSE.
PEERS = {
    "tiffin": ([BIN / "mkfs.tiffin", "-f", "-K"], ["mount", "-t", "tiffin"]),
    "tiffin-fuse": ([BIN / "mkfs.tiffin", "-f", "-K"], [BIN / "mount.tiffin"]),
    "ext4-j": (["mkfs.ext4", "-q", "-F", "-E", "nodiscard"], ["mount", "-t", "ext4", "-o", "data=journal"]),
    "ext4-o": (["mkfs.ext4", "-q", "-F", "-E", "nodiscard"], ["mount", "-t", "ext4", "-o", "data=ordered"]),
    "xfs": (["mkfs.xfs", "-q", "-f", "-K"], ["mount", "-t", "xfs"]),
    "btrfs": (["mkfs.btrfs", "-q", "-f", "-K"], ["mount", "-t", "btrfs"]),
}
# Folders of the repository that are unpacked, read and copied.
TREE = ["fs", "fuse", "kmod", "rdma_blk", "tests", "docs", "bench", "scripts"]
ARCHIVE = Path("/dev/shm/tree.tar")
# In pieces, since this file is in the tree too.
WORD = "no_such_word" + "_anywhere"
FIO_MIB = 64
LATENCY = {"read": "read", "write": "write", "randread": "random read", "randwrite": "random write"}

Report = Callable[..., None]  # part, operation, microseconds; bins: how often each number of ns was seen


def run(*command: object) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"kernel_guest: {command}: {done.stdout}{done.stderr}")


# A daemon still has the device for a moment.
def unmount() -> None:
    run("umount", FOLDER)
    for _ in range(1000):
        try:
            os.close(os.open(DEVICE, os.O_RDONLY | os.O_EXCL))
            return
        except OSError:
            time.sleep(0.01)
    sys.exit(f"kernel_guest: {DEVICE} is in use")


def drop_caches() -> None:
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


# Memory that a machine has not used before costs more than what is measured.
def use_memory(device_mib: int) -> None:
    run("dd", "if=/dev/zero", f"of={DEVICE}", "bs=1M", f"count={device_mib}")
    free_kib = next(int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines()
                    if line.startswith("MemAvailable"))
    len(b"\1" * (free_kib // 10 * 8 << 10))
    drop_caches()


def operations(benchmark: str, regex: str, min_time_s: str, report: Report, part: str = "operations") -> None:
    done = subprocess.run([benchmark, str(FOLDER), f"--benchmark_filter={regex}", "--benchmark_format=json",
                           f"--benchmark_min_time={min_time_s}"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"kernel_guest: {benchmark}: {done.stderr}")
    for entry in json.loads(done.stdout)["benchmarks"]:
        if not entry.get("error_occurred", False):
            report(part, entry["name"].split("/")[0], entry["real_time"] / 1000)


# Without system calls, by a module that calls the VFS. Checksums it computes without one.
def inside(run_number: int, report: Report, part: str = "inside") -> None:
    run("insmod", f"{MODULES}/tiffin_bench.ko", f"folder={FOLDER}", f"run={run_number}")
    run("rmmod", "tiffin_bench")
    log = subprocess.run(["dmesg", "--notime"], check=True, capture_output=True, text=True).stdout
    for line in log.splitlines():
        match line.split():
            case ["tiffin_bench:", number, operation, ns] if number == str(run_number):
                report("checksums" if "checksum" in operation else part, operation, int(ns) / 1000)


# File systems on the framework that do next to nothing, and those of the kernel that have as little to do: with system
# calls, then without.
def framework(benchmark: str, min_time_s: str, turn: int, run_number: int, reporter: Callable[[str], Report]) -> None:
    for kind in ("tiffin_hello", "tmpfs"):
        run("mount", "-t", kind, "none", FOLDER)
        (FOLDER / "hello").touch()
        operations(benchmark, "^(existing|system_call)", min_time_s, reporter(kind), "framework")
        run("umount", FOLDER)
    kinds = [("tiffin_empty", DEVICE), ("ramfs", "none")]
    for i, (kind, source) in enumerate(kinds if turn % 2 == 0 else kinds[::-1]):
        run("mount", "-t", kind, source, FOLDER)
        inside(run_number + i, reporter(kind), "framework inside")
        run("umount", FOLDER)


# What a daemon needs to commit, under FUSE, after `sync -f`, which only sends it what the kernel has cached.
def fsync_root() -> None:
    root = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(root)
    os.close(root)


def trees(report: Report) -> None:
    def measure(operation: str, *command: object, then: Callable[[], None] = lambda: None) -> None:
        begin = time.monotonic()
        run(*command)
        then()
        report("trees", operation, (time.monotonic() - begin) * 1e6)

    (FOLDER / "tree").mkdir()
    measure("untar", "tar", "-C", FOLDER / "tree", "-xf", ARCHIVE)
    measure("sync after untar", "sync", "-f", FOLDER, then=fsync_root)
    measure("tar", "tar", "-C", FOLDER / "tree", "-cf", "/dev/shm/again.tar", ".")
    drop_caches()
    measure("grep -r, uncached", "bash", "-c", f"! grep -r {WORD} {FOLDER}/tree")
    measure("grep -r, cached", "bash", "-c", f"! grep -r {WORD} {FOLDER}/tree")
    measure("copy", "cp", "-a", FOLDER / "tree", FOLDER / "copy")
    measure("remove", "rm", "-r", FOLDER / "copy")
    run("rm", "-r", FOLDER / "tree")


def fio(report: Report, seconds: str) -> None:
    name = FOLDER / "fio"
    run("dd", "if=/dev/zero", f"of={name}", "bs=1M", f"count={FIO_MIB}", "conv=fsync")

    def measure(part: str, operation: str, *options: str) -> None:
        # The processor's counter as the clock: each reading of the kernel's would be one more system call.
        done = subprocess.run(
            ["fio", "--name=x", f"--filename={name}", f"--size={FIO_MIB}M", "--direct=1", "--clocksource=cpu",
             "--thread", "--time_based", f"--runtime={seconds}", "--output-format=json+", "--clat_percentiles=0",
             "--lat_percentiles=1", *options],
            capture_output=True, text=True, cwd="/dev/shm")
        if done.returncode != 0:
            sys.exit(f"kernel_guest: fio {options}: {done.stdout}{done.stderr}")
        job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
        # From the submission on: with libaio much may be done, and completed, in that call.
        latency = (job["read"] if job["read"]["total_ios"] > 0 else job["write"])["lat_ns"]
        for percent in (50, 90, 99):
            # For a picture of the distribution, once.
            bins = {"bins": latency["bins"]} if part == "latency" and percent == 50 else {}
            report(part, f"{operation}, p{percent}", latency["percentile"][f"{percent}.000000"] / 1000, **bins)

    for pattern, operation in LATENCY.items():
        measure("latency", f"512 B {operation}", f"--rw={pattern}", "--bs=512", "--ioengine=psync")
    for pattern in ("randread", "randwrite"):
        for depth in ("1", "16"):
            measure("depth", f"4 KiB {LATENCY[pattern]}, depth {depth}", f"--rw={pattern}", "--bs=4096",
                    "--ioengine=libaio", f"--iodepth={depth}")
    name.unlink()


def main() -> None:
    device_mib, benchmark, regex, min_time_s, rounds, fio_s, parts, peers = sys.argv[1:]
    names = peers.split("+")
    use_memory(int(device_mib))
    if "trees" in parts:
        run("tar", "-C", REPOSITORY, "-cf", ARCHIVE, *TREE)
    runs_of_a_turn = len(names) + 2
    for turn in range(int(rounds)):
        def reporter(name: str, turn: int = turn) -> Report:
            return lambda part, operation, us, **more: print("sample", json.dumps(
                {"round": turn, "file_system": name, "part": part, "operation": operation, "us": us, **more}), flush=True)

        if "framework" in parts:
            framework(benchmark, min_time_s, turn, turn * runs_of_a_turn + len(names), reporter)
        # Another one begins in each round.
        for name in names[turn % len(names):] + names[:turn % len(names)]:
            make, mount = PEERS[name]
            run(*make, DEVICE)
            run(*mount, DEVICE, FOLDER)
            if "operations" in parts:
                operations(benchmark, regex, min_time_s, reporter(name))
            if "inside" in parts:
                inside(turn * runs_of_a_turn + names.index(name), reporter(name))
            if "trees" in parts:
                trees(reporter(name))
            if "fio" in parts:
                fio(reporter(name), fio_s)
            unmount()


main()
