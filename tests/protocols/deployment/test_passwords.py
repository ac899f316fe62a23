"""Devices that show a password: their hashes, the broker's second listener, and what a device may do there."""

from __future__ import annotations

import json
import subprocess
import threading

import paho.mqtt.client as paho
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from cluster.demo.parts import accepts, free_port
from protocols.deployment.broker_configuration import BrokerPart, configuration_text
from protocols.deployment.command import app
from protocols.deployment.folder import (
    DeploymentFolder,
    check_password,
    draw_password,
    hashed,
    is_hash_of,
    password_text,
)
from protocols.errors import FjordError
from protocols.mqtt.link import BrokerAddress
from protocols.security.errors import SecurityError
from tests.secured_broker import running_mosquitto
from tests.system.waiting import wait_for

SECONDS = 30
# Made by mosquitto_passwd 2.0.11 -b file plug "open sesame".
OF_MOSQUITTO = "open sesame"
PASSWORDS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1, max_size=20)


@given(PASSWORDS, st.binary(min_size=12, max_size=12))
def test_a_hash_is_that_of_its_password_alone(password, salt):
    found = hashed(password, salt, 10)
    assert is_hash_of(password, found)
    assert not is_hash_of(password + "x", found)


@pytest.mark.parametrize("text", ["", "$6$salt$hash", "$7$x$AAAA$AAAA", "$7$10$?$AAAA", "plain", "$7$10$AAAA"])
def test_what_is_no_hash_is_that_of_no_password(text):
    assert not is_hash_of("plain", text)


def test_mosquitto_writes_the_same_format(tmp_path):
    file = tmp_path / "passwords"
    subprocess.run(["mosquitto_passwd", "-c", "-b", str(file), "plug", OF_MOSQUITTO], check=True, capture_output=True)
    (line,) = file.read_text().splitlines()
    assert is_hash_of(OF_MOSQUITTO, line.partition(":")[2])
    assert password_text(file.read_text(), {"plug": OF_MOSQUITTO}) == f"{line}\n"


def test_lines_stay_while_their_passwords_do():
    before = password_text("", {"a": "one", "b": "two"})
    assert password_text(before, {"b": "two", "a": "one"}) == before
    after = password_text(before, {"a": "one", "b": "three"})
    assert after.splitlines()[0] == before.splitlines()[0]
    assert after.splitlines()[1] != before.splitlines()[1]
    assert password_text(before, {}) == ""


@pytest.mark.parametrize("text", ["", " a", "a\nb", "a" * 201])
def test_what_no_device_can_have_is_refused(text):
    with pytest.raises(SecurityError, match="1 to 200 characters"):
        check_password(text)


def test_drawn_ones_differ():
    drawn = {draw_password() for _ in range(100)}
    assert len(drawn) == 100
    assert all(check_password(each) == each for each in drawn)


