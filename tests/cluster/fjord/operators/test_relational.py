"""Operators over intervals, by their definition at every instant, however inputs are cut, interleaved and restarted.

left    |-----a-----)  |--b--)          the snapshot of the answer at t is the relational operator
right        |--a--)                    applied to the snapshots of the inputs at t
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import PlanError, StateError
from cluster.fjord.batch import ALWAYS, END, NEVER, START, Batch
from cluster.fjord.operator import Operator
from cluster.fjord.operators.changes import Changes
from cluster.fjord.operators.count_window import CountWindow
from cluster.fjord.operators.join import Join, SemiJoin
from cluster.fjord.operators.set_operations import Distinct, Union, difference, intersection
from cluster.fjord.operators.splitting import Split
from cluster.fjord.operators.time_window import Granularity
from cluster.fjord.saved_state import pack_state, unpack_state
from cluster.operators.columns import Scalar
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType
from tests.cluster.papers.coalesce import Coalesce

LAST = 30
Interval = tuple[int, int, str | None, int]
Bag = Counter[tuple[Any, ...]]


def frame(rows: list[Interval], names: tuple[str, str] = ("k", "n")) -> pl.DataFrame:
    return pl.DataFrame(
        rows, schema={START: pl.Int64, END: pl.Int64, names[0]: pl.String, names[1]: pl.Int64}, orient="row"
    )


LEFT, RIGHT = frame([]), frame([], ("k2", "n2"))
ROWS = st.lists(
    st.builds(
        lambda start, length, key, number: (start, start + length, key, number),
        st.integers(0, 20), st.integers(1, 8), st.sampled_from(["a", "b", None]), st.integers(0, 2),
    ),
    max_size=8,
).map(lambda rows: sorted(rows, key=lambda row: row[0]))  # fmt: skip


def snapshot(rows: list[tuple[Any, ...]], instant: int) -> Bag:
    return Counter(row[2:] for row in rows if row[0] <= instant < row[1])


def run(make: Callable[[], Operator], inputs: list[pl.DataFrame], data: st.DataObject) -> list[tuple[Any, ...]]:
    """Feed the inputs in random pieces and order; check order and watermarks on the way."""
    subject, promised, found = make(), ALWAYS, []
    reached = [0] * len(inputs)
    while min(reached) <= LAST:
        port = data.draw(st.sampled_from([port for port, at in enumerate(reached) if at <= LAST]))
        until = data.draw(st.integers(reached[port] + 1, LAST + 1))
        piece = inputs[port].filter(pl.col(START).is_between(reached[port], until - 1))
        emitted = subject.transition(port, Batch(piece, until))
        starts = emitted.rows[START].to_list()
        assert starts == sorted(starts), "in start order"
        assert all(start >= promised for start in starts), "never before an earlier watermark"
        assert emitted.watermark_us >= promised, "watermarks never go back"
        promised = emitted.watermark_us
        found.extend(emitted.rows.rows())
        reached[port] = until
        if data.draw(st.booleans()):
            again = make()
            again.restore(unpack_state(pack_state(subject.save())))
            subject = again
    for port in range(len(inputs)):
        last = subject.transition(port, Batch(inputs[port].clear(), NEVER))
        found.extend(last.rows.rows())
    assert last.watermark_us == NEVER, "the end of all inputs ends the answer"
    assert all(start < end for start, end, *_ in found), "no empty interval"
    return found


def check(found: list[tuple[Any, ...]], defined: Callable[[int], Bag]) -> None:
    for instant in range(LAST + 15):
        assert snapshot(found, instant) == +defined(instant), f"at instant {instant}"


@given(ROWS, ROWS, st.data())
def test_union(left: list[Interval], right: list[Interval], data: st.DataObject) -> None:
    found = run(lambda: Union(LEFT), [frame(left), frame(right, ("k2", "n2"))], data)
    check(found, lambda at: snapshot(left, at) + snapshot(right, at))


@given(ROWS, st.data())
def test_distinct(rows: list[Interval], data: st.DataObject) -> None:
    found = run(lambda: Distinct(LEFT), [frame(rows)], data)
    check(found, lambda at: Counter(set(snapshot(rows, at))))


@given(ROWS, st.integers(1, 9), st.data())
def test_split(rows: list[Interval], length: int, data: st.DataObject) -> None:
    found = run(lambda: Split(LEFT, length), [frame(rows)], data)
    check(found, lambda at: snapshot(rows, at))
    assert all(end - start <= length for start, end, *_ in found)


def test_a_row_that_never_ends_is_split_as_far_as_the_watermark_comes() -> None:
    subject = Split(LEFT, 2)
    first = subject.transition(0, Batch(frame([(1, NEVER, "a", 0)]), 5))
    last = subject.transition(0, Batch(LEFT, NEVER))
    assert first.rows.rows() == [(1, 3, "a", 0), (3, 5, "a", 0)]
    assert last.rows.rows() == [(5, NEVER, "a", 0)]


@given(ROWS, st.integers(1, 12), st.data())
def test_coalesce(rows: list[Interval], longest: int, data: st.DataObject) -> None:
    found = run(lambda: Coalesce(LEFT, longest), [frame(rows)], data)
    check(found, lambda at: snapshot(rows, at))
    assert len(found) <= len(rows)


def test_coalesce_joins_what_meets_up_to_its_longest() -> None:
    rows = frame([(0, 2, "a", 0), (2, 4, "a", 0), (4, 6, "a", 0), (6, 7, None, 0), (7, 9, None, 0)])
    found = Coalesce(LEFT, 4).transition(0, Batch(rows, NEVER)).rows.rows()
    assert found == [(0, 4, "a", 0), (4, 6, "a", 0), (6, 9, None, 0)]


def test_what_ended_first_waits_for_what_began_first() -> None:
    """a |---------), b |-----): b has ended for both sides while a still lasts, but a comes first."""
    operator = difference(LEFT)
    operator.transition(1, Batch(RIGHT, NEVER))
    early = operator.transition(0, Batch(frame([(37, 46, "a", 1), (38, 43, "b", 1)]), 45))
    assert (early.rows.height, early.watermark_us) == (0, 37)
    late = operator.transition(0, Batch(LEFT, NEVER))
    assert late.rows["k"].to_list() == ["a", "b"]


@pytest.mark.parametrize(("make", "with_left"), [(difference, True), (difference, False), (intersection, False)])
def test_what_is_not_answered_holds_nothing_back(make: Callable[[pl.DataFrame], Operator], with_left: bool) -> None:
    """A tuple that lasts long on the right, or on both sides, delays no other one of a difference."""
    operator = make(LEFT)
    long = frame([(10, 1_000, "a", 1)])
    operator.transition(1, Batch(long.rename({"k": "k2", "n": "n2"}), 500))
    early = operator.transition(0, Batch(long if with_left else LEFT, 20))
    assert early.watermark_us == 20
    found = operator.transition(0, Batch(frame([(20, 30, "b", 1)]), 500))
    assert found.rows["k"].to_list() == (["b"] if make is difference else [])
    assert found.watermark_us == 500


@given(ROWS, ROWS, st.data())
def test_difference(left: list[Interval], right: list[Interval], data: st.DataObject) -> None:
    found = run(lambda: difference(LEFT), [frame(left), frame(right, ("k2", "n2"))], data)
    check(found, lambda at: snapshot(left, at) - snapshot(right, at))


@given(ROWS, ROWS, st.data())
def test_intersection(left: list[Interval], right: list[Interval], data: st.DataObject) -> None:
    found = run(lambda: intersection(LEFT), [frame(left), frame(right, ("k2", "n2"))], data)
    check(found, lambda at: snapshot(left, at) & snapshot(right, at))


PREDICATES: dict[str | None, Callable[[Any, Any, Any, Any], bool]] = {
    None: lambda k, n, k2, n2: True,
    '"k" = "k2"': lambda k, n, k2, n2: k is not None and k == k2,
    '"k2" = "k" AND "n" < "n2"': lambda k, n, k2, n2: k is not None and k == k2 and n < n2,
    '"n" <> "n2" OR "k" IS NULL': lambda k, n, k2, n2: n != n2 or k is None,
    '"k" = "k2" AND "n" = "n2"': lambda k, n, k2, n2: k is not None and k == k2 and n == n2,
}


def scalar(sql: str | None) -> Scalar | None:
    return None if sql is None else read_scalar(sql, FieldType.BOOLEAN)


@given(ROWS, ROWS, st.sampled_from(list(PREDICATES)), st.data())
def test_join(left: list[Interval], right: list[Interval], sql: str | None, data: st.DataObject) -> None:
    holds = PREDICATES[sql]

    def defined(at: int) -> Bag:
        pairs: Bag = Counter()
        for one, count in snapshot(left, at).items():
            for other, times in snapshot(right, at).items():
                if holds(*one, *other):
                    pairs[one + other] += count * times
        return pairs

    found = run(lambda: Join(LEFT, RIGHT, scalar(sql)), [frame(left), frame(right, ("k2", "n2"))], data)
    check(found, defined)


@pytest.mark.parametrize("anti", [False, True])
@given(left=ROWS, right=ROWS, sql=st.sampled_from(list(PREDICATES)), data=st.data())
def test_semi_and_anti_join(
    anti: bool, left: list[Interval], right: list[Interval], sql: str | None, data: st.DataObject
) -> None:
    holds = PREDICATES[sql]

    def defined(at: int) -> Bag:
        others = list(snapshot(right, at))
        return Counter(
            {
                one: count
                for one, count in snapshot(left, at).items()
                if any(holds(*one, *other) for other in others) is not anti
            }
        )

    make = lambda: SemiJoin(LEFT, RIGHT, scalar(sql), anti=anti)  # noqa: E731 - a recipe, not a function
    check(run(make, [frame(left), frame(right, ("k2", "n2"))], data), defined)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_a_semi_join_cuts_its_rows_where_no_match_is_only(order: tuple[int, ...]) -> None:
    matches: list[Interval] = [(0, 4, "a", 1), (0, 9, "a", 1), (12, 15, "a", 1)]
    operator = SemiJoin(LEFT, RIGHT, scalar('"k" = "k2"'), anti=False)
    operator.transition(1, Batch(frame([matches[place] for place in order], ("k2", "n2")), NEVER))
    rows = operator.transition(0, Batch(frame([(0, 20, "a", 7)]), NEVER)).rows
    assert rows.select(START, END).rows() == [(0, 9), (12, 15)]


@given(ROWS, st.integers(1, 7), st.data())
def test_granularity_is_exact_at_the_multiples(rows: list[Interval], granule: int, data: st.DataObject) -> None:
    found = run(lambda: Granularity(granule), [frame(rows)], data)
    for instant in range(0, LAST + 15, granule):
        assert snapshot(found, instant) == snapshot(rows, instant)
    assert all(start % granule == 0 and end % granule == 0 for start, end, *_ in found)


@given(ROWS, st.data())
def test_insertions(rows: list[Interval], data: st.DataObject) -> None:
    found = run(lambda: Changes(LEFT, insertions=True), [frame(rows)], data)
    check(found, lambda at: snapshot(rows, at) - snapshot(rows, at - 1))


@given(ROWS, st.data())
def test_deletions_are_reported_at_the_last_valid_instant(rows: list[Interval], data: st.DataObject) -> None:
    found = run(lambda: Changes(LEFT, insertions=False), [frame(rows)], data)
    check(found, lambda at: snapshot(rows, at) - snapshot(rows, at + 1))


STAMPED = st.lists(
    st.tuples(st.integers(0, 25), st.sampled_from(["a", "b", None]), st.integers(0, 99)), max_size=12
).map(lambda rows: [(at, at + 1, key, number) for at, key, number in sorted(rows, key=lambda row: row[0])])


@given(STAMPED, st.none() | st.integers(1, 5), st.integers(1, 4), st.booleans(), st.data())
def test_count_windows(
    rows: list[Interval], size: int | None, slide: int, partitioned: bool, data: st.DataObject
) -> None:
    """Section 3: with k = floor(n(t) / A) * A, the tuples numbered max(k - N + 1, 1) to k, per partition."""

    def defined(at: int) -> Bag:
        found: Bag = Counter()
        for key in {row[2] for row in rows} if partitioned else {...}:
            arrived = [row for row in rows if row[0] <= at and (not partitioned or row[2] == key)]
            k = len(arrived) // slide * slide
            first = 0 if size is None else max(k - size, 0)
            found.update(row[2:] for row in arrived[first:k])
        return found

    keys = ("k",) if partitioned else ()
    check(run(lambda: CountWindow(LEFT, size, slide, keys), [frame(rows)], data), defined)


def test_a_key_named_twice_is_one_key() -> None:
    window = CountWindow(LEFT, 1, 1, ("k", "k"))
    found = window.transition(0, Batch(frame([(0, 1, "a", 1), (1, 2, "b", 2), (2, 3, "a", 3)]), NEVER))
    assert found.rows.rows() == [(0, 2, "a", 1), (1, NEVER, "b", 2), (2, NEVER, "a", 3)]


def test_deletions_of_a_stream_of_which_nothing_is_known_promise_nothing() -> None:
    assert Changes(LEFT, insertions=False).transition(0, Batch(LEFT, ALWAYS)).watermark_us == ALWAYS


def test_join_state_is_purged_by_the_other_sides_watermark() -> None:
    join = Join(LEFT, RIGHT, scalar('"k" = "k2"'))
    for at in range(0, 1000, 10):
        join.transition(0, Batch(frame([(at, at + 5, "a", at)]), at + 10))
        join.transition(1, Batch(frame([(at, at + 5, "a", at)], ("k2", "n2")), at + 10))
    state = join.save()
    for name in ("left", "right", "held"):
        table = state[name]
        assert isinstance(table, pl.DataFrame)
        assert table.height <= 1


def test_impossible_parameters_and_foreign_states_are_refused() -> None:
    for size, slide in ((0, 1), (1, 0)):
        with pytest.raises(PlanError):
            CountWindow(LEFT, size, slide)
    with pytest.raises(PlanError):
        Granularity(0)
    with pytest.raises(StateError, match="no table 'held'"):
        Union(LEFT).restore({"pending": LEFT})


@pytest.mark.parametrize("make", [Join, lambda *sides: SemiJoin(*sides, anti=False)])
def test_an_integer_may_equal_a_real(make: Callable[..., Operator]) -> None:
    reals = pl.DataFrame({START: [0, 0], END: [9, 9], "r": [2.0, 2.5]})
    operator = make(LEFT, reals.clear(), read_scalar('"n" = "r"', FieldType.BOOLEAN))
    operator.transition(1, Batch(reals, NEVER))
    assert operator.transition(0, Batch(frame([(0, 5, "a", 2), (0, 5, "b", 1)]), NEVER)).rows["k"].to_list() == ["a"]


def test_changes_of_an_instant_leave_in_one_order_whenever_their_rows_came() -> None:
    def changes(names: str) -> list[str]:
        rows = pl.DataFrame({START: [0] * len(names), END: [9] * len(names), "k": list(names)})
        operator = Changes(rows.clear(), insertions=True)
        return list(operator.transition(0, Batch(rows, 5)).rows["k"])

    assert changes("cab") == changes("bca") == ["a", "b", "c"]
