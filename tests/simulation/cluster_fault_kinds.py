"""What can go wrong with the disk and the publisher of a simulated cluster, beside what can with any machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.fault_kinds import CUT_OFF, KINDS, MIGRATES, Kind, Target, nothing

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.cluster_host import ClusterHost
    from tests.simulation.world import World

STEPS = 6
"""Of micro-batches, after one of which the cluster is killed: each of the two hosts has three of a micro-batch."""
MOST_FAILING = 3
"""Operations in a row that fail."""


def _cluster(world: World) -> ClusterHost:
    return world.cluster  # type: ignore[return-value] # these kinds are for it alone


def _full(world: World, _: str, __: float) -> None:
    _cluster(world).disk.full = True


def _not_full(world: World, _: str, __: float) -> None:
    _cluster(world).disk.full = False


def _failing(what: str) -> Callable[[World, str, float], None]:
    def begin(world: World, _: str, amount: float) -> None:
        _cluster(world).disk.failing[what] = 1 + int(amount * MOST_FAILING)

    return begin


def _hang(world: World, _: str, amount: float) -> None:
    _cluster(world).hang_engine(amount)


def _migrate(world: World, _: str, amount: float) -> None:
    _cluster(world).migrate_query(amount)


def _kill_publisher(world: World, _: str, amount: float) -> None:
    _cluster(world).kill_publisher(amount)


def _aim(world: World, _: str, amount: float) -> None:
    _cluster(world).kill_within_micro_batch(1 + int(amount * STEPS))


def _restart(world: World, _: str, __: float) -> None:
    cluster = _cluster(world)
    cluster.kill_within_micro_batch(None)
    if cluster.host.incarnation is None and "cluster" not in world.without_power:
        cluster.start()


def _cut_off(world: World, _: str, amount: float) -> None:
    publisher = _cluster(world).publisher(amount)
    if publisher is not None:
        world.network.set_open(publisher.host.name, "broker", is_open=False)
        world.network.set_open("broker", publisher.host.name, is_open=False)


def _rejoin(world: World, _: str, __: float) -> None:
    for host in _cluster(world).publisher_hosts:
        world.network.set_open(host.name, "broker", is_open=True)
        world.network.set_open("broker", host.name, is_open=True)


CLUSTER_KINDS: dict[str, Kind] = {
    "cluster's disk full": Kind(Target.CLUSTER, _full, _not_full, 40.0),
    "cluster's syncs fail": Kind(Target.CLUSTER, _failing("sync"), nothing, 1.0),
    "cluster's commits fail": Kind(Target.CLUSTER, _failing("committing"), nothing, 1.0),
    "cluster's commits fail after taking effect": Kind(Target.CLUSTER, _failing("committed"), nothing, 1.0),
    "cluster's registry fails": Kind(Target.CLUSTER, _failing("registry"), nothing, 1.0),
    "cluster's registry fails after committing": Kind(Target.CLUSTER, _failing("registry committed"), nothing, 1.0),
    "cluster killed within a micro-batch": Kind(Target.CLUSTER, _aim, _restart, 60.0),
    "engine hangs": Kind(Target.CLUSTER, _hang, nothing, 1.0, (5.0, 60.0)),
    MIGRATES: Kind(Target.CLUSTER, _migrate, nothing, 1.0),
    CUT_OFF: Kind(Target.CLUSTER, _cut_off, _rejoin, 40.0),
    "publisher killed": Kind(Target.CLUSTER, _kill_publisher, nothing, 1.0),
}


def install() -> None:
    """Let schedules draw these, too."""
    KINDS.update(CLUSTER_KINDS)
