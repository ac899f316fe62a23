"""The parts of a cluster without Spark and without a broker."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry

from cluster.errors import StorageError
from cluster.ingest.service import Ingest
from cluster.physical.plan_files import PlanFiles
from cluster.relations.allowed_files import AllowedFiles
from cluster.relations.opening import Reach
from cluster.service.access.admission import Admission
from cluster.service.access.hosts import HostNames
from cluster.service.access.tokens import Tokens
from cluster.service.billing.periods import BillingPeriods, Ledger
from cluster.service.catalog.relation_store import RelationStore
from cluster.service.catalog.sensor_catalog import SensorCatalog
from cluster.service.catalog.stream_service import ReservedNames
from cluster.service.catalog.stream_settings import GoneProxies, StreamBudgets
from cluster.service.http.api import make_api
from cluster.service.http.guard import AdmissionMetrics, guarded
from cluster.service.http.metrics import ClusterMetrics
from cluster.service.http.sensor_questions import SensorQuestions
from cluster.service.publishing.published import LostResults
from cluster.service.queries.query_service import QueryService
from cluster.service.registry.registry import Registry
from cluster.service.running.engine import Engine, notes_in
from cluster.service.running.overrun_watch import OverrunWatch
from cluster.service.running.parts import ClusterParts
from cluster.service.running.settings import ClusterSettings
from cluster.storage.budgets import Budget
from cluster.storage.results_retention import ResultsRetention
from cluster.storage.stream_tables import arrow_schema
from protocols.mqtt.link import LinkError, Message
from protocols.security.certificates import Purpose, issue, make_authority
from protocols.security.private_files import PUBLIC, SECRET, write_file
from protocols.security.tls import TlsFiles
from protocols.wire import topics
from protocols.wire.catalog import StreamOffer
from protocols.wire.frames import encode
from protocols.wire.streams import Field, FieldType, StreamSchema

TRAFFIC = StreamSchema(
    "traffic",
    (
        Field("sensor", FieldType.TEXT, fixed=True),
        Field("speed", FieldType.REAL, "mph"),
        Field("lane", FieldType.INTEGER),
    ),
)


def traffic_rows(stamps: list[int]) -> pa.Table:
    """Return rows of :data:`TRAFFIC` as they are stored, with these stamps and otherwise equal."""
    count = len(stamps)
    columns = {
        "fjord_start_us": stamps,
        "fjord_mote": ["m"] * count,
        "fjord_default_rate": [True] * count,
        "sensor": ["a"] * count,
        "speed": [1.0] * count,
        "lane": [1] * count,
    }
    return arrow_schema(TRAFFIC).empty_table().from_pydict(columns, arrow_schema(TRAFFIC))


@dataclass
class FakeLink:
    """Keeps published messages, or fails like a link whose broker is away."""

    published: list[Message] = field(default_factory=list)
    away: bool = False
    connected: asyncio.Event = field(default_factory=asyncio.Event)
    trouble: str | None = None
    connects_total: int = 0
    hangs_total: int = 0

    async def publish(self, message: Message) -> None:
        if self.away:
            raise LinkError("not connected to the broker")
        self.published.append(message)


class NoResults:
    """A results table without rows."""

    use = None
    retention = ResultsRetention("://")

    def last_sequence(self, query: str) -> int:
        return 0


class Service:
    """The parts of a cluster over one folder, without Spark; the ingest has a stream `traffic`."""

    def __init__(self, folder: Path) -> None:
        self.plans = PlanFiles(folder / "plans")
        self.registry = Registry(folder / "registry.sqlite", self.plans, max_queries=5)
        self.link: Any = FakeLink()
        self.ingest = Ingest(
            folder / "streams",
            quarantine=self.registry.quarantine.keep,
            link=self.link,
            reserved_for=self._reserved_for,
        )
        ledger = Ledger()
        self.sensors = SensorCatalog(accepted=ledger.note, mismatches=lambda: self.ingest.offers.mismatches)
        self.publishers: Any = SimpleNamespace(
            published_rows=0,
            unpublished_commits=0,
            unpublished_commits_of=lambda _: 0,
            lost=LostResults(),
            connected=True,
            trouble=None,
            status=dict,
            each=[],
        )
        self.billing = BillingPeriods(self.registry, self.ingest, self.sensors, ledger)
        self.queries = self.started()

    def started(self, relations: RelationStore | None = None, **settings: Any) -> QueryService:
        """Return a query service as the cluster has it after a restart."""
        folder = self.registry.folder
        reach = Reach(AllowedFiles([folder], never=[folder / "registry.sqlite"]))
        self.names = ReservedNames(
            relations or RelationStore(self.registry.relations, folder / "relations", reach=reach)
        )
        return QueryService(
            "cluster", self.registry, self.ingest, self.link, self.names, before_change=self.billing.close, **settings
        )

    def _reserved_for(self, name: str) -> str | None:
        return self.names.reserved_for(name)  # the names of the last start

    async def handle(self, topic: str, payload: bytes) -> None:
        ack = self.ingest.handle(Message(topic, payload), topics.parse(topic))
        if ack is not None:
            await self.ingest.acknowledge([ack])

    def parts(self, **others: Any) -> ClusterParts:
        """Return the parts of a cluster without results; `others` take the place of some."""
        settings, results = ClusterSettings(), others.pop("results", NoResults())
        made: dict[str, Any] = {
            "settings": settings,
            "registry": self.registry,
            "link": self.link,
            "ingest": self.ingest,
            "sensors": self.sensors,
            "budgets": StreamBudgets(self.registry, Budget()),
            "gone_proxies": GoneProxies(self.registry, None),
            "lags": SimpleNamespace(now=dict),
            "results": results,
            "queries": self.queries,
            "billing": self.billing,
            "publishers": self.publishers,
            "engine": Engine(settings, self.registry.folder, self.registry, results, 4),
            "overruns": OverrunWatch(notes_in(self.registry.folder), results, self.queries.set_aside),
        }
        return ClusterParts(**{**made, **others})


def guarded_api(parts: ClusterParts, admission: Admission, **settings: Any) -> Any:
    """Return the HTTP API of a cluster as it is served, with its metrics."""
    metrics = ClusterMetrics(parts, CollectorRegistry()).registry
    AdmissionMetrics(admission, metrics)
    return guarded(make_api(parts, metrics, admission, SensorQuestions()), admission, **settings)


def application(parts: ClusterParts, token: str | None = None, **admission: Any) -> httpx.AsyncClient:
    """Return a client of the HTTP API of a cluster that is called `cluster`."""
    admission = {"tokens": Tokens(token), "hosts": HostNames(["cluster"]), **admission}
    api = guarded_api(parts, Admission(**admission))
    return httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://cluster")


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    found = Service(tmp_path)
    await found.handle(topics.stream_offer("p", "traffic"), encode(StreamOffer(1, "p", TRAFFIC)))
    yield found
    with contextlib.suppress(StorageError, sqlite3.ProgrammingError):  # a test may have closed it
        found.registry.close()  # select() knows no file above 1,023, and there are many tests


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    """The files of a server, and its authority in place of the clients'."""
    folder, now = tmp_path_factory.mktemp("tls"), time.time()
    authority = make_authority("Test", now=now, days=30)
    pair = issue(authority, "api", Purpose.SERVER, hosts=["localhost"], now=now, days=20)
    write_file(folder / "ca.crt", authority.certificate, mode=PUBLIC)
    write_file(folder / "api.crt", pair.certificate, mode=PUBLIC)
    write_file(folder / "api.key", pair.key, mode=SECRET)
    return TlsFiles(str(folder / "ca.crt"), str(folder / "api.crt"), str(folder / "api.key"))
