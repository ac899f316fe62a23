"""Each user against each topic, with a real Mosquitto as `fjord security init` configures it.

An observer that may read all, and a speaker that may write all, are added to the rules: they see what became of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace

import aiomqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from protocols.mqtt.link import BrokerAddress, LastingSession, LinkError, Message, MqttLink, Subscription, Version
from protocols.security.certificates import Purpose, issue
from protocols.security.private_files import PUBLIC, SECRET, write_file
from protocols.security.tls import TlsFiles, client_context
from tests.protocols.deployment.access_table import ALLOWED, NAMES, may
from tests.secured_broker import address_of, deployed, running_mosquitto

SECONDS = 60
END = "end"
TESTERS = """
user observer
topic read #
topic read $SYS/#
topic write end/observer

user speaker
topic write #

pattern read end/%u
"""
USERS = NAMES.users


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    found = deployed(tmp_path_factory.mktemp("intruders") / "d", NAMES)
    with (found.path / "broker" / "acl").open("a") as rules:
        rules.write(TESTERS)
    with running_mosquitto(found, found.path / "log"):
        yield found


@pytest.fixture(scope="module")
def tester(opened):
    """Addresses of the observer and the speaker."""
    authority, folder = opened._authority(), opened.path / "testers"

    def address(name):
        if not (folder / f"{name}.crt").exists():
            pair = issue(authority, name, Purpose.CLIENT, now=time.time(), days=2)
            write_file(folder / f"{name}.crt", pair.certificate, mode=PUBLIC)
            write_file(folder / f"{name}.key", pair.key, mode=SECRET)
        files = TlsFiles(
            str(opened.path / "authority" / "ca.crt"), str(folder / f"{name}.crt"), str(folder / f"{name}.key")
        )
        return BrokerAddress("127.0.0.1", opened.deployment.broker.port, tls=files)

    return address


async def until(done):
    async with asyncio.timeout(SECONDS):
        while not done():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)


async def vanish(address, will):
    """Connect with a will, if the broker takes that, and end without a farewell."""
    client = Client(address, "vanishes", will=will)
    task = asyncio.create_task(client.link.run(client.take))
    await until(lambda: client.link.connected.is_set() or client.link.trouble is not None)
    if (connection := client.link._connection) is not None:
        connection._socket.abort()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


class Client:
    """A link that keeps what it gets."""

    def __init__(self, address, name, filters=(), version=Version.V5, **arguments):
        subscriptions = [Subscription(each) for each in filters]
        self.received = []
        self.link = MqttLink(address, client_id=name, subscriptions=subscriptions, versions=[version], **arguments)

    async def take(self, message):
        self.received.append(message)

    async def __aenter__(self):
        self.task = asyncio.create_task(self.link.run(self.take))
        async with asyncio.timeout(SECONDS):
            await self.link.connected.wait()
        return self

    async def __aexit__(self, *_):
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    async def until_end(self, user):
        """Wait for the last message of a speaker."""
        await until(lambda: any(each.topic == f"{END}/{user}" for each in self.received))

    @property
    def topics(self):
        return {each.topic for each in self.received} - {f"{END}/{each}" for each in (*USERS, "observer")}


@pytest.mark.parametrize("version", list(Version))
async def test_only_what_is_allowed_is_written(opened, tester, version):
    async with (
        Client(tester("observer"), "observer", ["#"]) as observer,
        Client(tester("speaker"), "speaker") as speaker,
    ):
        refused = set()
        for user in USERS:
            async with Client(address_of(opened, user), f"client of {user}", version=version) as client:
                for topic in ALLOWED:
                    try:
                        await client.link.publish(Message(topic, user.encode()))
                    except LinkError:
                        refused.add((user, topic))
        await speaker.link.publish(Message(f"{END}/observer", b""))
        await observer.until_end("observer")
    written = {(each.payload.decode(), each.topic) for each in observer.received if each.topic in ALLOWED}
    allowed = {(user, topic) for user in USERS for topic in may(user, "w")}
    assert written == allowed
    if version is Version.V5:  # the older one has no word for it
        assert refused == {(user, topic) for user in USERS for topic in ALLOWED} - allowed


async def test_nothing_that_is_forbidden_is_kept(opened, tester):
    for user in USERS:
        async with Client(address_of(opened, user), f"client of {user}", version=Version.V3_1_1) as client:
            for topic in set(ALLOWED) - may(user, "w"):
                await client.link.publish(Message(topic, user.encode(), retain=True))
    async with (
        Client(tester("observer"), "observer", ["#"]) as observer,
        Client(tester("speaker"), "speaker") as speaker,
    ):
        await speaker.link.publish(Message(f"{END}/observer", b""))
        await observer.until_end("observer")
    assert observer.topics == set()


@pytest.mark.parametrize(
    "filters", [["#"], ["fjord/v1/#", "+/#"], list(ALLOWED), ["$share/group/#"]], ids=lambda each: each[0]
)
async def test_only_what_is_allowed_is_read(opened, tester, filters):
    async with contextlib.AsyncExitStack() as stack:
        clients = {
            user: await stack.enter_async_context(
                Client(address_of(opened, user), f"client of {user}", [*filters, f"{END}/{user}"])
            )
            for user in USERS
        }
        async with Client(tester("speaker"), "speaker") as speaker:
            rounds = len(clients) if filters[0].startswith("$share") else 1  # each message has one reader then
            for _ in range(rounds * 2):
                for topic in ALLOWED:
                    await speaker.link.publish(Message(topic, b"spoken"))
            for user in USERS:
                await speaker.link.publish(Message(f"{END}/{user}", b""))
        for user, client in clients.items():
            await client.until_end(user)
    for user, client in clients.items():
        if filters[0].startswith("$share"):
            assert client.topics <= may(user, "r"), user
        else:
            assert client.topics == may(user, "r"), user


async def test_only_what_is_allowed_is_read_of_what_is_kept(opened, tester):
    async with Client(tester("speaker"), "speaker") as speaker:
        for topic in ALLOWED:
            await speaker.link.publish(Message(topic, b"kept", retain=True))
        try:
            for user in USERS:
                async with Client(address_of(opened, user), f"client of {user}", ["#", f"{END}/{user}"]) as client:
                    await speaker.link.publish(Message(f"{END}/{user}", b""))
                    await client.until_end(user)
                assert client.topics == may(user, "r"), user
        finally:
            for topic in ALLOWED:
                await speaker.link.publish(Message(topic, b"", retain=True))


@pytest.mark.parametrize("user", USERS)
async def test_no_will_says_what_its_owner_may_not(opened, tester, user):
    """A death that is forged: what a user may not write, it cannot let the broker write."""
    forbidden = "fjord/v1/proxies/roadside/status" if user != "roadside" else "fjord/v1/proxies/harbour/status"
    async with (
        Client(tester("observer"), "observer", ["#"]) as observer,
        Client(tester("speaker"), "speaker") as speaker,
    ):
        await vanish(address_of(opened, user), Message(forbidden, b"forged", retain=True))
        await asyncio.sleep(0.2)
        await speaker.link.publish(Message(f"{END}/observer", b""))
        await observer.until_end("observer")
    assert observer.topics == set()


async def test_a_proxy_may_leave_its_own_death_as_its_will(opened, tester):
    async with Client(tester("observer"), "observer", ["#"]) as observer:
        own = "fjord/v1/proxies/roadside/status"
        await vanish(address_of(opened, "roadside"), Message(own, b"offline"))
        await until(lambda: own in observer.topics)


async def test_a_proxy_has_a_second_client_in_which_messages_of_its_devices_are_kept(opened, tester):
    topic, address, filters = "zigbee2mqtt/hall", address_of(opened, "roadside"), ["zigbee2mqtt/+"]
    async with Client(address, "fjord-proxy-roadside-e"):
        async with Client(address, "fjord-devices-roadside-e", filters, session=LastingSession(60)) as devices:
            assert devices.link.session_lasts
        async with Client(tester("speaker"), "speaker") as speaker:
            await speaker.link.publish(Message(topic, b"meanwhile"))
        async with Client(address, "fjord-devices-roadside-e", filters, session=LastingSession(60)) as devices:
            assert devices.link.session_present
            await until(lambda: devices.received)
            assert [each.payload for each in devices.received] == [b"meanwhile"]
            devices.link.acknowledge([each.number for each in devices.received])


async def test_a_name_that_no_rule_has_may_do_nothing(opened, tester):
    stranger = tester("stranger")
    async with (
        Client(tester("observer"), "observer", ["#"]) as observer,
        Client(tester("speaker"), "speaker") as speaker,
        Client(stranger, "stranger", ["#"]) as client,
    ):
        for topic in ALLOWED:
            with pytest.raises(LinkError):
                await client.link.publish(Message(topic, b"strange"))
            await speaker.link.publish(Message(topic, b"spoken"))
        await speaker.link.publish(Message(f"{END}/observer", b""))
        await speaker.link.publish(Message(f"{END}/stranger", b""))
        await observer.until_end("observer")
        await client.until_end("stranger")
    assert {each.payload for each in observer.received if each.topic in ALLOWED} == {b"spoken"}
    assert [each.topic for each in client.received] == [f"{END}/stranger"]


async def test_a_user_name_does_not_make_another_user(opened, tester):
    """The name in the certificate counts, whatever a client says."""
    claims = replace(address_of(opened, "wall"), username="cluster", password="guessed")
    async with Client(claims, "claims") as client:
        with pytest.raises(LinkError):
            await client.link.publish(Message("fjord/v1/proxies/roadside/acks", b"forged"))


async def test_what_the_broker_says_of_itself_is_read_by_no_part(opened, tester):
    filters = ["$SYS/#", "$SYS/broker/version", "$share/group/$SYS/#", "+/broker/#"]
    async with Client(tester("observer"), "observer", ["$SYS/#"]) as observer:
        await until(lambda: "$SYS/broker/version" in observer.topics)
    async with Client(tester("speaker"), "speaker") as speaker:
        for user in USERS:
            async with Client(address_of(opened, user), f"client of {user}", [*filters, f"{END}/{user}"]) as client:
                await speaker.link.publish(Message(f"{END}/{user}", b""))
                await client.until_end(user)
            assert client.topics == set(), user


@pytest.mark.parametrize("user", ["wall", "bridge", "harbour", "mast"])
async def test_a_client_under_the_name_of_another_gets_none_of_what_waits_for_it(opened, tester, user):
    """A session that is kept belongs to a name: what waits for it stays for whatever client comes with that name."""
    name, topic = f"fjord-devices-roadside-{user}", "zigbee2mqtt/hall"
    async with Client(address_of(opened, "roadside"), name, ["zigbee2mqtt/+"], session=LastingSession(60)) as devices:
        assert devices.link.session_lasts
    async with Client(tester("speaker"), "speaker") as speaker:
        await speaker.link.publish(Message(topic, b"meanwhile"))
        thief = Client(address_of(opened, user), name, [f"{END}/{user}"], session=LastingSession(60))
        async with thief:
            await speaker.link.publish(Message(topic, b"later"))
            await speaker.link.publish(Message(f"{END}/{user}", b""))
            await thief.until_end(user)
    assert thief.topics == set()


async def test_no_alias_stands_for_a_topic_that_is_forbidden(opened, tester):
    """MQTT 5 writes a topic once, and a number in its place from then on."""
    allowed, forbidden = "zigbee2mqtt/lamp", "fjord/v1/proxies/roadside/acks"

    def numbered():
        found = Properties(PacketTypes.PUBLISH)
        found.TopicAlias = 1
        return found

    address = address_of(opened, "bridge")
    async with (
        Client(tester("observer"), "observer", ["#"]) as observer,
        Client(tester("speaker"), "speaker") as speaker,
        aiomqtt.Client(
            address.host, address.port, protocol=aiomqtt.ProtocolVersion.V5, tls_context=client_context(address.tls)
        ) as bridge,
    ):
        await bridge.publish(allowed, b"1", qos=1, properties=numbered())
        await bridge.publish("", b"2", qos=1, properties=numbered())
        await bridge.publish(forbidden, b"3", qos=1, properties=numbered())
        await bridge.publish("", b"4", qos=1, properties=numbered())
        await speaker.link.publish(Message(f"{END}/observer", b""))
        await observer.until_end("observer")
    written = [(each.topic, each.payload) for each in observer.received if not each.topic.startswith(END)]
    assert written[:2] == [(allowed, b"1"), (allowed, b"2")]
    assert {topic for topic, _ in written} == {allowed}


@pytest.mark.parametrize("topic", ["$share/group/fjord/v1/proxies/roadside/acks", "$SYS/broker/version", "#", "+"])
async def test_no_message_makes_the_broker_answer_elsewhere(opened, tester, topic):
    """A response topic is only a property: what it names is neither written nor checked by the broker."""
    address = address_of(opened, "bridge")
    properties = Properties(PacketTypes.PUBLISH)
    properties.ResponseTopic = "fjord/v1/proxies/roadside/acks"
    async with (
        Client(tester("observer"), "observer", ["#"]) as observer,
        Client(tester("speaker"), "speaker") as speaker,
        aiomqtt.Client(
            address.host, address.port, protocol=aiomqtt.ProtocolVersion.V5, tls_context=client_context(address.tls)
        ) as bridge,
    ):
        await bridge.publish("zigbee2mqtt/lamp", b"1", qos=1, properties=properties)
        with contextlib.suppress(aiomqtt.MqttError, ValueError):  # the client may refuse to send it
            await bridge.publish(topic, b"2", qos=1)
        await speaker.link.publish(Message(f"{END}/observer", b""))
        await observer.until_end("observer")
    assert observer.topics == {"zigbee2mqtt/lamp"}
