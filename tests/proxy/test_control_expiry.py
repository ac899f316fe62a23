"""Controls are sent while a mote listens, and never after."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.wire.frames import VERSION
from protocols.wire.packets import Control, SendAnnouncement
from proxy.motes.mote_events import SendControl

S = 1_000_000


def expiry_seconds(window_us: int, since_us: int, now_us: int) -> int | None:
    control = Control(VERSION, "m", (SendAnnouncement(),))
    return SendControl(control, window_us).expiry_seconds(since_us, now_us)


@pytest.mark.parametrize(
    ("now_us", "expires"), [(5 * S, 3), (5 * S + 1, 3), (6 * S, 2), (8 * S - 1, 1), (8 * S, None), (9 * S, None)]
)
def test_a_control_expires_with_its_window(now_us: int, expires: int | None) -> None:
    assert expiry_seconds(3 * S, 5 * S, now_us) == expires


@given(st.integers(0, 10 * S), st.integers(0, 10 * S), st.integers(0, 20 * S))
def test_no_control_is_sent_after_its_window_or_expires_a_second_after_it(
    window_us: int, since_us: int, passed_us: int
) -> None:
    found = expiry_seconds(window_us, since_us, since_us + passed_us)
    assert (found is None) == (passed_us >= window_us)
    if found is not None:
        assert 0 <= passed_us + found * S - window_us < S
