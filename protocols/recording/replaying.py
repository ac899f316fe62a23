"""A recorded part runs again on the timeline of its log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from protocols.recording.player import Player
from protocols.recording.ticking_loop import TickingLoop


def play(player: Player, part: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run a part until it ends, or its log does.

    Parameters
    ----------
    player
        The timeline. If the part ends with an error, that is its failure.
    part
        Returns what runs.
    """

    async def until_end() -> None:
        task = asyncio.current_task()
        if task is not None:
            player.on_end = lambda: _void(task.cancel())
        await part()

    with asyncio.Runner(loop_factory=lambda: TickingLoop(player)) as runner:
        try:
            runner.run(until_end())
        except asyncio.CancelledError:
            pass  # the log ended before the part was asked to stop
        except Exception as error:  # noqa: BLE001 - what a replay is for
            player.failure = error


def _void(_: object) -> None:
    """Do nothing."""
