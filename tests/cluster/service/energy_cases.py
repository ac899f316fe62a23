"""Motes, demands and SQL that the tests of energy share."""

from __future__ import annotations

import msgspec

from protocols.wire.catalog import MoteEntry, MoteState
from protocols.wire.demands import QueryDemand
from protocols.wire.programs import SLEEP, program_number
from protocols.wire.streams import Field, FieldType, StreamSchema

SECOND = 1_000_000
TRAFFIC = StreamSchema(
    "traffic",
    (
        Field("sensor", FieldType.TEXT, fixed=True),
        Field("segment", FieldType.INTEGER, fixed=True),
        Field("speed", FieldType.REAL),
        Field("flow", FieldType.REAL),
    ),
)
SCHEMAS = {"traffic": TRAFFIC}


def entry(mote="m1", *, health=None, heard_us=0, wanted=None, segment=1, **changes):
    found = MoteEntry(
        version=1,
        mote=mote,
        proxy="north",
        kind="loop",
        stream="traffic",
        properties={"sensor": mote, "segment": segment},
        state=MoteState.SAMPLING,
        period_us=0 if wanted is None else wanted.period_us,
        default_period_us=30 * SECOND,
        minimum_period_us=100_000,
        program=program_number(wanted or SLEEP),
        packets_received=0,
        packets_lost=0,
        packets_rejected=0,
        samples_received=0,
        samples_late=0,
        health=health,
        heard_us=heard_us,
        device="micaz",
        battery_joules=20_000.0,
        wanted=wanted,
    )
    return msgspec.structs.replace(found, **changes)


def demand(query, period_s=10, fields=("speed",), **changes):
    return msgspec.structs.replace(QueryDemand(query, fields, period_s * SECOND), **changes)
