"""Evaluates what a text means, by DuckDB, on several stream sets at once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any

import duckdb
import pyarrow as pa

from protocols.wire.streams import FieldType
from tests.cluster.document_macros import DOCUMENT_MACROS
from tests.cluster.functions.declared import MEANINGS
from tests.cluster.oracle.definition import Snapshots
from tests.cluster.oracle.text_clauses import PERIODS
from tests.cluster.oracle.text_expressions import Scalar
from tests.cluster.oracle.text_extents import EXTENT_MACROS
from tests.cluster.oracle.text_forms import (
    Changes,
    InOrder,
    Item,
    Named,
    Nested,
    Query,
    Select,
    SetOperation,
    Text,
    Zipped,
    outputs_of,
)
from tests.cluster.oracle.text_intervals import INTERVAL_MACROS
from tests.cluster.oracle.text_meaning import Meaning, ZipSides, stream_table
from tests.cluster.oracle.text_operations import MACROS
from tests.cluster.oracle.text_world import LAST, PLACES, TABLES, World, as_read
from tests.cluster.oracle.time_meaning import MACROS as TIME_MACROS
from tests.cluster.published_tuples import taken
from tests.cluster.stamp_join_definition import stamp_join_rows
from tests.cluster.zip_definition import zip_rows

ARROW_TYPES = {
    FieldType.BOOLEAN: pa.bool_(),
    FieldType.INTEGER: pa.int64(),
    FieldType.REAL: pa.float64(),
    FieldType.TEXT: pa.string(),
}
SHOWING = [each for each in TIME_MACROS if any(name in each for name in ("f_text(", "f_duration("))]
"""How results have timestamps and durations."""
SLACK = 8
"""Instants beyond the last one compared: what Dstream and zipper joins look ahead."""


@dataclass(frozen=True)
class TextMeaning:
    """What a text means.

    Parameters
    ----------
    snapshots
        By stream set: the bag at each instant.
    ambiguous
        Stream sets for which it has no one meaning: other tuples of equal stamps, below what counts tuples.
    granule
        Only instants that are multiples of this are promised.
    """

    snapshots: list[Snapshots]
    ambiguous: frozenset[int]
    granule: int


class TooDeepError(Exception):
    """A text whose definition DuckDB does not read."""


class TextDefinition:
    """Answers what texts mean on some stream sets. Close it.

    Parameters
    ----------
    worlds
        The stream sets.
    """

    def __init__(self, worlds: Sequence[World]) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET GLOBAL threads = 1")
        self._connection.execute("SET max_expression_depth = 3000")  # macros within macros are deeper than 1000
        for macros in (MACROS, *DOCUMENT_MACROS, *MEANINGS, *SHOWING, *INTERVAL_MACROS, *EXTENT_MACROS):
            self._connection.execute(macros)
        self._runs = len(worlds)
        for name, fields in TABLES.items():
            for period in (None, *PERIODS):
                rows = [
                    (run, stamp, place, *map(as_read, row))
                    for run, world in enumerate(worlds)
                    for place, ((stamp, row), kept) in enumerate(
                        zip(world.streams[name], taken(world.streams[name], period), strict=True)
                    )
                    if kept
                ]
                self._register(stream_table(name, period), ("r", "t", "o"), [field.type for field in fields], rows)
        rows = [(run, *map(as_read, row)) for run, world in enumerate(worlds) for row in world.places]
        self._register("places", ("r",), [column.type for column in PLACES.columns], rows)

    def close(self) -> None:
        """Forget the stream sets."""
        self._connection.close()

    def meaning(self, text: Text) -> TextMeaning:
        """Return what a text means.

        Raises
        ------
        TooDeepError
            If macros within macros are too deep for DuckDB, which takes hours where it is allowed to go deeper.
        """
        try:
            return self._meaning(text)
        except duckdb.BinderException as error:
            if "expression depth" in str(error):
                raise TooDeepError from error
            raise

    def _meaning(self, text: Text) -> TextMeaning:
        names = dict(text.derived)
        instants = LAST + reach(text.query, names) + 3
        writer = Meaning(names, self._runs, instants + SLACK)
        sql = writer.snapshots(text.query)
        ambiguous: set[int] = set()
        for sides in writer.zips:
            ambiguous |= self._zip(sides, instants + SLACK)
        if (asked := writer.ambiguous()) is not None:
            ambiguous |= {run for (run,) in self._connection.execute(asked).fetchall()}
        found: list[Snapshots] = [[Counter() for _ in range(instants)] for _ in range(self._runs)]
        for run, instant, count, *row in self._connection.execute(sql).fetchall():
            if instant < instants:
                found[run][instant][tuple(row)] = count
        return TextMeaning(found, frozenset(ambiguous), granule_of(text.query, names))

    def _register(
        self, name: str, head: Sequence[str], types: Sequence[FieldType], rows: list[tuple[Any, ...]]
    ) -> None:
        columns = list(zip(*rows, strict=True)) if rows else [()] * (len(head) + len(types))
        kinds = [*([pa.int64()] * len(head)), *(ARROW_TYPES[kind] for kind in types)]
        names = [*head, *(f"c{number}" for number in range(len(types)))]
        arrays = list(starmap(pa.array, zip(columns, kinds, strict=True)))
        self._connection.execute(f'DROP TABLE IF EXISTS "{name}"')
        self._connection.register("given", pa.table(arrays, names=names))
        self._connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM given')
        self._connection.unregister("given")

    def _zip(self, sides: ZipSides, instants: int) -> set[int]:
        """Make the table of a zipper join; return the stream sets on which it is ambiguous."""
        zipped = sides.zipped
        widths = zipped.left.width, zipped.right.width
        read = [
            self._rows(sides.before, table, width)
            for table, width in zip((sides.left, sides.right), widths, strict=True)
        ]
        keys = [[pair[side] for pair in zipped.keys] for side in (0, 1)]
        key_of = tuple(lambda row, places=places: tuple(row[place] for place in places) for places in keys)
        ambiguous, rows = set[int](), list[tuple[Any, ...]]()
        for run in range(self._runs):
            sides_read = read[0][run], read[1][run]
            chosen = {"ZIP": (0, 1), "ASOF": (1,), "WITHIN": ()}[zipped.word]
            if any(_tied(sides_read[side], key_of[side]) for side in chosen):
                ambiguous.add(run)
                continue
            if zipped.word == "ZIP":
                found = zip_rows(*sides_read, key_of, zipped.bounds, zipped.kind, widths)  # type: ignore[arg-type] # two of them
            else:
                meets = _meeting(zipped.keys, zipped.also)
                latest = zipped.word == "ASOF"
                found = stamp_join_rows(*sides_read, meets, zipped.bounds, zipped.kind, widths, latest=latest)
            rows += [(run, at, None, *row) for at, row in found if at < instants]
        types = self._types(sides, widths)
        self._register(sides.table, ("r", "t", "o"), types, rows)
        return ambiguous

    def _rows(self, before: str, table: str, width: int) -> dict[int, list[tuple[int, tuple[Any, ...]]]]:
        columns = ", ".join(f"c{number}" for number in range(width))
        found: dict[int, list[tuple[int, tuple[Any, ...]]]] = defaultdict(list)
        for run, stamp, *row in self._connection.execute(f"{before} SELECT r, t, {columns} FROM {table}").fetchall():
            found[run].append((stamp, tuple(row)))
        return found

    def _types(self, sides: ZipSides, widths: tuple[int, int]) -> list[FieldType]:
        kinds = {
            "BOOLEAN": FieldType.BOOLEAN,
            "BIGINT": FieldType.INTEGER,
            "DOUBLE": FieldType.REAL,
            "VARCHAR": FieldType.TEXT,
        }
        found = []
        for table, width in zip((sides.left, sides.right), widths, strict=True):
            columns = ", ".join(f"c{number}" for number in range(width))
            described = self._connection.execute(f"DESCRIBE {sides.before} SELECT {columns} FROM {table}").fetchall()
            found += [kinds[each[1]] for each in described]
        return [*found, FieldType.INTEGER] if sides.zipped.word == "ZIP" else found


def _meeting(
    keys: Sequence[tuple[int, int]], also: tuple[int, int] | None
) -> Callable[[tuple[Any, ...], tuple[Any, ...]], bool]:
    def meets(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
        if also is not None and (also[0] > 1 or not (one, other)[also[0]][also[1]]):
            return False
        return all(one[a] is not None and one[a] == other[b] for a, b in keys)

    return meets


def _tied(rows: Iterable[tuple[int, tuple[Any, ...]]], key_of: Any) -> bool:
    """Return whether there are different tuples with equal keys and stamps: which is first depends on what is read."""
    seen: dict[Any, Any] = {}
    return any(seen.setdefault((stamp, key_of(row)), row) != row for stamp, row in rows)


def reach(query: Query, names: dict[str, Query]) -> int:
    """Return for how long after the last stamp the answer of a query can still change."""
    inner = max((reach(each, names | dict(query.names)) for _, each in query.names), default=0)
    names = names | dict(query.names)
    if isinstance(query, SetOperation):
        return max(inner, reach(query.left, names), reach(query.right, names))
    scalars = asking_in(query)
    asked = [_asked(each, names) for each in scalars]
    return max([inner, *asked, *(_item_reach(item, names) for item in query.items)])


def asking_in(query: Select) -> list[Scalar]:
    """Return the expressions of a SELECT in which subqueries may stand."""
    conditions = [each for each in (query.where, query.having) if each is not None]
    return [*conditions, *(each.scalar for each in outputs_of(query))]


def _asked(scalar: Scalar, names: dict[str, Query]) -> int:
    own = reach(scalar.query, names) if scalar.query is not None else 0
    return max([own, *(_asked(part, names) for part in scalar.parts)])


def _item_reach(item: Item | Zipped, names: dict[str, Query]) -> int:
    if isinstance(item, Zipped):
        return max(_item_reach(item.left, names), _item_reach(item.right, names)) + max(
            abs(each or 0) for each in item.bounds
        )
    match item.source:
        case Nested():
            below = reach(item.source.query, names)
        case Named():
            below = reach(names[item.source.name], names)
        case InOrder():
            below = _item_reach(item.source.item, names)
        case Changes():
            below = _item_reach(item.source.item, names) + 1
        case _:
            below = 0
    if item.window is not None and item.window.kind != "ROWS":
        below += (item.window.size or 0) + item.window.slide
    return below + 1 + sum(each.clause.reach_us(each.amount_us) for each in item.reshaped)


def granule_of(query: Query, names: dict[str, Query]) -> int:
    """Return at which multiples alone the answer of a query is promised."""
    import math

    names = names | dict(query.names)
    if isinstance(query, SetOperation):
        return math.lcm(granule_of(query.left, names), granule_of(query.right, names))
    granules = [_item_granule(item, names) for item in query.items]
    granules += [_granule_asked(each, names) for each in asking_in(query)]
    return math.lcm(*granules)


def _granule_asked(scalar: Scalar, names: dict[str, Query]) -> int:
    import math

    own = granule_of(scalar.query, names) if scalar.query is not None else 1
    return math.lcm(own, *(_granule_asked(part, names) for part in scalar.parts))


def _item_granule(item: Item | Zipped, names: dict[str, Query]) -> int:
    import math

    if isinstance(item, Zipped):
        return math.lcm(_item_granule(item.left, names), _item_granule(item.right, names))
    match item.source:
        case Nested():
            below = granule_of(item.source.query, names)
        case Named():
            below = granule_of(names[item.source.name], names)
        case Changes() | InOrder():
            below = _item_granule(item.source.item, names)
        case _:
            below = 1
    return math.lcm(below, *(each.clause.granule_us(each.amount_us) for each in item.reshaped))
