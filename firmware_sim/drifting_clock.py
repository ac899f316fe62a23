"""A mote's own clock: it runs a little fast or slow and is put right now and then."""

from __future__ import annotations

from dataclasses import dataclass

from firmware_sim.sample_clock import SampleClock


@dataclass(frozen=True, slots=True)
class Drift:
    """How wrong a clock runs.

    Parameters
    ----------
    parts_per_million
        How much faster than true it runs; negative if slower.
    synchronise_every_us
        Radio time between two synchronisations; 0 for none.
    error_after_us
        How wrong it is right after one.
    """

    parts_per_million: float = 0.0
    synchronise_every_us: int = 0
    error_after_us: float = 0.0


class DriftingClock(SampleClock):
    """The sample clock as one mote sees it.

    Parameters
    ----------
    true_clock
        What its fleet goes by.
    drift
        How wrong it runs.
    begins_radio_us
        When it was right for the first time.
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
        """Let the fleet's clock run."""
        self._true.release(radio_us)

    def error_us(self, radio_us: int) -> int:
        """Return by how much it is ahead of the true clock at a radio time."""
        since_us = radio_us - self._right_us
        if self._drift.synchronise_every_us:
            since_us %= self._drift.synchronise_every_us
        moved_us = self._moved_us if self._synchronisations(radio_us) <= self._moved_in else 0
        return round(self._drift.error_after_us + since_us * self._drift.parts_per_million * 1e-6) + moved_us

    def adjusted(self, by_us: int, radio_us: int) -> SampleClock:
        """Move this clock, which is one mote's own, until it is put right next; return it."""
        now = self._synchronisations(radio_us)
        self._moved_us = by_us + (self._moved_us if now == self._moved_in else 0)
        self._moved_in = now
        return self

    def _synchronisations(self, radio_us: int) -> int:
        every_us = self._drift.synchronise_every_us
        return (radio_us - self._right_us) // every_us if every_us else 0

    def at(self, radio_us: int) -> int:
        """Return what it shows at a radio time."""
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
        """Return the true sample time when it shows `sample_us`: what is sensed then is the world of that instant."""
        radio_us = self.radio_time_of(sample_us)
        return sample_us if radio_us is None else self._true.at(radio_us)
