from pathlib import Path

import pytest

from proxy.broker.choice import BrokerSettings, Engine, choose_engine, is_loopback
from proxy.broker.errors import EngineLimitError, EngineMissingError, UnsafeListenerError
from proxy.broker.mosquitto import configuration, find_mosquitto

PROGRAM = Path("/usr/sbin/mosquitto")
PASSWORDS = {"password_file": Path("users")}
FOLDER = {"persist": Path("data")}


@pytest.mark.parametrize(
    ("wanted", "program", "engine", "reason"),
    [
        ("auto", PROGRAM, Engine.MOSQUITTO, "installed as /usr/sbin/mosquitto"),
        ("auto", None, Engine.AMQTT, "Mosquitto is not installed"),
        ("mosquitto", PROGRAM, Engine.MOSQUITTO, "requested"),
        ("amqtt", PROGRAM, Engine.AMQTT, "requested"),
        ("amqtt", None, Engine.AMQTT, "requested"),
    ],
)
def test_engine_and_reason(wanted, program, engine, reason):
    choice = choose_engine(wanted, BrokerSettings(), program)
    assert (choice.engine, choice.reason) == (engine, reason)
    assert choice.program == (program if engine is Engine.MOSQUITTO else None)


@pytest.mark.parametrize(
    ("wanted", "settings", "program", "error", "message"),
    [
        ("mosquitto", {}, None, EngineMissingError, "--engine mosquitto needs Mosquitto"),
        ("auto", PASSWORDS, None, EngineMissingError, "--password-file needs Mosquitto"),
        ("auto", FOLDER, None, EngineMissingError, "--persist needs Mosquitto"),
        ("amqtt", PASSWORDS, PROGRAM, EngineLimitError, "cannot do --password-file"),
        ("amqtt", FOLDER, PROGRAM, EngineLimitError, "cannot do --persist"),
        ("auto", {"host": "0.0.0.0"}, PROGRAM, UnsafeListenerError, "0.0.0.0 could be reached"),
        ("amqtt", {"host": "192.0.2.7"}, None, UnsafeListenerError, "192.0.2.7 could be reached"),
        ("auto", {"host": "broker.example"}, PROGRAM, UnsafeListenerError, "broker.example could be reached"),
    ],
)
def test_errors_have_a_hint(wanted, settings, program, error, message):
    with pytest.raises(error, match=message) as rejection:
        choose_engine(wanted, BrokerSettings(**settings), program)
    assert rejection.value.hint


def test_other_machines_may_reach_a_broker_with_passwords():
    choice = choose_engine("auto", BrokerSettings(host="0.0.0.0", **PASSWORDS), PROGRAM)
    assert choice.engine is Engine.MOSQUITTO


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.0.2.7", False),
        ("localhost.example", False),
    ],
)
def test_which_hosts_are_local(host, local):
    assert is_loopback(host) is local


@pytest.mark.parametrize(
    ("settings", "expected", "absent"),
    [
        ({}, {"listener 1999 127.0.0.1", "allow_anonymous true", "persistence false"}, "password_file"),
        (PASSWORDS, {"allow_anonymous false", f"password_file {Path('users').resolve()}"}, "allow_anonymous true"),
        (FOLDER, {"persistence true", f"persistence_location {Path('data').resolve()}/"}, "persistence false"),
    ],
)
def test_configuration(settings, expected, absent):
    text = configuration(BrokerSettings(port=1999, **settings), as_root=False)
    assert expected <= set(text.splitlines())
    assert absent not in text


def test_every_queue_of_the_broker_is_bounded():
    numbers = dict(
        line.split(maxsplit=1)
        for line in configuration(BrokerSettings(port=1), as_root=False).splitlines()
        if "max_" in line
    )
    assert set(numbers) == {"max_queued_messages", "max_queued_bytes", "max_inflight_messages", "max_packet_size"}
    assert all(int(number) > 0 for number in numbers.values())


def test_mosquitto_is_found_on_the_given_path_only_if_executable(tmp_path):
    program = tmp_path / "mosquitto"
    program.write_text("#!/bin/sh\n")
    assert find_mosquitto(str(tmp_path)) is None
    program.chmod(0o755)
    assert find_mosquitto(str(tmp_path)) == program


@pytest.mark.parametrize("as_root", [True, False])
def test_mosquitto_stays_root_only_where_root_starts_it(as_root):
    assert ("user root" in configuration(BrokerSettings(port=1999), as_root=as_root)) is as_root
