"""A bad radio is as bad as its settings, and the same for a seed."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmware_sim.radio.channel import Bernoulli, Channel, GilbertElliott, Link, RadioFaults, read_faults
from protocols.errors import SettingsError

SECOND = 1_000_000
PAYLOAD = bytes(range(40))


def carry_many(faults, many=4000, *, seed=1, apart_us=SECOND, airtime_us=1000.0, attempts=1):
    channel = Channel(faults, seed=seed)
    found = [
        channel.carry("m", PAYLOAD, at_us=place * apart_us, airtime_us=airtime_us, maximum_attempts=attempts)
        for place in range(many)
    ]
    return channel, found


def test_a_perfect_radio_delivers_when_the_packet_has_left():
    _, (carried, *_) = carry_many(RadioFaults())
    assert carried.attempts == 1
    assert [(each.at_us, each.payload) for each in carried.deliveries] == [(1000, PAYLOAD)]


@pytest.mark.parametrize("model", [
    Bernoulli(share=0.2),
    GilbertElliott(turns_bad=0.02, turns_good=0.1, lost_when_good=0.01, lost_when_bad=0.9),
    GilbertElliott(turns_bad=0.5, turns_good=0.5, lost_when_bad=0.4),
])  # fmt: skip
def test_as_much_is_lost_as_the_model_says(model):
    channel, found = carry_many(RadioFaults(loss=model), 40_000)
    lost = sum(not carried.deliveries for carried in found)
    assert lost == channel.counters.lost
    assert lost / 40_000 == pytest.approx(model.mean, abs=0.02)


def test_bursts_are_longer_than_chance():
    def runs(model):
        import numpy as np

        link = Link(model, np.random.default_rng(1))
        lost = [link.loses() for _ in range(40_000)]
        began = sum(now and not before for before, now in pairwise(lost))
        return sum(lost) / began

    bursty = GilbertElliott(turns_bad=0.02, turns_good=0.1)
    assert runs(bursty) == pytest.approx(10, rel=0.15)
    assert runs(Bernoulli(share=bursty.mean)) == pytest.approx(1 / (1 - bursty.mean), rel=0.05)


def test_retries_are_counted_and_take_time():
    channel, found = carry_many(RadioFaults(loss=Bernoulli(share=0.5)), attempts=4)
    assert sum(not carried.deliveries for carried in found) / len(found) == pytest.approx(0.5**4, abs=0.01)
    assert channel.counters.attempts == sum(carried.attempts for carried in found)
    assert channel.counters.attempts / len(found) == pytest.approx(1 + 0.5 + 0.25 + 0.125, abs=0.05)
    late = [carried for place, carried in enumerate(found) if carried.deliveries and carried.attempts == 3]
    assert late
    assert all(carried.deliveries[0].at_us % SECOND == 3000 for carried in late)


def test_shares_of_garbled_doubled_and_overtaken_packets():
    faults = RadioFaults(garbled=0.1, duplicated=0.2, reordered=0.3, latency_us=5_000, jitter_us=2_000)
    channel, found = carry_many(faults, apart_us=100_000)
    counters = channel.counters
    deliveries = [delivery for carried in found for delivery in carried.deliveries]
    assert counters.garbled / len(found) == pytest.approx(0.1, abs=0.02)
    assert counters.duplicated / len(found) == pytest.approx(0.2, abs=0.02)
    assert counters.reordered / len(found) == pytest.approx(0.3, abs=0.03)
    assert len(deliveries) == len(found) + counters.duplicated
    wrong = [carried for carried in found if carried.deliveries[0].payload != PAYLOAD]
    assert len(wrong) == counters.garbled
    assert all(len(carried.deliveries[0].payload) == len(PAYLOAD) for carried in wrong)
    first = [carried.deliveries[0].at_us for carried in found]
    assert sum(after < before for before, after in pairwise(first)) > 500
    on_time = [at - place * 100_000 for place, at in enumerate(first) if at - place * 100_000 < 100_000]
    assert 6_000 <= min(on_time) <= max(on_time) < 8_000


@pytest.mark.parametrize(("apart_us", "collide"), [(100_000, False), (2_000, True)])
def test_collisions_begin_above_a_load(apart_us, collide):
    channel, _ = carry_many(RadioFaults(collisions_above_load=0.2), apart_us=apart_us)
    assert channel.load == pytest.approx(1000 / apart_us, rel=0.05)
    assert (channel.counters.collided > 100) is collide
    assert channel.counters.lost == channel.counters.collided


@given(st.integers(0, 100), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_a_seed_decides(seed, lost, garbled, doubled):
    faults = RadioFaults(loss=Bernoulli(share=lost), garbled=garbled, duplicated=doubled, jitter_us=100)
    assert carry_many(faults, 20, seed=seed)[1] == carry_many(faults, 20, seed=seed)[1]


def test_faults_from_a_file(tmp_path):
    file = tmp_path / "radio.toml"
    file.write_text('garbled = 0.01\n[loss]\nkind = "gilbert_elliott"\nturns_bad = 0.02\nturns_good = 0.2\n')
    assert read_faults(file) == RadioFaults(garbled=0.01, loss=GilbertElliott(turns_bad=0.02, turns_good=0.2))
    file.write_text('garbled = 0.01\n[loss]\nkind = "bernoulli"\nshare = 1.5\n')
    with pytest.raises(SettingsError, match=r"line 4 of .*field loss.share"):
        read_faults(file)
    with pytest.raises(SettingsError, match="cannot be read"):
        read_faults(tmp_path / "none.toml")
