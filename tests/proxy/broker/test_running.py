"""Both engines for real: a broker is only as good as the connection one gets."""

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path

import aiomqtt
import pytest

from proxy.broker import BrokerFailedError, Engine, PortInUseError, running_broker
from proxy.broker.choice import BrokerSettings
from proxy.broker.errors import AddressError, BrokerError
from proxy.broker.mosquitto import find_mosquitto
from proxy.broker.running import _available_port, broker_by_settings

needs_mosquitto = pytest.mark.skipif(find_mosquitto() is None, reason="Mosquitto is not installed")
ENGINES = [pytest.param("amqtt", id="amqtt"), pytest.param("mosquitto", id="mosquitto", marks=needs_mosquitto)]
TIME_LIMIT_SECONDS = 20


def client(broker, **options):
    return aiomqtt.Client(broker.host, broker.port, timeout=TIME_LIMIT_SECONDS, **options)


async def receive(subscriber, count):
    async with asyncio.timeout(TIME_LIMIT_SECONDS):
        messages = aiter(subscriber.messages)
        return [(await anext(messages)).payload for _ in range(count)]


@pytest.mark.parametrize("engine", ENGINES)
async def test_it_accepts_connections_on_entry_and_carries_messages(engine):
    async with running_broker(engine=engine) as broker:
        assert broker.engine == Engine(engine)
        async with client(broker) as subscriber, client(broker) as publisher:
            await subscriber.subscribe("fjord/#", qos=1)
            for number in range(50):
                await publisher.publish("fjord/v1/test", str(number), qos=1)
            assert await receive(subscriber, 50) == [str(number).encode() for number in range(50)]


@pytest.mark.parametrize("engine", ENGINES)
async def test_retained_messages_reach_a_later_subscriber(engine):
    async with running_broker(engine=engine) as broker:
        async with client(broker) as publisher:
            await publisher.publish("fjord/v1/demand", b"kept", qos=1, retain=True)
        async with client(broker) as subscriber:
            await subscriber.subscribe("fjord/v1/demand", qos=1)
            assert await receive(subscriber, 1) == [b"kept"]


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_session_outlives_its_connection(engine):
    """Messages published while a subscriber is away are delivered when it returns."""
    session = {"identifier": "ingest-1", "clean_session": False, "protocol": aiomqtt.ProtocolVersion.V311}
    async with running_broker(engine=engine) as broker:
        async with client(broker, **session) as subscriber:
            await subscriber.subscribe("fjord/#", qos=1)
        async with client(broker) as publisher:
            # amqtt removes sessions once per second, so the rest must not depend on speed.
            await asyncio.sleep(1.1 if engine == "amqtt" else 0)
            await publisher.publish("fjord/v1/batch", b"while away", qos=1)
        async with client(broker, **session) as subscriber:
            assert await receive(subscriber, 1) == [b"while away"]


@pytest.mark.parametrize("engine", ENGINES)
async def test_the_port_is_free_afterwards(engine):
    async with running_broker(engine=engine) as broker:
        pass
    async with running_broker(broker.port, engine=engine) as again:
        assert again.port == broker.port


@pytest.mark.parametrize("engine", ENGINES)
async def test_two_brokers_do_not_meet(engine):
    async with running_broker(engine=engine) as first, running_broker(engine=engine) as second:
        assert first.port != second.port


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_port_in_use_is_named(engine):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortInUseError, match=f"port {port} on 127.0.0.1 is in use") as rejection:
            async with running_broker(port, engine=engine):
                pass
    assert "--port" in rejection.value.hint


def test_an_address_of_another_machine_is_rejected():
    with pytest.raises(AddressError, match=r"cannot listen on 192\.0\.2\.77 port 1883") as rejection:
        _available_port("192.0.2.77", 1883)
    assert "--host" in rejection.value.hint


