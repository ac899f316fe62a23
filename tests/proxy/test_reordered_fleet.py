"""Packets that overtook each other, in a fleet: their samples in order, their listen windows used at once.

arrives   0    2?    1            0    2?                       ? opens a listen window
accepted  0          1 2          0          2  (after 2 s)
controls       !                       !
"""

from __future__ import annotations

import random

import pytest

from protocols.wire.packets import RunProgram
from protocols.wire.programs import SamplingProgram, program_number
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_instructions import ForMote
from proxy.fleet.fleet_members import FleetLimits
from proxy.motes.mote_events import PacketsLost, Rebooted, Rejected, SendControl, TuplesAccepted
from proxy.motes.mote_presence import TrackingLimits
from tests.proxy.test_service import introduce, published_batches, running, send, settings, until

__all__ = ["settings"]

S = 1_000_000
SPEED = SamplingProgram(("speed",), 10 * S)
NUMBER = program_number(SPEED)


@pytest.fixture
def proxy(frames):
    fleet = Fleet("p", FleetLimits(tracking=TrackingLimits(reorder_within_us=2 * S)), now_us=0)
    fleet.receive_demand("traffic", frames.demand(("a", ["speed"], None)), radio_us=0)
    fleet.receive_announcement(frames.announcement(), radio_us=0, received_us=0)
    return fleet


def receive(proxy, packet, radio=0):
    return of_kind(proxy.receive_packet(packet, radio_us=radio, received_us=radio))


def of_kind(instructions):
    """Instructions of the mote by kind, and the stamps of what was accepted."""
    found = {}
    for each in instructions:
        if isinstance(each, ForMote):
            found.setdefault(type(each.instruction), []).append(each.instruction)
    stamps = [start for each in found.get(TuplesAccepted, []) for start in each.tuples.starts_us]
    return found, stamps


def sample(frames, number, **options):
    return frames.packet(number, (number * 10 * S, 1.0), clock=number * 10 * S, program=NUMBER, **options)


def test_samples_come_in_order_and_nothing_is_lost(proxy, frames):
    source, order = random.Random(5), list(range(1, 60))
    order.sort(key=lambda number: number + source.uniform(0, 6))
    found = receive(proxy, sample(frames, 0))[1]
    for number in order:
        found += receive(proxy, sample(frames, number), radio=number * 1_000)[1]
    assert found == [number * 10 * S for number in range(60)]
    entry = proxy.entry("m1")
    assert (entry.packets_lost, entry.packets_rejected, entry.samples_late) == (0, 0, 0)


def test_a_window_is_used_at_once_though_its_packet_waits(proxy, frames):
    receive(proxy, frames.packet(0))
    found, _ = receive(proxy, frames.packet(2, listen=50_000, clock=S), radio=S)
    (control,) = found[SendControl]
    assert isinstance(control.control.instructions[0], RunProgram)
    assert proxy.entry("m1").packets_received == 1
    found, _ = receive(proxy, frames.packet(1, clock=1), radio=S + 5)
    assert SendControl not in found
    assert proxy.entry("m1").packets_received == 3


def test_missing_packets_are_lost_after_a_while(proxy, frames):
    receive(proxy, sample(frames, 0))
    found, _ = receive(proxy, sample(frames, 2, listen=50_000), radio=S)
    assert PacketsLost not in found
    assert of_kind(proxy.time_passed(2_900_000))[1] == []
    found, stamps = of_kind(proxy.time_passed(3 * S))
    assert (found[PacketsLost], stamps) == ([PacketsLost(1)], [20 * S])
    assert SendControl not in found
    found, _ = receive(proxy, sample(frames, 1), radio=3 * S)
    assert [each.reason for each in found[Rejected]] == ["replayed"]


def test_a_waiting_packet_that_arrives_twice_is_rejected(proxy, frames):
    receive(proxy, sample(frames, 0))
    receive(proxy, sample(frames, 2))
    found, _ = receive(proxy, sample(frames, 2))
    assert [each.reason for each in found[Rejected]] == ["replayed"]
    assert proxy.entry("m1").packets_rejected == 1


def test_a_mote_whose_packets_wait_is_not_silent(proxy, frames):
    receive(proxy, sample(frames, 0))
    assert not proxy.motes["m1"].silent
    for seconds in range(1, 12):
        receive(proxy, sample(frames, 2 * seconds), radio=seconds * S)
        proxy.time_passed(seconds * S)
    assert not proxy.motes["m1"].silent


def test_a_reboot_releases_waiting_packets(proxy, frames):
    receive(proxy, sample(frames, 0))
    receive(proxy, sample(frames, 2))
    instructions = proxy.receive_announcement(frames.announcement(boot=2), radio_us=1, received_us=1)
    assert of_kind(instructions)[1] == [20 * S]
    found, _ = receive(proxy, frames.packet(0, boot=2, clock=30 * S), radio=2)
    assert found[Rebooted] == [Rebooted(2)]
    assert len(proxy.motes["m1"].reordering) == 0


async def test_waiting_packets_are_not_lost_when_the_proxy_ends(settings, frames):
    async with running(settings) as service:
        await introduce(service, frames)
        for number in (0, 2):
            await send(service, "fjord/v1/motes/p/m1/packet", sample(frames, number))
        await until(lambda: published_batches(service.link))
        assert sum(each.rows for each in published_batches(service.link)) == 1
    async with running(settings) as service:
        await until(lambda: sum(each.rows for each in published_batches(service.link)) == 2)


async def test_a_gap_is_given_up_while_nothing_else_happens(settings, frames):
    async with running(settings.model_copy(update={"reorder_within": 100_000})) as service:
        await introduce(service, frames)
        for number in (0, 2):
            await send(service, "fjord/v1/motes/p/m1/packet", sample(frames, number))
        await until(lambda: sum(each.rows for each in published_batches(service.link)) == 2)
        assert service.metrics.value("packets_lost") == 1
