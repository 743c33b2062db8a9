#!/usr/bin/python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Tests of the harness itself: what it makes of samples, and that it neither loses nor invents any."""

import contextlib
import importlib.util
import io
import json
import re
import subprocess
import sys
import tempfile
import time
import unittest
from dataclasses import asdict
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import file_systems, kernel, machine, main, published, report, runner  # noqa: E402
from harness.results import Results, Summary, compare, speed_ratio  # noqa: E402
from harness.workloads import SYNCED, Figure, Settings, Workload, catalogue, filebench, operations, programs  # noqa: E402

ENVIRONMENT = {"date": "2026-01-01T00:00:00Z", "revision": "test", "programs": "0", "kernel": "6", "processors": 2, "cpu": "test",
               "virtual": True, "memory_mib": 1024, "load_average_before": [0.0, 0.0, 0.0]}
PARAMETERS = {"scale": 1.0, "seconds": 1.0, "volume_mib": 64, "awake": False, "options": "", "rounds": 2,
              "file_systems": {"micro": ["ext4-journal", "tiffin"]}}
QUIET = machine.Probe(1.0, 1e6, 5.0)
SLOW = machine.Probe(1.0, 5e5, 5.0)
BUSY = machine.Probe(0.3, 1e6, 5.0)


def sample(row: str, name: str, value: float, number: int = 0, unit: str = "op/s", disturbed: str = "",
           less: bool = False, error: str = "", detail: dict | None = None, probe: machine.Probe | None = None) -> dict:
    figures = [] if error else [{"row": row, "unit": unit, "value": value, "less_is_better": less,
                                 "detail": detail or {}}]
    return {"suite": "micro", "workload": row, "file_system": name, "round": number, "figures": figures,
            "disturbed": disturbed, "error": error, "attempt": 0, "is_last_attempt": True, "seconds": 1.0,
            "noise": [asdict(probe)] * 2 if probe else []}


