from __future__ import annotations

import pytest
from msgspec.structs import asdict, replace

from protocols.wire.packets import NumberedAnnouncement, RunProgram, SendAnnouncement
from protocols.wire.programs import SamplingProgram, program_number
from protocols.wire.streams import Field, FieldType, StreamSchema
from proxy.fleet.batching import BatchLimits
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_instructions import (
    ForMote,
    OfferStream,
    RejectAnnouncement,
    RejectDemand,
    RememberAnnouncement,
    TuplesDropped,
)
from proxy.fleet.fleet_members import FleetLimits, FleetMembers
from proxy.fleet.stream_state import StreamProgress
from proxy.motes.mote_clock import ClockBounds
from proxy.motes.mote_controls import MOST_WAIT_US
from proxy.motes.mote_events import Rejected, SendControl
from proxy.motes.mote_presence import TrackingLimits
from proxy.records.waiting_tuples import MotePosition
from tests.proxy.conftest import TRAFFIC

S = 1_000_000
SPEED = SamplingProgram(("speed",), 10 * S)
NUMBER = program_number(SPEED)


def fleet(**options):
    limits = options.pop("limits", FleetLimits())
    return Fleet("p", limits, now_us=0, **options)


def kinds(instructions):
    return [type(each.instruction if isinstance(each, ForMote) else each).__name__ for each in instructions]


def controls(instructions):
    return [
        each.instruction.control.instructions[0]
        for each in instructions
        if isinstance(each, ForMote) and isinstance(each.instruction, SendControl)
    ]


def batches(found):
    return [
        (each.sequence, each.watermark_us, each.sampling, [(t.start_us, t.position.mote) for t in each.tuples])
        for each in found
    ]


def receive(proxy, packet, radio=0):
    return proxy.receive_packet(packet, radio_us=radio, received_us=radio)


def announce(proxy, announcement):
    return proxy.receive_announcement(announcement, radio_us=0, received_us=0)


def sampling_fleet(frames, *motes, **options):
    proxy = fleet(**options)
    proxy.receive_demand("traffic", frames.demand(("a", ["speed"], None)), radio_us=0)
    for mote in motes:
        announce(proxy, frames.announcement(mote))
    return proxy


def test_batch_is_complete_once_every_mote_has_come_as_far_as_its_latest_tuple(frames):
    proxy = sampling_fleet(frames, "m1", "m2", "m3")
    assert not proxy.is_complete(), "nothing waits"
    for mote in ("m1", "m2", "m3"):
        assert not proxy.is_complete(), "the others may still send samples of this instant"
        receive(proxy, frames.packet(0, (0, 1.0), mote=mote, low_watermark=10 * S, program=NUMBER))
    assert proxy.is_complete()
    receive(proxy, frames.packet(1, (10 * S, 1.0), mote="m2", low_watermark=20 * S, program=NUMBER))
    assert not proxy.is_complete(), "now the others are expected to send samples of a later one"
    proxy.cut(0)
    assert not proxy.is_complete(), "nothing waits"


def test_announcement_is_kept_and_its_stream_offered_once(frames):
    proxy = fleet()
    first = announce(proxy, frames.announcement("m1"))
    assert OfferStream(frames.TRAFFIC) in first
    assert RememberAnnouncement(frames.announcement("m1")) in first
    assert not any(isinstance(each, OfferStream) for each in announce(proxy, frames.announcement("m2")))
    assert not any(isinstance(each, RememberAnnouncement) for each in announce(proxy, frames.announcement("m2")))


