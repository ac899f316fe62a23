"""By what tuples of one stamp are ordered that COALESCE puts together: by columns, in the order of the text."""

from __future__ import annotations

import random

import pytest

from cluster.language.translation import translate
from cluster.operators import Extent, Sequence
from cluster.operators.walks import nodes_of
from tests.cluster.language.example_catalog import CATALOG
from tests.cluster.oracle.scripted_runs import answers_of, micros, valid_at


@pytest.mark.parametrize(
    ("clause", "ties"),
    [
        ("speed BY sensor", ("sensor", "speed")),
        ("speed, open BY lane, sensor", ("lane", "sensor", "speed", "open")),
        ("speed BY sensor WHILE speed > PREV(speed)", ("sensor", "speed")),
        ("speed BY sensor WHILE lane > 1 AND open OR PREV(speed) > 3", ("sensor", "speed", "lane", "open")),
        ("lane WHILE sensor > PREV(sensor) OR PREV(open) OR speed > PREV(lane)", ("lane", "sensor", "open", "speed")),
        ("lane WHILE POSITION(sensor IN CAST(speed AS TEXT)) > 1", ("lane", "sensor", "speed")),
    ],
)
def test_ties_are_broken_in_the_order_of_the_text(clause: str, ties: tuple[str, ...]) -> None:
    text = f"SELECT 1 AS one FROM traffic WINDOW(RANGE 1 HOUR) COALESCE({clause})"
    (extent,) = (each for each in nodes_of(translate(text, CATALOG).node) if isinstance(each, Extent))
    assert extent.coalescing.ties == ties
    kept = [each for each in nodes_of(translate(f"{text} KEEP 9 TUPLES", CATALOG).node) if isinstance(each, Sequence)]
    assert kept[-1].ties == ties


def test_the_first_of_equal_stamps_has_the_least_of_what_is_written_first() -> None:
    """In the order of a, b the two of stamp 1 are linked; in that of b, a they are not."""
    sql = "SELECT x, VALID(s) AS held FROM traffic WINDOW(RANGE 20 US) COALESCE(x WHILE a > 1 AND PREV(b) > 1) AS s"
    tuples = [(1, 5, 2, 1), (1, 5, 1, 2), (4, 6, 1, 1)]
    fields = {"x": int, "a": int, "b": int}
    answers = answers_of(random.Random(0), sql, fields, tuples, 0)
    rows = [(row["x"], micros(row["held_start"]), micros(row["held_end"])) for row in valid_at(answers, 4)]
    assert sorted(rows) == [(5, 1, 4), (6, 4, 4)]
