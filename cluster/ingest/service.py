"""The ingest as a service: handles the messages of proxies, with a writer for each stream."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from cluster.errors import StorageError, UnwritableError
from cluster.ingest.offers import Declaration, Offers
from cluster.ingest.proxy_reports import Absences, ProxyClocks, ProxyReports, check_proxy, not_after
from cluster.ingest.writer import StreamWriter
from cluster.storage.budgets import UNBOUNDED, Budget, Passed
from cluster.storage.compaction import Compaction
from cluster.storage.damaged_tables import Damage
from cluster.storage.stream_retention import StreamRetention
from cluster.storage.stream_tables import StreamTable, open_stream_tables
from cluster.storage.synced_files import Troubles
from cluster.storage.table_folders import DroppedStreams, folder_of, stream_of
from protocols.errors import FrameError, ProtocolError
from protocols.event_log import SparingLog, get_logger
from protocols.mqtt.link import LinkError, Message, Subscription
from protocols.presence.attention import Attention
from protocols.wire import topics
from protocols.wire.batches import Ack, decode_packed_batch, decode_resumption
from protocols.wire.catalog import decode_stream_offer
from protocols.wire.frames import encode
from protocols.wire.streams import StreamSchema

log = get_logger(__name__)

MAX_STREAMS = 1024


class Link(Protocol):
    """A connection to the broker."""

    connected: asyncio.Event

    async def publish(self, message: Message) -> None:
        """Publish a message.

        Raises
        ------
        LinkError
            If the broker is away.
        """


class Ingest:
    """Stores what proxies send.

    Parameters
    ----------
    folder
        Where the stream tables are.
    quarantine
        Keeps what was rejected: (kind, reason, origin, content).
    commit_interval_seconds
        Least time between two commits of a stream.
    gone_after
        Returns, by stream, after how many seconds offline a proxy no longer holds back its watermark; None for never.
    link
        Carries acknowledgements to proxies; without one none are sent.
    echo
        A message that comes back to the cluster itself, and to no other part; without one all time counts for proxies
        that are away.
    offers
        The offers of all proxies.
    proxy_clocks
        The clocks of all proxies. Instants of streams that lie further in the future than their tolerance are reduced
        to it.
    reserved_for
        Returns what a name is reserved for, so that no proxy may offer a stream of this name; None if it is free.
    clock, monotonic
        Seconds since 1970; and by a clock that never goes back.
    needed
        Returns, by stream, the oldest version of its table that a query still has to read from; None if none has to.
    troubles
        Counts what could not be written.
    cluster
        Its name and identity, which acknowledgements carry; None in none.
    budget
        Returns, by stream, what its table may keep.
    passed
        Returns, by stream, the instant before which all queries have read what is stored; None if none reads it.
    forgotten
        Called with a stream that is about to be removed, so that its budget does not pass to another of its name.
    """

    def __init__(
        self,
        folder: Path,
        *,
        quarantine: Callable[[str, str, str, bytes], None],
        commit_interval_seconds: float = 0.1,
        gone_after: Callable[[str], float | None] = lambda _: None,
        link: Link | None = None,
        echo: Message | None = None,
        offers: Offers | None = None,
        proxy_clocks: ProxyClocks | None = None,
        reserved_for: Callable[[str], str | None] = lambda _: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        needed: Callable[[str], int | None] = lambda _: None,
        troubles: Troubles | None = None,
        cluster: str | None = None,
        budget: Callable[[str], Budget] = lambda _: UNBOUNDED,
        passed: Callable[[str], Passed | None] = lambda _: None,
        forgotten: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._needed = needed
        self._forgotten = forgotten
        self._budget = budget
        self._passed = passed
        self._clock = clock
        self._monotonic = monotonic
        self._reports = ProxyReports(proxy_clocks or ProxyClocks())
        self.proxy_clocks, self.proxy_spools = self._reports.clocks, self._reports.spools
        self.stream_waits = self._reports.waits
        self._folder = folder
        self._quarantine = quarantine
        self._commit_interval = commit_interval_seconds
        self._gone_after = gone_after
        self._echo = echo
        self.attention = Attention(round(monotonic() * 1e6))
        self._absences = Absences(self.attention)
        self._troubles = troubles or Troubles()
        self._cluster = cluster
        self._postponed: dict[tuple[str, ...], Message] = {}
        """Offers of streams whose tables could not be made."""
        self._link = link
        self._reserved_for = reserved_for
        self._tasks: asyncio.TaskGroup | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        self.offers = offers or Offers()
        self.writers: dict[str, StreamWriter] = {}
        self._sparing = SparingLog()
        self.rejected: dict[str, int] = {}
        """Messages that were rejected, by reason."""
        self._dropped = DroppedStreams(folder)
        self.damages: dict[str, Damage] = {}
        """By stream: what was wrong with its table when it was opened."""
        for table in self._opened_tables():
            self._restore_sequences(table)
            self._make_writer(table)
            self.offers.declare(Declaration(table.schema))

    subscriptions = (
        # Batches are acknowledged to their proxies, once they are on disk: the broker need not wait for that.
        Subscription(topics.batches("+"), qos=0),
        Subscription(topics.resumptions("+")),
        Subscription(topics.proxy_status("+")),
        Subscription(topics.proxy_clock("+")),
        Subscription(topics.proxy_spool("+")),
        Subscription(topics.proxy_waits("+")),
        Subscription(topics.stream_offer("+", "+")),
    )

    @property
    def schemas(self) -> dict[str, StreamSchema]:
        """All streams, by name."""
        return {name: writer.table.schema for name, writer in self.writers.items()}

    def instants(self) -> dict[str, int]:
        """Return by stream an instant after everything stored or being stored of it; streams without tuples have none.

        A change at these instants, with nothing awaited in between, affects only tuples that come later; except that
        stamps in the future are not waited for.
        """
        now_us, tolerance_us = self.now_us(), self.proxy_clocks.tolerance_us
        return {name: not_after(us, now_us, tolerance_us) for name, us in self.instants_ahead().items()}

    def instants_ahead(self) -> dict[str, int]:
        """Return what `instants` does, but also after stamps that are ahead of the cluster's clock."""
        found = {name: writer.admission.next_us for name, writer in self.writers.items()}
        return {name: us for name, us in found.items() if us is not None}

    @contextlib.asynccontextmanager
    async def paused(self, streams: Iterable[str]) -> AsyncIterator[None]:
        """Make no commit of some streams meanwhile; what comes waits in memory, as it does during a commit."""
        async with contextlib.AsyncExitStack() as stack:
            for name in sorted(streams):
                if name in self.writers:
                    await stack.enter_async_context(self.writers[name].storing)
            yield

    def tables(self) -> Mapping[str, StreamTable]:
        """Return the tables of all streams, by stream."""
        return {name: writer.table for name, writer in self.writers.items()}

    async def run(self) -> None:
        """Commit until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for writer in self.writers.values():
                self._start(writer)
            tasks.create_task(self._watch_proxies(), name="presence of proxies")
            if self._link is not None and self._echo is not None:
                tasks.create_task(self._send_echoes(self._link, self._echo), name="echoes")

    def declare(self, schema: StreamSchema, *, only_proxy: str | None = None) -> None:
        """Declare a stream before any proxy offers it.

        Parameters
        ----------
        schema
            What every offer of the stream must match.
        only_proxy
            The one proxy that may feed it; None for any.

        Raises
        ------
        StorageError
            If there is a stream of this name with other columns, or too many streams.
        """
        known = self.writers.get(schema.name)
        if known is None:
            if len(self.writers) >= MAX_STREAMS:
                raise StorageError(f"there are {MAX_STREAMS} streams already")
            table = StreamTable(
                str(self._folder / folder_of(schema.name)),
                schema,
                compaction=self._compaction(schema.name),
                retention=self._retention(schema.name),
            )
            self._restore_sequences(table)
            writer = self._make_writer(table)
            if self._tasks is not None:
                self._start(writer)
        elif known.table.schema != schema:
            StreamTable(known.table.root, schema)  # raises an error that names what differs
        self.offers.declare(Declaration(schema, only_proxy))

    def feeding(self, stream: str) -> set[str]:
        """Return the proxies that offer a stream as it is declared, and are online."""
        return {each.proxy for each in self.offers.of(stream) if each.fits and self.online(each.proxy)}

    def connected(self) -> None:
        """Note a new connection to the broker, which sends the statuses of all proxies then."""
        self.attention.lost()
        self._reports.online.clear()

    def online(self, proxy: str) -> bool:
        """Return whether a proxy is connected."""
        return proxy in self._reports.online

    def forget(self, stream: str) -> None:
        """Remove a stream and its table."""
        writer = self.writers[stream]
        try:
            self._dropped.remember(stream, {**self._dropped.recall(stream), **writer.table.sequences()})
            self._forgotten(stream)
        except UnwritableError as error:
            self._troubles.note("dropped stream", error.message)
            raise
        del self.writers[stream]
        if (task := self._running.pop(stream, None)) is not None:
            task.cancel()
        self.offers.forget(stream)
        shutil.rmtree(writer.table.root)

    def handle(self, message: Message, topic: topics.ParsedTopic) -> Ack | None:
        """Handle a message on one of :attr:`subscriptions`; bad ones are rejected, counted and kept.

        Return what to acknowledge to a proxy now, mostly nothing; batches are acknowledged once they are stored.
        """
        try:
            match topic.kind:
                case "batches":
                    return self._batch(message, topic.names[0])
                case "resumptions":
                    return self._resumption(message, topic.names[0])
                case "stream_offer":
                    self._offer(message, topic.names)
                case "proxy_status":
                    self._reports.status(message, topic.names[0])
                case "proxy_clock":
                    self._reports.clock(message, topic.names[0], self.now_us())
                case "proxy_spool":
                    self._reports.spool(message, topic.names[0], self.now_us())
                case "proxy_waits":
                    self._reports.wait(message, topic.names[0], self.now_us())
                case _:
                    pass
        except (ProtocolError, StorageError) as error:
            self.refuse(message, error, topic.kind)
        return None

    def refuse(self, message: Message, error: ProtocolError | StorageError, kind: str = "frame") -> None:
        """Count a message that was rejected, and keep it; `kind` is what it should have been."""
        reason = error.reason if isinstance(error, FrameError) else "schema"
        self.rejected[reason] = self.rejected.get(reason, 0) + 1
        self._quarantine(kind, str(error), message.topic, message.payload[:4096])
        stream = message.topic.rpartition("/")[2]
        # What is wrong with one known stream does not keep silent what is wrong with another one.
        about = f"{reason} {stream}" if kind == "stream_offer" and stream in self.writers else reason
        if times := self._sparing.due(about, self._clock()):
            log.warning("message rejected", topic=message.topic, reason=reason, error=str(error), times=times)

    async def acknowledge(self, acks: Iterable[Ack]) -> None:
        """Send acknowledgements to their proxies, all at once."""
        await asyncio.gather(*map(self._acknowledge, acks))

    def _batch(self, message: Message, proxy: str) -> Ack | None:
        batch = decode_packed_batch(message.payload)
        check_proxy("batch", batch.proxy, proxy)
        writer = self.writers.get(batch.stream)
        if writer is None:
            # Not acknowledged: the proxy offers its streams on connecting, and will send the batch again.
            raise FrameError("stream", f"proxy {proxy!r} sent a batch of unknown stream {batch.stream!r}")
        fits = self.offers.fits(proxy, batch.stream)
        declaration = None if fits else self.offers.declared(batch.stream)
        if declaration is not None and declaration.only_proxy not in {None, proxy}:
            raise FrameError(
                "identity", f"stream {batch.stream!r} is fed by proxy {declaration.only_proxy!r}, not {proxy!r}"
            )
        return writer.receive(batch, offer_fits=fits)

    def _resumption(self, message: Message, proxy: str) -> Ack | None:
        resumption = decode_resumption(message.payload)
        check_proxy("resumption", resumption.proxy, proxy)
        writer = self.writers.get(resumption.stream)
        if writer is None:
            raise FrameError("stream", f"proxy {proxy!r} resumes unknown stream {resumption.stream!r}")
        return writer.resume(resumption)

    def _offer(self, message: Message, names: tuple[str, ...]) -> None:
        self._postponed.pop(names, None)
        if not message.payload:
            self.offers.withdraw(*names)
            return
        offer = decode_stream_offer(message.payload)
        if (offer.proxy, offer.stream.name) != names:
            raise FrameError("identity", f"offer of {offer.proxy}/{offer.stream.name} came on {message.topic}")
        name = offer.stream.name
        checked = self.offers.put(offer)
        if checked is None:
            if (other := self._reserved_for(name)) is not None:
                raise FrameError(
                    "identity", f"there is a {other} {name!r}: proxy {offer.proxy!r} cannot offer a stream"
                )
            try:
                self.declare(offer.stream)
            except UnwritableError as error:
                # The broker retains the offer and the proxy its batches, but neither comes again by itself.
                self._postponed[names] = message
                self._troubles.note("stream table", error.message)
                return
            log.info("new stream", stream=name, proxy=offer.proxy)
        elif not checked.fits:
            declaration = self.offers.declared(name)
            only = None if declaration is None else declaration.only_proxy
            raise FrameError(
                "schema" if only in {None, offer.proxy} else "identity",
                f"proxy {offer.proxy!r} does not feed stream {name!r}: {checked.reason}",
            )

    def now_us(self) -> int:
        """Return the present, by the cluster's clock, in microseconds since 1970."""
        return round(self._clock() * 1e6)

    async def _watch_proxies(self) -> None:
        while True:
            self.time_passed()
            self.retry_offers()
            await asyncio.sleep(1.0)

    def time_passed(self) -> None:
        """Let time pass for the proxies of all streams; to be called once a second."""
        now_us = round(self._monotonic() * 1e6)
        if self._echo is None:
            self.attention.echo_sent(now_us)
            self.attention.echoed()
        connected = self._link is None or self._link.connected.is_set()
        counted = self._absences.time_passed(now_us, connected=connected)
        for writer in self.writers.values():
            writer.time_passed(self._reports.online, counted_seconds=counted.seconds, anew=counted.anew)

    async def _send_echoes(self, link: Link, echo: Message) -> None:
        """Find out whether all that proxies have sent is here, while a stream goes on without those that are gone."""
        while True:
            await asyncio.sleep(1.0)
            now_us = round(self._monotonic() * 1e6)
            goes_on = any(self._gone_after(stream) is not None for stream in self.writers)
            if not (goes_on and self.attention.echo_due(now_us)):
                continue
            self.attention.echo_sent(now_us)
            try:
                await link.publish(echo)
            except LinkError as error:
                self.attention.lost()
                log.debug("the message to oneself was not published", error=str(error))

    def retry_offers(self) -> None:
        """Handle the offers again of streams whose tables could not be made."""
        for names, message in list(self._postponed.items()):
            if self._postponed.get(names) is message:
                self.handle(message, topics.ParsedTopic("stream_offer", names))

    async def _acknowledge(self, ack: Ack) -> None:
        if self._link is None:
            return
        try:
            await self._link.publish(Message(topics.acks(ack.proxy), encode(ack)))
        except LinkError as error:
            log.debug("ack not sent", proxy=ack.proxy, error=str(error))  # the proxy sends its batches again

    def _start(self, writer: StreamWriter) -> None:
        assert self._tasks is not None  # noqa: S101 - called while running
        self._running[writer.stream] = self._tasks.create_task(writer.run(), name=f"writer of {writer.stream}")

    def _compaction(self, stream: str) -> Compaction:
        return Compaction(needed=partial(self._needed, stream), budget=partial(self._budget, stream))

    def _retention(self, stream: str) -> StreamRetention:
        return StreamRetention(partial(self._budget, stream), partial(self._passed, stream))

    def _opened_tables(self) -> list[StreamTable]:
        opened = open_stream_tables(
            self._folder, compaction=self._compaction, retention=self._retention, damages=self._damaged
        )
        return list(opened.values())

    def _damaged(self, damage: Damage) -> None:
        stream = stream_of(damage.table)
        self.damages[stream] = damage
        log.error("stream was damaged", stream=stream, what=str(damage), lost_commits=damage.lost_commits)
        if damage.sequences:
            # Its proxies have deleted these batches, and go on with the next numbers.
            self._dropped.remember(stream, damage.sequences)

    def _restore_sequences(self, table: StreamTable) -> None:
        """Continue a dropped table's sequence numbers in a new table of the same name."""
        name = table.schema.name
        try:
            stored = self._dropped.recall(name)
        except StorageError as error:
            log.warning("sequence numbers of a dropped stream are lost", stream=name, reason=error.message)
            stored = {}
        newer = {lane: sequence for lane, sequence in stored.items() if sequence > table.last_sequence(*lane)}
        if newer:
            table.append([], table.position(), newer)
        if stored:
            self._dropped.forget(name)

    def _make_writer(self, table: StreamTable) -> StreamWriter:
        writer = StreamWriter(
            table,
            acknowledge=self._acknowledge,
            quarantine=self._quarantine,
            commit_interval_seconds=self._commit_interval,
            gone_after=partial(self._gone_after, table.schema.name),
            clock=self._monotonic,
            troubles=self._troubles,
            cluster=self._cluster,
        )
        self.writers[writer.stream] = writer
        return writer
