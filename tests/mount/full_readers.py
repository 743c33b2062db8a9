# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""What full_readers.sh does on its mount. usage: full_readers.py MOUNTPOINT SECONDS SEED"""
import errno
import mmap
import multiprocessing
import os
import random
import sys
import time

BLOCK = 4096
FILE_BLOCKS = 768
# A request of the kernel's is at most 1 MiB; each block lies in another place.
REQUEST = 1 << 20


def say_which(block, version):
    return (b"%08d %08d " % (block, version)) * (BLOCK // 18) + bytes(BLOCK % 18)


def fragment(folder):
    """Leaves holes of one block each, and puts the file into them."""
    small = [f"{folder}/small-{i}" for i in range(2 * FILE_BLOCKS + 200)]
    for name in small:
        with open(name, "wb", buffering=0) as file:
            file.write(bytes(BLOCK))
            os.fsync(file.fileno())  # one after the other on the device, too
    filler = os.open(folder + "/filler", os.O_WRONLY | os.O_CREAT)
    size = 0
    for step in (1 << 20, 65536, BLOCK):
        try:
            while True:
                os.posix_fallocate(filler, size, step)
                size += step
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    os.close(filler)
    for name in small[::2]:
        os.unlink(name)
    os.sync()
    file = os.open(folder + "/file", os.O_RDWR | os.O_CREAT)
    for block in range(FILE_BLOCKS):
        os.pwrite(file, say_which(block, 0), block * BLOCK)
    os.fsync(file)
    os.close(file)


def read(folder, counter, until, seed):
    del seed
    file = os.open(folder + "/file", os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, REQUEST)
    while time.monotonic() < until:
        for offset in range(0, FILE_BLOCKS * BLOCK, REQUEST):
            if os.preadv(file, [buffer], offset) != REQUEST:
                sys.exit("a short read")
            for block in range(0, REQUEST // BLOCK, 17):
                text = buffer[block * BLOCK:block * BLOCK + 8]
                if text != b"%08d" % (offset // BLOCK + block):
                    sys.exit(f"block {offset // BLOCK + block} is {text}")
        counter.value += 1


def overwrite(folder, counter, until, seed):
    choices = random.Random(seed)
    file = os.open(folder + "/file", os.O_RDWR | os.O_DIRECT)
    buffer = mmap.mmap(-1, 64 * BLOCK)
    while time.monotonic() < until:
        count = choices.choice((1, 8, 64))
        first = choices.randrange(FILE_BLOCKS - count)
        for block in range(count):
            buffer[block * BLOCK:(block + 1) * BLOCK] = say_which(first + block, counter.value)
        try:
            os.pwritev(file, [memoryview(buffer)[:count * BLOCK]], first * BLOCK)
            counter.value += 1
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def change(folder, counter, until, seed):
    """Attributes of the file that is read, and files that come and go."""
    choices = random.Random(seed)
    while time.monotonic() < until:
        name = f"{folder}/new-{seed}-{choices.randrange(20)}"
        try:
            os.setxattr(folder + "/file", f"user.{choices.randrange(8)}", os.urandom(900))
            with open(name, "wb", buffering=0) as file:
                file.write(os.urandom(choices.randrange(40000)))
            os.truncate(name, choices.randrange(20000))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        if choices.random() < 0.5 and os.path.exists(name):
            os.unlink(name)
        counter.value += 1


def main():
    folder, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    fragment(folder)
    until = time.monotonic() + seconds
    workers = []
    for number, work in enumerate((read, read, read, overwrite, overwrite, change, change)):
        counter = multiprocessing.Value("Q", 0)
        process = multiprocessing.Process(target=work, args=(folder, counter, until, seed + number),
                                          daemon=True)
        process.start()
        workers.append((work.__name__, process, counter))
    # Long after the time is up: nobody waits for ever.
    for name, process, counter in workers:
        process.join(seconds + 60)
        if process.is_alive():
            sys.exit(f"{name} hangs, after {counter.value} rounds")
        if process.exitcode != 0 or counter.value == 0:
            sys.exit(f"{name}: status {process.exitcode} after {counter.value} rounds")
    print(", ".join(f"{name} {counter.value}" for name, _, counter in workers))


main()
