# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""What was measured, as tables of Markdown."""

import csv
import random
from collections.abc import Callable
from pathlib import Path

import fallback_model
from findings import Finding, Measured, any_row, has_tail, size_text
from points import LEAST_SAMPLES_FOR_P999, ROW_BYTES, SCHEMES

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
    parts.append(by_size_and_drop(measured, group, speedup_text))
    parts.append("**Bytes sent with EC MDS**, over those of the message\n")
    parts.append(by_size_and_drop(measured, group, lambda cell: f"{cell['ec_mds']['sent_share']:.3f}"))
    if all("auto" in cell for cell in cells):
        parts.append("**auto over the best**: how much longer its mean is, and in brackets the share of "
                     "messages that it coded\n")
        parts.append(by_size_and_drop(measured, group, automatic_text))
    return "\n".join(parts)


def speedup_text(cell: dict[str, dict]) -> str:
    """How many times longer SR RTO takes than EC MDS: the mean (p99.9)."""
    slow, fast = cell["sr_rto"], cell["ec_mds"]
    return (f"{slow['mean_s'] / fast['mean_s']:.2f} "
            + (f"({slow['p999_s'] / fast['p999_s']:.1f})" if has_tail(slow, fast) else "(-)"))


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


def fallback_section(measured: Measured) -> str:
    """The paper's protocol, which asks at the end for whole submessages, beside this one: where some cannot be decoded."""
    draws = 20000
    lines = []
    for cell in measured.cells("row-fine"):
        for scheme in ("ec_xor", "ec_mds"):
            row = cell[scheme]
            if row["bytes"] != ROW_BYTES or row["fallbacks"] < 0.01 * row["samples"]:
                continue
            failure = fallback_model.decoding_failure(scheme, 32, 8, row["drop"])
            texts = []
            for timeout_round_trips in (3, 1):
                chance = random.Random(1)
                times = sorted(fallback_model.message_s(
                    chance, scheme, row["bytes"] // row["packet"], row["packet"] * 8 / (row["gbit"] * 1e9),
                    row["rtt_ms"] / 1000, row["drop"], failure, timeout_round_trips=timeout_round_trips) for _ in range(draws))
                texts.append(f"{milliseconds(sum(times) / draws)} / {milliseconds(times[int(0.99 * draws)])}")
            lines.append([NAMES[scheme], f"{row['drop']:g}", f"{100 * row['fallbacks'] / row['samples']:.1f} %", *texts,
                          f"{milliseconds(row['mean_s'])} / {milliseconds(row['p99_s'])}"])
    if not lines:
        return ""
    return ("## The paper's fallback beside this one, 128 MiB, chunks of 4 KiB\n\nMean / p99 in ms. The paper's receiver waits for "
            f"all, and one round trip longer, and asks for whole submessages: drawn {draws} times by fallback_model.py, "
            "with a timeout of 3 round trips for what is sent again, and of 1. Here the receiver asks for missing chunks of a "
            "submessage as soon as the next one shows them.\n\n"
            + table(["", "drop", "messages that need it", "the paper's, RTO", "the paper's, NACK", "here"], lines))


def splits_section(measured: Measured) -> str:
    cells = measured.cells("splits")
    if not cells:
        return ""
    rows = [cell["ec_mds"] for cell in cells]
    splits = list(dict.fromkeys((row["k"], row["m"]) for row in rows))
    at = {(row["k"], row["m"], row["drop"]): row for row in rows}
    drops = sorted({row["drop"] for row in rows})
    return (f"## Splits of data and parity, 128 MiB, chunks of 4 KiB\n\nMean / p99 in ms, {sample_counts(cells)}; in brackets "
            "the share of messages with a submessage that could not be decoded.\n\n"
            + table([""] + [f"{drop:g}" for drop in drops],
                    [[f"({k}, {m})"] + [split_text(at[k, m, drop]) for drop in drops] for k, m in splits]))


def split_text(row: dict) -> str:
    share = 100 * row["fallbacks"] / row["samples"]
    return f"{milliseconds(row['mean_s'])} / {milliseconds(row['p99_s'])} ({share:.1f} %)"


def speedup_section(measured: Measured, group: str, title: str, axis: str) -> str:
    """SR RTO over EC MDS by an axis and by drop rate, as the paper's figure 13."""
    cells = measured.cells(group)
    if not cells:
        return ""
    at = {(any_row(cell)[axis], any_row(cell)["drop"]): cell for cell in cells}
    values = sorted({value for value, _ in at})
    drops = sorted({drop for _, drop in at})
    return (f"## {title}\n\nHow many times longer SR RTO's mean is than EC MDS's (p99.9), {sample_counts(cells)}.\n\n"
            + table([axis] + [f"{drop:g}" for drop in drops],
                    [[size_text(value) if axis == "bytes" else f"{value}"]
                     + [speedup_text(at[value, drop]) for drop in drops] for value in values]))


def model_section(measured: Measured, group: str, title: str, axis: str) -> str:
    """Slowdowns by the model alone, as the paper's figure 3."""
    cells = measured.cells(group)
    if not cells:
        return ""
    lines = []
    for cell in cells:
        row = any_row(cell)
        ideal_s = row["bytes"] * 8 / (row["gbit"] * 1e9) + row["rtt_ms"] / 1000
        value = size_text(row["bytes"]) if axis == "bytes" else f"{row['rtt_ms'] * 150:.0f}"
        lines.append([value] + [f"{cell[scheme]['model_mean_s'] / ideal_s:.2f}"
                                + (" (at least)" if cell[scheme]["model_is_lower_bound"] else "")
                                for scheme in ("sr_rto", "ec_mds")])
    return (f"## {title}\n\nThe model's mean over the time without losses and parity; \"at least\" where the model is a lower "
            "bound, as in the paper.\n\n"
            + table(["bytes" if axis == "bytes" else "kilometres", NAMES["sr_rto"], NAMES["ec_mds"]], lines))


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
        speedup_section(measured, "ring-nodes", "Ring Allreduce, 128 MiB, by data centres", "nodes"),
        speedup_section(measured, "ring-bytes", "Ring Allreduce of 4, by buffer", "bytes"),
        splits_section(measured),
        fallback_section(measured),
        model_section(measured, "model-size", "Sizes by the model, at 1e-5", "bytes"),
        model_section(measured, "model-distance", "8 GiB by distance, by the model, at 1e-5", "rtt_ms"),
    ]
    return HEADER + "\n".join(section for section in sections if section)


def write_csv(rows: list[dict], path: Path) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row if name != "point"))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
