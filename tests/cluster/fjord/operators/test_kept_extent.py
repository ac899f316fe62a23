"""What an extent keeps: counted, estimated, given up and taken back, and bounded in a plan."""

from __future__ import annotations

import random
from typing import Any

import polars as pl
import pytest

from cluster.fjord.batch import END, START, Batch
from cluster.fjord.counters import counters_of, shed_of
from cluster.fjord.dataflow import Dataflow, PushQueue
from cluster.fjord.operators.kept_extent import KeptExtent
from cluster.fjord.saved_state import pack_state, unpack_state
from cluster.fjord.upper_estimates import StateLimitError, check_state, state_bytes
from cluster.language.translation import translate
from cluster.operators.kept_extent import KeptTuples
from cluster.physical import operations
from cluster.physical.lowering import lower, with_query
from cluster.physical.text import plan_text
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from cluster.temporal.rated_extent import UNLIMITED, Offer
from cluster.temporal.windows import ExtentError
from tests.cluster.fjord.operators.kept_means import KeptMeans
from tests.cluster.language.example_catalog import CATALOG

KEPT = KeptTuples(20, ("k",), "run", "n", ("since", "until"), "quality", size_us=1_000_000)
COLUMNS = pl.DataFrame(schema={START: pl.Int64, END: pl.Int64, "k": pl.String, "run": pl.Int64, "n": pl.Int64})


