"""MATCH_RECOGNIZE: what is the same however it is written, what is asked of sensors, and that no name became a word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.operators import Node, PatternMatch, Project
from cluster.plan.demand import demands_of
from cluster.plan.rewrite import rewrite
from cluster.plan.stored_plans import read, written
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.language.example_catalog import CATALOG

if TYPE_CHECKING:
    from cluster.operators.pattern_match import RowPattern

CLAUSE = (
    "MATCH_RECOGNIZE (PARTITION BY sensor ORDER BY STAMP() MEASURES {} AS m PATTERN ({}) WITHIN 5 MINUTES DEFINE {})"
)
WORDS = (
    *("measures", "pattern", "define", "skip", "past", "match", "one", "per", "after", "prev", "interval", "subset"),
    *("permute", "match_recognize", "final_", "running", "classifier"),
)


def planned(clause: str) -> Node:
    return translate(f"SELECT * FROM traffic {clause} AS p", CATALOG).node


def pattern(measure: str = "B.speed", elements: str = "A B", condition: str = "B AS B.speed > 1") -> RowPattern:
    node = planned(CLAUSE.format(measure, elements, condition))
    assert isinstance(node, PatternMatch)
    return node.pattern


@pytest.mark.parametrize("word", WORDS)
def test_no_name_became_a_word(word: str) -> None:
    fields = (Field(word, FieldType.INTEGER), Field("first", FieldType.INTEGER), Field("sensor", FieldType.TEXT))
    catalog = Catalog.of([StreamSchema(word, fields), StreamSchema("other", fields)])
    match = (
        f"MATCH_RECOGNIZE (ORDER BY STAMP() MEASURES {word}.{word} AS m, FIRST(first) AS f PATTERN ({word} x) "
        f"DEFINE {word} AS {word}.{word} > {word}) AS {word}"
    )
    for text in (
        f"SELECT {word} FROM other",
        f"SELECT {word}.{word} AS {word} FROM {word}",
        f"SELECT first, t.{word} FROM other AS t WHERE {word} > 1",
        f"SELECT {word} FROM (SELECT {word} FROM other) AS {word}",
        f"SELECT {word}.m FROM other {match}",
    ):
        translate(text, catalog)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("B.speed",), ("LAST(b.Speed)",)),
        (("B.speed",), ("LAST(B.speed, 0)",)),
        (("speed",), ("LAST(speed)",)),
        (("PREV(B.speed)",), ("PREV(B.speed, 1)",)),
        (("B.speed", "A B"), ("B.speed", "A{1} B{1,1}")),
        (("B.speed", "A? B+"), ("B.speed", "A{,1} B{1,}")),
        (("A.speed", "A??  B"), ("A.speed", "A ? ?\n B")),
        (("B.speed", "A B", "B AS B.speed > 1"), ("B.speed", "A B", "b AS speed > 1")),
        (("B.speed", "A B", "B AS speed > 1"), ("B.speed", "A B", "B AS LAST(B.speed) > 1")),
        (("B.speed", "A B", "B AS speed > A.speed"), ("B.speed", "A B", "B AS PREV(speed, 0) > LAST(A.speed)")),
    ],
)
def test_spellings_of_one_pattern(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    first, second = pattern(*one), pattern(*other)
    assert first.elements == second.elements
    assert first == second


def test_conditions_on_a_row_and_on_rows_before_it_are_told_apart() -> None:
    (first, second) = pattern(
        "B.speed", "A B", "A AS PREV(speed) > 1 AND lane = 2, B AS lane = 1 AND B.speed > A.speed"
    ).definitions
    assert (first.row is not None, first.reaching) == (True, None)
    assert second.row is not None
    assert second.reaching is not None
    assert (second.row.sql, second.reaching.sql) == ('"lane" = 1', '"speed" > "fjord_reach_0"')


def test_all_samples_of_the_columns_that_are_read_are_demanded() -> None:
    node = rewrite(
        translate(f"SELECT sensor FROM traffic {CLAUSE.format('1', 'A', 'A AS A.speed > 50')} AS p", CATALOG).node
    ).node
    (demand,) = demands_of("q", node)["traffic"]
    assert demand.fields == ("sensor", "speed")
    assert (demand.bands, demand.sensors) == ((), ())
    below = f"SELECT m FROM (SELECT * FROM traffic WHERE speed > 50) {CLAUSE.format('lane', 'A', 'A AS TRUE')} AS p"
    (demand,) = demands_of("q", rewrite(translate(below, CATALOG).node).node)["traffic"]
    assert [(band.field, band.low is None) for band in demand.bands] == [("speed", False)]


def test_columns_of_a_match_are_those_of_partitions_and_measures() -> None:
    columns = planned(CLAUSE.format("AVG(B.speed)", "A B", "B AS open")).schema
    assert [(column.name, column.type, column.unit) for column in columns] == [
        ("sensor", FieldType.TEXT, ""),
        ("m", FieldType.REAL, "mph"),
    ]


def test_rows_of_one_stamp_are_ordered_by_the_columns_that_are_read() -> None:
    node = planned(CLAUSE.format("B.flow", "A B", "B AS open"))
    assert isinstance(node, PatternMatch)
    assert isinstance(node.input, Project)
    assert node.pattern.ties == ("sensor", "flow", "open")


def test_a_plan_is_read_as_it_was_written() -> None:
    node = planned(CLAUSE.format("COUNT(B.*) + PREV(A.speed, 3)", "A B{2,5}? C*", "B AS B.speed > SUM(A.speed)"))
    assert read(written(node)) == node
