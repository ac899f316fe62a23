"""What became of the samples of one mote, packet by packet. Instants are in microseconds, samples every 10."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.acquisition.needs import Need, NeedKind
from protocols.wire.packets import Packet, Partial, Sample
from protocols.wire.programs import Band, Measure, Panes, ProgramReport, SamplingProgram, SendOnChange, Several
from proxy.counting.sample_account import (
    NEVER_US,
    Coverage,
    PaneCount,
    ReceivedPacket,
    SampleAccount,
    coverage_of,
    multiples_in,
    united,
    within,
    without,
)
from proxy.records.waiting_tuples import LOWEST_US

NEED = Need(NeedKind.SAMPLES, ("speed",), 10)
EVERY, CHANGES, PANES = Coverage(0, 10), Coverage(0, 10, 0, fills=True), Coverage(0, 10, 50)
PANE = 100


def packet(clock, low_watermark, *reported, pane=0):
    """Samples at instants; or, with the width of a pane, panes that end there."""
    records = tuple(Partial(clock - each + 1, pane, ()) if pane else Sample(clock - each, (1.0,)) for each in reported)
    return Packet(1, "m", 1, 0, clock, low_watermark, 0, 1, records)


def received(found, before, clock_before, **options):
    return ReceivedPacket(found, before, clock_before, **options)


def begun(coverage, at=0):
    """An account of a mote that takes up a program, and guarantees to sample from an instant on."""
    account = SampleAccount(NEED, "", PANE)
    account.packet_received(received(packet(at - 5, at), at - 10, at - 15, changed=True), coverage)
    return account


def counts(account, until, low_watermark, clock=None, most=99) -> list[PaneCount]:
    return list(account.counts_until(until, low_watermark, low_watermark - 5 if clock is None else clock, most))


@pytest.mark.parametrize("coverage", [EVERY, CHANGES, PANES])
def test_packets_in_sequence_need_not_be_entered(coverage):
    assert counts(begun(coverage), 250, 250) == [(100, 10, 0), (200, 10, 0)]


def test_each_pane_is_counted_once():
    account = begun(EVERY)
    assert counts(account, 99, 99) == []
    assert counts(account, 100, 100) == [(100, 10, 0)]
    assert counts(account, 199, 250) == []
    assert counts(account, 200, 250) == [(200, 10, 0)]


def test_mote_is_due_from_its_first_sample():
    assert counts(begun(EVERY, 70), 200, 200) == [(100, 3, 0), (200, 10, 0)]


def test_lost_packets_are_missing_up_to_the_next_sample():
    account = begun(EVERY)
    account.packet_received(received(packet(85, 90, 70, 80), 40, 35, gap=True), EVERY)
    assert counts(account, 100, 100) == [(100, 10, 3)]


def test_a_lost_packet_without_samples_is_not_missing():
    account = begun(EVERY)
    account.packet_received(received(packet(45, 50, 40), 40, 35, gap=True), EVERY)
    assert counts(account, 100, 100) == [(100, 10, 0)]


def test_after_a_packet_without_samples_all_before_its_low_watermark_is_missing():
    account = begun(EVERY)
    account.packet_received(received(packet(85, 90), 40, 35, gap=True), EVERY)
    assert counts(account, 100, 100) == [(100, 10, 5)]


def test_mote_that_sends_changes_is_not_known_until_it_sends_again():
    account = begun(CHANGES)
    account.packet_received(received(packet(45, 50), 20, 15, gap=True), CHANGES)
    account.packet_received(received(packet(105, 110), 50, 45), CHANGES)
    assert counts(account, 100, 110) == [(100, 10, 8)]
    account.packet_received(received(packet(155, 160, 130, 150), 110, 105), CHANGES)
    assert counts(account, 200, 200) == [(200, 10, 3)]


def test_panes_that_were_over_and_did_not_come_are_missing():
    """A pane that was open when the packet got lost, is still to come."""
    account = begun(PANES)
    account.packet_received(received(packet(125, 130), 20, 15, gap=True), PANES)
    assert counts(account, 200, 200) == [(100, 10, 10), (200, 10, 0)]


def test_panes_that_come_late_are_there():
    account = begun(PANES)
    account.packet_received(received(packet(125, 99), 20, 15, gap=True), PANES)
    account.packet_received(received(packet(135, 140, 100, pane=50), 99, 125), PANES)
    assert counts(account, 200, 200) == [(100, 10, 5), (200, 10, 0)]


def test_silent_mote_misses_all_since_its_low_watermark_and_its_open_pane():
    assert counts(begun(EVERY), 300, 170) == [(100, 10, 0), (200, 10, 3), (300, 10, 10)]
    assert counts(begun(PANES), 300, 170) == [(100, 10, 0), (200, 10, 5), (300, 10, 10)]


@pytest.mark.parametrize(("coverage", "missing"), [(EVERY, 7), (CHANGES, 7), (PANES, 5)])
def test_samples_that_are_late_when_a_mote_begins_are_missing(coverage, missing):
    """Others were waited for no longer: the stream's watermark is beyond the first samples that it sends."""
    account = SampleAccount(NEED, "", PANE)
    account.begin(0, 10)
    first = packet(110, 110, 50, 100, pane=50) if coverage.pane_us else packet(105, 110, 50, 60, 70, 80, 90, 100)
    account.packet_received(received(first, None, 0, changed=True, gap=True, watermark_us=70), coverage)
    assert counts(account, 100, 110) == [(100, 10, missing)]


