# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""What is only in the page cache is no hole for tar --sparse, which does not read a file that has no blocks.

usage: in_memory_is_no_hole.py FOLDER
"""

import mmap
import os
import subprocess
import sys
import tempfile

NAMES = ("written", "synced", "mapped")


def archive(folder: str) -> None:
    for name in NAMES:
        file = f"--file={folder}/{name}.tar"
        subprocess.run(["tar", "--create", "--sparse", file, name], check=True)
        subprocess.run(["tar", "--compare", file, name], check=True)


def main() -> None:
    os.chdir(sys.argv[1])
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        # It does not inherit the files: closing one of them would have it written back.
        os.read(reading, 1)
        with tempfile.TemporaryDirectory() as folder:
            archive(folder)
        return
    files = [os.open(name, os.O_RDWR | os.O_CREAT) for name in NAMES]
    os.write(files[0], os.urandom(100000))
    os.write(files[1], os.urandom(100000))
    os.fsync(files[1])
    os.ftruncate(files[2], 65536)
    with mmap.mmap(files[2], 65536) as memory:
        memory[40000] = 2
    os.write(writing, b"x")
    if os.waitpid(child, 0)[1] != 0:
        sys.exit("see above")


main()
