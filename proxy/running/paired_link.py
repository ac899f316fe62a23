"""Two connections that a proxy uses as one link: its own, and one of a session in which the broker keeps messages.

The session is that of devices: what they publish while the proxy is away waits at the broker. The proxy's own
connection begins anew each time, as its frames have owners that send them again.

Messages of both are handed over one after another, in tasks of one name, so that a recorded run can be replayed. What
becomes of the session comes as a message, too::

    devices' connection    connected: SESSION_TOPIC "continued"    1 2 3 ...    lost    connected: "begun"    1 2 ...
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from protocols.mqtt.link import Message, MqttLink
from protocols.wire import topics

SESSION_TOPIC: Final = "$fjord/device-session"
"""No client publishes on it: it is a message of this link."""
CONTINUED, BEGUN, NONE, LOST = b"continued", b"begun", b"none", b"lost"
"""The broker has kept the session, or begun one, or keeps none; the connection is lost."""

Take: TypeAlias = Callable[[Sequence[Message]], Awaitable[None]]
OnConnect: TypeAlias = Callable[[], Awaitable[None]]
_OWN_TOPICS: Final = topics.PREFIX + "/"


class PairedLink:
    """The two connections.

    Parameters
    ----------
    make_own, make_devices
        Make the links, given what they call after each connect, and that of devices after each loss.
    on_connect
        Called after each connect of the proxy's own link.
    """

    def __init__(
        self,
        make_own: Callable[[OnConnect], MqttLink],
        make_devices: Callable[[OnConnect, Callable[[], None]], MqttLink],
        on_connect: OnConnect,
    ) -> None:
        self._on_connect = on_connect
        self._own = make_own(self._own_connected)
        self._lost = asyncio.Event()
        self._devices = make_devices(self._devices_connected, self._lost.set)
        self._turn = asyncio.Lock()
        self._take: Take = _not_running

    @property
    def connected(self) -> asyncio.Event:
        """Whether the proxy's own link has a connection."""
        return self._own.connected

    @property
    def hangs_total(self) -> int:
        """Times a connection was dropped because the broker sent nothing any more."""
        return self._own.hangs_total + self._devices.hangs_total

    @property
    def trouble(self) -> str | None:
        """Why there is no connection; None while there are both."""
        return self._own.trouble or self._devices.trouble

    async def publish(self, message: Message) -> None:
        """Publish on the proxy's own connection; raises LinkError."""
        await self._own.publish(message)

    def acknowledge(self, numbers: Sequence[int]) -> None:
        """Acknowledge messages of devices, in the order in which they came."""
        self._devices.acknowledge(numbers)

    async def run_in_bursts(self, take: Take) -> None:
        """Receive on both until cancelled."""

        async def in_turn(messages: Sequence[Message]) -> None:
            async with self._turn:
                await take(messages)

        async def of_devices(messages: Sequence[Message]) -> None:
            found = [each for each in messages if each.number or not _own(each.topic)]
            if found:
                await in_turn(found)

        async def note_losses() -> None:
            while True:
                await self._lost.wait()
                self._lost.clear()
                await in_turn([Message(SESSION_TOPIC, LOST)])

        self._take = in_turn
        task = asyncio.current_task()
        name = None if task is None else task.get_name()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._own.run_in_bursts(in_turn), name=name)
            tasks.create_task(self._devices.run_in_bursts(of_devices), name=name)
            tasks.create_task(note_losses(), name=name)

    async def _own_connected(self) -> None:
        async with self._turn:
            await self._on_connect()

    async def _devices_connected(self) -> None:
        state = CONTINUED if self._devices.session_present else BEGUN if self._devices.session_lasts else NONE
        await self._take([Message(SESSION_TOPIC, state)])


def _own(topic: str) -> bool:
    """Return whether a topic is Fjord's: its messages come on the other connection, where their seals are opened."""
    return topic.startswith((_OWN_TOPICS, SESSION_TOPIC))


async def _not_running(_: Sequence[Message]) -> None:
    """Take nothing: the link does not run yet."""
