"""A fleet of live motes, from its beginning until it is asked to stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from firmware_sim.fleet import Fleet

LOOK_SECONDS = 1.0
"""Between two looks at a fleet that runs."""


async def run_until(fleet: Fleet, stop: asyncio.Event, seconds: float | None, look: Callable[[], None]) -> None:
    """Run a fleet until it ends.

    Parameters
    ----------
    fleet
        The motes.
    stop
        Set when they are to stop.
    seconds
        How long they run at most; None for ever.
    look
        Called every second, to show how far they are.
    """
    running = asyncio.create_task(fleet.run(), name="fleet")
    others = [
        asyncio.create_task(_look_regularly(look), name="watch"),
        stopping := asyncio.create_task(stop.wait(), name="stop"),
    ]
    try:
        await asyncio.wait([running, stopping], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in (running, *others):
            each.cancel()
        await asyncio.wait(others)
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def _look_regularly(look: Callable[[], None]) -> None:
    while True:
        look()
        await asyncio.sleep(LOOK_SECONDS)
