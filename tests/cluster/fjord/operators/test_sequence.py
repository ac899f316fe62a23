"""Sequence: functions over tuples in order, by the definition, however the input is cut, disordered and restarted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence as Several
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.fjord.batch import ALWAYS, END, NEVER, START, Batch
from cluster.fjord.operators.sequence import Sequence
from cluster.fjord.saved_state import pack_state, unpack_state
from cluster.language.sequence_calls import SequenceCall
from protocols.wire.streams import FieldType
from tests.cluster.sequence_definition import Stamped, sequence_rows

LAST = 40
TYPES = {"k": pl.String, "n": pl.Int64, "x": pl.Float64, "b": pl.Boolean, "t": pl.String}
KINDS = {
    "k": FieldType.TEXT, "n": FieldType.INTEGER, "x": FieldType.REAL, "b": FieldType.BOOLEAN, "t": FieldType.TEXT,
}  # fmt: skip
COLUMNS = tuple(TYPES)


def frame(rows: Several[Stamped]) -> pl.DataFrame:
    schema = {START: pl.Int64, END: pl.Int64, **TYPES}
    return pl.DataFrame([(at, at + 1, *row) for at, row in rows], schema=schema, orient="row")


ROWS = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.tuples(
            st.sampled_from(["a", "a", "b", None]),
            st.sampled_from([0, 1, 2, None, 2**63 - 1]),
            st.sampled_from([0.0, 0.5, -1.25, None, 4.0]),
            st.sampled_from([True, False, None]),
            st.sampled_from(["x", "y", "é", None]),
        ),
    ),
    max_size=16,
)
SMALL = st.integers(0, 9)
COUNTS = st.integers(1, 4)
NAMES = st.sampled_from(COLUMNS)


@st.composite
def neighbours(draw: st.DrawFn) -> SequenceCall:
    name, rows = draw(NAMES), draw(COUNTS)
    if draw(st.booleans()):
        return SequenceCall("", "lead", name, KINDS[name], rows=rows, within_us=draw(SMALL))
    default = draw(st.sampled_from([None, name]))
    within = draw(st.none() | SMALL)
    return SequenceCall("", "lag", name, KINDS[name], rows=rows, default=default, within_us=within)


@st.composite
def frames(draw: st.DrawFn) -> SequenceCall:
    function = draw(st.sampled_from(["first", "last", "count", "sum", "avg", "min", "max"]))
    argument: str | None = draw(st.sampled_from(["n", "x"]) if function in ("sum", "avg") else NAMES)
    if function == "count" and draw(st.booleans()):
        argument = None
    kind = {"count": FieldType.INTEGER, "avg": FieldType.REAL}.get(function) or KINDS[argument or "n"]
    known = function in ("first", "last") and draw(st.booleans())
    which = draw(st.sampled_from(["rows", "range", "all"]))
    rows, range_us, peers = {
        "rows": (draw(COUNTS), None, False), "range": (None, draw(SMALL), True),
        "all": (None, None, draw(st.booleans())),
    }[which]  # fmt: skip
    return SequenceCall("", function, argument, kind, "", rows, range_us, peers, None, None, known)


@st.composite
def several(draw: st.DrawFn) -> tuple[SequenceCall, ...]:
    calls = draw(st.lists(st.one_of(neighbours(), frames()), min_size=1, max_size=4))
    return tuple(
        SequenceCall(f"c{n}", *[getattr(call, name) for name in call.__struct_fields__[1:]])
        for n, call in enumerate(calls)
    )


def close(rows: Several[Stamped], calls: Several[SequenceCall]) -> Counter[Stamped]:
    """Count rows; means of huge integers are rounded differently."""
    means = [len(COLUMNS) + n for n, call in enumerate(calls) if call.function == "avg"]

    def rounded(row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(float(f"{v:.12g}") if n in means and v is not None else v for n, v in enumerate(row))

    return Counter((at, rounded(row)) for at, row in rows)


def run(make: Any, rows: Several[Stamped], dice: random.Random) -> tuple[list[Stamped], Sequence]:
    """Feed the input: some rows long before the watermark reaches them, out of order; restart now and then."""
    subject = make()
    waiting, reached, promised = list(rows), ALWAYS, ALWAYS
    found: list[Stamped] = []
    while reached < NEVER:
        until = dice.choice([reached, max(reached, -1) + dice.randint(1, 9), NEVER])
        until = NEVER if until > LAST else until
        early = dice.random()
        comes = [at < until or dice.random() < early for at, _ in waiting]
        brought = [each for each, now in zip(waiting, comes, strict=True) if now]
        waiting = [each for each, now in zip(waiting, comes, strict=True) if not now]
        dice.shuffle(brought)
        emitted = subject.transition(0, Batch(frame(sorted(brought, key=lambda each: each[0])), until))
        reached = max(reached, until)
        starts = emitted.rows[START].to_list()
        assert starts == sorted(starts), "in start order"
        assert all(start >= promised for start in starts), "never before an earlier watermark"
        assert promised <= emitted.watermark_us <= reached
        promised = emitted.watermark_us
        found += [(start, tuple(row)) for start, _, *row in emitted.rows.rows()]
        if dice.random() < 0.3:
            state = unpack_state(pack_state(subject.save()))
            subject = make()
            subject.restore(state)
    return found, subject


@settings(max_examples=500, deadline=None)
@given(ROWS, several(), st.booleans(), st.integers(0, 2**32))
def test_results_are_by_definition_however_the_input_is_cut(
    rows: list[Stamped], calls: tuple[SequenceCall, ...], keyed: bool, seed: int
) -> None:
    keys = ("k",) if keyed else ()
    found, subject = run(lambda: Sequence(frame([]), keys, COLUMNS, calls), rows, random.Random(seed))
    assert close(found, calls) == close(sequence_rows(rows, COLUMNS, keys, COLUMNS, calls), calls)
    kept = subject.save()
    assert all(table.height == 0 for table in kept.values() if isinstance(table, pl.DataFrame)), "nothing stays"


def answers_of(calls: tuple[SequenceCall, ...], rows: list[Stamped], *, ties: tuple[str, ...] = COLUMNS) -> Sequence:
    subject = Sequence(frame([]), ("k",), ties, calls)
    for at, row in rows:
        subject.transition(0, Batch(frame([(at, row)]), at + 1))
    return subject


def kept(subject: Sequence) -> pl.DataFrame:
    found = subject.save()["kept"]
    assert isinstance(found, pl.DataFrame)
    return found


def readings(count: int, keys: int) -> list[Stamped]:
    return [(at, (str(at % keys), at, float(at), None, None)) for at in range(count)]


@pytest.mark.parametrize(
    ("call", "each"),
    [
        (SequenceCall("c", "lag", "n", FieldType.INTEGER, rows=3), 3),
        (SequenceCall("c", "max", "n", FieldType.INTEGER, rows=2), 2),
        (SequenceCall("c", "sum", "x", FieldType.REAL, peers=True), 1),
        (SequenceCall("c", "last", "x", FieldType.REAL, known=True), 1),
    ],
    ids=["lag", "frame by count", "sum so far", "last known"],
)
def test_as_many_tuples_of_a_key_are_kept_as_are_needed(call: SequenceCall, each: int) -> None:
    found = kept(answers_of((call,), readings(60, 4)))
    assert found.group_by("k").len()["len"].to_list() == [each] * 4


@pytest.mark.parametrize(
    "call",
    [
        SequenceCall("c", "lag", "n", FieldType.INTEGER, rows=3, within_us=5),
        SequenceCall("c", "sum", "x", FieldType.REAL, range_us=5, peers=True),
    ],
    ids=["lag within", "frame by time"],
)
def test_tuples_that_are_too_old_are_forgotten_with_their_keys(call: SequenceCall) -> None:
    subject = answers_of((call,), readings(60, 60))
    assert kept(subject)[START].to_list() == [55, 56, 57, 58, 59]
    subject.transition(0, Batch(frame([]), 63))
    assert kept(subject)[START].to_list() == [58, 59]
    subject.transition(0, Batch(frame([]), 1000))
    assert kept(subject).height == 0


def test_a_tuple_waits_for_the_one_behind_no_longer_than_it_has_to() -> None:
    call = SequenceCall("c", "lead", "n", FieldType.INTEGER, rows=1, within_us=10)
    subject = Sequence(frame([]), ("k",), COLUMNS, (call,))
    none = (None, None, None)
    first = subject.transition(0, Batch(frame([(0, ("a", 1, *none)), (1, ("b", 2, *none))]), 3))
    assert (first.rows.height, first.watermark_us) == (0, 0)
    second = subject.transition(0, Batch(frame([(5, ("a", 3, *none))]), 6))
    assert second.rows.select(START, "c").rows() == [(0, 3)]
    assert second.watermark_us == 1
    waited = subject.transition(0, Batch(frame([]), 11))
    assert (waited.rows.height, waited.watermark_us) == (0, 1)
    last = subject.transition(0, Batch(frame([]), 12))
    assert last.rows.select(START, "c").rows() == [(1, None)]
    assert last.watermark_us == 5


def test_equal_stamps_are_ordered_by_the_columns_of_ties_and_nulls_come_last() -> None:
    call = SequenceCall("c", "lag", "t", FieldType.TEXT, rows=1)
    rows: list[Stamped] = [
        (1, ("a", None, 1.0, None, "third")), (1, ("a", 2, 0.5, None, "second")), (1, ("a", 1, 9.0, None, "first")),
    ]  # fmt: skip
    subject = Sequence(frame([]), ("k",), ("n", "x"), (call,))
    found = subject.transition(0, Batch(frame(rows), 2)).rows
    assert dict(zip(found["t"], found["c"], strict=True)) == {"first": None, "second": "first", "third": "second"}


@pytest.mark.parametrize(
    "back",
    [
        SequenceCall("back", "lag", "n", FieldType.INTEGER, rows=1, within_us=0),
        SequenceCall("back", "min", "n", FieldType.INTEGER, range_us=0, peers=True),
    ],
)
def test_a_tuple_that_waits_still_finds_those_of_its_own_stamp(back: SequenceCall) -> None:
    lead = SequenceCall("next", "lead", "n", FieldType.INTEGER, rows=1, within_us=5)
    rows: list[Stamped] = [(at, ("a", n, None, None, None)) for at, n in ((1, 1), (1, 2), (4, 3))]
    subject = Sequence(frame([]), ("k",), COLUMNS, (back, lead))
    # At 2 the second tuple waits for its neighbour, and the first one is answered.
    found = [
        subject.transition(0, Batch(frame(rows[:2]), 2)).rows,
        subject.transition(0, Batch(frame(rows[2:]), 20)).rows,
    ]
    answered = [row for each in found for row in each.select("n", "back", "next").rows()]
    assert answered == [
        (1, None if back.function == "lag" else 1, 2),
        (2, 1, 3),
        (3, None if back.function == "lag" else 3, None),
    ]


def test_sums_of_reals_do_not_depend_on_how_tuples_are_cut() -> None:
    dice = random.Random(7)
    rows: list[Stamped] = [(at, ("a", None, dice.uniform(-1e9, 1e9), None, None)) for at in range(400)]
    calls = (
        SequenceCall("all", "sum", "x", FieldType.REAL, peers=True),
        SequenceCall("few", "sum", "x", FieldType.REAL, rows=20),
        SequenceCall("mean", "avg", "x", FieldType.REAL, range_us=30, peers=True),
    )
    found = [
        Counter(run(lambda: Sequence(frame([]), ("k",), COLUMNS, calls), rows, random.Random(seed))[0])
        for seed in range(4)
    ]
    whole = Sequence(frame([]), ("k",), COLUMNS, calls).transition(0, Batch(frame(rows), NEVER)).rows
    at_once = Counter((start, tuple(row)) for start, _, *row in whole.rows())
    assert all(each == at_once for each in found), "to the last bit"


def test_a_sum_that_leaves_the_range_of_reals_is_null_and_comes_back() -> None:
    call = SequenceCall("c", "sum", "x", FieldType.REAL, peers=True)
    rows: list[Stamped] = [(at, ("a", None, x, None, None)) for at, x in enumerate((1e308, 1e308, -1e308))]
    subject = Sequence(frame([]), ("k",), COLUMNS, (call,))
    found = [subject.transition(0, Batch(frame([each]), each[0] + 1)).rows["c"].item() for each in rows]
    assert found == [1e308, None, 1e308]


def test_a_run_of_one_key_and_many_keys_are_added_alike() -> None:
    rows: list[Stamped] = [(at, ("a", None, 0.1, None, None)) for at in range(50)]
    rows += [(50, (str(key), None, 0.1, None, None)) for key in range(300)]
    call = SequenceCall("c", "sum", "x", FieldType.REAL, peers=True)
    found = Sequence(frame([]), ("k",), COLUMNS, (call,)).transition(0, Batch(frame(rows), NEVER)).rows
    of_one = found.filter(pl.col("k") == "a").sort(START)["c"].to_list()
    total, expected = 0.0, []
    for _ in range(50):
        total += 0.1
        expected.append(total)
    assert of_one == expected
    assert found.filter(pl.col("k") != "a")["c"].unique().to_list() == [0.1]