class WithFolder(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def results(self, *samples: dict, name: str = "results") -> Results:
        made = Results.start(self.folder / name, dict(ENVIRONMENT), PARAMETERS)
        made.content["samples"] += samples
        made.save()
        return made


class TestResults(WithFolder):
    def test_disturbed_samples_count_only_where_there_are_no_others(self) -> None:
        found = self.results(sample("a", "tiffin", 10), sample("a", "tiffin", 99, disturbed="busy"),
                             sample("b", "tiffin", 7, disturbed="busy")).summaries()
        self.assertEqual(found["micro", "a"]["tiffin"].values, (10,))
        self.assertFalse(found["micro", "a"]["tiffin"].only_disturbed)
        self.assertEqual(found["micro", "b"]["tiffin"].values, (7,))
        self.assertTrue(found["micro", "b"]["tiffin"].only_disturbed)

    def test_samples_are_judged_beside_all_probes(self) -> None:
        # When the first one was measured nobody knew what is usual; the second one seemed slow beside even faster ones.
        results = self.results(sample("a", "tiffin", 10, probe=SLOW),
                               sample("a", "tiffin", 20, number=1, disturbed="slow", probe=QUIET),
                               *(sample("b", "tiffin", 1, number=number, probe=QUIET) for number in range(3)))
        self.assertEqual(results.summaries()["micro", "a"]["tiffin"].values, (20,))
        self.assertIn("5 measurements, 1 of them disturbed", " ".join(report.environment_lines(results)))

    def test_too_few_probes_judge_nothing(self) -> None:
        results = self.results(*(sample("a", "tiffin", 1, probe=probe) for probe in (SLOW, QUIET)))
        self.assertEqual(results.summaries()["micro", "a"]["tiffin"].values, (1, 1))

    def test_a_failure_is_no_figure(self) -> None:
        results = self.results(sample("a", "tiffin", 0, error="I/O error"))
        self.assertEqual(results.summaries(), {})
        self.assertEqual(len(results.failures()), 1)
        self.assertIn("a on tiffin failed 1 time(s): I/O error", report.markdown(results, None))

    def test_ratios_are_of_speed(self) -> None:
        more, less = (Summary((2.0,), "", is_less, False) for is_less in (False, True))
        self.assertEqual(speed_ratio(more, Summary((1.0,), "", False, False)), 2)
        self.assertEqual(speed_ratio(less, Summary((1.0,), "", True, False)), 0.5)
        self.assertIsNone(speed_ratio(more, Summary((0.0,), "", False, False)))

    def test_other_parameters_are_not_mixed_in(self) -> None:
        self.results(sample("a", "tiffin", 1))
        with self.assertRaisesRegex(ValueError, "choose another --out"):
            Results.start(self.folder / "results", ENVIRONMENT, {**PARAMETERS, "seconds": 2.0})

    def test_only_the_same_program_on_the_same_machine_goes_on(self) -> None:
        self.results(sample("a", "tiffin", 1))
        for key, value in (("revision", "newer"), ("programs", "built anew"), ("kernel", "7"), ("cpu", "faster")):
            with self.assertRaisesRegex(ValueError, f"another {key} .*here {value}.*; choose another --out"):
                Results.start(self.folder / "results", {**ENVIRONMENT, key: value}, PARAMETERS)

    def test_each_sitting_says_anew_what_it_leaves_out(self) -> None:
        results = self.results()
        results.leave_out("file system xfs", "mkfs.xfs is missing")
        results.save()
        self.assertEqual(Results.start(self.folder / "results", ENVIRONMENT, PARAMETERS).content["left_out"], [])

    def test_a_program_that_runs_again_replaces_what_it_did(self) -> None:
        results = self.results()
        for command, error in (("bench/scale", "status 1"), ("bench/failover", ""), ("bench/scale", "")):
            results.add_program({"command": command, "error": error})
        self.assertEqual([(one["command"], one["error"]) for one in results.content["programs"]],
                         [("bench/failover", ""), ("bench/scale", "")])

    def test_a_change_is_more_than_noise(self) -> None:
        def verdict(new: list[float], old: list[float], **more) -> str:
            made = [self.results(*(sample("a", "tiffin", value, **more) for value in values), name=f"{new}{old}{name}")
                    for name, values in (("new", new), ("old", old))]
            return compare(*made).rows[0].verdict

        self.assertEqual(verdict([20, 21, 22], [10, 11, 12]), "faster")
        self.assertEqual(verdict([10, 11, 12], [20, 21, 22]), "slower")
        self.assertEqual(verdict([20, 21, 11.5], [10, 11, 12]), "same")        # ranges meet
        self.assertEqual(verdict([103, 104, 105], [100, 101, 102]), "same")    # 3 %
        self.assertEqual(verdict([20, 21], [10, 11]), "too few rounds")
        self.assertEqual(verdict([30, 31, 32], [10, 11, 12], disturbed="busy"), "disturbed")

    def test_only_what_was_measured_alike_is_compared(self) -> None:
        results = self.results(sample("a", "tiffin", 1))
        other = Results.start(self.folder / "other", ENVIRONMENT, {**PARAMETERS, "scale": 0.5, "rounds": 7})
        with self.assertRaisesRegex(ValueError, "another scale \\(0.5, here"):
            compare(results, other)
        results.check_comparable(Results.start(self.folder / "third", ENVIRONMENT, {**PARAMETERS, "rounds": 7}))
        with self.assertRaisesRegex(ValueError, "another cpu \\(faster, here test"):
            compare(results, Results.start(self.folder / "fourth", {**ENVIRONMENT, "cpu": "faster"}, PARAMETERS))
        fifth = Results.start(self.folder / "fifth", {**ENVIRONMENT, "kernel": "7"}, {**PARAMETERS, "options": "writeback=no"})
        self.assertEqual(compare(results, fifth).differences, ["kernel: 7 before, 6 now", "options: writeback=no before, none now"])

    def test_bins_are_of_undisturbed_samples(self) -> None:
        results = self.results(sample("a", "tiffin", 1, detail={"bins": {100: 2}}),
                               sample("a", "tiffin", 1, disturbed="busy", detail={"bins": {900: 7}}),
                               sample("b", "tiffin", 1, disturbed="busy", detail={"bins": {900: 7}}))
        self.assertEqual(results.bins("a"), {"tiffin": {100: 2}})
        self.assertEqual(results.bins("b"), {"tiffin": {900: 7}})

    def test_bins_of_several_samples_add_up(self) -> None:
        results = self.results(sample("a", "tiffin", 1, detail={"bins": {100: 2, 200: 1}}),
                               sample("a", "tiffin", 1, number=1, detail={"bins": {"100": 3}}))
        self.assertEqual(results.bins("a"), {"tiffin": {100: 5, 200: 1}})


class TestRunner(WithFolder):
    """With file systems that are plain folders, and probes that are given."""

    def setUp(self) -> None:
        super().setUp()
        self.calls: list[str] = []

        self.enterContext(mock.patch.dict(file_systems.ALL, {
            name: file_systems.FileSystem(name, name, self.mount) for name in ("one", "two")}))
        self.enterContext(mock.patch.object(machine, "use_free_memory"))
        self.enterContext(contextlib.redirect_stderr(io.StringIO()))
        self.probes = [QUIET]
        self.enterContext(mock.patch.object(machine, "probe", self.next_probe))

    @staticmethod
    @contextlib.contextmanager
    def mount(_devices: object, folder: Path, _footprint_mib: int):
        for path in folder.glob("*"):
            path.rmdir()
        yield folder

    def next_probe(self) -> machine.Probe:
        return self.probes.pop(0) if len(self.probes) > 1 else self.probes[0]

    def workload(self, name: str = "work", fails: bool = False, synced: bool = False) -> Workload:
        def run(folder: Path, _settings: Settings) -> list[Figure]:
            self.calls.append(folder.parent.name)
            if fails:
                raise OSError("it broke")
            return [Figure(name, "op/s", 1.0)] + ([Figure(name + SYNCED, "op/s", 0.5)] if synced else [])
        return Workload(name, "micro", 1, run)

    def run_steps(self, steps: list, results: Results | None = None, deadline: float | None = None) -> Results:
        results = results or self.results()
        devices = mock.Mock(size_mib=1)
        devices.mount_point = lambda name: self.folder / name
        made = runner.Runner(results, devices, Settings(1, 1, 2, self.folder), machine.NoiseWatch(results.probes()))
        for _ in range(2):  # the second time nothing is left
            made.run(steps, results.save, deadline)
        return results

    def test_file_systems_take_turns_and_another_one_begins_each_round(self) -> None:
        steps = runner.plan([self.workload("a"), self.workload("b")], {"micro": ["one", "two"]}, 2)
        self.assertEqual([(step.round, step.workload.name, step.file_system) for step in steps],
                         [(0, "a", "one"), (0, "a", "two"), (0, "b", "one"), (0, "b", "two"),
                          (1, "a", "two"), (1, "a", "one"), (1, "b", "two"), (1, "b", "one")])
        self.run_steps(steps)
        self.assertEqual(self.calls, ["one", "two"] * 2 + ["two", "one"] * 2)

    def test_suites_are_spread_over_a_round(self) -> None:
        def work(suite: str, count: int) -> list[Workload]:
            return [Workload(f"{suite}{number}", suite, 1, self.workload().run) for number in range(count)]
        steps = runner.plan(work("micro", 4) + work("apps", 2), {"micro": ["one"], "apps": ["one"]}, 1)
        self.assertEqual([step.workload.name for step in steps],
                         ["micro0", "apps0", "micro1", "micro2", "apps1", "micro3"])

    def test_a_disturbed_step_is_repeated_within_bounds(self) -> None:
        self.probes = [BUSY] * 6 + [QUIET] * 8 + [BUSY] * 2 + [QUIET]
        results = self.run_steps(runner.plan([self.workload()], {"micro": ["one", "two"]}, 4))
        # Eight steps: a quarter of them may be repeated, and none more than twice.
        self.assertEqual([one["attempt"] for one in results.content["samples"]], [0, 1, 2] + [0] * 7)
        self.assertEqual([one["is_last_attempt"] for one in results.content["samples"]], [False, False] + [True] * 8)

    def test_nothing_is_repeated_where_other_work_never_ends(self) -> None:
        self.probes = [BUSY]
        results = self.run_steps(runner.plan([self.workload()], {"micro": ["one", "two"]}, 8))
        self.assertEqual(len(results.content["samples"]), 16 + 3)  # until four were seen
        self.assertTrue(all(one["disturbed"] for one in results.content["samples"]))

    def test_a_disturbance_once_costs_one_repetition(self) -> None:
        self.probes = [QUIET, BUSY, QUIET]
        results = self.run_steps(runner.plan([self.workload()], {"micro": ["one", "two"]}, 2))
        self.assertEqual([bool(one["disturbed"]) for one in results.content["samples"]], [True] + [False] * 4)
        self.assertEqual(results.summaries()["micro", "work"]["one"].values, (1.0, 1.0))

    def test_interrupted_runs_go_on(self) -> None:
        steps = runner.plan([self.workload()], {"micro": ["one", "two"]}, 2)
        self.run_steps(steps[:3])
        resumed = Results.start(self.folder / "results", ENVIRONMENT, PARAMETERS)
        self.run_steps(steps, resumed)
        self.assertEqual(len(self.calls), 4)
        self.assertEqual(len(resumed.content["samples"]), 4)
        self.assertEqual(len(resumed.content["sittings"]), 2)

    def test_an_error_is_kept_and_the_next_step_runs(self) -> None:
        steps = runner.plan([self.workload("bad", True), self.workload("good")], {"micro": ["one"]}, 1)
        results = self.run_steps(steps)
        self.assertEqual([one["error"] for one in results.content["samples"]], ["OSError: it broke", ""])
        self.assertEqual(results.measured(), {("micro", "bad", "one"), ("micro", "good", "one")})

    def test_what_failed_is_measured_again_in_the_next_sitting(self) -> None:
        self.run_steps(runner.plan([self.workload(fails=True)], {"micro": ["one"]}, 2))
        resumed = Results.start(self.folder / "results", ENVIRONMENT, PARAMETERS)
        self.run_steps(runner.plan([self.workload()], {"micro": ["one"]}, 2), resumed)
        self.assertEqual(len(self.calls), 4)
        self.assertEqual([one["error"] for one in resumed.content["samples"]], ["", ""])

    def test_probes_of_sittings_before_say_what_is_usual(self) -> None:
        self.run_steps(runner.plan([self.workload()], {"micro": ["one", "two"]}, 2))
        resumed = Results.start(self.folder / "results", ENVIRONMENT, PARAMETERS)
        self.probes = [SLOW, QUIET]
        self.run_steps(runner.plan([self.workload("other")], {"micro": ["one"]}, 1), resumed)
        self.assertIn("usual speed", resumed.content["samples"][4]["disturbed"])

    def test_no_row_is_synced_where_a_sync_does_not_reach_the_device(self) -> None:
        two = file_systems.FileSystem("two", "two", self.mount, commits=False)
        with mock.patch.dict(file_systems.ALL, {"two": two}):
            results = self.run_steps(runner.plan([self.workload(synced=True)], {"micro": ["one", "two"]}, 1))
        self.assertEqual({row: list(by_name) for (_, row), by_name in results.summaries().items()},
                         {"work": ["one", "two"], "work, synced": ["one"]})

    def test_no_step_begins_that_would_end_too_late(self) -> None:
        steps = runner.plan([self.workload()], {"micro": ["one", "two"]}, 1)
        results = self.run_steps(steps, deadline=0.0)
        self.assertEqual((results.measured(), self.calls), (set(), []))

    def test_a_probe_knows_what_is_usual(self) -> None:
        watch = machine.NoiseWatch()
        watch.probes = [QUIET] * 5
        self.assertEqual(watch.reason(QUIET), "")
        self.assertIn("of a processor", watch.reason(BUSY))
        self.assertIn("usual speed", watch.reason(SLOW))
        self.assertIn("waking took", watch.reason(machine.Probe(1.0, 1e6, 50.0)))


class TestDevices(WithFolder):
    def test_one_that_cannot_be_made_leaves_nothing_and_fails_at_once(self) -> None:
        mounts: list[str] = []

        @contextlib.contextmanager
        def mounted(folder: Path, *_command: str):
            mounts.append("mounted")
            try:
                yield folder
            finally:
                mounts.append("unmounted")

        failure = subprocess.CalledProcessError(1, "losetup", stderr="no loop devices")
        with contextlib.ExitStack() as stack, mock.patch.object(file_systems, "mounted", mounted), \
                mock.patch.object(file_systems, "write_zeros"), \
                mock.patch.object(file_systems.subprocess, "run", side_effect=failure) as losetup:
            devices = file_systems.Devices(self.folder, 1, stack)
            for _ in range(3):
                with self.assertRaises(subprocess.CalledProcessError) as caught:
                    devices.loop()
                self.assertIn("no loop devices", runner.error_text(caught.exception))
                self.assertEqual((mounts, losetup.call_count), (["mounted", "unmounted"], 1))

    def test_one_that_was_made_stays_until_the_end(self) -> None:
        made = mock.Mock(stdout="/dev/loop7\n")
        with mock.patch.object(file_systems, "mounted", lambda folder, *_: contextlib.nullcontext(folder)), \
                mock.patch.object(file_systems, "write_zeros"), mock.patch.object(file_systems, "run") as ran, \
                mock.patch.object(file_systems.subprocess, "run", return_value=made):
            with contextlib.ExitStack() as stack:
                devices = file_systems.Devices(self.folder, 1, stack)
                self.assertEqual([devices.loop(), devices.loop()], ["/dev/loop7"] * 2)
                ran.assert_not_called()
            ran.assert_called_once_with("losetup", "--detach", "/dev/loop7")


class TestQuick(WithFolder):
    """What bench/run --quick gives to its runner, and when."""

    def test_what_there_was_no_time_for_before_the_programs_comes_first_after_them(self) -> None:
        workloads = [Workload(name, "micro", 1, lambda *_: []) for name in ("a", "b")]
        arguments = main.parser().parse_args(["--quick", "--rounds", "2", "--fs", "tmpfs"])
        results = self.results()
        calls: list[list[tuple[str, int]]] = []

        def run(_self: object, steps: list, _save: object, deadline: float) -> None:
            self.assertGreater(deadline, time.monotonic())
            calls.append([(step.workload.name, step.round) for step in steps])
            if len(calls) == 2:  # before, there was time for nothing
                results.content["samples"].append(sample("a", "tmpfs", 1))

        with mock.patch.object(runner.Runner, "run", run), mock.patch.object(main, "available", lambda names, *_: names), \
                mock.patch.object(machine, "concerns", lambda *_: []), mock.patch.object(machine, "probe", lambda: QUIET), \
                mock.patch.object(main, "run_programs"):
            main.measure(arguments, ["micro"], workloads, Settings(1, 1, 2, self.folder), results, 1)
        self.assertEqual(calls, [[("a", 0), ("b", 0)], [("a", 0), ("b", 0), ("a", 1), ("b", 1)]])
        self.assertEqual([one["what"] for one in results.content["left_out"]], ["1 measurements"])


class TestWhatIsMissing(WithFolder):
    def test_is_left_out_and_told(self) -> None:
        results = self.results()
        with mock.patch.object(main.os, "geteuid", lambda: 1000):
            self.assertEqual(main.available(["tmpfs"], results, ""), [])
        with mock.patch.object(file_systems.shutil, "which", lambda _: None), \
                mock.patch.object(file_systems.os, "access", lambda *_: False), \
                mock.patch.object(main.os, "geteuid", lambda: 0):
            self.assertEqual(main.available(["tmpfs", "xfs", "tiffin-remote"], results, ""), ["tmpfs"])
        told = report.left_out_lines(results)
        self.assertEqual([line.partition(": ")[0] for line in told],
                         ["file system tmpfs", "file system xfs", "file system tiffin-remote"])
        self.assertIn("needs root", told[0])
        self.assertIn("mkfs.xfs is missing", told[1])
        self.assertIn("--remote", told[2])


def report_picture(results: Results, path: Path) -> str:
    if importlib.util.find_spec("matplotlib") is None:
        return "Bento-fs, published"  # nothing draws here, and documents have no pictures
    report.picture(results, path)
    return path.read_text()


class TestReport(WithFolder):
    def test_published_ratios_lie_beside_ours(self) -> None:
        results = self.results(sample("createfiles T1", "ext4-journal", 100), sample("createfiles T1", "tiffin", 60),
                               sample("untar", "ext4-journal", 2, less=True), sample("untar", "tiffin", 4, less=True),
                               sample("of our own", "ext4-journal", 1), sample("of our own", "tiffin", 1))
        heads, rows = report.published_table(results)
        self.assertEqual(heads[5:], ["tiffin : ext4-journal", "Bento-fs : ext4-j", "Bento-user : ext4-j"])
        self.assertEqual([(row[0], *row[5:]) for row in rows],
                         [("createfiles T1", "0.60", "1.26", "0.026"), ("untar", "0.50", "2.91", "")])

    def test_a_star_marks_what_other_work_disturbed(self) -> None:
        results = self.results(sample("varmail", "ext4-journal", 100, disturbed="busy"), sample("varmail", "tiffin", 60),
                               sample("webserver", "ext4-journal", 10), sample("webserver", "tiffin", 5))
        self.assertEqual([row[3:6] for row in report.published_table(results)[1]],
                         [["100*", "60.0", "0.60*"], ["10.0", "5.00", "0.50"]])

    def test_a_report_says_how_many_samples_figures_are_of(self) -> None:
        results = self.results(sample("a", "tiffin", 1), sample("a", "tiffin", 1, number=1), sample("a", "tmpfs", 1),
                               sample("b", "tmpfs", 1, disturbed="busy"))
        self.assertIn("figures: 1 of 1 undisturbed sample, 1 of 2 undisturbed samples, 1 only of disturbed ones (*)",
                      report.environment_lines(results))

    def test_published_rows_have_any_number_of_threads(self) -> None:
        self.assertEqual(published.ratios("createfiles T4"), published.ratios("createfiles T64"))
        self.assertNotEqual(published.ratios("createfiles T4"), published.ratios("createfiles T1"))
        self.assertEqual(published.ratios("rand_write 128k T4 (RAM)"), (4.06, None))

    def test_every_published_row_is_a_row_of_ours(self) -> None:
        settings = Settings(1, 1, 2, self.folder)
        rows = {published.as_published(row) for row in filebench.definitions(settings, tuple(filebench.SIZES))}
        self.assertLessEqual(set(published.TABLE_3), rows)
        self.assertLessEqual({row.removesuffix(" (RAM)") for row in published.RAM}, rows)

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "python3-matplotlib is missing")
    def test_the_page_needs_nothing_else_and_has_each_picture_once(self) -> None:
        counts = {"timeline": [10, 20, 40]}
        results = self.results(
            *(sample("varmail", name, value, detail=counts) for name, value in (("ext4-journal", 2), ("tiffin", 3))),
            *(sample("latency rand_read p50", name, value, less=True, detail={"bins": {1000: 5, 2000: 1}})
              for name, value in (("ext4-journal", 1), ("tiffin", 2))))
        report.write(results, None)
        page = (self.folder / "results/report.html").read_text()
        self.assertEqual(re.findall(r"<(?:img|script|link)\b", page), [])
        # Beside the published, heat map, ratios, latencies, over time.
        self.assertEqual(page.count("<svg"), 5)
        self.assertEqual(page.count("<figcaption>"), 5)

    def test_only_the_generated_part_of_a_page_changes(self) -> None:
        results = self.results(sample("varmail", "ext4-journal", 1), sample("varmail", "tiffin", 2))
        page = self.folder / "page.md"
        page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
        for _ in range(2):
            report.document(results, page)
        text = page.read_text()
        self.assertTrue(text.startswith("before\n" + report.BEGIN) and text.endswith(report.END + "\nafter\n"))
        self.assertEqual(text.count("| varmail | op/s |"), 2)  # beside the published ones, and of the suite
        self.assertNotIn("old", text)
        self.assertIn("Bento-fs, published", report_picture(results, page.with_suffix(".svg")))
        page.write_text("no place")
        with self.assertRaisesRegex(ValueError, "no place for tables"):
            report.document(results, page)


