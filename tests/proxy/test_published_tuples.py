"""What devices of other makers publish: tuples of their own, whatever queries run. Times are in seconds here."""

from __future__ import annotations

import tempfile
from itertools import chain
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocols.acquisition.program_reports import Abilities
from protocols.wire.batches import NEXT_COLUMN, NO_NEIGHBOUR_US, PREVIOUS_COLUMN
from protocols.wire.catalog import DeviceEntry, MoteState, decode_mote_entry
from protocols.wire.demands import CompletenessDemand, EventDemand, PropertyBand, QueryDemand, StreamDemand
from protocols.wire.frames import VERSION, encode
from protocols.wire.packets import RunProgram, Sample
from protocols.wire.programs import (
    DeadBand,
    SamplingProgram,
    SendOnChange,
    Threshold,
    program_number,
    publishing_program,
)
from protocols.wire.streams import Field, FieldType, StreamSchema
from proxy.fleet.batching import BatchLimits, CutBatch, StoredStamps
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_members import FleetLimits
from proxy.fleet.stream_state import StreamProgress, StreamState
from proxy.motes.mote_entries import DeviceTraits
from proxy.motes.mote_events import NotDemanded, Rejected, Rejection, SendControl, TuplesAccepted
from proxy.motes.mote_presence import TrackingLimits
from proxy.records.waiting_tuples import Aggregated, FieldChanges, MoteWatermark, PacketTuples
from proxy.storage.spool import Spool, SpooledBatch

S = 1_000_000
FREELY = DeviceTraits("json", publishes=True)
SET = DeviceTraits("zigbee", event_fields=("note",))
DEFAULT = (("speed",), None)
LIMITS = FleetLimits(tracking=TrackingLimits(silence_after_us=100 * S, patience_us=10 * S))


class Devices:
    """A fleet with devices, which send a packet whenever they publish."""

    def __init__(self, frames, *motes, traits=FREELY, schema=None, limits=LIMITS, **options):
        self.frames = frames
        self.traits = dict.fromkeys(motes, traits)
        self.schema = schema or frames.TRAFFIC
        self.number = program_number(publishing_program(self.schema))
        self.fleet = Fleet("p", limits, now_us=0, device_of=self.traits.get, **options)
        self.sequences = dict.fromkeys(motes, 0)
        for each in motes:
            self.announce(each)

    def announce(self, mote="m1", boot=1, **options):
        announced = self.frames.announcement(mote, boot, schema=self.schema, **options)
        return self.fleet.receive_announcement(announced, radio_us=0, received_us=0)

    def demand(self, *demands, epoch=1):
        queries = tuple(
            each if isinstance(each, QueryDemand) else QueryDemand(f"q{place}", *each)
            for place, each in enumerate(demands)
        )
        demanded = StreamDemand(VERSION, "c", "traffic", epoch, queries)
        return self.fleet.receive_demand("traffic", demanded, radio_us=0)

    def publish(self, at, *values, mote="m1", promise=None, number=None, boot=1, stamp=None):
        """Publish at an instant; with a stamp of its own, or with that of arrival. Without values just a promise."""
        at_us = round(at * S)
        stamp_us = at_us if stamp is None else round(stamp * S)
        records = (Sample(max(at_us, stamp_us) - stamp_us, values),) if values else ()
        packet = self.frames.packet(
            self.sequences[mote],
            mote=mote,
            boot=boot,
            clock=max(at_us, stamp_us),
            low_watermark=at_us if promise is None else round(promise * S),
            listen=S,
            program=self.number if number is None else number,
        )
        self.sequences[mote] += 1
        packet = msgspec.structs.replace(packet, records=records)
        found = self.fleet.receive_packet(packet, radio_us=at_us, received_us=at_us)
        return [getattr(each, "instruction", each) for each in found]

    def rows(self, at=0):
        """Return the rows of the batches that are due: by column."""
        return [row for batch in self.fleet.cut(round(at * S)) for row in rows_of(batch)]


