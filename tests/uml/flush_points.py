#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Works on a file system whose device logs its writes (dm-log-writes), and replays that log.

usage: flush_points.py work FOLDER NAME               (NAME of the device, for the marks)
       flush_points.py replay LOG DEVICE COMMAND      (DEVICE holds what the log begins with)
       flush_points.py check FOLDER FILES

replay runs `COMMAND flush` with DEVICE as a loss of power after each flush may have left it, and `COMMAND mark N` after the
fsync of file N has returned.
"""
import os
import random
import struct
import subprocess
import sys

FILES = 16
MAGIC = 0x6A736677736872
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8


def content(number):
    return random.Random(number).randbytes((number * 7919) % 200_000 + 10)


def work(folder, name):
    late = random.Random(0)
    for number in range(FILES):
        # What nobody has made durable, and what is replaced and moved.
        for other in range(4):
            with open(f"{folder}/late-{late.randrange(20)}", "ab") as file:
                file.write(late.randbytes(late.randrange(50_000)))
            if other == 2 and number > 3:
                os.truncate(f"{folder}/kept-{number - 1}", len(content(number - 1)))
                os.rename(f"{folder}/kept-{number - 1}", f"{folder}/moved")
                os.rename(f"{folder}/moved", f"{folder}/kept-{number - 1}")
        file = os.open(f"{folder}/new", os.O_WRONLY | os.O_CREAT)
        os.write(file, content(number))
        os.rename(f"{folder}/new", f"{folder}/kept-{number}")
        os.fsync(file)
        os.close(file)
        subprocess.run(["dmsetup", "message", name, "0", "mark", str(number)], check=True)


def check(folder, files):
    for number in range(files):
        # A rename that was under way has it under its other name.
        path = f"{folder}/kept-{number}"
        if number == files - 1 and not os.path.exists(path):
            path = f"{folder}/moved"
        with open(path, "rb") as file:
            if file.read() != content(number):
                sys.exit(f"file {number} of {files}, whose fsync has returned, has another content")


def replay(log_path, device_path, command):
    points = marks = 0
    with open(log_path, "rb") as log, open(device_path, "r+b", buffering=0) as device:
        magic, version, entries, sector_bytes = struct.unpack("<QQQI", log.read(28))
        if magic != MAGIC or version != 1:
            sys.exit("this is no log of writes")
        position = sector_bytes
        for _ in range(entries):
            log.seek(position)
            sector, count, flags, data_bytes = struct.unpack("<QQQQ", log.read(32))
            mark = log.read(data_bytes).rstrip(b"\0").decode() if flags & MARK else ""
            position += sector_bytes
            if flags & DISCARD:
                continue
            if count > 0:
                log.seek(position)
                device.seek(sector * sector_bytes)
                device.write(log.read(count * sector_bytes))
                position += count * sector_bytes
            if flags & (FLUSH | FUA):
                points += 1
                subprocess.run([command, "flush"], check=True)
            elif flags & MARK and mark.isdigit():
                marks += 1
                subprocess.run([command, "mark", mark], check=True)
    print(f"{entries} entries, {points} points, {marks} of {FILES} marks")
    if marks != FILES or points < FILES:
        sys.exit("the log is too short to show anything")


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work(sys.argv[2], sys.argv[3])
    elif sys.argv[1] == "replay":
        replay(*sys.argv[2:5])
    else:
        check(sys.argv[2], int(sys.argv[3]))
