"""Follows a query's result topic, without losing what was published before the subscription."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from http import HTTPStatus

import msgspec

from cluster.service.client.api_client import ApiClient, ApiUnreachableError, RefusedError
from protocols.event_log import get_logger
from protocols.mqtt.link import BrokerAddress, Message, MqttLink, Subscription
from protocols.wire import topics

log = get_logger(__name__)

PAUSE_SECONDS = 1.0
"""Before the next request to the API."""


class _Numbered(msgspec.Struct):
    sequence: int


async def tail(
    name: str,
    client: ApiClient,
    broker: BrokerAddress,
    *,
    after: int | None,
    count: int | None,
    show: Callable[[bytes], None],
) -> None:
    """Call `show` for every row of a query: once each, in order, stored ones first if `after` is given.

    Rows are published at least once: repeated ones are dropped by their sequence numbers, and a gap (the broker was
    away, or dropped rows) is filled from the stored results. Rows wait while the cluster is away. Without a token,
    rows are those that the broker delivers: a log line reports each gap.

    Raises
    ------
    ApiUnreachableError
        If no cluster answers at the beginning.
    RefusedError
        If there is no such query, and no stored rows of a dropped one.
    """
    reads = await asyncio.to_thread(_reads_stored, name, client, after)
    follower = _Follower(name, client if reads else None, after=after, count=count, show=show)
    link = MqttLink(
        broker,
        client_id=f"fjord-tail-{uuid.uuid4().hex[:8]}",
        subscriptions=[Subscription(topics.results(name)), Subscription(topics.query_errors(name))],
        on_connect=follower.connected,
    )
    running = asyncio.create_task(link.run(follower.receive), name="link")
    waiting = asyncio.create_task(follower.done.wait(), name="done")
    await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    for task in (running, waiting):
        task.cancel()
    if running.done() and not running.cancelled() and (error := running.exception()):
        raise error


def _reads_stored(name: str, client: ApiClient, after: int | None) -> bool:
    """Return whether stored rows can be read; a wrong name is refused, as no row would ever come for it."""
    try:
        client.query(name)
    except RefusedError as error:
        if error.status == HTTPStatus.UNAUTHORIZED and after is None:
            log.warning("only what the broker delivers is shown", reason=error.message, hint=error.hint)
            return False
        if after is None or not client.results(name, after=after, limit=1):
            raise
    return True


class _Follower:
    def __init__(
        self,
        name: str,
        client: ApiClient | None,
        *,
        after: int | None,
        count: int | None,
        show: Callable[[bytes], None],
    ) -> None:
        self.done = asyncio.Event()
        self._has_begun = False
        self._name, self._client, self._show = name, client, show
        self._last = after
        self._left = count

    async def connected(self) -> None:
        await self._catch_up()
        self._has_begun = True

    async def receive(self, message: Message) -> None:
        sequence = msgspec.json.decode(message.payload, type=_Numbered).sequence
        if self._last is not None and sequence > self._last + 1:
            if self._client is None:
                log.warning("rows were missed", query=self._name, after=self._last, before=sequence)
            await self._catch_up()
        self._emit(sequence, message.payload)

    async def _catch_up(self) -> None:
        """Show the stored rows that were missed; wait while the cluster is away."""
        while True:
            try:
                return await asyncio.to_thread(self._show_stored)
            except ApiUnreachableError as error:
                if not self._has_begun:
                    raise
                log.warning("missed rows wait for the cluster", query=self._name, error=error.message)
                await asyncio.sleep(PAUSE_SECONDS)

    def _show_stored(self) -> None:
        while self._client is not None and self._last is not None and not self.done.is_set():
            rows = self._client.results(self._name, after=self._last)
            for row in rows:
                self._emit(row["sequence"], msgspec.json.encode(row))
            if not rows:
                return

    def _emit(self, sequence: int, payload: bytes) -> None:
        if (self._last is not None and sequence <= self._last) or self.done.is_set():
            return
        self._last = sequence
        self._show(payload)
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                self.done.set()
