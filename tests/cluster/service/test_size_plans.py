"""Plans of queries with ranges by shape: made once, and what they take is what the queries themselves take."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice

import pytest

from cluster.costs.adaptation import Cost
from cluster.costs.estimates import answering_us, estimates_of, totals_of
from cluster.costs.prices import SHIPPED
from cluster.fjord.upper_estimates import state_bytes
from cluster.language.catalog import BaseStream, Catalog, DerivedStream
from cluster.language.translation import translate
from cluster.operators import Node
from cluster.operators.size_ranges import ranges_of
from cluster.physical.lowering import lower
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.names_read import RelationSize
from cluster.plan.rewrite import rewrite
from cluster.service.catalog import planning
from cluster.service.catalog.planning import PlanningContext
from cluster.service.queries.size_plans import RangedQuery, SizeCosts, SizePlans, changed_names, shape_of
from protocols.errors import FjordError
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.oracle.text_leaves import Turns
from tests.cluster.oracle.text_queries import random_text
from tests.cluster.oracle.text_running import accepted, runnable
from tests.cluster.oracle.text_writing import written

FIELDS = (Field("k", FieldType.INTEGER), Field("x", FieldType.REAL))
NAMES = tuple(f"stream_{number}" for number in range(12))
CATALOG = Catalog.of([StreamSchema(name, FIELDS) for name in NAMES])
CONTEXT = PlanningContext(CATALOG, {}, frozenset())
RATES = {name: 1.5 + place for place, name in enumerate(NAMES)}
WINDOW = "WINDOW(RANGE MIN 1 HOUR, MAX 3 HOURS)"


def pair_of(left: str, right: str) -> str:
    return f"SELECT a.x FROM {left} {WINDOW} AS a JOIN {right} {WINDOW} AS b ON a.k = b.k"


PAIRS = [pair_of(left, right) for left in NAMES for right in NAMES if left != right]


def query(sql: str, context: PlanningContext = CONTEXT) -> RangedQuery:
    return RangedQuery(sql, sql, ranges_of(context.ranged(sql)), {})


def plain(sql: str, share: float, context: PlanningContext = CONTEXT) -> Cost:
    """Return what a query takes, planned by itself."""
    asked = query(sql, context)
    node = context.at(context.ranged(sql), asked.at(share, share))
    state = state_bytes(lower(Plan(0, (PlannedQuery("alone", 0, node),))), RATES)
    estimates = estimates_of(node, RATES)
    return Cost(state, (totals_of(estimates.values()).work_us + answering_us(node, estimates, SHIPPED)) / 1e6)


def _texts() -> Iterator[Node]:
    turns = Turns()
    for number in count():
        derived, text = written(random_text(random.Random(f"shapes {number}"), turns))
        try:
            node = accepted(derived, text).node
        except FjordError:
            continue
        if runnable(rewrite(node).node) is None:
            yield node


def test_any_plan_takes_what_its_shape_takes() -> None:
    renamed = 0
    for node in islice(_texts(), 150):
        shape = shape_of(node)
        rates = {name: 1.25 + 3 * place for place, name in enumerate(sorted(node.streams))}
        assert sorted(name for name, _ in shape.streams) == sorted(rates)
        sides = [(rewrite(node).node, rates), (rewrite(shape.node).node, shape.rates(rates))]
        found = [
            (
                state_bytes(lower(Plan(0, (PlannedQuery("q", 0, each),))), known),
                totals_of(estimates_of(each, known).values()),
            )
            for each, known in sides
        ]
        assert found[0][0] == pytest.approx(found[1][0], rel=1e-9)
        assert found[0][1].work_us == pytest.approx(found[1][1].work_us, rel=1e-9)
        renamed += len(rates) > 1 and shape.node is not node
    assert renamed > 20


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often anything was planned or translated."""
    found = {"rewrite": 0, "translate": 0}

    def counted(name: str) -> None:
        own = getattr(planning, name)

        def call(*arguments: object, **named: object) -> object:
            found[name] += 1
            return own(*arguments, **named)

        monkeypatch.setattr(planning, name, call)

    for name in found:
        counted(name)
    return found


