"""Answers that come to the driver as rows, and answers that tasks write into files: which are which, and their order.

Without state:

    task 0    file      ─┐                                     one behind the other, if each query's starts allow it
    task 1    rows      ─┼─>  file, rows of 1 and 2, file
    task 2    rows      ─┤                                     else all files are read, and their rows put in order
    task 3    file      ─┘

Both give each row the same number, which is also the one it would have if no task had written a file.

With state, the driver reads all files. They only save the answers the way through Java, which copies each byte half a
dozen times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import polars as pl

from cluster.fjord.collecting import HostOutput, in_order, stored_columns
from cluster.fjord.counters import Counters
from cluster.fjord.kinds import ERROR, ROW
from cluster.storage.results_table import Part
from cluster.storage.unnumbered_answers import (
    Spans,
    UnnumberedFile,
    follow_each_other,
    read_unnumbered,
    spans_of,
    write_unnumbered,
)
from protocols.event_log import get_logger

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CollectedOutputs:
    """The outputs of the tasks or buckets of a micro-batch.

    Parameters
    ----------
    pieces
        The answers of each, in the order of their numbers: files, or rows with columns query, start_us, end_us, kind,
        row.
    counters
        What operators did, as far as it is reported now.
    """

    pieces: Sequence[Part]
    counters: Counters

    @property
    def in_files(self) -> bool:
        """Whether there are files among them."""
        return any(isinstance(piece, UnnumberedFile) for piece in self.pieces)

    def rows(self) -> pl.DataFrame:
        """Return all answers, each query's in start order.

        Raises
        ------
        OSError
            If a file cannot be read.
        """
        return in_order(read_unnumbered(each) if isinstance(each, UnnumberedFile) else each for each in self.pieces)

    def parts(self) -> list[Part]:
        """Return the answers in as few parts as follow each other, each query's in start order.

        Raises
        ------
        OSError
            If a file has to be read and cannot be.
        """
        parts: list[Part] = []
        for written, pieces in groupby(self.pieces, lambda piece: isinstance(piece, UnnumberedFile)):
            together = list(pieces)
            parts.extend(together if written else [in_order(_frames(together))])
        # Each of several tasks may report the same error, which counts once.
        if _with_errors(parts) or not follow_each_other(map(_spans, parts)):
            return [self.rows()]
        return parts


def written_by_task(output: HostOutput, folder: str, most: int) -> UnnumberedFile | None:
    """Write the answers of a task into a file if there are many; None if it is to return them.

    Parameters
    ----------
    output
        The output of the task, or of a bucket.
    folder
        Where such files are; empty if the plan wants none.
    most
        How many answers it returns.
    """
    if not folder or sum(piece.height for piece in output.answers) <= most:
        return None
    if any((piece["kind"] != ROW).any() for piece in output.answers):
        return None  # errors, open rows and their ends: files have no kinds
    rows = in_order(map(stored_columns, output.answers))
    try:
        return write_unnumbered(folder, rows)
    except OSError as error:
        log.warning("a task cannot write its answers, and returns them", folder=folder, error=str(error))
        return None


def _frames(pieces: Iterable[Part]) -> Iterator[pl.DataFrame]:
    return (piece for piece in pieces if isinstance(piece, pl.DataFrame))


def _with_errors(parts: Sequence[Part]) -> bool:
    return any((each["kind"] == ERROR).any() for each in _frames(parts))


def _spans(part: Part) -> Spans:
    return spans_of(part) if isinstance(part, pl.DataFrame) else part.spans
