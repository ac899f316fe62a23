"""The interface of all sources of relations, and their errors. Each kind of source has a file of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn, Protocol

import polars as pl

from cluster.errors import ClusterError
from cluster.language.comparisons import Comparison
from cluster.operators.columns import Schema
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from protocols.errors import FjordError

Row = tuple[object, ...]

BATCH_ROWS = 20_000
"""Most rows of a database that are converted at once."""
BATCH_LETTERS = 16 * 1024**2
"""How long their texts are together, but for the last row's, whatever the rows before were like."""
LONGEST_TEXT = BATCH_LETTERS
"""How long one text of a database may be; the last one that is read is in memory whatever the other limits are."""


class RelationSourceError(ClusterError):
    """A source that cannot be read in the form its relation needs."""


class SourceAwayError(RelationSourceError):
    """A source that cannot be reached, or does not answer in time. It may come back."""


class SourceStartingError(SourceAwayError):
    """A source that does not exist yet, as after every start of the cluster."""


class SourceSchemaError(RelationSourceError):
    """A source that lacks a column or type of its relation.

    Parameters
    ----------
    message
        The reason; it names the column, if one is to blame.
    column
        Its name, or None.
    """

    def __init__(self, message: str, *, column: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.column = column


class SourceTooLargeError(RelationSourceError):
    """A source that is larger than a relation may be."""


class SourceRefusedError(RelationSourceError):
    """A source that relations may not read: a file, a host, or a setting that this cluster does not allow."""


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of a source.

    Parameters
    ----------
    name
        Its name in the source.
    type
        Its type in Fjord. None if that is not known because all its values are NULL.
    declared
        Its type in the words of the source.
    usable
        False if Fjord has no type for its values.
    place
        If its name is content, as in the first line of a CSV file, which may be anything: its number, from 1. Errors
        then give this number. None if errors may give the name.
    """

    name: str
    type: FieldType | None
    declared: str
    usable: bool = True
    place: int | None = None

    @property
    def shown(self) -> str:
        """What errors call it."""
        return repr(self.name) if self.place is None else str(self.place)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on reading a source.

    Parameters
    ----------
    max_bytes
        Most bytes of a relation in memory.
    max_rows
        Most rows of a relation.
    connect_seconds
        Most time until a connection is made.
    read_seconds
        Most time until all rows are read.
    clock
        A monotonic clock in seconds.
    """

    max_bytes: int = 2 * 1024**3
    max_rows: int = 50_000_000
    connect_seconds: int = 10
    read_seconds: float = 120.0
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)

    def check(self, rows: int, size: int) -> None:
        """Refuse a relation that is too large.

        Raises
        ------
        SourceTooLargeError
            If it is; the error has the figures.
        """
        if rows > self.max_rows:
            raise SourceTooLargeError(
                f"it has {rows:,} rows or more, the limit is {self.max_rows:,}",
                hint="take fewer rows, with QUERY 'SELECT ... WHERE ...'",
            )
        if size > self.max_bytes:
            raise SourceTooLargeError(
                f"it takes {size:,} bytes or more ({rows:,} rows), the limit is {self.max_bytes:,} bytes",
                hint="declare only the columns you need, take fewer rows, or raise `fjord cluster --max-relation`",
            )


def too_long() -> SourceTooLargeError:
    """Return the error about a text, or a blob, that is longer than :data:`LONGEST_TEXT`."""
    return SourceTooLargeError(
        f"it has a value that is longer than {LONGEST_TEXT:,} characters",
        hint="leave its column out, or take a part of it with QUERY 'SELECT substr(...) ...'",
    )


def batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Cut rows of a database, which come one by one, into batches that are small enough to be converted at once.

    Raises
    ------
    SourceTooLargeError
        If a text is longer than any may be.
    """
    batch: list[Row] = []
    letters = 0
    for row in rows:
        batch.append(row)
        for value in row:
            if isinstance(value, str | bytes):
                if len(value) > LONGEST_TEXT:
                    raise too_long()
                letters += len(value)
        if len(batch) == BATCH_ROWS or letters >= BATCH_LETTERS:
            yield batch
            batch, letters = [], 0
    if batch:
        yield batch


class RelationSource(Protocol):
    """A table outside Fjord. Its methods block: call them in a thread."""

    @property
    def shown(self) -> str:
        """Its address, without passwords."""

    def columns(self) -> tuple[SourceColumn, ...]:
        """Return its present columns.

        Raises
        ------
        RelationSourceError
            If it is away, or cannot be understood.
        """

    def rows(self, columns: Schema, condition: tuple[Comparison, ...] = ()) -> pl.DataFrame:
        """Return its present rows.

        Parameters
        ----------
        columns
            The wanted columns, in this order and of these types. Names have no case where the source agrees.
        condition
            Only rows that satisfy all of it. The source evaluates all parts that an index could serve.

        Raises
        ------
        RelationSourceError
            If it is away, too large, or has no such column or values.
        """

    def estimate(self) -> int | None:
        """Return the approximate number of its rows; None if it is not known.

        Raises
        ------
        RelationSourceError
            If it is away, or cannot be understood.
        """


@dataclass(slots=True)
class Deadline:
    """The time by which a task has to be finished."""

    limits: Limits
    _until: float = field(init=False)

    def __post_init__(self) -> None:
        self._until = self.limits.clock() + self.limits.read_seconds

    @property
    def passed(self) -> bool:
        """True if the time has passed."""
        return self.limits.clock() > self._until

    def check(self) -> None:
        """Raise an error if the time has passed.

        Raises
        ------
        SourceAwayError
            If it has.
        """
        if self.passed:
            raise SourceAwayError(f"it was not read within {self.limits.read_seconds:g} seconds")


@dataclass(frozen=True, slots=True)
class UnreadableSource:
    """A source of which only the error is known.

    Parameters
    ----------
    error
        The error of the statement that names it.
    """

    error: FjordError
    shown: str = "unknown"

    def columns(self) -> tuple[SourceColumn, ...]:
        """Raise the error."""
        self._fail()

    def rows(self, columns: Schema, condition: tuple[Comparison, ...] = ()) -> NoReturn:  # noqa: ARG002 - a source's signature
        """Raise the error."""
        self._fail()

    def estimate(self) -> int | None:
        """Raise the error."""
        self._fail()

    def _fail(self) -> NoReturn:
        hint = "drop the relation and create it anew"
        raise SourceSchemaError(f"its statement cannot be read: {self.error.message}; {hint}")