def test_queries_of_one_shape_are_planned_once_and_take_what_each_would_alone(planned: dict[str, int]) -> None:
    costs = SizeCosts(SizePlans(CONTEXT), RATES, SHIPPED, timed=True)
    queries = [query(sql) for sql in PAIRS]
    found = {each.kind: costs.of(each, each.at(0.5, 0.5)) for each in queries}
    assert planned["rewrite"] == 1
    for sql, cost in found.items():
        expected = plain(sql, 0.5)
        assert cost.state_bytes == pytest.approx(expected.state_bytes)
        assert cost.busy == pytest.approx(expected.busy)


def test_neither_new_rates_nor_new_streams_make_plans_anew(planned: dict[str, int]) -> None:
    plans = SizePlans(CONTEXT)
    costs = SizeCosts(plans, RATES, SHIPPED, timed=False)
    queries = [query(sql) for sql in PAIRS[:20]]
    before = [costs.of(each, each.at(1, 1)).state_bytes for each in queries]
    translated, rewritten = planned["translate"], planned["rewrite"]
    more = replace(CONTEXT, catalog=CATALOG.with_stream(BaseStream(StreamSchema("other", FIELDS))))
    rates = RATES | {NAMES[0]: 100.0}
    later = SizeCosts(plans.moved_to(more), rates, SHIPPED, timed=False).with_all_of(costs)
    after = [later.of(each, each.at(1, 1)).state_bytes for each in queries]
    assert (planned["translate"], planned["rewrite"]) == (translated, rewritten)
    assert [one < other for one, other in zip(before, after, strict=True)] == [
        NAMES[0] in each.kind for each in queries
    ]


def test_a_text_that_comes_to_mean_something_else_is_translated_anew() -> None:
    text, other = (f"SELECT DISTINCT x FROM hot {WINDOW}", PAIRS[0])
    catalogs = []
    for stream in NAMES[:2]:
        named = translate(f"SELECT k, x FROM {stream}", CATALOG).node
        catalogs.append(CATALOG.with_stream(DerivedStream("Hot", named, reads=frozenset({stream}))))
    plans = SizePlans(replace(CONTEXT, catalog=catalogs[0]))
    known = plans.ranged(text), plans.ranged(other)
    moved = plans.moved_to(replace(CONTEXT, catalog=catalogs[1]))
    assert moved.ranged(text).streams == {NAMES[1]}
    assert known[0].streams == {NAMES[0]}
    assert moved.ranged(other) is known[1]
    costs = SizeCosts(plans, RATES, SHIPPED, timed=False)
    ranged = RangedQuery("q", text, ranges_of(known[0]), {})
    first = costs.of(ranged, {}).state_bytes
    second = SizeCosts(moved, RATES, SHIPPED, timed=False).with_all_of(costs).of(ranged, {}).state_bytes
    assert second / first == pytest.approx(RATES[NAMES[1]] / RATES[NAMES[0]])


def test_what_reads_a_changed_stream_changes_with_it() -> None:
    node = translate(f"SELECT k FROM {NAMES[0]}", CATALOG).node
    before = CATALOG.with_stream(DerivedStream("one", node, reads=frozenset({NAMES[0].upper()})))
    before = before.with_stream(DerivedStream("two", node, reads=frozenset({"One"})))
    schema = StreamSchema(NAMES[0], (*FIELDS, Field("y", FieldType.REAL)))
    after = replace(before, entries={**before.entries, NAMES[0]: BaseStream(schema)})
    assert changed_names(before, after) == {NAMES[0], "one", "two"}
    assert changed_names(before, before.with_stream(BaseStream(StreamSchema("more", FIELDS)))) == frozenset()


def test_plans_without_relations_outlive_a_change_of_these(planned: dict[str, int]) -> None:
    plans = SizePlans(CONTEXT)
    shape = plans.shape(PAIRS[0])
    plans.at(shape, {})
    moved = plans.moved_to(replace(CONTEXT, sizes={"places@1": RelationSize(10, 100)}))
    moved.at(moved.shape(PAIRS[1]), {})
    assert planned["rewrite"] == 1


def test_texts_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.service.queries.size_plans.MOST_PLANS", 4)
    plans = SizePlans(CONTEXT)
    for sql in PAIRS[:12]:
        plans.shape(sql)
    for share in range(8):
        plans.lowered((plans.at(plans.shape(PAIRS[0]), query(PAIRS[0]).at(share / 8, 1.0)),))
    assert len(plans._lowered) <= 4
    plans.keep({PAIRS[0]})
    assert list(plans._ranged) == list(plans._shapes) == [PAIRS[0]]
