"""Motes that replay a recording as it is: they are sent a program to begin with, and publish by rules of their own."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from protocols.errors import FrameError
from protocols.wire.batches import NEXT_COLUMN, NO_NEIGHBOUR_US, PREVIOUS_COLUMN
from protocols.wire.catalog import DeviceEntry, MoteState
from protocols.wire.demands import CompletenessDemand, PropertyBand, QueryDemand, StreamDemand
from protocols.wire.frames import VERSION, encode
from protocols.wire.packets import AS_RECORDED, RunProgram, decode_announcement
from protocols.wire.programs import SLEEP, program_number, publishing_program
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_instructions import ForMote, RememberProgram
from proxy.fleet.fleet_members import FleetLimits
from proxy.motes.mote_clock import ClockBounds
from proxy.motes.mote_entries import PUBLISHES
from proxy.motes.mote_events import SendControl
from proxy.motes.mote_presence import TrackingLimits

S = 1_000_000
LIMITS = FleetLimits(tracking=TrackingLimits(silence_after_us=100 * S, clock=ClockBounds(S, S)))


class Recorded:
    """A fleet with one mote that replays a recording, of a year long ago."""

    def __init__(self, frames, *queries, announced_as=AS_RECORDED):
        self.frames = frames
        self.fleet = Fleet("p", LIMITS, now_us=0)
        self.announced = replace(frames.announcement(), replays=announced_as)
        self.sequence = 0
        self.running = SLEEP
        self.found = self.fleet.receive_announcement(self.announced, radio_us=0, received_us=0)
        if queries:
            self.demand(*queries)

    def demand(self, *queries, epoch=1):
        demanded = StreamDemand(VERSION, "c", "traffic", epoch, queries)
        self.found += self.fleet.receive_demand("traffic", demanded, radio_us=0)

    def listen(self, clock=0):
        """Let the mote listen, and run the program that it is sent; return whether it was sent one."""
        sent = [each.program for each in self.send(clock=clock, listen=S) if isinstance(each, RunProgram)]
        if sent:
            self.running = sent[-1]
        return sent

    def send(self, *samples, clock, listen=0, promise=None):
        packet = self.frames.packet(
            self.sequence, *samples, clock=clock, low_watermark=promise, listen=listen,
            program=program_number(self.running),
        )  # fmt: skip
        self.sequence += 1
        found = self.fleet.receive_packet(packet, radio_us=S, received_us=S)
        controls = [each.instruction for each in found if isinstance(each, ForMote)]
        return [one for each in controls if isinstance(each, SendControl) for one in each.control.instructions]

    def rows(self):
        return [row for batch in self.fleet.cut(2 * S) for row in _rows(batch)]


def _rows(batch):
    made = batch.as_batch("p", "e")
    columns = {each.name: each.values(made.rows) for each in made.columns}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


PLAIN = QueryDemand("q", ("speed",))
SAMPLED = QueryDemand("slow", ("speed",), 60 * S)
SEEN = QueryDemand("seen", ("speed",), completeness=CompletenessDemand("f", 10 * S))


def test_it_is_sent_the_program_of_what_publishes_by_own_rules_and_sleeps_without_queries(frames):
    subject = Recorded(frames)
    assert subject.listen() == []
    subject.demand(PLAIN)
    (program,) = subject.listen()
    own = publishing_program(frames.TRAFFIC)
    assert (program.fields, program.period_us, program.report, program.bands) == (own.fields, own.period_us, None, ())
    assert [each.program for each in subject.found if isinstance(each, RememberProgram)] == [SLEEP, program]
    assert subject.listen() == []
    assert subject.fleet.entry("m1").state is MoteState.SAMPLING
    subject.demand(SAMPLED, epoch=2)
    assert subject.listen() == [], "a period means nothing to it"
    subject.demand(epoch=3)
    assert subject.listen() == [SLEEP]


def test_it_sleeps_while_queries_read_other_motes_only(frames):
    subject = Recorded(frames, QueryDemand("q", ("speed",), sensors=(PropertyBand("segment", 8, 8),)))
    assert subject.listen() == []


def test_all_its_samples_are_stored_with_their_stamps_and_neighbours(frames):
    subject = Recorded(frames, PLAIN, SAMPLED)
    subject.listen()
    at = (250_000, 7 * S, 7 * S, 17_000_001)
    subject.send(*((each, float(n), n, "x") for n, each in enumerate(at)), clock=at[-1], promise=10_800 * S)
    rows = subject.rows()
    assert [(row["fjord_start_us"], row["speed"], row["flow"]) for row in rows] == [
        (each, float(n), n) for n, each in enumerate(at)
    ]
    assert all(row["fjord_default_rate"] for row in rows), "a query without SAMPLE reads all"
    assert [row[PREVIOUS_COLUMN] for row in rows] == [NO_NEIGHBOUR_US, 250_000, 7 * S, 7 * S]
    assert all(row[NEXT_COLUMN] is None for row in rows)


def test_the_stream_has_come_as_far_as_it_promises(frames):
    subject = Recorded(frames, PLAIN)
    subject.listen()
    subject.send((7 * S, 1.0, 1, "x"), clock=7 * S, promise=10_800 * S)
    (batch,) = subject.fleet.cut(2 * S)
    assert batch.watermark_us == 10_800 * S


def test_what_is_missing_of_it_is_not_counted(frames):
    subject = Recorded(frames, SEEN)
    subject.listen()
    subject.send((7 * S, 1.0, 1, "x"), clock=7 * S, promise=100 * S)
    assert [row["speed"] for row in subject.rows()] == [1.0], "no row with counts"
    assert not subject.fleet.motes["m1"].ledger
    paced = Recorded(frames, SEEN, announced_as=True)
    paced.listen()
    assert paced.fleet.motes["m1"].ledger


def test_its_entry_names_no_period_and_no_driver(frames):
    subject = Recorded(frames, PLAIN)
    subject.listen()
    subject.send(clock=S)
    entry = subject.fleet.entry("m1")
    assert isinstance(entry, DeviceEntry)
    assert (entry.publishes, entry.driver, entry.period_us, entry.doing) == (True, "", 0, PUBLISHES)


def test_after_a_restart_of_the_proxy_it_goes_on(frames):
    before = Recorded(frames, PLAIN)
    (program,) = before.listen()
    after = Recorded(frames)
    after.fleet = Fleet("p", LIMITS, now_us=0, programs=[program])
    after.running = program
    after.fleet.restore([after.announced])
    after.demand(PLAIN)
    after.send((7 * S, 1.0, 1, "x"), clock=7 * S, promise=8 * S)
    assert [row["fjord_start_us"] for row in after.rows()] == [7 * S]


def test_it_asks_for_an_announcement_that_is_in_doubt(frames):
    """As of every mote, two announcements of one boot that differ are not both its own."""
    subject = Recorded(frames, PLAIN)
    other = replace(subject.announced, kind="other")
    subject.fleet.receive_announcement(other, radio_us=0, received_us=0)
    sent = subject.send(clock=0, listen=S)
    assert [type(each).__name__ for each in sent] == ["SendAnnouncement", "RunProgram"]


@pytest.mark.parametrize("replays", [False, True, AS_RECORDED])
def test_announcements_say_how_they_replay(frames, replays):
    announced = replace(frames.announcement(), replays=replays)
    found = decode_announcement(encode(announced))
    assert (found, found.as_recorded) == (announced, replays == AS_RECORDED)


def test_an_announcement_of_another_way_to_replay_is_refused(frames):
    announced = encode(replace(frames.announcement(), replays="backwards"))
    with pytest.raises(FrameError):
        decode_announcement(announced)


def test_a_sample_without_all_of_its_fields_is_refused(frames):
    subject = Recorded(frames, PLAIN)
    subject.listen()
    subject.send((7 * S, 1.0), clock=7 * S, promise=8 * S)
    assert subject.rows() == []
