"""ASOF and interval joins: pairs by the definition, however inputs are cut, disordered and restarted."""

from __future__ import annotations

import random
from collections import Counter

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.fjord.batch import END, NEVER, START, Batch
from cluster.fjord.operator import Operator
from cluster.fjord.operators.stamp_joining import AsofJoin, StampJoin
from cluster.operators import ZipKind
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType
from tests.cluster.fjord.operators.two_sided_running import EMPTY, ROWS, frame, run_two_sided
from tests.cluster.stamp_join_definition import Row, Stamped, asof_rows, interval_rows

LAST = 45
BOUNDS = st.tuples(st.integers(-9, 9), st.integers(-9, 9)).map(lambda both: (min(both), max(both)))
LESS = read_scalar('"n" < "n2"', FieldType.BOOLEAN)


def equal(one: Row, other: Row) -> bool:
    return one[0] is not None and one[0] == other[0]


@settings(max_examples=300, deadline=None)
@given(
    ROWS, ROWS, st.integers(-9, 0) | st.none(), st.sampled_from([0, 0, -1, -3]), st.booleans(), st.booleans(),
    st.integers(0, 2**32),
)  # fmt: skip
def test_asof_by_definition_however_inputs_are_cut(
    left: list[Stamped], right: list[Stamped], low: int | None, high: int, keyed: bool, kept: bool, seed: int
) -> None:
    kind: ZipKind = "left" if kept else "inner"
    keys = (("k", "k2"),) if keyed else ()

    def make() -> AsofJoin:
        return AsofJoin(*EMPTY, keys=keys, low_us=low, high_us=high, kind=kind)

    meets = equal if keyed else lambda *_: True
    meant = Counter(asof_rows(left, right, meets, (low, high), kind, 2))
    assert run_two_sided(make, [left, right], random.Random(seed), last=LAST) == meant


@settings(max_examples=300, deadline=None)
@given(
    ROWS, ROWS, BOUNDS, st.sampled_from(["inner", "left", "full"]), st.booleans(), st.booleans(), st.integers(0, 2**32)
)  # fmt: skip
def test_intervals_by_definition_however_inputs_are_cut(
    left: list[Stamped],
    right: list[Stamped],
    bounds: tuple[int, int],
    kind: ZipKind,
    keyed: bool,
    less: bool,
    seed: int,
) -> None:
    keys = (("k", "k2"),) if keyed else ()

    def make() -> StampJoin:
        return StampJoin(*EMPTY, keys=keys, predicate=LESS if less else None, bounds_us=bounds, kind=kind)

    def meets(one: Row, other: Row) -> bool:
        smaller = one[1] is not None and other[1] is not None and one[1] < other[1]
        return (not keyed or equal(one, other)) and (not less or smaller)

    meant = Counter(interval_rows(left, right, meets, bounds, kind, (2, 2)))
    assert run_two_sided(make, [left, right], random.Random(seed), last=LAST) == meant


def heights(subject: Operator) -> dict[str, int]:
    return {name: table.height for name, table in subject.save().items() if isinstance(table, pl.DataFrame)}


@pytest.mark.parametrize(("low", "most"), [(None, 4), (-15, 4)])
def test_asof_keeps_the_latest_of_each_key(low: int | None, most: int) -> None:
    subject = AsofJoin(*EMPTY, keys=(("k", "k2"),), low_us=low, high_us=0, kind="left")
    for at in range(0, 1000, 10):
        subject.transition(1, Batch(frame(1, [(at + 3, (key, at)) for key in "ab"]), at + 10))
        subject.transition(0, Batch(frame(0, [(at, ("a", at))]), at + 10))
    kept = heights(subject)
    assert kept["left"] <= 1
    assert kept["right"] <= most
    assert kept["held"] <= 1


def test_within_lets_keys_be_forgotten() -> None:
    kept = []
    for low in (None, -15):
        subject = AsofJoin(*EMPTY, keys=(("k", "k2"),), low_us=low, high_us=0, kind="inner")
        for at in range(0, 1000, 10):
            subject.transition(1, Batch(frame(1, [(at, (f"key {at}", at))]), at + 10))
            subject.transition(0, Batch(frame(0, [(at, ("a", at))]), at + 10))
        kept.append(heights(subject)["right"])
    assert kept[0] == 100
    assert kept[1] <= 3


def test_intervals_are_forgotten() -> None:
    subject = StampJoin(*EMPTY, keys=(("k", "k2"),), predicate=None, bounds_us=(-20, 5), kind="full")
    for at in range(0, 1000, 10):
        subject.transition(0, Batch(frame(0, [(at, ("a", at))]), at + 10))
        subject.transition(1, Batch(frame(1, [(at + 3, ("b", at))]), at + 10))
    kept = heights(subject)
    assert kept["left"] <= 1
    assert kept["right"] <= 3
    assert kept["held"] <= 3


def test_the_greatest_of_equal_stamps_is_taken_whatever_the_order_of_arrival() -> None:
    right = [(5, ("a", 1)), (5, ("a", None)), (5, ("a", 3)), (5, ("a", 2))]
    for seed in range(6):
        subject = AsofJoin(*EMPTY, keys=(("k", "k2"),), low_us=None, high_us=0, kind="inner")
        for row in random.Random(seed).sample(right, 4):
            subject.transition(1, Batch(frame(1, [row]), 5))
        subject.transition(1, Batch(EMPTY[1], NEVER))
        found = subject.transition(0, Batch(frame(0, [(7, ("a", 0))]), NEVER)).rows
        assert found.rows() == [(7, 8, "a", 0, "a", 3)]


def test_zeros_of_both_signs_are_one_key() -> None:
    sides = [pl.DataFrame({START: [0], END: [1], "x": [0.0]}), pl.DataFrame({START: [0], END: [1], "y": [-0.0]})]
    empty = [side.clear() for side in sides]
    subjects = (
        AsofJoin(*empty, keys=(("x", "y"),), low_us=None, high_us=0, kind="inner"),
        StampJoin(*empty, keys=(("x", "y"),), predicate=None, bounds_us=(0, 0), kind="inner"),
    )
    for subject in subjects:
        subject.transition(0, Batch(sides[0], NEVER))
        assert subject.transition(1, Batch(sides[1], NEVER)).rows.height == 1
