"""The numbers of a mote's packets: which are new, which are replayed, how many are missing.

Pure. A packet is numbered by the mote's boot counter and its sequence within the boot.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocols.packets import Packet
from proxy.waiting_tuples import MotePosition
from proxy.watermarks import LOWEST_US


@dataclass(frozen=True, slots=True)
class Advance:
    """What a new packet's number says: packets `lost` before it, and whether the mote has begun anew."""

    lost: int
    rebooted: bool


NEXT = Advance(0, rebooted=False)
"""The packet that was expected."""


class PacketNumbers:
    """How far the packets of a mote have been taken.

    Parameters
    ----------
    mote
        Its name.
    position
        From before a restart of the proxy, if it is known.
    """

    def __init__(self, mote: str, position: MotePosition | None = None) -> None:
        _, self.boot, self.sequence, self._clock_us = position or MotePosition(mote, -1, -1, LOWEST_US)
        self._mote = mote
        self._announced_boot: int | None = None

    @property
    def position(self) -> MotePosition:
        """Up to where packets have been taken."""
        return MotePosition(self._mote, self.boot, self.sequence, self._clock_us)

    @property
    def heard(self) -> bool:
        """Whether any packet was ever taken."""
        return self.boot >= 0

    def announced(self, boot: int) -> bool:
        """The mote announced itself in this boot; return whether that is a new one."""
        self._announced_boot = boot
        return boot > self.boot

    def is_replayed(self, packet: Packet) -> bool:
        """Return whether the packet was taken before.

        A mote that lost its counters begins with small numbers, too. It has announced itself since the last packet and
        its clock went on, unlike a replay's.
        """
        if packet.boot > self.boot or (packet.boot == self.boot and packet.sequence > self.sequence):
            return False
        return not (self._announced_boot == packet.boot and packet.clock_us > self._clock_us)

    def may_begin_again(self, packet: Packet) -> bool:
        """Return whether a packet taken for replayed may be from a mote that lost its counters: its clock went on.

        Its announcement was lost, too, if nobody was connected when it came.
        """
        return packet.clock_us > self._clock_us

    def go_on(self, packet: Packet) -> None:
        """Take the next packet of the same boot."""
        self.sequence, self._clock_us = packet.sequence, packet.clock_us
        self._announced_boot = None

    def advance(self, packet: Packet, *, keeps_time: bool = True) -> Advance:
        """Take a packet that is not replayed; its clock counts for nothing if that is wrong."""
        expected = self.sequence + 1
        rebooted = self.heard and (packet.boot != self.boot or packet.sequence < expected)
        if rebooted:
            expected = 0
        elif not self.heard:
            expected = packet.sequence  # what was before is not ours to count
        self.boot, self.sequence = packet.boot, packet.sequence
        if keeps_time:
            self._clock_us = packet.clock_us
        self._announced_boot = None
        if packet.sequence <= expected and not rebooted:
            return NEXT
        return Advance(max(0, packet.sequence - expected), rebooted)
