"""The mote as a table: events in, packets out.

radio clock (s)   0        2        4        6
asleep            A?       ?        ?        ?         A announces, ? asks and listens for 0.1 s
1 Hz              A?  !p   s  s  s?  s  s?             !p control received in a window, s a sample
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from firmware_sim.mote.mote import AFTER_THE_END_US, Mote
from firmware_sim.mote.mote_events import (
    Announce,
    ControlReceived,
    Instruction,
    MoteDescription,
    PowerOn,
    SendPacket,
    Wake,
    WakeAt,
)
from firmware_sim.mote.sample_clock import SampleClock
from protocols.wire.packets import (
    AnsweringControl,
    Control,
    Health,
    NumberedAnnouncement,
    Packet,
    RunProgram,
    SampleValue,
    SendAnnouncement,
)
from protocols.wire.programs import SLEEP, ListenSchedule, SamplingProgram, program_number
from protocols.wire.streams import Field, FieldType, StreamSchema

SECOND = 1_000_000
SCHEMA = StreamSchema(
    "traffic",
    (Field("sensor", FieldType.TEXT, fixed=True), Field("speed", FieldType.REAL), Field("flow", FieldType.REAL)),
)
HERTZ = SamplingProgram(("speed",), SECOND)


def sense(instant_us: int, fields: tuple[str, ...]) -> tuple[SampleValue, ...]:
    return tuple({"speed": instant_us / SECOND, "flow": 7.0}[name] for name in fields)


def make(clock: SampleClock | None = None, ends_us: int | None = None) -> Mote:
    description = MoteDescription("m1", "loop", SCHEMA, {"sensor": "m1"}, SECOND, 100_000)
    return Mote(description, clock or SampleClock(0, begins_radio_us=0), sense, ends_us)


def packets(instructions: list[Instruction]) -> list[Packet]:
    return [each.packet for each in instructions if isinstance(each, SendPacket)]


def wake_at(instructions: list[Instruction]) -> int:
    return next(each.radio_us for each in instructions if isinstance(each, WakeAt))


def stamps(found: list[Packet]) -> list[int]:
    return [packet.clock_us - sample.age_us for packet in found for sample in packet.samples]


def run(program: SamplingProgram, not_before_us: int = 0) -> Control:
    return Control(1, "m1", (RunProgram(program, not_before_us),))


def until(mote: Mote, radio_us: int, instructions: list[Instruction]) -> list[Packet]:
    """Wake the mote whenever it wants, up to a radio time; return its packets."""
    found = packets(instructions)
    when = wake_at(instructions)
    while when <= radio_us:
        instructions = mote.handle(Wake(when))
        found.extend(packets(instructions))
        when = wake_at(instructions)
    return found


def test_after_power_on_it_announces_itself_and_asks() -> None:
    mote = make()
    instructions = mote.handle(PowerOn(0))
    assert isinstance(instructions[0], Announce)
    assert instructions[0].announcement.stream == SCHEMA
    (asked,) = packets(instructions)
    assert (asked.boot, asked.sequence, asked.program, asked.listen_us) == (1, 0, 0, 100_000)
    assert isinstance(asked.records[0], Health)
    assert wake_at(instructions) == 2 * SECOND


def test_asleep_it_asks_every_two_seconds_and_takes_no_sample() -> None:
    mote = make()
    found = until(mote, 10 * SECOND, mote.handle(PowerOn(0)))
    assert [packet.clock_us // SECOND for packet in found] == [0, 2, 4, 6, 8, 10]
    assert stamps(found) == []
    assert mote.counters.samples == 0
    assert mote.counters.listen_us == 6 * 100_000


def test_control_is_heard_in_a_listen_window_only() -> None:
    mote = make()
    mote.handle(PowerOn(0))
    assert mote.handle(ControlReceived(100_001, run(HERTZ))) == []
    assert (mote.counters.control_missed, mote.program) == (1, SLEEP)
    assert mote.handle(ControlReceived(99_000, run(HERTZ))) != []
    assert (mote.counters.control_received, mote.program) == (1, HERTZ)


def test_control_for_another_mote_is_not_heard() -> None:
    mote = make()
    mote.handle(PowerOn(0))
    other = Control(1, "m2", (RunProgram(HERTZ, 0),))
    assert mote.handle(ControlReceived(1, other)) == []
    assert mote.program == SLEEP


def test_a_new_program_is_acknowledged_at_once_and_samples_on_the_grid() -> None:
    mote = make()
    mote.handle(PowerOn(300_000))
    instructions = mote.handle(ControlReceived(350_000, run(HERTZ)))
    (acknowledgement,) = packets(instructions)
    assert acknowledgement.program == program_number(HERTZ)
    assert acknowledgement.promise_us == SECOND
    found = until(mote, 5 * SECOND, instructions)[1:]
    assert stamps(found) == [1 * SECOND, 2 * SECOND, 3 * SECOND, 4 * SECOND, 5 * SECOND]
    assert [packet.promise_us for packet in found if packet.samples] == [second * SECOND for second in range(2, 7)]
    assert [sample.values for packet in found for sample in packet.samples][:2] == [(1.0,), (2.0,)]
    # It listens again two seconds after the last window began, with a packet it sends anyway.
    assert [packet.clock_us for packet in found if packet.listen_us] == [3 * SECOND, 5 * SECOND]


def test_not_before_is_honoured() -> None:
    mote = make()
    mote.handle(PowerOn(0))
    instructions = mote.handle(ControlReceived(1_000, run(HERTZ, not_before_us=2_500_000)))
    assert stamps(until(mote, 4 * SECOND, instructions)) == [3 * SECOND, 4 * SECOND]


def test_samples_wait_for_a_full_packet_and_the_promise_says_so() -> None:
    mote = make()
    mote.handle(PowerOn(0))
    program = SamplingProgram(("speed", "flow"), SECOND, samples_per_packet=3, listen=ListenSchedule(60 * SECOND))
    instructions = mote.handle(ControlReceived(1_000, run(program)))
    full = [packet for packet in until(mote, 6 * SECOND, instructions) if packet.samples]
    assert [stamps([packet]) for packet in full] == [
        [1 * SECOND, 2 * SECOND, 3 * SECOND],
        [4 * SECOND, 5 * SECOND, 6 * SECOND],
    ]
    assert full[0].promise_us == 4 * SECOND


def test_waiting_samples_leave_under_the_old_programs_number() -> None:
    mote = make()
    mote.handle(PowerOn(0))
    slow = SamplingProgram(("speed",), SECOND, samples_per_packet=10)
    found = until(mote, 4 * SECOND, mote.handle(ControlReceived(1_000, run(slow))))
    assert stamps(found) == []
    instructions = mote.handle(ControlReceived(4 * SECOND + 50_000, run(SLEEP)))
    last, acknowledgement = packets(instructions)
    assert stamps([last]) == [1 * SECOND, 2 * SECOND, 3 * SECOND, 4 * SECOND]
    assert last.program == program_number(slow)
    assert (acknowledgement.program, acknowledgement.records) == (0, acknowledgement.records)
    assert acknowledgement.samples == ()


def test_programs_it_cannot_run_are_refused_and_counted() -> None:
    mote = make()
    mote.handle(PowerOn(0))
    for program in (SamplingProgram(("colour",), SECOND), SamplingProgram(("sensor",), SECOND),
                    SamplingProgram(("speed",), 99_999)):  # fmt: skip
        assert mote.handle(ControlReceived(1_000, run(program))) == []
    assert (mote.counters.programs_refused, mote.program) == (3, SLEEP)


def test_it_announces_itself_when_asked() -> None:
    mote = make()
    mote.handle(PowerOn(0))
    (instruction,) = mote.handle(ControlReceived(1_000, Control(1, "m1", (SendAnnouncement(),))))
    assert isinstance(instruction, Announce)


def test_health_comes_with_every_sixteenth_packet_of_samples() -> None:
    mote = make()
    mote.handle(PowerOn(0))
    program = SamplingProgram(("speed",), SECOND, listen=ListenSchedule(3600 * SECOND))
    found = [
        packet for packet in until(mote, 33 * SECOND, mote.handle(ControlReceived(1, run(program)))) if packet.samples
    ]
    assert [place for place, packet in enumerate(found, 1) if isinstance(packet.records[-1], Health)] == [16, 32]


def test_reboot_counts_and_starts_asleep() -> None:
    mote = make()
    mote.handle(PowerOn(0))
    mote.handle(ControlReceived(1, run(HERTZ)))
    (asked,) = packets(mote.handle(PowerOn(9 * SECOND)))
    assert (asked.boot, asked.sequence, asked.program) == (2, 0, 0)


def test_held_replay_takes_no_sample_but_goes_on_asking() -> None:
    clock = SampleClock(1_000 * SECOND, begins_radio_us=None, speed=100)
    mote = make(clock)
    instructions = mote.handle(PowerOn(0))
    instructions = mote.handle(ControlReceived(1, run(HERTZ)))
    found = until(mote, 10 * SECOND, instructions)
    assert stamps(found) == []
    assert {packet.promise_us for packet in found} == {1_000 * SECOND}
    clock.release(10 * SECOND)
    found = packets(mote.handle(Wake(10 * SECOND + 30_000)))
    assert stamps(found) == [(1_000 + second) * SECOND for second in range(4)], "late ticks take every sample"


def test_at_the_end_it_promises_to_be_silent_for_long() -> None:
    mote = make(ends_us=3 * SECOND)
    mote.handle(PowerOn(0))
    found = until(mote, 20 * SECOND, mote.handle(ControlReceived(1, run(HERTZ))))
    assert stamps(found) == [1 * SECOND, 2 * SECOND]
    assert found[-1].promise_us == 3 * SECOND + AFTER_THE_END_US
    assert mote.low_watermark_us > 3 * SECOND


PROGRAMS = st.builds(
    lambda period, size, every: (
        SamplingProgram(("speed",), period, size, ListenSchedule(every, 50_000))
        if period
        else SamplingProgram(listen=ListenSchedule(every, 50_000))
    ),
    st.sampled_from([0, 100_000, 250_000, 300_000, 1_000_000]),
    st.integers(1, 5),
    st.sampled_from([100_000, 500_000, 2_000_000]),
)


@given(st.lists(st.tuples(PROGRAMS, st.integers(0, 3_000_000), st.integers(-2_000_000, 2_000_000)), max_size=8))
def test_no_packet_is_below_the_low_watermark(changes: list[tuple[SamplingProgram, int, int]]) -> None:
    """Whatever programs come when: stamps grow, lie on the grid, and are never before the low watermark."""
    mote, now = make(), 0
    found: list[Packet] = []
    instructions = mote.handle(PowerOn(0))
    for program, pause, ahead in changes:
        found.extend(until(mote, now + pause, instructions))
        now += pause
        woken = mote.handle(Wake(now))
        found.extend(packets(woken))
        answered = mote.handle(ControlReceived(now, run(program, now + ahead)))
        instructions = [*answered, WakeAt(wake_at(woken))]
    found.extend(until(mote, now + 3_000_000, instructions))
    low_watermark_us = -(2**62)
    for packet in found:
        assert all(stamp >= low_watermark_us for stamp in stamps([packet]))
        assert packet.promise_us >= low_watermark_us
        low_watermark_us = packet.promise_us
        assert all(sample.age_us >= 0 for sample in packet.samples)
    every = stamps(found)
    assert all(before < after for before, after in pairwise(every))
    assert [packet.sequence for packet in found[1:]] == list(
        range(found[0].sequence + 1, len(found) + found[0].sequence)
    )


def answer(boot: int, sequence: int) -> Control:
    return AnsweringControl(1, "m1", (RunProgram(HERTZ, 0),), boot, sequence)


def sealed() -> Mote:
    mote = make()
    mote.sealed = True
    mote.handle(PowerOn(0))  # packet 0 of boot 1, and listens
    return mote


def test_a_mote_with_keys_obeys_only_what_answers_a_packet_of_this_listen_window() -> None:
    for control, obeyed in (
        (answer(1, 0), True),
        (answer(1, 1), False),  # of a packet that it has not sent
        (answer(0, 0), False),  # replayed: of the boot before
        (run(HERTZ), False),  # of a proxy without keys
    ):
        mote = sealed()
        mote.handle(ControlReceived(50_000, control))
        assert mote.sampling is obeyed
        assert mote.counters.control_refused == (not obeyed)


def test_a_mote_with_keys_refuses_the_program_of_an_earlier_window() -> None:
    mote = sealed()
    until(mote, 4 * SECOND, mote.handle(Wake(2 * SECOND)))  # packets 1 and 2, each with a window
    assert mote.handle(ControlReceived(4 * SECOND + 50_000, answer(1, 1))) == []
    assert (mote.program, mote.counters.control_refused) == (SLEEP, 1)
    assert mote.handle(ControlReceived(4 * SECOND + 60_000, answer(1, 2))) != []
    assert mote.program == HERTZ


def test_a_mote_with_keys_numbers_its_announcements_by_its_next_packet() -> None:
    mote = make()
    mote.sealed = True
    (first, *_) = mote.handle(PowerOn(0))
    assert isinstance(first, Announce)
    assert isinstance(first.announcement, NumberedAnnouncement)
    assert (first.announcement.boot, first.announcement.sequence) == (1, 0)
    asked = AnsweringControl(1, "m1", (SendAnnouncement(),), 1, 0)
    (again,) = [each for each in mote.handle(ControlReceived(50_000, asked)) if isinstance(each, Announce)]
    assert isinstance(again.announcement, NumberedAnnouncement)
    assert again.announcement.sequence == 1
