"""Zipper joins in whole queries: text, rewriting, edges and operators answer what the definition says."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.fjord.acceptance import check_supported
from cluster.language.catalog import StaticRelation
from cluster.language.errors import FjordSqlError
from cluster.language.translation import translate
from cluster.operators.columns import Column
from cluster.physical.errors import UnsupportedPlanError
from cluster.plan.demand import demands_of
from cluster.plan.explain import explain
from cluster.plan.rewrite import rewrite
from tests.cluster.oracle.comparison import snapshots_of
from tests.cluster.oracle.definition import Streams
from tests.cluster.oracle.running import deliveries, run_plan
from tests.cluster.plan.two_stream_queries import (
    CATALOG,
    INTEGER,
    MANY,
    STREAMS,
    check_answers,
    check_any_arrival,
)
from tests.cluster.zip_definition import zip_rows

INSTANTS = 40

QUERIES = [
    "SELECT * FROM a ZIP JOIN b",
    "SELECT a.y, b.y, apart_us FROM a ZIP JOIN b WITHIN 3 US ON a.x = b.x",
    "SELECT a.y AS l, b.y AS r FROM a FULL ZIP JOIN b WITHIN 4 US ON a.x = b.x",
    "SELECT a.x, apart_us FROM a LEFT ZIP JOIN b WITHIN 1 US TO 5 US WHERE apart_us IS NULL OR apart_us > 2",
    "SELECT a.x, b.y FROM a LEFT ZIP JOIN b WITHIN -6 US TO -2 US ON a.x = b.x WHERE a.x > 0 AND a.y < 2",
    "SELECT b.y FROM a ZIP JOIN b WITHIN 0 US TO 3 US ON a.x = b.x AND a.y = b.y WHERE b.x <= a.y",
    "SELECT b.x, COUNT(*) AS n, MAX(apart_us) AS m FROM a FULL ZIP JOIN b WITHIN 2 US ON b.x = a.x GROUP BY b.x",
    (
        "SELECT k, COUNT(*) AS n FROM (SELECT a.x AS k FROM a ZIP JOIN b WITHIN 3 US ON a.x = b.x) AS pairs"
        " WINDOW(RANGE 5 US SLIDE 2 US) GROUP BY k"
    ),
    "SELECT u.x, d.y FROM (SELECT x FROM a WHERE y > 0) u ZIP JOIN (SELECT y FROM b WHERE x > 0) d WITHIN 3 US",
    "SELECT u.y, d.y FROM a AS u FULL ZIP JOIN a AS d WITHIN 1 US TO 4 US ON u.x = d.x",
    "SELECT u.y, w.x FROM a u ZIP JOIN b d WITHIN 2 US, b w WINDOW(RANGE 3 US) WHERE u.x = w.x",
    "SELECT i.x, b.y FROM ISTREAM(a WINDOW(RANGE 4 US)) AS i ZIP JOIN b WITHIN 3 US ON i.x = b.x",
    "SELECT x FROM a WHERE x IN (SELECT b.x FROM b ZIP JOIN a AS c WITHIN 2 US)",
]


# A few of each; the oracle draws zipper joins without end (`make oracle`).
@pytest.mark.parametrize("text", QUERIES)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(streams=STREAMS, seed=st.integers(0, 2**32))
def test_zip_joins_answer_as_defined_before_and_after_rewriting(text: str, streams: Streams, seed: int) -> None:
    check_answers(text, streams, seed, INSTANTS)


@settings(max_examples=100, deadline=None)
@given(a=MANY, b=MANY, seed=st.integers(0, 2**32))
def test_equal_stamps_are_paired_whatever_the_order_of_arrival(a: Any, b: Any, seed: int) -> None:
    check_any_arrival(QUERIES[2], a, b, seed, INSTANTS)


CHOSEN = "SELECT a.y AS y FROM a ZIP JOIN b"
READINGS = {
    "what is selected": (CHOSEN, -1),
    "a condition on it": (f"{CHOSEN} WHERE a.y > -5", -1),
    "a condition on both sides": (f"{CHOSEN} WHERE a.y <= b.y", -1),
    "a condition on a subquery": (f"SELECT y FROM ({CHOSEN}) AS found WHERE y > -5", -1),
    "what a subquery has in vain": (
        "SELECT y FROM (SELECT a.x, a.y FROM a ZIP JOIN b WHERE a.y <= b.y) AS found",
        -1,
    ),
    "all, of which few are read": ("SELECT y FROM (SELECT a.*, b.x AS z FROM a ZIP JOIN b) AS found", -1),
    "groups": (f"SELECT MAX(y) AS y FROM ({CHOSEN} WHERE a.y > -5) AS found WINDOW(RANGE 1 US)", -1),
    "unmatched tuples": ("SELECT a.y FROM a LEFT ZIP JOIN b WHERE apart_us IS NULL", 2),
    "another zipper join": ("SELECT a.y FROM a ZIP JOIN b ZIP JOIN b AS c WHERE c.x < 9", -1),
    "another column in the condition": (f"{CHOSEN} WHERE a.x > 0", 2),
    "another column that is selected": ("SELECT a.y AS y, a.x FROM a ZIP JOIN b", 2),
    "a condition that holds anyhow": (f"{CHOSEN} WHERE TRUE OR a.x > 0", 2),
}
"""By what the query reads: its text, and y of the tuple of (1, 2) and (3, -1), x before y, that is in the answer."""


@pytest.mark.parametrize("case", READINGS)
def test_of_equal_stamps_the_first_is_chosen_by_what_the_query_reads_not_by_how_it_is_planned(case: str) -> None:
    text, chosen = READINGS[case]
    streams: Streams = {"a": [(7, (1, 2)), (7, (3, -1))], "b": [(7, (5, 5))]}
    node = rewrite(translate(text, CATALOG).node).node
    assert rewrite(node).node == node
    rows = run_plan(node, deliveries(streams, random.Random(1)))
    assert [next(iter(bag))[0] for bag in snapshots_of(rows, INSTANTS) if +bag] == [chosen]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    a=MANY,
    b=MANY,
    selected=st.lists(st.sampled_from(["a.x", "a.y", "b.x", "b.y"]), min_size=1, max_size=3, unique=True),
    asked=st.sets(st.sampled_from(["a.x", "a.y", "b.x", "b.y"])),
    keys=st.sampled_from(["", " ON a.x = b.x"]),
    kind=st.sampled_from(["", "LEFT", "FULL"]),
    nested=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_pairs_depend_on_the_columns_that_are_read_and_on_nothing_else(
    a: Any, b: Any, selected: list[str], asked: set[str], keys: str, kind: str, nested: bool, seed: int
) -> None:
    """Columns are read by SELECT or by a condition that always holds; those of a subquery in vain are not."""
    condition = " AND ".join(f"({each} IS NULL OR {each} > -99)" for each in sorted(asked)) or "1 = 1"
    outputs = ", ".join(f"{each} AS c{place}" for place, each in enumerate(selected))
    vain = ", a.x AS v, b.y AS w" if nested else ""
    text = f"SELECT {outputs}{vain} FROM a {kind} ZIP JOIN b WITHIN 2 US{keys} WHERE {condition}"
    if nested:
        text = f"SELECT {', '.join(f'c{place}' for place in range(len(selected)))} FROM ({text}) AS found"
    read = {*selected, *asked, *(("a.x", "b.x") if keys else ())}
    names = [[name for name in (f"{side}.x", f"{side}.y") if name in read] for side in "ab"]
    sides = [
        [(at, tuple(dict(zip((f"{side}.x", f"{side}.y"), row, strict=True))[name] for name in own)) for at, row in rows]
        for side, rows, own in zip("ab", (a, b), names, strict=True)
    ]

    def key_of(row: tuple[Any, ...]) -> tuple[Any, ...]:
        return row[:1] if keys else ()

    form = {"": "inner", "LEFT": "left", "FULL": "full"}[kind]
    meant = zip_rows(*sides, (key_of, key_of), (-2, 2), form, (len(names[0]), len(names[1])))
    places = [[*names[0], *names[1]].index(each) for each in selected]
    rows = run_plan(rewrite(translate(text, CATALOG).node).node, deliveries({"a": a, "b": b}, random.Random(seed)))
    found = [+bag for bag in snapshots_of(rows, INSTANTS)]
    wanted = [Counter(tuple(row[place] for place in places) for t, row in meant if t == at) for at in range(INSTANTS)]
    assert found == wanted


def test_sensors_are_asked_for_what_is_read_and_for_keys() -> None:
    text = "SELECT a.y FROM a ZIP JOIN b WITHIN 1 SECOND ON a.x = b.x WHERE a.y > 3 AND a.x = 2"
    demands = demands_of("q", rewrite(translate(text, CATALOG).node).node)
    ((of_a,), (of_b,)) = demands["a"], demands["b"]
    assert (of_a.fields, of_b.fields) == (("x", "y"), ("x",))
    bands = [[(band.field, band.low, band.high) for band in demand.bands] for demand in (of_a, of_b)]
    assert bands == [[("x", 2.0, 2.0)]] * 2, "a tuple with another y may be the partner of one that b has"


def test_a_window_above_pairs_is_no_window_over_what_lasts() -> None:
    pairs = "SELECT a.x FROM a ZIP JOIN b WITHIN 1 HOUR"
    check_supported(translate(f"SELECT COUNT(*) AS n FROM ({pairs}) AS p WINDOW(RANGE 1 DAY)", CATALOG).node)
    lasting = "SELECT MAX(x) AS x FROM a WINDOW(RANGE 1 DAY SLIDE 1 HOUR)"
    with pytest.raises(UnsupportedPlanError):
        check_supported(translate(f"SELECT COUNT(*) AS n FROM ({lasting}) AS p WINDOW(RANGE 1 DAY)", CATALOG).node)


def test_relations_are_looked_up_by_pairs_and_before_but_never_zipped() -> None:
    catalog = CATALOG.with_stream(StaticRelation("r", "r@1", (Column("k", INTEGER),)))
    before = "FROM (SELECT a.x, k FROM a, r WHERE a.x = k) AS found ZIP JOIN b WITHIN 3 US ON found.x = b.y"
    behind = "FROM a LEFT ZIP JOIN b WITHIN 3 US ON a.x = b.x LEFT JOIN r ON b.y = k"
    for text in (before, behind):
        check_supported(rewrite(translate(f"SELECT k {text}", catalog).node).node)
    shown = explain(rewrite(translate(f"SELECT k {behind}", catalog).node).node)
    assert "look up in r on y_2 = k, or NULLs\n   └─ left zip within 3us on x = x_2" in shown
    with pytest.raises(FjordSqlError, match="the rows of a relation have none"):
        translate("SELECT k FROM a ZIP JOIN r", catalog)
