"""Streams whose motes are all silent: their time goes on, no sample that comes in time is late, replays stand still.

mote      packet 0 s ... packet 20 s   (silent)
stream    20 s                         promises of the proxy, once a second ------> 10 s alarms, last windows
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from protocols.presence.attention import Attention
from protocols.wire.catalog import StreamWait
from protocols.wire.demands import CompletenessDemand, QueryDemand, StreamDemand
from protocols.wire.frames import VERSION
from protocols.wire.programs import ListenSchedule, SamplingProgram, Threshold, VehicleEvents, program_number
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_instructions import ForMote
from proxy.fleet.fleet_members import FleetLimits
from proxy.fleet.stream_state import StreamProgress
from proxy.motes.mote_events import Rejected
from proxy.motes.mote_presence import SilentMote, age_of, lowest_promise_us
from proxy.records.waiting_tuples import MotePosition

S = 1_000_000
SPEED = SamplingProgram(("speed",), 10 * S)
AGE = 22
"""Seconds: the sample before the last, and a listen window."""
SILENT = 6
"""Seconds after which a mote of this program counts as silent."""
BEGAN = 1_000 * S
"""Real time, and that of the motes, when the radio clock shows 0."""


class Proxy:
    """A fleet, its clocks, and a broker that returns what the proxy sends to itself."""

    def __init__(self, frames, query=("a", ["speed"], None), *, began_s=0, replays=False, **options):
        self.frames, self.now = frames, began_s * S
        self.fleet = Fleet("p", FleetLimits(), now_us=self.now, **options)
        self.connected, self.answers, self.asks = True, True, False
        self.batches = []
        announced = replace(frames.announcement(), replays=replays)
        if not options.get("positions"):
            self.fleet.receive_announcement(announced, radio_us=self.now, received_us=self.real)
        else:
            self.fleet.restore([announced])
        if query:
            self.fleet.receive_demand("traffic", frames.demand(query), radio_us=self.now)

    @property
    def real(self):
        return BEGAN + self.now

    def send(self, number, *samples, mote="m1", program=SPEED, clock=None):
        """Samples are at seconds of the radio clock."""
        clock = self.real if clock is None else clock
        stamps = [(BEGAN + at * S, 1.5) for at in samples]
        packet = self.frames.packet(
            number, *stamps, mote=mote, clock=clock, low_watermark=clock, program=program_number(program)
        )
        found = self.fleet.receive_packet(packet, radio_us=self.now, received_us=self.real)
        self.cut()
        return [each.instruction for each in found if isinstance(each, ForMote)]

    def wait(self, seconds, steps=2):
        """Let time pass, as the shell does: half a second at a time."""
        for _ in range(seconds * steps):
            self.now += S // steps
            self.tick()

    def tick(self):
        attention = self.fleet.attention
        attention.time_passed(self.now, connected=self.connected)
        self.fleet.time_passed(self.now)
        if attention.echo_due(self.now) and (self.asks or self.fleet.awaits_silence()):
            attention.echo_sent(self.now)
            if self.answers:
                attention.echoed()
        self.cut()

    def cut(self):
        self.batches += [(self.now // S, each) for each in self.fleet.cut(self.now)]

    @property
    def up_to(self):
        """The stream's low watermark, in seconds of the radio clock."""
        return (self.batches[-1][1].watermark_us - BEGAN) / S

    def begin(self):
        self.send(0, 0)
        self.wait(2)
        self.send(1)
        return self


def test_time_goes_on_without_the_motes_once_a_second_and_less_the_age_of_a_sample(frames):
    proxy = Proxy(frames).begin()
    assert proxy.up_to == 2
    proxy.wait(60)
    assert 62 - AGE - 1.5 <= proxy.up_to <= 62 - AGE
    at_seconds = [at for at, each in proxy.batches if at > 2 + AGE + SILENT]
    assert len(at_seconds) == len(set(at_seconds)) >= 20
    assert not any(each.sampling or each.packets for at, each in proxy.batches if at > 2 + SILENT)


