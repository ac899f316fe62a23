"""Schedules: a deployment and what happens to it, as data that a seed draws."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from tests.simulation.device_plans import FLUSH_US, DevicesPlan, drawn_devices, queries_of
from tests.simulation.fault_kinds import AIMED, CUT_OFF, KINDS, LOSING, OF_DEVICES, STRAY, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 500.0
"""Simulated time in which faults happen, queries come and go."""
CALM_SECONDS, COMPARED_SECONDS = 100.0, 45.0
"""Simulated time after it, in which everything has to come right again, and the end of it, when answers come often."""
SAMPLES_SQL = "SELECT sensor, segment, speed FROM traffic"
COMPLETENESS_SQL = (
    "SELECT sensor, COUNT(*) AS cars, COMPLETENESS() AS seen"
    " FROM traffic WINDOW(RANGE 20 SECONDS SLIDE 20 SECONDS) GROUP BY sensor"
)
MORE_SQL = (
    "SELECT sensor, speed, flow FROM traffic WHERE speed < 55",
    "SELECT sensor, segment, AVG(speed) AS mean FROM traffic WINDOW(RANGE 12 SECONDS) GROUP BY sensor, segment",
    "SELECT segment, MAX(speed) AS fastest FROM traffic WINDOW(RANGE 16 SECONDS SLIDE 8 SECONDS) GROUP BY segment",
    "SELECT sensor, flow FROM traffic WHERE lane = 1",
    "SELECT sensor, flow FROM traffic SAMPLE EVERY 4 SECONDS",
)
MOTES = (2, 2, 3, 4)
"""How many a deployment has."""
PERIODS_SECONDS = (1, 2, *[4] * 22)
"""Between samples: mostly long, as each packet costs, and more schedules find more than longer streams do."""
COMMIT_SECONDS = (4.0, *[12.0] * 4, *[24.0] * 11)
"""Between commits of the cluster, at most: mostly long, as a schedule with short ones costs a third more."""
SMALL_SPOOL = 100_000
"""Bytes of files, of which an empty one has 82 kB: a batch or two fill it until the cluster has them."""
PARTITIONS = (1, 1, 1, 2)
"""Parts in which a micro-batch reads a stream."""
FEW_KINDS_SHARE = 0.4
"""Of the schedules: they draw from three kinds of faults only."""
CHANGING_PUBLISHERS_SHARE, SEVERAL_PUBLISHERS_SHARE = 0.35, 0.3
"""Of the schedules: their cluster has another number of publishers at each start; of the others: it has two."""
CUT_OFF_SECONDS = 80.0
"""For so long a publisher is cut off in whose time the cluster restarts: longer than micro-batches are apart."""
LONG_CUT_OFF_SHARE, LONG_CUT_OFF_SECONDS = 0.8, 300.0
"""Of the clusters with two publishers, one is cut off for so long: longer than results are kept once published."""
STRAYS_SHARE, AWAY_SECONDS = 0.3, 30.0
"""Of the schedules: acknowledgements come that are for another spool, also where only the spool has what was sent.

