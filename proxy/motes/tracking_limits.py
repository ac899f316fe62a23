"""When a mote counts as silent, how long to wait for it, and how far its clock may be off. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from protocols.wire.programs import SECOND_US, SLEEP, SamplingProgram
from proxy.motes.clock_bounds import UNBOUNDED, ClockBounds

SHORTEST_SILENCE_US = 2 * SECOND_US
_GAPS_UNTIL_SILENT = 3


@dataclass(frozen=True, slots=True)
class TrackingLimits:
    """How long to wait for motes, and how far their clocks may be off.

    Parameters
    ----------
    silence_after_us
        A mote that sends nothing for this long is silent; None for three times the longest gap that its listen schedule
        allows, and at least two seconds. Real time.
    patience_us
        How long a mote that should sample but has not begun holds back the watermark, so that its first samples are not
        late. Real time.
    attempts
        A mote is reported after this many controls without effect.
    clock
        How far a mote's clock may be from real time. One that announces a replay runs on a clock of its own.
    clock_tolerance_us
        A clock that may be off by more is corrected; None for never.
    reorder_within_us
        How long packets wait for those that they overtook; 0 does not wait.
    """

    silence_after_us: int | None = None
    patience_us: int = 10 * SECOND_US
    attempts: int = 5
    clock: ClockBounds = UNBOUNDED
    clock_tolerance_us: int | None = None
    reorder_within_us: int = 0

    @property
    def shortest_silence_us(self) -> int:
        """A mote that has sent a packet within this time is not silent."""
        return SHORTEST_SILENCE_US if self.silence_after_us is None else self.silence_after_us

    def silent_after_us(self, programs: Iterable[SamplingProgram]) -> int:
        """Return how long a mote that runs one of these programs may send nothing, in real time.

        However slowly it samples, a mote sends a packet once per listen interval.
        """
        if self.silence_after_us is not None:
            return self.silence_after_us
        longest_us = max(program.listen.every_us for program in (SLEEP, *programs))
        return max(_GAPS_UNTIL_SILENT * longest_us, SHORTEST_SILENCE_US)
