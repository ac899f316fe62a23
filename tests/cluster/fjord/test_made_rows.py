"""What one tuple makes, what a second makes, and that a query which makes too much is refused before it runs."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cluster.costs.estimates import estimates_of, totals_of
from cluster.errors import PlanError
from cluster.fjord import acceptance, upper_estimates
from cluster.fjord.acceptance import RowLimitError, RowLimits, check_supported, made_per_second
from cluster.fjord.batch import NEVER
from cluster.fjord.row_flow import RowFlow
from cluster.fjord.upper_estimates import RowFlows, StateLimitError, kept_by
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.operators import Difference, Distinct, Node, Union
from cluster.physical import operations
from cluster.physical.lowering import lower, lower_alone, with_query
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.nexmark.running import planned
from tests.cluster.oracle.running import Arrival, run_plan
from tests.cluster.oracle.strategies import plans, sensible
from tests.cluster.plan.plans import A, window

CATALOG = Catalog.of([StreamSchema("traffic", (Field("sensor", FieldType.TEXT), Field("speed", FieldType.REAL)))])
RATES = {"traffic": 100.0}
EMPTY = Plan(1)
YEAR_US = 365 * 86_400_000_000

SLID = "SELECT MAX(speed) AS m FROM traffic WINDOW(RANGE {} SLIDE {})"
KEYED = "SELECT sensor, MAX(speed) AS m FROM traffic WINDOW(RANGE {} SLIDE {}) GROUP BY sensor"
NESTED = "SELECT {} FROM (SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE {})) AS q WINDOW(RANGE {})"


def query(text: str, number: int = 1) -> PlannedQuery:
    node = rewrite(translate(text, CATALOG).node).node
    check_supported(node)
    return PlannedQuery(f"q{number}", number, node)


def check_rows(running: Plan, added: PlannedQuery, rates: dict[str, float], limits: RowLimits) -> None:
    before = lower(running)
    acceptance.check_rows(before, with_query(before, added), added.identity, rates, limits)


def check_state(running: Plan, added: PlannedQuery, rates: dict[str, float], *, limit_bytes: int) -> None:
    before = lower(running)
    upper_estimates.check_state(before, with_query(before, added), added.identity, rates, limit_bytes=limit_bytes)


def made(plan: Plan, rates: dict[str, float]) -> float:
    return made_per_second(lower(plan), rates)


def flows(node: Node) -> RowFlows:
    (fragment,) = lower(Plan(1, (PlannedQuery("q", 1, node),))).fragments
    return RowFlows(fragment, {})


MADE = {
    "SELECT sensor, speed FROM traffic": 1,
    "SELECT MAX(speed) AS m FROM traffic WINDOW(RANGE 1 HOUR)": 1,
    SLID.format("1 HOUR", "1 HOUR"): 1,
    SLID.format("1 HOUR", "2 HOURS"): 1,
    SLID.format("1 HOUR", "7 MINUTES"): 9,
    SLID.format("1000 US", "3 US"): 334,
    KEYED.format("1 MS", "2 US"): 500,
    "SELECT speed FROM traffic WINDOW(RANGE 1 MS SLIDE 2 US)": 1,
    "SELECT DISTINCT speed FROM traffic WINDOW(RANGE 1 MS SLIDE 2 US)": 1,
    "SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE 1 HOUR) GRANULARITY(1 MS)": 1,
    NESTED.format("COUNT(*) AS c", "99 US", "1 MS"): 101,  # Split: a row for every microsecond of 99, and its slide
    NESTED.format("MAX(n) AS c", "99 US", "1 MS"): 1,
    NESTED.format("MAX(n) AS c", "100 US SLIDE 10 US", "1 MS"): 10,
    NESTED.format("COUNT(*) AS c", "100 US SLIDE 10 US", "1 MS"): 100,
    NESTED.format("COUNT(*) AS c", "100 US SLIDE 10 US", "1 MS SLIDE 1 MS"): 100,
    "SELECT COUNT(*) AS c FROM ISTREAM((SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE 100 US SLIDE 5 US))) AS q"
    " WINDOW(RANGE 1 SECOND)": 20,
    f"SELECT a.m, b.m FROM ({SLID.format('1 MS', '10 US')}) AS a, ({SLID.format('1 MS', '20 US')}) AS b": 150,
    f"SELECT a.m, b.sensor FROM ({SLID.format('1 MS', '10 US')}) AS a, traffic AS b WINDOW(RANGE 1 HOUR)": 101,
    f"{SLID.format('1 MS', '10 US')} UNION ALL {SLID.format('1 MS', '20 US')}": 150,
    f"{SLID.format('1 MS', '10 US')} EXCEPT {SLID.format('1 MS', '20 US')}": 150,
    f"{SLID.format('1 MS', '10 US')} INTERSECT ALL {SLID.format('1 MS', '20 US')}": 150,
    f"SELECT a.m FROM ({SLID.format('1 MS', '10 US')}) AS a WHERE a.m IN ({SLID.format('1 MS', '20 US')})": 150,
}


@pytest.mark.parametrize(("text", "rows"), MADE.items())
def test_the_bound_of_rows_made_of_one_tuple(text, rows):
    assert flows(query(text).node).answers.per_tuple == rows


@pytest.mark.parametrize("text", MADE)
def test_no_tuple_makes_more_rows_than_its_bound(text):
    node = query(text).node
    most = flows(node).answers.per_tuple
    for at in (0, 1, 999, 12_345):
        found = run_plan(node, [{"traffic": Arrival((((at, ("s", 1.0)),),), NEVER)}])
        # A row may be cut in two where another begins or ends.
        assert len(found) <= 2 * most + 1


def test_a_part_counts_with_its_copies_if_they_matter_to_any_of_those_above():
    part = window(window(A, 99), 1_000)

    def windows(node: Node) -> list[RowFlow]:
        of_an_hour = (flow for each, flow in flows(node) if isinstance(each.operation, operations.TimeWindow))
        return sorted((flow for flow in of_an_hour if (flow.lasting_us or 0) >= 1_000), key=lambda each: each.per_tuple)

    (counted,) = windows(part)
    assert counted.per_tuple == 99 + 1 + 1  # its size, its slide and the tuple itself
    (asked_for,) = windows(Distinct(part))
    assert asked_for.per_tuple == 1
    for above in (Union(Distinct(part), part), Union(part, Distinct(part))):
        assert windows(above) == [asked_for, counted]
    assert windows(Difference(part, part)) == [counted]


def test_a_year_of_silence_makes_no_rows():
    node = query(SLID.format("1 SECOND", "1 MS")).node
    arrivals = [{"traffic": Arrival((((at, ("s", 1.0)),),), at)} for at in (0, YEAR_US)]
    found = run_plan(node, [*arrivals, {"traffic": Arrival(((),), NEVER)}])
    assert len(found) == 2000


@pytest.mark.parametrize(("text", "reason", "hint"), [
    (
        SLID.format("1 HOUR", "2 US"),
        ("one tuple would make up to 1,800,000,000 rows, because of a window of 1 HOUR that moves every "
        "2 MICROSECONDS; the limit is 100,000"),
        "for example SLIDE 100 MILLISECONDS, or start the cluster with a higher --max-rows-per-tuple",
    ),
    (KEYED.format("1 SECOND", "1 US") .replace("SLIDE 1 US", "SLIDE 5 US"), "200,000 rows", "SLIDE 1 MILLISECOND,"),
    (SLID.format("36500 DAYS", "1 MS"), "window of 36500 DAYS that moves", "SLIDE 1 DAY,"),
    (
        (f"SELECT b.sensor FROM ({SLID.format('1 HOUR', '1 MS')}) AS a, traffic AS b WINDOW(RANGE 1 HOUR) "
        "WHERE a.m = b.speed"),
        "3,600,000 rows, because of a window of 1 HOUR that moves every 1 MILLISECOND", "in longer steps",
    ),
    (
        NESTED.format("COUNT(*) AS c", "90 MS SLIDE 1 US", "1 HOUR") + " HAVING COUNT(*) > 1 UNION ALL "
        + NESTED.format("SUM(n) AS c", "90 MS", "2 HOURS"), "rows that last", "make it shorter",
    ),
])  # fmt: skip
def test_what_makes_too_much_of_a_tuple_is_refused_though_nothing_has_come(text, reason, hint):
    for rates in ({}, {"traffic": 0.0}):
        with pytest.raises(RowLimitError) as caught:
            check_rows(EMPTY, query(text), rates, RowLimits())
        assert reason in str(caught.value)
        assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("text", [
    SLID.format("1 HOUR", "1 HOUR"), SLID.format("1 DAY", "1 SECOND"), KEYED.format("1 WEEK", "10 SECONDS"),
    "SELECT MAX(speed) AS m FROM traffic WINDOW(RANGE 1 WEEK)", NESTED.format("SUM(n) AS c", "90 MS", "1 HOUR"),
])  # fmt: skip
def test_what_people_ask_for_is_let_in(text):
    check_rows(EMPTY, query(text), {}, RowLimits())


@pytest.mark.parametrize(("text", "rows"), [
    ("SELECT sensor, speed FROM traffic", 0),
    # How many tuples are of the same sensor is not known.
    ("SELECT a.speed FROM traffic a WINDOW(RANGE 1 HOUR), traffic b WINDOW(RANGE 1 HOUR) WHERE a.sensor = b.sensor", 0),
    # Without an equality each tuple is tried with all of an hour.
    ("SELECT a.speed FROM traffic a WINDOW(RANGE 1 HOUR), traffic b WINDOW(RANGE 1 HOUR)", 2 * 100 * 360_000),
    (
        "SELECT a.speed FROM traffic a WINDOW(RANGE 1 HOUR), traffic b WINDOW(RANGE 1 MINUTE) WHERE a.speed < b.speed",
        100 * 366_000,
    ),
    (
        ("SELECT a.speed FROM traffic a WHERE EXISTS (SELECT 1 FROM traffic b WINDOW(RANGE 1 HOUR) "
        "WHERE b.speed < a.speed)"), 0,  # with the least of an hour
    ),
    (
        ("SELECT a.speed FROM traffic a WHERE EXISTS (SELECT 1 FROM traffic b WINDOW(RANGE 1 HOUR) "
        "WHERE b.speed <> a.speed)"), 100 * 360_000,
    ),
    ("SELECT a.speed FROM traffic a WHERE a.speed IN (SELECT speed FROM traffic WINDOW(RANGE 1 HOUR))", 0),
    (SLID.format("1 HOUR", "1 HOUR"), 0),
    (SLID.format("1 HOUR", "1 SECOND"), 3600 - 100),  # one partial row a second, in 3,600 windows
    (KEYED.format("1 HOUR", "1 SECOND"), 100 * 3600 - 100),
    (KEYED.format("1 SECOND", "100 US"), 100 * 10_000 - 100),
    (SLID.format("3600 SECONDS", "7001 MS"), 100 * 515 - 100),  # panes of a millisecond
    (NESTED.format("COUNT(*) AS c", "10 MS", "1 SECOND"), 100 * 10_001),
    (f"SELECT a.m, b.m FROM ({SLID.format('1 S', '10 MS')}) AS a, ({SLID.format('1 S', '20 MS')}) AS b", 9900 + 2400),
    # Equal parts run once.
    (f"SELECT a.m, b.m FROM ({SLID.format('1 S', '10 MS')}) AS a, ({SLID.format('1 S', '10 MS')}) AS b", 9900),
])  # fmt: skip
def test_the_estimate_of_rows_made_in_a_second(text, rows):
    assert made(Plan(1, (query(text),)), RATES) == pytest.approx(rows, rel=0.01)
    assert made(Plan(1, (query(text),)), {}) == 0


def test_equal_windows_over_equal_conditions_are_counted_once():
    one = Plan(1, (query(KEYED.format("1 HOUR", "1 SECOND")),))
    both = Plan(1, (*one.queries, query(KEYED.format("1 HOUR", "1 SECOND").replace("MAX", "AVG"), 2)))
    assert made(both, RATES) == made(one, RATES)
    other = Plan(1, (*one.queries, query(f"{KEYED.format('1 HOUR', '1 SECOND')} HAVING MAX(speed) > 1", 2)))
    assert made(other, RATES) == made(one, RATES)
    slow = KEYED.format("1 HOUR", "1 SECOND").replace("GROUP", "WHERE speed < 20 GROUP")
    assert made(Plan(1, (*one.queries, query(slow, 2))), RATES) == 2 * made(one, RATES)


WINDOWED = "traffic {} WINDOW(RANGE {} SECONDS)"
FOUR_MOTES = {"traffic": 4.0}


def product(*, streams: int, seconds: int, condition: str = "") -> PlannedQuery:
    """A join of windows of one stream; the condition is of each two neighbours."""
    names = [f"a{number}" for number in range(streams)]
    conditions = [condition.format(one, other) for one, other in pairwise(names) if condition]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return query(f"SELECT a0.speed FROM {', '.join(WINDOWED.format(each, seconds) for each in names)}{where}")


def explained(added: PlannedQuery, rates: dict[str, float]) -> float:
    """Return the rows per second that EXPLAIN shows of a query."""
    return estimates_of(added.node, rates)[added.node].rows_per_second or 0.0


@pytest.mark.parametrize(("streams", "seconds"), [(2, 60), (3, 30), (4, 30), (6, 60), (60, 3_600)])
def test_products_multiply_as_their_explanation_shows(streams, seconds):
    valid = 4 * seconds  # of each stream
    wide = product(streams=streams, seconds=seconds)
    rows = streams * 4 * float(valid) ** (streams - 1)
    assert explained(wide, FOUR_MOTES) == pytest.approx(rows, rel=0.01)
    answers = RowFlows(lower_alone(wide.node), FOUR_MOTES).answers
    assert answers.per_second == pytest.approx(min(rows, 1e30), rel=0.01)
    assert answers.valid == pytest.approx(min(float(valid) ** streams, 1e30), rel=0.01)
    if rows < RowLimits().per_second:
        check_rows(EMPTY, wide, FOUR_MOTES, RowLimits())
        return
    with pytest.raises(RowLimitError, match=r'of them for this query alone, .* in "product"') as caught:
        check_rows(EMPTY, wide, FOUR_MOTES, RowLimits())
    assert "the limit is 2,000,000" in str(caught.value)
    assert "make them shorter, join on columns that must be equal, aggregate before a join" in (caught.value.hint or "")


def test_what_the_message_says_to_do_brings_a_product_in():
    refused = product(streams=4, seconds=30)
    with pytest.raises(RowLimitError, match=r"27,\d\d\d,\d\d\d in \"product\" .traffic brings 4 tuples per second"):
        check_rows(EMPTY, refused, FOUR_MOTES, RowLimits())
    mean = "(SELECT AVG(speed) AS m FROM traffic WINDOW(RANGE 30 SECONDS)) AS {}"
    for allowed in (
        product(streams=4, seconds=5),
        product(streams=4, seconds=30, condition="{}.sensor = {}.sensor"),
        query(f"SELECT a.m FROM {', '.join(mean.format(each) for each in 'abcd')}"),
    ):
        check_rows(EMPTY, allowed, FOUR_MOTES, RowLimits())


MANY = {
    "conditions without an equality": product(streams=5, seconds=60, condition="{}.speed < {}.speed").node,
    "below an aggregate": query(
        f"SELECT COUNT(*) AS n FROM {', '.join(WINDOWED.format(each, 60) for each in 'abcde')}"
    ).node,
    "subqueries": query(
        f"SELECT q.x FROM (SELECT a.speed AS x FROM {WINDOWED.format('a', 60)}, {WINDOWED.format('b', 60)}) AS q, "
        f"(SELECT a.speed AS x FROM {WINDOWED.format('a', 60)}, {WINDOWED.format('b', 60)}) AS r"
    ).node,
    "unions": query(
        "SELECT q.x FROM (SELECT a.speed AS x FROM {0}, {1} UNION ALL SELECT a.speed AS x FROM {0}, {1}) AS q, {2}, {3}"
        .format(*(WINDOWED.format(each, 60) for each in "abcd"))
    ).node,
    "outer joins": query(
        f"SELECT a.speed FROM {WINDOWED.format('a', 60)} "
        + " ".join(f"LEFT JOIN {WINDOWED.format(each, 60)} ON {each}.speed > a.speed" for each in "bcd")
    ).node,
    "windows by count": query(
        f"SELECT a.speed FROM {', '.join(f'traffic {each} WINDOW(ROWS 1000)' for each in 'abcd')}"
    ).node,
    "subqueries in conditions": query(
        f"SELECT a.speed FROM {', '.join(WINDOWED.format(each, 60) for each in 'abc')} WHERE EXISTS "
        f"(SELECT 1 FROM {WINDOWED.format('d', 60)} WHERE d.speed <> a.speed)"
    ).node,
    "instants within bounds": query(
        "SELECT a.speed FROM traffic a "
        + " ".join(f"JOIN traffic {each} WITHIN 60 SECONDS ON {each}.speed <> a.speed" for each in "bcde")
    ).node,
}  # fmt: skip


JOINS_OF_NEXMARK = ("q3", "q4", "q6", "q8", "q9", "q20")


@pytest.mark.parametrize(("name", "alone"), [(each.name, each) for each in planned()])
def test_nexmark_is_accepted_at_its_usual_rate(name, alone):
    events = {"person": 200.0, "auction": 600.0, "bid": 9_200.0}
    check_rows(EMPTY, alone, events, RowLimits())
    if name in JOINS_OF_NEXMARK:
        assert upper_estimates.state_bytes(lower(Plan(1, (alone,))), events) < 16 * 1024**3


def test_rows_of_products_share_the_values_of_what_they_have_in_common():
    inner = "(SELECT a.sensor AS s FROM {}, {}) AS {}"
    text = f"SELECT l.s FROM {inner}, {inner} WHERE l.s = r.s".format(
        WINDOWED.format("a", 60), WINDOWED.format("b", 60), "l", WINDOWED.format("a", 60), WINDOWED.format("c", 60), "r"
    )
    with pytest.raises(RowLimitError, match="the limit is 2,000,000"):
        check_rows(EMPTY, query(text), {"traffic": 40.0}, RowLimits())


@pytest.mark.parametrize("node", MANY.values(), ids=MANY)
def test_a_join_of_joins_is_refused_wherever_it_stands(node):
    added = PlannedQuery("q", 1, node)
    with pytest.raises(RowLimitError, match="the limit is 2,000,000"):
        check_rows(EMPTY, added, FOUR_MOTES, RowLimits())


def test_joined_rows_that_are_joined_again_are_kept():
    wide = product(streams=3, seconds=60)
    (kept,) = kept_by(lower(Plan(1, (wide,))), FOUR_MOTES)
    assert kept.rows == pytest.approx(240 * 240 + 3 * 240, rel=0.01)
    totals = totals_of(estimates_of(wide.node, FOUR_MOTES).values())
    assert kept.rows >= 0.99 * totals.kept


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(plans(), st.sampled_from((1.0, 1e3, 1e5, 9e5)), st.sampled_from((1.0, 1e4, 3e5)))
def test_no_plan_is_expected_to_make_more_rows_than_its_bound(plan, alpha, beta):
    assume(sensible(plan))
    try:
        node = rewrite(plan).node
        check_supported(node)
    except PlanError:
        assume(False)
    rates = {"alpha": alpha, "beta": beta}
    expected = estimates_of(node, rates)[node].flow
    assume(expected is not None)
    found = RowFlows(lower_alone(node), rates).answers
    assert expected.rate * 1e6 <= found.per_second * 1.000001
    if found.lasting_us is not None:
        assert expected.valid_rows <= found.valid * 1.000001


def test_what_makes_too_much_in_a_second_is_refused_with_the_figures():
    running = Plan(1, (query(KEYED.format("1 HOUR", "1 SECOND")),))
    more = query(KEYED.format("10 MINUTES", "100 MS"), 2)
    limits = RowLimits(per_second=500_000)
    check_rows(running, more, {}, limits)
    with pytest.raises(RowLimitError) as caught:
        check_rows(running, more, RATES, limits)
    assert "up to 959,800 rows per second, 599,900 of them for this query alone" in str(caught.value)
    assert "traffic brings 100 tuples per second); the limit is 500,000" in str(caught.value)
    assert "--max-rows-per-second" in (caught.value.hint or "")
    product = query("SELECT a.speed FROM traffic a WINDOW(RANGE 1 HOUR), traffic b WINDOW(RANGE 1 HOUR)")
    check_rows(EMPTY, product, {}, RowLimits())
    with pytest.raises(RowLimitError, match="up to 71,999,800 rows per second") as caught:
        check_rows(EMPTY, product, RATES, RowLimits())
    assert "join on columns that must be equal" in (caught.value.hint or "")
    # What makes nothing is let in even when the limit has been lowered below what is made already.
    check_rows(running, query("SELECT sensor FROM traffic", 2), RATES, RowLimits(per_second=1))
    check_rows(running, query(KEYED.format("1 HOUR", "1 SECOND"), 2), RATES, RowLimits(per_second=1))


def test_what_is_made_of_a_tuple_is_kept_too():
    kept = query(NESTED.format("COUNT(*) AS c", "90 MS", "1 HOUR"))
    with pytest.raises(StateLimitError, match="GiB of state"):  # 100 tuples a second, 90,000 rows each, for an hour
        check_state(EMPTY, kept, RATES, limit_bytes=4 * 1024**3)
    check_state(EMPTY, query(NESTED.format("MAX(n) AS c", "90 MS", "1 HOUR")), RATES, limit_bytes=4 * 1024**3)


def test_a_query_that_answers_too_much_in_a_second_is_refused_though_pairs_are_few_enough():
    pairs = "SELECT a.speed, b.speed AS other FROM traffic a WINDOW(RANGE 1 MINUTE), traffic b WINDOW(RANGE 10 SECONDS)"
    limits = RowLimits()
    with pytest.raises(RowLimitError, match=r"the query would answer up to 700,\d+ rows per second") as caught:
        check_rows(EMPTY, query(pairs), RATES, limits)
    assert "--max-answers-per-second" in (caught.value.hint or "")
    assert "aggregate the pairs" in (caught.value.hint or "")
    check_rows(EMPTY, query(pairs), RATES, RowLimits(answers_per_second=800_000))


@pytest.mark.parametrize(
    "items",
    [
        ", ".join(f"LPAD(sensor, {10_000 - number}, 'é') AS x{number}" for number in range(100)),
        ", ".join(f"REPLACE(a, 'a', b) AS x{number}" for number in range(100)),
        ", ".join(f"UPPER(a) || b AS x{number}" for number in range(200)),
    ],
)
def test_a_query_whose_texts_are_too_long_for_its_rate_is_refused(items: str):
    source = "(SELECT LPAD(sensor, 5000) AS a, RPAD(sensor, 3000) AS b, sensor FROM traffic) AS t"
    text = f"SELECT {items} FROM {source}"
    with pytest.raises(RowLimitError, match="characters per second") as caught:
        check_rows(EMPTY, query(text), RATES, RowLimits())
    assert "LPAD" in (caught.value.hint or "")
    check_rows(EMPTY, query(text), {"traffic": 1.0}, RowLimits())


def test_texts_that_are_made_of_answers_of_windows_count():
    items = ", ".join(f"LPAD(sensor, {10_000 - number}) AS x{number}" for number in range(100))
    text = f"SELECT {items}, MAX(speed) AS m FROM traffic WINDOW(RANGE 1 SECOND SLIDE 1 SECOND) GROUP BY sensor"
    with pytest.raises(RowLimitError, match="characters per second"):
        check_rows(EMPTY, query(text), RATES, RowLimits())


@pytest.mark.parametrize(
    "text",
    [
        "SELECT sensor || '-' || UPPER(sensor) AS x, speed FROM traffic",
        "SELECT SUM(LENGTH(LPAD(sensor, 9000))) AS n FROM traffic WINDOW(RANGE 1 MINUTE)",
        "SELECT " + ", ".join(f"LENGTH(LPAD(sensor, {9_000 - number})) AS x{number}" for number in range(100))
        + " FROM traffic",
    ],
)  # fmt: skip
def test_texts_that_are_usual_or_not_answered_may_be_made_at_any_rate(text: str):
    check_rows(EMPTY, query(text), {"traffic": 900_000.0}, RowLimits(per_second=10**9, answers_per_second=250_000))


def test_what_streams_bring_may_be_answered_however_much_that_is():
    check_rows(EMPTY, query("SELECT speed FROM traffic WHERE speed > 3"), {"traffic": 900_000.0}, RowLimits())
