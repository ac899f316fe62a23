"""Settings of ``fjord cluster``: its file, options and variables, and what a cluster gets."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic.fields import FieldInfo
from typer.testing import CliRunner

from cluster.service import cluster_command
from cluster.service.cluster_command import cluster
from cluster.service.cluster_config import PROGRAM, ClusterConfig
from cluster.service.running.settings import ClusterSettings
from protocols.command_line.settings_file import SettingsError, load, quantity, shown, written
from protocols.mqtt.broker_address import CredentialsError, parse_broker

REFERENCE = Path(__file__).parents[3] / "docs/reference/cluster.md"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return the settings with which a command line and its variables would start a cluster in a folder."""
    found: list[ClusterSettings] = []
    monkeypatch.setattr(cluster_command, "_run", lambda settings, *_: found.append(settings))
    monkeypatch.chdir(tmp_path)

    def start(*arguments: str, **variables: str) -> ClusterSettings:
        result = CliRunner().invoke(cluster, list(arguments), env=variables)
        assert result.exit_code == 0, result.output
        return found.pop()

    return start


def test_defaults_are_those_of_a_cluster(started: Any, tmp_path: Path) -> None:
    found = started("--worker-memory", "0B")
    assert found == replace(ClusterSettings(), relation_folders=(tmp_path,))


def test_what_is_printed_starts_the_same_cluster(started: Any, tmp_path: Path) -> None:
    options = [
        "--worker-memory",
        "1GiB",
        "--max-busy",
        "1.5",
        "--gone-after",
        "1m",
        "--functions",
        "roads.*",
        "--relation-folder",
        "a, b",
    ]
    printed = CliRunner().invoke(cluster, [*options, "--print-config"]).output
    (tmp_path / "cluster.toml").write_text(printed)
    assert started("--config", "cluster.toml") == started(*options)
    assert started(FJORD_CLUSTER_CONFIG="cluster.toml") == started(*options)
    assert started("--config", "cluster.toml", "--max-busy", "2").max_busy == 2.0


OTHER = {
    "broker": "b:1", "data": "d", "keys": "k", "api_host": "::1", "api_tokens": "t", "master": "local[1]",
    "api_allowed_host": ["h"], "api_allowed_origin": ["o"], "spark_settings": "spark.conf", "driver_memory": "2g",
    "relation_credentials": "passwords", "relation_folder": ["f"], "relation_host": ["h"], "functions": ["m"],
    "replan": "off", "name": "n",
}  # fmt: skip
"""Values for those that are neither numbers nor quantities."""
NUMBER = {int: "7", float: "0.5"}
TOGETHER = {"api_certificate", "api_key", "api_client_ca"}
"""Set together, as tests of the API with real certificates do."""


def another(name: str, field: FieldInfo) -> str:
    """Return a value, as TOML, that is no setting's default."""
    unit = quantity(field)
    if unit is not None:
        return repr(unit.write(7 * 1024**2))
    return repr(OTHER[name]) if name in OTHER else NUMBER[next(each for each in NUMBER if each in kinds(field))]


def kinds(field: FieldInfo) -> tuple[object, ...]:
    return (field.annotation, *get_args(field.annotation))


@pytest.mark.parametrize("name", sorted(set(ClusterConfig.model_fields) - TOGETHER))
def test_every_setting_changes_one_thing_of_a_cluster(name: str, started: Any, tmp_path: Path) -> None:
    (tmp_path / "spark.conf").write_text("spark.x 1\n")
    usual = started("--worker-memory", "1GiB")
    (tmp_path / "cluster.toml").write_text(f"{name} = {another(name, ClusterConfig.model_fields[name])}\n")
    memory = () if name == "worker_memory" else ("--worker-memory", "1GiB")
    found = started("--config", "cluster.toml", *memory)
    assert len([each for each in fields(found) if getattr(found, each.name) != getattr(usual, each.name)]) == 1


def test_lists_come_from_options_variables_and_the_file(started: Any, tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text("functions = ['a', 'b']\napi_allowed_host = 'x, y'\n")
    found = started("--config", "cluster.toml", FJORD_RELATION_HOSTS="p,q", FJORD_RELATION_FOLDERS="/a b:/c")
    assert (found.functions.allowed, found.api_allowed_hosts, found.relation_hosts) == (
        ("a", "b"), ("x", "y"), ("p", "q"),
    )  # fmt: skip
    assert found.relation_folders == (tmp_path, Path("/a b"), Path("/c"))


def test_a_wrong_setting_of_the_file_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text("# a comment\nmax_bussy = 1\n")
    with pytest.raises(SettingsError, match=r"cluster.toml:2: there is no setting 'max_bussy'") as caught:
        load(ClusterConfig, PROGRAM, {}, {}, tmp_path / "cluster.toml")
    assert caught.value.hint == "did you mean max_busy?"


@pytest.mark.parametrize("name", ClusterConfig.model_fields)
def test_the_reference_has_every_setting(name: str) -> None:
    field = ClusterConfig.model_fields[name]
    usual = written(field.default, field)
    default = shown(field).unset or (f"`{usual}`" if usual else "")
    row = f"| `{name}` | `{PROGRAM.variable(name, field)}` | {default} | {field.description} |"
    assert row in REFERENCE.read_text("utf-8").splitlines(), f"write into the table:\n{row}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "a/b"', "name = 'a/b' (cluster.toml:1)"),
        ('name = ""', "name = ''"),
        ('broker = "h:99999"', "broker = 'h:99999' (cluster.toml:1)"),
        ('driver_memory = "lots"', "driver_memory = 'lots'"),
        ("functions = [1]", "functions"),
        ("hang_after = 1", "there is no unit"),
    ],
)
def test_what_cannot_be_started_is_refused_with_its_line(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cluster.toml").write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(ClusterConfig, PROGRAM, {}, {}, Path("cluster.toml"))
    assert message in caught.value.message


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(SettingsError, match="user or a password") as caught:
        load(ClusterConfig, PROGRAM, {"broker": "user:hunter2@h:1883"}, {})
    assert "hunter2" not in str(caught.value)
    with pytest.raises(CredentialsError):
        parse_broker("user:hunter2@h:1883", {})
