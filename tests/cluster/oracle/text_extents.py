"""Random COALESCE behind windows, with KEEP that has room for all tuples; and what they are in DuckDB.

An extent is a function of the tuples that are in the window at an instant: those of each key in order, each compared
with the one before; a run begins wherever two are not alike.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from protocols.wire.streams import FieldType
from tests.cluster.oracle import text_spelling as spelling
from tests.cluster.oracle.text_expressions import Binding, Hole, Known, Scalar
from tests.cluster.oracle.text_forms import Extent, Item, Nested, Query, Select, Stream, Window
from tests.cluster.oracle.text_intervals import COLUMN
from tests.cluster.oracle.text_leaves import Leaf, Turns, column
from tests.cluster.oracle.text_scalars import Scalars
from tests.cluster.oracle.text_writing import scalar_text

NUMBERS = (FieldType.INTEGER, FieldType.REAL)
TUPLE, BEFORE = "e.c", "e.p"
"""A tuple and the one before it, in DuckDB: the columns of both."""
ROOM = ("50", "1000", "1000.0", "2e3", "10000000")
"""Numbers of tuples that no window of a stream set has."""
QUALITY = "quality"


def may_coalesce(window: Window) -> bool:
    """Return whether COALESCE may stand behind a window: one by time or count, with an end."""
    return window.kind in ("RANGE", "ROWS", "RESET", "CALENDAR", "CALENDAR RESET") and window.size is not None


def may_keep(window: Window) -> bool:
    """Return whether KEEP may stand there: not for windows of each key, on a grid, or with a range of sizes."""
    plain = not window.offset and " MIN " not in window.text
    return plain and (window.kind == "RANGE" or (window.kind == "ROWS" and not window.keys))


def has_stamps(query: Query) -> bool:
    """Return whether rows of a query are tuples of one stream, with their stamps."""
    if not isinstance(query, Select) or query.grouped or query.distinct or query.ranked or query.top is not None:
        return False
    asked = [query.where] if query.where is not None else []
    asked += [scalar for output in query.outputs for scalar in _scalars_of(output)]
    (item, *others) = query.items
    plain = isinstance(item, Item) and item.window is None and not item.reshaped
    return plain and not others and not any(map(_asks, asked)) and comes_stamped(item)  # type: ignore[arg-type] # an item


def comes_stamped(item: Item) -> bool:
    """Return whether the tuples that an item reads are those of one stream, with their stamps."""
    source = item.source
    return isinstance(source, Stream) or (isinstance(source, Nested) and has_stamps(source.query))


def _scalars_of(output: object) -> Iterator[Scalar]:
    for each in getattr(output, "outputs", (output,)):
        yield each.scalar


def _asks(scalar: Scalar) -> bool:
    return scalar.query is not None or any(map(_asks, scalar.parts))


class ExtentDrawing:
    """Draws COALESCE.

    Parameters
    ----------
    dice
        All randomness.
    turns
        What was drawn before.
    plain
        True for conditions that are little more than comparisons of columns.
    """

    def __init__(self, dice: random.Random, turns: Turns, *, plain: bool) -> None:
        self._dice = dice
        self._turns = turns
        self._plain = plain

    def extent(self, columns: Sequence[Known], window: Window) -> Extent | None:
        """Return COALESCE over tuples with these columns; None if the window's keys are all of them."""
        dice = self._dice
        places = range(len(columns))
        free = [place for place in places if place not in window.partition]
        if not free:
            return None
        named = [*dict.fromkeys(window.partition), *dice.sample(free, min(len(free) - 1, dice.choice((0, 0, 1, 1, 2))))]
        dice.shuffle(named)
        others = [place for place in places if place not in named]
        coalesced = dice.sample(others, min(len(others), dice.choice((1, 1, 2, 3))))
        by = f" BY {', '.join(self._name(columns[key]) for key in named)}" if named else ""
        tolerances = [self._tolerance(columns[place]) for place in coalesced]
        names = [self._name(columns[place]) for place in coalesced]
        plain = f"COALESCE({', '.join(names)}{by})"
        types = tuple(each.type for each in columns)
        found = Extent(plain, plain, types, tuple(named), tuple(coalesced), (None,) * len(coalesced))
        way = dice.random()
        if way < 0.35:
            condition = self._condition(columns)
            text = f"COALESCE({', '.join(names)}{by} WHILE {scalar_text(condition)})"
            return replace(found, text=text, condition=condition, reads=tuple(_reads(condition)))
        if way < 0.75 and any(tolerances):
            names = [f"{name}{each and f' TOLERANCE {each}'}" for name, each in zip(names, tolerances, strict=True)]
            sizes = tuple(float(each) if each else None for each in tolerances)
            return replace(found, text=f"COALESCE({', '.join(names)}{by})", tolerances=sizes)
        return found

    def _name(self, known: Known) -> str:
        return spelling.name(self._dice, known.name)

    def _tolerance(self, known: Known) -> str:
        if known.type not in NUMBERS or self._dice.random() < 0.3:
            return ""
        return self._dice.choice(("0", "0.5", "1", "1.5", "2e0"))

    def _condition(self, columns: Sequence[Known]) -> Scalar:
        dice = self._dice
        own = [replace(each, sql=f"{TUPLE}{n}", alias="", stamp="", sampled=False) for n, each in enumerate(columns)]
        leaves: dict[FieldType, list[Leaf]] = defaultdict(list)
        for place, known in enumerate(own):
            leaves[known.type].append(lambda _need, known=known: column(dice, known, own, plain=True))  # type: ignore[misc] # bound now
            leaves[known.type].append(lambda _need, known=known, place=place: self._previous(known, place))  # type: ignore[misc] # bound now
        scalars = Scalars(dice, leaves, self._turns, wild=any(each.wild for each in own), plain=self._plain)
        if dice.random() < 0.04:
            return scalars.literal(FieldType.BOOLEAN)
        compared = [place for place, each in enumerate(own) if each.type in NUMBERS]
        if compared and dice.random() < 0.5:
            place, sign = dice.choice(compared), dice.choice((">=", "<=", ">", "<", "=", "<>"))
            sides = [column(dice, own[place], own, plain=True), self._previous(own[place], place)]
            dice.shuffle(sides)
            text = (Hole(0, Binding.CONCATENATION), f" {sign} ", Hole(1, Binding.CONCATENATION))
            return Scalar(
                FieldType.BOOLEAN, text, (Hole(0), f" {sign} ", Hole(1)), tuple(sides), Binding.COMPARISON,
                f"{sign}({own[place].type}, {own[place].type})",
            )  # fmt: skip
        return scalars.condition(2)

    def _previous(self, known: Known, place: int) -> Scalar:
        before = replace(known, sql=f"{BEFORE}{place}")
        name = spelling.name(self._dice, known.name)
        return Scalar(
            known.type, (f"PREV({name})",), (before.sql,), label="PREV", exactness=known.exactness, wild=known.wild,
            known=before,
        )  # fmt: skip

    def keep(self) -> str:
        """Return KEEP with room for all."""
        return f"KEEP {self._dice.choice(ROOM)} TUPLES"


