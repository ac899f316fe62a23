"""A query that lets sensors sample faster is priced by what they will bring for it, not by what they bring now."""

from __future__ import annotations

import re

import pytest

from cluster.fjord.acceptance import RowLimitError, RowLimits
from cluster.fjord.upper_estimates import StateLimitError
from cluster.service.queries.query_limits import demanded_rates
from protocols.wire.catalog import MoteEntry
from protocols.wire.demands import PaneDemand, PropertyBand, QueryDemand
from tests.cluster.service.conftest import Service
from tests.cluster.service.driven_devices import device
from tests.cluster.service.test_lifetime_notes import entry
from tests.cluster.service.test_query_service import store_fifty_a_second

MOTES = tuple(
    entry(
        f"m{number}", properties={"sensor": f"m{number}", "lane": number % 2},
        default_period_us=1_000_000, minimum_period_us=5_000,
    )
    for number in range(50)
)  # fmt: skip
PRODUCT = "SELECT a.speed FROM traffic a WINDOW(RANGE 1 MINUTE), traffic b WINDOW(RANGE 1 MINUTE) WHERE a.lane < 9{}"
FAST = " SAMPLE EVERY 10 MILLISECONDS"


def rates_of(*demands: QueryDemand, motes: tuple[MoteEntry, ...] = MOTES, known: float = 50.0) -> dict[str, float]:
    return demanded_rates([("traffic", demands)], lambda: motes, {"traffic": known})


def sampled(period_us: int | None, *bands: PropertyBand, panes: PaneDemand | None = None) -> QueryDemand:
    return QueryDemand("q", ("speed",), period_us, sensors=bands, panes=panes)


def test_each_sensor_brings_a_tuple_in_each_period() -> None:
    assert rates_of(sampled(10_000)) == {"traffic": 5_000}
    assert rates_of(sampled(1_000_000), sampled(100_000)) == {"traffic": 500}
    assert rates_of(sampled(10_000), motes=()) == {}


def test_no_sensor_is_faster_than_it_can() -> None:
    assert rates_of(sampled(1)) == {"traffic": 50 * 200}


def test_sensors_that_nobody_has_asked_bring_a_tuple_in_each_period_of_their_own() -> None:
    assert rates_of(sampled(None), known=0.0) == {"traffic": 50}
    assert rates_of(sampled(None), sampled(10_000_000), known=7.0) == {"traffic": 50}
    assert rates_of(sampled(10_000_000), known=0.0) == {"traffic": pytest.approx(5)}
    assert rates_of(sampled(None, PropertyBand("sensor", "m7", "m7")), known=0.0) == {"traffic": 1}
    assert rates_of(sampled(None), known=0.0, motes=(device("bell", default_period_us=1_000_000),)) == {}


def test_only_sensors_that_the_query_reads_become_faster() -> None:
    one = PropertyBand("sensor", "m7", "m7")
    assert rates_of(sampled(10_000, one)) == {"traffic": 100}
    assert rates_of(sampled(10_000, one, PropertyBand("sensor", "m9", "m9"))) == {"traffic": 200}
    assert rates_of(sampled(10_000, one, PropertyBand("lane", 0, 0))) == {}


def test_what_brings_no_more_than_there_is_changes_nothing() -> None:
    assert rates_of(sampled(None)) == {}
    assert rates_of(sampled(1_000_000)) == {}
    assert rates_of(sampled(10_000, panes=PaneDemand("f", 1_000_000, ()))) == {}
    assert rates_of(sampled(10_000), motes=(device("bell", minimum_period_us=5_000),)) == {}
    assert rates_of(sampled(10_000), motes=(device("lamp", publishes=False),)) == {"traffic": 100}


async def test_a_product_of_fast_samples_is_refused_though_few_come_now(service: Service) -> None:
    store_fifty_a_second(service)
    queries = service.started(entries=lambda: MOTES, row_limits=RowLimits(answers_per_second=10**9))
    await queries.add(PRODUCT.format(""), "slow")
    with pytest.raises(RowLimitError, match="traffic would bring 5,000 tuples per second for it") as caught:
        await queries.add(PRODUCT.format(FAST))
    assert "of them for this query alone" in str(caught.value)
    assert [each.name for each in service.registry.plan.queries] == ["slow"]
    await queries.add(PRODUCT.format(" AND a.sensor = 'm7' AND b.sensor = 'm7'" + FAST))


async def test_a_product_is_refused_though_nothing_comes_as_nobody_has_asked(service: Service) -> None:
    queries = service.started(entries=lambda: MOTES)
    six = ", ".join(f"traffic a{number} WINDOW(RANGE 1 MINUTE)" for number in range(6))
    text = f"SELECT COUNT(*) AS n FROM {six}"
    with pytest.raises(RowLimitError, match="traffic would bring 50 tuples per second for it"):
        await queries.add(text)
    made = re.search(r"at most: ([\d,]+) rows made in a second", await queries.explain(text))
    assert made is not None
    assert int(made[1].replace(",", "")) > 10**18


async def test_a_window_of_fast_samples_counts_with_all_that_it_will_keep(service: Service) -> None:
    store_fifty_a_second(service)
    queries = service.started(entries=lambda: MOTES, max_state_bytes=100 * 1024**2)
    text = "SELECT DISTINCT speed, lane FROM traffic WINDOW(RANGE 10 MINUTES)"
    await queries.add(text)
    with pytest.raises(StateLimitError, match="traffic would bring 5,000 tuples per second for it"):
        await queries.add(text + FAST)
