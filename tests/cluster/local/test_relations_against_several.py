"""Relations that several windows are held against: no row comes before all windows are full that it depends on.

Random conditions, joins and set operations over two streams and a relation that changes, against their definition: at
an instant, a row has no partner in a window if the window can be full then and no tuple in it fits.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.fjord.batch import NEVER
from cluster.language.catalog import Catalog, StaticRelation
from cluster.language.translation import translate
from cluster.operators import Held
from cluster.operators.columns import Column
from cluster.operators.walks import nodes_of
from cluster.physical.lowering import lower
from cluster.physical.nodes import unbegun_streams
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.history import with_history_starts
from cluster.plan.rewrite import rewrite
from cluster.testing import ABORT, EOF, PAUSE, WATERMARK, QueryRun, ScriptedRelation, ScriptedSource
from protocols.wire.streams import Field, FieldType, StreamSchema

LAST = 40
FIELDS = {"x": int, "y": int}
STREAMS = ("a", "b")
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Span:
    """A window of time, in microseconds."""

    size: int
    slide: int = 1

    def __str__(self) -> str:
        return f"WINDOW(RANGE {self.size} US{f' SLIDE {self.slide} US' if self.slide > 1 else ''})"


@dataclass(frozen=True)
class World:
    """What there is: tuples by stream (stamp, x, y), where each begins, and rows (k, v), which change at an instant."""

    tuples: dict[str, list[Row]]
    first: list[Row]
    begins: dict[str, int]
    changes: int = 10**9
    later: tuple[Row, ...] = ()


@dataclass(frozen=True)
class At:
    """An instant, and where the rows begin that have no partner, but for the windows."""

    world: World
    at: int
    begins: int

    @property
    def rows(self) -> list[Row]:
        return self.world.first if self.at < self.world.changes else [*self.world.later]

    def window(self, stream: str, span: Span) -> list[Row]:
        moved = (self.at + 1) // span.slide * span.slide - 1
        return [(x, y) for stamp, x, y in self.world.tuples[stream] if stamp <= moved < stamp + span.size]

    def full(self, span: Span) -> bool:
        return self.at >= self.begins + 1 + span.size + span.slide


Test = Callable[[At, Row], bool]


@dataclass(frozen=True)
class Condition:
    """A condition: when it certainly chooses a row, when it certainly does not; and the streams it may wait for."""

    text: str
    chosen: Test
    rejected: Test
    chosen_waits: frozenset[str] = frozenset()
    rejected_waits: frozenset[str] = frozenset()
    parts: tuple[Condition, ...] = ()
    """Those that AND connects, or OR if it is `negative`."""
    negative: bool = False


def exists(stream: str, size: Span, form: str) -> Condition:
    """A subquery over a window; the forms are its spellings."""
    window = f"{stream} {size}"

    def there(now: At, row: Row) -> bool:
        return any(x == row[0] and (form != "more" or y > row[1]) for x, y in now.window(stream, size))

    def lacking(now: At, row: Row) -> bool:
        return now.full(size) and not there(now, row)

    more = " AND y > v" if form == "more" else ""
    text = f"k IN (SELECT x FROM {window})" if form == "in" else f"EXISTS (SELECT * FROM {window} WHERE x = k{more})"
    return Condition(text, there, lacking, frozenset(), frozenset({stream}))


def without_any(stream: str, size: Span) -> Condition:
    """Two levels: none of the other rows with this v lacks a tuple."""
    inner = f"SELECT s.v FROM r AS s WHERE NOT EXISTS (SELECT * FROM {stream} {size} WHERE x = s.k)"

    def lacks(now: At, row: Row) -> bool:
        silent = [k for k, v in now.rows if v == row[1] and not any(x == k for x, _ in now.window(stream, size))]
        return now.full(size) and bool(silent)

    def complete(now: At, row: Row) -> bool:
        return now.full(size) and not lacks(now, row)

    return Condition(f"v IN ({inner})", lacks, complete, frozenset({stream}), frozenset({stream}))


def plain(bound: int) -> Condition:
    return Condition(f"v > {bound}", lambda _, row: row[1] > bound, lambda _, row: row[1] <= bound)


def negated(one: Condition) -> Condition:
    text = f"NOT ({one.text})"
    if one.parts:  # NOT of AND is OR of NOT, and the other way round
        return connected(text, tuple(map(negated, one.parts)), negative=not one.negative)
    return Condition(text, one.rejected, one.chosen, one.rejected_waits, one.chosen_waits)


def both(one: Condition, other: Condition) -> Condition:
    return connected(f"({one.text}) AND ({other.text})", (one, other))


def either(one: Condition, other: Condition) -> Condition:
    return negated(both(negated(one), negated(other)))


def connected(text: str, parts: tuple[Condition, ...], *, negative: bool = False) -> Condition:
    """Connect conditions by AND, or by OR if it is `negative`: each is asked of rows of which those before are certain.

    Of those that AND connects, the ones without a subquery are asked first.
    """
    asked = parts if negative else tuple(sorted(_flat(parts), key=lambda each: "SELECT" in each.text))

    def all_of(now: At, row: Row) -> bool:
        return all((each.rejected if negative else each.chosen)(now, row) for each in asked)

    def one_of(now: At, row: Row) -> bool:
        for each in asked:
            decides, passes = (each.chosen, each.rejected) if negative else (each.rejected, each.chosen)
            if decides(now, row):
                return True
            if not passes(now, row):
                return False
        return False

    waits = [(each.chosen_waits, each.rejected_waits)[:: -1 if negative else 1] for each in asked]
    all_waits = frozenset[str]().union(*(passes for passes, _ in waits))
    one_waits = frozenset[str]().union(*(decides for _, decides in waits), *(passes for passes, _ in waits[:-1]))
    if negative:
        return Condition(text, one_of, all_of, one_waits, all_waits, parts, negative)
    return Condition(text, all_of, one_of, all_waits, one_waits, parts, negative)


def _flat(parts: tuple[Condition, ...]) -> Iterator[Condition]:
    for each in parts:
        yield from _flat(each.parts) if each.parts and not each.negative else (each,)


SIZES = st.sampled_from([Span(3), Span(7), Span(12), Span(4, 3), Span(2, 5), Span(9, 9)])
LEAVES = st.one_of(
    st.builds(exists, st.sampled_from(STREAMS), SIZES, st.sampled_from(["plain", "in", "more"])),
    st.builds(exists, st.sampled_from(STREAMS), SIZES, st.sampled_from(["plain", "in", "more"])).map(negated),
    st.builds(without_any, st.sampled_from(STREAMS), SIZES),
    st.builds(plain, st.integers(1, 2)),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda some: st.one_of(st.builds(both, some, some), st.builds(either, some, some), some.map(negated)),
    max_leaves=4,
)


@dataclass(frozen=True)
class Query:
    """A query: its text, its rows at an instant, and the streams that it may wait for."""

    text: str
    rows: Callable[[At], list[Row]]
    waits: frozenset[str]


def choosing(condition: Condition) -> Query:
    return Query(
        f"SELECT k, v FROM r WHERE {condition.text}",
        lambda now: [row for row in now.rows if condition.chosen(now, row)],
        condition.chosen_waits,
    )


def counting(condition: Condition) -> Query:
    chosen = choosing(condition)
    return Query(
        f"SELECT v, COUNT(*) AS n FROM r WHERE {condition.text} GROUP BY v",
        lambda now: list(Counter(v for _, v in chosen.rows(now)).items()),
        chosen.waits,
    )


def outer_joins(sizes: tuple[Span, Span], form: str, condition: Condition) -> Query:
    """A relation and one stream by some outer join, then the other stream on the right, and a condition on the rows."""
    one, other = (f"{stream} {size}" for stream, size in zip(STREAMS, sizes, strict=True))
    items = {
        "LEFT": f"r LEFT JOIN {one} ON a.x = k",
        "RIGHT": f"{one} RIGHT JOIN r ON a.x = k",
        "FULL": f"r FULL JOIN {one} ON a.x = k",
    }

    def rows(now: At) -> list[Row]:
        first, second = (now.window(stream, size) for stream, size in zip(STREAMS, sizes, strict=True))
        chosen = [row for row in now.rows if condition.chosen(now, row)]
        found = [(*row, y) for row in chosen for x, y in first if x == row[0]]
        if now.full(sizes[0]):
            found += [(*row, None) for row in chosen if not any(x == row[0] for x, _ in first)]
        answer = [(*row, y) for row in found for x, y in second if x == row[0]]
        if now.full(sizes[1]):
            answer += [(*row, None) for row in found if not any(x == row[0] for x, _ in second)]
        if form == "FULL":  # tuples of the stream itself do not wait
            answer += [(None, None, y, None) for x, y in first if not any(k == x for k, _ in now.rows)]
        return answer

    keeps = f"k IS NULL OR ({condition.text})" if form == "FULL" else condition.text
    text = f"SELECT k, v, a.y AS one, b.y AS two FROM {items[form]} LEFT JOIN {other} ON b.x = k WHERE {keeps}"
    return Query(text, rows, frozenset(STREAMS) | condition.chosen_waits)


def beside(sizes: tuple[Span, Span], operations: tuple[str, str]) -> Query:
    """Set operations of a relation and both streams; what is left by EXCEPT waits for its window."""

    def rows(now: At) -> list[Row]:
        waited = all(now.full(size) for size, each in zip(sizes, operations, strict=True) if each == "EXCEPT")
        found = {k for k, _ in now.rows} if waited else set()
        for stream, size, operation in zip(STREAMS, sizes, operations, strict=True):
            window = {x for x, _ in now.window(stream, size)}
            found = {"EXCEPT": found - window, "INTERSECT": found & window, "UNION": found | window}[operation]
        return [(k,) for k in found]

    first, second = (f"SELECT x FROM {stream} {size}" for stream, size in zip(STREAMS, sizes, strict=True))
    text = f"(SELECT k FROM r {operations[0]} {first}) {operations[1]} {second}"
    waits = frozenset(s for s, operation in zip(STREAMS, operations, strict=True) if operation == "EXCEPT")
    return Query(text, rows, waits)


PAIRS_OF_SIZES = st.tuples(SIZES, SIZES)
OPERATION = st.sampled_from(["EXCEPT", "INTERSECT", "UNION"])
QUERIES = st.one_of(
    st.builds(choosing, CONDITIONS),
    st.builds(counting, CONDITIONS),
    st.builds(outer_joins, PAIRS_OF_SIZES, st.just("FULL"), st.builds(plain, st.integers(0, 1))),
    st.builds(outer_joins, PAIRS_OF_SIZES, st.sampled_from(["LEFT", "RIGHT"]), CONDITIONS),
    st.builds(beside, PAIRS_OF_SIZES, st.tuples(OPERATION, OPERATION)),
)
TUPLES = st.lists(st.tuples(st.integers(3, LAST), st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=8)
ROWS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=5)


def script(world: World, stream: str, dice: random.Random, lateness: int) -> list[Any]:
    comes = sorted(world.tuples[stream], key=lambda each: each[0] + dice.random() * lateness)
    items: list[Any] = [(at, {"x": x, "y": y}) for at, x, y in comes]
    items.insert(dice.randrange(len(items) + 1), ABORT())
    if world.begins[stream] < min(at for at, _, _ in world.tuples[stream]):
        items[:0] = [WATERMARK(world.begins[stream]), PAUSE("1s")]
    return [*items, EOF()]


def check(query: Query, world: World, *, seed: int = 0, lateness: int = 0, size: int = 1) -> None:
    dice = random.Random(seed)
    sources = {
        each: ScriptedSource(FIELDS, script(world, each, dice, lateness), batch_size=size, lateness=f"{lateness}us")
        for each in STREAMS
        if f"{each} WINDOW" in query.text
    }
    first, later = ([{"k": k, "v": v} for k, v in rows] for rows in (world.first, world.later))
    relation = ScriptedRelation({"k": int, "v": int}, first, {world.changes: later})
    run = QueryRun(query.text, sources, {"r": relation}, buckets=dice.randint(1, 2))
    run.run()
    run.clock.advance("2s")
    run.run()
    begins = max([world.begins[each] for each in query.waits], default=0)
    # A query whose rows need not wait begins with the first of its streams; before, there is no tuple to choose them.
    for at in range(min(world.begins.values()), LAST + 30):
        found = Counter(tuple(each.row.values()) for each in run.answers if each.start <= at < (each.end or NEVER))
        expected = Counter(query.rows(At(world, at, begins)))
        if at < max(world.begins[each] for each in sources):
            continue
        assert found == expected, (query.text, at)


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    query=QUERIES.filter(lambda query: " WINDOW" in query.text),
    tuples=st.tuples(TUPLES, TUPLES),
    rows=ROWS,
    changes=st.integers(1, 60),
    later=ROWS,
    promised=st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from([None, 1, 2])),
    lateness=st.integers(0, 4),
    size=st.sampled_from([1, 2, 100]),
    seed=st.integers(0, 2**32),
)
def test_a_row_waits_for_all_windows_it_is_held_against(
    query: Query,
    tuples: tuple[list[Row], list[Row]],
    rows: list[Row],
    changes: int,
    later: list[Row],
    promised: tuple[int | None, int | None],
    lateness: int,
    size: int,
    seed: int,
) -> None:
    found = dict(zip(STREAMS, tuples, strict=True))
    begins = {
        stream: min(at for at, _, _ in found[stream]) if at is None else at
        for stream, at in zip(STREAMS, promised, strict=True)
    }
    check(query, World(found, rows, begins, changes, tuple(later)), seed=seed, lateness=lateness, size=size)


@pytest.mark.parametrize(
    ("stands", "begins", "unbegun"),
    [
        ({"a": 50, "b": 70}, {70}, set()),
        ({"a": 70, "b": 50}, {50}, set()),
        ({"a": 50}, {None}, {"b"}),
        ({"b": 50}, {50}, set()),
        ({}, {None}, {"b"}),
    ],
)
def test_only_streams_that_rows_are_held_against_are_waited_for(
    stands: dict[str, int], begins: set[int | None], unbegun: set[str]
) -> None:
    fields = (Field("x", FieldType.INTEGER),)
    relation = StaticRelation("r", "r@1", (Column("k", FieldType.INTEGER),))
    catalog = Catalog.of([StreamSchema("a", fields), StreamSchema("b", fields), relation])
    text = "SELECT k FROM r WHERE k IN (SELECT x FROM a) AND k NOT IN (SELECT x FROM b WINDOW(RANGE 5 US))"
    node = with_history_starts(rewrite(translate(text, catalog).node).node, 1, stands)
    assert {each.begins_us for each in nodes_of(node) if isinstance(each, Held)} == begins
    fragments = lower(Plan(1, (PlannedQuery("q", 1, node),))).fragments
    assert unbegun_streams(fragments) == unbegun


@pytest.mark.parametrize("sizes", [(Span(3), Span(12)), (Span(12), Span(3))])
@pytest.mark.parametrize("connector", [both, either])
def test_the_longer_window_is_waited_for(
    sizes: tuple[Span, Span], connector: Callable[[Condition, Condition], Condition]
) -> None:
    one, other = (negated(exists(s, n, "plain")) for s, n in zip(STREAMS, sizes, strict=True))
    world = World({"a": [(9, 2, 1)], "b": [(30, 2, 1)]}, [(1, 1), (2, 1)], {"a": 5, "b": 6})
    for condition in (connector(one, other), connector(other, one)):
        check(choosing(condition), world)


def test_rows_begin_with_a_stream_though_its_window_has_moved_on() -> None:
    world = World({"a": [(3, 1, 1), (3, 1, 1)], "b": [(3, 1, 1)]}, [(1, 1)], {"a": 3, "b": 3})
    check(outer_joins((Span(2, 5), Span(3)), "FULL", plain(0)), world, lateness=1)
