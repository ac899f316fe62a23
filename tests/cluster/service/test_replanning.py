"""Running queries go on with cheaper plans when figures change, and new ones have the cheapest plan at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from cluster.costs.choice import HELD_SECONDS, REST_SECONDS
from cluster.errors import ClusterError
from cluster.expressions.nodes import Expression
from cluster.fjord.counters import Totals
from cluster.fjord.operator_statistics import NONE_YET, OperatorStatistics, Rates
from cluster.operators import Join
from cluster.operators.walks import nodes_of
from cluster.physical.operations import Join as JoinOperation
from cluster.physical.operations import Panes, SharedExtents
from cluster.plan.alternatives import alternatives
from cluster.plan.explain import explain
from cluster.planning_budget import PlanningLimitError
from cluster.service.catalog.planning import Planning
from cluster.service.queries import replanning
from cluster.service.queries.measured_shares import FEWEST_SECONDS
from cluster.service.queries.operator_prices import OperatorPrices
from cluster.service.queries.replanning import Replanning
from cluster.service.registry.registry import Registry
from protocols.wire import topics
from protocols.wire.catalog import StreamOffer
from protocols.wire.frames import encode
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.service.conftest import Service

FIELDS = (Field("k", FieldType.INTEGER), Field("m", FieldType.INTEGER), Field("x", FieldType.REAL))
SLOW_LAST = {"a": 2_000.0, "b": 2_000.0, "c": 1.0}
SLOW_FIRST = {"a": 1.0, "b": 2_000.0, "c": 2_000.0}
JOINED = (
    "SELECT a.x, b.x AS y, c.x AS z FROM a WINDOW(RANGE 1 MINUTE), b WINDOW(RANGE 1 MINUTE), c WINDOW(RANGE 1 MINUTE) "
    "WHERE a.k = b.k AND b.m = c.m"
)
A_LAST = "(a, (b, c))"


class _Rates:
    """Rates of streams that a test sets."""

    def __init__(self, rates: Mapping[str, float]) -> None:
        self.known = dict(rates)

    def rates(self, streams: frozenset[str]) -> Mapping[str, float]:
        return {stream: rate for stream, rate in self.known.items() if stream in streams}


class _Bench:
    """A service with three streams, replanning whose figures and clock are set, and its migrations."""

    def __init__(self, service: Service, rates: Mapping[str, float]) -> None:
        self.rates, self.now, self.wall = _Rates(rates), 0.0, 0.0
        self.service = service
        self.operators = OperatorStatistics()
        self.replanning = Replanning(
            service.registry,
            limits=self.rates,
            operators=self.operators,
            prices=OperatorPrices(),
            planning=Planning(),
            context=service.queries._context,
            migrate=service.queries.migrate,
            clock=lambda: self.now,
            wall=lambda: self.wall,
        )

    async def looks(self, seconds: float) -> list[dict[str, int]]:
        """Look every five seconds; return the plans that queries went on with."""
        found = []
        end = self.now + seconds
        while self.now < end:
            self.now += 5
            found += [dict(each.plans) for each in await self.replanning.step()]
        return found

    def plan(self, name: str) -> str:
        query = self.service.registry.query(name)
        return explain(query.node if query.next_node is None else query.next_node)


@pytest.fixture
async def bench(service: Service) -> _Bench:
    for name in "abc":
        await service.handle(topics.stream_offer("p", name), encode(StreamOffer(1, "p", StreamSchema(name, FIELDS))))
    service.registry._max_queries = 100
    return _Bench(service, SLOW_FIRST)


async def test_a_query_goes_on_with_a_cheaper_plan_once_rates_have_changed(bench: _Bench) -> None:
    await bench.service.queries.add(JOINED, "joined")
    before = bench.plan("joined")
    assert await bench.looks(60) == []
    bench.rates.known = dict(SLOW_LAST)
    assert await bench.looks(HELD_SECONDS) == []
    (found,) = await bench.looks(60)
    assert bench.plan("joined") != before
    number = found["joined"]
    assert A_LAST in alternatives(bench.service.registry.query("joined").node)[number - 1].words
    (step,) = [each for each in bench.service.registry.plan_history(10) if each.migrations_begin]
    assert f"plan {number}: streams are joined as {A_LAST} (it saves: " in step.words
    assert "of work a second instead of" in step.words


async def test_a_plan_that_was_asked_for_stays_for_a_minute(bench: _Bench) -> None:
    queries = bench.service.queries
    queries.replanning = bench.replanning
    query, _ = await queries.add(JOINED, "joined")
    cheapest = bench.plan("joined")
    await queries.migrate_to("joined", 2 if alternatives(query.node)[0].node == query.node else 1)
    bench.service.registry.finish_migration("joined", bench.service.registry.physical.positions)
    assert bench.plan("joined") != cheapest
    assert await bench.looks(REST_SECONDS - 5) == []
    assert len(await bench.looks(HELD_SECONDS + 10)) == 1
    assert bench.plan("joined") == cheapest


async def test_figures_that_waver_change_nothing(bench: _Bench) -> None:
    bench.rates.known = dict.fromkeys("abc", 500.0)
    await bench.service.queries.add(JOINED, "joined")
    for place in range(40):
        bench.rates.known = {name: 500.0 * (1.1 if (place + at) % 2 else 0.9) for at, name in enumerate("abc")}
        assert await bench.looks(5) == []


async def test_nothing_is_compared_while_nothing_drifts(bench: _Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.service.queries.add(JOINED, "joined")
    await bench.looks(20)
    compared = []
    monkeypatch.setattr(bench.replanning, "_candidate", lambda *_: compared.append(1))
    await bench.looks(60)
    assert compared == []
    bench.rates.known["a"] *= 3
    await bench.looks(20)
    assert compared


async def test_of_streams_without_rates_nothing_is_known(bench: _Bench) -> None:
    bench.rates.known = {"a": 1.0}
    await bench.service.queries.add(JOINED, "joined")
    assert await bench.looks(60) == []


async def test_a_query_that_ends_meanwhile_is_no_error(bench: _Bench) -> None:
    await bench.service.queries.add(JOINED, "joined")
    await bench.looks(20)
    bench.rates.known = dict(SLOW_LAST)
    await bench.looks(5)
    await bench.service.queries.drop("joined")
    assert await bench.looks(30) == []


async def test_a_new_query_has_the_cheapest_plan_at_once(bench: _Bench) -> None:
    queries = bench.service.queries
    queries.replanning = bench.replanning
    await queries.add(JOINED, "first")
    bench.rates.known = dict(SLOW_LAST)
    await queries.add(JOINED.replace("c.x AS z", "c.x + 1 AS z"), "second")
    first, second = bench.plan("first"), bench.plan("second")
    assert first.index("stream c") > first.index("stream b") > first.index("stream a")
    assert "join k = k_2\n   ├─ project k, x\n   │  └─ window of 1m\n   │     └─ stream a" in second
    assert "join m_2 = m_3\n   ├─" in first


def _window(seconds: int, slide: int, function: str = "AVG") -> str:
    return f"SELECT k, {function}(x) AS m FROM a WINDOW(RANGE {seconds} SECONDS SLIDE {slide} SECONDS) GROUP BY k"


EVEN = tuple(_window(seconds, 5, function) for seconds in (60, 125, 305, 600) for function in ("AVG", "MAX"))
ODD = _window(61, 7)


def _families(bench: _Bench) -> dict[str, int]:
    """Return which width of panes each query has."""
    return {
        each.query: next(node.operation for node in fragment.nodes if isinstance(node.operation, Panes)).width_us
        for fragment in bench.service.registry.physical.fragments
        for each in fragment.subscribers
    }


async def test_a_window_that_makes_the_panes_of_others_narrow_gets_a_family(bench: _Bench) -> None:
    bench.rates.known = {"a": 0.2}
    for number, text in enumerate((*EVEN, ODD)):
        await bench.service.queries.add(text, f"q{number}")
    assert await bench.looks(60) == []
    bench.rates.known = {"a": 2_000.0}
    assert await bench.looks(60) == [{"q8": 2}]
    (step,) = [each for each in bench.service.registry.plan_history(30) if each.migrations_begin]
    assert "plan 2: panes are shared in the family of 1s only (it saves: " in step.words
    assert {each.migration for each in await bench.service.queries.alternatives.of("q8")} == {"", "whole"}
    assert await bench.looks(120) == []


async def test_a_new_window_that_would_make_panes_narrow_begins_in_a_family(bench: _Bench) -> None:
    bench.rates.known = {"a": 2_000.0}
    queries = bench.service.queries
    queries.replanning = bench.replanning
    for number, text in enumerate(EVEN):
        await queries.add(text, f"q{number}")
    await queries.add(ODD, "odd")
    await queries.add(_window(59, 13), "also")
    await queries.add(_window(90, 10), "even")
    assert _families(bench) == {f"q{n}": 5_000_000 for n in range(8)} | {
        "odd": 1_000_000,
        "also": 1_000_000,
        "even": 10_000_000,
    }
    assert await bench.looks(60) == []
    await queries.drop("odd")
    await queries.drop("also")


async def test_a_family_ends_when_it_makes_nothing_wider_any_more(bench: _Bench) -> None:
    bench.rates.known = {"a": 2_000.0}
    queries = bench.service.queries
    queries.replanning = bench.replanning
    await queries.add(EVEN[0], "even")
    for number, text in enumerate(EVEN):
        await queries.add(text, f"q{number}")
    await queries.add(ODD, "odd")
    for number in range(len(EVEN)):
        await queries.drop(f"q{number}")
    await queries.drop("even")
    bench.rates.known = {"a": 0.2}
    await queries.add(EVEN[0].replace("60", "14"), "short")
    (found,) = await bench.looks(60)
    assert found == {"odd": 1}


async def test_queries_have_their_turn(bench: _Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look computes the costs of some plans only; those that share a fragment change together all the same."""
    monkeypatch.setattr(replanning, "MOST_COSTED", 1)
    for number in range(6):
        await bench.service.queries.add(JOINED.replace("WHERE", f"WHERE a.x > {number} AND"), f"q{number}")
    compared: list[str] = []
    candidate = bench.replanning._candidate
    monkeypatch.setattr(
        bench.replanning, "_candidate", lambda query, *given: compared.append(query.name) or candidate(query, *given)
    )
    bench.rates.known = dict(SLOW_LAST)
    assert await bench.looks(5) == []
    assert compared == ["q0"]
    found = await bench.looks(120)
    assert set(compared) == {f"q{n}" for n in range(6)}
    assert set().union(*found) == {f"q{n}" for n in range(6)}


