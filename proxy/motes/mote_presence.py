"""The presence of a mote: when its last packet arrived, and from when on it counts as silent. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from protocols.wire.programs import SamplingProgram
from proxy.motes.mote_events import MoteInstruction, PublishEntry, SilenceEnded, WentSilent
from proxy.motes.tracking_limits import TrackingLimits


class MotePresence:
    """The presence of one mote.

    Parameters
    ----------
    limits
        When a mote counts as silent.
    started_us
        Radio clock now; a mote known from before a restart counts as received now.
    """

    __slots__ = ("_limits", "radio_us", "received_us", "silent")

    def __init__(self, limits: TrackingLimits, started_us: int) -> None:
        self.silent = False
        self.radio_us = started_us
        """Radio clock when the last frame was received."""
        self.received_us = 0
        """Real time when the last frame was received; 0 if none was since the proxy's start."""
        self._limits = limits

    def received(self, radio_us: int, received_us: int) -> list[MoteInstruction]:
        """Return what to do as a frame was received."""
        self.radio_us, self.received_us = radio_us, received_us
        if not self.silent:
            return []
        self.silent = False
        return [SilenceEnded(), PublishEntry(changed=True)]

    def announcement_rejected(self, radio_us: int) -> None:
        """Note that an announcement was received and rejected: the mote is present but cannot be used."""
        self.radio_us = radio_us

    def may_be_silent(self, radio_us: int) -> bool:
        """Return whether a mote with the shortest gaps would count as silent by now."""
        return not self.silent and radio_us - self.radio_us >= self._limits.shortest_silence_us

    def time_passed(self, radio_us: int, programs: Iterable[SamplingProgram]) -> list[MoteInstruction]:
        """Return what to do when time has passed for a mote that runs one of these programs."""
        silent_us = radio_us - self.radio_us
        if self.silent or silent_us < self._limits.silent_after_us(programs):
            return []
        self.silent = True
        return [WentSilent(silent_us), PublishEntry(changed=True)]
