# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""What was measured: samples in a file of JSON, and what follows from them."""

import json
import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from . import machine

T = TypeVar("T")
StepKey = tuple[str, str, str, int]  # suite, workload, file system, round
FORMAT = 1
# Parameters that have to be the same where results are compared.
COMPARED_PARAMETERS = ("scale", "seconds", "volume_mib", "awake", "tree")
# What has to be the same each time that a result is continued.
KEPT_ENVIRONMENT = ("revision", "programs", "kernel", "processors", "cpu")
# What may differ between results that are compared, and is said then.
TOLD_ENVIRONMENT = ("kernel", "processors")
TOLD_PARAMETERS = ("options", "remote")
# Of two results a row changed if medians differ by more than this, and no sample of one lies among those of the other.
LEAST_CHANGE = 0.05
LEAST_ROUNDS = 3


@dataclass(frozen=True)
class Summary:
    """One row on one file system."""
    values: tuple[float, ...]  # in rounds that nothing disturbed; where there are none, of all rounds
    unit: str
    less_is_better: bool
    only_disturbed: bool

    @property
    def median(self) -> float:
        return statistics.median(self.values)


class Results:
    """Kept in FOLDER/results.json, which is replaced as a whole each time."""

    def __init__(self, folder: Path, content: dict) -> None:
        self.folder = folder
        self.content = content

    @classmethod
    def load(cls, folder: Path) -> "Results":
        content = json.loads((folder / "results.json").read_text())
        if content.get("format") != FORMAT:
            raise ValueError(f"{folder}/results.json has format {content.get('format')}, expected {FORMAT}")
        return cls(folder, content)

    @classmethod
    def start(cls, folder: Path, environment: dict, parameters: dict) -> "Results":
        """New ones, or the interrupted ones in `folder`. Raises ValueError where those are of something else."""
        if (folder / "results.json").exists():
            old = cls.load(folder)
            if old.content["parameters"] != parameters:
                raise ValueError(f"{folder} has results with other parameters; choose another --out")
            before = old.content["sittings"][-1]
            if others := [key for key in KEPT_ENVIRONMENT if before.get(key) != environment[key]]:
                raise ValueError(f"{folder} has results of another "
                                 + ", another ".join(f"{key} ({before.get(key)}, here {environment[key]})" for key in others)
                                 + "; choose another --out")
            old.content["sittings"].append(environment)
            old.content["left_out"] = []  # this time it may be there
            return old
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, {"format": FORMAT, "parameters": parameters, "sittings": [environment], "left_out": [],
                            "samples": [], "programs": [], "noise": {}})

    def save(self) -> None:
        partial = self.folder / "results.json.partial"
        partial.write_text(json.dumps(self.content, separators=(",", ":")))
        os.replace(partial, self.folder / "results.json")

    def leave_out(self, what: str, why: str) -> None:
        entry = {"what": what, "why": why}
        if entry not in self.content["left_out"]:
            self.content["left_out"].append(entry)

    def done(self) -> set[StepKey]:
        """Without what failed."""
        return {step_of(one) for one in self.content["samples"] if one["is_last_attempt"] and not one["error"]}

    def drop_failures(self, step: StepKey) -> None:
        self.content["samples"] = [one for one in self.content["samples"] if not (one["error"] and step_of(one) == step)]

    def measured(self) -> set[tuple[str, str, str]]:
        """Suite, workload and file system of all samples, in whatever round, failures included."""
        return {step_of(one)[:3] for one in self.content["samples"]}

    def add_program(self, ran: dict) -> None:
        """In place of what the same command did before."""
        self.content["programs"] = [one for one in self.content["programs"] if one["command"] != ran["command"]] + [ran]

    def probes(self) -> list[machine.Probe]:
        return [probe for sample in self.content["samples"] for probe in probes_of(sample)]

    def judged(self) -> list[tuple[bool, dict]]:
        """Whether each sample was disturbed, beside the median of all probes: when it was measured, few were there."""
        usual = machine.usual(self.probes())
        return [(any(machine.disturbance(probe, usual) for probe in probes_of(sample)) if sample.get("noise")
                 else bool(sample["disturbed"]), sample) for sample in self.content["samples"]]

    def file_systems(self, suite: str | None = None) -> list[str]:
        found = dict.fromkeys(one["file_system"] for one in self.content["samples"] if suite in (None, one["suite"]))
        order = self.content["parameters"].get("file_systems", {})
        wanted = [name for names in order.values() for name in names]
        return sorted(found, key=lambda name: wanted.index(name) if name in wanted else len(wanted))

    def suites(self) -> list[str]:
        """That have samples."""
        order = self.content["parameters"].get("suites", [])
        found = dict.fromkeys(one["suite"] for one in self.content["samples"])
        return sorted(found, key=lambda name: order.index(name) if name in order else len(order))

    def check_comparable(self, old: "Results") -> None:
        """Raises ValueError where the other ones were measured with parameters that make figures others."""
        ours, theirs = self.content["parameters"], old.content["parameters"]
        if others := [key for key in COMPARED_PARAMETERS if ours.get(key) != theirs.get(key)]:
            raise ValueError(f"nothing can be compared with {old.folder}, which was measured with another "
                             + ", another ".join(f"{key} ({theirs.get(key)}, here {ours.get(key)})" for key in others))
        here, there = (one.content["sittings"][-1].get("cpu") for one in (self, old))
        if here != there:
            raise ValueError(f"nothing can be compared with {old.folder}, which was measured on another cpu ({there}, here {here})")

    def failures(self) -> list[dict]:
        return [one for one in self.content["samples"] if one["error"]]

    def summaries(self) -> dict[tuple[str, str], dict[str, Summary]]:
        """By suite and row, in the order of suites and in which rows came, then by file system."""
        gathered: dict[tuple, list[tuple[bool, dict]]] = {}
        for disturbed, sample in self.judged():
            for figure in sample["figures"]:
                key = (sample["suite"], figure["row"], sample["file_system"])
                gathered.setdefault(key, []).append((disturbed, figure))
        found: dict[tuple[str, str], dict[str, Summary]] = {}
        for (suite, row, name), figures in gathered.items():
            used = undisturbed(figures)
            found.setdefault((suite, row), {})[name] = Summary(
                tuple(figure["value"] for figure in used), used[0]["unit"], used[0]["less_is_better"],
                all(disturbed for disturbed, _ in figures))
        suites = self.suites()
        return dict(sorted(found.items(), key=lambda item: suites.index(item[0][0])))

    def bins(self, row: str) -> dict[str, dict[int, int]]:
        """Latencies in ns and how often they were seen, by file system, of the samples that summaries() takes."""
        return self._details(row, "bins")

    def timelines(self, row: str) -> dict[str, list[list[int]]]:
        found: dict[str, list[list[int]]] = {}
        for sample in self.content["samples"]:
            for figure in sample["figures"]:
                if figure["row"] == row and figure["detail"].get("timeline"):
                    found.setdefault(sample["file_system"], []).append(figure["detail"]["timeline"])
        return found

    def _details(self, row: str, key: str) -> dict[str, dict[int, int]]:
        gathered: dict[str, list[tuple[bool, dict]]] = {}
        for disturbed, sample in self.judged():
            for figure in sample["figures"]:
                if figure["row"] == row and figure["detail"].get(key):
                    gathered.setdefault(sample["file_system"], []).append((disturbed, figure["detail"][key]))
        found: dict[str, dict[int, int]] = {}
        for name, details in gathered.items():
            counts = found.setdefault(name, {})
            for detail in undisturbed(details):
                for ns, count in detail.items():
                    counts[int(ns)] = counts.get(int(ns), 0) + count
        return found


