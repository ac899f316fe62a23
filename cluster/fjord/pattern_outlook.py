"""Whether a search can find a match at all, judged by which variables each row alone could be.

    PATTERN (A+ B* C{2})     rows  a b a c b a c      from the first row on: an A, and two of C behind it, so perhaps
                                   A     C     C      from the second c on: no A, so no match, without a step

A match has the least number of rows of each element, in order, before the deadline. If the rows up to there have not,
whatever else the conditions say, there is none.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.fjord.pattern_rows import Partition
    from cluster.operators.pattern_match import RowPattern


class PatternOutlook:
    """The rows that every match has.

    Parameters
    ----------
    pattern
        The pattern.
    variables
        Its variables, in the order of their bits.
    """

    def __init__(self, pattern: RowPattern, variables: tuple[str, ...]) -> None:
        self._most_rows = pattern.most_rows
        self._needed = [
            (1 << variables.index(element.variable), element.least) for element in pattern.elements if element.least
        ]

    def complete(self, partition: Partition, start: int, deadline_us: int, watermark_us: int) -> bool | None:
        """Return whether the rows from one on have what every match needs, in order and in time.

        Parameters
        ----------
        partition, start
            The row.
        deadline_us
            The first instant that is too late.
        watermark_us
            The rows before it are known, and no others.

        Returns
        -------
        bool or None
            None while that depends on rows to come. Otherwise no later row changes it.
        """
        last = self._last_needed(partition, start)
        most = self._most_rows
        if last is not None:
            return partition.stamp(last) < deadline_us and (most is None or last < start + most)
        known = watermark_us >= deadline_us or (most is not None and partition.end >= start + most)
        return False if known else None

    def _last_needed(self, partition: Partition, start: int) -> int | None:
        """Return the earliest row that can be the last one needed; None if none is known."""
        last = start - 1
        for bit, least in self._needed:
            rows = partition.fitting[bit]
            place = bisect_left(rows, last + 1) + least - 1
            if place >= len(rows):
                return None
            last = rows[place]
        return last
