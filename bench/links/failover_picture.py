#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Draws what bench/failover has printed: the cost of a second link, what is sent again, and transactions through a failure.

usage: failover_picture.py OUTPUT PICTURE.svg     (needs python3-matplotlib: scripts/deps bench)

A part that the output lacks is left out.
"""

import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

WAYS = {
    "as it is": "#d62728", "all": "#9aa0a6", "all sent again": "#9aa0a6", "connected anew": "#1f77b4", "reconnected": "#1f77b4",
    "all submitted again": "#000000",
}
SILENT_MS = 1000  # a link, in the transactions


def tables(text: str) -> list[list[list[str]]]:
    """Those in Markdown, as cells; the line below the head is left out."""
    found: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        elif found[-1]:
            found.append([])
    return [[rows[0], *rows[2:]] for rows in found if len(rows) > 2]


def table_with(all_tables: list[list[list[str]]], head: str, second: str) -> list[list[str]]:
    return next((rows for rows in all_tables if rows[0][0] == head and rows[0][1] == second), [])


def draw_cost(axes, rows: list[list[str]]) -> None:
    names = [row[0] for row in rows[1:]]
    ratios = [float(row[3]) for row in rows[1:]]
    axes.axvline(1, color="#9aa0a6", linewidth=1)
    axes.plot(ratios, range(len(names)), "o", color=WAYS["as it is"])
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0.5, 1.5)
    axes.set_xlabel("median latency with two links, divided by that with one")


def draw_again(axes, rows: list[list[str]]) -> None:
    """Where the server had got the writes: bytes that are sent again, as a share of all."""
    lost = [row for row in rows[1:] if row[2] == "to the client"]
    ways = rows[0][3].split(": ")[1], rows[0][5]
    for offset, (way, column) in zip((-0.2, 0.2), zip(ways, (3, 5), strict=True), strict=True):
        shares = [float(row[column]) / float(row[4]) for row in lost]
        axes.barh([index + offset for index in range(len(lost))], shares, 0.38, label=way, color=WAYS[way])
    axes.set_yticks(range(len(lost)), [f"{row[0]}, {row[1]} at a time" for row in lost])
    axes.invert_yaxis()
    axes.set_xlabel("bytes sent again of those pending, when only answers are cut off")
    axes.legend(loc="upper right")


def draw_transactions(axes, rows: list[list[str]]) -> None:
    times = [int(cell) for cell in rows[0][1:]]
    axes.axvspan(0, SILENT_MS, color="#f3e9d2", label="the link is silent")
    for row in rows[1:]:
        axes.plot(times, [int(cell) for cell in row[1:]], label=row[0], color=WAYS[row[0]])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("ms from the cut")
    axes.set_ylabel("transactions/s")
    axes.legend(loc="lower right", fontsize="small")


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        found = tables(file.read())
    parts = [
        (draw_cost, table_with(found, "Operation", "one link, median us")),
        (draw_again, table_with(found, "Write", "depth")),
        (draw_transactions, next((rows for rows in found if rows[0][0].startswith("Transactions/s")), [])),
    ]
    parts = [(draw, rows) for draw, rows in parts if rows]
    if not parts:
        sys.exit(f"{sys.argv[1]} has no table of bench/failover")
    figure, all_axes = pyplot.subplots(1, len(parts), figsize=(6 * len(parts), 4.6), squeeze=False)
    for (draw, rows), axes in zip(parts, all_axes[0], strict=True):
        draw(axes, rows)
    figure.tight_layout()
    figure.savefig(sys.argv[2], metadata={"Date": None})


main()
