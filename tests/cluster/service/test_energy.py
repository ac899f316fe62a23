"""What a query would cost, compared with the proxy's merging; and what was spent, with the simulator's meter."""

from __future__ import annotations

import msgspec
import pytest

from cluster.service.billing.energy import THIS_QUERY, asleep_mw, explain_energy, spent_joules, styles_of
from cluster.service.billing.periods import Ledger
from firmware_sim.power.meter import Meter
from protocols.acquisition.merging import Merger
from protocols.acquisition.needs import fold_demands
from protocols.acquisition.program_reports import ProgramStyle, SensorTraits
from protocols.power.costs import energy, most_mw
from protocols.power.profiles import find_profile, preset_names
from protocols.wire.demands import PropertyBand
from protocols.wire.packets import Health
from protocols.wire.programs import SLEEP, ListenSchedule, SamplingProgram
from tests.cluster.service.energy_cases import SCHEMAS, SECOND, TRAFFIC, demand, entry

MICAZ = find_profile("micaz")
DAY_US = 86_400 * SECOND


def explain(demanded, running=(), entries=(), measured=None):
    return explain_energy({"traffic": demanded}, {"traffic": running}, SCHEMAS, entries, measured)


def merged_mw(*demands):
    traits = SensorTraits(30 * SECOND, 100_000, MICAZ, 20_000.0, device="micaz")
    return Merger(fold_demands(demands, TRAFFIC), ProgramStyle()).merge(traits, {}).milliwatts


def test_alone_a_query_costs_the_program_that_the_proxy_would_choose():
    (line,) = explain([demand(THIS_QUERY)], entries=[entry()]).lines
    assert (line.motes, line.device, line.device_assumed) == (1, "micaz", False)
    assert line.alone.milliwatts == merged_mw(demand("q"))
    assert line.alone.does == "speed every 10s"
    assert line.alone.joules_per_day.value == pytest.approx(line.alone.milliwatts * 86.4)
    assert line.alone.days.value == pytest.approx(20_000 / line.alone.joules_per_day.value)
    assert line.before.does == "sleep"
    assert line.before.milliwatts == asleep_mw(MICAZ)


def test_beside_others_a_query_costs_what_it_adds():
    (line,) = explain([demand(THIS_QUERY, 10)], [demand("q1", 2)], [entry()]).lines
    without, together = merged_mw(demand("q1", 2)), merged_mw(demand("q1", 2), demand("q2", 10))
    assert (line.before.milliwatts, line.after.milliwatts) == (without, together)
    assert line.adds_joules_per_day.value == pytest.approx((together - without) * 86.4)


def test_a_query_that_runs_already_adds_nothing():
    (line,) = explain([demand(THIS_QUERY, 1)], [demand("q1", 1)], [entry()]).lines
    assert line.adds_joules_per_day.value == 0
    assert line.alone.milliwatts > asleep_mw(MICAZ)


def test_a_mote_that_is_to_send_soon_listens_less():
    """A sleeping mote opens a window every 2 s; with a packet every 10 s, the fifth window is that of the packet."""
    (line,) = explain([demand(THIS_QUERY, 10)], entries=[entry()]).lines
    assert line.adds_joules_per_day.value < 0
    assert line.adds_joules_per_day.low < line.adds_joules_per_day.high < 0


def test_only_motes_that_satisfy_the_conditions_are_counted():
    demanded = demand(THIS_QUERY, sensors=(PropertyBand("segment", 2, 3),))
    answer = explain([demanded], entries=[entry(f"m{n}", segment=n) for n in range(1, 6)])
    assert [line.examples for line in answer.lines] == [("m2", "m3")]
    assert (answer.totals.motes, answer.untouched) == (2, 3)


def test_motes_of_one_kind_share_a_line():
    entries = [entry(f"m{n}") for n in range(5)] + [entry("x", device="telosb"), entry("y", device="")]
    answer = explain([demand(THIS_QUERY)], entries=entries)
    found = [(line.motes, line.device, line.device_assumed, line.examples) for line in answer.lines]
    assert found == [
        (5, "micaz", False, ("m0", "m1", "m2")),
        (1, "telosb", False, ("x",)),
        (1, "telosb", True, ("y",)),
    ]


def test_different_demands_that_lead_to_one_program_are_one_line():
    running = [
        demand("q1", sensors=(PropertyBand("segment", 1, 1),)),
        demand("q2", sensors=(PropertyBand("segment", 2, 2),)),
    ]
    answer = explain([demand(THIS_QUERY)], running, [entry("m1", segment=1), entry("m2", segment=2)])
    assert [line.motes for line in answer.lines] == [2]


