# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""What was measured, as pictures. Needs python3-matplotlib (scripts/deps bench)."""

import math
from pathlib import Path

from findings import Measured, any_row, has_tail, size_text
from points import MIB, SCHEMES
from tables import NAMES


def draw(rows: list[dict], folder: Path) -> list[Path]:
    """Returns the pictures. Raises ImportError where matplotlib is missing."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    measured = Measured(rows)
    written = []

    def save(figure, name: str) -> None:
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=110, bbox_inches="tight")
        pyplot.close(figure)
        written.append(path)

    for group in ("coarse", "fine"):
        if measured.cells(group):
            save(speedups(pyplot, measured, group), f"speedup-{group}")
    sizes = [cell for cell in measured.cells("coarse") if any_row(cell)["drop"] == 1e-5]
    if sizes:
        save(times(pyplot, sizes, "bytes", "message size in bytes", "drop rate 1e-5"), "size")
    drops = [cell for cell in measured.cells("coarse", "row") if any_row(cell)["bytes"] == 128 * MIB
             and all(scheme in cell for scheme in SCHEMES)]
    if drops:
        save(times(pyplot, drops, "drop", "drop rate", "128 MiB"), "drop")
    for group, axis, label in (("distance", "rtt_ms", "round trip in ms"),
                               ("bandwidth", "gbit", "Gbit/s")):
        cells = [cell for cell in measured.cells(group) if any_row(cell)["bytes"] == 128 * MIB]
        if cells:
            save(times(pyplot, cells, axis, label, "128 MiB, drop rate 1e-5"), group)
    for group, axis, label, title in (
            ("ring", "drop", "drop rate", "ring Allreduce of 4, 128 MiB"),
            ("ring-size", "nodes", "nodes", "ring Allreduce, 128 MiB, drop rate 1e-4")):
        if cells := measured.cells(group):
            save(times(pyplot, cells, axis, label, title), group)
    if drops:
        save(sent_bytes(pyplot, drops), "overhead")
    return written


def speedups(pyplot, measured: Measured, group: str):
    """SR RTO's mean over EC MDS's, as the paper's figure 9."""
    cells = measured.cells(group)
    sizes = sorted({any_row(cell)["bytes"] for cell in cells})
    drops = sorted({any_row(cell)["drop"] for cell in cells})
    at = {(any_row(cell)["bytes"], any_row(cell)["drop"]): cell for cell in cells}
    # Not all sizes are measured at all drop rates.
    values = [[at[size, drop]["sr_rto"]["mean_s"] / at[size, drop]["ec_mds"]["mean_s"]
               if (size, drop) in at else math.nan for drop in drops] for size in sizes]
    figure, axes = pyplot.subplots(figsize=(8, 5))
    image = axes.imshow(values, origin="lower", aspect="auto", cmap="RdBu_r", vmin=0, vmax=2)
    axes.set_xticks(range(len(drops)), [f"{drop:g}" for drop in drops])
    axes.set_yticks(range(len(sizes)), [size_text(size) for size in sizes])
    for row, line in enumerate(values):
        for column, value in enumerate(line):
            if not math.isnan(value):
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8)
    axes.set(xlabel="drop rate", title=f"Mean of SR RTO over EC MDS(32,8), "
                                       f"chunks of {any_row(cells[0])['packet'] >> 10} KiB")
    figure.colorbar(image)
    return figure


def draw_schemes(axes, cells: list[dict], axis: str, height) -> list[tuple]:
    """A line for each scheme, of height(row) at row[axis]. Returns the rows and the line of each."""
    drawn = []
    for scheme in [*SCHEMES, "auto"]:
        rows = [cell[scheme] for cell in cells if scheme in cell]
        lines = axes.plot([row[axis] for row in rows], [height(row) for row in rows],
                          marker="." if scheme != "auto" else "", label=NAMES[scheme],
                          linestyle="-" if scheme != "auto" else ":")
        drawn.append((rows, lines[0]))
    return drawn


def sent_bytes(pyplot, cells: list[dict]):
    """What each scheme sends beyond the message: parity and repetitions."""
    cells = sorted(cells, key=lambda cell: any_row(cell)["drop"])
    figure, axes = pyplot.subplots(figsize=(8, 5))
    draw_schemes(axes, cells, "drop", lambda row: 100 * (row["sent_share"] - 1))
    axes.set(xscale="log", xlabel="drop rate", ylabel="bytes sent beyond the message, in percent of it",
             title="128 MiB")
    axes.grid(True, alpha=0.3)
    axes.legend()
    return figure


def times(pyplot, cells: list[dict], axis: str, label: str, title: str):
    """Mean and p99.9 of every scheme, with the model's mean as crosses."""
    cells = sorted(cells, key=lambda cell: any_row(cell)[axis])
    figure, both = pyplot.subplots(1, 2, figsize=(12, 4.5), sharey=True)
    for axes, key, name in zip(both, ("mean_s", "p999_s"), ("mean", "p99.9")):
        # A tail of too few samples is chance.
        for rows, line in draw_schemes(axes, cells, axis, lambda row: 1000 * row[key]
                                       if key == "mean_s" or has_tail(row) else math.nan):
            modelled = [row for row in rows if "model_" + key in row]
            axes.plot([row[axis] for row in modelled], [1000 * row["model_" + key] for row in modelled],
                      "x", color=line.get_color())
        axes.set(xscale="log", yscale="log", xlabel=label, title=f"{name}, {title} (x: model)")
        axes.grid(True, alpha=0.3)
    both[0].set_ylabel("completion time in ms")
    both[0].legend()
    return figure
