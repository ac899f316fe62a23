"""Every constant has its source; errors in files name line and field."""

from __future__ import annotations

import msgspec
import pytest

from firmware_sim.lifetime.fleet_file import read_fleet
from firmware_sim.power.battery import find_battery, known_batteries
from firmware_sim.power.program_file import read_program
from protocols.errors import ProgramError, SettingsError
from protocols.power.profiles import Lora, doubts_about, find_profile, lora_airtime_us, preset_names, read_profile
from protocols.wire.programs import Band, ListenSchedule, Measure, Panes, SamplingProgram, SendOnChange

WANTED = {
    "atmel8515", "mica2", "micaz", "telosb", "nrf52840-154", "nrf52840-ble", "esp32-wifi", "lora-sf7", "lora-sf12",
}  # fmt: skip
SMALL = """
name = "small"
title = "small"
battery = "ideal:100"
uncertainty = { value = 0.1, source = "a guess" }
[processor]
supply_v = { value = 3.0, source = "sheet" }
clock_hz = { value = 1e6, source = "sheet" }
active_mw = { value = 1.0, source = "sheet" }
idle_mw = { value = 0.1, source = "sheet" }
sleep_mw = { value = 0.01, source = "sheet" }
cycles_per_sample = { value = 100, source = "sheet" }
[adc]
mw = { value = 1.0, source = "sheet" }
latch_us = { value = 10, source = "sheet" }
[radio]
transmit_mw = { value = 30.0, source = "sheet" }
receive_mw = { value = 20.0, source = "sheet" }
bits_per_second = { value = 1e4, source = "sheet" }
max_payload_bytes = { value = 20, source = "sheet" }
"""


def test_the_presets_exist():
    assert set(preset_names()) == WANTED


@pytest.mark.parametrize("name", sorted(WANTED))
def test_every_number_of_a_preset_has_a_source(name):
    profile = find_profile(name)
    sources = dict(profile.sources)
    assert profile.name == name
    assert all(len(source) >= 10 for source in sources.values())
    defaults = {}
    for report in ("processor", "adc", "sensor", "radio", "clock", "board"):
        for field in msgspec.structs.fields(type(getattr(profile, report))):
            value = getattr(getattr(profile, report), field.name)
            if isinstance(value, float) and f"{report}.{field.name}" not in sources:
                defaults[f"{report}.{field.name}"] = (value, field.default)
    assert all(value == default for value, default in defaults.values()), "only defaults need no source"
    find_battery(profile.battery)


@pytest.mark.parametrize(("change", "message"), [
    (("active_mw = { value = 1.0", "activ_mw = { value = 1.0"), r"line 9 of f, field processor.activ_mw: unknown"),
    (("value = 10,", 'value = "ten",'), r"line 15 of f, field adc.latch_us: expected `float`"),
    (("value = 30.0", "value = -30.0"), r"line 17 of f, field radio.transmit_mw"),
    (('{ value = 0.01, source = "sheet" }', "0.01"), "processor.sleep_mw in f has no source"),
    (("[adc]", "[adc"), "not TOML.*line 13"),
])  # fmt: skip
def test_mistakes_in_a_profile(change, message):
    with pytest.raises(SettingsError, match=message):
        read_profile(SMALL.replace(*change), "f")


def test_unknown_names_are_answered_with_those_there_are():
    with pytest.raises(SettingsError, match="telosb"):
        find_profile("telosc")
    with pytest.raises(SettingsError, match="alkaline-aa-pair"):
        find_battery("potato")
    with pytest.raises(SettingsError, match="capacity"):
        find_battery("ideal:much")
    assert find_battery("ideal:2400").capacity_mah == 2400
    assert len(known_batteries()) >= 3


