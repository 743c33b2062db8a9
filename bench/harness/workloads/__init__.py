# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Workloads: what is done in a folder of a mounted file system, and the figures that it gives."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

# At the end of a row's name: with the time until what was written is durable.
SYNCED = ", synced"
# A workload that takes longer than this many times what it was asked for hangs.
TIMEOUT_S = 300


@dataclass(frozen=True)
class Settings:
    """How much is done."""
    seconds: float       # of each timed measurement
    scale: float         # of files and bytes, relative to the reproduction's
    processors: int
    work: Path           # a folder in memory that keeps what workloads share, such as source trees
    filebench: str = ""  # the program; empty: the driver of this project only
    tree: str = ""       # a source tree to use instead of a generated one
    operations: str = "" # a regular expression: only single operations that match


@dataclass(frozen=True)
class Figure:
    row: str     # name in the tables
    unit: str
    value: float
    less_is_better: bool = False
    detail: dict = field(default_factory=dict)  # "bins": {ns: count} of latencies; "timeline": operations per 100 ms


@dataclass(frozen=True)
class Workload:
    name: str
    suite: str
    footprint_mib: int  # written to the file system, at most
    run: Callable[[Path, Settings], list[Figure]]
    programs: tuple[str, ...] = ()


def output_of(*command: str | Path, **options) -> str:
    """Raises CalledProcessError, whose stderr says why, and TimeoutExpired."""
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True,
                          timeout=TIMEOUT_S, **options).stdout
