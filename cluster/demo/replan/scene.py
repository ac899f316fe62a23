"""Runs the scene: rates change, the query goes on with another plan, and no answer is lost or answered twice.

seconds        0            40           about 70     about 85
streams        it rains     rush hour
query          plan 1                    both plans   the cheaper plan
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from cluster.demo.parts import Parts, stage
from cluster.demo.replan.feed import Feed
from cluster.demo.replan.road import QUERY, RUSH_HOUR, VALUES, Answer, answers
from cluster.service.client.api_client import ApiClient
from protocols.child_process import child_environment, python_module
from protocols.errors import FjordError

NAME = "joined"
RAIN_SECONDS = 40.0
"""Shares of pairs count as measured once a query has run for half a minute and a window."""
DECIDED_SECONDS = 90.0
MIGRATED_SECONDS = 90.0
AFTER_SECONDS = 8.0
ANSWERED_SECONDS = 60.0
POLL_SECONDS = 0.5
PAGE = 10_000


class SceneError(FjordError):
    """The scene did not go as it should."""


def run_replan_scene(keep: Path | None) -> None:
    """Run the scene to its end.

    Parameters
    ----------
    keep
        The folder of all data and logs; None for one that is removed.

    Raises
    ------
    ChildError
        If a part fails.
    SceneError
        If no other plan is taken, or the answers are not those of the readings.
    """
    console = Console()
    with ExitStack() as stack:
        parts = stack.enter_context(stage(keep, console))
        console.print("starting the broker and the cluster: Spark takes some seconds", highlight=False)
        parts.start_broker()
        parts.start_cluster()
        client = stack.enter_context(ApiClient(parts.api_address))
        asyncio.run(_Scene(parts, client, console).run())
    console.print("all parts have been stopped")


class _Scene:
    """One run of the scene."""

    def __init__(self, parts: Parts, client: ApiClient, console: Console) -> None:
        self._parts = parts
        self._client = client
        self._console = console
        self._feed = Feed(parts.broker)
        self._began = time.monotonic()

    async def run(self) -> None:
        """Run it to its end."""
        stop = asyncio.Event()
        connection = asyncio.create_task(self._feed.connect(), name="connection")
        sending = None
        try:
            await self._until("the cluster has all streams", self._has_streams, 30.0)
            await asyncio.to_thread(self._client.add, QUERY, NAME)
            sending = asyncio.create_task(self._feed.send(stop), name="readings")
            self._began = time.monotonic()
            self._print(f"[bold]{NAME}[/]: {QUERY}")
            await self._play()
            stop.set()
            await sending
            await self._compare()
        finally:
            connection.cancel()
            if sending is not None:
                sending.cancel()

    async def _play(self) -> None:
        self._print(f"it rains: {self._rates()} readings/s")
        await self._pause(RAIN_SECONDS)
        await self._show("alternatives", NAME)
        self._feed.rates = RUSH_HOUR
        self._print(f"it has stopped raining, and it is rush hour: {self._rates()} readings/s")
        await self._until("the cluster chooses another plan", self._is_migrating, DECIDED_SECONDS)
        await self._show("alternatives", NAME)
        await self._show("migrations")
        await self._until("the plan before has ended", self._has_migrated, MIGRATED_SECONDS)
        self._print("the plan before has been removed")
        await self._show("history")
        await self._pause(AFTER_SECONDS)

    async def _compare(self) -> None:
        """Compare what was answered with what follows from the readings that were sent."""
        await self._until("every reading is stored", lambda: self._feed.is_stored, ANSWERED_SECONDS)
        wanted = await asyncio.to_thread(answers, self._feed.sent)
        sent = sum(len(each) for each in self._feed.sent.values())
        due = wanted.total()
        self._print(f"{sent:,} readings were sent; by brute force they have {due:,} answers")
        late = False
        try:
            await self._until("all are answered", lambda: self._answered() >= due, ANSWERED_SECONDS)
        except SceneError:
            late = True  # What is missing is counted below.
        found = await asyncio.to_thread(self._answers)
        lost, more = (wanted - found).total(), (found - wanted).total()
        self._print(f"{NAME} has answered {found.total():,}: {lost:,} lost, {more:,} too many or wrong")
        if late or lost or more:
            raise SceneError("the answers are not those of the readings", hint="keep the data with --keep")

    def _answers(self) -> Counter[Answer]:
        found: Counter[Answer] = Counter()
        after = 0
        while page := self._client.results(NAME, after=after, limit=PAGE):
            found.update(map(_answer, page))
            after = page[-1]["sequence"]
        return found

    def _answered(self) -> int:
        return int(self._client.query(NAME)["rows"])

    def _has_streams(self) -> bool:
        return {each["name"] for each in self._client.streams()} >= set(VALUES)

    def _is_migrating(self) -> bool:
        return bool(self._client.migrations()) or self._has_migrated()

    def _has_migrated(self) -> bool:
        return any(each["migrations_end"] for each in self._client.plan_history(10))

    def _rates(self) -> str:
        return ", ".join(f"{stream} {rate:,}" for stream, rate in self._feed.rates.items())

    async def _until(self, what: str, holds: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not await asyncio.to_thread(holds):
            self._parts.children.check()
            if time.monotonic() > deadline:
                raise SceneError(f"after {seconds:.0f} s it still does not hold that {what}")
            await asyncio.sleep(POLL_SECONDS)

    async def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._parts.children.check()
            await asyncio.sleep(POLL_SECONDS)

    async def _show(self, *arguments: str) -> None:
        """Print a command of `fjord plan`, and what it prints."""
        self._print(f"[bold]$ fjord plan {' '.join(arguments)}[/]")
        command = python_module("protocols.command_line", "plan", *arguments, "--api", self._parts.api_address)
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, check=False, env=child_environment()
        )
        if done.returncode:
            raise SceneError(f"`fjord plan {arguments[0]}` failed: {done.stderr.strip()}")
        self._console.print(done.stdout.rstrip(), highlight=False, markup=False, soft_wrap=True)

    def _print(self, text: str) -> None:
        seconds = time.monotonic() - self._began
        self._console.print(f"[dim]{seconds:5.0f} s[/]  {text}", highlight=False, soft_wrap=True)


def _answer(result: dict[str, Any]) -> Answer:
    row = result["row"]
    return (_us(result["start"]), _us(result["end"]), row["segment"], row["force"], row["mph"], row["mm"])


def _us(text: str) -> int:
    """Return an instant as microseconds since 1970, without rounding."""
    at = datetime.fromisoformat(text)
    return int(at.replace(microsecond=0).timestamp()) * 1_000_000 + at.microsecond
