"""Random queries: SELECT with all its clauses, and set operations."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from protocols.wire.streams import FieldType
from tests.cluster.oracle import text_spelling as spelling
from tests.cluster.oracle.text_clauses import sampled
from tests.cluster.oracle.text_conditions import Conditions, Scope, across_intervals, correlation
from tests.cluster.oracle.text_ends import end_of, has_unlasting, has_unsampled, reads_unlasting, with_period
from tests.cluster.oracle.text_expressions import Exactness, Known, Scalar
from tests.cluster.oracle.text_extents import ExtentDrawing
from tests.cluster.oracle.text_forms import (
    Item,
    Key,
    Output,
    Query,
    Select,
    SetOperation,
    Star,
    Stream,
    Text,
    Zipped,
    types_of,
)
from tests.cluster.oracle.text_groups import group_leaves
from tests.cluster.oracle.text_intervals import IntervalDrawing, Span, with_intervals
from tests.cluster.oracle.text_items import INTEGER, REAL, Items, Offered, Place, aliases_of, spans_of
from tests.cluster.oracle.text_key_sets import key_sets
from tests.cluster.oracle.text_leaves import Turns, column_leaves, has_column
from tests.cluster.oracle.text_outputs import columns
from tests.cluster.oracle.text_readings import hides_quality, kept_at_end, only_read, with_quality
from tests.cluster.oracle.text_scalars import KINDS, Scalars
from tests.cluster.oracle.text_shared import Starring, group_of, shared_columns, with_shared
from tests.cluster.oracle.text_tops import columns_are_plain, with_ranks, with_top
from tests.cluster.oracle.text_zips import by_stamps, zipped

DEEPEST = 2
BOOLEAN, TEXT = FieldType.BOOLEAN, FieldType.TEXT
PANED = 0.08
"""Texts that can be answered from panes; among others they are one in a hundred."""
PANED_TRIES = 60
ALIKE_TRIES = 4
TOPPED = 0.12
RANKED = 0.12
"""Queries with LIMIT, and with ranks."""


def random_text(dice: random.Random, turns: Turns | None = None, *, plain: bool | None = None) -> Text:
    """Return a random query, perhaps with derived streams.

    Parameters
    ----------
    dice
        All randomness.
    turns
        What the texts before it had.
    plain
        True for a text with expressions that are little more than columns, False for one with others; None for either.
    """
    return Queries(dice, turns or Turns(), plain=dice.random() < 0.5 if plain is None else plain).text()


@dataclass(frozen=True)
class _From:
    """FROM, all columns it offers, and what a star means."""

    offered: tuple[Offered, ...]
    columns: tuple[Known, ...]
    starring: tuple[Known, ...] | None = None

    @property
    def spans(self) -> tuple[Span, ...]:
        """The intervals of tuples that a text can ask for."""
        return spans_of(self.offered)


class Queries:
    """Draws queries."""

    def __init__(self, dice: random.Random, turns: Turns, *, plain: bool = False) -> None:
        self.dice = dice
        self._turns = turns
        self._items = Items(dice, self.query, ExtentDrawing(dice, self._turns, plain=plain))
        self._named = 0
        self._plain = plain
        self._left = 8
        """How many more SELECTs there may be in this text."""

    @property
    def exhausted(self) -> bool:
        """True if a text has as many SELECTs as it may have."""
        return self._left <= 0

    def text(self) -> Text:
        """Return a text."""
        dice = self.dice
        if dice.random() < PANED and (paned := self._over_panes()) is not None:
            return Text(paned, (), dice.getrandbits(32))
        derived: list[tuple[str, Query]] = []
        if dice.random() < 0.12:
            for _ in range(dice.choice((1, 1, 2))):
                derived.append((self._name("stream"), self.query(Place(1, names=tuple(derived)))))
        place = Place(DEEPEST, granular=True, lasting=True, names=tuple(derived))
        return Text(self.query(place, outermost=True), tuple(derived), dice.getrandbits(32))

    def _over_panes(self) -> Select | None:
        """Return an aggregate of one stream's window that slides; None if none was drawn."""
        for _ in range(PANED_TRIES):
            self._left = 2
            found = self.select(Place(0))
            (item, *others) = found.items
            window = item.window if isinstance(item, Item) and isinstance(item.source, Stream) else None
            slides = window is not None and window.kind == "RANGE" and window.slide > 1 and not window.keys
            whole = isinstance(item, Item) and item.extent is None and item.valid is None
            if found.grouped and slides and whole and not others:
                return found
        return None

    def query(
        self, place: Place, kinds: Sequence[FieldType] | None = None, *, outermost: bool = False
    ) -> Query:  # fmt: skip
        """Return a query, of columns of some types if given; the whole text, or a part of it."""
        dice = self.dice
        self._left -= 1
        share = 0.0 if place.depth <= 0 or self._left < 2 else 0.25 if place.depth == DEEPEST else 0.12
        names: tuple[tuple[str, Query], ...] = ()
        if place.depth > 0 and self._left > 2 and dice.random() < 0.1:
            given: list[tuple[str, Query]] = []
            for _ in range(dice.choice((1, 1, 2))):
                inner = replace(place, depth=place.depth - 1, granular=False, lasting=False, instants=place.instants,
                                names=(*place.names, *given))  # fmt: skip
                given.append((self._name("w"), self.query(inner)))
            names = tuple(given)
            place = replace(place, names=(*place.names, *names))
        together = dice.random() < share
        found = self._set_operation(place, kinds) if together else self.select(place, kinds, outermost=outermost)
        parentheses = dice.choice((1, 2)) if dice.random() < 0.05 else 0
        found = replace(found, names=names, parentheses=parentheses)
        exact = columns_are_plain(found.outputs) if isinstance(found, Select) else not end_of(found.right)
        return with_top(dice, found) if exact and not place.lasting and dice.random() < TOPPED else found

    def _name(self, start: str) -> str:
        self._named += 1
        return f"{start}{self._named}"

    def _set_operation(self, place: Place, kinds: Sequence[FieldType] | None) -> SetOperation:
        dice = self.dice
        wanted = list(kinds or [dice.choice(KINDS) for _ in range(dice.choice((1, 1, 2, 3)))])
        kind, every = dice.choice(("UNION", "UNION", "EXCEPT", "INTERSECT")), dice.random() < 0.5
        below = replace(place, depth=place.depth - 1, lasting=place.lasting and kind == "UNION" and every)
        if place.instants and kind == "INTERSECT":
            below = replace(below, instants=True)
        sides = []
        for _ in range(2):
            types = [dice.choice((INTEGER, REAL)) if each is REAL else each for each in wanted]
            sides.append(self.query(below, types))
        left, right = sides
        common = tuple(a if a is b else REAL for a, b in zip(types_of(left), types_of(right), strict=True))
        if kinds is not None and common != tuple(kinds):
            left = self.select(below, list(kinds))
            common = tuple(kinds)
        word = f"{kind} {'ALL' if every else dice.choice(('', '', 'DISTINCT'))}".strip()
        left_over = not end_of(right) and (has_unlasting(left) or has_unlasting(right))
        end = self._lifetime() if place.depth == DEEPEST and dice.random() < 0.1 and left_over else ""
        return SetOperation(kind, every, word, left, right, common, end)

    def select(
        self, place: Place, kinds: Sequence[FieldType] | None = None, *, single: bool = False,
        outer: Sequence[Known] | None = None, flows: bool = True, spans: Sequence[Span] = (), outermost: bool = False,
    ) -> Select:  # fmt: skip
        """Return a SELECT.

        Parameters
        ----------
        place
            Where it stands.
        kinds
            The types of its columns.
        single
            True for an aggregate of everything.
        outer
            The columns of the queries around it, if it is correlated.
        flows
            False if the query around it reads relations only.
        spans
            The intervals of the query around it, if it is correlated.
        outermost
            True if its rows are those of the text.
        """
        dice = self.dice
        self._left -= outer is not None or single
        exact = kinds is not None
        lasting = place.lasting and not single and dice.random() < 0.2
        place = replace(place, lasting=lasting)
        grouped = single or (not lasting and outer is None and dice.random() < 0.4)
        from_ = self._from(place, alone=lasting)
        flowing = flows and not all(each.static for each in from_.offered)
        further = tuple(outer) if outer and flowing else ()
        scope = Scope(from_.columns, starring=from_.starring, further=further, flows=flowing, spans=from_.spans)
        wild = any(each.wild for each in from_.columns)
        intervals = IntervalDrawing(dice, self._turns, from_.spans)
        plain = lasting
        scalars, asking = self._scalars(from_, intervals, scope, place, plain=plain)
        conditions = Conditions(self, asking, scope, place, plain=plain)
        across = correlation(scalars, from_.columns, outer, only_equal=single) if outer else []
        if spans and not single:
            across += across_intervals(dice, intervals, aliases_of(from_.offered), spans)
        where = conditions.where(from_.offered, across)
        keys = () if single or not grouped else self._keys(scalars)
        elements = key_sets(dice, self._turns, keys) if grouped and not single else ()
        quantifier, inner = "", scalars if outer is not None else asking
        if grouped:
            taken = scalars if outer is not None else asking
            leaves = group_leaves(
                dice, scalars, taken, from_.offered, keys, counts_samples=not elements, intervals=intervals
            )  # fmt: skip
            if outer is None:
                kept = tuple(each.known for each in keys if each.known is not None)
                grouped_scope = Scope(from_.columns, kept)
                leaves = Conditions(self, scalars, grouped_scope, place, plain=plain or single).with_values(leaves)
            inner = Scalars(dice, leaves, self._turns, wild=wild, plain=self._plain)
        if not lasting and not single and dice.random() < (0.35 if grouped else 0.2):
            quantifier = dice.choice(("DISTINCT", "DISTINCT", "DISTINCT", "ALL"))
        need = Exactness.SAME if exact or quantifier == "DISTINCT" else Exactness.NEARLY
        outputs = columns(inner, scope, kinds, need, grouped=grouped, intervals=intervals)
        while single and not _aggregated(outputs, None):
            outputs = columns(inner, scope, kinds, need, grouped=True, intervals=intervals)
        keys, having = tuple(Key(each) for each in keys), None
        if grouped:
            keys, outputs = self._by_alias(keys, outputs, from_.columns, often=bool(elements))
            if outer is None and dice.random() < 0.3:
                having = Conditions(
                    self, inner, Scope(from_.columns, _kept(keys)), place, plain=plain or single
                ).condition()
            if not keys and not elements and not _aggregated(outputs, having):
                grouped, having = False, None
        items, end = self._at_end(from_.offered, behind_from=not (where or keys or elements or having))
        found = Select(outputs, items, where, keys, elements, grouped, having, quantifier, end)
        free = kinds is None and outer is None and not single and not lasting and columns_are_plain(outputs)
        if free and not (outermost and hides_quality(found)) and dice.random() < RANKED:
            found = with_ranks(dice, inner if grouped else scalars, found, [each.name for each in from_.columns])
        found = only_read(found)
        return with_quality(found) if outermost else found

    def _scalars(
        self, from_: _From, intervals: IntervalDrawing, scope: Scope, place: Place, *, plain: bool
    ) -> tuple[Scalars, Scalars]:
        """Return what draws expressions over the tuples of FROM, and what draws those in which subqueries may stand."""
        wild = any(each.wild for each in from_.columns)
        own = with_intervals(column_leaves(self.dice, from_.columns), intervals.leaves())
        scalars = Scalars(self.dice, own, self._turns, wild=wild, plain=self._plain)
        plainly = Conditions(self, scalars, scope, place, plain=plain)
        open_ = own if plain else plainly.with_values(own)
        return scalars, Scalars(self.dice, open_, self._turns, wild=wild, plain=self._plain)

    def _from(self, place: Place, *, alone: bool) -> _From:
        dice = self.dice
        if place.relation == "always" or (place.relation == "seldom" and dice.random() < 0.15):
            offered = [self._items.item(replace(place, relation="always"), (), relation=True)]
            return _From(tuple(offered), offered[0].columns)
        place = replace(place, relation=None)
        count = 1 if alone or self._left < 1 else dice.choices((1, 2, 3), (72, 24, 4))[0]
        first = self._items.item(place, ())
        offered = [first]
        # What lasts for ever stands alone.
        below = replace(place, lasting=False)
        if not alone and first.instants and dice.random() < 0.12:
            offered = [self._zip(offered[0], below)]
            count = 1 if dice.random() < 0.8 else 2
        starring = Starring((), offered[0].columns)
        # Where an outer join has to know whether there is a partner, conditions name nothing beyond a comma.
        outer = dice.random() < 0.6
        for _ in range(count - 1):
            taken = aliases_of(offered)
            relation = dice.random() < 0.35 and not any(each.static for each in offered)
            other = self._items.item(below, taken, relation=relation)
            if not relation and first.coalesced and dice.random() < 0.6:
                other = self._alike(other, first, lambda taken=taken: self._items.item(below, taken))  # type: ignore[misc] # bound now
            offered, starring = self._joined(offered, other, place, starring, outer=outer)
        columns = tuple(known for each in offered for known in each.columns)
        return _From(tuple(offered), columns, starring.columns)

    def _alike(self, found: Offered, first: Offered, again: Callable[[], Offered]) -> Offered:
        """Return an item with COALESCE like another one, and KEEP if that has it; after some tries, any item."""
        for _ in range(ALIKE_TRIES):
            if found.coalesced and found.kept == first.kept:
                break
            found = again()
        return found

    def _connector(self, group: Sequence[Offered], other: Offered, *, outer: bool) -> str:
        words = [",", ",", ",", "CROSS JOIN", "JOIN", "INNER JOIN"]
        if other.static:
            words += ["LEFT JOIN", "LEFT OUTER JOIN"] * 2
        elif outer and all(each.static for each in group):
            words += ["RIGHT JOIN", "RIGHT OUTER JOIN"] * 2
        elif outer:
            words += [f"{side}{word} JOIN" for side in ("LEFT", "RIGHT", "FULL") for word in ("", " OUTER")]
        return self.dice.choice(words)

    def _joined(
        self, before: list[Offered], other: Offered, place: Place, starring: Starring, *, outer: bool
    ) -> tuple[list[Offered], Starring]:
        """Return the items with another one, as it is joined with those before it."""
        dice = self.dice
        group = before[group_of(before) :]
        connector = self._connector(group, other, outer=outer)
        assert isinstance(other.item, Item)
        item = replace(other.item, connector=connector)
        if (connector.endswith(" JOIN") and connector != "CROSS JOIN") or connector == "JOIN":
            if dice.random() < 0.3 and (shared := shared_columns(dice, before, other)):
                return with_shared(dice, before, replace(other, item=item), shared, starring)
            columns = tuple(known for each in (*(group if outer else before), other) for known in each.columns)
            # Items that come after may have columns of the same names.
            columns = tuple(known for known in columns if known.alias)
            group_spans = spans_of((*(group if outer else before), other))
            intervals = IntervalDrawing(dice, self._turns, [replace(each, alone=False) for each in group_spans])
            leaves = with_intervals(column_leaves(dice, columns, qualified=True), intervals.leaves())
            scalars = Scalars(dice, leaves, self._turns)
            on = Conditions(self, scalars, Scope(columns), place, plain=True).on(other)
            item = replace(item, on=on)
        found = replace(other, item=item)
        return [*before, found], starring.behind(found)

    def _zip(self, left: Offered, place: Place) -> Offered:
        found = left
        for _ in range(self.dice.choice((1, 1, 1, 2))):
            taken = [each.alias for each in found.columns]
            right = self._items.item(replace(place, instants=True, granular=False), taken)
            join = zipped if self.dice.random() < 0.5 else by_stamps
            found = join(self.dice, self._items.mark(), found, right)
        return found

    def _at_end(self, offered: tuple[Offered, ...], *, behind_from: bool) -> tuple[tuple[Item | Zipped, ...], str]:
        """Return the items, and the clauses at the end; SAMPLE is about all streams that have none of their own."""
        end = ""
        items = tuple(each.item for each in offered)
        # Right behind FROM it would be about the last stream only.
        if not behind_from and any(has_unsampled(each) for each in items) and self.dice.random() < 0.04:
            period, end = sampled(self.dice)
            items = tuple(with_period(each, period) for each in items)
        if self.dice.random() < 0.08 and any(reads_unlasting(each) for each in items):
            end = f"{end} {self._lifetime()}".strip()
        return (items, end) if behind_from else kept_at_end(self.dice, items, end)

    def _lifetime(self) -> str:
        wanted = self.dice.choice((86_400_000_000, 604_800_000_000, 3_600_000_000))
        return f"LIFETIME {spelling.duration(self.dice, wanted)}"

    def _keys(self, scalars: Scalars) -> tuple[Scalar, ...]:
        dice = self.dice
        keys: list[Scalar] = []
        for _ in range(dice.choice((0, 1, 1, 1, 2))):
            kind = dice.choice(scalars.kinds)
            key = scalars.leaf(kind, Exactness.SAME) if dice.random() < 0.6 else scalars.value(kind, 1, Exactness.SAME)
            truth = key.type is BOOLEAN and not key.parts
            if (has_column(key) or truth) and not any(key.sql == each.sql for each in keys):
                keys.append(replace(key, parentheses=0))
        return tuple(keys)

    def _by_alias(
        self, keys: Sequence[Key], outputs: tuple[Output | Star, ...], columns: Sequence[Known], *, often: bool
    ) -> tuple[tuple[Key, ...], tuple[Output | Star, ...]]:
        """Write some keys as the name that SELECT gives to them, or as their place in it."""
        found = list(keys)
        visible = {each.name.casefold() for each in columns}
        for number, each in enumerate(outputs, start=1):
            if (
                isinstance(each, Output)
                and each.scalar.key is not None
                and self.dice.random() < (0.4 if often else 0.15)
            ):
                found[each.scalar.key] = replace(found[each.scalar.key], text=str(number))
            elif (
                isinstance(each, Output)
                and each.scalar.key is not None
                and each.alias
                and each.name.casefold() not in visible
            ):
                place = each.scalar.key
                if self.dice.random() < 0.5:
                    found[place] = replace(found[place], text=spelling.name(self.dice, each.name))
        return tuple(found), outputs


def _kept(keys: Sequence[Key]) -> tuple[Known, ...]:
    return tuple(each.scalar.known for each in keys if each.scalar.known is not None)


def _aggregated(outputs: Sequence[Output | Star], having: Scalar | None) -> bool:
    shown = [each.scalar for each in outputs if isinstance(each, Output)]
    return any(_has_aggregate(each) for each in (*shown, *([having] if having else [])))


def _has_aggregate(scalar: Scalar) -> bool:
    return scalar.aggregate is not None or any(_has_aggregate(part) for part in scalar.parts)
