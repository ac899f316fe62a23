"""Folded queries answer what each of them answers alone, whatever other queries come and go, and when."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.physical.lowering import lower
from cluster.physical.operations import PaneAggregate, Panes
from cluster.plan.epoch import Plan, PlannedQuery
from tests.cluster.spark.hosted_run import Run, plan_node

TEMPLATES = [
    "SELECT sensor, speed FROM traffic{}",
    "SELECT speed * 2 AS twice FROM traffic{}",
    "SELECT sensor, SUM(speed) AS total, COUNT(*) AS n FROM traffic WINDOW(RANGE 20 US SLIDE 10 US){} GROUP BY sensor",
    "SELECT COUNT(*) AS m, sensor FROM traffic WINDOW(RANGE 30 US SLIDE 15 US){} GROUP BY sensor HAVING MAX(speed) > 3",
    "SELECT AVG(speed + 1) AS mean, COUNT(DISTINCT sensor) AS s FROM traffic WINDOW(RANGE 7 US SLIDE 14 US){}",
    (
        "SELECT speed % 3 AS k, MIN(sensor), LAST(speed) AS l FROM traffic WINDOW(RANGE 25 US SLIDE 10 US){}"
        " GROUP BY speed % 3"
    ),
    "SELECT MAX(speed) AS fastest FROM traffic WINDOW(RANGE 15 US){}",
    "SELECT DISTINCT sensor FROM traffic WINDOW(RANGE 12 US){}",
    "SELECT LAST(speed) AS latest FROM traffic WINDOW(RANGE 30 US SLIDE 10 US){} HAVING COUNT(*) > 1",
    "SELECT sensor, speed, VALID(s) AS held FROM traffic WINDOW(ROWS 6) COALESCE(speed BY sensor) AS s{}",
    "SELECT speed FROM traffic WINDOW(ROWS 6) COALESCE(speed BY sensor) AS s{}",
    "SELECT DURATION(VALID(s)) AS d FROM traffic WINDOW(ROWS 6 SLIDE 2) COALESCE(speed BY sensor) AS s{}",
    "SELECT VALID(s) AS held FROM traffic WINDOW(PARTITION BY sensor ROWS 3) COALESCE(speed BY sensor) AS s{}",
    "SELECT sensor FROM ISTREAM((SELECT DISTINCT sensor FROM traffic WINDOW(RANGE 12 US){})) i",
]
OF_TWO = [
    "SELECT t.sensor, u.speed FROM traffic t WINDOW(RANGE 5 US), traffic u WHERE t.sensor = u.sensor{0}{1}",
    "SELECT t.sensor FROM traffic t WHERE t.speed > 0{0} UNION ALL SELECT sensor FROM traffic u WHERE u.speed >= 0{1}",
    (
        "SELECT t.sensor FROM traffic t WINDOW(RANGE 9 US) WHERE t.speed > 0{0} EXCEPT ALL"
        " SELECT u.sensor FROM traffic u WINDOW(RANGE 4 US) WHERE u.speed >= 0{1}"
    ),
    (
        "SELECT t.sensor, t.speed FROM traffic t WHERE t.speed > 0{0} AND NOT EXISTS"
        " (SELECT u.speed FROM traffic u WINDOW(RANGE 10 US) WHERE u.sensor = t.sensor AND u.speed > t.speed{1})"
    ),
    (
        "SELECT t.sensor, COUNT(*) AS n FROM traffic t WINDOW(RANGE 5 US), traffic u WINDOW(RANGE 6 US)"
        " WHERE t.speed < u.speed{0}{1} GROUP BY t.sensor"
    ),
    (
        "SELECT t.sensor, u.n FROM traffic t WINDOW(RANGE 5 US), (SELECT sensor, COUNT(*) AS n FROM traffic u"
        " WINDOW(RANGE 20 US SLIDE 10 US) WHERE u.speed >= 0{1} GROUP BY sensor) u WHERE t.sensor = u.sensor{0}"
    ),
    *(
        "SELECT t.speed, u.n FROM traffic t WINDOW(RANGE 5 US), (SELECT sensor, COUNT(*) AS n FROM traffic u"
        " WINDOW(RANGE 20 US SLIDE 10 US) WHERE u.speed >= 0{1} GROUP BY sensor HAVING MAX(speed) > "
        f"{fastest}) u WHERE t.sensor = u.sensor AND t.speed + u.n > {least}{{0}}"
        for fastest, least in ((2, 3), (6, 3), (4, 3))
    ),
]
ZIPPED = [
    (
        "SELECT t.sensor, t.speed, u.speed FROM traffic t {2} traffic u WITHIN 4 US ON t.sensor = u.sensor"
        " WHERE t.speed > 0{0}{1}"
    ),
    (
        "SELECT t.sensor AS a, u.sensor AS b, apart_us FROM (SELECT sensor, speed FROM traffic t WHERE speed >= 0{0}) t"
        " {2} (SELECT sensor FROM traffic u WHERE speed <= 9{1}) u WITHIN 1 US TO 12 US"
    ),
    (
        "SELECT p.sensor, COUNT(*) AS n, MAX(far) AS far FROM (SELECT u.sensor, apart_us AS far"
        " FROM (SELECT sensor FROM traffic t WHERE speed >= 0{0}) t"
        " {2} (SELECT sensor FROM traffic u WHERE speed >= 0{1}) u WITHIN 6 US ON u.sensor = t.sensor) p"
        " WINDOW(RANGE 20 US SLIDE 5 US) GROUP BY p.sensor"
    ),
]
EACH = ["", " AND {}.speed < 5", " AND {}.sensor = 'a'", " AND {}.speed BETWEEN 2 AND 6"]
CONDITIONS = [
    "", " WHERE speed < 3", " WHERE speed < 5", " WHERE sensor = 'a'", " WHERE sensor IN ('a', 'c') AND speed > 2",
    " WHERE speed BETWEEN 2 AND 6", " WHERE speed % 2 = 0", " WHERE sensor LIKE 'b%' OR speed = 1", " WHERE speed <> 4",
]  # fmt: skip
ONE_STREAM = st.tuples(st.sampled_from(TEMPLATES), st.sampled_from(CONDITIONS)).map(
    lambda both: both[0].format(both[1])
)
TWO_STREAMS = st.tuples(st.sampled_from(OF_TWO), st.sampled_from(EACH), st.sampled_from(EACH)).map(
    lambda three: three[0].format(three[1].format("t"), three[2].format("u"))
)
ZIPS = st.tuples(
    st.sampled_from(ZIPPED), st.sampled_from(EACH), st.sampled_from(EACH), st.sampled_from(["", "LEFT ", "FULL "])
).map(lambda four: four[0].format(four[1].format("t"), four[2].format("u"), f"{four[3]}ZIP JOIN"))
TEXTS = ONE_STREAM | TWO_STREAMS | ZIPS
STREAM = st.lists(st.tuples(st.integers(0, 99), st.sampled_from("abcd"), st.integers(0, 9)), max_size=40)
BOUNDS = (0, 20, 45, 70, 100)
CLOSING = [(200 + place, sensor, 9) for place in range(7) for sensor in "abcd"]
"""Tuples after those that are compared: what windows by count answer ends once others have pushed its tuples out."""

Answers = dict[str, list[tuple[int, int, dict[str, Any]]]]


def answers(folder: Path, plans: list[Plan], rows: list[tuple[int, str, int]], *, forget: bool = False) -> Answers:
    """Run one plan after the other, each over its stretch of the stream."""
    run = Run(folder, Plan(1, plans[0].queries))
    for epoch, plan in enumerate(plans[1:], start=2):
        run.plans.write(Plan(epoch, plan.queries))
    for epoch, (low, high) in enumerate(itertools.pairwise(BOUNDS), start=1):
        run.append([row for row in rows if low <= row[0] < high], high)
        if forget:
            run.engine.forget()
        run.step(epoch=epoch, parts=1 + epoch % 2)
    for last, high in (([], 200), (CLOSING, 300), ([], 400)):
        run.append(last, high)
        run.step()
    assert not run.errors
    return {query: [row for row in found if row[0] < BOUNDS[-1]] for query, found in run.rows.items()}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(TEXTS, min_size=1, max_size=6), STREAM, st.data())
def test_folded_queries_answer_what_each_answers_alone(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], rows: list[tuple[int, str, int]], data: st.DataObject
) -> None:
    check_folded_is_alone(tmp_path_factory, texts, rows, data)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(ZIPPED),
    st.lists(st.tuples(*[st.sampled_from(EACH)] * 2), min_size=2, max_size=4),
    STREAM,
    st.data(),
)
def test_folded_zipper_joins_answer_what_each_answers_alone(
    tmp_path_factory: pytest.TempPathFactory,
    text: str,
    conditions: list[tuple[str, str]],
    rows: list[tuple[int, str, int]],
    data: st.DataObject,
) -> None:
    kind = data.draw(st.sampled_from(["ZIP JOIN", "LEFT ZIP JOIN", "FULL ZIP JOIN"]))
    texts = [text.format(one.format("t"), other.format("u"), kind) for one, other in conditions]
    check_folded_is_alone(tmp_path_factory, texts, rows, data)


def test_queries_of_a_zipper_join_never_share_tuples() -> None:
    text = ZIPPED[1].format("", "", "FULL ZIP JOIN")
    plan = Plan(1, tuple(PlannedQuery(f"q{n}", n, plan_node(text)) for n in (1, 2)))
    (found,) = lower(plan).fragments
    assert not found.shares_rows
    assert [each.group for each in found.subscribers] == [1, 2], "began at different times, and so pair differently"


def check_folded_is_alone(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], rows: list[tuple[int, str, int]], data: st.DataObject
) -> None:
    spans = [sorted(data.draw(st.tuples(st.integers(0, 3), st.integers(0, 3)))) for _ in texts]
    lifetimes = [
        (PlannedQuery(f"q{number}", 10 * begin + number + 1, plan_node(text)), begin, end)
        for number, (text, (begin, end)) in enumerate(zip(texts, spans, strict=True))
    ]

    def plans(only: str | None = None, *, stays: bool = False) -> list[Plan]:
        wanted = [each for each in lifetimes if only in (None, each[0].name)]
        return [
            Plan(at, tuple(q for q, begin, end in wanted if begin <= at and (stays or at <= end)))
            for at in range(len(BOUNDS) - 1)
        ]

    together = answers(tmp_path_factory.mktemp("all"), plans(), rows, forget=data.draw(st.booleans()))
    for (query, _, end), text in zip(lifetimes, texts, strict=True):
        found = together.get(query.name, [])
        if "COALESCE" in text:
            # Its answers come with a micro-batch that depends on what it shares, and may be cut when others come: once
            # it has been dropped, it may have fewer or more.
            stays = answers(tmp_path_factory.mktemp("one"), plans(query.name, stays=True), rows)
            whole = _snapshots(stays.get(query.name, []))
            assert _snapshots(found) <= whole, query.name
            assert end < len(BOUNDS) - 2 or _snapshots(found) == whole, query.name
            continue
        alone = answers(tmp_path_factory.mktemp("one"), plans(query.name), rows)
        assert _bag(found) == _bag(alone.get(query.name, [])), query.name
        starts = [start for start, _, _ in found]
        assert starts == sorted(starts) or "GROUP BY" in text, "in start order"


def _snapshots(rows: list[tuple[int, int, dict[str, Any]]]) -> Counter[tuple[Any, ...]]:
    """Return which rows hold at each instant that is compared, however they are cut."""
    return Counter((at, *sorted(row.items())) for start, end, row in rows for at in range(start, min(end, BOUNDS[-1])))


def _bag(rows: list[tuple[int, int, dict[str, Any]]]) -> Counter[tuple[Any, ...]]:
    return Counter((start, end, *sorted(row.items())) for start, end, row in rows)


def test_queries_that_differ_in_a_condition_above_other_operators_are_folded() -> None:
    plan = Plan(1, tuple(PlannedQuery(f"q{n}", n, plan_node(OF_TWO[-n].format("", ""))) for n in (1, 2, 3)))
    (found,) = lower(plan).fragments
    assert len(found.subscribers) == 3
    assert len({choice for each in found.subscribers for choice in each.choices}) == 3


def test_queries_that_differ_in_their_conditions_are_folded() -> None:
    texts = [TEMPLATES[0].format(condition) for condition in CONDITIONS]
    plan = Plan(1, tuple(PlannedQuery(f"q{n}", n, plan_node(text)) for n, text in enumerate(texts)))
    (found,) = lower(plan).fragments
    assert [each.query for each in found.subscribers] == [f"q{n}" for n in range(len(texts))]
    assert len(found.conditions[0]) == len(CONDITIONS)
    assert found.subscribers[0].conditions == (None,)
    (alone,) = lower(Plan(2, plan.queries[:1])).fragments
    assert alone.identity == found.identity, "the template's name does not depend on its queries"
    assert alone.nodes == found.nodes


def pane_widths(plan: Plan) -> list[int]:
    nodes = (node for fragment in lower(plan).fragments for node in fragment.nodes)
    return [node.operation.width_us for node in nodes if isinstance(node.operation, Panes)]


def test_aggregates_that_differ_in_their_windows_share_panes() -> None:
    texts = [TEMPLATES[2].format(""), TEMPLATES[3].format(" WHERE speed < 5"), TEMPLATES[3].format("")]
    plan = Plan(1, tuple(PlannedQuery(f"q{n}", n, plan_node(text)) for n, text in enumerate(texts)))
    (panes,) = lower(plan).fragments
    assert pane_widths(plan) == [5]
    assert len(panes.groups) == 2
    (merged,) = (node.operation for node in panes.nodes if isinstance(node.operation, PaneAggregate))
    assert [call.name for call in merged.calls] == ["fjord_count(*)", 'fjord_max("speed")', 'fjord_sum("speed")']
    (alone,) = lower(Plan(2, plan.queries[:1])).fragments
    assert alone.identity == panes.identity, "the name does not depend on its queries"


def test_a_window_of_an_hour_does_not_share_panes_of_microseconds() -> None:
    texts = [
        f"SELECT sensor, COUNT(*) AS n FROM traffic WINDOW(RANGE {size} US SLIDE {slide} US) GROUP BY sensor"
        for size, slide in ((10, 5), (3_600_000_000, 60_000_000))
    ]
    plan = Plan(1, tuple(PlannedQuery(f"q{n}", n, plan_node(text)) for n, text in enumerate(texts)))
    assert pane_widths(plan) == [5, 60_000_000]


def test_joins_that_differ_in_the_conditions_on_their_streams_are_folded() -> None:
    speeds = [
        each for each in EACH if "sensor" not in each
    ]  # a sensor's condition goes to both sides of t.sensor = u.sensor
    texts = [OF_TWO[0].format(left.format("t"), right.format("u")) for left in speeds for right in speeds]
    plan = Plan(1, tuple(PlannedQuery(f"q{n}", n, plan_node(text)) for n, text in enumerate(texts)))
    (found,) = lower(plan).fragments
    assert found.shares_rows
    assert [len({predicate for _, predicate in found.conditions[place]}) for place in (0, 1)] == [3, 3]


def test_equal_parts_of_a_query_run_once(tmp_path: Path) -> None:
    half = "SELECT sensor, MAX(speed) AS m FROM traffic WINDOW(RANGE 20 US SLIDE 10 US) GROUP BY sensor"
    text = f"SELECT sensor FROM ({half}) a UNION ALL SELECT sensor FROM ({half}) b"
    run = Run(tmp_path, Plan(1, (PlannedQuery("twice", 1, plan_node(text)),)))
    (fragment,) = lower(run.plans.read(1)).fragments
    assert len(fragment.exchanges) == 1
    run.append([(at, "ab"[at % 2], at % 5) for at in range(40)], 40)
    run.step()
    once = Run(tmp_path / "once", Plan(1, (PlannedQuery("once", 1, plan_node(half)),)))
    once.append([(at, "ab"[at % 2], at % 5) for at in range(40)], 40)
    once.step()
    for each in (run, once):  # until everything has ended: each answers what it knows, one sooner than the other
        each.append([], 100)
        each.step()

    def lasting(rows: list[tuple[int, int, dict[str, Any]]]) -> Counter[str]:
        return sum((Counter({row["sensor"]: end - start}) for start, end, row in rows), Counter())

    assert lasting(run.rows["twice"]) == lasting(2 * once.rows["once"]) != Counter()


def test_a_condition_that_fails_is_an_error_of_its_own_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cluster.fjord.operators import filtering

    compiled = filtering.compile_scalar

    def broken(scalar: Any) -> Any:
        if "%" in scalar.sql:
            raise ValueError("no such thing")
        return compiled(scalar)

    monkeypatch.setattr(filtering, "compile_scalar", broken)
    texts = {"good": TEMPLATES[0].format(" WHERE speed < 3"), "bad": TEMPLATES[0].format(" WHERE speed % 2 = 0")}
    planned = tuple(PlannedQuery(name, n, plan_node(text)) for n, (name, text) in enumerate(texts.items(), 1))
    run = Run(tmp_path, Plan(1, planned))
    run.append([(at, "a", at % 5) for at in range(20)], 20)
    run.step()
    assert list(run.errors) == ["bad"]
    assert "no such thing" in run.errors["bad"][0]
    assert len(run.rows["good"]) == 12
