"""What a plan would keep, and that a query too many is refused with the figures."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cluster.fjord import upper_estimates
from cluster.fjord.upper_estimates import StateLimitError, kept_by
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.physical.lowering import lower, with_query
from cluster.plan.epoch import Handover, Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema

CATALOG = Catalog.of([StreamSchema("traffic", (Field("sensor", FieldType.TEXT), Field("speed", FieldType.REAL)))])
RATES = {"traffic": 100.0}
KEYED = "MATCH_RECOGNIZE (PARTITION BY sensor ORDER BY STAMP() MEASURES A.speed AS m "
MATCH = "MATCH_RECOGNIZE (ORDER BY STAMP() MEASURES A.speed AS m "


def query(text: str, number: int = 1) -> PlannedQuery:
    return PlannedQuery(f"q{number}", number, rewrite(translate(text, CATALOG).node).node)


@pytest.mark.parametrize(("text", "rows"), [
    ("SELECT sensor FROM traffic WHERE speed < 20", 0),
    ("SELECT DISTINCT sensor FROM traffic WINDOW(RANGE 10 SECONDS)", 1000),
    ("SELECT MAX(speed) AS m FROM traffic WINDOW(RANGE 60 SECONDS SLIDE 10 SECONDS)", 7),
    ("SELECT sensor, MAX(speed) AS m FROM traffic WINDOW(RANGE 60 SECONDS SLIDE 10 SECONDS) GROUP BY sensor", 7000),
    ("SELECT sensor, MAX(speed) AS m FROM traffic WINDOW(RANGE 60 SECONDS SLIDE 1 SECOND) GROUP BY sensor", 6100),
    ("SELECT a.speed FROM traffic a WINDOW(RANGE 10 SECONDS), traffic b WINDOW(RANGE 5 SECONDS)", 1500),
    ("SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE 60 SECONDS)", 6000),
    ("SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE 60 SECONDS) GRANULARITY(10 SECONDS) WHERE speed > 3", 8),
    ("SELECT speed FROM traffic WINDOW(ROWS 50)", 50),
    ("SELECT speed FROM traffic WINDOW(ROWS 50 SLIDE 10)", 59),
    ("SELECT speed FROM traffic WINDOW(PARTITION BY sensor ROWS 5 SLIDE 10)", 14_000),
    ("SELECT a.speed FROM traffic a ZIP JOIN traffic b WITHIN 5 SECONDS", 1000),
    ("SELECT a.speed FROM traffic a FULL ZIP JOIN traffic b WITHIN 1 SECOND TO 1 DAY", 8_640_000),
    (f"SELECT m FROM traffic {MATCH}PATTERN (A B+) WITHIN 1 HOUR)", 360_000),
    (f"SELECT m FROM traffic {MATCH}PATTERN (A{{3}} B))", 3),
    (f"SELECT m FROM traffic {KEYED}PATTERN (A) DEFINE A AS PREV(speed, 5) > 0)", 5_000),
])  # fmt: skip
def test_the_estimate_of_rows_kept_is_that_of_window_and_rate(text, rows):
    (kept,) = kept_by(lower(Plan(1, (query(text),))), RATES)
    assert kept.rows == pytest.approx(rows, rel=0.01)
    assert kept.bytes >= 16 * kept.rows


def test_shared_panes_count_once():
    text = "SELECT sensor, MAX(speed) AS m FROM traffic WINDOW(RANGE {} SECONDS SLIDE 10 SECONDS) GROUP BY sensor"
    plan = Plan(1, tuple(query(text.format(size), size) for size in (60, 50, 40, 30)))
    (kept,) = kept_by(lower(plan), RATES)
    assert kept.rows == pytest.approx(7000, rel=0.01)
    assert kept.queries == ("q60", "q50", "q40", "q30")


@pytest.mark.parametrize("text", [
    "SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE 60 SECONDS)",
    "SELECT sensor, MAX(speed) AS m FROM traffic WINDOW(RANGE 60 SECONDS SLIDE 10 SECONDS) GROUP BY sensor",
])  # fmt: skip
def test_answers_that_wait_while_a_query_migrates_count(text):
    def kept(until):
        (found,) = kept_by(lower(Plan(1, (replace(query(text), until=until),))), RATES)
        return found.rows, found.bytes

    alone, whole, cut = map(kept, (None, Handover(5, 60_000_005), Handover(5, 60_000_005, cut=True)))
    assert whole[0] - alone[0] >= 100
    assert cut[0] - alone[0] == pytest.approx(2 * (whole[0] - alone[0]), rel=0.01)
    assert cut[1] > whole[1] > alone[1]


@pytest.mark.parametrize("slide_s", [100, 10])
@pytest.mark.parametrize("source", ["traffic", "(SELECT DISTINCT speed, sensor FROM traffic) AS t"])
@pytest.mark.parametrize(
    ("of_all", "others", "size"),
    [
        ("MEDIAN(speed)", "MAX(speed)", 8),
        ("MODE(sensor)", "MAX(sensor)", 32),
        ("MODE(speed), PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY speed)", "MAX(speed)", 8),
        ("MEDIAN(speed), COUNT(DISTINCT speed)", "MAX(speed), COUNT(speed)", 16),
    ],
)
def test_aggregates_of_all_values_keep_one_for_each_tuple(slide_s, source, of_all, others, size):
    def kept_bytes(aggregates: str) -> float:
        text = f"SELECT {aggregates} FROM {source} WINDOW(RANGE 100 SECONDS SLIDE {slide_s} SECONDS)"
        (kept,) = kept_by(lower(Plan(1, (query(text),))), RATES)
        return kept.bytes

    alive = RATES["traffic"] * (100 + slide_s)
    assert kept_bytes(of_all) - kept_bytes(others) == pytest.approx(alive * size, rel=0.01)


@pytest.mark.parametrize("slide_s", [100, 10])
@pytest.mark.parametrize("source", ["traffic", "(SELECT DISTINCT speed, sensor FROM traffic) AS t"])
@pytest.mark.parametrize(
    ("of_two", "others"),
    [("AVG(speed)", "MAX(speed), MIN(speed), COUNT(speed)"), ("AVG(speed), COUNT(speed)", "AVG(speed)")],
)
def test_a_mean_keeps_two_sums_and_a_count_which_others_share(slide_s, source, of_two, others):
    def kept_bytes(aggregates: str) -> float:
        window = f"WINDOW(RANGE 100 SECONDS SLIDE {slide_s} SECONDS)"
        (kept,) = kept_by(
            lower(Plan(1, (query(f"SELECT {aggregates} FROM {source} {window} GROUP BY sensor"),))), RATES
        )
        return kept.bytes

    assert kept_bytes(of_two) == kept_bytes(others)


def test_a_query_too_many_is_refused_with_the_figures():
    running = lower(Plan(1, (query("SELECT DISTINCT sensor FROM traffic WINDOW(RANGE 10 SECONDS)"),)))

    def check_state(added: PlannedQuery, rates: dict[str, float], *, limit_bytes: int) -> None:
        upper_estimates.check_state(running, with_query(running, added), added.identity, rates, limit_bytes=limit_bytes)

    wide = query("SELECT DISTINCT speed FROM traffic WINDOW(RANGE 1 DAY)", 2)
    with pytest.raises(StateLimitError, match=r"up to 263\.7 MiB of state, 263\.7 MiB of it.*100 tuples.*100\.0 MiB"):
        check_state(wide, RATES, limit_bytes=100 * 1024**2)
    check_state(wide, RATES, limit_bytes=300 * 1024**2)
    tolerant = query("SELECT a.speed FROM traffic a ZIP JOIN traffic b WITHIN 1 DAY", 2)
    with pytest.raises(StateLimitError, match=r"up to .* GiB of state"):
        check_state(tolerant, RATES, limit_bytes=300 * 1024**2)
    check_state(wide, {}, limit_bytes=1)  # nothing has come yet: the size is not known
    # What keeps nothing is let in even when the limit has been lowered below what is kept already.
    check_state(query("SELECT sensor FROM traffic", 3), RATES, limit_bytes=1)
