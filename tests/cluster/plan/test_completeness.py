"""Where COMPLETENESS() can be asked for, and what it asks of proxies."""

from __future__ import annotations

import pytest

from cluster.errors import PlanError
from cluster.fjord.acceptance import check_supported
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.operators import Node
from cluster.physical.lowering import lower
from cluster.plan.demand import demands_of
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from protocols.wire.demands import QueryDemand
from protocols.wire.streams import Field, FieldType, StreamSchema

TRAFFIC = StreamSchema(
    "traffic",
    (
        Field("sensor", FieldType.TEXT, fixed=True),
        Field("lane", FieldType.INTEGER),
        Field("speed", FieldType.REAL, "mph"),
    ),
)
WINDOW = "WINDOW(RANGE 2 MINUTES SLIDE 1 MINUTE)"
SEEN = f"SELECT sensor, AVG(speed) AS v, COMPLETENESS() AS c FROM traffic {WINDOW} GROUP BY sensor"


def plan(sql: str) -> Node:
    return rewrite(translate(sql, Catalog.of([TRAFFIC])).node).node


def demand(sql: str) -> QueryDemand:
    (found,) = demands_of("q", plan(sql))["traffic"]
    return found


@pytest.mark.parametrize("sql", [
    SEEN,
    f"SELECT COMPLETENESS() AS c FROM traffic {WINDOW}",
    f"SELECT sensor FROM traffic {WINDOW} WHERE speed > lane GROUP BY sensor HAVING COMPLETENESS() > 0.5",
    f"SELECT COUNT(*) AS n, COMPLETENESS() AS c FROM traffic EVENTS(speed ABOVE 60) {WINDOW}",
    f"SELECT UPPER(sensor) AS s, MEDIAN(speed) AS m, COMPLETENESS() AS c FROM traffic {WINDOW} GROUP BY s",
])  # fmt: skip
def test_windowed_aggregates_of_one_stream_may_ask(sql: str) -> None:
    check_supported(plan(sql))
    assert demand(sql).completeness is not None


@pytest.mark.parametrize(("sql", "reason"), [
    ("SELECT COMPLETENESS() AS c FROM traffic", "windowed aggregate"),
    ("SELECT COMPLETENESS() AS c FROM traffic WINDOW(RANGE 1 HOUR)", "windowed aggregate"),
    ("SELECT COMPLETENESS() AS c FROM traffic WINDOW(ROWS 10)", "windowed aggregate"),
    (f"SELECT COMPLETENESS() AS c FROM traffic a {WINDOW}, traffic b {WINDOW}", "windowed aggregate"),
    (f"SELECT COMPLETENESS() AS c FROM (SELECT sensor FROM traffic) AS t {WINDOW} GROUP BY sensor", None),
    (f"SELECT MAX(c) AS m FROM ({SEEN}) AS t {WINDOW}", "windowed aggregate"),
    (f"{SEEN} UNION ALL {SEEN.replace('2 MIN', '4 MIN')}", "windowed aggregate"),
    (f"SELECT lane, COMPLETENESS() AS c FROM traffic {WINDOW} GROUP BY lane", "groups by lane"),
    (f"SELECT COMPLETENESS() AS c FROM traffic {WINDOW} GROUP BY speed > 3, sensor", "groups by speed > 3"),
    ("SELECT COMPLETENESS() AS c FROM traffic WINDOW(RANGE 366 DAYS SLIDE 366 DAYS)", None),
    ("SELECT COMPLETENESS() AS c FROM traffic WINDOW(RANGE 367 DAYS SLIDE 367 DAYS)", "at most 366 DAYS"),
])  # fmt: skip
def test_elsewhere_it_is_refused_with_a_way_out(sql: str, reason: str | None) -> None:
    node = plan(sql)
    if reason is None:
        check_supported(node)
        return
    with pytest.raises(PlanError, match=reason) as caught:
        check_supported(node)
    assert caught.value.hint


def test_it_leaves_everything_else_of_a_demand_as_it_is() -> None:
    without = demand(SEEN.replace(", COMPLETENESS() AS c", ""))
    asked = demand(SEEN)
    assert asked.panes == without.panes
    assert asked.fields == without.fields
    assert asked.completeness is not None
    assert asked.completeness.pane_us == 60_000_000


def test_queries_that_get_the_same_samples_share_a_fingerprint() -> None:
    def form(sql: str) -> str:
        counted = demand(sql).completeness
        assert counted is not None
        return counted.fingerprint

    assert form(SEEN) == form(SEEN.replace("AVG(speed)", "MAX(lane) + COUNT(*)"))
    assert form(SEEN) == form(SEEN.replace("GROUP BY", "WHERE sensor = 'a' GROUP BY")), "motes are chosen apart"
    assert form(SEEN) == form(SEEN.replace("2 MINUTES", "4 MINUTES")), "panes are the same"
    others = [
        SEEN.replace("2 MINUTES SLIDE 1", "4 MINUTES SLIDE 2"),
        SEEN + " SAMPLE EVERY 1 SECOND",
        SEEN.replace("GROUP BY", "WHERE speed < 20 GROUP BY"),
        SEEN.replace("AVG", "MEDIAN"),
        SEEN.replace("AVG(speed)", "AVG(speed WITHIN 1)"),
    ]
    assert len({form(each) for each in (SEEN, *others)}) == 6


def test_a_query_with_completeness_shares_panes_but_no_rows_with_others() -> None:
    sqls = [SEEN, SEEN.replace(", COMPLETENESS() AS c", ""), SEEN.replace("2 MINUTES", "4 MINUTES")]
    queries = [PlannedQuery(f"q{number}", number, plan(sql)) for number, sql in enumerate(sqls, 1)]
    (fragment,) = lower(Plan(3, tuple(queries))).fragments
    asking, not_asking, too = (each.group for each in fragment.subscribers)
    assert asking == too != not_asking
