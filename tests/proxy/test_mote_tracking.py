"""Tables of events and instructions. Radio time is in microseconds and starts at 0."""

from __future__ import annotations

import pytest

from protocols.wire.catalog import MoteState
from protocols.wire.packets import AnsweringControl, RunProgram, SendAnnouncement
from protocols.wire.programs import (
    SLEEP,
    DeadBand,
    SamplingProgram,
    SendOnChange,
    Threshold,
    VehicleEvents,
    program_number,
)
from proxy.motes.mote_clock import ClockBounds
from proxy.motes.mote_events import (
    AnnouncementReceived,
    AnnouncementRejected,
    ClockRight,
    ClockWrong,
    DemandChanged,
    PacketReceived,
    PacketsLost,
    ProgramNotTakenUp,
    PublishEntry,
    Rebooted,
    Rejected,
    SendControl,
    SilenceEnded,
    TimePassed,
    TuplesAccepted,
    WentSilent,
)
from proxy.motes.mote_presence import TrackingLimits
from proxy.motes.mote_tracking import MoteTracking
from proxy.motes.packet_numbers import MOST_AT_ONCE
from proxy.records.program_routes import ProgramTable
from proxy.records.waiting_tuples import MotePosition, MoteWatermark

S = 1_000_000
DAY = 86_400 * S
FAST = SamplingProgram(("speed",), S)
SLOW = SamplingProgram(("flow", "speed"), 5 * S)
FAST_NUMBER, SLOW_NUMBER = program_number(FAST), program_number(SLOW)
WINDOW = 50_000


def tracking(*programs, position=None, sealed=False, **limits):
    return MoteTracking(
        "m1",
        proxy="p",
        programs=ProgramTable(programs),
        limits=TrackingLimits(**limits),
        started_us=0,
        position=position,
        sealed=sealed,
    )


def receive(mote, packet, *, radio=0, received=0, watermark=None):
    return [
        each
        for each in mote.handle(PacketReceived(packet, radio, received, watermark))
        if not isinstance(each, PublishEntry)
    ]


def announced(frames, *programs, desired=SLEEP, **options):
    mote = tracking(*programs, **options)
    mote.handle(AnnouncementReceived(frames.announcement(), 0, 0))
    mote.handle(DemandChanged(desired, 0))
    return mote


def controls(instructions):
    return [each.control.instructions[0] for each in instructions if isinstance(each, SendControl)]


def rejections(instructions):
    return [each.reason.value for each in instructions if isinstance(each, Rejected)]


def rows(instructions):
    return [(t.start_us, t.values) for each in instructions if isinstance(each, TuplesAccepted) for t in each.tuples]


def test_announcement_of_an_unknown_mote_is_requested_in_its_listen_window_only(frames):
    mote = tracking()
    assert receive(mote, frames.packet(0)) == []
    assert controls(receive(mote, frames.packet(1, listen=WINDOW))) == [SendAnnouncement()]


def test_announcement_of_a_rejected_mote_is_requested_again_after_a_reboot(frames):
    mote = tracking()
    mote.handle(AnnouncementRejected(1, 0))
    assert controls(receive(mote, frames.packet(0, listen=WINDOW))) == []
    assert controls(receive(mote, frames.packet(0, boot=2, listen=WINDOW))) == [SendAnnouncement()]


def test_program_goes_out_once_per_listen_window_until_it_is_acknowledged(frames):
    mote = announced(frames, desired=FAST)
    assert controls(receive(mote, frames.packet(0), watermark=30)) == []
    expected = RunProgram(FAST, 30)
    assert controls(receive(mote, frames.packet(1, listen=WINDOW), watermark=30)) == [expected]
    assert controls(receive(mote, frames.packet(2), watermark=30)) == []
    assert controls(receive(mote, frames.packet(3, listen=WINDOW), watermark=30)) == [expected]
    assert mote.state is MoteState.CHANGING
    assert controls(receive(mote, frames.packet(4, listen=WINDOW, program=FAST_NUMBER), watermark=30)) == []
    assert mote.state is MoteState.SAMPLING