The cluster is away for so long, and the broker forgets what it has kept for the cluster.
"""
AIMED_SHARE, AIMED_SECONDS = 0.4, 8.0
"""Of the schedules: a proxy is killed at a commit that it makes within so long, several times."""
FORGOTTEN_SHARE = 0.2
"""Of the schedules: all but a proxy forget what is demanded and what it has sent, and that proxy starts again."""
LOSING_SHARE = 0.4
"""Of the schedules: once or twice the broker loses batches."""
RESTARTED_SHARE = 0.6
"""Of the schedules with devices: a proxy is killed once more."""
CLOSE_SHARE = 0.5
CLOSE_SECONDS = 20.0
"""In this share of schedules, faults begin within so long of a few instants."""


class ProxyPlan(msgspec.Struct, frozen=True):
    """A proxy: the error of its clocks, and its settings in microseconds and bytes."""

    drift_ppm: int
    ahead_us: int
    settings: dict[str, Any]


class MotePlan(msgspec.Struct, frozen=True):
    """A mote: its proxy, the error of its clock, and when it is switched on."""

    proxy: int
    drift_ppm: int
    error_us: int
    on_at: float


class QueryPlan(msgspec.Struct, frozen=True):
    """A query, and when it is added and dropped; None for never."""

    name: str
    sql: str
    added: float
    dropped: float | None = None


def stream_of(sql: str) -> str:
    """Return the stream that a query reads."""
    words = sql.split()
    return words[words.index("FROM") + 1]


class Fault(msgspec.Struct, frozen=True):
    """Something that goes wrong for a while: of a kind in :data:`KINDS`, on a host, so badly."""

    kind: str
    target: str
    at: float
    lasts: float
    amount: float


class Schedule(msgspec.Struct, frozen=True):
    """A deployment and all that happens to it."""

    seed: int
    seconds: float
    period_us: int
    proxies: tuple[ProxyPlan, ...]
    motes: tuple[MotePlan, ...]
    queries: tuple[QueryPlan, ...]
    faults: tuple[Fault, ...]
    commit_seconds: float = 6.0
    """Between two commits of the cluster; less if proxies could not send enough in between."""
    partitions: int = 2
    """In how many parts a micro-batch reads, at most."""
    publishers: tuple[int, ...] = (1,)
    """How many publishers the cluster has at its first start, at its second one, and so on; then as many as last."""
    devices: DevicesPlan | None = None
    """Devices of other makers; None for none."""


def drawn(seed: int, seconds: float = SECONDS) -> Schedule:
    """Return the schedule of a seed."""
    dice = Random(f"schedule/{seed}")
    proxies = tuple(_proxy(dice) for _ in range(dice.choice((1, 1, 2))))
    motes = tuple(_mote(dice, place % len(proxies), seconds) for place in range(dice.choice(MOTES)))
    queries = (
        QueryPlan("all", SAMPLES_SQL, 1.0),
        QueryPlan("seen", COMPLETENESS_SQL, 1.0),
        *(_query(dice, place, seconds) for place in range(dice.randint(1, 3))),
    )
    faults = list(_faults(dice, len(proxies), seconds))
    faults += list(_strays(Random(f"strays/{seed}"), faults, len(proxies), seconds))
    faults += list(_forgotten(Random(f"forgotten/{seed}"), len(proxies), seconds))
    faults += list(_aimed(Random(f"aimed/{seed}"), len(proxies), seconds))
    faults += list(_losing(Random(f"losing/{seed}"), len(proxies), seconds))
    devices = drawn_devices(seed, len(proxies), seconds)
    if devices is not None:
        faults += list(_of_devices(Random(f"device faults/{seed}"), devices, len(proxies), seconds))
        queries += tuple(QueryPlan(*each) for each in queries_of(seed, devices, seconds))
        proxies = tuple(map(_with_device_batches, proxies))
    publishers = _publishers(seed)
    if CUT_OFF in KINDS:
        faults += list(_cut_off(Random(f"division/{seed}"), publishers, seconds))
    faults.sort(key=lambda each: each.at)
    period_us = dice.choice(PERIODS_SECONDS) * 1_000_000
    of_cluster = Random(f"cluster/{seed}")
    commit_seconds = of_cluster.choice(COMMIT_SECONDS)
    return Schedule(
        seed,
        seconds,
        period_us,
        tuple(_with_room(proxy, place, motes, period_us, commit_seconds) for place, proxy in enumerate(proxies)),
        motes,
        queries,
        tuple(faults),
        commit_seconds,
        of_cluster.choice(PARTITIONS),
        publishers,
        devices,
    )


def _of_devices(dice: Random, plan: DevicesPlan, proxies: int, seconds: float) -> Iterator[Fault]:
    """Yield faults of devices and bridges, and restarts of proxies in a time without other faults of theirs."""
    names = [f"d{place}" for place in range(len(plan.devices))] + [f"b{each}" for each in plan.bridges]
    for _ in range(dice.randint(1, 4)):
        kind = dice.choice(sorted(OF_DEVICES))
        lasts = dice.uniform(0.5, KINDS[kind].longest_seconds)
        at = dice.uniform(5.0, max(6.0, seconds - lasts - 1.0))
        yield Fault(kind, dice.choice(names), round(at, 3), round(lasts, 3), round(dice.random(), 4))
    if dice.random() < RESTARTED_SHARE:
        at = dice.uniform(0.1, 0.9) * seconds
        yield Fault("proxy killed", f"p{dice.randrange(proxies)}", round(at, 3), round(dice.uniform(1.0, 20.0), 3), 0.0)


def _with_device_batches(proxy: ProxyPlan) -> ProxyPlan:
    """Return a proxy whose devices' streams have batches that the cluster can take."""
    settings = proxy.settings
    slower = {"flush_interval": max(FLUSH_US, settings["flush_interval"]), "in_flight": 64}
    return msgspec.structs.replace(proxy, settings=settings | slower)


