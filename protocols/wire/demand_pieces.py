"""Many demands on a stream, as pieces of stable content: when a query comes or goes, one piece changes, and the head.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from protocols.wire.demands import MOST_DEMANDS
from protocols.wire.frames import MEBIBYTE, Counter, Frame, FrameDecoder, Name
from protocols.wire.streams import StreamSchema

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
