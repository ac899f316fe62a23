"""The sampling programs for a set of queries, chosen as the proxy chooses them (:mod:`protocols.acquisition`)."""

from __future__ import annotations

from collections.abc import Sequence

from firmware_sim.lifetime.fleet_file import FleetPlan, PlacedMote
from firmware_sim.lifetime.query_file import AskingQuery
from protocols.acquisition.merging import MergedProgram, Merger, workload_for
from protocols.acquisition.needs import fold_demands
from protocols.acquisition.program_reports import Abilities, ProgramStyle
from protocols.acquisition.sensor_traits import SensorTraits
from protocols.power.estimate import Workload
from protocols.wire.programs import SamplingProgram

ONLY_SAMPLES = Abilities(filters=False, sends_on_change=False, aggregates=False, detects_events=False, several=False)
"""The abilities of motes that send every sample unchanged."""


class FleetFolding:
    """Programs of a fleet's motes under a set of queries.

    Parameters
    ----------
    fleet
        The fleet.
    queries
        The queries.
    pushed_down
        False if motes are to send every sample that any query reads.
    """

    def __init__(self, fleet: FleetPlan, queries: Sequence[AskingQuery], *, pushed_down: bool = True) -> None:
        demands = [demand for each in queries for demand in each.demands]
        folded = fold_demands(demands, fleet.motes[0].description.stream)
        style = ProgramStyle(fleet.samples_per_packet, fleet.listen)
        self._fleet = fleet
        self._merger = Merger(folded, style, fleet.observed)
        self._abilities = Abilities() if pushed_down else ONLY_SAMPLES

    def merged(self, mote: PlacedMote) -> MergedProgram:
        """Return the program of a mote, and the reasons for it.

        As at a proxy, periods are longer than demanded where queries allow it and batteries are to last longer.
        """
        processor = mote.profile.processor
        traits = SensorTraits(
            self._fleet.default_period_us,
            mote.description.minimum_period_us,
            mote.profile,
            mote.battery.usable_joules(processor.supply_v, processor.minimum_v) or None,
            abilities=self._abilities,
            # Profiles of one name may differ: a file that began as a copy of a preset.
            device=f"{mote.profile.name} {hash(mote.profile)}",
        )
        return self._merger.merge(traits, mote.description.properties)

    def workload(self, mote: PlacedMote, program: SamplingProgram) -> Workload:
        """Return the workload of a mote with that program."""
        return workload_for(program, self._fleet.observed, loss=mote.loss)
