"""Clocks of proxies: messages carry the time on a proxy's clock, and arrive late; the least delay of three counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.ingest.proxy_reports import ClockChange, ProxyClocks, not_after
from protocols.wire.catalog import ClockFault

S = 1_000_000
NOW = 10**15
TOLERANCE = 60 * S


@pytest.mark.parametrize(
    ("behind", "changes"),
    [
        ([0, 1, 2], {}),
        ([60, 60, 60, 60], {}),
        ([61, 61, 61, 61], {2: ClockFault.BEHIND}),
        ([500, 1, 500, 500], {}),  # two messages came late
        ([-61], {0: ClockFault.AHEAD}),
        ([-61, -61, 900, 0], {0: ClockFault.AHEAD}),  # the least of three
        ([0, 0, -2_000, 0, 0, 0], {2: ClockFault.AHEAD, 5: None}),
        ([-61, 100, 100, 100], {0: ClockFault.AHEAD, 3: ClockFault.BEHIND}),
    ],
)
def test_a_clock_is_wrong_by_the_least_offset_of_the_last_three_messages(behind, changes):
    clocks = ProxyClocks(TOLERANCE)
    found = {place: clocks.note("p", NOW - each * S, NOW) for place, each in enumerate(behind)}
    assert {place: each.fault for place, each in found.items() if each is not None} == changes
    assert clocks.behind_us == {"p": min(behind[-3:]) * S}


def test_a_wrong_clock_is_reported_by_proxy_and_forgotten_with_it():
    clocks = ProxyClocks(TOLERANCE)
    assert clocks.note("p", NOW + 90 * S, NOW) == ClockChange("p", ClockFault.AHEAD, -90 * S)
    assert clocks.note("q", NOW, NOW) is None
    assert clocks.faults == {"p": "ahead"}
    clocks.forget("p")
    assert (clocks.faults, set(clocks.behind_us)) == ({}, {"q"})


def test_clocks_of_a_bounded_number_of_proxies_are_kept():
    clocks = ProxyClocks(TOLERANCE, max_proxies=1)
    clocks.note("p", NOW, NOW)
    assert clocks.note("q", NOW + 90 * S, NOW) is None
    assert set(clocks.behind_us) == {"p"}


@given(st.integers(-(2**61), 2**61), st.lists(st.integers(0, TOLERANCE), min_size=1), st.integers(0, TOLERANCE))
def test_late_messages_do_not_make_a_right_clock_wrong(now, delays, behind):
    clocks = ProxyClocks(2 * TOLERANCE)
    assert not any(clocks.note("p", now - behind - each, now) for each in delays)


@given(st.integers(-(2**62), 2**62), st.integers(-(2**61), 2**61), st.integers(0, 2**40))
def test_an_instant_stays_unless_it_lies_in_the_future(instant, now, tolerance):
    found = not_after(instant, now, tolerance)
    assert found == (min(instant, now + tolerance))