@pytest.mark.parametrize(
    ("announcement", "reason"),
    [
        ({"schema": StreamSchema("traffic", (Field("speed", FieldType.TEXT),)), "properties": {}}, "schema"),
        ({"properties": {"segment": "north"}}, "properties"),
        ({"properties": {"speed": 1.0}}, "properties"),
        ({"properties": {"colour": 1}}, "properties"),
    ],
)
def test_announcement_that_does_not_fit_is_rejected_without_effect_on_others(frames, announcement, reason):
    proxy = sampling_fleet(frames, "m1")
    (rejected,) = announce(proxy, frames.announcement("m2", **announcement))
    assert isinstance(rejected, RejectAnnouncement)
    assert (rejected.mote, rejected.reason) == ("m2", reason)
    assert controls(receive(proxy, frames.packet(0, mote="m2", listen=9))) == []
    assert controls(receive(proxy, frames.packet(0, mote="m1", listen=9))) == [RunProgram(SPEED, 0)]


def test_only_mote_of_a_stream_may_change_its_fields(frames):
    proxy = sampling_fleet(frames, "m1")
    receive(proxy, frames.packet(0, (0, 1.0), program=NUMBER))
    schema = StreamSchema("traffic", (Field("speed", FieldType.REAL),))
    found = announce(proxy, frames.announcement("m1", boot=2, schema=schema, properties={}))
    assert OfferStream(schema) in found
    assert TuplesDropped("traffic", 1) in found


def test_demand_before_or_after_the_announcement_gives_the_same_program(frames):
    before, after = sampling_fleet(frames, "m1"), fleet()
    announce(after, frames.announcement("m1"))
    after.receive_demand("traffic", frames.demand(("a", ["speed"], None)), radio_us=0)
    packet = frames.packet(0, listen=9)
    assert controls(receive(before, packet)) == controls(receive(after, packet)) == [RunProgram(SPEED, 0)]


LONGER = StreamSchema("traffic", (*TRAFFIC.fields, Field("sensor", FieldType.TEXT, fixed=True)))


def test_a_driver_announces_columns_for_all_devices_of_its_stream(frames):
    proxy = fleet(same_driver=lambda *_: True)
    for mote in ("m1", "m2"):
        announce(proxy, frames.announcement(mote))
    proxy.receive_demand("traffic", frames.demand(("q", ["speed"], 10 * S)), radio_us=0)
    receive(proxy, frames.packet(0, (0, 60.0), mote="m2", program=NUMBER))
    found = announce(proxy, frames.announcement("m1", schema=LONGER))
    assert OfferStream(LONGER) in found
    assert not any(isinstance(each, TuplesDropped | RejectAnnouncement) for each in found)
    remembered = [each.announcement for each in found if isinstance(each, RememberAnnouncement)]
    assert {each.mote: each.stream for each in remembered} == {"m1": LONGER, "m2": LONGER}
    receive(proxy, frames.packet(1, (10 * S, 61.0), mote="m2", clock=10 * S, program=NUMBER), radio=10 * S)
    (batch,) = proxy.cut(20 * S)
    assert batch.schema == LONGER
    assert [each.values for each in batch.tuples] == [(7, 60.0, None, None, None), (7, 61.0, None, None, None)]
    assert announce(proxy, frames.announcement("m2", schema=LONGER, properties={"segment": 7, "sensor": "b"}))[0]


@pytest.mark.parametrize(
    "schema",
    [
        LONGER,
        StreamSchema("traffic", TRAFFIC.fields[:-1]),
        StreamSchema("traffic", (*TRAFFIC.fields[:-1], Field("note", FieldType.REAL))),
        StreamSchema("traffic", LONGER.fields[::-1]),
    ],
)
def test_columns_that_change_or_are_of_one_driver_among_several_are_rejected(frames, schema):
    proxy = fleet(same_driver=lambda *_: schema != LONGER)
    for mote in ("m1", "m2"):
        announce(proxy, frames.announcement(mote))
    found = announce(proxy, frames.announcement("m1", schema=schema))
    assert [each.reason for each in found if isinstance(each, RejectAnnouncement)] == ["schema"]
    assert proxy.streams["traffic"].schema == TRAFFIC


