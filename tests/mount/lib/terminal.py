# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Runs a program on a terminal of its own, ends it, and prints what it drew last.

usage: terminal.py ROWS COLUMNS FRAMES END PROGRAM [ARGUMENT...]

  FRAMES  so many times it must have drawn before it is ended
  END     ctrl-c, q, term (the signal), self (it ends by itself), or both (Ctrl-C and the signal, while the program itself
          does not run, but its child does)

Fails when the terminal is not as it was before, when a line is longer than the terminal is wide or a frame higher, or
when the program does not end. The exit status is that of the program.
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

LIMIT_S = 60
ENTER, LEAVE, HOME = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[H"


def fail(text: str, output: bytes) -> None:
    sys.exit(f"terminal.py: {text}; the output is {output!r}")


def state_of(process: int) -> str:
    with open(f"/proc/{process}/stat", encoding="ascii") as stat:
        return stat.read().rpartition(")")[2].split()[0]


def end_by_both(master: int, program: int) -> None:
    with open(f"/proc/{program}/task/{program}/children", encoding="ascii") as children:
        (child,) = map(int, children.read().split())
    os.kill(program, signal.SIGSTOP)
    os.write(master, b"\x03")
    os.kill(program, signal.SIGTERM)
    while state_of(child) != "Z":
        time.sleep(0.01)
    os.kill(program, signal.SIGCONT)


def main() -> int:
    rows, columns, frames, end = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    modes = termios.tcgetattr(slave)
    child = os.fork()
    if child == 0:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for standard in range(3):
            os.dup2(slave, standard)
        os.execvp(sys.argv[5], sys.argv[5:])
    output = b""
    is_told = end == "self"
    deadline = time.monotonic() + LIMIT_S
    status = None
    while status is None:
        if select.select([master], [], [], 0.05)[0]:
            output += os.read(master, 65536)
        if not is_told and output.count(HOME) >= frames:
            is_told = True
            if end == "both":
                end_by_both(master, child)
            elif end == "term":
                os.kill(child, signal.SIGTERM)
            else:
                os.write(master, {"ctrl-c": b"\x03", "q": b"q"}[end])
        ended, result = os.waitpid(child, os.WNOHANG)
        if ended:
            status = result
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            fail("the program does not end", output)
    while select.select([master], [], [], 0.2)[0]:
        output += os.read(master, 65536)
    if termios.tcgetattr(slave) != modes:
        fail("the terminal's modes have changed", output)
    if output.count(ENTER) != output.count(LEAVE) or b"\x1b[?25h" not in output[output.rfind(b"\x1b[?25l"):]:
        fail("the screen is not as it was", output)
    inside, after = output[:output.rfind(LEAVE)], output[output.rfind(LEAVE) + len(LEAVE):]
    lines: list[bytes] = []
    for frame in inside.split(HOME)[1:]:
        lines = re.sub(rb"\x1b\[\??\d*[A-Za-z]", b"", frame).replace(b"\r", b"").split(b"\n")
        if len(lines) > rows or max(map(len, lines)) > columns:
            fail(f"a frame does not fit: {lines}", output)
    sys.stdout.write((b"\n".join(lines) + b"\n" + after).decode())
    return os.waitstatus_to_exitcode(status)


sys.exit(main())