def test_without_a_watermark_the_motes_own_low_watermark_is_its_first_instant(frames):
    mote = announced(frames, desired=FAST)
    assert controls(receive(mote, frames.packet(0, clock=77, listen=WINDOW))) == [RunProgram(FAST, 77)]


def test_no_demand_puts_it_to_sleep(frames):
    mote = announced(frames, desired=FAST)
    receive(mote, frames.packet(0, program=FAST_NUMBER))
    mote.handle(DemandChanged(SLEEP, 0))
    assert controls(receive(mote, frames.packet(1, program=FAST_NUMBER, listen=WINDOW), watermark=9)) == [
        RunProgram(SLEEP, 9)
    ]


def test_mote_that_never_acknowledges_is_reported_once(frames):
    mote = announced(frames, desired=FAST, attempts=3)
    reports = [
        sum(isinstance(each, ProgramNotTakenUp) for each in receive(mote, frames.packet(n, listen=WINDOW)))
        for n in range(8)
    ]
    assert reports == [0, 0, 0, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ((1, 1), []),
        ((1, 0), ["replayed"]),
        ((1, 4), [PacketsLost(3)]),
        ((2, 0), [Rebooted(2)]),
        ((2, 3), [Rebooted(2), PacketsLost(3)]),
        ((0, 9), ["replayed"]),
    ],
)
def test_packet_numbers_distinguish_replays_losses_and_reboots(frames, second, expected):
    mote = announced(frames)
    receive(mote, frames.packet(0))
    boot, sequence = second
    found = [
        each.reason.value if isinstance(each, Rejected) else each
        for each in receive(mote, frames.packet(sequence, boot=boot))
    ]
    assert found == expected


@pytest.mark.parametrize(
    ("sequence", "radio", "received", "lost", "reboots"),
    [
        (1, 0, 0, 0, 0),
        (1 + MOST_AT_ONCE, 0, 0, MOST_AT_ONCE, 0),
        (2 + MOST_AT_ONCE, 0, 0, 0, 1),
        (1 + MOST_AT_ONCE + 60_000, 60 * S, 60 * S, MOST_AT_ONCE + 60_000, 0),
        (1 + MOST_AT_ONCE + 60_000, 0, 60 * S, MOST_AT_ONCE + 60_000, 0),  # the machine was suspended
        (1 + MOST_AT_ONCE + 60_000, 60 * S, -DAY, MOST_AT_ONCE + 60_000, 0),  # its clock was set back
        (2 + MOST_AT_ONCE + 60_000, 60 * S, 60 * S, 0, 1),
        (2**62 - 1, 60 * S, 60 * S, 0, 1),
    ],
)
def test_a_gap_is_a_loss_as_far_as_the_mote_can_have_sent_so_many(frames, sequence, radio, received, lost, reboots):
    mote = announced(frames)
    receive(mote, frames.packet(0))
    found = receive(mote, frames.packet(sequence, clock=5), radio=radio, received=received)
    assert [each.count for each in found if isinstance(each, PacketsLost)] == ([lost] if lost else [])
    assert sum(isinstance(each, Rebooted) for each in found) == reboots
    assert mote.counters.packets_lost == lost
    receive(mote, frames.packet(sequence + 1, clock=6), radio=radio, received=received)
    assert mote.counters.packets_lost == lost, "numbers continue from there"


def test_a_new_boot_with_a_high_number_counts_no_losses(frames):
    mote = announced(frames)
    receive(mote, frames.packet(0))
    receive(mote, frames.packet(2**62 - 1, boot=2, clock=5))
    assert mote.counters.packets_lost == 0
    receive(mote, frames.packet(3, boot=3, clock=6))
    assert mote.counters.packets_lost == 3


@pytest.mark.parametrize(("clock", "lost"), [(DAY, 999_999), (0, 0), (2, 0)])
def test_over_a_restart_of_the_proxy_the_motes_clock_bounds_the_losses(frames, clock, lost):
    mote = announced(frames, position=MotePosition("m1", 1, 5, 1))
    receive(mote, frames.packet(5 + 1_000_000, clock=clock))
    assert mote.counters.packets_lost == lost


