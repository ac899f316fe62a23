"""papers/pipes_algebra.md sections 9.2 to 9.4: physical streams through single operators.

Answers must be snapshot-equivalent to the printed ones: how intervals are cut is free (section 1.4). Split and coalesce
are all about the cuts, so their rows must be the printed ones.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pytest

from cluster.fjord.operator import Operator
from cluster.fjord.operators.aggregation import MergeAggregate
from cluster.fjord.operators.changes import Changes
from cluster.fjord.operators.count_window import CountWindow
from cluster.fjord.operators.filtering import Filter
from cluster.fjord.operators.join import Join
from cluster.fjord.operators.partial_aggregation import PartialAggregate
from cluster.fjord.operators.projection import Project
from cluster.fjord.operators.set_operations import Distinct, Union, difference
from cluster.fjord.operators.splitting import Split
from cluster.fjord.operators.time_window import Granularity, TimeWindow
from cluster.operators.columns import AggregateCall, Column, Output, Scalar
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType
from tests.cluster.papers.coalesce import Coalesce
from tests.cluster.papers.notation import Rows, answer, frame, physical, snapshots

PS1 = "c[1,8) a[5,11) d[6,14) a[9,10) b[12,17)"
PS2 = "b[1,7) d[3,9) a[4,5) b[7,15) e[10,18)"
PS3 = "b@1 a@3 c@4 a@7 b@10"
E, F = frame([]), frame([], "f")
TEXT, INTEGER, BOOLEAN = FieldType.TEXT, FieldType.INTEGER, FieldType.BOOLEAN


def condition(sql: str) -> Scalar:
    return read_scalar(sql, BOOLEAN)


UNARY: dict[str, tuple[Operator, str, str]] = {
    "9.2 filter a (pS1)": (Filter(condition("\"e\" = 'a'")), PS1, "a[5,11) a[9,10)"),
    "9.2 map (pS1)": (
        Project((Output("e", read_scalar("""CASE "e" WHEN 'a' THEN 'x' WHEN 'b' THEN 'y' ELSE "e" END""", TEXT)),)),
        PS1,
        "c[1,8) x[5,11) d[6,14) x[9,10) y[12,17)",
    ),
    "9.2 distinct (pS1)": (Distinct(E), PS1, "c[1,8) a[5,11) d[6,14) b[12,17)"),
    "9.2 window 50 (pS3)": (TimeWindow(50), PS3, "b[1,51) a[3,53) c[4,54) a[7,57) b[10,60)"),
    "9.2 window 50, 10 (pS3)": (TimeWindow(50, 10), PS3, "b[9,59) a[9,59) c[9,59) a[9,59) b[19,69)"),
    "9.2 window 5, 10 (pS3)": (TimeWindow(5, 10), PS3, "a[9,19)"),
    "9.2 window 7, 5 (pS3)": (TimeWindow(7, 5), PS3, "b[4,9) a[4,14) c[4,14) a[9,14) b[14,19)"),
    "9.2 count 1 (pS3)": (CountWindow(E, 1, 1), PS3, "b[1,3) a[3,4) c[4,7) a[7,10) b[10,∞)"),
    "9.2 count 2 (pS3)": (CountWindow(E, 2, 1), PS3, "b[1,4) a[3,7) c[4,10) a[7,∞) b[10,∞)"),
    "9.2 count 2, 2 (pS3)": (CountWindow(E, 2, 2), PS3, "b[3,7) a[3,7) c[7,∞) a[7,∞)"),
    "9.2 count 3, 2 (pS3)": (CountWindow(E, 3, 2), PS3, "b[3,7) a[3,∞) c[7,∞) a[7,∞)"),
    "9.2 partitioned 1 (pS3)": (
        CountWindow(E, 1, 1, ("e",)), PS3, "b[1,10) a[3,7) c[4,∞) a[7,∞) b[10,∞)",
    ),
    # A cut of what is known so far (delta) gives the same snapshots, earlier.
    "9.2 partitioned 1, delta 4 (pS3)": (
        CountWindow(E, 1, 1, ("e",), lag_us=4), PS3, "b[1,7) a[3,7) c[4,10) b[7,10) a[7,∞) b[10,∞) c[10,∞)",
    ),
    "9.2 Istream (pS2)": (Changes(E, insertions=True), PS2, "b[1,2) d[3,4) a[4,5) e[10,11)"),
    "9.2 Dstream (pS2)": (Changes(E, insertions=False), PS2, "a[4,5) d[8,9) b[14,15) e[17,18)"),
    "9.2 granularity 2 (pS1)": (Granularity(2), PS1, "c[2,8) a[6,12) d[6,14) b[12,18)"),
    "9.4 D1 distinct": (Distinct(E), "a[0,9) a[2,10) a[2,3)", "a[0,9) a[9,10)"),
    "9.4 D5 Istream": (Changes(E, insertions=True), "a[0,2) a[1,3)", "a[0,1) a[1,2)"),
    "9.4 D5 Dstream": (Changes(E, insertions=False), "a[0,2) a[1,3)", "a[1,2) a[2,3)"),
    "9.4 D7 partitioned": (CountWindow(E, 1, 1, ("e",)), "a@0 b@2 b@5 b@8", "a[0,5) b[2,5) b[5,8) a[5,∞) b[8,∞)"),
}  # fmt: skip


@pytest.mark.parametrize(("operator", "given", "expected"), UNARY.values(), ids=list(UNARY))
def test_9_2_operators_with_one_input(operator: Operator, given: str, expected: str) -> None:
    found = answer(operator, frame(physical(given)))
    assert snapshots(found) == snapshots(physical(expected))


def joined(pair: str) -> tuple[str, str]:
    return pair[0], pair[1]


PAIRS: dict[str, tuple[str | None, str, str, str]] = {
    "9.2 pS1 = pS2": ('"e" = "f"', PS1, PS2, "dd[6,9) bb[12,15)"),
    "9.2 pS1 < pS2": (
        '"e" < "f"', PS1, PS2,
        "cd[3,8) ab[5,7) ad[5,9) ab[7,11) ab[9,10) ae[10,11) de[10,14) be[12,17)",
    ),
    "9.2 pS1 x pS2": (
        None, PS1, PS2,
        ("cb[1,7) cd[3,8) ca[4,5) ab[5,7) ad[5,9) db[6,7) dd[6,9) cb[7,8) ab[7,11) db[7,14) ab[9,10) ae[10,11) "
        "de[10,14) bb[12,15) be[12,17)"),
    ),
    "9.4 D3 argument swap": ('"e" = "f"', "c[5,11)", "b[1,5) c[3,13)", "cc[5,11)"),
}  # fmt: skip


@pytest.mark.parametrize(("sql", "left", "right", "expected"), PAIRS.values(), ids=list(PAIRS))
def test_9_2_joins_and_products(sql: str | None, left: str, right: str, expected: str) -> None:
    operator = Join(E, F, None if sql is None else condition(sql))
    found = answer(operator, frame(physical(left)), frame(physical(right), "f"))
    wanted = [(start, end, *pair) for start, end, pair in physical(expected, joined)]
    assert snapshots(found) == snapshots(wanted)


BINARY: dict[str, tuple[Any, str, str, str]] = {
    "9.2 pS1 union pS2": (
        Union, PS1, PS2,
        "c[1,8) b[1,7) d[3,9) a[4,5) a[5,11) d[6,14) b[7,15) a[9,10) e[10,18) b[12,17)",
    ),
    "9.2 pS1 - pS2": (difference, PS1, PS2, "c[1,8) a[5,11) d[9,14) a[9,10) b[15,17)"),
    "9.2 pS2 - pS1": (difference, PS2, PS1, "b[1,7) d[3,6) a[4,5) b[7,12) e[10,18)"),
    "9.3 several overlaps": (
        difference, "a[0,10) a[2,4) a[3,12)", "a[1,5) a[3,6) a[11,20)", "a[0,1) a[2,3) a[3,4) a[5,10) a[6,11)",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "left", "right", "expected"), BINARY.values(), ids=list(BINARY))
def test_9_2_and_9_3_operators_with_two_inputs(make: Any, left: str, right: str, expected: str) -> None:
    found = answer(make(E), frame(physical(left)), frame(physical(right), "f"))
    assert snapshots(found) == snapshots(physical(expected))


def test_9_3_counts_on_both_sides() -> None:
    left = snapshots(physical("a[0,10) a[2,4) a[3,12)"))
    right = snapshots(physical("a[1,5) a[3,6) a[11,20)"))
    counts = {at: (left[at].total(), right[at].total()) for at in (0, 1, 2, 3, 4, 5, 6, 11)}
    assert counts == {0: (1, 0), 1: (1, 1), 2: (2, 1), 3: (3, 2), 4: (2, 2), 5: (2, 1), 6: (2, 0), 11: (1, 1)}


LETTER = {"a": 1, "b": 10, "c": 100, "d": 1000, "e": 10_000}


def added_up(letters: str) -> int:
    return sum(LETTER[letter] for letter in letters.split("+"))


def aggregated(function: str, rows: Rows, kind: FieldType = INTEGER) -> Rows:
    call = AggregateCall("r", function, read_scalar('"n"', INTEGER), kind)
    chain = [PartialAggregate((), (call,)), MergeAggregate((), (call,))]
    return answer(chain, frame(rows, "n", kind=pl.Int64))


def test_9_2_sum_ps1() -> None:
    expected = "c[1,5) c+a[5,6) c+a+d[6,8) a+d[8,9) a+d+a[9,10) a+d[10,11) d[11,12) d+b[12,14) b[14,17)"
    found = aggregated("sum", physical(PS1, added_up))
    assert snapshots(found) == snapshots(physical(expected, added_up))


def test_9_2_count_by_letter_ps1() -> None:
    call = AggregateCall("n", "count", None, INTEGER)
    chain = [PartialAggregate(("e",), (call,)), MergeAggregate((Column("e", TEXT),), (call,))]
    found = answer(chain, frame(physical(PS1)))
    expected = [
        (1, 8, "c", 1), (5, 9, "a", 1), (6, 14, "d", 1), (9, 10, "a", 2), (10, 11, "a", 1), (12, 17, "b", 1),
    ]  # fmt: skip
    assert snapshots(found) == snapshots(expected)


def test_9_4_d6_average() -> None:
    found = aggregated("avg", physical("10[0,6) 20[2,9) 60[2,4)", int), FieldType.REAL)
    assert snapshots(found) == snapshots(physical("10[0,2) 30[2,4) 15[4,6) 20[6,9)", float))


def test_9_2_split_1_ps1() -> None:
    found = answer(Split(E, 1), frame(physical(PS1)))
    prefix = "c[1,2) c[2,3) c[3,4) c[4,5) c[5,6) a[5,6) c[6,7) a[6,7) d[6,7)"
    assert sorted(found)[:9] == sorted(physical(prefix))
    assert found[-1] == (16, 17, "b")
    assert len(found) == sum(end - start for start, end, _ in physical(PS1))


@pytest.mark.parametrize(
    ("operator", "given", "expected"),
    [
        pytest.param(
            Split(E, 3), PS1,
            "c[1,4) c[4,7) a[5,8) d[6,9) c[7,8) a[8,11) d[9,12) a[9,10) d[12,14) b[12,15) b[15,17)",
            id="9.2 split 3 (pS1)",
        ),
        pytest.param(Coalesce(E, 20), PS2, "b[1,15) d[3,9) a[4,5) e[10,18)", id="9.2 coalesce 20 (pS2)"),
        pytest.param(Coalesce(E, 5), PS2, PS2, id="9.2 coalesce 5 (pS2)"),
        pytest.param(
            Coalesce(E, 9), "c[10,14) c[11,13) c[14,15)", "c[10,15) c[11,13)", id="9.4 D2 coalesce in order"
        ),
    ],
)  # fmt: skip
def test_9_2_and_9_4_split_and_coalesce_cut_as_printed(operator: Operator, given: str, expected: str) -> None:
    found = answer(operator, frame(physical(given)))
    assert sorted(found) == sorted(physical(expected))


def test_9_4_d4_a_window_over_what_lasts_needs_a_split() -> None:
    given, expected = frame(physical("v[2,5)")), physical("v[2,5) v[3,6) v[4,7)")
    assert snapshots(answer([Split(E, 1), TimeWindow(3)], given)) == snapshots(expected)
    assert [each.total() for each in snapshots(expected)[2:7]] == [1, 2, 3, 2, 1]
    # Without it only whether the tuple is there is right, not how often.
    without = snapshots(answer(TimeWindow(3), given))
    assert [set(each) for each in without] == [set(each) for each in snapshots(expected)]


def changes(rows: Rows) -> tuple[list[Counter[Any]], list[Counter[Any]]]:
    """Return per instant what is inserted and what is deleted: the net positive and negative elements."""
    last = max(end for _, end, _ in rows) + 2
    began = snapshots(answer(Changes(E, insertions=True), frame(rows)), last)
    ceased = snapshots(answer(Changes(E, insertions=False), frame(rows)), last)
    return began, [Counter(), *ceased[:-1]]  # deleted at the instant after the last valid one


def test_9_2_positive_and_negative_elements_ps2() -> None:
    plus, minus = changes(physical(PS2))
    printed = ["+b1", "+d3", "+a4", "-a5", "-b7", "+b7", "-d9", "+e10", "-b15", "-e18"]
    for sign, found in (("+", plus), ("-", minus)):
        wanted = Counter((word[1], int(word[2:])) for word in printed if word[0] == sign)
        wanted -= Counter([("b", 7)])  # where a tuple ends and an equal one begins, nothing changes
        assert Counter((value, at) for at, bag in enumerate(found) for (value,) in bag.elements()) == wanted


def test_positive_and_negative_elements_add_up_to_the_snapshots() -> None:
    rows = physical("a[0,4) a[2,6) b[1,3) b[3,5) a[9,12)")
    plus, minus = changes(rows)
    content: Counter[Any] = Counter()
    for at, expected in enumerate(snapshots(rows, len(plus))):
        content = content + plus[at] - minus[at]
        assert content == expected, at