def test_a_mote_that_comes_back_with_samples_no_older_than_its_program_allows_loses_none(frames):
    proxy = Proxy(frames).begin()
    proxy.wait(100)
    (accepted,) = [each for each in proxy.send(2, 80, 90, 100) if type(each).__name__ == "TuplesAccepted"]
    assert len(accepted.tuples.starts_us) == 3
    assert proxy.batches[-1][1].sampling


def test_older_samples_of_a_mote_that_comes_back_are_counted_as_late(frames):
    proxy = Proxy(frames).begin()
    proxy.wait(100)
    rejected = [each for each in proxy.send(2, 70, 90) if isinstance(each, Rejected)]
    assert [(each.reason.value, each.samples) for each in rejected] == [("late", 1)]


@pytest.mark.parametrize(
    ("clock_s", "expected"), [(-300, 62 - AGE - 300), (300, 62 - AGE + 300)], ids=["behind", "ahead"]
)
def test_time_goes_on_by_the_clocks_of_the_motes(frames, clock_s, expected):
    proxy = Proxy(frames)
    proxy.send(0, clock=proxy.real + clock_s * S)
    proxy.wait(62)
    assert expected - 1.5 <= proxy.up_to <= expected


def test_the_mote_furthest_behind_counts(frames):
    proxy = Proxy(frames)
    proxy.fleet.receive_announcement(frames.announcement("m2"), radio_us=0, received_us=BEGAN)
    proxy.send(0)
    proxy.send(0, mote="m2", clock=proxy.real - 30 * S)
    proxy.wait(62)
    assert 62 - AGE - 31.5 <= proxy.up_to <= 62 - AGE - 30


def test_no_promise_while_one_mote_samples(frames):
    proxy = Proxy(frames)
    proxy.fleet.receive_announcement(frames.announcement("m2"), radio_us=0, received_us=BEGAN)
    proxy.send(0)
    for number in range(30):
        proxy.wait(2)
        proxy.send(number, mote="m2", clock=BEGAN + number * S)
    assert proxy.up_to == 29


@pytest.mark.parametrize("replays", [True, False], ids=["a replay", "the broker returns nothing"])
def test_time_stands_where_it_is_not_ours_or_not_known(frames, replays):
    proxy = Proxy(frames, replays=replays)
    proxy.answers = replays
    proxy.begin().wait(100)
    assert proxy.up_to == 2


def test_a_stream_that_no_query_reads_any_more_gets_no_promises(frames):
    proxy = Proxy(frames).begin()
    proxy.wait(60)
    proxy.fleet.receive_demand("traffic", frames.demand(), radio_us=proxy.now)
    proxy.cut()
    before, proxy.asks = len(proxy.batches), True  # for another stream
    proxy.wait(60)
    assert len(proxy.batches) == before


def test_a_stream_gets_at_most_one_promise_a_second(frames):
    proxy = Proxy(frames).begin()
    proxy.wait(60)
    before = len(proxy.batches)
    for _ in range(100):
        proxy.now += S // 10
        proxy.fleet.attention.time_passed(proxy.now, connected=True)
        proxy.fleet.attention.echo_sent(proxy.now)
        proxy.fleet.attention.echoed()
        proxy.cut()
    assert 9 <= len(proxy.batches) - before <= 10


def test_what_was_lost_with_a_connection_is_not_promised(frames):
    proxy = Proxy(frames).begin()
    proxy.connected = False
    proxy.wait(100)
    assert proxy.up_to == 2
    proxy.connected = True
    proxy.wait(SILENT)
    assert proxy.up_to == 2  # what waited at the broker may still come
    proxy.wait(4)
    assert proxy.up_to >= 112 - AGE - 3


def test_a_process_that_was_stopped_gives_motes_time_first(frames):
    proxy = Proxy(frames).begin()
    proxy.wait(40)
    before = proxy.up_to
    proxy.now += 3600 * S
    proxy.tick()
    proxy.wait(SILENT - 1)
    assert proxy.up_to == before
    found = [type(each).__name__ for each in proxy.send(2, 60, 70)]  # it was sent meanwhile
    assert "TuplesAccepted" in found


def test_nothing_that_was_sent_before_a_message_to_oneself_that_is_still_away_is_late(frames):
    proxy = Proxy(frames).begin()
    proxy.wait(40)
    proxy.answers, before = False, proxy.up_to
    proxy.wait(30)
    assert proxy.up_to <= before + 1.5


