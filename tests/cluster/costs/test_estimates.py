"""Estimates of plans beside what the engine answers, over streams that are as assumed; and their text."""

from __future__ import annotations

import math
import random

import pytest

from cluster.costs.estimate_text import Measured, estimate_text, totals_words
from cluster.costs.estimates import Estimate, estimates_of, totals_of
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.operators import Aggregate, Filter, Join, Node, TimeWindow
from cluster.operators.characteristics import Characteristics
from cluster.operators.walks import nodes_of
from cluster.plan.rewrite import rewrite
from cluster.testing.query_run import QueryRun
from cluster.testing.sources import ScriptedSource
from protocols.wire.streams import Field, FieldType, StreamSchema

READINGS = StreamSchema("readings", (Field("k", FieldType.INTEGER), Field("x", FieldType.REAL)))
OTHERS = StreamSchema("others", READINGS.fields)
CATALOG = Catalog.of([READINGS, OTHERS])
SECOND_US = 1_000_000
SECONDS = 60
RATE = 200.0
KEYS = 1_000


def _plan(text: str) -> Node:
    return rewrite(translate(text, CATALOG).node).node


def _estimate(text: str, kind: type[Node] | None = None, rate: float = RATE) -> Estimate:
    plan = _plan(text)
    found = estimates_of(plan, {"readings": rate, "others": rate})
    return found[plan if kind is None else next(each for each in nodes_of(plan) if isinstance(each, kind))]


def _measured(text: str, after_s: float) -> tuple[float, float]:
    """Return the rows that begin per second, once windows are full, and how long they are valid on average, in us."""
    streams = {name: _stream(seed) for seed, name in enumerate(("readings", "others")) if name in text}
    answers = QueryRun(text, streams).run()
    kept = [each for each in answers if after_s * SECOND_US <= each.start < (SECONDS - 10) * SECOND_US]
    lengths = [each.end - each.start for each in kept if each.end is not None]
    return len(kept) / (SECONDS - 10 - after_s), sum(lengths) / len(lengths)


def _stream(seed: int) -> ScriptedSource:
    dice = random.Random(seed)
    script, now = [], 0.0
    while now < SECONDS:
        now += dice.expovariate(RATE)
        script.append((int(now * SECOND_US), {"k": dice.randrange(KEYS), "x": dice.random()}))
    return ScriptedSource({"k": int, "x": float}, script, batch_size=5_000)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) AS n FROM readings WINDOW(RANGE 5 SECONDS)",
        "SELECT COUNT(*) AS n FROM readings WINDOW(RANGE 5 SECONDS) GRANULARITY(100 MILLISECONDS)",
        "SELECT AVG(x) AS n FROM readings WINDOW(RANGE 10 SECONDS SLIDE 2 SECONDS)",
        "SELECT k, COUNT(*) AS n FROM readings WINDOW(RANGE 10 SECONDS) GROUP BY k",
        "SELECT k, COUNT(*) AS n FROM readings WINDOW(RANGE 10 SECONDS SLIDE 1 SECOND) GROUP BY k",
        "SELECT a.k, b.x FROM readings a WINDOW(RANGE 10 SECONDS), others b WINDOW(RANGE 5 SECONDS) WHERE a.k = b.k",
        "SELECT MAX(x) AS x FROM readings WINDOW(ROWS 50)",
        "SELECT k, x, x - LAG(x) OVER (PARTITION BY k) AS rise FROM readings",
    ],
)
def test_what_the_engine_answers_is_near_what_is_expected(text: str) -> None:
    expected = _estimate(text)
    rate, validity_us = _measured(text, 11)
    assert expected.flow is not None
    assert rate == pytest.approx(expected.rows_per_second, rel=0.1)
    assert validity_us == pytest.approx(expected.flow.validity, rel=0.1)


def test_each_condition_takes_its_share() -> None:
    either = "SELECT x FROM readings WHERE x < 0.5 AND NOT (x < 0.2 OR x > 0.7)"
    assert _estimate(either, Filter).rows_per_second == pytest.approx(RATE / 3 * 4 / 9)
    assert _estimate("SELECT x FROM readings WHERE k = 3", Filter).rows_per_second == RATE / 10
    assert _estimate("SELECT x FROM readings WHERE k BETWEEN 3 AND 9", Filter).rows_per_second == RATE / 4
    assert _estimate("SELECT x FROM readings WHERE k IN (1, 2, 3)", Filter).rows_per_second == pytest.approx(60)
    assert _estimate("SELECT x FROM readings WHERE k IN (1, 2, 3, 4, 5, 6, 7)", Filter).rows_per_second == RATE / 2


