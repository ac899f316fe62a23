"""What the queries of a cluster, taken together, ask of a stream's sensors.

The whole demand on a stream is one retained message: a state, not an event, so that any side may be away or restart
and still converge on it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from protocols.frames import MEBIBYTE, Counter, Frame, FrameDecoder, Name, PositiveMicroseconds
from protocols.streams import FieldName

MAX_DEMAND_BYTES = 4 * MEBIBYTE


class QueryDemand(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What one query needs.

    Parameters
    ----------
    query
        Its name.
    fields
        The fields it reads, sorted. Fixed fields may be among them; empty if it reads none but needs the samples'
        instants.
    period_us
        Its sample period; None takes each sensor's default.
    """

    query: Name
    fields: Annotated[tuple[FieldName, ...], Meta(max_length=256)]
    period_us: PositiveMicroseconds | None = None


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
    """

    cluster: Name
    stream: Name
    epoch: Counter
    demands: Annotated[tuple[QueryDemand, ...], Meta(max_length=65536)]


decode_demand = FrameDecoder(StreamDemand, max_bytes=MAX_DEMAND_BYTES)
