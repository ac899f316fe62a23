"""The embedded broker speaks MQTT 3.1.1, and refuses MQTT 5 at once."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from protocols.mqtt.messages import Message, Version
from protocols.mqtt.sent_frames import DISCONNECT, Connect
from proxy.broker import running_broker

CONNECT = Connect("a", will=Message("status", b"offline"))
LIMIT_SECONDS = 5.0


async def answer_to(broker, octets, *, at_once=True):
    """Return what the broker sends first to a client that sends these bytes."""
    reader, writer = await asyncio.open_connection(broker.host, broker.port)
    for start in range(0, len(octets), len(octets) if at_once else 1):
        writer.write(octets[start:] if at_once else octets[start : start + 1])
        await asyncio.sleep(0)
    async with asyncio.timeout(LIMIT_SECONDS):
        answer = await reader.read(100)
        if answer:
            writer.write(DISCONNECT)
            with contextlib.suppress(ConnectionError):
                await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    return answer


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_client_of_mqtt_5_is_refused_and_one_of_3_1_1_is_served(at_once):
    async with running_broker(engine="amqtt") as broker:
        assert await answer_to(broker, CONNECT.frame(Version.V5), at_once=at_once) == b"\x20\x03\x00\x84\x00"
        assert await answer_to(broker, CONNECT.frame(Version.V3_1_1), at_once=at_once) == b"\x20\x02\x00\x00"


async def test_a_client_that_sends_no_whole_frame_hurts_no_other():
    async with running_broker(engine="amqtt") as broker:
        for cut in (0, 1, 5, 11, 20):
            _, writer = await asyncio.open_connection(broker.host, broker.port)
            writer.write(CONNECT.frame(Version.V3_1_1)[:cut])
            writer.close()
            await writer.wait_closed()
        for garbage in (b"\x10\xff\xff\xff\xff\xff", b"\x10\xff\xff\xff\x7f" + b"\0\4MQTT\5"):
            assert await answer_to(broker, garbage) == b"", "it hangs up"
        assert await answer_to(broker, CONNECT.frame(Version.V3_1_1)) == b"\x20\x02\x00\x00"
