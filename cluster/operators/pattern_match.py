"""Patterns of rows (``MATCH_RECOGNIZE``).

A pattern is a row of *elements*, each a variable with a quantifier. What a condition or a measure asks of other rows
than the current one is a column of its own, which :class:`Lag` or :class:`Reach` describes, so that the expressions
themselves are those of everywhere else.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, NoReturn, final

import msgspec
from msgspec import Meta

from cluster.operators.columns import AggregateCall, Column, Output, Scalar, Schema
from cluster.operators.errors import UnboundedPlanError
from cluster.operators.families import CountsCopies, Instantaneous, Keyed, NotEstimated, OneInput, WholeTuples
from cluster.operators.operation import Prompt, listed, own
from cluster.shared_nodes import remembered
from protocols.text.quantities import format_duration

INSTANT = "fjord_start_us"
"""The column of the instant at which a row is valid, which all rows have although no schema names it: STAMP()."""
MOST_ELEMENTS = 50
"""Most elements of a pattern."""
MOST_REPEATED = 1_000
"""The largest number in a quantifier, and in PREV, FIRST and LAST."""


class PatternElement(msgspec.Struct, frozen=True):
    """A variable and how many rows it takes, one directly after the other.

    Parameters
    ----------
    variable
        Its name.
    least, most
        How many rows; None for any number.
    reluctant
        True to take as few as possible, False to take as many as possible.
    """

    variable: str
    least: Annotated[int, Meta(ge=0)] = 1
    most: Annotated[int, Meta(ge=1)] | None = 1
    reluctant: bool = False


class Lag(msgspec.Struct, frozen=True):
    """A column of each row: what an expression is for the row so many before it in its partition (``PREV``).

    NULL if there is none, or if it is not within the time of the pattern.
    """

    name: str
    scalar: Scalar
    rows: Annotated[int, Meta(ge=1)]


ReachKind = Literal["first", "last", "aggregate"]
"""A value of the row so many behind the first, or before the last; an aggregate of all of them."""


class Reach(msgspec.Struct, frozen=True):
    """A column with something about the rows that a variable has so far.

    Parameters
    ----------
    name
        Of the column.
    kind
        What it is.
    variable
        The variable; None for all rows of the match.
    scalar
        What is wanted of the row; None for an aggregate.
    offset
        How far behind the first row, or before the last.
    call
        The aggregate; None for a single row. It is NULL, or 0 for a count, while there are no rows.
    """

    name: str
    kind: ReachKind
    variable: str | None
    scalar: Scalar | None = None
    offset: Annotated[int, Meta(ge=0)] = 0
    call: AggregateCall | None = None


class Definition(msgspec.Struct, frozen=True):
    """When a row can be one of a variable's (``DEFINE``).

    Parameters
    ----------
    variable
        The variable.
    row
        What must be true of the row itself, over columns and lags; None for any row.
    reaching
        What must be true, besides, in view of the rows before it; None for nothing.
    """

    variable: str
    row: Scalar | None
    reaching: Scalar | None = None


SkipKind = Literal["past last row", "to next row", "to first", "to last"]


class Skip(msgspec.Struct, frozen=True):
    """Where to look for the next match (``AFTER MATCH SKIP``); the last two name a variable."""

    kind: SkipKind = "past last row"
    variable: str = ""


class RowPattern(msgspec.Struct, frozen=True):
    """What to look for, and what to answer.

    Parameters
    ----------
    elements
        The pattern.
    definitions
        Of variables; one without matches any row.
    measures
        What a match yields, over the columns of `reaches`.
    lags, reaches
        The columns that definitions and measures read besides those of the input.
    ties
        The columns that order rows of one stamp: all that are read.
    within_us
        The stamp of the last row minus that of the first is below this; None for no bound.
    skip
        Where the search goes on.
    """

    elements: tuple[PatternElement, ...]
    definitions: tuple[Definition, ...]
    measures: tuple[Output, ...]
    lags: tuple[Lag, ...]
    reaches: tuple[Reach, ...]
    ties: tuple[str, ...]
    within_us: Annotated[int, Meta(ge=1)] | None
    skip: Skip = Skip()

    @property
    def least_rows(self) -> int:
        """How many rows a match has at least."""
        return sum(element.least for element in self.elements)

    @property
    def most_rows(self) -> int | None:
        """How many rows a match has at most; None for any number."""
        most = [element.most for element in self.elements]
        return None if None in most else sum(each for each in most if each is not None)


def pattern_text(elements: tuple[PatternElement, ...]) -> str:
    """Return a pattern as it is written.

    >>> pattern_text((PatternElement("A"), PatternElement("B", 1, None), PatternElement("C", 0, 1, reluctant=True)))
    'A B+ C??'
    """
    return " ".join(element.variable + _quantifier(element) for element in elements)


def _quantifier(element: PatternElement) -> str:
    match element.least, element.most:
        case 1, 1:
            return ""
        case 0, None:
            sign = "*"
        case 1, None:
            sign = "+"
        case 0, 1:
            sign = "?"
        case least, None:
            sign = f"{{{least},}}"
        case least, most if least == most:
            return f"{{{least}}}"
        case least, most:
            sign = f"{{{least},{most}}}"
    return f"{sign}?" if element.reluctant else sign


@final
class PatternMatch(
    Keyed, NotEstimated, CountsCopies, WholeTuples, Instantaneous, OneInput, frozen=True, tag="PatternMatch"
):
    """Matches of a pattern of rows, for each combination of `keys` (docs/reference/sql/patterns.md, Patterns).

    Tuples are valid at their own instant only; a match is valid at that of its last row.
    """

    written_as: ClassVar[str] = "MATCH_RECOGNIZE"
    keys: tuple[str, ...]
    pattern: RowPattern

    @property
    @remembered
    def schema(self) -> Schema:
        """The keys, and the measures."""
        by_name = {column.name: column for column in self.input.schema}
        measures = (Column(each.name, each.scalar.type, each.unit) for each in self.pattern.measures)
        return (*(by_name[key] for key in self.keys), *measures)

    @property
    def never_null(self) -> frozenset[str]:
        """The keys that are never NULL."""
        return self.input.never_null & frozenset(self.keys)

    def describe(self) -> str:
        """Return the pattern."""
        return pattern_words(self.pattern, self.keys)

    def operation(self, lag_us: int | None = None) -> PatternMatchOperation:
        """Return what runs of it."""
        del lag_us
        return PatternMatchOperation(self.input.schema, self.keys, self.pattern)

    def reach_us(self) -> NoReturn:
        """Raise: there is no bound."""
        raise UnboundedPlanError("where a match begins depends on the matches before it")

    delay_us = reach_us

    @remembered
    def published_us(self) -> int:
        """Return that of the tuples."""
        return self.input.published_us()

    @property
    @remembered
    def full_after_us(self) -> int:
        """The longest match after the tuples, if it has a bound in time."""
        return self.input.full_after_us + (self.pattern.within_us or 0)


@final
class PatternMatchOperation(Prompt, frozen=True, tag="PatternMatch"):
    """Matches of a pattern of rows; fields as of the node, `columns` those of the input."""

    columns: Schema
    keys: tuple[str, ...]
    pattern: RowPattern

    def describe(self) -> str:
        """Return one line about it."""
        return pattern_words(self.pattern, own(self.keys))


def pattern_words(pattern: RowPattern, keys: tuple[str, ...]) -> str:
    """Return one line about a pattern of rows."""
    within = "" if pattern.within_us is None else f" within {format_duration(pattern.within_us)}"
    skip = (
        f", then {pattern.skip.kind} {pattern.skip.variable}".rstrip() if pattern.skip.kind != "past last row" else ""
    )
    by = f" for each {listed(keys)}" if keys else ""
    return f"match {pattern_text(pattern.elements)}{within}{skip}{by}"
