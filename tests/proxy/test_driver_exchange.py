"""Exchanges with a driver, without one: frames in order, a bounded number of controls, each program demanded once."""

from __future__ import annotations

from typing import Any

import pytest

from protocols.wire.catalog import MoteState
from protocols.wire.packets import AdjustClock, RunProgram, SendAnnouncement
from protocols.wire.programs import SamplingProgram
from proxy.drivers.driver import DriverOutput, Notice, Publication, Rejection
from proxy.running.driver_exchange import MOST_CONTROLS, DemandedPrograms, Exchange, request


def program(period_us: int) -> SamplingProgram:
    return SamplingProgram(("t",), period_us)


def steps(exchange: Exchange, answers: dict[int, DriverOutput]) -> list[Any]:
    """Return what happens in an exchange whose driver answers the control for a packet of this number."""
    found: list[Any] = []
    while (each := exchange.next()) is not None:
        if isinstance(each, DriverOutput):
            found.append("output")
            continue
        sequence: int = each.sequence  # type: ignore[union-attr] # packets only
        found.append(sequence)
        if sequence in answers:
            exchange.answered(answers[sequence])
    return found


def test_frames_reach_the_fleet_in_the_order_of_their_numbers(frames: Any) -> None:
    exchange = Exchange()
    exchange.answered(DriverOutput((frames.packet(1), frames.packet(2))))
    answers = {1: DriverOutput((frames.packet(3),)), 2: DriverOutput(), 3: DriverOutput((frames.packet(4),))}
    assert steps(exchange, answers) == ["output", 1, 2, "output", 3, "output", "output", 4]
    assert exchange.next() is None


def test_only_a_packet_that_comes_alone_needs_no_exchange(frames: Any) -> None:
    packet, announcement = frames.packet(1), frames.announcement()
    assert DriverOutput((packet,)).only_packet is packet
    assert DriverOutput((packet,), waits=("m1", 1)).only_packet is packet
    for each in (
        DriverOutput(),
        DriverOutput((announcement,)),
        DriverOutput((packet, packet)),
        DriverOutput((packet,), (Publication("topic", b""),)),
        DriverOutput((packet,), (), (Rejection("garbled", "it is"),)),
        DriverOutput((packet,), notices=(Notice("m1", "news"),)),
    ):
        assert each.only_packet is None


def test_each_mote_gets_so_many_controls_in_an_exchange() -> None:
    exchange = Exchange()
    assert [exchange.passes_on("a") for _ in range(MOST_CONTROLS + 2)] == [True] * MOST_CONTROLS + [False] * 2
    assert exchange.passes_on("b")
    assert Exchange().passes_on("a")


@pytest.mark.parametrize("state", MoteState)
def test_only_a_device_that_changes_listens(state: MoteState) -> None:
    assert DemandedPrograms().lets_listen("a", state, program(1)) == (state is MoteState.CHANGING)


def test_a_device_listens_until_it_was_asked_for_its_program() -> None:
    demanded, slow, fast = DemandedPrograms(), program(10), program(1)
    listens = [demanded.lets_listen("a", MoteState.CHANGING, slow)]
    demanded.asked("a", SendAnnouncement())
    listens.append(demanded.lets_listen("a", MoteState.CHANGING, slow))
    demanded.asked("a", RunProgram(slow, None))
    listens += [demanded.lets_listen("a", MoteState.CHANGING, each) for each in (slow, fast)]
    listens.append(demanded.lets_listen("b", MoteState.CHANGING, slow))
    assert listens == [True, True, False, True, True]


class Asked:
    """A driver that says what it is asked."""

    def run(self, *arguments: object, **times: object) -> object:
        return "run", arguments, times

    def announce(self, *arguments: object, **times: object) -> object:
        return "announce", arguments, times


def test_a_driver_is_asked_for_what_a_device_can_do() -> None:
    driver: Any = Asked()
    slow = program(1)
    run, announce = request(driver, "a", RunProgram(slow, 7)), request(driver, "a", SendAnnouncement())
    assert run is not None
    assert announce is not None
    assert run(radio_us=1) == ("run", ("a", slow), {"not_before_us": 7, "radio_us": 1})
    assert announce(radio_us=1) == ("announce", ("a",), {"radio_us": 1})
    assert request(driver, "a", AdjustClock(5)) is None, "samples of devices are stamped by the proxy's clock"
