"""What lookups make of tuples: as relations let expect it, as it is measured, and what orders cost by it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import polars as pl
import pytest
from msgspec.structs import replace

from cluster.costs.estimates import estimates_of, totals_of
from cluster.costs.prices import SHIPPED
from cluster.costs.selectivity import expected_partners
from cluster.fjord.acceptance import RowLimitError, RowLimits, check_rows
from cluster.fjord.batch import START
from cluster.fjord.measured_plans import measured_partners
from cluster.fjord.operator_statistics import NONE_YET, Rates
from cluster.fjord.stream_scan import RowsInMemory
from cluster.fjord.upper_estimates import RowFlows
from cluster.language.catalog import BaseStream, Catalog, StaticRelation
from cluster.language.translation import translate
from cluster.local.engine import Arrival, LocalEngine, MemoryTables, RelationRows
from cluster.operators import Node, Source, TableLookup
from cluster.operators.columns import Column
from cluster.operators.walks import nodes_of
from cluster.physical.lowering import lower
from cluster.physical.nodes import NOTHING
from cluster.plan.alternatives import alternatives
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.names_read import RelationSize
from cluster.plan.rewrite import rewrite
from cluster.service.queries.plan_options import Figures, costs_of, options_of
from protocols.wire.batches import DEFAULT_RATE_COLUMN
from protocols.wire.streams import Field, FieldType, StreamSchema

INTEGER = FieldType.INTEGER
SECOND = 1_000_000
TABLES = ("places", "closed", "visits")
CATALOG = Catalog.of(
    [
        BaseStream(StreamSchema("tuples", (Field("k", INTEGER), Field("m", INTEGER)))),
        *(StaticRelation(name, f"{name}@1", (Column("k", INTEGER), Column("y", INTEGER))) for name in TABLES),
    ]
)
SIZES = {
    "places@1": RelationSize(1_000, 16_000, {"k": 1_000, "y": 10}),
    "closed@1": RelationSize(50, 800, {"k": 10, "y": 10}),
    "visits@1": RelationSize(5_000, 80_000, {"k": 1_000, "y": 10}),
}
RATES = {"tuples": 100_000.0}
BOTH = "SELECT t.m, p.y, c.y AS z FROM tuples t JOIN places p ON t.k = p.k JOIN closed c ON t.k = c.k"


def plan_of(text: str, sizes: Mapping[str, RelationSize] = SIZES) -> Node:
    return rewrite(translate(text, CATALOG).node, sizes=sizes).node


def named(lookup: TableLookup) -> str:
    return "+".join(each.name for each in lookup.table.relations)


def order_of(plan: Node) -> list[str]:
    (source,) = (each for each in nodes_of(plan) if isinstance(each, Source))
    return [named(each) for each in source.lookups]


def expected(text: str, sizes: Mapping[str, RelationSize] = SIZES) -> dict[str, float]:
    return {named(lookup): rows for (_, lookup), rows in expected_partners(plan_of(text, sizes), sizes).items()}


def test_what_is_found_follows_from_keys() -> None:
    assert expected(BOTH) == {"places": 1, "closed": pytest.approx(0.05)}
    assert expected(BOTH.replace("closed", "visits")) == {"places": 1, "visits": 5}


def test_of_a_column_that_is_looked_up_once_each_tuple_finds_a_row() -> None:
    assert expected(BOTH.replace("t.k = c.k", "t.m = c.k")) == {"places": 1, "closed": 5}


def test_what_becomes_of_tuples_depends_on_the_kind() -> None:
    left = BOTH.replace("JOIN closed", "LEFT JOIN closed")
    assert expected(left)["closed"] == pytest.approx(0.05 + 0.99)
    kept = "SELECT t.m, p.y FROM tuples t JOIN places p ON t.k = p.k WHERE t.k {} (SELECT k FROM closed)"
    assert expected(kept.format("IN"))["closed"] == pytest.approx(0.01)
    assert expected(
        "SELECT t.m, p.y FROM tuples t JOIN places p ON t.k = p.k WHERE NOT EXISTS "
        "(SELECT 1 FROM closed c WHERE c.k = t.k)"
    )["closed"] == pytest.approx(0.99)


def test_conditions_on_a_table_keep_a_share_of_it() -> None:
    kept = "SELECT t.m, c.y FROM tuples t JOIN closed c ON t.k = c.k WHERE t.k IN (SELECT k FROM places WHERE y = 3)"
    assert expected(kept) == {"places": pytest.approx(0.1), "closed": pytest.approx(0.05)}
    assert expected(BOTH.replace("c.k", "c.k AND c.y > t.m"))["closed"] == pytest.approx(0.05 / 3)


def test_of_unknown_relations_nothing_is_expected() -> None:
    assert expected(BOTH, {}) == {}
    assert expected(BOTH, {"places@1": SIZES["places@1"]}) == {"places": 1}
    assert estimates_of(plan_of(BOTH, {}), RATES)[plan_of(BOTH, {})].rows_per_second == pytest.approx(100_000)


def test_a_lookup_that_keeps_one_of_a_hundred_is_cheaper_first_and_is_chosen() -> None:
    """Without costs the relation with fewer partners of each tuple comes first, however few tuples have any."""
    planned = plan_of(BOTH)
    assert order_of(planned) == ["places", "closed"]
    plans = alternatives(planned)
    figures = Figures(RATES, {}, SHIPPED, relations=SIZES)
    costs = {tuple(order_of(each.node)): cost for each, cost in zip(plans, costs_of("q", plans, figures), strict=True)}
    first, second = costs["closed", "places"], costs["places", "closed"]
    assert first is not None
    assert second is not None
    assert first.work_us < 0.8 * second.work_us
    best = options_of(PlannedQuery("q", 1, planned), plans, figures)[0]
    assert order_of(plans[best.number - 1].node) == ["closed", "places"]


def test_both_orders_give_as_many_rows() -> None:
    plans = [each.node for each in alternatives(plan_of(BOTH))]
    rows = {
        tuple(order_of(each)): estimates_of(each, RATES, partners=expected_partners(each, SIZES))[each].rows_per_second
        for each in plans
    }
    assert rows == dict.fromkeys([("places", "closed"), ("closed", "places")], pytest.approx(5_000))


def test_what_is_measured_counts() -> None:
    planned = plan_of(BOTH)
    plans = alternatives(planned)
    rare = {key: 0.001 if named(key[1]) == "places" else 1.0 for key in expected_partners(planned, SIZES)}
    figures = Figures(RATES, {}, SHIPPED, relations=SIZES, partners=rare)
    best = options_of(PlannedQuery("q", 1, planned), plans, figures)[0]
    assert order_of(plans[best.number - 1].node) == ["places", "closed"]


@pytest.mark.parametrize("window", ["", " WINDOW(RANGE 2 SECONDS)"])
def test_lookups_that_run_are_measured(window: str) -> None:
    """One on each host: both have lookups with the number one; of the same name they are the same lookup."""
    text = BOTH if not window else f"SELECT DISTINCT z FROM ({BOTH.replace('tuples t', f'tuples{window} AS t')}) AS d"
    node = plan_of(text)
    other = plan_of("SELECT t.m, v.y FROM tuples t JOIN visits v ON t.k = v.k")
    queries = (PlannedQuery("q", 1, node), PlannedQuery("other", 1, other))
    rows = {"places": range(1_000), "closed": [k for k in range(10) for _ in range(5)], "visits": [7] * 3}
    tables = MemoryTables(
        {f"{name}@1": [RelationRows(pl.DataFrame({"k": keys, "y": [1] * len(keys)}))] for name, keys in rows.items()}
    )
    ticks = itertools.count(0, 10)
    engine = LocalEngine(Plan(1, queries), tables=lambda: tables, clock=lambda: float(next(ticks)))
    keys = list(range(1_000))
    frame = pl.DataFrame({START: [each * 100 for each in keys], "k": keys, "m": keys})
    frame = frame.with_columns(pl.lit(True).alias(DEFAULT_RATE_COLUMN))
    counters = engine.run({"tuples": Arrival((RowsInMemory(frame),), SECOND)}).counters

    def rates(name: str) -> Rates:
        done = counters.get(name)
        return NONE_YET if done is None else Rates(done.rows_in, done.rows_out, done.seconds)

    physical = lower(Plan(1, queries))
    found = {named(lookup): made for (_, lookup), made in measured_partners(physical, rates).items()}
    assert found == {"places": 1, "closed": 0.05, "visits": 0.003}
    assert measured_partners(physical, lambda _: NONE_YET) == {}


def test_a_dropped_tuple_is_looked_up_no_more() -> None:
    planned = plan_of(BOTH)
    (source,) = (each for each in nodes_of(planned) if isinstance(each, Source))
    partners = expected_partners(planned, SIZES)
    work = []
    for lookups in (source.lookups, source.lookups[::-1]):
        turned = replace(source, lookups=lookups)
        work.append(totals_of(estimates_of(turned, RATES, partners=partners).values()).work_us)
    price = SHIPPED.of_lookup
    # 100,000 a second: one finds a row for each and the other one for a twentieth, or the other way round.
    assert work[0] - work[1] == pytest.approx(95_000 * (price.row_in + price.row_out))


LOOKED_UP = {
    "SELECT t.m, p.y FROM tuples t JOIN places p ON t.k = p.k": 1,
    "SELECT t.m, v.y FROM tuples t JOIN visits v ON t.k = v.k": 5,
    "SELECT t.m, v.y FROM tuples t LEFT JOIN visits v ON t.k = v.k AND t.m < v.y": 5,
    "SELECT t.m, v.y FROM tuples t JOIN visits v ON t.k < v.k": 5_000 / 3,
    "SELECT t.m, v.y FROM tuples t JOIN visits v ON t.k = v.k, closed c": 5 * 50,
    "SELECT t.m, v.y FROM tuples t, visits v, places p": 5_000 * 1_000,
    "SELECT t.m FROM tuples t WHERE EXISTS (SELECT 1 FROM visits v WHERE v.k = t.k)": 1,
}


@pytest.mark.parametrize(("text", "most"), LOOKED_UP.items())
def test_products_with_relations_are_bounded_as_they_are_explained(text: str, most: float) -> None:
    node = plan_of(text)
    rates = {"tuples": 10.0}
    plan = lower(Plan(1, (PlannedQuery("q", 1, node),)))
    (fragment,) = plan.fragments
    assert RowFlows(fragment, {}, SIZES).answers.per_tuple == pytest.approx(most)
    expected = estimates_of(node, rates, partners=expected_partners(node, SIZES))[node].rows_per_second
    assert expected is not None
    bound = RowFlows(fragment, rates, SIZES).answers.per_second
    assert expected <= bound * 1.000001
    identity = plan.oldest_first[0].identity
    limits = RowLimits(per_tuple=10**9, per_second=round(bound), answers_per_second=10**9)
    check_rows(NOTHING, plan, identity, rates, limits, sizes=SIZES)
    if most > 1:
        with pytest.raises(RowLimitError, match="because of a relation of which each tuple finds many rows"):
            check_rows(NOTHING, plan, identity, {}, RowLimits(per_tuple=round(most) - 1), sizes=SIZES)
        fewer = RowLimits(per_tuple=10**9, per_second=round(10 * (most - 1)) - 1)
        with pytest.raises(RowLimitError, match="for this query alone"):
            check_rows(NOTHING, plan, identity, rates, fewer, sizes=SIZES)
