"""Long texts that all queries together make: counted as they are made and answered, and bounded together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.fjord.acceptance import RowLimits, TextLimitError, check_supported, check_texts
from cluster.fjord.long_texts import characters_per_second
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.physical.lowering import lower, with_query, without_query
from cluster.physical.nodes import NOTHING, PhysicalPlan
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema

FIELDS = (Field("sensor", FieldType.TEXT, fixed=True), Field("speed", FieldType.REAL))
CATALOG = Catalog.of([StreamSchema("traffic", FIELDS)])
RATES = {"traffic": 4.0}
LIMIT = RowLimits().characters_per_second
TUMBLING = "WINDOW(RANGE 1 SECOND SLIDE 1 SECOND)"


def query(text: str, number: int = 1) -> PlannedQuery:
    node = rewrite(translate(text, CATALOG).node).node
    check_supported(node)
    return PlannedQuery(f"q{number}", number, node)


def plan_of(*texts: str) -> PhysicalPlan:
    return lower(Plan(len(texts), tuple(query(text, number) for number, text in enumerate(texts, 1))))


def made(*texts: str) -> float:
    return characters_per_second(plan_of(*texts), RATES)


def columns(count: int, first: int = 0) -> str:
    return ", ".join(f"LPAD(sensor, {10_000 - number}) AS x{number}" for number in range(first, first + count))


def test_queries_that_are_each_below_their_limit_are_refused_together() -> None:
    """Each makes 4 x 50 x 10,000 characters in a second, and answers them: it is not refused alone."""
    plan = NOTHING
    many = [query(f"SELECT {columns(50)}, speed + {number} AS v FROM traffic", number) for number in range(1, 9)]
    for more in many[:6]:
        after = with_query(plan, more)
        check_texts(plan, after, more.identity, RATES, LIMIT)
        plan = after
    with pytest.raises(TextLimitError) as caught:
        check_texts(plan, with_query(plan, many[6]), many[6].identity, RATES, LIMIT)
    assert "with this query the plan would make and answer up to 27,931,400" in str(caught.value)
    assert "characters of long texts per second, 3,9" in str(caught.value)
    assert "for this query alone (traffic brings 4 tuples per second); the limit is 25,000,000" in str(caught.value)
    assert "LPAD" in (caught.value.hint or "")
    assert "drop other queries" in (caught.value.hint or "")
    assert "--max-characters-per-second" in (caught.value.hint or "")


LONG = [
    ("SELECT LPAD(sensor, 9000) AS x FROM traffic", 4 * 2 * 9_000),
    ("SELECT speed FROM traffic WHERE LENGTH(LPAD(sensor, 9000)) > 5", 4 * 9_000),
    ("SELECT LENGTH(LPAD(sensor, 9000)) + 1 AS n FROM traffic", 4 * 9_000),
    ("SELECT UPPER(LOWER(LPAD(sensor, 9000))) = 'X' AS b FROM traffic", 4 * 3 * 9_000),
    (f"SELECT MAX(LENGTH(LPAD(sensor, 9000))) AS n FROM traffic {TUMBLING}", 4 * 9_000),
    (f"SELECT COUNT(*) AS n FROM traffic {TUMBLING} WHERE LPAD(sensor, 9000) LIKE '%a%'", 4 * 9_000),
    (f"SELECT LPAD(sensor, 9000) AS k, COUNT(*) AS n FROM traffic {TUMBLING} GROUP BY k", 4 * 2 * 9_000),
    (f"SELECT sensor, LPAD(sensor, 9000) AS k, COUNT(*) AS n FROM traffic {TUMBLING} GROUP BY sensor", 4 * 2 * 9_000),
    (f"SELECT COUNT(*) AS n FROM traffic {TUMBLING} GROUP BY sensor HAVING LENGTH(LPAD(sensor, 9000)) > 5", 4 * 9_000),
    ("SELECT a.speed FROM traffic a JOIN traffic b ON LPAD(a.sensor, 9000) = LPAD(b.sensor, 9000)", 8 * 2 * 9_000),
]


@pytest.mark.parametrize(("text", "characters"), LONG)
def test_texts_count_wherever_they_are_made(text: str, characters: float) -> None:
    assert made(text) == pytest.approx(characters)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT sensor || '-' || UPPER(sensor) AS x, speed FROM traffic WHERE LOWER(sensor) LIKE 'a%'",
        "SELECT " + ", ".join(f"sensor || '-{number}' AS x{number}" for number in range(600)) + " FROM traffic",
        f"SELECT STRING_AGG(sensor, ',') AS x FROM traffic {TUMBLING}",
        f"SELECT sensor, STRING_AGG(UPPER(sensor), ',') AS x FROM traffic {TUMBLING} GROUP BY sensor",
        "SELECT a.sensor FROM traffic a WINDOW(RANGE 1 HOUR), traffic b WINDOW(RANGE 1 HOUR)",
    ],
)
def test_queries_without_long_texts_are_never_refused(text: str) -> None:
    added = query(text)
    check_texts(NOTHING, with_query(NOTHING, added), added.identity, RATES, 0)


def test_what_a_condition_makes_counts_once_for_queries_that_share_it_and_answers_for_each() -> None:
    condition = "SELECT speed FROM traffic WHERE LENGTH(LPAD(sensor, 9000)) > {}"
    assert made(*[condition.format(5)] * 3) == pytest.approx(4 * 9_000)
    assert made(*(condition.format(number) for number in range(3))) == pytest.approx(3 * 4 * 9_000)
    answers = "SELECT LPAD(sensor, 9000) AS x FROM traffic"
    assert made(*[answers] * 3) == pytest.approx((1 + 3) * 4 * 9_000)


def test_what_is_made_of_the_rows_of_each_condition_counts_for_each_condition() -> None:
    text = "SELECT LENGTH(LPAD(sensor, 9000)) AS n FROM traffic WHERE speed > {}"
    assert made(*(text.format(number) for number in range(3))) == pytest.approx(3 * 4 * 9_000)
    assert made(*[text.format(1)] * 3) == pytest.approx(4 * 9_000)


def test_a_condition_counts_until_the_last_query_with_it_has_gone() -> None:
    text = "SELECT speed FROM traffic WHERE LENGTH(LPAD(sensor, 9000)) > 5"
    queries, plan = [query(text, number) for number in range(1, 4)], NOTHING
    found = []
    for each in queries:
        plan = with_query(plan, each)
        found.append(characters_per_second(plan, RATES))
    for each in queries:
        plan = without_query(plan, each, {})
        found.append(characters_per_second(plan, RATES))
    assert found == pytest.approx([*[4 * 9_000] * 5, 0])


def test_a_text_that_is_joined_is_as_long_as_what_comes_lets_it_be() -> None:
    """Sixty in each window, of 20 characters and a comma: what is answered is rounded up to a power of two."""
    text = "SELECT STRING_AGG(sensor, ',') AS x FROM traffic WINDOW(RANGE 1 MINUTE SLIDE 1 SECOND)"
    assert characters_per_second(plan_of(text), {"traffic": 1.0}) == pytest.approx(60 * 21 + 2_048)
    assert characters_per_second(plan_of(text), {"traffic": 1e6}) == pytest.approx(2 * 10_000)


def test_a_plan_that_is_over_the_limit_takes_what_makes_no_more() -> None:
    running = plan_of(f"SELECT {columns(50)} FROM traffic")
    for text in ("SELECT speed FROM traffic WHERE speed > 3", "SELECT LPAD(sensor, 90) AS x FROM traffic"):
        added = query(text, 2)
        check_texts(running, with_query(running, added), added.identity, RATES, 1_000)
    more = query(f"SELECT {columns(1)} FROM traffic", 2)
    with pytest.raises(TextLimitError):
        check_texts(running, with_query(running, more), more.identity, RATES, 1_000)


def test_of_queries_that_are_added_together_those_with_long_texts_are_refused() -> None:
    texts = ("SELECT speed FROM traffic WHERE speed > 3", "SELECT LPAD(sensor, 9000) AS x FROM traffic")
    after = plan_of(*texts)
    check_texts(NOTHING, after, "q1@1", RATES, 1_000)
    with pytest.raises(TextLimitError):
        check_texts(NOTHING, after, "q2@2", RATES, 1_000)


def test_samples_that_come_faster_for_a_query_count() -> None:
    added = query("SELECT LPAD(sensor, 9000) AS x FROM traffic")
    after = with_query(NOTHING, added)
    check_texts(NOTHING, after, added.identity, {}, 100_000)
    with pytest.raises(TextLimitError, match="traffic would bring 10 tuples per second for it"):
        check_texts(NOTHING, after, added.identity, {}, 100_000, demanded={"traffic": 10.0})


@given(st.lists(st.sampled_from([text for text, _ in LONG]), min_size=1, max_size=8), st.randoms())
def test_the_sum_of_a_plan_that_has_changed_is_that_of_one_made_anew(texts: list[str], random) -> None:
    plan, queries = NOTHING, {}
    assert characters_per_second(plan, RATES) == 0
    for number, text in enumerate(texts, 1):
        queries[number] = query(text.replace("> 5", f"> {random.randrange(3)}"), number)
        plan = with_query(plan, queries[number])
        characters_per_second(plan, RATES)
        if random.random() < 0.4:
            plan = without_query(plan, queries.pop(random.choice([*queries])), {})
        anew = lower(Plan(plan.epoch, tuple(queries.values())))
        assert characters_per_second(plan, RATES) == characters_per_second(anew, RATES)
