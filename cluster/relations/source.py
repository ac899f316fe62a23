"""The interface of all sources of relations, and their errors. Each kind of source has a file of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl

from cluster.errors import ClusterError
from cluster.language.columns import Schema
from cluster.language.comparisons import Comparison
from protocols.wire.streams import FieldType

BATCH_ROWS = 20_000
"""Rows fetched from a database at once."""


class RelationSourceError(ClusterError):
    """A source that cannot be read as its relation needs."""


class SourceAwayError(RelationSourceError):
    """A source that cannot be reached, or does not answer in time. It may come back."""


class SourceStartingError(SourceAwayError):
    """A source that is not there yet, as after every start of the cluster."""


class SourceSchemaError(RelationSourceError):
    """A source that does not have what the relation needs.

    Parameters
    ----------
    message
        What is wrong; names the column, if it is about one.
    column
        Its name, or None.
    """

    def __init__(self, message: str, *, column: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.column = column


class SourceTooLargeError(RelationSourceError):
    """A source with more than a relation may hold."""


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column as its source has it.

    Parameters
    ----------
    name
        In the source.
    type
        What it is in Fjord. None if that is not known: it has no value but NULL.
    declared
        What the source calls its type.
    usable
        False if Fjord has no type for its values.
    """

    name: str
    type: FieldType | None
    declared: str
    usable: bool = True


@dataclass(frozen=True, slots=True)
class Limits:
    """What a source may take.

    Parameters
    ----------
    max_bytes
        Of a relation in memory.
    max_rows
        Of a relation.
    connect_seconds
        Until a connection stands.
    read_seconds
        Until all is read.
    clock
        Seconds that only go forward.
    """

    max_bytes: int = 2 * 1024**3
    max_rows: int = 50_000_000
    connect_seconds: int = 10
    read_seconds: float = 120.0
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)

    def check(self, rows: int, size: int) -> None:
        """Refuse what is too large.

        Raises
        ------
        SourceTooLargeError
            With the figures.
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


class RelationSource(Protocol):
    """A table somewhere else. Its methods block: call them in a thread."""

    @property
    def shown(self) -> str:
        """Where it is, without passwords."""

    def columns(self) -> tuple[SourceColumn, ...]:
        """Return the columns it has now.

        Raises
        ------
        RelationSourceError
            If it is away, or cannot be understood.
        """

    def rows(self, columns: Schema, condition: tuple[Comparison, ...] = ()) -> pl.DataFrame:
        """Return its rows as they are now.

        Parameters
        ----------
        columns
            What is wanted, in this order, of these types. Names have no case where the source agrees.
        condition
            Only rows for which all of it is true. Whatever an index of the source could serve is left to the source.

        Raises
        ------
        RelationSourceError
            If it is away, too large, or has no such column or values.
        """

    def estimate(self) -> int | None:
        """Return how many rows it has, about; None if that is not known.

        Raises
        ------
        RelationSourceError
            If it is away, or cannot be understood.
        """


@dataclass(slots=True)
class Deadline:
    """Until when something has to be done."""

    limits: Limits
    _until: float = field(init=False)

    def __post_init__(self) -> None:
        self._until = self.limits.clock() + self.limits.read_seconds

    @property
    def passed(self) -> bool:
        """True when it is too late."""
        return self.limits.clock() > self._until

    def check(self) -> None:
        """Refuse to go on when it is too late.

        Raises
        ------
        SourceAwayError
            Then.
        """
        if self.passed:
            raise SourceAwayError(f"it was not read within {self.limits.read_seconds:g} seconds")
