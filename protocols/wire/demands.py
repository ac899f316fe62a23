"""The demands of a cluster's queries on the sensors of a stream, whole or in pieces, and a proxy's report on them.

All demands on a stream are one retained message: a state, not an event, so that either side may disconnect or restart
and still converge on it.

**Many demands on a stream, as pieces of stable content: when a query comes or goes, one piece changes, and the head.**

    demands/traffic        head     epoch, and the digest of each piece that counts
    demands/traffic/0      piece    the demands of the queries whose names have this digest
    demands/traffic/17     piece
    ...

All are retained. Each topic is in order by itself, but between two there is none, and any may be lost or come twice; so
a reader takes the demand of a head only once every piece has the digest that the head names. Few demands are
in the head itself, as in a :class:`~protocols.wire.demands.StreamDemand`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from protocols.errors import FrameError, ProtocolError
from protocols.wire.frames import (
    LONGEST_PERIOD_US,
    MEBIBYTE,
    VERSION,
    Counter,
    DurationMicroseconds,
    Frame,
    FrameDecoder,
    Name,
    PeriodMicroseconds,
    Value,
)
from protocols.wire.programs import Band, DeadBand, Measure, Threshold
from protocols.wire.streams import FieldName, StreamSchema

MAX_DEMAND_BYTES = 4 * MEBIBYTE
MOST_DEMANDS = 65_536
MOST_BANDS = 256
"""The most bands of a demand, and the most conditions on sensors."""
LONGEST_TEXT = 1_024
"""The most characters of a bound of a fixed field."""

Fingerprint = Annotated[str, Meta(min_length=1, max_length=32, pattern=r"^[a-z0-9]+\Z")]


class PropertyBand(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Values of a fixed field: a query reads the sensors with one of them. None is no bound; NULL is in no band."""

    field: FieldName
    low: int | float | Annotated[str, Meta(max_length=LONGEST_TEXT)] | None = None
    high: int | float | Annotated[str, Meta(max_length=LONGEST_TEXT)] | None = None
    low_open: bool = False
    high_open: bool = False

    def holds(self, value: Value) -> bool:
        """Return whether a value lies in the band; a value of another kind does not."""
        if value is None:
            return False
        try:
            return not (
                (self.low is not None and (value < self.low or (self.low_open and value == self.low)))  # type: ignore[operator]
                or (self.high is not None and (value > self.high or (self.high_open and value == self.high)))  # type: ignore[operator]
            )
        except TypeError:
            return False


