"""In how many periods a driven device was due to publish, and in which there is none. Instants are small numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocols.acquisition.needs import Need, NeedKind
from protocols.wire.batches import NO_NEIGHBOUR_US
from protocols.wire.packets import Packet
from protocols.wire.programs import SamplingProgram, SendOnChange
from proxy.counting.published_account import PublishedAccount
from proxy.counting.sample_account import NEVER_US, Coverage, ReceivedPacket
from proxy.records.waiting_tuples import LOWEST_US

NEED = Need(NeedKind.SAMPLES, ("t",), 10)
PANE = 100


def packet(promise):
    return Packet(1, "m", 1, 0, promise, promise, 0, 1, ())


def begun(since=0, every=10, pane=PANE):
    account = PublishedAccount(NEED, "", pane, every_us=every)
    account.packet_received(ReceivedPacket(packet(since), None, since), Coverage(0, every))
    return account


def counts(account, until, most=99):
    return [tuple(each) for each in account.counts_until(until, until, until, most)]


def test_a_period_without_a_tuple_is_missing_and_one_with_several_is_there_once():
    account = begun()
    account.accepted([3, 5, 9, 17, 45, 99], None)
    assert counts(account, 99) == []
    assert counts(account, 100) == [(100, 10, 6)]
    assert counts(account, 199) == []


def test_a_period_counts_in_the_pane_in_which_it_ends():
    """
    periods  0 . . . 30 . . . 60 . . . 90 . . . 120
    panes    0 . . . . . . . . . . . . . . 100
    """
    account = begun(every=30)
    account.accepted([1, 31, 61], None)
    assert counts(account, 100) == [(100, 3, 0)], "nothing is missing of a period that is not over"
    account.accepted([119], 100)
    assert counts(account, 200) == [(200, 3, 2)]


def test_what_a_program_sends_that_does_not_cover_the_need_does_not_count():
    account = begun()
    account.packet_received(ReceivedPacket(packet(50), 50, 50), None)
    account.accepted(range(50, 70), None)
    account.packet_received(ReceivedPacket(packet(70), 70, 70), Coverage(0, 10))
    account.accepted(range(70, 100), None)
    assert counts(account, 100) == [(100, 10, 7)]


def test_a_slower_program_is_due_less_often():
    account = begun()
    account.accepted(range(40), None)
    account.packet_received(ReceivedPacket(packet(43), 43, 43), Coverage(0, 20))
    account.accepted([45, 60, 80], None)
    # Four periods of 10, and those of 20 from 60 on: that from 40 to 60 had begun under another program.
    assert counts(account, 100) == [(100, 6, 0)]


def test_a_dropped_tuple_is_missing_unless_its_period_has_another():
    account = begun()
    account.accepted([3, 5, 17, 25], None)
    for at in (3, 17):
        account.lose(at, at + 1)
    assert counts(account, 100) == [(100, 10, 8)]


def test_a_dropped_event_takes_the_periods_that_it_spans():
    account = begun()
    account.accepted(range(0, 100, 5), None)
    account.lose(12, 35)
    assert counts(account, 100) == [(100, 10, 3)]


def test_the_period_of_a_configured_device_is_that_of_its_program_and_the_demand():
    account = PublishedAccount(NEED, "", PANE)
    assert account.covered_by(SamplingProgram(("t",), 5)).grid_us == 10
    assert account.covered_by(SamplingProgram(("t",), 15)).grid_us == 30
    assert account.covered_by(SamplingProgram(("other",), 5)) is None
    assert account.covered_by(SamplingProgram(("t",), 10, report=SendOnChange((), 60))).grid_us == 10


def test_an_account_knows_until_when_periods_are_missing():
    account = begun()
    assert account.lost_until_us == 0
    account.accepted([5, 15, 35], None)
    account.packet_received(ReceivedPacket(packet(35), 0, 0), Coverage(0, 10))
    assert account.lost_until_us == 30, "nothing came from 20 to 30; what ends at 40 may still come"
    account.packet_received(ReceivedPacket(packet(60), 35, 35), Coverage(0, 10))
    assert account.lost_until_us == 60


def test_counts_of_one_cut_are_bounded():
    account = begun()
    assert len(counts(account, 10_000, most=3)) == 3
    assert counts(account, 10_100) == [(10_100, 10, 10)]


periods = st.sampled_from([1, 3, 7, 10, 15, 40])


@given(st.data(), periods, st.sampled_from([10, 25, 40]), st.integers(-30, 30))
def test_counts_are_those_of_all_tuples_looked_at_together(data, every, pane, since):
    """Tuples in any order, cuts and restarts anywhere; nothing is accepted from before the watermark."""
    account, watermark, stored, found = begun(since, every, pane), since, [], []
    for _ in range(data.draw(st.integers(1, 8))):
        new = data.draw(st.lists(st.integers(watermark, watermark + 60), max_size=12))
        account.accepted(new, watermark)
        stored += new
        watermark += data.draw(st.integers(0, 70))
        account.packet_received(ReceivedPacket(packet(watermark), watermark, watermark), Coverage(0, every))
        found += counts(account, watermark)
        if data.draw(st.integers(0, 3)) == 0:
            lost = account.lost_until_us
            behind = max((each for each in stored if each < watermark), default=NO_NEIGHBOUR_US)
            kept = (behind, *sorted({each for each in stored if each >= watermark}))
            cut = watermark // pane * pane
            if cut >= since and lost <= cut // every * every:
                account = PublishedAccount(NEED, "", pane, every_us=every)
                account.resume(watermark, lost, every, kept)
    expected = []
    for end in range(since // pane * pane + pane, watermark + 1, pane):
        due = [k for k in range(since // every - 1, end // every + 1) if k * every >= since]
        due = [k for k in due if end - pane < (k + 1) * every <= end]
        missing = [k for k in due if not any(each // every == k for each in stored)]
        if due:
            expected.append((end, len(due), len(missing)))
    assert found == expected


def test_after_a_restart_a_pane_is_counted_whole():
    account = PublishedAccount(NEED, "", PANE, every_us=10)
    account.resume(165, 120, 10, (158, 171))
    account.accepted(range(180, 200), 165)
    # Missing: from 100 to 120 as before, and that from 160 to 170, of which the stamps before 165 are known.
    assert counts(account, 200) == [(200, 10, 3)]


def test_a_period_of_which_there_were_tuples_before_and_after_a_restart_is_there_once():
    account = PublishedAccount(NEED, "", PANE, every_us=10)
    account.resume(165, 100, 10, (161, 185))
    account.accepted([167, 172, 188], 165)
    assert counts(account, 200) == [(200, 10, 1)]


def test_after_a_silent_end_only_what_is_known_to_be_stored_is_there():
    account = PublishedAccount(NEED, "", PANE, every_us=10)
    account.resume(150, NEVER_US, 10, (145,))
    assert counts(account, 200) == [(200, 10, 9)]
    fresh = PublishedAccount(NEED, "", PANE, every_us=10)
    fresh.resume(150, LOWEST_US, 10, (145,))
    assert counts(fresh, 200) == [(200, 5, 5)], "no query had demanded counts"
