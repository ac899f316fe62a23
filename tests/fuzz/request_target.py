"""Requests to the HTTP API of one cluster, without Spark: bodies, paths and parameters, nearly right or damaged."""

from __future__ import annotations

import asyncio
import json
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.storage.results_table import ResultsTable
from protocols.wire import topics
from protocols.wire.catalog import StreamOffer
from protocols.wire.frames import VERSION, encode
from tests.cluster.oracle.text_leaves import Turns
from tests.cluster.oracle.text_queries import random_text
from tests.cluster.oracle.text_world import SCHEMAS
from tests.cluster.oracle.text_writing import written
from tests.cluster.service.conftest import Service, application
from tests.fuzz.drawing import TEXTS, damaged
from tests.fuzz.statement_target import PLANNING_SECONDS, SECRET, worse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    import httpx

    from protocols.errors import FjordError

MOST_REQUESTS = 8
LONGEST_ERROR_BYTES = 20_000
"""A response to a request that is refused may show a part of it."""
DEEP = 5_000
NAMES = (
    "q",
    "r",
    "x-1",
    "alpha",
    "beta",
    "wild",
    "unknown",
    "",
    "..%2F..",
    "%00",
    "%ff",
    "%ed%a0%80",
    "a%0Ab",
    "a" * 300,
)
NUMBERS = ("0", "1", "10", "-1", "9223372036854775807", "9223372036854775808", "9" * 5000, "1e400", "nan", "", "%00")
SHOWN = (
    "/v1/status", "/v1/streams", "/v1/queries", "/v1/relations", "/v1/sensors", "/v1/plan", "/v1/plan/difference",
    "/v1/plan/history",
    "/v1/plan/operators", "/v1/bill", "/v1/quarantine", "/metrics", "/docs", "/openapi.json",
)  # fmt: skip
NAMED = ("/v1/queries/{}", "/v1/relations/{}", "/v1/streams/{}", "/v1/streams/{}/budget", "/v1/streams/{}/gone-after")
PARAMETERS = ("limit", "after", "since", "format", "where", "sql", "nonsense")
CONDITIONS = (
    "kind = 'loop'", "mote LIKE '%1' OR NOT online", "SELECT * FROM sensors", "1 = 1",
    "SELECT COUNT(*) FROM sensors GROUP BY proxy", "((((", "online = ", "mote IN ('a', 'b')",
)  # fmt: skip
ODD_VALUES = (
    None, True, 0, -1, 1.5, 2**62, 2**64, 10**400, "", "\0", "x" * 70_000, [], {}, [[]], {"sql": "SELECT"}, *TEXTS,
)  # fmt: skip
NESTED = (b"[" * DEEP, b'{"sql":' * DEEP, b'{"sql":' + b"[" * DEEP + b"]" * DEEP + b"}", b'{"age_seconds":1e400}')
TYPES = (
    "application/json",
    "application/json",
    "application/json",
    "text/plain",
    "application/json; charset=utf-16",
    "",
)


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent."""

    method: str
    path: str
    body: bytes = b""
    content_type: str = "application/json"


class RequestTarget:
    """A few requests to one cluster, one after the other."""

    name = "requests"
    errors: tuple[type[FjordError], ...] = ()
    limit_seconds = PLANNING_SECONDS + 1.0

    def steps(self, dice: Random) -> Iterator[Callable[[], object]]:
        """Yield one request after the other; in the end, the cluster still shows what it runs."""
        with tempfile.TemporaryDirectory(prefix="fjord-fuzz-") as folder, asyncio.Runner() as runner:
            service = Service(Path(folder))
            results = ResultsTable(str(Path(folder, "results")), service.registry.engine_id)
            client = application(service.parts(results=results))
            try:
                runner.run(_offer_streams(service))
                for _ in range(dice.randrange(1, MOST_REQUESTS)):
                    request = drawn_request(dice, Path(folder))
                    yield partial(_sent, runner, client, request)
                yield partial(_sent, runner, client, Request("GET", "/v1/queries"), accepted=True)
            finally:
                runner.run(client.aclose())
                service.registry.close()


async def _offer_streams(service: Service) -> None:
    for name, schema in SCHEMAS.items():
        await service.handle(topics.stream_offer("p", name), encode(StreamOffer(VERSION, "p", schema)))


def drawn_request(dice: Random, folder: Path) -> Request:
    """Return a request that is right, or wrong in one or more places."""
    match dice.randrange(8):
        case 0 | 1 | 2:
            derived, text = written(random_text(dice, Turns()))
            sql = dice.choice([*derived, text])
            path = dice.choice(("/v1/queries", "/v1/queries", "/v1/explain", "/v1/explain/energy", "/v1/streams"))
            content = {"sql": sql if dice.random() < 0.6 else worse(sql, dice)}
            return _posted(path, content | ({"name": dice.choice(NAMES)} if dice.random() < 0.4 else {}), dice)
        case 3:
            sql = f"CREATE RELATION {dice.choice(('r', 's'))} (k TEXT, n INTEGER) FROM '{folder / 'none.csv'}'"
            return _posted("/v1/relations", {"sql": sql if dice.random() < 0.4 else worse(sql, dice)}, dice)
        case 4:
            budget = {
                "age_seconds": dice.choice((1, 1e-6, 1e12, 0, -1, None)),
                "bytes": dice.choice((1, 2**62, 0, None)),
            }
            return _posted(NAMED[3].format(dice.choice(NAMES)), budget, dice, method="PUT")
        case 5:
            return Request("DELETE", dice.choice(NAMED).format(dice.choice(NAMES)))
        case 6:
            return Request(
                dice.choice(("GET", "GET", "GET", "HEAD", "PATCH")), _with_parameters(dice.choice(SHOWN), dice)
            )
        case _:
            results = NAMED[0].format(dice.choice(NAMES)) + dice.choice(("", "/results", "/results/x"))
            return Request("GET", _with_parameters(results, dice))


def _posted(path: str, content: dict[str, Any], dice: Random, *, method: str = "POST") -> Request:
    """Return a request with a body, often one of another form."""
    match dice.randrange(8):
        case 0:
            content[dice.choice((*content, "name", "sql", "more"))] = dice.choice(ODD_VALUES)
        case 1:
            del content[dice.choice(list(content))]
    body = json.dumps(content, ensure_ascii=dice.random() < 0.5).encode("utf-8", "surrogatepass")
    match dice.randrange(10):
        case 0:
            body = damaged(body, dice)
        case 1:
            body = dice.choice(NESTED)
        case 2:
            body = body[:-1] + b"," + body[1:]
    return Request(method, path, body, TYPES[0] if dice.random() < 0.8 else dice.choice(TYPES))


def _with_parameters(path: str, dice: Random) -> str:
    chosen = dice.sample(PARAMETERS, dice.choice((0, 0, 1, 2)))
    values = (CONDITIONS if each in {"where", "sql"} and dice.random() < 0.7 else NUMBERS for each in chosen)
    pairs = "&".join(f"{name}={dice.choice(of)}" for name, of in zip(chosen, values, strict=True))
    return f"{path}?{pairs}" if pairs else path


def _sent(runner: asyncio.Runner, client: httpx.AsyncClient, request: Request, *, accepted: bool = False) -> None:
    """Send a request; it is accepted, or refused with one of our own errors that shows nothing of others."""
    headers = {"Content-Type": request.content_type} if request.content_type else {}
    answer = runner.run(client.request(request.method, request.path, content=request.body, headers=headers))
    assert answer.status_code < 400 or not accepted, answer.text
    if answer.status_code < 400 or request.method == "HEAD":
        return
    assert answer.status_code < 500 or answer.status_code in {503, 507}, f"{answer.status_code}: {answer.text[:200]}"
    assert len(answer.content) < LONGEST_ERROR_BYTES, f"an error of {len(answer.content):,} bytes"
    assert SECRET not in answer.text
    problem = answer.json()
    assert problem["error"], problem
    assert problem["message"], problem
