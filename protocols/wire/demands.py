"""The demands of a cluster's queries on the sensors of a stream.

All demands on a stream are one retained message: a state, not an event, so that either side may disconnect or restart
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
        (:func:`protocols.wire.column_matching.match_columns`). None if it is not declared.
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
