"""The next wake-up of a mote: to sample, or to send a packet only so that the proxy may answer it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from firmware_sim.mote.sample_clock import SampleClock
from protocols.power.record_instants import record_instants
from protocols.wire.programs import SamplingProgram, Several, first_sample_at_or_after


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
