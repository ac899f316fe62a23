"""Each route of the API has a role, and each role may do what the table says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.routing import Route

from cluster.service.access.admission import Admission
from cluster.service.access.hosts import HostNames
from cluster.service.access.roles import NEEDED, Role, UnknownRequestError, role_needed
from cluster.service.access.tokens import Tokens, new_token, parse_tokens
from cluster.service.http.api import make_api
from cluster.service.http.sensor_questions import SensorQuestions
from tests.cluster.service.conftest import Service, application


def routes(api: FastAPI) -> Iterator[tuple[str, str]]:
    """Yield all routes of an API: those of FastAPI, and those that describe it."""
    for path, methods in api.openapi()["paths"].items():
        yield from ((method.upper(), path) for method in methods)
    for route in api.routes:
        if isinstance(route, Route):
            yield from ((method, route.path) for method in route.methods or () if method != "HEAD")


def make(service: Service) -> FastAPI:
    return make_api(service.parts(), CollectorRegistry(), Admission(), SensorQuestions())


async def test_every_route_has_a_role(service: Service) -> None:
    found = set(routes(make(service)))
    assert found - set(NEEDED) == set(), "declare their roles in cluster/service/access/roles.py"
    # ReDoc is off: FastAPI keeps no route for it.
    assert set(NEEDED) - found == set(), "these have a role, and are no routes"


async def test_a_forgotten_route_is_found_and_is_closed(service: Service) -> None:
    api = make(service)

    @api.get("/v1/forgotten")
    async def forgotten() -> None:
        """Do nothing."""

    assert set(routes(api)) - set(NEEDED) == {("GET", "/v1/forgotten")}
    with pytest.raises(UnknownRequestError):
        role_needed("GET", "/v1/forgotten")


def test_what_shows_reads_and_what_changes_does_more() -> None:
    read = {route for route, role in NEEDED.items() if role is Role.READ}
    assert {method for method, _ in read} == {"GET"}
    assert NEEDED["GET", "/v1/quarantine"] is Role.ADMIN
    for (method, path), role in NEEDED.items():
        if method != "GET":
            wanted = Role.QUERY if path.startswith(("/v1/queries", "/v1/explain")) else Role.ADMIN
            assert role is wanted, path
    assert {path for (_, path), role in NEEDED.items() if role is None} == {
        "/docs", "/docs/oauth2-redirect", "/openapi.json",
    }  # fmt: skip


def test_the_page_for_operators_has_each_route_with_its_role() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "protect-the-api.md").read_text("utf-8")
    rows = re.findall(r"^\| `([A-Z]+) (/[^`]*)` \| (none|read|query|admin) \|$", page, re.MULTILINE)
    assert {(method, path): role for method, path, role in rows} == {
        route: "none" if role is None else role.value for route, role in NEEDED.items()
    }
    (entry,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert [each.name for each in parse_tokens(entry)] == ["grafana"]


def test_roles_include_each_other_in_order() -> None:
    table = {(a, b): a.includes(b) for a, b in product(Role, Role)}
    assert [[table[a, b] for b in Role] for a in Role] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]
    assert Role.READ.includes(None)


@pytest.fixture
def tokens(tmp_path: Path) -> tuple[Tokens, dict[Role | None, str]]:
    drawn = {role: new_token(role.value, role) for role in Role}
    file = tmp_path / "tokens.toml"
    file.write_text("\n".join(entry.toml for _, entry in drawn.values()))
    return Tokens(file=file), {None: "no-token", **{role: token for role, (token, _) in drawn.items()}}


async def test_every_role_may_use_just_its_routes(
    service: Service, tokens: tuple[Tokens, dict[Role | None, str]]
) -> None:
    accepted, written = tokens
    async with application(service.parts(), tokens=accepted) as api:
        api._transport.raise_app_exceptions = False  # type: ignore[attr-defined] # no results, no relations here
        for (method, path), needed in NEEDED.items():
            for role, token in written.items():
                answer = await api.request(
                    method, path.replace("{name}", "a"), headers={"Authorization": f"Bearer {token}"}
                )
                if needed is None or (role is not None and role.includes(needed)):
                    assert answer.status_code not in {401, 403}, (method, path, role)
                else:
                    assert answer.status_code == (401 if role is None else 403), (method, path, role)
                    assert answer.json()["error"] == "NotAdmittedError"


async def test_too_small_a_role_is_named(service: Service, tokens: tuple[Tokens, dict[Role | None, str]]) -> None:
    accepted, written = tokens
    async with application(service.parts(), tokens=accepted) as api:
        authorised = {"Authorization": f"Bearer {written[Role.QUERY]}"}
        refused = await api.post("/v1/relations", json={"sql": "DROP RELATION a"}, headers=authorised)
        assert refused.status_code == 403
        assert refused.json()["message"] == "this needs a token of the role admin, and 'query' has the role query"


async def test_without_tokens_everyone_may_do_everything(service: Service) -> None:
    async with application(service.parts()) as api:
        assert (await api.get("/v1/quarantine")).status_code == 200


@pytest.mark.parametrize("path", ["/v1/nothing", "/v1/queries/", "/v1/queries/a/b", "//v1/queries", "/v1/streams/a/"])
async def test_strangers_do_not_learn_which_paths_there_are(service: Service, path: str) -> None:
    async with application(service.parts(), "secret") as api:
        assert (await api.get(path)).status_code == 401
        assert (await api.get(path, headers={"Authorization": "Bearer secret"})).status_code == 404


async def test_other_methods_are_refused_with_those_there_are(service: Service) -> None:
    async with application(service.parts(), hosts=HostNames(["cluster"])) as api:
        answer = await api.patch("/v1/queries/a")
        assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE, GET")
        assert answer.json()["hint"] == "GET /docs shows all paths and methods"
