"""Proxies can decode whatever CREATE STREAM accepts: else they would refuse the whole demand on the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cluster.language.errors import FjordSqlError
from protocols.errors import FjordError
from proxy.fleet.demand_assembly import DemandAssembly

if TYPE_CHECKING:
    from tests.cluster.service.conftest import Service

MANY = ", ".join(f"c{number} REAL" for number in range(300))


@pytest.mark.parametrize("text", [
    "CREATE STREAM odd (a REAL UNIT 'mph') SOURCE mqtt()",
    f"CREATE STREAM odd (a REAL UNIT '{'x' * 32}') SOURCE mqtt()",
    f"CREATE STREAM odd (a REAL UNIT '{'x' * 33}') SOURCE mqtt()",
    f"CREATE STREAM odd ({MANY}) SOURCE mqtt()",
    f"CREATE STREAM odd ({'a' * 64} REAL) SOURCE mqtt()",
    f"CREATE STREAM odd ({'a' * 65} REAL) SOURCE mqtt()",
    'CREATE STREAM odd ("a b" REAL) SOURCE mqtt()',
    'CREATE STREAM odd ("ä" REAL) SOURCE mqtt()',
    f"CREATE STREAM {'s' * 65} (a REAL) SOURCE mqtt()",
    'CREATE STREAM "o d/d" (a REAL) SOURCE mqtt()',
    "CREATE STREAM odd (a REAL) SOURCE mqtt('a/b')",
    f"CREATE STREAM odd (a REAL) SOURCE mqtt('{'p' * 65}')",
    "CREATE STREAM odd (a REAL) SOURCE mqtt('roadside')",
])  # fmt: skip
async def test_a_declaration_is_refused_unless_proxies_can_decode_it(service: Service, text: str) -> None:
    try:
        name = await service.queries.streams.execute(text)
    except FjordError as error:
        assert isinstance(error, FjordSqlError)
        return
    query, _ = await service.queries.add(f'SELECT * FROM "{name}"')
    payload = next(each.payload for each in reversed(service.link.published) if each.topic.endswith(f"/{name}"))
    found = DemandAssembly(name).receive_head(payload, 0)
    assert found is not None
    assert not found.unreadable
    demand = found.demand
    assert [each.query for each in demand.demands] == [query.name]
    assert demand.declared == service.ingest.schemas[name]
