"""When a mote counts as silent, how long it is waited for, and how far its clock may be off. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from protocols.wire.programs import SECOND_US, SLEEP, SamplingProgram
from proxy.clock_bounds import UNBOUNDED, ClockBounds

SHORTEST_SILENCE_US = 2 * SECOND_US
_GAPS_UNTIL_SILENT = 3


@dataclass(frozen=True, slots=True)
class TrackingLimits:
    """With how much patience motes are treated.

    Parameters
    ----------
    silence_after_us
        Not heard for this long, a mote is silent; None takes three times the longest gap its listen schedule allows,
        and at least two seconds. Real time.
    patience_us
        How long a mote that should sample but has not begun holds back the watermark, so that its first samples are not
        late. Real time.
    attempts
        After so many controls without effect the mote is reported.
    clock
        How far a mote's clock may be from real time. One that announces a replay runs on a clock of its own.
    clock_tolerance_us
        A mote whose clock may be off by more is told to move it; None for never.
    reorder_within_us
        How long packets wait for those that they overtook; 0 for not at all.
    """

    silence_after_us: int | None = None
    patience_us: int = 10 * SECOND_US
    attempts: int = 5
    clock: ClockBounds = UNBOUNDED
    clock_tolerance_us: int | None = None
    reorder_within_us: int = 0

    @property
    def shortest_silence_us(self) -> int:
        """No mote heard since is silent yet."""
        return SHORTEST_SILENCE_US if self.silence_after_us is None else self.silence_after_us

    def silent_after_us(self, programs: Iterable[SamplingProgram]) -> int:
        """Return how long a mote that runs one of these programs may be unheard, in real time.

        However slowly it samples, a mote sends something once per listen interval.
        """
        if self.silence_after_us is not None:
            return self.silence_after_us
        longest_us = max(program.listen.every_us for program in (SLEEP, *programs))
        return max(_GAPS_UNTIL_SILENT * longest_us, SHORTEST_SILENCE_US)
