"""The plans with which running queries could go on: listed, numbered, and taken."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import nullcontext

import httpx
import pytest
from click.testing import CliRunner
from typer.main import get_command

from cluster.plan.alternatives import AS_PLANNED
from cluster.service import plan_command
from cluster.service.plan_command import plan
from tests.cluster.service.conftest import Service, application

JOINED = (
    "SELECT a.speed, b.lane, c.speed AS last FROM traffic a WINDOW(RANGE 1 MINUTE), traffic b WINDOW(RANGE 1 SECOND), "
    "traffic c WINDOW(RANGE 1 HOUR) WHERE a.sensor = b.sensor AND b.lane = c.lane"
)
SINGLE = "SELECT speed FROM traffic WHERE speed > 3"
COUNTED = "SELECT speed FROM traffic WINDOW(ROWS 10) WHERE speed > 3"


@pytest.fixture
async def api(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with application(service.parts()) as found:
        yield found


async def _add(api: httpx.AsyncClient, sql: str, name: str) -> None:
    assert (await api.post("/v1/queries", json={"sql": sql, "name": name})).status_code == 201


async def test_plans_are_listed_and_the_one_that_runs_is_marked(api: httpx.AsyncClient) -> None:
    await _add(api, JOINED, "joined")
    found = (await api.get("/v1/queries/joined/alternatives")).json()
    assert [each["number"] for each in found if each["runs"]] == [1]
    assert {each["number"]: each["what"] for each in found}[1] == AS_PLANNED
    (other,) = [each for each in found if "(traffic 1, (traffic 2, traffic 3))" in each["what"]]
    assert (other["migration"], other["refused"]) == ("whole", "")
    assert other["plan"].startswith("project speed, lane = lane_2, last = speed_3")


async def test_a_query_goes_on_with_a_plan_by_its_number(api: httpx.AsyncClient) -> None:
    await _add(api, JOINED, "joined")
    before = (await api.get("/v1/queries/joined/alternatives")).json()
    number = next(each["number"] for each in before if not each["runs"])
    done = await api.post("/v1/queries/joined/migrate", json={"to": number})
    assert (done.status_code, done.json()["state"]) == (202, "migrating")
    assert done.json()["why"] == f"plan {number} was asked for"
    after = (await api.get("/v1/queries/joined/alternatives")).json()
    assert [each["number"] for each in after if each["runs"]] == [1]
    (coming,) = [each for each in after if each["comes"]]
    assert (coming["number"], coming["at"], coming["waits_for"]) == (number, done.json()["at"], "")
    assert coming["migration"] == "whole"
    assert not any(each["refused"] for each in after)
    assert {each["number"]: each["plan"] for each in after} == {each["number"]: each["plan"] for each in before}
    again = await api.post("/v1/queries/joined/migrate", json={"to": number})
    assert (again.status_code, again.json()["message"]) == (409, "query 'joined' is going on with this plan already")
    back = await api.post("/v1/queries/joined/migrate", json={"to": 1})
    assert back.json()["waits_for"] == "another migration of the query to end"


@pytest.mark.parametrize("number", [4, 2**31])
async def test_a_number_that_names_no_plan_is_refused(api: httpx.AsyncClient, number: int) -> None:
    await _add(api, SINGLE, "single")
    refused = await api.post("/v1/queries/single/migrate", json={"to": number})
    assert refused.status_code == 404
    assert refused.json()["message"] == f"query 'single' has no plan {number}: it has one plan"
    assert refused.json()["hint"] == "list them: fjord plan alternatives single"
    unknown = await api.post("/v1/queries/other/migrate", json={"to": 1})
    assert (unknown.status_code, unknown.json()["hint"]) == (404, "running queries: single")


@pytest.mark.parametrize("body", [{}, {"to": 0}, {"to": -1}, {"to": "x"}, {"to": 1, "deadline_seconds": -1}])
async def test_what_is_no_number_is_refused(api: httpx.AsyncClient, body: dict[str, object]) -> None:
    await _add(api, SINGLE, "single")
    assert (await api.post("/v1/queries/single/migrate", json=body)).status_code == 422


async def test_the_plan_that_runs_is_refused(api: httpx.AsyncClient) -> None:
    await _add(api, COUNTED, "counted")
    (only,) = (await api.get("/v1/queries/counted/alternatives")).json()
    assert (only["number"], only["runs"]) == (1, True)
    refused = await api.post("/v1/queries/counted/migrate", json={"to": 1})
    assert (refused.status_code, refused.json()["message"]) == (409, "query 'counted' has this plan already")


class _Client:
    def __init__(self, found: list[dict[str, object]]) -> None:
        self.found, self.asked = found, []

    def alternatives(self, query: str, most: int) -> list[dict[str, object]]:
        self.asked.append((query, most))
        return self.found

    def migrate(self, query: str, number: int, deadline: float | None) -> dict[str, object]:
        self.asked.append((query, number, deadline))
        return {"waits_for": "" if number == 2 else "room", "at": "2026-11-26T10:00:00Z", "cut": True}


def _line(number: int | None, **other: object) -> dict[str, object]:
    return {
        "number": number, "what": f"plan {number}", "work_us": 1_500.0, "kept_rows": 20.0, "complete": True,
        "runs": False, "migration": "whole", "refused": "", "plan": f"tree {number}", "comes": False, "at": None,
        "waits_for": "", **other,
    }  # fmt: skip


def _command(monkeypatch: pytest.MonkeyPatch, client: _Client, *arguments: str) -> str:
    monkeypatch.setattr(plan_command, "make_client", lambda _: nullcontext(client))
    done = CliRunner().invoke(get_command(plan), [*arguments], catch_exceptions=False)
    return f"{done.exit_code}\n{done.output}"


def test_the_command_lists_marks_and_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        _line(2), _line(1, runs=True, migration=""),
        _line(3, migration="", refused="because", work_us=None, kept_rows=None), _line(4, migration="cut"),
    ]  # fmt: skip
    client = _Client(lines)
    shown = _command(monkeypatch, client, "alternatives", "q")
    assert [line.split()[:2] for line in shown.splitlines()[2:6]] == [
        ["2", "1.5ms"],
        ["*", "1"],
        ["3", "?"],
        ["4", "1.5ms"],
    ]
    assert "stay whole" in shown
    assert "are cut" in shown
    assert shown.rstrip().endswith("-: because")
    assert _command(monkeypatch, client, "alternatives", "q", "--show", "4") == "0\ntree 4\n"
    assert "has no plan 9" in _command(monkeypatch, client, "alternatives", "q", "--show", "9")


def test_the_command_shows_which_plan_comes_and_when(monkeypatch: pytest.MonkeyPatch) -> None:
    at = "2026-11-26T10:00:00.000000Z"
    client = _Client([_line(2, comes=True, at=at), _line(1, runs=True, migration="")])
    shown = _command(monkeypatch, client, "alternatives", "q").splitlines()
    assert [line.split()[:2] for line in shown[2:4]] == [[">", "2"], ["*", "1"]]
    assert shown[-1] == f"> q goes on with plan 2 from {at} on; until then it runs by the plan marked with *"
    client = _Client([_line(None, comes=True, waits_for="room: 3"), _line(1, runs=True, migration="")])
    shown = _command(monkeypatch, client, "alternatives", "q").splitlines()
    assert shown[-1] == "> q goes on with another plan later: it waits for room: 3"


def test_the_command_takes_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    client = _Client([])
    taken = _command(monkeypatch, client, "migrate", "q", "--to", "2", "--deadline", "30s")
    assert taken == "0\nq goes on with plan 2 from 2026-11-26T10:00:00Z on, where rows are cut\n"
    assert client.asked == [("q", 2, 30.0)]
    assert _command(monkeypatch, client, "migrate", "q", "--to", "3") == "0\nq waits for room\n"
    assert _command(monkeypatch, client, "migrate", "q", "--to", "0").startswith("2\n")
