"""The HTTP API, with the requests of the command line."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from cluster.errors import ClusterError
from cluster.fjord.counters import Totals
from cluster.service.client.api_token import api_token
from cluster.service.http import query_routes
from tests.cluster.service.conftest import Service, application

GOOD = "SELECT sensor FROM traffic"
COUNTERS = {
    "scan of traffic": Totals("stream traffic", 3, 60, 60, 0.25),
    "gone@0/0 Sample": Totals("gone@0", 3, 60, 60, 0.25),
}


def client(service: Service, token: str | None = None) -> httpx.AsyncClient:
    parts = service.parts()
    parts.engine.operators.add(COUNTERS)
    return application(parts, token)


@pytest.fixture
async def api(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with client(service) as found:
        yield found


async def test_a_query_is_added_listed_and_dropped(api: httpx.AsyncClient) -> None:
    added = await api.post("/v1/queries", json={"sql": GOOD, "name": "mine"})
    assert added.status_code == 201
    assert (added.json()["name"], added.json()["topic"]) == ("mine", "fjord/v1/results/mine")
    assert [query["name"] for query in (await api.get("/v1/queries")).json()] == ["mine"]
    assert (await api.delete("/v1/queries/mine")).status_code == 204
    assert (await api.get("/v1/queries")).json() == []


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"sql": "SELECT nothing FROM traffic"}, 400, "FjordSqlError"),
        ({"sql": GOOD, "name": "no/name"}, 400, "TopicError"),
        ({"sql": ""}, 422, "RequestError"),
        ({"sql": "x" * 100_001}, 422, "RequestError"),
        ({}, 422, "RequestError"),
    ],
)
async def test_bad_requests_are_refused_with_status_and_kind_of_error(
    api: httpx.AsyncClient, body: dict[str, str], status: int, kind: str
) -> None:
    answer = await api.post("/v1/queries", json=body)
    assert answer.status_code == status
    assert answer.json().get("error") == kind


@pytest.mark.parametrize(
    ("method", "path", "status", "message", "hint"),
    [
        ("GET", "/v1/nothing", 404, "Not Found", "/docs"),
        ("GET", "/", 404, "Not Found", "/docs"),
        ("PATCH", "/v1/queries", 405, "Method Not Allowed", "/docs"),
        ("GET", "/v1/queries/q/results?limit=0", 422, "query.limit: Input should be greater than", "/docs"),
        ("GET", "/v1/queries/none", 404, "none", None),
        ("GET", "/v1/sensors?where=a&sql=b", 400, "(where)", "send one"),
        ("POST", "/v1/explain", 422, "body: Field required", "/docs"),
    ],
)
async def test_every_error_has_the_same_form(
    api: httpx.AsyncClient, method: str, path: str, status: int, message: str, hint: str | None
) -> None:
    answer = await api.request(method, path)
    body = answer.json()
    assert (answer.status_code, set(body)) == (status, {"error", "message", "hint"})
    assert message in body["message"]
    assert hint is None or hint in body["hint"]


async def test_an_internal_failure_has_the_same_form(service: Service) -> None:
    async with client(service) as api:
        assert isinstance(api._transport, httpx.ASGITransport)
        api._transport.raise_app_exceptions = False
        await api.post("/v1/queries", json={"sql": GOOD, "name": "q"})
        failed = await api.get("/v1/queries/q/results")  # the server of these tests has no results
    assert (failed.status_code, failed.json()["error"]) == (500, "ClusterError")


async def test_results_of_an_unknown_query_are_an_error_and_those_of_a_dropped_one_are_not(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_routes, "ResultsTable", lambda *_, **__: None)
    monkeypatch.setattr(query_routes, "stored_results", lambda *_: b"[]")
    parts = service.parts()
    monkeypatch.setattr(parts.results, "root", Path("results"), raising=False)
    async with application(parts) as api:
        await api.post("/v1/queries", json={"sql": GOOD, "name": "silent"})
        unknown = await api.get("/v1/queries/slow/results")
        assert (unknown.status_code, unknown.json()["error"]) == (404, "UnknownQueryError")
        assert "running queries: silent" in unknown.json()["hint"]
        assert (await api.get("/v1/queries/silent/results")).json() == []
        monkeypatch.setattr(parts.results, "last_sequence", lambda name: 7 if name == "slow" else 0)
        assert (await api.get("/v1/queries/slow/results?after=7")).json() == []


async def test_bad_sql_comes_underlined(api: httpx.AsyncClient) -> None:
    body = (await api.post("/v1/queries", json={"sql": "SELECT sped FROM traffic"})).json()
    assert (body["line"], body["column"]) == (1, 8)
    assert "^^^^" in body["underlined"]
    assert "speed" in body["hint"]


async def test_unknown_and_doubled_names(api: httpx.AsyncClient) -> None:
    assert (await api.delete("/v1/queries/none")).status_code == 404
    await api.post("/v1/queries", json={"sql": GOOD, "name": "mine"})
    assert (await api.post("/v1/queries", json={"sql": GOOD, "name": "mine"})).status_code == 409


async def test_streams_show_fields_and_units(api: httpx.AsyncClient) -> None:
    (stream,) = (await api.get("/v1/streams")).json()
    assert stream["name"] == "traffic"
    assert {"name": "speed", "type": "real", "unit": "mph", "fixed": False} in stream["fields"]


async def test_explain_runs_nothing(api: httpx.AsyncClient) -> None:
    answer = await api.post("/v1/explain", json={"sql": GOOD})
    assert answer.status_code == 200
    assert "traffic" in answer.text
    assert (await api.get("/v1/queries")).json() == []


async def test_requests_without_the_token_are_refused(service: Service) -> None:
    async with client(service, token="secret") as api:
        refused = await api.get("/v1/queries")
        assert (refused.status_code, refused.json()["hint"]) == (401, "set FJORD_API_TOKEN")
        assert (await api.get("/v1/queries", headers={"Authorization": "Bearer wrong"})).status_code == 401
        assert (await api.get("/v1/queries", headers={"Authorization": "Bearer secret"})).status_code == 200


@pytest.mark.parametrize("token", [None, ""])
async def test_an_empty_token_is_none(service: Service, token: str | None) -> None:
    async with client(service, token=token) as api:
        assert (await api.get("/v1/queries")).status_code == 200
        assert (await api.get("/v1/queries", headers={"Authorization": "Bearer "})).status_code == 200


@pytest.mark.parametrize("header", [b"Bearer \xff", b"\xc3\xa4", b"Bearer", b"Bearer secret2", b""])
async def test_odd_headers_carry_no_token(service: Service, header: bytes) -> None:
    async with client(service, token="secret") as api:
        assert (await api.get("/v1/queries", headers={b"Authorization": header})).status_code == 401


@pytest.mark.parametrize(
    ("environment", "token"),
    [
        ({}, None),
        ({"FJORD_API_TOKEN": ""}, None),
        ({"FJORD_API_TOKEN": " \n"}, None),
        ({"FJORD_API_TOKEN": "a\n"}, "a"),
    ],
)
def test_a_token_of_the_environment(environment: dict[str, str], token: str | None) -> None:
    assert api_token(environment) == token


@pytest.mark.parametrize("token", ["ä", "a\nb", "a\0b"])
def test_a_token_that_cannot_be_sent_is_refused(token: str) -> None:
    with pytest.raises(ClusterError, match="FJORD_API_TOKEN has characters"):
        api_token({"FJORD_API_TOKEN": token})


async def test_streams_are_created_listed_and_dropped(api: httpx.AsyncClient) -> None:
    made = await api.post(
        "/v1/streams", json={"sql": "CREATE STREAM fast AS SELECT sensor FROM traffic WHERE speed > 60"}
    )
    assert (made.status_code, made.json()) == (201, {"name": "fast"})
    kinds = {stream["name"]: stream["kind"] for stream in (await api.get("/v1/streams")).json()}
    assert kinds == {"fast": "derived", "traffic": "base"}
    await api.post("/v1/queries", json={"sql": "SELECT sensor FROM fast", "name": "mine"})
    refused = await api.delete("/v1/streams/fast")
    assert (refused.status_code, refused.json()["error"]) == (409, "CatalogError")
    await api.delete("/v1/queries/mine")
    assert (await api.delete("/v1/streams/fast")).status_code == 204


async def test_operators_of_the_plan_are_listed(api: httpx.AsyncClient) -> None:
    assert (await api.get("/v1/plan/operators")).json() == []
    await api.post("/v1/queries", json={"sql": GOOD})
    (scan,) = (await api.get("/v1/plan/operators")).json()
    assert scan["operator"] == "scan of traffic"
    assert (scan["transitions"], scan["rows_in"], scan["dropped"]) == (3, 60, 0)
    assert (scan["rows_in_per_second"], scan["rows_out_per_row"], scan["microseconds_per_row"]) == (0, None, None)


@pytest.mark.parametrize(
    ("kind", "begins"),
    [("text", "epoch 2: 1 query in 1 fragment"), ("mermaid", "flowchart BT"), ("dot", "digraph plan")],
)
async def test_the_plan_is_shown(api: httpx.AsyncClient, kind: str, begins: str) -> None:
    await api.post("/v1/queries", json={"sql": GOOD})
    assert (await api.get("/v1/plan", params={"format": kind})).text.startswith(begins)
    assert (await api.get("/v1/plan", params={"format": "crayon"})).status_code == 422


async def test_the_history_of_the_plan_is_shown(api: httpx.AsyncClient) -> None:
    await api.post("/v1/queries", json={"sql": GOOD, "name": "one"})
    await api.post("/v1/queries", json={"sql": GOOD, "name": "other"})
    before = time.time()
    await api.delete("/v1/queries/one")
    steps = (await api.get("/v1/plan/history")).json()
    assert [(each["epoch"], each["words"]) for each in steps[-3:]] == [
        (2, "one added"), (3, "other added"), (4, "one dropped"),
    ]  # fmt: skip
    assert steps[-3]["operators_come"] > 0
    assert [each["operators_go"] for each in steps[-3:]] == [0, 0, 0]
    assert before <= steps[-1]["at_seconds"] <= time.time()
    assert len((await api.get("/v1/plan/history", params={"last": 2})).json()) == 2
    assert (await api.get("/v1/plan/history", params={"last": 0})).status_code == 422


async def test_changes_of_the_plan_are_shown(api: httpx.AsyncClient) -> None:
    for _ in range(2):
        await api.post("/v1/queries", json={"sql": GOOD})
    last = (await api.get("/v1/plan/difference")).text
    assert last.startswith("from epoch 2 to 3:\n  changes fold-")
    assert "q2 comes" in last
    both = (await api.get("/v1/plan/difference", params={"since": 1})).text
    assert both.startswith("from epoch 1 to 3:\n  comes   fold-")
    assert "for 2 queries: q1, q2" in both
    refused = await api.get("/v1/plan/difference", params={"since": 99})
    assert refused.status_code == 400
    assert "no plan of epoch 99" in refused.json()["message"]


async def test_the_description_has_the_errors_of_all_routes_in_their_form(api: httpx.AsyncClient) -> None:
    described = (await api.get("/openapi.json")).json()["paths"]
    refused = (await api.post("/v1/queries", json={"sql": "SELECT sped FROM traffic"})).json()
    for path, methods in described.items():
        for method, operation in methods.items():
            assert {"4XX", "5XX"} <= operation["responses"].keys(), (method, path)
            assert "422" not in operation["responses"], "the web framework's own form"
            shown = operation["responses"]["4XX"]["content"]["application/json"]["schema"]
            assert refused.keys() <= shown["properties"].keys()