@pytest.mark.parametrize(("factor", "payload", "milliseconds"), [
    # Semtech's LoRa calculator, 125 kHz, 4/5, 8 symbols of preamble, explicit header, checksum.
    (7, 10, 41.22), (7, 51, 102.66), (12, 10, 991.23), (12, 51, 2465.79),
])  # fmt: skip
def test_time_on_the_air_of_lora(factor, payload, milliseconds):
    lora = Lora(spreading_factor=factor, bandwidth_hz=125e3, coding_rate=1, preamble_symbols=8)
    assert lora_airtime_us(lora, payload) / 1e3 == pytest.approx(milliseconds, abs=0.01)


PROGRAM = """
fields = ["temperature", "door"]
period = "10s"
samples_per_packet = 4
[listen]
every = "30s"
for = "50ms"
[[band]]
field = "temperature"
high = 4.5
[report]
kind = "panes"
pane = "1 minute"
measures = ["count", "max"]
"""


def test_a_program_file_can_express_every_program():
    assert read_program(PROGRAM, "p") == SamplingProgram(
        ("temperature", "door"), 10_000_000, 4, ListenSchedule(30_000_000, 50_000),
        (Band("temperature", None, 4.5),), Panes(60_000_000, (Measure.COUNT, Measure.MAX)),
    )  # fmt: skip
    change = PROGRAM[: PROGRAM.index("[report]")] + '[report]\nkind = "send_on_change"\nmaximum_silence = "1h"\n'
    assert read_program(change, "p").report == SendOnChange((), 3_600_000_000)


@pytest.mark.parametrize(("change", "error", "message"), [
    (('period = "10s"', 'period = "10"'), SettingsError, "line 3 of p, field period.*no unit"),
    (('pane = "1 minute"', 'pane = "1 parsec"'), SettingsError, "line 13 of p, field report.pane"),
    (('kind = "panes"', 'kind = "pains"'), SettingsError, "line 12 of p, field report.kind"),
    (("high =", "hihg ="), SettingsError, r"line 10 of p, field band\[0\].hihg: unknown"),
    (('pane = "1 minute"', 'pane = "1s"'), ProgramError, "1s is shorter than the 10s"),
    (('field = "temperature"', 'field = "humidity"'), ProgramError, "does not sample it"),
])  # fmt: skip
def test_mistakes_in_a_program(change, error, message):
    with pytest.raises(error, match=message):
        read_program(PROGRAM.replace(*change), "p")


@pytest.mark.parametrize(("change", "message"), [
    (('period = "10s"', 'period = "0s"'), "line 3 of p, field period: .*longer than 0s"),
    (('every = "30s"', 'every = "0s"'), r"line 6 of p, field listen.every: .*longer than 0s"),
    (('pane = "1 minute"', 'pane = "0s"'), "line 13 of p, field report.pane: .*longer than 0s"),
    (("samples_per_packet = 4", "samples_per_packet = 0"), "line 4 of p, field samples_per_packet: .*>= 1"),
    (("samples_per_packet = 4", "samples_per_packet = -1"), "line 4 of p, field samples_per_packet: .*>= 1"),
    (("samples_per_packet = 4", "samples_per_packet = 2000"), "line 4 of p, field samples_per_packet: .*<= 1024"),
    (
        (PROGRAM[PROGRAM.index("[report]") :],
         '[report]\nkind = "send_on_change"\nmaximum_silence = "1h"\ndead_bands = { door = -1.0 }'),
        r"line 14 of p, field report.dead_bands.*>= 0",
    ),
])  # fmt: skip
def test_amounts_that_make_no_program(change, message):
    with pytest.raises(SettingsError, match=message):
        read_program(PROGRAM.replace(*change), "p")


