"""What relations of a cluster reach: neither its own data, nor the files and credentials of its user."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cluster.language.errors import FjordSqlError
from cluster.relations.source import SourceRefusedError
from cluster.service import cluster_command
from cluster.service.cluster_command import cluster
from cluster.service.running.settings import ClusterSettings
from cluster.service.server import ClusterServer
from protocols.mqtt.messages import BrokerAddress
from tests.cluster.service.conftest import Service, application

ENDING = "REFRESH EVERY 5 SECONDS"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ClusterServer]:
    """A cluster whose data are where relations may read."""
    tokens, credentials, password = (tmp_path / f"{each}.csv" for each in ("tokens", "credentials", "password"))
    for each in (tokens, credentials, password):
        each.write_text("")
    credentials.chmod(0o600)
    found = ClusterServer(
        ClusterSettings(
            folder=tmp_path / "data",
            broker=BrokerAddress(password_file=password),
            api_tokens=tokens,
            relation_folders=(tmp_path,),
            relation_credentials=credentials,
        )
    )
    yield found
    found.close()


async def create(server: ClusterServer, source: str, more: str = "") -> dict[str, Any]:
    return await server.parts.queries.relations.execute(f"CREATE RELATION x FROM '{source}' {more} {ENDING}")


@pytest.mark.parametrize(
    ("source", "more"),
    [
        ("sqlite:///{0}/data/registry.sqlite", "QUERY 'SELECT name, text FROM relations'"),
        ("sqlite:///{0}/data/../data/registry.sqlite", "TABLE relations"),
        ("sqlite:///{0}/link/registry.sqlite", "TABLE relations"),
        ("sqlite:///{0}/name.db", "TABLE relations"),
        ("csv:{0}/data/registry.sqlite", ""),
        ("delta:{0}/data/results", ""),
        ("delta:file://{0}/data/results", ""),
        ("{0}/tokens.csv", ""),
        ("{0}/credentials.csv", ""),
        ("{0}/password.csv", ""),
    ],
)
async def test_the_registry_tables_and_secrets_of_a_cluster_are_no_relations(
    server: ClusterServer, tmp_path: Path, source: str, more: str
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "data")
    (tmp_path / "name.db").symlink_to(tmp_path / "data" / "registry.sqlite")
    with pytest.raises(FjordSqlError, match="belongs to the cluster") as caught:
        await create(server, source.format(tmp_path), more)
    assert caught.value.offending == f"'{source.format(tmp_path)}'"
    assert server.parts.queries.store.find("x") is None


async def test_a_declaration_does_not_keep_a_relation_that_is_refused(server: ClusterServer, tmp_path: Path) -> None:
    with pytest.raises(FjordSqlError, match="belongs to the cluster"):
        await server.parts.queries.relations.execute(
            f"CREATE RELATION x (text TEXT) FROM 'sqlite:{tmp_path}/data/registry.sqlite' TABLE relations {ENDING}"
        )
    assert server.parts.queries.store.find("x") is None


async def test_a_link_that_is_changed_later_stops_the_refreshes(server: ClusterServer, tmp_path: Path) -> None:
    good = tmp_path / "good.db"
    with closing(sqlite3.connect(good)) as database, database:
        database.execute("CREATE TABLE relations (text TEXT)")
        database.execute("INSERT INTO relations VALUES ('fine')")
    link = tmp_path / "link.db"
    link.symlink_to(good)
    made = await create(server, f"sqlite:{link}", "TABLE relations")
    assert (made["rows"], made["state"]) == (1, "fresh")
    link.unlink()
    link.symlink_to(tmp_path / "data" / "registry.sqlite")
    relation = server.parts.queries.store.find("x")
    assert relation is not None
    await server.parts.queries.refresher.refresh(relation)
    shown = server.parts.queries.relations.describe(relation)
    assert (shown["rows"], shown["state"]) == (1, "stale")
    assert "belongs to the cluster" in shown["reason"]


async def test_a_relation_of_before_that_is_out_of_reach_is_kept_and_shown(tmp_path: Path) -> None:
    (tmp_path / "roads.csv").write_text("a\n1\n")
    before = ClusterServer(ClusterSettings(folder=tmp_path / "data", relation_folders=(tmp_path,)))
    await create(before, f"{tmp_path}/roads.csv")
    before.close()
    narrower = ClusterServer(ClusterSettings(folder=tmp_path / "data", relation_folders=(tmp_path / "data",)))
    try:
        relation = narrower.parts.queries.store.find("x")
        assert relation is not None
        assert relation.last is not None
        await narrower.parts.queries.refresher.refresh(relation)
        assert "outside of the folders that relations may read" in relation.freshness.reason
        assert relation.last.rows == 1
    finally:
        narrower.close()


async def test_no_answer_quotes_the_first_line_of_a_file(service: Service, tmp_path: Path) -> None:
    (tmp_path / "passwords.csv").write_text("root:hunter2:0:0:root:/root:/bin/sh\ndaemon:x:1:1::/:/bin/false\n")
    async with application(service.parts(queries=service.queries)) as api:
        for columns in ("", "(root TEXT)", "(hunter2x INTEGER)"):
            statement = f"CREATE RELATION x {columns} FROM '{tmp_path}/passwords.csv' {ENDING}"
            answer = await api.post("/v1/relations", json={"sql": statement})
            assert answer.status_code == 400
            assert "hunter2:" not in answer.text


def test_faulty_credentials_end_a_cluster_at_once(tmp_path: Path) -> None:
    with pytest.raises(SourceRefusedError, match="cannot be read: No such file"):
        ClusterServer(ClusterSettings(folder=tmp_path / "a", relation_credentials=tmp_path / "none"))


# Options


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return the settings with which a command line and its variables would start a cluster in a folder."""
    found: list[ClusterSettings] = []
    monkeypatch.setattr(cluster_command, "_run", lambda settings, *_: found.append(settings))
    monkeypatch.chdir(tmp_path)

    def start(*arguments: str, **variables: str) -> ClusterSettings:
        result = CliRunner().invoke(cluster, list(arguments), env=variables)
        assert result.exit_code == 0, result.output
        return found[-1]

    return start


