"""Random items of FROM: streams with their clauses, events, subqueries, changes, the relation, and zipper joins."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from protocols.wire.streams import FieldType
from tests.cluster.oracle import text_clauses as clauses_of
from tests.cluster.oracle import text_spelling as spelling
from tests.cluster.oracle.text_ends import has_live
from tests.cluster.oracle.text_expressions import Exactness, Known
from tests.cluster.oracle.text_extents import (
    QUALITY,
    ExtentDrawing,
    comes_stamped,
    has_stamps,
    may_coalesce,
    may_keep,
    rows_of,
)
from tests.cluster.oracle.text_forms import (
    Changes,
    InOrder,
    Item,
    Named,
    Nested,
    Query,
    Relation,
    Stream,
    Zipped,
    types_of,
    without_validity,
)
from tests.cluster.oracle.text_in_order import Called, InOrderDrawing
from tests.cluster.oracle.text_intervals import COLUMN, Span
from tests.cluster.oracle.text_outputs import columns_of, unique
from tests.cluster.oracle.text_world import DETECTORS, EVENT_SCHEMA, PLACES, SCHEMAS, STAMPED_BY, events_name
from tests.cluster.specimens import CLAUSES
from tests.cluster.specimens.clause import draw_clause

STREAMS = ("alpha", "alpha", "alpha", "Beta", "Beta", "Order", "wild", "wild", "road")
ALIASES = ("a", "b", "t", "u", "Größe", "Select", "from", "x1", "Zip", "lifetime", "k")
BOOLEAN, INTEGER, REAL = FieldType.BOOLEAN, FieldType.INTEGER, FieldType.REAL


@dataclass(frozen=True)
class Offered:
    """An item, and the columns it offers.

    Parameters
    ----------
    base
        True if sensors feed it.
    instants
        True if its tuples are valid at one instant only.
    static
        True if it is the relation.
    """

    item: Item | Zipped
    columns: tuple[Known, ...]
    alias: str
    base: bool = False
    instants: bool = False
    static: bool = False

    @property
    def coalesced(self) -> bool:
        """True for the rows of COALESCE."""
        return isinstance(self.item, Item) and self.item.extent is not None

    @property
    def kept(self) -> bool:
        """True if KEEP stands there, too."""
        return isinstance(self.item, Item) and bool(self.item.keep)

    @property
    def span(self) -> Span | None:
        """The intervals of its tuples, if a text can ask for them."""
        if isinstance(self.item, Item) and self.item.has_intervals:
            return Span(self.alias, f"{self.item.mark}.{COLUMN}")
        return None


def spans_of(offered: Sequence[Offered]) -> tuple[Span, ...]:
    """Return the intervals that items of FROM offer."""
    found = [each.span for each in offered if each.span is not None]
    lasting = any(isinstance(each.item, Item) and ends_open(each.item) for each in offered)
    return tuple(replace(each, alone=len(found) == 1 and not lasting) for each in found)


def ends_open(item: Item) -> bool:
    """Return whether tuples of an item may hold for ever, so that no text can ask for how long."""
    return item.window is not None and item.window.kind == "NEXT" and item.window.size is None


@dataclass(frozen=True)
class Place:
    """Where an item stands: what may stand there.

    Parameters
    ----------
    depth
        How many levels of subqueries are left.
    granular
        True where GRANULARITY may stand: below no window and no changes.
    lasting
        True where tuples may stay for ever.
    instants
        True where only tuples of one instant may stand, and no windows.
    relation
        Whether the relation stands there alone: seldom, always or (None) never.
    names
        What WITH and derived streams offer.
    """

    depth: int
    granular: bool = False
    lasting: bool = False
    instants: bool = False
    relation: Literal["seldom", "always"] | None = None
    names: tuple[tuple[str, Query], ...] = ()


class Items:
    """Draws items of FROM.

    Parameters
    ----------
    dice
        All randomness.
    query
        Draws a subquery.
    extents
        Draws COALESCE.
    """

    def __init__(self, dice: random.Random, query: Callable[[Place], Query], extents: ExtentDrawing) -> None:
        self.dice = dice
        self._query = query
        self._extents = extents
        self._marks = 0

    def mark(self) -> str:
        """Return a name for DuckDB."""
        self._marks += 1
        return f"f{self._marks}"

    def item(self, place: Place, taken: Sequence[str], *, relation: bool = False) -> Offered:
        """Return an item whose alias is not among those taken."""
        if relation:
            return self._relation(place, taken)
        kinds = ["stream"] * 10 + ["events"]
        if place.depth > 0:
            kinds += ["nested"] * 3 + ["changes"] * 2 + ["in order"] * 2
        if place.names and not place.instants:
            kinds += ["named"] * 4
        match self.dice.choice(kinds):
            case "stream":
                return self._stream(place, taken)
            case "events":
                return self._events(place, taken)
            case "nested":
                return self._nested(place, taken)
            case "named":
                return self._named(place, taken)
            case "in order":
                return self._in_order(place, taken)
            case _:
                return self._changes(place, taken)

    def _stream(self, place: Place, taken: Sequence[str]) -> Offered:
        dice = self.dice
        name = dice.choice(STREAMS)
        period, sample = clauses_of.sampled(dice) if dice.random() < 0.08 else (None, "")
        clauses = [sample] if sample else []
        if dice.random() < 0.08:
            clauses.append(clauses_of.since(dice))
        source = Stream(spelling.name(dice, name), name, period)
        fields = SCHEMAS[name].fields
        mark = self.mark()
        wild = name == "wild"
        exactness = Exactness.SAME if wild else Exactness.EVEN
        columns = [
            Known(each.name, each.type, f"{mark}.c{n}", "", exactness if each.type is REAL else Exactness.EVEN,
                  wild, f"{mark}.own", sampled=each.type in (INTEGER, REAL) and not each.fixed)
            for n, each in enumerate(fields)
        ]  # fmt: skip
        return self._with_clauses(place, Item(source, mark, len(fields)), columns, taken, clauses, name, base=True)

    def _events(self, place: Place, taken: Sequence[str]) -> Offered:
        dice = self.dice
        above, below = dice.choice(DETECTORS)
        levels = f"{spelling.name(dice, 'höhe')} ABOVE {self._level(above)}" + (
            f" BELOW {self._level(below)}" if below != above else ""
        )
        clauses = [f"EVENTS({levels})"]
        if dice.random() < 0.3:
            clauses.append(clauses_of.sampled(dice)[1])
        source = Stream(spelling.name(dice, "road"), events_name(above, below))
        mark = self.mark()
        columns = [
            Known(each.name, each.type, f"{mark}.c{n}", "", stamp=f"{mark}.own") for n, each in enumerate(EVENT_SCHEMA)
        ]
        return self._with_clauses(place, Item(source, mark, len(columns)), columns, taken, clauses, "road", base=True)

    def _level(self, level: float) -> str:
        return self.dice.choice((f"{level:g}", f"{level:.2f}"))

    def _relation(self, place: Place, taken: Sequence[str]) -> Offered:
        mark = self.mark()
        if place.depth > 0 and place.relation != "always" and self.dice.random() < 0.25:
            query = self._query(Place(0, relation="always"))
            nested = Item(Nested(query), mark, len(types_of(query)))
            alias, written = self._alias(taken, "")
            made = _called(columns_of(query, mark), alias)
            return Offered(replace(nested, clauses=(written,) if written else ()), made, alias, static=True)
        columns = [Known(each.name, each.type, f"{mark}.c{n}", "") for n, each in enumerate(PLACES.columns)]
        item = Item(Relation(spelling.name(self.dice, "places")), mark, len(columns))
        alias, written = self._alias(taken, "places")
        return Offered(
            replace(item, clauses=(written,) if written else ()), _called(columns, alias), alias, static=True
        )

    def _nested(self, place: Place, taken: Sequence[str]) -> Offered:
        below = replace(place, depth=place.depth - 1, relation=None)
        windowed = not place.instants and self.dice.random() < 0.4
        if windowed:
            below = replace(below, granular=False, lasting=False, instants=self.dice.random() < 0.5)
        query = self._query(replace(below, lasting=False))
        if windowed and below.instants and not has_stamps(query) and self.dice.random() < 0.5:
            query = self._query(Place(0, instants=True))
        mark = self.mark()
        instants = below.instants
        item = Item(Nested(query), mark, len(types_of(query)))
        return self._with_clauses(
            place, item, columns_of(query, mark), taken, [], "", instants=instants, windowed=windowed
        )

    def _named(self, place: Place, taken: Sequence[str]) -> Offered:
        usable = [(name, query) for name, query in place.names]
        name, query = self.dice.choice(usable)
        mark = self.mark()
        item = Item(Named(spelling.name(self.dice, name), name), mark, len(types_of(query)))
        windowed = not place.instants and self.dice.random() < 0.4
        clauses = [clauses_of.since(self.dice)] if self.dice.random() < 0.05 and has_live(query) else []
        return self._with_clauses(place, item, columns_of(query, mark), taken, clauses, name, windowed=windowed)

    def _changes(self, place: Place, taken: Sequence[str]) -> Offered:
        dice = self.dice
        kind = dice.choice(("ISTREAM", "DSTREAM", "RSTREAM") if not place.instants else ("ISTREAM", "DSTREAM"))
        below = Place(place.depth - 1, lasting=kind == "ISTREAM", names=place.names)
        inner = self.item(below, ())
        while inner.base and isinstance(inner.item, Item) and inner.item.window is None:
            inner = self.item(below, ())
        mark = self.mark()
        assert isinstance(inner.item, Item)
        columns = [replace(each, sql=f"{mark}.c{n}", stamp="", sampled=False) for n, each in enumerate(inner.columns)]
        # Nothing can ask for the intervals of these.
        changed = without_validity(inner.item)
        item = Item(Changes(dice.choice((kind, kind.title())), kind, changed), mark, changed.width)
        return self._with_clauses(place, item, columns, taken, [], inner.alias, instants=kind != "RSTREAM")

    def _in_order(self, place: Place, taken: Sequence[str]) -> Offered:
        dice = self.dice
        inner = self.item(Place(0, instants=True), ())
        assert isinstance(inner.item, Item)
        own = inner.columns
        keys = tuple(dice.sample(range(len(own)), min(len(own), dice.choice((0, 1, 1, 2)))))
        stamp = STAMPED_BY.get(inner.item.source.table) if isinstance(inner.item.source, Stream) else None
        drawing = InOrderDrawing(dice, own, keys, stamp)
        shown = dice.sample(range(len(own)), min(len(own), dice.choice((1, 2, 2))))
        columns = tuple((place, spelling.name(dice, own[place].name)) for place in shown)
        calls = tuple((drawing.called(), f"made_{n}") for n in range(dice.choice((1, 1, 2))))
        where = None
        if dice.random() < 0.2:
            tested = dice.randrange(len(own))
            where = (tested, spelling.name(dice, own[tested].name))
        query = InOrder(inner.item, columns, calls, keys, where, self._qualify(drawing, calls))
        mark = self.mark()
        made = [
            *(replace(own[place], sql=f"{mark}.c{n}", stamp="", sampled=False) for n, place in enumerate(shown)),
            *(
                Known(name, call.type, f"{mark}.c{len(shown) + n}", "", call.exactness, wild=True)
                for n, (call, name) in enumerate(calls)
            ),
        ]
        item = Item(query, mark, len(made))
        windowed = not place.instants and dice.random() < 0.4
        return self._with_clauses(place, item, made, taken, [], "", instants=True, windowed=windowed)

    def _qualify(
        self, drawing: InOrderDrawing, calls: Sequence[tuple[Called, str]]
    ) -> tuple[str, Called | None, str] | None:
        """Return a condition of QUALIFY: text, the function in it, and DuckDB."""
        dice = self.dice
        if dice.random() < 0.5:
            return None
        call = drawing.condition()
        written = [("TRUE", None, "TRUE"), ("NULL", None, "NULL::BOOLEAN")]
        named = [(each, name) for each, name in calls if each.type is BOOLEAN]
        if named:
            each, name = dice.choice(named)
            written += [(name, each, "{}"), (name, each, "{}")]
        written += [
            (call.text, call, "{}"), (f"NOT {call.text}", call, "NOT {}"),
            (f"COALESCE({call.text}, FALSE)", call, "coalesce({}, FALSE)"),
        ]  # fmt: skip
        return dice.choice(written)

    def _with_clauses(
        self, place: Place, item: Item, columns: Sequence[Known], taken: Sequence[str], clauses: list[str], alias: str,
        *, base: bool = False, instants: bool = False, windowed: bool | None = None,
    ) -> Offered:  # fmt: skip
        dice = self.dice
        window = None
        if not place.instants and (dice.random() < 0.6 if windowed is None else windowed):
            window = clauses_of.window(
                dice,
                columns,
                lasting=place.lasting and isinstance(item.source, Stream),
                long=place.granular,
                stamped=base or instants,
            )
            clauses.append(window.text)
            item = replace(item, window=window)
            item, columns = self._with_intervals(item, columns, clauses, instants=base or instants)
        allowed = [each for each in CLAUSES.values() if place.granular or (each.below_windows and not place.instants)]
        reshaped = tuple(draw_clause(dice, each) for each in allowed if dice.random() < 0.12)
        clauses += [each.text for each in reshaped]
        alias, written = self._alias(taken, alias)
        dice.shuffle(clauses)
        if written:
            clauses.insert(dice.randint(0, len(clauses)) if dice.random() < 0.5 else 0, written)
        found = replace(item, clauses=tuple(clauses), reshaped=reshaped)
        at_instants = (base or instants) and window is None and not reshaped
        return Offered(found, _called(columns, alias), alias, base=base, instants=at_instants)

    def _with_intervals(
        self, item: Item, columns: Sequence[Known], clauses: list[str], *, instants: bool
    ) -> tuple[Item, Sequence[Known]]:  # fmt: skip
        """Return an item with a window, perhaps with COALESCE, or VALID UNTIL NEXT beside it."""
        dice, window = self.dice, item.window
        assert window is not None
        if not instants or window.kind == "NEXT" or window.size is None:
            return item, columns
        stamped = comes_stamped(item) and may_coalesce(window)
        often = isinstance(item.source, Nested)
        if stamped and dice.random() < (0.6 if often else 0.2) and (extent := self._extents.extent(columns, window)):
            clauses.append(extent.text)
            rows = rows_of(extent, columns, item.mark)
            item = replace(item, extent=extent, width=len(rows))
            if not may_keep(window) or dice.random() < 0.4:
                return item, rows
            keep = self._extents.keep()
            clauses.append(keep)
            name = unique(QUALITY, [each.name for each in columns])
            quality = Known(name, REAL, f"{item.mark}.c{item.width}", "", Exactness.EVEN)
            return replace(item, width=item.width + 1, keep=keep), [*rows, quality]
        if dice.random() < 0.09:
            valid = clauses_of.until_next(dice, columns, ending=True)
            clauses.append(valid.text)
            return replace(item, valid=valid), columns
        return item, columns

    def _alias(self, taken: Sequence[str], own: str) -> tuple[str, str]:
        """Return what an item is called, and how that is written."""
        used = {each.casefold() for each in taken}
        if own.casefold() not in used and self.dice.random() < 0.4:
            return own, ""
        alias = self.dice.choice([each for each in ALIASES if each.casefold() not in used])
        written = spelling.name(self.dice, alias, exactly=True)
        # Without AS, or out of quotes, it might be taken for the clause that it is called as.
        clause = alias in ("Zip", "lifetime")
        return alias, f"AS {written}" if clause or self.dice.random() < 0.5 else written


def _called(columns: Sequence[Known], alias: str) -> tuple[Known, ...]:
    return tuple(replace(each, alias=alias) for each in columns)


def aliases_of(offered: Sequence[Offered]) -> list[str]:
    """Return what items are called, those within zipper joins too."""
    return [known.alias for each in offered for known in each.columns] + [each.alias for each in offered]
