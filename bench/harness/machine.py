# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""The machine that measures: what it is, whether it is fit to measure on, and how noisy it is meanwhile."""

import hashlib
import os
import platform
import shutil
import statistics
import struct
import subprocess
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

SPIN_SECONDS = 0.02
PING_PONGS = 40
# A probe counts as disturbed beyond these. Shares are of one processor; the others compare with the run's own median.
LEAST_SHARE = 0.85
LEAST_RATE = 0.8
MOST_WAKE_UP = 3.0

VERSIONS = {
    "fio": ["fio", "--version"],
    "mkfs.ext4": ["mkfs.ext4", "-V"],
    "mkfs.xfs": ["mkfs.xfs", "-V"],
    "mkfs.btrfs": ["mkfs.btrfs", "--version"],
    "fuse2fs": ["fuse2fs", "-V"],
    "git": ["git", "--version"],
    "gcc": ["gcc", "--version"],
    "sqlite3": ["sqlite3", "--version"],
    "redis": ["redis-cli", "--version"],
    "nbdkit": ["nbdkit", "--version"],
}


def first_line(path: str) -> str:
    try:
        return Path(path).read_text().splitlines()[0].strip()
    except (OSError, IndexError):
        return ""


def version_of(command: list[str]) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = (result.stdout + result.stderr).strip().splitlines()
    return lines[0] if lines else ""


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def is_virtual() -> bool:
    return any(line.startswith("flags") and " hypervisor" in line
               for line in Path("/proc/cpuinfo").read_text().splitlines())


def memory_mib(key: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) // 1024
    raise KeyError(key)


def digest_of(folder: Path) -> str:
    """Of the programs in it: a revision does not tell what was built of it, or of changes to it."""
    digest = hashlib.sha256()
    for path in sorted(one for one in folder.glob("*") if one.is_file()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def environment(root: Path, programs: Path) -> dict:
    revision = version_of(["git", "-C", str(root), "describe", "--always", "--dirty"])
    if revision.startswith("fatal:"):
        revision = "unknown"
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "revision": revision,
        "programs": digest_of(programs),
        "processors": os.cpu_count(),
        "cpu": cpu_model(),
        "virtual": is_virtual(),
        "kernel": platform.release(),
        "memory_mib": memory_mib("MemTotal"),
        "governor": first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "transparent_hugepage": first_line("/sys/kernel/mm/transparent_hugepage/enabled"),
        "load_average_before": list(os.getloadavg()),
        "versions": {name: text for name, command in VERSIONS.items()
                     if shutil.which(command[0]) and (text := version_of(command))},
    }


def concerns(needed_mib: int, probe: "Probe") -> list[str]:
    """What speaks against measuring now."""
    found = []
    if probe.share < LEAST_SHARE:
        found.append(f"not idle: a program gets {probe.share:.0%} of a processor "
                     f"(load average {os.getloadavg()[0]:.1f})")
    governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if governor not in ("", "performance"):
        found.append(f"the frequency governor is '{governor}'; 'performance' gives steadier figures")
    if (free_mib := memory_mib("MemAvailable")) < needed_mib:
        found.append(f"{needed_mib} MiB of memory may be needed, {free_mib} are free: use a smaller --scale")
    return found


# Memory that a virtual machine has not used for a while can cost more than the operation that needs it: its host has to
# find it, which took 15 us a page on one. So what lies below the file systems is written to before anything is measured,
# and the free memory from which the kernel's caches will come before each turn.
def use_free_memory(size_mib: int) -> None:
    len(b"\1" * (size_mib << 20))


@dataclass
class Probe:
    share: float    # of a processor that a program gets which wants all of it, on the busiest processor
    rate: float     # turns of a loop per second of processor time
    wake_us: float  # median round trip through pipes between two processors, both asleep


def _spin(processor: int, pipe: int) -> None:
    os.sched_setaffinity(0, {processor})
    start, used = time.perf_counter(), time.process_time()
    turns = 0
    while (now := time.perf_counter()) - start < SPIN_SECONDS:
        turns += 1
    spent = time.process_time() - used
    os.write(pipe, struct.pack("dd", spent / (now - start), turns / max(spent, 1e-9)))


def _forked(function, *arguments) -> int:
    child = os.fork()
    if child == 0:
        try:
            function(*arguments)
        finally:
            os._exit(0)
    return child


def _spins() -> list[tuple[float, float]]:
    reading, writing = os.pipe()
    processors = sorted(os.sched_getaffinity(0))
    children = [_forked(_spin, processor, writing) for processor in processors]
    for child in children:
        os.waitpid(child, 0)
    os.close(writing)
    data = b""
    while chunk := os.read(reading, 4096):
        data += chunk
    os.close(reading)
    return list(struct.iter_unpack("dd", data))


def _echo(reading: int, writing: int, processor: int) -> None:
    os.sched_setaffinity(0, {processor})
    for _ in range(PING_PONGS):
        os.write(writing, os.read(reading, 1))


def _wake_us() -> float:
    processors = sorted(os.sched_getaffinity(0))
    to_child, to_parent = os.pipe(), os.pipe()
    child = _forked(_echo, to_child[0], to_parent[1], processors[-1])
    os.sched_setaffinity(0, {processors[0]})
    times = []
    for _ in range(PING_PONGS):
        start = time.perf_counter()
        os.write(to_child[1], b"x")
        os.read(to_parent[0], 1)
        times.append(time.perf_counter() - start)
    os.sched_setaffinity(0, processors)
    os.waitpid(child, 0)
    for end in (*to_child, *to_parent):
        os.close(end)
    return statistics.median(times) * 1e6


LEAST_PROBES = 5  # of fewer, medians mean nothing


def usual(probes: list[Probe]) -> Probe | None:
    if len(probes) < LEAST_PROBES:
        return None
    return Probe(*(statistics.median(values) for values in zip(*((one.share, one.rate, one.wake_us) for one in probes))))


def disturbance(seen: Probe, beside: Probe | None) -> str:
    """By other work, beside what is usual; empty if there was none."""
    if seen.share < LEAST_SHARE:
        return f"a program got {seen.share:.0%} of a processor"
    if beside is None:
        return ""
    if seen.rate < LEAST_RATE * beside.rate:
        return f"processors ran at {seen.rate / beside.rate:.0%} of their usual speed"
    if seen.wake_us > MOST_WAKE_UP * beside.wake_us:
        return f"waking took {seen.wake_us:.0f} us instead of {beside.wake_us:.0f}"
    return ""


def probe() -> Probe:
    spins = _spins()
    return Probe(min(share for share, _ in spins), min(rate for _, rate in spins), _wake_us())


class NoiseWatch:
    """Probes, and says of each whether other work disturbed the machine, beside the median of those until then."""

    def __init__(self, probes: Iterable[Probe] = ()) -> None:
        self.probes = list(probes)

    def look(self) -> Probe:
        self.probes.append(probe())
        return self.probes[-1]

    def reason(self, seen: Probe) -> str:
        """Empty if undisturbed."""
        return disturbance(seen, usual(self.probes))

    def summary(self) -> dict:
        return {key: statistics.median(values) for key in ("share", "rate", "wake_us")
                if (values := [asdict(one)[key] for one in self.probes])}