@pytest.mark.parametrize(
    ("boot", "clock", "accepted"),
    [(1, 11 * S, True), (0, 11 * S, True), (1, 10 * S, False)],
    ids=["same boot number", "smaller boot number", "a replay: its clock does not advance"],
)
def test_mote_that_lost_its_counters_is_accepted_after_its_announcement(frames, boot, clock, accepted):
    mote = announced(frames)
    receive(mote, frames.packet(50, clock=10 * S))
    assert rejections(receive(mote, frames.packet(0, boot=boot, clock=clock))) == ["replayed"]
    mote.handle(AnnouncementReceived(frames.announcement(boot=boot), 0, 0))
    assert (rejections(receive(mote, frames.packet(0, boot=boot, clock=clock))) == []) is accepted


def test_packet_of_a_boot_that_cannot_be_does_not_silence_the_mote(frames):
    mote = announced(frames)
    receive(mote, frames.packet(0, clock=S))
    assert rejections(receive(mote, frames.packet(0, boot=2**62, clock=2 * S))) == ["boot"]
    assert rejections(receive(mote, frames.packet(1, clock=S + 1))) == []


@pytest.mark.parametrize(("boot", "sequence"), [(7, 4), (7, 5), (6, 9), (0, 0)])
def test_counters_of_a_mote_with_keys_that_are_set_back_are_replayed_even_after_an_announcement(frames, boot, sequence):
    mote = announced(frames, sealed=True, position=MotePosition("m1", 7, 5, S))
    mote.handle(AnnouncementReceived(frames.announcement(boot=boot), 0, 0))
    found = receive(mote, frames.packet(sequence, boot=boot, clock=9 * S, listen=WINDOW), received=9 * S)
    assert (rejections(found), controls(found)) == (["replayed"], [])
    assert rejections(receive(mote, frames.packet(6, boot=7, clock=9 * S))) == []


def test_a_mote_with_keys_may_have_rebooted_as_often_as_it_proves(frames):
    mote = announced(frames, sealed=True)
    receive(mote, frames.packet(0))
    assert rejections(receive(mote, frames.packet(0, boot=2**40))) == []


def test_a_control_for_a_mote_with_keys_names_the_packet_that_it_answers(frames):
    mote = announced(frames, desired=FAST, sealed=True)
    (sent,) = [each for each in receive(mote, frames.packet(4, listen=WINDOW)) if isinstance(each, SendControl)]
    assert isinstance(sent.control, AnsweringControl)
    assert (sent.control.boot, sent.control.sequence) == (1, 4)


@pytest.mark.parametrize(("seconds", "reboots"), [(0, 1_000), (9, 1_009)])
def test_mote_may_have_rebooted_often_while_it_was_out_of_reach(frames, seconds, reboots):
    for more, expected in ((0, []), (1, ["boot"])):
        mote = announced(frames)
        receive(mote, frames.packet(0))
        packet = frames.packet(0, boot=1 + reboots + more, clock=seconds * S)
        assert rejections(receive(mote, packet, radio=seconds * S, received=seconds * S)) == expected


@pytest.mark.parametrize(("clock", "expected"), [(1 + 999 * S, []), (1, ["boot"])])
def test_boots_while_the_proxy_was_away_are_bounded_by_the_motes_clock(frames, clock, expected):
    mote = announced(frames, position=MotePosition("m1", 1, 5, 1))
    assert rejections(receive(mote, frames.packet(0, boot=1_900, clock=clock))) == expected


def test_a_mote_that_rebooted_often_while_the_proxy_was_away_is_not_shut_out_for_ever(frames):
    """Its clock begins at 0 with each boot, so nothing shows for how long the proxy was away."""
    mote = announced(frames, position=MotePosition("m1", 1, 5, 900 * S))
    found = [
        rejections(receive(mote, frames.packet(number, boot=1_044, clock=seconds * S), radio=at, received=at))
        for number, seconds in enumerate((1, 20, 60, 80))
        for at in (seconds * S,)
    ]
    assert found == [["boot"], ["boot"], [], []]
    assert rejections(receive(mote, frames.packet(9, boot=2**62, clock=81 * S), radio=81 * S)) == ["boot"]


