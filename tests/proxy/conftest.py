"""What tests of the proxy share: frames of a scripted mote."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from protocols.wire.demands import QueryDemand, StreamDemand
from protocols.wire.frames import VERSION
from protocols.wire.packets import Announcement, Packet, Sample
from protocols.wire.streams import Field, FieldType, StreamSchema

SECOND = 1_000_000
TRAFFIC = StreamSchema(
    "traffic",
    (
        Field("segment", FieldType.INTEGER, "", fixed=True),
        Field("speed", FieldType.REAL, "mph"),
        Field("flow", FieldType.INTEGER),
        Field("note", FieldType.TEXT),
    ),
)


def announcement(mote="m1", boot=1, schema=TRAFFIC, properties=None, default=10 * SECOND, minimum=SECOND):
    given = {"segment": 7} if properties is None else properties
    return Announcement(VERSION, mote, boot, "loop", schema, given, default, minimum)


def packet(sequence, *samples, mote="m1", boot=1, clock=0, low_watermark=None, listen=0, program=0):
    """Samples are (instant, values ...); the clock and the low watermark are in microseconds."""
    records = tuple(Sample(clock - instant, tuple(values)) for instant, *values in samples)
    return Packet(
        VERSION,
        mote,
        boot,
        sequence,
        clock,
        clock if low_watermark is None else low_watermark,
        listen,
        program,
        records,
    )


def demand(*queries, stream="traffic", epoch=1):
    """Queries are (name, fields, period)."""
    return StreamDemand(VERSION, "c1", stream, epoch, tuple(QueryDemand(n, tuple(f), p) for n, f, p in queries))


@pytest.fixture
def frames():
    return SimpleNamespace(announcement=announcement, packet=packet, demand=demand, TRAFFIC=TRAFFIC, SECOND=SECOND)
