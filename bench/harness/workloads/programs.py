# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Suites that are programs of their own: they are called, and what they print is kept."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lib.paths import BENCH, BIN, BUILD, ROOT


@dataclass(frozen=True)
class Program:
    suite: str
    name: str
    command: tuple[str, ...]
    quick_command: tuple[str, ...]  # empty if it takes too long for that
    expected_s: float               # of the quick one, about
    needs_root: bool = True
    missing: Callable[[], str] = lambda: ""  # what the machine lacks for it


def missing_kernel() -> str:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tiffin/kernel-uml"
    return "" if cache.is_dir() else "user-mode Linux is missing (scripts/deps uml)"


PROGRAMS = (
    Program("scale", "a million files and extents", ("bench/scale",), ("bench/scale", "--count", "10000"), 20),
    Program("scale", "threads", ("bench/concurrency",), (), 0),
    Program("remote", "tcp beside others", ("bench/remote-compare",),
            ("bench/remote-compare", "--rounds", "1", "--seconds", "0.2"), 20, False),
    Program("remote", "transports beside libraries", ("bench/transport-compare",),
            ("bench/transport-compare", "--rounds", "1", "--seconds", "0.2", "--iterations", "500"), 30, False),
    Program("sdr", "repair schemes", ("bench/sdr/evaluate",), ("bench/sdr/evaluate", "--small"), 30, False),
    Program("failover", "two links", ("bench/failover",),
            ("bench/failover", "--rounds", "2", "--samples", "4", "--only", "overhead", "--only", "times"), 30),
    Program("kernel", "the module beside the kernel's own file systems", ("bench/kernel",), (), 0, False, missing_kernel),
)


def run(program: Program, is_quick: bool, folder: Path, timeout_s: float) -> dict:
    """Its output, and how it ended."""
    command = program.quick_command if is_quick else program.command
    more = {"sdr": ["--folder", str(folder / "sdr")], "kernel": ["--output", str(folder / "kernel")]}.get(program.suite, [])
    environment = {"TIFFIN_BUILD": str(BUILD), "TIFFIN_BIN": str(BIN), "TIFFIN_BENCH": str(BENCH)}
    start = time.monotonic()
    # In a session of its own, so that all of it can be interrupted, and unmounts.
    with subprocess.Popen([*command, *more], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          start_new_session=True, env={**os.environ, **environment}) as process:
        error = ""
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            error = f"not done after {timeout_s:.0f} s"
            os.killpg(process.pid, signal.SIGINT)
            output, errors = process.communicate()
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGINT)
            raise
        if not error and process.returncode != 0:
            error = f"status {process.returncode}: {errors.strip()[-300:]}"
    return {"suite": program.suite, "name": program.name, "command": " ".join(command), "output": output,
            "error": error, "seconds": time.monotonic() - start}
