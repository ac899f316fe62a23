"""Which tuples meet a relation: of the stream its conditions read, of the first if none, pairs if they read several."""

from __future__ import annotations

import pytest

from cluster.plan.explain import explain
from tests.cluster.spark.hosted_run import PLACES, plan_node

T, U = "traffic AS t WINDOW(RANGE 20 US SLIDE 10 US)", "traffic AS u WINDOW(RANGE 5 US)"
P, L = "places AS p", "limits AS l"
NOT_IN = "keep if not found in places on speed IS NULL; keep if not found in places on places_2.segment IS NULL"
"""What NOT IN asks besides whether there is an equal row."""


def lookups(sql: str) -> list[str]:
    """Return the lines of a plan that say what is looked up, from the top down."""
    lines = (line.lstrip("│├└─ ") for line in explain(plan_node(sql)).splitlines())
    return [line for line in lines if "look up" in line or "keep if" in line]


@pytest.mark.parametrize("tables", [(P, T, U), (T, P, U), (T, U, P)])
def test_a_relations_place_in_from_does_not_decide_which_stream_looks_it_up(tables: tuple[str, ...]) -> None:
    text = f"SELECT t.speed FROM {', '.join(tables)} WHERE "
    by_pair = ["look up in places on sensor_2 = sensor_3 AND segment > speed"]
    assert lookups(text + "u.sensor = p.sensor AND p.segment > t.speed") == by_pair
    by_second = ["stream traffic; look up in places on sensor = places.sensor"]
    assert lookups(text + "p.sensor = u.sensor") == by_second
    by_first = ["stream traffic; look up in places"]
    assert lookups(text + "p.segment = 1") == by_first


def test_a_relation_looked_up_by_a_pair_leaves_others_to_single_streams() -> None:
    text = f"SELECT t.speed FROM {T}, {U}, {P}, {L} WHERE p.segment = t.speed + u.speed"
    by_pair = "look up in places on segment = speed + speed_2"
    by_first = ["stream traffic; look up in limits on speed = limits.segment"]
    assert lookups(f"{text} AND l.segment = t.speed") == [by_pair, *by_first]
    assert lookups(text) == [by_pair, "stream traffic; look up in limits"]


def test_all_lookups_of_a_not_in_stand_above_the_same_input() -> None:
    text = f"SELECT t.speed FROM {T}, {U} WHERE {{}} NOT IN (SELECT segment FROM places)"
    (by_second,) = lookups(text.format("u.speed"))
    assert by_second.count("keep if not found in places") == 3
    by_pair = lookups(text.format("t.speed + u.speed"))
    assert [line.partition(" on ")[0] for line in by_pair] == ["keep if not found in places"] * 3


def test_a_left_join_leaves_another_relation_to_the_stream_its_conditions_read() -> None:
    sql = (
        f"SELECT l.fastest FROM {T}, {U}, {P} LEFT JOIN {L} ON l.fastest = t.speed + u.speed WHERE p.sensor = u.sensor"
    )
    by_pair, by_second = lookups(sql)
    assert by_pair.startswith("look up in limits")
    assert by_second == "stream traffic; look up in places on sensor = places.sensor"


def test_a_group_that_is_looked_up_begins_with_each_step_of_its_window() -> None:
    groups = f"SELECT sensor, COUNT(*) AS tuples FROM {T} GROUP BY sensor"
    plan = explain(plan_node(f"SELECT p.name FROM ({groups}) AS g, {P} WHERE p.sensor = g.sensor"))
    assert "aggregate" in plan
    assert "distinct" not in plan
    assert "distinct" in explain(plan_node(f"SELECT g.sensor FROM ({groups}) AS g"))


def test_united_streams_are_looked_up_each_for_itself() -> None:
    both = f"SELECT t.sensor FROM {T} UNION ALL SELECT u.sensor FROM {U}"
    found = lookups(f"SELECT p.name FROM ({both}) AS b, {P} WHERE p.sensor = b.sensor")
    assert found == ["stream traffic; look up in places on sensor = places.sensor"] * 2
    found = lookups(
        f"SELECT t.speed FROM {T} WHERE (t.speed = 1 OR t.sensor IN (SELECT sensor FROM places)) "
        "AND t.speed IN (SELECT fastest FROM limits)"
    )
    assert len(found) == 2
    assert all("keep if found in limits" in line for line in found)


@pytest.mark.parametrize(("sql", "expected"), [
    (
        "SELECT t.speed FROM traffic AS t, places AS p WHERE t.speed > 3 AND t.sensor = p.sensor",
        """
project speed
└─ look up in places on sensor = sensor_2
   └─ filter speed > 3
      └─ stream traffic""",
    ),
    (
        f"SELECT l.fastest FROM traffic t, {P}, {L} WHERE t.speed > 3 AND t.sensor = p.sensor AND t.speed = l.segment",
        """
project fastest
└─ look up in places on sensor = sensor_2
   └─ project sensor, speed, segment_2 = limits.segment, fastest = limits.fastest
      └─ filter speed > 3
         └─ stream traffic; look up in limits on speed = limits.segment""",
    ),
    (
        "SELECT t.speed FROM traffic AS t WHERE t.speed > 3 AND t.speed NOT IN (SELECT segment FROM places)",
        f"""
project speed
└─ keep if not found in places on speed = segment
   └─ filter speed > 3
      └─ stream traffic; {NOT_IN}""",
    ),
    (
        "SELECT t.speed FROM traffic AS t WHERE t.speed NOT IN (SELECT segment FROM places)",
        f"""
project speed
└─ keep if not found in places on speed = segment
   └─ stream traffic; {NOT_IN}""",
    ),
    (
        "SELECT t.speed FROM traffic AS t, places AS p WHERE t.speed > 3 AND t.speed > p.segment",
        """
project speed
└─ filter speed > 3
   └─ stream traffic; look up in places on speed > places.segment""",
    ),
    (
        f"SELECT t.speed FROM {T}, {U}, {P} WHERE t.sensor = u.sensor AND t.sensor = p.sensor",
        """
project speed
└─ join sensor = sensor_2
   ├─ project sensor, speed
   │  └─ window of 20us, moving every 10us
   │     └─ stream traffic; look up in places on sensor = places.sensor
   └─ project sensor_2 = sensor
      └─ window of 5us
         └─ stream traffic""",
    ),
])  # fmt: skip
def test_where_a_relation_is_large_tuples_are_spread_by_its_key_if_nothing_above_needs_them_together(
    sql: str, expected: str
) -> None:
    assert explain(plan_node(sql, frozenset({PLACES.identity}))) == expected.strip()
