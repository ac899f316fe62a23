"""``fjord proxy --longest-silence``: how old a stream's low watermark gets, what that costs, and that answers stay."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from firmware_sim.virtual_time.fleet import VirtualFleet, VirtualSettings
from protocols.acquisition.program_reports import ProgramStyle
from protocols.power.profiles import find_profile
from protocols.wire.demands import QueryDemand, StreamDemand
from protocols.wire.frames import VERSION
from protocols.wire.programs import Band, DeadBand, ListenSchedule
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_members import FleetLimits
from tests.system.pushed_down import MINUTE, SECOND, ProxyOnTheAir, answers, run
from tests.system.test_completeness import WAYS, check, losing
from tests.system.test_push_down import QUERIES, SCHEMA, Road

LISTEN = ListenSchedule(7 * SECOND, 20_000)
LATE_US = SECOND // 10
"""A clock drifts, and a packet takes some time."""
STANDSTILL = QueryDemand("standstill", ("speed",), SECOND, (Band("speed", high=0.0),))
"""A mote has next to nothing to report."""

demands = st.lists(
    st.builds(
        lambda fields, period, bands: QueryDemand("q", tuple(sorted(fields)), period * SECOND, bands),
        st.lists(st.sampled_from(["speed", "flow", "segment"]), unique=True),
        st.sampled_from([1, 2, 3, 5]),
        st.sampled_from([(), (Band("speed", high=0.0),), (Band("flow", 2.0, 3.0),), (Band("speed", high=10.0),)]),
    ),
    min_size=1,
    max_size=3,
)


def reported(demanded: list[QueryDemand], style: ProgramStyle) -> tuple[ProxyOnTheAir, VirtualFleet, int]:
    """Let motes answer demands for some minutes; return their proxy, them, and since when they have their programs."""
    world = Road(motes=3, minutes=10)
    proxy = ProxyOnTheAir(Fleet("p", FleetLimits(style=style), now_us=world.begins_us))
    proxy.announce(world.motes, "telosb")
    motes = VirtualFleet(world, {}, VirtualSettings(find_profile("telosb")))
    motes.gateway = proxy
    demand = StreamDemand(VERSION, "c", SCHEMA.name, 1, tuple(demanded))
    proxy.take(proxy.fleet.receive_demand(SCHEMA.name, demand, radio_us=world.begins_us))
    motes.run(world.begins_us + 5 * MINUTE)
    return proxy, motes, world.begins_us + MINUTE


def oldest_watermark_us(proxy: ProxyOnTheAir, since_us: int) -> int:
    """Return how old the stream's low watermark got at most before the next one."""
    moved = [(at_us, batch.watermark_us) for at_us, batch in zip(proxy.cut_us, proxy.batches, strict=True)]
    ages = [after - watermark_us for (at_us, watermark_us), (after, _) in pairwise(moved) if at_us >= since_us]
    assert ages, "the watermark moves"
    return max(ages)


def test_motes_that_have_nothing_to_report_hold_back_a_stream_until_they_poll() -> None:
    proxy, _, since_us = reported([STANDSTILL], ProgramStyle(1, LISTEN))
    assert 2 * LISTEN.every_us - SECOND <= oldest_watermark_us(proxy, since_us) <= 2 * LISTEN.every_us + SECOND


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(demands, st.sampled_from([1, 2, 5]), st.sampled_from([1, 7]))
@example([QueryDemand("q", ("speed",), 3 * SECOND, (Band("speed", high=0.0),))], 5, 1)
@example([QueryDemand("q", ("speed",), SECOND, tolerances=(DeadBand("speed", 100.0),))], 5, 7)
def test_no_mote_that_samples_holds_back_a_stream_for_longer_than_its_deployer_allows(demanded, silence_s, packet):
    proxy, motes, since_us = reported(demanded, ProgramStyle(packet, LISTEN, silence_s * SECOND))
    allowed_us = max(silence_s * SECOND, min(each.period_us for each in demanded))
    for mote in motes.motes:
        sent = [each.clock_us for each, _ in proxy.sent if each.mote == mote.description.name]
        assert max(after - before for before, after in pairwise(sent) if before >= since_us) <= allowed_us + LATE_US
    assert oldest_watermark_us(proxy, since_us) <= allowed_us + LATE_US


def test_a_shorter_silence_costs_energy_and_less_than_listening_more_often() -> None:
    def joules(style: ProgramStyle) -> float:
        _, motes, _ = reported([STANDSTILL], style)
        return sum(float(mote.meter.joules.sum()) for mote in motes.motes)

    usual, early = joules(ProgramStyle(1, LISTEN)), joules(ProgramStyle(1, LISTEN, SECOND))
    listening = joules(ProgramStyle(1, ListenSchedule(SECOND // 2, 20_000)))
    assert usual < early < listening


@pytest.mark.parametrize("names", [["slow"], ["means", "slow"], ["slow", "slow_share", "third", "middle"], ["odd"]])
def test_answers_are_those_of_raw_sampling(names: list[str], tmp_path: Path) -> None:
    queries, style = {name: QUERIES[name] for name in names}, ProgramStyle(7, LISTEN, 4 * SECOND)
    early = run(Road(), queries, tmp_path / "early", style=style)
    raw = run(Road(), queries, tmp_path / "raw", raw=True)
    assert not early.errors
    assert not early.refused
    for name in names:
        assert answers(early, name) == answers(raw, name) != []


@pytest.mark.parametrize("way", list(WAYS))
def test_missing_samples_are_counted_exactly(way: str, tmp_path: Path) -> None:
    world, (sql, others, packet) = Road(minutes=14), WAYS[way]
    style = ProgramStyle(packet, LISTEN, 6 * SECOND)
    outcome = run(world, {"q": sql, **others}, tmp_path, style=style, loses=losing(0.2, 5, world))
    assert check(outcome, world) > 0


def test_queries_that_come_later_do_not_affect_running_ones(tmp_path: Path) -> None:
    style = ProgramStyle(3, LISTEN, 4 * SECOND)
    first = {name: QUERIES[name] for name in ("means", "slow")}
    later = {"odd": 8 * MINUTE, "middle": 13 * MINUTE}
    alone = run(Road(), first, tmp_path / "alone", style=style)
    everything = first | {name: QUERIES[name] for name in later}
    together = run(Road(), everything, tmp_path / "together", style=style, added_after_us=later)
    assert together.programs != alone.programs
    assert not together.refused
    for name in first:
        assert answers(together, name) == answers(alone, name) != []
