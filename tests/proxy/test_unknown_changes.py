"""Samples that a mote left out as nothing had changed: filled in, or NULL where what changed was lost."""

from __future__ import annotations

import pytest

from protocols.acquisition.merging import MergedProgram
from protocols.acquisition.needs import DemandClass, Need, NeedKind
from protocols.wire.demands import QueryDemand, StreamDemand
from protocols.wire.frames import VERSION
from protocols.wire.programs import DeadBand, SamplingProgram, SendOnChange, program_number
from proxy.fleet.batching import BatchLimits
from proxy.fleet.stream_state import StreamProgress, StreamState
from proxy.motes.mote_events import AnnouncementReceived, DemandChanged, PacketReceived, TimePassed, TuplesAccepted
from proxy.motes.mote_presence import TrackingLimits
from proxy.motes.mote_tracking import MoteTracking
from proxy.records.program_routes import ProgramTable
from proxy.records.waiting_tuples import MotePosition, PacketTuples

S = 1_000_000
CHANGES = SamplingProgram(("speed",), S, report=SendOnChange((DeadBand("speed", 0.0),), 10 * S))
OTHER = SamplingProgram(("speed",), 2 * S, report=SendOnChange((DeadBand("speed", 0.0),), 10 * S))


def needing(silence_us=10 * S, period_us=S):
    demand = QueryDemand("q", ("speed",), period_us, silence_us=silence_us)
    need = Need(NeedKind.SAMPLES, ("speed",), period_us, patience_us=period_us, silence_us=silence_us)
    return MergedProgram(CHANGES, "", needs=((need, (DemandClass(demand, ("q",)),)),))


def mote_with(frames, merged=None, position=None):
    programs = ProgramTable()
    programs.note(CHANGES)
    programs.note(OTHER)
    limits = TrackingLimits(silence_after_us=30 * S)
    mote = MoteTracking("m1", proxy="p", programs=programs, limits=limits, started_us=0, position=position)
    if position is None:
        mote.handle(AnnouncementReceived(frames.announcement(), 0, 0))
    else:
        mote.restore(frames.announcement())
    merged = merged or needing()
    mote.handle(DemandChanged(CHANGES, 0, merged))
    return mote


class Session:
    """A mote whose packets come or not."""

    def __init__(self, frames, **options):
        self.frames, self.sequence, self.watermark_us = frames, 0, None
        self.mote = mote_with(frames, **options)

    def packet(self, *samples, promise, lost=False, program=CHANGES):
        """Samples are (second, value); the promise is in seconds, and a packet is sent when it is made."""
        self.sequence += 1
        given = [(second * S, value) for second, value in samples]
        if lost:
            return []
        packet = self.frames.packet(
            self.sequence - 1, *given, clock=promise * S, low_watermark=promise * S, program=program_number(program)
        )
        return tuples_of(self.mote.handle(PacketReceived(packet, promise * S, promise * S, self.watermark_us)))


