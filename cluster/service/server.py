"""A whole cluster in one process, but for its publishers: ingest, engine, registry and API, under one task group."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import replace
from random import Random

from prometheus_client import CollectorRegistry

from cluster.errors import ClusterError
from cluster.ingest.service import Ingest
from cluster.physical.plan_files import PlanFiles
from cluster.service.access.admission import Admission
from cluster.service.access.hosts import HostNames, Origins
from cluster.service.access.tokens import Tokens
from cluster.service.catalog.sensor_catalog import Connected, SensorCatalog
from cluster.service.data_folder.folder import REGISTRY, open_folder
from cluster.service.http.api import make_api
from cluster.service.http.connections import ApiServer, ConnectionBounds, api_config, listen
from cluster.service.http.guard import AdmissionMetrics, guarded
from cluster.service.http.metrics import ClusterMetrics
from cluster.service.http.request_bodies import ASGIApp
from cluster.service.http.sensor_questions import SensorQuestions
from cluster.service.http.taped_api import TapedApi
from cluster.service.own_name import seals_of
from cluster.service.publishing.demand_publication import DemandReports, DemandRequests
from cluster.service.registry.registry import Registry
from cluster.service.running.early import Begun
from cluster.service.running.parts import BrokerLink, Sources, make_parts
from cluster.service.running.settings import ClusterSettings
from protocols.errors import FrameError, ProtocolError, TopicError
from protocols.event_log import SparingLog, get_logger
from protocols.mqtt.link import LinkError, Message, MqttLink, Subscription
from protocols.presence.name_claim import concerns_another
from protocols.recording.timeline import Timeline
from protocols.security.expiry import ExpiryCollector
from protocols.stimulus import HANDLED
from protocols.wire import topics
from protocols.wire.catalog import Presence, Status
from protocols.wire.frames import VERSION, encode

log = get_logger(__name__)

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class ClusterServer:
    """A cluster.

    Parameters
    ----------
    settings
        How to run it.
    begun
        What of it runs already; None begins here.
    timeline
        Records what happens, or replays it; None for neither. A replay has neither Spark, publishers nor API.
    since_us
        When the process began, in real time, as it has claimed its name; None for now.

    Raises
    ------
    ClusterError
        If another cluster uses the data folder, it is of an unsupported format or at a path that would be misread, the
        API would be open to the network without a token, or the file of tokens cannot be used.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        begun: Begun | None = None,
        timeline: Timeline | None = None,
        *,
        since_us: int | None = None,
    ) -> None:
        tokens = Tokens(settings.api_token, settings.api_tokens)
        if settings.api_host not in LOOPBACK and not tokens.required:
            raise ClusterError(
                f"the API would listen on {settings.api_host} without a token",
                hint="set FJORD_API_TOKEN, give a file of tokens (--api-tokens), or listen on 127.0.0.1",
            )
        hosts = HostNames((settings.api_host, *settings.api_allowed_hosts))
        self.admission = Admission(tokens, hosts, Origins(settings.api_allowed_origins))
        if timeline is not None:
            settings = replace(settings, replan=False)  # plans are chosen by what Spark measures, which is in no log
        self._settings = settings
        self._timeline = timeline
        self._outside = copy_context() if timeline is None else timeline.outside
        self._clock = time.time if timeline is None else lambda: timeline.real_us() / 1e6
        self._since_us = round(self._clock() * 1e6) if since_us is None else since_us
        self._folder = open_folder(settings.folder, adopt=settings.adopt) if begun is None else begun.folder
        path = self._folder.path
        self._registry = Registry(path / REGISTRY, PlanFiles(path / "plans"), max_queries=settings.max_queries)
        self._link = self._make_link()
        java, own = None if begun is None else begun.java, self._status(Presence.ONLINE)
        self.parts = make_parts(settings, path, self._registry, self._link, java, sources=self._sources(), own=own)
        self.metrics = ClusterMetrics(self.parts, CollectorRegistry())
        AdmissionMetrics(self.admission, self.metrics.registry)
        self.metrics.registry.register(ExpiryCollector(settings.certificates))
        self._questions = SensorQuestions()
        self._sparing = SparingLog()
        self._taped_api = None if timeline is None else TapedApi(self._make_api(), timeline)
        self._stopping = asyncio.Event() if timeline is None else timeline.stopped

    def stop(self) -> None:
        """Begin to stop; :meth:`run` then returns."""
        self._stopping.set()

    def close(self) -> None:
        """Release the data folder; :meth:`run` does so itself."""
        self._registry.close()
        self._folder.close()

    async def run(self, *, ready: asyncio.Event | None = None) -> None:
        """Run until :meth:`stop`. `ready` is set when the API answers and the engine runs."""
        parts = self.parts
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(self._link.run_in_bursts(self._handle), name="link"),
                    tasks.create_task(parts.ingest.run(), name="ingest"),
                    tasks.create_task(parts.queries.run(), name="relations"),
                ]
                async with self._surrounded(tasks, ready):
                    await self._stopping.wait()
                    await self._publish_offline()
                    for task in running:
                        task.cancel()
        finally:
            self._questions.end()
            await asyncio.to_thread(parts.engine.stop)
            self.close()

    @asynccontextmanager
    async def _surrounded(self, tasks: asyncio.TaskGroup, ready: asyncio.Event | None) -> AsyncIterator[None]:
        """Run what is not replayed: the engine, publishers and the API."""
        if self._timeline is not None and not self._timeline.is_real:
            yield
            return
        parts = self.parts
        on_commit = parts.publishers.notify_from(asyncio.get_running_loop())

        def begin(work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
            return tasks.create_task(work, name=name, context=self._outside.copy())

        running = [
            begin(parts.publishers.run(), "publishers"),
            begin(parts.engine.keep_log_small(), "log of Spark"),
            begin(parts.overruns.run(on_commit), "overruns"),
        ]
        async with self._serving(tasks):
            running.append(begin(parts.engine.run(on_commit, ready), "engine"))
            running.append(begin(parts.engine.archive_classes(), "archive of classes"))
            yield
            for task in running:
                task.cancel()

    @asynccontextmanager
    async def _serving(self, tasks: asyncio.TaskGroup) -> AsyncIterator[None]:
        """Serve the API; a port that is in use is an error before the engine starts."""
        settings = self._settings
        server = ApiServer(api_config(self.guarded_api(), ConnectionBounds(self.admission.count), tls=settings.api_tls))
        listening = listen(settings.api_host, settings.api_port)
        serving = tasks.create_task(server.serve(sockets=[listening]), name="api", context=self._outside.copy())
        log.info("API listens", address=replace(settings, api_port=listening.getsockname()[1]).api_address)
        try:
            yield
        finally:
            server.should_exit = True
            await serving

    def guarded_api(self) -> ASGIApp:
        """Return the API with what decides which requests get to it."""
        return guarded(self._taped_api or self._make_api(), self.admission)

    def _make_api(self) -> ASGIApp:
        return make_api(self.parts, self.metrics.registry, self.admission, self._questions)

    def _sources(self) -> Sources | None:
        timeline = self._timeline
        if timeline is None:
            return None
        chance = Random(self._registry.engine_id).random  # noqa: S311 - the same when it is replayed
        return Sources(self._clock, lambda: timeline.radio_us() / 1e6, chance)

    def _make_link(self) -> BrokerLink:
        if self._timeline is None:
            return self._mqtt_link(self._connected, None)
        return self._timeline.taped_link(self._mqtt_link, self._connected)

    def _mqtt_link(self, connected: Callable[[], Awaitable[None]], lost: Callable[[], None] | None) -> MqttLink:
        name = self._settings.name
        read = Ingest, SensorCatalog, DemandReports, DemandRequests
        subscriptions = [each for reader in read for each in reader.subscriptions]
        subscriptions.append(Subscription(topics.cluster_claim(name)))
        return MqttLink(
            self._settings.broker,
            # Two of the same name must not take the connection from each other for ever.
            client_id=f"fjord-cluster-{name}-{self._registry.engine_id}",
            subscriptions=list(dict.fromkeys(subscriptions)),
            births=[self._presence(Presence.ONLINE)],
            will=self._presence(Presence.OFFLINE),
            on_connect=connected,
            on_disconnect=lost,
            silence_seconds=self._settings.broker_silence_seconds,
            seals=seals_of(self._settings, self._folder.path),
        )

    async def _handle(self, messages: Sequence[Message]) -> None:
        """Handle messages that came together, one after another."""
        ingest, acks = self.parts.ingest, []
        for message in messages:
            HANDLED.set(message)
            if message.refusal:
                ingest.refuse(message, FrameError(message.refusal, "its seal is not right"))
                continue
            try:
                topic = topics.parse(message.topic)
            except TopicError as error:
                self._log_rejected(message, error)
                continue
            if topic.kind == "cluster_claim":
                await self._answer_claim(message)
                continue
            if topic.kind != "batches":  # as most are
                self.parts.sensors.handle(message, topic)
                self.parts.queries.demand_reports.handle(message, topic)
                self.parts.queries.demand_requests.handle(message, topic)
            ack = ingest.handle(message, topic)
            if ack is not None:
                acks.append(ack)
        if acks:
            await ingest.acknowledge(acks)
        HANDLED.set(None)

    async def _connected(self) -> None:
        self.parts.ingest.connected()
        self.parts.sensors.apply(Connected())
        self.parts.queries.demand_reports.connected()
        await self.parts.queries.publish_all_demands()

    async def _answer_claim(self, message: Message) -> None:
        """Answer another cluster of the same name that starts: it refuses to run then."""
        try:
            concerns = not message.retain and concerns_another(message.payload, self._status(Presence.ONLINE))
        except ProtocolError as error:
            self._log_rejected(message, error)
            return
        if not message.retain and not concerns:
            self.parts.ingest.attention.echoed()
        if concerns:
            log.error("another cluster of the same name was started: it is refused", cluster=self._settings.name)
            with contextlib.suppress(LinkError):
                await self._link.publish(self._presence(Presence.ONLINE))

    def _log_rejected(self, message: Message, error: ProtocolError) -> None:
        if times := self._sparing.due("", self._clock()):
            log.warning("message rejected", topic=message.topic, error=str(error), times=times)

    async def _publish_offline(self) -> None:
        if self._link.connected.is_set():
            await self._link.publish(self._presence(Presence.OFFLINE))

    def _presence(self, presence: Presence) -> Message:
        return Message(topics.cluster_status(self._settings.name), encode(self._status(presence)), retain=True)

    def _status(self, presence: Presence) -> Status:
        return Status(VERSION, self._settings.name, presence, self._registry.engine_id, self._since_us)
