# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""The file systems that are compared, each made anew on memory for each measurement.

Those of the kernel lie on a loop device over an image in tmpfs, or on a zram device, all on the same one, one after the
other. Tiffin lies in memory of its own (mem:), on the same devices, and on memory of a tiffind on this machine.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lib.paths import BIN
from lib.remote import start_tiffind

from .mounting import mounted, run, served, tiffin, use_free_blocks, write_zeros

PASSTHROUGH = os.environ.get("TIFFIN_PASSTHROUGH", "/opt/tiffin/fuse3/bin/passthrough_hp")


class Devices:
    """RAM disks and memory servers, made when first asked for, and the folder of the mount points."""

    def __init__(self, work: Path, size_mib: int, stack: ExitStack, tiffin_options: str = "", remote: str = "") -> None:
        self.work = work
        self.size_mib = size_mib
        self.tiffin_options = tiffin_options
        self.remote_address = remote
        self._stack = stack
        self._made: dict[str, str] = {}
        self._failed: dict[str, Exception] = {}

    def mount_point(self, name: str) -> Path:
        return self.work / name

    def _once(self, name: str, make: Callable[[ExitStack], str]) -> str:
        """What `make` has returned. A failure leaves nothing behind, and is raised again each time: many steps ask."""
        if name in self._failed:
            raise self._failed[name]
        if name not in self._made:
            try:
                with ExitStack() as own:
                    self._made[name] = make(own)
                    self._stack.enter_context(own.pop_all())
            except (OSError, subprocess.SubprocessError, RuntimeError) as error:
                self._failed[name] = error
                raise
        return self._made[name]

    def _make_loop(self, stack: ExitStack) -> str:
        tmpfs = stack.enter_context(mounted(
            self.work / "images", "mount", "-t", "tmpfs", "-o", f"size={self.size_mib + 64}m", "none"))
        image = tmpfs / "image"
        write_zeros(image, self.size_mib)
        device = subprocess.run(["losetup", "--find", "--show", str(image)], check=True, capture_output=True,
                                text=True).stdout.strip()
        stack.callback(run, "losetup", "--detach", device)
        return device

    def _make_zram(self, stack: ExitStack) -> str:
        device = subprocess.run(["zramctl", "--find", "--size", f"{self.size_mib}M"], check=True,
                                capture_output=True, text=True).stdout.strip()
        stack.callback(run, "zramctl", "--reset", device)
        return device

    def _start_tiffind(self, stack: ExitStack) -> str:
        return start_tiffind(stack, self.work / "tiffind", volume_mib=self.size_mib)

    def loop(self) -> str:
        return self._once("loop", self._make_loop)

    def zram(self) -> str:
        return self._once("zram", self._make_zram)

    def volume(self, transport: str) -> str:
        """The address of a volume of a memory server on this machine."""
        address = self._once("tiffind", self._start_tiffind).replace("transport=tcp", f"transport={transport}")
        return f"{address}&runtime_directory={self.work}/tiffind/run" if transport == "shm" else address


@dataclass(frozen=True)
class FileSystem:
    name: str
    what: str
    mount: Callable  # (devices, mount point, footprint in MiB) -> context manager of the folder
    programs: tuple[str, ...] = ()
    kernel: str = ""  # as in /proc/filesystems
    commits: bool = True  # False: a sync of the mount does not make durable what was written, so no row may say that it did

    def missing(self) -> str:
        """Why it cannot be mounted here; empty if it can be."""
        for program in self.programs:
            if shutil.which(program) is None and not os.access(program, os.X_OK):
                return f"{program} is missing (scripts/deps bench, or the build)"
        known = [line.split()[-1] for line in Path("/proc/filesystems").read_text().splitlines()]
        if self.kernel and self.kernel not in known and \
                subprocess.run(["modprobe", "-q", self.kernel], check=False, stderr=subprocess.DEVNULL).returncode != 0:
            return f"the kernel has no {self.kernel}"
        if "losetup" in self.programs and not Path("/dev/loop-control").exists():
            return "the kernel has no loop devices"
        if "zram" in self.name and not Path("/sys/class/zram-control").exists():
            return "the kernel has no zram"
        return ""


# For each mkfs: nothing left to do in the background, nothing given back to the host.
MKFS = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-i", "4096", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
    "xfs": ["mkfs.xfs", "-q", "-f", "-K"],
    "btrfs": ["mkfs.btrfs", "-q", "-f", "-K"],
}


def on_device(kind: str, disk: str, options: str) -> Callable:
    @contextmanager
    def mount(devices: Devices, folder: Path, _footprint_mib: int) -> Iterator[Path]:
        device = getattr(devices, disk)()
        run(*MKFS[kind], device)
        with mounted(folder, "mount", "-t", kind, "-o", options, device):
            yield folder
    return mount


@contextmanager
def on_tmpfs(devices: Devices, folder: Path, _footprint_mib: int) -> Iterator[Path]:
    with mounted(folder, "mount", "-t", "tmpfs", "-o", f"size={devices.size_mib}m,nr_inodes=0", "none"):
        yield folder


@contextmanager
def on_fuse2fs(devices: Devices, folder: Path, _footprint_mib: int) -> Iterator[Path]:
    run(*MKFS["ext4"], devices.loop())
    with served(folder, "fuse2fs", "-f", "-o", "fakeroot", devices.loop()):
        yield folder


@contextmanager
def on_passthrough(devices: Devices, folder: Path, footprint_mib: int) -> Iterator[Path]:
    with on_device("ext4", "loop", "data=ordered")(devices, devices.mount_point("below"), footprint_mib) as below, \
            served(folder, PASSTHROUGH, "--foreground", below):
        yield folder


