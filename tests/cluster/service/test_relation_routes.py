"""Relations over HTTP, on the command line and as metrics."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from typer.testing import CliRunner

from cluster.service.catalog.relation_command import relation
from cluster.service.client.api_client import ApiClient, RefusedError
from cluster.service.http.metrics import ClusterMetrics, relation_metrics
from cluster.service.query_command import query
from tests.cluster.service.conftest import application
from tests.cluster.service.relation_cases import CREATE, DECLARED, JOINED, Relations

SECRET = "postgresql://anna:s3cret@127.0.0.1:1/roads"


@pytest.fixture
def relations(service, tmp_path):
    return Relations(service, tmp_path / "relations")


@pytest.fixture
async def api(service, relations):
    async with application(service.parts(queries=relations.queries)) as found:
        yield found


@pytest.fixture
async def real(service):
    """An API whose relations come from real sources."""
    async with application(service.parts(queries=service.queries)) as found:
        yield found


async def declare(api, text):
    return await api.post("/v1/relations", json={"sql": text})


async def test_relations_are_created_listed_shown_and_dropped(api):
    made = await declare(api, CREATE)
    assert (made.status_code, made.json()["name"], made.json()["rows"]) == (201, "roads", 1)
    (listed,) = (await api.get("/v1/relations")).json()
    assert listed == (await api.get("/v1/relations/Roads")).json()
    assert listed["columns"][1] == {"name": "closed", "type": "boolean", "unit": ""}
    assert (await api.delete("/v1/relations/roads")).status_code == 204
    assert (await api.get("/v1/relations")).json() == []
    assert (await api.get("/v1/relations/roads")).status_code == 404
    assert (await api.delete("/v1/relations/roads")).status_code == 404


async def test_wrong_requests_are_refused_with_the_reason(api):
    await declare(api, CREATE)
    assert (await declare(api, CREATE)).status_code == 409
    assert (await declare(api, "CREATE RELATION x FROM 'a' REFRESH EVERY 5 SECONDS")).status_code == 201  # scripted
    bad = await declare(api, "CREATE RELATION x FROM 'a' REFRESH")
    assert (bad.status_code, bad.json()["error"]) == (400, "FjordSqlError")
    await api.post("/v1/queries", json={"sql": JOINED, "name": "near"})
    refused = await api.delete("/v1/relations/roads")
    assert (refused.status_code, refused.json()["message"]) == (409, "relation 'roads' is in use by near")


async def test_a_waiting_query_shows_that_it_waits(api, relations):
    relations.source.away()
    await declare(api, DECLARED)
    added = await api.post("/v1/queries", json={"sql": JOINED, "name": "near"})
    assert added.status_code == 201
    assert added.json()["state"] == "waiting for relation roads (connection refused)"
    assert added.json()["epoch"] is None
    (listed,) = (await api.get("/v1/queries")).json()
    assert listed["state"].startswith("waiting for relation roads")
    assert (await api.get("/v1/queries/near")).json() == listed
    relations.source.back()
    await relations.passes(30)
    found = (await api.get("/v1/queries/near")).json()
    assert (found["state"], found["epoch"], found["reads"]) == ("running", 2, ["roads", "traffic"])
    assert (await api.get("/v1/queries/nothing")).status_code == 404


async def test_a_waiting_query_can_be_dropped(api, relations):
    relations.source.away()
    await declare(api, DECLARED)
    await api.post("/v1/queries", json={"sql": JOINED, "name": "near"})
    assert (await api.delete("/v1/queries/near")).status_code == 204
    assert (await api.get("/v1/queries")).json() == []


async def test_no_answer_shows_a_password(real, caplog, capsys):
    text = f"CREATE RELATION roads (a TEXT) FROM '{SECRET}' REFRESH EVERY 5 SECONDS"
    answers = [
        await declare(real, text.replace("(a TEXT) ", "")),
        await declare(real, text),
        await declare(real, text),
        await declare(real, text.replace("SECONDS", "FORTNIGHTS")),
        await declare(real, text.replace("'p", "p")),
        await real.get("/v1/relations"),
        await real.get("/v1/relations/roads"),
        await real.post(
            "/v1/queries", json={"sql": "SELECT t.speed FROM traffic AS t, roads AS r WHERE r.a = t.sensor"}
        ),
        await real.get("/v1/queries"),
        await real.post("/v1/explain", json={"sql": text}),
        await real.post("/v1/streams", json={"sql": text}),
        await real.post("/v1/queries", json={"sql": text}),
        await declare(real, text + " " * 100_001),
    ]
    codes = [400, 201, 409, 400, 400, 200, 200, 201, 200, 400, 400, 400, 422]
    assert [answer.status_code for answer in answers] == codes
    shown = capsys.readouterr()
    assert "refused" in answers[1].json()["reason"]
    for each in (*(answer.text for answer in answers), caplog.text, shown.out, shown.err):
        assert "s3cret" not in each


async def test_the_registry_is_for_its_owner_only(service, tmp_path):
    assert (tmp_path / "registry.sqlite").stat().st_mode & 0o077 == 0


def test_relations_are_created_listed_shown_and_dropped_by_commands(monkeypatch):
    described = {
        "name": "roads",
        "source": "postgresql://anna:***@db/roads",
        "text": "CREATE RELATION roads\nFROM 'postgresql://anna:***@db/roads' REFRESH EVERY 30 SECONDS",
        "columns": [{"name": "segment", "type": "text", "unit": ""}, {"name": "at", "type": "real", "unit": "km"}],
        "rows": 1234,
        "estimated_rows": 1234,
        "bytes": 99_000,
        "version": 7,
        "age": 41.6,
        "refresh": 30.0,
        "stale_after": 300.0,
        "state": "stale",
        "reason": "connection refused",
        "used_by": ["q1", "q2"],
    }
    requests = []

    def request(self, method, path, **rest):
        requests.append((method, path, rest))
        return httpx.Response(200, json=[described] if path == "/v1/relations" and method == "GET" else described)

    monkeypatch.setattr(ApiClient, "_request", request)
    monkeypatch.setenv("COLUMNS", "200")
    runner = CliRunner()
    assert (
        runner.invoke(relation, ["create", CREATE]).output == "created roads: 1,234 rows, stale: connection refused\n"
    )
    listed = runner.invoke(relation, ["list"]).output
    for cell in ("roads", "anna:***@db", "1,234", "7", "42s", "stale: connection refused", "q1, q2"):
        assert cell in listed
    shown = runner.invoke(relation, ["show", "roads"]).output
    for line in (
        "segment text, at real [km]",
        "refreshed every 30s",
        "stale after     5m",
        "CREATE RELATION roads FROM",
    ):
        assert line in shown
    for arguments in (["create", CREATE, "--json"], ["show", "roads", "--json"]):
        assert json.loads(runner.invoke(relation, arguments).output) == described
    assert json.loads(runner.invoke(relation, ["list", "--json"]).output) == [described]
    assert runner.invoke(relation, ["drop", "roads", "lanes"]).output == "dropped roads\ndropped lanes\n"
    assert requests[-1][:2] == ("DELETE", "/v1/relations/lanes")


def test_a_long_first_reading_shows_the_estimated_rows(monkeypatch):
    described = {
        "name": "roads",
        "rows": None,
        "estimated_rows": 5_000_000,
        "version": None,
        "state": "away",
        "reason": "",
    }
    monkeypatch.setattr(ApiClient, "_request", lambda *_, **__: httpx.Response(200, json=described))
    assert (
        CliRunner().invoke(relation, ["create", CREATE]).output == "created roads: about 5,000,000 rows, being read\n"
    )


def test_queries_show_what_they_wait_for(monkeypatch):
    found = {
        "name": "near",
        "state": "waiting for relation roads (connection refused)",
        "epoch": None,
        "rows": 0,
        "sql": JOINED,
        "topic": "fjord/v1/results/near",
        "created": "2012-03-01T00:00:00.000000Z",
        "reads": ["roads", "traffic"],
        "warnings": [],
    }
    monkeypatch.setattr(
        ApiClient,
        "_request",
        lambda self, method, path, **rest: httpx.Response(
            200, json=[found] if (method, path) == ("GET", "/v1/queries") else found
        ),
    )
    monkeypatch.setenv("COLUMNS", "250")
    runner = CliRunner()
    for arguments in (["list"], ["show", "near"], ["add", JOINED]):
        assert "waiting for relation roads (connection refused)" in runner.invoke(query, arguments).output
    assert json.loads(runner.invoke(query, ["show", "near", "--json"]).output) == found


def test_refusals_reach_the_command_line(monkeypatch):
    def refuse(self, method, path, **rest):
        raise RefusedError({"message": "relation 'roads' is in use by near", "hint": "drop those first"})

    monkeypatch.setattr(ApiClient, "_request", refuse)
    assert isinstance(CliRunner().invoke(relation, ["drop", "roads"]).exception, RefusedError)


async def test_metrics_show_state_age_and_failures_of_a_relation(relations):
    await relations.create()
    relations.source.away()
    await relations.passes(30)
    await relations.passes(12)
    found = {
        sample.name: sample.value
        for metric in relation_metrics(relations.store)
        for sample in metric.samples
        if sample.labels == {"relation": "roads"}
    }
    assert found == {
        "fjord_relation_age_seconds": 42,
        "fjord_relation_rows": 1,
        "fjord_relation_fresh": 0,
        "fjord_relation_refresh_failures_total": 2,
        "fjord_relation_versions_total": 1,
    }
    parts = relations.service.parts(queries=relations.queries)
    text = generate_latest(ClusterMetrics(parts, CollectorRegistry()).registry).decode()
    assert 'fjord_relation_rows{relation="roads"} 1.0' in text
    assert "fjord_queries_waiting 0.0" in text


async def test_a_relation_with_everything_it_needs_from_a_file(real, tmp_path):
    with closing(sqlite3.connect(tmp_path / "a.db")) as database, database:
        database.execute("CREATE TABLE roads (segment TEXT, closed BOOLEAN)")
    text = f"CREATE RELATION roads (segment TEXT, closed INTEGER) FROM 'sqlite:{tmp_path}/a.db' REFRESH EVERY 5 SECONDS"
    refused = (await declare(real, text)).json()
    assert "column 'closed' is BOOLEAN there, which cannot be integer" in refused["message"].replace(", boolean", "")
    assert refused["underlined"].splitlines()[1].count("^") == len("closed")
