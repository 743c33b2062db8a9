# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Results as pictures, in SVG. Needs python3-matplotlib (scripts/deps bench)."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.colors import TwoSlopeNorm  # noqa: E402
from matplotlib.ticker import LogLocator, NullFormatter  # noqa: E402

from . import published  # noqa: E402
from .report import OURS, REFERENCE, TITLES, ratio_text, ratio_to_reference, reference_of  # noqa: E402
from .results import Results, Summary, speed_ratio  # noqa: E402
from .workloads.fio import LATENCY  # noqa: E402

# The same colour and mark for a file system in all pictures: warm for Tiffin, cold for the kernel's own.
STYLES = {
    "ext4-ordered": ("#1f77b4", "s"), "ext4-journal": ("#0b3c6f", "D"), "xfs": ("#17a2b8", "P"), "btrfs": ("#3b7d4f", "X"),
    "tmpfs": ("#9aa0a6", "^"), "fuse2fs": ("#8c6d31", "v"), "passthrough": ("#7b5ea7", "<"), "tiffin": ("#d62728", "o"),
    "tiffin-loop": ("#ff7f0e", "o"), "tiffin-asleep": ("#e377c2", "o"), "ext4-ordered-zram": ("#6baed6", "s"),
    "ext4-journal-zram": ("#4a6fa5", "D"), "tiffin-zram": ("#bcbd22", "o"), "tiffin-shm": ("#2ca02c", ">"),
    "tiffin-sdr": ("#8c564b", "h"), "tiffin-tcp": ("#e7a100", "d"), "tiffin-remote": ("#000000", "*"),
    # As bench/kernel calls them.
    "ext4-o": ("#1f77b4", "s"), "ext4-j": ("#0b3c6f", "D"), "ramfs": ("#9aa0a6", "^"), "tiffin_hello": ("#d62728", "o"),
    "tiffin_empty": ("#d62728", "o"), "tiffin-fuse": ("#ff7f0e", "o"),
}
PUBLISHED_COLOUR = "#555555"
MOST_RATIO = 16  # of the heat map's colours


def style(name: str) -> tuple[str, str]:
    return STYLES.get(name, ("#000000", "."))


