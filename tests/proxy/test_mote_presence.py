"""
time      0        2        6         7
frames    x                           x
state     active            silent    active
"""  # fmt: skip

from __future__ import annotations

from protocols.wire.programs import SLEEP
from proxy.motes.mote_events import PublishEntry, SilenceEnded, WentSilent
from proxy.motes.mote_presence import MotePresence, TrackingLimits

S = 1_000_000
CHANGED = PublishEntry(changed=True)


def test_silence_begins_after_the_longest_gap_and_ends_with_the_next_frame():
    presence = MotePresence(TrackingLimits(), 0)
    assert presence.received(0, 0) == []
    assert not presence.may_be_silent(2 * S - 1)
    assert presence.may_be_silent(2 * S)
    assert presence.time_passed(6 * S - 1, (SLEEP,)) == []
    assert presence.time_passed(6 * S, (SLEEP,)) == [WentSilent(6 * S), CHANGED]
    assert presence.silent
    assert presence.time_passed(7 * S, (SLEEP,)) == []
    assert presence.received(7 * S, 70) == [SilenceEnded(), CHANGED]
    assert (presence.silent, presence.received_us) == (False, 70)


def test_a_configured_silence_is_independent_of_the_program():
    presence = MotePresence(TrackingLimits(silence_after_us=S), 0)
    assert presence.time_passed(S, (SLEEP,)) == [WentSilent(S), CHANGED]


def test_a_rejected_announcement_postpones_silence():
    presence = MotePresence(TrackingLimits(), 0)
    presence.announcement_rejected(5 * S)
    assert presence.time_passed(6 * S, (SLEEP,)) == []