def tiffin_on(device: Callable[[Devices], str], *more_options: str) -> Callable:
    @contextmanager
    def mount(devices: Devices, folder: Path, footprint_mib: int) -> Iterator[Path]:
        address = device(devices)
        if not address.startswith("mem:"):
            run(BIN / "mkfs.tiffin", "-q", "-f", "-K", address)
        options = ",".join([*more_options, *filter(None, [devices.tiffin_options])])
        with tiffin(folder, address, *(["-o", options] if options else [])):
            if address.startswith("mem:"):
                use_free_blocks(folder, min(footprint_mib, devices.size_mib * 8 // 10))
            yield folder
    return mount


def in_memory(devices: Devices) -> str:
    return f"mem:{devices.size_mib}M"


TIFFIN_PROGRAMS = (str(BIN / "mount.tiffin"), str(BIN / "mkfs.tiffin"))
REMOTE_PROGRAMS = (*TIFFIN_PROGRAMS, str(BIN / "tiffind"))

ALL = {fs.name: fs for fs in (
    FileSystem("ext4-ordered", "ext4 data=ordered, loop device", on_device("ext4", "loop", "data=ordered"),
               ("mkfs.ext4", "losetup"), "ext4"),
    FileSystem("ext4-journal", "ext4 data=journal, loop device", on_device("ext4", "loop", "data=journal"),
               ("mkfs.ext4", "losetup"), "ext4"),
    FileSystem("xfs", "XFS, loop device", on_device("xfs", "loop", "defaults"), ("mkfs.xfs", "losetup"), "xfs"),
    FileSystem("btrfs", "Btrfs, loop device", on_device("btrfs", "loop", "nodiscard"), ("mkfs.btrfs", "losetup"),
               "btrfs"),
    FileSystem("tmpfs", "tmpfs: the ceiling", on_tmpfs),
    # A sync of either does not sync the ext4 below.
    FileSystem("fuse2fs", "ext4 through FUSE, loop device", on_fuse2fs, ("fuse2fs", "mkfs.ext4", "losetup"), "fuse",
               commits=False),
    FileSystem("passthrough", "libfuse's passthrough_hp over ext4-ordered", on_passthrough,
               (PASSTHROUGH, "mkfs.ext4", "losetup"), "fuse", commits=False),
    FileSystem("tiffin", "Tiffin through FUSE, mem:", tiffin_on(in_memory), TIFFIN_PROGRAMS, "fuse"),
    FileSystem("tiffin-loop", "Tiffin through FUSE, the loop device of ext4", tiffin_on(lambda d: d.loop()),
               (*TIFFIN_PROGRAMS, "losetup"), "fuse"),
    FileSystem("tiffin-asleep", "Tiffin through FUSE, mem:, cpu_latency_us=none",
               tiffin_on(in_memory, "cpu_latency_us=none"), TIFFIN_PROGRAMS, "fuse"),
    FileSystem("ext4-ordered-zram", "ext4 data=ordered, zram", on_device("ext4", "zram", "data=ordered"),
               ("mkfs.ext4", "zramctl"), "ext4"),
    FileSystem("ext4-journal-zram", "ext4 data=journal, zram", on_device("ext4", "zram", "data=journal"),
               ("mkfs.ext4", "zramctl"), "ext4"),
    FileSystem("tiffin-zram", "Tiffin through FUSE, the zram device of ext4", tiffin_on(lambda d: d.zram()),
               (*TIFFIN_PROGRAMS, "zramctl"), "fuse"),
    FileSystem("tiffin-shm", "Tiffin on remote memory, transport=shm", tiffin_on(lambda d: d.volume("shm")),
               REMOTE_PROGRAMS, "fuse"),
    FileSystem("tiffin-sdr", "Tiffin on remote memory, transport=sdr, loopback", tiffin_on(lambda d: d.volume("sdr")),
               REMOTE_PROGRAMS, "fuse"),
    FileSystem("tiffin-tcp", "Tiffin on remote memory, transport=tcp, loopback", tiffin_on(lambda d: d.volume("tcp")),
               REMOTE_PROGRAMS, "fuse"),
    FileSystem("tiffin-remote", "Tiffin on the volume of --remote; what it holds is lost",
               tiffin_on(lambda d: d.remote_address), TIFFIN_PROGRAMS, "fuse"),
)}

LOCAL = ("ext4-ordered", "ext4-journal", "xfs", "btrfs", "tmpfs", "fuse2fs", "passthrough", "tiffin", "tiffin-loop",
         "tiffin-asleep")
LOCAL_QUICK = ("ext4-ordered", "ext4-journal", "tmpfs", "passthrough", "tiffin", "tiffin-loop")
RAM = ("ext4-ordered", "ext4-journal", "tiffin-loop", "ext4-ordered-zram", "ext4-journal-zram", "tiffin-zram")
REMOTE = ("tiffin", "tiffin-shm", "tiffin-sdr", "tiffin-tcp")


def needed_mib(names: list[str], size_mib: int, footprint_mib: int) -> int:
    """Memory at once: each device that stays, one file system with memory of its own, and the kernel's cache of it."""
    stays = sum(any(word in name for name in names) for word in ("zram", "-shm"))
    stays += any(name.startswith(("ext4-", "xfs", "btrfs", "fuse2fs", "passthrough", "tiffin-loop")) for name in names)
    own = any(name in ("tmpfs", "tiffin", "tiffin-asleep") for name in names)
    return (stays + own) * size_mib + 2 * footprint_mib