def test_unknown_field_of_a_demand_is_rejected_when_the_schema_becomes_known(frames):
    proxy = fleet()
    assert proxy.receive_demand("traffic", frames.demand(("a", ["colour"], None)), radio_us=0) == []
    rejected = [each for each in announce(proxy, frames.announcement()) if isinstance(each, RejectDemand)]
    assert [each.rejected.query for each in rejected] == ["a"]


def test_fleet_is_bounded(frames):
    proxy = fleet(limits=FleetLimits(motes=1, streams=1))
    announce(proxy, frames.announcement("m1"))
    assert kinds(receive(proxy, frames.packet(0, mote="m2"))) == ["RejectAnnouncement"]
    assert kinds(announce(proxy, frames.announcement("m2"))) == ["RejectAnnouncement"]
    assert kinds(proxy.receive_demand("weather", frames.demand(stream="weather"), radio_us=0)) == ["RejectDemand"]


def test_unannounced_mote_that_falls_silent_is_forgotten(frames):
    proxy = fleet()
    receive(proxy, frames.packet(0))
    proxy.time_passed(6 * S)
    assert proxy.motes == {}


def test_watermark_is_the_lowest_of_the_motes_and_moves_with_the_batches(frames):
    #  m1   watermark 0    samples 0, watermark 10           samples 10, watermark 20
    #  m2   watermark 0                 samples 0, watermark 10
    #  cut             0 |          0 |                 10 |               10 (tuple only)
    proxy = sampling_fleet(frames, "m1", "m2")
    receive(proxy, frames.packet(0, mote="m1", listen=9))
    receive(proxy, frames.packet(0, mote="m2", listen=9))
    assert batches(proxy.cut(0)) == [(1, 0, True, [])]
    receive(proxy, frames.packet(1, (0, 1.0), mote="m1", low_watermark=10 * S, program=NUMBER))
    assert batches(proxy.cut(0)) == [(2, 0, True, [(0, "m1")])]
    assert proxy.cut(0) == []
    receive(proxy, frames.packet(1, (0, 2.0), mote="m2", low_watermark=10 * S, program=NUMBER))
    assert batches(proxy.cut(0)) == [(3, 10 * S, True, [(0, "m2")])]
    receive(proxy, frames.packet(2, (10 * S, 1.0), mote="m1", clock=10 * S, low_watermark=20 * S, program=NUMBER))
    assert batches(proxy.cut(0)) == [(4, 10 * S, True, [(10 * S, "m1")])]


def test_silent_mote_no_longer_holds_the_watermark_and_its_samples_are_late(frames):
    proxy = sampling_fleet(frames, "m1", "m2")
    for mote in ("m1", "m2"):
        receive(proxy, frames.packet(0, mote=mote, low_watermark=0, program=NUMBER))
    receive(proxy, frames.packet(1, mote="m1", low_watermark=50 * S, program=NUMBER), radio=5 * S)
    assert batches(proxy.cut(5 * S))[-1][1] == 0
    proxy.time_passed(7 * S)
    assert batches(proxy.cut(7 * S)) == [(2, 50 * S, True, [])]
    found = receive(proxy, frames.packet(1, (0, 1.0), mote="m2", program=NUMBER), radio=8 * S)
    assert [each.instruction.reason for each in found if isinstance(each.instruction, Rejected)] == ["late"]
    assert proxy.cut(8 * S) == []


def test_when_the_last_mote_sleeps_the_batch_is_marked(frames):
    proxy = sampling_fleet(frames, "m1")
    receive(proxy, frames.packet(0, low_watermark=5, program=NUMBER))
    assert batches(proxy.cut(0)) == [(1, 5, True, [])]
    proxy.receive_demand("traffic", frames.demand(), radio_us=0)
    receive(proxy, frames.packet(1, low_watermark=6))
    assert batches(proxy.cut(0)) == [(2, 5, False, [])]
    assert proxy.cut(60 * S) == []


