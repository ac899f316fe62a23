"""How often a mote listens, and how often it has to poll for that.

The mote's rule (:mod:`firmware_sim.mote.mote`): a listen window follows the first packet that is sent at least `every`
after the window before. If the mote knows when its next packet is due, it sends a polling packet unless that is soon
enough; if it does not know, because the times of records depend on values, it polls after twice `every` without a
packet, and sends the waiting records with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_MOST_EXPECTED = 20_000.0
"""With more records than this between two windows, the number waiting at any moment is nearly uniform."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Rates per second.

    Parameters
    ----------
    packets
        Full packets of records.
    polls
        Polling packets.
    listens
        Listen windows.
    records_per_poll
        Mean number of records in a polling packet.
    """

    packets: float
    polls: float
    listens: float
    records_per_poll: float = 0.0


def when_regular(packets: float, every_s: float) -> Listening:
    """Return the rates of a mote that sends a packet at fixed times, or none."""
    if packets <= 0:
        return Listening(0.0, 1 / every_s, 1 / every_s)
    apart_s = 1 / packets
    if apart_s <= every_s:
        return Listening(packets, 0.0, 1 / (math.ceil(round(every_s / apart_s, 9)) * apart_s))
    polls = max(0, math.ceil(round(apart_s / every_s, 9)) - 2)
    return Listening(packets, polls * packets, (polls + 1) * packets)


@lru_cache(maxsize=1024)
def when_irregular(records: float, per_packet: int, every_s: float) -> Listening:
    """Return the rates of a mote whose records are independent of each other.

    Each window begins with no record waiting, so the time until the next does not depend on what was before.
    In its first half, of length `every_s`, n records come and leave j = n mod `per_packet` waiting; in the second half
    the window begins with the record that fills the packet, or with a polling packet at its end.
    """
    if records <= 0:
        return Listening(0.0, 0.5 / every_s, 0.5 / every_s)
    expected = records * every_s
    counts = _counts(expected, per_packet)
    chances = _waiting(expected, counts, per_packet)
    waiting = np.arange(per_packet)
    last = per_packet - waiting - 1  # the most further records that leave the packet unfilled
    unfilled = np.cumsum(counts)
    silent = float(chances @ unfilled[last])
    # Mean time until the packet is full, limited to every_s: a sum over the missing records.
    waits = float(chances @ np.cumsum(1.0 - unfilled)[last]) / records
    came = np.cumsum(np.arange(len(counts)) * counts)
    flushed = float(chances @ (waiting * unfilled[last] + came[last]))
    window_s = every_s + waits
    polls = silent / window_s
    records_per_poll = flushed / silent if silent > 0 else 0.0
    return Listening((records - polls * records_per_poll) / per_packet, polls, 1 / window_s, records_per_poll)


@lru_cache(maxsize=4096)
def impatient_packets(records: float, per_packet: int, patience_s: float) -> float:
    """Return the packets a second if records are independent and wait for a full packet within their patience.

    A packet begins to fill with a record and is sent with the one that fills it, or when the first has waited long
    enough.
    """
    if records <= 0:
        return 0.0
    missing = per_packet - 1
    waits = 0.0
    if missing and patience_s > 0:
        counts = _counts(records * patience_s, missing)
        # Mean time until the packet is full, limited by patience: a sum over the missing records.
        unfilled = np.cumsum(counts)[:missing]
        waits = float((1.0 - unfilled).sum()) / records if records * patience_s < _MOST_EXPECTED else missing / records
        waits = min(waits, patience_s)
    return 1 / (1 / records + waits)


def _waiting(expected: float, counts: Floats, per_packet: int) -> Floats:
    """Return the probabilities that 0, 1, 2, ... records wait for a full packet at any moment."""
    if expected > _MOST_EXPECTED:
        return np.full(per_packet, 1 / per_packet)
    waiting = np.bincount(np.arange(len(counts)) % per_packet, weights=counts, minlength=per_packet)
    return waiting.astype(np.float64)


def _counts(expected: float, at_least: int) -> Floats:
    """Return the probabilities of 0, 1, 2, ... records in an interval in which `expected` come on average."""
    if expected > _MOST_EXPECTED:
        return np.zeros(at_least)  # fewer than fill a packet are practically impossible
    most = max(at_least, int(expected + 12 * math.sqrt(expected) + 30))
    logarithms = [number * math.log(expected) - expected - math.lgamma(number + 1) for number in range(most)]
    counts: Floats = np.exp(np.array(logarithms, dtype=np.float64))
    return counts
