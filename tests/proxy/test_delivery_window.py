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
    SendAgain,
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
    [(3 * S - 1, []), (3 * S, [SendAgain(1)])],
)
def test_after_silence_the_first_batch_without_an_acknowledgement_is_sent_again(now, expected):
    window = DeliveryWindow(spooled=2)
    assert script(window, (0, Connected()), (now, TimePassed()))[1] == expected


def test_silent_receiver_is_tried_at_growing_intervals_until_it_answers():
    window = DeliveryWindow(spooled=2)
    window.handle(Connected(), 0)
    tries = [second for second in range(1, 60) if window.handle(TimePassed(), second * S)]
    assert tries == [3, 9, 21, 33, 45, 57]
    window.handle(AckReceived(1), 200 * S)
    assert [second for second in range(200, 205) if window.handle(TimePassed(), second * S)] == [203]


def test_silent_receiver_that_answers_with_what_it_had_stored_is_tried_again_at_once():
    window = DeliveryWindow(spooled=2)
    window.handle(Connected(), 0)
    for second in range(80):
        window.handle(TimePassed(), second * S)
    found = script(window, (80 * S, AckReceived(0)), (80 * S, TimePassed()), (82 * S, TimePassed()))
    assert found == [[], [SendAgain(1)], []]


def acknowledged_within(delay_us, *, count=20, in_flight=32, resend_after_us=3 * S):
    """Return a window of which so many batches were acknowledged, each after the delay, and the time then."""
    window, now = DeliveryWindow(in_flight=in_flight, resend_after_us=resend_after_us), 0
    window.handle(Connected(), now)
    for sequence in range(1, count + 1):
        window.handle(BatchSpooled(sequence), now)
        now += delay_us
        window.handle(AckReceived(sequence), now)
    return window, now


