"""Zip: pairs one to one in time order, by the definition, however inputs are cut, disordered and restarted."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, get_args

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import StateError
from cluster.fjord.batch import END, NEVER, START, Batch
from cluster.fjord.operators.zipping import Zip
from cluster.operators import ZipKind
from tests.cluster.fjord.operators.two_sided_running import EMPTY, ROWS, frame, run_two_sided
from tests.cluster.zip_definition import Stamped, zip_rows, zipped

LAST = 40
KINDS: tuple[ZipKind, ...] = get_args(ZipKind)


def make(bounds: tuple[int, int], kind: ZipKind = "full", *, keyed: bool = True) -> Zip:
    keys = (("k", "k2"),) if keyed else ()
    return Zip(*EMPTY, keys=keys, bounds_us=bounds, kind=kind, apart="apart_us")


def defined(sides: list[list[Stamped]], bounds: tuple[int, int], kind: ZipKind, *, keyed: bool) -> Counter[Stamped]:
    key = (lambda row: row[:1]) if keyed else (lambda _: ())
    return Counter(zip_rows(sides[0], sides[1], (key, key), bounds, kind, (2, 2)))


BOUNDS = st.one_of(
    st.integers(0, 8).map(lambda tolerance: (-tolerance, tolerance)),
    st.tuples(st.integers(-9, 9), st.integers(-9, 9)).map(lambda both: (min(both), max(both))),
)


@settings(max_examples=300, deadline=None)
@given(ROWS, ROWS, BOUNDS, st.sampled_from(KINDS), st.booleans(), st.integers(0, 2**32))
def test_zip_pairs_by_definition_however_inputs_are_cut(
    left: list[Stamped], right: list[Stamped], bounds: tuple[int, int], kind: ZipKind, keyed: bool, seed: int
) -> None:
    found = run_two_sided(lambda: make(bounds, kind, keyed=keyed), [left, right], random.Random(seed), last=LAST)
    assert found == defined([left, right], bounds, kind, keyed=keyed)


@pytest.mark.parametrize("swapped", [False, True])
def test_one_column_in_several_keys(swapped: bool) -> None:
    one = [(0, ("a", "x")), (2, ("b", "x")), (4, (None, "x"))]
    two = [(1, ("a", "a")), (1, ("a", "b")), (3, ("b", "b")), (4, ("b", None))]
    names = (("k", "note"), ("k2", "note2"))
    frames = [
        pl.DataFrame(
            [(at, at + 1, *row) for at, row in rows],
            schema={START: pl.Int64, END: pl.Int64, **dict.fromkeys(columns, pl.String)},
            orient="row",
        )
        for rows, columns in zip((one, two), names, strict=True)
    ]
    keys = (("k", "k2"), ("k", "note2"))
    if swapped:
        frames, keys = frames[::-1], (("k2", "k"), ("note2", "k"))
    empty = [each.clear() for each in frames]
    subject = Zip(*empty, keys=keys, bounds_us=(-1, 1), kind="inner", apart="apart_us")
    subject.transition(0, Batch(frames[0], NEVER))
    found = subject.transition(1, Batch(frames[1], NEVER)).rows
    assert found.select("k", "note", "k2", "note2").rows() == [("a", "x", "a", "a"), ("b", "x", "b", "b")]


def answered(
    left: list[Stamped], right: list[Stamped], bounds: tuple[int, int], kind: ZipKind = "full"
) -> list[tuple[Any, ...]]:
    subject = make(bounds, kind)
    subject.transition(0, Batch(frame(0, left), NEVER))
    return subject.transition(1, Batch(frame(1, right), NEVER)).rows.rows()


def test_a_lone_tuple_is_answered_at_the_end_of_its_window() -> None:
    left = [(10, ("a", 1)), (20, ("a", 2))]
    right = [(12, ("a", 3)), (30, ("a", 4))]
    assert answered(left, right, (-3, 5)) == [
        (12, 13, "a", 1, "a", 3, 2),
        (25, 26, "a", 2, None, None, None),
        (33, 34, None, None, "a", 4, None),
    ]
    assert [row[2:4] for row in answered(left, right, (-3, 5), "left")] == [("a", 1), ("a", 2)]
    assert [row[2:4] for row in answered(left, right, (-3, 5), "inner")] == [("a", 1)]


@pytest.mark.parametrize(("left", "right", "pairs"), [
    # Upstream of a pair of loops, downstream 2 later: all is well.
    ([0, 10, 20], [2, 12, 22], [(0, 2), (10, 12), (20, 22)]),
    # Downstream missed the first: its partner is not given to the second, nor any partner to the next.
    ([0, 10, 20], [12, 22], [(10, 12), (20, 22)]),
    # Upstream missed the second.
    ([0, 20], [2, 12, 22], [(0, 2), (20, 22)]),
    # Two are between the loops at once: the nearer one is taken.
    ([0, 1], [3, 4], [(1, 3)]),
    # A partner at the same stamp is found behind others.
    ([0, 1, 2, 3], [3], [(3, 3)]),
    ([3], [0, 1, 2, 3], [(3, 3)]),
])  # fmt: skip
def test_vehicles_are_paired_though_one_loop_misses_some(
    left: list[int], right: list[int], pairs: list[tuple[int, int]]
) -> None:
    bounds = (-15, 15) if 3 in left else (0, 15)
    found = answered([(at, ("a", 0)) for at in left], [(at, ("a", 0)) for at in right], bounds, "inner")
    assert [(row[0] - row[-1] if row[-1] >= 0 else row[0], row[-1]) for row in found] == [
        (one, other - one) for one, other in pairs
    ]


@given(ROWS, ROWS, st.integers(0, 8))
def test_what_is_sampled_at_one_instant_is_always_paired(
    left: list[Stamped], right: list[Stamped], tolerance: int
) -> None:
    """Tuples of equal stamps and keys find each other, whatever else is within the tolerance."""
    key = lambda row: row[:1]  # noqa: E731 - shorter than a function
    pairs, *_ = zipped(left, right, (key, key), (-tolerance, tolerance))
    together = Counter((one[0], one[1][0]) for one, other in pairs if one[0] == other[0])
    lefts, rights = (Counter((at, row[0]) for at, row in side if row[0] is not None) for side in (left, right))
    assert together == lefts & rights


def test_a_tuple_is_kept_until_both_inputs_have_passed_its_window() -> None:
    subject = make((-20, 5))
    for at in range(0, 1000, 10):
        subject.transition(0, Batch(frame(0, [(at, ("a", at))]), at + 10))
        subject.transition(1, Batch(frame(1, [(at + 3, ("b", at))]), at + 10))
    state = subject.save()
    heights = {name: table.height for name, table in state.items() if isinstance(table, pl.DataFrame)}
    assert heights["left"] <= 1
    assert heights["right"] <= 3
    assert heights["held"] <= 3
    # One input that brings nothing more holds back the other: what will come is not known.
    for at in range(1000, 2000, 10):
        subject.transition(0, Batch(frame(0, [(at, ("a", at))]), at + 10))
    last = subject.transition(1, Batch(EMPTY[1], NEVER))
    assert last.watermark_us == 2000
    kept = subject.save()["left"]
    assert isinstance(kept, pl.DataFrame)
    assert kept.height == 0


def test_zeros_of_both_signs_are_one_key() -> None:
    sides = [
        pl.DataFrame({START: [0], END: [1], "x": [0.0]}),
        pl.DataFrame({START: [0], END: [1], "y": [-0.0]}),
    ]
    empty = [side.clear() for side in sides]
    subject = Zip(*empty, keys=(("x", "y"),), bounds_us=(0, 0), kind="inner", apart="apart_us")
    subject.transition(0, Batch(sides[0], NEVER))
    assert subject.transition(1, Batch(sides[1], NEVER)).rows.height == 1


def test_a_foreign_state_is_refused() -> None:
    with pytest.raises(StateError, match="no table 'held'"):
        make((0, 0)).restore({"left": EMPTY[0]})