def test_slow_motes_are_no_dead_proxy(frames):
    proxy = sampling_fleet(frames, "m1")
    receive(proxy, frames.packet(0, low_watermark=5, program=NUMBER))
    assert len(proxy.cut(0)) == 1
    assert proxy.cut(10 * S - 1) == []
    assert batches(proxy.cut(10 * S)) == [(2, 5, True, [])]


def test_many_tuples_make_several_batches_and_the_last_one_moves_the_watermark(frames):
    proxy = sampling_fleet(frames, "m1", limits=FleetLimits(batches=BatchLimits(rows=2)))
    samples = [(each, 1.0) for each in (2, 0, 1)]
    receive(proxy, frames.packet(0, *samples, clock=2, low_watermark=3, program=NUMBER))
    assert batches(proxy.cut(0)) == [
        (1, -(2**62), True, [(0, "m1"), (2, "m1")]),
        (2, 3, True, [(1, "m1")]),
    ]


def test_without_room_the_oldest_samples_go(frames):
    proxy = sampling_fleet(frames, "m1", limits=FleetLimits(batches=BatchLimits(waiting=2)))
    found = receive(proxy, frames.packet(0, (1, 1.0), (2, 1.0), (3, 1.0), clock=3, program=NUMBER))
    assert TuplesDropped("traffic", 1) in found
    assert [start for start, _ in batches(proxy.cut(0))[0][3]] == [2, 3]


def test_restart_continues_numbers_and_watermark_and_waits_for_its_motes(frames):
    proxy = fleet(
        programs=[SPEED],
        positions={"m1": MotePosition("m1", 1, 4, 0)},
        streams=[StreamProgress("traffic", 7, 5, sampling=True)],
    )
    proxy.receive_demand("traffic", frames.demand(("a", ["speed"], None)), radio_us=0)
    proxy.restore([frames.announcement("m1"), frames.announcement("m2")])
    assert proxy.cut(0) == []
    receive(proxy, frames.packet(5, (6, 1.0), clock=6, low_watermark=9, program=NUMBER))
    assert batches(proxy.cut(0)) == [(8, 5, True, [(6, "m1")])]
    proxy.time_passed(6 * S)
    receive(proxy, frames.packet(6, clock=9, low_watermark=10, program=NUMBER), radio=6 * S)
    assert batches(proxy.cut(6 * S)) == [(9, 10, True, [])]


def test_positions_are_those_of_motes_whose_tuples_do_not_wait(frames):
    proxy = sampling_fleet(frames, "m1")
    receive(proxy, frames.packet(3, (0, 1.0), program=NUMBER))
    assert proxy.positions() == []
    (cut,) = proxy.cut(0)
    assert cut.positions == {"m1": MotePosition("m1", 1, 3, 0)}
    assert proxy.positions() == [MotePosition("m1", 1, 3, 0)]


def test_new_mote_without_packets_holds_the_watermark_for_a_while(frames):
    proxy = sampling_fleet(frames, "m1", "m2")
    receive(proxy, frames.packet(0, mote="m1", low_watermark=1800 * S, program=NUMBER))
    assert proxy.cut(0) == []
    receive(proxy, frames.packet(0, mote="m2", clock=30 * S, listen=9))
    assert batches(proxy.cut(0)) == [(1, 30 * S, True, [])]


def test_rebooted_mote_does_not_hold_the_watermark_before_its_first_packet(frames):
    proxy = sampling_fleet(frames, "m1", "m2")
    for mote in ("m1", "m2"):
        receive(proxy, frames.packet(0, mote=mote, low_watermark=10 * S, program=NUMBER))
    announce(proxy, frames.announcement("m2", boot=2))
    receive(proxy, frames.packet(1, mote="m1", low_watermark=20 * S, program=NUMBER))
    assert batches(proxy.cut(0)) == [(1, 20 * S, True, [])]


DAY = 86_400 * S
NOW = 20_000 * DAY
BOUNDED = FleetLimits(tracking=TrackingLimits(clock=ClockBounds(60 * S, 3_600 * S)))


