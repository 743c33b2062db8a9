# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Ring Allreduce with selective repeat, drawn by chance without the protocol: what measure_ring.cc is held against.

A chunk that is lost n times arrives n timeouts late. Parts of one link follow each other without a gap where they can,
and a node goes on when it has the parts up to the one of the stage before.
"""

import math
import random


def last_arrival_s(chance: random.Random, chunks: int, chunk_s: float, timeout_s: float, drop: float) -> float:
    """When the last of so many chunks has left in a transmission that arrives, the first beginning to leave at 0."""
    last = chunks * chunk_s
    position = 0
    while True:
        # From one lost chunk to the next.
        position += 1 + int(math.log(1 - chance.random()) / math.log(1 - drop))
        if position > chunks:
            return last
        losses = 1
        while chance.random() < drop:
            losses += 1
        last = max(last, position * chunk_s + losses * timeout_s)


def allreduce_s(chance: random.Random, nodes: int, part_chunks: int, chunk_s: float, round_trip_s: float,
                timeout_s: float, drop: float) -> float:
    """Until every sender knows that all of its parts have arrived."""
    ready = [0.0] * nodes       # when each has what it sends in this stage
    link_free = [0.0] * nodes   # of the link to the next one
    in_order = [0.0] * nodes    # when the parts so far had all arrived over it
    end = 0.0
    for _ in range(2 * nodes - 2):
        for node in range(nodes):
            start = max(ready[node], link_free[node])
            link_free[node] = start + part_chunks * chunk_s
            arrived = (start + last_arrival_s(chance, part_chunks, chunk_s, timeout_s, drop) + round_trip_s / 2)
            in_order[node] = max(in_order[node], arrived)
            end = max(end, arrived + round_trip_s / 2)
        ready = [in_order[node - 1] for node in range(nodes)]
    return end