def test_after_a_restart_promises_go_on_from_the_restored_watermark_when_motes_have_had_their_time(frames):
    position = MotePosition("m1", 1, 5, BEGAN - 500 * S)
    proxy = Proxy(
        frames,
        positions={"m1": position},
        programs=[SPEED],
        streams=[StreamProgress("traffic", 7, BEGAN - 100 * S, sampling=False)],
    )
    proxy.wait(SILENT - 1)
    assert not [each for _, each in proxy.batches if each.watermark_us != BEGAN - 100 * S]
    proxy.wait(60 - SILENT + 1)
    assert 60 - 100 - AGE - 1.5 <= proxy.up_to <= 60 - 100 - AGE


def test_samples_that_a_silent_mote_should_have_taken_are_counted_as_missing(frames):
    proxy = Proxy(frames, query=None)
    counted = QueryDemand("q", ("speed",), None, completeness=CompletenessDemand("c1", 20 * S))
    proxy.fleet.receive_demand("traffic", StreamDemand(VERSION, "c", "traffic", 1, (counted,)), radio_us=0)
    proxy.begin()
    proxy.wait(100)
    rows = [each for _, batch in proxy.batches for each in batch.tuples if each.aggregated is not None]
    found = [((each.start_us - BEGAN) // S, each.aggregated.expected, each.aggregated.missing) for each in rows]
    assert found == [(19, 2, 1), (39, 2, 2), (59, 2, 2)]


def test_the_age_of_samples_follows_from_the_programs():
    several = SamplingProgram(("speed",), S, 9, ListenSchedule(30 * S), patience_us=5 * S)
    assert age_of([], None) == 0
    assert age_of([several], None) == (10 + 5 + 30) * S
    assert age_of([SPEED, several], None) == 45 * S
    events = SamplingProgram(("speed",), S, report=VehicleEvents(Threshold("speed", 2.0, 1.0)))
    assert age_of([events], None) == 4 * S
    assert age_of([SPEED], 0) == 10 * S
    assert age_of([replace(SPEED, period_us=1)], 30 * S) == 30 * S + 1


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 50), st.integers(0, 9), st.integers(0, 20)), max_size=5))
def test_no_promise_is_above_that_of_any_mote(motes):
    attention = Attention(0)
    for now in range(0, 200 * S, S):
        attention.time_passed(now, connected=True)
    attention.echo_sent(199 * S)
    attention.echoed()
    found = lowest_promise_us([SilentMote(*(each * S for each in mote)) for mote in motes], attention)
    promises = [(clock + 199 - radio - age) * S for clock, radio, _, age in motes]
    assert found == min(promises, default=None)


def test_it_is_reported_which_mote_a_stream_waits_for(frames):
    proxy = Proxy(frames)
    proxy.fleet.receive_announcement(frames.announcement("m2"), radio_us=0, received_us=BEGAN)
    proxy.send(0)
    proxy.send(0, mote="m2")
    proxy.wait(3)
    proxy.send(1)
    assert proxy.fleet.stream_waits(proxy.now) == (StreamWait("traffic", "m2", 3 * S, silent=False),)
    proxy.wait(7)
    assert proxy.fleet.stream_waits(proxy.now) == (StreamWait("traffic", "m2", 10 * S, silent=True),)
    proxy.fleet.receive_demand("traffic", frames.demand(), radio_us=proxy.now)
    assert proxy.fleet.stream_waits(proxy.now) == ()


def test_the_longest_waits_are_reported(frames, monkeypatch):
    monkeypatch.setattr("proxy.fleet.fleet.MOST_WAITS", 2)
    fleet = Fleet("p", FleetLimits(), now_us=0)
    for number in range(4):
        schema = replace(frames.TRAFFIC, name=f"s{number}")
        announced = replace(frames.announcement(f"m{number}"), stream=schema)
        fleet.receive_announcement(announced, radio_us=number * S, received_us=BEGAN)
        fleet.receive_demand(f"s{number}", frames.demand(("a", ["speed"], None), stream=f"s{number}"), radio_us=0)
    assert [each.mote for each in fleet.stream_waits(10 * S)] == ["m0", "m1"]
