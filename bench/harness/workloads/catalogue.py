# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""All workloads, and which of them a suite has on which file systems."""

import os
import shutil

from .. import file_systems
from . import Settings, Workload, applications, filebench, fio, operations
from .programs import PROGRAMS

SUITES = ("micro", "apps", "latency", "ram", "metadata", "scale", "remote", "sdr", "failover", "kernel")
# Of a suite that measures the same as others, on other file systems.
REMOTE_WORKLOADS = ("fio read 1m direct", "fio write 1m, fsync at the end", "fio randread 4k direct",
                    "fio randwrite 4k, fsync each", "fio create 4k files", "operations")


def all_workloads(settings: Settings, is_quick: bool) -> list[Workload]:
    made = [*filebench.workloads(settings, is_quick), *fio.workloads(settings),
            *applications.workloads(settings), *operations.workloads(settings)]
    remote = [Workload(one.name, "remote", one.footprint_mib, one.run, one.programs)
              for one in made if one.name in REMOTE_WORKLOADS]
    return made + remote


def default_file_systems(suite: str, is_quick: bool) -> tuple[str, ...]:
    if suite == "ram":
        return file_systems.RAM
    if suite == "remote":
        return file_systems.REMOTE
    return file_systems.LOCAL_QUICK if is_quick else file_systems.LOCAL


def missing_programs(workload: Workload) -> str:
    missing = [program for program in workload.programs
               if shutil.which(program) is None and not os.access(program, os.X_OK)]
    return f"{', '.join(missing)} is missing (scripts/deps bench, or the build)" if missing else ""


def programs_of(suites: list[str]) -> list:
    return [program for program in PROGRAMS if program.suite in suites]
