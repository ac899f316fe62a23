"""Runs of a cluster among scripted proxies, with faults drawn from a seed, and what they violate.

0 s         queries are added          8 s: samples                     faults               all is settled
|-----------|--------------------------|-------x------x---x--------x----|--------------------|
                                                                        last fault           QUIET_SECONDS later
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from cluster.costs.prices import SHIPPED, Price
from tests.simulation import cluster_oracles as oracles
from tests.simulation import short_retention
from tests.simulation.cluster_oracles import Result, Stored
from tests.simulation.fed_cluster import FEED_BEGINS_SECONDS, FedCluster
from tests.simulation.hosts import WALL_BEGINS_NS
from tests.simulation.result_messages import received, stored_result

if TYPE_CHECKING:
    from collections.abc import Sequence

QUIET_SECONDS = 90.0
"""After the last fault; then everything must have come to its end. The longest pause of a link is 15 s, of a supervisor
that starts a publisher again 30 s."""
FIRST_FAULT_SECONDS = 20.0
LONG_CUT_SHARE, LONG_CUT_SECONDS = 0.25, 25.0
"""In this share of runs the publisher is cut off for three times as long: so that results which it has not published
would be removed, if nothing kept them."""
SECOND_US = 1_000_000
SIMPLE = {
    "all": ("SELECT speed FROM speeds", lambda _: True),
    "fast": ("SELECT speed FROM speeds WHERE speed >= 60", lambda speed: speed >= 60),
    "late": ("SELECT speed FROM speeds WHERE speed < 50", lambda speed: speed < 50),
}
"""Queries that select: their texts and conditions."""
COUNTS = "SELECT COUNT(*) AS n, SUM(speed) AS total FROM speeds WINDOW(RANGE {} SECONDS SLIDE {} SECONDS)"
WINDOWS = {"counts": (10, 5)}
"""By query that counts over a window: its range and slide, in seconds."""
REPLANNED = {"counts": (10, 5), "longer": (20, 5), "odd": (7, 3), "also": (8, 6)}
"""Windows of which some make the panes of others narrow, for runs in which plans change."""
DEAR = Price(batch=200, kept=100, compared=100)
"""What panes cost there, so that families differ for the few tuples of a simulation."""
KINDS = (
    "kill cluster", "kill publisher", "cut power", "kill broker", "forgetful broker", "partition", "pause cluster",
    "disk full", "sync fails", "commit fails before", "commit fails after", "registry fails", "slow disk", "doubled",
    "partition proxy", "engine hangs", "publisher cut off",
)  # fmt: skip


class Fault(NamedTuple):
    """Something that goes wrong: when, what, and for how long, in seconds."""

    at: float
    kind: str
    lasts: float


class Outcome(NamedTuple):
    """What came of a run."""

    seed: str
    faults: tuple[Fault, ...]
    violations: list[str]
    trace: int
    seconds: float
    """Of simulated time."""
    rows: int
    results: int
    migrations: int = 0
    """Changes of plans that the cluster began itself."""


def draw(seed: str, minutes: float) -> tuple[Fault, ...]:
    """Draw the faults of a run."""
    dice = Random(f"{seed} faults")
    last = minutes * 60 - QUIET_SECONDS
    times = sorted(dice.uniform(FIRST_FAULT_SECONDS, last) for _ in range(dice.randrange(3, 9)))
    found = [Fault(round(at, 3), dice.choice(KINDS), round(dice.uniform(0.5, 25.0), 3)) for at in times]
    # One proxy is away for longer than is waited for it, where that is not long.
    found.append(Fault(round(dice.uniform(FIRST_FAULT_SECONDS, last), 3), "partition proxy", dice.uniform(20.0, 40.0)))
    if dice.random() < LONG_CUT_SHARE:
        at = dice.uniform(FIRST_FAULT_SECONDS, max(FIRST_FAULT_SECONDS, last - LONG_CUT_SECONDS))
        found.append(Fault(round(at, 3), "publisher cut off", LONG_CUT_SECONDS))
    return tuple(sorted(found))


class Run:
    """One run.

    Parameters
    ----------
    seed
        Of all that is drawn.
    minutes
        Of simulated time.
    faults
        What goes wrong; drawn unless given.
    folder
        In memory.
    replanned
        Whether plans are chosen by their costs, of windows that share panes.
    """

    def __init__(
        self,
        seed: str,
        minutes: float,
        folder: Path,
        faults: Sequence[Fault] | None = None,
        *,
        replanned: bool = False,
    ) -> None:
        self.seed = seed
        self.seconds = minutes * 60
        self.faults = tuple(draw(seed, minutes) if faults is None else faults)
        self._dice = Random(f"{seed} run")
        shutil.rmtree(folder, ignore_errors=True)
        # Too late is what comes from a proxy that is gone; in half of the runs the stream waits for it.
        self._gone_after = gone_after = self._dice.choice([15.0, None])
        short_retention.install()
        self._windows = REPLANNED if replanned else WINDOWS
        if replanned:
            SHIPPED.kinds["Panes"] = DEAR  # type: ignore[index] # of this process, which ends with the run
        self.world = FedCluster(folder, seed, gone_after_seconds=gone_after, replan=replanned, **short_retention.BUDGET)
        self._registered: dict[str, bool | None] = {}
        """Queries: whether they must be there; None if that is not known."""

    def outcome(self) -> Outcome:
        """Run it."""
        found: list[str] = []

        async def steer() -> None:
            found.extend(await self._steer())

        self.world.loop.run_until_complete(steer())
        rows = sum(len(batch) for feed in self.world.feeds for batch in feed.rows.values())
        return Outcome(
            self.seed, self.faults, found, self.world.loop.trace, self.world.now, rows, len(self.world.published),
            self._migrations(),
        )  # fmt: skip

    def _migrations(self) -> int:
        server = self.world.cluster.server
        steps = () if server is None else server.parts.registry.plan_history(1_000)
        return sum(bool(each.migrations_begin) for each in steps)

    async def _steer(self) -> list[str]:
        world = self.world
        for fault in self.faults:
            world.loop.schedule(int(fault.at * 1e9), self._begin, fault)
        await world.passed(FEED_BEGINS_SECONDS / 2)
        counts = {name: COUNTS.format(*window) for name, window in self._windows.items()}
        for name, text in (("all", SIMPLE["all"][0]), ("fast", SIMPLE["fast"][0]), *counts.items()):
            await self._add(name, text)
        added_at = self._dice.uniform(FIRST_FAULT_SECONDS, self.seconds - QUIET_SECONDS)
        dropped_at = self._dice.uniform(FIRST_FAULT_SECONDS, self.seconds - QUIET_SECONDS)
        for at, name in sorted([(added_at, "late"), (dropped_at, "fast")]):
            await self._until(at)
            if name == "late":
                await self._add(name, SIMPLE["late"][0])
            else:
                await self._drop(name)
        await self._until(self.seconds - QUIET_SECONDS / 2)
        for feed in world.feeds:
            await world.loop.spawn(feed.host.incarnation, feed.end(), "end")
        await self._until(self.seconds)
        return self._violations()

    async def _until(self, seconds: float) -> None:
        if seconds > self.world.now:
            await self.world.passed(seconds - self.world.now)

    def _now_us(self) -> int:
        return (WALL_BEGINS_NS + self.world.loop.world.now_ns) // 1000

    async def _add(self, name: str, text: str) -> None:
        self._registered[name] = None
        if await self._tried(self.world.cluster.add_query(text, name)):
            self._registered[name] = True

    async def _drop(self, name: str) -> None:
        if self._registered.get(name):
            self._registered[name] = None
            if await self._tried(self.world.cluster.drop_query(name)):
                self._registered[name] = False

    async def _tried(self, request: Any) -> bool:
        """Make a request as a user does, and wait for an answer for a while; return whether it was a good one."""
        import asyncio

        task = asyncio.ensure_future(request)
        until = self.world.now + 20.0
        while not task.done() and self.world.now < until:
            await self.world.passed(0.5)
        return task.done() and task.result() is None

    def _begin(self, fault: Fault) -> None:  # noqa: C901, PLR0912 - a case for each kind
        world, loop, cluster = self.world, self.world.loop, self.world.cluster
        after_ns = int(fault.lasts * 1e9)

        def later(work: Any, *arguments: Any) -> None:
            loop.schedule_in(after_ns, work, *arguments)

        match fault.kind:
            case "kill cluster" if cluster.host.incarnation is not None:
                cluster.kill()
                later(cluster._start_again)
            case "kill publisher":
                cluster.kill_publisher()
            case "cut power" if cluster._powered:
                cluster.cut_power(self._dice)
                later(cluster.restore_power)
            case "kill broker" | "forgetful broker" if world.machine.incarnation is not None:
                world.kill_broker()
                later(lambda: world.start_broker(remembering=fault.kind == "kill broker"))
            case "partition":
                for host in (cluster.host, cluster.publisher_host):
                    for ends in ((host.name, "broker"), ("broker", host.name)):
                        world.network.set_open(*ends, is_open=False)
                        later(lambda ends=ends: world.network.set_open(*ends, is_open=True))
            case "partition proxy":
                world.network.reset("p0", "broker")  # so that it counts as offline
                for ends in (("p0", "broker"), ("broker", "p0")):
                    world.network.set_open(*ends, is_open=False)
                    later(lambda ends=ends: world.network.set_open(*ends, is_open=True))
            case "engine hangs":
                cluster.hang_engine(3 * fault.lasts)
            case "publisher cut off":
                for ends in ((cluster.publisher_host.name, "broker"), ("broker", cluster.publisher_host.name)):
                    world.network.set_open(*ends, is_open=False)
                    loop.schedule_in(3 * after_ns, lambda ends=ends: world.network.set_open(*ends, is_open=True))
            case "pause cluster" if cluster.host.incarnation is not None:
                paused = cluster.host.incarnation
                loop.pause(cluster.host)
                later(lambda: loop.resume(cluster.host) if cluster.host.incarnation is paused else None)
            case "disk full":
                cluster.disk.full = True
                later(lambda: setattr(cluster.disk, "full", False))
            case "sync fails" | "commit fails before" | "commit fails after" | "registry fails":
                what = {
                    "sync fails": "sync", "commit fails before": "committing", "commit fails after": "committed",
                    "registry fails": "registry",
                }[fault.kind]  # fmt: skip
                cluster.disk.failing[what] = 1 + int(fault.lasts) % 3
            case "slow disk":
                cluster.host.threads_slow_ns = 1_500_000_000
                later(lambda: setattr(cluster.host, "threads_slow_ns", 0))
            case "doubled" if world.broker is not None:
                world.limits.doubled = 0.3
                later(lambda: setattr(world.limits, "doubled", 0.0))
            case _:
                pass

    def _violations(self) -> list[str]:
        world, server = self.world, self.world.cluster.server
        found = [f"unhandled: {where}: {what}" for where, what in world.loop.unhandled]
        found += [f"the loop was blocked: {each}" for each in world.loop.slow]
        if server is None:
            return [*found, f"the cluster does not run: {world.cluster.failures[-1:]}"]
        world.cluster.note_counts()
        stored = self._stored()
        sent = [
            Stored(row.start_us, row.mote, (row.speed,))
            for feed in world.feeds
            for number, rows in feed.rows.items()
            if number <= feed.acknowledged
            for row in rows
        ]
        found += oracles.stored_once(sent, stored, late=world.cluster.late.total())
        if self._gone_after is None and world.cluster.late.total():
            found.append(
                f"{world.cluster.late.total()} rows were late though the stream waits for proxies that are gone"
            )
        found += oracles.settled(
            {
                **{f"batches of {feed.name} not acknowledged": len(feed.waiting) for feed in world.feeds},
                "commits not published": server.parts.publishers.unpublished_commits,
                **{
                    f"rows of {stream} not answered by {host}": lag.rows
                    for (stream, host), lag in server.parts.lags.now().items()
                },
            }
        )
        names = {query.name for query in server.parts.registry.queries()}
        found += [f"query {name} is lost" for name, there in self._registered.items() if there and name not in names]
        found += [
            f"query {name} is back" for name, there in self._registered.items() if there is False and name in names
        ]
        results = self._results()
        for name, rows in results.items():
            found += [f"{name}: {each}" for each in oracles.numbered(rows)]
        accepted = self._accepted()
        for name in results.keys() | accepted.keys():
            violations = oracles.published(results.get(name, []), accepted.get(name, []))
            found += [f"{name}: {each}" for each in violations]
        found += [f"the subscriber: {each}" for each in world.subscriber.changed]
        for name in self._registered:
            found += [f"{name}: {each}" for each in self._wrong_answers(name, stored, results.get(name, []))]
        return found

    def _wrong_answers(self, name: str, stored: Sequence[Stored], found: Sequence[Result]) -> list[str]:
        if name in self._windows:
            until_us = self._now_us()
            range_us, slide_us = (each * SECOND_US for each in self._windows[name])
            return oracles.complete(
                [each for each in found if each.start_us < until_us],
                oracles.windows(stored, range_us=range_us, slide_us=slide_us, until_us=until_us, answer=_counted),
            )
        condition = SIMPLE[name][1]
        span = self.world.cluster.committed.span_us(name, "speeds")
        if span is None:
            return ["no plan has it"] if self._registered[name] else []
        begun_us, ended_us = span
        expected = [
            (row.start_us, row.start_us + 1, _json({"speed": row.values[0]}))
            for row in stored
            if row.start_us >= begun_us and (ended_us is None or row.start_us < ended_us) and condition(row.values[0])
        ]
        return oracles.complete(found, expected)

    def _stored(self) -> list[Stored]:
        server = self.world.cluster.server
        assert server is not None
        newest = server.parts.ingest.tables()["speeds"].version
        rows = self.world.cluster.committed.rows("streams/speeds", newest)
        return [Stored(row["fjord_start_us"], row["fjord_mote"], (row["speed"],)) for row in rows]

    def _results(self) -> dict[str, list[Result]]:
        server = self.world.cluster.server
        assert server is not None
        found: dict[str, list[Result]] = {}
        for row in self.world.cluster.committed.rows("results", server.parts.results.version):
            found.setdefault(row["query"], []).append(stored_result(row))
        return found

    def _accepted(self) -> dict[str, list[Result]]:
        found: dict[str, list[Result]] = {}
        for message in self.world.published:
            query, result = received(message)
            found.setdefault(query, []).append(result)
        return found


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _counted(rows: Sequence[Stored]) -> str:
    return _json({"n": len(rows), "total": sum(row.values[0] for row in rows)})  # type: ignore[misc]
