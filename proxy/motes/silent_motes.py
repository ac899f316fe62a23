"""How far the time of a stream has come that no mote samples: what a proxy promises in place of silent motes.

Pure. While a mote samples, its promises carry the stream's low watermark. A silent mote makes none, and the proxy
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
from protocols.wire.programs import SECOND_US, SamplingProgram
from proxy.motes.clock_bounds import longest_age_us

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
