"""Outer joins of streams in plans: which conditions reach which side, and what sensors are asked for."""

from __future__ import annotations

import pytest

from cluster.fjord.acceptance import check_supported
from cluster.language.translation import translate
from cluster.operators import AntiJoin, Join, Node
from cluster.operators.walks import nodes_of
from cluster.plan.demand import demands_of
from cluster.plan.explain import explain
from cluster.plan.rewrite import rewrite
from protocols.wire.demands import QueryDemand
from protocols.wire.programs import Band
from tests.cluster.language.test_join_spellings import CATALOG

SIDES = "traffic t WINDOW(RANGE 1 MINUTE) {} JOIN weather w WINDOW(RANGE 1 HOUR) ON t.sensor = w.sensor"
SLOW, WINDY = (Band("lane", 3.0, 3.0),), (Band("wind", 30.0, None),)


def planned(join: str, rest: str = "", select: str = "t.lane, w.wind") -> Node:
    return rewrite(translate(f"SELECT {select} FROM {SIDES.format(join)} {rest}", CATALOG).node).node


def demands(join: str, rest: str, stream: str) -> tuple[QueryDemand, ...]:
    return demands_of("q", planned(join, rest))[stream]


def bands(join: str, rest: str, stream: str) -> set[tuple[Band, ...]]:
    return {each.bands for each in demands(join, rest, stream)}


@pytest.mark.parametrize(
    ("join", "rest", "traffic", "weather"),
    [
        # WHERE about the side whose tuples stay sinks below the join; about the other, it does not.
        ("LEFT", "WHERE t.lane = 3", {SLOW}, {()}),
        ("LEFT", "WHERE COALESCE(w.wind, 30) >= 30", {()}, {()}),
        ("LEFT", "WHERE w.wind >= 30 OR w.wind IS NULL", {()}, {()}),
        ("LEFT", "WHERE w.wind IS NULL", {()}, {()}),
        ("RIGHT", "WHERE w.wind >= 30", {()}, {WINDY}),
        ("RIGHT", "WHERE t.lane = 3 OR t.lane IS NULL", {()}, {()}),
        ("FULL", "WHERE COALESCE(t.lane, 3) = 3", {()}, {()}),
        # A condition that no row without a partner meets makes a join of it.
        ("LEFT", "WHERE w.wind >= 30", {()}, {WINDY}),
        ("RIGHT", "WHERE t.lane = 3", {SLOW}, {()}),
        ("FULL", "WHERE t.lane = 3", {SLOW}, {()}),
        ("FULL", "WHERE t.lane = 3 AND w.wind >= 30", {SLOW}, {WINDY}),
        # ON: what is a partner. About the side whose tuples stay, it keeps none from coming.
        ("LEFT", "AND w.wind >= 30", {()}, {WINDY}),
        ("LEFT", "AND t.lane = 3", {(), SLOW}, {()}),
        ("RIGHT", "AND t.lane = 3", {SLOW}, {()}),
        ("RIGHT", "AND w.wind >= 30", {()}, {(), WINDY}),
        ("FULL", "AND t.lane = 3", {(), SLOW}, {()}),
    ],
)
def test_sensors_send_what_may_be_in_the_answer(
    join: str, rest: str, traffic: set[tuple[Band, ...]], weather: set[tuple[Band, ...]]
) -> None:
    assert bands(join, rest, "traffic") == traffic
    assert bands(join, rest, "weather") == weather


@pytest.mark.parametrize(
    ("join", "where", "same"),
    [
        ("LEFT", "WHERE w.wind > 30", "INNER"),
        ("LEFT", "WHERE NOT w.wind > 30 AND t.lane = 1", "INNER"),
        ("RIGHT", "WHERE t.lane + 1 IN (2, 3)", "INNER"),
        ("FULL", "WHERE t.lane = 1", "LEFT"),
        ("FULL", "WHERE w.wind IS NOT NULL", "RIGHT"),
        ("FULL", "WHERE t.lane = 1 AND w.wind = 1", "INNER"),
    ],
)
def test_an_outer_join_that_keeps_nothing_alone_is_planned_as_a_smaller_one(join: str, where: str, same: str) -> None:
    assert planned(join, where) == planned(same, where)


def test_both_sides_are_read_once() -> None:
    plan = planned("FULL")
    assert sum(isinstance(each, AntiJoin) for each in nodes_of(plan)) == 2
    assert sum(isinstance(each, Join) for each in nodes_of(plan)) == 1
    assert len(demands("FULL", "", "traffic")) == len(demands("FULL", "", "weather")) == 1


@pytest.mark.parametrize(
    "sql",
    [
        (
            "SELECT t.sensor, COUNT(w.wind) AS n, LAST(w.wind) AS l, FIRST(t.speed) AS f FROM traffic t "
            "WINDOW(RANGE 1 MINUTE) LEFT JOIN weather w WINDOW(RANGE 1 HOUR) ON t.sensor = w.sensor GROUP BY t.sensor"
        ),
        "SELECT * FROM traffic t WINDOW(ROWS 5) FULL JOIN weather w WINDOW(PARTITION BY sensor ROWS 1) USING (sensor)",
        (
            "SELECT t.speed WITHIN 0.5 AS s FROM traffic t SAMPLE EVERY 1 SECOND LEFT JOIN weather w SINCE 1 HOUR AGO "
            "WINDOW(RANGE 1 HOUR) ON t.sensor = w.sensor LIFETIME 90 DAYS"
        ),
        (
            "SELECT p.km, t.lane, w.wind FROM places p RIGHT JOIN traffic t WINDOW(RANGE 1 MINUTE) "
            "ON p.sensor = t.sensor FULL JOIN weather w WINDOW(RANGE 1 MINUTE) ON w.wind > p.km "
            "LEFT JOIN places q ON q.sensor = w.sensor"
        ),
        (
            "SELECT x.lane, v.wind FROM (SELECT t.lane, w.sensor FROM traffic t ZIP JOIN weather w) x "
            "LEFT JOIN weather v WINDOW(RANGE 1 HOUR) ON v.sensor = x.sensor"
        ),
        (
            "SELECT t.lane, w.wind FROM traffic t WINDOW(RANGE 1 MINUTE) GRANULARITY(1 SECOND) "
            "FULL JOIN weather w WINDOW(RANGE 1 MINUTE) ON t.speed > w.wind EMIT EARLY"
        ),
    ],
)
def test_outer_joins_run_with_all_that_streams_may_have(sql: str) -> None:
    check_supported(rewrite(translate(sql, CATALOG).node).node)


def test_how_far_aggregates_of_an_outer_join_may_be_off_is_known() -> None:
    select = "t.sensor, SUM(t.speed WITHIN 0.5) AS s, ERROR_BOUND(SUM(t.speed)) AS e, ERROR_BOUND(MAX(w.wind)) AS x"
    plan = explain(planned("LEFT", "GROUP BY t.sensor", select))
    assert "0.5 * count(speed)" in plan.replace('"', "")
    assert "THEN 0.0 END" in plan


def test_many_outer_joins_in_a_row_are_planned_in_time() -> None:
    joins = " ".join(f"FULL JOIN weather w{n} WINDOW(RANGE 1 HOUR) ON t.lane = w{n}.wind" for n in range(6))
    where = "WHERE t.lane = 1 AND w3.wind > 2"
    rewritten = rewrite(translate(f"SELECT t.lane FROM traffic t {joins} {where}", CATALOG).node)
    check_supported(rewritten.node)
    assert len(list(nodes_of(rewritten.node))) < 400
