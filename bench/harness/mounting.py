# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Mounting and unmounting, for bench/."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lib.paths import BIN


def _interrupted(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def end_by_signals() -> None:
    """As Ctrl-C: what is mounted is unmounted. A signal that is ignored (nohup) stays so."""
    for one in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(one) != signal.SIG_IGN:
            signal.signal(one, _interrupted)


def run(*command: str | Path) -> None:
    """Raises CalledProcessError, whose stderr says why."""
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                   text=True)


def write_zeros(path: Path, size_mib: int) -> None:
    run("dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={size_mib}", "status=none")


def use_free_blocks(folder: Path, size_mib: int) -> None:
    """Writes to blocks that the file system has free, and waits until they are free again."""
    free_before = os.statvfs(folder).f_bfree
    write_zeros(folder / "zeros", size_mib)
    os.sync()
    (folder / "zeros").unlink()
    directory = os.open(folder, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    for _ in range(1000):
        if os.statvfs(folder).f_bfree >= free_before - 1024:  # what the folder has grown by
            return
        time.sleep(0.01)
    raise RuntimeError(f"{folder} does not get its blocks back")


def unmount(folder: Path) -> None:
    """Something may still have a file open for a moment; what hangs is detached, since there is more to measure."""
    for _ in range(50):
        if subprocess.run(["umount", str(folder)], check=False, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0:
            return
        if not os.path.ismount(folder):
            return
        time.sleep(0.1)
    subprocess.run(["umount", "--lazy", str(folder)], check=False)
    raise RuntimeError(f"{folder} is busy; it was detached")


@contextmanager
def mounted(folder: Path, *command: str | Path) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    run(*command, folder)
    try:
        yield folder
    finally:
        unmount(folder)


def server_of(folder: Path) -> int:
    """The process that serves a mounted tiffinfs."""
    status = subprocess.run([str(BIN / "tiffin"), "status", str(folder)], check=True,
                            capture_output=True, text=True).stdout
    return next(int(line.split()[1]) for line in status.splitlines()
                if line.startswith("process:"))


def is_running(process: int) -> bool:
    """One that waits for its parent to notice its end is not, and has let go of everything; init may take seconds."""
    try:
        return Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def tiffin(folder: Path, device: str | Path, *options: str) -> Iterator[Path]:
    """umount(8) returns before the daemon has let go of the device: this waits for its end."""
    with mounted(folder, BIN / "mount.tiffin", *options, device):
        process = server_of(folder)
        yield folder
    while is_running(process):
        time.sleep(0.01)


@contextmanager
def served(folder: Path, *command: str | Path) -> Iterator[Path]:
    """A FUSE file system whose server stays in the foreground: it has let go of everything at the end."""
    folder.mkdir(exist_ok=True)
    server = subprocess.Popen([str(part) for part in command] + [str(folder)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            if os.path.ismount(folder):
                break
            time.sleep(0.05)
        else:
            server.kill()
            raise RuntimeError(f"{command[0]} does not mount")
        yield folder
    finally:
        if os.path.ismount(folder):
            unmount(folder)
        server.wait()
