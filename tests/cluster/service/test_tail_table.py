"""Rows as a terminal shows them: windows of a grid, columns that grow, open rows, errors."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.language.catalog import BaseStream, Catalog
from cluster.language.translation import translate
from cluster.language.window_bounds import grid_of_answers
from cluster.local.growing_table import heading_of, window_text
from cluster.operators.window_shapes import Grid, Span
from cluster.service.tail_table import TailTable
from protocols.wire.streams import Field, FieldType, StreamSchema

HOUR_US = 3_600_000_000
HOURS = Grid(Span("us", HOUR_US), size=Span("us", HOUR_US))
CATALOG = Catalog.of([BaseStream(StreamSchema("s", (Field("k", FieldType.TEXT), Field("v", FieldType.REAL))))])


def message(sequence: int, start: str, end: str | None, row: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"query": "q", "sequence": sequence, "start": start, "end": end, **more, "row": row}).encode()


def test_a_table_of_windows_grows() -> None:
    table = TailTable(msgspec.to_builtins(HOURS))
    first = message(9, "2012-03-01T00:59:59.999999Z", "2012-03-01T01:59:59.999999Z", {"k": "a", "n": 2})
    same = message(10, "2012-03-01T22:59:59.999999Z", "2012-03-02T01:59:59.999999Z", {"k": "abc", "n": None})
    other = message(11, "2012-03-01T00:59:59.999999Z", None, {"m": "x\ny"}, open=True)
    assert [*table.lines(first), *table.lines(same), *table.lines(other)] == [
        "   window                    k  n",
        "9  2012-03-01 00:00 - 01:00  a  2",
        "10  2012-03-01 22:00 - 23:00 to 2012-03-02 00:00 - 01:00  abc  NULL",
        "    window                    m",
        "11  2012-03-01 00:00 - 01:00  x\\ny",
    ]


def test_rows_without_windows_show_when_they_are_valid() -> None:
    table = TailTable(None)
    row = message(1, "2012-03-01T00:59:59.999999Z", "2012-03-01T01:59:59.999999Z", {"n": 2})
    assert [each.split() for each in table.lines(row)] == [
        ["start", "end", "n"],
        ["1", "2012-03-01T00:59:59.999999Z", "2012-03-01T01:59:59.999999Z", "2"],
    ]
    closes = b'{"query":"q","sequence":2,"closes":1,"end":"2012-03-01T01:59:59.999999Z"}'
    assert [*table.lines(closes)] == ["row 1 ends at 2012-03-01T01:59:59.999999Z"]
    lost = {"sequence": 3, "at": "2012-03-01T00:00:00Z", "end": "2012-03-01T01:00:00Z", "error": "it\x1b failed"}
    (line,) = table.lines(json.dumps(lost).encode())
    assert line.startswith("rows are missing, 2012-03-01T00:00:00Z to 2012-03-01T01:00:00Z: it")
    assert "\x1b" not in line


@given(st.integers(1, 10**13), st.integers(1, 10**13), st.integers(0, 4 * 10**15))
def test_tuples_of_the_window_that_is_shown_are_those_of_the_row(slide_us: int, size_us: int, stamp_us: int) -> None:
    # papers/pipes_algebra.md section 3: a tuple stamped t is valid from k - 1 on, the first multiple k >= t + 1.
    grid = Grid(Span("us", slide_us), size=Span("us", size_us))
    begins = -(-(stamp_us + 1) // slide_us) * slide_us - 1
    shown = window_text(grid, begins, begins + slide_us)
    assert " to " not in shown
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    end = epoch + timedelta(microseconds=begins + 1)
    start = end - timedelta(microseconds=size_us)
    instants = [each.replace(tzinfo=None) for each in (start, end)]
    if any(each.time() != datetime.min.time() for each in instants):
        begin_text, _, end_text = shown.partition(" - ")
        if end_text == "24:00":
            assert instants[1] == datetime.fromisoformat(begin_text[:10]) + timedelta(days=1)
            return
        full_end = end_text if " " in end_text else f"{begin_text.split(' ')[0]} {end_text}"
        assert [datetime.fromisoformat(each) for each in (begin_text, full_end)] == instants


def test_days_of_a_zone_are_dates() -> None:
    text = "SELECT COUNT(*) AS n FROM s WINDOW(RANGE {0} SLIDE {0} AT TIME ZONE 'Europe/Berlin')"
    zone = ZoneInfo("Europe/Berlin")
    for size, day, after, shown in [
        ("1 DAY", (2024, 3, 31), (2024, 4, 1), "2024-03-31"),  # of 23 hours
        ("1 MONTH", (2024, 10, 1), (2024, 11, 1), "2024-10-01 - 2024-10-31"),
    ]:
        grid = grid_of_answers(translate(text.format(size), CATALOG).node)
        assert grid is not None
        end_us = int(datetime(*after, tzinfo=zone).timestamp()) * 1_000_000
        assert datetime(*day, tzinfo=zone) < datetime(*after, tzinfo=zone)
        assert window_text(grid, end_us - 1, end_us) == shown
        assert heading_of(grid) == "window (Europe/Berlin)"


def test_midnight_is_the_end_of_a_day_and_odd_years_are_shown_all_the_same() -> None:
    assert window_text(HOURS, 24 * HOUR_US - 1, 25 * HOUR_US - 1) == "1970-01-01 23:00 - 24:00"
    assert window_text(HOURS, 2**60, 2**60 + 1).endswith("us")


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("SELECT k, COUNT(*) AS n FROM s WINDOW(RANGE 2 HOURS SLIDE 1 HOUR) GROUP BY k HAVING COUNT(*) > 1", True),
        ("SELECT WINDOW_END() AS w, COUNT(*) AS n FROM s WINDOW(RANGE 1 HOUR SLIDE 1 HOUR)", True),
        ("SELECT k, SUM(v) AS n FROM s WINDOW(RANGE 1 HOUR SLIDE 1 HOUR) GROUP BY k ORDER BY n LIMIT 2", True),
        ("SELECT k, COUNT(*) AS n FROM s WINDOW(RANGE 1 HOUR) GROUP BY k", False),
        ("SELECT k FROM s WINDOW(RANGE 1 HOUR SLIDE 1 HOUR)", False),
        ("SELECT COUNT(*) AS n FROM s WINDOW(RESET EVERY 1 DAY)", False),
        ("SELECT COUNT(*) AS n FROM s WINDOW(SESSION GAP 1 HOUR)", False),
        ("SELECT COUNT(*) AS n FROM s WINDOW(RANGE MIN 1 HOUR, MAX 4 HOURS SLIDE 1 HOUR)", False),
        ("SELECT k FROM s", False),
    ],
)
def test_which_answers_are_of_windows(text: str, has: bool) -> None:
    assert (grid_of_answers(translate(text, CATALOG).node) is not None) == has
