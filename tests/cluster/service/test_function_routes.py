"""Functions of users over HTTP and on the command line; what a restart, a drop and another one of the name leave."""

from __future__ import annotations

import json

import httpx
import pytest
from typer.testing import CliRunner

from cluster.functions.allowed import FunctionRules
from cluster.functions.calling import FunctionProcess
from cluster.language.translation import translate
from cluster.plan.names_read import functions_of
from cluster.service.access.roles import Role, role_needed
from cluster.service.catalog import function_command, function_service
from cluster.service.client.api_client import ApiClient
from cluster.service.registry.registry_file import MIGRATIONS
from tests.cluster.functions.declared import MODULE, STATEMENTS
from tests.cluster.service.conftest import application
from tests.cluster.service.relation_cases import DECLARED, Relations

RULES = FunctionRules((MODULE,))
CREATE = STATEMENTS[0]
QUERY = "SELECT halved(speed) AS h FROM traffic"


@pytest.fixture
def queries(service):
    return service.started(functions=RULES)


@pytest.fixture
async def api(service, queries):
    async with application(service.parts(queries=queries)) as found:
        yield found


async def declare(api, text):
    return await api.post("/v1/functions", json={"sql": text})


async def refusal(api, text):
    answer = await declare(api, text)
    return answer.status_code, answer.json()["message"]


async def test_functions_are_created_listed_shown_and_dropped(api):
    made = await declare(api, CREATE)
    assert made.status_code == 201, made.json()
    (listed,) = (await api.get("/v1/functions")).json()
    assert listed == made.json() == (await api.get("/v1/functions/HALVED")).json()
    assert (listed["name"], listed["shape"], listed["result"]) == ("Halved", "Halved(x REAL)", "real")
    assert (listed["path"], listed["language"], listed["strict"]) == (f"{MODULE}:halved", "polars", False)
    assert (listed["allowed"], listed["used_by"], listed["text"]) == (True, [], CREATE)
    assert (await api.delete("/v1/functions/halved")).status_code == 204
    assert (await api.delete("/v1/functions/halved")).status_code == 404
    assert (await api.get("/v1/functions/halved")).status_code == 404
    assert (await declare(api, CREATE)).status_code == 201
    assert (await declare(api, "DROP FUNCTION halved")).json() == {"name": "halved", "dropped": True}
    assert (await api.get("/v1/functions")).json() == []


async def test_a_function_that_is_in_use_is_not_dropped(api):
    await declare(api, CREATE)
    await api.post("/v1/streams", json={"sql": f"CREATE STREAM halves AS {QUERY}"})
    await api.post("/v1/queries", json={"sql": QUERY, "name": "own"})
    await api.post("/v1/queries", json={"sql": "SELECT h FROM halves", "name": "derived"})
    assert (await api.get("/v1/functions/halved")).json()["used_by"] == ["derived", "halves", "own"]
    refused = await api.delete("/v1/functions/halved")
    assert (refused.status_code, refused.json()["message"]) == (
        409,
        "function 'Halved' is in use by derived, halves, own",
    )
    for path in ("/v1/queries/own", "/v1/queries/derived", "/v1/streams/halves", "/v1/functions/halved"):
        assert (await api.delete(path)).status_code == 204


async def test_a_query_that_waits_keeps_its_function(service, tmp_path):
    relations = Relations(service, tmp_path / "relations")
    relations.source.away()
    relations.queries.functions._store.rules = RULES
    async with application(service.parts(queries=relations.queries)) as api:
        await api.post("/v1/relations", json={"sql": DECLARED})
        await declare(api, CREATE)
        sql = "SELECT halved(t.speed) AS h FROM traffic AS t, roads AS r WHERE t.sensor = r.segment"
        assert (await api.post("/v1/queries", json={"sql": sql, "name": "near"})).json()["epoch"] is None
        assert (await api.get("/v1/functions/halved")).json()["used_by"] == ["near"]
        assert (await api.delete("/v1/functions/halved")).status_code == 409


async def test_what_cannot_be_used_is_refused_where_it_is_named(api):
    await declare(api, CREATE)
    status, reason = await refusal(api, CREATE)
    assert (status, reason) == (409, "there is already a function 'Halved'")
    status, reason = await refusal(api, "CREATE FUNCTION f(TEXT) RETURNS TEXT AS 'os:system'")
    assert status == 400
    assert reason.startswith("function f (os:system) may not be called: the administrator has not allowed its module")
    assert reason.endswith("at line 1, column 41")
    status, reason = await refusal(api, f"CREATE FUNCTION f(REAL) RETURNS REAL AS '{MODULE}:missing'")
    assert "has no attribute 'missing'" in reason
    status, reason = await refusal(api, f"CREATE FUNCTION f(REAL, REAL) RETURNS REAL AS '{MODULE}:halved'")
    assert "cannot be called with 2 arguments" in reason
    for text in ("SELECT 1", "CREATE RELATION x FROM 'a' REFRESH EVERY 5 SECONDS"):
        assert await refusal(api, text) == (
            400,
            "CREATE FUNCTION or DROP FUNCTION was expected here, at line 1, column 1",
        )
    answer = await api.post("/v1/streams", json={"sql": CREATE})
    assert answer.json()["message"].startswith("this is about a function, not a stream")
    answer = await api.post("/v1/queries", json={"sql": CREATE})
    assert answer.json()["hint"] == "functions are made with `fjord function create`"
    assert (await api.get("/v1/functions")).json()[0]["name"] == "Halved"
    assert len((await api.get("/v1/functions")).json()) == 1


