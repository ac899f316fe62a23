"""The sample clock: application time as a function of radio time.

A mote has two clocks. The *radio clock* is real time: listen windows, wake-ups and packets run on it. The *sample
clock* stamps samples; in a replay it runs faster, and it may be held until everybody is ready. At speed 1 it is the
time of day.
"""

from __future__ import annotations

from firmware_sim.errors import SimulationError


class SampleClock:
    """Maps radio time to sample time and back, both in microseconds.

    Parameters
    ----------
    origin_us
        Sample time at which the clock begins.
    begins_radio_us
        Radio time at which it begins; None holds it at the origin until :meth:`release`.
    speed
        Sample time per radio time.
    """

    def __init__(self, origin_us: int, *, begins_radio_us: int | None, speed: float = 1.0) -> None:
        if speed <= 0:
            raise SimulationError(f"a clock cannot run at speed {speed}")
        self.origin_us = origin_us
        self.speed = speed
        self._begins_radio_us = begins_radio_us

    @property
    def held(self) -> bool:
        """True while it stands still at its origin."""
        return self._begins_radio_us is None

    def release(self, radio_us: int) -> None:
        """Let it run from now on; does nothing if it runs already."""
        if self._begins_radio_us is None:
            self._begins_radio_us = radio_us

    def at(self, radio_us: int) -> int:
        """Return the sample time at a radio time."""
        if self._begins_radio_us is None:
            return self.origin_us
        return self.origin_us + int((radio_us - self._begins_radio_us) * self.speed)

    def radio_time_of(self, sample_us: int) -> int | None:
        """Return the first radio time at which the clock has reached a sample time; None while it is held."""
        if self._begins_radio_us is None:
            return None
        radio_us = self._begins_radio_us + int((sample_us - self.origin_us) / self.speed)
        while self.at(radio_us) < sample_us:
            radio_us += 1
        return radio_us
