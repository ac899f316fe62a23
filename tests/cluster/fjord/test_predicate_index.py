"""The predicate index finds exactly the rows for which each predicate, evaluated on its own, is true."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from cluster.fjord.operators.filtering import PredicateIndex
from cluster.fjord.scalars import POLARS_TYPES, compile_scalar
from cluster.operators.columns import Column, Scalar
from cluster.plan.predicate_intervals import Interval, extract_ranges
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType

COLUMNS = (
    Column("i", FieldType.INTEGER),
    Column("r", FieldType.REAL),
    Column("s", FieldType.TEXT),
    Column("b", FieldType.BOOLEAN),
)
TEXTS = ["", "a", "ab", "abc", "b", "a%", "é", "\U0010ffff", "a\U0010ffff"]
LARGE = [2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]
ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-3, 4) | st.sampled_from(LARGE),
        st.none() | st.sampled_from([-1.5, 0.0, 0.5, 1.0, 2.5, 5e-324, 2.0**53, 1e308, 1.7976931348623157e308]),
        st.none() | st.sampled_from(TEXTS),
        st.none() | st.booleans(),
    ),
    max_size=12,
)
CONSTANTS = {
    "i": [
        "-2", "0", "1", "3", "0.5", "2.0", "-0.5", "9007199254740992.0", "9007199254740991.0", "9007199254740993",
        "-9007199254740992.0", "9223372036854775807", "-9223372036854775808", "1e300", "-1e300",
    ],
    "r": [
        "0", "1", "0.5", "-1.5", "2.5", "-0.0", "1e308", "1.7976931348623157e308", "-1e308", "5e-324",
        "9007199254740993", "-9223372036854775808", "1e999", "-1e999",
    ],
    "s": ["'a'", "'ab'", "''", "'b'"],
}  # fmt: skip


PATTERNS = ["'a%'", "'ab%'", "'%'", "'%b'", "'a_'", "'ab'", "'\U0010ffff%'"]


@st.composite
def atoms(draw: Any) -> str:
    name = draw(st.sampled_from("irs"))
    constant = st.sampled_from(CONSTANTS[name])
    column = f'"{name}"'
    match draw(st.sampled_from(["compare", "mirrored", "in", "between", "like", "boolean", "null", "other", "not"])):
        case "compare":
            return f"{column} {draw(st.sampled_from(['=', '<>', '<', '<=', '>', '>=']))} {draw(constant)}"
        case "mirrored":
            return f"{draw(constant)} {draw(st.sampled_from(['=', '<>', '<', '<=', '>', '>=']))} {column}"
        case "in":
            return f"{column} IN ({', '.join(draw(st.lists(constant, min_size=1, max_size=3)))})"
        case "between":
            return f"{column} BETWEEN {draw(constant)} AND {draw(constant)}"
        case "like":
            return f'"s" LIKE {draw(st.sampled_from(PATTERNS))}'
        case "boolean":
            return draw(st.sampled_from(['"b"', 'NOT "b"', '"b" = TRUE', '"b" <> FALSE', '"b" IS NULL']))
        case "null":
            return draw(st.sampled_from([f"{column} IS NULL", f"NOT {column} IS NULL"]))
        case "not":
            return f"NOT ({column} = {draw(constant)})"
        case _:
            return draw(
                st.sampled_from(
                    [
                        '"i" > "r"', '"i" * 2 = 4', 'LENGTH("s") > 1', '"i" / 0 > 1', '"r" * 10 > 5',
                        'NOT ("r" * 10 > 5)', '"r" IN (1, 1e308 * 10)', '"i" IN (1, NULL)', '"r" / 0 IS NULL',
                    ]
                )
            )  # fmt: skip


@st.composite
def predicates(draw: Any) -> Scalar | None:
    parts = []
    for _ in range(draw(st.integers(0, 3))):
        one = draw(atoms())
        parts.append(f"({one} OR {draw(atoms())})" if draw(st.integers(0, 3)) == 0 else one)
    return read_scalar(" AND ".join(parts), FieldType.BOOLEAN) if parts else None


def frame(rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={column.name: POLARS_TYPES[column.type] for column in COLUMNS}, orient="row")


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(predicates(), max_size=12), ROWS)
def test_it_finds_what_each_predicate_finds_alone(found: list[Scalar | None], rows: list[tuple[Any, ...]]) -> None:
    note([each and each.sql for each in found])
    batch = frame(rows).with_row_index("fjord_row")
    matches = PredicateIndex(found, COLUMNS).match(batch)
    expected = [
        (row, number)
        for number, predicate in enumerate(found)
        for row in (batch if predicate is None else batch.filter(compile_scalar(predicate)))["fjord_row"]
    ]
    assert list(zip(matches.rows.tolist(), matches.predicates.tolist(), strict=True)) == sorted(expected)
    assert not matches.failures


@pytest.mark.parametrize(
    ("sql", "column", "intervals", "rest"),
    [
        ('"i" > 1.5', "i", [(Interval(low=2),)], 0),
        ('"i" >= 1.5', "i", [(Interval(low=2),)], 0),
        ('"i" > 2.0', "i", [(Interval(low=3),)], 0),
        ('"i" >= 2.0', "i", [(Interval(low=2),)], 0),
        ('"i" < 1.5', "i", [(Interval(high=1),)], 0),
        ('"i" <= 1.5', "i", [(Interval(high=1),)], 0),
        ('"i" < 2.0', "i", [(Interval(high=1),)], 0),
        ('"i" <= 2.0', "i", [(Interval(high=2),)], 0),
        ('"i" = 1.5', "i", [()], 0),
        ('"i" = 2.0', "i", [(Interval(2, 2),)], 0),
        ('"i" <> 1.5', "i", [(Interval(),)], 0),
        ('"i" <> 2.0', "i", [(Interval(high=2, high_open=True), Interval(low=2, low_open=True))], 0),
        ('"i" < 2', "i", [(Interval(high=2, high_open=True),)], 0),
        ('"i" >= 2', "i", [(Interval(low=2),)], 0),
        ('2 < "i"', "i", [(Interval(low=2, low_open=True),)], 0),
        ('2 <= "i"', "i", [(Interval(low=2),)], 0),
        ('2 > "i"', "i", [(Interval(high=2, high_open=True),)], 0),
        ('2 = "i"', "i", [(Interval(2, 2),)], 0),
        ('2 <> "i"', "i", [(Interval(high=2, high_open=True), Interval(low=2, low_open=True))], 0),
        ('"i" = -(2)', "i", [(Interval(-2, -2),)], 0),
        ('"r" BETWEEN 1 AND -2', "r", [(Interval(1.0, -2.0),)], 0),
        ('"i" BETWEEN 1.5 AND 2.5', "i", [(Interval(2, 2),)], 0),
        ('"i" BETWEEN 1 AND "r"', "i", [], 1),
        ('"i" IN (1, 2.0, 2.5)', "i", [(Interval(1, 1), Interval(2, 2))], 0),
        ('"b" = FALSE', "b", [(Interval(0, 0),)], 0),
        ('"b"', "b", [(Interval(1, 1),)], 0),
        ("\"s\" = 'a'", "s", [(Interval("a", "a"),)], 0),
        ("\"s\" LIKE '%'", "s", [(Interval(low=""),)], 0),
        ("\"s\" LIKE 'a\ud7ff%'", "s", [(Interval("a\ud7ff", "a\ue000", high_open=True),)], 0),
        ("\"s\" LIKE 'a_'", "s", [], 1),
        ("\"s\" LIKE '_a%'", "s", [], 1),
        ("\"s\" LIKE 'a'", "s", [], 1),
        ("\"s\" ILIKE 'ab%'", "s", [], 1),
        ('2 >= "r"', "r", [(Interval(high=2.0),)], 0),
        ("\"s\" LIKE 'ab%'", "s", [(Interval("ab", "ac", high_open=True),)], 0),
        ('"i" = 1 OR "i" = 3', "i", [(Interval(1, 1), Interval(3, 3))], 0),
        ('"i" > 1 AND "i" <= 4', "i", [(Interval(low=1, low_open=True),), (Interval(high=4),)], 0),
        ('NOT "b"', "b", [(Interval(0, 0),)], 0),
        ('"i" > "r" AND "i" = 1', "i", [(Interval(1, 1),)], 1),
        ('"i" = 1 OR "r" = 3', "i", [], 1),
        ('"i" < 9007199254740992.0', "i", [], 1),
        ('"i" < 9007199254740991.0', "i", [(Interval(high=9007199254740990),)], 0),
        ('"r" = 9007199254740993', "r", [(Interval(9007199254740992.0, 9007199254740992.0),)], 0),
        ('"r" < 1e999', "r", [], 1),
    ],
)
def test_predicates_are_split_into_intervals_and_the_rest(
    sql: str, column: str, intervals: list[Any], rest: int
) -> None:
    found = extract_ranges(read_scalar(sql, FieldType.BOOLEAN), COLUMNS)
    assert list(found.intervals.get(column, ())) == intervals
    assert len(found.rest) == rest


def test_a_predicate_that_fails_stops_no_other() -> None:
    broken, good = read_scalar('"missing" > 1', FieldType.BOOLEAN), read_scalar('"i" > 1', FieldType.BOOLEAN)
    matches = PredicateIndex([broken, good, broken], COLUMNS).match(frame([(2, 1.0, "a", True)]))
    assert matches.predicates.tolist() == [1]
    assert set(matches.failures) == {0, 2}
    assert "missing" in matches.failures[0]


def test_a_condition_of_thousands_of_values_is_looked_up() -> None:
    among = f'"i" IN ({", ".join(str(3 * n) for n in range(10_000))})'
    either = " OR ".join(f'"i" = {3 * n}' for n in range(5_000))
    both = " AND ".join(f'"i" <> {n}' for n in range(100, 600))
    predicates = [read_scalar(text, FieldType.BOOLEAN) for text in (among, either, both)]
    conditions = [extract_ranges(predicate, COLUMNS) for predicate in predicates]
    assert [len(each.rest) for each in conditions] == [0, 0, 0]
    batch = frame([(n, None, None, None) for n in (3, 4, 300, 29_997, None)])
    matches = PredicateIndex(predicates, COLUMNS).match(batch)
    found = list(zip(matches.rows.tolist(), matches.predicates.tolist(), strict=True))
    assert found == [(0, 0), (0, 1), (0, 2), (1, 2), (2, 0), (2, 1), (3, 0), (3, 2)]


def test_a_predicate_is_found_by_the_column_that_chooses_most() -> None:
    wide, narrow = '"i" > -100', "\"s\" = 'a{}'"
    predicates = [read_scalar(f"{wide} AND {narrow.format(n)}", FieldType.BOOLEAN) for n in range(20)]
    index = PredicateIndex(predicates, COLUMNS)
    assert set(index._trees) == {"s"}
    matches = index.match(frame([(1, None, "a7", None), (-100, None, "a8", None)]))
    assert list(zip(matches.rows.tolist(), matches.predicates.tolist(), strict=True)) == [(0, 7)]