async def test_the_error_of_a_mosquitto_that_does_not_start_is_shown(tmp_path, monkeypatch):
    program = tmp_path / "mosquitto"
    program.write_text("#!/bin/sh\necho 'Error: Unable to open log file' >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(BrokerFailedError, match="Unable to open log file"):
        async with running_broker(engine="mosquitto"):
            pass


async def test_a_mosquitto_that_ends_is_noticed(tmp_path, monkeypatch):
    program = tmp_path / "mosquitto"
    program.write_text("#!/bin/sh\necho 'mosquitto version 9 running' >&2\necho 'Error: Out of memory' >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    async with broker_by_settings(BrokerSettings(), "mosquitto") as (_, running):
        assert await running.wait_ended() == "Mosquitto ended with code 3: Error: Out of memory"


@needs_mosquitto
async def test_passwords_are_required(tmp_path):
    passwords = tmp_path / "users"
    passwords.write_text("ann:hunter2\n")
    hashing = await asyncio.create_subprocess_exec("mosquitto_passwd", "-U", passwords)
    assert await hashing.wait() == 0
    async with broker_by_settings(BrokerSettings(password_file=passwords), "mosquitto") as (broker, _):
        with pytest.raises(aiomqtt.MqttError):
            async with client(broker):
                pass
        async with client(broker, username="ann", password="hunter2") as known:
            await known.publish("fjord/v1/test", b"", qos=1)


@needs_mosquitto
async def test_nothing_is_persisted_through_a_link(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mosquitto.db").symlink_to(tmp_path / "other")
    with pytest.raises(BrokerError, match=r"mosquitto\.db is a link to a file"):
        async with broker_by_settings(BrokerSettings(persist=tmp_path / "data")):
            pass
    assert not (tmp_path / "other").exists()


@needs_mosquitto
async def test_persisted_messages_survive_a_restart(tmp_path):
    settings = BrokerSettings(persist=tmp_path / "data")
    async with broker_by_settings(settings, "mosquitto") as (broker, _), client(broker) as publisher:
        await publisher.publish("fjord/v1/demand", b"kept", qos=1, retain=True)
    async with broker_by_settings(settings, "mosquitto") as (broker, _), client(broker) as subscriber:
        await subscriber.subscribe("fjord/v1/demand", qos=1)
        assert await receive(subscriber, 1) == [b"kept"]


async def start_command(*arguments):
    program = "from protocols.command_line.application import app; import sys; sys.argv[0] = 'fjord'; app()"
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        "broker",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


def children_of(process_id):
    return [int(child) for child in Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()]


def is_running(process_id):
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
async def test_the_command_stops_cleanly(engine, sent):
    process = await start_command("--port", "0", "--engine", engine, "--json")
    listening = json.loads(await asyncio.wait_for(process.stdout.readline(), TIME_LIMIT_SECONDS))
    children = children_of(process.pid)
    process.send_signal(sent)
    _, errors = await asyncio.wait_for(process.communicate(), TIME_LIMIT_SECONDS)
    assert (listening["host"], listening["engine"], process.returncode, errors) == ("127.0.0.1", engine, 0, b"")
    assert [child for child in children if is_running(child)] == []


@needs_mosquitto
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
async def test_killing_the_command_leaves_no_broker_behind():
    process = await start_command("--port", "0", "--engine", "mosquitto", "--json")
    await asyncio.wait_for(process.stdout.readline(), TIME_LIMIT_SECONDS)
    children = children_of(process.pid)
    assert len(children) == 1
    process.kill()
    await process.communicate()
    async with asyncio.timeout(TIME_LIMIT_SECONDS):
        while is_running(children[0]):  # noqa: ASYNC110 (the end of a grandchild is not signalled)
            await asyncio.sleep(0.01)


async def test_the_command_names_a_port_in_use():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        process = await start_command("--port", str(port))
        output, errors = await asyncio.wait_for(process.communicate(), TIME_LIMIT_SECONDS)
    assert (process.returncode, output) == (1, b"")
    assert f"error: port {port} on 127.0.0.1 is in use".encode() in errors
