"""Faults that are planted where several publishers share what they publish; whole deployments find them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from cluster.service.publishing import publication
from cluster.service.publishing.published import Position
from cluster.service.publishing.publisher import Publisher
from cluster.service.publishing.supervised_publishers import ProgressOfAll
from cluster.service.publishing.turns import PublishingPosition
from tests.simulation.planted.plant import Plants, Simulation, put

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.service.publishing.publication import Publication
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


@PLANTS.planted("publisher resumes too far", "a publisher that starts again leaves out no results")
def _resumes_too_far() -> None:
    begin = Publisher.__init__

    def further(self: Publisher, results: Any, publication: Publication, *rest: Any, **options: Any) -> None:
        begin(self, results, publication, *rest, **options)
        version = publication.now.version
        self.progress = PublishingPosition(Position(version + (version > 0)))

    put(Publisher, "__init__", further)


@PLANTS.planted("a chunk broken off counts as whole", "what the broker did not acknowledge is sent again")
def _broken_off_whole() -> None:
    received = PublishingPosition.received
    put(PublishingPosition, "received", lambda self, rows=None: received(self))


@PLANTS.planted("position of the fastest publisher", "results are kept until every publisher has published them")
def _fastest() -> None:
    put(ProgressOfAll, "version", lambda self: max(each.last.version for each in self.each))


def _all_ahead(part: Published) -> Published:
    return replace(part, version=part.newest, ahead={})
