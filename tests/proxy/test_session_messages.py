"""Which messages of the devices' session are acknowledged, and which are known again, without a proxy."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocols.mqtt.messages import Message
from proxy.running.session_messages import PAUSE_US, QUIET_US, Backlog, SessionMessages
from proxy.storage.spool import SessionMessage

CONNECTION = 1 << 16


def message(number: int, payload: bytes = b"open", *, again: bool = False, connection: int = 1, topic: str = "door"):
    return Message(topic, payload, again=again, number=connection << 16 | number)


def took(messages: SessionMessages, *received: Message) -> list[bool]:
    found = [messages.received(each) for each in received]
    messages.handled()
    return found


def after_a_crash(stored: list[SessionMessage]) -> SessionMessages:
    return SessionMessages(stored)


def test_nothing_is_acknowledged_before_what_it_led_to_is_written():
    #  received  1 2     3
    #  cut           1 2
    messages = SessionMessages()
    took(messages, message(1), message(2))
    assert messages.take() == []
    assert [each.number for each in messages.cut()] == [1, 2]
    took(messages, message(3))
    assert messages.take() == []
    messages.written()
    assert messages.take() == [CONNECTION + 1, CONNECTION + 2]
    assert len(messages) == 1
    assert messages.take() == []


def test_a_failed_write_acknowledges_nothing_and_the_next_cut_goes_on_behind_it():
    messages = SessionMessages()
    took(messages, message(1))
    messages.cut()
    took(messages, message(2))
    # the write failed; it is tried again, without a cut
    messages.written()
    assert messages.take() == [CONNECTION + 1]
    assert [each.number for each in messages.cut()] == [2]


def test_a_message_that_is_being_handled_is_in_no_cut():
    messages = SessionMessages()
    messages.received(message(1))
    assert messages.cut() == []
    messages.written()
    assert messages.take() == []
    assert len(messages) == 1
    messages.handled()
    assert [each.number for each in messages.cut()] == [1]


def test_what_waits_to_be_merged_is_acknowledged_after_its_tuple_and_what_came_later_too():
    #  received     1   2 (waits)   3
    messages = SessionMessages()
    took(messages, message(1), message(2), message(3))
    held = {"door"}
    messages.hold(message(2), lambda: "door" in held)
    stored = messages.cut()
    assert [each.number for each in stored] == [1, 3], "what 3 led to is on disk"
    messages.written()
    assert messages.take() == [CONNECTION + 1]
    again = [message(2, again=True), message(3, again=True)]
    assert took(after_a_crash(stored), *again) == [True, False]
    assert took(messages, message(2, again=True, connection=2)) == [False]
    assert messages.cut() == []
    messages.written()
    assert messages.take() == []
    held.clear()
    assert [each.number for each in messages.cut()] == [2]
    messages.written()
    assert [each & 0xFFFF for each in messages.take()] == [2, 3, 2]


def test_after_a_crash_messages_that_were_stored_are_known_again_and_acknowledged_in_order():
    before = SessionMessages()
    took(before, message(1), message(2, b"closed"), message(3))
    stored = before.cut()
    took(before, message(4))  # in memory only
    after = after_a_crash(stored)
    again = [message(1, again=True), message(2, b"closed", again=True), message(3, again=True), message(4, again=True)]
    assert took(after, *again) == [False, False, False, True]
    assert [each.number for each in after.cut()] == [4]
    after.written()
    assert after.take() == [CONNECTION + 1, CONNECTION + 2, CONNECTION + 3, CONNECTION + 4]


def test_the_same_payload_under_another_number_or_unmarked_or_on_another_topic_is_another_message():
    before = SessionMessages()
    took(before, message(7))
    stored = before.cut()
    for other in (
        message(8, again=True),
        message(7),
        message(7, again=True, topic="gate"),
        message(7, b"", again=True),
    ):
        assert took(after_a_crash(stored), other) == [True]
    assert took(after_a_crash(stored), message(7, again=True)) == [False]


def test_a_connection_that_breaks_lets_messages_come_again_that_are_in_memory():
    messages = SessionMessages()
    assert took(messages, message(1), message(2)) == [True, True]
    assert took(messages, message(1, again=True, connection=2), message(2, again=True, connection=2)) == [False, False]
    assert [each.number for each in messages.cut()] == [1, 2]
    messages.written()
    assert [each >> 16 for each in messages.take()] == [1, 1, 2, 2]


def test_a_new_session_gives_the_numbers_to_other_messages():
    messages = SessionMessages()
    took(messages, message(1))
    messages.began()
    assert took(messages, message(1, again=True, connection=2)) == [True]


def test_a_number_that_comes_round_is_not_mistaken_for_an_old_one():
    messages = SessionMessages(most=100)
    assert all(took(messages, *(message(number) for number in range(1, 102))))
    assert took(messages, message(1, again=True), message(101, again=True)) == [True, False]


@given(st.lists(st.sampled_from(["receive", "cut", "write", "fail", "crash"]), max_size=60))
def test_every_message_leads_to_one_tuple_however_often_the_process_dies(steps):
    """A broker with numbers, a proxy whose memory dies with it, and a disk: each message is stored once."""
    sent, acknowledged, next_number = {}, set(), 1
    disk: list[SessionMessage] = []
    rows: list[int] = []
    messages, waiting, batch = SessionMessages(), [], None

    def receive(number, *, again=False):
        if messages.received(message(number, again=again)):
            waiting.append(number)
        messages.handled()

    for step in [*steps, "crash", "cut", "write"]:
        match step:
            case "receive":
                sent[next_number] = True
                receive(next_number)
                next_number += 1
            case "cut" if batch is None:
                batch = (messages.cut(), waiting)
                waiting = []
            case "write" if batch is not None:
                disk, batch = [*disk, *batch[0]], rows.extend(batch[1])
                messages.written()
                acknowledged |= {each & 0xFFFF for each in messages.take()}
            case "crash":
                messages, waiting, batch = SessionMessages(disk), [], None
                for number in sorted(set(sent) - acknowledged):
                    receive(number, again=True)
    assert rows == sorted(sent)


def test_nothing_waits_at_the_broker_once_all_is_acknowledged_and_nothing_comes():
    backlog = Backlog(waits=True)
    backlog.time_passed(100 * QUIET_US, 0)
    assert backlog.waits, "there is no connection yet"
    backlog.opened(200 * QUIET_US, kept=True)
    backlog.time_passed(201 * QUIET_US - 1, 0)
    assert backlog.waits
    backlog.received(201 * QUIET_US - 1)
    backlog.time_passed(202 * QUIET_US, 3)
    backlog.time_passed(203 * QUIET_US - 1, 0)
    assert backlog.waits, "the broker sends no more until these are acknowledged"
    backlog.time_passed(203 * QUIET_US, 0)
    assert not backlog.waits
    backlog.lost()
    assert backlog.waits
    backlog.opened(300 * QUIET_US, kept=False)
    assert not backlog.waits


def test_a_marker_ends_the_backlog_and_one_of_another_connection_does_not():
    backlog = Backlog(waits=True, start="7")
    assert backlog.next_marker(0) is None, "there is no connection yet"
    backlog.opened(0, kept=True)
    early = backlog.next_marker(0)
    assert backlog.next_marker(QUIET_US - 1) is None
    backlog.lost()
    backlog.marker_received(early)
    assert backlog.waits
    backlog.opened(QUIET_US, kept=True)
    first, second = backlog.next_marker(QUIET_US), backlog.next_marker(2 * QUIET_US)
    assert len({early, first, second}) == 3, "the broker may have dropped the first"
    for unknown in (early, "6-2", ""):
        backlog.marker_received(unknown)
        assert backlog.waits
    backlog.marker_received(first)
    assert not backlog.waits
    assert backlog.next_marker(100 * QUIET_US) is None


def test_no_marker_is_sent_where_nothing_waits():
    backlog = Backlog(waits=True)
    backlog.opened(0, kept=False)
    assert backlog.next_marker(0) is None


def test_messages_have_waited_for_a_process_that_stood_still_until_a_new_marker_comes():
    backlog = Backlog(waits=True)
    assert not backlog.paused(100 * PAUSE_US), "there is no connection yet"
    backlog.opened(101 * PAUSE_US, kept=True)
    early = backlog.next_marker(101 * PAUSE_US)
    assert not backlog.paused(102 * PAUSE_US - 1)
    assert backlog.paused(103 * PAUSE_US)
    backlog.marker_received(early)
    assert backlog.waits, "it may have come before all that has waited for the process"
    late = backlog.next_marker(103 * PAUSE_US)
    assert not backlog.paused(103 * PAUSE_US + 1)
    backlog.marker_received(late)
    assert not backlog.waits
    assert backlog.paused(104 * PAUSE_US + 1)
    assert backlog.waits
