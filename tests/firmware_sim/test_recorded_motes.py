"""Motes that replay a recording as it is: its stamps and gaps, whatever the period of their program.

recorded (s)      0.25   7 7      17                    (silence)                      10800
sampled           *      * *      *                                                    *
promised               7      17       10800                                       a day after the end
"""

from __future__ import annotations

from pathlib import Path

from firmware_sim.fleet import Fleet, FleetSettings
from firmware_sim.mote.mote import AFTER_THE_END_US, Mote
from firmware_sim.mote.mote_events import ControlReceived, Instruction, PowerOn, SendPacket, Wake, WakeAt
from firmware_sim.phenomena.trace import Trace
from protocols.wire.packets import AdjustClock, Control, Packet, RunProgram, Sample
from protocols.wire.programs import SLEEP, ListenSchedule, SamplingProgram, program_number

S = 1_000_000
STAMPS_US = (250_000, 7 * S, 7 * S, 7 * S + 1, 17 * S, 10_800 * S)
SPEEDS = (1, 2, 3, 5, None, 4)
LISTEN = ListenSchedule(2 * S, 100_000)
EVERY = SamplingProgram(("speed",), 1, listen=LISTEN)
"""The program of what publishes by its own rules: its period means nothing."""


def replaying(tmp_path: Path) -> Mote:
    lines = [f"{at},a,{'' if speed is None else speed}" for at, speed in zip(STAMPS_US, SPEEDS, strict=True)]
    (tmp_path / "trace.csv").write_text("\n".join(["time,sensor,speed", *lines]) + "\n")
    (mote,) = Fleet(Trace(tmp_path / "trace.csv"), FleetSettings(), clock=lambda: 0).motes
    return mote


def control(*instructions: object) -> Control:
    return Control(1, "a", instructions)  # type: ignore[arg-type] # instructions of any kind


def packets(instructions: list[Instruction]) -> list[Packet]:
    return [each.packet for each in instructions if isinstance(each, SendPacket)]


def replayed(mote: Mote, instructions: list[Instruction], until_us: int) -> list[Packet]:
    found = packets(instructions)
    wakes_us = next(each.radio_us for each in instructions if isinstance(each, WakeAt))
    while wakes_us <= until_us:
        instructions = mote.handle(Wake(wakes_us))
        found += packets(instructions)
        wakes_us = next(each.radio_us for each in instructions if isinstance(each, WakeAt))
    return found


def begun(mote: Mote, program: SamplingProgram = EVERY) -> list[Instruction]:
    """Let it have a program before the replay begins."""
    mote.handle(PowerOn(0))
    mote.handle(ControlReceived(1, control(RunProgram(program, 0))))
    mote.clock.release(2)
    return mote.handle(Wake(2))


def samples(found: list[Packet]) -> list[tuple[int, object]]:
    return [(each.clock_us - one.age_us, one.values[0]) for each in found for one in each.samples]


def test_each_reading_is_sampled_once_when_it_was_recorded(tmp_path: Path) -> None:
    mote = replaying(tmp_path)
    found = replayed(mote, begun(mote), 11_000 * S)
    assert samples(found) == list(zip(STAMPS_US, SPEEDS, strict=True))
    assert mote.counters.samples == len(STAMPS_US)
    assert {each.program for each in found[-5:]} == {program_number(EVERY)}


def test_it_promises_what_comes_next_and_at_the_end_that_nothing_does(tmp_path: Path) -> None:
    mote = replaying(tmp_path)
    found = replayed(mote, begun(mote), 11_000 * S)
    last: dict[int, int] = {}
    for each in found:
        at_us = max([stamp for stamp in STAMPS_US if stamp <= each.clock_us], default=-1)
        last[at_us] = each.promise_us
    for place, each in enumerate(found):
        assert all(stamp_us >= earlier.promise_us for earlier in found[:place] for stamp_us, _ in samples([each]))
    ends_us = STAMPS_US[-1] + 1
    assert last == {
        250_000: 7 * S, 7 * S: 7 * S + 1, 7 * S + 1: 17 * S, 17 * S: 10_800 * S, 10_800 * S: ends_us + AFTER_THE_END_US,
    }  # fmt: skip


def test_before_the_replay_begins_it_promises_no_more_than_its_beginning(tmp_path: Path) -> None:
    """Other motes may have earlier readings, and announce themselves later: these would be late."""
    (tmp_path / "trace.csv").write_text("time,sensor,speed\n1000000,a,1\n7000000,b,2\n")
    mote = Fleet(Trace(tmp_path / "trace.csv"), FleetSettings(), clock=lambda: 0).motes[1]
    mote.handle(PowerOn(0))
    run = Control(1, "b", (RunProgram(EVERY, 0),))
    (held,) = packets(mote.handle(ControlReceived(1, run)))
    assert held.promise_us == S
    mote.clock.release(2)
    assert replayed(mote, mote.handle(Wake(4 * S)), 5 * S)[0].promise_us == 7 * S


def test_a_program_of_any_period_samples_what_was_recorded(tmp_path: Path) -> None:
    """A program is accepted that no mote's hardware could run."""
    mote = replaying(tmp_path)
    slow = SamplingProgram(("speed",), 3_600 * S, listen=LISTEN)
    assert samples(replayed(mote, begun(mote, slow), 11_000 * S)) == list(zip(STAMPS_US, SPEEDS, strict=True))


def test_readings_wait_for_a_full_packet_no_longer_than_until_it_listens(tmp_path: Path) -> None:
    mote = replaying(tmp_path)
    several = SamplingProgram(("speed",), 1, samples_per_packet=3, listen=LISTEN)
    found = replayed(mote, begun(mote, several), 11_000 * S)
    sent = [(each.clock_us, len(each.samples)) for each in found if each.samples]
    assert sum(count for _, count in sent) == len(STAMPS_US)
    assert all(each.clock_us - one.age_us + 4 * S >= each.clock_us for each in found for one in each.samples)
    assert any(count > 1 for _, count in sent)


def test_what_was_recorded_while_it_slept_is_not_sampled_later(tmp_path: Path) -> None:
    mote = replaying(tmp_path)
    asleep = replayed(mote, begun(mote, SLEEP), 8 * S)
    assert samples(asleep) == []
    assert asleep[-1].clock_us > 7 * S
    instructions = mote.handle(ControlReceived(8 * S + 1, control(RunProgram(EVERY, 0))))
    assert samples(replayed(mote, instructions, 11_000 * S)) == [(17 * S, None), (10_800 * S, 4)]


def test_its_clock_is_not_moved(tmp_path: Path) -> None:
    mote = replaying(tmp_path)
    begun(mote)
    assert mote.handle(ControlReceived(2, control(AdjustClock(5 * S)))) == []
    assert mote.counters.clock_adjustments == 0


def test_it_draws_as_a_mote_does_that_samples_at_the_commonest_period(tmp_path: Path) -> None:
    """A program that is stamped to the microsecond would keep a sensor warm for ever."""
    mote = replaying(tmp_path)
    found = replayed(mote, begun(mote), 100 * S)
    mote.meter.settle(100 * S)
    assert any(isinstance(each, Sample) for packet in found for each in packet.records)
    drawn = mote.meter.by_name()
    assert drawn["processor_sleep"] > drawn["processor_idle"]