def test_totals_add_up_with_their_error_bands():
    entries = [entry("m1"), entry("m2"), entry("m3", device="esp32-wifi", battery_joules=5e3)]
    answer = explain([demand(THIS_QUERY)], [demand("q1", 60)], entries)
    for name in ("value", "low", "high"):
        expected = sum(line.motes * getattr(line.after.joules_per_day, name) for line in answer.lines)
        assert getattr(answer.totals.after, name) == pytest.approx(expected)
    assert answer.totals.after.value - answer.totals.before.value == pytest.approx(answer.totals.adds.value)
    assert answer.totals.first_dies_after == min(
        (line.after.days for line in answer.lines), key=lambda days: days.value
    )


def test_the_error_band_comes_from_the_profile():
    (line,) = explain([demand(THIS_QUERY)], entries=[entry()]).lines
    figure = line.alone.joules_per_day
    assert figure.high / figure.value == pytest.approx(1 + MICAZ.uncertainty)
    assert figure.value / figure.low == pytest.approx(1 + MICAZ.uncertainty)


def test_assumptions_are_listed():
    answer = explain([demand(THIS_QUERY)], entries=[entry(device="home-made", battery_joules=None)])
    (line,) = answer.lines
    assert (line.device, line.device_assumed, line.alone.days) == ("telosb", True, None)
    text = "\n".join(answer.assumptions)
    assert "1 mote does not report a device: assumed to be telosb" in text
    assert "the lifetime is unknown" in text
    assert "50% of samples" in text
    assert "how north fills packets" in text


def test_the_style_follows_from_the_programs_of_a_proxys_motes():
    listen = ListenSchedule(30 * SECOND, 50_000)
    awake = [SamplingProgram(("speed",), SECOND, size, listen) for size in (4, 20)]
    entries = [entry(f"m{n}", wanted=program) for n, program in enumerate([*awake, SLEEP])]
    assert styles_of(entries) == {"north": ProgramStyle(20, listen)}
    answer = explain([demand(THIS_QUERY)], entries=entries)
    assert not any("fills packets" in each for each in answer.assumptions)
    assert answer.lines[0].alone.milliwatts < merged_mw(demand("q"))


def test_streams_without_motes_and_demands_that_cannot_be_answered():
    assert explain([demand(THIS_QUERY)]).totals.motes == 0
    answer = explain([demand(THIS_QUERY, fields=("colour",))], entries=[entry()])
    assert "no field 'colour'" in answer.refused[0].reason
    assert explain_energy({"rain": [demand(THIS_QUERY)]}, {}, SCHEMAS, []).refused[0].stream == "rain"


def test_measured_energy_is_shown_beside_the_estimate():
    entries = [entry(name) for name in ("m1", "m2", "m3")]
    (line,) = explain(
        [demand(THIS_QUERY)], entries=entries, measured={("north", "m1"): 2.0, ("north", "m3"): 4.0}
    ).lines
    assert (line.measured_motes, line.measured_milliwatts) == (2, 3.0)


# -- what was spent


def run_meter(preset, program, seconds, *, samples, packets, listens, bits=64.0):
    """Run activities on a meter; return what it counted, and the mote's report of health."""
    meter = Meter(find_profile(preset))
    meter.settle(0)
    meter.run(program)
    transmit_us = 0
    for _ in range(samples):
        meter.sampled()
    for _ in range(packets):
        transmit_us += meter.sent(bits)
    for _ in range(listens):
        meter.listened(100_000)
    meter.settle(seconds * SECOND)
    return float(meter.joules.sum()), Health(None, samples, packets, transmit_us, listens * 100_000)


@pytest.mark.parametrize("preset", preset_names())
@pytest.mark.parametrize(
    ("program", "done"),
    [
        (SLEEP, {"samples": 0, "packets": 300, "listens": 300}),
        (SamplingProgram(("speed", "flow"), SECOND), {"samples": 600, "packets": 600, "listens": 300}),
        (SamplingProgram(("speed",), 60 * SECOND), {"samples": 10, "packets": 0, "listens": 0}),
    ],
)
def test_spent_energy_equals_that_of_the_simulators_meter(preset, program, done):
    joules, health = run_meter(preset, program, 600, **done)
    nothing = Health(None, 0, 0, 0, 0)
    found = spent_joules(find_profile(preset), program, nothing, health, 600 * SECOND)
    # Times on the air are whole microseconds in health, and clocks are synchronised a whole number of times.
    assert found == pytest.approx(joules, rel=1e-2 if preset == "esp32-wifi" else 1e-3)


