"""A mote's own clock: it runs a little fast or slow and is synchronised now and then."""

from __future__ import annotations

from dataclasses import dataclass

from firmware_sim.mote.sample_clock import SampleClock


@dataclass(frozen=True, slots=True)
class Drift:
    """The error of a clock.

    Parameters
    ----------
    parts_per_million
        How much faster than true time it runs; negative if slower.
    synchronise_every_us
        Radio time between two synchronisations; 0 for none.
    error_after_us
        Its error right after a synchronisation.
    """

    parts_per_million: float = 0.0
    synchronise_every_us: int = 0
    error_after_us: float = 0.0


class DriftingClock(SampleClock):
    """The sample clock of one mote.

    Parameters
    ----------
    true_clock
        The clock of its fleet.
    drift
        The error of this clock.
    begins_radio_us
        Radio time of its first synchronisation.
    """

    def __init__(self, true_clock: SampleClock, drift: Drift, *, begins_radio_us: int = 0) -> None:
        super().__init__(true_clock.origin_us, begins_radio_us=None, speed=true_clock.speed)
        self._true = true_clock
        self._drift = drift
        self._right_us = begins_radio_us
        self._moved_us = 0
        self._moved_in = 0

    @property
    def held(self) -> bool:
        """True while the fleet's clock stands still."""
        return self._true.held

    def release(self, radio_us: int) -> None:
        """Start the fleet's clock."""
        self._true.release(radio_us)

    def error_us(self, radio_us: int) -> int:
        """Return how far it is ahead of the true clock at a radio time."""
        since_us = radio_us - self._right_us
        if self._drift.synchronise_every_us:
            since_us %= self._drift.synchronise_every_us
        moved_us = self._moved_us if self._synchronisations(radio_us) <= self._moved_in else 0
        return round(self._drift.error_after_us + since_us * self._drift.parts_per_million * 1e-6) + moved_us

    def adjusted(self, by_us: int, radio_us: int) -> SampleClock:
        """Move this clock, which belongs to one mote, until its next synchronisation; return it."""
        now = self._synchronisations(radio_us)
        self._moved_us = by_us + (self._moved_us if now == self._moved_in else 0)
        self._moved_in = now
        return self

    def _synchronisations(self, radio_us: int) -> int:
        every_us = self._drift.synchronise_every_us
        return (radio_us - self._right_us) // every_us if every_us else 0

    def at(self, radio_us: int) -> int:
        """Return the sample time at a radio time."""
        if self.held:
            return self._true.at(radio_us)
        return self._true.at(radio_us) + self.error_us(radio_us)

    def radio_time_of(self, sample_us: int) -> int | None:
        """Return a radio time at which it has reached a sample time, at most a step of its error after the first."""
        found_us = self._true.radio_time_of(sample_us)
        if found_us is None:
            return None
        earlier_us = self._true.radio_time_of(sample_us - self.error_us(found_us))
        found_us = found_us if earlier_us is None else earlier_us
        while self.at(found_us) < sample_us:
            found_us += max(1, int((sample_us - self.at(found_us)) / self.speed))
        return found_us

    def true_time_of(self, sample_us: int) -> int:
        """Return the true sample time when the clock shows `sample_us`; the mote senses the world of that instant."""
        radio_us = self.radio_time_of(sample_us)
        return sample_us if radio_us is None else self._true.at(radio_us)
