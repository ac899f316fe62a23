"""What seals cost: packets are longer, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from firmware_sim.lifetime.fleet_file import load_fleet
from firmware_sim.lifetime.query_file import load_queries
from firmware_sim.lifetime.report import FleetFolding
from firmware_sim.power.meter import Meter
from protocols.acquisition.merging import workload_for
from protocols.acquisition.program_reports import is_known
from protocols.errors import SettingsError
from protocols.power.estimate import draw_mw
from protocols.power.profiles import find_profile, is_preset, preset_names, with_seals

HIGHWAY = Path(__file__).parents[3] / "examples" / "highway"


@pytest.mark.parametrize("name", preset_names())
def test_a_sealed_device_sends_longer_packets_of_less(name: str) -> None:
    plain, sealed = find_profile(name), find_profile(f"{name}+seal")
    assert sealed == with_seals(plain)
    assert sealed.radio.airtime_us(8) >= plain.radio.airtime_us(8)
    assert sealed.radio.max_payload_bytes <= plain.radio.max_payload_bytes
    longest = [each.radio.max_payload_bytes * 8 + each.radio.overhead_bits for each in (plain, sealed)]
    assert longest[0] <= longest[1] <= longest[0] + 8
    assert (sealed.processor, sealed.adc, sealed.sensor) == (plain.processor, plain.adc, plain.sensor)
    assert Meter(sealed).device == sealed.name == f"{name}+seal"
    assert is_preset(sealed.name)
    assert is_known(sealed.name)
    assert sealed.name not in preset_names()


def test_a_sealed_device_has_no_second_seal() -> None:
    assert with_seals(find_profile("telosb+seal")) == find_profile("telosb+seal")


def test_there_is_no_seal_of_what_there_is_not() -> None:
    with pytest.raises(SettingsError, match="no preset 'none'"):
        find_profile("none+seal")


@pytest.mark.parametrize(
    ("query", "pushed_down"), [("count", False), ("passages", False), ("passages", True), ("count", True)]
)
def test_seals_cost_the_highways_magnetometers_at_most_3_per_cent(query: str, *, pushed_down: bool) -> None:
    plain = load_fleet(HIGHWAY / "vehicles.toml")
    sealed = plain.with_keys()
    queries = [
        each
        for each in load_queries(HIGHWAY / "vehicles.sql", plain.motes[0].description.stream)
        if each.query.name == query
    ]
    plain.observed.vehicles_per_second = 0.3
    before, after = (
        draw_mw(
            fleet.motes[0].profile,
            program := FleetFolding(fleet, queries, pushed_down=pushed_down).merged(fleet.motes[0]).program,
            workload_for(program, fleet.observed, loss=0.0),
        ).sum()
        for fleet in (plain, sealed)
    )
    assert 1.0 < after / before <= 1.03