class PaneDemand(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The demand of a query that only needs aggregates of its samples, pane by pane.

    Parameters
    ----------
    fingerprint
        Identifies the samples that are aggregated, by period and bands. The tuples carry it.
    pane_us
        Its windows are made of whole panes of this width.
    measures
        The measures of each of its fields that it needs.
    """

    fingerprint: Fingerprint
    pane_us: PeriodMicroseconds
    measures: Annotated[tuple[Measure, ...], Meta(max_length=5)] = ()


class EventDemand(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The demand of a query that reads the events that a detector finds in samples, not the samples.

    Parameters
    ----------
    fingerprint
        Identifies the detector and the sample period; the tuples carry it.
    threshold
        The detector.
    """

    fingerprint: Fingerprint
    threshold: Threshold


class CompletenessDemand(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The demand of a query for counts of the samples that its sensors were due to take, and of the missing ones.

    It does not reach the sensors: the proxy counts.

    Parameters
    ----------
    fingerprint
        Identifies the samples that are counted; the tuples carry it. Equal demands have equal ones.
    pane_us
        Width of the panes that are counted.
    """

    fingerprint: Fingerprint
    pane_us: PeriodMicroseconds


class QueryDemand(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What one query demands of a stream's sensors.

    Parameters
    ----------
    query
        Its name.
    fields
        The fields that it reads, sorted. Fixed fields may be among them; empty if it only needs the samples' instants.
    period_us
        Its sample period; None takes each sensor's default.
    bands
        If a sampled field has bands, the query does not need samples with other values.
    sensors
        If a fixed field has bands, the query does not need sensors with other values.
    panes
        Set if aggregates of the samples in the bands are enough.
    events
        Set if it reads events; `panes` then counts them.
    tolerances
        How far the values that it gets may differ from those that were measured (``WITHIN``).
    output_us
        The time between its answers; 0 for answers without delay.
    slowest_us
        The longest sample period that is acceptable to save batteries; 0 for no other than its own.
    lifetime_us
        Its lifetime hint: how long batteries should last; 0 for none.
    completeness
        Set if it needs counts of missing samples.
    silence_us
        How long samples that equal the one before may stay away, as it only asks what held for how long; 0 if it needs
        each at once. Where samples that stayed away cannot be known, as packets are missing, it gets NULLs.
    """

    query: Name
    fields: Annotated[tuple[FieldName, ...], Meta(max_length=256)]
    period_us: PeriodMicroseconds | None = None
    bands: Annotated[tuple[Band, ...], Meta(max_length=MOST_BANDS)] = ()
    sensors: Annotated[tuple[PropertyBand, ...], Meta(max_length=MOST_BANDS)] = ()
    panes: PaneDemand | None = None
    events: EventDemand | None = None
    tolerances: Annotated[tuple[DeadBand, ...], Meta(max_length=256)] = ()
    output_us: DurationMicroseconds = 0
    slowest_us: Annotated[int, Meta(ge=0, le=LONGEST_PERIOD_US)] = 0
    lifetime_us: DurationMicroseconds = 0
    completeness: CompletenessDemand | None = None
    silence_us: Annotated[int, Meta(ge=0, le=LONGEST_PERIOD_US)] = 0


class StreamDemand(Frame, frozen=True):
    """All demands on one stream.

    Parameters
    ----------
    cluster
        Name of the cluster.
    stream
        The stream that is demanded; must be the stream of the topic.
    epoch
        The cluster's plan epoch; grows with every change.
    demands
        One per query; if no query demands the stream, there is none, and the motes sleep.
    declared
        The stream as the cluster stores it. Demands use its names of columns; motes with other columns are not asked
        (:func:`protocols.wire.streams.match_columns`). None if it is not declared.
    only
        The one proxy that may feed the stream; None for any.
    """

    cluster: Name
    stream: Name
    epoch: Counter
    demands: Annotated[tuple[QueryDemand, ...], Meta(max_length=MOST_DEMANDS)]
    declared: StreamSchema | None = None
    only: Name | None = None


decode_demand = FrameDecoder(StreamDemand, max_bytes=MAX_DEMAND_BYTES)


@dataclass(frozen=True, slots=True)
class RefusedDemand:
    """A query's demand that cannot be answered, and why; ``*`` is every query."""

    query: str
    reason: str


class _UnreadDemands(Frame, frozen=True):
    """A :class:`StreamDemand` whose demands are still bytes: so each can be read, or rejected, by itself."""

    cluster: Name
    stream: Name
    epoch: Counter
    demands: Annotated[tuple[msgspec.Raw, ...], Meta(max_length=MOST_DEMANDS)]
    declared: StreamSchema | None = None
    only: Name | None = None


class _NameOnly(msgspec.Struct, frozen=True, array_like=True):
    query: Name


def read_query_demand(unread: msgspec.Raw) -> QueryDemand | RefusedDemand:
    """Return a query's demand, or why it cannot be read."""
    try:
        return _decode_query_demand.decode(unread)
    except _NOT_READABLE as error:
        return RefusedDemand(_name_in(unread), f"the demand cannot be read: {error}")


_decode_query_demand = msgspec.msgpack.Decoder(QueryDemand)
_decode_name = msgspec.msgpack.Decoder(_NameOnly)
_encoder = msgspec.msgpack.Encoder()
_NOT_READABLE = (msgspec.MsgspecError, ProtocolError, UnicodeError, RecursionError)


def encode_query_demand(demand: QueryDemand) -> bytes:
    """Return a query's demand as bytes of a message, once the decoder of proxies has read them back.

    Raises
    ------
    FrameError
        If proxies could not read it.
    """
    try:
        payload = _encoder.encode(demand)
        if _decode_query_demand.decode(payload) != demand:
            raise FrameError("shape", "the demand is not what was written")
    except (*_NOT_READABLE, OverflowError) as error:
        raise FrameError("shape", f"no proxy could read the demand: {error}") from error
    return payload


def encode_demands(demand: StreamDemand, demands: Sequence[bytes]) -> bytes:
    """Return the message of a stream's demand, whose queries' demands have been encoded already."""
    known = (demand.version, demand.cluster, demand.stream, demand.epoch)
    raw = tuple(map(msgspec.Raw, demands))
    return _encoder.encode(_UnreadDemands(*known, raw, demand.declared, demand.only))


def _name_in(unread: msgspec.Raw) -> str:
    try:
        return _decode_name.decode(unread).query
    except _NOT_READABLE:
        return "*"


PIECES = 256
"""Pieces of a stream's demand, at most."""
DIGEST_BYTES = 8
MAX_HEAD_BYTES = 4 * MEBIBYTE
MAX_PIECES_BYTES = 15 * MEBIBYTE
"""Of all demands on a stream together; names may be such that they are all in one piece, and brokers take 16 MiB."""
MAX_PIECE_BYTES = MAX_PIECES_BYTES + MEBIBYTE

PieceNumber = Annotated[int, Meta(ge=0, lt=PIECES)]
Digest = Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
Digests = Annotated[dict[PieceNumber, Digest], Meta(max_length=PIECES)]
"""By number, without those that have no demands."""


class DemandHead(Frame, frozen=True):
    """The demands on one stream, as references to pieces.

    Parameters
    ----------
    cluster, stream, epoch, declared, only
        As in :class:`protocols.wire.demands.StreamDemand`.
    pieces
        The digests of the pieces that count.
    """

    cluster: Name
    stream: Name
    epoch: Counter
    pieces: Digests
    declared: StreamSchema | None = None
    only: Name | None = None


class PieceEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One demand of a piece, still as bytes: so each can be read, or rejected, by itself.

    Parameters
    ----------
    since
        The epoch with which its query began: demands are in the order of age.
    demand
        A :class:`protocols.wire.demands.QueryDemand`.
    """

    since: Counter
    demand: msgspec.Raw


class DemandPiece(Frame, frozen=True):
    """One piece of the demands on a stream.

    Parameters
    ----------
    stream, number
        As in its topic.
    demands
        Its demands.
    """

    stream: Name
    number: PieceNumber
    demands: Annotated[tuple[PieceEntry, ...], Meta(max_length=MOST_DEMANDS)]


class DemandRequest(Frame, frozen=True):
    """The request of a proxy that still lacks pieces: the cluster publishes them again.

    Parameters
    ----------
    proxy, stream
        As in its topic.
    pieces
        Which ones.
    """

    proxy: Name
    stream: Name
    pieces: Annotated[tuple[PieceNumber, ...], Meta(max_length=PIECES)]


class _Either(Frame, frozen=True):
    """What the topic of a stream's demand carries: a head, or a demand with all that belongs to it."""

    cluster: Name
    stream: Name
    epoch: Counter
    demands: Annotated[tuple[msgspec.Raw, ...], Meta(max_length=MOST_DEMANDS)] | Digests
    declared: StreamSchema | None = None
    only: Name | None = None


_decode_either = FrameDecoder(_Either, max_bytes=MAX_HEAD_BYTES, name="streamdemand")
decode_demand_piece = FrameDecoder(DemandPiece, max_bytes=MAX_PIECE_BYTES)
decode_demand_request = FrameDecoder(DemandRequest, max_bytes=64 * 1024)


@dataclass(frozen=True, slots=True)
class WholeDemand:
    """A demand that is one message; `demands` are still bytes."""

    head: DemandHead
    demands: tuple[msgspec.Raw, ...]


def read_head(payload: bytes) -> DemandHead | WholeDemand:
    """Return what a message on the topic of a stream's demand is.

    Raises
    ------
    FrameError, UnsupportedVersionError
        As :class:`protocols.wire.frames.FrameDecoder`.
    """
    found = _decode_either(payload)
    digests = found.demands if isinstance(found.demands, dict) else {}
    head = DemandHead(found.version, found.cluster, found.stream, found.epoch, digests, found.declared, found.only)
    return head if isinstance(found.demands, dict) else WholeDemand(head, found.demands)


def piece_of(query: str) -> int:
    """Return the number of the piece that has the demands of a query."""
    return hashlib.blake2b(query.encode(), digest_size=1).digest()[0]


def digest_of(piece: bytes) -> bytes:
    """Return the digest by which a head names a piece."""
    return hashlib.blake2b(piece, digest_size=DIGEST_BYTES).digest()


def encode_piece(version: int, stream: str, number: int, entries: Sequence[tuple[int, bytes]]) -> bytes:
    """Return a piece, given the epoch and the encoded demand of each of its entries."""
    demands = tuple(PieceEntry(since, msgspec.Raw(demand)) for since, demand in entries)
    return msgspec.msgpack.encode(DemandPiece(version, stream, number, demands))


def unmatched(head: Mapping[int, bytes], pieces: Mapping[int, bytes]) -> tuple[int, ...]:
    """Return the pieces that a head names and that are missing, or have another digest; both are by number."""
    return tuple(number for number, digest in head.items() if pieces.get(number) != digest)


MAX_REPORT_BYTES = MEBIBYTE
MOST_REFUSALS = 1_000
LONGEST_REASON = 300


class DemandRefusal(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A query whose demand is not answered, and why; ``*`` is every query."""

    query: Annotated[str, Meta(min_length=1, max_length=64)]
    reason: Annotated[str, Meta(max_length=LONGEST_REASON)]


class DemandReport(Frame, frozen=True):
    """The demands on a stream that a proxy leaves out; it answers all others.

    Parameters
    ----------
    proxy
        The sender.
    stream
        The stream that is demanded.
    epoch
        The epoch of the demand that it answers.
    refused
        The demands that it leaves out.
    more
        How many further ones it leaves out.
    """

    proxy: Name
    stream: Name
    epoch: Counter
    refused: Annotated[tuple[DemandRefusal, ...], Meta(max_length=MOST_REFUSALS)] = ()
    more: Counter = 0


decode_demand_report = FrameDecoder(DemandReport, max_bytes=MAX_REPORT_BYTES)


def demand_report(proxy: str, stream: str, epoch: int, refused: Iterable[RefusedDemand]) -> DemandReport:
    """Return the report of the demands that a proxy leaves out; of several reasons for one query the first."""
    reasons: dict[str, str] = {}
    for each in refused:
        reasons.setdefault(each.query, each.reason)
    listed = tuple(
        DemandRefusal(query, reason[:LONGEST_REASON]) for query, reason in list(reasons.items())[:MOST_REFUSALS]
    )
    return DemandReport(VERSION, proxy, stream, epoch, listed, len(reasons) - len(listed))
