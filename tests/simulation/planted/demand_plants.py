"""Faults that are planted where a cluster publishes what its queries demand; whole deployments find them."""

from __future__ import annotations

from cluster.service.publishing.demand_publication import DemandPublication
from cluster.service.publishing.published_demands import PublishedDemands
from tests.simulation.planted.plant import Plants, Simulation, nothing, put

PLANTS = Plants(Simulation.DEPLOYMENT)


@PLANTS.planted("demands of dropped queries stay", "proxies are asked only for what a query still demands")
def _demands_stay() -> None:
    put(PublishedDemands, "_drop", nothing)


@PLANTS.planted("changed demands not published", "proxies are asked for what each query demands")
def _changes_not_published() -> None:
    put(DemandPublication, "publish", nothing_awaited)


async def nothing_awaited(*_: object) -> None:
    """Do nothing."""
