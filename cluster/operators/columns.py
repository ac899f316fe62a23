"""Columns of plans, and the expressions and aggregate calls that compute them; marks, and names not taken yet.

**Marks: columns that rows of running plans have besides those of queries, which never see them.**

    rows of                           marks, besides the query group
    samples that queries share        VISIBLE_FROM
    shared windows by count           VISIBLE_FROM, SUPERSEDED_UNTIL
    shared extents                    VISIBLE_FROM, SUPERSEDED_UNTIL, EXTENT, RUN_BEGIN, RUN_END
    windows merged from panes         VISIBLE_FROM, SUPERSEDED_UNTIL, SIZE, SLIDE
    samples that devices aggregate    COVERED_BY
    the right side of a join          those of the left, with RIGHT before their names
    pieces of rows that were cut      ORIGIN, on their way to a lookup (cluster/physical/rules/pieces.py)

A row is for the queries that began after ``SUPERSEDED_UNTIL``, up to ``VISIBLE_FROM``. Names of marks are in running
state, and never change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from cluster.expressions import nodes as expressions
from cluster.expressions.nodes import Expression
from cluster.expressions.text import quoted_text, text_of
from protocols.wire.batches import COVERED_BY_COLUMN
from protocols.wire.streams import FieldType


class Column(msgspec.Struct, frozen=True):
    """A column of a node's output. The validity interval is not a column."""

    name: str
    type: FieldType
    unit: str = ""


Schema = tuple[Column, ...]

STAMP = Column("fjord_stamp", FieldType.INTEGER, "us")
"""The instant at which a tuple was sampled, as a column: a source has it where FIRST or LAST need it."""

PASSING = Column("passing_us", FieldType.INTEGER, "us")
"""How long an event lasted: the column of a source with a detector, besides the fixed ones."""

QUERY_GROUP = Column("fjord_member", FieldType.INTEGER)
"""The query group of a row, where queries are folded; no query sees it (cluster/physical/rules)."""

VISIBLE_FROM = Column("fjord_since", FieldType.INTEGER)
"""The newest query's epoch when a tuple came, where queries share tuples: later queries do not see it."""


class Scalar:
    """An expression and the type of its values. Immutable.

    Not a struct of `msgspec`, because its form depends on its use: names are made of its text (:func:`identity_of`),
    files hold its nodes (cluster/plan/stored_plans.py).

    Parameters
    ----------
    expression
        The expression.
    type_
        The type of its values; for NULL, which has none of its own, the wanted one.
    """

    __slots__ = ("_hash", "expression", "type")

    def __init__(self, expression: Expression, type_: FieldType) -> None:
        self.expression: Final = expression
        self.type: Final = type_
        self._hash = hash((expression, type_))

    @property
    def sql(self) -> str:
        """The expression as FjordSQL, to be read, and for names that never change."""
        return text_of(self.expression)

    def __eq__(self, other: object) -> bool:
        """Return whether `other` is the same expression."""
        if self is other:
            return True
        if not isinstance(other, Scalar):
            return NotImplemented
        alike = self._hash == other._hash and self.type == other.type
        return alike and self.expression == other.expression

    def __hash__(self) -> int:
        """Return a hash that is the same for equal expressions."""
        return self._hash

    def __reduce__(self) -> tuple[type[Scalar], tuple[Expression, FieldType]]:
        """Return how to rebuild it in another process, where hashes differ."""
        return Scalar, (self.expression, self.type)

    def __repr__(self) -> str:
        """Return its text."""
        return f"Scalar({self.sql!r}, {self.type.value})"


def identity_of(value: object) -> bytes:
    """Return a text that is the same for equal parts of plans only, and for ever: names are made of it.

    Each expression in it is written as its text.
    """
    return msgspec.json.encode(value, enc_hook=_as_text)


def _as_text(value: object) -> object:
    if not isinstance(value, Scalar):
        raise NotImplementedError(f"{type(value).__name__} is no part of a plan")
    return {"sql": value.sql, "type": value.type}


class Output(msgspec.Struct, frozen=True):
    """A named expression of a projection."""

    name: str
    scalar: Scalar
    unit: str = ""


RankFunction = Literal["row_number", "rank", "dense_rank"]
"""Places without ties; places that rows with ties share, with gaps behind them; and without gaps."""


class Ordering(msgspec.Struct, frozen=True):
    """A column by which rows are ordered; NULLs come last unless `nulls_first`."""

    column: str
    descending: bool = False
    nulls_first: bool = False


