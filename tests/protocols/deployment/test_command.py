"""`fjord security`, as it is typed."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from protocols.deployment.command import app
from protocols.errors import FjordError

INIT = [
    "init",
    "d",
    "--broker-host",
    "localhost",
    "--proxy",
    "roadside",
    "--mote",
    "roadside/m1",
    "--subscriber",
    "wall",
]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments):
        result = CliRunner().invoke(app, list(arguments))
        if isinstance(result.exception, FjordError):
            raise result.exception
        return result

    return invoke


def test_init_names_every_file_and_the_environment_of_each_machine(run, tmp_path):
    found = run(*INIT).output
    files = {str(each) for each in (tmp_path / "d").rglob("*") if each.is_file()}
    assert {line.strip() for line in found.splitlines() if re.match(r"  /", line)} == files
    assert f"    FJORD_BROKER_CA={tmp_path}/d/proxies/roadside/ca.crt\n" in found
    assert "    FJORD_BROKER=localhost:8883\n" in found
    assert "PRIVATE" not in found


def test_init_as_json_says_the_same(run, tmp_path):
    found = json.loads(run(*INIT, "--json").output)
    named = [*found["stays"], *(file for machine in found["machines"].values() for file in machine["files"])]
    assert sorted(named) == sorted(str(each) for each in (tmp_path / "d").rglob("*") if each.is_file())
    for name, machine in found["machines"].items():
        file = tmp_path / "d" / name / "environment"
        text = "".join(f"{variable}={value}\n" for variable, value in machine["environment"].items())
        assert (file.read_text() if file.exists() else "") == text
    assert found["machines"]["gateways/roadside-motes"]["environment"]["FJORD_PROXY"] == "roadside"
    assert found["machines"]["cluster"]["environment"]["FJORD_API_KEY"].endswith("/d/cluster/api.key")


def test_the_port_of_the_api_is_known_to_the_cluster_and_its_clients(run):
    machines = json.loads(run(*INIT, "--api-port", "9100", "--subscriber", "wall", "--json").output)["machines"]
    assert machines["cluster"]["environment"]["FJORD_API_PORT"] == "9100"
    for name in ("cluster", "subscribers/wall"):
        assert machines[name]["environment"]["FJORD_API"] == "https://localhost:9100"


def test_init_twice_is_init_once_and_another_is_refused(run):
    first = run(*INIT, "--json").output
    assert run(*INIT, "--json").output == first
    with pytest.raises(FjordError, match="has another deployment"):
        run(*INIT, "--proxy", "harbour")


@pytest.mark.parametrize(
    "option",
    [
        ("--mote", "p/+"),
        ("--mote", "roadside/#"),
        ("--mote", "harbour/m1"),
        ("--proxy", "+"),
        ("--proxy", "broker"),
        ("--subscriber", "a=+"),
        ("--subscriber", "roadside"),
        ("--cluster", "+"),
        ("--broker-host", "*.local"),
        ("--api-host", "a b"),
    ],
)
def test_init_refuses_wildcards_and_names_that_clash(run, tmp_path, option):
    with pytest.raises(FjordError):
        run(*INIT, *option)
    assert not (tmp_path / "d").exists()


def test_parts_are_added_once(run, tmp_path):
    run(*INIT)
    assert json.loads(run("add", "proxy", "d", "harbour", "--json").output) == {
        "added": ["harbour"],
        "changed": True,
        "keys": ["cluster/cluster.keys", "proxies/roadside/proxy-roadside.keys", "proxies/harbour/proxy-harbour.keys"],
    }
    assert json.loads(run("add", "mote", "d", "harbour/h1", "harbour/h2@pier", "--json").output)["added"] == [
        "harbour-motes",
        "pier",
    ]
    assert json.loads(run("add", "subscriber", "d", "archive=slow,fast", "--json").output)["added"] == ["archive"]
    assert "bridge" in run("add", "device", "d", "bridge", "--write", "zigbee2mqtt/#").output
    run("add", "proxy", "d", "harbour", "--read", "zigbee2mqtt/#")
    acl = (tmp_path / "d" / "broker" / "acl").read_text()
    assert "user archive\ntopic read fjord/v1/results/slow\n" in acl
    assert "user bridge\ntopic write zigbee2mqtt/#" in acl
    assert "topic read zigbee2mqtt/#" in acl
    for arguments in (["proxy", "d", "harbour"], ["mote", "d", "harbour/h1"], ["device", "d", "bridge"]):
        assert run("add", *arguments).output == "nothing to add: it is there already\n"
    with pytest.raises(FjordError, match="belongs to another part"):
        run("add", "device", "d", "roadside")
    found = json.loads(run("add", "subscriber", "d", "archive", "--json").output)
    assert found == {"added": [], "changed": True, "keys": []}
    assert "topic read fjord/v1/results/+" in (tmp_path / "d" / "broker" / "acl").read_text()


def test_show_renew_and_revoke(run):
    run(*INIT, "--days", "10")
    shown = run("show", "d").output
    assert "roadside-motes" in shown
    assert "PRIVATE" not in shown
    rows = {each["name"]: each for each in json.loads(run("show", "d", "--json").output)}
    assert rows["wall"]["days_left"] == 9
    assert json.loads(run("renew", "d", "wall", "--days", "100", "--json").output) == {"renewed": ["wall"]}
    assert json.loads(run("renew", "d", "--json").output)["renewed"] == [
        "broker",
        "cluster",
        "api",
        "roadside",
        "roadside-motes",
    ]
    assert "renewed: cluster" in run("renew", "d", "cluster", "--days", "200", "--revoke-old").output
    found = json.loads(run("revoke", "d", "wall", "--json").output)
    assert found == {"revoked": "wall", "certificates": 2, "keys": []}
    rows = {each["name"]: each["left"] for each in json.loads(run("show", "d", "--json").output)}
    assert rows["wall"] == "revoked"
    assert rows["cluster"] == "199"
    with pytest.raises(FjordError, match="cannot be revoked"):
        run("revoke", "d", "wall")


def test_a_folder_without_a_deployment_is_named(run):
    for arguments in (["show", "none"], ["renew", "none"], ["revoke", "none", "a"], ["add", "proxy", "none", "a"]):
        with pytest.raises(FjordError, match="there is no deployment in none"):
            run(*arguments)


def test_it_runs_where_there_is_no_spark():
    program = "import sys; from protocols.deployment import command; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pyspark", "cluster", "proxy", "polars", "cryptography", "asyncio"} & set(loaded)
