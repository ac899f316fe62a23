"""Many queries are added with one request: all of them, or none; an error names the statement and its line."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from cluster.errors import OneOfManyError, UnwritableError
from cluster.fjord.acceptance import RowLimitError, RowLimits
from cluster.service import query_file
from cluster.service.client.api_client import ApiClient, RefusedError
from cluster.service.http import query_routes
from cluster.service.http.query_routes import TOGETHER
from cluster.service.http.request_bodies import MOST_BYTES
from cluster.service.query_command import query as query_commands
from cluster.service.registry.query_names import QueryExistsError
from protocols.errors import FjordError
from tests.cluster.service.conftest import Service, application

SLOW = "SELECT sensor, speed FROM traffic WHERE speed < 10"
FAST = "SELECT sensor, speed FROM traffic WHERE speed > 90"
DISTINCT = "SELECT DISTINCT lane FROM traffic WINDOW(RANGE 1 MINUTE)"
"""Begins with an epoch of its own."""
FILE = f"-- name: slow\n{SLOW};\n\n{DISTINCT};\n-- name: fast\n{FAST};\n"


def names(service: Service) -> list[str]:
    return [each.name for each in service.registry.queries()]


async def post(service: Service, sql: str) -> httpx.Response:
    async with application(service.parts()) as client:
        return await client.post(TOGETHER, json={"sql": sql})


async def test_a_text_of_many_queries_is_added_with_names_and_lines(service: Service) -> None:
    epoch = service.registry.epoch
    answer = await post(service, FILE)
    assert answer.status_code == 201
    found = answer.json()["queries"]
    assert [(each["name"], each["line"], each["epoch"] - epoch) for each in found] == [
        ("slow", 2, 1),
        ("q1", 4, 2),
        ("fast", 6, 1),
    ]
    assert found[0]["topic"] == "fjord/v1/results/slow"
    assert [service.registry.query(each).sql for each in ("slow", "q1", "fast")] == [SLOW, DISTINCT, FAST]
    assert (await service.queries.add(SLOW))[0].name == "q2"


@pytest.mark.parametrize(
    ("wrong", "status", "kind", "message", "line"),
    [
        ("SELECT sped FROM traffic", 400, "FjordSqlError", "at line 3, column 8", 3),
        ("SELECT sensor\nFROM trafic", 400, "FjordSqlError", "at line 4, column 6", 4),
        (f"{FAST}; SELECT sped FROM traffic", 400, "FjordSqlError", "at line 3, column 60", 3),
        (f"-- name: slow\n{FAST}", 409, "QueryExistsError", "query 'slow': there is a query 'slow' already, at", 4),
        (f"-- name: Slow\n{FAST}", 409, "QueryExistsError", "'slow' already, and 'Slow' differs from it in case", 4),
        (f"-- name: a/b\n{FAST}", 400, "TopicError", "query 'a/b': ", 4),
        (f"{FAST};\n" * 5, 429, "TooManyQueriesError", "5 queries are running, the limit is 5, at line 7", 7),
        ("SELECT 'never closed", 400, "FjordSqlError", "at line 3, column 8", 3),
        ("x" * 100_001, 400, "PlanError", "at most 100,000 characters, at line 3", 3),
    ],
)
async def test_an_error_names_statement_and_line_and_none_is_added(
    service: Service, wrong: str, status: int, kind: str, message: str, line: int
) -> None:
    epoch = service.registry.epoch
    answer = await post(service, f"-- name: slow\n{SLOW};\n{wrong};")
    body = answer.json()
    assert (answer.status_code, body["error"], body["line"]) == (status, kind, line)
    assert message in body["message"]
    assert (service.registry.epoch, names(service)) == (epoch, [])
    assert service.queries.adding is None


async def test_the_offending_line_is_underlined_where_it_stands_in_the_file(service: Service) -> None:
    body = (await post(service, f"{SLOW};\n{FAST}; SELECT sped\nFROM traffic;")).json()
    assert (body["line"], body["column"]) == (2, 60)
    assert body["underlined"].splitlines() == [f"2 | {FAST}; SELECT sped", f"  | {' ' * 59}^^^^"]
    assert "speed" in body["hint"]


async def test_a_query_that_does_not_fit_beside_the_others_keeps_all_out(service: Service) -> None:
    queries = service.started(row_limits=RowLimits(per_tuple=1_000))
    many = "SELECT AVG(speed) AS speed FROM traffic WINDOW(RANGE 1 HOUR SLIDE 1 SECOND)"
    with pytest.raises(OneOfManyError) as caught:
        await queries.add_many([("slow", SLOW), ("d", DISTINCT), ("many", many)])
    assert (caught.value.place, type(caught.value.cause)) == (2, RowLimitError)
    assert names(service) == []


async def test_queries_that_have_begun_are_dropped_if_a_later_one_cannot(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise UnwritableError("the plan", OSError("no space"))

    await service.queries.add(FAST, "before")
    monkeypatch.setattr(service.registry, "add", full)
    with pytest.raises(OneOfManyError) as caught:
        await service.queries.add_many([("d", DISTINCT), ("slow", SLOW)])
    assert (caught.value.place, type(caught.value.cause)) == (0, UnwritableError)
    assert names(service) == ["before"]


async def test_a_name_that_is_taken_is_refused_before_anything_begins(service: Service) -> None:
    await service.queries.add(SLOW, "q2")
    found = await service.queries.add_many([(None, SLOW), (None, FAST), ("q4", FAST)])
    assert [each.name for each in found] == ["q1", "q3", "q4"]
    with pytest.raises(OneOfManyError) as caught:
        await service.queries.add_many([("q4", FAST)])
    assert type(caught.value.cause) is QueryExistsError
    await service.queries.drop("q3")
    assert (await service.queries.add(SLOW))[0].name == "q5", "a name that was made up is never used twice"


async def test_the_status_shows_how_far_the_addition_has_come(service: Service) -> None:
    seen = []
    run = service.queries._planning.run

    async def watched(*arguments: Any, **named: Any) -> Any:
        async with application(service.parts()) as client:
            seen.append((await client.get("/v1/status")).json()["adding"])
        return await run(*arguments, **named)

    service.queries._planning.run = watched  # type: ignore[method-assign] # to look while it runs
    await service.queries.add_many([(None, SLOW), (None, FAST)])
    assert seen[:3] == [{"queries": 2, "planned": planned} for planned in (0, 1, 2)]
    assert service.queries.adding is None


async def test_a_client_that_goes_away_adds_nothing(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_routes, "LOOK_SECONDS", 0.01)
    entered, gone = asyncio.Event(), asyncio.Event()

    async def planned(*_: Any, **__: Any) -> Any:
        entered.set()
        await asyncio.Event().wait()

    service.queries._planning.run = planned  # type: ignore[method-assign] # planning that never ends
    body = json.dumps({"sql": FILE}).encode()
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        if (message := next(messages, None)) is not None:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(_: Any) -> None:
        pytest.fail("the connection is closed")

    async with application(service.parts()) as client:
        transport = client._transport
        assert isinstance(transport, httpx.ASGITransport)
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {
            "type": "http", "method": "POST", "path": TOGETHER, "raw_path": TOGETHER.encode(), "query_string": b"",
            "headers": headers, "http_version": "1.1", "scheme": "http", "server": ("cluster", 80), "root_path": "",
        }  # fmt: skip
        answering = asyncio.ensure_future(transport.app(scope, receive, send))
        await asyncio.wait_for(entered.wait(), 10)
        gone.set()
        await asyncio.wait([answering], timeout=10)
    assert answering.done()
    assert answering.cancelled() or answering.exception() is not None
    assert service.queries.adding is None
    assert names(service) == []


async def test_a_long_text_is_read_and_a_longer_statement_is_not(service: Service) -> None:
    text = f"-- {'x' * MOST_BYTES}\n{SLOW};"
    assert (await post(service, text)).status_code == 201
    async with application(service.parts()) as client:
        assert (await client.post("/v1/queries", json={"sql": text})).status_code == 413


class FakeCluster(ApiClient):
    """Answers as a cluster does."""

    def __init__(self, answers: dict[str, Any]) -> None:
        super().__init__("http://cluster")
        self.answers = {"GET /v1/status": {}, **answers}

    def _request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        answer = self.answers[f"{method} {path}"]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(200, json=answer)


def test_the_command_adds_a_file_and_prints_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "queries.sql"
    file.write_text(FILE)
    found = [{"name": "slow", "topic": "fjord/v1/results/slow", "epoch": 2, "line": 2}]
    cluster = FakeCluster({"POST /v1/queries/together": {"queries": found}})
    monkeypatch.setattr(query_file, "make_client", lambda _: cluster)
    shown = CliRunner().invoke(query_commands, ["add", "--file", str(file)])
    assert (shown.exit_code, shown.stdout) == (0, "slow  fjord/v1/results/slow\n")
    shown = CliRunner().invoke(query_commands, ["add", "--file", "-", "--json"], input=FILE)
    assert json.loads(shown.stdout) == found
    cluster.answers["POST /v1/queries/together"] = RefusedError({"message": "no"})
    with pytest.raises(RefusedError):
        CliRunner().invoke(query_commands, ["add", "--file", str(file)], catch_exceptions=False)
    with pytest.raises(FjordError, match=r"no\.sql cannot be read: .*No such file"):
        CliRunner().invoke(query_commands, ["add", "--file", str(tmp_path / "no.sql")], catch_exceptions=False)


def test_an_empty_file_is_no_matter_for_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "queries.sql"
    file.write_text(" \n")
    monkeypatch.setattr(query_file, "make_client", lambda _: FakeCluster({}))
    with pytest.raises(FjordError, match=r"there is no query in .*queries\.sql"):
        CliRunner().invoke(query_commands, ["add", "--file", str(file)], catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "either a query, or --file"),
        (["SELECT 1", "--file", "-"], "either a query, or --file"),
        (["--file", "-", "--name", "x"], "have their names there"),
        (["-", "--name", "x"], "have their names there"),
        (["SELECT 1", "--set", "limit"], "'limit' is not NAME=VALUE"),
        (["SELECT 1", "--set", "=1"], "'=1' is not NAME=VALUE"),
        (["SELECT 1", "--set", "a=1", "--set", "A=1"], "the parameter A has two values"),
    ],
)
def test_the_command_takes_a_query_or_a_file(arguments: list[str], message: str) -> None:
    shown = CliRunner().invoke(query_commands, ["add", *arguments], input=FILE)
    assert shown.exit_code == 2
    assert message in " ".join(shown.stderr.replace("│", " ").split())
