"""Two clusters of a name at a real broker: the second is refused, and the first goes on undisturbed."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from cluster.service.data_folder.folder import open_folder
from cluster.service.own_name import claim_of
from cluster.service.running.settings import ClusterSettings
from cluster.service.server import ClusterServer
from protocols.mqtt.link import BrokerAddress, Message, MqttLink, Subscription
from protocols.presence.claiming import NameTakenError
from protocols.wire import topics
from protocols.wire.batches import decode_ack
from protocols.wire.catalog import StreamOffer
from protocols.wire.frames import VERSION, encode
from tests.cluster.service.recorded_cluster import SCHEMA, batch


class Server(ClusterServer):
    """A cluster without engine, publishers and sockets."""

    @asynccontextmanager
    async def _surrounded(self, tasks, ready):
        yield


def settings(folder, address):
    return ClusterSettings(folder=folder, broker=BrokerAddress(address.host, address.port))


async def claim(of):
    if not of.folder.exists():
        open_folder(of.folder).close()
    async with claim_of(of, stop=lambda: None):
        pass


async def test_second_cluster_of_a_name_is_refused_and_the_first_stays_connected(tmp_path, broker):
    first, second = settings(tmp_path / "first", broker), settings(tmp_path / "second", broker)
    await claim(first)
    server = Server(first)
    running = asyncio.create_task(server.run())
    await server._link.connected.wait()
    with pytest.raises(NameTakenError, match=f"another cluster named 'cluster' .* {server._registry.engine_id}"):
        await claim(second)
    with pytest.raises(NameTakenError, match="one of the two is a copy of the other"):
        await claim(first)
    assert (server._link.connects_total, server._link.connected.is_set()) == (1, True)
    server.stop()
    await running
    await claim(second)


async def test_acknowledgements_name_their_cluster(tmp_path, broker):
    acks = asyncio.Queue()
    link = MqttLink(
        BrokerAddress(broker.host, broker.port), client_id="p", subscriptions=[Subscription(topics.acks("p"))]
    )
    receiving = asyncio.create_task(link.run(acks.put))
    server = Server(settings(tmp_path / "first", broker))
    running = asyncio.create_task(server.run())
    for each in (link, server._link):
        await each.connected.wait()
    await link.publish(Message(topics.stream_offer("p", "traffic"), encode(StreamOffer(VERSION, "p", SCHEMA))))
    await link.publish(Message(topics.batches("p"), batch(1)))
    ack = decode_ack((await asyncio.wait_for(acks.get(), 20)).payload)
    assert (ack.through, ack.cluster) == (1, f"cluster/{server._registry.engine_id}")
    server.stop()
    await running
    receiving.cancel()
