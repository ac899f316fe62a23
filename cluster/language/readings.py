"""How often a query reads streams, with WITH and derived streams written out: an upper bound on copies of a tuple.

A name for a query that uses another name twice doubles the number; twenty such names make it a million. Plans share
what is named twice, so they stay small; the rows that they make do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot import exp

    from cluster.language.scope import Context

MOST_READINGS = 1_000
"""Streams and relations that a query may read, each counted as often as it does."""


@dataclass(slots=True)
class Readings:
    """How often streams and relations have been read so far."""

    count: int = 0

    def add(self, readings: int, at: exp.Expr, context: Context) -> None:
        """Count a name in FROM that stands for so many.

        Raises
        ------
        FjordSqlError
            If those are too many in all.
        """
        self.count += readings
        if self.count > MOST_READINGS:
            raise context.error(
                at,
                f"with every name written out, this query reads streams {self.count:,} times or more; at most "
                f"{MOST_READINGS:,} are possible",
                "what doubles with every step can be computed at once: multiply instead of repeating UNION ALL",
            )