def tuples_of(instructions):
    found = [each.tuples for each in instructions if isinstance(each, TuplesAccepted)]
    return [(each.start_us // S, each.values[1]) for packet in found for each in packet]


def test_what_was_left_out_is_filled_in_up_to_the_low_watermark(frames):
    session = Session(frames)
    assert session.packet((0, 1.0), promise=1) == [(0, 1.0)]
    assert session.packet(promise=4) == [(1, 1.0), (2, 1.0), (3, 1.0)]
    assert session.packet((5, 2.0), promise=6) == [(4, 1.0), (5, 2.0)]


def test_after_a_loss_nothing_is_known_from_the_low_watermark_until_a_sample_comes(frames):
    session = Session(frames)
    session.packet((0, 1.0), promise=3)
    session.packet((4, 2.0), promise=5, lost=True)
    assert session.packet(promise=6) == [(3, None), (4, None), (5, None)]
    session.packet(promise=7, lost=True)
    assert session.packet((8, 3.0), promise=10) == [(6, None), (7, None), (8, 3.0), (9, 3.0)]


def test_a_query_of_all_samples_sees_a_gap_instead(frames):
    session = Session(frames, merged=needing(silence_us=0))
    session.packet((0, 1.0), promise=3)
    session.packet((4, 2.0), promise=5, lost=True)
    assert session.packet(promise=6) == []
    assert session.packet((8, 3.0), promise=9) == [(8, 3.0)]


def test_only_the_first_instants_that_are_not_known_are_reported_one_by_one(frames):
    session = Session(frames)
    session.packet((0, 1.0), promise=3)
    session.packet(promise=4, lost=True)
    assert session.packet(promise=40) == [(second, None) for second in range(3, 13)]
    assert session.packet((41, 1.0), promise=42) == [(41, 1.0)]


def test_what_is_not_known_is_reported_at_the_periods_of_queries(frames):
    session = Session(frames, merged=needing(period_us=3 * S))
    session.packet((0, 1.0), promise=4)
    session.packet(promise=5, lost=True)
    assert session.packet(promise=11) == [(6, None), (9, None)]


def test_a_loss_as_the_program_changes_is_not_forgotten(frames):
    session = Session(frames)
    session.packet((0, 1.0), promise=3)
    session.packet((3, 2.0), promise=4, lost=True)
    assert session.packet((8, 1.0), promise=9, program=OTHER) == [(4, None), (6, None), (8, 1.0)]


def test_changes_in_a_packet_that_cannot_be_read_are_lost(frames):
    session = Session(frames)
    session.packet((0, 1.0), promise=3)
    assert session.packet((3, 2.0), (4, "fast"), promise=6) == [(3, None), (4, None), (5, None)]
    assert session.packet(promise=8) == [(6, None), (7, None)]


def test_what_is_late_for_the_stream_is_not_reported(frames):
    session = Session(frames)
    session.packet((0, 1.0), promise=3)
    session.packet(promise=4, lost=True)
    session.watermark_us = 6 * S
    assert session.packet(promise=8) == [(6, None), (7, None)]
    assert session.mote.counters.samples_late == 0


def test_what_held_ends_where_a_mote_falls_silent(frames):
    session = Session(frames)
    session.packet((0, 1.0), promise=3)
    assert tuples_of(session.mote.handle(TimePassed(40 * S))) == [(3, None)]
    assert tuples_of(session.mote.handle(TimePassed(80 * S))) == []


def test_a_proxy_that_was_away_does_not_know_what_changed_if_packets_are_missing(frames):
    session = Session(frames, position=MotePosition("m1", 1, 3, 20 * S))
    session.sequence = 6
    assert session.packet(promise=22) == [(20, None), (21, None)]
    known = Session(frames, position=MotePosition("m1", 1, 3, 20 * S))
    known.sequence = 4
    assert known.packet(promise=22) == []


@pytest.mark.parametrize("seeks", [True, False])
def test_values_are_compared_across_packets_where_changes_matter(frames, seeks):
    """Else it would not be seen how seldom the only sample of a packet changes; texts change, too."""
    stream = StreamState(StreamProgress("traffic"), BatchLimits(rows=10), "p")
    demand = QueryDemand("q", ("speed", "note"), S, silence_us=10 * S if seeks else 0)
    stream.set_schema(frames.TRAFFIC)
    stream.set_demand(StreamDemand(VERSION, "c", "traffic", 1, (demand,)))
    for number in range(64):
        row = (7, float(number // 32), 1, "a" if number < 32 else "b")
        packet = PacketTuples("m1", 1, number, number * S, S, (number * S,), (row,))
        if stream.observes(packet):
            stream.observe(packet)
    changes = {name: list(seen.changes) for name, seen in stream.observed.fields.items()}
    assert changes["speed"] == ([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0] if seeks else [])
    assert changes.get("note") == ([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0] if seeks else None)


def test_only_the_next_packet_is_compared(frames):
    stream = StreamState(StreamProgress("traffic"), BatchLimits(rows=10), "p")
    stream.set_schema(frames.TRAFFIC)
    demand = QueryDemand("q", ("speed",), S, silence_us=10 * S)
    stream.set_demand(StreamDemand(VERSION, "c", "traffic", 1, (demand,)))
    for number in (7, 16):
        packet = PacketTuples("m1", 1, number, number * S, S, (number * S,), ((7, float(number), 1, "a"),))
        if stream.observes(packet):
            stream.observe(packet)
    assert list(stream.observed.fields["speed"].changes) == []