def kernel_sample(part: str, operation: str, name: str, us: float, number: int = 0, **more) -> dict:
    return {"round": number, "file_system": name, "part": part, "operation": operation, "us": us, **more}


class TestKernel(WithFolder):
    """Tables and pictures of bench/kernel."""

    def cells(self, text: str, row: str) -> list[str]:
        line = next(line for line in text.splitlines() if line.startswith(f"| {row} |"))
        return [cell.strip() for cell in line.split("|")[2:-1]]

    def test_ratios_are_of_medians_and_net_of_system_calls(self) -> None:
        samples = [kernel_sample("operations", operation, name, us, number)
                   for number, error in enumerate((0, 1, -1))
                   for operation, name, us in (("system_call", "tiffin", 10), ("system_call", "ext4-j", 10),
                                               ("create", "tiffin", 30 + error), ("create", "ext4-j", 60 + error),
                                               ("read_4k_cached", "tiffin", 10.1), ("read_4k_cached", "ext4-j", 12))]
        text = kernel.markdown(samples)
        self.assertIn("Medians of 3 rounds", text)
        self.assertIn("A system call: 10.0 µs", text)
        # Two calls: 40 to 10.
        self.assertEqual(self.cells(text, "create"), ["30.0", "60.0", "2.00", "", "4.00", "", "1.26"])
        # What remains without the call is less than what the call is known to.
        self.assertEqual(self.cells(text, "read_4k_cached"), ["10.1", "12.0", "1.19", "", "", "", ""])

    def test_a_daemon_under_fuse_has_a_ratio_where_it_was_measured(self) -> None:
        samples = [kernel_sample("inside", "rename", name, us) for name, us in (("tiffin", 3), ("tiffin-fuse", 60))]
        self.assertEqual(self.cells(kernel.markdown(samples), "rename"), ["3.0", "60.0", "", "", "20.00", "", "", ""])

    def test_the_frameworks_cost_is_a_difference(self) -> None:
        samples = [kernel_sample("framework", "existing_stat", name, us)
                   for name, us in (("tiffin_hello", 75.5), ("tmpfs", 78))]
        samples += [kernel_sample("framework inside", operation, name, us) for operation in ("create", "read_4k_uncached")
                    for name, us in (("tiffin_empty", 3), ("ramfs", 2))]
        text = kernel.markdown(samples)
        self.assertEqual(self.cells(text, "existing_stat"), ["75.50", "78.00", "-2.50", "-2.50 to -2.50"])
        self.assertEqual(self.cells(text, "create"), ["3.00", "2.00", "1.00", "1.00 to 1.00"])
        self.assertNotIn("read_4k_uncached", text)  # ramfs cannot drop a page

    def test_the_frameworks_cost_is_compared_round_by_round(self) -> None:
        samples = [kernel_sample("framework inside", "create", name, us, round_)
                   for round_, (empty, ramfs) in enumerate(((2, 1), (4, 3), (3.5, 1)))  # the second was slower for both
                   for name, us in (("tiffin_empty", empty), ("ramfs", ramfs))]
        self.assertEqual(self.cells(kernel.markdown(samples), "create"), ["3.50", "1.00", "1.00", "1.00 to 2.50"])

    def test_checksums_of_data_are_taken_away_from_tiffin_alone(self) -> None:
        samples = [kernel_sample("checksums", operation, "tiffin", us)
                   for operation, us in (("checksum_4k", 0.5), ("checksum_128k", 16), ("kernel_checksum_128k", 80))]
        samples += [kernel_sample(part, operation, name, us) for part, operation, name, us in (
            ("inside", "read_4k_uncached", "tiffin", 2.5), ("inside", "read_4k_uncached", "ext4-o", 2),
            ("operations", "system_call", "tiffin", 10), ("operations", "content_read_cold_random_128k", "tiffin", 46),
            ("operations", "content_read_cold_random_128k", "ext4-o", 30),
            ("operations", "content_read_random_128k", "tiffin", 20))]
        text = kernel.markdown(samples)
        self.assertEqual(self.cells(text, "128 KiB"), ["16.00", "80.00"])
        self.assertEqual(self.cells(text, "read_4k_uncached (inside)"), ["2.5", "0.5", "", "", "", "0.80", "1.00", ""])
        self.assertEqual(self.cells(text, "content_read_cold_random_128k (operations)"),
                         ["46.0", "16.0", "", "", "", "0.65", "1.00", "1.00"])
        self.assertNotIn("content_read_random_128k (operations)", text)  # from the page cache

    def test_how_many_checksums_an_operation_takes(self) -> None:
        for operation, blocks in (("read_4k_uncached", 1), ("write_1m_and_fsync_at_the_end", 256), ("create_4k_and_fsync", 1),
                                  ("content_write_direct_random_128k", 32), ("content_write_random_128k", 0),
                                  ("content_read_mapped_random_128k", 0), ("stat_of_an_uncached_file", 0)):
            self.assertEqual(kernel.summed_blocks("operations", operation), blocks, operation)

    def test_every_published_row_is_one(self) -> None:
        for row in kernel.PUBLISHED_ROWS:
            self.assertIsNotNone(kernel.published_ratio(row), row)

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "python3-matplotlib is missing")
    def test_the_page_needs_nothing_else_and_has_each_picture_once(self) -> None:
        samples = [kernel_sample(part, operation, name, us, **more)
                   for part, operation, more in (("operations", "create", {}), ("latency", "512 B read, p50", {
                       "bins": {"60000": 5, "90000": 1}}))
                   for name, us in (("tiffin", 60), ("ext4-j", 66))]
        samples += [kernel_sample("framework", "existing_stat", name, 75.5) for name in kernel.FRAMEWORKS["framework"]]
        kernel.write(samples, self.folder)
        page = (self.folder / "report.html").read_text()
        self.assertEqual(re.findall(r"<(?:img|script|link)\b", page), [])
        # Ratios and times of operations and latency, the distribution, times of the framework.
        self.assertEqual(page.count("<svg"), 6)
        self.assertIn("Bento-fs to ext4-j, published", page)

    def test_distributions_are_of_all_rounds(self) -> None:
        samples = [kernel_sample("latency", "512 B random read, p50", "tiffin", 1, number, bins=bins)
                   for number, bins in enumerate(({"60000": 5}, {"60000": 2, "70000": 1}))]
        self.assertEqual(kernel.bins_of(samples), {"random read": {"tiffin": {60000: 7, 70000: 1}}})

    def test_nothing_is_drawn_of_samples_without_distributions(self) -> None:
        self.assertEqual(kernel.bins_of([kernel_sample("latency", "512 B read, p50", "tiffin", 1)]), {})