@pytest.mark.parametrize("boot", [1, 0], ids=["same boot number", "smaller boot number"])
def test_announcement_is_requested_if_it_was_lost_with_the_counters(frames, boot):
    mote = announced(frames)
    receive(mote, frames.packet(7, clock=4 * S))
    found = receive(mote, frames.packet(0, boot=boot, clock=9 * S, listen=WINDOW), received=9 * S)
    assert (rejections(found), controls(found)) == (["replayed"], [SendAnnouncement()])
    mote.handle(AnnouncementReceived(frames.announcement(boot=boot), 9 * S, 9 * S))
    assert rejections(receive(mote, frames.packet(1, boot=boot, clock=10 * S))) == []


def test_no_announcement_is_requested_after_a_replay(frames):
    mote = announced(frames)
    receive(mote, frames.packet(7, clock=4 * S))
    found = receive(mote, frames.packet(7, clock=4 * S, listen=WINDOW), received=4 * S)
    assert (rejections(found), controls(found)) == (["replayed"], [])


def test_position_from_before_a_restart_rejects_replays_and_counts_losses(frames):
    mote = tracking(position=MotePosition("m1", 1, 7, 0))
    assert rejections(receive(mote, frames.packet(7))) == ["replayed"]
    assert receive(mote, frames.packet(10)) == [PacketsLost(2)]


def test_samples_become_rows_with_fixed_fields_and_nulls(frames):
    mote = announced(frames, desired=SLOW)
    found = receive(mote, frames.packet(0, (5 * S, 3, 2), (10 * S, None, 1.5), clock=10 * S, program=SLOW_NUMBER))
    assert rows(found) == [(5 * S, (7, 2.0, 3, None)), (10 * S, (7, 1.5, None, None))]


def test_samples_of_the_previous_program_are_read_by_its_field_order(frames):
    mote = announced(frames, SLOW, desired=FAST)
    assert rows(receive(mote, frames.packet(0, (0, 3, 2.5), program=SLOW_NUMBER))) == [(0, (7, 2.5, 3, None))]
    assert rows(receive(mote, frames.packet(1, (1, 2.5), clock=1, program=FAST_NUMBER))) == [(1, (7, 2.5, None, None))]


@pytest.mark.parametrize(
    ("sample", "program", "reason"),
    [
        ((0, 1.0, 2), FAST_NUMBER, "shape"),
        ((0,), FAST_NUMBER, "shape"),
        ((0, "fast"), FAST_NUMBER, "shape"),
        ((0, True), FAST_NUMBER, "shape"),
        ((0, 2**63, 1.0), SLOW_NUMBER, "shape"),
        ((0, 1.0), 12345, "unknown_program"),
        ((0, 1.0), 0, "unknown_program"),
        ((-1, 1.0), FAST_NUMBER, "late"),
    ],
)
def test_bad_samples_are_rejected_and_counted(frames, sample, program, reason):
    mote = announced(frames, SLOW, desired=FAST)
    found = receive(mote, frames.packet(0, sample, program=program), watermark=0)
    assert rejections(found) == [reason]
    assert rows(found) == []
    assert (mote.counters.packets_rejected, mote.counters.samples_late) == ((0, 1) if reason == "late" else (1, 0))


def test_samples_of_an_unannounced_mote_are_rejected(frames):
    assert rejections(receive(tracking(FAST), frames.packet(0, (0, 1.0), program=FAST_NUMBER))) == ["unannounced"]


def test_only_the_late_samples_of_a_packet_are_rejected(frames):
    mote = announced(frames, desired=FAST)
    found = receive(mote, frames.packet(0, (S, 1.0), (2 * S, 2.0), clock=2 * S, program=FAST_NUMBER), watermark=2 * S)
    assert rejections(found) == ["late"]
    assert [start for start, _ in rows(found)] == [2 * S]


