"""Whether all motes have come as far as the latest tuple that waits: then its batch gains nothing by waiting on.

motes of one rate sample at the same instants    12:00:01   a  b  c  d     the latest waits since b; when d has come,
                                                            |  |     |     nothing stamped 12:00:01 can follow
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from operator import itemgetter
from typing import TYPE_CHECKING

from proxy.records.watermarks import LOWEST_US

if TYPE_CHECKING:
    from proxy.motes.mote_tracking import MoteTracking


class Stragglers:
    """Remembers one mote that has not come far enough, so that most questions cost one look."""

    def __init__(self) -> None:
        self._latest_us: int | None = None
        self._to_ask: list[MoteTracking] = []

    def any_behind(self, motes: Collection[MoteTracking], latest_us: int) -> bool:
        """Return whether a mote may still send a tuple stamped `latest_us` or earlier.

        A mote that has come this far is not looked at again: if it falls back with a new program, it is missed.

        Parameters
        ----------
        motes
            All that feed the stream.
        latest_us
            The stamp of the latest tuple that waits.
        """
        if self._to_ask and _is_behind(self._to_ask[-1], latest_us):
            return True
        if latest_us != self._latest_us:
            self._latest_us = latest_us
            self._to_ask = list(motes)
        while self._to_ask:
            if _is_behind(self._to_ask[-1], latest_us):
                return True
            self._to_ask.pop()
        return False

    def forget(self) -> None:
        """Begin anew: the tuples that waited are in a batch, or the motes are others."""
        self._latest_us, self._to_ask = None, []


def furthest_behind(
    motes: Iterable[MoteTracking], restored_us: int | None, delay_of: Callable[[str], int | None]
) -> MoteTracking | None:
    """Return the mote that holds the low watermark of a stream; if none does, the silent mote furthest behind, if any.

    Parameters
    ----------
    motes
        All that feed the stream.
    restored_us, delay_of
        See :meth:`MoteTracking.while_silent`.
    """
    holding: list[tuple[int, int, MoteTracking]] = []
    silent: list[tuple[int, int, MoteTracking]] = []
    for mote in motes:
        watermark = mote.watermark
        if watermark is not None:
            instant_us = LOWEST_US if watermark.instant_us is None else watermark.instant_us
            holding.append((instant_us, mote.received_radio_us, mote))
        elif mote.silent and (found := mote.while_silent(restored_us, delay_of(mote.mote))) is not None:
            silent.append((found.clock_us - found.radio_us - found.age_us, mote.received_radio_us, mote))
    found_first = min(holding or silent, key=itemgetter(0, 1), default=None)
    return None if found_first is None else found_first[-1]


def _is_behind(mote: MoteTracking, latest_us: int) -> bool:
    watermark = mote.watermark
    return watermark is not None and (watermark.instant_us is None or watermark.instant_us <= latest_us)
