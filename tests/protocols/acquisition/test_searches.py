"""What was searched for one demand is known for the next: programs are the same, at a fraction of the work."""

from __future__ import annotations

import threading
from random import Random
from typing import Any

import pytest

from protocols.acquisition.effort import Effort
from protocols.acquisition.exhaustive import Exhaustive
from protocols.acquisition.least_cost import LeastCost
from protocols.acquisition.merging import Merger
from protocols.acquisition.needs import Need, NeedKind, fold_demands
from protocols.acquisition.observed import Observed
from protocols.acquisition.pricing import Pricing, Sensor
from protocols.acquisition.program_reports import ProgramStyle, SensorTraits
from protocols.acquisition.search import MOST_REMEMBERED, MOST_SEARCHES, TIMES_AS_MANY, Search, Searches, undominated
from protocols.power.profiles import find_profile
from protocols.wire.demands import PaneDemand, PropertyBand, QueryDemand
from protocols.wire.programs import Band, Measure
from protocols.wire.streams import Field, FieldType, StreamSchema

SECOND = 1_000_000
SPEED, FLOW = "speed", "flow"
SCHEMA = StreamSchema(
    "traffic",
    (Field("lane", FieldType.INTEGER, fixed=True), Field(SPEED, FieldType.REAL), Field(FLOW, FieldType.REAL)),
)
TRAITS = SensorTraits(SECOND, SECOND // 100, find_profile("telosb"), device="telosb")
STYLE = ProgramStyle(3)


def slower_than(bound: float, name: str = "q", lane: int | None = None) -> QueryDemand:
    lanes = () if lane is None else (PropertyBand("lane", lane, lane),)
    return QueryDemand(name, (SPEED,), None, (Band(SPEED, high=bound),), lanes)


def drawn(dice: Random, number: int) -> QueryDemand:
    """Return a filter, perhaps of one lane, or an aggregate."""
    lane = dice.choice([None, 1, 2])
    if dice.random() < 0.4:
        pane_us = dice.choice([10, 30]) * SECOND
        panes = PaneDemand(f"form{pane_us}", pane_us, (Measure.COUNT, Measure.SUM))
        return QueryDemand(f"q{number}", (SPEED,), None, panes=panes, output_us=pane_us)
    return slower_than(float(dice.randint(5, 60)), f"q{number}", lane)


def seen(values: int = 400, seed: int = 1) -> Observed:
    dice, observed = Random(seed), Observed()
    for _ in range(values):
        observed.see(SPEED, dice.uniform(0, 70), dice.uniform(0, 70))
    return observed


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    counts = {"priced": 0, "bounded": 0}

    def counting(what: str, of: Any, name: str) -> None:
        before = getattr(of, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            counts[what] += 1
            return before(*arguments, **options)

        monkeypatch.setattr(of, name, counted)

    counting("priced", Pricing, "_priced")
    counting("bounded", LeastCost, "with_more")
    return counts


@pytest.mark.parametrize("seed", range(6))
def test_demands_one_by_one_lead_to_the_programs_of_all_at_once(seed: int) -> None:
    dice, observed = Random(seed), seen()
    demands = [drawn(dice, number) for number in range(14)]
    merger = Merger(fold_demands((), SCHEMA), STYLE, observed)
    for count in range(1, len(demands) + 1):
        folded = fold_demands(demands[:count], SCHEMA)
        merger = Merger(folded, STYLE, searches=merger.searches, before=merger)
        alone = Merger(folded, STYLE, observed)
        for lane in (1, 2, 3):
            assert merger.merge(TRAITS, {"lane": lane}) == alone.merge(TRAITS, {"lane": lane})


def test_a_demand_that_others_include_costs_no_pricing(worked: dict[str, int]) -> None:
    demands = [slower_than(20.0 + number, f"q{number}") for number in range(13)]
    before = Merger(fold_demands(demands, SCHEMA), STYLE, seen())
    before.merge(TRAITS, {"lane": 1})
    assert worked["priced"] > 0
    worked.update(priced=0, bounded=0)
    more = Merger(fold_demands([*demands, slower_than(12.0, "one more")], SCHEMA), STYLE, searches=before.searches)
    assert more.merge(TRAITS, {"lane": 1}).program == before.merge(TRAITS, {"lane": 1}).program
    assert worked == {"priced": 0, "bounded": 0}


def test_motes_that_are_alike_share_one_program(worked: dict[str, int]) -> None:
    demands = [slower_than(10.0 + lane, f"q{lane}", lane) for lane in (1, 2)]
    merger = Merger(fold_demands(demands, SCHEMA), STYLE)
    found = [merger.merge(TRAITS, {"lane": number % 2 + 1, "sensor": f"s{number}"}) for number in range(100)]
    assert len({id(each) for each in found}) == len(demands)
    assert worked["priced"] < 100, "not once for each mote"


def test_a_mote_whose_needs_stay_the_same_keeps_the_very_object() -> None:
    first = slower_than(10.0, "q1", lane=1)
    before = Merger(fold_demands([first], SCHEMA), STYLE)
    known = before.merge(TRAITS, {"lane": 1})
    after = Merger(
        fold_demands([first, slower_than(10.0, "q2", lane=2)], SCHEMA), STYLE, searches=before.searches, before=before
    )
    assert after.merge(TRAITS, {"lane": 1}) is known
    assert after.merge(TRAITS, {"lane": 2}) is not known


def test_wider_bands_come_first_so_that_narrower_ones_go() -> None:
    bounds = [float(bound) for bound in range(5, 120)]
    needs = [Need(NeedKind.SAMPLES, (SPEED,), SECOND, ((SPEED, ((-float("inf"), bound),)),)) for bound in bounds]
    Random(1).shuffle(needs)
    (kept,) = undominated(needs)
    assert kept.bands == ((SPEED, ((-float("inf"), 119.0),)),)


def test_a_state_of_the_full_search_is_continued_once(worked: dict[str, int]) -> None:
    """Eight needs have 4,140 divisions; what lies behind the same groups and reports is looked at once."""
    needs = [
        Need(NeedKind.SAMPLES, (SPEED,), SECOND * (1 + number % 3), ((SPEED, ((0.0, 10.0 + number),)),))
        for number in range(8)
    ]
    Search(Sensor((SPEED, FLOW), 1, find_profile("telosb")), STYLE, seen()).cheapest(needs)
    assert 0 < worked["bounded"] < 6_000


def test_searches_are_renewed_when_much_more_was_observed() -> None:
    observed = Observed()
    searches = Searches(STYLE, observed)
    assert not searches.outdated(observed)
    observed.see(SPEED, 1.0)
    assert searches.outdated(observed), "nothing was known before"
    searches = Searches(STYLE, observed)
    for _ in range(TIMES_AS_MANY - 2):
        observed.see(SPEED, 1.0)
    assert not searches.outdated(observed)
    observed.see(SPEED, 1.0)
    assert searches.outdated(observed)
    assert searches.observed.seen == 1, "what it searches by stays as it was"


def test_another_thread_gets_a_search_of_its_own() -> None:
    searches = Searches(STYLE, Observed())
    sensor = Sensor((SPEED, FLOW), 1, find_profile("telosb"))
    found: list[Search] = []

    def borrow() -> None:
        with searches.lend(sensor, Effort()) as other:
            found.append(other)

    with searches.lend(sensor, Effort()) as one:
        thread = threading.Thread(target=borrow)
        thread.start()
        thread.join()
    with searches.lend(sensor, Effort()) as again:
        assert found[0] is not one
        assert again is one


def test_a_search_that_failed_is_not_kept() -> None:
    searches = Searches(STYLE, Observed())
    sensor = Sensor((SPEED, FLOW), 1, find_profile("telosb"))
    with pytest.raises(ArithmeticError), searches.lend(sensor, Effort()) as failed:
        raise ArithmeticError
    with searches.lend(sensor, Effort()) as next_one:
        assert next_one is not failed


def test_what_searches_remember_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = Searches(STYLE, Observed())
    lent = []
    for number in range(MOST_SEARCHES + 1):
        with searches.lend(Sensor((SPEED,), number + 1, find_profile("telosb")), Effort()) as search:
            lent.append(search)
    with searches.lend(Sensor((SPEED,), 1, find_profile("telosb")), Effort()) as search:
        assert search is not lent[0], "the oldest went"
    monkeypatch.setattr(Search, "remembered", MOST_REMEMBERED)
    with searches.lend(Sensor((SPEED,), 40, find_profile("telosb")), Effort()) as search:
        assert search is lent[39]
    monkeypatch.setattr(Search, "remembered", 0)
    with searches.lend(Sensor((SPEED,), 40, find_profile("telosb")), Effort()) as search:
        assert search is not lent[39], "together they remembered too much"


def test_a_merger_in_a_hurry_takes_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy ends while a thread merges: from then on no full search is begun."""
    steps: list[int] = []
    begun = Exhaustive.__init__

    def noted(self: Exhaustive, *arguments: Any, **options: Any) -> None:
        begun(self, *arguments, **options)
        merger.hurry()
        steps.append(options["pricing"].effort.left)

    monkeypatch.setattr(Exhaustive, "__init__", noted)
    merger = Merger(fold_demands([slower_than(20.0 + n, f"q{n}") for n in range(11)], SCHEMA), STYLE, seen())
    assert merger.merge(TRAITS, {"lane": 1}).needs
    assert steps
    assert all(left <= 0 for left in steps)