class TestWorkloads(WithFolder):
    def test_a_single_operation_that_fails_is_no_figure(self) -> None:
        good = {"name": "create", "real_time": 2000.0}
        bad = {"name": "unlink", "real_time": 0.0, "error_occurred": True, "error_message": "no file"}
        settings = Settings(1, 1, 1, self.folder)
        with mock.patch.object(operations, "output_of", return_value=json.dumps({"benchmarks": [good]})):
            self.assertEqual(operations.measure(self.folder, settings), [Figure("create", "us", 2.0, True)])
        with mock.patch.object(operations, "output_of", return_value=json.dumps({"benchmarks": [good, bad]})):
            self.assertRaisesRegex(RuntimeError, "unlink: no file", operations.measure, self.folder, settings)

    def load(self, *settings: str) -> dict:
        return json.loads(subprocess.run([filebench.LOAD, self.folder, *settings], capture_output=True, text=True,
                                         check=True).stdout)

    def files(self) -> int:
        return sum(path.is_file() for path in self.folder.rglob("*"))

    def test_the_driver_counts_what_it_does(self) -> None:
        result = self.load("flow=create,write_whole,close", "files=200", "mean_bytes=999", "present=50", "seconds=60",
                           "threads=3")
        self.assertEqual((result["loops"], result["operations"], result["bytes_written"]), (100, 300, 100 * 1000))
        self.assertEqual(self.files(), 200)

    def test_the_driver_deletes_and_stops(self) -> None:
        result = self.load("flow=delete", "files=100", "width=7", "mean_bytes=10", "loops=60", "seconds=60", "threads=4")
        self.assertEqual((result["operations"], self.files()), (60, 40))

    def test_the_driver_reads_and_appends(self) -> None:
        result = self.load("flow=open,read_whole,close", "mean_bytes=99999", "loops=5", "io_bytes=4096", "seconds=60")
        self.assertEqual((result["operations"], result["bytes_read"]), (15, 5 * 100_000))
        (self.folder / "d0/f0").unlink()
        (self.folder / "d0").rmdir()
        result = self.load("flow=append_sequential", "mean_bytes=0", "loops=9", "io_bytes=512", "seconds=60")
        self.assertEqual((result["bytes_written"], (self.folder / "d0/f0").stat().st_size), (9 * 512, 9 * 512))

    def test_the_driver_refuses_what_it_does_not_know(self) -> None:
        for wrong in ("flow=dance", "floor=create"):
            self.assertEqual(subprocess.run([filebench.LOAD, self.folder, wrong], check=False,
                                            capture_output=True).returncode, 2)

    def test_personalities_have_filebenchs_operations(self) -> None:
        made = filebench.definitions(Settings(1, 1, 2, self.folder), ("4k",))
        self.assertEqual({name: len(made[name].flow) for name in ("varmail", "fileserver", "webserver")},
                         {"varmail": 13, "fileserver": 11, "webserver": 31})
        for definition in made.values():
            text = filebench.workload_file(definition, self.folder, 1)
            self.assertEqual(text.count("flowop ") - text.count("finishoncount"), len(definition.flow))

    def test_every_suite_has_something(self) -> None:
        workloads = catalogue.all_workloads(Settings(1, 1, 2, self.folder), False)
        for suite in catalogue.SUITES:
            self.assertTrue([one for one in workloads if one.suite == suite] or catalogue.programs_of([suite]), suite)
        names = [(one.suite, one.name) for one in workloads]
        self.assertEqual(len(names), len(set(names)))

    def test_a_program_that_fails_is_told(self) -> None:
        program = programs.Program("sdr2", "nothing", ("false",), ("sh", "-c", "echo some; exit 3"), 1)
        self.assertIn("status 1", programs.run(program, False, self.folder, 60)["error"])
        quick = programs.run(program, True, self.folder, 60)
        self.assertEqual((quick["output"], quick["error"][:8]), ("some\n", "status 3"))

    def test_a_program_that_takes_too_long_cleans_up(self) -> None:
        program = programs.Program("sdr2", "slow", ("bash", "-c", "trap 'echo cleaned' EXIT; echo some; sleep 600"), (), 1)
        told = programs.run(program, False, self.folder, 0.5)
        self.assertEqual((told["output"], told["error"]), ("some\ncleaned\n", "not done after 0 s"))


class TestCommandLine(unittest.TestCase):
    def test_unknown_names_are_refused(self) -> None:
        for arguments in (["--suite", "nano"], ["--fs", "ntfs"], ["--suite", "micro", "--workload", "^nothing$"]):
            with mock.patch.object(sys, "argv", ["run", *arguments]), contextlib.redirect_stderr(io.StringIO()), \
                    self.assertRaises(SystemExit) as ended:
                main.main()
            self.assertEqual(ended.exception.code, 2)


if __name__ == "__main__":
    unittest.main()
