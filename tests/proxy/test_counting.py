"""A fleet counts expected and missing samples, and sends the counts when the watermark passes them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from protocols.wire.batches import EXPECTED_COLUMN, MISSING_COLUMN
from protocols.wire.demands import CompletenessDemand, PropertyBand, QueryDemand, StreamDemand
from protocols.wire.frames import VERSION
from protocols.wire.programs import SamplingProgram, program_number
from proxy.counting.sample_account import NEVER_US
from proxy.errors import StoreFullError
from proxy.fleet import fleet
from proxy.fleet.batching import BatchLimits
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_members import FleetLimits
from proxy.fleet.stream_state import StreamProgress
from proxy.motes.mote_clock import ClockBounds
from proxy.motes.mote_presence import TrackingLimits
from proxy.records.waiting_tuples import MotePosition
from proxy.storage import flushing
from proxy.storage.spool import SessionMessage

S = 1_000_000
SPEED = SamplingProgram(("speed",), 10 * S)
NUMBER = program_number(SPEED)
FINGERPRINT = "c1"


def demand(*sensors: PropertyBand, pane=60 * S, fingerprint=FINGERPRINT):
    demanded = QueryDemand("q", ("speed",), None, sensors=sensors, completeness=CompletenessDemand(fingerprint, pane))
    return StreamDemand(VERSION, "c", "traffic", 1, (demanded,))


def sampling(frames, *motes, limits=None, demanded=None, **options):
    """Motes that take up the program, and sample from 0 on."""
    tracking = TrackingLimits(silence_after_us=100 * S, patience_us=10 * S)
    proxy = Fleet("p", limits or FleetLimits(tracking=tracking), now_us=0, **options)
    proxy.receive_demand("traffic", demanded or demand(), radio_us=0)
    for mote, segment in motes:
        proxy.receive_announcement(
            frames.announcement(mote, properties={"segment": segment}), radio_us=0, received_us=0
        )
    return proxy


def receive(proxy, packet, at):
    proxy.receive_packet(packet, radio_us=at * S, received_us=at * S)


def begin(proxy, frames, *motes):
    for mote in motes:
        receive(proxy, frames.packet(0, mote=mote, clock=-2 * S, low_watermark=-2 * S, listen=9), -2)
        receive(proxy, frames.packet(1, mote=mote, clock=-S, low_watermark=0, program=NUMBER), -1)


def send_samples(proxy, frames, mote, sequences, until):
    """Packets of one sample each, of which only some arrive."""
    for number in range(until // 10):
        if number + 2 in sequences:
            at = number * 10 * S
            sample = (at, 1.0)
            packet = frames.packet(
                number + 2, sample, mote=mote, clock=at + S, low_watermark=at + 10 * S, program=NUMBER
            )
            receive(proxy, packet, number * 10 + 1)


def counts_in(batches):
    """(mote, end of the pane in seconds, expected, missing) and the watermark with which they came, in seconds."""
    return [
        (each.position.mote, (each.start_us + 1) // S, each.aggregated.expected, each.aggregated.missing)
        for batch in batches
        for each in batch.tuples
        if each.aggregated is not None and each.aggregated.expected is not None
    ]


def test_counts_are_sent_when_the_watermark_passes_the_pane(frames):
    proxy = sampling(frames, ("m1", 7), ("m2", 8))
    begin(proxy, frames, "m1", "m2")
    send_samples(proxy, frames, "m1", range(99), 130)
    send_samples(proxy, frames, "m2", range(99), 50)
    assert counts_in(proxy.cut(131 * S)) == []
    send_samples(proxy, frames, "m2", range(7, 99), 60)
    (batch,) = proxy.cut(132 * S)
    assert counts_in([batch]) == [("m1", 60, 6, 0), ("m2", 60, 6, 0)]
    assert batch.watermark_us == 60 * S
    frame = batch.as_batch("p", "e")
    columns = {column.name: column.values(frame.rows) for column in frame.columns}
    counts = [each for each in zip(*(columns[name] for name in ("segment", "fjord_form", "fjord_samples",
              EXPECTED_COLUMN, MISSING_COLUMN)), strict=True) if each[1]]  # fmt: skip
    assert counts == [(7, FINGERPRINT, 0, 6, 0), (8, FINGERPRINT, 0, 6, 0)]
    assert columns["speed"].count(None) == 2, "they are no samples"


class TightSpool:
    """A spool with room for few batches in one transaction."""

    epoch, writer = "e", b""

    def __init__(self, most):
        self.transactions = []
        self._most = most

    def append(self, batches, *_, **__):
        if len(batches) > self._most:
            raise StoreFullError(Path("spool"), "disk I/O error")
        self.transactions.append([each.sequence for each in batches])


@pytest.mark.parametrize("most", [1, 2, 3, 6, 12, 24])
@pytest.mark.parametrize("session", [(), (SessionMessage(1, b"m"),)])
@pytest.mark.parametrize("piece_rows", [1, 1_000])
def test_counts_are_stored_with_the_watermark_that_passes_their_panes(frames, monkeypatch, most, session, piece_rows):
    """A proxy that was killed between the two would count their panes again."""
    monkeypatch.setattr(flushing, "PIECE_ROWS", piece_rows)
    limits = FleetLimits(tracking=TrackingLimits(silence_after_us=100 * S), batches=BatchLimits(rows=1))
    proxy = sampling(frames, ("m1", 7), ("m2", 8), ("m3", 9), limits=limits)
    begin(proxy, frames, "m1", "m2", "m3")
    for mote in ("m1", "m2", "m3"):
        send_samples(proxy, frames, mote, range(99), 70)
    cut = proxy.cut(71 * S)
    assert [(each.rows, each.with_next) for each in cut] == [(1, False)] * 21 + [(1, True)] * 2 + [(1, False)]
    spool = TightSpool(most)
    stored = flushing.store_in_pieces(SimpleNamespace(spool=spool), "p", cut, (), 0, session=session)
    for transaction in spool.transactions:
        until = [each for each in cut if each.sequence <= transaction[-1]]
        assert all(end * S <= until[-1].watermark_us for _, end, _, _ in counts_in(until))
    has_room = most >= 3  # for the counts, which are behind all samples
    assert len(stored.batches) == sum(map(len, spool.transactions)) == (24 if has_room else 21)
    assert (stored.error is None) == has_room


def test_no_counts_are_sent_without_demand(frames):
    proxy = sampling(frames, ("m1", 7), demanded=frames.demand(("a", ["speed"], None)))
    begin(proxy, frames, "m1")
    send_samples(proxy, frames, "m1", range(99), 130)
    (batch,) = proxy.cut(131 * S)
    assert counts_in([batch]) == []
    assert EXPECTED_COLUMN not in {column.name for column in batch.as_batch("p", "e").columns}


def test_only_motes_the_query_is_about_are_counted(frames):
    proxy = sampling(frames, ("m1", 7), ("m2", 8), demanded=demand(PropertyBand("segment", 8, 8)))
    begin(proxy, frames, "m2")
    send_samples(proxy, frames, "m2", range(99), 70)
    assert counts_in(proxy.cut(71 * S)) == [("m2", 60, 6, 0)]


def test_gaps_are_missing(frames):
    proxy = sampling(frames, ("m1", 7))
    begin(proxy, frames, "m1")
    send_samples(proxy, frames, "m1", {2, 3, 6, 7, 8}, 70)
    assert counts_in(proxy.cut(71 * S)) == [("m1", 60, 6, 2)]


def test_samples_of_a_silent_mote_are_missing_once_the_watermark_moves_on(frames):
    proxy = sampling(frames, ("m1", 7), ("m2", 8))
    begin(proxy, frames, "m1", "m2")
    send_samples(proxy, frames, "m1", range(5), 130)
    send_samples(proxy, frames, "m2", range(99), 130)
    assert counts_in(proxy.cut(131 * S)) == [], "it holds the watermark"
    proxy.time_passed(135 * S)
    assert sorted(counts_in(proxy.cut(135 * S))) == [
        ("m1", 60, 6, 3), ("m1", 120, 6, 6), ("m2", 60, 6, 0), ("m2", 120, 6, 0),
    ]  # fmt: skip
    send_samples(proxy, frames, "m2", range(15, 99), 190)
    assert sorted(counts_in(proxy.cut(191 * S))) == [("m1", 180, 6, 6), ("m2", 180, 6, 0)]


def test_mote_that_never_begins_is_due_since_the_others_are(frames):
    """The watermark waits for it as long as `patience` allows."""
    proxy = sampling(frames, ("m1", 7), ("m2", 8))
    begin(proxy, frames, "m1")
    send_samples(proxy, frames, "m1", range(99), 70)
    receive(proxy, frames.packet(0, mote="m2", clock=S, low_watermark=S), 1)
    assert counts_in(proxy.cut(71 * S)) == [], "it holds the watermark"
    proxy.time_passed(80 * S)
    assert sorted(counts_in(proxy.cut(80 * S))) == [("m1", 60, 6, 0), ("m2", 60, 5, 5)]


def test_mote_without_packets_is_missing_and_has_no_position(frames):
    proxy = sampling(frames, ("m1", 7), ("m2", 8))
    begin(proxy, frames, "m1")
    send_samples(proxy, frames, "m1", range(99), 70)
    proxy.time_passed(80 * S)
    (batch,) = proxy.cut(80 * S)
    assert sorted(counts_in([batch])) == [("m1", 60, 6, 0), ("m2", 60, 6, 6)]
    assert set(batch.positions) == {"m1"}


def restarted(frames, position, losses=None, demanded=None):
    proxy = sampling(
        frames, demanded=demanded, programs=[SPEED], positions={"m1": position}, losses=losses,
        streams=[StreamProgress("traffic", 5, 20 * S, sampling=True)],
    )  # fmt: skip
    proxy.restore([frames.announcement("m1")])
    return proxy


def test_after_a_restart_counts_begin_with_the_watermark(frames):
    proxy = restarted(frames, MotePosition("m1", 1, 4, 21 * S))
    send_samples(proxy, frames, "m1", range(5, 99), 70)
    assert counts_in(proxy.cut(71 * S)) == [("m1", 60, 4, 0)], "nothing is known of samples before"


def test_packets_lost_during_a_restart_are_missing(frames):
    proxy = restarted(frames, MotePosition("m1", 1, 3, 11 * S))
    send_samples(proxy, frames, "m1", range(6, 99), 70)
    assert counts_in(proxy.cut(71 * S)) == [("m1", 60, 4, 2)]


def test_losses_that_were_not_counted_before_a_restart_are_missing_after_it(frames):
    proxy = sampling(frames, ("m1", 7))
    begin(proxy, frames, "m1")
    assert proxy.new_losses() == {"m1": 0}, "what it took before is not known"
    send_samples(proxy, frames, "m1", {2, 3, 6}, 50)
    losses = proxy.new_losses()
    assert losses == {"m1": 50 * S}
    assert proxy.new_losses() == {}, "it has not changed"
    again = restarted(frames, MotePosition("m1", 1, 6, 41 * S), losses)
    assert again.new_losses() == losses, "nothing of it has been counted"
    send_samples(again, frames, "m1", range(7, 99), 70)
    assert counts_in(again.cut(71 * S)) == [("m1", 60, 6, 5)], "all from the pane's beginning to the loss"


def test_a_pane_that_a_restart_cuts_is_counted_whole(frames):
    """Also where the watermark passed a silent mote just before: seed 940 of the simulation."""
    proxy = sampling(frames, ("m1", 7), limits=FleetLimits(tracking=TrackingLimits(silence_after_us=25 * S)))
    begin(proxy, frames, "m1")
    send_samples(proxy, frames, "m1", range(99), 10)
    assert proxy.new_losses() == {"m1": 0}
    again = restarted(frames, MotePosition("m1", 1, 4, 21 * S), {"m1": 0})
    send_samples(again, frames, "m1", range(5, 99), 70)
    assert counts_in(again.cut(71 * S)) == [("m1", 60, 6, 0)], (
        "nothing was lost, nor is the mote's first part forgotten"
    )
    proxy.time_passed(40 * S)
    losses = proxy.new_losses()
    assert losses == {"m1": NEVER_US}, "it is silent"
    proxy.receive_announcement(
        frames.announcement("m1", properties={"segment": 7}), radio_us=41 * S, received_us=41 * S
    )
    assert not proxy.motes["m1"].silent
    assert proxy.new_losses() == {}, "the watermark may have passed it"
    again = restarted(frames, MotePosition("m1", 1, 4, 21 * S), losses)
    send_samples(again, frames, "m1", range(5, 99), 70)
    assert counts_in(again.cut(71 * S)) == [("m1", 60, 6, 3)], "those before the first packet"
    send_samples(proxy, frames, "m1", range(2, 99), 50)
    assert proxy.new_losses()["m1"] < 50 * S, "it is back"


def test_a_mote_that_has_not_begun_before_a_restart_has_taken_nothing(frames):
    """Though the others were waited for no longer, so that its samples count: seed 4 of the simulation."""
    proxy = sampling(frames, ("m1", 7), ("m2", 8))
    begin(proxy, frames, "m2")
    send_samples(proxy, frames, "m2", range(99), 30)
    receive(proxy, frames.packet(0, mote="m1", clock=S, low_watermark=S), 1)
    proxy.time_passed(20 * S)
    proxy.cut(20 * S)
    losses = proxy.new_losses()
    assert losses["m1"] == NEVER_US
    again = restarted(frames, MotePosition("m1", 1, 0, S), losses)
    receive(again, frames.packet(1, mote="m1", clock=32 * S, low_watermark=32 * S), 32)
    assert again.new_losses()["m1"] == NEVER_US, "it has still not begun"
    receive(again, frames.packet(2, mote="m1", clock=44 * S, low_watermark=50 * S, program=NUMBER), 44)
    send_samples(again, frames, "m1", range(7, 99), 70)
    assert counts_in(again.cut(71 * S)) == [("m1", 60, 6, 5)]


def test_a_query_whose_samples_are_not_taken_yet_misses_them_after_a_restart(frames):
    """Though the mote takes those of another query: what both have missed is kept as one instant."""
    finer = QueryDemand("r", ("speed",), 5 * S, completeness=CompletenessDemand("fine", 60 * S))
    proxy = sampling(frames, ("m1", 7))
    begin(proxy, frames, "m1")
    send_samples(proxy, frames, "m1", range(5), 30)
    both = StreamDemand(VERSION, "c", "traffic", 2, (*demand().demands, finer))
    proxy.receive_demand("traffic", both, radio_us=30 * S)
    losses = proxy.new_losses()
    assert losses == {"m1": NEVER_US}, "the proxy ends here"
    again = restarted(frames, MotePosition("m1", 1, 4, 21 * S), losses, both)
    send_samples(again, frames, "m1", range(5, 99), 70)
    assert sorted(counts_in(again.cut(71 * S))) == [("m1", 60, 6, 3), ("m1", 60, 9, 6)]


def test_samples_of_a_wrong_clock_are_missing_after_a_restart_however_long_it_goes_on(frames):
    tracking = TrackingLimits(silence_after_us=100 * S, clock=ClockBounds(20 * S, 100 * S))
    proxy = sampling(frames, ("m1", 7), limits=FleetLimits(tracking=tracking))
    begin(proxy, frames, "m1")
    clock = -10_000 * S
    receive(proxy, frames.packet(2, (clock, 1.0), mote="m1", clock=clock, low_watermark=clock, program=NUMBER), 1)
    assert proxy.new_losses() == {"m1": NEVER_US}


def test_samples_are_counted_from_the_demand_on(frames):
    proxy = sampling(frames, ("m1", 7), demanded=frames.demand(("a", ["speed"], None)))
    begin(proxy, frames, "m1")
    send_samples(proxy, frames, "m1", range(99), 30)
    proxy.cut(31 * S)
    proxy.receive_demand("traffic", demand(), radio_us=31 * S)
    send_samples(proxy, frames, "m1", range(5, 99), 70)
    assert counts_in(proxy.cut(71 * S)) == [("m1", 60, 3, 0)]
    proxy.receive_demand("traffic", frames.demand(("a", ["speed"], None)), radio_us=31 * S)
    send_samples(proxy, frames, "m1", range(9, 99), 190)
    assert counts_in(proxy.cut(191 * S)) == []


def test_fingerprints_are_counted_separately(frames):
    fine, coarse = demand(pane=30 * S, fingerprint="fine"), demand(fingerprint="coarse")
    proxy = sampling(
        frames, ("m1", 7), demanded=StreamDemand(VERSION, "c", "traffic", 1, fine.demands + coarse.demands)
    )
    begin(proxy, frames, "m1")
    send_samples(proxy, frames, "m1", {2, 3, 5, 6, 7, 8}, 70)
    assert sorted(counts_in(proxy.cut(71 * S))) == [("m1", 30, 3, 1), ("m1", 60, 3, 0), ("m1", 60, 6, 1)]


def test_samples_that_a_wrong_clock_stamped_are_missing(frames):
    #  m1    0   10   1970  1970   40   50 ...
    tracking = TrackingLimits(silence_after_us=100 * S, clock=ClockBounds(20 * S, 100 * S))
    proxy = sampling(frames, ("m1", 7), ("m2", 8), limits=FleetLimits(tracking=tracking))
    begin(proxy, frames, "m1", "m2")
    send_samples(proxy, frames, "m2", range(99), 20)
    send_samples(proxy, frames, "m1", range(99), 20)
    for number, at in ((4, 20), (5, 30)):
        clock = (at - 10_000) * S
        wrong = frames.packet(
            number, (clock, 1.0), mote="m1", clock=clock, low_watermark=clock + 10 * S, program=NUMBER
        )
        receive(proxy, wrong, at + 1)
    send_samples(proxy, frames, "m2", range(4, 99), 130)
    send_samples(proxy, frames, "m1", range(6, 99), 130)
    counts = sorted(counts_in(proxy.cut(131 * S)))
    assert counts == [("m1", 60, 6, 2), ("m1", 120, 6, 0), ("m2", 60, 6, 0), ("m2", 120, 6, 0)]


def test_rebooted_mote_without_a_bound_is_due_from_its_first_sample_on(frames):
    #  boot       1        2
    #  sequence   0   (2 lost)  2         what is before its first sample was never due
    proxy = sampling(frames, ("m1", 7), demanded=frames.demand(("q", ["speed"], None)))
    receive(proxy, frames.packet(0, mote="m1", clock=-S, low_watermark=0), -1)
    proxy.receive_demand("traffic", demand(), radio_us=0)
    for number in (2, 3, 4, 5, 6, 7):
        at = number * 10
        packet = frames.packet(number, (at * S, 1.0), boot=2, clock=at * S, low_watermark=(at + 10) * S, program=NUMBER)
        receive(proxy, packet, at)
    assert counts_in(proxy.cut(0)) == [("m1", 60, 4, 0)]


def test_announced_absence_is_not_due_whatever_the_mote_sends_next(frames):
    #  watermarks   0 .. 50    10, 20    70                       nothing is due before 70
    #  samples               10, 20            70, 80 ...
    for listens in (0, 9):
        proxy = sampling(frames, ("m1", 7))
        begin(proxy, frames, "m1")
        for number, (at, low_watermark) in enumerate([(0, 10), (10, 70), (70, 80), (80, 90), (90, 120)]):
            packet = frames.packet(
                number + 2,
                (at * S, 1.0),
                clock=(at + 1) * S,
                low_watermark=low_watermark * S,
                listen=listens,
                program=NUMBER,
            )
            receive(proxy, packet, at + 1)
        assert counts_in(proxy.cut(0)) == [("m1", 60, 2, 0), ("m1", 120, 3, 0)]


def test_a_cut_has_few_counts_however_many_demands_count_the_same_samples(frames, monkeypatch):
    monkeypatch.setattr(fleet, "MOST_COUNTS", 12)
    queries = tuple(
        QueryDemand(f"q{number}", ("speed",), None, completeness=CompletenessDemand(f"c{number}", 10 * S))
        for number in range(3)
    )
    proxy = sampling(frames, ("m1", 7), ("m2", 8), demanded=StreamDemand(VERSION, "c", "traffic", 1, queries))
    begin(proxy, frames, "m1", "m2")
    send_samples(proxy, frames, "m1", range(99), 130)
    send_samples(proxy, frames, "m2", range(99), 130)
    assert 0 < len(counts_in(proxy.cut(131 * S))) <= 12
