"""Packets that overtook each other are put in order again, within a bound; then missing ones are given up.

Pure. A packet after a gap waits until the gap is filled, or has lasted for too long::

    arrives     1    2    4    5         3                 7                6
    accepted    1    2                   3 4 5             .  waits  .  7   replayed
"""

from __future__ import annotations

from dataclasses import dataclass

from protocols.wire.packets import Packet

MOST_HELD = 64
"""Packets of one mote that wait; with more, the first gap is given up."""

Number = tuple[int, int]
"""Boot and sequence."""


@dataclass(frozen=True, slots=True)
class HeldPacket:
    """A packet, and when it was received."""

    packet: Packet
    radio_us: int
    received_us: int

    @property
    def number(self) -> Number:
        """Its boot and sequence."""
        return self.packet.boot, self.packet.sequence


@dataclass(frozen=True, slots=True)
class Arrival:
    """What follows from a packet that has arrived.

    Parameters
    ----------
    ready
        Packets to process, in this order.
    replayed
        Whether the packet that arrived waits already.
    """

    ready: tuple[HeldPacket, ...] = ()
    replayed: bool = False


class Reordering:
    """The packets of one mote that wait.

    Parameters
    ----------
    within_us
        How long a gap may last; 0 does not wait.
    most
        How many packets may wait.
    """

    __slots__ = ("_held", "_most", "_within_us")

    def __init__(self, within_us: int, most: int = MOST_HELD) -> None:
        self._within_us = within_us
        self._most = most
        self._held: dict[Number, HeldPacket] = {}

    def __len__(self) -> int:
        return len(self._held)

    @property
    def held_since_us(self) -> int | None:
        """When the first of the packets that wait arrived, by the radio's clock; None if none waits."""
        return self._gap_seen_us() if self._held else None

    def is_next(self, packet: Packet, boot: int, sequence: int) -> bool:
        """Return whether a packet can be processed at once, as nearly all can: it is the next one, and none waits."""
        if self._held:
            return False
        return self._within_us == 0 or (packet.sequence == sequence + 1 and packet.boot == boot)

    def received(self, arrived: HeldPacket, last: Number | None) -> Arrival:
        """Return what follows from a packet, where `last` is the last one processed, None if there is none.

        One that is not after `last` is ready at once: it is a replay, or from a mote that lost its counters, and the
        caller can tell which.
        """
        number = arrived.number
        if number in self._held:
            return Arrival(replayed=True)
        if last is None or number <= last or self._within_us == 0:
            return Arrival((arrived,))
        if not self._held and _follows(number, last):
            return Arrival((arrived,))
        self._held[number] = arrived
        ready = self._release_next(last, arrived.radio_us)
        while len(self._held) > self._most:
            ready += self._release_run()
        return Arrival(ready)

    def time_passed(self, radio_us: int) -> tuple[HeldPacket, ...]:
        """Return the packets that have waited long enough for others, in order."""
        ready: tuple[HeldPacket, ...] = ()
        while self._held and radio_us - self._gap_seen_us() >= self._within_us:
            ready += self._release_run()
        return ready

    def release_all(self) -> tuple[HeldPacket, ...]:
        """Return all packets that wait, in order: the missing ones will not arrive any more."""
        ready = tuple(self._held[number] for number in sorted(self._held))
        self._held.clear()
        return ready

    def _release_next(self, last: Number, radio_us: int) -> tuple[HeldPacket, ...]:
        """Return the packets whose gap was filled or has lasted too long."""
        ready: tuple[HeldPacket, ...] = ()
        if _follows(min(self._held), last):
            ready = self._release_run()
        return ready + self.time_passed(radio_us)

    def _release_run(self) -> tuple[HeldPacket, ...]:
        """Return the first packets that wait, up to the next gap."""
        run: list[HeldPacket] = []
        for number in sorted(self._held):
            if run and not _follows(number, run[-1].number):
                break
            run.append(self._held.pop(number))
        return tuple(run)

    def _gap_seen_us(self) -> int:
        """Return when the first gap was noticed: on arrival of the first packet after it."""
        return min(each.radio_us for each in self._held.values())


def _follows(number: Number, before: Number) -> bool:
    """Return whether no packet is missing between two; a boot begins with 0, and how the last one ended is unknown."""
    boot, sequence = number
    return sequence == (before[1] + 1 if boot == before[0] else 0)