def test_late_samples_of_a_new_program_are_missing():
    account = begun(EVERY)
    account.packet_received(received(packet(45, 50, 20, 30, 40), 20, 15), EVERY)
    account.packet_received(received(packet(85, 90, 50, 60, 70, 80), 50, 45, changed=True, watermark_us=65), EVERY)
    assert counts(account, 100, 100) == [(100, 10, 2)]


def test_samples_kept_during_silence_are_late():
    account = begun(EVERY)
    counts(account, 200, 40)
    account.packet_received(received(packet(285, 290, 250, 260, 270, 280), 40, 35, watermark_us=260), EVERY)
    assert counts(account, 300, 300) == [(300, 10, 6)]


def test_reboot_loses_samples_after_the_low_watermark():
    account = begun(EVERY)
    account.stop(50)
    account.packet_received(received(packet(5, 5), None, 0, changed=True), None)
    account.packet_received(received(packet(125, 130), 5, 5, changed=True), EVERY)
    assert counts(account, 200, 200) == [(100, 10, 5), (200, 10, 3)]


def test_rebooted_mote_that_sleeps_is_missing():
    account = begun(EVERY)
    account.stop(50)
    assert counts(account, 200, None, clock=0) == [(100, 10, 5), (200, 10, 10)]


def test_program_that_follows_another_leaves_nothing_out():
    account = begun(EVERY)
    account.packet_received(received(packet(55, 60), 40, 35, changed=True), PANES)
    assert counts(account, 100, 100) == [(100, 10, 0)]


def test_unsent_changes_are_lost_with_the_end_of_their_program():
    account = begun(CHANGES)
    account.packet_received(received(packet(65, 70), 40, 35, changed=True), EVERY)
    assert counts(account, 100, 100) == [(100, 10, 3)]


def test_slower_program_is_due_less_often():
    account = begun(EVERY)
    account.packet_received(received(packet(55, 60), 50, 45, changed=True), Coverage(0, 20))
    assert counts(account, 200, 200) == [(100, 6 + 2, 0), (200, 5, 0)]


def test_unread_packet_is_a_lost_one():
    account = begun(EVERY)
    account.packet_received(received(packet(85, 90, 70, 80), 40, 35, read=False), EVERY)
    assert counts(account, 100, 100) == [(100, 10, 5)]


def test_tuples_given_up_are_missing():
    account = begun(EVERY)
    account.lose(20, 21)
    account.lose(20, 21)
    account.lose(35, 36)
    assert counts(account, 100, 100) == [(100, 10, 1)]


def test_mote_that_announces_absence_is_not_due():
    assert counts(begun(EVERY), 500, 450, clock=125) == [(100, 10, 0), (200, 3, 0), (500, 5, 5)]


def test_mote_without_packets_since_the_restart_is_due_from_the_watermark():
    account = SampleAccount(NEED, "", PANE)
    account.begin(50, 10)
    account.packet_received(received(packet(125, 130, 110, 120), None, 0, changed=True, resumed=True), EVERY)
    assert counts(account, 200, 200) == [(100, 5, 0), (200, 10, 0)]


