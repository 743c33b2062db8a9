# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""What the evaluation measures: points, as sdr_evaluation_load reads them."""

from dataclasses import asdict, dataclass
from zlib import crc32

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# With fewer it is among the greatest ones that there were: chance.
LEAST_SAMPLES_FOR_P999 = 20000
LEAST_SAMPLES = 1000
# Groups that are about the 99.9th percentile, whatever else is measured less often.
TAILS = {"tails", "tails-coarse", "ring", "ring-size", "ring-nodes", "ring-bytes"}
# Of these the model alone: messages that take too long to simulate.
MODEL_ONLY = {"model-size", "model-distance"}
SCHEMES = ["sr_rto", "sr_nack", "ec_xor", "ec_mds"]
# The coarse grid is the paper's whole range; a packet, and so a chunk, has 64 KiB.
COARSE = 64 * KIB
SIZES = [128 * KIB, 512 * KIB, 2 * MIB, 8 * MIB, 32 * MIB, 128 * MIB, GIB, 2 * GIB, 8 * GIB]
DROPS = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1]
# The fine one has chunks of 4 KiB, which is what the paper's packets are: a submessage of 32 has 128 KiB. Where a chunk has
# 16 packets, a message has a 16th of the losses at the same rate.
FINE = 4 * KIB
FINE_SIZES = [128 * KIB, 512 * KIB, 2 * MIB, 8 * MIB, 32 * MIB, 128 * MIB, GIB, 2 * GIB]
FINE_SPOTS = [1e-7, 1e-6, 1e-5, 1e-4]  # at 8 GiB
TAIL_SIZES = [2 * MIB, 8 * MIB, 32 * MIB, 128 * MIB]
TAIL_DROPS = [1e-4, 1e-3, 1e-2, 3e-2]
ROW_BYTES = 128 * MIB
ROW_SIZES = [8 * MIB, 32 * MIB, ROW_BYTES]
RING_DROPS = [1e-5, 1e-4, 1e-3, 1e-2]
SPLITS = [(32, 2), (32, 4), (32, 8), (32, 16), (16, 16), (8, 8)]
ROW_DROPS = [1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 3e-2, 5e-2, 1e-1]