def rows_of(extent: Extent, columns: Sequence[Known], mark: str) -> list[Known]:
    """Return the columns of an extent's rows."""
    return [replace(columns[place], sql=f"{mark}.c{n}", stamp="") for n, place in enumerate(extent.shown)]


def _reads(scalar: Scalar) -> Iterator[int]:
    """Yield the places of the columns in a condition, in the order in which they are written."""
    if scalar.known is not None:
        yield int(scalar.known.sql.removeprefix(TUPLE).removeprefix(BEFORE))
    for each in scalar.text:
        if isinstance(each, Hole):
            yield from _reads(scalar.parts[each.part])


def coalesced_rows(table: str, extent: Extent, condition: str | None, *, quality: bool) -> str:
    """Return SQL for the rows of an extent over a table of the tuples at each instant, which has their stamps: `own`.

    Parameters
    ----------
    condition
        That of WHILE, over ``e``.
    quality
        True if rows have a quality, which is 1: nothing was dropped.
    """
    by = "".join(f", c{key}" for key in extent.keys)
    order = ", ".join(["own", *(f"c{tie} ASC NULLS LAST" for tie in extent.ties)])
    same = f"PARTITION BY r, t{by}"
    before = "".join(f", lag(c{place}) OVER w AS p{place}" for place in extent.ties)
    placed = (
        f"SELECT *, row_number() OVER w AS nth, max(own) OVER ({same}) AS newest{before} FROM {table} "
        f"WINDOW w AS ({same} ORDER BY {order})"
    )
    alike = condition or " AND ".join(_alike(*each) for each in zip(extent.columns, extent.tolerances, strict=True))
    begun = f"SELECT * FROM ({placed}) e WHERE nth = 1 OR ({alike}) IS NOT TRUE"
    shown = "".join(f", c{place} AS d{n}" for n, place in enumerate(extent.shown))
    end = f"coalesce(lead(own) OVER ({same} ORDER BY nth), newest)"
    rows = f"SELECT r, t, struct_pack(b := own, e := {end}) AS {COLUMN}{shown} FROM ({begun})"
    named = "".join(f", d{n} AS c{n}" for n in range(len(extent.shown)))
    kept = f", 1.0::DOUBLE AS c{len(extent.shown)}" if quality else ""
    return f"SELECT r, t, NULL::BIGINT AS o, {COLUMN}{named}{kept} FROM ({rows})"


def _alike(place: int, tolerance: float | None) -> str:
    one, other = f"e.c{place}", f"e.p{place}"
    same = f"{one} IS NOT DISTINCT FROM {other}"
    return same if tolerance is None else f"({same} OR f_apart({one}, {other}) <= {tolerance})"


EXTENT_MACROS = (
    """CREATE MACRO f_apart(a, b) AS CASE
    WHEN typeof(a) = 'BIGINT' THEN abs(a::HUGEINT - b::HUGEINT)::DOUBLE ELSE abs(a::DOUBLE - b::DOUBLE)
    END""",
)
"""How far two numbers are apart: whole ones exactly."""
