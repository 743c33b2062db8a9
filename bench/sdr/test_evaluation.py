#!/usr/bin/python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Tests of the evaluation itself: rings beside an independent model, and findings that must not be seen."""

import json
import os
import random
import subprocess
import unittest
from pathlib import Path

import findings
import fallback_model
import ring_model
from points import KIB, LEAST_SAMPLES_FOR_P999, MIB

LOAD = Path(os.environ["TIFFIN_BENCH"]) / "sdr_evaluation_load"
ROUND_TRIP_S = 0.025
CHUNK_S = 64 * KIB * 8 / 400e9


def measured_ring(**values: object) -> dict:
    words = [f"{key}={value}" for key, value in values.items()]
    return json.loads(subprocess.run([LOAD, *words], capture_output=True, text=True, check=True).stdout)


class Rings(unittest.TestCase):
    def test_agree_with_an_independent_model(self) -> None:
        chance = random.Random(1)
        for nodes, drop in ((2, 1e-3), (4, 1e-4), (4, 1e-3), (8, 1e-3)):
            with self.subTest(nodes=nodes, drop=drop):
                samples = 2000
                times = sorted(ring_model.allreduce_s(chance, nodes, 2048 // nodes, CHUNK_S, ROUND_TRIP_S,
                                                      3 * ROUND_TRIP_S, drop) for _ in range(samples))
                measured = measured_ring(scheme="sr_rto", bytes=128 * MIB, nodes=nodes, drop=drop, samples=samples)
                mean = sum(times) / samples
                error = (sum((time - mean) ** 2 for time in times) / samples ** 2) ** 0.5
                self.assertLess(abs(measured["mean_s"] / mean - 1), 0.01 + 4 * error / mean)

    def test_without_losses_take_what_the_links_take(self) -> None:
        measured = measured_ring(scheme="sr_rto", bytes=128 * MIB, nodes=4, drop=0, samples=2)
        stages = 6 * (512 * CHUNK_S + ROUND_TRIP_S / 2)
        self.assertAlmostEqual(measured["mean_s"], stages + ROUND_TRIP_S / 2, delta=0.01 * stages)


class Fallback(unittest.TestCase):
    """The paper's, drawn by chance, and the model of rdma_blk/sdr/model, which computes it."""

    def test_agrees_with_the_model(self) -> None:
        chance = random.Random(1)
        for scheme, drop in (("ec_mds", 0.05), ("ec_mds", 0.1), ("ec_xor", 1e-3), ("ec_xor", 1e-2)):
            with self.subTest(scheme=scheme, drop=drop):
                samples, chunk_s = 4000, 4 * KIB * 8 / 400e9
                failure = fallback_model.decoding_failure(scheme, 32, 8, drop)
                # The silence that the model's receiver waits for is an eighth of a round trip.
                times = [fallback_model.message_s(chance, scheme, 32768, chunk_s, ROUND_TRIP_S, drop, failure,
                                                  wait_round_trips=0.125) for _ in range(samples)]
                computed = measured_ring(scheme=scheme, bytes=128 * MIB, packet=4 * KIB, drop=drop, samples=0)
                mean = sum(times) / samples
                error = (sum((time - mean) ** 2 for time in times) / samples ** 2) ** 0.5
                self.assertLess(abs(computed["model_mean_s"] / mean - 1), 0.01 + 4 * error / mean)
                self.assertAlmostEqual(computed["model_fallback"], 1 - (1 - failure) ** 1024, delta=1e-3)

    def test_without_losses_there_is_none(self) -> None:
        seconds = fallback_model.message_s(random.Random(1), "ec_mds", 64, 1e-6, 1e-3, 0.0, 0.0)
        self.assertAlmostEqual(seconds, 80e-6 + 1e-3)


def row(scheme: str, **values: object) -> dict:
    """What one scheme took at one place, where nothing is remarkable."""
    return {"group": "coarse", "bytes": 128 * MIB, "drop": 1e-3, "packet": 64 * KIB, "gbit": 400, "rtt_ms": 25,
            "burst": 1, "nodes": 0, "control_lost": 0, "scheme": scheme, "samples": LEAST_SAMPLES_FOR_P999,
            "mean_s": 0.1, "p99_s": 0.1, "p999_s": 0.1, "standard_error_s": 0.0, "sent_share": 1.0, "fallbacks": 0,
            "model_mean_s": values.get("mean_s", 0.1), "model_is_lower_bound": False, "model_fallback": 0,
            "estimate_mean_s": values.get("mean_s", 0.1), **values}


class Findings(unittest.TestCase):
    """Each is seen where it is, and is not where it is not."""

    def seen(self, name: str, rows: list[dict]) -> bool:
        found = [finding for finding in findings.all_findings(rows) if finding.name == name]
        self.assertEqual(len(found), 1, name)
        return found[0].seen

    @staticmethod
    def cell(rto_s: float, nack_s: float, mds_s: float, **values: object) -> list[dict]:
        """What the schemes took at one place, in the mean and at p99.9."""
        times = {"sr_rto": rto_s, "sr_nack": nack_s, "ec_xor": mds_s, "ec_mds": mds_s, "auto": mds_s}
        return [row(scheme, mean_s=time_s, p999_s=time_s, **values) for scheme, time_s in times.items()]

    def test_ratios_count_inside_of_the_papers_range_only(self) -> None:
        inside = self.cell(0.5, 0.2, 0.1)
        self.assertTrue(self.seen("EC's mean", inside))
        self.assertFalse(self.seen("EC's tail", inside))
        outside = self.cell(0.4, 0.2, 0.1) + self.cell(2.0, 0.2, 0.1, drop=3e-2)
        self.assertFalse(self.seen("EC's mean", outside))
        self.assertFalse(self.seen("EC's tail", outside))

    def test_a_tail_of_few_samples_is_no_tail(self) -> None:
        few = self.cell(2.0, 0.2, 0.1, samples=LEAST_SAMPLES_FOR_P999 - 1)
        self.assertFalse(self.seen("EC's tail", self.cell(0.2, 0.2, 0.1, drop=1e-4) + few))

    def test_one_place_is_enough_against_a_region(self) -> None:
        good = self.cell(0.5, 0.2, 0.1)
        self.assertTrue(self.seen("EC's region (64 KiB)", good))
        self.assertFalse(self.seen("EC's region (64 KiB)", good + self.cell(0.1, 0.1, 0.11, drop=1e-5)))
        rare = self.cell(0.1, 0.1, 0.12, drop=1e-7)
        self.assertTrue(self.seen("SR's region (64 KiB)", rare))
        self.assertFalse(self.seen("SR's region (64 KiB)", rare + self.cell(0.2, 0.2, 0.12, drop=1e-8)))

    def test_rings_have_to_win_at_every_frequent_loss(self) -> None:
        def rings(*ratios: float) -> list[dict]:
            rows = self.cell(0.5, 0.2, 0.1)
            for drop, ratio in zip((1e-4, 1e-3, 1e-2), ratios):
                rows += self.cell(ratio * 0.1, 0.1, 0.1, group="ring", nodes=4, drop=drop)
            return rows

        self.assertTrue(self.seen("Allreduce", rings(1.5, 3.5, 7)))
        self.assertFalse(self.seen("Allreduce", rings(1.5, 2.5, 7)))
        self.assertFalse(self.seen("Allreduce", rings(1.5, 3.5, 5)))


if __name__ == "__main__":
    unittest.main()
