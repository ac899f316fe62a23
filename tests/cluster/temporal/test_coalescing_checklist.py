"""The checklist of papers/coalescing.md section 6: a test for each of its lines about extents."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest

from cluster.temporal.windows import CountWindow, Equal, ExtentError, Increasing, Satisfying, TimeWindow, Within
from tests.cluster.temporal.admission import Verdict
from tests.cluster.temporal.batched_extent import BatchedExtent
from tests.cluster.temporal.definition import live_samples
from tests.cluster.temporal.eager_extent import EagerExtent
from tests.cluster.temporal.intervals import FOREVER, Interval, coalesced_rows, intersection, overlaps
from tests.cluster.temporal.notation import Watched
from tests.cluster.temporal.random_streams import compare, drawn
from tests.cluster.temporal.shared_extents import CoalescingQuery, SharedExtents, StreamSchema, coalescing_query

WIDE = StreamSchema(key=(), invariant=("room", "floor"), varying=("heat", "damp"))
HEAT = coalescing_query(WIDE, ["heat"], ["room"])
DAMP = coalescing_query(WIDE, ["damp"], ["room"])
BOTH = coalescing_query(WIDE, ["damp", "heat"], ["floor", "room"])


def row(heat: Any = 1, damp: Any = 1, room: Any = "a", floor: Any = 0) -> dict[str, Any]:
    return {"room": room, "floor": floor, "heat": heat, "damp": damp}


def rows(count: int, seed: int) -> list[tuple[int, dict[str, Any]]]:
    random = Random(seed)
    found = []
    for stamp in range(count):
        values = row(random.randrange(2), random.randrange(2), random.choice("ab"), random.randrange(2))
        found.append((stamp + random.uniform(0, 6), (stamp, values)))
    return [each for _, each in sorted(found, key=lambda each: each[0])]


def test_line_1_eager_and_lazy_queries_share_a_stream() -> None:
    for window in (CountWindow(7), TimeWindow(7)):
        alone = [SharedExtents(WIDE, window, [each], [each]) for each in (HEAT, DAMP, BOTH)]
        mixed = SharedExtents(WIDE, window, [HEAT, DAMP, BOTH], [DAMP])
        for stamp, values in rows(60, seed=1):
            mixed.insert(stamp, values)
            for each, query in zip(alone, (HEAT, DAMP, BOTH), strict=True):
                each.insert(stamp, values)
                assert mixed.answer(query) == each.answer(query)


@pytest.mark.parametrize("first", range(0, 600, 50))
def test_line_2_and_7_all_ways_agree_on_random_streams(first: int) -> None:
    for seed in range(first, first + 50):
        compare(drawn(seed))


def test_line_3_the_order_of_arrivals_does_not_matter() -> None:
    samples = ["A@1", "A@3", "B@4", "A@6", "A@7", "B@9", "B@12"]
    expected = Watched(CountWindow(20)).take(" ".join(samples))
    for seed in range(50):
        Random(seed).shuffle(samples)
        assert Watched(CountWindow(20)).take(" ".join(samples)) == expected


def test_line_4_live_samples_are_those_of_the_definition() -> None:
    for window in (CountWindow(5), TimeWindow(5)):
        extents = SharedExtents(WIDE, window, [HEAT], [])
        seen = []
        for stamp, values in rows(60, seed=4):
            extents.insert(stamp, values)
            seen.append((stamp, (), ()))
            live = sorted(at for run in extents.answer(HEAT) for at in (run.start, *run.later))
            assert live == [at for at, _, _ in live_samples(seen, window)]


def test_line_5_invariants_of_runs() -> None:
    extents = SharedExtents(WIDE, CountWindow(9), [HEAT], [HEAT])
    for count, (stamp, values) in enumerate(rows(80, seed=5), 1):
        extents.insert(stamp, values)
        runs = extents.answer(HEAT)
        assert sum(1 + len(run.later) for run in runs) == min(count, 9)
        for run in runs:
            own = (run.start, *run.later)
            assert list(own) == sorted(set(own))
        for group in {run.group for run in runs}:
            mine = [run for run in runs if run.group == group]
            for one, other in pairwise(mine):
                assert one.end == other.start
                assert one.values != other.values
            assert mine[-1].end == max(mine[-1].start, *mine[-1].later, 0)


def test_line_6_the_newest_sample_of_a_group_lasts_no_time() -> None:
    assert Watched(CountWindow(9)).take("g:A@1 g:B@5 h:A@3 h:A@4") == "g:A[1,5) g:B[5,5) h:A[3,4)v{4}"


@pytest.mark.parametrize(
    ("known", "late", "runs"),
    [
        ("B@5 B@9", "A@3", "A[3,5) B[5,9)v{9}"),
        ("B@5 B@9", "B@3", "B[3,9)v{5,9}"),
        ("B@5 B@9", "B@7", "B[5,9)v{7,9}"),
        ("B@5 B@9", "A@7", "B[5,7) A[7,9) B[9,9)"),
        ("B@5 B@6 C@9", "A@7", "B[5,7)v{6} A[7,9) C[9,9)"),
        ("B@5 B@6 C@9", "B@7", "B[5,9)v{6,7} C[9,9)"),
        ("B@5 B@6 C@9", "C@7", "B[5,7)v{6} C[7,9)v{9}"),
        ("A@1 A@2 B@5", "B@3", "A[1,3)v{2} B[3,5)v{5}"),
        ("A@1 A@5", "B@3", "A[1,3) B[3,5) A[5,5)"),
    ],
)
def test_line_7_positions_of_late_samples(known: str, late: str, runs: str) -> None:
    watched = Watched(CountWindow(9))
    watched.take(known)
    assert watched.take(late) == runs


def test_line_8_a_group_disappears_and_comes_back() -> None:
    watched = Watched(CountWindow(2))
    assert watched.take("g:A@1 h:B@2") == "g:A[1,1) h:B[2,2)"
    assert watched.take("h:B@3") == "h:B[2,3)v{3}"
    assert watched.take("g:A@4") == "g:A[4,4) h:B[3,3)"


def test_line_9_edges_of_windows() -> None:
    assert Watched(TimeWindow(5)).take("A@0 A@1 h:B@2 A@100") == "A[100,100)"
    assert Watched(TimeWindow(5)).take("A@0 A@5") == "A[0,5)v{5}"
    assert Watched(TimeWindow(5)).take("A@0 A@6") == "A[6,6)"
    assert Watched(TimeWindow(0)).take("A@0 A@1 A@2") == "A[2,2)"
    assert Watched(CountWindow(1)).take("A@0 A@2 B@1") == "A[2,2)"


def test_line_10_groups_of_none_and_of_several_attributes() -> None:
    alone = coalescing_query(WIDE, ["heat"], [])
    extents = SharedExtents(WIDE, CountWindow(9), [alone, BOTH], [alone, BOTH])
    for stamp, room in enumerate("aba"):
        extents.insert(stamp, row(room=room))
    assert [(run.group, run.start, run.end) for run in extents.answer(alone)] == [((), 0, 2)]
    assert [(run.group, run.start, run.end) for run in extents.answer(BOTH)] == [(("a", 0), 0, 2), (("b", 0), 1, 1)]
    assert BOTH.groups == ("room", "floor")


def test_line_11_late_samples_cut_join_one_side_and_bridge() -> None:
    rising = Watched(CountWindow(9), Increasing())
    assert rising.take("1@1 3@3 5@5") == "1[1,5)v{3,5}"
    assert rising.take("9@4") == "1[1,5)v{3,4} 5[5,5)"
    assert rising.take("0@2") == "1[1,2) 0[2,5)v{3,4} 5[5,5)"
    near = Watched(CountWindow(9), Within(1))
    assert near.take("1@1 3@3 2@2") == "1[1,3)v{2,3}"


def test_line_12_bytes_of_extents() -> None:
    extents = SharedExtents(WIDE, CountWindow(9), [HEAT, DAMP, BOTH], [BOTH])
    for stamp, heat in enumerate([1, 1, 1, 2, 2]):
        extents.insert(stamp, row(heat=heat))
    assert extents.sizes() == {"heat damp by room floor": 2 * 32 + 3 * 8, "lazy": 5 * 32}
    # Per tuple the model of section 3.2 has cp = 3/5 here, for the first tuple cannot coalesce.
    assert extents.sizes()["heat damp by room floor"] == pytest.approx(5 * (0.6 * 8 + 0.4 * 32))


def test_line_13_counters() -> None:
    watched = Watched(CountWindow(4))
    watched.take("A@1 A@3 A@6 B@8 C@4 C@0 A@6 B@9 B@10 B@11")
    counters = watched.eager.counters(watched.query)
    assert (watched.eager.admission.accepted, watched.eager.admission.late, watched.eager.admission.duplicates) == (
        8,
        1,
        1,
    )
    assert (counters.merges, counters.splits, counters.inserts, counters.forward_merges) == (5, 1, 3, 0)
    assert (counters.detaches, counters.deletes) == (1, 3)
    assert counters.coalescing_probability == 5 / 7
    assert counters.disorder == 1 / 8
    forward = Watched(CountWindow(9))
    forward.take("A@1 B@5 B@3")
    assert forward.eager.counters(forward.query).forward_merges == 1


def test_line_15_overlaps_of_empty_intervals() -> None:
    empty, around, before = Interval(5, 5), Interval(3, 8), Interval(1, 5)
    assert overlaps(empty, around)
    assert overlaps(around, empty)
    assert not overlaps(empty, empty)
    assert not overlaps(before, Interval(5, 9))
    assert intersection(before, Interval(5, 9)) == (5, 5)
    assert intersection(before, Interval(6, 9)) is None


def test_line_16_stored_rows_meet_overlap_or_have_a_gap() -> None:
    stored = [
        ("a", Interval(5, FOREVER)),
        ("a", Interval(1, 3)),
        ("a", Interval(3, 4)),
        ("b", Interval(0, 9)),
        ("b", Interval(4, 12)),
    ]
    assert coalesced_rows(stored) == [("a", (1, 4)), ("a", (5, FOREVER)), ("b", (0, 12))]
    assert coalesced_rows(coalesced_rows(stored)) == coalesced_rows(stored)


def test_line_17_time_may_pass_without_samples() -> None:
    watched = Watched(TimeWindow(10))
    watched.take("A@0 A@4 B@9")
    for extents in (watched.eager, watched.lazy):
        extents.advance(12)
    assert watched.runs() == "A[4,9) B[9,9)"
    assert watched.take("A@1") == "A[4,9) B[9,9)"  # too late by the clock
    assert watched.take("A@2") == "A[2,9)v{4} B[9,9)"
    for extents in (watched.eager, watched.lazy):
        extents.advance(40)
    assert watched.runs() == ""


@pytest.mark.parametrize("seed", range(20))
def test_line_23_changing_between_eager_and_lazy_changes_no_answer(seed: int) -> None:
    random = Random(seed)
    queries = [HEAT, DAMP, BOTH]
    for window in (CountWindow(8), TimeWindow(8)):
        constant = SharedExtents(WIDE, window, queries, [])
        changing = SharedExtents(WIDE, window, queries, queries)
        seen = set()
        for stamp, values in rows(120, seed):
            constant.insert(stamp, values)
            changing.insert(stamp, values)
            if random.random() < 0.15:
                changing.choose(random.sample(queries, random.randint(0, 3)))
            seen.add(changing.eager)
            assert [changing.answer(each) for each in queries] == [constant.answer(each) for each in queries]
        assert len(seen) > 2


def test_line_23_an_eager_query_waits_for_a_whole_window_before_it_is_lazy() -> None:
    extents = SharedExtents(WIDE, CountWindow(3), [HEAT], [HEAT])
    for stamp in range(3):
        extents.insert(stamp, row())
    extents.choose([])
    for stamp in (3, 4):
        extents.insert(stamp, row())
        assert extents.eager == {HEAT}
    extents.insert(5, row())
    assert extents.eager == frozenset()
    assert extents.sizes() == {"lazy": 3 * 32}


@pytest.mark.parametrize("stamp", [None, "5", math.nan, math.inf, True])
def test_bad_stamps_are_refused_and_counted(stamp: Any) -> None:
    extents = SharedExtents(WIDE, CountWindow(3), [HEAT], [HEAT])
    with pytest.raises(ExtentError, match="stamp"):
        extents.insert(stamp, row())
    assert (extents.errors, len(extents.admission)) == (1, 0)


def test_missing_attributes_and_failing_predicates_change_nothing() -> None:
    failing = coalescing_query(WIDE, ["heat"], ["room"], Satisfying("ratio", lambda one, other: other[0] / one[0] > 1))
    extents = SharedExtents(WIDE, CountWindow(3), [HEAT, failing], [HEAT, failing])
    extents.insert(1, row(2))
    before = [extents.answer(each) for each in (HEAT, failing)]
    with pytest.raises(ExtentError, match="without damp"):
        extents.insert(2, {"room": "a", "floor": 0, "heat": 1})
    with pytest.raises(ExtentError, match="not comparable"):
        extents.insert(2, row(0))
    assert [extents.answer(each) for each in (HEAT, failing)] == before
    assert extents.errors == 2


def test_duplicates_are_refused_by_the_key_of_the_stream() -> None:
    extents = SharedExtents(WIDE, CountWindow(3), [HEAT], [HEAT])
    assert extents.insert(1, row(room="a")) is Verdict.ACCEPTED
    assert extents.insert(1, row(room="b")) is Verdict.DUPLICATE
    keyed = StreamSchema(key=("room",), invariant=(), varying=("heat",))
    by_room = coalescing_query(keyed, ["heat"], ["room"])
    tolerant = SharedExtents(keyed, CountWindow(3), [by_room], [by_room])
    assert [tolerant.insert(1, {"room": each, "heat": 1}).name for each in "aba"] == [
        "ACCEPTED",
        "ACCEPTED",
        "DUPLICATE",
    ]
    with pytest.raises(ExtentError, match="groups without room"):
        coalescing_query(keyed, ["heat"], [])


@pytest.mark.parametrize(
    ("attributes", "groups", "found"),
    [
        ([], ["room"], "nothing to coalesce"),
        (["cold"], ["room"], "no attribute cold"),
        (["heat"], ["heat"], "coalesced and grouped by"),
        (["room"], [], "does not vary"),
        (["heat"], ["damp"], "varies with time"),
    ],
)
def test_queries_without_sense_are_refused(attributes: list[str], groups: list[str], found: str) -> None:
    with pytest.raises(ExtentError, match=found) as error:
        coalescing_query(WIDE, attributes, groups)
    assert error.value.hint


@pytest.mark.parametrize(
    "make", [lambda: CountWindow(0), lambda: TimeWindow(-1), lambda: Within(-0.5), lambda: Within(math.nan)]
)
def test_windows_and_tolerances_below_zero_are_refused(make: Any) -> None:
    with pytest.raises(ExtentError):
        make()


def test_nulls_link_and_nan_does_not() -> None:
    nan = math.nan
    for link in (Equal(), Increasing(), Within(1)):
        assert link((None,), (None,))
        assert not link((nan,), (nan,))
        assert not link((1,), (None,))
        assert not link((None,), (1,))
    extent = EagerExtent(Equal())
    for stamp, value in enumerate([None, None, nan, nan, 1]):
        extent.insert(stamp, (), (value,))
    assert [(run.start, run.later) for run in extent.scan()] == [(0, (1,)), (2, ()), (3, ()), (4, ())]


def test_nothing_is_in_an_empty_window() -> None:
    extents = SharedExtents(WIDE, TimeWindow(5), [HEAT, DAMP], [HEAT])
    assert extents.answer(HEAT) == extents.answer(DAMP) == []
    extents.advance(5)
    assert extents.answer(HEAT) == []
    unknown = CoalescingQuery(("damp",), ("floor",))
    with pytest.raises(ExtentError, match="no query"):
        extents.answer(unknown)
    batched = BatchedExtent(TimeWindow(5))
    batched.advance(5)
    assert [len(each) for each in batched.runs()] == [0, 0, 0, 0]
    with pytest.raises(ExtentError, match="2 stamps"):
        batched.insert(np.array([1, 2]), np.array([1]), np.array([1]))


def test_batches_of_other_sizes_come_to_the_same() -> None:
    random = np.random.default_rng(5)
    stamps, groups, values = np.arange(500), random.integers(0, 3, 500), random.integers(0, 2, 500)
    order = np.argsort(stamps + random.uniform(0, 40, 500))
    for window in (CountWindow(20), TimeWindow(20)):
        found = set()
        for size in (1, 7, 100, 500):
            extent = BatchedExtent(window)
            for begin in range(0, 500, size):
                part = order[begin : begin + size]
                extent.insert(stamps[part], groups[part], values[part])
            found.add((extent.late, *(tuple(each.tolist()) for each in extent.runs())))
        assert len(found) == 1


def test_eager_extents_forget_heads_of_groups_that_are_gone() -> None:
    extents = SharedExtents(WIDE, CountWindow(5), [HEAT], [HEAT])
    for stamp in range(1_000):
        extents.insert(stamp, row(room=str(stamp)))
    extent = extents._eager[HEAT]
    assert len(extent._heads) <= 10
    assert len(extent._groups) == 5
