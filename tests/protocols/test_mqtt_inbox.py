"""Messages that wait for their handler, and those that are dropped."""

from __future__ import annotations

from protocols.mqtt.inbox import Inbox
from protocols.mqtt.messages import Message


def put(inbox, *messages):
    """Put messages of so many bytes, each with its number."""
    inbox.put([Message("a", bytes(count)) for count, _ in messages], [number for _, number in messages])


def waiting(inbox, most=100):
    """Take messages; return their bytes and numbers."""
    messages, numbers = inbox.take(most)
    return [(len(message.payload), number) for message, number in zip(messages, numbers, strict=True)]


def test_messages_without_acknowledgement_are_dropped_when_too_many_wait():
    inbox = Inbox(2)
    put(inbox, (1, 0), (2, 0), (3, 0), (4, 7))
    assert waiting(inbox) == [(1, 0), (2, 0), (4, 7)]


def test_messages_without_acknowledgement_are_dropped_when_their_bytes_are_too_many():
    inbox = Inbox(100, max_bytes=10)
    put(inbox, (6, 0), (5, 0), (4, 0))
    put(inbox, (1, 0), (8, 3), (0, 0))
    assert waiting(inbox) == [(6, 0), (4, 0), (8, 3)]


def test_there_is_room_again_once_messages_were_taken():
    inbox = Inbox(100, max_bytes=10)
    put(inbox, (6, 0), (4, 0))
    assert waiting(inbox, 1) == [(6, 0)]
    put(inbox, (7, 0), (6, 0))
    assert waiting(inbox) == [(4, 0), (6, 0)]
    put(inbox, (10, 0))
    assert waiting(inbox) == [(10, 0)]
