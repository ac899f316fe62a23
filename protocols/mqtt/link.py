"""The one interface between Fjord and MQTT.

:class:`MqttLink` keeps one connection: it connects, subscribes, publishes its birth, hands over messages, and does so
again, with growing jittered pauses, whenever the broker goes away. What has to be sent again is known to those that
send it, so sessions end with connections (docs/decisions/0025-our-own-mqtt-client.md). Only a link that does nothing
but receive may have one that lasts: what publishes to it may not know when it is away.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from protocols.event_log import get_logger
from protocols.mqtt.connection import ANSWER_SECONDS, SILENCE_SECONDS, Connection, connect
from protocols.mqtt.messages import (
    DEFAULT_PORT,
    VERSIONS,
    BrokenOffError,
    BrokerAddress,
    ClientNameSharedError,
    LastingSession,
    LinkError,
    Message,
    Seals,
    Subscription,
    Version,
)
from protocols.mqtt.reconnecting import Outage, VersionChoice, pauses
from protocols.security.tls import days_to_warn_of

if TYPE_CHECKING:
    from protocols.mqtt.publish_frames import PublishFrames

log = get_logger(__name__)

TAKEOVER_SECONDS = 60.0
"""A second takeover within this time is of another process of the same name, which connects again as this one does.
A single one is let through: a process that was started again may take its own old connection over."""
STEADY_SECONDS = 5.0
"""A connection that has lasted so long was no mistake of the broker's: the next pauses are short again."""


