"""The ingest as a service: listens to proxies, keeps a writer per stream."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import structlog

from cluster.errors import StorageError
from cluster.ingest.writer import StreamWriter
from cluster.storage.stream_tables import StreamTable, open_stream_tables
from protocols import topics
from protocols.batches import Ack, decode_batch
from protocols.catalog import Presence, decode_status, decode_stream_offer
from protocols.errors import FrameError, ProtocolError
from protocols.frames import encode
from protocols.mqtt import LinkError, Message, MqttLink, Subscription
from protocols.streams import StreamSchema

log = structlog.get_logger(__name__)

MAX_STREAMS = 1024


class Ingest:
    """Stores what proxies send.

    Parameters
    ----------
    folder
        Where the stream tables are.
    quarantine
        Keeps what was refused: (kind, reason, where from, bytes).
    commit_interval_seconds
        Least time between two commits of a stream.
    silence_seconds
        A proxy that is offline for this long no longer holds back its streams' watermarks.
    """

    def __init__(
        self,
        folder: Path,
        *,
        quarantine: Callable[[str, str, str, bytes], None],
        commit_interval_seconds: float = 0.1,
        silence_seconds: float = 30.0,
    ) -> None:
        self._folder = folder
        self._quarantine = quarantine
        self._commit_interval = commit_interval_seconds
        self._silence = silence_seconds
        self._link: MqttLink | None = None
        self._online: set[str] = set()
        self._tasks: asyncio.TaskGroup | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        self._offered_by: dict[str, set[str]] = {}
        self._only_proxy: dict[str, str] = {}
        self.writers: dict[str, StreamWriter] = {}
        self.refused: dict[str, int] = {}
        self.taken_name: Callable[[str], bool] = lambda _: False
        """Whether a new stream must not have a name, as something else has it."""
        for table in open_stream_tables(folder).values():
            self._make_writer(table)

    subscriptions = (
        Subscription(topics.batches("+")),
        Subscription(topics.proxy_status("+")),
        Subscription(topics.stream_offer("+", "+")),
    )

    @property
    def schemas(self) -> dict[str, StreamSchema]:
        """All streams there are, by name."""
        return {name: writer.table.schema for name, writer in self.writers.items()}

    def instants(self) -> dict[str, int]:
        """Return by stream an instant after everything stored or being stored of it; streams without tuples have none.

        What changes at these instants, with nothing awaited in between, changes for tuples that come later only.
        """
        found = {name: writer.admission.next_us for name, writer in self.writers.items()}
        return {name: instant for name, instant in found.items() if instant is not None}

    def attach(self, link: MqttLink) -> None:
        """Send acks over this link."""
        self._link = link

    async def run(self) -> None:
        """Commit for ever."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for writer in self.writers.values():
                self._start(writer)
            tasks.create_task(self._watch_proxies(), name="presence of proxies")

    def declare(self, schema: StreamSchema, *, only_proxy: str | None = None) -> None:
        """Make a stream known before any proxy offers it.

        Parameters
        ----------
        schema
            What every offer of the stream must agree with.
        only_proxy
            The one proxy that may feed it; None for any.

        Raises
        ------
        StorageError
            If there is a stream of this name with other columns, or too many streams.
        """
        if only_proxy is not None:
            self._only_proxy[schema.name] = only_proxy
        known = self.writers.get(schema.name)
        if known is None:
            if len(self.writers) >= MAX_STREAMS:
                raise StorageError(f"there are {MAX_STREAMS} streams already")
            writer = self._make_writer(StreamTable(str(self._folder / schema.name), schema))
            if self._tasks is not None:
                self._start(writer)
        elif known.table.schema != schema:
            StreamTable(known.table.root, schema)  # raises, and says what differs

    def feeding(self, stream: str) -> set[str]:
        """Return the proxies that offer a stream and are online."""
        return self._offered_by.get(stream, set()) & self._online

    def forget(self, stream: str) -> None:
        """Remove a stream and its table."""
        writer = self.writers.pop(stream)
        if (task := self._running.pop(stream, None)) is not None:
            task.cancel()
        self._offered_by.pop(stream, None)
        self._only_proxy.pop(stream, None)
        shutil.rmtree(writer.table.root)

    async def handle(self, message: Message, topic: topics.ParsedTopic) -> None:
        """Take a message on one of :attr:`subscriptions`; bad ones are refused, counted and kept."""
        try:
            match topic.kind:
                case "batches":
                    await self._batch(message, topic.names[0])
                case "stream_offer":
                    self._offer(message, topic.names)
                case "proxy_status":
                    self._status(message, topic.names[0])
                case _:
                    pass
        except (ProtocolError, StorageError) as error:
            reason = error.reason if isinstance(error, FrameError) else "schema"
            self.refused[reason] = self.refused.get(reason, 0) + 1
            self._quarantine(topic.kind, str(error), message.topic, message.payload[:4096])
            log.warning("message refused", topic=message.topic, reason=reason, error=str(error))

    async def _batch(self, message: Message, proxy: str) -> None:
        batch = decode_batch(message.payload)
        if batch.proxy != proxy:
            raise FrameError("identity", f"batch of proxy {batch.proxy!r} came on the topic of {proxy!r}")
        writer = self.writers.get(batch.stream)
        if writer is None:
            # Not acknowledged: the proxy offers its streams on connecting, and will send the batch again.
            raise FrameError("stream", f"proxy {proxy!r} sent a batch of unknown stream {batch.stream!r}")
        await writer.receive(batch)

    def _offer(self, message: Message, names: tuple[str, ...]) -> None:
        if not message.payload:
            return
        offer = decode_stream_offer(message.payload)
        if (offer.proxy, offer.stream.name) != names:
            raise FrameError("identity", f"offer of {offer.proxy}/{offer.stream.name} came on {message.topic}")
        name = offer.stream.name
        if (only := self._only_proxy.get(name, offer.proxy)) != offer.proxy:
            raise FrameError(
                "identity", f"stream {name!r} was created to be fed by proxy {only!r}, not {offer.proxy!r}"
            )
        new = name not in self.writers
        if new and self.taken_name(name):
            raise FrameError("identity", f"there is a relation {name!r}: proxy {offer.proxy!r} cannot offer a stream")
        self.declare(offer.stream)
        self._offered_by.setdefault(name, set()).add(offer.proxy)
        if new:
            log.info("new stream", stream=name, proxy=offer.proxy)

    def _status(self, message: Message, proxy: str) -> None:
        if not message.payload:
            self._online.discard(proxy)
            return
        if decode_status(message.payload).presence is Presence.ONLINE:
            self._online.add(proxy)
        else:
            self._online.discard(proxy)

    async def _watch_proxies(self) -> None:
        while True:
            for writer in self.writers.values():
                for proxy in self._online:
                    writer.proxy_alive(proxy)
            await asyncio.sleep(1.0)

    async def _acknowledge(self, ack: Ack) -> None:
        if self._link is None:
            return
        try:
            await self._link.publish(Message(topics.acks(ack.proxy), encode(ack)))
        except LinkError as error:
            log.debug("ack not sent", proxy=ack.proxy, error=str(error))  # the proxy will ask by sending again

    def _start(self, writer: StreamWriter) -> None:
        assert self._tasks is not None  # noqa: S101 - called while running
        self._running[writer.stream] = self._tasks.create_task(writer.run(), name=f"writer of {writer.stream}")

    def _make_writer(self, table: StreamTable) -> StreamWriter:
        writer = StreamWriter(
            table,
            acknowledge=self._acknowledge,
            quarantine=self._quarantine,
            commit_interval_seconds=self._commit_interval,
            silence_seconds=self._silence,
        )
        self.writers[writer.stream] = writer
        return writer