def plain_ticks(axes) -> None:
    """0.5, 1, 2 instead of powers of ten, as many as there is room for."""
    low, high = axes.get_xlim()
    is_wide = high / low > 300
    axes.xaxis.set_major_locator(LogLocator(subs=(1,) if is_wide else (1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


@dataclass(frozen=True)
class Mark:
    """In a row of a picture: a figure, and how far the rounds reach to both sides of it."""
    name: str
    value: float
    reach: tuple[float, float] | None = None
    style: tuple[str, str] | None = None  # that of `name` in STYLES
    is_hollow: bool = False


def rows_figure(rows: dict[str, Sequence[Mark]], axis: str, side_by_side: bool, line_at: float | None = 1,
                row_inches: float = 0.36, width_inches: float = 11):
    """A row for each, with marks on one line, or `side_by_side` on a line for each name."""
    figure, axes = pyplot.subplots(figsize=(width_inches, 1.2 + row_inches * len(rows)))
    names = list(dict.fromkeys(mark.name for marks in rows.values() for mark in marks))
    drawn: set[str] = set()
    for height, marks in enumerate(rows.values()):
        axes.axhspan(height - 0.5, height + 0.5, color="#f3f4f7" if height % 2 else "white", zorder=0)
        for one in marks:
            colour, mark = one.style or style(one.name)
            at = height + (0.7 * ((names.index(one.name) + 0.5) / len(names) - 0.5) if side_by_side else 0)
            if one.reach is not None:
                axes.plot(one.reach, [at, at], color=colour, linewidth=1.2)
            is_line = mark in ("|", "x")
            axes.plot(one.value, at, mark, color=colour, markersize=5 if side_by_side and not is_line else 7,
                      markeredgewidth=1.6 if is_line else 1.0, label=None if one.name in drawn else one.name,
                      markerfacecolor="white" if one.is_hollow else colour)
            drawn.add(one.name)
    if line_at is not None:
        axes.axvline(line_at, color="#444", linewidth=0.8)
    axes.set(xscale="log", yticks=range(len(rows)), yticklabels=list(rows), ylim=(len(rows) - 0.5, -0.5), xlabel=axis)
    plain_ticks(axes)
    axes.grid(True, axis="x", alpha=0.3)
    if drawn:
        handles = dict(zip(*reversed(axes.get_legend_handles_labels())))
        axes.legend([handles[name] for name in names], names, loc="upper left", bbox_to_anchor=(1.01, 1), fontsize=9,
                    frameon=False)
    return figure


def svg(figure) -> str:
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "tiffin"}):
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
    text = buffer.getvalue()
    return text[text.index("<svg"):]


def rows_of(results: Results, suite: str) -> dict[str, dict[str, Summary]]:
    return {row: by_name for (of, row), by_name in results.summaries().items() if of == suite}


def reference_for(suite: str, rows: dict[str, dict[str, Summary]], name: str) -> str:
    if suite == "remote" or not any(REFERENCE in by_name for by_name in rows.values()):
        return OURS
    return reference_of(name)


def reach_of(summary: Summary, reference: Summary) -> tuple[float, float]:
    """The least and the most speed of the rounds in relation to the reference's median."""
    each = [value / reference.median for value in summary.values if value > 0]
    each = [1 / value for value in each] if summary.less_is_better else each
    return min(each), max(each)


def ratios(results: Results, suite: str):
    """Speed in relation to the reference, with the spread of the rounds."""
    rows = rows_of(results, suite)
    drawn: dict[str, list[Mark]] = {}
    for row, by_name in rows.items():
        drawn[row] = []
        for name in results.file_systems(suite):
            reference = by_name.get(reference_for(suite, rows, name))
            if (name == reference_for(suite, rows, name) or name not in by_name or reference is None
                    or not (middle := speed_ratio(by_name[name], reference))):
                continue
            drawn[row].append(Mark(name, middle, reach_of(by_name[name], reference), is_hollow=by_name[name].only_disturbed))
    return rows_figure(drawn, f"speed in relation to {reference_for(suite, rows, OURS)}: right of 1 is faster", True)


def heat_map(results: Results):
    """Wins and losses against ext4 data=journal on the same device."""
    table = {}
    for (_, row), by_name in results.summaries().items():
        cells = {name: ratio for name in by_name
                 if name != reference_of(name) and (ratio := ratio_to_reference(by_name, name))}
        if cells:
            table[row] = cells
    names = [name for name in results.file_systems() if any(name in cells for cells in table.values())]
    if not table or not names:
        return None
    values = [[math.log2(cells[name]) if name in cells else math.nan for name in names] for cells in table.values()]
    figure, axes = pyplot.subplots(figsize=(2.6 + 0.95 * len(names), 1 + 0.25 * len(table)))
    limit = math.log2(MOST_RATIO)
    image = axes.imshow(values, aspect="auto", cmap="RdBu", norm=TwoSlopeNorm(0, -limit, limit))
    for height, cells in enumerate(table.values()):
        for place, name in enumerate(names):
            if name in cells:
                is_dark = abs(math.log2(cells[name])) > 0.6 * limit
                axes.text(place, height, ratio_text(cells[name]), ha="center", va="center", fontsize=7.5,
                          color="white" if is_dark else "black")
    axes.set_xticks(range(len(names)), names, rotation=40, ha="left", fontsize=8.5)
    axes.set_yticks(range(len(table)), list(table), fontsize=8)
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    ticks = [1 / 16, 1 / 4, 1, 4, 16]
    bar = figure.colorbar(image, ax=axes, ticks=[math.log2(tick) for tick in ticks], fraction=0.05, pad=0.02)
    bar.ax.set_yticklabels([f"{tick:g}" for tick in ticks], fontsize=8)
    return figure


def beside_published(results: Results):
    """Our ratios to ext4 data=journal and the published ones of Bento."""
    rows = {}
    for (_, row), by_name in results.summaries().items():
        theirs = published.ratios(row)
        ours = {name: ratio for name in by_name if name in ("tiffin", "tiffin-loop", "tiffin-asleep")
                and (ratio := ratio_to_reference(by_name, name))}
        if theirs is not None and ours:
            rows[row] = (ours, theirs)
    if not rows:
        return None
    drawn = {}
    for row, (ours, (kernel, user)) in rows.items():
        drawn[row] = [Mark(name, ratio) for name, ratio in ours.items()]
        drawn[row] += [Mark(name, ratio, style=(PUBLISHED_COLOUR, mark))
                       for name, ratio, mark in (("Bento-fs, published", kernel, "|"), ("Bento-user, published", user, "x"))
                       if ratio is not None]
    return rows_figure(drawn, "speed in relation to ext4 data=journal of the same run: right of 1 is faster", False,
                       row_inches=0.3, width_inches=10)


def time_within(bins: dict[int, int], share: float) -> int:
    """In which time so large a share was answered."""
    left = share * sum(bins.values())
    for ns in sorted(bins):
        left -= bins[ns]
        if left <= 0:
            return ns
    return max(bins)


def latencies(found: dict[str, dict[str, dict[int, int]]]):
    """Cumulative distributions: a panel for each pattern, in it for each file system times in ns and how often they were
    seen."""
    if not found:
        return None
    of_all = [bins for by_name in found.values() for bins in by_name.values()]
    limits_us = (min(time_within(bins, 0.001) for bins in of_all) / 1500,
                 max(time_within(bins, 0.995) for bins in of_all) / 700)
    figure, panels = pyplot.subplots(2, 2, figsize=(12, 8), sharey=True)
    for axes, (pattern, by_name) in zip(panels.flat, found.items()):
        for name, bins in by_name.items():
            total, seen, times, shares = sum(bins.values()), 0, [], []
            for ns in sorted(bins):
                seen += bins[ns]
                times.append(ns / 1000)
                shares.append(100 * seen / total)
            axes.step(times, shares, where="post", label=name, color=style(name)[0],
                      linestyle="--" if name.startswith(("ext4", "xfs", "btrfs", "tmpfs")) else "-")
        axes.set(xscale="log", xlabel="microseconds", title=pattern.replace("_", " "), xlim=limits_us)
        plain_ticks(axes)
        axes.grid(True, alpha=0.3)
    figure.subplots_adjust(hspace=0.35)
    for axes in panels.flat[len(found):]:
        axes.set_visible(False)
    for axes in panels[:, 0]:
        axes.set_ylabel("percent of requests")
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="center left", bbox_to_anchor=(0.92, 0.5), fontsize=9, frameon=False)
    return figure


