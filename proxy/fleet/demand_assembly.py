"""The demands on a stream, assembled from messages that may be lost, doubled or late: never half of a change. Pure.

    head 7 {3: a, 9: b}    piece 3 (a)    piece 9 (b)        applied: 7
    piece 3 (c)            head 8 {3: c, 9: b}               applied: 8, of which only piece 3 was read
    head 9 {3: d, 9: b}                                      8 stays; piece 3 is awaited, and requested in the end

Time goes downwards; a letter is a digest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from protocols.errors import FrameError
from protocols.wire.demands import (
    MAX_PIECES_BYTES,
    MOST_DEMANDS,
    PIECES,
    DemandHead,
    DemandRequest,
    PieceEntry,
    QueryDemand,
    RefusedDemand,
    StreamDemand,
    WholeDemand,
    decode_demand_piece,
    digest_of,
    read_head,
    read_query_demand,
    unmatched,
)
from protocols.wire.frames import VERSION
from protocols.wire.programs import SECOND_US

FIRST_REQUEST_US = 5 * SECOND_US
"""How long pieces are awaited before they are requested; then twice as long each time."""
LONGEST_PAUSE_US = 300 * SECOND_US
MOST_BYTES = 2 * MAX_PIECES_BYTES
"""Bytes of all pieces of a stream that are kept, those that no head names among them."""
MOST_STREAMS = 1_000
"""Streams whose demands are kept."""

FEW = 256
"""Demands that are put in their places one by one; of more, all are sorted anew."""

_Key = tuple[int, str, int, bytes]
"""By age, then by name."""
_Ordered = tuple[_Key, QueryDemand]
_Entry = tuple[int, bytes]
_Demands = Mapping[tuple[int, bytes], QueryDemand | RefusedDemand]
_key, _demand = itemgetter(0), itemgetter(1)


@dataclass(frozen=True, slots=True)
class Assembled:
    """The demand on a stream, complete.

    Parameters
    ----------
    demand
        What can be read of it.
    unreadable
        The demands that cannot.
    """

    demand: StreamDemand
    unreadable: tuple[RefusedDemand, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredDemand:
    """What is kept of a stream's demand across restarts: messages as they came.

    Parameters
    ----------
    head
        That of the demand that is applied; None if it is removed.
    pieces
        Those that have changed since they were last taken, by number; None for those that are gone.
    """

    head: bytes | None
    pieces: Mapping[int, bytes | None] = field(default_factory=dict)

    def followed_by(self, newer: StoredDemand) -> StoredDemand:
        """Return these changes and newer ones as one."""
        return StoredDemand(newer.head, {**self.pieces, **newer.pieces})


@dataclass(frozen=True, slots=True)
class _Piece:
    payload: bytes
    digest: bytes
    entries: tuple[PieceEntry, ...]


@dataclass(frozen=True, slots=True)
class _Applied:
    """A piece of the demand that is applied, read."""

    piece: _Piece
    demands: _Demands
    refused: bool

    def ordered(self, number: int, entries: Iterable[_Entry]) -> Iterator[_Ordered]:
        """Yield some of its demands that could be read, with their places among all."""
        for since, raw in entries:
            found = self.demands[since, raw]
            if isinstance(found, QueryDemand):
                yield (since, found.query, number, raw), found


class DemandAssembly:
    """The demands on one stream.

    Parameters
    ----------
    stream
        Its name.
    """

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.demands_read = 0
        """How many demands have been decoded."""
        self._head: DemandHead | None = None
        """The newest; applied once its pieces are here."""
        self._head_payload = b""
        self._pieces: dict[int, _Piece] = {}
        self._size = 0
        self._applied: dict[int, _Applied] = {}
        self._ordered: list[_Ordered] = []
        self._known: dict[bytes, QueryDemand] = {}
        """Demands of a whole message, by their bytes."""
        self._stored: dict[int, bytes] = {}
        self._since_us: int | None = None
        self._pause_us = FIRST_REQUEST_US

    def receive_head(self, payload: bytes, now_us: int) -> Assembled | None:
        """Return the demand on the stream if a message on its topic completes it.

        Raises
        ------
        FrameError, UnsupportedVersionError
            If it cannot be read; nothing has changed.
        """
        found = read_head(payload) if payload else WholeDemand(DemandHead(VERSION, "none", self.stream, 0, {}), ())
        head = found.head if isinstance(found, WholeDemand) else found
        if head.stream != self.stream:
            raise FrameError("stream", f"demand on stream {head.stream!r} on the topic of {self.stream!r}")
        if isinstance(found, WholeDemand):
            self._head, self._since_us, self._head_payload = None, None, payload
            return self._whole(found)
        awaited = () if self._head is None or self._since_us is None else self._missing(self._head)
        # A piece that is still missing is awaited since it was named first, however often heads come.
        if not set(awaited).intersection(self._missing(head)):
            self._since_us, self._pause_us = now_us, FIRST_REQUEST_US
        self._head, self._head_payload = head, payload
        return self._complete()

    def receive_piece(self, number: int, payload: bytes) -> Assembled | None:
        """Return the demand on the stream if one of its pieces completes it.

        Raises
        ------
        FrameError, UnsupportedVersionError
            If it cannot be read, or there are too many; nothing has changed.
        """
        known = self._pieces.get(number)
        size = self._size - (0 if known is None else len(known.payload)) + len(payload)
        if size > MOST_BYTES:
            raise FrameError("size", f"the demands on {self.stream!r} have more than {MOST_BYTES:,} bytes")
        digest = digest_of(payload)
        if known is not None and known.digest == digest:
            return None
        if payload:
            piece = decode_demand_piece(payload)
            if (piece.stream, piece.number) != (self.stream, number):
                raise FrameError(
                    "stream", f"piece {piece.number} of {piece.stream!r} on the topic of {number} of {self.stream!r}"
                )
            self._pieces[number] = _Piece(payload, digest, piece.demands)
        else:
            self._pieces.pop(number, None)
        self._size = size
        waits = self._since_us is not None and self._head is not None and number in self._head.pieces
        return self._complete() if waits else None

    def request(self, proxy: str, now_us: int) -> DemandRequest | None:
        """Return the request for pieces that have been missing for long; then not again for twice as long."""
        if self._head is None or self._since_us is None or now_us - self._since_us < self._pause_us:
            return None
        self._since_us, self._pause_us = now_us, min(2 * self._pause_us, LONGEST_PAUSE_US)
        missing = self._missing(self._head)
        return DemandRequest(VERSION, proxy, self.stream, missing) if missing else None

    def take_changes(self) -> StoredDemand:
        """Return what has to be kept of the demand that has just been applied."""
        now = {number: each.piece.payload for number, each in self._applied.items()}
        changed: dict[int, bytes | None] = {
            number: payload for number, payload in now.items() if self._stored.get(number) is not payload
        }
        changed |= {number: None for number in self._stored if number not in now}
        self._stored = now
        return StoredDemand(self._head_payload or None, changed)

    def _missing(self, head: DemandHead) -> tuple[int, ...]:
        return unmatched(head.pieces, {number: each.digest for number, each in self._pieces.items()})

    def _complete(self) -> Assembled | None:
        head = self._head
        if head is None or self._missing(head):
            return None
        wanted = {number: self._pieces[number] for number in head.pieces}
        if sum(len(each.entries) for each in wanted.values()) > MOST_DEMANDS:
            raise FrameError("size", f"there are more than {MOST_DEMANDS:,} demands on {self.stream!r}")
        if self._known:
            self._forget()
        applied: dict[int, _Applied] = {}
        gone: list[_Ordered] = []
        come: list[_Ordered] = []
        for number, piece in wanted.items():
            before = self._applied.get(number)
            if before is not None and before.piece.digest == piece.digest:
                applied[number] = before
                continue
            known: _Demands = {} if before is None else before.demands
            read = self._read(piece, known)
            refused = any(isinstance(each, RefusedDemand) for each in read.values())
            after = applied[number] = _Applied(piece, read, refused)
            come += after.ordered(number, after.demands.keys() - known.keys())
            if before is not None:
                gone += before.ordered(number, known.keys() - after.demands.keys())
        for number, before in self._applied.items():
            if number not in wanted:
                gone += before.ordered(number, before.demands)
        self._reorder(gone, come)
        self._applied, self._since_us = applied, None
        demand = StreamDemand(
            head.version, head.cluster, head.stream, head.epoch,
            tuple(map(_demand, self._ordered)), head.declared, head.only,
        )  # fmt: skip
        return Assembled(demand, tuple(self._unreadable()))

    def _unreadable(self) -> Iterator[RefusedDemand]:
        for _, each in sorted(self._applied.items()):
            if each.refused:
                yield from (found for found in each.demands.values() if isinstance(found, RefusedDemand))

    def _read(self, piece: _Piece, known: _Demands) -> _Demands:
        """Return the demands of a piece; those that are known are not read again."""
        found: dict[_Entry, QueryDemand | RefusedDemand] = {}
        for each in piece.entries:
            entry = each.since, bytes(each.demand)
            if entry in known:
                found[entry] = known[entry]
            else:
                self.demands_read += 1
                found[entry] = read_query_demand(each.demand)
        return found

    def _reorder(self, gone: Sequence[_Ordered], come: Sequence[_Ordered]) -> None:
        if len(gone) + len(come) > FEW:
            keys = {key for key, _ in gone}
            self._ordered = sorted([*(each for each in self._ordered if each[0] not in keys), *come], key=_key)
            return
        for key, _ in gone:
            del self._ordered[bisect_left(self._ordered, key, key=_key)]
        for each in come:
            self._ordered.insert(bisect_left(self._ordered, each[0], key=_key), each)

    def _whole(self, found: WholeDemand) -> Assembled:
        if not self._known:
            self._forget()
        known: dict[bytes, QueryDemand] = {}
        demands: list[QueryDemand] = []
        unreadable: list[RefusedDemand] = []
        for each in found.demands:
            raw = bytes(each)
            read: QueryDemand | RefusedDemand | None = self._known.get(raw)
            if read is None:
                self.demands_read += 1
                read = read_query_demand(each)
            if isinstance(read, RefusedDemand):
                unreadable.append(read)
            else:
                known[raw] = read
                demands.append(read)
        self._known = known
        head = found.head
        rest = head.declared, head.only
        demand = StreamDemand(head.version, head.cluster, head.stream, head.epoch, tuple(demands), *rest)
        return Assembled(demand, tuple(unreadable))

    def _forget(self) -> None:
        """Forget the demand that is applied, because the next one comes in another form."""
        self._applied, self._ordered, self._known = {}, [], {}


class DemandAssemblies:
    """The demands on all streams.

    Parameters
    ----------
    proxy
        Name of the proxy, for requests.
    """

    def __init__(self, proxy: str) -> None:
        self._proxy = proxy
        self._streams: dict[str, DemandAssembly] = {}

    def receive_head(self, stream: str, payload: bytes, now_us: int) -> Assembled | None:
        """As :meth:`DemandAssembly.receive_head`."""
        return self._of(stream).receive_head(payload, now_us)

    def receive_piece(self, stream: str, name: str, payload: bytes) -> Assembled | None:
        """As :meth:`DemandAssembly.receive_piece`; `name` is that in the topic."""
        if not name.isdecimal() or str(int(name)) != name or int(name) >= PIECES:
            raise FrameError("topic", f"{name!r} is not the number of a piece")
        return self._of(stream).receive_piece(int(name), payload)

    def take_changes(self, stream: str) -> StoredDemand:
        """As :meth:`DemandAssembly.take_changes`."""
        return self._of(stream).take_changes()

    def restore(self, stream: str, stored: StoredDemand, now_us: int) -> Assembled | None:
        """Return the demand on a stream as it was kept; None if it is not complete, or there are too many streams.

        Raises
        ------
        FrameError, UnsupportedVersionError
            If it cannot be read.
        """
        assembly = self._of(stream)
        for number, payload in stored.pieces.items():
            assembly.receive_piece(number, payload or b"")
        found = assembly.receive_head(stored.head or b"", now_us)
        assembly.take_changes()
        return found

    def requests(self, now_us: int) -> list[DemandRequest]:
        """Return the requests for pieces that have been missing for long."""
        found = (each.request(self._proxy, now_us) for each in self._streams.values())
        return [each for each in found if each is not None]

    def _of(self, stream: str) -> DemandAssembly:
        found = self._streams.get(stream)
        if found is None:
            if len(self._streams) >= MOST_STREAMS:
                raise FrameError("full", f"there are demands on {MOST_STREAMS:,} streams already")
            found = self._streams[stream] = DemandAssembly(stream)
        return found