def rows_of(batch: CutBatch):
    made = batch.as_batch("p", "e")
    columns = {each.name: each.values(made.rows) for each in made.columns}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def first_in(rows, period_us):
    """Return the rows that a query with SAMPLE EVERY a period reads: each alone shows whether it is one."""
    found = []
    for row in rows:
        at, before, after = row["fjord_start_us"], row[PREVIOUS_COLUMN], row[NEXT_COLUMN]
        begins = before == NO_NEIGHBOUR_US or before // period_us < at // period_us
        if begins and (after is None or after // period_us > at // period_us):
            found.append(row)
    return found


def stamps(rows):
    return [row["fjord_start_us"] / S for row in rows]


def of_type(instructions, kind):
    return [each for each in instructions if isinstance(each, kind)]


def test_a_faster_demand_changes_no_row_of_a_query_without_sample(frames):
    """A device every 7 s, whose default period is 10 s; after a minute a second query reads it each second."""
    alone, together = Devices(frames, "m1"), Devices(frames, "m1")
    alone.demand(DEFAULT)
    together.demand(DEFAULT)
    shown = []
    for devices in (alone, together):
        rows = []
        for number in range(20):
            if number == 9 and devices is together:
                devices.demand(DEFAULT, (("speed",), S), epoch=2)
            devices.publish(7 * number + 0.25, float(number), number, "x")
            rows += devices.rows(7 * number + 1)
        shown.append([(row["fjord_start_us"], row["speed"]) for row in rows if row["fjord_default_rate"]])
        assert len(first_in(rows, S)) == 20
        assert stamps(first_in(rows, 10 * S))[:4] == [0.25, 14.25, 21.25, 35.25]
    assert shown[0] == shown[1]
    assert [at / S for at, _ in shown[0]] == [7 * number + 0.25 for number in range(20)]


def test_nothing_is_sent_to_a_device_that_publishes_freely(frames):
    devices = Devices(frames, "m1")
    found = devices.demand(DEFAULT) + devices.publish(1, 1.0, 1, "x", number=5)
    found += devices.publish(2, 1.0, 1, "x")
    assert not of_type(found, SendControl | RunProgram)
    assert devices.fleet.motes["m1"].state is MoteState.SAMPLING
    assert not devices.fleet.merging("traffic", None).kinds, "no program is looked for"


def test_tuples_that_no_query_reads_are_counted(frames):
    devices = Devices(frames, "m1")
    assert of_type(devices.publish(1, 1.0, 1, "x"), NotDemanded) == [NotDemanded(1)]
    assert not of_type(devices.publish(2, 1.0, 1, "x"), TuplesAccepted | Rejected)
    entry = devices.fleet.entry("m1")
    assert (entry.state, entry.counts) == (MoteState.SLEEPING, {"not_demanded": 2})
    assert devices.rows(3) == []
    devices.demand(DEFAULT)
    devices.publish(4, 1.0, 1, "x")
    devices.demand(epoch=2)
    devices.publish(5, 1.0, 1, "x")
    assert stamps(devices.rows(6)) == [4.0]
    assert devices.fleet.entry("m1").counts == {"not_demanded": 3}


@pytest.mark.parametrize("field", ["speed", "unknown"])
def test_a_refused_demand_demands_nothing(frames, field):
    devices = Devices(frames, "m1")
    devices.demand(((field,), None))
    assert len(of_type(devices.publish(1, 1.0, 1, "x"), NotDemanded)) == (field == "unknown")


def test_a_query_about_one_device_reads_the_stream(frames):
    devices = Devices(frames, "m1")
    devices.demand(QueryDemand("q", ("speed",), None, sensors=(PropertyBand("segment", 99, 99),)))
    assert of_type(devices.publish(1, 1.0, 1, "x"), TuplesAccepted)


def test_a_stream_that_is_always_stored_needs_no_query(frames):
    devices = Devices(frames, "m1", traits=DeviceTraits("json", publishes=True, stored_always=True))
    devices.publish(1.5, 2.0, 3, "x")
    (row,) = devices.rows(2)
    assert (row["fjord_start_us"], row["speed"], row["flow"], row["note"]) == (1_500_000, 2.0, 3, "x")
    assert (row[PREVIOUS_COLUMN], row[NEXT_COLUMN], row["fjord_default_rate"]) == (NO_NEIGHBOUR_US, None, True)
    assert devices.fleet.motes["m1"].state is MoteState.SAMPLING


def test_the_watermark_waits_for_a_device_while_its_tuples_are_demanded(frames):
    devices = Devices(frames, "m1", "m2")
    devices.publish(1, mote="m1")
    assert [each.watermark for each in devices.fleet.motes.values()] == [None, None]
    devices.demand(DEFAULT)
    devices.publish(2, mote="m1")
    devices.publish(3, mote="m2")
    assert [batch.watermark_us for batch in devices.fleet.cut(4 * S)] == [2 * S]
    devices.demand(epoch=2)
    assert [each.watermark for each in devices.fleet.motes.values()] == [None, None]


def test_a_device_that_sends_nothing_is_silent_and_comes_back(frames):
    devices = Devices(frames, "m1")
    devices.demand(DEFAULT)
    devices.publish(1, 1.0, 1, "x")
    devices.rows(1)
    devices.fleet.time_passed(200 * S)
    assert devices.fleet.motes["m1"].state is MoteState.SILENT
    assert devices.fleet.motes["m1"].watermark is None
    devices.publish(300.5, 2.0, 1, "x")
    assert [row[PREVIOUS_COLUMN] for row in devices.rows(301)] == [1 * S]


def test_a_device_has_an_entry_of_its_own(frames):
    traits = DeviceTraits("json", publishes=True, mains=True, expected_every_us=60 * S)
    options = {"counts_of": {"m1": {"late": 2, "not_demanded": 1}}.get, "trouble_of": {"m1": "t" * 999}.get}
    devices = Devices(frames, "m1", traits=traits, **options)
    devices.publish(1, 1.0, 1, "x")
    devices.demand(DEFAULT)
    devices.publish(2, 1.0, 1, "x")
    entry = devices.fleet.entry("m1")
    assert decode_mote_entry(encode(entry)) == entry
    assert isinstance(entry, DeviceEntry)
    assert (entry.driver, entry.publishes, entry.mains, entry.expected_every_us) == ("json", True, True, 60 * S)
    assert entry.counts == {"late": 2, "not_demanded": 2}
    assert (entry.period_us, entry.milliwatts, entry.wanted, entry.lifetime_days) == (0, 0.0, None, None)
    assert (entry.doing, len(entry.trouble)) == ("publishes by its own rules", 512)


def test_tuples_are_read_again_after_a_restart_without_a_kept_program(frames):
    devices = Devices(frames)
    devices.traits["m1"], devices.sequences["m1"] = FREELY, 0
    devices.demand(DEFAULT)
    devices.fleet.restore([frames.announcement()])
    assert of_type(devices.publish(1, 1.0, 1, "x"), TuplesAccepted)


def test_a_packet_of_a_device_needs_no_slow_path(frames, monkeypatch):
    devices = Devices(frames, "m1")
    devices.demand(DEFAULT)
    devices.publish(1, 1.0, 1, "x")
    monkeypatch.setattr("proxy.motes.mote_tracking.read_packet", None)
    assert of_type(devices.publish(2, 1.0, 1, "x"), TuplesAccepted)


def test_late_tuples_are_rejected_and_counted(frames):
    devices = Devices(frames, "m1")
    devices.demand(DEFAULT)
    devices.publish(1, mote="m1")
    devices.publish(9, 1.0, 1, "x")
    devices.rows(9)
    (rejected,) = of_type(devices.publish(10, 1.0, 1, "x", stamp=3, promise=9), Rejected)
    assert rejected.reason is Rejection.LATE
    assert devices.fleet.entry("m1").samples_late == 1


# Devices whose drivers set how often they report.


def configured(frames, *demands, traits=SET):
    able = Abilities(filters=False, sends_on_change=True, aggregates=False, detects_events=False, several=False)
    devices = Devices(frames, "m1", traits=traits, abilities_of=lambda _: able)
    devices.demand(*demands)
    program = devices.fleet.motes["m1"].desired
    devices.number = program_number(program)
    devices.publish(0)
    return devices, program


def test_a_query_without_sample_reads_the_first_report_of_each_default_period(frames):
    """The default period is 10 s; another query reads each second."""
    devices, program = configured(frames, DEFAULT, (("speed",), S))
    assert program == SamplingProgram(("speed",), S, listen=program.listen)
    for at in (3.25, 4.5, 4.75, 9.9, 10.5, 21.0, 35.5, 36.0):
        devices.publish(at, at, 1, None)
    rows = devices.rows(40)
    assert stamps(rows) == [3.25, 4.5, 4.75, 9.9, 10.5, 21.0, 35.5, 36.0], "no grid applies to reports"
    assert stamps(row for row in rows if row["fjord_default_rate"]) == [3.25, 10.5, 21.0, 35.5]
    assert stamps(first_in(rows, S)) == [3.25, 4.5, 9.9, 10.5, 21.0, 35.5, 36.0]


def test_a_device_that_has_not_confirmed_its_program_reports_by_rules_of_its_own(frames):
    able = Abilities(filters=False, sends_on_change=True, aggregates=False, detects_events=False, several=False)
    devices = Devices(frames, "m1", traits=SET, abilities_of=lambda _: able)
    devices.number = 0
    assert of_type(devices.publish(1, 1.0, 1, None), NotDemanded)
    devices.demand(DEFAULT)
    for at in (3.25, 4.5, 10.5):
        devices.publish(at, at, 1, None)
    assert devices.fleet.entry("m1").state is MoteState.CHANGING
    rows = devices.rows(40)
    assert stamps(rows) == [3.25, 4.5, 10.5]
    assert stamps(row for row in rows if row["fjord_default_rate"]) == [3.25, 10.5]


def test_each_change_of_an_event_field_counts(frames):
    devices, _ = configured(frames, (("speed", "note"), None))
    values = ["shut", "shut", "open", None, "open", "shut"]
    for at, value in enumerate(values):
        devices.publish(at + 0.5, 1.0, 1, value)
    rows = devices.rows(9)
    assert [row["fjord_default_rate"] for row in rows] == [True, False, True, False, False, True]


def test_a_change_of_the_program_is_no_change_of_a_value(frames):
    devices, _ = configured(frames, (("speed", "note"), None))
    devices.publish(1, 1.0, 1, "shut")
    devices.demand((("speed", "note"), None), (("speed",), S), epoch=2)
    devices.number = program_number(devices.fleet.motes["m1"].desired)
    devices.publish(2, 1.0, 1, "shut")
    devices.publish(3, 1.0, 1, "open")
    assert [row["fjord_default_rate"] for row in devices.rows(9)] == [True, False, True]


def test_the_first_value_counts_as_a_change_and_null_does_not():
    schema = StreamSchema("s", (Field("a", FieldType.REAL), Field("b", FieldType.TEXT)))
    changes = FieldChanges(schema, ("b", "unknown"))
    assert changes.found_in([(1.0, None), (2.0, None)]) == ()
    assert changes.found_in([(1.0, None), (2.0, "x"), (3.0, "x"), (4.0, None), (5.0, "x")]) == (
        *(False, True, False, False, False),
    )
    assert changes.found_in([(1.0, "y")]) == (True,)


def test_what_is_sent_on_change_stays_on_the_grid(frames):
    change = SendOnChange((DeadBand("speed", 0.5),), 60 * S)
    program = SamplingProgram(("speed",), 10 * S, report=change)
    devices = Devices(frames, "m1", traits=SET, programs=[program])
    devices.demand(DEFAULT)
    number = program_number(program)
    devices.publish(0, number=number, promise=0)
    devices.publish(1, 5.0, number=number, stamp=0, promise=10)
    devices.publish(31, 7.0, number=number, stamp=30, promise=40)
    rows = devices.rows(40)
    assert [(row["fjord_start_us"] / S, row["speed"]) for row in rows] == [(0, 5.0), (10, 5.0), (20, 5.0), (30, 7.0)]
    assert PREVIOUS_COLUMN not in rows[0]


def test_reports_while_no_query_reads_are_not_demanded(frames):
    devices = Devices(frames, "m1", traits=SET)
    assert of_type(devices.publish(1, 1.0, number=0), NotDemanded) == [NotDemanded(1)]


# Events.


def events_in(rows):
    return [(row["fjord_start_us"] / S, row["fjord_pane_us"] / S) for row in rows if row.get("fjord_form")]


@pytest.mark.parametrize(
    ("period", "levels", "expected"),
    [
        (None, {0: 0, 1: 0, 2: 1, 3: 0, 4: 0, 5: 1, 5.0001: 0}, [(1.5, 1.0), (4.5, 0.50005)]),
        # The detector looks at 0.5, 2.5, 4.25 and 7.
        (2 * S, {0.5: 0, 1: 1, 2.5: 0, 3: 1, 4.25: 1, 5: 0, 7: 0}, [(3.375, 2.25)]),
    ],
    ids=["each tuple", "the first of each period"],
)
def test_events_are_found_in_tuples_stamped_at_any_instant(frames, period, levels, expected):
    """Crossings are halfway between two tuples that the detector looks at."""
    demanded = QueryDemand("q", ("speed",), period, events=EventDemand("e", Threshold("speed", 0.5, 0.5)))
    devices = Devices(frames, "m1")
    devices.demand(demanded)
    for at, level in levels.items():
        devices.publish(at, float(level), 1, "x")
    rows = devices.rows(9)
    assert events_in(rows) == expected
    assert len(rows) == len(levels) + len(expected), "the tuples themselves are stored, too"
    assert [row[PREVIOUS_COLUMN] is None for row in rows] == [bool(row["fjord_form"]) for row in rows]


def test_a_tuple_that_comes_behind_a_later_one_is_in_no_event(frames):
    demanded = QueryDemand("q", ("speed",), None, events=EventDemand("e", Threshold("speed", 0.5, 0.5)))
    devices = Devices(frames, "m1")
    devices.demand(demanded)
    for stamp, level in ((1, 0), (3, 1), (2, 0), (5, 0)):
        devices.publish(6, float(level), 1, "x", stamp=stamp, promise=0)
    rows = devices.rows(9)
    assert events_in(rows) == [(2.0, 2.0)]
    assert stamps(row for row in rows if row[PREVIOUS_COLUMN] is not None) == [1, 2, 3, 5]


def test_events_of_a_configured_device_belong_to_the_default_rate(frames):
    devices, _ = configured(
        frames, QueryDemand("q", ("speed",), S, events=EventDemand("e", Threshold("speed", 0.5, 0.5)))
    )
    for at in range(4):
        devices.publish(at + 0.25, float(at == 1), 1, None)
    rows = devices.rows(9)
    assert events_in(rows) == [(0.75, 1.0)]
    assert [row["fjord_default_rate"] for row in rows] == [True, True, False, False, False]


# Completeness.


def counted(*, period=None, pane=60 * S):
    return QueryDemand("q", ("speed",), period, completeness=CompletenessDemand("c1", pane))


def counts_in(rows):
    return [(row["fjord_expected"], row["fjord_missing"]) for row in rows if row.get("fjord_expected") is not None]


@pytest.mark.parametrize(
    ("every", "period", "expected"),
    [(None, None, []), (10 * S, None, [(6, 2)]), (10 * S, 20 * S, [(3, 0)]), (10 * S, 5 * S, [(6, 2)])],
)
def test_periods_are_counted_of_devices_that_publish_at_known_intervals(frames, every, period, expected):
    devices = Devices(frames, "m1", traits=DeviceTraits("json", publishes=True, expected_every_us=every))
    devices.demand(counted(period=period))
    devices.publish(0)
    for at in (1, 2, 11, 25, 44):
        devices.publish(at, 1.0, 1, "x")
    devices.publish(61)
    assert counts_in(devices.rows(62)) == expected


def test_periods_of_a_configured_device_are_those_that_it_confirmed(frames):
    devices, program = configured(frames, counted(), (("speed",), 5 * S))
    assert program.period_us == 5 * S
    for at in (1.5, 2, 11.25, 25, 44):
        devices.publish(at, 1.0, 1, None)
    devices.publish(61)
    assert counts_in(devices.rows(62)) == [(6, 2)]


def test_a_pane_that_a_restart_cuts_is_counted_whole(frames):
    traits = DeviceTraits("json", publishes=True, expected_every_us=10 * S)
    devices = Devices(frames, "m1", traits=traits)
    devices.demand(counted())
    devices.publish(0)
    for at in (1, 11, 31):
        devices.publish(at, 1.0, 1, "x")
    (batch,) = devices.fleet.cut(32 * S)
    losses, stream = devices.fleet.new_losses(), devices.fleet.streams["traffic"]
    again = Devices(
        frames,
        traits=traits,
        positions=batch.positions,
        losses=losses,
        streams=[stream.progress],
        stamps={"traffic": {"m1": stream.stamps.of("m1")}},
    )
    again.traits["m1"], again.sequences["m1"] = traits, 0
    again.demand(counted())
    again.fleet.restore([frames.announcement()])
    again.announce(boot=2)
    again.publish(45, boot=2)
    again.publish(52, 1.0, 1, "x", boot=2)
    again.publish(61, boot=2)
    # Nothing came from 20 to 30 and from 40 to 50. Before the first gap, only the last tuple is known to be stored.
    assert counts_in(again.rows(62)) == [(6, 3)]


# Neighbours.

EMPTY = StreamSchema("s", (Field("a", FieldType.INTEGER),))


def tuples(mote, *starts, published=True, extras=()):
    return PacketTuples(
        mote, 1, 0, 0, 0 if published else 1, starts, tuple((each,) for each in starts), extras, published
    )


def neighbours_of(stamps, *packets):
    return list(zip(*stamps.neighbours_of(packets), strict=True))


def test_neighbours_are_the_nearest_stamps_of_the_same_mote_that_came_before():
    found = neighbours_of(StoredStamps(), tuples("m", 10, 14, 25), tuples("n", 11), tuples("m", 12, 14, 5))
    nothing = NO_NEIGHBOUR_US
    assert found == [
        *((nothing, None), (10, None), (14, None)),
        (nothing, None),
        *((10, 14), (14, 25), (nothing, 10)),
    ]


def test_samples_and_events_have_no_neighbours():
    event = (None, Aggregated("e"))
    found = neighbours_of(StoredStamps(), tuples("m", 1, published=False), tuples("m", 2, 1, extras=event))
    assert found == [(None, None), (NO_NEIGHBOUR_US, None), (None, None)]


def test_stamps_that_no_tuple_can_lie_next_to_are_forgotten():
    stamps = StoredStamps()
    batch = [tuples("m", *range(0, 100, 10))]
    stamps.neighbours_of(batch)
    (kept,) = stamps.keep(batch, lambda _: 75)
    assert (kept.since_us, kept.stamps_us) == (70, (70, 80, 90))
    assert stamps.of("m") == (70, 80, 90)
    # A mote that breaks its promise does not make a tuple the first of a period that may have one.
    assert neighbours_of(stamps, tuples("m", 3)) == [(3, 70)]


def test_few_stamps_are_kept_and_tuples_from_before_are_late():
    stamps = StoredStamps(most=10)
    batch = [tuples("m", *range(25))]
    stamps.neighbours_of(batch)
    (kept,) = stamps.keep(batch, lambda _: 0)
    assert kept.stamps_us == stamps.of("m") == (19, 20, 21, 22, 23, 24)
    assert stamps.floor_us("m") == 20
    assert StoredStamps({"m": stamps.of("m")}, most=10).floor_us("m") == 20, "after a restart, too"
    batch = [tuples("m", 30)]
    stamps.neighbours_of(batch)
    stamps.keep(batch, lambda _: 29)
    assert stamps.floor_us("m") is None


def test_tuples_from_before_the_kept_stamps_are_rejected(frames, monkeypatch):
    monkeypatch.setattr("proxy.fleet.batching.MOST_STAMPS", 10)
    devices = Devices(frames, "m1", "m2")
    devices.fleet.streams["traffic"].stamps = StoredStamps(most=10)
    devices.demand(DEFAULT)
    devices.publish(0, mote="m2")
    for at in range(1, 26):
        devices.publish(at, 1.0, 1, "x", promise=0)
    devices.rows(26)
    assert of_type(devices.publish(27, 1.0, 1, "x", stamp=21.5, promise=0), TuplesAccepted)
    (rejected,) = of_type(devices.publish(28, 1.0, 1, "x", stamp=5.5, promise=0), Rejected)
    assert rejected.reason is Rejection.LATE


actions = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from("mn"), st.lists(st.integers(0, 40), min_size=1, max_size=5)),
        st.tuples(st.just("sample"), st.sampled_from("mn"), st.lists(st.integers(0, 40), min_size=1, max_size=2)),
        st.tuples(st.sampled_from(["cut", "cut", "cut", "fail"]), st.integers(0, 9), st.integers(0, 9)),
        st.tuples(st.just("kill"), st.none(), st.none()),
    ),
    max_size=30,
)


