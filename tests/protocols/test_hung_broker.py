"""A hung broker keeps its sockets open and sends nothing any more: the link notices, logs it, and reconnects."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from protocols.mqtt.link import BrokerAddress, LinkError, Message, MqttLink, Subscription, Version

SILENCE_SECONDS = 0.6
LIMIT_SECONDS = 20.0
CONNECTED, PINGED = b"\x20\x02\x00\x00", b"\xd0\x00"
CONNECT, SUBSCRIBE, PUBLISH, PING = 1, 8, 3, 12


class FakeBroker:
    """Takes connections and, unless it hangs, answers what a client waits for."""

    def __init__(self):
        self.hangs = False
        self.acknowledges = True
        self.pings = self.connections = 0
        self.port = 0
        self._writers = []

    async def serve(self, reader, writer):
        self.connections += 1
        self._writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind, length = await reader.readexactly(2)
                rest = await reader.readexactly(length)
                answer = self._answer(kind >> 4, rest)
                if answer and not self.hangs:
                    writer.write(answer)

    def _answer(self, kind, rest):
        match kind:
            case _ if kind == CONNECT:
                return CONNECTED
            case _ if kind == SUBSCRIBE:
                return b"\x90\x03" + rest[:2] + b"\x01"
            case _ if kind == PUBLISH and self.acknowledges:
                return b"\x40\x02" + rest[-3:-1]
            case _ if kind == PING:
                self.pings += 1
                return PINGED
        return None

    def close(self):
        for writer in self._writers:
            writer.close()


@pytest.fixture
async def broker():
    found = FakeBroker()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    found.close()
    server.close()


@contextlib.asynccontextmanager
async def linked(broker):
    link = MqttLink(
        BrokerAddress(port=broker.port), client_id="a", subscriptions=[Subscription("#")],
        silence_seconds=SILENCE_SECONDS, versions=[Version.V3_1_1],
    )  # fmt: skip

    async def handle(_):
        """Nothing is expected."""

    task = asyncio.create_task(link.run(handle))
    try:
        await asyncio.wait_for(link.connected.wait(), LIMIT_SECONDS)
        yield link
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(reached):
    async with asyncio.timeout(LIMIT_SECONDS):
        while not reached():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)


async def test_a_hung_broker_is_noticed_and_logged_and_the_link_reconnects(broker):
    async with linked(broker) as link:
        assert (link.trouble, link.hangs_total) == (None, 0)
        broker.hangs = True
        await until(lambda: not link.connected.is_set())
        assert link.hangs_total == 1
        assert f"was given up: it sent nothing for {SILENCE_SECONDS:g} s" in link.trouble
        assert broker.pings == 1, "it got a ping"
        broker.hangs = False
        await until(link.connected.is_set)
        assert (link.trouble, link.hangs_total, link.connects_total) == (None, 1, 2)


async def test_publishing_to_a_hung_broker_fails(broker):
    async with linked(broker) as link:
        broker.hangs = True
        with pytest.raises(LinkError, match="sent nothing"):
            await asyncio.wait_for(link.publish(Message("t", b"x")), LIMIT_SECONDS)


async def test_a_full_socket_does_not_hide_a_hung_broker(broker):
    async with linked(broker) as link:
        broker.hangs = True
        publishing = [link.publish(Message("t", bytes(1_000_000))) for _ in range(50)]
        found = await asyncio.wait_for(asyncio.gather(*publishing, return_exceptions=True), LIMIT_SECONDS)
        assert {type(each) for each in found} == {LinkError}


async def test_a_quiet_broker_that_answers_is_kept(broker):
    async with linked(broker) as link:
        await until(lambda: broker.pings >= 4)
        assert (link.connected.is_set(), broker.connections) == (True, 1)
