# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""File systems to compare with, mounted side by side over the same memory."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BIN = Path(os.environ.get("TIFFIN_BIN", ROOT / "build/release/bin"))


def run(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)


# Memory that a virtual machine has not used for a while can cost more than the operation that needs it: its host has to
# find it, which took 15 us a page on one. So what lies below the file systems is written to before anything is measured,
# and the free memory from which the kernel's caches will come before each turn.

def write_zeros(path: Path, size_mib: int) -> None:
    run("dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={size_mib}", "status=none")


def use_free_blocks(folder: Path, size_mib: int) -> None:
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


def use_free_memory(size_mib: int) -> None:
    len(b"\1" * (size_mib << 20))


@contextmanager
def mounted(folder: Path, *command: str | Path) -> Iterator[Path]:
    folder.mkdir()
    run(*command, folder)
    try:
        yield folder
    finally:
        run("umount", folder)


def server_of(folder: Path) -> int:
    """The process that serves a mounted tiffinfs."""
    status = subprocess.run([str(BIN / "tiffin"), "status", str(folder)], check=True,
                            capture_output=True, text=True).stdout
    return next(int(line.split()[1]) for line in status.splitlines()
                if line.startswith("process:"))


@contextmanager
def tiffin(folder: Path, device: str | Path, *options: str) -> Iterator[Path]:
    """umount(8) returns before the daemon has let go of the device: this waits for its end."""
    with mounted(folder, BIN / "mount.tiffin", *options, device):
        process = server_of(folder)
        yield folder
    while Path("/proc", str(process)).exists():
        time.sleep(0.01)


@contextmanager
def ext4_on_a_loop(work: Path, image_folder: Path, size_mib: int) -> Iterator[Path]:
    image = image_folder / "ext4.img"
    write_zeros(image, size_mib)
    run("mkfs.ext4", "-q", "-E", "nodiscard", image)
    with mounted(work / "ext4", "mount", "-o", "loop", image) as folder:
        yield folder


@contextmanager
def ext4_on_zram(work: Path, size_mib: int) -> Iterator[Path]:
    """A RAM disk without a thread of its own: the fairest to ext4."""
    device = subprocess.run(["zramctl", "--find", "--size", f"{size_mib}M"], check=True,
                            capture_output=True, text=True).stdout.strip()
    try:
        run("mkfs.ext4", "-q", device)
        with mounted(work / "ext4-zram", "mount", device) as folder:
            yield folder
    finally:
        run("zramctl", "--reset", device)


@contextmanager
def served(folder: Path, *command: str | Path) -> Iterator[Path]:
    """A FUSE file system whose server stays in the foreground: it has let go of everything at the end."""
    folder.mkdir()
    server = subprocess.Popen([str(part) for part in command] + [str(folder)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            if os.path.ismount(folder):
                break
            time.sleep(0.05)
        else:
            raise RuntimeError(f"{command[0]} does not mount")
        yield folder
    finally:
        run("umount", folder)
        server.wait()


@contextmanager
def passthrough(work: Path, program: str, source: Path) -> Iterator[Path]:
    """libfuse's example passthrough_hp on a folder: a FUSE file system that does nothing itself."""
    with served(work / "passthrough", program, "--foreground", source) as folder:
        yield folder


@contextmanager
def fuse2fs(work: Path, image_folder: Path, size_mib: int) -> Iterator[Path]:
    image = image_folder / "fuse2fs.img"
    write_zeros(image, size_mib)
    run("mkfs.ext4", "-q", "-E", "nodiscard", image)
    with served(work / "fuse2fs", "fuse2fs", "-f", "-o", "fakeroot", image) as folder:
        yield folder


ALWAYS_PEERS = ("tiffin-file", "tmpfs", "ext4")


@contextmanager
def peers(work: Path, volume_mib: int, also: dict[str, str],
          only: list[str] | None = None, options: str = "") -> Iterator[dict[str, Path]]:
    """Mounts "tiffin" (mem:), "tiffin-file" (an image in tmpfs), "tmpfs" and "ext4" (a loop device over an
    image in tmpfs), and of `also` what is given: "zram" (ext4 there), "passthrough" (the program), "fuse2fs".
    With `only`, "tiffin", those of the others that it names, and `also`. `options` are Tiffin's mount options.
    """
    named = ALWAYS_PEERS if only is None else only
    with_options = ["-o", options] if options else []
    with ExitStack() as stack:
        tmpfs = stack.enter_context(
            mounted(work / "tmpfs", "mount", "-t", "tmpfs", "-o", f"size={5 * volume_mib}m", "none"))
        folders = {"tiffin": stack.enter_context(tiffin(work / "tiffin", f"mem:{volume_mib}M", *with_options))}
        use_free_blocks(folders["tiffin"], volume_mib * 9 // 10)
        if "tiffin-file" in named:
            image = tmpfs / "tiffin.img"
            write_zeros(image, volume_mib)
            run(BIN / "mkfs.tiffin", image)
            folders["tiffin-file"] = stack.enter_context(tiffin(work / "tiffin-file", image, *with_options))
        if "tmpfs" in named:
            folders["tmpfs"] = tmpfs
        if "ext4" in named or also.get("passthrough"):
            folders["ext4"] = stack.enter_context(ext4_on_a_loop(work, tmpfs, volume_mib))
        if also.get("zram"):
            folders["ext4-zram"] = stack.enter_context(ext4_on_zram(work, volume_mib))
        if also.get("passthrough"):
            source = folders["ext4"] / "passthrough"
            source.mkdir()
            folders["passthrough"] = stack.enter_context(
                passthrough(work, also["passthrough"], source))
        if also.get("fuse2fs"):
            folders["fuse2fs"] = stack.enter_context(fuse2fs(work, tmpfs, volume_mib))
        yield folders


@contextmanager
def remote_peers(work: Path, volume_mib: int, address: str) -> Iterator[dict[str, Path]]:
    """Mounts "tiffin" (mem:) and "tiffin-remote" (a volume of a memory server, made anew)."""
    run(BIN / "mkfs.tiffin", "-f", address)
    with ExitStack() as stack:
        yield {
            "tiffin": stack.enter_context(tiffin(work / "tiffin", f"mem:{volume_mib}M")),
            "tiffin-remote": stack.enter_context(tiffin(work / "tiffin-remote", address)),
        }
