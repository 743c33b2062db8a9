# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""A load on a file system, for as long as the file `stop` is not there: ends with an error when anything it was told is
not so, with pauses while the file `calm` is there. The file `progress` has the number of rounds.

usage: failover_load.py files|sqlite FOLDER PROGRESS STOP CALM
"""

import os
import random
import sqlite3
import sys
import time
from collections.abc import Callable

ACCOUNTS = 20
BALANCE = 1000


def write_and_read(folder: str) -> Callable[[int], None]:
    def play(number: int) -> None:
        for name in ("a", "b", "c"):
            path = os.path.join(folder, name)
            data = f"{name} {number}\n".encode() * (1 << random.randrange(14))
            with open(path + ".new", "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.rename(path + ".new", path)
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            with open(descriptor, "rb") as file:
                assert file.read() == data, f"{path} differs in round {number}"
    return play


def move_money(folder: str) -> Callable[[int], None]:
    path = os.path.join(folder, "bank.sqlite")
    database = sqlite3.connect(path, isolation_level=None)
    for statement in ("PRAGMA journal_mode=delete", "PRAGMA synchronous=full",
                      "CREATE TABLE account (number INTEGER PRIMARY KEY, balance INTEGER)",
                      "CREATE TABLE history (round INTEGER PRIMARY KEY, source INTEGER, target INTEGER, amount INTEGER)"):
        database.execute(statement)
    database.executemany("INSERT INTO account VALUES (?, ?)", [(number, BALANCE) for number in range(ACCOUNTS)])
    expected = [BALANCE] * ACCOUNTS

    def check(connection: sqlite3.Connection, number: int) -> None:
        found = [balance for (balance,) in connection.execute("SELECT balance FROM account ORDER BY number")]
        assert found == expected, f"the balances differ in round {number}"
        (rounds,) = connection.execute("SELECT count(*) FROM history").fetchone()
        assert rounds == number, f"{rounds} transactions after round {number}"

    def play(number: int) -> None:
        source, target = random.sample(range(ACCOUNTS), 2)
        amount = random.randrange(100)
        database.execute("BEGIN")
        database.execute("UPDATE account SET balance = balance - ? WHERE number = ?", (amount, source))
        database.execute("UPDATE account SET balance = balance + ? WHERE number = ?", (amount, target))
        database.execute("INSERT INTO history VALUES (?, ?, ?, ?)", (number, source, target, amount))
        database.execute("COMMIT")
        expected[source] -= amount
        expected[target] += amount
        if number % 50 == 0:
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
            other = sqlite3.connect(path)
            check(other, number)
            assert other.execute("PRAGMA integrity_check").fetchall() == [("ok",)], f"damaged in round {number}"
            other.close()
    return play


def main() -> None:
    kind, folder, progress, stop, calm = sys.argv[1:]
    random.seed(1)
    play = {"files": write_and_read, "sqlite": move_money}[kind](folder)
    number = 0
    with open(progress, "w") as file:
        while not os.path.exists(stop):
            number += 1
            play(number)
            time.sleep(random.random() / (5 if os.path.exists(calm) else 100))
            os.pwrite(file.fileno(), f"{number}\n".encode(), 0)
    print(f"{number} rounds of {kind}")


main()
