# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""The command line of bench/run."""

import argparse
import os
import re
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from lib.paths import BIN, ROOT

from . import file_systems, machine, report
from .mounting import end_by_signals
from .results import Results, compare
from .runner import Runner, plan
from .workloads import Settings, Workload, catalogue, programs

QUICK_SECONDS = 525  # of the ten minutes; the rest is for programs that end late, and for the report
PATIENCE = 1.5  # with a program, of what it is expected to take
LEAST_VOLUME_MIB = 1024
VOLUME_MIB = 16384  # of --scale 1


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="run", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add("--suite", default="all", metavar="NAMES", help=f"of {', '.join(catalogue.SUITES)}, separated by commas (all)")
    add("--quick", action="store_true", help="few sizes, short runs, and as many rounds as ten minutes have")
    add("--fs", default="", metavar="LIST", help="file systems, separated by commas; --list names them")
    add("--workload", default="", metavar="REGEX", help="only workloads whose names match")
    add("--operations", default="", metavar="REGEX", help="of the suite metadata only single operations that match")
    add("--out", type=Path, metavar="DIR", help="where results go; results there are continued (build/bench-results/DATE)")
    add("--against", type=Path, metavar="DIR", help="say what has changed since the results there")
    add("--from", type=Path, metavar="DIR", dest="from_folder", help="measure nothing: report the results there")
    add("--document", type=Path, metavar="FILE", help="replace the generated tables in this Markdown file, and the picture beside "
                                                        "it, FILE with .svg in place of .md")
    add("--rounds", type=int, help="turns of each file system (5; with --quick as many as there is time for)")
    add("--seconds", type=float, help="of each timed measurement (3; with --quick 0.3)")
    add("--scale", type=float, help="files and bytes in relation to the reproduction's (0.25; with --quick 0.03)")
    add("--awake", action="store_true", help="idle processors stay awake, for all file systems (/dev/cpu_dma_latency)")
    add("--filebench", default="", metavar="PATH", help="this program runs its workloads, too, beside the driver")
    add("--tree", default="", metavar="DIR", help="a source tree for the suite apps, such as Linux (generated)")
    add("--remote", default="", metavar="ADDRESS", help="tiffin://HOST/VOLUME, as file system tiffin-remote; what it "
                                                        "holds is lost")
    add("--options", default="", help="mount options of Tiffin, such as write_through")
    add("--list", action="store_true", help="name the suites, workloads and file systems, measure nothing")
    return made


DESCRIPTION = """Measures file systems side by side on memory, as root, and writes a report.

Each workload runs on each file system in turn, on one that is made anew for it, in several rounds; medians over the rounds
count. Between measurements a probe looks whether the machine does something else: a disturbed measurement is repeated, at
most twice, and does not count where undisturbed ones are there. Into DIR go results.json (every sample, with the
environment), summary.md and report.html. Ended with Ctrl-C or SIGTERM it unmounts all, and the same command with --out DIR
goes on, and measures again what failed. What cannot be measured here is left out, and the report says why."""


