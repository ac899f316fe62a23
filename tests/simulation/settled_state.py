"""What processes and the broker must know once everything has calmed down: the catalog, and what is demanded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocols.wire import topics
from tests.simulation.schedules import stream_of
from tests.simulation.violations import Violation, each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.world import World

STREAM = "traffic"


def unsettled(world: World) -> Iterator[Violation]:
    """Yield what is missing."""
    retained = world.broker.broker.retained
    entries = [
        topics.mote_entry(mote.gateway.proxy, mote.name) for mote in world.motes if mote.on and mote.gateway.proxy
    ]
    yield from each("lost", "motes missing in the catalog", [topic for topic in entries if topic not in retained])
    offers = [topics.stream_offer(proxy, STREAM) for proxy in world.proxies]
    yield from each("lost", "offers of streams missing", [topic for topic in offers if topic not in retained])
    yield from each("wrong", "demands that proxies do not know, or that are gone", _other_demands(world))


def _other_demands(world: World) -> Iterator[tuple[str, list[str]]]:
    of_others = {each.name for each in world.schedule.queries if stream_of(each.sql) != STREAM}
    demanded = world.cluster.demanded - of_others
    for name, proxy in world.proxies.items():
        stream = None if proxy.service is None else proxy.service.fleet.streams.get(STREAM)
        if stream is not None and stream._demand is not None:
            known = {demand.query for demand in stream._demand.demands}
            if known != demanded:
                yield name, sorted(known ^ demanded)
