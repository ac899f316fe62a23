"""How much time counts for proxies that are away: only what is certain, and after a doubt all begins anew."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.ingest.proxy_reports import Absences, Counted
from protocols.presence.attention import LONGEST_PAUSE_US, Attention

SECOND = 1_000_000


class Clock:
    """A cluster that looks once a second, and a broker that returns what it sends to itself."""

    def __init__(self) -> None:
        self.attention = Attention(0)
        self.absences = Absences(self.attention)
        self.now = 0
        self.answers, self.connected = True, True
        self.counted = 0.0

    def tick(self, seconds: int = 1, *, stopped: bool = False) -> Counted:
        for _ in range(1 if stopped else seconds):
            self.now += seconds * SECOND if stopped else SECOND
            found = self.absences.time_passed(self.now, connected=self.connected)
            self.counted = found.seconds if found.anew else self.counted + found.seconds
            if self.attention.echo_due(self.now):
                self.attention.echo_sent(self.now)
                if self.answers:
                    self.attention.echoed()
        return found


def test_time_counts_from_one_message_to_oneself_to_the_next() -> None:
    clock = Clock()
    clock.tick(60)
    assert 55 <= clock.counted <= 58


def test_without_a_connection_nothing_counts_and_afterwards_all_begins_anew() -> None:
    clock = Clock()
    clock.tick(60)
    clock.connected = False
    assert clock.tick(3600) == (0.0, True)
    clock.connected = True
    clock.tick(10)
    assert clock.counted <= 8


def test_a_cut_that_nobody_has_noticed_does_not_count() -> None:
    clock = Clock()
    clock.tick(60)
    clock.answers, before = False, clock.counted
    clock.tick(3600)
    assert clock.counted <= before + 1
    clock.connected = False  # now it is noticed
    clock.tick(1)
    assert clock.counted == 0


def test_a_process_that_was_stopped_begins_at_zero() -> None:
    clock = Clock()
    clock.tick(60)
    assert clock.tick(3600, stopped=True) == (0.0, True)
    assert clock.tick(2).seconds <= 1
    assert clock.counted <= 2


def test_a_reconnection_between_two_looks_begins_at_zero() -> None:
    clock = Clock()
    clock.tick(60)
    clock.attention.lost()
    clock.tick(5)
    assert clock.counted <= 4


@given(st.lists(st.tuples(st.sampled_from(["tick", "stop", "cut", "mute"]), st.integers(1, 30)), max_size=20))
def test_no_more_counts_than_has_passed_undisturbed(steps: list[tuple[str, int]]) -> None:
    clock, undisturbed = Clock(), 0
    for kind, seconds in steps:
        clock.connected, clock.answers = kind != "cut", kind != "mute"
        clock.tick(seconds, stopped=kind == "stop")
        resets = kind == "cut" or (kind == "stop" and seconds * SECOND > LONGEST_PAUSE_US)
        undisturbed = 0 if resets else undisturbed + seconds
        assert 0 <= clock.counted <= undisturbed