@dataclass(frozen=True)
class Point:
    group: str  # the table it belongs to
    scheme: str
    bytes: int = 128 * MIB
    drop: float = 0.0
    packet: int = COARSE
    gbit: float = 400
    rtt_ms: float = 25
    burst: float = 1
    control_lost: int = 0
    nodes: int = 0
    chance: int = 0  # other chance at the same place
    samples: int = 1000
    warm_up: int = 1
    k: int = 32  # data chunks of a submessage, and parity chunks
    m: int = 8

    def line(self) -> str:
        values = asdict(self)
        del values["group"], values["chance"]
        # The same chance for every scheme at a point, and other chance at another.
        place = f"{self.bytes} {self.drop} {self.packet} {self.gbit} {self.rtt_ms} {self.burst} {self.nodes}"
        place += f" {self.chance}" if self.chance else ""
        values["seed"] = crc32(place.encode()) % 1_000_000 + 1
        return " ".join(f"{key}={value:.10g}" if isinstance(value, float) else f"{key}={value}"
                        for key, value in values.items())

    def chunks(self) -> int:
        return -(-self.bytes // self.packet)


def cost_us(point: Point) -> float:
    """About how long one message takes to simulate."""
    packets_of_run = max(point.rtt_ms / 1000 / 200 * point.gbit * 1e9 / 8 / point.packet, 1)
    messages = point.nodes * (2 * point.nodes - 2) if point.nodes else 1
    chunks = point.chunks() / max(point.nodes, 1)
    return messages * (20 + 2 * chunks / packets_of_run + 3 * chunks * point.drop)


def samples_for(point: Point, budget_s: float, least: int, most: int) -> int:
    if point.group in MODEL_ONLY:
        return 0
    if point.group in TAILS and most >= LEAST_SAMPLES_FOR_P999:
        least = LEAST_SAMPLES_FOR_P999
    return int(min(max(budget_s * 1e6 / cost_us(point), least), most))


def warm_up_for(point: Point) -> int:
    """`auto` needs to have seen some losses, where there are any to see, before it is judged."""
    if point.scheme != "auto":
        return 1
    expected_bursts = max(point.chunks() * point.drop / point.burst, 1e-9)
    return int(min(max(20 / expected_bursts, 3), 2000))


def with_samples(points: list[Point], budget_s: float, least: int, most: int) -> list[Point]:
    return [Point(**{**asdict(point), "samples": samples_for(point, budget_s, least, most),
                     "warm_up": warm_up_for(point)}) for point in points]


def grid(group: str, sizes: list[int], drops: list[float], packet: int,
         schemes: list[str]) -> list[Point]:
    return [Point(group, scheme, size, drop, packet)
            for size in sizes for drop in drops for scheme in schemes]


def full() -> list[Point]:
    everyone = SCHEMES + ["auto"]
    points = grid("coarse", SIZES, DROPS, COARSE, everyone)
    points += [point for point in grid("fine", FINE_SIZES, DROPS, FINE, everyone)
               if point.bytes < GIB or point.drop < 1e-1]  # a hundred thousand losses a message
    points += grid("fine", [8 * GIB], FINE_SPOTS, FINE, everyone)
    points += grid("row", ROW_SIZES, ROW_DROPS, COARSE, everyone)
    points += grid("row-fine", ROW_SIZES, ROW_DROPS, FINE, everyone)
    points += grid("tails", TAIL_SIZES, TAIL_DROPS, FINE, everyone)
    points += grid("tails-coarse", TAIL_SIZES, TAIL_DROPS, COARSE, everyone)
    # One way 3750 km take 12.5 ms here, as in the paper.
    for kilometres in (75, 750, 3750, 7500, 15000):
        points += [Point("distance", scheme, size, 1e-5, COARSE, rtt_ms=kilometres / 150)
                   for size in (128 * MIB, 8 * GIB) for scheme in everyone
                   if kilometres >= 750 or size < GIB]  # short paths have short runs
    for gbit in (100, 400, 800, 1600, 3200):
        points += [Point("bandwidth", scheme, size, 1e-5, COARSE, gbit=gbit)
                   for size in (128 * MIB, 8 * GIB) for scheme in everyone]
    points += [Point("lost-control", scheme, 128 * MIB, drop, COARSE, control_lost=1)
               for drop in DROPS for scheme in everyone]
    points += [Point("bursts", scheme, 128 * MIB, drop, COARSE, burst=burst)
               for burst in (2, 4, 8, 16, 32) for drop in (1e-5, 1e-4, 1e-3, 1e-2) for scheme in everyone
               # Single repetitions meet the same long burst again and again, until the connection gives up.
               if scheme != "sr_rto" or burst <= 8 and burst * drop <= 0.04]
    points += [Point("ring", scheme, 128 * MIB, drop, COARSE, nodes=4)
               for drop in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2) for scheme in everyone]
    points += [Point("ring-size", scheme, 128 * MIB, 1e-4, COARSE, nodes=nodes)
               for nodes in (2, 4, 8) for scheme in everyone]
    # The axes of figure 13: data centres, and bytes of the buffer, each with drop rates.
    points += [Point("ring-nodes", scheme, 128 * MIB, drop, COARSE, nodes=nodes)
               for nodes in (2, 4, 8) for drop in RING_DROPS for scheme in ("sr_rto", "ec_mds")]
    points += [Point("ring-bytes", scheme, size, drop, COARSE, nodes=4)
               for size in (8 * MIB, 32 * MIB, 512 * MIB) for drop in RING_DROPS
               for scheme in ("sr_rto", "ec_mds")]
    # Figure 10d: splits of data and parity.
    points += [Point("splits", "ec_mds", ROW_BYTES, drop, FINE, k=k, m=m) for k, m in SPLITS for drop in ROW_DROPS]
    # Figure 3a and 3b, which reach beyond what can be simulated.
    points += [Point("model-size", scheme, 128 * KIB << shift, 1e-5, FINE)
               for shift in range(0, 25, 2) for scheme in ("sr_rto", "ec_mds")]
    points += [Point("model-distance", scheme, 8 * GIB, 1e-5, FINE, rtt_ms=kilometres / 150)
               for kilometres in (75, 750, 1500, 3000, 4500, 6000) for scheme in ("sr_rto", "ec_mds")]
    return points


def small() -> list[Point]:
    """What a test can run: few points, in which the findings of means still show."""
    everyone = SCHEMES + ["auto"]
    points = grid("coarse", [2 * MIB, 128 * MIB], [1e-7, 1e-5, 1e-3, 1e-2], COARSE, everyone)
    points += grid("coarse", [8 * GIB], [1e-7], COARSE, everyone)
    points += grid("row", [ROW_BYTES], [1e-3, 1e-2, 3e-2, 1e-1], COARSE, everyone)
    points += grid("row-fine", [32 * MIB], [1e-2], FINE, everyone)
    points += [Point("bursts", scheme, 128 * MIB, drop, COARSE, burst=burst, chance=chance)
               for burst in (2, 8, 32) for drop in (1e-3, 1e-2) for chance in (1, 2, 3)
               for scheme in ("sr_nack", "ec_xor", "ec_mds", "auto")]
    return points