async def test_a_plan_that_does_not_fit_is_not_taken(bench: _Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs are averages; limits are bounds, which the first plan may keep and the cheapest may not."""
    queries = bench.service.queries
    queries.replanning = bench.replanning
    bench.rates.known = dict(SLOW_LAST)
    checked = []

    async def check(query: object) -> None:
        checked.append(query)
        if len(checked) == 1:
            raise ClusterError("too much")

    monkeypatch.setattr(queries.limits, "check", check)
    await queries.add(JOINED, "joined")
    assert len(checked) == 2
    assert "join m_2 = m_3\n   ├─" in bench.plan("joined")


async def test_it_can_be_turned_off(service: Service) -> None:
    assert service.queries.replanning._on
    assert not service.started(replan=False).replanning._on


async def test_what_joins_have_shown_counts(bench: _Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates are equal; but hardly any row of a has a partner."""
    bench.rates.known = dict.fromkeys("abc", 200.0)
    await bench.service.queries.add(
        JOINED.replace("WHERE a.k = b.k AND b.m = c.m", "WHERE b.m = c.m AND a.k = b.k"), "joined"
    )
    (query,) = bench.service.registry.queries()
    fragment = bench.service.registry.physical.by_query[query.identity]
    joins = [each for each in fragment.nodes if isinstance(each.operation, JoinOperation)]
    plenty = {joins[0].id: Rates(400.0, 40_000.0, 0.1), joins[1].id: Rates(40_200.0, 10.0, 0.1)}
    monkeypatch.setattr(bench.operators, "rates", lambda name: plenty.get(name, NONE_YET))
    bench.wall = query.created_us / 1e6
    assert await bench.looks(30) == []
    bench.wall += FEWEST_SECONDS + 200
    assert await bench.looks(60) != []
    shares: Mapping[Expression, float] = bench.replanning._shares.known["joined"]
    assert len(shares) == len([each for each in nodes_of(query.node) if isinstance(each, Join)])


async def test_what_goes_wrong_while_plans_are_compared_costs_nothing_else(
    bench: _Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, looked_again = 0, asyncio.Event()

    async def broken() -> None:
        nonlocal looks
        looks += 1
        if looks > 1:
            looked_again.set()
        raise KeyError("lost")

    monkeypatch.setattr(replanning, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(bench.replanning, "step", broken)
    running = asyncio.create_task(bench.replanning.run())
    async with asyncio.timeout(10):
        await looked_again.wait()
    assert not running.done()
    running.cancel()


async def test_a_query_is_added_though_its_plans_cannot_be_compared(
    bench: _Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(*_: object) -> None:
        raise PlanningLimitError("too late")

    monkeypatch.setattr(bench.service.queries.replanning, "placed", late)
    await bench.service.queries.add(JOINED, "joined")
    assert "join m_2 = m_3\n   ├─" in bench.plan("joined")


async def test_reasons_are_kept_after_a_restart(bench: _Bench) -> None:
    await bench.service.queries.add(JOINED, "joined")
    await bench.service.queries.migrate_to("joined", 2)
    registry = Registry(bench.service.registry.folder / "registry.sqlite", bench.service.plans)
    (step,) = [each for each in registry.plan_history(10) if each.migrations_begin]
    assert step.words == "joined migrating (plan 2 was asked for)"
    registry.close()


WAYS = ("x BY k", "m BY k", "x TOLERANCE 1 BY k", "m, x BY k")
"""How four queries coalesce one window."""


def _extents(window: str) -> list[str]:
    return [f"SELECT k, VALID(r) AS held FROM a WINDOW({window}) COALESCE({way}) AS r" for way in WAYS]


async def test_queries_that_coalesce_one_window_share_whole_samples_where_that_is_cheaper(bench: _Bench) -> None:
    bench.rates.known = {"a": 2_000.0}
    for number, text in enumerate(_extents("RANGE 10 SECONDS SLIDE 5 SECONDS")):
        await bench.service.queries.add(text, f"q{number}")
    assert len(bench.service.registry.physical.fragments) == len(WAYS)
    found = [name for each in await bench.looks(120) for name in each]
    assert sorted(found) == ["q0", "q1", "q2", "q3"]
    assert all("lazily" in bench.plan(f"q{number}") for number in range(4))


@pytest.mark.parametrize(
    ("keys", "linked", "lazily"), [(10, 30, False), (1_000, 30, True), (200, 0, False), (200, 60, True)]
)
async def test_where_samples_have_many_keys_or_are_linked_whole_ones_are_shared(
    bench: _Bench, keys: int, linked: int, *, lazily: bool
) -> None:
    """Few keys are assumed until the first window is full; then they are measured, and how many of 60 are linked."""
    bench.rates.known = {"a": 2_000.0}
    for number, text in enumerate(_extents("RANGE 10 SECONDS")):
        await bench.service.queries.add(text, f"q{number}")
    for fragment in bench.service.registry.physical.fragments:
        (operator,) = (each for each in fragment.nodes if isinstance(each.operation, SharedExtents))
        did = Totals(fragment.identity, 1, rows_in=100, companions=100 * 20_000 // keys, neighbours=60, linked=linked)
        bench.operators.add({operator.id: did})
    bench.operators.observe(each.identity for each in bench.service.registry.physical.fragments)
    created_us = bench.service.registry.query("q3").created_us
    bench.wall = created_us / 1e6 + FEWEST_SECONDS
    assert await bench.looks(60) == []
    bench.wall += 11
    found = [name for each in await bench.looks(60) for name in each]
    assert sorted(found) == (["q0", "q1", "q2", "q3"] if lazily else [])


@pytest.mark.parametrize("linked_first", [60, 0])
async def test_how_many_samples_are_linked_is_averaged_over_all_ways(bench: _Bench, linked_first: int) -> None:
    """One way whose samples are all linked, or none, does not stand for the others."""
    bench.rates.known = {"a": 2_000.0}
    for number, text in enumerate(_extents("RANGE 10 SECONDS")):
        await bench.service.queries.add(text, f"q{number}")
    fragments = bench.service.registry.physical.fragments
    for place, fragment in enumerate(fragments):
        (operator,) = (each for each in fragment.nodes if isinstance(each.operation, SharedExtents))
        linked = 60 - linked_first if place else linked_first
        did = Totals(fragment.identity, 1, rows_in=100, companions=7_000, neighbours=60, linked=linked)
        bench.operators.add({operator.id: did})
    bench.operators.observe(each.identity for each in fragments)
    bench.wall = bench.service.registry.query("q3").created_us / 1e6 + FEWEST_SECONDS
    assert await bench.looks(60) == []
    bench.wall += 11
    found = [name for each in await bench.looks(60) for name in each]
    assert sorted(found) == ([] if linked_first else ["q0", "q1", "q2", "q3"])


async def test_rows_that_change_all_the_time_are_not_coalesced_anew_each_time(bench: _Bench) -> None:
    bench.rates.known = {"a": 2_000.0}
    for number, text in enumerate(_extents("RANGE 10 SECONDS")):
        await bench.service.queries.add(text, f"q{number}")
    assert await bench.looks(60) == []
