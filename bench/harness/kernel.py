# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""What bench/kernel makes of its samples: tables in Markdown, and with pictures in one page of HTML."""

import html
import re
import statistics
from pathlib import Path

from . import published
from .report import Table, figures_html, html_table, markdown_table, spread, whole_page
from .results import Summary, speed_ratio

Sample = dict  # round, file_system, part, operation, us; bins: latencies in ns, and how often each was seen
Rows = dict[str, dict[str, Summary]]  # by operation and file system

PEERS = ["tiffin", "tiffin-fuse", "ext4-j", "ext4-o", "xfs", "btrfs"]
OURS = "tiffin"
UNDER_FUSE = "tiffin-fuse"
REFERENCES = ["ext4-j", "ext4-o"]
TITLES = {"framework": "The framework, with system calls", "framework inside": "The framework, without system calls",
          "inside": "Inside the kernel: without system calls", "operations": "Operations",
          "trees": "Trees", "latency": "Latency of calls (fio, O_DIRECT, depth 1)", "depth": "Depth (fio, O_DIRECT, libaio)"}
NO_OPERATIONS = ("nothing", "system_call")  # what calling costs
# What does next to nothing on the framework, and what is compared with it.
FRAMEWORKS = {"framework": ("tiffin_hello", "tmpfs"), "framework inside": ("tiffin_empty", "ramfs")}
# Pages of ramfs are never out of the cache, and are written nowhere.
NOT_COMPARED = (*NO_OPERATIONS, "read_4k_uncached", "overwrite_4k_and_fsync")
PATTERNS = ["read", "write", "random read", "random write"]  # of the latency experiment

# The names here of published rows (published.py).
PUBLISHED_ROWS = {
    "create": "createfiles T1",
    "unlink": "deletefiles T1",
    "content_read_sequential_4k": "seq_read 4k T1",
    "content_read_sequential_128k": "seq_read 128k T1",
    "content_read_random_4k": "rand_read 4k T1",
    "content_write_sequential_4k": "seq_write 4k T1",
    "content_write_sequential_128k": "seq_write 128k T1",
    "content_write_random_4k": "rand_write 4k T1",
    "content_write_random_128k": "rand_write 128k T1",
    "untar": "untar",
    "tar": "tar",
    "grep -r, uncached": "grep -r",
    **{f"512 B {pattern}, {quantile}": f"latency {row} {quantile}"
       for pattern, row in (("read", "seq_read"), ("write", "seq_write"), ("random write", "rand_write"))
       for quantile in ("p50", "p90", "p99")},
}


def published_ratio(operation: str) -> float | None:
    """Speed of Bento-fs in relation to ext4-j."""
    row = PUBLISHED_ROWS.get(operation)
    return published.ratios(row)[0] if row else None


def system_calls(part: str, operation: str) -> int | None:
    """How many system calls an operation is; None where that depends on the file system or is not known."""
    if part == "latency":
        return 1
    if part != "operations" or operation in ("read_directory_of_1000", "system_call"):
        return None
    if "_mapped_" in operation:
        return 0
    return {"create": 2, "overwrite_4k_and_fsync": 2, "create_4k_and_fsync": 4}.get(operation, 1)


def summed_blocks(part: str, operation: str) -> int:
    """How many blocks of data Tiffin computes checksums of, in the time that is measured."""
    size = re.search(r"_(\d+)(k|m)(_|$)", operation)
    at_device = re.search(r"_direct|_cold_|_uncached|_and_fsync", operation)
    if part not in ("inside", "operations") or size is None or at_device is None:
        return 0
    return int(size[1]) * (256 if size[2] == "m" else 1) // (1 if size[2] == "m" else 4)


def names_in(samples: list[Sample]) -> list[str]:
    found = {sample["file_system"] for sample in samples}
    return [name for name in PEERS if name in found]


def rows_of(samples: list[Sample], part: str) -> Rows:
    """In the order in which they were measured first."""
    values: dict[str, dict[str, list[float]]] = {}
    for sample in samples:
        if sample["part"] == part:
            values.setdefault(sample["operation"], {}).setdefault(sample["file_system"], []).append(sample["us"])
    return {operation: {name: Summary(tuple(times), "us", True, False) for name, times in by_name.items()}
            for operation, by_name in values.items()}


def call_us_of(samples: list[Sample]) -> float:
    calls = [sample["us"] for sample in samples if sample["operation"] == "system_call"]
    return statistics.median(calls) if calls else 0.0


