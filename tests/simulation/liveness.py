"""Liveness while a simulation runs: whenever nothing has gone wrong for a while, what proxies spool is stored soon.

    fault   |-----|            |--|
    looks                x x x         x x x x x     from `settled_seconds` after the last fault on, every LOOK_SECONDS

What is behind at the end of a simulation is seen by the oracles; what was behind before, and no longer is, only here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocols.wire.batches import decode_batch
from tests.simulation.hosts import WALL_BEGINS_NS
from tests.simulation.settled_state import STREAM
from tests.simulation.violations import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.bounds import Bounds
    from tests.simulation.proxy_host import BatchId, ProxyHost, Spooled
    from tests.simulation.world import World

LOOK_SECONDS = 3.0


class Unacknowledged:
    """The batches that a proxy keeps; each is looked at once when it is spooled, and once when it is forgotten.

    Parameters
    ----------
    proxy
        Whose batches.
    """

    def __init__(self, proxy: ProxyHost) -> None:
        self._proxy = proxy
        self._seen = 0
        self._kept: dict[BatchId, Spooled] = {}
        self._newest: Spooled | None = None

    def look(self) -> None:
        """Look at what has been spooled and forgotten since the last time."""
        spooled = list(self._proxy.spooled.items())
        self._kept.update(spooled[self._seen :])
        self._seen = len(spooled)
        for identity in [each for each in self._kept if self._proxy.acknowledged(each)]:
            found = self._kept.pop(identity)
            if identity.stream == STREAM:
                self._newest = found

    @property
    def oldest_ns(self) -> int | None:
        """When the oldest of them was spooled; None if there are none."""
        return min((each.at_ns for each in self._kept.values()), default=None)

    @property
    def watermark_us(self) -> int | None:
        """That of the newest batch of motes which was acknowledged; None if there is none, or they do not sample."""
        if self._newest is None:
            return None
        batch = decode_batch(self._newest.payload)
        return batch.watermark_us if batch.sampling else None


class Watch:
    """Looks at a world for as long as it runs.

    Parameters
    ----------
    world
        Which.
    bounds
        How far behind it may be.
    """

    def __init__(self, world: World, bounds: Bounds) -> None:
        self.bounds = bounds
        self._world = world
        self._batches: dict[str, Unacknowledged] = {}
        self._under_way = 0
        self._put_off()
        self._found: dict[str, str] = {}
        self.looks = 0
        """How many there were at a deployment that had settled."""
        self.settled_us: list[tuple[int, int]] = []
        """Between which instants, in microseconds since 1970, it had settled."""

    def begin(self) -> None:
        """Note that a fault begins."""
        if not self._under_way:
            self.finish()
        self._under_way += 1

    def end(self) -> None:
        """Note that one has ended."""
        self._under_way -= 1
        self._put_off()

    def finish(self) -> None:
        """Note that a time in which nothing goes wrong is over."""
        if self._settles_us < self._now_us:
            self.settled_us.append((self._settles_us, self._now_us))

    async def run(self) -> None:
        """Look regularly, until cancelled."""
        while True:
            await self._world.loop.passed(LOOK_SECONDS)
            if self._world.cluster.fails_next:  # such a fault lasts until they have failed
                self.finish()
                self._put_off()
            if self.is_settled:
                self.look()

    def _put_off(self) -> None:
        self._settles_us = self._now_us + round(self.bounds.settled_seconds * 1e6)

    @property
    def is_settled(self) -> bool:
        """Whether nothing goes wrong, nor has for a while."""
        return not self._under_way and self._now_us >= self._settles_us

    def look(self) -> None:
        """Note what is behind now."""
        self.looks += 1
        for name, seconds in self._behind():
            self._found.setdefault(name, f"{seconds:.0f} s at {self._world.seconds:.0f} s")

    def violations(self) -> Iterator[Violation]:
        """Yield what was behind, each thing with the first time."""
        for name, text in self._found.items():
            yield Violation("stalled", f"{name} was behind though nothing went wrong: {text}")

    @property
    def _now_us(self) -> int:
        return (WALL_BEGINS_NS + self._world.loop.world.now_ns) // 1_000

    def _behind(self) -> Iterator[tuple[str, float]]:
        lag_us = 0 if (stored_us := self._world.cluster.watermark_us) is None else self._now_us - stored_us
        if lag_us > self.bounds.lag_us:
            yield "the stored watermark", lag_us / 1e6
        for name, proxy in self._world.proxies.items():
            batches = self._batches.setdefault(name, Unacknowledged(proxy))
            batches.look()
            kept_ns = 0 if (oldest_ns := batches.oldest_ns) is None else self._world.loop.world.now_ns - oldest_ns
            if kept_ns > self.bounds.unacknowledged_seconds * 1e9:
                yield f"the oldest batch of {name}", kept_ns / 1e9
            lag_us = 0 if (watermark_us := batches.watermark_us) is None else self._now_us - watermark_us
            if lag_us > self.bounds.lag_us:
                yield f"the watermark of {name}", lag_us / 1e6
