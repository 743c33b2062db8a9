#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Whether bench/kernel measures what it says: each operation on each file system as often as asked for, and tables of that.

usage: test_kernel.py FOLDER   (for its files)
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
PEERS = ["tiffin", "tiffin-fuse", "ext4-j"]
OPERATIONS = ["system_call", "create", "stat_of_a_known_file", "content_read_direct_random_4k"]
ROUNDS = 2


def check(holds: bool, message: str) -> None:
    if not holds:
        sys.exit(f"test_kernel: {message}")


def main() -> None:
    folder = Path(sys.argv[1])
    subprocess.run([BENCH / "kernel", "--quick", "--rounds", str(ROUNDS), "--peers", ",".join(PEERS),
                    "--output", folder], check=True)
    samples = json.loads((folder / "samples.json").read_text())
    found = Counter((sample["operation"], sample["file_system"]) for sample in samples
                    if sample["part"] == "operations")
    wanted = {(operation, peer): ROUNDS for operation in OPERATIONS for peer in PEERS}
    check(found == wanted, f"measured {dict(found)}, not {wanted}")
    check(all(sample["us"] > 0 for sample in samples), "an operation took no time")
    framework = Counter(sample["operation"] for sample in samples if sample["part"] == "framework")
    check(len(framework) == 5 and set(framework.values()) == {2 * ROUNDS}, f"of the framework: {dict(framework)}")

    empty = Counter((sample["operation"], sample["file_system"]) for sample in samples
                    if sample["part"] == "framework inside")
    # ramfs has no O_DIRECT.
    direct = {name for name, system in empty if "_direct_" in name + "_" and system != "ramfs"}
    check(len(direct) == 5 and len(empty) == 14 * 2 + len(direct) and set(empty.values()) == {ROUNDS},
          f"of an empty file system: {dict(empty)}")

    inside = Counter((sample["operation"], sample["file_system"]) for sample in samples if sample["part"] == "inside")
    check(len(inside) == 19 * len(PEERS) and set(inside.values()) == {ROUNDS}, f"inside the kernel: {dict(inside)}")

    checksums = Counter(sample["operation"] for sample in samples if sample["part"] == "checksums")
    check(len(checksums) == 4 and set(checksums.values()) == {(len(PEERS) + 2) * ROUNDS},
          f"of checksums: {dict(checksums)}")

    report = (folder / "results.md").read_text()
    table = report.partition("### Operations\n")[2].partition("###")[0]
    for operation in OPERATIONS:
        row = next((line for line in table.splitlines() if line.startswith(f"| {operation} |")), "")
        check(len(row.split("|")) == len(PEERS) + 9, f"no whole row of {operation} in the table: {row}")
    again = folder / "again"
    subprocess.run([BENCH / "kernel", "--from", folder / "samples.json", "--output", again], check=True)
    check((again / "results.md").read_text() == report, "--from makes another table of the same samples")
    print("test_kernel: passed")


main()
