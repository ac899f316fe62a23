"""The services of docker/compose.yaml, without containers: with its defaults, and with TLS and access rules."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from cluster.demo.parts import free_port
from protocols.deployment.command import app as security
from protocols.mqtt.link import BrokerAddress
from tests.system.composed import Composed
from tests.system.waiting import wait_for

pytestmark = [pytest.mark.system, pytest.mark.spark]

DOCKER = Path(__file__).parents[2] / "docker"
PLAIN, SECURE = DOCKER / "compose.yaml", DOCKER / "compose.secure.yaml"
SECONDS = 400
QUERY = "SELECT sensor, speed FROM traffic"


def all_started(composed: Composed, address: BrokerAddress, ask: dict[str, str]) -> None:
    """Start all services in their order, add a query, and read an answer that came through the broker."""
    composed.start_broker(address)
    for service in ("cluster", "proxy", "motes"):
        composed.start(service)

    def has_stream() -> bool:
        composed.check()
        try:
            return "traffic" in composed.run_in("cluster", "stream", "list", "--json")
        except (AssertionError, subprocess.TimeoutExpired):  # it is still starting
            return False

    wait_for(has_stream, seconds=SECONDS)
    for service in ("motes", "proxy", "cluster"):
        composed.check_health(service)
    assert composed.run_in("cluster", "query", "add", "--name", "all", QUERY).startswith("all ")
    line = composed.run_in("cluster", "query", "tail", "all", "--count", "1", **ask).splitlines()[0]
    answer = json.loads(line)
    assert answer["query"] == "all"
    assert set(answer["row"]) == {"sensor", "speed"}


def test_the_defaults_answer_a_query(tmp_path: Path) -> None:
    address, api_port = BrokerAddress(port=free_port()), free_port()
    with Composed(tmp_path, [PLAIN], {"FJORD_BROKER": str(address)}, api_port) as composed:
        composed.services["cluster"]["environment"]["FJORD_API"] = f"http://127.0.0.1:{api_port}"
        all_started(composed, address, {})


@pytest.mark.proof
def test_with_tls_and_access_rules_a_query_is_answered(tmp_path: Path) -> None:
    address, api_port, folder = BrokerAddress("localhost", free_port()), free_port(), tmp_path / "secure"
    lines = [line.removeprefix("#").strip() for line in SECURE.read_text().splitlines() if line.startswith("#")]
    first = next(number for number, line in enumerate(lines) if line.startswith("fjord security init "))
    words = " ".join(line.removesuffix("\\") for line in lines[first : first + 3]).split()
    assert words[:4] == ["fjord", "security", "init", "docker/secure"]
    motes = [word for word in words if word.startswith("--mote=")]
    assert motes == ["--mote=roadside/s{001..016}l{1..4}"]
    each = [f"--mote=roadside/s{place:03}l{lane}" for place in range(1, 17) for lane in range(1, 5)]
    typed = ["init", str(folder), *(word for word in words[4:] if word not in motes), *each]
    made = CliRunner().invoke(security, typed)
    assert made.exception is None, made.exception
    variables = {"FJORD_BROKER": str(address), "FJORD_SECURE": str(folder)}
    with Composed(tmp_path, [PLAIN, SECURE], variables, api_port) as composed:
        wall = folder / "subscribers" / "wall"
        ask = {
            "FJORD_BROKER_CA": str(wall / "ca.crt"),
            "FJORD_BROKER_CERTIFICATE": str(wall / "wall.crt"),
            "FJORD_BROKER_KEY": str(wall / "wall.key"),
        }
        all_started(composed, address, ask)
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{api_port}/v1/status", trust_env=False)
        assert json.loads(composed.run_in("cluster", "stream", "list", "--json"))[0]["name"] == "traffic"
        logs = "".join((tmp_path / f"{name}.log").read_text() for name in ("cluster", "proxy", "motes", "broker"))
        assert "PRIVATE" not in logs
