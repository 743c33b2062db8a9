# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""fio: jobs of bandwidth and I/O operations, and the reproduction's latency experiment."""

import json
from functools import partial
from pathlib import Path

from . import Figure, Settings, Workload, output_of

LATENCY = {"seq_read": "read", "seq_write": "write", "rand_read": "randread", "rand_write": "randwrite"}
TIMED = ["--time_based"]
# Options of fio, and where its JSON has the figure.
JOBS = {
    "fio read 1m direct": (["--rw=read", "--bs=1m", "--direct=1", *TIMED], "read", "bw_bytes"),
    "fio write 1m, fsync at the end": (["--rw=write", "--bs=1m", "--end_fsync=1"], "write", "bw_bytes"),
    "fio randread 4k direct": (["--rw=randread", "--bs=4k", "--direct=1", *TIMED], "read", "iops"),
    "fio randwrite 4k, fsync each": (["--rw=randwrite", "--bs=4k", "--fsync=1", *TIMED], "write", "iops"),
    "fio randread 4k cached": (["--rw=randread", "--bs=4k", "--invalidate=0", "--pre_read=1", *TIMED], "read",
                               "iops"),
    "fio create 4k files": (["--ioengine=filecreate", "--filesize=4k", "--fallocate=none", "--openfiles=100"],
                            "read", "iops"),
}
QUANTILES = {"p50": "50.000000", "p90": "90.000000", "p99": "99.000000"}


def file_mib(settings: Settings) -> int:
    return max(32, int(4096 * settings.scale))


def files(settings: Settings) -> int:
    return max(2000, int(80_000 * settings.scale))


def runtime(settings: Settings) -> str:
    return f"--runtime={max(1, round(1000 * settings.seconds))}ms"


def result_of(folder: Path, *options: str) -> dict:
    text = output_of("fio", "--name=job", f"--directory={folder}", "--output-format=json+", "--unlink=1", *options)
    return json.loads(text[text.index("{"):])["jobs"][0]


def job(row: str, folder: Path, settings: Settings) -> list[Figure]:
    options, direction, figure = JOBS[row]
    if any("--ioengine" in option for option in options):
        more = [f"--nrfiles={files(settings)}"]
    else:
        more = ["--ioengine=psync", f"--size={file_mib(settings)}m"]
    result = result_of(folder, runtime(settings), *options, *more)[direction]
    if figure == "bw_bytes":
        return [Figure(row, "MB/s", result["bw_bytes"] / 1e6)]
    return [Figure(row, "1/s", result["iops"])]


def latency(pattern: str, folder: Path, settings: Settings) -> list[Figure]:
    """512 B, synchronous, one at a time, O_DIRECT."""
    if "read" in pattern:  # fio would write it by 512 bytes
        output_of("dd", "if=/dev/urandom", f"of={folder}/job.0.0", "bs=1M", f"count={file_mib(settings)}", "conv=fsync",
                  "status=none")
    result = result_of(folder, f"--rw={LATENCY[pattern]}", "--bs=512", "--ioengine=sync", "--iodepth=1", "--direct=1",
                       f"--size={file_mib(settings)}m", runtime(settings), *TIMED)
    times = result["read" if "read" in pattern else "write"]["clat_ns"]
    bins = {int(ns): count for ns, count in times["bins"].items()}
    return [Figure(f"latency {pattern} {name}", "us", times["percentile"][key] / 1000, True,
                   {"bins": bins} if name == "p50" else {})
            for name, key in QUANTILES.items()]


def workloads(settings: Settings) -> list[Workload]:
    footprint_mib = file_mib(settings) + 64
    made = [Workload(row, "metadata" if "create" in row else "micro",
                     footprint_mib if "create" not in row else 32 + files(settings) * 8 // 1024, partial(job, row),
                     ("fio",))
            for row in JOBS]
    return made + [Workload(f"latency {pattern}", "latency", footprint_mib, partial(latency, pattern), ("fio",))
                   for pattern in LATENCY]
