"""The kinds of answers, their marks where plans hand over, and which answers lack rows.

**Which answers lack rows: an input that was not computed is missing for as long as its tuples would have mattered.**

    rows that were lost                    |first ... last|
    answers that lack them |first - delay ................. last + reach|

An error that repeats in each micro-batch is answered once a minute, so what else lacks rows waits for the next time,
or for the first micro-batch without the error. It waits in the bucket's state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

import msgspec
import polars as pl

from cluster.fjord.batch import NEVER

ROW = "row"
ERROR = "error"
"""The kind of a row with the reason why a query has no answer."""
OPEN, CLOSES = "open", "closes"
"""The kinds of a row whose end is not known yet, and of its end, which repeats query, start and text."""
CLOSES_EARLIER = "closes_earlier"
"""The end of a row that a plan knows since an instant at which it follows another one. Its start is that
instant; if no such row is open, it is the end of an earlier one with equal values, which has gone on there."""

SINCE, UNTIL = " since", " until"
"""Marks behind the kind of a row that begins, or ends, at a handover (cluster/fjord/waiting_answers.py)."""
CUT = "!"
"""Behind a mark: in its own plan, the row had begun before that instant, or goes on behind it."""


def based(kind: str) -> pl.Expr:
    """Return, for rows whose kinds are :data:`ROW` with marks, another kind with these marks.

    Parameters
    ----------
    kind
        The other kind, without marks.
    """
    return pl.lit(kind) + pl.col("kind").str.strip_prefix(ROW)


class MarkedAnswer(NamedTuple):
    """An answer, whose kind may have marks."""

    query: str
    start_us: int
    end_us: int
    kind: str
    row: str

    @property
    def base(self) -> str:
        """The kind without marks."""
        return self.kind.split(" ", 1)[0]

    @property
    def plain(self) -> MarkedAnswer:
        """The answer without marks."""
        earlier = self.base == CLOSES and SINCE in self.kind
        return self._replace(kind=CLOSES_EARLIER if earlier else self.base)


Span: TypeAlias = tuple[int, int]
"""The first and the last stamp of rows that were lost, in microseconds."""

_YEAR_1_US = -62_135_596_800_000_000
"""Answers since ever: an instant that can be written."""


class Lacking(msgspec.Struct, frozen=True, array_like=True):
    """Answers that lack rows, and have not been named yet.

    Parameters
    ----------
    reason
        Why.
    start_us, end_us
        They are valid within this interval.
    """

    reason: str
    start_us: int
    end_us: int


Unnamed: TypeAlias = Mapping[str, Lacking]
"""By identity of a query."""


def united(spans: Iterable[Span | None]) -> Span | None:
    """Return the span from the first to the last of all; None if there is none.

    Examples
    --------
    >>> united([(3, 5), None, (1, 2)])
    (1, 5)
    """
    found = [each for each in spans if each is not None]
    return (min(first for first, _ in found), max(last for _, last in found)) if found else None


def lacking(reason: str, lost: Span, reach_us: int | None, delay_us: int | None) -> Lacking:
    """Return what lacks rows that were lost.

    Parameters
    ----------
    reason
        Why they were.
    lost
        Their stamps.
    reach_us, delay_us
        How long after its stamp a tuple matters, and how long before it answers may begin that depend on it; None if
        there is no bound.

    Examples
    --------
    >>> lacking("it failed", (10, 20), 100, 5)
    Lacking(reason='it failed', start_us=5, end_us=120)
    """
    first_us, last_us = lost
    return Lacking(
        reason,
        _YEAR_1_US if delay_us is None else max(_YEAR_1_US, first_us - delay_us),
        NEVER if reach_us is None else min(NEVER, last_us + max(1, reach_us)),
    )


def with_more(before: Lacking | None, more: Lacking) -> Lacking:
    """Return what lacks rows after a further loss, for whose reason it is then named."""
    if before is None:
        return more
    return Lacking(more.reason, min(before.start_us, more.start_us), max(before.end_us, more.end_us))