def step_of(sample: dict) -> StepKey:
    return sample["suite"], sample["workload"], sample["file_system"], sample["round"]


def probes_of(sample: dict) -> list[machine.Probe]:
    return [machine.Probe(**one) for one in sample.get("noise", [])]


def speed_ratio(ours: Summary, other: Summary) -> float | None:
    """Above 1 ours is better. None where it means nothing."""
    if ours.median <= 0 or other.median <= 0:
        return None
    return other.median / ours.median if ours.less_is_better else ours.median / other.median


def undisturbed(samples: list[tuple[bool, T]]) -> list[T]:
    """Of samples and whether each was disturbed: those that were not, or all where there are none."""
    return [one for disturbed, one in samples if not disturbed] or [one for _, one in samples]


@dataclass(frozen=True)
class Change:
    suite: str
    row: str
    file_system: str
    ratio: float  # of speed, the new one to the old one
    verdict: str  # "faster", "slower", "same", or why there is none


@dataclass(frozen=True)
class Comparison:
    rows: list[Change]
    differences: list[str]  # of what was measured, beside the program


def differences(new: Results, old: Results) -> list[str]:
    found = []
    for keys, ours, theirs in ((TOLD_ENVIRONMENT, new.content["sittings"][-1], old.content["sittings"][-1]),
                               (TOLD_PARAMETERS, new.content["parameters"], old.content["parameters"])):
        found += [f"{key}: {theirs.get(key) or 'none'} before, {ours.get(key) or 'none'} now" for key in keys
                  if (ours.get(key) or None) != (theirs.get(key) or None)]
    return found


def compare(new: Results, old: Results) -> Comparison:
    """For what both have. Two ranges of n samples lie apart by chance once in C(2n, n)/2 times: 10 with 3, 126 with 5."""
    new.check_comparable(old)
    before, found = old.summaries(), []
    for (suite, row), by_name in new.summaries().items():
        for name, summary in by_name.items():
            earlier = before.get((suite, row), {}).get(name)
            if earlier is None:
                continue
            ratio = speed_ratio(summary, earlier)
            if ratio is None:
                continue
            if min(len(summary.values), len(earlier.values)) < LEAST_ROUNDS:
                verdict = "too few rounds"
            elif summary.only_disturbed or earlier.only_disturbed:
                verdict = "disturbed"
            else:
                are_apart = max(summary.values) < min(earlier.values) or min(summary.values) > max(earlier.values)
                is_large = abs(ratio - 1) > LEAST_CHANGE
                verdict = "same" if not (are_apart and is_large) else "faster" if ratio > 1 else "slower"
            found.append(Change(suite, row, name, ratio, verdict))
    return Comparison(found, differences(new, old))