def test_packets_lost_during_the_restart_are_missing():
    account = SampleAccount(NEED, "", PANE)
    account.begin(50, 10)
    account.packet_received(received(packet(125, 130, 110, 120), None, 0, changed=True, resumed=True, gap=True), EVERY)
    assert counts(account, 200, 200) == [(100, 5, 5), (200, 10, 1)]


def test_what_was_missing_before_a_restart_is_missing_after_it():
    """Which samples they were is forgotten: all from the watermark on, until when some were."""
    for lost_until, missing in ((LOWEST_US, 0), (50, 0), (80, 3), (NEVER_US, 5)):
        account = SampleAccount(NEED, "", PANE)
        account.begin(50, 10)
        first = received(packet(125, 130, 110, 120), None, 0, changed=True, resumed=True, lost_until_us=lost_until)
        account.packet_received(first, EVERY)
        assert counts(account, 100, 200) == [(100, 5, missing)], lost_until
        assert account.lost_until_us == (min(lost_until, 110) if missing else 50), "for the next restart"


def test_an_account_knows_until_when_samples_are_missing():
    account = begun(EVERY)
    assert account.lost_until_us == 0, "what was taken before it began is not known"
    account.lose(20, 21)
    assert account.lost_until_us == 21
    account.packet_received(received(packet(85, 90, 70, 80), 40, 35, gap=True), EVERY)
    assert account.lost_until_us == 90
    counts(account, 200, 200)
    assert account.lost_until_us == 90, "what has been counted may not be on disk"
    account.stop(90)
    assert account.lost_until_us == NEVER_US, "until it takes samples again"
    account.packet_received(received(packet(245, 250, 240), None, 0, changed=True), EVERY)
    assert account.lost_until_us == 240
    account.packet_received(received(packet(265, 270), 250, 245, changed=True), None)
    assert account.lost_until_us == NEVER_US
    assert SampleAccount(NEED, "", PANE).lost_until_us == LOWEST_US


def test_samples_before_an_account_began_are_missing_after_a_restart():
    """It begins with the watermark, though the first packet came later: seed 317 of the simulation."""
    account = SampleAccount(NEED, "", PANE)
    account.packet_received(received(packet(125, 130, 110, 120), None, 0, changed=True), EVERY)
    assert account.lost_until_us == 110
    again = SampleAccount(NEED, "", PANE)
    again.resume(80, 110, 10)
    first = received(packet(145, 150, 130, 140), None, 125, changed=True, resumed=True, lost_until_us=110)
    again.packet_received(first, EVERY)
    assert counts(again, 200, 200) == [(100, 10, 10), (200, 10, 1)]


@pytest.mark.parametrize(
    ("lost_until", "whole", "missing", "kept"),
    [(LOWEST_US, False, 0, 80), (0, True, 0, 0), (40, True, 4, 40), (80, True, 8, 80), (NEVER_US, True, 10, 110)],
)
@pytest.mark.parametrize("gap", [True, False])
def test_a_pane_that_a_restart_cuts_is_counted_from_its_beginning(lost_until, whole, missing, kept, gap):
    """If anything is known of samples before the watermark: those that are not missing had arrived."""
    account = SampleAccount(NEED, "", PANE)
    account.resume(80, lost_until, 10)
    assert account.lost_until_us == min(kept, 80)
    first = received(packet(125, 130, 110, 120), None, 0, changed=True, resumed=True, gap=gap, lost_until_us=lost_until)
    account.packet_received(first, EVERY)
    assert account.lost_until_us == (110 if gap else kept)
    lost = missing if not gap or missing == 10 else missing + 2
    assert counts(account, 100, 200) == [(100, 10 if whole else 2, lost)]