def _publishers(seed: int) -> tuple[int, ...]:
    """Return how many publishers a cluster has: often one, often two, and now and then another number at each start."""
    dice = Random(f"publishers/{seed}")
    if dice.random() < CHANGING_PUBLISHERS_SHARE:
        return tuple(dice.choice(((1, 2) * 10, (2, 1) * 10, (2, 3) * 10)))
    return (2,) if dice.random() < SEVERAL_PUBLISHERS_SHARE else (1,)


def _proxy(dice: Random) -> ProxyPlan:
    settings = {
        "flush_interval": dice.choice((250_000, 1_000_000, 4_000_000, 4_000_000)),
        "samples_per_packet": dice.choice((1, 1, 3)),
        "in_flight": dice.choice((16, 64, 64)),
        "batch_rows": dice.choice((3, 1_000)),
        "reorder_within": dice.choice((0, 2_000_000)),
        "waiting_samples": dice.choice((15, 100_000)),  # the former are too few while a disk is full
        "spool_size": dice.choice((SMALL_SPOOL, 1 << 30)),
    }
    return ProxyPlan(dice.randint(-100, 100), dice.randint(-2_000_000, 2_000_000), settings)


def _with_room(
    proxy: ProxyPlan, place: int, motes: tuple[MotePlan, ...], period_us: int, commit_seconds: float
) -> ProxyPlan:
    """Return the proxy with room for what waits while nothing goes wrong: between flushes, of motes in disorder."""
    settings = proxy.settings
    waits_us = settings["flush_interval"] + settings["reorder_within"]
    if settings["spool_size"] == SMALL_SPOOL:
        waits_us += settings["flush_interval"] + int(commit_seconds * 1e6)
    of_each = -(-waits_us // period_us) + settings["samples_per_packet"]
    least = of_each * sum(mote.proxy == place for mote in motes)
    room = {"waiting_samples": max(least, settings["waiting_samples"])}
    return msgspec.structs.replace(proxy, settings=settings | room)


def _mote(dice: Random, proxy: int, seconds: float) -> MotePlan:
    late = dice.random() < 0.2
    on_at = dice.uniform(5.0, seconds / 2) if late else dice.uniform(0.0, 2.0)
    return MotePlan(proxy, dice.randint(-60, 60), dice.randint(-200_000, 200_000), round(on_at, 3))


def _query(dice: Random, place: int, seconds: float) -> QueryPlan:
    added = dice.uniform(1.0, seconds * 0.7)
    dropped = added + dice.uniform(5.0, seconds / 2) if dice.random() < 0.6 else None
    if dropped is not None:
        dropped = round(min(dropped, seconds), 3)
    return QueryPlan(f"q{place}", dice.choice(MORE_SQL), round(added, 3), dropped)


def _faults(dice: Random, proxies: int, seconds: float) -> Iterator[Fault]:
    """Yield faults, of all kinds or only a few, all over the time or close together: so that they meet."""
    kinds = sorted(KINDS.keys() - {STRAY, AIMED, LOSING} - OF_DEVICES)
    if dice.random() < FEW_KINDS_SHARE:
        kinds = dice.sample(kinds, 3)
    instants = [dice.uniform(5.0, seconds) for _ in range(dice.randint(1, 3))]
    close = dice.random() < CLOSE_SHARE
    for _ in range(dice.randint(3, 8)):
        yield _fault(dice, dice.choice(kinds), proxies, seconds, near=dice.choice(instants) if close else None)


def _strays(dice: Random, faults: list[Fault], proxies: int, seconds: float) -> Iterator[Fault]:
    """Yield acknowledgements that are for other spools, while other things go wrong."""
    if dice.random() < STRAYS_SHARE:
        for fault in faults:
            at = fault.at + dice.uniform(0.0, 0.9) * fault.lasts
            yield Fault(STRAY, f"p{dice.randrange(proxies)}", round(at, 3), 0.01, 0.0)
        at = dice.uniform(10.0, max(10.0, seconds - AWAY_SECONDS - 1.0))
        yield Fault("cluster killed", "cluster", round(at, 3), AWAY_SECONDS, 0.0)
        for place in range(proxies):
            yield Fault(STRAY, f"p{place}", round(at + 0.8 * AWAY_SECONDS, 3), 0.01, 0.0)
        forgets = at + 0.9 * AWAY_SECONDS
        yield Fault("broker restarted without memory", "broker", round(forgets, 3), 1.0, 0.0)


def _aimed(dice: Random, proxies: int, seconds: float) -> Iterator[Fault]:
    """Yield kills of proxies between a commit and what would follow it, one after the other."""
    if dice.random() < AIMED_SHARE:
        count, name = dice.randint(6, 12), f"p{dice.randrange(proxies)}"
        begin = dice.uniform(10.0, max(10.0, seconds - count * AIMED_SECONDS - 1.0))
        for number in range(count):
            at = begin + number * AIMED_SECONDS
            yield Fault(AIMED, name, round(at, 3), AIMED_SECONDS, round(dice.random(), 4))


def _losing(dice: Random, proxies: int, seconds: float) -> Iterator[Fault]:
    """Yield times in which the broker loses batches, as it may."""
    if dice.random() < LOSING_SHARE:
        for _ in range(dice.randint(1, 2)):
            yield _fault(dice, LOSING, proxies, seconds, near=None)


def _forgotten(dice: Random, proxies: int, seconds: float) -> Iterator[Fault]:
    """Yield faults after which a proxy alone knows what is demanded and what it has sent, when it starts again.

    The cluster is away, and the broker has forgotten it.
    """
    if dice.random() < FORGOTTEN_SHARE:
        at = dice.uniform(10.0, max(10.0, seconds - 41.0))
        yield Fault("cluster killed", "cluster", round(at, 3), 40.0, 0.0)
        yield Fault("broker restarted without memory", "broker", round(at + dice.uniform(1.0, 4.0), 3), 1.0, 0.0)
        name, later = f"p{dice.randrange(proxies)}", round(at + dice.uniform(6.0, 9.0), 3)
        yield Fault(dice.choice(("proxy killed", *["proxy without power"] * 3)), name, later, 1.0, 0.0)


def _cut_off(dice: Random, publishers: tuple[int, ...], seconds: float) -> Iterator[Fault]:
    """Yield a time in which one of several publishers is behind the others.

    Where their number changes, the cluster restarts meanwhile: then its shards are divided among another number. Else
    it lasts until results that the others have published would be removed.
    """
    if publishers == (2,) and dice.random() < LONG_CUT_OFF_SHARE:
        at = dice.uniform(10.0, max(10.0, seconds - LONG_CUT_OFF_SECONDS - 1.0))
        yield Fault(CUT_OFF, "cluster", round(at, 3), LONG_CUT_OFF_SECONDS, round(dice.random(), 4))
    if len(publishers) == 1:
        return
    at = dice.uniform(10.0, max(10.0, seconds - CUT_OFF_SECONDS - 1.0))
    after = dice.uniform(0.5, 0.9) * CUT_OFF_SECONDS
    yield Fault(CUT_OFF, "cluster", round(at, 3), CUT_OFF_SECONDS, round(dice.random(), 4))
    yield Fault("cluster killed", "cluster", round(at + after, 3), 3.0, 0.0)


def _fault(dice: Random, name: str, proxies: int, seconds: float, near: float | None) -> Fault:
    kind = KINDS[name]
    target = {
        Target.BROKER: "broker",
        Target.CLUSTER: "cluster",
        Target.SUBSCRIBER: "subscriber",
        Target.PROXY: f"p{dice.randrange(proxies)}",
        Target.GATEWAY: f"g{dice.randrange(proxies)}",
        Target.MOTE: str(dice.randrange(100)),
        Target.CLIENT: dice.choice(
            ("cluster", "subscriber", f"p{dice.randrange(proxies)}", f"g{dice.randrange(proxies)}")
        ),
    }[kind.target]
    lasts = dice.uniform(0.5, kind.longest_seconds)
    latest = max(6.0, seconds - lasts - 1.0)
    at = dice.uniform(5.0, latest) if near is None else min(latest, near + dice.uniform(0.0, CLOSE_SECONDS))
    return Fault(name, target, round(at, 3), round(lasts, 3), round(dice.uniform(*kind.amounts), 4))