async def test_without_an_option_no_function_is_allowed(service):
    async with application(service.parts(queries=service.queries)) as api:
        status, reason = await refusal(api, CREATE)
        assert status == 400
        assert "the administrator has not allowed its module with --functions" in reason


async def test_functions_are_there_after_a_restart_and_keep_their_identities(service, queries):
    await queries.functions.execute(CREATE)
    await queries.add(QUERY, "own")
    await queries.drop("own")
    await queries.functions.execute("DROP FUNCTION Halved")
    await queries.functions.execute(CREATE)
    await queries.streams.execute(f"CREATE STREAM halves AS {QUERY}")
    again = service.started()  # without the option: it stays, and is shown as not allowed
    (known,) = again.functions.all()
    assert (known["name"], known["allowed"], known["used_by"]) == ("Halved", False, ["halves"])
    (called,) = functions_of(translate("SELECT h FROM halves", again.streams.catalog()).node)
    assert called.identity == "Halved@2"


async def test_a_function_that_this_version_cannot_read_costs_itself_only(service, queries):
    await queries.functions.execute(CREATE)
    service.registry.functions.create("odd", "CREATE FUNCTION odd() RETURNS NOTHING")
    again = service.started(functions=RULES)
    known = {each["name"]: each for each in again.functions.all()}
    assert (known["Halved"]["reason"], known["Halved"]["allowed"]) == ("", True)
    assert known["odd"]["reason"]
    assert [each.name for each in again.streams.catalog().functions.values()] == ["Halved"]
    await again.functions.drop("odd")


async def test_there_are_only_so_many(queries, monkeypatch):
    monkeypatch.setattr(function_service, "MOST_FUNCTIONS", 1)
    await queries.functions.execute(CREATE)
    with pytest.raises(function_service.CatalogError, match="there are 1 functions already"):
        await queries.functions.execute(STATEMENTS[1])


async def test_the_module_is_not_imported_in_this_process(queries, monkeypatch):
    asked = []
    load = FunctionProcess._load

    def noted(self):
        asked.append(self._child.pid)
        load(self)

    monkeypatch.setattr(FunctionProcess, "_load", noted)
    await queries.functions.execute(CREATE)
    assert len(asked) == 1


def test_only_administrators_create_and_drop_and_all_may_look():
    assert role_needed("POST", "/v1/functions") is role_needed("DELETE", "/v1/functions/f") is Role.ADMIN
    assert role_needed("GET", "/v1/functions") is role_needed("GET", "/v1/functions/f") is Role.READ


def test_a_registry_of_before_gets_the_table(service):
    assert "CREATE TABLE functions" in MIGRATIONS[6]
    assert service.registry.functions.functions() == []


SHOWN = {
    "name": "f", "shape": "f(x REAL)", "result": "real", "path": "m:f", "language": "polars", "used_by": ["q1"],
    "allowed": True, "reason": "",
}  # fmt: skip


class Client:
    """A cluster that has three functions, and notes what is asked of it."""

    def __init__(self):
        self.asked = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def declare_function(self, sql):
        return {"name": "f", "dropped": True} if "DROP" in sql else SHOWN

    def functions(self):
        return [SHOWN, {**SHOWN, "allowed": False}, {**SHOWN, "name": "g", "shape": "", "reason": "odd", "path": ""}]

    def drop_function(self, name):
        self.asked.append(name)


def test_the_command_creates_lists_and_drops(monkeypatch):
    client = Client()
    monkeypatch.setattr(function_command, "make_client", lambda _: client)

    def printed(*arguments, **given):
        result = CliRunner().invoke(function_command.function, arguments, **given)
        assert result.exit_code == 0, result.output
        return result.output

    assert printed("create", "CREATE FUNCTION ...") == "created f(x REAL) REAL from m:f\n"
    assert printed("create", "-", input="DROP FUNCTION f") == "dropped f\n"
    assert json.loads(printed("create", "x", "--json")) == SHOWN
    listed = " ".join(printed("list").split())
    assert "f(x REAL) REAL m:f polars allowed q1" in listed
    assert "not allowed: its calls fail" in listed
    assert "cannot be read: odd" in listed
    assert len(json.loads(printed("list", "--json"))) == 3
    assert printed("drop", "f", "g") == "dropped f\ndropped g\n"
    assert client.asked == ["f", "g"]


def test_the_client_asks_for_them():
    client = ApiClient("http://127.0.0.1:1")
    asked = []
    client._request = lambda *arguments, **given: asked.append(arguments) or httpx.Response(200, json=[])  # type: ignore[method-assign]
    client.functions()
    client.declare_function("CREATE FUNCTION ...")
    client.drop_function("a b")
    assert asked == [("GET", "/v1/functions"), ("POST", "/v1/functions"), ("DELETE", "/v1/functions/a%20b")]
