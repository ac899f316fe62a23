"""Motes with clocks that drift, and a proxy that corrects them: in virtual time, with the machines of both sides."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from firmware_sim.mote.mote_events import MoteDescription
from firmware_sim.mote.sample_clock import Drift
from firmware_sim.radio.channel import Bernoulli, RadioFaults
from firmware_sim.virtual_time.fleet import Gateway, VirtualFleet, VirtualSettings
from protocols.acquisition.program_reports import ProgramStyle
from protocols.power.profiles import find_profile
from protocols.wire.demands import QueryDemand, StreamDemand
from protocols.wire.frames import VERSION
from protocols.wire.packets import AdjustClock, RunProgram, decode_packet
from protocols.wire.programs import ListenSchedule
from protocols.wire.streams import Field, FieldType, StreamSchema
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_instructions import ForMote
from proxy.fleet.fleet_members import FleetLimits
from proxy.motes.mote_events import SendControl, TuplesAccepted
from proxy.motes.mote_presence import TrackingLimits

S = 1_000_000
MINUTE = 60 * S
TOLERANCE = 20_000
SCHEMA = StreamSchema("hall", (Field("x", FieldType.REAL),))


class World:
    """Something to sense, for ever."""

    begins_us = ends_us = None

    def __init__(self, motes):
        self.motes = [MoteDescription(f"m{n}", "t", SCHEMA, {}, S, 1_000) for n in range(motes)]

    def sense(self, mote, instant_us, fields):
        return (instant_us / S,) * len(fields)


class ProxyGateway(Gateway):
    """A proxy's fleet at the other end of the radio."""

    def __init__(self, world, tolerance):
        super().__init__({})
        limits = FleetLimits(
            tracking=TrackingLimits(clock_tolerance_us=tolerance),
            style=ProgramStyle(listen=ListenSchedule(4 * S, 50_000)),
        )
        self.fleet = Fleet("p", limits, now_us=0)
        self.instants = {each.name: [] for each in world.motes}
        self.adjustments = []
        for each in world.motes:
            self.fleet.receive_announcement(each.announcement(1), radio_us=0, received_us=0)
        queries = (QueryDemand("q", ("x",), S),)
        self.fleet.receive_demand("hall", StreamDemand(VERSION, "c", "hall", 1, queries), radio_us=0)

    def receive(self, at_us, payload):
        packet = decode_packet(payload)
        sent = []
        for each in self.fleet.receive_packet(packet, radio_us=at_us, received_us=at_us):
            match each:
                case ForMote(_, SendControl(control)):
                    sent += control.instructions
                case ForMote(mote, TuplesAccepted()):
                    self.instants[mote] += [packet.clock_us - sample.age_us for sample in packet.samples]
        self.adjustments += [each for each in sent if isinstance(each, AdjustClock)]
        if not sent:
            return None
        assert sum(isinstance(each, RunProgram) for each in sent) <= 1
        return msgspec.structs.replace(control, instructions=tuple(sent))


def errors(fleet, at_us):
    return [abs(mote.clock.error_us(at_us)) for mote in fleet.motes]


def fleet_of(monkeypatch, tolerance, *, motes=6, faults=None, begins_wrong=0, every_us=0):
    rates = iter(np.linspace(-60, 60, motes))
    signs = iter([1, -1] * motes)
    draw = lambda _: Drift(float(next(rates)), every_us, begins_wrong * next(signs))  # noqa: E731
    monkeypatch.setattr(VirtualFleet, "_draw_drift", draw)
    world = World(motes)
    faults = faults or RadioFaults(loss=Bernoulli(share=0.1), jitter_us=4_000)
    fleet = VirtualFleet(world, {}, VirtualSettings(find_profile("telosb"), drifting=True, faults=faults))
    fleet.gateway = ProxyGateway(world, tolerance)
    return fleet


def test_clocks_that_drift_stay_within_the_tolerance(monkeypatch):
    fleet = fleet_of(monkeypatch, TOLERANCE)
    worst = []
    for minute in range(1, 90):
        fleet.run(minute * MINUTE)
        worst.append(max(errors(fleet, minute * MINUTE)))
    assert max(worst) <= TOLERANCE
    assert len(fleet.gateway.adjustments) >= 4 * 90 * 60 * 60e-6 / (2 * TOLERANCE / S)
    for mote, instants in fleet.gateway.instants.items():
        assert len(set(instants)) == len(instants)
        assert len(instants) >= 0.95 * 89 * 60, mote


def test_without_a_tolerance_no_clock_is_corrected_and_entries_show_offsets(monkeypatch):
    fleet = fleet_of(monkeypatch, None)
    fleet.run(60 * MINUTE)
    assert fleet.gateway.adjustments == []
    for number, mote in enumerate(fleet.motes):
        true_us = -mote.clock.error_us(60 * MINUTE)
        found_us = fleet.gateway.fleet.entry(f"m{number}").clock_offset_us
        assert found_us == pytest.approx(true_us, abs=15_000)
    assert max(errors(fleet, 60 * MINUTE)) > 200_000


@pytest.mark.parametrize("wrong_us", [300_000, 5 * S, 40 * 86_400 * S])
def test_clocks_that_are_wrong_altogether_are_set_right(monkeypatch, wrong_us):
    fleet = fleet_of(monkeypatch, TOLERANCE, begins_wrong=wrong_us, motes=4)
    fleet.run(4 * MINUTE)
    assert max(errors(fleet, 4 * MINUTE)) <= TOLERANCE
