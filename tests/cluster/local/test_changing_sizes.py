"""Sizes that change while a query runs: every answer is exact for the sizes that its quality names.

                      12 us             4 us             9 us
    sizes in force |---------|---------------------|------------
    changes              ^ decided        ^ decided

What is expected is the definition of the query with the sizes in force, instant by instant (tests/cluster/plan).
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest
from msgspec.structs import replace

from cluster.costs.adaptation import History
from cluster.fjord.batch import ALWAYS
from cluster.fjord.saved_state import unpack_state
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.local.engine import LocalEngine
from cluster.operators import Node
from cluster.operators.size_ranges import SizeRange, Sizes, granules, ranges_of, with_sizes
from cluster.physical.migration import Migration
from cluster.plan.epoch import Handover, Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from cluster.plan.sized import quality_words, sized
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.local.migrating import INSTANTS, STREAMS, Answered, arrivals, random_batches, random_streams
from tests.cluster.oracle.definition import granule_of, snapshots_of_plan
from tests.examples import some_of

CATALOG = Catalog.of(
    [
        StreamSchema(name, tuple(Field(column, FieldType.INTEGER) for column in columns))
        for name, columns in STREAMS.items()
    ]
)
TEXTS = (
    "SELECT DISTINCT x, y FROM a WINDOW(RANGE MIN 2 US, MAX 12 US) WHERE y < 3",
    "SELECT COUNT(*) AS n FROM a WINDOW(RANGE MIN 2 US, MAX 12 US)",
    "SELECT x, COUNT(*) AS n, SUM(y) AS s FROM a WINDOW(RANGE MIN 2 US, MAX 12 US) GROUP BY x",
    "SELECT x, COUNT(*) AS n, MAX(y) AS m FROM a WINDOW(RANGE MIN 3 US, MAX 12 US SLIDE 3 US) GROUP BY x",
    "SELECT COUNT(*) AS n FROM a WINDOW(RANGE MIN 4 US, MAX 12 US SLIDE 4 US) WHERE x > 0",
    "SELECT DISTINCT x FROM a WINDOW(RANGE MIN 1 US, MAX 9 US)",
    "SELECT x, v FROM a WINDOW(RANGE MIN 1 US, MAX 12 US) JOIN b WINDOW(RANGE MIN 2 US, MAX 8 US) ON x = u",
    "SELECT x FROM a WINDOW(RANGE MIN 2 US, MAX 9 US) WHERE x IN (SELECT u FROM b WINDOW(RANGE 5 US))",
    "SELECT x, y FROM a WINDOW(RANGE 9 US) GRANULARITY(COARSEST 20 US, FINEST 2 US)",
    "SELECT x, COUNT(*) n FROM a WINDOW(RANGE MIN 2 US, MAX 12 US) GRANULARITY(COARSEST 10 US, FINEST 2 US) GROUP BY x",
    "SELECT MAX(n) AS m FROM (SELECT COUNT(*) AS n FROM a WINDOW(RANGE MIN 2 US, MAX 6 US)) AS q WINDOW(RANGE 4 US)",
    "SELECT x, COUNT(*) AS n FROM a WINDOW(RANGE MIN 2 US, MAX 12 US) GROUP BY x ORDER BY n DESC, x LIMIT 2",
)


def random_sizes(dice: random.Random, node: Node) -> Sizes:
    return {each: dice.choice(_sizes_of(each)) for each in ranges_of(node)}


def _sizes_of(allowed: SizeRange) -> list[int]:
    if allowed.kind == "granularity":
        return [*granules(allowed.worst_us, allowed.best_us)]
    return [*range(allowed.worst_us, allowed.best_us + 1, allowed.step_us)]


@dataclass
class Ran:
    """A query whose sizes have changed at times."""

    answered: Answered
    history: History[Sizes]
    changes: int


def run(node: Node, dice: random.Random, *, late_by: int = 0) -> tuple[Ran, dict[str, list[tuple[int, Any]]]]:
    """Run a query, and change its sizes whenever the change before is done; `late_by` is for tests of the tests."""
    streams = random_streams(dice)
    batches, early, buckets = random_batches(dice, streams), dice.random() < 0.3, dice.choice((1, 3))
    sizes = random_sizes(dice, node)
    history: History[Sizes] = History().changed(-(2**62), sizes)
    query = PlannedQuery("q", 1, rewrite(sized(node, sizes)).node, early)
    engine, answered = LocalEngine(Plan(1, (query,)), buckets=buckets), Answered()
    greatest, done, epoch, changes = None, None, 1, 0
    watermarks = dict.fromkeys(STREAMS, ALWAYS)
    for number, batch in enumerate(batches):
        plan = None
        if done is not None and min(watermarks[each] for each in query.node.streams) >= done:
            epoch, done = epoch + 1, None
            plan = Plan(epoch, (query,))
        elif done is None and number and (wanted := random_sizes(dice, node)) != sizes:
            epoch, sizes, changes = epoch + 1, wanted, changes + 1
            other = rewrite(sized(node, sizes)).node
            migration = Migration(query.node, other)
            handover = migration.handover(greatest, query.since)
            done = handover.opens_us
            history = history.changed(handover.at_us + late_by, sizes)
            old = replace(query, until=handover)
            query = PlannedQuery("q", epoch, other, early, since=handover)
            plan = Plan(epoch, (old, query))
        answers = engine.run(arrivals(batch), plan=plan).rows
        answered.read(number, answers)
        if dice.random() < 0.2:
            engine.forget()
        for name, (rows, watermark) in batch.items():
            stamps = [stamp for stamp, _ in rows]
            greatest = max([*stamps, *([] if greatest is None else [greatest])], default=None)
            watermarks[name] = max(watermarks[name], watermark)
    return Ran(answered, history, changes), streams


def difference(text: str, seed: int, *, late_by: int = 0) -> str | None:
    """Return in what the answers of a query differ from its definition with the sizes in force; None if in nothing."""
    dice = random.Random(seed)
    node = translate(text, CATALOG).node
    ran, streams = run(node, dice, late_by=late_by)
    if ran.answered.open:
        return f"rows never end: {ran.answered.open}"
    meanings = {words(node, sizes): with_sizes(node, sizes) for _, sizes in ran.history}
    expected = {name: snapshots_of_plan(each, streams, 3 * INSTANTS) for name, each in meanings.items()}
    for at, found in enumerate(ran.answered.snapshots()):
        in_force = ran.history.at(at)
        assert in_force is not None
        name = words(node, in_force)
        rows = Counter({tuple(json.loads(row).values()): count for row, count in found.items()})
        if wrong := [each for each in rows if each[-1] != name]:
            return f"at {at} {name} is in force, and there is {wrong}"
        if at % granule_of(meanings[name]):
            continue
        answers = Counter({row[:-1]: count for row, count in rows.items()})
        if answers != expected[name][at]:
            return f"at {at}, {name}, there is {answers} in place of {expected[name][at]}"
    return None


def words(node: Node, sizes: Sizes) -> str:
    return quality_words(ranges_of(node), sizes)


@pytest.mark.examples
@pytest.mark.parametrize("text", TEXTS)
def test_every_answer_is_exact_for_the_sizes_that_its_quality_names(text: str) -> None:
    for seed in range(some_of(5, fewest=2)):
        assert difference(text, seed) is None, f"{text}, seed {seed}"


def test_no_plan_hands_over_before_it_has_taken_over() -> None:
    node = translate(TEXTS[1], CATALOG).node
    (window,) = ranges_of(node)
    old, new = (rewrite(sized(node, {window: size})).node for size in (3, 2))
    migration = Migration(old, new)
    assert migration.handover(10).at_us < 30
    assert migration.handover(10, Handover(30, 31)).at_us == 30
    assert migration.handover(None, Handover(30, 31)).at_us == 30


def test_sizes_change_in_these_runs() -> None:
    node = translate(TEXTS[1], CATALOG).node
    changes = [run(node, random.Random(seed))[0].changes for seed in range(12)]
    assert sum(changes) > 12


def test_another_instant_would_be_found() -> None:
    assert any(difference(TEXTS[1], seed, late_by=3) for seed in range(12))


def test_the_state_of_a_join_whose_window_changes_is_that_of_both_sizes_until_the_new_one_is_full() -> None:
    """The thesis' example (papers/pipes_adaptation.md section 4): 10 rows a second, 60 s, from 80 s on 30 s, then 60 s.

    It has 600 rows until 110, and 300 from 140 on. Here the old window stays until 140, beside the new one.
    """
    text = "SELECT x, v FROM a WINDOW(RANGE MIN 30, MAX 60) JOIN b WINDOW(RANGE MIN 30, MAX 60) ON x = u"
    second = 1_000_000
    node = translate(text.replace("30", f"{30 * second} US").replace("60", f"{60 * second} US"), CATALOG).node
    (window,) = ranges_of(node)
    query, epoch, done = PlannedQuery("q", 1, rewrite(sized(node)).node), 1, None
    engine, kept = LocalEngine(Plan(1, (query,))), {}
    for now in range(230):
        plan = None
        if done is not None and now * second >= done:
            plan, done, epoch = Plan(epoch + 1, (query,)), None, epoch + 1
        if now in (80, 150):
            other = rewrite(sized(node, {window: (30 if now == 80 else 60) * second})).node
            migration = Migration(query.node, other)
            handover = migration.handover(now * second - 1, query.since)
            done, epoch = handover.opens_us, epoch + 1
            old, query = replace(query, until=handover), PlannedQuery("q", epoch, other, since=handover)
            plan = Plan(epoch, (old, query))
        rows = [(now * second + each * second // 10, (each, now % 3)) for each in range(10)]
        batch = {"a": (rows, (now + 1) * second), "b": ([], (now + 1) * second)}
        engine.run(arrivals(batch), plan=plan)
        kept[now + 1] = sum(
            len(value)
            for name, saved in engine.stores[0].items()
            if name.endswith("Join")
            for side, value in unpack_state(saved).items()
            if side == "left" and isinstance(value, pl.DataFrame)
        )
    expected = {80: 600, 95: 750, 110: 900, 125: 900, 140: 900, 142: 300, 150: 300, 165: 450, 180: 600, 210: 900}
    expected |= {213: 600, 230: 600}
    assert {at: kept[at] for at in expected} == pytest.approx(expected, abs=2)
