#!/usr/bin/python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""The real bench/run with tiny sizes on tmpfs and on Tiffin: what it writes is complete, and nothing stays behind."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness.mounting import tiffin  # noqa: E402
from lib.paths import BIN  # noqa: E402
from harness.workloads import filebench, output_of  # noqa: E402

RUN = Path(__file__).resolve().parent / "run"
FIGURES = {"createfiles T1": 1, "varmail": 1, "operations": 3}
ROUNDS = 2
FILE_SYSTEMS = ("tmpfs", "tiffin")
COMMAND = [RUN, "--suite", "micro,metadata", "--quick", "--fs", ",".join(FILE_SYSTEMS), "--seconds", "0.05", "--scale",
           "0.001", "--rounds", str(ROUNDS), "--operations", "^(create|rename)/?", "--workload",
           f"^({'|'.join(FIGURES)})$"]
STEPS = len(FIGURES) * len(FILE_SYSTEMS) * ROUNDS


BEFORE: list[str] = []


def mounts() -> list[str]:
    return [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if "/tiffin-bench." in line]


class Smoke(unittest.TestCase):
    def setUp(self) -> None:
        self.out = Path(self.enterContext(tempfile.TemporaryDirectory())) / "out"
        self.assertEqual(self.own_mounts(), [])

    def own_mounts(self) -> list[str]:
        """Of runs that this process started: another run may be under way on this machine."""
        return [path for path in mounts() if path not in BEFORE]

    def run_it(self, *more: str | Path) -> str:
        result = subprocess.run([*COMMAND, "--out", self.out, *more], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def content(self) -> dict:
        return json.loads((self.out / "results.json").read_text())

    def test_results_are_complete(self) -> None:
        self.run_it()
        counted: dict[tuple, int] = {}
        for one in self.content()["samples"]:
            self.assertEqual(one["error"], "")
            self.assertEqual(len(one["figures"]), FIGURES[one["workload"]], one)
            self.assertTrue(all(figure["value"] > 0 for figure in one["figures"]))
            key = (one["workload"], one["file_system"], one["round"])
            counted[key] = counted.get(key, 0) + one["is_last_attempt"]
        self.assertEqual(counted, {(workload, name, number): 1 for workload in FIGURES
                                   for name in FILE_SYSTEMS for number in range(ROUNDS)})
        summary = (self.out / "summary.md").read_text()
        for row in ("createfiles T1", "varmail", "create", "rename"):
            self.assertEqual(len(re.findall(rf"^\| {row} \| [^|]+ \|[^|]*\d[^|]*\|[^|]*\d[^|]*\|$", summary, re.MULTILINE)),
                             1, row)
        self.assertGreater((self.out / "report.html").stat().st_size, 5000)
        self.assertEqual(self.own_mounts(), [])

        # Once more there is nothing left to do; and nothing has changed since.
        samples = len(self.content()["samples"])
        text = self.run_it("--against", self.out)
        self.assertEqual(len(self.content()["samples"]), samples)
        self.assertIn("0 faster, 0 slower", text)

    def test_an_interrupted_run_unmounts_and_goes_on(self) -> None:
        process = subprocess.Popen([*COMMAND, "--out", self.out], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not ((self.out / "results.json").exists() and self.content()["samples"]):
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=120), 130)
        self.assertEqual(self.own_mounts(), [])
        before = self.content()["samples"]
        self.assertLess(len(before), STEPS)
        self.run_it()
        self.assertEqual(self.content()["samples"][:len(before)], before)
        self.assertEqual(sum(one["is_last_attempt"] for one in self.content()["samples"]), STEPS)


class Driver(unittest.TestCase):
    def test_it_commits_what_it_counts_as_synced(self) -> None:
        with tempfile.TemporaryDirectory() as work, tiffin(Path(work) / "mounted", "mem:64M") as folder:
            (folder / "one/two").mkdir(parents=True)
            output_of(filebench.LOAD, folder / "one/two", "flow=create,write_whole,close", "files=20", "present=50",
                      "seconds=60")
            # Before its clock starts, and at the end.
            self.assertRegex(output_of(BIN / "tiffin", "stats", folder), r"(?m)^FSYNCDIR +2 ")


if __name__ == "__main__":
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        print("NOT RUN: mounting needs root and /dev/fuse")
        sys.exit(77)
    BEFORE[:] = mounts()
    unittest.main()
