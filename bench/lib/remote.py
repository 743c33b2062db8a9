# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Remote memory to measure: a server with one volume, `tiffin perf`, and a table of medians and ratios."""

import json
import shutil
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .paths import BIN

TIFFIN = BIN / "tiffin"
VOLUME_MIB = 256


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def output_of(*command: str | Path) -> str:
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


@contextmanager
def running(port: int, *command: str | Path) -> Iterator[None]:
    """A server that listens on `port` once this is entered, and is ended afterwards."""
    with subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(200):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            else:
                raise RuntimeError(f"{command[0]} does not listen")
            yield
        finally:
            process.terminate()
            process.wait(timeout=30)


def start_tiffind(stack: ExitStack, work: Path, busy_poll_us: int | None = None, volume_mib: int = VOLUME_MIB) -> str:
    """The address of its volume. Without `busy_poll_us` both ends wait as they do by default."""
    port = free_port()
    work.mkdir()
    configuration = work / "tiffind.toml"
    configuration.write_text(f'listen = "127.0.0.1:{port}"\nmetrics = ""\nmemory_limit = "{volume_mib + 768}M"\n'
                             f'{"" if busy_poll_us is None else f"busy_poll_us = {busy_poll_us}"}\n'
                             f'state_directory = "{work}/state"\nruntime_directory = "{work}/run"\n')
    for folder in ("state", "run"):
        (work / folder).mkdir()
    stack.enter_context(running(port, BIN / "tiffind", "--config", configuration))
    output_of(TIFFIN, "volume", "create", "bench", f"{volume_mib}M", "--key-file", work / "key", "--socket",
              work / "run/admin.sock")
    waiting = "" if busy_poll_us is None else f"&busy_poll_us={busy_poll_us}"
    return f"tiffin://127.0.0.1:{port}/bench?key_file={work}/key&transport=tcp{waiting}"


def perf(address: str, seconds: float, *options: str) -> dict[str, dict]:
    results = json.loads(output_of(TIFFIN, "perf", address, "--json", "--duration", str(seconds), *options))["results"]
    return {result["carrier"]: result for result in results}


def start_iperf(stack: ExitStack) -> int | None:
    """The port of its server; None, and said so, where it is not installed."""
    if shutil.which("iperf3") is None:
        print("not compared with iperf3: it is not installed")
        return None
    port = free_port()
    stack.enter_context(running(port, "iperf3", "-s", "-p", str(port)))
    return port


def iperf(port: int, seconds: float) -> float:
    """MB/s of one connection."""
    return json.loads(output_of("iperf3", "-c", "127.0.0.1", "-p", str(port), "-t", str(max(1, round(seconds))),
                                "-J"))["end"]["sum_received"]["bits_per_second"] / 8e6


class Table:
    """Medians, and ratios to what `reference` has: above 1 that one is faster."""

    def __init__(self, reference: str = "Tiffin") -> None:
        self.reference = reference
        self.values: dict[tuple[str, str], list[float]] = {}
        self.units: dict[str, str] = {}

    def add(self, row: str, unit: str, who: str, value: float) -> None:
        self.units[row] = unit
        self.values.setdefault((row, who), []).append(value)

    def show(self) -> None:
        print(f"{'':<34}{'unit':<7}{self.reference:>10}  other")
        for row, unit in self.units.items():
            ours = statistics.median(self.values[row, self.reference])
            line = f"{row:<34}{unit:<7}{ours:>10.1f}"
            for (name, who), values in self.values.items():
                if name == row and who != self.reference:
                    other = statistics.median(values)
                    ratio = other / ours if unit == "us" else ours / other
                    line += f"  {who} {other:.1f} ({ratio:.2f})"
            print(line)