def tuples(count: int, first: int = 0) -> pl.DataFrame:
    """Tuples of two keys, each of which stays the same for some time."""
    found: list[tuple[Any, ...]] = [(at, at + 1, "ab"[at % 2], at // 10, at) for at in range(first, first + count)]
    return pl.DataFrame(found, COLUMNS.schema, orient="row")


def kept_by(operator: KeptExtent) -> int:
    return sum(len(each.extent.kept) for each in operator.extents)


def test_tuples_that_go_are_counted_once_and_accuracy_is_estimated() -> None:
    state = KeptExtent(COLUMNS, KEPT).save()
    for first, count, evicted in ((0, 10, 0), (10, 90, 80), (100, 7, 7)):
        operator, flow, queue = KeptExtent(COLUMNS, KEPT), Dataflow(), PushQueue()
        operator.restore(state)
        placed = flow.add("kept", operator, [queue], owner="q")
        queue.put(Batch(tuples(count, first), first + count))
        flow.run()
        totals = counters_of([placed])["kept"]
        assert (totals.evicted, totals.estimated) == (evicted, 1)
        assert (totals.accuracies == 1.0) == (evicted == 0)
        assert totals.plus(totals).minus(totals) == totals
        state = operator.save()
    assert 0.1 < totals.accuracies < 0.5


@pytest.mark.parametrize("slide_us", [1, 7])
def test_the_estimate_is_that_of_the_rows_shown(slide_us: int) -> None:
    operator = KeptExtent(COLUMNS, KeptTuples(20, ("k",), "run", "n", ("b", "e"), "q", size_us=500, slide_us=slide_us))
    for first in range(0, 280, 28):
        operator.transition(0, Batch(tuples(28, first), first + 28))
        (extent,) = operator.extents
        shown = [extent._content(each, extent._window_begins(first + 27)) for each in extent.extent.live.values()]
        rows = len(shown) + extent.extent.vanished
        assert operator.evictions.accuracy == pytest.approx(sum(each.quality for each in shown) / rows)


def test_what_it_would_save_and_cost_and_that_it_is_taken_back() -> None:
    operator = KeptExtent(COLUMNS, KEPT)
    means = KeptMeans(operator, ["one", "other"])
    assert means.offer(5) == Offer(0, 1.0, ("one", "other"))
    operator.transition(0, Batch(tuples(20), 20))
    offer = means.offer(5)
    assert (offer.saved_samples, offer.queries) == (15, ("one", "other"))
    assert 0 < offer.accuracy < means.offer(15).accuracy < means.offer(20).accuracy == 1.0
    assert kept_by(operator) == 20  # nothing has changed
    with pytest.raises(ExtentError):
        means.apply(0)
    assert means.apply(5) == 15
    operator.transition(0, Batch(tuples(10, 20), 30))
    assert kept_by(operator) == 5
    means.undo()
    restored = KeptExtent(COLUMNS, KEPT)
    restored.restore(unpack_state(pack_state(operator.save())))
    for each in (operator, restored):
        each.transition(0, Batch(tuples(50, 30), 80))
        assert (kept_by(each), each.evictions.tuples, each.room) == (55, 25, UNLIMITED)


def test_the_victims_of_a_replay_are_the_same() -> None:
    def kept(seed: int) -> frozenset[int]:
        dice, operator, at = random.Random(seed), KeptExtent(COLUMNS, KEPT), 0
        while at < 250:
            step = min(dice.randrange(1, 60), 250 - at)
            operator.transition(0, Batch(tuples(step, at), at + step))
            at += step
            if dice.random() < 0.5:
                state, operator = unpack_state(pack_state(operator.save())), KeptExtent(COLUMNS, KEPT)
                operator.restore(state)
        (extent,) = operator.extents
        return frozenset(each.start for each in extent.extent.kept.values())

    assert len({kept(seed) for seed in range(8)}) == 1


TEXT = "SELECT speed FROM traffic WINDOW(RANGE 1 DAY SLIDE 1 MINUTE) COALESCE(speed BY sensor){} WHERE speed > 3"


def planned(name: str, text: str) -> PlannedQuery:
    return PlannedQuery(name, 1, rewrite(translate(text, CATALOG).node).node)


def test_admission_counts_what_is_kept() -> None:
    empty, rates = lower(Plan(0, ())), {"traffic": 100_000.0}
    exact, kept = (with_query(empty, planned("q", TEXT.format(keep))) for keep in ("", " KEEP 10000 TUPLES"))
    with pytest.raises(StateLimitError, match="keep up to") as caught:
        check_state(empty, exact, "q@1", rates, limit_bytes=100_000_000)
    assert "write KEEP n TUPLES behind a COALESCE" in (caught.value.hint or "")
    check_state(empty, kept, "q@1", rates, limit_bytes=100_000_000)
    assert state_bytes(kept, rates) < state_bytes(exact, rates) / 1000


def test_queries_that_differ_in_what_they_read_keep_tuples_apart() -> None:
    text = "SELECT speed FROM (SELECT speed FROM traffic WHERE lane = {}) WINDOW(ROWS 90) COALESCE(speed) KEEP 9 TUPLES"
    (fragment,) = lower(Plan(1, (planned("one", text.format(1)), planned("two", text.format(2))))).fragments
    (kept,) = (each.operation for each in fragment.nodes if isinstance(each.operation, operations.KeptExtent))
    assert len(kept.kept.apart) == 1
    operator = KeptExtent(COLUMNS, KeptTuples(3, (), "run", "n", ("b", "e"), "q", size_us=99, apart=("k",)))
    operator.transition(0, Batch(tuples(40), 40))
    assert [len(each.extent.kept) for each in operator.extents] == [3, 3]


@pytest.mark.parametrize(("window", "held"), [("RANGE 1 DAY SLIDE 1 MINUTE", 0), ("RANGE 1 DAY", 1), ("ROWS 50", 1)])
def test_rows_of_a_window_that_slides_by_time_come_at_its_borders(window: str, held: int) -> None:
    text = f"SELECT speed FROM traffic WINDOW({window}) COALESCE(speed BY sensor) KEEP 9 TUPLES"
    (fragment,) = lower(Plan(1, (planned("q", text),))).fragments
    assert sum(isinstance(each.operation, operations.KeptExtent) for each in fragment.late_nodes) == held


def test_what_was_dropped_is_shown_with_the_plan() -> None:
    plan = lower(Plan(1, (planned("q", TEXT.format(" KEEP 10000 TUPLES")),)))
    (fragment,) = plan.fragments
    shed = shed_of(fragment, {})
    assert shed is not None
    assert shed.words == "0 tuples dropped by KEEP"
    assert "at most 10000 tuples kept of a window of 1d, moving every 1m" in plan_text(plan)
    assert shed_of(lower(Plan(1, (planned("q", TEXT.format("")),))).fragments[0], {}) is None
