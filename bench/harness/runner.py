# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Runs the steps of a plan: each workload on each file system in turn, round after round, with an eye on the machine."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from . import file_systems, machine
from .results import Results, StepKey
from .workloads import SYNCED, Settings, Workload

# A disturbed step is run again so often, and all together may take so large a part of the steps. Where most are disturbed,
# other work does not pass, and repeating is in vain.
REPEATS = 2
MOST_REPEATED = 0.25
MOST_DISTURBED = 0.5
LEAST_SEEN = 4
GUESSED_STEP_S = 3.0


@dataclass(frozen=True)
class Step:
    workload: Workload
    file_system: str
    round: int

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.workload.suite, self.workload.name, self.file_system)

    @property
    def key_in_round(self) -> StepKey:
        return (*self.key, self.round)


def plan(workloads: list[Workload], names_of: dict[str, list[str]], rounds: int) -> list[Step]:
    """In each round each workload on all file systems; another one begins each time, so that none always follows the same.
    Suites are spread over the round, so that there is something of each where time is up."""
    ordered = []
    for suite in names_of:
        of_suite = [one for one in workloads if one.suite == suite]
        ordered += [((place + 0.5) / len(of_suite), one) for place, one in enumerate(of_suite)]
    ordered.sort(key=lambda item: item[0])
    steps = []
    for number in range(rounds):
        for _, workload in ordered:
            names = names_of[workload.suite]
            first = number % len(names) if names else 0
            steps += [Step(workload, name, number) for name in names[first:] + names[:first]]
    return steps


def error_text(error: Exception) -> str:
    text = getattr(error, "stderr", None) or str(error)
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    return f"{type(error).__name__}: {' '.join(text.split())[-300:]}"


class Progress:
    """One line, rewritten on a terminal; else a line now and then."""

    EVERY_S = 15.0

    def __init__(self, steps: list[Step], deadline: float | None) -> None:
        self._left = list(steps)
        self._count = len(steps)
        self._deadline = deadline
        self._took: dict[tuple, float] = {}
        self._said = 0.0

    def expected_s(self, step: Step) -> float:
        known = [seconds for key, seconds in self._took.items() if key[:2] == step.key[:2]] or list(self._took.values())
        return self._took.get(step.key) or (sum(known) / len(known) if known else GUESSED_STEP_S)

    def left_s(self) -> float:
        left = sum(self.expected_s(step) for step in self._left)
        return left if self._deadline is None else min(left, max(0.0, self._deadline - time.monotonic()))

    def begin(self, step: Step) -> None:
        done = self._count - len(self._left)
        left = int(self.left_s())
        # With a deadline time ends it, not their number.
        share = f"{done:>5}/{self._count} {100 * done // self._count:>3} %  " if self._deadline is None else ""
        text = (f"{share}{left // 60}:{left % 60:02} left  round {step.round + 1}: {step.workload.name} on {step.file_system}")
        if sys.stderr.isatty():
            print(f"\r{text[:shutil.get_terminal_size().columns - 1]}\033[K", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self._said > self.EVERY_S:
            self._said = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    def end(self, step: Step, seconds: float | None) -> None:
        """`seconds` is None for a step that was not run."""
        self._left.remove(step)
        if seconds is not None:
            self._took[step.key] = seconds

    def close(self) -> None:
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)


class Runner:
    def __init__(self, results: Results, devices: file_systems.Devices, settings: Settings,
                 watch: machine.NoiseWatch) -> None:
        self.results = results
        self.devices = devices
        self.settings = settings
        self.watch = watch
        self._repeats_left = 0
        self._tried: set[StepKey] = set()

    def run(self, steps: list[Step], save: Callable[[], None], deadline: float | None = None) -> None:
        """Leaves out what would end after `deadline`, of time.monotonic(), and what it has tried before: that failed.
        Interrupted, it leaves the results as they are."""
        done = self._tried | self.results.done()
        steps = [step for step in steps if step.key_in_round not in done]
        self._repeats_left = int(MOST_REPEATED * len(steps))
        progress = Progress(steps, deadline)
        for step in steps:
            if deadline is not None and time.monotonic() + progress.expected_s(step) > deadline:
                progress.end(step, None)
                continue
            self._tried.add(step.key_in_round)
            progress.begin(step)
            start = time.monotonic()
            self._with_repeats(step)
            progress.end(step, time.monotonic() - start)
            save()
        progress.close()

    def _with_repeats(self, step: Step) -> None:
        for attempt in range(1 + REPEATS):
            sample = self._once(step)
            again = (bool(sample["disturbed"]) and not sample["error"] and attempt < REPEATS and self._repeats_left > 0
                     and not self._is_always_disturbed())
            sample["attempt"] = attempt
            sample["is_last_attempt"] = not again
            self.results.drop_failures(step.key_in_round)  # of a sitting before
            self.results.content["samples"].append(sample)
            if not again:
                return
            self._repeats_left -= 1

    def _is_always_disturbed(self) -> bool:
        samples = self.results.content["samples"]
        return len(samples) >= LEAST_SEEN and \
            sum(bool(one["disturbed"]) for one in samples) > MOST_DISTURBED * len(samples)

    def _once(self, step: Step) -> dict:
        start = time.monotonic()
        before = self.watch.look()
        figures, error = [], ""
        try:
            figures = self.measure(step)
        except Exception as caught:  # whatever a workload meets: the others go on
            error = error_text(caught)
        after = self.watch.look()
        reasons = [reason for seen in (before, after) if (reason := self.watch.reason(seen))]
        return {"suite": step.workload.suite, "workload": step.workload.name, "file_system": step.file_system,
                "round": step.round, "figures": [asdict(figure) for figure in figures], "error": error,
                "disturbed": reasons[0] if reasons else "", "noise": [asdict(before), asdict(after)],
                "seconds": round(time.monotonic() - start, 3)}

    def measure(self, step: Step) -> list:
        """On a file system that is made for it."""
        file_system = file_systems.ALL[step.file_system]
        folder: Path = self.devices.mount_point(step.file_system)
        folder.mkdir(exist_ok=True)
        machine.use_free_memory(min(step.workload.footprint_mib, self.devices.size_mib))
        with file_system.mount(self.devices, folder, step.workload.footprint_mib):
            inside = folder / "bench"
            inside.mkdir()
            figures = step.workload.run(inside, self.settings)
        return [one for one in figures if file_system.commits or not one.row.endswith(SYNCED)]
