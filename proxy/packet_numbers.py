"""The numbers of a mote's packets: which are new, which are replayed, how many are missing.

Pure. A packet is numbered by the mote's boot counter and its sequence within the boot.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocols.packets import Packet
from proxy.batching import MotePosition
from proxy.watermarks import LOWEST_US


@dataclass(frozen=True, slots=True)
class Advance:
    """What a new packet's number says: packets `lost` before it, and whether the mote has begun anew."""

    lost: int
    rebooted: bool


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
        self.position = position or MotePosition(mote, -1, -1, LOWEST_US)
        self._announced_boot: int | None = None

    @property
    def heard(self) -> bool:
        """Whether any packet was ever taken."""
        return self.position.boot >= 0

    def announced(self, boot: int) -> bool:
        """The mote announced itself in this boot; return whether that is a new one."""
        self._announced_boot = boot
        return boot > self.position.boot

    def is_replayed(self, packet: Packet) -> bool:
        """Return whether the packet was taken before.

        A mote that lost its counters begins with small numbers, too. It has announced itself since the last packet and
        its clock went on, unlike a replay's.
        """
        if (packet.boot, packet.sequence) > self.position[1:3]:
            return False
        return not (self._announced_boot == packet.boot and packet.clock_us > self.position.clock_us)

    def advance(self, packet: Packet) -> Advance:
        """Take a packet that is not replayed."""
        expected = self.position.sequence + 1
        rebooted = self.heard and (packet.boot != self.position.boot or packet.sequence < expected)
        if rebooted:
            expected = 0
        elif not self.heard:
            expected = packet.sequence  # what was before is not ours to count
        self.position = MotePosition(self.position.mote, packet.boot, packet.sequence, packet.clock_us)
        self._announced_boot = None
        return Advance(max(0, packet.sequence - expected), rebooted)