def test_a_key_of_two_columns_is_one_key() -> None:
    one = "SELECT a.x FROM readings a WINDOW(RANGE 10 SECONDS), others b WINDOW(RANGE 5 SECONDS) WHERE a.k = b.k"
    flow = _estimate(one, Join).flow
    assert flow is not None
    assert flow == _estimate(f"{one} AND a.x = b.x", Join).flow


def test_what_grows_for_ever_is_said_to() -> None:
    text = "SELECT k, x FROM readings WINDOW(RANGE UNBOUNDED)"
    assert _estimate(text, TimeWindow).flow == Characteristics(SECOND_US / RATE, math.inf)
    assert "ever" in estimate_text(_plan(text), {"readings": RATE})


def test_what_is_not_known_is_not_guessed() -> None:
    assert _estimate("SELECT k FROM readings SAMPLE EVERY 10 SECONDS", rate=RATE) == Estimate(None, None)
    assert estimate_text(_plan("SELECT k FROM readings"), {}) == ""
    half = "SELECT k FROM readings UNION ALL SELECT k FROM readings SAMPLE EVERY 10 SECONDS"
    assert "?" in estimate_text(_plan(half), {"readings": RATE})


def test_a_stream_without_tuples_answers_nothing() -> None:
    text = "SELECT k, COUNT(*) AS n FROM readings WINDOW(RANGE 10 SECONDS SLIDE 1 SECOND) GROUP BY k"
    assert _estimate(text, Aggregate, rate=0.0).rows_per_second == 0


def test_the_table_has_a_line_for_each_operator() -> None:
    text = "SELECT k, AVG(x) AS mean FROM readings WINDOW(RANGE 10 MINUTES SLIDE 1 MINUTE) WHERE x > 3 GROUP BY k"
    plan = _plan(text)
    assert estimate_text(plan, {"readings": 180.0}) == (
        "  rows/s  valid for  kept rows  work/s\n"
        '    16.7         1m          -  75.1us  project k, mean = "avg(x)"\n'
        "    16.7         1m      9,775  2.11ms  └─ aggregate AVG(x) by k\n"
        "    60.0        10m          -   160us     └─ window of 10m, moving every 1m\n"
        "    60.0        1us          -   310us        └─ filter x > 3\n"
        "     180        1us          -   112us           └─ stream readings\n"
        "  in all: 2.76ms of a processor in a second, 9,775 rows kept"
    )
    (aggregate,) = (each for each in nodes_of(plan) if isinstance(each, Aggregate))
    beside = estimate_text(plan, {"readings": 180.0}, measured={aggregate: Measured(15.2, 3_000, 12.5)})
    assert beside.splitlines()[0].endswith("work/s  rows/s now  work/s now  us per row")
    assert "2.11ms        15.2         3ms        12.5  └─ aggregate" in beside
    assert "160us           -           -           -     └─ window" in beside


def test_what_a_part_costs_that_is_not_known_is_left_out_and_said() -> None:
    half = "SELECT k FROM readings UNION ALL SELECT k FROM readings SAMPLE EVERY 10 SECONDS"
    assert "in all: at least " in estimate_text(_plan(half), {"readings": RATE})


def test_an_aggregate_over_a_moving_window_pays_for_all_partial_aggregates_that_a_row_changes() -> None:
    """As measured: 2,000 partial aggregates and 400 rows a second took 67 ms a second, 9,000 and 3,000 took 3.4 s."""
    text = "SELECT COUNT(*) AS n FROM readings WINDOW(RANGE 5 SECONDS)"
    few, many = (_estimate(text, Aggregate, rate).work_us or 0 for rate in (400.0, 3_000.0))
    assert few == pytest.approx(35_000, rel=0.2)
    assert many / few == pytest.approx((3_000 / 400) ** 2, rel=0.1)


def test_a_plan_that_keeps_ever_more_works_ever_more() -> None:
    totals = totals_of([Estimate(None, math.inf, math.inf), Estimate(None, 3, 5)])
    assert totals_words(totals) == "ever more of a processor in a second, ever more rows kept"
