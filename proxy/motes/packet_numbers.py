"""The packets of a mote by number: which are new, replayed or missing, put in order within a bound. Pure.

**The numbers of a mote's packets: which are new, which are replayed, how many are missing.**

A packet is numbered by the mote's boot counter and its sequence within the boot.

**Packets that overtook each other are put in order again, within a bound; then missing ones are given up.**

A packet after a gap waits until the gap is filled, or has lasted for too long::

    arrives     1    2    4    5         3                 7                6
    accepted    1    2                   3 4 5             .  waits  .  7   replayed
"""

from __future__ import annotations

from dataclasses import dataclass

from protocols.wire.packets import Announcement, NumberedAnnouncement, Packet
from proxy.motes.mote_clock import ClockBounds
from proxy.records.waiting_tuples import LOWEST_US, MotePosition


@dataclass(frozen=True, slots=True)
class Advance:
    """What a new packet's number means: packets `lost` before it, and whether the mote has rebooted."""

    lost: int
    rebooted: bool


SHORTEST_PACKET_US = 1_000
"""No mote sends packets faster."""
MOST_AT_ONCE = 1_000
"""Packets that may be missing beyond what time explains: they waited in the mote, or on the way."""
SHORTEST_BOOT_US = 1_000_000
"""No mote reboots more often."""
MOST_BOOTS_AT_ONCE = 1_000
"""Boots that may be missing beyond what time explains: the mote was out of reach while its battery was failing."""
NEXT = Advance(0, rebooted=False)
"""The packet that was expected."""


class PacketNumbers:
    """The number of the last packet of a mote that was accepted.

    Parameters
    ----------
    mote
        Its name.
    position
        The same from before a restart of the proxy, if it is known.
    strict
        Whether the mote has a key: then it keeps its counters, and numbers that are set back are of replays.
    """

    def __init__(self, mote: str, position: MotePosition | None = None, *, strict: bool = False) -> None:
        _, self.boot, self.sequence, self._clock_us = position or MotePosition(mote, -1, -1, LOWEST_US)
        self._mote = mote
        self._strict = strict
        self._announced_boot: int | None = None
        self._accepted: tuple[int, int] | None = None
        self._unreachable_since: tuple[int, int] | None = None

    @property
    def position(self) -> MotePosition:
        """The position of the last packet that was accepted."""
        return MotePosition(self._mote, self.boot, self.sequence, self._clock_us)

    @property
    def any_received(self) -> bool:
        """Whether any packet was ever accepted."""
        return self.boot >= 0

    def announced(self, boot: int) -> bool:
        """Note that the mote announced itself in this boot; return whether that is a new one."""
        self._announced_boot = boot
        return boot > self.boot

    def bound_clock(self, received_us: int, bounds: ClockBounds) -> None:
        """Forget a clock that no mote with these bounds can have shown: packets would have to be later than it."""
        if self._clock_us - received_us > bounds.latest_us:
            self._clock_us = received_us - bounds.earliest_us

    def is_replayed(self, packet: Packet) -> bool:
        """Return whether the packet was accepted before.

        A mote that lost its counters begins with small numbers, too. But it has announced itself since the last packet
        and its clock has advanced, unlike that of a replay.
        """
        if packet.boot > self.boot or (packet.boot == self.boot and packet.sequence > self.sequence):
            return False
        return self._strict or not (self._announced_boot == packet.boot and packet.clock_us > self._clock_us)

    def may_begin_again(self, packet: Packet) -> bool:
        """Return whether a packet that seems replayed may be of a mote that lost its counters: its clock advanced.

        Its announcement was lost, too, if the proxy was not connected when it was sent.
        """
        return not self._strict and packet.clock_us > self._clock_us

    def is_stale(self, announcement: Announcement) -> bool:
        """Return whether packets have been accepted that the mote sent after this announcement: it is a replay."""
        if not isinstance(announcement, NumberedAnnouncement):
            return self._strict
        return (announcement.boot, announcement.sequence) <= (self.boot, self.sequence)

    def is_unreachable(self, packet: Packet, radio_us: int, received_us: int, *, keeps_real_time: bool = True) -> bool:
        """Return whether the mote cannot have rebooted so often since the last packet: its number is damaged or forged.

        If it were accepted, all packets that the mote sends afterwards would seem replayed.
        """
        if self._strict or not self.any_received:
            return False
        elapsed_us = self._elapsed_us(packet, radio_us, received_us, keeps_real_time=keeps_real_time)
        if self._unreachable_since is not None:
            # After a restart nothing else may show how much time has passed: a mote must not be shut out for ever.
            radio_since_us, received_since_us = self._unreachable_since
            elapsed_us = max(elapsed_us, radio_us - radio_since_us, received_us - received_since_us)
        most = MOST_BOOTS_AT_ONCE + max(0, elapsed_us) // SHORTEST_BOOT_US
        if packet.boot - self.boot <= most:
            return False
        if self._unreachable_since is None:
            self._unreachable_since = radio_us, received_us
        return True

    def accept_next(self, packet: Packet, radio_us: int, received_us: int) -> None:
        """Accept the next packet of the same boot."""
        self.sequence, self._clock_us = packet.sequence, packet.clock_us
        self._accepted, self._unreachable_since = (radio_us, received_us), None
        self._announced_boot = None

    def advance(self, packet: Packet, radio_us: int, received_us: int, *, keeps_real_time: bool = True) -> Advance:
        """Accept a packet that is not replayed; its clock is ignored if it is wrong.

        If the number is higher than a mote can have reached since the last packet, the mote has begun anew at another
        number: the packets in between were never sent, so none of them is lost.
        """
        most = self._most_missing(packet, radio_us, received_us, keeps_real_time=keeps_real_time)
        before = packet.sequence - (self.sequence + 1)
        rebooted = self.any_received and (packet.boot != self.boot or not 0 <= before <= most)
        # Packets before the first one are not counted.
        missing = 0 if not self.any_received else packet.sequence if rebooted else before
        if missing > most:
            missing = 0
        self.boot, self.sequence = packet.boot, packet.sequence
        if keeps_real_time:
            self._clock_us = packet.clock_us
        self._accepted, self._unreachable_since = (radio_us, received_us), None
        self._announced_boot = None
        if not missing and not rebooted:
            return NEXT
        return Advance(missing, rebooted)

    def _most_missing(self, packet: Packet, radio_us: int, received_us: int, *, keeps_real_time: bool) -> int:
        """Return how many packets the mote can have sent since the last one that was accepted."""
        elapsed_us = self._elapsed_us(packet, radio_us, received_us, keeps_real_time=keeps_real_time)
        return MOST_AT_ONCE + max(0, elapsed_us) // SHORTEST_PACKET_US

    def _elapsed_us(self, packet: Packet, radio_us: int, received_us: int, *, keeps_real_time: bool) -> int:
        """Return the time since the last packet that was accepted; 0 if it is not known."""
        if self._accepted is not None:
            # The time of day advances while a machine is suspended, the radio clock does when the time of day is set.
            return max(radio_us - self._accepted[0], received_us - self._accepted[1])
        # The proxy was restarted, and only the mote's clock shows for how long it was away.
        known = keeps_real_time and self._clock_us > LOWEST_US
        return packet.clock_us - self._clock_us if known else 0


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
