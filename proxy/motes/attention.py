"""What the silence of motes means: how far time has come without them, and when a proxy may say so.

Pure. While a mote samples, its promises carry the stream's low watermark. A silent mote makes none, and the proxy
promises in its place: nothing that the mote sends from now on is older than what its program lets it keep back::

    clock of the mote     12:00:00 last packet ........ silent .............................. 12:01:00
    promise of the proxy                                                      12:00:48   (a sample is 12 s old at most)

That is right only if the proxy receives all that is sent. So it sends a message to itself through the broker: when that
is back, everything that the broker passed on before has been handled. After a start, a new connection, or a pause in
which the process was stopped, motes first have as long to be received again as they have until they count as silent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from protocols.wire.programs import SECOND_US, SamplingProgram
from proxy.motes.clock_bounds import longest_age_us

PROMISE_EVERY_US = SECOND_US
"""A stream of silent motes gets at most one promise in this time."""
LONGEST_PAUSE_US = 5 * SECOND_US
"""A process that did not run for longer was stopped: what was sent meanwhile has not been handled yet."""


class Attention:
    """Up to when a proxy has received what was sent.

    Parameters
    ----------
    started_us
        Radio clock now.
    """

    __slots__ = ("_sent_us", "_ticked_us", "since_us", "until_us")

    def __init__(self, started_us: int) -> None:
        self.since_us: int | None = None
        """From when on everything has been received; None while there is no connection."""
        self.until_us: int | None = None
        """Up to when; None if that is not known."""
        self._ticked_us = started_us
        self._sent_us: int | None = None

    def time_passed(self, radio_us: int, *, connected: bool) -> None:
        """Note that the process runs, and whether it is connected to the broker; to be called every second."""
        paused = radio_us - self._ticked_us > LONGEST_PAUSE_US
        self._ticked_us = radio_us
        if paused or not connected:
            self.lost()
        if connected and self.since_us is None:
            self.since_us = radio_us

    def lost(self) -> None:
        """Note that the connection was lost: what is sent until there is another may not be received in time."""
        self.since_us = self.until_us = self._sent_us = None

    def echo_due(self, radio_us: int) -> bool:
        """Return whether to send a message to oneself now."""
        known_us = self.since_us if self.until_us is None else self.until_us
        return known_us is not None and self._sent_us is None and radio_us - known_us >= PROMISE_EVERY_US

    def echo_sent(self, radio_us: int) -> None:
        """Note that the message is being sent."""
        self._sent_us = radio_us

    def echoed(self) -> None:
        """Note that it has come back."""
        if self._sent_us is not None:
            self.until_us, self._sent_us = self._sent_us, None

    def allows(self, silent_after_us: int) -> bool:
        """Return whether a mote that counts as silent after such a time has had it."""
        return (
            self.since_us is not None and self.until_us is not None and self.until_us - self.since_us >= silent_after_us
        )


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
        if attention.until_us is None or not attention.allows(self.silent_after_us):
            return None
        return self.clock_us + attention.until_us - self.radio_us - self.age_us


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