class Storing:
    """A stream and its spool. Nothing comes from before the watermark, or from before what a mote has promised."""

    def __init__(self, folder: Path, limits: BatchLimits) -> None:
        self.folder, self.limits = folder, limits
        self.promised = {"m": 0, "n": 0}
        self.stored: list[CutBatch] = []
        self.unwritten: list[CutBatch] = []
        self.start()

    def start(self) -> None:
        self.spool = Spool(self.folder / "spool.sqlite", "p")
        progress = self.spool.progress() or [StreamProgress("s")]
        self.stream = StreamState(progress[0], self.limits, "p", EMPTY)
        self.stream.stamps = StoredStamps(self.spool.stamps().get("s", {}))

    def kill(self) -> None:
        self.spool.close()
        self.unwritten = []
        self.start()

    def arrive(self, mote: str, after: list[int], *, published: bool) -> None:
        lowest = max(self.stream.watermark_us or 0, self.promised[mote])
        self.stream.enqueue(tuples(mote, *[lowest + each for each in after], published=published))

    def cut(self, promised_by: tuple[int, int], *, fails: bool) -> None:
        if not self.unwritten:
            for mote, by in zip("mn", promised_by, strict=True):
                self.promised[mote] += by
            held_by = [MoteWatermark(each) for each in self.promised.values()]
            self.unwritten = self.stream.cut(held_by, 0, promise_of=self.promised.get)
        if fails:
            return
        for batch in self.unwritten:
            progress = StreamProgress("s", batch.sequence, batch.watermark_us, batch.sampling)
            spooled = SpooledBatch("s", batch.sequence, batch.rows, b"x")
            self.spool.append([spooled], [progress], stamps=[("s", each) for each in batch.stamps])
        self.stored += self.unwritten
        self.unwritten = []


