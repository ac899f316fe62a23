"""Streams joined with relations: each tuple with the rows active when it is sampled (papers/star_joins.md section 1.3).

stamps       10   20   30   40
places     |-- 1 --)[-- 2 -----
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.operators import Node
from cluster.physical.lowering import lower
from cluster.physical.operations import Exchange, Lookup
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.storage.relation_versions import RelationVersions
from tests.cluster.spark.hosted_run import LIMITS, PLACES, Run, plan_node, queries, relation_rows

FIRST = [("a", 1, "bridge"), ("b", 2, "tunnel"), (None, 9, "nowhere")]
SECOND = [("a", 1, "old bridge"), ("a", 3, "ramp"), ("c", 2, None)]
ROWS = [(10, "a", 50), (20, "b", 60), (30, "a", 70), (35, "b", 75), (40, "c", 80)]


def answers(tmp_path: Path, query: str | Node, *, parts: int = 1, memory_bytes: int = 2**30) -> list[dict[str, Any]]:
    """Run a query over ROWS, of which the last three meet SECOND; return what it answered."""
    node = plan_node(query) if isinstance(query, str) else query
    run = Run(tmp_path, Plan(1, (PlannedQuery("q", 1, node),)), relation_memory_bytes=memory_bytes)
    run.change(PLACES, FIRST, 0)
    run.change(LIMITS, [(1, 55), (2, 65)], 0)
    run.append(ROWS[:2], 21)
    run.step(parts=parts)
    run.change(PLACES, SECOND, 25)
    run.append(ROWS[2:], 41)
    run.append([(10_000_000, "z", 1)], 10_000_001)
    run.step(parts=parts)
    assert run.errors == {}
    return [row for _, _, row in run.rows.get("q", [])]


def test_a_tuple_is_joined_with_the_rows_active_when_it_is_sampled(tmp_path: Path) -> None:
    sql = "SELECT t.speed, p.name FROM traffic AS t, places AS p WHERE t.sensor = p.sensor"
    assert answers(tmp_path, sql) == [
        {"speed": 50, "name": "bridge"},
        {"speed": 60, "name": "tunnel"},
        {"speed": 70, "name": "old bridge"},
        {"speed": 70, "name": "ramp"},
        {"speed": 80, "name": None},
    ]


def test_without_a_partner_left_join_gives_nulls(tmp_path: Path) -> None:
    sql = "SELECT t.speed, p.segment FROM traffic AS t LEFT JOIN places AS p ON t.sensor = p.sensor AND p.segment < 3"
    found = [(row["speed"], row["segment"]) for row in answers(tmp_path, sql)]
    assert found == [(50, 1), (60, 2), (70, 1), (75, None), (80, 2), (1, None)]


@pytest.mark.parametrize(
    ("condition", "speeds"),
    [
        ("t.sensor IN (SELECT sensor FROM places)", [50, 60, 70, 80]),
        ("t.sensor NOT IN (SELECT sensor FROM places WHERE sensor IS NOT NULL)", [75, 1]),
        ("t.sensor NOT IN (SELECT sensor FROM places)", [75, 1]),  # the NULL has left before they come
        ("EXISTS (SELECT * FROM places AS p WHERE p.sensor = t.sensor AND p.segment = 3)", [70]),
        ("NOT EXISTS (SELECT * FROM places AS p WHERE p.segment * 30 < t.speed)", [1]),
        ("t.speed > (SELECT MAX(fastest) FROM limits)", [70, 75, 80]),
    ],
)
def test_a_relation_in_a_condition(tmp_path: Path, condition: str, speeds: list[int]) -> None:
    found = answers(tmp_path, f"SELECT t.speed FROM traffic AS t WHERE {condition}")
    assert [row["speed"] for row in found] == speeds


def test_several_relations_and_a_relation_joined_with_a_relation(tmp_path: Path) -> None:
    sql = (
        "SELECT t.speed, l.fastest FROM traffic AS t, places AS p, limits AS l "
        "WHERE t.sensor = p.sensor AND p.segment = l.segment AND t.speed > l.fastest"
    )
    assert answers(tmp_path, sql) == [{"speed": 70, "fastest": 55}, {"speed": 80, "fastest": 65}]


def test_an_integer_of_a_stream_finds_a_real_of_a_relation(tmp_path: Path) -> None:
    sql = (
        "SELECT t.speed, x.name FROM traffic AS t, (SELECT segment + 49.0 AS code, name FROM places) AS x, "
        "(SELECT p.name, l.fastest FROM (SELECT segment * 1.0 AS segment, name FROM places) AS p, limits AS l "
        "WHERE p.segment = l.segment) AS y WHERE t.speed = x.code AND x.name = y.name"
    )
    assert answers(tmp_path, sql) == [{"speed": 50, "name": "bridge"}]


def test_windows_stand_above_lookups(tmp_path: Path) -> None:
    sql = (
        "SELECT p.segment, COUNT(*) AS tuples, MAX(t.speed) AS fastest "
        "FROM places AS p, traffic AS t WINDOW(RANGE 1 SECOND SLIDE 1 SECOND) "
        "WHERE t.sensor = p.sensor AND t.speed > 50 GROUP BY p.segment"
    )
    found = sorted(answers(tmp_path, sql, parts=2), key=lambda row: row["segment"])
    assert found == [
        {"segment": 1, "tuples": 1, "fastest": 70},
        {"segment": 2, "tuples": 2, "fastest": 80},
        {"segment": 3, "tuples": 1, "fastest": 70},
    ]


def test_a_computed_value_is_looked_up_at_the_start_of_its_row(tmp_path: Path) -> None:
    sql = (
        "SELECT s.sensor, s.mean, p.name FROM "
        "(SELECT sensor, AVG(speed) AS mean FROM traffic WINDOW(RANGE 1 SECOND SLIDE 1 SECOND) GROUP BY sensor) AS s, "
        "places AS p WHERE s.sensor = p.sensor"
    )
    found = sorted((row["sensor"], row["mean"], row["name"] or "") for row in answers(tmp_path, sql))
    assert found == [("a", 60.0, "old bridge"), ("a", 60.0, "ramp"), ("c", 80.0, "")]


def test_a_relation_that_cannot_be_read_is_an_error_of_its_queries_only(tmp_path: Path) -> None:
    sql = {
        "q": "SELECT t.speed, p.name FROM traffic AS t, places AS p WHERE t.sensor = p.sensor",
        "w": "SELECT t.speed FROM traffic AS t",
    }
    run = Run(tmp_path, Plan(1, queries(**sql)))
    run.change(PLACES, FIRST, 0)
    versions = RelationVersions(tmp_path / "relations" / PLACES.identity)
    versions.commit_failure("relation places has been stale for 5 minutes", {"traffic": 15})
    run.append(ROWS[:2], 21)
    run.step()
    assert run.errors == {"q": ["relation places has been stale for 5 minutes"]}
    assert [row["speed"] for _, _, row in run.rows["w"]] == [50, 60]
    run.append([(22, "a", 1)], 23)
    run.step()
    assert len(run.errors["q"]) == 1, "reported once"
    versions.commit_failure("", {"traffic": 25})
    run.append(ROWS[2:], 41)
    run.step()
    assert [row["speed"] for _, _, row in run.rows["q"]] == [50, 70, 75], (
        "what was sampled before the error is answered"
    )


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "in three steps"])
def test_an_error_below_a_window_or_above_it_loses_no_other_row(tmp_path: Path, *, waits: bool) -> None:
    """Windows end at 1 s, 2 s, 3 s; places cannot be read from 1.5 s until 2.5 s."""
    second = 1_000_000
    mean = "SELECT sensor, COUNT(*) AS n FROM traffic WINDOW(RANGE 1 SECOND SLIDE 1 SECOND) GROUP BY sensor"
    sql = {
        "above": f"SELECT s.n, p.name FROM ({mean}) AS s, places AS p WHERE s.sensor = p.sensor",
        "below": "SELECT COUNT(*) AS n FROM traffic AS t WINDOW(RANGE 1 SECOND SLIDE 1 SECOND), places AS p "
        "WHERE t.sensor = p.sensor",
    }
    run = Run(tmp_path, Plan(1, queries(**sql)))
    run.change(PLACES, FIRST, 0)
    versions = RelationVersions(tmp_path / "relations" / PLACES.identity)
    versions.commit_failure("relation places has been stale for 5 minutes", {"traffic": 3 * second // 2})
    versions.commit_failure("", {"traffic": 5 * second // 2})
    stamps = [number * second // 10 for number in range(40)]
    for first in range(0, 40, 13) if waits else (0,):
        rows = [(stamp, "a", 50) for stamp in stamps[first : first + (13 if waits else 40)]]
        run.append(rows, rows[-1][0] + 1)
        run.step()
    run.append([(10 * second, "z", 1)], 10 * second + 1)
    run.step()
    assert all("has been stale" in error for error in (*run.errors["above"], *run.errors["below"]))
    found = {name: [(start + 1) // second for start, _, _ in rows] for name, rows in run.rows.items()}
    counts = {name: [row["n"] for _, _, row in rows] for name, rows in run.rows.items()}
    assert (found["above"], counts["above"]) == ([1, 3, 4], [10, 10, 10]), "only the row that begins at 2 s is an error"
    assert (found["below"], counts["below"]) == ([1, 2, 3, 4], [10, 5, 5, 10]), "what was not looked up is not counted"


def test_queries_that_differ_in_conditions_only_share_the_lookup(tmp_path: Path) -> None:
    text = "SELECT t.speed, p.name FROM traffic AS t, places AS p WHERE t.sensor = p.sensor AND p.segment = {}"
    plan = Plan(1, queries(**{f"q{number}": text.format(number) for number in range(1, 4)}))
    assert len(lower(plan).fragments) == 1
    run = Run(tmp_path, plan)
    run.change(PLACES, FIRST, 0)
    run.append(ROWS, 41)
    run.step()
    found = {name: [row["speed"] for _, _, row in rows] for name, rows in run.rows.items()}
    assert found == {"q1": [50, 70], "q2": [60, 75]}


def test_queries_that_select_other_columns_share_the_lookup(tmp_path: Path) -> None:
    plan = Plan(
        1,
        queries(
            q1="SELECT t.speed, p.name FROM traffic AS t, places AS p WHERE t.sensor = p.sensor AND t.speed < 60",
            q2="SELECT x.segment FROM traffic AS u JOIN places AS x ON x.sensor = u.sensor WHERE x.segment > 1",
            q3="SELECT MAX(t.speed) AS fastest FROM traffic AS t WINDOW(RANGE 1 SECOND SLIDE 1 SECOND), places AS p "
            "WHERE p.sensor = t.sensor GROUP BY p.segment",
        ),
    )
    nodes = (node for fragment in lower(plan).fragments for node in fragment.nodes)
    assert len({node.operation for node in nodes if isinstance(node.operation, Lookup)}) == 1
    run = Run(tmp_path, plan)
    run.change(PLACES, FIRST, 0)
    run.append(ROWS, 2_000_000)
    run.step()
    assert [row for _, _, row in run.rows["q1"]] == [{"speed": 50, "name": "bridge"}]
    assert [row for _, _, row in run.rows["q2"]] == [{"segment": 2}, {"segment": 2}]
    assert {row["fastest"] for _, _, row in run.rows["q3"]} == {70, 75}


LARGE = frozenset({PLACES.identity})


@pytest.mark.parametrize(
    ("kind", "sql", "expected"),
    [
        (
            "inner",
            "SELECT t.speed, p.name FROM traffic AS t, places AS p WHERE t.sensor = p.sensor AND p.segment < 3",
            [(50, "bridge"), (60, "tunnel"), (70, "old bridge"), (80, None)],
        ),
        (
            "left",
            "SELECT t.speed, p.name FROM traffic AS t LEFT JOIN places AS p ON p.sensor = t.sensor AND p.segment < 3",
            [(50, "bridge"), (60, "tunnel"), (70, "old bridge"), (75, None), (80, None), (1, None)],
        ),
        ("semi", "SELECT speed FROM traffic WHERE sensor IN (SELECT sensor FROM places)", [50, 60, 70, 80]),
        (
            "anti",
            "SELECT speed FROM traffic AS t WHERE NOT EXISTS (SELECT * FROM places AS p WHERE p.sensor = t.sensor)",
            [75, 1],
        ),
        (
            "windowed",
            (
                "SELECT MAX(t.speed) AS fastest FROM traffic AS t WINDOW(RANGE 1 SECOND SLIDE 1 SECOND), places AS p "
                "WHERE p.sensor = t.sensor"
            ),
            [80],
        ),
    ],
)
@pytest.mark.parametrize("spread", [False, True], ids=["next to the scan", "spread by key"])
def test_a_relation_beyond_memory(tmp_path: Path, kind: str, sql: str, expected: list[Any], *, spread: bool) -> None:
    node = plan_node(sql, LARGE) if spread else plan_node(sql)
    (fragment,) = lower(Plan(1, (PlannedQuery("q", 1, node),))).fragments
    spreads = {
        (each.operation.spread, each.operation.by) for each in fragment.nodes if isinstance(each.operation, Exchange)
    }
    assert (("lookup", ("sensor",)) in spreads) is (spread and kind != "windowed")
    assert fragment.spread is (spread and kind != "windowed")
    found = answers(tmp_path, node, memory_bytes=10)
    rows = [tuple(row.values()) if len(row) > 1 else next(iter(row.values())) for row in found]
    assert sorted(rows, key=str) == sorted(expected, key=str)
    slices = list((tmp_path / "relations" / PLACES.identity).glob("*-by-*"))
    assert len(slices) == 2


def test_a_relation_beyond_memory_needs_a_key(tmp_path: Path) -> None:
    sql = "SELECT t.speed FROM traffic AS t, places AS p WHERE t.speed > p.segment"
    run = Run(tmp_path, Plan(1, queries(q=sql)), relation_memory_bytes=10)
    run.change(PLACES, FIRST, 0)
    run.append(ROWS, 41)
    run.step()
    (error,) = set(run.errors["q"])
    assert "is larger than the 10 bytes" in error


def test_lookups_that_only_filter_come_first(tmp_path: Path) -> None:
    sql = (
        "SELECT t.speed, p.name FROM traffic AS t, places AS p WHERE t.sensor = p.sensor AND p.segment > 1 "
        "AND EXISTS (SELECT * FROM limits AS l WHERE l.fastest < t.speed)"
    )
    (fragment,) = lower(Plan(1, queries(q=sql))).fragments
    lookups = [node.operation for node in fragment.next_to_scan if isinstance(node.operation, Lookup)]
    assert [each.table.kind for each in lookups] == ["semi", "inner"]
    assert [row["speed"] for row in answers(tmp_path, sql)] == [60, 70, 80]


@pytest.mark.parametrize("memory_bytes", [2**30, 10], ids=["whole", "sliced"])
def test_columns_that_came_later_are_null_in_older_versions(tmp_path: Path, memory_bytes: int) -> None:
    sql = "SELECT t.speed, p.name FROM traffic AS t, places AS p WHERE t.sensor = p.sensor"
    run = Run(tmp_path, Plan(1, queries(q=sql)), relation_memory_bytes=memory_bytes)
    older = relation_rows(PLACES, FIRST).drop("name")
    versions = RelationVersions(tmp_path / "relations" / PLACES.identity)
    versions.prepare(older)
    versions.commit(older, {})
    run.change(PLACES, SECOND, 25)
    run.append(ROWS, 41)
    run.step()
    found = sorted((row["speed"], row["name"]) for _, _, row in run.rows["q"] if row["speed"] < 75)
    assert found == [(50, None), (60, None), (70, "old bridge"), (70, "ramp")]