def test_by_default_relations_read_where_the_cluster_is_started(started: Any, tmp_path: Path) -> None:
    settings = started()
    assert (settings.relation_folders, settings.relation_hosts) == ((tmp_path,), ())
    assert (settings.relation_credentials, settings.api_tokens, settings.api_allowed_hosts) == (None, None, ())


def test_the_root_is_not_meant_if_a_service_is_started_there(started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert started().relation_folders == ()
    assert started("--relation-folder", "/").relation_folders == (Path("/"),)


def test_folders_and_hosts_are_options_that_may_be_repeated(started: Any, tmp_path: Path) -> None:
    settings = started(
        *("--relation-folder", "/srv/a", "--relation-folder", "/srv/b", "--relation-host", "db.example"),
        *("--relation-host", "10.0.0.7", "--api-allowed-host", "fjord.example", "--relation-credentials", "c"),
        *("--api-allowed-origin", "https://fjord.example"),
    )
    assert settings.relation_folders == (tmp_path, Path("/srv/a"), Path("/srv/b"))
    assert settings.relation_hosts == ("db.example", "10.0.0.7")
    assert settings.api_allowed_hosts == ("fjord.example",)
    assert settings.api_allowed_origins == ("https://fjord.example",)
    assert settings.secret_files == (Path("c"),)


def test_folders_and_hosts_are_lists_in_variables(started: Any, tmp_path: Path) -> None:
    settings = started(
        FJORD_RELATION_FOLDERS="/srv/a:/srv/b",
        FJORD_RELATION_HOSTS="db.example,10.0.0.7, /run/postgresql",
        FJORD_API_ALLOWED_HOSTS="fjord.example",
        FJORD_API_ALLOWED_ORIGINS="https://fjord.example, https://wall.example",
        FJORD_RELATION_CREDENTIALS="c",
        FJORD_API_TOKENS="t",
    )
    assert settings.relation_folders == (tmp_path, Path("/srv/a"), Path("/srv/b"))
    assert settings.relation_hosts == ("db.example", "10.0.0.7", "/run/postgresql")
    assert settings.api_allowed_hosts == ("fjord.example",)
    assert settings.api_allowed_origins == ("https://fjord.example", "https://wall.example")
    assert settings.secret_files == (Path("t"), Path("c"))


def test_the_file_with_the_brokers_password_is_one_of_the_cluster(started: Any, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret")
    settings = started(FJORD_BROKER_USERNAME="cluster", FJORD_BROKER_PASSWORD_FILE="password")
    assert settings.secret_files == (Path("password"),)
