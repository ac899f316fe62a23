from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.running.delivery_window import (
    AckReceived,
    BatchDamaged,
    BatchSpooled,
    BatchUnreadable,
    Connected,
    DeleteThrough,
    DeliveryWindow,
    Disconnected,
    ImpossibleAck,
    Resending,
    Send,
    Skip,
    TimePassed,
)

S = 1_000_000


def script(window, *events):
    return [window.handle(event, now_us) for now_us, event in events]


def test_spooled_batches_are_sent_once_connected():
    window = DeliveryWindow()
    assert script(window, (0, BatchSpooled(1)), (0, BatchSpooled(2)), (0, Connected()), (0, BatchSpooled(3))) == [
        [],
        [],
        [Send(1), Send(2)],
        [Send(3)],
    ]


def test_in_flight_is_bounded():
    window = DeliveryWindow(spooled=5, in_flight=2)
    assert script(window, (0, Connected()), (0, AckReceived(1)), (0, AckReceived(2))) == [
        [Send(1), Send(2)],
        [DeleteThrough(1), Send(3)],
        [DeleteThrough(2), Send(4)],
    ]


def test_continues_after_a_restart():
    window = DeliveryWindow(acknowledged=7, spooled=9)
    assert script(window, (0, Connected()), (0, BatchSpooled(10))) == [[Send(8), Send(9)], [Send(10)]]


@pytest.mark.parametrize(
    ("now", "expected"),
    [(3 * S - 1, []), (3 * S, [Resending(1, "silence"), Send(1), Send(2)])],
)
def test_unacknowledged_batches_are_sent_again_after_silence(now, expected):
    window = DeliveryWindow(spooled=2)
    assert script(window, (0, Connected()), (now, TimePassed()))[1] == expected


def test_silent_receiver_is_tried_at_growing_intervals_until_it_answers():
    window = DeliveryWindow(spooled=2)
    window.handle(Connected(), 0)
    tries = [second for second in range(1, 200) if window.handle(TimePassed(), second * S)]
    assert tries == [3, 9, 21, 45, 93, 141, 189]
    window.handle(AckReceived(1), 200 * S)
    assert [second for second in range(200, 205) if window.handle(TimePassed(), second * S)] == [203]


def test_silent_receiver_that_answers_with_what_it_had_stored_gets_all_again_at_once():
    window = DeliveryWindow(spooled=2)
    window.handle(Connected(), 0)
    for second in range(80):
        window.handle(TimePassed(), second * S)
    found = script(window, (80 * S, AckReceived(0)), (80 * S, TimePassed()), (82 * S, TimePassed()))
    assert found == [[], [Resending(1, "silence"), Send(1), Send(2)], []]


def test_a_batch_that_cannot_be_read_is_tried_again_after_one_interval_however_often():
    window = DeliveryWindow(spooled=2)
    window.handle(Connected(), 0)
    window.handle(BatchUnreadable(), 0)
    tries = []
    for second in range(1, 60):
        if window.handle(TimePassed(), second * S):
            tries.append(second)
            assert window.handle(BatchUnreadable(), second * S) == []
    assert tries == list(range(3, 60, 3))


def test_idle_window_is_never_resent_and_patience_begins_with_the_first_send():
    window = DeliveryWindow()
    found = script(window, (0, Connected()), (60 * S, TimePassed()), (61 * S, BatchSpooled(1)), (62 * S, TimePassed()))
    assert found == [[], [], [Send(1)], []]


def test_two_repeated_acks_send_again_once():
    window = DeliveryWindow(spooled=3)
    found = script(window, (0, Connected()), (0, AckReceived(1)), *[(1, AckReceived(1))] * 5)
    assert found[2:] == [[], [Resending(2, "gap"), Send(2), Send(3)], [], [], []]


def test_connection_lost_sends_again_from_the_last_acknowledged():
    window = DeliveryWindow(spooled=2)
    found = script(
        window, (0, Connected()), (0, AckReceived(1)), (1, Disconnected()), (1, BatchSpooled(3)), (2, Connected())
    )
    assert found[2:] == [[], [], [Send(2), Send(3)]]


@pytest.mark.parametrize(("through", "known"), [(9, "last one is 5"), (1, "before it was 3")])
def test_impossible_acks_change_nothing(through, known):
    window = DeliveryWindow(acknowledged=3, spooled=5)
    (found,) = window.handle(AckReceived(through), 0)
    assert isinstance(found, ImpossibleAck)
    assert known in found.reason
    assert (window.acknowledged, window.spooled) == (3, 5)