KILLED = ("kill", None, None)


@given(actions, st.integers(1, 4), st.integers(3, 12))
@example([("publish", "m", [10]), ("cut", 0, 0), KILLED, ("publish", "m", [5]), ("cut", 0, 0)], 4, 12)
@example(
    [
        *(("publish", "m", [10]), ("cut", 0, 0), ("publish", "m", [20]), ("cut", 15, 0), KILLED),
        *(("publish", "m", [2]), ("cut", 0, 0)),
    ],
    *(4, 12),
)
@example([("publish", "m", [10, 14]), ("publish", "m", [12]), ("cut", 25, 25)], 2, 12)
@example([("publish", "m", [1, 1]), ("fail", 9, 9), ("publish", "m", [2]), ("cut", 0, 0), KILLED, ("cut", 0, 0)], 4, 12)
def test_columns_are_those_of_all_that_was_stored_wherever_it_was_cut_and_killed(script, rows, room):
    with tempfile.TemporaryDirectory() as folder:
        storing = Storing(Path(folder), BatchLimits(room, rows))
        for action, what, values in script:
            if action == "kill":
                storing.kill()
            elif action in {"cut", "fail"}:
                storing.cut((what, values), fails=action == "fail")
            else:
                storing.arrive(what, values, published=action == "publish")
        storing.spool.close()
    assert [each.sequence for each in storing.stored] == list(range(1, len(storing.stored) + 1))
    before: dict[str, list[int]] = {}
    for mote, start, published, previous, following in chain.from_iterable(map(in_order_of_arrival, storing.stored)):
        if not published:
            assert (previous, following) == (None, None)
            continue
        known = before.setdefault(mote, [])
        assert previous == max((each for each in known if each <= start), default=NO_NEIGHBOUR_US)
        assert following == min((each for each in known if each > start), default=None)
        known.append(start)


