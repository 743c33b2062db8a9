# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Single operations, one after the other, by bench/operations_benchmark; and one that nothing but a round trip costs."""

import json
import os
import time
from pathlib import Path

from lib.paths import BENCH

from . import Figure, Settings, Workload, output_of

PROGRAM = BENCH / "operations_benchmark"


def measure(folder: Path, settings: Settings) -> list[Figure]:
    least_seconds = min(0.2, settings.seconds)
    # A leading '-' leaves out what matches: the calls on one existing file compare file systems that make none.
    text = output_of(PROGRAM, folder, f"--benchmark_filter={settings.operations or '-^existing'}", "--benchmark_format=json",
                     f"--benchmark_min_time={least_seconds}")
    entries = json.loads(text)["benchmarks"]
    if failed := [f"{entry['name']}: {entry['error_message']}" for entry in entries if entry.get("error_occurred")]:
        raise RuntimeError("; ".join(failed))
    return [Figure(entry["name"].split("/")[0].replace("_", " "), "us", entry["real_time"] / 1000, True)
            for entry in entries]


def statfs(folder: Path, settings: Settings) -> list[Figure]:
    """What a file system costs that does nothing: statfs is never cached, so through FUSE each is one message. Python's own
    part, some 2 us, is in all of them."""
    times: list[int] = []
    end = time.perf_counter() + settings.seconds
    while time.perf_counter() < end:
        start = time.perf_counter_ns()
        os.statvfs(folder)
        times.append(time.perf_counter_ns() - start)
    times.sort()
    return [Figure(f"statfs {name}", "us", times[int(len(times) * share)] / 1000, True)
            for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))]


def workloads(settings: Settings) -> list[Workload]:
    # What all operations write; one alone writes less.
    footprint_mib = 64 if settings.operations else 400
    return [Workload("operations", "metadata", footprint_mib, measure, (str(PROGRAM),)),
            Workload("statfs", "latency", 1, statfs)]
