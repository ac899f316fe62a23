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
from cluster.fjord.batch import NEVER, START
from cluster.fjord.stored_rows import RowsInMemory
from cluster.language.algebra import Node
from cluster.language.catalog import Catalog, StaticRelation
from cluster.language.columns import Column
from cluster.language.errors import FjordSqlError
from cluster.language.translation import translate
from cluster.local.engine import Arrival, LocalEngine
from cluster.local.memory_tables import MemoryTables, RelationRows
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.history import with_history_starts
from cluster.plan.rewrite import rewrite
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
KEYS = st.sampled_from([1, 2, 3, None])
TUPLES = st.lists(st.tuples(st.integers(0, LAST), KEYS, st.integers(1, 3)), max_size=10)
VERSION = st.lists(st.tuples(KEYS, st.integers(1, 3)), max_size=4)
VERSIONS = st.lists(VERSION, min_size=1, max_size=4)


def plan_of(text: str, *, early: bool = False) -> Plan:
    node = planned(text)
    return Plan(1, (PlannedQuery("q", 1, node, early=early),))


def planned(text: str) -> Node:
    node = rewrite(translate(text, CATALOG).node).node
    check_supported(node)
    return with_history_starts(node, 1, {"a": 0})


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