def test_samples_of_a_mote_that_does_not_take_them_are_missing_after_a_restart():
    """It is due with the others, but none of its programs covers the need: seed 4 of the simulation."""
    account = SampleAccount(NEED, "", PANE)
    account.begin(50, 10)
    assert account.lost_until_us == NEVER_US, "until it takes samples"
    again = SampleAccount(NEED, "", PANE)
    again.resume(80, 50, 10)
    idle = received(packet(75, 75), None, 65, changed=True, resumed=True, lost_until_us=50)
    again.packet_received(idle, None)
    assert again.lost_until_us == NEVER_US, "it still does not"
    again.packet_received(received(packet(125, 130, 110, 120), 75, 75, changed=True), EVERY)
    assert again.lost_until_us == 110


def test_late_samples_are_missing_after_a_restart_too():
    account = begun(EVERY)
    account.packet_received(received(packet(85, 90, 70, 80), 40, 35, watermark_us=75), EVERY)
    assert account.lost_until_us == 75


def test_after_a_lost_acknowledgement_samples_are_due_from_the_bound_sent():
    account = SampleAccount(NEED, "", PANE)
    account.packet_received(received(packet(85, 90, 70, 80), 20, 15, changed=True, gap=True, not_before_us=40), EVERY)
    assert counts(account, 100, 100) == [(100, 6, 3)]


def test_counts_of_one_cut_are_bounded():
    account = begun(EVERY)
    assert counts(account, 100_000, 100_000, most=2) == [(100, 10, 0), (200, 10, 0)]
    assert counts(account, 100_100, 100_100) == [(100_100, 10, 0)]


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(1, 4))
def test_of_samples_sent_one_by_one_just_those_lost_are_missing(arrives: list[bool], most: int):
    """Packets of up to `most` samples; the last one arrives."""
    account, before, clock_before, gap, missing = begun(EVERY), 0, -5, False, set()
    at = 0
    for number, arrived in enumerate([*arrives, True]):
        stamps = [at + 10 * each for each in range(1 + number % most)]
        at = stamps[-1] + 10
        if not arrived:
            gap = True
            missing.update(stamps)
            continue
        account.packet_received(received(packet(at - 5, at, *stamps), before, clock_before, gap=gap), EVERY)
        before, clock_before, gap = at, at - 5, False
    found = {end: (expected, lost) for end, expected, lost in counts(account, at, at, clock=at - 5)}
    assert found == {end: (10, sum(end - PANE <= each < end for each in missing)) for end in range(PANE, at + 1, PANE)}


def test_need_is_covered_by_the_part_that_reports_it():
    panes = ProgramReport(("speed",), 10, (), Panes(50, (Measure.COUNT, Measure.SUM)))
    slow = ProgramReport(("speed",), 10, (Band("speed", None, 20.0),))
    changes = ProgramReport(("speed",), 20, (), SendOnChange((), 100))
    program = SamplingProgram(("speed",), 10, report=Several((slow, changes, panes)))
    mean = Need(NeedKind.PANES, ("speed",), 10, pane_us=100, measures=(Measure.COUNT, Measure.SUM))
    assert coverage_of(program, mean) == Coverage(2, 10, 50)
    assert coverage_of(program, Need(NeedKind.SAMPLES, ("speed",), 20)) == Coverage(1, 20, 0, fills=True)
    jams = Need(NeedKind.SAMPLES, ("speed",), 10, (("speed", ((-5.0, 10.0),)),))
    assert coverage_of(program, jams) == Coverage(0, 10)
    assert coverage_of(program, Need(NeedKind.SAMPLES, ("flow",), 10)) is None
    assert coverage_of(SamplingProgram(), mean) is None


def test_slower_sensor_covers_a_coarser_grid():
    program = SamplingProgram(("speed",), 40)
    assert coverage_of(program, NEED) == Coverage(0, 40)


spans = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=6)


def instants(found: Iterable[tuple[int, int]]) -> set[int]:
    return {at for begin, end in found for at in range(begin, end)}


@given(spans, spans, st.tuples(st.integers(0, 50), st.integers(0, 50)), st.integers(1, 7))
def test_spans_are_sets_of_instants(some, removed, bounds, period):
    disjoint = united(some)
    assert instants(disjoint) == instants(some)
    assert sum(end - begin for begin, end in disjoint) == len(instants(some))
    assert instants(within(disjoint, bounds)) == instants(some) & instants([bounds])
    assert instants(without(disjoint, removed)) == instants(some) - instants(removed)
    assert multiples_in(disjoint, period) == sum(at % period == 0 for at in instants(some))