def test_a_damaged_batch_is_left_out_once_all_before_it_is_stored():
    window = DeliveryWindow(spooled=4)
    assert script(window, (0, Connected()), (0, BatchDamaged(2)), (0, AckReceived(1)), (0, AckReceived(2))) == [
        [Send(1), Send(2), Send(3), Send(4)],
        [],
        [DeleteThrough(1), Skip(2), Send(3), Send(4)],
        [DeleteThrough(2)],
    ]


def test_a_damaged_batch_that_is_the_next_one_is_left_out_at_once_and_again_after_silence():
    window = DeliveryWindow(acknowledged=1, spooled=3)
    assert script(window, (0, Connected()), (0, BatchDamaged(2)), (3 * S, TimePassed()), (3 * S, AckReceived(3))) == [
        [Send(2), Send(3)],
        [Skip(2), Send(3)],
        [Resending(2, "silence"), Skip(2), Send(3)],
        [DeleteThrough(3)],
    ]


def test_damaged_batches_one_behind_the_other_are_left_out_one_by_one():
    window = DeliveryWindow(spooled=3)
    steps = [(0, Connected()), (0, BatchDamaged(1)), (0, BatchDamaged(2)), (0, AckReceived(1)), (0, AckReceived(2))]
    assert script(window, *steps) == [
        [Send(1), Send(2), Send(3)],
        [Skip(1), Send(2), Send(3)],
        [],
        [DeleteThrough(1), Skip(2), Send(3)],
        [DeleteThrough(2)],
    ]


class Receiver:
    """Reference: stores the next batch only, and acknowledges what it has on every arrival."""

    def __init__(self):
        self.stored = []

    def receive(self, sequence):
        if sequence == len(self.stored) + 1:
            self.stored.append(sequence)
        return len(self.stored)

    def skip(self, sequence):
        assert sequence <= len(self.stored) + 1, "no undamaged batch is skipped"
        if sequence == len(self.stored) + 1:
            self.stored.append(None)
        return len(self.stored)


@given(
    batches=st.integers(0, 30),
    damaged=st.frozensets(st.integers(1, 30), max_size=6),
    in_flight=st.integers(1, 6),
    steps=st.lists(
        st.sampled_from(["spool", "lose", "deliver", "lose ack", "reconnect", "disconnect", "wait", "restart"]),
        max_size=150,
    ),
)
def test_everything_arrives_exactly_once_in_order_over_a_lossy_channel(  # noqa: C901, PLR0915 (a model of the channel)
    batches, damaged, in_flight, steps
):
    window, receiver = DeliveryWindow(in_flight=in_flight), Receiver()
    channel, acks, stored = [], [], {}
    now, spooled = 0, 0

    def do(event):
        instructions = window.handle(event, now)
        while instructions:
            match instructions.pop(0):
                case Send(sequence) if sequence in damaged:
                    # What is to be sent is forgotten, as the shell does.
                    instructions = window.handle(BatchDamaged(sequence), now)
                case Send(sequence):
                    assert sequence in stored, "only what is on disk is sent"
                    channel.append(sequence)
                case Skip(sequence):
                    assert sequence in damaged
                    channel.append(-sequence)
                case DeleteThrough(sequence):
                    assert sequence <= len(receiver.stored), "only what the receiver has is deleted"
                    for each in [each for each in stored if each <= sequence]:
                        del stored[each]
                case _:
                    pass
        assert window.sent - window.acknowledged <= in_flight

    def step(kind):
        nonlocal window, now, spooled
        now += S
        if kind == "spool" and spooled < batches:
            spooled += 1
            stored[spooled] = True
            do(BatchSpooled(spooled))
        elif kind == "lose" and channel:
            channel.pop(0)
        elif kind in {"deliver", "lose ack"} and channel:
            sequence = channel.pop(0)
            acks.append(receiver.receive(sequence) if sequence > 0 else receiver.skip(-sequence))
            if kind == "lose ack":
                acks.pop()
        elif kind == "reconnect":
            channel.clear()
            do(Connected())
        elif kind == "disconnect":
            channel.clear()
            do(Disconnected())
        elif kind == "restart":
            window = DeliveryWindow(min(stored, default=spooled + 1) - 1, spooled, in_flight)
            channel.clear()
        elif kind == "wait":
            do(TimePassed())
        if acks and kind != "lose ack":
            do(AckReceived(acks.pop(0)))

    for kind in steps:
        step(kind)
    step("reconnect")
    for _ in range(20 * batches + 20):  # from now on nothing is lost
        step("spool")
        step("deliver")
        step("wait")
    assert receiver.stored == [None if number in damaged else number for number in range(1, batches + 1)]
    assert stored == {}
