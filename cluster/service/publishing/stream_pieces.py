"""The demands on one stream, as messages: one whole, or pieces by name of the query and a head with their digests.

A query that comes or goes changes one piece; the others are neither encoded nor published again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from protocols.wire.demand_pieces import DemandHead, digest_of, encode_piece, piece_of
from protocols.wire.demands import QueryDemand, StreamDemand, encode_demands
from protocols.wire.frames import VERSION, encode

WHOLE_BYTES = 32 * 1024
"""Demands that take no more than this are one message, which earlier proxies read, too. Once they have taken more, they
are pieces until they take half of it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One demand of a query.

    Parameters
    ----------
    since
        The epoch with which the query began.
    demand, payload
        The demand, and its encoding.
    """

    since: int
    demand: QueryDemand
    payload: bytes

    @property
    def place(self) -> tuple[int, str, bytes]:
        """Where it stands among all demands on its stream."""
        return self.since, self.demand.query, self.payload


class StreamPieces:
    """The demands on one stream, and what of them the broker has.

    Parameters
    ----------
    stream
        Its name.
    """

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.size_bytes = 0
        """Of all demands together."""
        self.whole = True
        """Whether they are one message."""
        self._count = 0
        self._pieces: dict[int, dict[str, tuple[Entry, ...]]] = {}
        """By number and identity of the query."""
        self._digests: dict[int, bytes] = {}
        """Of the pieces that have been encoded as they are."""
        self._published: dict[int, bytes] = {}

    def __len__(self) -> int:
        """How many demands there are."""
        return self._count

    def add(self, query: str, name: str, since: int, demands: Sequence[tuple[QueryDemand, bytes]]) -> None:
        """Add the demands of a query, given its identity, its name, the epoch with which it began."""
        entries = tuple({payload: Entry(since, demand, payload) for demand, payload in demands}.values())
        number = piece_of(name)
        self._pieces.setdefault(number, {})[query] = entries
        self._changed(number, entries, 1)

    def drop(self, query: str, name: str) -> bool:
        """Remove the demands of a query; return whether there were any."""
        number = piece_of(name)
        entries = self._pieces.get(number, {}).pop(query, ())
        if not self._pieces.get(number):
            self._pieces.pop(number, None)
        self._changed(number, entries, -1)
        return bool(entries)

    def ordered(self) -> list[Entry]:
        """Return all demands, those of the oldest queries first."""
        found = [each for piece in self._pieces.values() for entries in piece.values() for each in entries]
        return sorted(found, key=lambda each: each.place)

    def unpublished(self) -> Iterator[tuple[int, bytes]]:
        """Yield the pieces that the broker does not have as they are, empty ones to be removed.

        Each has to be noted by :meth:`note_published` before the next is taken.
        """
        for number in sorted(self._published.keys() | (set() if self.whole else self._pieces.keys())):
            # Queries may come and go while pieces are published.
            if self.whole or number not in self._pieces:
                yield number, b""
            elif number not in self._digests or self._published.get(number) != self._digests[number]:
                payload = self._encoded(number)
                self._digests[number] = digest_of(payload)
                yield number, payload

    def note_published(self, number: int, payload: bytes) -> None:
        """Note that the broker has a piece."""
        if payload:
            self._published[number] = digest_of(payload)
        else:
            self._published.pop(number, None)

    def forget_published(self, numbers: Sequence[int] | None = None) -> None:
        """Publish pieces again, all unless some are named: the broker, or a proxy, has lost them."""
        for number in list(self._published) if numbers is None else numbers:
            if number in self._published:
                self._published[number] = b""

    def head(self, known: StreamDemand) -> bytes:
        """Return the message on the stream's topic, given the demand without those of queries."""
        if self.whole:
            return encode_demands(known, [each.payload for each in self.ordered()])
        for number in self._pieces.keys() - self._digests.keys():
            self._digests[number] = digest_of(self._encoded(number))
        pieces = {number: self._digests[number] for number in sorted(self._pieces)}
        return encode(DemandHead(VERSION, known.cluster, self.stream, known.epoch, pieces, known.declared, known.only))

    def _changed(self, number: int, entries: Sequence[Entry], sign: int) -> None:
        self._digests.pop(number, None)
        self._count += sign * len(entries)
        self.size_bytes += sign * sum(len(each.payload) for each in entries)
        self.whole = self.size_bytes <= (WHOLE_BYTES if self.whole else WHOLE_BYTES // 2)

    def _encoded(self, number: int) -> bytes:
        entries = sorted(
            (each for entries in self._pieces[number].values() for each in entries), key=lambda each: each.place
        )
        return encode_piece(VERSION, self.stream, number, [(each.since, each.payload) for each in entries])
