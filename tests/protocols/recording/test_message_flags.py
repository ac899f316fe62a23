"""What a log keeps of a message besides topic and payload."""

from __future__ import annotations

from itertools import product

import pytest

from protocols.mqtt.messages import Message
from protocols.recording.entries import PLAIN, LogError, flags_of, with_flags
from protocols.sealing.seals import REASONS


def test_quality_of_service_retention_and_refusal_are_kept() -> None:
    kept = [
        Message("t", b"p", qos, retain, refusal=refusal, again=again)
        for qos, retain, refusal, again in product((0, 1), (False, True), ("", *REASONS), (False, True))
    ]
    assert [with_flags("t", b"p", flags_of(each)) for each in kept] == kept
    assert flags_of(Message("t", b"p")) == PLAIN


def test_flags_that_there_are_not_are_refused() -> None:
    with pytest.raises(LogError):
        with_flags("t", b"p", 0xFF)
