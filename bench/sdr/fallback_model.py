# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Erasure coding with the paper's fallback (section 4.2.3), drawn by chance without the protocol.

The receiver waits until everything should have arrived, and `wait_round_trips` longer; then it asks for every chunk of the
submessages that it cannot decode, at once. The protocol here asks for the missing chunks of a submessage as soon as the next
one shows that they are lost.
"""

import math
import random

from ring_model import last_arrival_s


def decoding_failure(scheme: str, k: int, m: int, drop: float) -> float:
    """That a submessage cannot be decoded: appendix B."""
    if scheme == "ec_mds":
        return 1 - sum(math.comb(k + m, lost) * drop ** lost * (1 - drop) ** (k + m - lost) for lost in range(m + 1))
    survives = 1.0
    for group in range(m):
        chunks = len(range(group, k, m)) + 1  # with the parity
        survives *= (1 - drop) ** chunks + chunks * drop * (1 - drop) ** (chunks - 1)
    return 1 - survives


def hits(chance: random.Random, trials: int, probability: float) -> int:
    """How many of so many trials succeed, from one success to the next."""
    if probability <= 0:
        return 0
    if probability >= 1:
        return trials
    count, position = 0, 0
    while True:
        position += 1 + int(math.log(1 - chance.random()) / math.log(1 - probability))
        if position > trials:
            return count
        count += 1


def message_s(chance: random.Random, scheme: str, chunks: int, chunk_s: float, round_trip_s: float, drop: float,
              failure: float, k: int = 32, m: int = 8, wait_round_trips: float = 1.0,
              timeout_round_trips: float = 1.0) -> float:
    """Until the sender knows that everything has arrived. `failure` is decoding_failure(); the timeout is that of the
    selective repeat which follows: 1 round trip with NACK, 3 without."""
    submessages = chunks // k
    sent_s = (chunks + submessages * m) * chunk_s
    failed = hits(chance, submessages, failure)
    if failed == 0:
        return sent_s + round_trip_s
    repeated_s = last_arrival_s(chance, failed * k, chunk_s, timeout_round_trips * round_trip_s, drop)
    return sent_s + (1 + wait_round_trips) * round_trip_s + repeated_s + round_trip_s
