"""ASOF joins and joins WITHIN a time in whole queries: text, rewriting and operators answer as defined."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.fjord.acceptance import check_supported
from cluster.language.catalog import StaticRelation
from cluster.language.errors import FjordSqlError
from cluster.language.translation import translate
from cluster.operators import StampJoin
from cluster.operators.columns import Column
from cluster.operators.walks import nodes_of
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

INSTANTS = 45

QUERIES = [
    "SELECT * FROM a ASOF JOIN b",
    "SELECT a.y, b.y FROM a ASOF JOIN b ON a.x = b.x",
    "SELECT a.y AS l, b.y AS r FROM a ASOF LEFT JOIN b WITHIN 4 US ON a.x = b.x",
    "SELECT a.x, b.y FROM a ASOF LEFT OUTER JOIN b ON a.x = b.x WHERE a.x > 0 AND a.y < 2 AND b.y IS NULL",
    "SELECT b.y FROM a ASOF JOIN b WITHIN 9 US ON a.x = b.x AND a.y = b.y WHERE b.x <= a.y AND b.x <> 1",
    "SELECT a.y, b.y FROM a ASOF JOIN b ON a.x = b.x WHERE b.y > 0 AND b.x + 1 > 1",
    "SELECT b.x, COUNT(*) AS n, MAX(a.y) AS m FROM a ASOF LEFT JOIN b WITHIN 6 US ON b.x = a.x GROUP BY b.x",
    (
        "SELECT k, COUNT(*) AS n FROM (SELECT a.x AS k FROM a ASOF JOIN b WITHIN 8 US ON a.x = b.x) AS pairs"
        " WINDOW(RANGE 5 US SLIDE 2 US) GROUP BY k"
    ),
    "SELECT u.x, d.y FROM (SELECT x FROM a WHERE y > 0) u ASOF INNER JOIN (SELECT y FROM b WHERE x > 0) d",
    "SELECT u.y, d.y FROM a AS u ASOF LEFT JOIN a AS d ON u.x = d.y",
    "SELECT a.y, c.y FROM a ASOF JOIN b ON a.x = b.x ASOF LEFT JOIN a AS c WITHIN 5 US ON c.x = b.y",
    "SELECT * FROM a JOIN b WITHIN 3 US ON a.x = b.x",
    "SELECT * FROM a JOIN b WITHIN 1 US TO 5 US ON a.x = b.x AND a.y < b.y WHERE a.y > 0 AND b.y < 2",
    "SELECT a.x, b.y FROM a JOIN b WITHIN -6 US TO -2 US ON TRUE WHERE a.x > 0 AND a.x + b.x < 3",
    "SELECT * FROM a LEFT JOIN b WITHIN 4 US ON a.x = b.x AND b.y > 0 WHERE a.x > 0",
    "SELECT a.y, b.y FROM a RIGHT JOIN b WITHIN 0 US TO 4 US ON a.x = b.x WHERE a.y IS NULL OR b.x < 2",
    "SELECT * FROM a RIGHT OUTER JOIN b WITHIN -3 US TO 4 US ON a.x = b.x AND a.y <= b.y",
    "SELECT a.y AS l, b.y AS r FROM a FULL JOIN b WITHIN 4 US ON a.x = b.x WHERE a.y > 0 OR b.y > 0",
    "SELECT * FROM a FULL JOIN b WITHIN 2 US TO 4 US ON a.x = b.x AND a.y <> b.y",
    "SELECT u.y, w.x FROM a u JOIN b d WITHIN 2 US ON u.y = d.y, b w WINDOW(RANGE 3 US) WHERE u.x = w.x",
    "SELECT i.x, b.y FROM ISTREAM(a WINDOW(RANGE 4 US)) AS i JOIN b WITHIN 3 US ON i.x = b.x",
    "SELECT x FROM a WHERE x IN (SELECT b.x FROM b JOIN a AS c WITHIN 2 US ON b.y = c.y)",
    "SELECT a.x, COUNT(*) AS n FROM a JOIN b WITHIN 5 US ON a.x = b.x GROUP BY a.x",
]


@pytest.mark.parametrize("text", QUERIES)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(streams=STREAMS, seed=st.integers(0, 2**32))
def test_joins_by_stamps_answer_as_defined_before_and_after_rewriting(text: str, streams: Streams, seed: int) -> None:
    check_answers(text, streams, seed, INSTANTS)


@pytest.mark.parametrize("text", [QUERIES[2], QUERIES[17]])
@settings(max_examples=60, deadline=None)
@given(a=MANY, b=MANY, seed=st.integers(0, 2**32))
def test_equal_stamps_are_joined_whatever_the_order_of_arrival(text: str, a: Any, b: Any, seed: int) -> None:
    check_any_arrival(text, a, b, seed, INSTANTS)


CHOSEN = "SELECT b.y AS y FROM a ASOF JOIN b ON STAMP(a) > STAMP(b)"
READINGS = {
    "what is selected": (CHOSEN, 2),
    "a condition on it": (f"{CHOSEN} WHERE b.y > 0", 2),
    "a condition on both sides": (f"{CHOSEN} WHERE a.y < b.y", 2),
    "a condition on a subquery": (f"SELECT y FROM ({CHOSEN}) AS found WHERE y > 0", 2),
    "what a subquery has in vain": (
        "SELECT y FROM (SELECT b.x, b.y FROM a ASOF JOIN b ON STAMP(a) > STAMP(b) WHERE a.y < b.y) AS found",
        2,
    ),
    "groups": (f"SELECT MAX(y) AS y FROM ({CHOSEN} WHERE b.y > -5) AS found WINDOW(RANGE 1 US)", 2),
    "another column in the condition": (f"{CHOSEN} WHERE b.x > 0", -1),
    "another column that is selected": ("SELECT b.y AS y, b.x FROM a ASOF JOIN b ON STAMP(a) > STAMP(b)", -1),
    "a condition that holds anyhow": (f"{CHOSEN} WHERE TRUE OR b.x > 0", -1),
}
"""By what the query reads: its text, and y of the partner: of (1, 2) and (3, -1), x before y."""


@pytest.mark.parametrize("case", READINGS)
def test_of_equal_stamps_the_partner_is_chosen_by_what_the_query_reads_not_by_how_it_is_planned(case: str) -> None:
    text, chosen = READINGS[case]
    streams: Streams = {"a": [(7, (0, 0))], "b": [(6, (1, 2)), (6, (3, -1))]}
    node = rewrite(translate(text, CATALOG).node).node
    assert rewrite(node).node == node
    rows = run_plan(node, deliveries(streams, random.Random(1)))
    assert [next(iter(bag))[0] for bag in snapshots_of(rows, INSTANTS) if +bag] == [chosen]


def test_sensors_are_asked_for_what_is_read_and_for_keys() -> None:
    bands = []
    for join in ("ASOF JOIN b", "JOIN b WITHIN 1 SECOND"):
        text = f"SELECT a.y FROM a {join} ON a.x = b.x WHERE a.y > 3 AND a.x = 2 AND b.y < 5"
        demands = demands_of("q", rewrite(translate(text, CATALOG).node).node)
        ((of_a,), (of_b,)) = demands["a"], demands["b"]
        assert (of_a.fields, of_b.fields) == (("x", "y"), ("x", "y"))
        bands.append([sorted({band.field for band in demand.bands}) for demand in (of_a, of_b)])
    assert bands == [[["x", "y"], ["x"]], [["x", "y"], ["x", "y"]]], "another y of b may hide the latest"


def test_relations_are_looked_up_by_pairs_and_before_but_have_no_stamps() -> None:
    catalog = CATALOG.with_stream(StaticRelation("r", "r@1", (Column("k", INTEGER),)))
    before = "FROM (SELECT a.x, k FROM a, r WHERE a.x = k) AS found ASOF JOIN b WITHIN 3 US ON found.x = b.y"
    behind = "FROM a LEFT JOIN b WITHIN 3 US ON a.x = b.x LEFT JOIN r ON b.y = k"
    for text in (before, behind):
        check_supported(rewrite(translate(f"SELECT k {text}", catalog).node).node)
    shown = explain(rewrite(translate(f"SELECT k {behind}", catalog).node).node)
    assert "look up in r on y_2 = k, or NULLs\n   └─ left join of stamps -3us to 3us apart on x = x_2" in shown
    for text in ("SELECT k FROM a ASOF JOIN r", "SELECT k FROM a JOIN r WITHIN 1 SECOND ON a.x = k"):
        with pytest.raises(FjordSqlError, match="the rows of a relation have none"):
            translate(text, catalog)


def bounds_of(join: str) -> tuple[int | None, int, int]:
    """Bounds of the join of a text, and how many keys it has."""
    (found,) = (
        each
        for each in nodes_of(translate(f"SELECT a.y, b.y FROM a ASOF JOIN b {join}", CATALOG).node)
        if isinstance(each, StampJoin)
    )
    return found.low_us, found.high_us, len(found.keys)


@pytest.mark.parametrize(("join", "high"), [
    ("ON a.x = b.x", 0),
    ("ON a.x = b.x AND STAMP(a) >= STAMP(b)", 0),
    ("ON STAMP(b) <= STAMP(a) AND b.x = a.x", 0),
    ("MATCH_CONDITION (STAMP(a) >= STAMP(b)) ON a.x = b.x", 0),
    ("MATCH_CONDITION (STAMP(a) > STAMP(b)) ON a.x = b.x", -1),
    ("ON STAMP(b) < STAMP(a) AND a.x = b.x", -1),
])  # fmt: skip
def test_stamps_may_be_compared_as_elsewhere(join: str, high: int) -> None:
    assert bounds_of(join) == (None, high, 1)


@pytest.mark.parametrize(("text", "reason"), [
    ("a ASOF JOIN b ON a.x = b.x AND STAMP(a) <= STAMP(b)", "takes the latest tuple that is not after the left one"),
    ("a ASOF JOIN b ON a.x = b.x AND STAMP(a) > STAMP(b) AND STAMP(a) >= STAMP(b)", "compares the stamps twice"),
    ("a ASOF JOIN b ON STAMP() >= STAMP(b)", "both sides of this join have stamps"),
    ("a ASOF JOIN b ON STAMP(c) >= STAMP(b)", "the stamp of neither side"),
    ("a ASOF JOIN b WITHIN 0 MS ON STAMP(a) > STAMP(b)", "no tuple is before another and within 0 of it"),
    ("a ASOF JOIN b WITHIN 1 S TO 2 S", "WITHIN of an ASOF join is one duration"),
    ("a ASOF JOIN b WITHIN -1 S", "is not negative"),
    ("a ASOF JOIN b ON a.x = b.x AND a.y < 3", "names only which column of the left equals which of the right"),
    ("a ASOF JOIN b MATCH_CONDITION (a.x = b.x)", "names only which column"),
    ("a ASOF JOIN b USING (x)", "a join by stamps has no USING"),
    ("a ASOF RIGHT JOIN b ON a.x = b.x", "ASOF RIGHT JOIN is not part of FjordSQL"),
    ("a LEFT ASOF JOIN b ON a.x = b.x", "LEFT stands behind ASOF"),
    ("a ASOF JOIN b WINDOW(RANGE 1 S) ON a.x = b.x", "its streams have no window"),
    ("a ASOF JOIN (SELECT x FROM b WINDOW(RANGE 1 S)) AS c ON a.x = c.x", "lasts longer than an instant"),
    ("a JOIN b WITHIN 1 S", "needs a condition"),
    ("a CROSS JOIN b WITHIN 1 S", "WITHIN bounds joins with a condition"),
    ("a JOIN b WITHIN 1 S USING (x)", "a join by stamps has no USING"),
    ("a JOIN b WITHIN 2 S TO 1 S ON a.x = b.x", "the lower bound is above the upper one"),
    ("a JOIN b WITHIN 5 ON a.x = b.x", "a duration needs a unit"),
    ("a JOIN b WITHIN 1 S ON a.x IN (SELECT x FROM b)", "a subquery cannot stand in the condition"),
    ("a WITHIN 1 S JOIN b ON a.x = b.x", "'WITHIN' was not expected here"),
    ("a JOIN b AS c WINDOW(RANGE 1 S) ON a.x = c.x ASOF JOIN b ON a.x = b.x", "not what other joins have made"),
])  # fmt: skip
def test_what_has_no_meaning_is_refused(text: str, reason: str) -> None:
    with pytest.raises(FjordSqlError) as error:
        translate(f"SELECT a.x FROM {text}", CATALOG)
    assert reason in str(error.value)


def test_the_new_words_are_still_names() -> None:
    inner = "SELECT x AS asof, y AS within, x AS stamp, y AS match_condition FROM a"
    text = f"SELECT asof, within, stamp, match_condition FROM ({inner}) AS within"
    names = [column.name for column in translate(text, CATALOG).node.schema]
    assert names == ["asof", "within", "stamp", "match_condition"]


def test_a_condition_on_stamps_without_a_window_is_warned_of() -> None:
    text = "SELECT a.x FROM a JOIN b{} ON a.x = b.x AND STAMP(a) >= STAMP(b)"
    (warning,) = translate(text.format(""), CATALOG).warnings
    assert "WITHIN 5 MINUTES" in warning
    assert translate(text.format(" WINDOW(RANGE 1 MINUTE)"), CATALOG).warnings == ()
