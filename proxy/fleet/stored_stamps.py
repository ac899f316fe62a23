"""The stamps of published tuples in batches: of each new one, its neighbours among those of its mote before. Pure.

A query takes the first tuple of each of its periods, and there may be queries with any period, now or over history. So
each published tuple is stored with the nearest stamps around it, among the tuples of its mote that were stored before::

    arrives    10    14    25    12                        previous 10, next 14: it is the first of no period
    stored     10    14    25                              of 10; of 2 it is: 10 // 2 < 12 // 2 < 14 // 2

Only those stamps are kept that a later tuple may lie next to: none is accepted that is stamped before the stream's low
watermark, and none comes that is stamped before the mote's own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from protocols.wire.batches import NO_NEIGHBOUR_US
from proxy.records.waiting_tuples import PacketTuples

MOST_STAMPS = 10_000
"""Of a mote. If more may lie next to later tuples, the older half is forgotten, and tuples from before are late."""
NO_STAMPS: Mapping[str, Iterable[int]] = MappingProxyType({})


class KeptStamps(NamedTuple):
    """The stamps of one mote, to be stored with the batch whose tuples have them.

    Parameters
    ----------
    mote
        Which mote.
    since_us
        Earlier ones are forgotten.
    stamps_us
        New ones, ascending.
    """

    mote: str
    since_us: int
    stamps_us: tuple[int, ...]


class StampNeighbours(NamedTuple):
    """The neighbours of the tuples of a batch, in the order of its packets; None twice for one that is not published.

    Parameters
    ----------
    previous_us, next_us
        As in :data:`protocols.wire.batch_columns.PREVIOUS_COLUMN` and `NEXT_COLUMN`.
    """

    previous_us: list[int | None]
    next_us: list[int | None]


class StoredStamps:
    """The stamps of the motes of one stream.

    Parameters
    ----------
    known
        By mote: those that were stored before a restart.
    most
        Of a mote that are kept.
    """

    def __init__(self, known: Mapping[str, Iterable[int]] = NO_STAMPS, *, most: int = MOST_STAMPS) -> None:
        self._most = most
        self._of = {mote: sorted(set(stamps)) for mote, stamps in known.items()}
        """By mote, ascending. The lowest instant stands for "none before", and is forgotten as any other stamp."""
        self._floors = {mote: stamps[1] for mote, stamps in self._of.items() if len(stamps) > most // 2}

    def of(self, mote: str) -> tuple[int, ...]:
        """Return the stamps of a mote that are kept, ascending; the lowest instant first if none came before."""
        return tuple(self._of.get(mote, ()))

    def floor_us(self, mote: str) -> int | None:
        """Return the instant before which no tuple of a mote can be accepted any more; None for no such instant."""
        return self._floors.get(mote) if self._floors else None

    def neighbours_of(self, packets: Iterable[PacketTuples]) -> StampNeighbours:
        """Return the neighbours of the tuples of a batch, and keep their stamps."""
        found = StampNeighbours([], [])
        for packet in packets:
            extras = packet.aggregated
            if not packet.published:
                for column in found:
                    column.extend([None] * len(packet.starts_us))
            elif not extras:
                self._add(packet.mote, packet.starts_us, found)
            else:
                for start_us, extra in zip(packet.starts_us, extras, strict=True):
                    if extra is None or extra.fingerprint is None:
                        self._add(packet.mote, (start_us,), found)
                    else:
                        found.previous_us.append(None)
                        found.next_us.append(None)
        return found

    def keep(
        self, packets: Iterable[PacketTuples], since_us: Callable[[str], int | None] | None
    ) -> tuple[KeptStamps, ...]:
        """Return what of the stamps of a batch is to be stored, and forget what no later tuple can lie next to.

        Parameters
        ----------
        packets
            Those of the batch.
        since_us
            Returns the instant before which no later tuple of a mote is stamped, None if that is not known; None while
            tuples wait that are older than the motes promise.
        """
        new: dict[str, list[int]] = {}
        for packet in packets:
            if packet.published and (stamps_us := packet.samples_us):
                new.setdefault(packet.mote, []).extend(stamps_us)
        kept: list[KeptStamps] = []
        for mote, stamps in new.items():
            known = self._of[mote]
            if since_us is not None:
                self._forget(mote, known, since_us(mote))
            first_us = known[0]
            if first_us == NO_NEIGHBOUR_US:
                stamps.append(first_us)
            ascending = sorted(set(stamps))
            kept.append(KeptStamps(mote, first_us, tuple(ascending[bisect_left(ascending, first_us) :])))
        return tuple(kept)

    def _add(self, mote: str, starts_us: Sequence[int], found: StampNeighbours) -> None:
        """Add the neighbours of tuples of a mote, which come in this order."""
        known = self._of.get(mote)
        if known is None:
            known = self._of[mote] = [NO_NEIGHBOUR_US]
        previous_us, next_us = found
        for start_us in starts_us:
            last_us = known[-1]
            if start_us >= last_us:  # as nearly all do
                previous_us.append(last_us)
                next_us.append(None)
                if start_us > last_us:
                    known.append(start_us)
                continue
            place = bisect_right(known, start_us)
            # Where earlier stamps are not known any more, no tuple may count as the first of a period: others may have.
            previous_us.append(known[place - 1] if place else start_us)
            next_us.append(known[place])
            if not (place and known[place - 1] == start_us):
                known.insert(place, start_us)

    def _forget(self, mote: str, known: list[int], since_us: int | None) -> None:
        """Forget the stamps of a mote before an instant, except for the last of them."""
        if since_us is not None:
            _forget_before(known, since_us)
            if self._floors and self._floors.get(mote, since_us) < since_us:
                del self._floors[mote]
        if len(known) > self._most:
            floor_us = self._floors[mote] = known[-(self._most // 2)]
            _forget_before(known, floor_us)


def _forget_before(known: list[int], since_us: int) -> None:
    place = bisect_left(known, since_us)
    if place > 1:
        del known[: place - 1]
