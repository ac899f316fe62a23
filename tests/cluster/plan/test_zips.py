"""Zipper joins in whole queries: text, rewriting, edges and operators answer what the definition says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.fjord.acceptance import check_supported
from cluster.language.catalog import StaticRelation
from cluster.language.columns import Column
from cluster.language.errors import FjordSqlError
from cluster.language.translation import translate
from cluster.physical.errors import UnsupportedPlanError
from cluster.plan.demand import demands_of
from cluster.plan.explain import explain
from cluster.plan.rewrite import rewrite
from tests.cluster.plan.snapshots import Streams
from tests.cluster.plan.two_stream_queries import (
    CATALOG,
    INTEGER,
    MANY,
    STREAMS,
    check_answers,
    check_any_arrival,
)

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
