"""Two `fjord proxy` of a name at a real broker: the second ends with an error, and the first goes on undisturbed."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys

import pytest

from protocols.mqtt.link import BrokerAddress, MqttLink, Subscription
from protocols.wire import topics
from protocols.wire.catalog import Presence, decode_status

RUN = "from proxy.command import app; app()"


@contextlib.asynccontextmanager
async def proxy(address, data, *options):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", RUN, "--name", "p", "--data", str(data), "--broker", f"{address.host}:{address.port}"),
        *options,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def started(process):
    while b"proxy: p at broker" not in (line := await asyncio.wait_for(process.stdout.readline(), 30)):
        assert line, "it has ended"


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.system
async def test_second_of_a_name_is_refused_and_one_that_was_killed_starts_at_once(tmp_path, broker, recorded):
    statuses = []

    async def receive(message):
        statuses.append(decode_status(message.payload))

    link = MqttLink(
        BrokerAddress(broker.host, broker.port), client_id="w", subscriptions=[Subscription(topics.proxy_status("p"))]
    )
    watching = asyncio.create_task(link.run(receive))
    options = ["--record", str(tmp_path / "log")] if recorded else []
    async with proxy(broker, tmp_path / "first") as first:
        await started(first)
        async with proxy(broker, tmp_path / "second", *options) as second:
            _, errors = await asyncio.wait_for(second.communicate(), 60)
            assert second.returncode == 1
            assert b"another proxy named 'p' runs at this broker" in errors.replace(b"\n", b" ")
        assert first.returncode is None
        assert {each.presence for each in statuses} == {Presence.ONLINE}, "the first was disturbed"
        first.kill()
        await first.wait()
        async with proxy(broker, tmp_path / "first") as again:
            await asyncio.wait_for(started(again), 10)
    assert len({each.epoch for each in statuses}) == 1
    watching.cancel()


@pytest.mark.system
async def test_a_copied_folder_starts_neither_unadopted_nor_beside_its_original(tmp_path, broker):
    original, copy = tmp_path / "first", tmp_path / "second"
    async with proxy(broker, original) as first:
        await started(first)
        subprocess.run(["cp", "-a", str(original), str(copy)], check=True)  # noqa: ASYNC221
        for options, reason in (
            ([], b"was copied or moved: it was last used as"),
            (["--adopt"], b"one of the two is a copy of the other"),
        ):
            async with proxy(broker, copy, *options) as second:
                _, errors = await asyncio.wait_for(second.communicate(), 60)
                assert second.returncode == 1
                assert reason in errors.replace(b"\n", b" ")
        assert first.returncode is None
        first.kill()
        await first.wait()
        async with proxy(broker, copy) as adopted:
            await asyncio.wait_for(started(adopted), 10)
