"""The name of a cluster at its broker, which no other cluster has."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from cluster.physical.plan_files import PlanFiles
from cluster.service.data_folder.folder import REGISTRY
from cluster.service.registry.registry import Registry
from cluster.service.running.settings import ClusterSettings
from protocols.mqtt.link import Message, MqttLink, Subscription
from protocols.presence.claiming import claimed
from protocols.presence.name_claim import claim_of_cluster
from protocols.sealing.seals import PartSeals, load_part_keys
from protocols.wire.catalog import Presence, Status
from protocols.wire.frames import VERSION


def seals_of(settings: ClusterSettings, folder: Path, purpose: str = "link") -> PartSeals | None:
    """Return what seals the frames of a cluster, with counters in its data folder; None without keys."""
    if settings.keys is None:
        return None
    return PartSeals(load_part_keys(settings.keys, proxy=None), folder, purpose=purpose)


@asynccontextmanager
async def claim_of(settings: ClusterSettings, stop: Callable[[], None]) -> AsyncIterator[int]:
    """Have the cluster's name while the context lasts; its data folder is owned, and not open yet.

    Yield since when it is claimed: the cluster is born with the same, by which it knows its claim.

    Parameters
    ----------
    settings
        Of the cluster.
    stop
        Called if the name turns out to be taken only when the broker is there.

    Raises
    ------
    NameTakenError
        If another cluster has it.
    """
    data = settings.folder.resolve()
    seals = seals_of(settings, data, "claim")
    registry = Registry(data / REGISTRY, PlanFiles(data / "plans"), max_queries=settings.max_queries)
    identity = registry.engine_id  # which is drawn now, if there is none yet
    registry.close()

    def make_link(client_id: str, subscriptions: Sequence[Subscription], births: Sequence[Message]) -> MqttLink:
        return MqttLink(settings.broker, client_id=client_id, subscriptions=subscriptions, births=births, seals=seals)

    own = Status(VERSION, settings.name, Presence.ONLINE, identity, time.time_ns() // 1_000)
    async with claimed(claim_of_cluster(own), "cluster", make_link, stop=stop):
        yield own.since_us
