"""Streams and relations that follow a script: what comes, when it pauses, and when the process crashes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from cluster.errors import ClusterError
from cluster.fjord.batch import ALWAYS, NEVER, START
from cluster.fjord.scalars import POLARS_TYPES
from cluster.local.engine import RelationRows
from cluster.operators.columns import Column, Schema
from protocols.errors import SchemaError
from protocols.text.quantities import parse_duration_us
from protocols.wire.streams import Field, FieldType, StreamSchema, check_value

Instant = int | str | datetime
"""Microseconds since 1970, a text as in ISO 8601, or a datetime. Without a zone it is UTC."""

Types = Mapping[str, type]
"""By name of a column: ``bool``, ``int``, ``float`` or ``str``."""

_TYPES = {bool: FieldType.BOOLEAN, int: FieldType.INTEGER, float: FieldType.REAL, str: FieldType.TEXT}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ScriptError(ClusterError):
    """A script that a stream or relation cannot follow."""


@dataclass(frozen=True, slots=True)
class WATERMARK:
    """From here on nothing comes that is stamped before an instant.

    Parameters
    ----------
    at
        The instant.
    """

    at: Instant


@dataclass(frozen=True, slots=True)
class PAUSE:
    """Nothing comes until the clock has moved on.

    Parameters
    ----------
    duration
        Such as ``10s``.
    """

    duration: str


@dataclass(frozen=True, slots=True)
class ABORT:
    """The process dies, once: the micro-batch that reads this item is lost, and another process runs it again."""


@dataclass(frozen=True, slots=True)
class EOF:
    """The stream has ended: all its windows answer. Nothing comes after it."""


Item = tuple[Instant, Mapping[str, Any]] | WATERMARK | PAUSE | ABORT | EOF


@dataclass(frozen=True, slots=True)
class Taken:
    """What one micro-batch takes of a source.

    Parameters
    ----------
    rows
        Stamps and values.
    watermark_us
        After it.
    late
        Tuples that came after the watermark had passed them: a cluster counts them and stores them apart.
    aborts
        True if the process dies.
    """

    rows: pl.DataFrame
    watermark_us: int
    late: tuple[tuple[int, Mapping[str, Any]], ...] = ()
    aborts: bool = False


class ScriptedSource:
    """A stream.

    Parameters
    ----------
    fields
        Its fields and their types.
    script
        The items, in order: tuples (an instant, and values by name of the field; a field that is
        left out is NULL), and :class:`WATERMARK`, :class:`PAUSE`, :class:`ABORT`, :class:`EOF`.
    batch_size
        Tuples that come in one micro-batch at most.
    lateness
        How far a tuple may be behind one that came before it. The watermark follows the stamps at that distance.

    Raises
    ------
    ScriptError
        If a tuple does not fit the fields, or anything follows the end.
    """

    def __init__(self, fields: Types, script: Iterable[Item], *, batch_size: int = 1, lateness: str = "0s") -> None:
        self.schema = _schema(fields)
        self._script = tuple(script)
        self._batch_size = batch_size
        self._lateness_us = parse_duration_us(lateness)
        known = tuple(Field(each.name, each.type) for each in self.schema)
        for number, item in enumerate(self._script):
            if isinstance(item, tuple):
                _checked(item[1], known, f"item {number + 1} of the script")
        if any(isinstance(item, EOF) for item in self._script[:-1]):
            raise ScriptError("something follows the end of a stream", hint="EOF() is the last item of a script")
        self._place = 0
        self._watermark_us = ALWAYS
        self._wakes: float | None = None
        self._aborted: set[int] = set()

    def stream(self, name: str) -> StreamSchema:
        """Return the schema of the stream that it feeds."""
        return StreamSchema(name, tuple(Field(each.name, each.type) for each in self.schema))

    @property
    def position(self) -> tuple[int, int, float | None]:
        """How far it has come; may be set to go back."""
        return self._place, self._watermark_us, self._wakes

    @position.setter
    def position(self, position: tuple[int, int, float | None]) -> None:
        self._place, self._watermark_us, self._wakes = position

    @property
    def watermark_us(self) -> int | None:
        """Nothing comes any more that is stamped before this instant; None before there is one."""
        return None if self._watermark_us <= ALWAYS else self._watermark_us

    def pending(self, now: float) -> bool:
        """Return whether it has an item at a time."""
        return self._place < len(self._script) and (self._wakes is None or self._wakes <= now)

    def take(self, now: float) -> Taken:
        """Take the next items at a time: up to a batch of tuples, and other items right behind them."""
        found: list[tuple[int, Mapping[str, Any]]] = []
        late: list[tuple[int, Mapping[str, Any]]] = []
        watermark_us = self._watermark_us
        aborts = False
        while self.pending(now) and not aborts:
            item = self._script[self._place]
            if isinstance(item, tuple):
                if len(found) + len(late) >= self._batch_size:
                    break
                at_us = instant_us(item[0])
                (late if at_us < self._watermark_us else found).append((at_us, item[1]))
                watermark_us = max(watermark_us, at_us - self._lateness_us)
            elif isinstance(item, PAUSE):
                if self._wakes is None:
                    self._wakes = now + parse_duration_us(item.duration) / 1e6
                    break
                self._wakes = None
            elif isinstance(item, ABORT):
                aborts = self._place not in self._aborted
                self._aborted.add(self._place)
            else:
                watermark_us = max(watermark_us, NEVER if isinstance(item, EOF) else instant_us(item.at))
            self._place += 1
        self._watermark_us = watermark_us
        return Taken(self._frame(found), watermark_us, tuple(late), aborts)

    def _frame(self, tuples: Sequence[tuple[int, Mapping[str, Any]]]) -> pl.DataFrame:
        schema: dict[str, type[pl.DataType]] = {START: pl.Int64}
        schema |= {each.name: POLARS_TYPES[each.type] for each in self.schema}
        rows = [(at_us, *(values.get(each.name) for each in self.schema)) for at_us, values in tuples]
        return pl.DataFrame(rows, schema=schema, orient="row")


class ScriptedRelation:
    """A relation.

    Parameters
    ----------
    columns
        Its columns and their types.
    rows
        Its first rows; a column that is left out is NULL.
    changes
        By instant: all its rows, for tuples stamped from then on.
    """

    def __init__(
        self,
        columns: Types,
        rows: Iterable[Mapping[str, Any]],
        changes: Mapping[Instant, Iterable[Mapping[str, Any]]] | None = None,
    ) -> None:
        self.columns = _schema(columns)
        self._rows = self._frame(rows)
        later = {instant_us(at): each for at, each in (changes or {}).items()}
        self._changes = [(at_us, self._frame(later[at_us])) for at_us in sorted(later)]

    def versions(self, streams: Iterable[str]) -> list[RelationRows]:
        """Return its rows as tuples of streams meet them, oldest first."""
        names = tuple(streams)
        return [
            RelationRows(self._rows),
            *(RelationRows(rows, dict.fromkeys(names, at_us)) for at_us, rows in self._changes),
        ]

    def _frame(self, rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
        fields = tuple(Field(each.name, each.type) for each in self.columns)
        schema = {each.name: POLARS_TYPES[each.type] for each in self.columns}
        found = []
        for number, row in enumerate(rows, start=1):
            _checked(row, fields, f"row {number}")
            found.append(tuple(row.get(each.name) for each in self.columns))
        return pl.DataFrame(found, schema=schema, orient="row")


def instant_us(at: Instant) -> int:
    """Return an instant in microseconds since 1970.

    >>> instant_us("1970-01-01T00:00:01") == instant_us(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == 1_000_000
    True

    Raises
    ------
    ScriptError
        If a text is no instant.
    """
    if isinstance(at, int):
        return at
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:
            raise ScriptError(f"{at!r} is no instant", hint="it is written as 2012-03-01T07:30:00") from None
    moment = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _schema(types: Types) -> Schema:
    for name, each in types.items():
        if each not in _TYPES:
            raise ScriptError(f"column {name!r} has no type that FjordSQL knows", hint="bool, int, float or str")
    return tuple(Column(name, _TYPES[each]) for name, each in types.items())


def _checked(row: Mapping[str, Any], fields: Sequence[Field], where: str) -> None:
    known = {each.name: each for each in fields}
    for name, value in row.items():
        if name not in known:
            raise ScriptError(f"{where} has a value for {name!r}", hint=f"there are {', '.join(known)}")
        try:
            check_value(known[name], value)
        except SchemaError as error:
            raise ScriptError(f"{where}: {error}") from None
