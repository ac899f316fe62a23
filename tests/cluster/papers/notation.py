"""The notation of papers/pipes_algebra.md section 9: streams and answers as one line of text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from cluster.fjord.batch import END, NEVER, START, Batch
from cluster.fjord.operator import Operator

Rows = list[tuple[Any, ...]]
"""Physical rows: start, end, values."""
FOREVER = 60
"""No instant of the vectors is later."""

_INTERVAL = re.compile(r"(\S+?)\[(\d+),(\d+|∞)\)")
_STAMPED = re.compile(r"(\w+)@(\d+)")


def physical(text: str, value: Callable[[str], Any] = str) -> Rows:
    """Read ``c[1,8) a[5,∞)``, or chronons as ``b@1 a@3``.

    >>> physical("c[1,8) a@5")
    [(1, 8, 'c'), (5, 6, 'a')]
    """
    found: Rows = []
    for word in text.split():
        if interval := _INTERVAL.fullmatch(word):
            name, start, end = interval.groups()
            found.append((int(start), NEVER if end == "∞" else int(end), value(name)))
        elif stamped := _STAMPED.fullmatch(word):
            found.append((int(stamped[2]), int(stamped[2]) + 1, value(stamped[1])))
        else:
            raise ValueError(f"{word!r} is no interval")
    return found


def logical(text: str) -> dict[int, Counter[str]]:
    """Read ``1:c 2:aaa``: the letters at each instant.

    >>> logical("1:c 2:aab")[2]
    Counter({'a': 2, 'b': 1})
    """
    return {int(instant): Counter(letters) for instant, letters in (word.split(":") for word in text.split())}


def snapshots(rows: Sequence[tuple[Any, ...]], instants: int = FOREVER) -> list[Counter[tuple[Any, ...]]]:
    """Return what physical rows say at each instant."""
    found: list[Counter[tuple[Any, ...]]] = [Counter() for _ in range(instants)]
    for start, end, *values in rows:
        for instant in range(start, min(end, instants)):
            found[instant][tuple(values)] += 1
    return found


def frame(rows: Rows, *columns: str, kind: type[pl.DataType] = pl.String) -> pl.DataFrame:
    """Return physical rows as operators take them."""
    schema = {START: pl.Int64, END: pl.Int64, **dict.fromkeys(columns or ("e",), kind)}
    return pl.DataFrame(rows, schema=schema, orient="row")


def answer(operators: Sequence[Operator] | Operator, *inputs: pl.DataFrame) -> Rows:
    """Feed whole inputs, one row at a time in the order of their starts, through operators in a row.

    The rows of the answer are checked to be in start order, never before a watermark, and never empty.
    """
    chain = [operators] if isinstance(operators, Operator) else list(operators)
    steps = sorted(
        ((start, port, place) for port, rows in enumerate(inputs) for place, start in enumerate(rows[START])),
    )
    batches = [(port, Batch(inputs[port].slice(place, 1), start)) for start, port, place in steps]
    batches += [(port, Batch(rows.clear(), NEVER)) for port, rows in enumerate(inputs)]
    found: Rows = []
    promised = -1
    for port, first in batches:
        batch = chain[0].transition(port, first)
        for operator in chain[1:]:
            batch = operator.transition(0, batch)
        starts = batch.rows[START].to_list()
        assert starts == sorted(starts), "in start order"
        assert all(start >= promised for start in starts), "never before an earlier watermark"
        promised = max(promised, batch.watermark_us)
        found.extend(batch.rows.rows())
    assert promised == NEVER, "the end of the inputs ends the answer"
    assert all(row[0] < row[1] for row in found), "no empty interval"
    return found
