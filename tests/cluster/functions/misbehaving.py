"""Functions that do what no function should, each in its way; importing this prints, too."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from os import system
from pathlib import Path
from typing import Any

import polars as pl

print("this is no answer")  # noqa: T201
__all__ = ["system"]
NUMBER = 5


def same(x: pl.Series) -> pl.Series:
    return x


def raises_above_two(x: pl.Series) -> pl.Series:
    if (x > 2).any():
        raise ValueError("more than\ntwo")
    return x


def shorter(x: pl.Series) -> pl.Series:
    return x.head(1)


def texts(x: pl.Series) -> pl.Series:
    return x.cast(pl.String)


def scalar(x: pl.Series) -> Any:
    return x.sum()


def no_numbers(x: pl.Series) -> pl.Series:
    return pl.Series([float("nan"), float("inf"), -float("inf"), -0.0, None, 1.0][: len(x)])


def loops(x: pl.Series) -> pl.Series:
    while True:
        pass


def waits_in_c(x: pl.Series) -> pl.Series:
    """Hold Python's lock in a call of C that never returns, and ignore what can be ignored."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    ctypes.PyDLL(None).sleep(3600)
    return x


def loops_above_two(x: pl.Series) -> pl.Series:
    while (x > 2).any():
        pass
    return x


def ends(x: pl.Series) -> pl.Series:
    os._exit(3)


def exits(x: pl.Series) -> pl.Series:
    sys.exit("enough")


def crashes(x: pl.Series) -> pl.Series:
    ctypes.string_at(0)
    return x


def takes_memory(x: pl.Series) -> pl.Series:
    return pl.Series(bytearray(4 * 1024**3))


def prints(x: pl.Series) -> pl.Series:
    sys.stdout.write("x" * 100_000)
    sys.stdout.flush()
    os.write(1, b"\0" * 64)
    os.write(2, b"error")
    return x


def changes_its_argument(x: pl.Series) -> pl.Series:
    x[0] = 99.0
    return x


def changes_polars(x: pl.Series) -> pl.Series:
    pl.Series.__len__ = lambda _: 7  # type: ignore[method-assign]
    return x


def leaves_a_child(x: pl.Series) -> pl.Series:
    if os.fork() == 0:
        time.sleep(3600)
    time.sleep(3600)
    return x


def leaves_its_session(x: pl.Series) -> pl.Series:
    """Start processes in sessions of their own, of which one has lost its parent; note their numbers in a file."""
    program = [sys.executable, "-S", "-c", "import time; time.sleep(3600)"]
    started = [subprocess.Popen(program, start_new_session=True).pid]
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if (orphan := os.fork()) == 0:
            time.sleep(3600)
        os.write(writing, str(orphan).encode())
        os._exit(0)
    started.append(int(os.read(reading, 20)))
    Path(str(x[0])).write_text(" ".join(map(str, started)))
    time.sleep(3600)
    return x


def variables(x: pl.Series) -> pl.Series:
    return pl.Series([",".join(sorted(os.environ))] * len(x))


def numbers(x: pl.Series) -> pl.Series:
    return pl.Series([os.getpid()] * len(x))


def called_with(x: pl.Series) -> pl.Series:
    """Return how many rows came at once."""
    return pl.Series([len(x)] * len(x))


def nulls_are_five(x: pl.Series) -> pl.Series:
    return x.fill_null(5.0)


def long_text(x: pl.Series) -> pl.Series:
    return pl.Series(["y" * 10_000, "y" * 10_001])


def whole(x: pl.Series) -> pl.Series:
    return x.cast(pl.Int16)


def huge(x: pl.Series) -> pl.Series:
    return pl.Series([2**63] * len(x), dtype=pl.UInt64)


def nothing(x: pl.Series) -> pl.Series:
    return pl.Series([None] * len(x))


def noted(x: pl.Series) -> pl.Series:
    """Add a line to a file that a test names in the first row."""
    with Path(x[0]).open("a") as file:
        file.write("called\n")
    return x


def _hidden(x: pl.Series) -> pl.Series:
    return x