def split(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def chosen(arguments: argparse.Namespace, settings: Settings, usage) -> tuple[list[str], list[Workload]]:
    suites = list(catalogue.SUITES) if arguments.suite == "all" else split(arguments.suite)
    unknown = [f"--suite {name}" for name in suites if name not in catalogue.SUITES]
    unknown += [f"--fs {name}" for name in split(arguments.fs) if name not in file_systems.ALL]
    if unknown:
        usage.error(f"there is no {', '.join(unknown)} (--list)")
    workloads = [one for one in catalogue.all_workloads(settings, arguments.quick)
                 if one.suite in suites and re.search(arguments.workload, one.name)]
    if not workloads and not catalogue.programs_of(suites):
        usage.error(f"--workload: no workload of {', '.join(suites)} matches '{arguments.workload}' (--list)")
    return suites, workloads


def show_list(workloads: list[Workload]) -> None:
    for suite in catalogue.SUITES:
        names = [one.name for one in workloads if one.suite == suite]
        names += [f"{' '.join(one.command)}" for one in programs.PROGRAMS if one.suite == suite]
        print(f"{suite}: {'; '.join(names)}")
    print("\nfile systems:")
    for name, file_system in file_systems.ALL.items():
        print(f"  {name:<20}{file_system.what}{' -- ' + why if (why := file_system.missing()) else ''}")


def available(names: list[str], results: Results, remote: str) -> list[str]:
    found = []
    for name in names:
        why = "mounting needs root" if os.geteuid() != 0 else file_systems.ALL[name].missing()
        if name == "tiffin-remote" and not remote:
            why = "--remote says where it is"
        if why:
            results.leave_out(f"file system {name}", why)
        else:
            found.append(name)
    return found


def file_systems_of(arguments: argparse.Namespace, suites: list[str]) -> dict[str, list[str]]:
    made = {}
    for suite in suites:
        made[suite] = split(arguments.fs) or list(catalogue.default_file_systems(suite, arguments.quick))
        if arguments.remote and "tiffin-remote" not in made[suite] and suite in ("remote", "micro"):
            made[suite].append("tiffin-remote")
    return made


def run_programs(arguments: argparse.Namespace, suites: list[str], results: Results, deadline: float | None) -> None:
    done = {one["command"] for one in results.content["programs"] if not one["error"]}
    for program in catalogue.programs_of(suites):
        command = " ".join(program.quick_command if arguments.quick else program.command)
        left = 4 * 3600.0 if deadline is None else deadline - time.monotonic()
        if command in done:
            continue
        if not command:
            results.leave_out(" ".join(program.command), "it takes too long for --quick")
        elif program.needs_root and os.geteuid() != 0:
            results.leave_out(command, "it needs root")
        elif why := program.missing():
            results.leave_out(command, why)
        elif deadline is not None and left < program.expected_s:
            results.leave_out(command, "there was no time left")
        else:
            print(f"{command} ...", file=sys.stderr, flush=True)
            limit_s = min(left, PATIENCE * program.expected_s) if arguments.quick else left
            results.add_program(programs.run(program, arguments.quick, results.folder, limit_s))
            results.save()


def measure(arguments: argparse.Namespace, suites: list[str], workloads: list[Workload], settings: Settings,
            results: Results, size_mib: int) -> None:
    started = time.monotonic()
    deadline = started + QUICK_SECONDS if arguments.quick else None
    watch = machine.NoiseWatch(results.probes())
    names_of = {suite: available(names, results, arguments.remote)
                for suite, names in file_systems_of(arguments, suites).items()}
    footprint_mib = max([one.footprint_mib for one in workloads], default=0)
    all_names = sorted({name for names in names_of.values() for name in names})
    needed_mib = file_systems.needed_mib(all_names, size_mib, footprint_mib) if workloads and all_names else 0
    for concern in machine.concerns(needed_mib, watch.look()):
        print(f"run: {concern}", file=sys.stderr)
        results.content["sittings"][-1].setdefault("concerns", []).append(concern)
    usable = []
    for workload in workloads:
        if why := catalogue.missing_programs(workload):
            results.leave_out(f"{workload.name} ({workload.suite})", why)
        else:
            usable.append(workload)
    rounds = arguments.rounds or (20 if arguments.quick else 5)
    steps = plan(usable, names_of, rounds)
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tiffin-bench.")))
        if arguments.awake:
            stack.enter_context(open("/dev/cpu_dma_latency", "wb", buffering=0)).write(bytes(4))
        devices = file_systems.Devices(work, size_mib, stack, arguments.options, arguments.remote)
        runner = Runner(results, devices, settings, watch)
        # All workloads once, then the programs, then the other rounds: whatever is interrupted, there is a bit of all. First
        # of these comes what the programs have left time for after all.
        for_programs = sum(PATIENCE * program.expected_s for program in catalogue.programs_of(suites))
        runner.run([step for step in steps if step.round == 0], results.save,
                   deadline - for_programs if deadline is not None else None)
        run_programs(arguments, suites, results, deadline)
        runner.run(steps, results.save, deadline)
        if missing := {step.key for step in steps} - results.measured():
            results.leave_out(f"{len(missing)} measurements", "ten minutes were over (--quick)")
    results.content["noise"] = watch.summary()
    results.content["sittings"][-1]["load_average_after"] = list(os.getloadavg())
    results.content["sittings"][-1]["seconds"] = round(time.monotonic() - started)
    results.save()


def finish(arguments: argparse.Namespace, results: Results) -> int:
    changes = compare(results, Results.load(arguments.against)) if arguments.against else None
    written = report.write(results, changes)
    print(report.summary_text(results, changes))
    if arguments.document:
        report.document(results, arguments.document)
        picture = arguments.document.with_suffix(".svg")
        if report.picture(results, picture):
            written.append(picture)
        written.append(arguments.document)
    print("written: " + ", ".join(str(path) for path in written))
    return 1 if results.failures() or any(one["error"] for one in results.content["programs"]) else 0




def main() -> int:
    usage = parser()
    arguments = usage.parse_args()
    end_by_signals()
    if arguments.from_folder:
        try:
            return finish(arguments, Results.load(arguments.from_folder))
        except ValueError as error:
            print(f"run: {error}", file=sys.stderr)
            return 2
    scale = arguments.scale or (0.03 if arguments.quick else 0.25)
    seconds = arguments.seconds or (0.3 if arguments.quick else 3)
    shared_memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="tiffin-bench.", dir=shared_memory if shared_memory.is_dir() else None) as work:
        settings = Settings(seconds, scale, os.cpu_count() or 1, Path(work), arguments.filebench, arguments.tree,
                            arguments.operations)
        suites, workloads = chosen(arguments, settings, usage)
        if arguments.list:
            show_list(workloads)
            return 0
        size_mib = max(LEAST_VOLUME_MIB, int(VOLUME_MIB * scale))
        if arguments.remote and arguments.fs == "":
            arguments.fs = "tiffin,tiffin-remote"
        parameters = {
            "suites": suites, "quick": arguments.quick, "seconds": seconds, "scale": scale, "volume_mib": size_mib,
            "rounds": arguments.rounds or 0, "awake": arguments.awake, "filebench": arguments.filebench,
            "tree": arguments.tree, "remote": arguments.remote or "", "options": arguments.options,
            "operations": arguments.operations,
            "workloads": [one.name for one in workloads], "file_systems": file_systems_of(arguments, suites)}
        folder = arguments.out or ROOT / "build/bench-results" / time.strftime("%Y%m%d-%H%M%S")
        try:
            results = Results.start(folder, machine.environment(ROOT, BIN), parameters)
            if arguments.against:
                results.check_comparable(Results.load(arguments.against))
        except ValueError as error:
            print(f"run: {error}", file=sys.stderr)
            return 2
        try:
            measure(arguments, suites, workloads, settings, results, size_mib)
        except KeyboardInterrupt:
            results.save()
            print(f"\nrun: interrupted; the same command with --out {folder} goes on", file=sys.stderr)
            return 130
        return finish(arguments, results)
