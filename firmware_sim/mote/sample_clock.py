"""The clocks of a mote: application time, its own that drifts, and when it wakes next.

**The sample clock: application time as a function of radio time.**

A mote has two clocks. The *radio clock* is real time: listen windows, wake-ups and packets run on it. The *sample
clock* stamps samples; in a replay it runs faster, and it may be held until all motes are ready. At speed 1 it is the
time of day.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from firmware_sim.errors import SimulationError
from protocols.power.listening import record_instants
from protocols.wire.programs import SamplingProgram, Several, first_sample_at_or_after


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


@dataclass(frozen=True, slots=True)
class Schedule:
    """The state on which a wake-up depends; the energy model uses the same rule (:mod:`protocols.power.listening`).

    Parameters
    ----------
    program
        The running program.
    clock
        The clock that maps radio time to sample time.
    window_began_us
        Radio time at which its last listen window began.
    next_sample_us
        Sample time of its next sample; None if there are no more.
    waiting
        How many records wait for a full packet.
    impatient_us
        Sample time at which they are sent without it; None without a limit.
    regular
        Whether it is known when records come.
    """

    program: SamplingProgram
    clock: SampleClock
    window_began_us: int
    next_sample_us: int | None
    waiting: int
    impatient_us: int | None = None
    regular: bool = True

    def wakes_at(self, radio_us: int) -> int:
        """Return the radio time at which it wakes next, after `radio_us`."""
        wakes_us = self.asks_at(radio_us)
        if not self.program.sleeping and self.next_sample_us is not None:
            sample_us = self.clock.radio_time_of(self.next_sample_us)
            wakes_us = wakes_us if sample_us is None else min(wakes_us, sample_us)
        if self.impatient_us is not None:
            flush_us = self.clock.radio_time_of(self.impatient_us)
            wakes_us = wakes_us if flush_us is None else min(wakes_us, flush_us)
        return max(wakes_us, radio_us + 1)

    def asks_at(self, radio_us: int) -> int:
        """Return the radio time at which it sends a packet only to listen after it.

        If a packet with samples is due soon, the mote listens after that, which costs nothing more.
        """
        every_us = self.program.listen.every_us
        ask_us = self.window_began_us + every_us
        if not self.program.sleeping and not self.regular:
            return ask_us + every_us
        packet_us = self._next_packet_at()
        if packet_us is not None and packet_us <= max(ask_us, radio_us) + every_us:
            return packet_us + 1
        return ask_us

    def _next_packet_at(self) -> int | None:
        """Return when the next packet with samples is due; None if there is none."""
        program, sample_us = self.program, self.next_sample_us
        if program.sleeping or sample_us is None:
            return None
        missing = max(0, program.samples_per_packet - self.waiting - 1)
        if isinstance(program.report, Several):
            return self.clock.radio_time_of(next(islice(record_instants(program, sample_us), missing, None)))
        interval_us = program.interval_us
        if interval_us is None:
            return self.clock.radio_time_of(sample_us + missing * program.period_us)
        # An interval ends with the first sample after it.
        ends_us = first_sample_at_or_after(sample_us, interval_us) + missing * interval_us
        return self.clock.radio_time_of(first_sample_at_or_after(ends_us, program.period_us))
