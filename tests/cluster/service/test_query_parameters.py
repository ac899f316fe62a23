"""Parameters of queries: bound by the API, registered as literals, given on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from cluster.errors import ClusterError
from cluster.service import query_command, query_file
from cluster.service.client.api_client import RefusedError
from cluster.service.http.query_routes import TOGETHER
from cluster.service.query_command import query as query_commands
from tests.cluster.service.conftest import Service, application
from tests.cluster.service.test_queries_together import FakeCluster

SLOW = "SELECT sensor, speed FROM traffic WHERE speed < :limit AND sensor = :road"
VALUES = {"limit": 40, "road": "A'7"}
BOUND = "SELECT sensor, speed FROM traffic WHERE speed < 40 AND sensor = 'A''7'"
ADDED = {"name": "slow", "topic": "fjord/v1/results/slow", "epoch": 2, "warnings": [], "state": "running"}


async def post(service: Service, path: str, **body: Any) -> httpx.Response:
    async with application(service.parts()) as client:
        return await client.post(path, json=body)


async def test_a_query_is_registered_with_its_values(service: Service) -> None:
    added = await post(service, "/v1/queries", sql=SLOW, name="slow", parameters=VALUES)
    assert (added.status_code, added.json()["sql"]) == (201, BOUND)
    async with application(service.parts()) as client:
        assert (await client.get("/v1/queries/slow")).json()["sql"] == BOUND
    again = await post(service, "/v1/queries", sql=BOUND, name="again")
    assert again.status_code == 201
    slow, same = (service.registry.query(name).node for name in ("slow", "again"))
    assert slow == same


async def test_a_restart_knows_the_values(service: Service, tmp_path: Path) -> None:
    await post(service, "/v1/queries", sql=SLOW, name="slow", parameters=VALUES)
    service.registry.close()
    again = Service(tmp_path)
    try:
        assert again.registry.query("slow").sql == BOUND
    finally:
        again.registry.close()


@pytest.mark.parametrize("path", ["/v1/queries", "/v1/explain", "/v1/explain/energy", TOGETHER])
@pytest.mark.parametrize(
    ("values", "message", "underlined"),
    [
        ({"limit": 40}, "the parameter :road has no value", ":road"),
        ({**VALUES, "rode": 1}, "there is no parameter 'rode'", None),
        ({**VALUES, "limit": "fast"}, "real and text do not go together", "speed < :limit"),
        ({"limit": 40, "road": 7}, "text and integer do not go together", "sensor = :road"),
    ],
)
async def test_faulty_values_are_refused_at_their_place_in_the_template(
    service: Service, path: str, values: dict[str, Any], message: str, underlined: str | None
) -> None:
    answer = await post(service, path, sql=SLOW.replace(" WHERE", "\nWHERE"), parameters=values)
    body = answer.json()
    assert (answer.status_code, body["error"]) == (400, "FjordSqlError")
    assert message in body["message"]
    if underlined is not None:
        assert body["line"] == 2
        shown, carets = body["underlined"].splitlines()
        assert shown[carets.index("^") : carets.rindex("^") + 1] == underlined
    assert service.registry.queries() == []


@pytest.mark.parametrize("value", [[1], {"a": 1}])
async def test_what_is_no_value_is_refused_as_a_request(service: Service, value: Any) -> None:
    answer = await post(service, "/v1/queries", sql=SLOW, parameters={"limit": value, "road": "x"})
    assert answer.status_code == 422
    assert "body.parameters.limit: Value error, a parameter is a number, a text, true" in answer.json()["message"]


async def test_values_of_a_text_of_several_queries_go_where_they_are_named(service: Service) -> None:
    text = f"-- name: slow\n{SLOW};\n-- name: few\nSELECT lane FROM traffic WHERE lane < :lanes AND speed > :Limit;"
    answer = await post(service, TOGETHER, sql=text, parameters={**VALUES, "lanes": 2})
    assert answer.status_code == 201
    assert service.registry.query("slow").sql == BOUND
    assert service.registry.query("few").sql == "SELECT lane FROM traffic WHERE lane < 2 AND speed > 40"
    body = (await post(service, TOGETHER, sql=text, parameters=VALUES)).json()
    assert (body["line"], body["message"][:52]) == (4, "query 'few': the parameter :lanes has no value, at l")
    body = (await post(service, TOGETHER, sql=text, parameters={**VALUES, "lane": 2})).json()
    assert "there is no parameter 'lane'" in body["message"]
    assert body["hint"] == "did you mean lanes?"


async def test_all_faulty_queries_of_a_text_are_reported_together(service: Service) -> None:
    text = f"-- name: slow\n{BOUND};\nSELECT sped FROM traffic;\n-- name: c\nSELECT a FROM traffic;\nSELECT 1 FROM x;"
    body = (await post(service, TOGETHER, sql=text)).json()
    found = [(each["line"], each["column"], each["message"][:24]) for each in (body, *body["others"])]
    assert found == [
        (3, 8, "there is no column 'sped"),
        (5, 8, "query 'c': there is no c"),
        (6, 15, "there is no stream 'x', "),
    ]
    assert service.registry.queries() == []


def test_the_command_shows_all_of_them() -> None:
    other = {"message": "no b, at line 2", "underlined": "2 | b\n  | ^", "hint": "did you mean c?"}
    error = RefusedError({"message": "no a, at line 1", "underlined": "1 | a\n  | ^", "hint": "try", "others": [other]})
    assert error.message.splitlines() == [
        *("no a, at line 1", "1 | a", "  | ^", "hint:  try"),
        *("no b, at line 2", "2 | b", "  | ^", "hint:  did you mean c?"),
    ]
    assert (error.hint, error.others[0].hint) == (None, "did you mean c?")


async def test_so_many_faulty_queries_are_reported_that_they_can_be_read(service: Service) -> None:
    body = (await post(service, TOGETHER, sql="SELECT sped FROM traffic;\n" * 50)).json()
    assert len(body["others"]) == 19


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Make commands call a cluster that adds everything; return what it is sent."""
    sent: list[Any] = []

    class Recording(FakeCluster):
        def _request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
            sent.append((f"{method} {path}", arguments["json"]))
            return super()._request(method, path, **arguments)

    added = {"queries": [{"name": "slow", "topic": "t", "epoch": 2, "line": 2}]}
    answers = {"POST /v1/queries": ADDED, f"POST {TOGETHER}": added, "POST /v1/explain": {"a": 1}}
    for module in (query_command, query_file):
        monkeypatch.setattr(module, "make_client", lambda _: Recording(answers))
    return sent


