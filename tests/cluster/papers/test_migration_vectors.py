"""papers/pipes_migration.md section 5: what migrations answer, ours on the local engine and parallel track.

Ours cuts answers, so its instant is a few steps behind the paper's; snapshots are those of either plan alone, and where
both make the same rows, the rows are, too. What is cut is put together again, as by the paper's fuse
(tests/cluster/fjord/test_seams.py has 5.4).
"""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from cluster.fjord.batch import NEVER
from cluster.operators import Distinct, Join, Node
from cluster.physical.migration import Migration
from tests.cluster.local.migrating import STREAMS, Answered, Setting, Stamped, alone, migrated
from tests.cluster.local.migrating_plans import Case
from tests.cluster.papers.parallel_track import (
    Duplicates,
    Element,
    FirstColumn,
    HashJoin,
    Input,
    ParallelTrack,
    multiplicities,
    run,
)
from tests.cluster.plan.plans import A, B, call, condition, grouped, pick, window


def batches(**streams: list[Stamped]) -> Setting:
    """Return a setting with a micro-batch for each tuple, in the order of time, and the end."""
    arriving = sorted((at, name, values) for name, rows in streams.items() for at, values in rows)
    found = [{each: ([(at, values)] if each == name else [], at) for each in STREAMS} for at, name, values in arriving]
    return Setting([*found, {each: ([], NEVER) for each in STREAMS}])


def intervals(answered: Answered, column: str) -> Counter[tuple[int, int, int]]:
    return Counter((start, end, msgspec.json.decode(row)[column]) for start, end, row in answered.rows)


COUNTS = (
    "1[1,4) 2[4,8) 3[8,11) 2[11,12) 3[12,14) 2[14,15) 3[15,18) 2[18,19) 3[19,22) 2[22,24) 3[24,25) 2[25,28) "
    "3[28,29) 2[29,34) 1[34,38)"
)


def test_count() -> None:
    setting = batches(a=[(at, (0, 0)) for at in (1, 4, 8, 12, 15, 19, 24, 28)])
    plan = grouped(window(A, 10), "", call("count"))
    same = pick(plan, count="count")
    ran = migrated(Case(plan, same), setting, 3)
    assert 18 < ran.handover.at_us < 28
    assert ran.cut
    rows = [tuple(map(int, each.translate(str.maketrans("[,)", "   ")).split())) for each in COUNTS.split()]
    assert any(begin < ran.handover.at_us < end for _, begin, end in rows)
    assert intervals(ran.answered, "count") == Counter((begin, end, count) for count, begin, end in rows)
    assert ran.answered.ordered


LETTERS = {"a": 1, "b": 2}
JOINED = "a[3,11) b[9,15) a[11,13) a[13,16) b[15,19) a[16,18) a[18,24) b[19,22) a[24,26) a[26,31) b[30,39)"


def distinct_above(size: int) -> Node:
    a, b = pick(window(A, size), x="x"), pick(window(B, size), u="u")
    return Distinct(pick(Join(a, b, condition("x = u")), x="x"))


def distinct_below(size: int) -> Node:
    a, b = (Distinct(each) for each in (pick(window(A, size), x="x"), pick(window(B, size), u="u")))
    return pick(Join(a, b, condition("x = u")), x="x")


def stamped(text: str) -> list[Stamped]:
    return [(int(each[1:]), (LETTERS[each[0]], 0)) for each in text.split()]


@pytest.mark.parametrize("up", [False, True])
def test_distinct_above_and_below_a_join(*, up: bool) -> None:
    setting = batches(a=stamped("a1 a6 b9 a14 b17 a21 b30"), b=stamped("a3 b5 a8 b12 a16 a23 b29"))
    plans = distinct_below(10), distinct_above(10)
    old, new = plans if up else reversed(plans)
    ran = migrated(Case(old, new), setting, 4)
    assert 19 <= ran.handover.at_us < 30
    assert ran.cut
    expected: list[Counter[int]] = [Counter() for _ in range(40)]
    for each in JOINED.split():
        letter, begin, end = each[0], *each[2:-1].split(",")
        for instant in range(int(begin), int(end)):
            expected[instant][LETTERS[letter]] += 1
    for plan in (ran.answered, alone(old, setting)):
        found = [
            Counter({msgspec.json.decode(row)["x"]: times for row, times in bag.items()})
            for bag in plan.snapshots()[:40]
        ]
        assert found == expected


def test_parallel_track_answers_twice_where_ours_does_not() -> None:
    rows = {"a": [(50, 101)], "b": [(10, 101), (20, 101), (70, 101)]}
    arriving = sorted((at, name, length) for name, each in rows.items() for at, length in each)
    elements = [(name, Element(at, at + length, ("a",))) for at, name, length in arriving]
    old = Duplicates(FirstColumn(HashJoin(Input("a"), Input("b"), 0, 0)))
    new = FirstColumn(HashJoin(Duplicates(Input("a")), Duplicates(Input("b")), 0, 0))
    published = run(ParallelTrack(old, new), elements, begin=40)
    assert {(each.start, each.end) for each in published} == {(50, 111), (111, 121)}, "what is buffered comes later"
    published += [each for each in _buffered(elements) if each.new]
    found = multiplicities(published, range(200))
    assert {at for at, times in found.items() if times == 2} == set(range(70, 121))
    setting = batches(a=[(50, (1, 0))], b=[(at, (1, 0)) for at in (10, 20, 70)])
    ran = migrated(Case(distinct_above(101), distinct_below(101)), setting, 2)
    counted = [sum(bag.values()) for bag in ran.answered.snapshots()[:200]]
    assert counted == [int(50 <= at < 151) for at in range(200)]


def _buffered(elements: list[tuple[str, Element]]) -> list[Element]:
    """Return what the new plan makes of what came since the start."""
    new = FirstColumn(HashJoin(Duplicates(Input("a")), Duplicates(Input("b")), 0, 0))
    late = [(name, Element(each.start, each.end, each.values, new=True)) for name, each in elements if each.start > 40]
    return [found for name, each in late for found in new.feed(name, each)]


def test_nothing_is_cut_that_a_fuse_would_put_together() -> None:
    """5.4: of a join in two orders, the rows that lie across the instant come whole, in start order."""
    a, b = window(A, 10), window(B, 10)
    old, other = Join(a, b, condition("x = u")), Join(b, a, condition("x = u"))
    new = pick(other, x="x", y="y", u="u", v="v")
    assert not Migration(old, new).cut
    setting = batches(a=[(at, (at % 2, 0)) for at in range(0, 40, 3)], b=[(at, (at % 2, 0)) for at in range(1, 40, 4)])
    ran = migrated(Case(old, new), setting, 5)
    across = [row for row in ran.answered.rows if row[0] < ran.handover.at_us < row[1]]
    assert across
    assert sorted(ran.answered.rows) == sorted(alone(old, setting).rows)
    assert ran.answered.ordered
