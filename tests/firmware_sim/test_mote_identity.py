"""What a mote says of its device and battery when it announces itself."""

from __future__ import annotations

import msgspec
import pytest

from firmware_sim.mote.mote import Mote
from firmware_sim.mote.mote_events import Announce, MoteDescription, PowerOn
from firmware_sim.mote.sample_clock import SampleClock
from firmware_sim.power.battery import Battery, find_battery, ideal
from firmware_sim.power.meter import Meter
from protocols.power.profiles import find_profile, preset_names
from protocols.wire.frames import encode
from protocols.wire.packets import decode_announcement
from protocols.wire.streams import Field, FieldType, StreamSchema

SCHEMA = StreamSchema("traffic", (Field("speed", FieldType.REAL),))
TELOSB = find_profile("telosb")


def announced(meter, lifetime_us=0):
    about = MoteDescription("m1", "loop", SCHEMA, {}, 1_000_000, 100_000)
    mote = Mote(
        about,
        SampleClock(0, begins_radio_us=0),
        lambda _at, fields: (1.0,) * len(fields),
        meter=meter,
        lifetime_us=lifetime_us,
    )
    first = mote.handle(PowerOn(0))[0]
    assert isinstance(first, Announce)
    return decode_announcement(encode(first.announcement))


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_and_its_usual_battery_are_announced(name):
    profile = find_profile(name)
    battery = find_battery(profile.battery)
    announcement = announced(Meter(profile, battery))
    assert announcement.device == name
    usable = battery.usable_share(profile.processor.minimum_v)
    assert announcement.battery_joules == pytest.approx(battery.full_joules(profile.processor.supply_v) * usable)


def test_without_a_battery_none_is_announced():
    assert announced(Meter(TELOSB)).battery_joules is None


def test_how_long_it_must_last_is_announced():
    assert announced(Meter(TELOSB, ideal(100)), lifetime_us=90).lifetime_us == 90


def test_a_battery_is_rated_at_20_degrees_however_cold_it_is():
    battery = find_battery(TELOSB.battery)
    assert announced(Meter(TELOSB, battery, temperature_c=-20.0)) == announced(Meter(TELOSB, battery))


def test_a_battery_too_weak_for_the_mote_is_as_good_as_unknown():
    weak = Battery(title="a lemon", capacity_mah=10, voltage_at_depth=((0.0, 0.9), (1.0, 0.5)))
    assert announced(Meter(TELOSB, weak)).battery_joules is None


@pytest.mark.parametrize(
    "changed",
    [{"name": "home-made"}, {"uncertainty": 0.5}, {"processor": msgspec.structs.replace(TELOSB.processor, idle_mw=9)}],
)
def test_a_profile_from_a_file_is_announced_only_if_it_is_a_preset(changed):
    assert announced(Meter(msgspec.structs.replace(TELOSB, **changed), ideal(100))).device == ""
