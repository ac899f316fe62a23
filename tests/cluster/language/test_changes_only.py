"""Which queries only ask what held for how long, so that samples that equal the one before may stay away."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.operators import Source
from cluster.operators.source import Unchanged
from cluster.operators.walks import nodes_of
from cluster.physical.placement import placement_of
from cluster.plan.demand import demands_of
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema

ROOMS = StreamSchema(
    "rooms",
    (
        Field("room", FieldType.TEXT, fixed=True),
        Field("floor", FieldType.INTEGER, fixed=True),
        Field("warmth", FieldType.REAL),
        Field("open", FieldType.BOOLEAN),
    ),
)
CATALOG = Catalog.of([ROOMS])
MINUTE = 60_000_000


def planned(sql):
    return rewrite(translate(sql, CATALOG).node).node


def note_of(sql):
    (found,) = {each.unchanged for each in nodes_of(planned(sql)) if isinstance(each, Source)}
    return found


@pytest.mark.parametrize(("item", "minutes"), [
    ("rooms WINDOW(RANGE 1 HOUR SLIDE 1 MINUTE) COALESCE(open BY room)", 6),
    ("rooms WINDOW(RANGE 1 DAY) COALESCE(open BY room)", 10),
    ("rooms WINDOW(RESET EVERY 1 HOUR) COALESCE(open BY room)", 6),
    ("rooms WINDOW(RESET EVERY 1 DAY AT TIME ZONE 'Europe/Berlin') COALESCE(open BY room, floor)", 10),
    ("rooms WINDOW(ROWS 100) COALESCE(open)", 1),
    ("rooms WINDOW(RANGE 1 HOUR SLIDE 1 MINUTE) COALESCE(open BY room) KEEP 9 TUPLES", 6),
    ("rooms WINDOW(ROWS 100) COALESCE(open) KEEP 9 TUPLES", 1),
    ("rooms WINDOW(RANGE 1 HOUR) COALESCE(warmth TOLERANCE 2, open, floor BY room)", 6),
    ("(SELECT room, warmth > 20 AS open FROM rooms) WINDOW(RANGE 1 HOUR) COALESCE(open BY room)", 6),
    ("(SELECT room, -warmth BETWEEN 0 AND floor AS open FROM rooms WHERE floor = 1) VALID UNTIL NEXT BY room", 10),
    ("(SELECT room, CAST(warmth * 2 AS INTEGER) % 3 AS open FROM rooms) VALID UNTIL NEXT BY room MAX 1 MINUTE", 1),
    ("rooms VALID UNTIL NEXT BY room MAX 2 MINUTES", 2),
    ("rooms VALID UNTIL NEXT BY room", 10),
    ("rooms VALID UNTIL NEXT BY (room, floor) MAX 1 DAY", 10),
])  # fmt: skip
def test_samples_that_equal_the_one_before_may_stay_away(item: str, minutes: int) -> None:
    sql = f"SELECT s.open FROM {item} AS s"
    assert note_of(sql) == Unchanged(minutes * MINUTE)
    (demand,) = demands_of("q", planned(sql))["rooms"]
    assert demand.silence_us == minutes * MINUTE
    assert f"one that equals the one before may stay away for {minutes}m" in placement_of(planned(sql))


@pytest.mark.parametrize(("item", "reason"), [
    ("rooms WINDOW(RANGE 1 HOUR) COALESCE(warmth BY open)", "open is sampled"),
    ("rooms VALID UNTIL NEXT BY open MAX 1 MINUTE", "open is sampled"),
    ("rooms WINDOW(RANGE 1 HOUR) COALESCE(open BY room WHILE open OR PREV(open) IS NULL)", "WHILE may link"),
    ("rooms WINDOW(RANGE 1 HOUR) COALESCE(floor BY room)", "nothing that is sampled"),
    ("(SELECT room, warmth IS NULL AS open FROM rooms) WINDOW(RANGE 1 HOUR) COALESCE(open BY room)", "open may be"),
    ("(SELECT room, COALESCE(open, FALSE) AS open FROM rooms) WINDOW(RANGE 1 HOUR) COALESCE(open BY room)", "open may"),
    ("(SELECT room, floor BETWEEN warmth AND 3 AS open FROM rooms) VALID UNTIL NEXT BY room", "open may be a value"),
    ("(SELECT room, open, STAMP() AS at FROM rooms) WINDOW(RANGE 1 HOUR) COALESCE(open, at BY room)", "at may be a"),
    ("(SELECT room, open AND warmth > 3 AS open FROM rooms) VALID UNTIL NEXT BY room", "open may be a value"),
])  # fmt: skip
def test_all_samples_are_needed_where_nulls_would_not_get_through(item: str, reason: str) -> None:
    sql = f"SELECT s.* FROM {item} AS s"
    note = note_of(sql)
    assert note.silence_us == 0
    assert reason in note.why_not
    (demand,) = demands_of("q", planned(sql))["rooms"]
    assert demand.silence_us == 0
    assert f"not only changes: {note.why_not}" in placement_of(planned(sql))


@pytest.mark.parametrize("item", [
    "rooms", "rooms WINDOW(RANGE 1 HOUR)", "rooms WINDOW(PARTITION BY room ROWS 1)",
    "(SELECT room, open FROM rooms WHERE warmth > 3) VALID UNTIL NEXT BY room MAX 1 MINUTE",
    "rooms EVENTS(warmth ABOVE 3) VALID UNTIL NEXT BY room MAX 1 MINUTE",
])  # fmt: skip
def test_other_streams_are_not_noted(item: str) -> None:
    assert note_of(f"SELECT s.room FROM {item} AS s") is UNSET
    assert "changes" not in placement_of(planned(f"SELECT s.room FROM {item} AS s"))


def test_each_item_of_from_is_noted_by_itself() -> None:
    sql = """
        SELECT a.room FROM rooms WINDOW(RANGE 1 HOUR) COALESCE(open BY room) AS a, rooms WINDOW(RANGE 1 HOUR) AS b
        WHERE a.room = b.room AND b.open"""
    silences = sorted(each.silence_us for each in demands_of("q", planned(sql))["rooms"])
    assert silences == [0, 6 * MINUTE]
