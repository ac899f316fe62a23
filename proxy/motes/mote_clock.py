"""The clock of one mote as its packets show it: whether it can be right, and by how much it is off. Pure."""

from __future__ import annotations

from protocols.wire.catalog import ClockFault
from protocols.wire.packets import Packet
from proxy.motes.clock_bounds import UNBOUNDED, ClockBounds, Slack, WrongClock, oldest_stamp_us, wrong_clock
from proxy.motes.clock_offset import ClockOffset
from proxy.records.watermarks import LOWEST_US

MEASURE_EVERY_US = 500_000
"""The offset of a mote's clock is measured no more often than this."""


class MoteClock:
    """The clock of one mote.

    Parameters
    ----------
    bounds
        How far it may be from the time of day.
    tolerance_us
        A clock that may be off by more is corrected; None never corrects it.
    """

    __slots__ = ("_configured", "_measured_us", "_offset", "_tolerance_us", "bounds", "fault")  # one for each mote

    def __init__(self, bounds: ClockBounds, tolerance_us: int | None) -> None:
        self.bounds = bounds
        self.fault: ClockFault | None = None
        """How the clock is wrong. Until a packet shows that it is right again, the mote does not hold the watermark."""
        self._configured = bounds
        self._tolerance_us = tolerance_us
        self._offset = ClockOffset()
        self._measured_us = LOWEST_US

    def set_bounded(self, *, bounded: bool) -> None:
        """Hold the clock to its bounds, or lift them: a replay does not run on the time of day."""
        self.bounds = self._configured if bounded else UNBOUNDED

    def measure(self, packet: Packet, received_us: int) -> None:
        """Measure the offset by a packet, unless that was done a moment ago."""
        if 0 <= received_us - self._measured_us < MEASURE_EVERY_US:
            return
        self._measured_us = received_us
        self._offset.observe(received_us, packet.clock_us, packet.boot)

    @property
    def offset_us(self) -> int | None:
        """By how much the clock is behind real time; None before a few packets."""
        found = self._offset.estimate()
        return None if found is None else found.offset_us

    def wrong(self, packet: Packet, received_us: int, slack: Slack) -> WrongClock | None:
        """Return what is wrong with the clock by a packet of the mote; None if it may be right."""
        return wrong_clock(self.bounds, packet, received_us, slack)

    def mark_wrong(self, wrong: WrongClock) -> bool:
        """Note that the clock is wrong; return whether that is new."""
        changed = self.fault is not wrong.fault
        self.fault = wrong.fault
        return changed

    def mark_right(self) -> bool:
        """Note that the clock is right; return whether that is new."""
        changed = self.fault is not None
        self.fault = None
        return changed

    def oldest_stamp_us(self, received_us: int, slack: Slack) -> int | None:
        """Return the instant before which a right clock stamps no sample of a packet; None if there is none."""
        return oldest_stamp_us(self.bounds, received_us, slack)

    def listens(self, packet: Packet, received_us: int) -> bool:
        """Return whether the listen window of a packet is open: the packet was not held back until it had closed."""
        return self._offset.delay_us(received_us, packet.clock_us) < packet.listen_us

    def take_correction_us(self) -> int | None:
        """Return by how much the mote has to move its clock, and start a new estimate; None to leave it alone."""
        by_us = self._offset.correction_us(self._tolerance_us)
        if by_us is not None:
            self._offset.restart()  # later packets show whether the mote received the correction
        return by_us
