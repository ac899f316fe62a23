"""Operators over pieces of rows: what they say of origins does not depend on where rows were cut.

row       a   |-----------------)
pieces    a   |----)---)--------)     cut anywhere; those of a row come one after the other
answer        the same at every instant, with the same origins
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.fjord.batch import ALWAYS, END, NEVER, START, Batch
from cluster.fjord.lookup_tables import LookupTable
from cluster.fjord.operator import Operator
from cluster.fjord.operators.aggregation import MergeAggregate
from cluster.fjord.operators.count_window import CountWindow
from cluster.fjord.operators.join import Join, SemiJoin
from cluster.fjord.operators.lookup import Lookup, PiecewiseLookup
from cluster.fjord.operators.origins import MADE_OF, RIGHT_ORIGIN, OriginJoin, OriginUnion, with_origins
from cluster.fjord.operators.partial_aggregation import (
    BoundedAggregate,
    BoundedMultiplicities,
    CountedPartialAggregate,
    PartialAggregate,
)
from cluster.fjord.operators.piece_chains import ChainedPieces
from cluster.fjord.operators.projection import PieceProject
from cluster.fjord.operators.ranking import Ranked
from cluster.fjord.operators.session_window import SessionWindow
from cluster.fjord.operators.set_operations import Distinct, DistinctPieces, Union, difference, intersection
from cluster.fjord.operators.time_window import Granularity, GridWindow, PieceIntervals, TimeWindow, WindowBounds
from cluster.fjord.operators.until_next import UntilNext
from cluster.fjord.saved_state import pack_state, unpack_state
from cluster.operators import Relation, TableLookup
from cluster.operators.columns import ORIGIN, AggregateCall, Column, Ordering, Output, Scalar
from cluster.operators.window_shapes import Grid, Session, Span
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType
from tests.cluster.fjord.operators.conformance import LAST, Case, frame, run, snapshots

INTEGER, TEXT = FieldType.INTEGER, FieldType.TEXT
LEFT, RIGHT = frame([]), frame([], 1)
KEY = (Column("k", TEXT),)
CALLS = (AggregateCall("c", "count", None, INTEGER), AggregateCall("s", "sum", read_scalar('"n"', INTEGER), INTEGER))
MOST = (AggregateCall("m", "max", read_scalar('"n"', INTEGER), INTEGER),)
KINDS = pl.Schema({"k": pl.String, "n": pl.Int64})
ORDER = (Ordering("n", descending=True), Ordering("k", nulls_first=True))
Row = tuple[int, int, str | None, int]


def with_column(rows: pl.DataFrame, name: str) -> pl.DataFrame:
    return rows.with_columns(pl.lit(0, pl.Int64).alias(name))


def condition(sql: str) -> Scalar:
    return read_scalar(sql, FieldType.BOOLEAN)


def counted(keys: tuple[Column, ...], calls: tuple[AggregateCall, ...] = CALLS, *below: Operator) -> Case:
    names = tuple(each.name for each in keys)
    kinds = pl.Schema({each.name: pl.String for each in keys})
    return Case(
        lambda: BoundedAggregate(MergeAggregate(keys, calls), kinds),
        below=lambda: [*below, CountedPartialAggregate(PartialAggregate(names, calls), names)],
    )


def joined(sql: str | None) -> Operator:
    sides = with_column(LEFT, ORIGIN.name), with_column(RIGHT, RIGHT_ORIGIN)
    return OriginJoin(Join(*sides, None if sql is None else condition(sql)))


def chosen(*, anti: bool) -> Operator:
    return ChainedPieces(SemiJoin(with_column(LEFT, MADE_OF), RIGHT, condition('"k" = "k2"'), anti=anti), made_of=True)


def ranked(name: str | None) -> Operator:
    by = {"keys": (), "order": (*ORDER, Ordering(MADE_OF)), "most": 2, "name": name}
    return ChainedPieces(Ranked(with_column(LEFT, MADE_OF), **by), made_of=True)  # type: ignore[arg-type] # of several types


def in_window(inner: Operator) -> Operator:
    return PieceIntervals(inner, windowed=True)


GRANULES = PieceIntervals(Granularity(3), windowed=False)
GRID = Grid(Span("us", 4), 3, size=Span("us", 6))
CASES: dict[str, Case] = {
    "project": Case(lambda: PieceProject((Output("k", read_scalar('"k"', TEXT)),))),
    "union": Case(lambda: OriginUnion(Union(with_column(LEFT, ORIGIN.name)))),
    "join": Case(lambda: joined('"k" = "k2"')),
    "product": Case(lambda: joined(None)),
    "semi": Case(lambda: chosen(anti=False)),
    "anti": Case(lambda: chosen(anti=True)),
    "distinct": Case(lambda: DistinctPieces(LEFT)),
    "difference": Case(lambda: BoundedMultiplicities(difference(LEFT), KINDS)),
    "intersection": Case(lambda: BoundedMultiplicities(intersection(LEFT), KINDS)),
    "groups": counted(KEY),
    "all": counted(()),
}
"""What is given whole rows answers rows that begin where they start."""
MOVED: dict[str, Case] = {
    "ranked": Case(lambda: ranked("place")),
    "first": Case(lambda: ranked(None)),
    "bounds": Case(lambda: ChainedPieces(WindowBounds(GRID, "s", "e"), made_of=True)),
    "granularity": Case(lambda: PieceIntervals(Granularity(3), windowed=False), granule=3),
    "window": Case(lambda: DistinctPieces(LEFT), below=lambda: [in_window(TimeWindow(4))]),
    "sliding window": Case(lambda: DistinctPieces(LEFT), below=lambda: [in_window(TimeWindow(4, 3))]),
    "slide above size": counted(KEY, MOST, in_window(TimeWindow(2, 5))),
    "unbounded window": counted(KEY, MOST, in_window(TimeWindow(None, 2))),
    "window on a grid": counted(KEY, MOST, in_window(GridWindow(GRID, 4))),
}
"""Others, whose own rules may cut whole rows, too."""
COMPARED = {**CASES, **MOVED}


@st.composite
def logical(draw: Any) -> list[Row]:
    """Draw rows."""
    lengths = st.sampled_from((1, 2, 3, 5, 9, 14))
    row = st.builds(
        lambda start, length, key, number: (start, start + length, key, number),
        st.integers(0, LAST), lengths, st.sampled_from(["a", "b", None]), st.integers(0, 1),
    )  # fmt: skip
    return draw(st.lists(row, max_size=7))


def pieced(rows: Sequence[tuple[int, Row]], port: int) -> pl.DataFrame:
    found = frame([row for _, row in rows], port)
    return found.with_columns(pl.Series(ORIGIN.name, [origin for origin, _ in rows], pl.Int64))


def whole(rows: Sequence[Row], port: int) -> list[Batch]:
    ordered = sorted(rows, key=lambda row: row[0])
    return [Batch(pieced([(row[0], row) for row in ordered], port), NEVER)]


@st.composite
def cut(draw: Any, rows: Sequence[Row], port: int) -> list[Batch]:
    """Draw batches with the pieces of rows."""
    watermarks = [ALWAYS, *sorted(draw(st.lists(st.integers(-1, LAST + 12), max_size=8)))]
    batches: list[list[tuple[int, Row]]] = [[] for _ in watermarks]
    for start, end, *values in rows:
        cuts = sorted(draw(st.sets(st.integers(start + 1, end - 1), max_size=3))) if end > start + 1 else []
        earliest = 0
        for since, until in zip([start, *cuts], [*cuts, end], strict=True):
            allowed = sum(watermark <= since for watermark in watermarks)
            earliest = draw(st.integers(min(earliest, allowed - 1), allowed - 1))
            batches[earliest].append((start, (since, until, *values)))  # type: ignore[arg-type] # a row
    return [
        Batch(pieced(sorted(batch, key=lambda each: each[1][0]), port), watermark)
        for batch, watermark in zip(batches, [*watermarks[1:], NEVER], strict=True)
    ]


@pytest.mark.parametrize("case", COMPARED.values(), ids=COMPARED)
@settings(max_examples=60)
@given(data=st.data())
def test_origins_do_not_depend_on_cuts(case: Case, data: st.DataObject) -> None:
    ports = range(case.make().input_count)
    rows = [data.draw(logical(), label=f"port {port}") for port in ports]
    found = run(case, [data.draw(cut(rows[port], port), label=f"batches of {port}") for port in ports], data)
    expected = run(case, [whole(rows[port], port) for port in ports], None)
    assert found.columns[-1] == ORIGIN.name
    assert (found[ORIGIN.name] <= found[START]).all()
    assert snapshots(case, found) == snapshots(case, expected)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@settings(max_examples=25)
@given(data=st.data())
def test_whole_rows_begin_where_they_start(case: Case, data: st.DataObject) -> None:
    rows = [data.draw(logical()) for _ in range(case.make().input_count)]
    found = run(case, [whole(each, port) for port, each in enumerate(rows)], None)
    assert found[ORIGIN.name].equals(found[START], check_names=False)


@pytest.mark.parametrize("operator", [in_window(TimeWindow(4, 3)), in_window(GridWindow(GRID, 4)), GRANULES])
@given(rows=logical())
def test_what_moves_starts_moves_origins(operator: Operator, rows: list[Row]) -> None:
    found = pl.concat([operator.transition(0, batch).rows for batch in whole(rows, 0)])
    assert found[ORIGIN.name].equals(found[START], check_names=False)


@settings(max_examples=40)
@given(rows=logical())
def test_distinct_rows_are_those_of_whole_rows_taken_in_turn(rows: list[Row]) -> None:
    """Of rows that begin together, the longest is taken first."""
    ordered = sorted(rows, key=lambda row: (row[0], -row[1]))
    plain, pieces = Distinct(LEFT), DistinctPieces(LEFT)
    one_by_one = [plain.transition(0, Batch(frame([row]), ALWAYS)).rows for row in ordered]
    expected = pl.concat([LEFT, *one_by_one]).sort(pl.all())
    found = pieces.transition(0, Batch(frame(sorted(rows, key=lambda row: row[0])), NEVER)).rows.drop(ORIGIN.name)
    assert found.sort(pl.all()).equals(expected)


CUTTING: dict[str, Callable[[], Operator]] = {
    "rows": lambda: CountWindow(LEFT, 2, 1, ("k",), lag_us=0, origins=True),
    "rows that slide": lambda: CountWindow(LEFT, 3, 2, ("k",), lag_us=2, origins=True),
    "until the next": lambda: UntilNext(LEFT, ("k",), None, lag_us=1, origins=True),
    "until the next, at most": lambda: UntilNext(LEFT, ("k",), 9, lag_us=0, origins=True),
    "sessions": lambda: SessionWindow(LEFT, ("k",), Session(4, 40, early=True), lag_us=0, origins=True),
    "ranked": lambda: ChainedPieces(
        Ranked(with_column(LEFT, MADE_OF), keys=(), order=(*ORDER, Ordering(MADE_OF)), most=2, lag_us=2), made_of=True
    ),
}
CUTTING_CASES = {name: Case(make, chronons=name != "ranked") for name, make in CUTTING.items()}


def instants(rows: Sequence[Row]) -> list[Row]:
    """One tuple of an instant: of equal stamps, those that came first leave windows by count first."""
    return [(start, start + 1, *values) for start, _, *values in {row[0]: row for row in rows}.values()]  # type: ignore[misc] # rows


@pytest.mark.parametrize("name", CUTTING)
@settings(max_examples=50)
@given(data=st.data())
def test_what_cuts_rows_says_where_they_began(name: str, data: st.DataObject) -> None:
    case = CUTTING_CASES[name]
    rows = data.draw(logical())
    rows = instants(rows) if case.chronons else rows
    given_ = [Batch(batch.rows.drop(ORIGIN.name), batch.watermark_us) for batch in data.draw(cut(rows, 0))]
    if not case.chronons:
        given_ = data.draw(cut(rows, 0))
    expected = run(
        case,
        [whole(rows, 0)] if not case.chronons else [[Batch(frame(sorted(rows, key=lambda row: row[0])), NEVER)]],
        None,
    )
    assert snapshots(case, run(case, [given_], data)) == snapshots(case, expected)


class Versions:
    """A table of which another version holds from instant 9 on."""

    def pieces(self, table: object, key: object, streams: object, first_us: int, last_us: int) -> list[Any]:
        rows = [(ALWAYS, [("a", "old")]), (9, [("a", "new"), ("b", "new")])]
        found = [
            (since, LookupTable(pl.DataFrame(each, schema=["id", "name"], orient="row")))
            for since, each in rows
            if since <= last_us
        ]
        return found[1:] if len(found) > 1 and found[1][0] <= first_us else found


@pytest.mark.parametrize("kind", ["inner", "left", "semi", "anti"])
@settings(max_examples=40)
@given(data=st.data())
def test_pieces_find_what_their_row_has_found(kind: Any, data: st.DataObject) -> None:
    table = TableLookup(Relation("r", "r@1", (Column("id", TEXT), Column("name", TEXT))), condition('"k" = "id"'), kind)
    case = Case(lambda: PiecewiseLookup(Lookup(table, frozenset(), Versions()), keeps=True))
    rows = data.draw(logical())
    found = run(case, [data.draw(cut(rows, 0))], data)
    assert snapshots(case, found) == snapshots(case, run(case, [whole(rows, 0)], None))
    plain = Case(lambda: Lookup(table, frozenset(), Versions()))
    uncut = [Batch(frame(sorted(rows, key=lambda row: row[0])), NEVER)]
    assert snapshots(case, found.drop(ORIGIN.name)) == snapshots(case, run(plain, [uncut], None))


OLD: dict[str, tuple[Callable[[], Operator], Callable[[], Operator], bool]] = {
    "rows": (lambda: CountWindow(LEFT, 2, 1, ("k",), lag_us=0), CUTTING["rows"], True),
    "rows that slide": (lambda: CountWindow(LEFT, 3, 2, ("k",), lag_us=2), CUTTING["rows that slide"], True),
    "until the next": (lambda: UntilNext(LEFT, ("k",), None, lag_us=1), CUTTING["until the next"], True),
    "sessions": (
        lambda: SessionWindow(LEFT, ("k",), Session(4, 40, early=True), lag_us=0), CUTTING["sessions"], True,
    ),
    "ranked": (lambda: Ranked(LEFT, keys=(), order=ORDER, most=2, name="place"), MOVED["ranked"].make, False),
    "union": (lambda: Union(LEFT), CASES["union"].make, False),
    "join": (lambda: Join(LEFT, RIGHT, condition('"k" = "k2"')), CASES["join"].make, False),
    "semi": (lambda: SemiJoin(LEFT, RIGHT, condition('"k" = "k2"'), anti=False), CASES["semi"].make, False),
    "anti": (lambda: SemiJoin(LEFT, RIGHT, condition('"k" = "k2"'), anti=True), CASES["anti"].make, False),
    "distinct": (lambda: Distinct(LEFT), CASES["distinct"].make, False),
    "difference": (lambda: difference(LEFT), CASES["difference"].make, False),
    "intersection": (lambda: intersection(LEFT), CASES["intersection"].make, False),
}  # fmt: skip


@pytest.mark.parametrize("name", OLD)
@settings(max_examples=40)
@given(data=st.data())
def test_states_of_versions_without_origins_go_on(name: str, data: st.DataObject) -> None:
    old, new, chronons = OLD[name]
    rows = [data.draw(logical()) for _ in range(old().input_count)]
    rows = [instants(each) for each in rows] if chronons else rows
    batches = [data.draw(cut(each, port)) for port, each in enumerate(rows)]
    turns = [(port, batch) for port, found in enumerate(batches) for batch in found]
    change = data.draw(st.integers(0, len(turns)))
    subject, answers = old(), []
    for place, (port, batch) in enumerate(turns):
        if place == change:
            state = pack_state(subject.save())
            subject = new()
            if len(state) > len(pack_state({})):
                subject.restore(unpack_state(state))
        plain = place < change or chronons
        given_ = Batch(batch.rows.drop(ORIGIN.name), batch.watermark_us) if plain else batch
        answers.append(subject.transition(port, given_).rows)
    found = pl.concat([each.drop(ORIGIN.name, strict=False) for each in answers])
    case = Case(old)
    uncut = [
        [Batch(each.rows.drop(ORIGIN.name), NEVER) for each in whole(side, port)] for port, side in enumerate(rows)
    ]
    assert snapshots(case, found) == snapshots(case, run(case, uncut, None))


def test_a_row_without_an_origin_begins_where_it_starts() -> None:
    assert with_origins(frame([(3, 5, "a", 1)])).rows() == [(3, 5, "a", 1, 3)]


def test_where_one_begins_while_another_is_cut_the_group_begins_anew() -> None:
    """a |---)---)     cut at 4
    b     |---)        begins there: so does the group.
    """
    case = counted(KEY)
    rows = pieced([(0, (0, 4, "a", 1)), (0, (4, 8, "a", 1)), (4, (4, 8, "a", 1))], 0)
    found = run(case, [[Batch(rows, NEVER)]], None)
    assert found.select(START, END, ORIGIN.name).rows() == [(0, 4, 0), (4, 8, 4)]


def test_of_equal_rows_no_more_go_on_than_have_ended() -> None:
    """Two of three have a place: at 9 the last one leaves it to the twin of the second, which was cut there or not."""
    found = [
        run(Case(lambda: ranked(None)), [[Batch(pieced(rows, 0), NEVER)]], None)
        for rows in (
            [(4, (4, 9, "a", 0)), (8, (8, 10, "a", 0)), (8, (8, 10, "a", 0))],
            [(4, (4, 9, "a", 0)), (8, (8, 9, "a", 0)), (8, (8, 10, "a", 0)), (8, (9, 10, "a", 0))],
        )
    ]
    at_nine = [each.filter((pl.col(START) <= 9) & (pl.col(END) > 9))[ORIGIN.name].sort().to_list() for each in found]
    assert at_nine == [[8, 9], [8, 9]]


def test_of_copies_that_end_apart_the_number_counts() -> None:
    """Beside [1, 4) one of two copies has a place since 3: it goes on until 8, whichever of them that is."""
    other = (1, (1, 4, "a", 0))
    uncut = [other, (3, (3, 5, "a", 0)), (3, (3, 8, "a", 0))]
    cut_up = [other, (3, (3, 4, "a", 0)), (3, (3, 8, "a", 0)), (3, (4, 5, "a", 0))]
    found = [run(Case(lambda: ranked(None)), [[Batch(pieced(rows, 0), NEVER)]], None) for rows in (uncut, cut_up)]
    for rows in found:
        alive = [rows.filter(pl.col(START) <= at, pl.col(END) > at) for at in (3, 4, 5)]
        assert [sorted(each[ORIGIN.name]) for each in alive] == [[1, 3], [3, 4], [3]]


def test_what_an_earlier_version_has_answered_is_not_answered_again() -> None:
    earlier, now = Distinct(LEFT), DistinctPieces(LEFT)
    earlier.transition(0, Batch(frame([(0, 6, "a", 1)]), 3))
    now.restore(unpack_state(pack_state(earlier.save())))
    found = now.transition(0, Batch(frame([(4, 9, "a", 1)]), 12)).rows
    assert found.select(START, END).rows() == [(6, 9)]