@pytest.mark.parametrize(("change", "message", "hint"), [
    (('listen]\nevery = "30s"\nfor = "50ms"', None), "listen: 'nevr' is not never, or a table", "did you mean never?"),
    (('"count", "max"', '"count", "avrg"'),
     r"line 14 of p, field report.measures\[1\]: 'avrg' is none of count, sum, sum_of_squares, min, max", None),
    (('"count", "max"', '"conut", "max"'), r"report.measures\[0\]: 'conut' is none of", "did you mean count?"),
    (('kind = "panes"', 'kind = "pane"'),
     "line 12 of p, field report.kind: 'pane' is none of send_on_change, panes, vehicle_events, vehicle_count",
     "did you mean panes?"),
])  # fmt: skip
def test_a_wrong_word_is_answered_with_those_that_are_allowed(change, message, hint):
    text = PROGRAM.replace(*change) if change[1] is not None else 'fields = ["t"]\nperiod = "1s"\nlisten = "nevr"\n'
    with pytest.raises(SettingsError, match=message) as caught:
        read_program(text, "p")
    assert caught.value.hint == hint


@pytest.mark.parametrize(("change", "message", "hint"), [
    (("supply_v = { value = 3.0", "supply_v = { value = 3300"), r"line 7 of f, field processor.supply_v: .*<= 100", ""),
    (("clock_hz", 'minimum_v = { value = 3.1, source = "sheet" }\nclock_hz'),
     r"line 8 of f, field processor.minimum_v: 3.1 V is above the supply of 3 V", ""),
    (("transmit_mw = { value = 30.0", "transmit_mw = { value = 1e30"), r"radio.transmit_mw: .*<= 1000000", ""),
    (('value = 30.0, source = "sheet"', 'value = 30.0, source = ""'), "radio.transmit_mw in f has no source", ""),
    (('value = 30.0, source = "sheet"', "value = 30.0, source = 5"), "radio.transmit_mw in f has no source", "source"),
    (('{ value = 0.01, source = "sheet" }', "{ value = 0.01 }"), r"^processor.sleep_mw in f has no source",
     'write processor.sleep_mw = { value = 0.01, source = "..." }'),
    (('0.01, source = "sheet" }', '0.01, source = "sheet", unit = "mW" }'), "processor.sleep_mw in f has 'unit'",
     "source"),
])  # fmt: skip
def test_amounts_that_make_no_device(change, message, hint):
    assert change[0] in SMALL
    with pytest.raises(SettingsError, match=message) as caught:
        read_profile(SMALL.replace(*change), "f")
    assert hint in (caught.value.hint or "")


def test_a_device_that_sleeps_dearly_is_doubted():
    assert doubts_about(read_profile(SMALL, "f")) == []
    (doubt,) = doubts_about(read_profile(SMALL.replace("value = 0.01", "value = 0.2"), "f"))
    assert "small draws more asleep (0.2 mW) than idle (0.1 mW)" in doubt
    assert not any(doubts_about(find_profile(name)) for name in preset_names())


FLEET = 'name = "f"\nworld = "climate"\nmotes = 1\n[[group]]\nname = "g"\nmotes = ["*"]\npreset = "telosb"\n'


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (read_profile, PROGRAM, "f is a sampling program, not a device profile"),
        (read_profile, FLEET, "f is a fleet, not a device profile"),
        (read_program, SMALL, "f is a device profile, not a sampling program"),
        (read_program, FLEET, "f is a fleet, not a sampling program"),
        (read_fleet, SMALL, "f is a device profile, not a fleet"),
        (read_fleet, PROGRAM, "f is a sampling program, not a fleet"),
    ],
)
def test_a_file_of_another_kind_is_called_by_its_kind(read, text, message):
    with pytest.raises(SettingsError, match=message):
        read(text, "f")


@pytest.mark.parametrize("name", ["ideal:1e30", "ideal:1e10"])
def test_a_battery_is_no_power_station(name):
    with pytest.raises(SettingsError, match="more than 1,000,000,000 mAh"):
        find_battery(name)


@pytest.mark.parametrize("climate", ["mean_c = -300.0", "mean_c = 1e6", "day_swing_c = 1e6", "season_swing_c = 1e6"])
def test_no_place_is_below_absolute_zero_or_melts(climate):
    with pytest.raises(SettingsError, match=rf"line 8 of f, field group\[0\].climate.{climate.split()[0]}: expected"):
        read_fleet(f"{FLEET}climate = {{ {climate} }}\n", "f")
