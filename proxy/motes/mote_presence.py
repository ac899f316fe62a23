"""The presence of a mote: when it counts as silent, and how far the time of its stream has come without it. Pure.

**How far the time of a stream has come that no mote samples: what a proxy promises in place of silent motes.**

While a mote samples, its promises carry the stream's low watermark. A silent mote makes none, and the proxy
promises in its place: nothing that the mote sends from now on is older than what its program lets it keep back::

    clock of the mote     12:00:00 last packet ........ silent .............................. 12:01:00
    promise of the proxy                                                      12:00:48   (a sample is 12 s old at most)

That is right only if the proxy receives all that is sent (:mod:`protocols.presence.attention`). After a start, a new
connection, or a pause of the process, motes first have as long to be received again as they have until they count as
silent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from protocols.presence.attention import Attention
from protocols.wire.programs import SECOND_US, SLEEP, SamplingProgram
from proxy.motes.mote_clock import UNBOUNDED, ClockBounds, longest_age_us
from proxy.motes.mote_events import MoteInstruction, PublishEntry, SilenceEnded, WentSilent

PROMISE_EVERY_US = SECOND_US
"""A stream of silent motes gets at most one promise in this time."""


@dataclass(frozen=True, slots=True)
class SilentMote:
    """A mote that makes no promises, as far as time is concerned.

    Parameters
    ----------
    clock_us, radio_us
        What its clock showed at its last packet, and the radio clock then; or an earlier instant and a later one.
    silent_after_us
        After this long without a packet it counts as silent.
    age_us
        A sample is no older when its packet is received.
    """

    clock_us: int
    radio_us: int
    silent_after_us: int
    age_us: int

    def promise_us(self, attention: Attention) -> int | None:
        """Return the instant before which it sends no sample any more; None if that is not known."""
        since_us, until_us = attention.since_us, attention.until_us
        if since_us is None or until_us is None or until_us - since_us < self.silent_after_us:
            return None
        return self.clock_us + until_us - self.radio_us - self.age_us


def lowest_promise_us(motes: Iterable[SilentMote], attention: Attention) -> int | None:
    """Return the instant before which none of some motes sends a sample any more; None if that is not known.

    Examples
    --------
    >>> lowest_promise_us([], Attention(0)) is None
    True
    """
    promises = [each.promise_us(attention) for each in motes]
    known = [each for each in promises if each is not None]
    return min(known) if known and len(known) == len(promises) else None


def age_of(programs: Iterable[SamplingProgram], delay_us: int | None) -> int:
    """Return how old a sample may be when it is received, under any of some programs.

    An event may last for any time; one that is older than other records may be counts as late.

    Parameters
    ----------
    programs
        That the mote may follow.
    delay_us
        By how much values of a driven device may be delayed; None for a mote of Fjord. A driver makes a packet of each
        message at once, and stamps it with the period that it belongs to at the earliest.
    """
    known = list(programs)
    if delay_us is not None:
        return delay_us + max((each.period_us for each in known), default=0)
    return max((_age_of_mote(each) for each in known), default=0)


def _age_of_mote(program: SamplingProgram) -> int:
    found = longest_age_us(program)
    if found is not None:
        return found
    return (program.samples_per_packet + 1) * program.period_us + program.patience_us + program.listen.every_us


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
