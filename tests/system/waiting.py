"""Waiting for conditions in other processes."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

from cluster.service.client.tail import tail

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.system.conftest import RunningCluster

SECONDS = 60.0


def wait_for(
    reached: Callable[[], Any], what: str = "the condition was not met in time", *, seconds: float = SECONDS
) -> Any:
    """Return what `reached` returns once that is true; fail with `what` if it takes too long."""
    deadline = time.monotonic() + seconds
    while not (found := reached()):
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
    return found


def next_results(cluster: RunningCluster, query: str, count: int) -> list[dict[str, Any]]:
    """Return the next result messages of a query."""
    found: list[bytes] = []
    following = tail(query, cluster.api, cluster.parts.broker, after=None, count=count, show=found.append)
    asyncio.run(asyncio.wait_for(following, SECONDS))
    return [json.loads(message) for message in found]
