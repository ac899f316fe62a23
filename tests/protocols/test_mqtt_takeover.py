"""A broker of MQTT 5 tells a client that another of its name has connected: of two that fight, one ends."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import count

import pytest

from protocols.mqtt import link as link_module
from protocols.mqtt import reconnecting
from protocols.mqtt.link import BrokerAddress, ClientNameSharedError, MqttLink
from protocols.mqtt.messages import Version

ACCEPTED, TAKEN_OVER, SHUTTING_DOWN = b"\x20\x03\x00\x00\x00", b"\xe0\x02\x8e\x00", b"\xe0\x02\x8b\x00"


@contextlib.asynccontextmanager
async def ending(*farewells):
    """Run a broker that ends each connection in turn as given, and keeps further ones; yield where, and how many."""
    connections, writers = count(1), []
    reached = asyncio.Event()

    async def serve(reader, writer):
        writers.append(writer)
        await reader.readexactly(2)
        writer.write(ACCEPTED)
        number = next(connections)
        if number <= len(farewells):
            writer.write(farewells[number - 1])
        else:
            reached.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield BrokerAddress(port=server.sockets[0].getsockname()[1]), reached
    server.close()
    for each in writers:
        each.close()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(reconnecting, "FIRST_PAUSE_SECONDS", 0.0)


def client(address):
    return MqttLink(address, client_id="fjord-proxy-p-1", versions=(Version.V5,))


async def never(_):
    raise AssertionError("there are no messages")


@pytest.mark.parametrize("farewells", [(TAKEN_OVER, TAKEN_OVER), (TAKEN_OVER, SHUTTING_DOWN, TAKEN_OVER)])
async def test_a_link_whose_name_another_client_uses_ends_with_an_error_that_names_it(farewells):
    async with ending(*farewells) as (address, reached):
        with pytest.raises(ClientNameSharedError, match="'fjord-proxy-p-1'") as found:
            await asyncio.wait_for(client(address).run_in_bursts(never), 20)
        assert "copy of this data folder" in found.value.hint
        assert not reached.is_set()


@pytest.mark.parametrize("farewells", [(TAKEN_OVER,), (SHUTTING_DOWN, SHUTTING_DOWN, TAKEN_OVER)])
async def test_a_link_that_is_taken_over_once_connects_again(farewells):
    async with ending(*farewells) as (address, reached):
        running = asyncio.create_task(client(address).run_in_bursts(never))
        await asyncio.wait_for(reached.wait(), 20)
        running.cancel()


async def test_takeovers_that_are_far_apart_are_of_restarts(monkeypatch):
    monkeypatch.setattr(link_module, "TAKEOVER_SECONDS", 0.0)
    async with ending(TAKEN_OVER, TAKEN_OVER, TAKEN_OVER) as (address, reached):
        running = asyncio.create_task(client(address).run_in_bursts(never))
        await asyncio.wait_for(reached.wait(), 20)
        running.cancel()
