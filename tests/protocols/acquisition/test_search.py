"""The program that is chosen costs no more than one per cent above the best there is."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from protocols.acquisition.needs import Need, NeedKind, united
from protocols.acquisition.observed import Observed
from protocols.acquisition.parts import ProgramStyle
from protocols.acquisition.search import Search, Sensor
from protocols.power.profiles import find_profile, preset_names
from protocols.programs import ListenSchedule, Measure, Threshold
from tests.protocols.acquisition.brute_force import least_milliwatts

SECOND = 1_000_000
ORDER = ("speed", "flow", "level")
PERIODS = [SECOND // 2, SECOND, 2 * SECOND, 3 * SECOND, 30 * SECOND, 60 * SECOND]


@st.composite
def needs(draw: st.DrawFn) -> Need:
    """Any need of a sensor with three fields."""
    kind = draw(st.sampled_from(NeedKind))
    period_us = draw(st.sampled_from(PERIODS))
    batching = draw(st.sampled_from([1, 7])) * period_us
    if kind in (NeedKind.EVENTS, NeedKind.TALLIES):
        pane_us = 0 if kind is NeedKind.EVENTS else period_us * draw(st.sampled_from([1, 4, 30]))
        threshold = Threshold("level", draw(st.sampled_from([0.5, 0.6])), 0.4)
        return Need(
            kind, ("level",), period_us, pane_us=pane_us, threshold=threshold, patience_us=max(pane_us, period_us)
        )
    read = draw(st.sets(st.sampled_from(ORDER), min_size=1))
    fields = tuple(name for name in ORDER if name in read)
    banded = draw(st.sets(st.sampled_from(fields), max_size=1))
    bands = tuple((name, draw(intervals)) for name in sorted(banded))
    tolerances = tuple((name, 2.0) for name in fields if draw(st.booleans()))
    if kind is NeedKind.SAMPLES:
        return Need(kind, fields, period_us, bands, tolerances, patience_us=batching)
    pane_us = period_us * draw(st.sampled_from([1, 2, 5, 30, 60]))
    measures = (Measure.COUNT, *draw(st.sampled_from([(Measure.SUM,), (Measure.MIN,), (Measure.SUM, Measure.MAX)])))
    return Need(kind, fields, period_us, bands, tolerances, pane_us, measures, patience_us=max(batching, pane_us))


intervals = st.sampled_from(
    [((-math.inf, 10.0),), ((80.0, math.inf),), ((-math.inf, 20.0),), united([(0, 5), (50, 60)])]
)


def world(kept: float, still: float) -> Observed:
    """Values of which a share is low, and another does not change."""
    observed = Observed(vehicles_per_second=0.3, loss=0.05)
    for number in range(200):
        for name in ORDER:
            before = 40.0
            value = 5.0 if number < 200 * kept else 40.0 + number % 7 if number > 200 * still else before
            observed.see(name, value, before)
    return observed


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=[Phase.generate])
@given(
    st.lists(needs(), min_size=1, max_size=4),
    st.sampled_from(preset_names()),
    st.sampled_from([0.01, 0.3]),
    st.sampled_from([0.0, 0.9]),
    st.sampled_from([1, 7]),
)
def test_the_chosen_program_is_the_cheapest(
    wanted: list[Need], device: str, kept: float, still: float, most: int
) -> None:
    profile, listen, observed = find_profile(device), ListenSchedule(60 * SECOND, 50_000), world(kept, still)
    sensor = Sensor(ORDER, 1, profile)
    found = Search(sensor, ProgramStyle(most, listen), observed).cheapest(wanted)
    best = least_milliwatts(wanted, ORDER, profile, most_per_packet=most, listen=listen, observed=observed)
    assert found.milliwatts <= best * 1.01 or found.milliwatts == best == math.inf


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=[Phase.generate])
@given(st.lists(needs(), min_size=6, max_size=6, unique=True), st.sampled_from(["telosb", "mica2"]))
def test_stepping_downhill_comes_close(wanted: list[Need], device: str) -> None:
    profile, listen, observed = find_profile(device), ListenSchedule(60 * SECOND, 50_000), world(0.05, 0.5)
    found = Search(Sensor(ORDER, 1, profile), ProgramStyle(1, listen), observed).cheapest(wanted)
    best = least_milliwatts(wanted, ORDER, profile, most_per_packet=1, listen=listen, observed=observed)
    assert found.milliwatts <= best * 1.1 or found.milliwatts == best == math.inf


def test_what_was_found_for_the_patient_is_not_given_to_others() -> None:
    """One search prices the same parts for several sets of needs; how long records may wait differs between them."""
    search = Search(
        Sensor(ORDER, 1, find_profile("telosb")), ProgramStyle(7, ListenSchedule(60 * SECOND, 50_000)), Observed()
    )
    patient = Need(NeedKind.SAMPLES, ("speed",), SECOND, patience_us=7 * SECOND)
    assert search.cheapest([patient]).program.samples_per_packet == 7
    assert search.cheapest([replace(patient, patience_us=SECOND)]).program.samples_per_packet == 1
