"""How often a mote listens: formulas against the rule itself, played out."""

from __future__ import annotations

import numpy as np
import pytest

from protocols.power.listening import Listening, when_irregular, when_regular


@pytest.mark.parametrize(("apart_s", "polls", "windows_every_s"), [
    (1, 0, 30), (7, 0, 35), (30, 0, 30), (31, 0, 31), (60, 0, 60), (61, 1 / 61, 61 / 2), (600, 18 / 600, 600 / 19),
])  # fmt: skip
def test_packets_at_fixed_times_with_windows_at_least_30_s_apart(apart_s, polls, windows_every_s):
    found = when_regular(1 / apart_s, 30.0)
    assert (found.polls, 1 / found.listens) == pytest.approx((polls, windows_every_s))


def test_a_mote_that_sends_nothing_polls():
    assert when_regular(0.0, 2.0) == Listening(0.0, 0.5, 0.5)
    assert when_irregular(0.0, 1, 2.0) == Listening(0.0, 0.25, 0.25)


def played(records, size, every, windows=20_000):
    """Full packets, polls and windows per second, and records per poll, of the rule with random arrivals."""
    generator = np.random.default_rng(3)
    now = next_record = 0.0
    packets = polls = along = 0
    for _ in range(windows):
        began, waiting, full = now, 0, False
        while True:
            next_record = next_record if next_record > now else now + generator.exponential(1 / records)
            if next_record > began + 2 * every:
                now, polls, along = began + 2 * every, polls + 1, along + waiting
                break
            now, waiting = next_record, waiting + 1
            if waiting == size:
                packets, waiting, full = packets + 1, 0, True
                if now >= began + every:
                    break
        assert full or now == pytest.approx(began + 2 * every)
    return packets / now, polls / now, windows / now, along / max(polls, 1)


@pytest.mark.parametrize("records", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("size", [1, 3, 8])
def test_listening_for_irregular_records_is_that_of_a_simulation(records, size):
    every = 30.0
    found = when_irregular(records, size, every)
    packets, polls, listens, along = played(records, size, every)
    assert found.listens == pytest.approx(listens, rel=0.01)
    assert found.packets == pytest.approx(packets, rel=0.05, abs=5e-5)
    assert found.polls == pytest.approx(polls, rel=0.06, abs=2e-5)
    if polls > 1e-3:
        assert found.records_per_poll == pytest.approx(along, rel=0.03, abs=0.01)


def test_many_records_are_as_good_as_regular():
    found = when_irregular(100.0, 10, 30.0)
    assert found.polls == 0
    assert found.packets == pytest.approx(10.0)
    assert 1 / found.listens == pytest.approx(30 + 5.5 / 100)


def test_a_mote_that_hardly_ever_listens():
    found = when_irregular(5.0, 1, 3e8)
    assert found.packets == pytest.approx(5.0)
    assert found.listens == pytest.approx(1 / 3e8)


@pytest.mark.parametrize("size", [1, 50, 1024])
def test_exact_and_approximate_counts_of_listening_meet(size):
    """More than 20,000 expected records are not counted out; the two ways of reckoning meet there."""
    exact, rough = (when_irregular(expected / 30.0, size, 30.0) for expected in (19_990.0, 20_010.0))
    assert rough.listens == pytest.approx(exact.listens, rel=2e-3)
    assert rough.packets / exact.packets == pytest.approx(20_010 / 19_990, rel=1e-6)
