"""The kinds of answers, and their marks where one plan of a query hands over to another."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

ROW = "row"
ERROR = "error"
"""The kind of a row with the reason why a query has no answer."""
OPEN, CLOSES = "open", "closes"
"""The kinds of a row whose end is not known yet, and of its end, which repeats query, start and text."""
CLOSES_EARLIER = "closes_earlier"
"""The end of a row that a plan knows since an instant at which it follows another one. Its start is that
instant; if no such row is open, it is the end of an earlier one with equal values, which has gone on there."""

SINCE, UNTIL = " since", " until"
"""Marks behind the kind of a row that begins, or ends, at the instant of a handover (cluster/fjord/seams.py)."""
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
