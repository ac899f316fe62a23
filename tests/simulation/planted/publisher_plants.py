"""Faults that are planted where several publishers share what they publish; whole deployments find them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from cluster.service.publishing import publication
from tests.simulation.planted.plant import Plants, Simulation, put

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.service.publishing.published import Published

PLANTS = Plants(Simulation.DEPLOYMENT)


@PLANTS.planted("shards divided at the newest position", "each shard keeps its position when publishers change")
def _divided_at_newest() -> None:
    united = publication.united

    def newest(whole: Published, parts: Mapping[int, Published]) -> Published:
        return replace(united(whole, parts), version=united(whole, parts).newest, ahead={})

    put(publication, "united", newest)


@PLANTS.planted("positions without their shards", "a shard that is ahead does not move the others")
def _without_shards() -> None:
    part_of = publication.part_of
    put(publication, "part_of", lambda whole, share: _all_ahead(part_of(whole, share)))


def _all_ahead(part: Published) -> Published:
    return replace(part, version=part.newest, ahead={})
