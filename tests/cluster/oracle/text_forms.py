"""The forms that random texts are made of; each is written both as FjordSQL and as a query for DuckDB.

A form is a value. Its spelling is part of it, so that what is left after shrinking is still spelled as before. The
writer of FjordSQL (:mod:`text_writing`) and the writer of the definition (:mod:`text_meaning`) share these forms, and
nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from protocols.wire.streams import FieldType
from tests.cluster.oracle.sequence_sql import OrderSql
from tests.cluster.oracle.text_expressions import Scalar
from tests.cluster.oracle.text_in_order import Called
from tests.cluster.specimens.clause import DrawnClause


@dataclass(frozen=True)
class Output:
    """A column of SELECT. `alias` is what stands behind it, such as ``AS x``; what is `added` is not written."""

    scalar: Scalar
    name: str
    alias: str = ""
    added: bool = False


@dataclass(frozen=True)
class Star:
    """What is several columns: ``*``, ``t.*``, or an interval."""

    text: str
    outputs: tuple[Output, ...]


@dataclass(frozen=True)
class Window:
    """A window, as written and as it is: `rows` or microseconds.

    Parameters
    ----------
    offset
        How far behind multiples the boundaries are; of a window by the calendar, where its only boundary is that
        stamps come near.
    longest, early
        Of sessions, whose gap is the size.
    partition
        The columns of PARTITION BY, also where they change nothing.
    """

    text: str
    kind: str
    size: int | None
    slide: int = 1
    keys: tuple[int, ...] = ()
    offset: int = 0
    longest: int = 0
    early: bool = False
    partition: tuple[int, ...] = ()


@dataclass(frozen=True)
class Extent:
    """COALESCE behind a window, as written and as it is.

    Parameters
    ----------
    text, plain
        As written, and without what says when tuples are alike.
    types
        Those of the tuples' columns.
    keys, columns
        What stands behind BY, and before it, by place.
    tolerances
        Of each column, if it has one.
    condition
        That of WHILE: DuckDB over ``e.c0`` ..., and ``e.p0`` ... of the tuple before.
    reads
        The columns that it reads, in the order in which they are written.
    """

    text: str
    plain: str
    types: tuple[FieldType, ...]
    keys: tuple[int, ...]
    columns: tuple[int, ...]
    tolerances: tuple[float | None, ...]
    condition: Scalar | None = None
    reads: tuple[int, ...] = ()

    @property
    def shown(self) -> tuple[int, ...]:
        """The columns of its rows."""
        return (*self.keys, *self.columns)

    @property
    def ties(self) -> tuple[int, ...]:
        """By what tuples of one stamp are ordered."""
        return tuple(dict.fromkeys((*self.shown, *self.reads)))


@dataclass(frozen=True)
class Stream:
    """A stream with what it is asked for: its name in the harness, and how many microseconds lie between samples."""

    text: str
    table: str
    period: int | None = None


@dataclass(frozen=True)
class Relation:
    """The relation."""

    text: str


@dataclass(frozen=True)
class Named:
    """A name that WITH gives, or a derived stream."""

    text: str
    name: str


@dataclass(frozen=True)
class Nested:
    """A query in parentheses."""

    query: Query


@dataclass(frozen=True)
class Changes:
    """Istream, Dstream or Rstream of another item."""

    text: str
    kind: str
    item: Item


@dataclass(frozen=True)
class InOrder:
    """A query whose columns are those of an item, by place, and functions over its tuples in order.

    Parameters
    ----------
    item
        What it reads.
    columns
        Its columns, by place, and how they are written.
    calls
        The functions, each with the name of its column.
    keys
        The columns of PARTITION BY, by place.
    where
        A column that is not NULL, by place, and how that is written.
    qualify
        A condition as written, and in DuckDB over the columns of the query.
    """

    item: Item
    columns: tuple[tuple[int, str], ...]
    calls: tuple[tuple[Called, str], ...]
    keys: tuple[int, ...]
    where: tuple[int, str] | None = None
    qualify: tuple[str, Called | None, str] | None = None

    @property
    def order(self) -> OrderSql:
        """How tuples are ordered: by the columns that are read."""
        every = [*(call for call, _ in self.calls), *([self.qualify[1]] if self.qualify and self.qualify[1] else [])]
        read = {*(place for place, _ in self.columns), *self.keys, *(place for call in every for place in call.reads)}
        return OrderSql(("r", *(f"c{key}" for key in self.keys)), "t", [f"c{place}" for place in sorted(read)])


@dataclass(frozen=True)
class Item:
    """What stands in FROM.

    Parameters
    ----------
    mark
        Its name in DuckDB, unlike any other.
    clauses
        What is written behind it, alias and window among it, in order.
    connector
        What is written before it, unless it is the first.
    """

    source: Stream | Relation | Named | Nested | Changes | InOrder
    mark: str
    width: int
    clauses: tuple[str, ...] = ()
    window: Window | None = None
    reshaped: tuple[DrawnClause, ...] = ()
    """Clauses that transform tuples, in the order in which they apply."""
    connector: str = ","
    on: Scalar | None = None
    using: tuple[str, ...] = ()
    """Columns, as written behind USING in place of the condition."""
    valid: Window | None = None
    """VALID UNTIL NEXT beside a window."""
    extent: Extent | None = None
    keep: str = ""
    """KEEP of its extent, with room for all tuples, as written; it may stand at the end of the SELECT."""

    @property
    def has_intervals(self) -> bool:
        """True if a text can ask for the intervals of its tuples."""
        own = self.window is not None and self.window.kind == "NEXT" and self.window.size is not None
        return own or self.valid is not None or self.extent is not None


@dataclass(frozen=True)
class Zipped:
    """A zipper join or join by stamps of what stands left of it in FROM with an item. `keys` are columns of both."""

    left: Item | Zipped
    right: Item
    mark: str
    kind: str
    text: str
    keys: tuple[tuple[int, int], ...]
    on: str
    bounds: tuple[int | None, int]
    connector: str = ","
    on_join: Scalar | None = None
    also: tuple[int, int] | None = None
    """Side and place of a boolean column that must be true, besides; the side is 2 where no pair will do."""
    word: str = "ZIP"
    """ZIP; ASOF: only the latest on the right; or WITHIN: all pairs."""

    @property
    def width(self) -> int:
        """How many columns there are."""
        return self.left.width + self.right.width + (self.word == "ZIP")


def without_validity(item: Item) -> Item:
    """Return an item without VALID UNTIL NEXT beside its window."""
    if item.valid is None:
        return item
    left_out = item.valid.text
    return replace(item, valid=None, clauses=tuple(each for each in item.clauses if each != left_out))


def connector_of(item: Item | Zipped) -> str:
    """Return what is written before an item: before the first of those that are zipped."""
    while isinstance(item, Zipped):
        item = item.left
    return item.connector


def side_of(item: Item | Zipped) -> str:
    """Return which rows stay that have no partner: LEFT, RIGHT or FULL; empty for none."""
    word = connector_of(item).partition(" ")[0]
    return word if word in ("LEFT", "RIGHT", "FULL") else ""


@dataclass(frozen=True)
class Key:
    """A key of GROUP BY, as written there: perhaps by the name that SELECT gives to it or its place there."""

    scalar: Scalar
    text: str = ""


@dataclass(frozen=True)
class KeySet:
    """Keys of GROUP BY, by number, in parentheses; with a word before them, a list of keys, sets and lists."""

    parts: tuple[int | KeySet, ...] = ()
    word: str = ""


@dataclass(frozen=True)
class TopKey:
    """A key of ORDER BY at the end of a query, which is a column of it: by its name or place, or else written anew."""

    column: int
    text: str = ""
    words: str = ""
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True)
class Top:
    """ORDER BY with LIMIT, OFFSET or FETCH, as written and as it is; `outside` of the parentheses around the query."""

    keys: tuple[TopKey, ...]
    text: str
    limit: int | None
    offset: int = 0
    outside: bool = False


@dataclass(frozen=True)
class Select:
    """SELECT. `end` is what stands at its end: SAMPLE, LIFETIME.

    GROUP BY consists of `elements`, or else of the keys one after the other.
    """

    outputs: tuple[Output | Star, ...]
    items: tuple[Item | Zipped, ...]
    where: Scalar | None = None
    keys: tuple[Key, ...] = ()
    elements: tuple[int | KeySet, ...] = ()
    grouped: bool = False
    having: Scalar | None = None
    quantifier: str = ""
    end: str = ""
    names: tuple[tuple[str, Query], ...] = ()
    parentheses: int = 0
    qualify: Scalar | None = None
    qualified: str = ""
    """What QUALIFY is written as, if that is the name of a column."""
    top: Top | None = None

    @property
    def ranked(self) -> bool:
        """True if it has ranks."""
        return self.qualify is not None or any(each.scalar.rank for each in outputs_of(self))

    @property
    def distinct(self) -> bool:
        """True for SELECT DISTINCT."""
        return self.quantifier == "DISTINCT"


@dataclass(frozen=True)
class SetOperation:
    """UNION, EXCEPT, INTERSECT. `word` is how it is written, `types` what the columns are."""

    kind: str
    all: bool
    word: str
    left: Query
    right: Query
    types: tuple[FieldType, ...]
    end: str = ""
    names: tuple[tuple[str, Query], ...] = ()
    parentheses: int = 0
    top: Top | None = None


Query = Select | SetOperation


@dataclass(frozen=True)
class Text:
    """A query with the derived streams that it reads, and how its words are set."""

    query: Query
    derived: tuple[tuple[str, Query], ...] = ()
    setting: int | None = field(default=None, compare=False)


def outputs_of(query: Query) -> tuple[Output, ...]:
    """Return the columns of a query, stars resolved; those of a set operation are called as the first query's."""
    if isinstance(query, SetOperation):
        return outputs_of(query.left)
    found: list[Output] = []
    for each in query.outputs:
        found.extend(each.outputs if isinstance(each, Star) else (each,))
    return tuple(found)


def types_of(query: Query) -> tuple[FieldType, ...]:
    """Return the types of a query's columns."""
    if isinstance(query, SetOperation):
        return query.types
    return tuple(each.scalar.type for each in outputs_of(query) if each.scalar.type is not None)