def ratio(row: dict[str, Summary], other: str, less_us: float = 0, own_less_us: float = 0) -> str:
    """How many times faster Tiffin is, when `less_us` is taken from both and `own_less_us` from Tiffin; nothing where what
    remains is not more than what was taken away is uncertain by."""
    if OURS not in row or other not in row:
        return ""
    own = row[OURS].median - less_us - own_less_us
    others = row[other].median - less_us
    return f"{others / own:.2f}" if own > 0.05 * (less_us + own_less_us) and others > 0.05 * less_us else ""


def median_text(row: dict[str, Summary], name: str) -> str:
    return f"{row[name].median:,.1f}" if name in row else ""


def part_table(samples: list[Sample], part: str) -> Table:
    names = names_in(samples)
    call_us = call_us_of(samples)
    others = [*REFERENCES, *([UNDER_FUSE] if UNDER_FUSE in names else [])]
    heads = ["", *names, *(f"to {other}" for other in others), *(f"net, to {other}" for other in REFERENCES),
             "Bento-fs to ext4-j"]
    rows = []
    for operation, row in rows_of(samples, part).items():
        calls = system_calls(part, operation)
        theirs = published_ratio(operation)
        rows.append([operation, *(median_text(row, name) for name in names), *(ratio(row, other) for other in others),
                     *("" if calls is None or not call_us else ratio(row, other, calls * call_us) for other in REFERENCES),
                     f"{theirs:.2f}" if theirs is not None else ""])
    return heads, rows


def framework_table(samples: list[Sample], part: str) -> Table:
    """The cost is the median of the rounds' differences: a machine may be slower in some rounds than in others."""
    ours, plain = FRAMEWORKS[part]
    times = {(sample["operation"], sample["file_system"], sample["round"]): sample["us"]
             for sample in samples if sample["part"] == part}
    rows = []
    for operation, row in rows_of(samples, part).items():
        costs_us = [us - times[operation, plain, round_] for (of, name, round_), us in times.items()
                    if (of, name) == (operation, ours) and (operation, plain, round_) in times]
        if operation not in NOT_COMPARED and costs_us:
            rows.append([operation, f"{row[ours].median:.2f}", f"{row[plain].median:.2f}",
                         f"{statistics.median(costs_us):.2f}", f"{min(costs_us):.2f} to {max(costs_us):.2f}"])
    return ["", ours, plain, "the framework's cost", "least to most of the rounds"], rows


def checksum_us(samples: list[Sample], blocks: int, whose: str = "") -> float | None:
    """What the CRC32C of so many blocks of 4 KiB takes; `whose`: "kernel_" for the kernel's own function."""
    rows = rows_of(samples, "checksums")
    size, parts = ("4k", blocks) if blocks < 32 else ("128k", blocks / 32)
    row = rows.get(f"{whose}checksum_{size}")
    # What was mounted meanwhile does not matter.
    return parts * statistics.median(value for one in row.values() for value in one.values) if row else None


def checksums_table(samples: list[Sample]) -> Table:
    times = {size: [checksum_us(samples, blocks, whose) for whose in ("", "kernel_")]
             for size, blocks in (("4 KiB", 1), ("128 KiB", 32))}
    return ["CRC32C of", "as Tiffin computes it", "the kernel's function"], [
        [size, *(f"{us:.2f}" if us is not None else "" for us in both)] for size, both in times.items() if any(both)]


def net_of_checksums_table(samples: list[Sample]) -> Table:
    """What would be left without checksums of data, which ext4 has not."""
    heads = ["", OURS, "its checksums", *(f"{name}, {which}" for name in (f"to {other}" for other in REFERENCES)
                                        for which in ("with them", "without", "and without system calls"))]
    rows = []
    for part in ("inside", "operations"):
        for operation, row in rows_of(samples, part).items():
            blocks = summed_blocks(part, operation)
            sums_us = checksum_us(samples, blocks)
            if not blocks or sums_us is None or OURS not in row:
                continue
            call_us = (system_calls(part, operation) or 0) * call_us_of(samples)
            rows.append([f"{operation} ({part})", median_text(row, OURS), f"{sums_us:.1f}",
                         *(text for other in REFERENCES for text in (
                             ratio(row, other), ratio(row, other, own_less_us=sums_us),
                             ratio(row, other, call_us, sums_us) if call_us else ""))])
    return heads, rows


def spread_table(samples: list[Sample], part: str) -> Table:
    rows = rows_of(samples, part)
    names = [name for name in FRAMEWORKS.get(part, PEERS) if any(name in row for row in rows.values())]
    return ["", *names], [[operation, *(spread(row[name]) if name in row else "" for name in names)]
                          for operation, row in rows.items()]


