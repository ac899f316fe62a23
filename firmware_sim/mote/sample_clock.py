"""The sample clock: application time as a function of radio time.

A mote has two clocks. The *radio clock* is real time: listen windows, wake-ups and packets run on it. The *sample
clock* stamps samples; in a replay it runs faster, and it may be held until all motes are ready. At speed 1 it is the
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
        """True while the clock is held at its origin."""
        return self._begins_radio_us is None

    def release(self, radio_us: int) -> None:
        """Start the clock; does nothing if it runs already."""
        if self._begins_radio_us is None:
            self._begins_radio_us = radio_us

    def adjusted(self, by_us: int, radio_us: int) -> SampleClock:
        """Return a clock for one of the motes that share this one, moved at a radio time."""
        _ = radio_us
        return AdjustedClock(self, by_us)

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


class AdjustedClock(SampleClock):
    """A shared clock for a mote whose own clock was moved.

    Parameters
    ----------
    shared
        The clock of the other motes.
    by_us
        How far this one is ahead.
    """

    def __init__(self, shared: SampleClock, by_us: int) -> None:
        super().__init__(shared.origin_us + by_us, begins_radio_us=None, speed=shared.speed)
        self._shared = shared
        self._by_us = by_us

    @property
    def held(self) -> bool:
        """True while the shared clock stands still."""
        return self._shared.held

    def release(self, radio_us: int) -> None:
        """Start the shared clock."""
        self._shared.release(radio_us)

    def adjusted(self, by_us: int, radio_us: int) -> SampleClock:
        """Return this clock, moved once more."""
        return self._shared.adjusted(self._by_us + by_us, radio_us)

    def at(self, radio_us: int) -> int:
        """Return the sample time at a radio time."""
        return self._shared.at(radio_us) + self._by_us

    def radio_time_of(self, sample_us: int) -> int | None:
        """Return the first radio time at which the clock has reached a sample time; None while it is held."""
        return self._shared.radio_time_of(sample_us - self._by_us)
