"""Takes turns by what :mod:`cluster.service.catalog.planning_turns` decides: one thing is done at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from cluster.service.catalog.planning_turns import Asker, Turns


class TakingTurns:
    """Lets one caller at a time do something."""

    def __init__(self) -> None:
        self._turns = Turns[asyncio.Future[None]]()
        self._taken = False

    @asynccontextmanager
    async def turn_of(self, asker: Asker) -> AsyncIterator[None]:
        """Wait for the turn of a caller; it ends with the context. One that is cancelled meanwhile takes none."""
        if self._taken:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._turns.add(asker, turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._turns.discard(asker, turn)
                if turn.done() and not turn.cancelled():
                    self._pass_on()
                raise
        self._taken = True
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        turn = self._turns.next()
        while turn is not None and turn.cancelled():
            turn = self._turns.next()
        self._taken = turn is not None
        if turn is not None:
            turn.set_result(None)


class ResultReading:
    """Makes answers with stored rows in a thread of their own, one at a time: each uses all processors."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="results")
        self._turns = TakingTurns()

    async def read(self, caller: str, make: Callable[[], bytes]) -> bytes:
        """Return what `make` returns, once it is the turn of a token; `caller` is its name, empty without one."""
        async with self._turns.turn_of(Asker(caller, admin=False)):
            return await asyncio.get_running_loop().run_in_executor(self._thread, make)
