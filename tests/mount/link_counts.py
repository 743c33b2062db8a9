#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Files get and lose names while other programs list their directory and the kernel drops its caches: each file's link
count stays right, and link() does not fail. See docs/fuse.md, "Link counts".

usage: link_counts.py DIRECTORY ROUNDS      (the directory is made)
"""

import multiprocessing
import os
import sys
import time

FILES_OF_EACH = 4
LINKERS = 2
LISTERS = 3


def change_names(directory, number, rounds):
    """Exits with a message at the first wrong answer."""
    for i in range(rounds):
        name = f"{directory}/{number}.{i % FILES_OF_EACH}"
        other = f"{name}.other"
        try:
            os.link(name, other)
            if i % 2 == 0:
                os.unlink(other)
            else:
                temporary = f"{directory}/{number}.new"
                os.close(os.open(temporary, os.O_CREAT | os.O_EXCL))
                os.rename(temporary, other)  # takes that name from the file
            count = os.lstat(name).st_nlink
            if i % 2 == 1:
                os.unlink(other)
        except OSError as error:
            sys.exit(f"round {i}, {name}: {error}")
        if count != 1:
            sys.exit(f"round {i}, {name}: {count} links instead of 1")


def list_all(directory):
    while True:
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    pass


def drop_caches():
    while True:
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as control:
            control.write("2")
        time.sleep(0.01)


def main():
    directory, rounds = sys.argv[1], int(sys.argv[2])
    os.mkdir(directory)
    for number in range(LINKERS):
        for i in range(FILES_OF_EACH):
            os.close(os.open(f"{directory}/{number}.{i}", os.O_CREAT | os.O_EXCL))
    process = multiprocessing.Process
    # Daemons, which end with this program.
    others = [process(target=list_all, args=(directory,), daemon=True) for _ in range(LISTERS)]
    others.append(process(target=drop_caches, daemon=True))
    linkers = [process(target=change_names, args=(directory, number, rounds)) for number in range(LINKERS)]
    for each in others + linkers:
        each.start()
    for each in linkers:
        each.join()
    if not all(each.is_alive() for each in others):
        sys.exit("a program beside the linkers has failed: see above")
    if any(each.exitcode != 0 for each in linkers):
        sys.exit("link counts were wrong: see above")


if __name__ == "__main__":
    main()
