"""How relations would be looked up, and why: a section of EXPLAIN."""

from __future__ import annotations

from cluster.physical.placement import lookup_choices
from cluster.plan.names_read import RelationSize, large_relations
from tests.cluster.spark.hosted_run import LIMITS, PLACES, plan_node

SIZES = {PLACES.identity: RelationSize(3_000, 100_000), LIMITS.identity: RelationSize(1, 16)}
BY_SENSOR = "SELECT t.speed, p.name FROM traffic AS t, places AS p WHERE t.sensor = p.sensor"


def described(sql: str, memory_bytes: int) -> list[str]:
    """Return the description of a query's lookups, line by line."""
    node = plan_node(sql, large_relations(SIZES, memory_bytes))
    lines = lookup_choices(node, SIZES, memory_bytes=memory_bytes, buckets=4).splitlines()
    return [line.strip() for line in lines]


def test_a_small_relation_is_kept_in_memory_as_a_whole() -> None:
    assert described(BY_SENSOR, 200_000) == [
        "look up in places on sensor = places.sensor",
        "places: 3,000 rows, 97.7 KiB",
        "whole in the memory of each worker (up to 195.3 KiB), by a hash table on places.sensor",
    ]


def test_how_many_rows_a_tuple_finds_is_shown_where_it_is_known() -> None:
    known = {PLACES.identity: RelationSize(3_000, 100_000, {"sensor": 750})}
    lines = lookup_choices(plan_node(BY_SENSOR), known, memory_bytes=200_000, buckets=4).splitlines()
    assert "    about 4 rows for a tuple that finds any" in lines
    assert not any("finds any" in line for line in described(BY_SENSOR, 200_000))


def test_a_large_one_is_partitioned_by_its_key() -> None:
    *_, choice = described(BY_SENSOR, 50_000)
    assert choice == (
        "in 8 slices by sensor_2, as it is larger than 48.8 KiB; "
        "Spark spreads the tuples over 4 buckets by the same key"
    )
    sql = (
        "SELECT COUNT(*) AS n FROM traffic AS t WINDOW(RANGE 1 SECOND SLIDE 1 SECOND), places AS p "
        "WHERE t.sensor = p.sensor"
    )
    *_, choice = described(sql, 50_000)
    assert "each worker loads those that its tuples need" in choice


def test_without_an_equality_only_a_small_one_can_be_looked_up() -> None:
    sql = "SELECT t.speed FROM traffic AS t, places AS p WHERE t.speed > p.segment"
    assert "row by row" in described(sql, 200_000)[-1]
    assert "cannot run" in described(sql, 50_000)[-1]


def test_without_relations_there_are_no_lines() -> None:
    assert described("SELECT speed FROM traffic", 1) == []


def test_sizes_of_relations_that_were_not_read_yet_are_unknown() -> None:
    lines = lookup_choices(plan_node(BY_SENSOR), {}, memory_bytes=1, buckets=4).splitlines()
    assert "    places: not read yet" in lines
    assert not any("finds any" in line for line in lines)


def test_a_lookup_that_only_tests_for_a_partner_finds_no_rows() -> None:
    known = {PLACES.identity: RelationSize(3_000, 100_000, {"sensor": 750})}
    asking = "SELECT speed FROM traffic WHERE sensor {} (SELECT sensor FROM places)"
    for word in ("IN", "NOT IN"):
        assert "finds any" not in lookup_choices(plan_node(asking.format(word)), known, memory_bytes=200_000, buckets=4)
    left = BY_SENSOR.replace(", places AS p WHERE", " LEFT JOIN places AS p ON")
    assert "about 4 rows" in lookup_choices(plan_node(left), known, memory_bytes=200_000, buckets=4)


def test_equal_lookups_are_shown_once() -> None:
    both = f"{BY_SENSOR} UNION ALL {BY_SENSOR}"
    assert lookup_choices(plan_node(both), SIZES, memory_bytes=200_000, buckets=4) == lookup_choices(
        plan_node(BY_SENSOR), SIZES, memory_bytes=200_000, buckets=4
    )
