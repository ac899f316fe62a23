"""An object that has a key twice is refused in the body of every request, at any depth, and the key is named."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from cluster.service.access.roles import NEEDED
from cluster.service.http import request_bodies
from cluster.service.http.request_bodies import SHORT_BYTES
from tests.cluster.service.conftest import Service
from tests.cluster.service.test_api import client

SQL = '"sql": "SELECT speed FROM traffic WHERE speed > :x"'
JSON = {"Content-Type": "application/json"}
BODIES = sorted(route for route in NEEDED if route[0] in {"POST", "PUT"})


@pytest.fixture
async def api(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with client(service) as found:
        yield found


def test_there_are_requests_with_bodies() -> None:
    assert ("POST", "/v1/queries") in BODIES
    assert ("PUT", "/v1/streams/{name}/budget") in BODIES


@pytest.mark.parametrize(("method", "path"), BODIES)
async def test_every_request_with_a_body_refuses_double_keys(
    api: httpx.AsyncClient, service: Service, method: str, path: str
) -> None:
    epoch = service.registry.epoch
    answer = await api.request(
        method, path.format(name="traffic"), content=b'{"sql": "a", "of": 1, "of": 2}', headers=JSON
    )
    assert answer.status_code == 400
    assert answer.json() == {
        "error": "RequestError",
        "message": f"{method}: an object in the body has the key 'of' twice",
        "hint": "leave one of the two out",
    }
    assert service.registry.epoch == epoch


@pytest.mark.parametrize(
    ("path", "body", "key"),
    [
        ("/v1/queries", f'{{{SQL}, "parameters": {{"x": 1}}, {SQL}}}', "'sql'"),
        ("/v1/queries", f'{{{SQL}, "parameters": {{"x": 1, "x": 1}}}}', "'x'"),
        ("/v1/queries", f'{{{SQL}, "parameters": {{"x": 1, "\\u0078": 2}}}}', "'x'"),  # the same key, with an escape
        ("/v1/queries", f'{{{SQL}, "parameters": {{"x": [{{"a": 1, "b": 1, "a": 2}}]}}}}', "'a'"),
        ("/v1/queries", f'{{{SQL}, "name": "a", "name": "a", "parameters": {{"x": 1}}}}', "'name'"),
        ("/v1/queries", f'{{{SQL}, "": 1, "": 2}}', "''"),
        ("/v1/queries", f'{{{SQL}, "\\ud800": 1, "\\ud800": 2}}', r"'\ud800'"),
        ("/v1/queries", f'{{{SQL}, "{"k" * 5000}": 1, "{"k" * 5000}": 2}}', f"'{'k' * 100}', ..."),
        ("/v1/queries/together", f'{{{SQL}, "rows": [{{"name": "a"}}, {{"name": "b", "name": "c"}}]}}', "'name'"),
    ],
)
async def test_the_key_is_named_at_any_depth(
    api: httpx.AsyncClient, service: Service, path: str, body: str, key: str
) -> None:
    answer = await api.post(path, content=body.encode(), headers=JSON)
    assert answer.status_code == 400
    assert answer.json()["message"] == f"POST: an object in the body has the key {key} twice"
    assert len(service.registry) == 0


@pytest.mark.parametrize("space", [0, SHORT_BYTES], ids=["short", "long, and so read in a thread"])
async def test_one_key_in_several_objects_is_not_twice(api: httpx.AsyncClient, space: int) -> None:
    rows = [{"name": name, "parameters": {"x": number}} for number, name in enumerate(("a", "b"))]
    body = json.dumps({"sql": "SELECT speed FROM traffic WHERE speed > :x", "parameters": {"x": 3}, "rows": rows})
    answer = await api.post("/v1/queries/together", content=(" " * space + body).encode(), headers=JSON)
    assert answer.status_code == 201
    twice = body.replace('"name": "b"', '"name": "c", "name": "d"')
    answer = await api.post("/v1/queries/together", content=(" " * space + twice).encode(), headers=JSON)
    assert answer.status_code == 400
    assert "'name' twice" in answer.json()["message"]


async def test_a_long_body_does_not_hold_up_other_requests(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse, threads = request_bodies.parse_body, list[threading.Thread]()

    def seen(body: bytes) -> Any:
        threads.append(threading.current_thread())
        return parse(body)

    monkeypatch.setattr(request_bodies, "parse_body", seen)
    for space in (0, SHORT_BYTES):
        content = " " * space + '{"sql": "SELECT speed FROM traffic"}'
        assert (await api.post("/v1/queries", content=content.encode(), headers=JSON)).status_code == 201
    assert [each is threading.current_thread() for each in threads] == [True, False]
