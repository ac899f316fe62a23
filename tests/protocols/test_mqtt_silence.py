"""Pings, and brokers that have hung."""

from __future__ import annotations

import itertools

import pytest

from protocols.mqtt.reconnecting import Look, SilenceWatch, keep_alive_for


def looks(watch, count, *, received=False, sent=False):
    """Look so many times; return at which looks something followed, and what."""
    found = []
    for place in range(1, count + 1):
        if received:
            watch.received()
        if sent:
            watch.sent()
        look = watch.look()
        if look is not Look.FINE:
            found.append((place, look))
    return found


def test_a_silent_broker_gets_a_ping_and_has_then_hung():
    watch = SilenceWatch(15.0, 60)
    assert watch.interval_seconds == 2.5
    assert looks(watch, 6, sent=True) == [(2, Look.PING), (6, Look.HUNG)]


def test_a_broker_that_answers_pings_is_kept():
    watch = SilenceWatch(15.0, 60)
    for _ in range(10):
        assert looks(watch, 2, sent=True) == [(2, Look.PING)]
        watch.received()


def test_a_busy_broker_that_gets_nothing_is_sent_a_ping_within_its_keep_alive():
    watch = SilenceWatch(15.0, 60)
    assert looks(watch, 30, received=True) == [(12, Look.PING), (24, Look.PING)]
    assert looks(watch, 30, received=True, sent=True) == []


def test_a_broker_without_a_keep_alive_gets_pings_only_when_it_is_silent():
    watch = SilenceWatch(15.0, 0)
    assert looks(watch, 100, received=True) == []
    assert looks(SilenceWatch(15.0, 0), 6) == [(2, Look.PING), (6, Look.HUNG)]


@pytest.mark.parametrize(("silence", "keep_alive"), [(3_600.0, 60), (0.6, 60), (15.0, 3), (15.0, 1)])
def test_pings_are_often_enough_whatever_the_broker_asks_for(silence, keep_alive):
    watch = SilenceWatch(silence, keep_alive)
    found = looks(watch, 200, received=True)
    assert len(found) > 1 or silence <= keep_alive / 2
    for (place, _), (later, _) in itertools.pairwise(found):
        assert (later - place) * watch.interval_seconds == pytest.approx(keep_alive / 2)
    silent = SilenceWatch(silence, keep_alive)
    hung = next(place for place, look in looks(silent, 10_000) if look is Look.HUNG)
    assert hung * silent.interval_seconds == pytest.approx(silence)


def test_the_keep_alive_that_is_announced():
    assert [keep_alive_for(each) for each in (0.6, 15.0, 100.0, 1e6)] == [60, 60, 100, 65_535]
