"""The sampling program that answers a set of queries, as today's proxy folds them: raw samples for all.

All fields anybody reads, at the longest period that has every sample anybody asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from firmware_sim.lifetime.fleet_file import FleetPlan, PlacedMote
from firmware_sim.lifetime.query_file import AskingQuery
from protocols.programs import SLEEP, SamplingProgram


def program_for(mote: PlacedMote, fleet: FleetPlan, queries: Sequence[AskingQuery]) -> SamplingProgram:
    """Return what a mote runs under these queries; it sleeps under none."""
    demands = [demand for each in queries for demand in each.demands]
    if not demands:
        return SamplingProgram(listen=fleet.listen) if fleet.listen != SLEEP.listen else SLEEP
    wanted = {name for demand in demands for name in demand.fields}
    sampled = [each.name for each in mote.description.stream.sampled]
    fields = tuple(name for name in sampled if name in wanted) or tuple(sampled[:1])
    periods_us = {demand.period_us or fleet.default_period_us for demand in demands}
    shared_us = gcd(*periods_us)
    least_us = mote.description.minimum_period_us
    period_us = shared_us if shared_us >= least_us else max(min(periods_us), least_us)
    return SamplingProgram(fields, period_us, fleet.samples_per_packet, fleet.listen)
