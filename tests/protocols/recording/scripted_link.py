"""A link to a broker whose other clients a test plays: for parts that are recorded."""

from __future__ import annotations

import asyncio

from protocols.mqtt.link import LinkError, Message
from protocols.wire.frames import encode


class ScriptedLink:
    """A link whose broker goes away when a test wants it, and comes back soon."""

    def __init__(self, on_connect, on_disconnect):
        self.hangs_total = 0
        self.trouble = None
        self.published = []
        self._on_connect, self._on_disconnect = on_connect, on_disconnect
        self._messages = asyncio.Queue()
        self._away = False

    async def run_in_bursts(self, take):
        while True:
            self._away = False
            await self._on_connect()
            while not self._away:
                burst = [await self._messages.get()]
                while not self._messages.empty():
                    burst.append(self._messages.get_nowait())
                await take([each for each in burst if each is not None])
            self._on_disconnect()
            await asyncio.sleep(0.08)

    async def publish(self, message):
        if self._away:
            raise LinkError("the broker is away")
        self.published.append(message)
        await asyncio.sleep(0.0005 * (len(self.published) % 4))
        self.answer(message)

    def answer(self, message):
        """Do what other clients do when they receive a message."""

    def put(self, topic, content, **options):
        """Let a message arrive."""
        self._messages.put_nowait(Message(topic, content if isinstance(content, bytes) else encode(content), **options))

    def go_away(self):
        """Break the connection."""
        self._away = True
        self._messages.put_nowait(None)