class MqttLink:
    """A connection that outlives the broker.

    Parameters
    ----------
    address
        The broker.
    client_id
        Stable name of this client at the broker.
    subscriptions
        Subscribed to after each connect.
    births
        Published after each connect, once subscriptions are granted.
    will
        Left with the broker, which publishes it when this client vanishes.
    on_connect
        Called after each connect, once subscriptions are granted; publish there what the broker may have forgotten.
    on_disconnect
        Called when a connection that :attr:`connected` has shown is lost.
    max_queued
        Received messages that may wait for the handler. When full, or when they have more than 64 MiB, further ones
        with a quality of service of 0 are dropped and logged; those of 1 wait at the broker, which sends only so many
        before they are acknowledged, and from 64 MiB on none are read, unless something waits for an answer.
    silence_seconds
        A broker that sends nothing for this long, even after a ping, has hung: the connection is given up, and another
        one tried.
    versions
        Of MQTT that may be spoken, in the order in which they are tried; one that a broker did not take is tried again
        after ten minutes, with the next connection.
    seals
        Seals what is published but for results, and opens what is received; None if no keys are in use.
    session
        That outlives connections; None for one that ends with each.
    """

    def __init__(
        self,
        address: BrokerAddress,
        *,
        client_id: str,
        subscriptions: Sequence[Subscription] = (),
        births: Sequence[Message] = (),
        will: Message | None = None,
        on_connect: Callable[[], Awaitable[None]] | None = None,
        on_disconnect: Callable[[], None] | None = None,
        max_queued: int = 65_536,
        silence_seconds: float = SILENCE_SECONDS,
        versions: Sequence[Version] = VERSIONS,
        random_source: random.Random | None = None,
        seals: Seals | None = None,
        session: LastingSession | None = None,
    ) -> None:
        self.address = address
        self.connected = asyncio.Event()
        self.connects_total = 0
        self.hangs_total = 0
        """How many connections were given up because the broker sent nothing any more."""
        self.trouble: str | None = None
        """Why there is no connection; None while there is one."""
        self._client_id = client_id
        self._subscriptions = list(subscriptions)
        self._births = tuple(births)
        self._will = will
        self._on_connect = on_connect
        self._on_disconnect = on_disconnect
        self._max_queued = max_queued
        self._silence = silence_seconds
        self._versions = VersionChoice(versions)
        self._random = random_source or random.Random()  # noqa: S311 - jitter is no secret
        self._connection: Connection | None = None
        self._seals = seals
        self._session = session
        self._connections = 0
        self._outage = Outage()
        self._taken_over: float | None = None
        """When another client of the same name took the connection last."""
        self.session_present = False
        """Whether the broker went on with a session from before when it was reached last."""
        self.session_lasts = False
        """Whether it keeps the session when the connection ends."""

    @property
    def failed_attempts(self) -> int:
        """How often the broker could not be reached, or ended the connection, since it was reached last."""
        return self._outage.attempts

    async def run(self, handle: Callable[[Message], Awaitable[None]]) -> None:
        """Keep the connection and call `handle` for each message, one after another, until cancelled.

        Raises
        ------
        ClientNameSharedError
            As :meth:`run_in_bursts`.
        """

        async def take(messages: Sequence[Message]) -> None:
            for message in messages:
                await handle(message)

        await self.run_in_bursts(take)

    async def run_in_bursts(self, take: Callable[[Sequence[Message]], Awaitable[None]]) -> None:
        """Keep the connection and call `take` with messages that arrived together, until cancelled.

        They are acknowledged when it has returned; those of a session that lasts by :meth:`acknowledge`.

        Raises
        ------
        ClientNameSharedError
            The broker has ended two connections within a minute as another client of the same name had connected.
        """
        take = self._opening(take)
        waiting, loop = pauses(self._random), asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._connect_and_receive(take)
            except LinkError as error:
                if self.connected.is_set() and loop.time() - began >= STEADY_SECONDS:
                    waiting = pauses(self._random)
                self._disconnected()
                self.trouble = error.message
                if self._connection is not None:
                    self.hangs_total += self._connection.hung
                    if self._connection.taken_over:
                        self._note_takeover(loop.time())
                self._connection = None
                pause = next(waiting)
                if self._outage.failed(str(error), loop.time()):
                    log.warning(
                        "broker is away",
                        broker=str(self.address),
                        error=str(error),
                        for_seconds=round(self._outage.seconds(loop.time())),
                        next_try_seconds=round(pause, 2),
                    )
                await asyncio.sleep(pause)
            finally:
                self._disconnected()
                self._connection = None

    def acknowledge(self, numbers: Sequence[int]) -> None:
        """Acknowledge messages of a session that lasts, in the order in which they came.

        Those that came on a connection that is gone are left out: the broker sends them again.
        """
        if self._connection is not None:
            self._connection.acknowledge(numbers)

    async def publish(self, message: Message) -> None:
        """Publish, and with a quality of service of 1 wait until the broker has it.

        Raises
        ------
        LinkError
            If there is no connection, it breaks first, or the broker does not acknowledge the message within a minute:
            then the connection is given up.
        """
        connection = self._connection
        if connection is None:
            raise LinkError(f"not connected to the broker at {self.address}")
        await connection.publish(message if self._seals is None else self._seals.seal(message))

    async def publish_frames(self, frames: PublishFrames) -> None:
        """Publish many messages with a quality of service of 1, and wait until the broker has all of them.

        They are published in order, behind those of earlier calls, which need not have returned. Only a link that
        speaks nothing but MQTT 3.1.1 publishes them: a message has the same bytes with every connection then.

        Raises
        ------
        BrokenOffError
            If there is no connection, or it breaks first.
        """
        connection = self._connection
        if connection is None:
            raise BrokenOffError(f"not connected to the broker at {self.address}", 0)
        await connection.publish_frames(frames)

    async def subscribe(self, subscription: Subscription) -> None:
        """Subscribe now (when connected) and after every later connect."""
        self._subscriptions.append(subscription)
        if self._connection is not None:
            await self._connection.subscribe([subscription])

    def _opening(
        self, take: Callable[[Sequence[Message]], Awaitable[None]]
    ) -> Callable[[Sequence[Message]], Awaitable[None]]:
        if self._seals is None:
            return take
        open_sealed = self._seals.open

        async def take_opened(messages: Sequence[Message]) -> None:
            await take([open_sealed(message) for message in messages])

        return take_opened

    def _note_takeover(self, now: float) -> None:
        """Note that another client has taken the connection; raise ClientNameSharedError if that is the second time."""
        before, self._taken_over = self._taken_over, now
        if before is not None and now - before < TAKEOVER_SECONDS:
            raise ClientNameSharedError(self.address, self._client_id)

    def _disconnected(self) -> None:
        if self.connected.is_set():
            self.connected.clear()
            if self._on_disconnect is not None:
                self._on_disconnect()

    async def _connect_and_receive(self, take: Callable[[Sequence[Message]], Awaitable[None]]) -> None:
        now, will, births = asyncio.get_running_loop().time, self._will, self._births
        self._connections += 1
        if self._seals is not None:
            self._seals.connecting()
            will = None if will is None else self._seals.seal_will(will)
            births = tuple(map(self._seals.seal, births))
        async with connect(
            self.address,
            client_id=self._client_id,
            will=will,
            max_queued=self._max_queued,
            silence_seconds=self._silence,
            versions=self._versions.order(now()),
            session=self._session,
            number=self._connections,
        ) as connection:
            self._connection = connection
            self.session_present = connection.session_present
            self.session_lasts = connection.session_lasts
            if self._session is not None and connection.session_lasts:
                # With a version of the others it would be discarded, and all that waits in it.
                self._session = replace(self._session, versions=VERSIONS)
            self._versions.note(connection.version, now())
            # Answers to a birth must find us subscribed.
            if self._subscriptions:
                await connection.subscribe(self._subscriptions)
            if self._session is not None and self._session.former and connection.session_present:
                # Not before: what comes between would be lost.
                await connection.unsubscribe(self._session.former)
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    for birth in births:
                        await connection.publish(birth)
            except TimeoutError as error:
                raise LinkError(f"the broker at {self.address} did not acknowledge a birth") from error
            self._look_at_certificate(connection.peer_expires)
            self.connects_total += 1
            self.connected.set()
            self.trouble = None
            self._outage = Outage()
            log.info(
                "connected to the broker",
                broker=str(self.address),
                client=self._client_id,
                mqtt=str(connection.version),
            )
            if self._on_connect is not None:
                await self._on_connect()
            await connection.receive(take)

    def _look_at_certificate(self, expires: float | None) -> None:
        """Warn, with each connection, of a broker whose certificate expires soon."""
        if expires is not None and (days := days_to_warn_of(expires, time.time())) is not None:
            log.warning("the broker's certificate expires soon", broker=str(self.address), days_left=days)


__all__ = [
    "DEFAULT_PORT",
    "SILENCE_SECONDS",
    "BrokenOffError",
    "BrokerAddress",
    "ClientNameSharedError",
    "LastingSession",
    "LinkError",
    "Message",
    "MqttLink",
    "Subscription",
    "Version",
    "pauses",
]