def first_try(window, now):
    """Return after how long the next batch is sent again, if nothing is acknowledged."""
    window.handle(BatchSpooled(window.spooled + 1), now)
    return next(after for after in range(0, 60 * S, S // 10) if window.handle(TimePassed(), now + after))


@pytest.mark.parametrize(("delay", "patience"), [(0.1, 1.0), (0.9, 1.0), (1.5, 1.6), (2.9, 3.0), (5.0, 3.0)])
def test_a_last_batch_that_is_lost_is_sent_again_after_what_is_usual_but_a_second_at_least(delay, patience):
    assert first_try(*acknowledged_within(round(delay * S))) == round(patience * S)


def test_patience_grows_with_how_much_delays_vary():
    window, now = acknowledged_within(S // 10, resend_after_us=30 * S)
    for place in range(40):
        window.handle(BatchSpooled(window.spooled + 1), now)
        now += 2 * S if place % 2 else S // 10
        window.handle(AckReceived(window.spooled), now)
    assert 4 * S < first_try(window, now) < 7 * S


def test_what_is_usual_does_not_follow_from_a_batch_that_was_sent_twice():
    window, now = acknowledged_within(S // 10)
    for _ in range(20):  # each is acknowledged half a second after it was sent again
        now += first_try(window, now) + S // 2
        window.handle(AckReceived(window.spooled), now)
    assert first_try(window, now) == S


def test_what_is_behind_a_batch_that_was_lost_is_sent_again_in_growing_pieces():
    window = DeliveryWindow(in_flight=4)
    window.handle(Connected(), 0)
    for sequence in range(1, 12):
        window.handle(BatchSpooled(sequence), 0)
    found = script(window, (3 * S, TimePassed()), *[(3 * S, AckReceived(through)) for through in (1, 3, 7)])
    assert found == [
        [SendAgain(1)],
        [DeleteThrough(1), Resending(2, "gap"), Send(2), Send(3)],
        [DeleteThrough(3), Send(4), Send(5), Send(6), Send(7)],
        [DeleteThrough(7), Send(8), Send(9), Send(10), Send(11)],
    ]


def test_a_receiver_that_was_only_slow_gets_as_many_as_before():
    window = DeliveryWindow(spooled=12, in_flight=4)
    found = script(window, (0, Connected()), (3 * S, TimePassed()), (3 * S, AckReceived(4)))
    assert found[1:] == [
        [SendAgain(1)],
        [DeleteThrough(4), Send(5), Send(6), Send(7), Send(8)],
    ]


def test_after_each_gap_half_as_many_are_on_their_way():
    window, now = DeliveryWindow(spooled=100, in_flight=32), 0
    window.handle(Connected(), now)
    for expected in (16, 16, 16):  # twice as many with the acknowledgement between two gaps, and half as many again
        now += 4 * S  # what was sent again is answered
        again = script(window, *[(now, AckReceived(window.acknowledged))] * 2)[1]
        assert again[0] == Resending(window.acknowledged + 1, "gap")
        assert len(again) == 1 + expected
        window.handle(AckReceived(window.acknowledged + 1), now)
    window.handle(Disconnected(), now)
    window.handle(Connected(), now)
    assert window.sent - window.acknowledged == 32


def test_a_quarter_is_on_its_way_whatever_is_lost():
    window, now = DeliveryWindow(spooled=100, in_flight=32), 0
    window.handle(Connected(), now)
    for _ in range(8):
        now += 3 * S
        window.handle(TimePassed(), now)
        found = window.handle(AckReceived(window.acknowledged + 1), now)
    assert [type(each) for each in found] == [DeleteThrough, Resending, *[Send] * 8]


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


def test_bytes_on_their_way_are_counted_once_and_until_they_are_acknowledged_or_sent_again():
    window = DeliveryWindow(spooled=4, in_flight=3)
    window.handle(Connected(), 0)
    for sequence in (1, 2, 2, 3):
        window.published(sequence, 10 * sequence)
    window.published(4, 1_000)  # it was dropped from the queue meanwhile
    assert window.published_bytes == 60
    window.handle(AckReceived(2), 0)
    window.published(2, 20)
    assert window.published_bytes == 30
    window.handle(TimePassed(), 3 * S)
    assert window.published_bytes == 30
    window.handle(Connected(), 3 * S)
    assert window.published_bytes == 0


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
        [Skip(2)],
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
                case SendAgain(sequence):
                    assert sequence == window.acknowledged + 1
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


def test_answers_to_batches_that_were_sent_again_are_no_gap():
    """The receiver had them all, and answers each; but what still misses some time later is lost."""
    window = DeliveryWindow(spooled=8, in_flight=8)
    window.handle(Connected(), 0)
    assert script(window, *[(S // 10, AckReceived(0))] * 2)[1][0] == Resending(1, "gap")
    window.handle(AckReceived(4), S // 5)
    assert script(window, *[(S // 5, AckReceived(4))] * 8) == [[]] * 8
    assert script(window, *[(4 * S, AckReceived(4))] * 2) == [[], [Resending(5, "gap"), *map(Send, range(5, 9))]]


def test_a_receiver_that_stood_still_is_sent_a_batch_again_each_time_and_no_window():
    """It answers every time it was tried, as one behind a gap does."""
    window = DeliveryWindow(spooled=32, in_flight=32)
    window.handle(Connected(), 0)
    tried = [
        each for found in script(window, *[(second * S, TimePassed()) for second in range(1, 30)]) for each in found
    ]
    assert tried == [SendAgain(1)] * 3
    assert script(window, *[(40 * S, AckReceived(0))] * 4) == [[]] * 4
    assert script(window, (40 * S, AckReceived(0))) == [[Resending(1, "gap"), *map(Send, range(1, 17))]]
    assert window.handle(AckReceived(32), 41 * S) == [DeleteThrough(32)]


def test_tries_before_an_acknowledgement_do_not_count_after_it():
    window = DeliveryWindow(spooled=32, in_flight=32)
    window.handle(Connected(), 0)
    for second in range(1, 30):
        window.handle(TimePassed(), second * S)
    window.handle(AckReceived(5), 30 * S)
    assert script(window, *[(40 * S, AckReceived(5))] * 2)[1][0] == Resending(6, "gap")
