"""Queries over minus zero, infinity and the ends of the types answer the same however their streams are cut."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.oracle.running import all_at_once, one_by_one, run_plan

T = StreamSchema("t", (Field("k", FieldType.TEXT), Field("r", FieldType.REAL), Field("n", FieldType.INTEGER)))
U = StreamSchema("u", (Field("q", FieldType.REAL),))
CATALOG = Catalog.of([T, U])
STREAMS = {
    "t": [
        (1, ("a", -0.0, 1)), (1, ('"', 0.0, 2)), (2, ("a", 1e308, 3)), (3, ("", 1e308, 2**53)), (4, ("b", math.nan, 5)),
        (4, ("a", -math.inf, 6)), (5, ("ß", -1e308, 2**53 + 1)), (6, ("b", 0.0, -(2**63))), (6, ("c", -0.0, None)),
    ],
    "u": [(1, (0.0,)), (1, (-0.0,)), (2, (1e308,)), (4, (math.inf,)), (5, (-1e308,)), (6, (0.0,))],
}  # fmt: skip
WINDOW = "WINDOW(RANGE 10 US SLIDE 10 US)"


def answers(sql: str) -> Counter[tuple[str, ...]]:
    """The rows of a query, without intervals; where a zero is minus zero, that can be seen."""
    node = translate(sql, CATALOG).node
    names = {stream for stream in STREAMS if f" {stream} " in f"{sql} "}
    found = []
    for plan in (node, rewrite(node).node):
        for cut in (all_at_once, one_by_one):
            rows = run_plan(plan, cut({name: STREAMS[name] for name in sorted(names)}))
            found.append(Counter(tuple(map(repr, row[2:])) for row in rows))
    assert found == [found[0]] * 4
    return found[0]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (f"SELECT r, COUNT(*) AS c FROM t {WINDOW} GROUP BY r", {(0.0, 4), (1e308, 2), (None, 2), (-1e308, 1)}),
        (f"SELECT -r AS m, COUNT(*) AS c FROM t {WINDOW} GROUP BY -r", {(0.0, 4), (-1e308, 2), (None, 2), (1e308, 1)}),
        (f"SELECT DISTINCT r FROM t {WINDOW}", {(0.0,), (1e308,), (None,), (-1e308,)}),
        (f"SELECT COUNT(DISTINCT r) AS c, MIN(r) AS a, MAX(r * 0) AS z FROM t {WINDOW}", {(3, -1e308, 0.0)}),
        (f"SELECT SUM(r) AS s, AVG(r) AS a, COUNT(r) AS c FROM t {WINDOW}", {(1e308, 1e308 / 7, 7)}),
        (f"SELECT SUM(ABS(r)) AS s, AVG(ABS(r)) AS a FROM t {WINDOW}", {(None, 3 * (1e308 / 7))}),
        (f"SELECT SUM(r * 10) AS s, COUNT(r * 10) AS c, MAX(r * 10) AS m FROM t {WINDOW}", {(0.0, 4, 0.0)}),
        (f"SELECT FIRST(r) AS f, LAST(r) AS l FROM t {WINDOW}", {(0.0, 0.0)}),
        ("SELECT n, r * 10 AS x FROM t WHERE r * 10 > 5", set()),
        ("SELECT n FROM t WHERE NOT (r * 10 > 5)", {(1,), (2,), (-(2**63),), (None,)}),
        ("SELECT k FROM t WHERE r * 10 IS NULL AND NOT r IS NULL", {("a",), ("",), ("ß",)}),
        ("SELECT k FROM t WHERE r IN (-0.0, 3)", {("a",), ('"',), ("b",), ("c",)}),
        ("SELECT k FROM t WHERE 1 / r IS NULL", {("a",), ('"',), ("b",), ("c",)}),
        ("SELECT CAST(r AS TEXT) AS x FROM t WHERE n < 3", {("0.0",)}),
        ("SELECT k FROM t WHERE n = 9007199254740992.0", {("",), ("ß",)}),
        ("SELECT k FROM t WHERE n = 9007199254740992", {("",)}),
        ("SELECT k FROM t WHERE n = -9223372036854775808", {("b",)}),
        ("SELECT k FROM t WHERE n * 2 = 0", {("b",)}),
        ("SELECT UPPER(k) AS x FROM t WHERE LENGTH(k) = 1 AND r < 0", {("SS",)}),
        (
            f"SELECT COUNT(CASE WHEN k = '\"' THEN 1 END) AS a, COUNT(CASE WHEN k = '' THEN 1 END) FROM t {WINDOW}",
            {(1, 1)},
        ),
        (f"SELECT t.n % 2 AS p, COUNT(*) AS c FROM t {WINDOW} WHERE n < 9 GROUP BY n % 2", {(1, 3), (0, 3)}),
        (f"SELECT r FROM t {WINDOW} INTERSECT SELECT q FROM u {WINDOW}", {(0.0,), (1e308,), (None,), (-1e308,)}),
        (f"SELECT r FROM t {WINDOW} EXCEPT SELECT q FROM u {WINDOW}", set()),
        (f"SELECT DISTINCT q FROM t {WINDOW} , u {WINDOW} WHERE r = q", {(0.0,), (1e308,), (-1e308,)}),
        (f"SELECT k FROM t {WINDOW} WHERE r IN (SELECT q FROM u {WINDOW} WHERE q < 1)",
         {("a",), ('"',), ("b",), ("c",), ("ß",)}),
        ("SELECT r, q FROM t ZIP JOIN u ON r = q", {(0.0, 0.0), (1e308, 1e308), (-1e308, -1e308)}),
    ],
)  # fmt: skip
def test_queries_over_extreme_values_answer_the_same_however_streams_are_cut(
    sql: str, expected: set[tuple[object, ...]]
) -> None:
    found = answers(sql)
    assert not any("-0.0" in row or "nan" in row or "inf" in row for row in found)
    assert set(found) == {tuple(map(repr, row)) for row in expected}


def test_a_partition_of_zeros_is_one() -> None:
    node = translate("SELECT k FROM t WINDOW(PARTITION BY r ROWS 2)", CATALOG).node
    for cut in (all_at_once, one_by_one):
        rows = run_plan(node, cut({"t": STREAMS["t"]}))
        ended = {row[2] for row in rows if row[1] < 2**40}
        assert {"a", '"'} <= ended
