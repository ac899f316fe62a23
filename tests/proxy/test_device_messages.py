"""Which messages to devices are published, without a broker: in order, not too late, and not too many."""

from __future__ import annotations

from proxy.drivers.driver import Publication
from proxy.running.driver_exchange import MOST_WAITING, DeviceMessages


def message(number: int, before_radio_us: int | None = None) -> Publication:
    return Publication(str(number), b"", before_radio_us=before_radio_us)


def test_messages_are_published_in_order() -> None:
    messages = DeviceMessages()
    assert messages.next(0) == (None, 0)
    assert messages.add([message(1), message(2)]) == 0
    assert messages.add([message(3)]) == 0
    assert [messages.next(0)[0] for _ in range(4)] == [message(1), message(2), message(3), None]


def test_what_is_too_late_is_given_up() -> None:
    messages = DeviceMessages()
    messages.add([message(1, 10), message(2, 20), message(3, 21), message(4), message(5, 19)])
    assert messages.next(9) == (message(1, 10), 0)
    assert messages.next(20) == (message(3, 21), 1), "it is too late from the instant on that it names"
    assert messages.next(20) == (message(4), 0)
    assert messages.next(20) == (None, 1)


def test_what_finds_no_room_is_given_up_and_the_others_wait() -> None:
    messages = DeviceMessages()
    assert messages.add(map(message, range(MOST_WAITING - 1))) == 0
    assert messages.add(map(message, range(3))) == 2
    assert messages.next(0) == (message(0), 0)
    assert messages.add([message(7)]) == 0
    waiting = [messages.next(0)[0] for _ in range(MOST_WAITING)]
    assert waiting[-2:] == [message(0), message(7)]
    assert messages.next(0) == (None, 0)
