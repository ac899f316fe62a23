"""Packets in order again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocols.wire.frames import VERSION
from protocols.wire.packets import Packet
from proxy.motes.packet_numbers import Arrival, HeldPacket, Reordering

S = 1_000_000
WITHIN = 2 * S


def held(number, radio_us=0):
    boot, sequence = number if isinstance(number, tuple) else (1, number)
    return HeldPacket(Packet(VERSION, "m1", boot, sequence, 0, 0, 0, 0, ()), radio_us, radio_us)


class Receiver:
    """Processes packets as a proxy would."""

    def __init__(self, within_us=WITHIN, last=None, **options):
        self.reordering = Reordering(within_us, **options)
        self.last = last
        self.order = []
        self.replayed = []

    def accept(self, ready):
        for each in ready:
            if self.last is not None and each.number <= self.last:
                self.replayed.append(each.number)
            else:
                self.last = each.number
                self.order.append(each.number[1] if each.number[0] == 1 else each.number)

    def receive(self, *numbers, at=0):
        for each in numbers:
            arrival = self.reordering.received(held(each, at), self.last)
            if arrival.replayed:
                self.replayed.append((1, each))
            self.accept(arrival.ready)
        return self.order

    def wait(self, radio_us):
        self.accept(self.reordering.time_passed(radio_us))
        return self.order


def test_packets_wait_for_those_they_overtook():
    it = Receiver()
    assert it.receive(1, 2, 4, 5) == [1, 2]
    assert it.receive(3) == [1, 2, 3, 4, 5]
    assert it.receive(6) == [1, 2, 3, 4, 5, 6]
    assert len(it.reordering) == 0


def test_a_gap_is_given_up_after_a_while():
    it = Receiver()
    it.receive(1)
    it.receive(3, at=1 * S)
    it.receive(4, at=2 * S)
    it.receive(6, at=2_500_000)
    assert it.wait(2_999_999) == [1]
    assert it.wait(3_000_000) == [1, 3, 4], "the second gap was seen later"
    assert it.wait(4_500_000) == [1, 3, 4, 6]
    assert it.receive(2, 5) == [1, 3, 4, 6]
    assert it.replayed == [(1, 2), (1, 5)]


def test_a_packet_releases_expired_gaps_too():
    it = Receiver()
    it.receive(1, 3)
    assert it.receive(9, at=WITHIN) == [1, 3]
    assert it.wait(2 * WITHIN) == [1, 3, 9]


def test_the_first_packet_misses_nothing_and_zero_does_not_wait():
    assert Receiver().receive(7) == [7]
    assert Receiver(within_us=0, last=(1, 1)).receive(5, 4, 6) == [5, 6]


def test_a_waiting_packet_that_arrives_twice_is_rejected():
    it = Receiver(last=(1, 0))
    it.receive(2, 2, 3, 2)
    assert it.replayed == [(1, 2), (1, 2)]
    assert it.receive(1) == [1, 2, 3]


def test_a_reboot_ends_all_waiting_for_the_boot_before():
    it = Receiver(last=(1, 0))
    it.receive(2, 4, (2, 1))
    assert it.order == []
    it.receive((2, 0))
    assert it.order == [], "1 may still come"
    assert it.wait(WITHIN) == [2, 4, (2, 0), (2, 1)]
    assert it.receive((2, 2))[-1] == (2, 2)


def test_a_mote_that_lost_its_counters_is_not_held_back():
    found = Reordering(WITHIN).received(held(0), (1, 500))
    assert [each.number for each in found.ready] == [(1, 0)]
    assert found == Arrival((held(0),))


def test_when_too_many_packets_wait_the_first_gap_is_given_up():
    it = Receiver(last=(1, 0), most=3)
    assert it.receive(2, 4, 5) == []
    assert it.receive(7) == [2]
    assert it.receive(9) == [2, 4, 5]
    it.accept(it.reordering.release_all())
    assert it.order == [2, 4, 5, 7, 9]
    assert len(it.reordering) == 0


@given(st.data(), st.integers(1, 120), st.integers(0, 40))
def test_any_order_within_the_bound_is_restored_without_losses(data, count, furthest):
    """Each packet arrives a bounded number of places late, some of them twice."""
    places = [number + data.draw(st.integers(0, furthest)) for number in range(count)]
    arrivals = sorted(range(1, count + 1), key=lambda number: (places[number - 1], number))
    twice = data.draw(st.sets(st.sampled_from(arrivals), max_size=5))
    arrivals = [each for number in arrivals for each in ([number, number] if number in twice else [number])]
    it = Receiver(last=(1, 0))
    for place, number in enumerate(arrivals):
        it.receive(number, at=place * (WITHIN // 400))
    assert it.order == list(range(1, count + 1))
    assert sorted(number for _, number in it.replayed) == sorted(twice)


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 30), st.integers(0, S)), max_size=100),
    st.integers(1, 8),
)
def test_all_packets_are_released_in_order_in_time_and_once(packets, most):
    it, at_us, waiting = Receiver(most=most), 0, {}
    for boot, sequence, pause_us in packets:
        at_us += pause_us
        it.wait(at_us)
        waiting.setdefault((boot, sequence), at_us)
        it.receive((boot, sequence), at=at_us)
        done = [(1, each) if isinstance(each, int) else each for each in it.order]
        assert done == sorted(set(done))
        assert len(it.reordering) <= most
        held_now = {key for key in waiting if it.last is not None and key > it.last}
        assert all(at_us - waiting[key] < WITHIN for key in held_now)
    it.wait(at_us + WITHIN)
    assert len(it.reordering) == 0
    assert len(it.order) + len(it.replayed) == len(packets)
