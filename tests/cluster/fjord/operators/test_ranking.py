"""Places in an order, by their definition at every instant; what is kept for them, and when answers come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.fjord.batch import END, NEVER, START, Batch
from cluster.fjord.operators import rank_sweep, ranking
from cluster.fjord.operators.ranking import Ranked
from cluster.operators.columns import Ordering
from tests.cluster.fjord.operators.test_relational import LAST, Bag, Interval, check, frame, run, snapshot

LEFT = frame([])
LONG = st.lists(
    st.builds(
        lambda start, length, key, number: (start, NEVER if length == 0 else start + length, key, number),
        st.integers(0, 20), st.sampled_from([0, 1, 1, 2, 3, 5, 8, 13]), st.sampled_from(["a", "b", None]),
        st.sampled_from([0, 1, 2, 3, None]),
    ),
    max_size=16,
).map(lambda rows: sorted(rows, key=lambda row: row[0]))  # fmt: skip
FUNCTIONS = st.sampled_from(["row_number", "row_number", "rank", "dense_rank"])
PLACES = st.sampled_from([(0, 1), (0, 2), (0, 3), (1, 1), (1, 3), (2, 6), (0, 0), (0, None), (2, None)])


def key(value: Any, *, descending: bool, first: bool) -> tuple[Any, ...]:
    if value is None:
        return ((0, 0) if first else (2, 0),)
    return ((1, -value if descending else value),)


def placed(
    bag: Bag, order: Callable[[tuple[Any, ...]], Any], function: str, places: tuple[int, int | None], *, named: bool
) -> Bag:
    """The definition: rows in order, one place for each."""
    above, most = places
    rows = sorted(bag.elements(), key=order)
    orders = [order(row) for row in rows]
    found: Bag = Counter()
    for number, row in enumerate(rows, start=1):
        before = [each for each in orders if each < order(row)]
        place = {"row_number": number, "rank": len(before) + 1, "dense_rank": len(set(before)) + 1}[function]
        if place > above and (most is None or place <= most):
            found[(*row, place) if named else row] += 1
    return found


@pytest.mark.parametrize("pieces", [1, 200_000])
@given(
    rows=LONG,
    function=FUNCTIONS,
    places=PLACES,
    grouped=st.booleans(),
    named=st.booleans(),
    descending=st.booleans(),
    first=st.booleans(),
    lag=st.sampled_from([None, 1, 4]),
    passes=st.sampled_from([0, 64]),
    data=st.data(),
)
def test_places_are_those_of_every_snapshot(
    pieces: int, rows: list[Interval], function: str, places: tuple[int, int | None], grouped: bool, named: bool,
    descending: bool, first: bool, lag: int | None, passes: int, data: st.DataObject,
) -> None:  # fmt: skip
    by = (Ordering("n", descending, first), *([Ordering("k")] if function == "row_number" else []))

    def order(row: tuple[Any, ...]) -> Any:
        name = (row[0] is None, row[0] or "") if function == "row_number" else ()
        return (key(row[1], descending=descending, first=first), name)

    def make() -> Ranked:
        keys = ("k",) if grouped else ()
        name = "place" if named else None
        return Ranked(
            LEFT, keys=keys, order=by, function=function, above=places[0], most=places[1], name=name, lag_us=lag
        )

    def defined(instant: int) -> Bag:
        bag = snapshot(rows, instant)
        groups = {row[0] for row in bag} if grouped else {None}
        found: Bag = Counter()
        for group in groups:
            part = Counter({row: n for row, n in bag.items() if not grouped or row[0] == group})
            found += placed(part, order, function, places, named=named)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank_sweep, "MOST_PIECES", pieces)
        patch.setattr(rank_sweep, "PIECES_PER_ROW", pieces)
        patch.setattr(ranking, "MOST_PASSES", passes)
        check(run(make, [frame(rows)], data), defined)


def ranked(most: int | None = 1, **options: Any) -> Ranked:
    return Ranked(LEFT, keys=(), order=(Ordering("n"), Ordering("k")), most=most, **options)


def test_an_answer_comes_when_it_has_ended_whatever_began_before_it() -> None:
    """a is the first for long; b and c are second for a while."""
    subject = ranked(2)
    rows = frame([(0, 90, "a", 0), (10, 20, "b", 1), (20, 30, "c", 2)])
    first = subject.transition(0, Batch(rows, 25))
    assert first.rows.rows() == [(10, 20, "b", 1)]
    assert first.watermark_us == 0, "a may still be answered"
    second = subject.transition(0, Batch(rows.clear(), 35))
    assert second.rows.rows() == [(20, 30, "c", 2)]
    last = subject.transition(0, Batch(rows.clear(), 90))
    assert last.rows.rows() == [(0, 90, "a", 0)]
    assert last.watermark_us == 90


def test_a_piece_that_lasts_is_cut_where_others_wait_for_it() -> None:
    subject = ranked(1, lag_us=10)
    first = subject.transition(0, Batch(frame([(0, NEVER, "a", 0)]), 9))
    assert (first.rows.rows(), first.watermark_us) == ([], 0)
    second = subject.transition(0, Batch(LEFT, 12))
    assert (second.rows.rows(), second.watermark_us) == ([(0, 12, "a", 0)], 12)


def test_a_place_that_does_not_change_is_one_piece() -> None:
    subject = ranked(1, name="place")
    rows = frame([(0, 50, "a", 0), (5, 9, "b", 1), (7, 30, "c", 2)])
    assert subject.transition(0, Batch(rows, 10)).rows.rows() == []
    assert subject.transition(0, Batch(LEFT, 60)).rows.rows() == [(0, 50, "a", 0, 1)]


def test_rows_that_others_precede_and_outlast_are_forgotten() -> None:
    """Of an endless window few rows are kept: the first three of each group."""
    dice = np.random.default_rng(1)
    seen: dict[str, list[int]] = {"a": [], "b": []}
    subject = Ranked(LEFT, keys=("k",), order=(Ordering("n"),), most=3)
    for second in range(20):
        stamps = np.sort(dice.integers(second * 1_000, second * 1_000 + 1_000, 500))
        numbers, names = dice.integers(0, 10**6, 500), dice.choice(["a", "b"], 500)
        rows = [(int(at), NEVER, str(k), int(n)) for at, k, n in zip(stamps, names, numbers, strict=True)]
        for _, _, name, number in rows:
            seen[str(name)].append(number)
        subject.transition(0, Batch(frame(rows), second * 1_000 + 1_000))
        kept = subject.save()["kept"]
        assert isinstance(kept, pl.DataFrame)
        for name, numbers in seen.items():
            assert sorted(kept.filter(pl.col("k") == name)["n"]) == sorted(numbers)[:3]


@pytest.mark.parametrize("function", ["rank", "dense_rank"])
def test_rows_of_equal_places_are_not_forgotten(function: Any) -> None:
    subject = Ranked(LEFT, keys=(), order=(Ordering("n"),), function=function, most=1)
    rows = frame([(0, 90, "a", 0), (0, 80, "b", 0), (0, 70, "c", 1)])
    subject.transition(0, Batch(rows, 10))
    kept = subject.save()["kept"]
    assert isinstance(kept, pl.DataFrame)
    assert kept["k"].sort().to_list() == ["a", "b"]


def test_groups_in_which_nothing_changes_are_not_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    swept: list[int] = []
    ordered = Ranked._ordered

    def counted(self: Ranked, rows: pl.DataFrame) -> pl.DataFrame:
        swept.append(rows.height)
        return ordered(self, rows)

    monkeypatch.setattr(Ranked, "_ordered", counted)
    subject = Ranked(LEFT, keys=("k",), order=(Ordering("n"),), most=3)
    rows = frame([(0, 10**6, f"k{number}", number) for number in range(1_000)])
    subject.transition(0, Batch(rows, 10))
    subject.transition(0, Batch(frame([(10, 10**6, "k7", 0)]), 20))
    subject.transition(0, Batch(LEFT, 30))
    assert swept == [1_000, 2]


def test_looking_ahead_gives_what_is_first_so_far() -> None:
    subject = ranked(1)
    subject.transition(0, Batch(frame([(0, 50, "a", 1)]), 10))
    ahead = subject.ahead(20, [frame([(15, 20, "b", 0)])])
    assert ahead.rows.rows() == [(0, 15, "a", 1), (15, 20, "b", 0)]
    assert ahead.watermark_us == 20


def test_zeros_of_both_signs_are_equal() -> None:
    columns = pl.DataFrame(schema={START: pl.Int64, END: pl.Int64, "x": pl.Float64})
    subject = Ranked(columns, keys=("x",), order=(Ordering("x"),), function="rank", name="place")
    rows = pl.DataFrame([(0, 5, 0.0), (0, 5, -0.0)], schema=columns.schema, orient="row")
    assert subject.transition(0, Batch(rows, LAST)).rows["place"].to_list() == [1, 1]
