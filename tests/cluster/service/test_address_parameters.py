"""Parameters in the address of a request: each once, and none that the route does not have."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.cluster.service.conftest import Service
from tests.cluster.service.test_api import client


@pytest.fixture
async def api(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with client(service) as found:
        yield found


@pytest.mark.parametrize(
    ("address", "message", "hint"),
    [
        ("/v1/plan/history?last=1&last=2", "the parameter 'last' is in the address twice", "leave one of the two out"),
        ("/v1/plan?format=text&%66ormat=dot", "the parameter 'format' is in the address twice", "leave one"),
        ("/v1/plan/history?lst=1", "there is no parameter 'lst' here", "did you mean last?"),
        ("/v1/sensors?sqll=SELECT", "there is no parameter 'sqll' here", "did you mean sql?"),
        ("/v1/plan/history?zzz=1", "there is no parameter 'zzz' here", "it takes last"),
        ("/v1/plan/history?=1", "there is no parameter '' here", "it takes last"),
    ],
)
async def test_odd_parameters_are_named(api: httpx.AsyncClient, address: str, message: str, hint: str) -> None:
    answer = await api.get(address)
    assert answer.status_code == 400
    assert message in answer.json()["message"]
    assert hint in answer.json()["hint"]


async def test_a_long_name_is_cut(api: httpx.AsyncClient) -> None:
    answer = await api.get(f"/v1/plan/history?{'x' * 3_000}=1")
    assert answer.status_code == 400
    assert len(answer.text) < 400


@pytest.mark.parametrize("address", ["/v1/plan/history?last=1", "/v1/plan/history?", "/v1/status?seen=1"])
async def test_parameters_that_are_right_or_that_no_route_reads_pass(api: httpx.AsyncClient, address: str) -> None:
    assert (await api.get(address)).status_code == 200