def test_without_a_port_the_configuration_has_one_listener():
    broker = BrokerPart(("localhost",), "/b")
    assert configuration_text(broker).count("listener ") == 1
    with pytest.raises(SecurityError, match="is that of certificates"):
        BrokerPart(("localhost",), "/b", password_port=8883).check()


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments, text=None):
        result = CliRunner().invoke(app, list(arguments), input=text)
        if isinstance(result.exception, FjordError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.output

    return invoke


INIT = ["init", "d", "--broker-host", "localhost", "--proxy", "roadside"]


def test_a_device_is_added_renewed_and_revoked(run, tmp_path):
    summary = json.loads(run(*INIT, "--password-port", "1884", "--json"))
    assert f"{tmp_path}/d/broker/passwords" in summary["machines"]["broker"]["files"]
    printed = run("add", "device", "d", "plug", "--password", "--write", "tele/plug/#")
    assert "d/broker/acl and d/broker/passwords" in printed
    assert "its user is plug, its password is in d/devices/plug/password" in printed
    secret, kept = tmp_path / "d/devices/plug/password", tmp_path / "d/broker/passwords"
    first = secret.read_text()
    assert (secret.stat().st_mode & 0o777, kept.stat().st_mode & 0o777) == (0o600, 0o600)
    assert first not in kept.read_text() + printed
    assert is_hash_of(first, kept.read_text().strip().partition(":")[2])
    assert not list((tmp_path / "d/devices/plug").glob("*.crt"))
    assert (tmp_path / "d/devices/plug/environment").read_text() == "FJORD_BROKER=localhost:1884\n"
    run("add", "device", "d", "plug", "--write", "stat/plug/#")
    assert secret.read_text() == first, "topics were added, it has its password still"
    run("renew", "d", "plug")
    assert secret.read_text() != first
    assert is_hash_of(secret.read_text(), kept.read_text().strip().partition(":")[2])
    run("revoke", "d", "plug")
    assert kept.read_text() == ""
    assert "plug" not in (tmp_path / "d/broker/acl").read_text()
    assert not secret.exists()


def test_a_device_keeps_the_password_that_it_has(run, tmp_path):
    run(*INIT, "--password-port", "1884")
    run("add", "device", "d", "plug", "--password-from", "-", text="from the box\n")
    assert is_hash_of("from the box", (tmp_path / "d/broker/passwords").read_text().strip().partition(":")[2])


def test_one_with_a_certificate_gets_no_password_beside_it(run):
    run(*INIT, "--password-port", "1884")
    run("add", "device", "d", "bridge", "--write", "zigbee2mqtt/#")
    with pytest.raises(SecurityError, match="bridge has a certificate"):
        run("add", "device", "d", "bridge", "--password")


def test_a_listener_can_be_added_to_a_deployment(run, tmp_path):
    run(*INIT)
    with pytest.raises(SecurityError, match="does not listen for passwords") as caught:
        run("add", "device", "d", "plug", "--password")
    assert "fjord security passwords d --port 1883" in (caught.value.hint or "")
    assert "has a second listener" in run("passwords", "d", "--port", "1884")
    file = tmp_path / "d/broker/mosquitto.conf"
    assert "listener 1884 127.0.0.1" in file.read_text()
    run("add", "device", "d", "plug", "--password")


def test_a_configuration_that_was_edited_is_left_alone(run, tmp_path):
    run(*INIT)
    file = tmp_path / "d/broker/mosquitto.conf"
    file.write_text(file.read_text() + "max_connections 10\n")
    before = file.read_text()
    printed = run("passwords", "d", "--port", "1884")
    assert "add these lines yourself" in printed
    assert "listener 1884 127.0.0.1" in printed
    assert file.read_text() == before


class Plug:
    """A device with a client that is not ours."""

    def __init__(self, port, user=None, password=None):
        self.connected, self.code = threading.Event(), None
        self.received = []
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        self.client.username_pw_set(user, password)
        self.client.on_connect = self._on_connect
        self.client.on_message = lambda _, __, message: self.received.append((message.topic, message.payload))
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        assert self.connected.wait(SECONDS)

    def _on_connect(self, _, __, ___, code, ____):
        self.code = str(code)
        self.connected.set()

    def close(self):
        self.client.disconnect()
        self.client.loop_stop()


def test_a_device_speaks_on_its_topics_and_on_no_others(run, tmp_path):
    run(*INIT, "--broker-port", str(free_port()), "--broker-user", "root", "--password-port", str(free_port()))
    run("add", "device", "d", "plug", "--password", "--write", "tele/plug/#", "--read", "cmnd/plug/#")
    run("add", "device", "d", "hub", "--password", "--write", "cmnd/#", "--read", "tele/#")
    opened = DeploymentFolder.open(tmp_path / "d")
    port = opened.deployment.broker.password_port
    secrets = {name: (tmp_path / "d/devices" / name / "password").read_text() for name in ("plug", "hub")}
    with running_mosquitto(opened, tmp_path / "log"):
        wait_for(lambda: accepts(BrokerAddress("127.0.0.1", port)))
        for user, password in ((None, None), ("plug", "wrong"), ("plug", secrets["hub"]), ("cluster", secrets["plug"])):
            other = Plug(port, user, password)
            assert other.code == "Not authorized"
            other.close()
        plug, hub = Plug(port, "plug", secrets["plug"]), Plug(port, "hub", secrets["hub"])
        assert (plug.code, hub.code) == ("Success", "Success")
        received_last = threading.Event()
        hub.client.on_message = lambda _, __, message: (
            hub.received.append(message.topic), received_last.set() if message.topic.endswith("last") else None
        )  # fmt: skip
        subscribed = threading.Event()
        hub.client.on_subscribe = lambda *_: subscribed.set()
        hub.client.subscribe([("#", 1)])
        assert subscribed.wait(SECONDS)
        foreign = ("fjord/v1/results/slow", "tele/other/SENSOR", "cmnd/plug/POWER")
        for topic in (*foreign, "tele/plug/SENSOR", "tele/plug/last"):
            plug.client.publish(topic, b"1", qos=1).wait_for_publish(SECONDS)
        assert received_last.wait(SECONDS)
        assert hub.received == ["tele/plug/SENSOR", "tele/plug/last"]
        plug.close()
        hub.close()