@pytest.mark.parametrize(("ahead", "expected"), [(None, []), (60 * S, []), (59 * S, ["clock_ahead"])])
def test_clock_ahead_of_real_time(frames, ahead, expected):
    mote = announced(frames, clock=ClockBounds(ahead))
    assert rejections(receive(mote, frames.packet(0, clock=160 * S), received=100 * S)) == expected


BOUNDS = ClockBounds(60 * S, 3_600 * S)
NOW = 10**15


@pytest.mark.parametrize("clock", [0, 2 * NOW])
def test_mote_with_a_wrong_clock_gets_controls_and_is_accepted_again(frames, clock):
    mote = announced(frames, desired=FAST, clock=BOUNDS)
    found = receive(mote, frames.packet(0, clock=clock, listen=WINDOW), received=NOW)
    assert controls(found)[0].program == FAST
    assert controls(found)[0].not_before_us <= NOW, "not when its clock shows 2100"
    assert mote.watermark is None
    fault = mote.clock.fault
    assert ClockWrong(fault, abs(NOW - clock)) in found
    again = receive(mote, frames.packet(1, (clock, 1.0), clock=clock, program=FAST_NUMBER), received=NOW)
    assert not [each for each in again if isinstance(each, ClockWrong | TuplesAccepted)], "the fault is reported once"
    assert (mote.running, mote.counters.packets_lost, mote.counters.packets_rejected) == (FAST_NUMBER, 0, 2)
    right = receive(mote, frames.packet(2, (NOW, 1.0), clock=NOW, program=FAST_NUMBER), received=NOW)
    assert ClockRight() in right
    assert [start for start, _ in rows(right)] == [NOW]
    assert mote.watermark == MoteWatermark(NOW)


def test_mote_that_lost_its_counters_is_known_again_after_its_clock_was_ahead(frames):
    mote = announced(frames, clock=BOUNDS)
    receive(mote, frames.packet(50, clock=NOW), received=NOW)
    receive(mote, frames.packet(51, clock=2 * NOW), received=NOW)
    mote.handle(AnnouncementReceived(frames.announcement(boot=1), 0, 0))
    assert rejections(receive(mote, frames.packet(0, clock=NOW + S), received=NOW + S)) == []


def test_unsent_samples_of_a_wrong_clock_are_not_filled_in(frames):
    program = SamplingProgram(("speed",), S, report=SendOnChange((DeadBand("speed", 0.0),), 3_600 * S))
    number = program_number(program)
    mote = announced(frames, desired=program, clock=BOUNDS)
    receive(mote, frames.packet(0, (NOW, 1.0), clock=NOW, low_watermark=NOW + S, program=number), received=NOW)
    receive(mote, frames.packet(1, (0, 2.0), clock=0, low_watermark=S, program=number), received=NOW)
    later = NOW + 5 * S
    assert (
        rows(receive(mote, frames.packet(2, clock=later, low_watermark=later + S, program=number), received=later))
        == []
    )


@pytest.mark.parametrize(
    ("low_watermark", "program", "fault"),
    [
        (0, FAST, "behind"),
        (NOW - 3_600 * S, FAST, None),
        (NOW - 4_500 * S, SamplingProgram(("speed",), S, samples_per_packet=1_000), None),
        (NOW - 4_500 * S, FAST, "behind"),
        (0, SamplingProgram(("speed",), S, report=VehicleEvents(Threshold("speed", 1.0, 0.0))), None),
        (NOW + 3_600 * S, SamplingProgram(("speed",), 3_600 * S), None),
        (NOW + 3_600 * S, FAST, "ahead"),
    ],
    ids=["1970", "just so", "waits in a packet", "waits for no packet", "a vehicle stands", "slow", "fast"],
)
def test_a_low_watermark_that_no_program_explains_is_a_wrong_clock(frames, low_watermark, program, fault):
    mote = announced(frames, desired=program, clock=BOUNDS)
    receive(
        mote, frames.packet(0, clock=NOW, low_watermark=low_watermark, program=program_number(program)), received=NOW
    )
    assert mote.clock.fault == fault


