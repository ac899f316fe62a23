"""A cluster with keys at a real broker: what an intruder publishes for its proxies is refused, counted and kept."""

import asyncio
from contextlib import asynccontextmanager

from cluster.ingest.service import MAX_STREAMS
from cluster.service.catalog.sensor_catalog import MOST_PROXIES, MOST_SENSORS
from cluster.service.running.settings import ClusterSettings
from cluster.service.server import ClusterServer
from protocols.mqtt.link import BrokerAddress, Message, MqttLink, Subscription
from protocols.sealing.keys import make_keys, read_part_keys
from protocols.sealing.seals import MOST_NAMES, MOST_TOPICS, PartSeals
from protocols.wire import topics
from protocols.wire.batches import Batch, Resumption, decode_ack
from protocols.wire.catalog import MoteEntry, MoteState, Presence, ProxyClock, ProxySpool, Status, StreamOffer
from protocols.wire.demands import PIECES, DemandRequest, RefusedDemand, demand_report
from protocols.wire.frames import VERSION, encode
from protocols.wire.streams import StreamSchema
from tests.cluster.service.recorded_cluster import NOON_US, SCHEMA, batch

KEYS, OTHERS = make_keys(b"k" * 32, ["p", "q"]), make_keys(b"o" * 32, ["p", "q"])
ENTRY = MoteEntry(
    VERSION, "m", "p", "loop", "traffic", {"sensor": "a"}, MoteState.SLEEPING, 0, 1, 1, 0, 0, 0, 0, 0, 0, None, 0
)


class Server(ClusterServer):
    """A cluster without engine, publishers and sockets."""

    @asynccontextmanager
    async def _surrounded(self, tasks, ready):
        yield


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the cluster has no event for this
            await asyncio.sleep(0.02)


def part(folder, name, keys=KEYS):
    folder.mkdir(exist_ok=True)
    return PartSeals(read_part_keys(keys.files()[name], name), folder)


@asynccontextmanager
async def client(address, name, *, seals=None, subscriptions=(), take=None):
    async def ignore(_):
        pass

    link = MqttLink(address, client_id=name, subscriptions=[Subscription(each) for each in subscriptions], seals=seals)
    running = asyncio.create_task(link.run(take or ignore))
    await link.connected.wait()
    yield link
    running.cancel()


def frames(proxy):
    """Return one message of each kind that proxies send to a cluster."""
    found = {
        topics.proxy_status(proxy): Status(VERSION, proxy, Presence.OFFLINE, "e", NOON_US),
        topics.proxy_clock(proxy): ProxyClock(VERSION, proxy, NOON_US),
        topics.proxy_spool(proxy): ProxySpool(VERSION, proxy, 1, 1),
        topics.stream_offer(proxy, "forged"): StreamOffer(VERSION, proxy, StreamSchema("forged", SCHEMA.fields)),
        topics.mote_entry(proxy, "m"): ENTRY,
        topics.resumptions(proxy): Resumption(VERSION, proxy, "e", "traffic", 99),
        topics.demand_report(proxy, "traffic"): demand_report(proxy, "traffic", 1, [RefusedDemand("q", "forged")]),
        topics.demand_request(proxy, "traffic"): DemandRequest(VERSION, proxy, "traffic", (1,)),
        topics.batches(proxy): Batch(VERSION, proxy, "e", "traffic", 2, NOON_US, True, 0, ()),
    }
    return [Message(topic, encode(frame)) for topic, frame in found.items()]


async def test_what_an_intruder_publishes_for_proxies_changes_nothing(tmp_path, broker):
    address, file = BrokerAddress(broker.host, broker.port), tmp_path / "cluster.keys"
    file.write_text(KEYS.files()["cluster.keys"])
    file.chmod(0o600)
    server, acks = Server(ClusterSettings(folder=tmp_path / "c", broker=address, keys=file)), []

    async def acknowledged(message):
        acks.append((message.refusal, decode_ack(message.payload).through))

    running = asyncio.create_task(server.run())
    await server._link.connected.wait()
    ingest, sensors = server.parts.ingest, server.parts.sensors
    async with (
        client(address, "p", seals=part(tmp_path / "p", "proxy-p.keys"), subscriptions=[topics.acks("p")],
               take=acknowledged) as proxy,
        client(address, "intruder", subscriptions=["fjord/v1/proxies/#"]) as intruder,
        client(address, "thief", seals=part(tmp_path / "t", "proxy-p.keys", OTHERS)) as thief,
        client(address, "q", seals=part(tmp_path / "q", "proxy-q.keys")) as other,
    ):  # fmt: skip
        await proxy.publish(Message(topics.proxy_status("p"), encode(Status(VERSION, "p", Presence.ONLINE, "e", 0))))
        await proxy.publish(Message(topics.stream_offer("p", "traffic"), encode(StreamOffer(VERSION, "p", SCHEMA))))
        await proxy.publish(Message(topics.batches("p"), batch(1)))
        await until(lambda: acks)
        assert acks == [("", 1)]
        attacks = frames("p")
        for each in attacks:
            await intruder.publish(each)
            await thief.publish(each)
            await other.publish(each)
        await intruder.publish(Message(topics.stream_offer("p", "traffic"), b"", retain=True))
        await until(lambda: sum(ingest.rejected.values()) >= 3 * len(attacks) + 1)
        assert ingest.rejected == {"unsealed": len(attacks) + 1, "forged": 2 * len(attacks)}
        assert set(ingest.schemas) == {"traffic"}
        assert ingest.online("p")
        assert ingest.offers.fits("p", "traffic")
        assert not sensors.rejected
        assert not server.parts.queries.demand_reports.texts()
        assert len(sensors) == 0
        assert not ingest.proxy_clocks.behind_us
        assert not ingest.proxy_spools.all()
        await proxy.publish(Message(topics.batches("p"), batch(2)))
        await until(lambda: len(acks) > 1)
        assert acks[-1] == ("", 2)
    kept = server._registry.quarantine.newest()
    assert {each.reason for each in kept} == {"its seal is not right"}
    assert len(kept) == 3 * len(attacks) + 1
    server.stop()
    await running


def test_what_a_part_may_have_is_enough_for_what_others_accept_of_it():
    assert MOST_TOPICS["mote_entry"] >= MOST_SENSORS
    assert MOST_TOPICS["demand_piece"] >= MAX_STREAMS * PIECES
    assert max(MAX_STREAMS, MOST_PROXIES) <= MOST_NAMES