def at(frames, proxy, mote, sequence, clock, *, now=NOW):
    """A mote samples the speed when its clock shows `clock`; the packet is received at `now`."""
    packet = frames.packet(sequence, (clock, 1.0), mote=mote, clock=clock, low_watermark=clock + 10 * S, program=NUMBER)
    return proxy.receive_packet(packet, radio_us=0, received_us=now)


def rejections(instructions):
    return [each.instruction.reason.value for each in instructions if isinstance(each.instruction, Rejected)]


@pytest.mark.parametrize(("clock", "reason"), [(0, "clock_behind"), (NOW + 70 * 365 * DAY, "clock_ahead")])
def test_one_wrong_clock_neither_holds_a_stream_back_nor_drives_it_on(frames, clock, reason):
    #  wrong   1970, or 2100   |      its clock is set right
    #  right   now             | now + 10 s   now + 20 s
    proxy = sampling_fleet(frames, "right", "wrong", limits=BOUNDED)
    assert rejections(at(frames, proxy, "right", 0, NOW)) == []
    assert rejections(at(frames, proxy, "wrong", 0, clock)) == [reason]
    assert batches(proxy.cut(0)) == [(1, NOW + 10 * S, True, [(NOW, "right")])]
    entry = proxy.entry("wrong")
    assert (entry.clock_fault, entry.samples_ahead, entry.samples_behind) == (
        reason.removeprefix("clock_"), int(reason == "clock_ahead"), int(reason == "clock_behind"),
    )  # fmt: skip
    assert proxy.clock_faults()[reason.removeprefix("clock_")] == 1
    at(frames, proxy, "right", 1, NOW + 10 * S, now=NOW + 10 * S)
    assert rejections(at(frames, proxy, "wrong", 1, NOW + 10 * S, now=NOW + 10 * S)) == []
    assert (proxy.entry("wrong").clock_fault, sum(proxy.clock_faults().values())) == (None, 0)
    assert batches(proxy.cut(0)) == [(2, NOW + 20 * S, True, [(NOW + 10 * S, "right"), (NOW + 10 * S, "wrong")])]
    at(frames, proxy, "right", 2, NOW + 20 * S, now=NOW + 20 * S)
    assert batches(proxy.cut(0)) == [(3, NOW + 20 * S, True, [(NOW + 20 * S, "right")])], "it is waited for again"


def test_a_stream_of_wrong_clocks_only_is_not_sampling(frames):
    proxy = sampling_fleet(frames, "m1", limits=BOUNDED)
    at(frames, proxy, "m1", 0, NOW)
    assert batches(proxy.cut(0)) == [(1, NOW + 10 * S, True, [(NOW, "m1")])]
    at(frames, proxy, "m1", 1, 0)
    assert batches(proxy.cut(0)) == [(2, NOW + 10 * S, False, [])]


def test_an_announced_replay_runs_on_a_clock_of_its_own(frames):
    proxy = fleet(limits=BOUNDED)
    announce(proxy, replace(frames.announcement(), replays=True))
    proxy.receive_demand("traffic", frames.demand(("a", ["speed"], 10 * S)), radio_us=0)
    assert rejections(at(frames, proxy, "m1", 0, 15_000 * DAY)) == []
    assert batches(proxy.cut(0)) == [(1, 15_000 * DAY + 10 * S, True, [(15_000 * DAY, "m1")])]


def test_a_replay_into_a_stream_that_motes_feed_live_is_rejected(frames):
    proxy = sampling_fleet(frames, "m1", limits=BOUNDED)
    at(frames, proxy, "m1", 0, NOW)
    (rejected,) = announce(proxy, replace(frames.announcement("m2"), replays=True))
    assert (rejected.reason, "live" in rejected.detail) == ("replay", True)
    proxy.time_passed(3_600 * S)  # m1 is silent by now
    assert "RejectAnnouncement" not in kinds(announce(proxy, replace(frames.announcement("m2"), replays=True)))


