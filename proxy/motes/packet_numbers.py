"""The numbers of a mote's packets: which are new, which are replayed, how many are missing.

Pure. A packet is numbered by the mote's boot counter and its sequence within the boot.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocols.wire.packets import Announcement, NumberedAnnouncement, Packet
from proxy.motes.clock_bounds import ClockBounds
from proxy.records.waiting_tuples import MotePosition
from proxy.records.watermarks import LOWEST_US


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
