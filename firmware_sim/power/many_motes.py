"""Many motes for months, energy only: the activities of each hour are counted, not simulated one by one.

Counts that depend on the world (vehicles, values in a band, lost packets) are drawn at random; those that depend on the
program are exact. The costs are the same as everywhere, so that this and motes that run sample by sample agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from firmware_sim.power.battery import Battery
from firmware_sim.power.surroundings import Climate, Solar
from protocols.power.costs import (
    COMPONENTS,
    Cost,
    always_mw,
    listen_cost,
    packet_cost,
    reporting_cost,
    resting_mw,
    sample_cost,
    synchronisation_cost,
)
from protocols.power.estimate import Workload, pause_us, polling_bits, rates_of
from protocols.power.profiles import DeviceProfile
from protocols.wire.programs import SamplingProgram, VehicleEvents

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class VirtualMote:
    """A mote in the energy model.

    Parameters
    ----------
    name
        The mote's name.
    profile, program, battery
        Its device, program and battery.
    workload
        Its mean workload.
    climate, solar
        The temperature at its place; its panel, if it has one.
    """

    name: str
    profile: DeviceProfile
    program: SamplingProgram
    battery: Battery
    workload: Workload = field(default_factory=Workload)
    climate: Climate = field(default_factory=Climate)
    solar: Solar | None = None


class Activities:
    """Random and exact counts of the activities of many motes in a period, and their costs."""

    def __init__(self, motes: Sequence[VirtualMote], generator: np.random.Generator) -> None:
        self._generator = generator
        rates = [rates_of(mote.program, mote.workload) for mote in motes]
        self._periods_us = np.array([mote.program.period_us or 2**62 for mote in motes], dtype=np.int64)
        self._intervals_us = np.array([mote.program.interval_us or 2**62 for mote in motes], dtype=np.int64)
        self._counts_intervals = np.array([mote.program.interval_us is not None for mote in motes])
        self._is_events = np.array([isinstance(mote.program.report, VehicleEvents) for mote in motes])
        self._most_events = np.array([_most_events(mote.program) for mote in motes])
        self._vehicles = np.array([mote.workload.vehicles_per_second for mote in motes])
        per_sample = np.array([each.records / each.samples if each.samples > 0 else 0.0 for each in rates])
        self._sent_always, self._sent_share = np.divmod(per_sample + 1e-12, 1.0)
        self._per_packet = np.array([mote.program.samples_per_packet for mote in motes], dtype=np.int64)
        self._loss = np.array([mote.workload.loss for mote in motes])
        self._attempts = np.array([round(mote.profile.radio.maximum_attempts) for mote in motes])
        self._steady = np.array(
            [[each.polls, each.listens, _sync_rate(mote)] for each, mote in zip(rates, motes, strict=True)]
        )
        self._per_ask = np.array([each.records_per_poll for each in rates])
        self._taken_along = np.zeros(len(motes))
        self._carried = np.zeros((len(motes), 3))
        self._waiting = np.zeros(len(motes), dtype=np.int64)
        self._costs, self._busy = _cost_table(motes)
        self._rest = np.array([resting_mw(mote.profile, pause_us(mote.program)) for mote in motes]) / 1e3
        self._always = np.array([always_mw(mote.profile) for mote in motes]) / 1e3
        self.totals = np.zeros((len(motes), len(_ACTIVITIES)))

    def step(self, begin_us: int, end_us: int) -> Floats:
        """Return the energy of each mote from one instant to another, by component, in joules."""
        seconds = (end_us - begin_us) / 1e6
        counts = np.empty((len(self._periods_us), len(_ACTIVITIES)))
        samples = end_us // self._periods_us - begin_us // self._periods_us
        self._carried += self._steady * seconds
        steady = np.floor(self._carried + 1e-9)
        self._carried -= steady
        self._taken_along += steady[:, 0] * self._per_ask
        records = self._records(samples, begin_us, end_us) + self._waiting
        along = np.minimum(np.floor(self._taken_along), records)
        self._taken_along -= along
        records -= along.astype(np.int64)
        packets = records // self._per_packet
        self._waiting = records - packets * self._per_packet
        counts[:, 0] = samples
        counts[:, 1] = packets
        counts[:, 2] = self._repeats(packets)
        counts[:, 3] = steady[:, 0]
        counts[:, 4] = self._repeats(steady[:, 0].astype(np.int64))
        counts[:, 5:7] = steady[:, 1:3]
        self.totals += counts
        busy = (counts * self._busy).sum(axis=1) / 1e6
        resting = np.maximum(seconds - busy, 0.0)[:, None]
        spent = np.einsum("ma,mac->mc", counts, self._costs) + self._rest * resting + self._always * seconds
        return np.asarray(spent, dtype=np.float64)

    def _records(self, samples: npt.NDArray[np.int64], begin_us: int, end_us: int) -> npt.NDArray[np.int64]:
        seconds = (end_us - begin_us) / 1e6
        sent = samples * self._sent_always + self._generator.binomial(np.maximum(samples, 0), self._sent_share)
        passed = np.minimum(self._generator.poisson(self._vehicles * seconds), self._most_events * seconds)
        intervals = end_us // self._intervals_us - begin_us // self._intervals_us
        found = np.where(self._is_events, passed, np.where(self._counts_intervals, intervals, sent))
        return np.asarray(found, dtype=np.int64)

    def _repeats(self, packets: npt.NDArray[np.int64]) -> Floats:
        """Draw how many packets are repeated because no acknowledgement came."""
        repeats = np.zeros(len(packets))
        failed = packets
        for attempt in range(1, int(self._attempts.max(initial=1))):
            failed = self._generator.binomial(failed, self._loss) * (attempt < self._attempts)
            if not failed.any():
                break
            repeats += failed
        return repeats


_ACTIVITIES = ("samples", "packets", "repeats", "asks", "ask_repeats", "listens", "synchronisations")


def _cost_table(motes: Sequence[VirtualMote]) -> tuple[Floats, Floats]:
    """Return joules (mote, activity, component) and busy microseconds (mote, activity) per activity."""
    costs = np.zeros((len(motes), len(_ACTIVITIES), len(COMPONENTS)))
    busy = np.zeros((len(motes), len(_ACTIVITIES)))
    for place, mote in enumerate(motes):
        profile, program = mote.profile, mote.program
        rates = rates_of(program, mote.workload)
        bits = rates.record_bits * program.samples_per_packet
        asking = polling_bits(profile, rates)
        every = (
            sample_cost(profile, len(program.fields), max(program.period_us, 1)),
            reporting_cost(profile, bits),
            _repeat(profile, bits, reporting_cost),
            packet_cost(profile, asking),
            _repeat(profile, asking, packet_cost),
            listen_cost(profile, program.listen.for_us),
            synchronisation_cost(profile),
        )
        for activity, cost in enumerate(every):
            costs[place, activity] = cost.joules
            busy[place, activity] = cost.busy_us
    return costs, busy


def _repeat(profile: DeviceProfile, bits: float, cost: Callable[[DeviceProfile, float, float], Cost]) -> Cost:
    once, twice = cost(profile, bits, 1.0), cost(profile, bits, 2.0)
    return Cost(twice.joules - once.joules, twice.busy_us - once.busy_us)


def _most_events(program: SamplingProgram) -> float:
    return float(program.report.at_most_per_second) if isinstance(program.report, VehicleEvents) else 0.0


def _sync_rate(mote: VirtualMote) -> float:
    every = mote.profile.clock.synchronise_every_seconds
    return 1 / every if every else 0.0