def in_order_of_arrival(batch: CutBatch):
    """Return mote, stamp, whether it is published, and the stamps of the neighbours of each row."""
    found = [(packet.mote, at, packet.published) for packet in batch.packets for at in packet.starts_us]
    neighbours = batch.neighbours or ([None] * len(found), [None] * len(found))
    return [(*each, *pair) for each, pair in zip(found, zip(*neighbours, strict=True), strict=True)]


@given(
    st.lists(st.tuples(st.sampled_from("mn"), st.integers(-30, 30), st.booleans()), min_size=1, max_size=25),
    st.sampled_from([0, 1, 7, 10]),
)
def test_the_first_of_each_period_is_found_from_each_row_alone(arrivals, default):
    stream = StreamState(StreamProgress("s"), BatchLimits(), "p", EMPTY)
    for mote, start, event in arrivals:
        stream.enqueue(PacketTuples(mote, 1, 0, 0, default, (start,), ((0,),), (), True, (event,)))
    rows = [row for batch in stream.cut([], 0) for row in rows_of(batch)]
    # In order of arrival; rows of a batch are in stamp order, those of one stamp as they came.
    by_arrival = sorted(range(len(arrivals)), key=lambda place: arrivals[place][1])
    for period in (1, 4, 7, 60):
        firsts = set()
        for place, (mote, start, _) in enumerate(arrivals):
            earlier = [at for other, at, _ in arrivals[:place] if other == mote]
            if all(at // period != start // period for at in earlier):
                firsts.add(place)
        shown = {by_arrival[place] for place, row in enumerate(rows) if row in first_in([row], period)}
        assert shown == firsts
        if period == default:
            marked = {by_arrival[place] for place, row in enumerate(rows) if row["fjord_default_rate"]}
            assert marked == firsts | {place for place, each in enumerate(arrivals) if each[2]}
    if not default:
        assert all(row["fjord_default_rate"] for row in rows)


def test_batches_of_samples_have_no_columns_of_published_tuples():
    stream = StreamState(StreamProgress("s"), BatchLimits(), "p", EMPTY)
    stream.enqueue(tuples("m", 1, published=False))
    (batch,) = stream.cut([], 0)
    assert batch.neighbours is None
    assert PREVIOUS_COLUMN not in {each.name for each in batch.as_batch("p", "e").columns}
