"""The link with TLS, to a real Mosquitto: what comes through, and what is refused for which reason."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import ssl
import time
from dataclasses import replace
from pathlib import Path

import pytest

from protocols.deployment.names import Names, ProxyPart, SubscriberPart
from protocols.mqtt.connection import BURST_MESSAGES
from protocols.mqtt.link import BrokerAddress, LinkError, Message, MqttLink, Subscription, Version
from protocols.mqtt.publishing import MOST_IN_FLIGHT
from protocols.security.certificates import Purpose, issue, make_authority
from protocols.security.private_files import PUBLIC, SECRET, write_file
from protocols.security.tls import TlsFiles
from tests.protocols.test_publish_frames import frames_of
from tests.secured_broker import address_of, deployed, files_of, running_mosquitto

SECONDS = 30
NAMES = Names(proxies=(ProxyPart("roadside"),), subscribers=(SubscriberPart("wall"),))
RESULTS = "fjord/v1/results/slow"


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    return deployed(tmp_path_factory.mktemp("deployment") / "d", NAMES)


@pytest.fixture(scope="module", autouse=True)
def mosquitto(opened):
    with running_mosquitto(opened, opened.path / "log") as process:
        yield process


@contextlib.asynccontextmanager
async def running(link, take=None):
    received = []

    async def keep(message):
        received.append(message)

    task = asyncio.create_task(link.run(take or keep))
    try:
        async with asyncio.timeout(SECONDS):
            await link.connected.wait()
        yield received
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(received, count):
    async with asyncio.timeout(SECONDS):
        while len(received) < count:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)


async def trouble_of(address, **arguments):
    """What a link says that cannot connect."""
    link = MqttLink(address, client_id="refused", **arguments)
    task = asyncio.create_task(link.run(None))
    try:
        async with asyncio.timeout(SECONDS):
            while link.trouble is None:
                assert not link.connected.is_set()
                await asyncio.sleep(0.005)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    return link.trouble


@pytest.mark.parametrize("version", list(Version))
async def test_messages_come_through_in_order(opened, version):
    reader = MqttLink(
        address_of(opened, "wall"), client_id="r", subscriptions=[Subscription(RESULTS)], versions=[version]
    )
    writer = MqttLink(address_of(opened, "cluster"), client_id="w", versions=[version])
    count = MOST_IN_FLIGHT + 2 * BURST_MESSAGES
    async with running(reader) as received, running(writer):
        await asyncio.gather(*(writer.publish(Message(RESULTS, str(number).encode())) for number in range(count)))
        large = random.Random(1).randbytes(8 * 1024**2)
        await writer.publish(Message(RESULTS, large))
        await until(received, count + 1)
    assert [each.payload for each in received] == [*(str(number).encode() for number in range(count)), large]


async def test_a_slow_handler_holds_back_the_broker(opened):
    """What is on its way is bounded with TLS as without: the socket is not read while too much waits."""
    reader = MqttLink(address_of(opened, "wall"), client_id="slow", subscriptions=[Subscription(RESULTS)])
    writer = MqttLink(address_of(opened, "cluster"), client_id="w")
    release, received = asyncio.Event(), []

    async def take(message):
        await release.wait()
        received.append(message)

    payload, count = bytes(1024**2), 160
    async with running(reader, take), running(writer):
        for _ in range(count):
            await writer.publish(Message(RESULTS, payload))
        await asyncio.sleep(0.5)
        connection = reader._connection
        assert connection._gate.closed
        waiting = connection._inbox.waiting_bytes
        await asyncio.sleep(0.5)
        assert connection._inbox.waiting_bytes == waiting < (count - 20) * len(payload)
        release.set()
        await until(received, count)


async def test_a_broker_that_does_not_read_holds_back_the_writer(opened, mosquitto):
    link, count, sent = MqttLink(address_of(opened, "cluster"), client_id="w"), 40, 0

    async def send():
        nonlocal sent
        for _ in range(count):
            await link.publish(Message(RESULTS, bytes(1024**2), qos=0))
            sent += 1

    async with running(link):
        mosquitto.send_signal(signal.SIGSTOP)
        try:
            sending = asyncio.create_task(send())
            await asyncio.sleep(1.0)
            held = sent
            assert held < count
            await asyncio.sleep(0.5)
            assert sent == held
        finally:
            mosquitto.send_signal(signal.SIGCONT)
        async with asyncio.timeout(SECONDS):
            await sending
    assert sent == count


async def test_many_messages_in_frames(opened):
    reader = MqttLink(address_of(opened, "wall"), client_id="r", subscriptions=[Subscription(RESULTS)])
    writer = MqttLink(address_of(opened, "cluster"), client_id="w", versions=[Version.V3_1_1])
    async with running(reader) as received, running(writer):
        await writer.publish_frames(frames_of([Message(RESULTS, str(number).encode()) for number in range(5_000)]))
        await until(received, 5_000)
    assert [each.payload for each in received] == [str(number).encode() for number in range(5_000)]


async def test_a_broken_connection_comes_back(tmp_path):
    own = deployed(tmp_path / "d", NAMES)
    link = MqttLink(address_of(own, "cluster"), client_id="w")
    with running_mosquitto(own, tmp_path / "log"):
        task = asyncio.create_task(link.run(None))
        async with asyncio.timeout(SECONDS):
            await link.connected.wait()
    async with asyncio.timeout(SECONDS):
        while link.connected.is_set():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)
    with running_mosquitto(own, tmp_path / "log"):
        async with asyncio.timeout(SECONDS):
            await link.connected.wait()
        await link.publish(Message(RESULTS, b"again"))
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    return deployed(tmp_path_factory.mktemp("elsewhere") / "d", NAMES)


def written(folder, name, pair):
    write_file(folder / f"{name}.crt", pair.certificate, mode=PUBLIC)
    write_file(folder / f"{name}.key", pair.key, mode=SECRET)
    return {"certificate": str(folder / f"{name}.crt"), "key": str(folder / f"{name}.key")}


def read(file):
    return Path(file).read_bytes()


def authority_of(opened):
    return opened._authority()


async def test_a_client_without_a_certificate_is_refused(opened):
    trouble = await trouble_of(address_of(opened, "wall", certificate=None, key=None))
    assert "certificate" in trouble, trouble


async def test_a_certificate_of_another_authority_is_refused(opened, elsewhere):
    foreign = files_of(elsewhere, "wall")
    trouble = await trouble_of(address_of(opened, "wall", certificate=foreign.certificate, key=foreign.key))
    assert "authority of our certificate" in trouble or "accept our certificate" in trouble, trouble


async def test_a_certificate_that_signs_itself_is_refused(opened, tmp_path):
    own = written(tmp_path, "own", make_authority("wall", now=time.time(), days=3))
    trouble = await trouble_of(address_of(opened, "wall", **own))
    assert "our certificate" in trouble, trouble


async def test_a_certificate_of_a_server_is_none_of_a_client(opened):
    server = files_of(opened, "broker")
    trouble = await trouble_of(address_of(opened, "wall", certificate=server.certificate, key=server.key))
    assert "our certificate" in trouble, trouble


async def test_an_expired_certificate_of_our_own_is_not_even_shown(opened, tmp_path):
    pair = issue(authority_of(opened), "wall", Purpose.CLIENT, now=time.time() - 10 * 86_400, days=5)
    trouble = await trouble_of(address_of(opened, "wall", **written(tmp_path, "old", pair)))
    assert f"the certificate in {tmp_path / 'old.crt'} expired on " in trouble


async def test_a_broker_refuses_an_expired_certificate_with_the_reason(opened, tmp_path, monkeypatch):
    pair = issue(authority_of(opened), "wall", Purpose.CLIENT, now=time.time() - 10 * 86_400, days=5)
    monkeypatch.setattr("protocols.mqtt.broker_address.check_files", lambda *_: None)
    trouble = await trouble_of(address_of(opened, "wall", **written(tmp_path, "old", pair)))
    assert "our certificate has expired" in trouble


async def test_a_key_of_another_certificate_is_refused(opened):
    other = files_of(opened, "cluster")
    trouble = await trouble_of(address_of(opened, "wall", key=other.key))
    assert f"the key in {other.key} is not that of the certificate in {files_of(opened, 'wall').certificate}" in trouble


@pytest.mark.parametrize(
    ("hosts", "now", "days", "reason"),
    [
        (("127.0.0.1",), -10, 5, "certificate has expired"),
        (("gateway.local",), 0, 5, "mismatch"),
        (("127.0.0.1",), 10, 5, "not yet valid"),
    ],
)
async def test_a_broker_whose_certificate_is_wrong_is_refused(tmp_path, hosts, now, days, reason):
    own = deployed(tmp_path / "d", NAMES)
    begins = time.time() + now * 86_400
    pair = issue(own._authority(), "broker", Purpose.SERVER, hosts=hosts, now=begins, days=days)
    write_file(own.path / "broker" / "broker.crt", pair.certificate, mode=PUBLIC, overwrite=True)
    write_file(own.path / "broker" / "broker.key", pair.key, mode=SECRET, overwrite=True)
    with running_mosquitto(own, tmp_path / "log"):
        trouble = await trouble_of(address_of(own, "wall"))
    assert "its certificate is not accepted" in trouble
    assert reason in trouble


async def test_a_broker_of_another_authority_is_refused(opened, elsewhere):
    trouble = await trouble_of(address_of(opened, "wall", authority=files_of(elsewhere, "wall").authority))
    assert "its certificate is not accepted" in trouble


async def test_a_broker_without_tls_is_named_as_such(opened, broker):
    trouble = await trouble_of(BrokerAddress(broker.host, broker.port, tls=files_of(opened, "wall")))
    assert "TLS" in trouble or "closed" in trouble, trouble


async def test_a_link_without_tls_gets_nowhere(opened):
    trouble = await trouble_of(BrokerAddress("127.0.0.1", opened.deployment.broker.port))
    assert "before it answered" in trouble or "did not answer" in trouble


async def test_one_warning_for_each_attempt_and_no_key_in_it(opened, capsys):
    other = files_of(opened, "cluster")
    await trouble_of(address_of(opened, "wall", key=other.key))
    shown = capsys.readouterr()
    text = shown.out + shown.err
    assert text.count("broker is away") == 1
    assert "PRIVATE" not in text
    assert not any(line in text for line in read(other.key).decode().splitlines()[1:-1])


async def test_a_broker_whose_certificate_expires_soon_is_warned_of(tmp_path, capsys):
    own = deployed(tmp_path / "d", NAMES, days=20)
    with running_mosquitto(own, tmp_path / "log"):
        async with running(MqttLink(address_of(own, "cluster"), client_id="w")):
            pass
    shown = capsys.readouterr()
    assert "the broker's certificate expires soon" in shown.out + shown.err
    assert "days_left" in shown.out + shown.err


async def test_renewed_files_are_read_with_the_next_connection(tmp_path):
    own = deployed(tmp_path / "d", NAMES)
    address = address_of(own, "wall")
    with running_mosquitto(own, tmp_path / "log"):
        link = MqttLink(address, client_id="w")
        async with running(link):
            pass
        own.revoke("wall", time.time())
    with running_mosquitto(own, tmp_path / "log"):
        assert "there is no file" in await trouble_of(address)
        own.change(own.deployment.names.with_part(SubscriberPart("wall")), time.time())
        link = MqttLink(address, client_id="w")
        async with running(link):
            pass


async def test_revoked_certificates_are_refused(tmp_path):
    own = deployed(tmp_path / "d", NAMES)
    kept = files_of(own, "wall")
    copies = {}
    for name in ("certificate", "key"):
        write_file(tmp_path / name, read(getattr(kept, name)), mode=SECRET)
        copies[name] = str(tmp_path / name)
    address = replace(address_of(own, "cluster"), tls=TlsFiles(kept.authority, **copies))
    with running_mosquitto(own, tmp_path / "log"):
        async with running(MqttLink(address, client_id="w")):
            pass
    own.revoke("wall", time.time())
    with running_mosquitto(own, tmp_path / "log"):
        assert "our certificate is revoked" in await trouble_of(address)
        async with running(MqttLink(address_of(own, "cluster"), client_id="c")):
            pass


async def test_a_running_broker_reads_rules_and_the_list_again(tmp_path):
    """A client that is connected stays so, and may do nothing any more."""
    own = deployed(tmp_path / "d", NAMES)
    with running_mosquitto(own, tmp_path / "log") as process:
        wall = MqttLink(address_of(own, "wall"), client_id="wall", subscriptions=[Subscription(RESULTS)])
        writer = MqttLink(address_of(own, "cluster"), client_id="w")
        async with running(wall) as received, running(writer):
            await writer.publish(Message(RESULTS, b"first"))
            await until(received, 1)
            own.revoke("wall", time.time())
            own.change(own.deployment.names.with_part(SubscriberPart("archive")), time.time())
            process.send_signal(signal.SIGHUP)
            late = MqttLink(address_of(own, "archive"), client_id="archive", subscriptions=[Subscription(RESULTS)])
            async with running(late) as found:
                async with asyncio.timeout(SECONDS):
                    while not found:  # until it has read them
                        await writer.publish(Message(RESULTS, b"second"))
                        await asyncio.sleep(0.05)
                await writer.publish(Message(RESULTS, b"third"))
                async with asyncio.timeout(SECONDS):
                    while found[-1].payload != b"third":  # noqa: ASYNC110 - there is no event to wait for
                        await asyncio.sleep(0.01)
                assert wall.connected.is_set()
    assert b"first" in {each.payload for each in received}
    assert b"third" not in {each.payload for each in received}


def test_contexts_refuse_what_is_older_than_tls_1_2(opened):
    from protocols.security.tls import client_context, server_context

    for context in (client_context(files_of(opened, "wall")), server_context(files_of(opened, "broker"))):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert context.verify_mode == ssl.CERT_REQUIRED


async def test_publishing_after_the_connection_is_gone_is_an_error(opened):
    link = MqttLink(address_of(opened, "cluster"), client_id="w")
    with pytest.raises(LinkError):
        await link.publish(Message(RESULTS, b""))
