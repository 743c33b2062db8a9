# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""What was measured, as tables of Markdown."""

import csv
from collections.abc import Callable
from pathlib import Path

from findings import Finding, Measured, any_row, has_tail, size_text
from points import LEAST_SAMPLES_FOR_P999, SCHEMES

HEADER = """<!-- SPDX-License-Identifier: MIT OR GPL-2.0-only -->
<!-- Made by bench/sdr/evaluate -->
# The evaluation of software-defined reliability: all tables

What is measured, and what the findings mean, is in [sdr-evaluation.md](sdr-evaluation.md).

"""

NAMES = {"sr_rto": "SR RTO", "sr_nack": "SR NACK", "ec_xor": "EC XOR", "ec_mds": "EC MDS",
         "auto": "auto"}


def table(header: list[str], lines: list[list[str]]) -> str:
    rule = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rule, *lines]) + "\n"


def milliseconds(seconds: float) -> str:
    value = seconds * 1000
    return f"{value:.2f}" if value < 100 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def sample_counts(cells: list[dict[str, dict]]) -> str:
    counts = {row["samples"] for cell in cells for row in cell.values()}
    return f"{min(counts)} to {max(counts)} samples" if len(counts) > 1 else f"{min(counts)} samples"


def tail(row: dict) -> str:
    return milliseconds(row["p999_s"]) if has_tail(row) else "-"


def by_size_and_drop(measured: Measured, group: str, text: Callable[[dict[str, dict]], str]) -> str:
    cells = measured.cells(group)
    sizes = sorted({any_row(cell)["bytes"] for cell in cells})
    drops = sorted({any_row(cell)["drop"] for cell in cells})
    at = {(any_row(cell)["bytes"], any_row(cell)["drop"]): cell for cell in cells}
    return table([""] + [f"{drop:g}" for drop in drops],
                 [[size_text(size)] + [text(at[size, drop]) if (size, drop) in at else ""
                                       for drop in drops] for size in sizes])


def grid_section(measured: Measured, group: str) -> str:
    cells = measured.cells(group)
    if not cells:
        return ""
    parts = [f"## Completion time, chunks of {any_row(cells[0])['packet'] >> 10} KiB\n",
             f"{sample_counts(cells)} for each figure; p99.9 only from "
             f"{LEAST_SAMPLES_FOR_P999} on.\n"]
    for scheme in [*SCHEMES, "auto"]:
        if not all(scheme in cell for cell in cells):
            continue
        parts.append(f"**{NAMES[scheme]}**: mean / p99 / p99.9 in ms"
                     + ("" if scheme == "auto" else ", and the model's mean and p99.9 in brackets") + "\n")
        parts.append(by_size_and_drop(measured, group, lambda cell, of=scheme: " / ".join(
            [milliseconds(cell[of]["mean_s"]), milliseconds(cell[of]["p99_s"]), tail(cell[of])])
            + (f" ({milliseconds(cell[of]['model_mean_s'])}, {milliseconds(cell[of]['model_p999_s'])})"
               if "model_mean_s" in cell[of] else "")))
    parts.append("**SR RTO over EC MDS**: how many times longer the mean is (p99.9)\n")
    parts.append(by_size_and_drop(measured, group, lambda cell: (
        f"{cell['sr_rto']['mean_s'] / cell['ec_mds']['mean_s']:.2f} "
        + (f"({cell['sr_rto']['p999_s'] / cell['ec_mds']['p999_s']:.1f})"
           if has_tail(cell["sr_rto"], cell["ec_mds"]) else "(-)"))))
    parts.append("**Bytes sent with EC MDS**, over those of the message\n")
    parts.append(by_size_and_drop(measured, group, lambda cell: f"{cell['ec_mds']['sent_share']:.3f}"))
    if all("auto" in cell for cell in cells):
        parts.append("**auto over the best**: how much longer its mean is, and in brackets the share of "
                     "messages that it coded\n")
        parts.append(by_size_and_drop(measured, group, automatic_text))
    return "\n".join(parts)


def automatic_text(cell: dict[str, dict]) -> str:
    best = min(cell[scheme]["mean_s"] for scheme in SCHEMES)
    coded = cell["auto"]["coded_messages"] / cell["auto"]["samples"]
    return f"{100 * (cell['auto']['mean_s'] / best - 1):+.1f} % ({100 * coded:.0f} %)"


def list_section(measured: Measured, group: str, title: str, axes: list[str]) -> str:
    cells = measured.cells(group)
    if not cells:
        return ""
    lines = []
    for cell in cells:
        row = any_row(cell)
        lines.append([size_text(row[axis]) if axis == "bytes" else f"{row[axis]:g}" for axis in axes]
                     + [f"{milliseconds(cell[scheme]['mean_s'])} / {tail(cell[scheme])}"
                        if scheme in cell else "" for scheme in [*SCHEMES, "auto"]])
    header = axes + [NAMES[scheme] for scheme in [*SCHEMES, "auto"]]
    return (f"## {title}\n\nMean / p99.9 in ms, {sample_counts(cells)}.\n\n"
            + table(header, lines))


def findings_section(findings: list[Finding]) -> str:
    return "## Findings\n\n" + "\n".join(
        ["| | Claim | Seen | Figures |", "|---|---|---|---|"]
        + [f"| {finding.name} | {finding.claim} | {'yes' if finding.seen else '**no**'} "
           f"| {finding.figures} |" for finding in findings]) + "\n"


def report(rows: list[dict], findings: list[Finding]) -> str:
    measured = Measured(rows)
    sections = [
        findings_section(findings),
        grid_section(measured, "coarse"),
        grid_section(measured, "fine"),
        list_section(measured, "row", "More drop rates, chunks of 64 KiB", ["bytes", "drop"]),
        list_section(measured, "row-fine", "More drop rates, chunks of 4 KiB", ["bytes", "drop"]),
        list_section(measured, "tails", "Tails, chunks of 4 KiB", ["bytes", "drop"]),
        list_section(measured, "tails-coarse", "Tails, chunks of 64 KiB", ["bytes", "drop"]),
        list_section(measured, "distance", "Distance, at 1e-5", ["bytes", "rtt_ms"]),
        list_section(measured, "bandwidth", "Bandwidth, at 1e-5", ["bytes", "gbit"]),
        list_section(measured, "lost-control", "128 MiB, what goes back being lost as often", ["drop"]),
        list_section(measured, "bursts", "128 MiB, losses in bursts", ["burst", "drop"]),
        list_section(measured, "ring", "Ring Allreduce of 4, 128 MiB", ["drop"]),
        list_section(measured, "ring-size", "Ring Allreduce, 128 MiB, at 1e-4", ["nodes"]),
    ]
    return HEADER + "\n".join(section for section in sections if section)


def write_csv(rows: list[dict], path: Path) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row if name != "point"))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
