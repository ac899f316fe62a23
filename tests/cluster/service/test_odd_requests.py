"""The API refuses odd requests with an error of the request; none is an internal failure."""

from __future__ import annotations

from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from cluster.service.http.catalog_routes import MOST_UNKNOWN
from cluster.service.http.error_responses import RequestError
from cluster.service.http.request_bodies import MOST_BYTES
from cluster.service.http.wanted_queries import MOST_TOGETHER, NewQueries, wanted_queries
from tests.cluster.service.conftest import Service
from tests.cluster.service.test_api import client

DEEP = 100_000
GOOD = b"SELECT speed FROM traffic"
ODD_BODIES = {
    "nothing": b"",
    "null": b"null",
    "cut": b"{",
    "list": b"[]",
    "number": b"1",
    "deep list": b"[" * DEEP,
    "deep object": b'{"sql":' * DEEP,
    "deep value": b'{"sql":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep rest": b'{"sql":"SELECT","x":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "huge integer": b'{"sql":' + b"9" * 5000 + b"}",
    "infinite": b'{"sql":1e400}',
    "no number": b'{"sql":NaN}',
    "ten megabytes": b'{"sql":"' + b"a" * 10_000_000 + b'"}',
    "half a surrogate": b'{"sql":"SELECT \\ud800 FROM traffic"}',
    "half a surrogate as a value": b'{"sql":"SELECT :x AS y FROM traffic","parameters":{"x":"\\udfff"}}',
    "not UTF-8": b'{"sql":"\xff"}',
    "NUL": b'{"sql":"SELECT\\u0000"}',
    "true": b'{"sql":true}',
    "UTF-16": '{"sql":"SELECT"}'.encode("utf-16"),
    "double keys": b'{"sql":"' + GOOD + b'","sql":"SELECT nothing"}',
}
ODD_QUERIES = {
    "half a surrogate as a name": b'{"sql":"' + GOOD + b'","name":"\\ud800"}',
    "number as a name": b'{"sql":"' + GOOD + b'","name":1}',
    "NUL as a name": b'{"sql":"' + GOOD + b'","name":"\\u0000"}',
}
ODD_NAMES = ["..%2F..", "%00", "%ff", "%ed%a0%80", "a" * 5000, "%F0%9F%98%80", "a%0Ab", "%27"]
ODD_NUMBERS = ["-1", "9223372036854775808", "9" * 5000, "1e400", "nan", "", "%00", "%ff", "1&after=x"]


@pytest.fixture
async def api(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with client(service) as found:
        yield found


@pytest.mark.parametrize("path", ["/v1/queries", "/v1/explain", "/v1/explain/energy", "/v1/streams", "/v1/relations"])
@pytest.mark.parametrize("body", ODD_BODIES.values(), ids=ODD_BODIES)
async def test_odd_bodies_are_refused(api: httpx.AsyncClient, path: str, body: bytes) -> None:
    answer = await api.post(path, content=body, headers={"Content-Type": "application/json"})
    assert 400 <= answer.status_code < 500
    assert len(answer.content) < 10_000, "the request is not echoed"


@pytest.mark.parametrize("body", ODD_QUERIES.values(), ids=ODD_QUERIES)
async def test_queries_of_odd_names_are_refused(api: httpx.AsyncClient, body: bytes) -> None:
    answer = await api.post("/v1/queries", content=body, headers={"Content-Type": "application/json"})
    assert 400 <= answer.status_code < 500
    assert (await api.get("/v1/queries")).json() == []


@pytest.mark.parametrize("path", ["/v1/queries/{}", "/v1/streams/{}", "/v1/relations/{}"])
@pytest.mark.parametrize("name", ODD_NAMES)
async def test_odd_names_are_unknown(api: httpx.AsyncClient, path: str, name: str) -> None:
    answer = await api.delete(path.format(name))
    assert answer.status_code in {404, 405, 409}
    if "streams" not in path:
        assert (await api.get(path.format(name))).status_code == 404


@pytest.mark.parametrize("number", ODD_NUMBERS)
async def test_odd_numbers_are_refused(api: httpx.AsyncClient, number: str) -> None:
    answer = await api.get(f"/v1/queries/x/results?limit=1&after={number}")
    assert answer.status_code == (400 if "&" in number else 422)  # the parameter is there twice


async def test_an_endless_body_is_refused_without_reading_it(api: httpx.AsyncClient) -> None:
    piece, pieces = b" " * 65_536, 0
    sent: list[tuple[str, int]] = []

    async def receive() -> dict[str, Any]:
        nonlocal pieces
        pieces += 1
        return {"type": "http.request", "body": piece, "more_body": pieces < 200}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append((str(message.get("status", message["type"])), pieces))

    request = {"method": "POST", "path": "/v1/queries", "headers": [(b"host", b"localhost")]}
    head = {"type": "http", "scheme": "http", **request}
    await api._transport.app(head, receive, send)  # type: ignore[attr-defined]
    assert [what for what, _ in sent] == ["413", "http.response.body", "http.response.body"]
    assert sent[1][1] * len(piece) <= MOST_BYTES + 2 * len(piece), "all of the answer is sent before more is read"


@pytest.mark.parametrize(
    ("body", "most"),
    [
        ({"sql": "x", **{f"k{number}": 1 for number in range(10_000)}}, MOST_UNKNOWN),
        ({f"k{number}": 1 for number in range(10_000)}, MOST_UNKNOWN + 1),
        ({"sql": "x", "rows": [{"z": 1}] * 10_000}, 1),
        ({"sql": "x", "rows": [{f"k{number}": 1 for number in range(10_000)}]}, MOST_UNKNOWN),
        ({"sql": "x", "rows": [1] * 10_000}, 1),
        ({"sql": "x", "rows": [{}] * (MOST_TOGETHER + 1)}, 1),
    ],
    ids=["fields", "fields and no statement", "rows with one", "one row with many", "rows of numbers", "rows"],
)
def test_a_body_with_very_many_faults_has_few_errors(body: dict[str, Any], most: int) -> None:
    """Each error takes time and memory in the cluster: 16 MiB of them took 30 s, in which nothing was answered."""
    with pytest.raises(ValidationError) as raised:
        NewQueries.model_validate(body)
    assert raised.value.error_count() == most


def test_a_text_of_very_many_statements_is_not_read_to_its_end() -> None:
    with pytest.raises(RequestError, match="more than 100,000 statements"):
        wanted_queries(NewQueries(sql="x;" * (MOST_TOGETHER + 1)))
    assert len(wanted_queries(NewQueries(sql="x;" * MOST_TOGETHER))) == MOST_TOGETHER