def test_stamps_checked_by_a_driver_are_not_held_to_the_bounds(frames):
    proxy = fleet(limits=BOUNDED, checked=lambda mote: mote == "m1")
    announce(proxy, frames.announcement())
    proxy.receive_demand("traffic", frames.demand(("a", ["speed"], 10 * S)), radio_us=0)
    assert rejections(at(frames, proxy, "m1", 0, NOW - DAY)) == []


def numbered(frames, sequence, **changes):
    return NumberedAnnouncement(**asdict(frames.announcement("m1", **changes)), sequence=sequence)


@pytest.mark.parametrize(
    ("boot", "sequence", "accepted"),
    [(7, 6, True), (8, 0, True), (7, 5, False), (7, 0, False), (6, 99, False)],
)
def test_an_announcement_of_before_a_packet_changes_nothing_where_motes_have_keys(frames, boot, sequence, accepted):
    proxy = fleet(sealed=lambda _: True, positions={"m1": MotePosition("m1", 7, 5, 0)})
    announce(proxy, numbered(frames, 6, boot=7))
    known = proxy.motes["m1"].announcement
    found = announce(proxy, numbered(frames, sequence, boot=boot, minimum=2 * S))
    refused = [each.reason for each in found if isinstance(each, RejectAnnouncement)]
    assert refused == ([] if accepted else ["replayed"])
    assert (proxy.motes["m1"].announcement == known) is not accepted


def test_an_announcement_without_a_number_is_refused_where_motes_have_keys_and_only_there(frames):
    for sealed in (True, False):
        found = announce(fleet(sealed=lambda _, sealed=sealed: sealed), frames.announcement())
        assert [each.reason for each in found if isinstance(each, RejectAnnouncement)] == ["replayed"] * sealed


def test_the_number_of_an_announcement_is_not_kept(frames):
    proxy = fleet(sealed=lambda _: True)
    kept = [each for each in announce(proxy, numbered(frames, 0)) if isinstance(each, RememberAnnouncement)]
    assert [each.announcement for each in kept] == [frames.announcement("m1")]
    assert announce(proxy, numbered(frames, 0))[-1:] != kept


@pytest.mark.parametrize("motes", [10, 1_000])
def test_an_announcement_with_the_columns_of_its_stream_looks_at_no_other_mote(frames, monkeypatch, motes):
    proxy = fleet()
    for number in range(motes):
        announce(proxy, frames.announcement(f"m{number}"))
    looks = []
    monkeypatch.setattr(FleetMembers, "motes_of", lambda self, stream: looks.append(stream) or ())
    found = announce(proxy, replace(frames.announcement("m5"), boot=7))
    found += announce(proxy, frames.announcement("new"))
    assert not looks
    assert not [each for each in found if isinstance(each, RejectAnnouncement)]
    assert proxy.has("new")


class Mote:
    """A mote that samples every ten seconds, listens after each packet, and announces itself when it is asked to."""

    def __init__(self, frames, proxy):
        self.frames, self.proxy = frames, proxy
        self.sequence, self.asked = -1, 0
        self.announce(0)

    def announce(self, now_us):
        self.proxy.receive_announcement(self.frames.announcement(), radio_us=now_us, received_us=now_us)

    def send(self, now_us):
        self.sequence += 1
        packet = self.frames.packet(self.sequence, (now_us, 1.0), clock=now_us, listen=9 * S, program=NUMBER)
        for each in controls(self.proxy.receive_packet(packet, radio_us=now_us, received_us=now_us)):
            if isinstance(each, SendAnnouncement):
                self.asked += 1
                self.announce(now_us)


