# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Single operations, one after the other, by bench/operations_benchmark."""

import json
from pathlib import Path

from ..mounting import BENCH
from . import Figure, Settings, Workload, output_of

PROGRAM = BENCH / "operations_benchmark"


def measure(folder: Path, settings: Settings) -> list[Figure]:
    least_seconds = min(0.2, settings.seconds)
    text = output_of(PROGRAM, folder, f"--benchmark_filter={settings.operations or '.'}", "--benchmark_format=json",
                     f"--benchmark_min_time={least_seconds}")
    return [Figure(entry["name"].split("/")[0].replace("_", " "), "us", entry["real_time"] / 1000, True)
            for entry in json.loads(text)["benchmarks"]]


def workloads() -> list[Workload]:
    return [Workload("operations", "metadata", 400, measure, (str(PROGRAM),))]