def test_samples_older_than_a_right_clock_stamps_are_rejected_one_by_one(frames):
    mote = announced(frames, desired=FAST, clock=BOUNDS)
    found = receive(mote, frames.packet(0, (0, 1.0), (NOW, 2.0), clock=NOW, program=FAST_NUMBER), received=NOW)
    assert (rejections(found), [start for start, _ in rows(found)]) == (["clock_behind"], [NOW])
    assert mote.counters.samples_behind == 1


def test_a_mote_that_is_overdue_is_silent_until_its_next_packet(frames):
    #  radio  0      6-     6        7
    #         packet wait   silent   packet: active again
    mote = announced(frames, desired=FAST)
    receive(mote, frames.packet(0, program=FAST_NUMBER))
    assert mote.handle(TimePassed(6 * S - 1)) == []
    assert WentSilent(6 * S) in mote.handle(TimePassed(6 * S))
    assert mote.handle(TimePassed(7 * S)) == []
    assert (mote.state, mote.watermark) == (MoteState.SILENT, None)
    assert SilenceEnded() in receive(mote, frames.packet(1, program=FAST_NUMBER), radio=7 * S)
    assert mote.state is MoteState.SAMPLING


def test_a_mote_counts_in_the_watermark_while_it_samples_or_should(frames):
    mote = tracking()
    assert mote.watermark is None
    mote.restore(frames.announcement())
    assert mote.watermark == MoteWatermark(None), "known from before the restart: may be sampling"
    receive(mote, frames.packet(3, clock=5))
    assert mote.watermark is None, "asleep, and no query demands"
    mote.handle(DemandChanged(FAST, 0))
    assert mote.watermark == MoteWatermark(5), "should sample"
    receive(mote, frames.packet(4, clock=6, listen=WINDOW), watermark=9)
    assert mote.watermark == MoteWatermark(9), "was sent the program, from the watermark on"
    mote.handle(TimePassed(5 * S))
    assert mote.watermark == MoteWatermark(9)
    receive(mote, frames.packet(5, clock=20, low_watermark=21, program=FAST_NUMBER), radio=5 * S)
    assert mote.watermark == MoteWatermark(21), "samples"
    mote.handle(DemandChanged(SLEEP, 5 * S))
    assert mote.watermark == MoteWatermark(21), "still samples"
    receive(mote, frames.packet(6, clock=25), radio=5 * S)
    assert mote.watermark is None, "sleeps"


def test_mote_that_does_not_begin_holds_the_watermark_for_a_bounded_time(frames):
    mote = announced(frames, desired=FAST, patience_us=10 * S, silence_after_us=100 * S)
    receive(mote, frames.packet(0, clock=5, listen=WINDOW))
    mote.handle(TimePassed(10 * S - 1))
    assert mote.watermark == MoteWatermark(5)
    mote.handle(TimePassed(10 * S))
    assert mote.watermark is None


def test_low_watermark_never_decreases_within_a_boot(frames):
    mote = announced(frames, desired=FAST)
    receive(mote, frames.packet(0, low_watermark=50, program=FAST_NUMBER))
    receive(mote, frames.packet(1, low_watermark=40, program=FAST_NUMBER))
    assert mote.watermark == MoteWatermark(50)


def test_the_catalog_entry_has_state_program_and_counters(frames):
    mote = announced(frames, desired=FAST)
    receive(mote, frames.packet(0, (0, 1.0), program=FAST_NUMBER), received=123)
    receive(mote, frames.packet(3, program=FAST_NUMBER), received=124)
    entry = mote.entry()
    assert (entry.state, entry.period_us, entry.program, entry.heard_us) == (MoteState.SAMPLING, S, FAST_NUMBER, 124)
    assert (entry.packets_received, entry.packets_lost, entry.samples_received) == (2, 2, 1)
