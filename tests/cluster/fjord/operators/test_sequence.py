"""Sequence: functions over tuples in order, by the definition, however the input is cut, disordered and restarted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence as Several
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.fjord.batch import ALWAYS, END, NEVER, START, Batch
from cluster.fjord.operators.sequence import Sequence
from cluster.fjord.saved_state import pack_state, unpack_state
from cluster.operators.sequence import SequenceCall
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
            st.sampled_from([0, 1, 2, None, 2**63 - 1, 2**62 + 1, -(2**62)]),
            st.sampled_from([0.0, 0.5, -1.25, None, 4.0, 1e-300, 2.5e-308]),
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
    ends = {
        "until_rows": 0 if peers else draw(st.integers(0, 4 if rows is None else rows)),
        "until_us": draw(st.integers(0, 9 if range_us is None else range_us)) if peers else 0,
    }
    return SequenceCall("", function, argument, kind, "", rows, range_us, peers, None, None, known, **ends)


@st.composite
def several(draw: st.DrawFn) -> tuple[SequenceCall, ...]:
    calls = draw(st.lists(st.one_of(neighbours(), frames()), min_size=1, max_size=4))
    return tuple(
        SequenceCall(f"c{n}", *[getattr(call, name) for name in call.__struct_fields__[1:]])
        for n, call in enumerate(calls)
    )


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
    assert Counter(found) == Counter(sequence_rows(rows, COLUMNS, keys, COLUMNS, calls))
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
        (SequenceCall("c", "sum", "x", FieldType.REAL, until_rows=1), 1),
        (SequenceCall("c", "sum", "x", FieldType.REAL, until_rows=3), 3),
        (SequenceCall("c", "max", "n", FieldType.INTEGER, rows=4, until_rows=2), 4),
        (SequenceCall("c", "last", "n", FieldType.INTEGER, peers=True, until_us=1000), 15),
    ],
    ids=[
        "lag",
        "frame by count",
        "sum so far",
        "last known",
        "all before",
        "all before two others",
        "older by count",
        "all long ago",
    ],
)
def test_as_many_tuples_of_a_key_are_kept_as_are_needed(call: SequenceCall, each: int) -> None:
    found = kept(answers_of((call,), readings(60, 4)))
    assert found.group_by("k").len()["len"].to_list() == [each] * 4


@pytest.mark.parametrize(
    "call",
    [
        SequenceCall("c", "lag", "n", FieldType.INTEGER, rows=3, within_us=5),
        SequenceCall("c", "sum", "x", FieldType.REAL, range_us=5, peers=True),
        SequenceCall("c", "sum", "x", FieldType.REAL, range_us=5, peers=True, until_us=3),
    ],
    ids=["lag within", "frame by time", "frame by time that ends before"],
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


def test_of_all_that_is_older_the_last_tuple_is_kept_and_those_since() -> None:
    call = SequenceCall("c", "sum", "x", FieldType.REAL, peers=True, until_us=8)
    found = kept(answers_of((call,), readings(60, 4))).group_by("k", maintain_order=True).agg(START)
    assert dict(found.iter_rows()) == {"0": [52, 56], "1": [49, 53, 57], "2": [50, 54, 58], "3": [51, 55, 59]}


ENDS_BEFORE = [  # the frame of each of six tuples, at 1, 3, 3, 4, 6 and 9: which of them it holds
    ({"rows": 2, "until_rows": 1}, [[], [0], [0, 1], [1, 2], [2, 3], [3, 4]]),
    ({"rows": 2, "until_rows": 2}, [[], [], [0], [1], [2], [3]]),
    ({"until_rows": 2}, [[], [], [0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]),
    ({"range_us": 3, "until_us": 1, "peers": True}, [[], [0], [0], [0, 1, 2], [1, 2, 3], [4]]),
    ({"range_us": 2, "until_us": 2, "peers": True}, [[], [0], [0], [], [3], []]),
    ({"until_us": 3, "peers": True}, [[], [], [], [0], [0, 1, 2], [0, 1, 2, 3, 4]]),
]


@pytest.mark.parametrize(("frame_of", "held"), ENDS_BEFORE, ids=[str(each) for each, _ in ENDS_BEFORE])
@pytest.mark.parametrize("at_once", [True, False])
def test_a_frame_may_end_before_its_tuple(frame_of: dict[str, Any], held: list[list[int]], at_once: bool) -> None:
    functions = {"count": len, "sum": sum, "min": min, "max": max, "first": lambda each: each[0],
                 "last": lambda each: each[-1]}  # fmt: skip
    calls = tuple(SequenceCall(name, name, "n", FieldType.INTEGER, **frame_of) for name in functions)  # type: ignore[arg-type] # the names are literals
    rows: list[Stamped] = [(at, ("a", n, None, None, None)) for n, at in enumerate((1, 3, 3, 4, 6, 9))]
    batches = [(rows, NEVER)] if at_once else [([each for each in rows if each[0] == at], at + 1) for at in range(10)]
    subject = Sequence(frame([]), ("k",), COLUMNS, calls)
    found = pl.concat([subject.transition(0, Batch(frame(each), until)).rows for each, until in batches])
    expected = [
        {name: of(frame_) if frame_ or name == "count" else None for name, of in functions.items()} for frame_ in held
    ]
    assert found.sort("n").select(list(functions)).to_dicts() == expected


def test_what_an_earlier_version_saved_is_read() -> None:
    """Its plan files know no ends of frames, and its tuples have no other columns than now."""
    old = b'{"name":"c","function":"sum","argument":"n","type":"integer","peers":true}'
    call = msgspec.json.decode(old, type=SequenceCall)
    assert call == SequenceCall("c", "sum", "n", FieldType.INTEGER, peers=True)
    assert msgspec.json.encode(call) == old
    none: dict[str, Any] = {"x": None, "b": None, "t": None}
    saved = {START: 3, END: 4, "k": "a", "n": 2, **none, "fjord_count_0": 2, "fjord_sum_0": 9, "fjord_open": False}
    after = Sequence(frame([]), ("k",), COLUMNS, (call,))
    fresh = after.save()
    columns = kept(after).schema
    assert list(columns) == list(saved)
    after.restore(unpack_state(pack_state({**fresh, "kept": pl.DataFrame([saved], schema=columns)})))
    answer = after.transition(0, Batch(frame([(7, ("a", 5, None, None, None))]), NEVER)).rows
    assert answer["c"].to_list() == [14]


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


def test_sums_and_means_over_ends_of_reals_and_integers() -> None:
    tiny: list[Stamped] = [
        (at, ("a", n, x, None, None)) for at, n, x in [(0, 2**62 + 1, 1e-300), (1, -(2**62), 5e-324)]
    ]
    calls = tuple(
        SequenceCall(f"{function}_{name}_{rows}", function, name, FieldType.REAL, rows=rows)
        for rows in (None, 1)
        for function, name in (("sum", "x"), ("avg", "x"), ("avg", "n"))
    )
    found = Sequence(frame([]), ("k",), COLUMNS, calls).transition(0, Batch(frame(tiny), NEVER)).rows.row(1, named=True)
    assert [found[call.name] for call in calls] == [1e-300, 5e-301, 0.5] * 2


def test_running_results_saved_by_an_earlier_version_go_on() -> None:
    calls = SequenceCall("x_mean", "avg", "x", FieldType.REAL), SequenceCall("n_mean", "avg", "n", FieldType.REAL)
    rows: list[Stamped] = [(at, ("a", 2**62 + at, 0.1, None, None)) for at in range(3)]
    before = Sequence(frame([]), ("k",), COLUMNS, calls)
    before.transition(0, Batch(frame(rows[:2]), 2))
    state = unpack_state(pack_state(before.save()))
    state["kept"] = state["kept"].drop("fjord_plain_0", "fjord_integer_1")
    after = Sequence(frame([]), ("k",), COLUMNS, calls)
    after.restore(state)
    (answer,) = after.transition(0, Batch(frame(rows[2:]), NEVER)).rows.rows(named=True)
    assert (answer["x_mean"], answer["n_mean"]) == ((0.1 + 0.1 + 0.1) / 3, float(2**62 + 1))


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