class Joining(msgspec.Struct, frozen=True):
    """How string_agg joins texts: by what, and whether the greatest comes first."""

    separator: str
    descending: bool = False

    @property
    def words(self) -> str:
        """As it is written behind the argument."""
        return f", {quoted_text(self.separator)}{' DESC' if self.descending else ''}"


class AggregateCall(msgspec.Struct, frozen=True):
    """One aggregate of an :class:`cluster.operators.Aggregate`.

    Parameters
    ----------
    name
        Name of the output column.
    function
        Lower case: count, sum, avg, min, max, stddev, variance, stddev_pop, var_pop, median, quantile,
        percentile_disc, mode, string_agg, first, last, arg_min, arg_max, completeness.
    argument
        None only for ``COUNT(*)`` and ``COMPLETENESS()``.
    type
        Type of the result.
    distinct
        True to count each value once.
    parameter
        The share, 0 to 1, of a quantile; else None.
    order
        The column of stamps by which first and last are ordered; else None. Of equal stamps the least value is first,
        the greatest last, so that the answer does not depend on the order of arrival.
    by
        What arg_min and arg_max compare; of equal values of it, the least or greatest argument counts. Unset for the
        others: then plans and what is named after them are written as before there was such a part.
    joining
        How string_agg joins its values; unset for the others, likewise.
    """

    name: str
    function: str
    argument: Scalar | None
    type: FieldType
    distinct: bool = False
    parameter: float | None = None
    unit: str = ""
    order: str | None = None
    by: Scalar | msgspec.UnsetType = msgspec.UNSET
    joining: Joining | msgspec.UnsetType = msgspec.UNSET

    @property
    def joined(self) -> str:
        """How it joins texts, in words; nothing for other aggregates."""
        return "" if self.joining is msgspec.UNSET else self.joining.words

    @property
    def reads(self) -> tuple[Scalar, ...]:
        """The expressions it reads of each tuple."""
        argument = () if self.argument is None else (self.argument,)
        if self.by is not msgspec.UNSET:
            argument = (*argument, self.by)
        return argument if self.order is None else (*argument, Scalar(expressions.Column(self.order), STAMP.type))


SUPERSEDED_UNTIL = Column("fjord_after", FieldType.INTEGER)
"""Queries visible from this epoch or an earlier one get another row instead."""

SIZE = Column("fjord_size_us", FieldType.INTEGER, "us")
SLIDE = Column("fjord_slide_us", FieldType.INTEGER, "us")
"""The window that a row merged from panes is of."""

EXTENT = Column("fjord_extent", FieldType.INTEGER)
"""The number of the extent that a row of shared extents is of."""
RUN_BEGIN = Column("fjord_run_begin", FieldType.INTEGER, STAMP.unit)
RUN_END = Column("fjord_run_end", FieldType.INTEGER, STAMP.unit)
"""The interval of a row of shared extents."""

MARKS: Schema = (QUERY_GROUP, SIZE, SLIDE, VISIBLE_FROM, SUPERSEDED_UNTIL)
"""The marks of the rows of answers, by which each query finds its own."""

RIGHT = "fjord_right_"
"""Prefix of the marks of the right side of a join below it."""

COVERED_BY = Column(COVERED_BY_COLUMN, FieldType.TEXT)
"""The fingerprints of device partial aggregates that contain a sample."""

ORIGIN = Column("fjord_origin", FieldType.INTEGER, STAMP.unit)
"""Where the row began of which this is a piece: the start of one that was not cut."""


def unique_name(wanted: str, taken: Iterable[str]) -> str:
    """Return `wanted`, or with a number behind it if it is among `taken` (compared without case).

    >>> unique_name("item", ["item", "Item_2"])
    'item_3'
    """
    return Names(taken).unique(wanted)


class Names:
    """Names that are taken, compared without case; each new one takes no more work than the one before.

    Parameters
    ----------
    taken
        Those that are, to begin with.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {name.casefold() for name in taken}
        self._numbers: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name.casefold() in self._taken

    def add(self, name: str) -> None:
        """Take a name."""
        self._taken.add(name.casefold())

    def unique(self, wanted: str) -> str:
        """Return `wanted`, or with the least number behind it that makes it one that is not taken; and take it."""
        name, number = wanted, self._numbers.get(wanted, 1)
        while name in self:
            number += 1
            name = f"{wanted}_{number}"
        self._numbers[wanted] = number
        self.add(name)
        return name
