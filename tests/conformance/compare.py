#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Compares what the same trials gave on a Tiffin mount and on file systems of the kernel.

usage: compare.py [--known FILE] TIFFIN OTHER...

Each file is the output of one run of `conformance`. A line of TIFFIN is right when one of OTHER has the
same line. Every other line has to be accounted for in FILE, where an entry is a line

    TRIAL => OUTCOME
or
    TRIAL => s/PATTERN/REPLACEMENT/

and below it, indented, the reason. TRIAL is a regular expression for the whole left side of lines. In the first form
OUTCOME is one for the whole of what Tiffin gives. In the second, what Tiffin gives is what the first of OTHER
gives with each match of PATTERN replaced; several such entries may apply to a line, in their order.

The list is exact: an entry that accounts for no line fails, and so does one that claims a difference for a line
that has none. Exit status: 0 when all is well, 1 when not, 2 for wrong usage.
"""

import argparse
import re
import sys
from pathlib import Path

SEPARATOR = " => "
LONGEST_LIST = 400


def read_lines(path: str) -> dict[str, str]:
    """The outcomes of one run, by trial."""
    outcomes: dict[str, str] = {}
    for line in Path(path).read_text(encoding="utf-8", errors="backslashreplace").splitlines():
        trial, separator, outcome = line.partition(SEPARATOR)
        if not separator or trial in outcomes:
            sys.exit(f"compare.py: {path}: not a line of its own: {line}")
        outcomes[trial] = outcome
    return outcomes


class Known:
    """A difference that is accepted, with its reason."""

    def __init__(self, place: str, trial: str, outcome: str):
        self.place = place
        self.trial = re.compile(trial)
        self.substitution: tuple[re.Pattern, str] | None = None
        self.outcome: re.Pattern | None = None
        if outcome.startswith("s/"):
            _, pattern, replacement, _ = outcome.split("/")
            self.substitution = (re.compile(pattern), replacement)
        else:
            self.outcome = re.compile(outcome)
        self.reason = ""
        self.used = 0

    def apply(self, trial: str, first: str) -> str:
        """What Tiffin gives according to this entry, if it is a substitution that applies."""
        if self.substitution is None or not self.trial.fullmatch(trial):
            return first
        return self.substitution[0].sub(self.substitution[1], first)

    def names(self, trial: str, outcome: str) -> bool:
        return bool(self.outcome and self.trial.fullmatch(trial) and self.outcome.fullmatch(outcome))


def accounted_for(entries: list[Known], trial: str, outcome: str, first: str) -> bool:
    """Whether the entries explain a line; those that do are marked as used."""
    using = [entry for entry in entries if entry.names(trial, outcome)]
    if not using:
        expected = first
        for entry in entries:
            changed = entry.apply(trial, expected)
            if changed != expected:
                using.append(entry)
                expected = changed
        if expected != outcome:
            return False
    for entry in using:
        entry.used += 1
    return bool(using)


def read_known(path: str) -> list[Known]:
    entries: list[Known] = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line[0].isspace():
            if not entries:
                sys.exit(f"compare.py: {path}:{number}: a reason without an entry")
            entries[-1].reason += line.strip() + " "
            continue
        trial, separator, outcome = line.partition(SEPARATOR)
        if not separator:
            sys.exit(f"compare.py: {path}:{number}: not PATTERN{SEPARATOR}OUTCOME: {line}")
        entries.append(Known(f"{path}:{number}", trial, outcome))
    return entries


def check_known(entries: list[Known], as_first: dict[str, str], right: list[str]) -> list[str]:
    """What is wrong with the list itself. `as_first` are the lines that are as on the first of the others."""
    problems = []
    for entry in entries:
        if not entry.reason:
            problems.append(f"{entry.place}: no reason")
        if not entry.used:
            problems.append(f"{entry.place}: nothing differs like this any more")
        if entry.substitution:
            wrong = [trial for trial, outcome in as_first.items() if entry.apply(trial, outcome) != outcome]
        else:
            wrong = [trial for trial in right if entry.trial.fullmatch(trial)]
        if wrong:
            problems.append(f"{entry.place}: {len(wrong)} lines do not differ, such as: {wrong[0]}")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--known")
    parser.add_argument("tiffin")
    parser.add_argument("others", nargs="+")
    arguments = parser.parse_args()
    tiffin = read_lines(arguments.tiffin)
    others = {Path(path).name: read_lines(path) for path in arguments.others}
    problems = [f"{name} was not given the same trials" for name, lines in others.items()
                if lines.keys() != tiffin.keys()]
    if not tiffin:
        problems.append("no trial was made")
    entries = read_known(arguments.known) if arguments.known else []

    right = []
    as_first: dict[str, str] = {}
    accepted = 0
    for trial, outcome in tiffin.items():
        expected = {name: lines.get(trial, "nothing") for name, lines in others.items()}
        first = next(iter(expected.values()))
        if outcome in expected.values():
            right.append(trial)
            if outcome == first:
                as_first[trial] = outcome
        elif accounted_for(entries, trial, outcome, first):
            accepted += 1
        else:
            problems.append(f"{trial}\n    tiffin: {outcome}" +
                            "".join(f"\n    {name}: {text}" for name, text in expected.items()))

    problems += check_known(entries, as_first, right)
    for problem in problems[:LONGEST_LIST]:
        print(f"FAILED: {problem}")
    if len(problems) > LONGEST_LIST:
        print(f"FAILED: and {len(problems) - LONGEST_LIST} more")
    names = [Path(path).stem for path in arguments.others]
    print(f"{len(tiffin)} trials: {len(as_first)} as on {names[0]}, {len(right) - len(as_first)} only as on "
          f"{' or '.join(names[1:])}, {accepted} differ as {len(entries)} known differences say, "
          f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
