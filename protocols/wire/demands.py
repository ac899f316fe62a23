"""What the queries of a cluster, taken together, ask of a stream's sensors.

The whole demand on a stream is one retained message: a state, not an event, so that any side may be away or restart
and still converge on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from protocols.errors import FrameError, ProtocolError
from protocols.wire.frames import (
    LONGEST_PERIOD_US,
    MEBIBYTE,
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
"""Of a demand; and as many conditions on sensors."""
LONGEST_TEXT = 1_024
"""Characters of a bound of a fixed field."""

FormName = Annotated[str, Meta(min_length=1, max_length=32, pattern=r"^[a-z0-9]+\Z")]


class PropertyBand(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Values of a fixed field: a query's sensors are those that have one of them. None is no bound, NULL in no band."""

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
    """A query only needs aggregates of its samples, pane by pane.

    Parameters
    ----------
    form
        Names what is aggregated: samples of this period, in these bands. The tuples carry it.
    pane_us
        Its windows are made of whole panes of this width.
    measures
        What it needs to know of each of its fields.
    """

    form: FormName
    pane_us: PeriodMicroseconds
    measures: Annotated[tuple[Measure, ...], Meta(max_length=5)] = ()


class EventDemand(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A query is about events that a detector sees in the samples, not about the samples.

    Parameters
    ----------
    form
        Names the detector and the sample period; the tuples carry it.
    threshold
        The detector.
    """

    form: FormName
    threshold: Threshold


class CompletenessDemand(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A query wants to know how many of the samples that its sensors were due to take it got to see.

    Nothing of it reaches the sensors: the proxy counts.

    Parameters
    ----------
    form
        Names what is counted; the tuples carry it. Equal demands of several queries have one form.
    pane_us
        It counts pane by pane, in panes of this width.
    """

    form: FormName
    pane_us: PeriodMicroseconds


class QueryDemand(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What one query needs of a stream's sensors.

    Parameters
    ----------
    query
        Its name.
    fields
        The fields it reads, sorted. Fixed fields may be among them; empty if it reads none but needs the samples'
        instants.
    period_us
        Its sample period; None takes each sensor's default.
    bands
        Where a sampled field has bands, the query has no use for samples whose value lies in none of them.
    sensors
        Where a fixed field has bands, the query has no use for sensors whose value lies in none of them.
    panes
        If aggregates of the samples in the bands are enough.
    events
        If it is about events; `panes` then counts them.
    tolerances
        By how much the values it sees may differ from those that were measured (``WITHIN``).
    output_us
        It emits answers this far apart; 0 as soon as it can.
    slowest_us
        The longest sample period its author accepts for a longer life of the sensors; 0 for none but its own.
    lifetime_us
        How long its author wants batteries to last; 0 for no such wish.
    completeness
        If it wants to know how many samples are missing.
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


class StreamDemand(Frame, frozen=True):
    """All demands on one stream.

    Parameters
    ----------
    cluster
        Who asks.
    stream
        Of which stream; must be the stream of the topic.
    epoch
        The cluster's plan epoch; grows with every change.
    demands
        One per query; empty when nobody asks, and then the motes sleep.
    declared
        The stream as the cluster stores it. Demands name columns as it does; a proxy whose motes have other columns
        (:func:`protocols.wire.column_matching.match_columns`) asks none of them. None if the cluster does not say.
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
    """A :class:`StreamDemand` whose demands are still bytes: so each can be read, or refused, for itself."""

    cluster: Name
    stream: Name
    epoch: Counter
    demands: Annotated[tuple[msgspec.Raw, ...], Meta(max_length=MOST_DEMANDS)]
    declared: StreamSchema | None = None
    only: Name | None = None


class _NameOnly(msgspec.Struct, frozen=True, array_like=True):
    query: Name


_decode_unread = FrameDecoder(_UnreadDemands, max_bytes=MAX_DEMAND_BYTES, name="streamdemand")
_decode_query_demand = msgspec.msgpack.Decoder(QueryDemand)
_decode_name = msgspec.msgpack.Decoder(_NameOnly)
_encoder = msgspec.msgpack.Encoder()
_NOT_READABLE = (msgspec.MsgspecError, ProtocolError, UnicodeError, RecursionError)


def read_demands(payload: bytes) -> tuple[StreamDemand, tuple[RefusedDemand, ...]]:
    """Return the demands on a stream that can be read, and those that cannot: each costs its own query only.

    Raises
    ------
    FrameError, UnsupportedVersionError
        As :class:`protocols.wire.frames.FrameDecoder` does, for what is not about one query.
    """
    unread = _decode_unread(payload)
    demands: list[QueryDemand] = []
    refused: list[RefusedDemand] = []
    for each in unread.demands:
        try:
            demands.append(_decode_query_demand.decode(each))
        except _NOT_READABLE as error:
            refused.append(RefusedDemand(_name_in(each), f"the demand cannot be read: {error}"))
    known = (unread.version, unread.cluster, unread.stream, unread.epoch)
    return StreamDemand(*known, tuple(demands), unread.declared, unread.only), tuple(refused)


def encode_query_demand(demand: QueryDemand) -> bytes:
    """Return a query's demand as it stands in a message, once it has been read back by what proxies read it with.

    Raises
    ------
    FrameError
        If they could not.
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
