"""Many queries that are added together are not looked at one after the other in one turn of the event loop."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import pytest

from cluster.service.catalog import planning
from cluster.service.queries import query_limits, query_service
from protocols.mqtt.link import Message
from protocols.wire import topics
from protocols.wire.catalog import StreamOffer
from protocols.wire.frames import encode
from tests.cluster.service.conftest import TRAFFIC, FakeLink, Service

if TYPE_CHECKING:
    from pathlib import Path

AT_ONCE = 20
SLICES = 5
"""So many slices are added together at last."""
MOST_CALLS = 5
"""For each query, in one turn: nothing that looks at its plan."""
FORMS = (
    "SELECT sensor, speed FROM traffic WHERE speed < {0} AND lane = 1",
    "SELECT lane, COUNT(*) AS n FROM traffic WINDOW(RANGE 10 SECONDS SLIDE 10 SECONDS) WHERE speed < {0} GROUP BY lane",
)


class BusyLink(FakeLink):
    """Publishes as a broker lets it: others have a turn meanwhile."""

    async def publish(self, message: Message) -> None:
        await asyncio.sleep(0)
        await super().publish(message)


class CallsByTurn:
    """Counts the calls of functions in each turn of the loop in whose thread it is made."""

    def __init__(self) -> None:
        self.most = Counter[str]()
        """Of the turn with most calls, by name."""
        self._now = Counter[str]()
        self._ended = False

    def __enter__(self) -> Self:
        self._turn()
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        self._ended = True
        self._take_turn()

    def _called(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            self._now[frame.f_code.co_qualname] += 1

    def _take_turn(self) -> None:
        self.most, self._now = max(self.most, self._now, key=Counter.total), Counter()

    def _turn(self) -> None:
        self._take_turn()
        if not self._ended:
            asyncio.get_running_loop().call_soon(self._turn)


def texts(count: int) -> list[tuple[str, str]]:
    return [(f"q{number}", FORMS[number % len(FORMS)].format(number + 0.5)) for number in range(count)]


async def calls(folder: Path, count: int) -> Counter[str]:
    """Return the calls of the turn of the loop that makes most while so many queries are added together."""
    service = Service(folder)
    service.link = BusyLink()
    service.registry._max_queries = count
    await service.handle(topics.stream_offer("p", TRAFFIC.name), encode(StreamOffer(1, "p", TRAFFIC)))
    queries = service.started()
    with CallsByTurn() as counted:
        await queries.add_many(texts(count))
    assert len(service.registry) == count
    service.registry.close()
    return counted.most


async def test_a_turn_of_the_loop_does_not_grow_with_the_number_of_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (planning, query_limits, query_service):
        monkeypatch.setattr(module, "AT_ONCE", AT_ONCE)
    few, many = [await calls(tmp_path / str(count), count) for count in (AT_ONCE, SLICES * AT_ONCE)]
    more = (many.total() - few.total()) / ((SLICES - 1) * AT_ONCE)
    assert more < MOST_CALLS, many.most_common(10)