def run(*arguments: str, text: str = "") -> str:
    return CliRunner().invoke(query_commands, list(arguments), input=text, catch_exceptions=False).output


GIVEN = ("limit=40", ":road=A'7", "open=true", "id='7'", "gap=5 MINUTES")
SETTINGS = tuple(word for each in GIVEN for word in ("--set", each))
SENT = {"limit": 40, "road": "A'7", "open": True, "id": "7", "gap": "5 MINUTES"}


def test_commands_send_values_with_their_types(cluster: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "slow.sql"
    file.write_text(f"-- name: slow\n  {SLOW}; -- the end\n")
    assert run("add", str(file), *SETTINGS) == "slow  fjord/v1/results/slow\n"
    assert cluster.pop() == ("POST /v1/queries", {"sql": f"\n  {SLOW}", "name": "slow", "parameters": SENT})
    run("add", str(file), "--name", "other")
    assert cluster.pop()[1]["name"] == "other"
    run("add", SLOW, *SETTINGS)
    assert cluster.pop() == ("POST /v1/queries", {"sql": SLOW, "name": None, "parameters": SENT})
    assert json.loads(run("add", "--file", str(file), "--json")) == [ADDED]
    run("explain", str(file), *SETTINGS)
    assert cluster.pop() == ("POST /v1/explain", {"sql": f"\n  {SLOW}", "parameters": SENT})


def test_a_file_of_several_queries_is_sent_whole(cluster: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "two queries.sql"
    file.write_text(f"{SLOW};\n{SLOW};\n")
    assert run("add", str(file), "--set", "limit=1.5") == "slow  t\n"
    assert cluster.pop() == (
        f"POST {TOGETHER}",
        {"sql": f"{SLOW};\n{SLOW};\n", "parameters": {"limit": 1.5}, "rows": None},
    )
    run("add", "-", text=f"{SLOW};\n{SLOW}")
    assert cluster.pop()[0] == f"POST {TOGETHER}"
    with pytest.raises(ClusterError, match=r"there are 2 statements in .*two queries\.sql"):
        run("explain", str(file))
    with pytest.raises(ClusterError, match=r"no\.sql cannot be read"):
        run("add", str(tmp_path / "no.sql"))


def test_a_query_that_ends_like_the_name_of_a_file_is_a_query(cluster: list[Any]) -> None:
    run("add", "SELECT lane FROM traffic AS t WHERE t.lane = t.sql")
    assert cluster.pop()[1]["sql"].endswith("t.sql")


def test_lines_of_a_query_are_shown_as_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {**ADDED, "sql": "SELECT lane -- of many\nFROM traffic", "created": "now", "reads": [], "rows": 0}
    monkeypatch.setattr(query_command, "make_client", lambda _: FakeCluster({"GET /v1/queries/slow": shown}))
    assert "query     SELECT lane -- of many\n          FROM traffic\n" in run("show", "slow")