def test_after_a_reboot_counters_begin_at_zero():
    before, after = Health(0.9, 1000, 100, 50_000, 9_000), Health(0.9, 10, 1, 500, 90)
    zero = Health(None, 0, 0, 0, 0)
    arguments = (SamplingProgram(("speed",), SECOND),)
    assert spent_joules(MICAZ, *arguments, before, after, DAY_US) == spent_joules(
        MICAZ, *arguments, zero, after, DAY_US
    )


def test_the_ledger_adds_up_and_hands_out_each_amount_once():
    program = SamplingProgram(("speed",), SECOND)
    reports = [Health(None, n * 600, n * 600, n * 600 * 500, n * 30_000_000) for n in range(4)]
    ledger = Ledger()
    for n, health in enumerate(reports):
        ledger.note(entry(health=health, heard_us=n * 600 * SECOND, wanted=program, milliwatts=2.0))
        ledger.note(entry(health=health, heard_us=n * 600 * SECOND + SECOND, wanted=program))  # an equal report
    expected = spent_joules(MICAZ, program, reports[0], reports[3], 1800 * SECOND)
    ((seen, joules),) = ledger.collect()
    assert seen.mote == "m1"
    assert joules == pytest.approx(expected)
    assert ledger.collect() == ()
    assert ledger.measured_mw() == {("north", "m1"): pytest.approx(expected / 1800 * 1e3)}
    assert ledger.accounts["north", "m1"].expected_joules == pytest.approx(2e-3 * 1800)


@pytest.mark.parametrize("preset", preset_names())
@pytest.mark.parametrize(
    "reported",
    [
        Health(None, 2**62, 1, 500, 90),
        Health(None, 10, 2**62, 500, 90),
        Health(None, 10, 1, 2**62, 90),
        Health(None, 10, 1, 500, 2**62),
        Health(None, 2**62, 2**62, 2**62, 2**62),
    ],
)
def test_no_mote_spends_more_than_it_can_whatever_it_reports(preset, reported):
    ledger = Ledger()
    ledger.note(entry(health=Health(None, 0, 0, 0, 0), heard_us=0, device=preset))
    ledger.note(entry(health=reported, heard_us=60 * SECOND, device=preset))
    ((_, joules),) = ledger.collect()
    most = energy(most_mw(find_profile(preset)), 60 * SECOND)
    assert joules <= most < 60, "a watt at most"
    assert ledger.implausible_reports == (joules == most)


@pytest.mark.parametrize("preset", preset_names())
def test_what_a_mote_can_spend_is_plausible(preset):
    period_us = SECOND // 20
    program = SamplingProgram(("speed", "flow"), period_us)
    joules, health = run_meter(preset, program, 600, samples=12_000, packets=60, listens=60)
    ledger = Ledger()
    ledger.note(entry(health=Health(None, 0, 0, 0, 0), heard_us=0, device=preset, wanted=program))
    ledger.note(entry(health=health, heard_us=600 * SECOND, device=preset, wanted=program))
    ((_, found),) = ledger.collect()
    assert found == pytest.approx(joules, rel=0.02)
    assert ledger.implausible_reports == 0


def test_a_mote_that_still_runs_an_older_program_is_billed_for_that():
    ledger = Ledger()
    fast = SamplingProgram(("speed",), SECOND)
    ledger.note(entry(health=Health(None, 0, 0, 0, 0), heard_us=0, wanted=fast, program=0, period_us=0))
    ledger.note(entry(health=Health(None, 0, 5, 2500, 0), heard_us=DAY_US, wanted=fast))
    ((_, joules),) = ledger.collect()
    assert joules == spent_joules(MICAZ, SLEEP, Health(None, 0, 0, 0, 0), Health(None, 0, 5, 2500, 0), DAY_US)


def test_a_ledger_is_bounded_and_needs_reports():
    ledger = Ledger(most_motes=1)
    for mote in ("m1", "m2", "m3"):
        ledger.note(entry(mote, health=Health(None, 0, 0, 0, 0)))
    ledger.note(entry("m4"))
    assert list(ledger.accounts) == [("north", "m1")]
    assert ledger.since_us == 0
    assert Ledger().since_us is None


def test_an_explanation_of_energy_can_be_written_as_json():
    answer = explain([demand(THIS_QUERY)], [demand("q1")], [entry()])
    assert msgspec.json.decode(msgspec.json.encode(answer))["totals"]["motes"] == 1