def over_time(results: Results):
    rows = [row for row in ("varmail", "fileserver", "webserver") if results.timelines(row)]
    if not rows:
        return None
    figure, panels = pyplot.subplots(1, len(rows), figsize=(4.4 * len(rows), 3.8), squeeze=False)
    for axes, row in zip(panels.flat, rows):
        for name, runs in results.timelines(row).items():
            for number, counts in enumerate(runs):
                rates = [10 * (after - before) for before, after in zip([0, *counts], counts)]
                axes.plot([0.1 * (i + 1) for i in range(len(rates))], rates, color=style(name)[0], linewidth=1, alpha=0.8,
                          marker="." if len(rates) < 10 else "", label=name if number == 0 else None)
        axes.set(yscale="log", xlabel="seconds", title=row)
        axes.grid(True, alpha=0.3)
    panels.flat[0].set_ylabel("operations per second")
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="center left", bbox_to_anchor=(0.91, 0.5), fontsize=9, frameon=False)
    return figure


def draw(results: Results) -> list[tuple[str, str]]:
    """Caption and SVG of each."""
    made = []
    for caption, figure in (
            ("Tiffin's speed and Bento's published one, in relation to ext4 data=journal.", beside_published(results)),
            ("Wins (blue) and losses (red): speed in relation to ext4 data=journal on the same device.", heat_map(results))):
        if figure is not None:
            made.append((caption, svg(figure)))
    for suite in results.suites():
        if len(results.file_systems(suite)) > 1:
            made.append((f"{TITLES.get(suite, suite)}: medians of speed, with the least and the most of the rounds. "
                         "Hollow: other work disturbed all rounds.", svg(ratios(results, suite))))
    bins = {pattern: by_name for pattern in LATENCY if (by_name := results.bins(f"latency {pattern} p50"))}
    for caption, figure in (("Latency: share of requests that were answered within a time.", latencies(bins)),
                            ("Throughput over time, a line for each round.", over_time(results))):
        if figure is not None:
            made.append((caption, svg(figure)))
    return made
