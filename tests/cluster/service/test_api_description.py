"""The API does what it says of itself: requests drawn from its own description, by each role, and what is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import CheckFunction, load_all_checks
from schemathesis.specs.openapi import checks as described_by
from schemathesis.specs.openapi import schemas

from cluster.service.access.roles import NEEDED, Role
from cluster.service.access.tokens import Tokens, new_token
from cluster.storage.results_table import ResultsTable
from protocols.wire import topics
from protocols.wire.catalog import StreamOffer
from protocols.wire.frames import VERSION, encode
from tests.cluster.service.conftest import TRAFFIC, Service, application

CASES = 24
"""Requests of one route, each by every role; `make test` draws a share of them."""
ROLES: tuple[Role | None, ...] = (None, *Role)
UNAVAILABLE = {503, 507}
KNOWN = "known"
"""A query that runs all the time."""
DESCRIBED = sorted(route for route in NEEDED if route[1] not in {"/docs", "/docs/oauth2-redirect", "/openapi.json"})
CHECKS: list[CheckFunction] = [
    described_by.status_code_conformance,
    described_by.content_type_conformance,
    described_by.response_headers_conformance,
    described_by.response_schema_conformance,
]
STATEMENTS = {
    "/v1/queries": ["SELECT sensor, speed FROM traffic", "SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE 1 MINUTE)"],
    "/v1/queries/together": ["SELECT lane FROM traffic; SELECT speed FROM traffic WHERE lane = 2;"],
    "/v1/explain": ["SELECT AVG(speed) AS speed FROM traffic WINDOW(RANGE 1 MINUTE)"],
    "/v1/explain/energy": ["EXPLAIN ENERGY SELECT speed FROM traffic"],
    "/v1/streams": ["CREATE STREAM slow AS SELECT sensor, speed FROM traffic WHERE speed < 5", "DROP STREAM slow"],
    "/v1/relations": ["CREATE RELATION r (k TEXT) FROM 'none.csv'", "DROP RELATION r"],
    "/v1/functions": ["CREATE FUNCTION f(x REAL) RETURNS REAL AS 'math:sqrt'", "DROP FUNCTION f"],
}


class Described:
    """The API of a cluster with one query, and its description."""

    def __init__(self, folder: Path) -> None:
        self._runner = asyncio.Runner()
        self._service = Service(folder)
        offer = encode(StreamOffer(VERSION, "p", TRAFFIC))
        self._runner.run(self._service.handle(topics.stream_offer("p", "traffic"), offer))
        drawn = {role: new_token(role.value, role) for role in Role}
        (folder / "tokens.toml").write_text("\n".join(entry.toml for _, entry in drawn.values()))
        self._tokens: dict[Role | None, str] = {role: token for role, (token, _) in drawn.items()}
        results = ResultsTable(str(folder / "results"), self._service.registry.engine_id)
        tokens = Tokens(file=folder / "tokens.toml")
        self._client = application(self._service.parts(results=results), tokens=tokens)
        assert isinstance(self._client._transport, httpx.ASGITransport)
        self._client._transport.raise_app_exceptions = False
        self.schema = schemathesis.openapi.from_dict(self.send("GET", "/openapi.json", None).json())
        self.send("POST", "/v1/queries", Role.ADMIN, json={"sql": "SELECT speed FROM traffic", "name": KNOWN})

    def send(self, method: str, path: str, role: Role | None, **arguments: Any) -> httpx.Response:
        headers = {
            **(arguments.pop("headers", None) or {}),
            "Authorization": f"Bearer {self._tokens.get(role, 'none')}",
        }
        return self._runner.run(self._client.request(method, path, headers=headers, **arguments))

    def send_case(self, case: Case, role: Role | None) -> httpx.Response:
        """Send a case as it would be sent over the network."""
        wanted = case.as_transport_kwargs(base_url="http://cluster")
        try:
            prepared = httpx.Request(
                wanted["method"],
                wanted["url"],
                params=wanted.get("params"),
                json=wanted.get("json"),
                content=wanted.get("data"),
            )
        except httpx.InvalidURL:  # longer than httpx sends one
            reject()
        headers = {name: value for name, value in wanted["headers"].items() if name.lower() != "authorization"}
        return self.send(prepared.method, str(prepared.url), role, content=prepared.content, headers=headers)

    def forget(self) -> None:
        """Drop what a case has started, so that the next one finds room."""
        for each in self.send("GET", "/v1/queries", Role.ADMIN).json():
            if each["name"] != KNOWN:
                self.send("DELETE", f"/v1/queries/{each['name']}", Role.ADMIN)
        if self.send("GET", f"/v1/queries/{KNOWN}", Role.ADMIN).status_code == 404:
            self.send("POST", "/v1/queries", Role.ADMIN, json={"sql": "SELECT speed FROM traffic", "name": KNOWN})

    def close(self) -> None:
        self._runner.run(self._client.aclose())
        self._service.registry.close()
        self._runner.close()


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Described]:
    load_all_checks()
    # It is imported before other threads run: in Python 3.11 two threads cannot compile sources at the same time.
    assert schemas.OpenApiSchema
    found = Described(tmp_path_factory.mktemp("described"))
    yield found
    found.close()


def test_the_description_has_all_routes(described: Described) -> None:
    found = {
        (method.upper(), path) for path, methods in described.schema.raw_schema["paths"].items() for method in methods
    }
    assert found == set(DESCRIBED)


@pytest.mark.parametrize(("method", "path"), DESCRIBED)
@settings(max_examples=CASES, derandomize=True, database=None)
@given(data=st.data())
def test_answers_are_as_the_api_describes_them(
    described: Described, method: str, path: str, data: st.DataObject
) -> None:
    operation = described.schema[path][method]
    mode = data.draw(st.sampled_from(list(GenerationMode)))
    case = data.draw(operation.as_strategy(mode))
    checks = [*CHECKS, described_by.negative_data_rejection]
    if isinstance(case.body, dict) and path in STATEMENTS and data.draw(st.booleans()):
        case.body["sql"], checks = data.draw(st.sampled_from(STATEMENTS[path])), CHECKS
    if isinstance(case.path_parameters, dict) and "name" in case.path_parameters and data.draw(st.booleans()):
        case.path_parameters["name"], checks = KNOWN, CHECKS
    needed = NEEDED[method, path]
    for role in ROLES:
        response = described.send_case(case, role)
        if role is None or not role.includes(needed):
            assert response.status_code == (401 if role is None else 403), (role, case.as_curl_command())
        else:
            assert response.status_code not in {401, 403}, (role, case.as_curl_command())
        assert response.status_code < 500 or response.status_code in UNAVAILABLE, (
            case.as_curl_command(),
            response.text,
        )
        case.validate_response(response, checks=checks)
    described.forget()


def test_what_a_request_does_not_have_is_refused(described: Described) -> None:
    """A budget that was sent as `age` was none, and took away the one that there was."""
    for path, methods in described.schema.raw_schema["paths"].items():
        for method, operation in methods.items():
            if "requestBody" in operation:
                response = described.send(
                    method, path.replace("{name}", "traffic"), Role.ADMIN,
                    json={"sql": STATEMENTS.get(path, [""])[0], "to": 1, "unknown": 1},
                )  # fmt: skip
                assert response.status_code == 422, path
                assert "body.unknown: Extra inputs are not permitted" in response.json()["message"]
