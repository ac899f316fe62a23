"""Demands name columns as the cluster stores them: motes get them by their own names, or sleep."""

from __future__ import annotations

import msgpack
import pytest
from msgspec.structs import replace

from protocols.acquisition.needs import RefusedDemand
from protocols.wire.demands import EventDemand, PropertyBand, QueryDemand, StreamDemand, decode_demand
from protocols.wire.programs import Band, DeadBand, Threshold
from protocols.wire.streams import Field, FieldType, StreamSchema
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_instructions import ForMote, RejectDemand
from proxy.fleet.fleet_members import FleetLimits
from proxy.fleet.merging_task import as_offered
from proxy.motes.mote_events import SendControl

SEGMENT, SPEED = Field("segment", FieldType.INTEGER, fixed=True), Field("speed", FieldType.REAL, "mph")
FLOW, NOTE = Field("flow", FieldType.INTEGER), Field("note", FieldType.TEXT)
OFFERED = StreamSchema("traffic", (SEGMENT, SPEED, FLOW, NOTE))


SPEED_DEMANDED = (QueryDemand("a", ("Speed",)),)


def declared(*fields, only=None, demands=SPEED_DEMANDED):
    return StreamDemand(1, "c", "traffic", 1, demands, StreamSchema("traffic", fields), only)


def renamed(field, name):
    return replace(field, name=name)


def test_names_in_a_demand_become_those_of_the_motes():
    query = QueryDemand(
        "a",
        ("FLOW", "Speed"),
        bands=(Band("Speed", 1.0, 2.0),),
        sensors=(PropertyBand("SEGMENT", 3, 3),),
        tolerances=(DeadBand("Speed", 0.5),),
        events=EventDemand("f", Threshold("Speed", 2.0, 1.0)),
    )
    demand = declared(renamed(FLOW, "FLOW"), renamed(SPEED, "Speed"), renamed(SEGMENT, "SEGMENT"), demands=(query,))
    found = as_offered(demand, OFFERED, "p")
    assert found.demands == (
        QueryDemand(
            "a",
            ("flow", "speed"),
            bands=(Band("speed", 1.0, 2.0),),
            sensors=(PropertyBand("segment", 3, 3),),
            tolerances=(DeadBand("speed", 0.5),),
            events=EventDemand("f", Threshold("speed", 2.0, 1.0)),
        ),
    )
    assert found.schema.field_names == ("segment", "speed", "flow")


def test_undeclared_columns_are_sampled_only_if_no_other_is_left():
    assert as_offered(declared(FLOW), OFFERED, "p").schema.field_names == ("flow",)
    assert as_offered(declared(SEGMENT), OFFERED, "p").schema == OFFERED
    assert as_offered(replace(declared(FLOW), declared=None), OFFERED, "p").schema == OFFERED


@pytest.mark.parametrize(
    ("demand", "reason"),
    [
        (
            declared(renamed(SPEED, "Speed"), Field("flow", FieldType.REAL)),
            "the cluster stores other columns: flow is declared as REAL and offered as INTEGER",
        ),
        (declared(SPEED, only="harbour"), "stream 'traffic' was created to be fed by proxy 'harbour'"),
    ],
)
def test_a_demand_that_motes_cannot_answer_is_rejected_once_for_all_queries(demand, reason):
    assert as_offered(demand, OFFERED, "p") == RefusedDemand("*", reason)


# What becomes of it in a proxy.


def fleet_with(frames, demand):
    proxy = Fleet("p", FleetLimits(), now_us=0)
    proxy.receive_announcement(frames.announcement("m1"), radio_us=0, received_us=0)
    return proxy, proxy.receive_demand("traffic", demand, radio_us=0)


def program_of(proxy, mote="m1"):
    return proxy.motes[mote].desired


def rejected(instructions):
    return [each.rejected.reason for each in instructions if isinstance(each, RejectDemand)]


def controls(instructions):
    return [each for each in instructions if isinstance(each, ForMote) and isinstance(each.instruction, SendControl)]


WRONG = declared(renamed(SPEED, "Speed"), Field("flow", FieldType.REAL))
RIGHT = declared(FLOW, renamed(SPEED, "Speed"))


def test_motes_with_other_columns_sleep(frames):
    proxy, instructions = fleet_with(frames, WRONG)
    assert rejected(instructions) == [
        "the cluster stores other columns: flow is declared as REAL and offered as INTEGER"
    ]
    assert program_of(proxy).sleeping
    instructions = proxy.receive_packet(frames.packet(0, listen=50_000), radio_us=10, received_us=10)
    assert controls(instructions) == []


def test_motes_wake_and_sleep_as_declared_columns_change(frames):
    proxy, _ = fleet_with(frames, WRONG)
    assert rejected(proxy.receive_demand("traffic", RIGHT, radio_us=1)) == []
    assert program_of(proxy).fields == ("speed",)
    assert len(rejected(proxy.receive_demand("traffic", WRONG, radio_us=2))) == 1
    assert program_of(proxy).sleeping


def test_a_changed_offer_is_compared_at_once(frames):
    proxy, _ = fleet_with(frames, RIGHT)
    assert program_of(proxy).fields == ("speed",)
    other = StreamSchema("traffic", (SEGMENT, Field("speed", FieldType.TEXT), FLOW, NOTE))
    instructions = proxy.receive_announcement(
        frames.announcement("m1", boot=2, schema=other), radio_us=5, received_us=5
    )
    assert len(rejected(instructions)) == 1
    assert program_of(proxy).sleeping
    instructions = proxy.receive_announcement(frames.announcement("m1", boot=3), radio_us=9, received_us=9)
    assert rejected(instructions) == []
    assert program_of(proxy).fields == ("speed",)


def test_a_restarted_proxy_lets_them_sleep_too(frames):
    proxy = Fleet("p", FleetLimits(), now_us=0)
    proxy.receive_demand("traffic", WRONG, radio_us=0)
    assert len(rejected(proxy.restore([frames.announcement("m1")]))) == 1
    assert program_of(proxy).sleeping


def test_no_demand_is_rejected_while_no_query_demands(frames):
    _, instructions = fleet_with(frames, replace(WRONG, demands=()))
    assert rejected(instructions) == []


def test_a_demand_in_the_format_before_declarations_is_answered(frames):
    short = msgpack.packb([1, "c", "traffic", 1, [["a", ["speed"]]]])
    assert decode_demand(short) == StreamDemand(1, "c", "traffic", 1, (QueryDemand("a", ("speed",)),))
    proxy, instructions = fleet_with(frames, decode_demand(short))
    assert rejected(instructions) == []
    assert program_of(proxy).fields == ("speed",)