OTHER = StreamSchema("other", TRAFFIC.fields)
FUTURE = 2**60
FORGED = {
    "rejected": ({"properties": {"colour": 1}}, {}, ()),
    "rejected, and then a later boot": ({"properties": {"colour": 1}}, {}, ({"boot": 900},)),
    "another stream": ({"schema": OTHER}, {}, ()),
    "other fields": ({"schema": StreamSchema("traffic", TRAFFIC.fields[::-1])}, {}, ()),
    "a later boot": ({"boot": 2**40, "schema": OTHER}, {}, ()),
    "an earlier boot": ({"boot": 0, "schema": OTHER}, {}, ()),
    "a later number": ({}, {}, ({"sequence": 2**40},)),
    "boots without end": ({}, {}, [{"boot": 900 * each} for each in range(1, 30)]),
    "a replay of the future": (
        {"schema": OTHER},
        {"replays": True},
        ({"boot": 900, "clock": FUTURE}, {"boot": 1800, "clock": FUTURE}),
    ),
    "a replay of the future of a later boot": (
        {"schema": OTHER, "boot": 900},
        {"replays": True},
        ({"boot": 900, "clock": FUTURE},),
    ),
}


@pytest.mark.parametrize("rounds", [1, 300])
@pytest.mark.parametrize("name", FORGED)
def test_a_mote_whose_frames_were_forged_comes_back_by_itself(frames, name, rounds):
    """Once the forger is silent, its samples are stored again after the longest time without a request at most."""
    announcement, changes, packets = FORGED[name]
    proxy = sampling_fleet(frames, limits=BOUNDED)
    mote, now_us = Mote(frames, proxy), 0
    for _ in range(10):
        now_us += 10 * S
        mote.send(now_us)
    for _ in range(rounds):
        forged = replace(frames.announcement(**announcement), **changes)
        proxy.receive_announcement(forged, radio_us=now_us, received_us=now_us)
        for number, each in enumerate(packets):
            sent = frames.packet(**{"sequence": 10_000 + number, "clock": now_us + S, **each})
            proxy.receive_packet(sent, radio_us=now_us, received_us=now_us)
        now_us += 10 * S
        mote.send(now_us)
    now_us += MOST_WAIT_US
    for _ in range(20):
        now_us += 10 * S
        mote.send(now_us)
    proxy.cut(now_us)
    asked, begun_us = mote.asked, now_us
    while now_us < begun_us + 3_600 * S:
        now_us += 10 * S
        mote.send(now_us)
    stamps = {t.start_us for each in proxy.cut(now_us) if each.schema == TRAFFIC for t in each.tuples}
    assert len(stamps) >= 359
    assert mote.asked == asked, "it is not asked any more once it has confirmed what it is"
    assert mote.asked <= 5 + 2 * rounds


def test_an_announcement_that_follows_a_rejected_one_is_in_doubt(frames):
    proxy = sampling_fleet(frames, limits=BOUNDED)
    mote = Mote(frames, proxy)
    mote.send(10 * S)
    for forged in ({"properties": {"colour": 1}}, {"schema": OTHER}):
        proxy.receive_announcement(frames.announcement(**forged), radio_us=11 * S, received_us=11 * S)
    for now in range(20, 200, 10):
        mote.send(now * S)
    assert proxy.motes["m1"].announcement == frames.announcement()
    assert mote.asked == 2, "once more, as it differs from the forged one"


def test_a_mote_whose_announcements_are_wrong_is_asked_seldom(frames):
    proxy = sampling_fleet(frames, limits=BOUNDED)
    asked = []
    for now in range(0, 24 * 3_600, 10):
        packet = frames.packet(now // 10, clock=now * S, listen=9 * S)
        found = proxy.receive_packet(packet, radio_us=now * S, received_us=now * S)
        if SendAnnouncement() in controls(found):
            asked.append(now)
            wrong = frames.announcement(properties={"colour": 1})
            proxy.receive_announcement(wrong, radio_us=now * S, received_us=now * S)
    assert asked[:6] == [0, 60, 180, 420, 900, 1500]
    assert len(asked) < 24 * 6 + 6