def tables(samples: list[Sample]) -> list[tuple[str, str, Table]]:
    """Part (or nothing where it is of several), title, table."""
    made = [(part, title, (framework_table if part in FRAMEWORKS else part_table)(samples, part))
            for part, title in TITLES.items()]
    made += [("", "Checksums", checksums_table(samples)), ("", "Net of checksums", net_of_checksums_table(samples))]
    return [(part, title, table) for part, title, table in made if table[1]]


def remark(samples: list[Sample]) -> str:
    rounds = 1 + max(sample["round"] for sample in samples)
    call_us = call_us_of(samples)
    return (f"Medians of {rounds} round{'' if rounds == 1 else 's'}, in µs; ratios above 1: Tiffin is faster."
            + (f" A system call: {call_us:.1f} µs." if call_us else ""))


def markdown(samples: list[Sample]) -> str:
    return remark(samples) + "\n" + "".join(f"\n### {title}\n\n{markdown_table(table)}"
                                            for _, title, table in tables(samples))


def bins_of(samples: list[Sample]) -> dict[str, dict[str, dict[int, int]]]:
    """Of the latency experiment: by pattern and file system."""
    found: dict[str, dict[str, dict[int, int]]] = {}
    for pattern in PATTERNS:
        for name in names_in(samples):
            for sample in samples:
                if (sample["operation"], sample["file_system"]) == (f"512 B {pattern}, p50", name) and "bins" in sample:
                    counts = found.setdefault(pattern, {}).setdefault(name, {})
                    for ns, count in sample["bins"].items():
                        counts[int(ns)] = counts.get(int(ns), 0) + count
    return found


def ratio_marks(pictures, operation: str, row: dict[str, Summary]) -> list:
    """Of Tiffin to each reference, and the published one."""
    marks = []
    for other, colour in (("ext4-j", "#d62728"), ("ext4-o", "#ff7f0e")):
        if OURS in row and other in row and (middle := speed_ratio(row[OURS], row[other])):
            marks.append(pictures.Mark(f"Tiffin to {other}", middle, pictures.reach_of(row[OURS], row[other]),
                                       style=(colour, pictures.style(other)[1])))
    theirs = published_ratio(operation)
    if marks and theirs is not None:
        marks.append(pictures.Mark("Bento-fs to ext4-j, published", theirs, style=(pictures.PUBLISHED_COLOUR, "|")))
    return marks


def time_marks(pictures, part: str, row: dict[str, Summary]) -> list:
    return [pictures.Mark(name, row[name].median, (min(row[name].values), max(row[name].values)))
            for name in FRAMEWORKS.get(part, PEERS) if name in row and min(row[name].values) > 0]


def draw(samples: list[Sample]) -> list[tuple[str, str]]:
    """Caption and SVG of each. Raises ImportError where nothing draws."""
    from . import pictures
    made = []
    for part, title in TITLES.items():
        left_out = NOT_COMPARED if part in FRAMEWORKS else NO_OPERATIONS
        rows = {operation: row for operation, row in rows_of(samples, part).items() if operation not in left_out}
        ratios = {operation: marks for operation, row in rows.items() if (marks := ratio_marks(pictures, operation, row))}
        times = {operation: marks for operation, row in rows.items() if (marks := time_marks(pictures, part, row))}
        if ratios:
            made.append((f"{title}: Tiffin's speed in relation to ext4, with the least and the most of the rounds.",
                         pictures.rows_figure(ratios, "times as fast: right of 1, Tiffin is faster", True, row_inches=0.3)))
        if part == "latency" and (bins := bins_of(samples)):
            made.append(("Latency: share of requests of 512 B with O_DIRECT that were answered within a time.",
                         pictures.latencies(bins)))
        if times:
            made.append((f"{title}: medians, with the least and the most of the rounds.",
                         pictures.rows_figure(times, "microseconds: left is faster", True, line_at=None)))
    return [(caption, pictures.svg(figure)) for caption, figure in made]


def page(samples: list[Sample], drawn: list[tuple[str, str]], without: str) -> str:
    """`drawn`: caption and SVG of each; `without`: why there are none."""
    parts = figures_html(drawn, without)
    for part, title, table in tables(samples):
        parts.append(f"<h2>{html.escape(title)}</h2>{html_table(table)}")
        if part:
            parts.append(f"<p>Medians; in brackets how far samples reach.</p>{html_table(spread_table(samples, part))}")
    return whole_page("Results of bench/kernel", [remark(samples)], parts)


def write(samples: list[Sample], folder: Path) -> str:
    """Writes results.md and report.html; returns the former."""
    try:
        drawn, without = draw(samples), ""
    except ImportError:
        drawn, without = [], "No pictures: python3-matplotlib is missing (scripts/deps bench)."
    text = markdown(samples)
    (folder / "results.md").write_text(text)
    (folder / "report.html").write_text(page(samples, drawn, without))
    return text
