"""Expressions of random texts: what FjordSQL says, and what DuckDB is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from tests.cluster.oracle.text_forms import Query


class Binding(IntEnum):
    """How tightly an expression holds together; arguments that hold less tightly need parentheses."""

    OR = 0
    AND = 1
    NOT = 2
    IS = 3
    COMPARISON = 4
    CONCATENATION = 5
    SUM = 6
    PRODUCT = 7
    SIGN = 8
    ATOM = 9


class Exactness(IntEnum):
    """How surely two ways to compute a number agree."""

    NEARLY = 0
    """But for its last digits: sums in another order, logarithms."""
    SAME = 1
    """To the last bit."""
    EVEN = 2
    """And sums of it, too: small multiples of a power of two."""


@dataclass(frozen=True)
class Hole:
    """Where a part goes, and how tightly it has to hold together there."""

    part: int
    binding: Binding = Binding.OR


Words = tuple[str | Hole, ...]
INSTANT = "{instant}"
"""In the definition: the run and the instant of a row."""
QUERY = -1
"""The part that is a subquery."""
_HOLES = re.compile(r"\{(-?\d+)(?::(\d))?\}")


def words(template: str) -> Words:
    """Return a text with holes: ``{0:6}`` for the first part, which holds at least as tightly as a sum."""
    found: list[str | Hole] = []
    end = 0
    for match in _HOLES.finditer(template):
        found += [template[end : match.start()], Hole(int(match[1]), Binding(int(match[2] or 0)))]
        end = match.end()
    return (*found, template[end:])


@dataclass(frozen=True)
class Aggregate:
    """An aggregate call; its argument, if it has one, is the part of its expression.

    Parameters
    ----------
    function
        As the definition knows it.
    stamp
        DuckDB's column with the stamps for FIRST and LAST.
    filtered
        True if the last part of its expression says which rows count.
    separator, descending
        What stands between texts that are joined, and whether the greatest comes first.
    """

    function: str
    distinct: bool = False
    share: float | None = None
    stamp: str = ""
    error: float = 0.0
    filtered: bool = False
    separator: str = ""
    descending: bool = False


@dataclass(frozen=True)
class Scalar:
    """An expression.

    Parameters
    ----------
    type
        None for a bare NULL.
    text, sql
        FjordSQL and DuckDB, with holes for the parts.
    parts
        The expressions in it.
    label
        What it is, for the count of what has been drawn: a function with its argument types.
    wild
        True if it may be huge, so that sums of it depend on their order.
    query
        The subquery in it.
    aggregate
        The aggregate it is.
    key
        The number of the group's key it is.
    known
        The column it is.
    default
        What it is called as an output without a name; empty for its place.
    """

    type: FieldType | None
    text: Words
    sql: Words
    parts: tuple[Scalar, ...] = ()
    binding: Binding = Binding.ATOM
    label: str = ""
    exactness: Exactness = Exactness.EVEN
    wild: bool = False
    parentheses: int = 0
    query: Query | None = None
    aggregate: Aggregate | None = None
    key: int | None = None
    known: Known | None = None
    default: str = ""
    rank: bool = False
    """True for a place among the rows of an instant, or what is made of one."""
    span: str = ""
    """DuckDB's column of the interval that it is."""


@dataclass(frozen=True)
class Known:
    """A column that FROM offers.

    Parameters
    ----------
    name, alias
        Its visible name, and that of its item; empty if that has none.
    sql
        What it is in DuckDB.
    stamp
        DuckDB's column with the stamps of its item, if that is a stream as it comes.
    sampled
        True if an error can be allowed on it.
    shared
        True if USING has made it one with a column before it, which its name alone means.
    """

    name: str
    type: FieldType
    sql: str
    alias: str
    exactness: Exactness = Exactness.EVEN
    wild: bool = False
    stamp: str = ""
    sampled: bool = False
    shared: bool = False


def scalars_in(form: Any) -> Iterator[Scalar]:
    """Yield the expressions in a form."""
    if isinstance(form, Scalar):
        yield form
    if isinstance(form, tuple):
        for each in form:
            yield from scalars_in(each)
    elif is_dataclass(form) and not isinstance(form, type):
        for each in fields(form):
            yield from scalars_in(getattr(form, each.name))
