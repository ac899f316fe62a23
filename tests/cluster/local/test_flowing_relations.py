"""Relations on the left: whose rows have no partner, at every instant, however tuples come and the relation changes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.fjord.acceptance import check_supported
from cluster.fjord.batch import NEVER, START, Batch
from cluster.fjord.operators.held_rows import Held
from cluster.fjord.stream_scan import RowsInMemory
from cluster.language.catalog import Catalog, StaticRelation
from cluster.language.errors import FjordSqlError
from cluster.language.translation import translate
from cluster.local.engine import Arrival, LocalEngine, MemoryTables, RelationRows
from cluster.operators import Held as HeldNode
from cluster.operators import Node, Relation
from cluster.operators.columns import Column
from cluster.operators.walks import nodes_of
from cluster.physical.nodes import beginning_us
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.history import with_history_starts
from cluster.plan.rewrite import rewrite
from cluster.testing import ABORT, EOF, PAUSE, WATERMARK, QueryRun, ScriptedRelation, ScriptedSource
from protocols.wire.batches import DEFAULT_RATE_COLUMN
from protocols.wire.streams import Field, FieldType, StreamSchema

INTEGER = FieldType.INTEGER
SCHEMA = StreamSchema("a", (Field("x", INTEGER), Field("y", INTEGER)))
CATALOG = Catalog.of([
    SCHEMA,
    StaticRelation("r", "r@1", (Column("k", INTEGER), Column("v", INTEGER))),
])  # fmt: skip
STEP = 250_000
"""All stamps, windows and changes are multiples of this."""
WINDOW = 4 * STEP
LAST = 24
FILLED = WINDOW + 2
"""So long after its beginning a query can see whether a row has no partner."""
W = "a WINDOW(RANGE 1 SECOND)"

Row = tuple[Any, ...]
Definition = Callable[[list[Row], list[Row], bool], list[Row]]
"""From the rows of the relation, the tuples of the window, and whether it can be full, to the answer."""


def matched(row: Row, others: Sequence[Row], place: int = 0) -> bool:
    return row[0] is not None and any(row[0] == other[place] for other in others)


def pairs(rows: Sequence[Row], tuples: Sequence[Row]) -> list[Row]:
    return [(*row, *each) for row in rows for each in tuples if row[0] is not None and row[0] == each[0]]


def alone(rows: Sequence[Row], tuples: Sequence[Row], *, filled: bool) -> list[Row]:
    return [row for row in rows if filled and not matched(row, tuples)]


def counted(rows: Sequence[Row]) -> list[Row]:
    return [(v, n) for v, n in Counter(row[1] for row in rows).items()]


CASES: dict[str, Definition] = {
    f"SELECT * FROM r WHERE NOT EXISTS (SELECT * FROM {W} WHERE x = k)": lambda rows, tuples, filled: alone(
        rows, tuples, filled=filled
    ),
    f"SELECT k FROM r WHERE v > 1 AND NOT EXISTS (SELECT * FROM {W} WHERE x = k AND y > v)": (
        lambda rows, tuples, filled: [
            (k,) for k, v in rows if filled and v > 1 and not any(x is not None and x == k and y > v for x, y in tuples)
        ]
    ),
    f"SELECT v, COUNT(*) AS n FROM r WHERE NOT EXISTS (SELECT * FROM {W} WHERE x = k) GROUP BY v": (
        lambda rows, tuples, filled: counted(alone(rows, tuples, filled=filled))
    ),
    f"SELECT k, v FROM r WHERE k IN (SELECT x FROM {W})": lambda rows, tuples, _: [
        row for row in rows if matched(row, tuples)
    ],
    f"SELECT k, v, x, y FROM r LEFT JOIN {W} ON k = x": lambda rows, tuples, filled: [
        *pairs(rows, tuples),
        *((*row, None, None) for row in alone(rows, tuples, filled=filled)),
    ],
    f"SELECT k, v, x, y FROM {W} RIGHT JOIN r ON k = x WHERE v > 1": lambda rows, tuples, filled: [
        each
        for each in (*pairs(rows, tuples), *((*row, None, None) for row in alone(rows, tuples, filled=filled)))
        if each[1] > 1
    ],
    f"SELECT k, v, x, y FROM r FULL JOIN {W} ON k = x": lambda rows, tuples, filled: [
        *pairs(rows, tuples),
        *((*row, None, None) for row in alone(rows, tuples, filled=filled)),
        *((None, None, *each) for each in tuples if not matched(each, rows)),
    ],
    f"SELECT k FROM r EXCEPT SELECT x FROM {W}": lambda rows, tuples, filled: [
        (k,) for k in {row[0] for row in rows} if filled and k not in {each[0] for each in tuples}
    ],
    f"SELECT k FROM r WHERE v = 1 OR NOT EXISTS (SELECT * FROM {W} WHERE x = k)": lambda rows, tuples, filled: [
        row[:1] for row in rows if row[1] == 1 or (filled and not matched(row, tuples))
    ],
    f"SELECT r.k, s.v FROM r, r AS s WHERE r.k = s.k AND NOT EXISTS (SELECT * FROM {W} WHERE x = s.k)": (
        lambda rows, tuples, filled: [
            (k, v) for k, _ in alone(rows, tuples, filled=filled) for other, v in rows if k is not None and k == other
        ]
    ),
}
UNBEGUN: dict[str, Definition] = {
    next(iter(CASES)): next(iter(CASES.values())),
    f"SELECT * FROM r WHERE NOT EXISTS (SELECT * FROM {W} WHERE x = k AND y > 99)": lambda rows, _, filled: (
        rows if filled else []
    ),
}
"""Queries that may be there before the stream."""
KEYS = st.sampled_from([1, 2, 3, None])
TUPLES = st.lists(st.tuples(st.integers(0, LAST), KEYS, st.integers(1, 3)), max_size=10)
VERSION = st.lists(st.tuples(KEYS, st.integers(1, 3)), max_size=4)
VERSIONS = st.lists(VERSION, min_size=1, max_size=4)


def plan_of(text: str, *, early: bool = False) -> Plan:
    node = planned(text)
    return Plan(1, (PlannedQuery("q", 1, node, early=early),))


def unbegun(text: str, epoch: int = 1) -> Node:
    return planned(text, epoch, None)


def planned(text: str, epoch: int = 1, stands_us: int | None = 0) -> Node:
    node = rewrite(translate(text, CATALOG).node).node
    check_supported(node)
    return with_history_starts(node, epoch, {"a": stands_us})


def frame(tuples: Sequence[Row]) -> pl.DataFrame:
    schema = {START: pl.Int64, DEFAULT_RATE_COLUMN: pl.Boolean, "x": pl.Int64, "y": pl.Int64}
    return pl.DataFrame([(at * STEP, True, x, y) for at, x, y in tuples], schema=schema, orient="row")


def arriving(tuples: Sequence[Row]) -> RowsInMemory:
    return RowsInMemory(frame(tuples))


def version(rows: Sequence[Row], begins: int | None = None) -> RelationRows:
    frame = pl.DataFrame(rows, schema={"k": pl.Int64, "v": pl.Int64}, orient="row")
    return RelationRows(frame) if begins is None else RelationRows(frame, {"a": begins * STEP})


def histories(
    tuples: list[Row], versions: list[list[Row]], dice: random.Random
) -> tuple[list[tuple[list[Row], int, list[tuple[int, list[Row]]]]], list[tuple[int, list[Row]]]]:
    """Micro-batches, each with its watermark and the versions that begin with it; and all versions."""
    waiting = sorted(tuples, key=lambda each: each[0])
    changes = [(0, versions[0])]
    batches = []
    reached, latest, left = 0, -1, versions[1:]
    while reached <= LAST + 8:
        begun = []
        if left and dice.random() < 0.5:
            begun.append((max(reached, latest + 1), left.pop(0)))
            changes += begun
        reached += dice.choice([0, 1, 2, 5, 9])
        ahead = dice.random()
        now = [each[0] < reached or dice.random() < ahead * 0.3 for each in waiting]
        comes = [each for each, come in zip(waiting, now, strict=True) if come]
        waiting = [each for each, come in zip(waiting, now, strict=True) if not come]
        latest = max([latest, *(at for at, _, _ in comes)])
        batches.append((dice.sample(comes, len(comes)), reached, begun))
    return batches, changes


def answered(plan: Plan, tuples: list[Row], versions: list[list[Row]], dice: random.Random) -> tuple[
    list[Row], list[tuple[int, list[Row]]]
]:  # fmt: skip
    """Rows of an answer, with their intervals; micro-batches are repeated, and processes end, now and then."""
    batches, changes = histories(tuples, versions, dice)
    known = {"r@1": [version(versions[0])]}
    engine = LocalEngine(plan, buckets=2, tables=lambda: MemoryTables(known))
    found: list[Row] = []
    for comes, reached, begun in [*batches, ([], NEVER // STEP, [])]:
        known["r@1"] += [version(rows, begins) for begins, rows in begun]
        arrivals = {"a": Arrival((arriving(comes),), NEVER if reached > LAST + 20 else reached * STEP)}
        before = engine.checkpoint()
        rows = engine.run(arrivals).rows
        if dice.random() < 0.3:
            engine.restore(before)
            if dice.random() < 0.5:
                engine.forget()
            again = engine.run(arrivals).rows
            assert covered(again) == covered(rows), "the same once more, perhaps cut elsewhere"
        if dice.random() < 0.3:
            engine.forget()
        for _, start, end, kind, row in rows.iter_rows():
            assert kind == "row", row
            found.append((start, end, *msgspec.json.decode(row).values()))
    return found, changes


def covered(rows: pl.DataFrame) -> Counter[tuple[int, str]]:
    """Which rows are valid at which steps, and how often."""
    found: Counter[tuple[int, str]] = Counter()
    steps = [*range(0, (LAST + 30) * STEP, STEP), FILLED]
    for _, start, end, _, row in rows.iter_rows():
        found.update((at, row) for at in steps if start <= at < end)
    return found


def snapshot(rows: Sequence[Row], at: int) -> Counter[Row]:
    return Counter(tuple(row) for start, end, *row in rows if start <= at < end)


def meant(
    definition: Definition, tuples: Sequence[Row], changes: Sequence[tuple[int, list[Row]]], at: int
) -> Counter[Row]:
    held = [rows for begins, rows in changes if begins * STEP <= at][-1]
    window = [(x, y) for stamp, x, y in tuples if stamp * STEP <= at < stamp * STEP + WINDOW]
    return Counter(definition([*held], window, at >= FILLED))


@pytest.mark.parametrize("text", CASES)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(tuples=TUPLES, versions=VERSIONS, seed=st.integers(0, 2**32))
def test_each_instant_has_the_answer_of_its_version_and_its_window(
    text: str, tuples: list[Row], versions: list[list[Row]], seed: int
) -> None:
    found, changes = answered(plan_of(text), tuples, versions, random.Random(seed))
    for at in [*range(0, (LAST + 8) * STEP, STEP), FILLED - 1, FILLED]:
        assert snapshot(found, at) == meant(CASES[text], tuples, changes, at), at


def published(text: str, steps: Sequence[tuple[list[Row], int]]) -> list[Row]:
    """What a query with EMIT EARLY publishes in each of some micro-batches."""
    known: Mapping[str, list[RelationRows]] = {"r@1": [version([(1, 1), (2, 1)])]}
    engine = LocalEngine(plan_of(text, early=True), tables=lambda: MemoryTables(known))
    found = []
    for comes, reached in steps:
        rows = engine.run({"a": Arrival((arriving(comes),), reached * STEP)}).rows
        found.append([(kind, start, end, row) for _, start, end, kind, row in rows.iter_rows()])
    return found


def test_silence_is_one_open_row_that_a_tuple_closes() -> None:
    text = f"SELECT k FROM r WHERE NOT EXISTS (SELECT * FROM {W} WHERE x = k)"
    steps = [([(1, 1, 0)], 3), ([], 5), ([], 9), ([], 13), ([], 17), ([(18, 1, 0)], 20)]
    found = published(text, steps)
    assert found[:1] == [[]], "nothing is reported before it is known"
    kinds = [[(kind, start, row) for kind, start, _, row in each] for each in found]
    one, two = '{"k":1}', '{"k":2}'
    assert kinds[1] == [("open", FILLED, two), ("open", 5 * STEP, one)] or kinds[1] == [("open", FILLED, two)]
    opened = [each for batch in kinds for each in batch if each[0] == "open"]
    assert sorted(opened) == [("open", FILLED, two), ("open", 5 * STEP, one)], "one message for each, however long"
    closed = [(kind, end) for batch in found for kind, _, end, _ in batch if kind == "closes"]
    assert closed == [("closes", 18 * STEP)]


def test_a_relation_that_cannot_be_read_is_an_error_and_no_silence() -> None:
    engine = LocalEngine(plan_of(next(iter(CASES))), tables=MemoryTables)
    rows = engine.run({"a": Arrival((arriving([(1, 1, 0)]),), 12 * STEP)}).rows
    assert {kind for _, _, _, kind, _ in rows.iter_rows()} == {"error"}


@pytest.mark.parametrize(
    "text", ["SELECT k FROM r", "SELECT r.k FROM r FULL JOIN r AS s ON r.k = s.k, a WHERE x = s.k"]
)
def test_relations_alone_have_no_time(text: str) -> None:
    with pytest.raises(FjordSqlError):
        translate(text, CATALOG)


BEGUN = {
    "RANGE 4 US": (6, lambda at, t: t <= at < t + 4),
    "RANGE 2 US SLIDE 5 US OFFSET 4 US": (8, lambda at, t: 0 <= (at - 3) // 5 * 5 + 3 - t < 2),
    "RANGE 5 US SLIDE 5 US": (11, lambda at, t: 0 <= (at + 1) // 5 * 5 - 1 - t < 5),
}
"""By window: how much later rows without a partner begin, and whether a tuple is valid at an instant."""
FIELDS = {"x": int, "y": int}


@pytest.mark.parametrize("window", BEGUN)
@pytest.mark.parametrize("condition", ["", " AND y = 1", " AND y > 99"])
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    stamps=st.lists(st.tuples(st.integers(3, 30), st.integers(1, 2), st.integers(1, 3)), min_size=1, max_size=8),
    promised=st.sampled_from([None, None, 1]),
    lateness=st.integers(0, 4),
    seed=st.integers(0, 2**32),
)
def test_rows_begin_with_the_stream_not_with_what_passes_conditions_however_tuples_are_cut_into_micro_batches(
    window: str, condition: str, stamps: list[Row], promised: int | None, lateness: int, seed: int
) -> None:
    dice = random.Random(seed)
    text = f"SELECT k FROM r WHERE NOT EXISTS (SELECT * FROM a WINDOW({window}) WHERE x = k{condition})"
    comes = sorted(stamps, key=lambda each: each[0] + dice.random() * lateness)
    items: list[Any] = [(at, {"x": x, "y": y}) for at, x, y in comes]
    for _ in range(2):
        items.insert(dice.randrange(len(items) + 1), ABORT())
    start = [] if promised is None else [WATERMARK(promised), PAUSE("1s")]
    lasts, valid = BEGUN[window]
    begins = min(at for at, _, _ in stamps) if promised is None else promised
    keeps = {"": lambda _: True, " AND y = 1": lambda y: y == 1, " AND y > 99": lambda _: False}[condition]
    for size in (1, 2, 100):
        source = ScriptedSource(FIELDS, [*start, *items, EOF()], batch_size=size, lateness=f"{lateness}us")
        run = QueryRun(text, {"a": source}, {"r": ScriptedRelation({"k": int}, [{"k": 1}, {"k": 2}])})
        run.run()
        run.clock.advance("2s")
        run.run()
        for at in range(60):
            found = sorted(each.row["k"] for each in run.answers if each.start <= at < (each.end or NEVER))
            there = {x for t, x, y in stamps if keeps(y) and valid(at, t)}
            assert found == [k for k in (1, 2) if at >= begins + lasts and k not in there], (size, at)


def test_the_beginning_is_kept_before_any_row_has_come() -> None:
    text = f"SELECT k, v FROM r WHERE NOT EXISTS (SELECT * FROM {W} WHERE x = k AND y > 99)"
    tables = MemoryTables({"r@1": [version([(1, 1)])]})
    engine = LocalEngine(Plan(1, (PlannedQuery("q", 1, unbegun(text)),)), tables=lambda: tables)
    engine.run({"a": Arrival((), 2 * STEP)})
    engine.forget()
    found = engine.run({"a": Arrival((arriving([(30, 1, 1)]),), NEVER)}).rows
    assert found["start_us"].min() == 2 * STEP + FILLED


def test_rows_in_the_time_of_two_streams_begin_when_both_have_begun_at_the_earlier_beginning() -> None:
    table = translate("SELECT r.k FROM r, a WHERE x = k", CATALOG).node
    (relation,) = (each for each in nodes_of(table) if isinstance(each, Relation))

    def made() -> Held:
        return Held(relation, frozenset("ab"), MemoryTables({"r@1": [version([(1, 1)])]}), waits_us=2)

    held = made()
    assert held.begin({"a": 5, "c": 1})
    assert not held.begin({"a": 3}), "it has begun"
    assert held.transition(0, Batch(pl.DataFrame(), 10**9)).rows.is_empty()
    restored = made()
    restored.restore(held.save())
    assert restored.begin({"b": 9})
    assert not restored.begin({"a": 1, "b": 1})
    again = made()
    again.restore(restored.save())
    assert again.transition(0, Batch(pl.DataFrame(), 10**9)).rows[START].min() == 5 + 2


def test_with_all_history_rows_begin_with_the_first_stored_tuple() -> None:
    node = unbegun(f"SELECT * FROM r WHERE NOT EXISTS (SELECT * FROM {W} SINCE BEGINNING WHERE x = k AND y > 99)")
    for stands, stored, begins in ((90, 7, 7), (90, None, 90), (None, None, None)):
        begun = with_history_starts(node, 1, {"a": stands}, {"a": stored})
        assert [each.begins_us for each in nodes_of(begun) if isinstance(each, HeldNode)] == [begins]


def test_a_query_that_is_added_later_begins_where_the_stream_stands() -> None:
    source = ScriptedSource(FIELDS, [(5, {"x": 1}), (9, {"x": 2}), PAUSE("1s"), (50, {"x": 3, "y": 1}), EOF()])
    silent = "SELECT k FROM r WHERE NOT EXISTS (SELECT * FROM a WINDOW(RANGE 10 US) WHERE x = k AND y = 1)"
    run = QueryRun({}, {"a": source}, {"r": ScriptedRelation({"k": int}, [{"k": 1}])})
    run.run()
    run.add("silent", silent)
    run.clock.advance("2s")
    assert min(each.start for each in run.run()) == 9 + 12


@pytest.mark.parametrize(
    ("commits", "begins"),
    [
        ([], None),
        ([(5, None), (None, 3), (4, 3)], None),
        ([(5, None), (None, 3), (4, 4), (7, 9)], 4),
        ([(None, 2), (5, 9)], 2),
        ([(5, 3), (9, 8)], 5),
    ],
)
def test_a_stream_begins_at_its_earliest_tuple_or_at_a_watermark_before(commits: Any, begins: int | None) -> None:
    assert beginning_us(None, commits) == begins
    for cut in range(len(commits)):
        stamps = [at for at, _ in commits[:cut] if at is not None]
        if beginning_us(None, commits[:cut]) is None:
            assert beginning_us(min(stamps, default=None), commits[cut:]) == begins
