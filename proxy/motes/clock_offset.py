"""By how much a mote's sample clock is behind real time, estimated from its packets.

Pure. A packet carries the mote's clock as of its sending. When it is received, real time is ahead of that by the
clock's offset and by the packet's delay. Delays only add, so the least difference in a while is nearest to the offset::

    receipt - clock   |    x        x
                      |  x    x  x     x   x      delays above the line
                      |__x_______x_____x____x__   the offset, which drifts
                                              time

The shortest delay of all packets cannot be separated from the offset, and is part of the estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from statistics import median

BUCKET_US = 20_000_000
"""Of all packets within this time the one with the least difference is kept."""
MOST_BUCKETS = 12
MOST_AGE_US = 3_600_000_000
FASTEST_DRIFT = 200e-6
"""No clock drifts faster; crystals are within a quarter of it."""
JUMP_US = 50_000
"""If the difference changes by more than this, beyond drift, the clock was set."""
_FEWEST_PACKETS = 3
_FEWEST_CLOSED = 3
"""Buckets that an estimate of the drift, and a correction, need."""


@dataclass(frozen=True, slots=True)
class OffsetEstimate:
    """An estimate of a clock.

    Parameters
    ----------
    offset_us
        By how much it is behind real time.
    error_us
        By how much that may be wrong, as long as the least delays of a few minutes differ no more than those observed.
    drift_ppm
        By how much it is too slow, in parts per million; None if the mote was observed for too short a time.
    """

    offset_us: int
    error_us: int
    drift_ppm: float | None = None


class ClockOffset:
    """The clock of one mote; bounded."""

    __slots__ = ("_began_us", "_boot", "_buckets", "_drift", "_least_us", "_lowest_us", "_packets", "_received_us")

    def __init__(self) -> None:
        self._boot: int | None = None
        self._buckets: list[tuple[int, int, int]] = []
        self._drift: float | None = None
        self._received_us = 0
        self._least_us = 0
        self._packets = 0
        self._began_us = self._lowest_us = 0

    @property
    def kept(self) -> tuple[tuple[int, int], ...]:
        """The packets that are kept: when they were received, and by how much their clock was behind real time."""
        return tuple((received_us, behind_us) for _, received_us, behind_us in self._buckets)

    def restart(self) -> None:
        """Forget everything: the clock was set, or is about to be."""
        self._buckets.clear()
        self._boot = self._drift = None
        self._packets = 0

    def observe(self, received_us: int, clock_us: int, boot: int = 0) -> None:
        """Observe a packet received at real time `received_us`, sent in a boot when the clock showed `clock_us`."""
        behind_us = received_us - clock_us
        if (
            behind_us >= self._lowest_us
            and self._began_us <= received_us < self._began_us + BUCKET_US
            and boot == self._boot
        ):
            # As most packets, it does not have the least delay of its bucket.
            self._received_us = received_us
            self._packets += 1
            return
        number = received_us // BUCKET_US
        buckets = self._buckets
        if boot != self._boot or (buckets and (number < buckets[-1][0] or self._set_forward(received_us, behind_us))):
            self.restart()
            self._boot = boot
        self._received_us = received_us
        self._packets += 1
        if not buckets or number > buckets[-1][0]:
            self._close(received_us)
            buckets.append((number, received_us, behind_us))
            self._least_us = min(each[2] for each in buckets)
        elif behind_us < buckets[-1][2]:
            buckets[-1] = (number, received_us, behind_us)
            self._least_us = min(self._least_us, behind_us)
        self._began_us, self._lowest_us = number * BUCKET_US, buckets[-1][2]

    def delay_us(self, received_us: int, clock_us: int) -> int:
        """Return how much longer than the fastest ones a packet took, at least; 0 if that is not known.

        Where a clock runs as fast as real time, a packet that seems older than others was delayed on its way.
        """
        if self._drift is None or abs(self._drift) > FASTEST_DRIFT or not self._buckets:
            return 0
        drifted_us = FASTEST_DRIFT * max(0, received_us - self._buckets[0][1])
        return max(0, round(received_us - clock_us - self._least_us - drifted_us))

    def estimate(self) -> OffsetEstimate | None:
        """Return the offset as of the last packet; None before a few packets."""
        if self._packets < _FEWEST_PACKETS:
            return None
        at_us, drift = self._received_us, self._drift or 0.0
        level = [behind_us - drift * (received_us - at_us) for _, received_us, behind_us in self._buckets]
        lowest = min(level)
        first_us, last_us = self._buckets[0][1], self._buckets[-1][1]
        error = FASTEST_DRIFT * (at_us - first_us)
        if self._drift is not None:
            seen = 2 * (max(level) - lowest) * (at_us - first_us) / (last_us - first_us)
            error = min(2 * error, seen)
        ppm = None if self._drift is None else drift * 1e6
        return OffsetEstimate(round(lowest), round(error) + 1, ppm)

    def correction_us(self, tolerance_us: int | None) -> int | None:
        """Return by how much to move a clock that may be off by more than the tolerance; None to leave it alone."""
        if tolerance_us is None or self._drift is None:
            return None
        found = self.estimate()
        if found is None or abs(found.offset_us) <= found.error_us:
            return None  # a correction might make it worse
        return found.offset_us if abs(found.offset_us) + found.error_us > tolerance_us else None

    def _set_forward(self, received_us: int, behind_us: int) -> bool:
        """Whether the difference is smaller than drift explains: a delay cannot make it smaller."""
        if behind_us >= self._least_us - JUMP_US:
            return False
        least = min(each_us - FASTEST_DRIFT * (received_us - when_us) for _, when_us, each_us in self._buckets)
        return behind_us < least - JUMP_US

    def _close(self, received_us: int) -> None:
        """Close the last bucket, and forget those that are too old, or from before the clock was set back."""
        buckets = self._buckets
        while buckets and (len(buckets) >= MOST_BUCKETS or received_us - buckets[0][1] > MOST_AGE_US):
            del buckets[0]
        new, old = buckets[-2:], buckets[:-2]
        if old:
            # One bucket of late packets may be a busy network; two are not.
            most = max(behind_us + FASTEST_DRIFT * (received_us - when_us) for _, when_us, behind_us in old)
            if min(behind_us for _, _, behind_us in new) > most + JUMP_US:
                del buckets[:-2]
        self._drift = None
        if len(buckets) >= _FEWEST_CLOSED:
            pairs = combinations(buckets, 2)
            slopes = [(later[2] - sooner[2]) / (later[1] - sooner[1]) for sooner, later in pairs]
            self._drift = min(FASTEST_DRIFT, max(-FASTEST_DRIFT, median(slopes)))
