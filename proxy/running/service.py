"""The proxy as one asyncio process: passes frames and time to the pure cores and carries out their instructions.

Tasks: the link receives; "flush" cuts batches and writes to disk; "send batches" publishes them; "catalog" publishes
entries; "clock" lets time pass in the cores; "merge demands" chooses programs; "devices" publishes messages of drivers;
"echoes" and "markers" publish messages to the proxy itself.
One thread waits for the disk, another merges.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
from functools import partial
from pathlib import Path

from protocols.acquisition.program_reports import ProgramStyle
from protocols.errors import FjordError, FrameError
from protocols.event_log import get_logger, is_logged
from protocols.mqtt.link import LinkError, Message
from protocols.text.quantities import format_duration
from protocols.wire import topics
from protocols.wire.programs import ListenSchedule
from proxy.drivers.driver import Driver
from proxy.drivers.driver_registry import Before, DriverRegistry
from proxy.errors import StoreError
from proxy.fleet.batching import BatchLimits
from proxy.fleet.demand_assembly import DemandAssemblies
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_instructions import FleetInstruction
from proxy.fleet.fleet_members import FleetLimits, Neighbours
from proxy.motes.mote_clock import ClockBounds
from proxy.motes.mote_presence import TrackingLimits
from proxy.running.catalog_publisher import CatalogPublisher
from proxy.running.delivery import Delivery
from proxy.running.demand_merging import DemandMerging
from proxy.running.driven_devices import DrivenDevices, device_of
from proxy.running.frame_intake import FrameIntake
from proxy.running.link_interface import (
    BEGUN,
    CONTINUED,
    LOST,
    NONE,
    SESSION_TOPIC,
    Clocks,
    LinkFactory,
    client_session,
    echo_of,
    lasting_session,
)
from proxy.running.metrics import ProxyMetrics, read_gauges
from proxy.running.receiving import Receiver
from proxy.running.session_messages import Backlog, SessionMessages
from proxy.running.settings import ProxySettings
from proxy.running.unpublished import EntrySchedule, Unpublished
from proxy.running.unwritten_batches import FlushSchedule, SpoolFull, UnwrittenBatches, Write
from proxy.storage.flushing import delete_acknowledged, store_catalog, store_in_pieces, store_rejected
from proxy.storage.spool import SessionMessage
from proxy.storage.stores import Stores

log = get_logger(__name__)

_CLOCK_SECONDS = 0.5
_PAUSE_AFTER_FAILED_PUBLISH_SECONDS = 0.5
_SHUTDOWN_SECONDS = 2.0
LONGEST_HOLD_SECONDS = 2.0
"""While a slow disk writes and little room is left, messages stay at the broker for this long at most."""


class ProxyService:
    """One proxy, running.

    Parameters
    ----------
    settings
        Of the proxy.
    stores
        Its databases, open.
    make_link
        Makes its link to the broker.
    clocks
        Give the time.
    drivers
        Of devices of other makers.
    began_us
        When the process began, in real time, as it has claimed its name; None for now.
    """

    def __init__(
        self,
        settings: ProxySettings,
        stores: Stores,
        make_link: LinkFactory,
        *,
        clocks: Clocks | None = None,
        drivers: Iterable[Driver] = (),
        began_us: int | None = None,
    ) -> None:
        self.settings = settings
        self.stores = stores
        self._clocks = clocks or Clocks()
        now_us = self._clocks.radio()
        began_us = self._clocks.real() if began_us is None else began_us
        self._before = Before(
            tuple(stores.catalog.driven()),
            tuple(stores.catalog.announcements()),
            {mote: each.boot for mote, each in stores.spool.positions().items()},
            stores.spool.states(),
            {each.stream: each.watermark_us for each in stores.spool.progress()},
        )
        registry = DriverRegistry(drivers, self._before)
        self._filters = frozenset(registry.subscriptions)
        neighbours = Neighbours(settings.name, began_us)
        self.fleet = Fleet(
            settings.name,
            fleet_limits(settings),
            now_us=now_us,
            programs=stores.catalog.programs(),
            positions=stores.spool.positions(),
            losses=stores.spool.losses(),
            streams=stores.spool.progress(),
            stamps=stores.spool.stamps(),
            abilities_of=registry.abilities_of,
            device_of=partial(device_of, registry),
            counts_of=registry.counts_of,
            trouble_of=registry.trouble_of,
            neighbours=neighbours,
            checked=registry.__contains__,
            sealed=lambda mote: bool(settings.keys) and not registry.has_no_key(mote),
            delay_of=registry.delay_of,
            same_driver=registry.same_driver,
        )
        self._session = client_session(
            settings.name,
            stores.spool.epoch,
            began_us,
            self._on_connect,
            registry.subscriptions,
            lasting=lasting_session(
                settings.device_session,
                settings.device_session_expiry,
                has_one=stores.spool.has_session,
                # Earlier versions subscribed to all that drivers name.
                former=sorted(
                    stores.spool.session_filters.union(*(each.subscriptions for each in registry.drivers))
                    - self._filters
                ),
            ),
        )
        self._echo = echo_of(self._session)
        self.link = make_link(self._session)
        last_us = stores.spool.last_commit_us
        self.away_us = 0 if last_us is None else max(0, began_us - last_us)
        """How long before its start the proxy was last seen to write."""
        self.metrics = ProxyMetrics(partial(read_gauges, self.fleet, stores, self.link, away_us=self.away_us))
        self.demands = DemandAssemblies(settings.name)
        self.unpublished = Unpublished(
            settings.name,
            self.fleet,
            self.demands,
            EntrySchedule(settings.entry_interval, settings.counters_interval),
            now_us=now_us,
        )
        self.catalog = CatalogPublisher(
            settings.name, self.unpublished, stores, self.link, metrics=self.metrics, clocks=self._clocks
        )
        self.delivery = Delivery(
            settings.name,
            stores,
            self.link,
            self.metrics,
            self._clocks,
            in_flight=settings.in_flight,
            resend_after_us=settings.resend_after,
            cluster=settings.cluster,
        )
        self.intake = FrameIntake(
            self.fleet,
            quarantine=stores.quarantine,
            metrics=self.metrics,
            unpublished=self.unpublished,
            clocks=self._clocks,
            registry=registry,
        )
        self.device_messages = SessionMessages(stores.spool.session_messages())
        self.devices = DrivenDevices(
            registry,
            self.fleet,
            self.intake,
            self.link,
            session=self.device_messages,
            metrics=self.metrics,
            clocks=self._clocks,
        )
        self.merging = DemandMerging(
            self.fleet,
            self._clocks,
            carry_out=self.intake.carry_out,
            demand_changed=self.devices.demand_changed,
        )
        self.receiver = Receiver(
            settings.name,
            self.fleet,
            self.delivery,
            neighbours,
            merging=self.merging,
            demands=self.demands,
            intake=self.intake,
            devices=self.devices,
            link=self.link,
            status=self._session.birth,
            session=self.device_messages,
            metrics=self.metrics,
            clocks=self._clocks,
        )
        self._flushing = asyncio.Lock()
        self._received = asyncio.Event()
        self._flushes = FlushSchedule(settings.flush_interval / 1e6, positions_us=now_us)
        self._unwritten = UnwrittenBatches(self.fleet, self._flushes, settings.spool_size, self.devices.changed_states)
        self._backlog = Backlog(waits=self._has_device_session and stores.spool.has_session, start=str(began_us))
        self._markers_topic = topics.proxy_backlog(settings.name, "+").removesuffix("+")
        self._unwritten_messages: list[SessionMessage] = []
        """Of the devices' session: those that led to batches that are not written yet."""
        self._full = False
        self._unwritable: set[Path] = set()
        """Files of which a write failed, and none has succeeded since."""
        self._times_unwritable: Counter[Path] = Counter()
        self._stopping = False
        self._sender: asyncio.Task[None] | None = None
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set: then write waiting samples, publish the status "offline" and return.

        Raises
        ------
        ContestedError, NameSharedError, ClientNameSharedError
            In a group: another process runs with the same name and data. Waiting samples are written before.
        """
        try:
            await self._run(stop)
        except* FjordError:
            await self._write_rest()
            raise

    async def _run(self, stop: asyncio.Event) -> None:
        self.intake.carry_out(self._restore())
        if self.away_us:
            log.info("begins again", away=format_duration(self.away_us), device_session=self._has_device_session)
        self.devices.hold_promises(held=self._backlog.waits)
        self.devices.restore(self._before)
        if self._has_device_session:
            # What was subscribed to and is not known stays subscribed to, and its messages come twice.
            await self._keep_filters(self.stores.spool.session_filters | self._filters)
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            running = [
                tasks.create_task(self.link.run_in_bursts(self._receive), name="link"),
                tasks.create_task(self._flush_regularly(), name="flush"),
                tasks.create_task(self.catalog.run(), name="catalog"),
                tasks.create_task(self._advance_time(), name="clock"),
                tasks.create_task(self.merging.run(), name="merge demands"),
                tasks.create_task(self.devices.publish(self.link.connected), name="devices"),
                tasks.create_task(self._send_echoes(), name="echoes"),
                tasks.create_task(self._send_markers(), name="markers"),
            ]
            await stop.wait()
            await self._shut_down()
            for task in (*running, self._sender):
                if task is not None:
                    task.cancel()

    async def flush(self) -> None:
        """Cut waiting tuples into batches, put them on disk, and pass them on for delivery.

        A failed write is counted and tried again at the next flush. Until then no further batch is cut, and tuples wait
        in the bounded queues of their streams.
        """
        async with self._flushing:
            if self._unwritten or self._spool_bytes >= self.settings.spool_size:
                await self._write(self._flush_deletions())  # they make room for what could not be written
            await self._write(self._flush_batches())
            await self._write(self._flush_rejected())
            await self._write(self._flush_catalog())
            await self._write(self._flush_deletions())
            self._acknowledge()
            self._flushes.flushed()

    def _restore(self) -> list[FleetInstruction]:
        instructions: list[FleetInstruction] = []
        now_us = self._clocks.radio()
        for stream, stored in self.stores.catalog.demands().items():
            try:
                found = self.demands.restore(stream, stored, now_us)
            except FrameError as error:
                log.warning("left out the demand on a stream that was kept", stream=stream, reason=error.message)
                continue
            if found is not None:
                instructions += self.fleet.receive_demand(
                    stream, found.demand, radio_us=now_us, unreadable=found.unreadable
                )
        return instructions + self.fleet.restore(self._before.announcements)

    def _acknowledge(self) -> None:
        """Acknowledge the messages of devices of which all that they led to is on disk."""
        if numbers := self.device_messages.take():
            self.link.acknowledge(numbers)

    @property
    def _has_device_session(self) -> bool:
        return self._session.devices is not None

    async def _receive(self, messages: Sequence[Message]) -> None:
        if messages[0].topic == SESSION_TOPIC:
            await self._session_opened(messages[0].payload)
            return
        if messages[0].number:
            self._look_for_pause()
            self._backlog.received(self._clocks.radio())
        if self._flushes.holds_back(flushing=self._flushing.locked(), nearly_full=self.fleet.nearly_full):
            await self._hold_back()
        if self._stopping:
            return
        await self.receiver.receive(messages)
        if self._backlog.waits:
            self._note_markers(messages)
        self._note_waiting()

    def _look_for_pause(self) -> None:
        """Let low watermarks stand if messages of devices have waited for this process."""
        if self._has_device_session and self._backlog.paused(self._clocks.radio()):
            log.info("this process stood still: messages of devices may have waited")
            self.devices.hold_promises(held=True)

    def _note_markers(self, messages: Sequence[Message]) -> None:
        """Note the markers of this proxy among messages, which tell that no message waits at the broker any more."""
        for message in messages:
            if message.number and message.topic.startswith(self._markers_topic):
                self._backlog.marker_received(message.topic.removeprefix(self._markers_topic))
        self.devices.hold_promises(held=self._backlog.waits)

    async def _session_opened(self, state: bytes) -> None:
        """Note what has become of the session of devices, before the first of its messages is handled."""
        if state == LOST:
            self._backlog.lost()
        else:
            self._backlog.opened(self._clocks.radio(), kept=state == CONTINUED)
        self.devices.hold_promises(held=self._backlog.waits)
        if state == LOST:
            return
        await self._keep_filters(frozenset() if state == NONE else self._filters)
        had_one = self.stores.spool.has_session
        if state == CONTINUED:
            log.info("the broker has kept messages of devices", client=self._session.client_id)
            return
        wanted = self.settings.device_session != "never"
        if had_one and wanted:
            self.metrics.count("sessions_lost")
            log.warning("the broker has forgotten this proxy: messages of devices that came meanwhile are lost")
        if wanted and state == NONE:
            log.warning("the broker keeps no messages of devices while this proxy is away", needed="MQTT 5")
        self.device_messages.began()
        if had_one or state == BEGUN:
            replaced = partial(self.stores.spool.replace_session, lasts=state == BEGUN)
            await self._write(self.stores.in_thread(replaced))

    async def _keep_filters(self, filters: frozenset[str]) -> None:
        if filters != self.stores.spool.session_filters:
            await self._write(self.stores.in_thread(partial(self.stores.spool.keep_filters, filters)))

    def _note_waiting(self) -> None:
        """Note since when tuples wait for a batch, if they do."""
        now = asyncio.get_running_loop().time()
        self._flushes.received(now, waits=self.fleet.waits)
        self._flushes.unacknowledged(now, len(self.device_messages))
        self._received.set()

    async def _hold_back(self) -> None:
        """Wait for the present flush, which makes room; the broker keeps messages meanwhile."""
        self.metrics.count("held_back")
        try:
            async with asyncio.timeout(LONGEST_HOLD_SECONDS), self._flushing:
                pass
        except TimeoutError:
            self._flushes.held_long_enough()

    @property
    def _spool_bytes(self) -> int:
        """The size of the spool: none without batches, as nothing is waited for then, however small it is to be."""
        spool = self.stores.spool
        return spool.room.occupied_bytes if spool.batches else 0

    async def _flush_batches(self) -> None:
        spool, spool_bytes = self.stores.spool, self._spool_bytes
        cuts = not self._unwritten
        match self._unwritten.next(self._clocks.radio(), spool_bytes=spool_bytes, stopping=self._stopping):
            case SpoolFull():
                self._note_full(spool_bytes)
                await self.stores.in_thread(spool.room.regain)
            case Write(batches, positions, losses, states):
                now_us = self._clocks.real()
                if cuts:
                    self._unwritten_messages += self.device_messages.cut()
                stored = await self.stores.in_thread(
                    store_in_pieces,
                    self.stores,
                    self.settings.name,
                    batches,
                    positions,
                    now_us,
                    losses=losses,
                    states=states,
                    packed=self.delivery.packed,
                    session=self._unwritten_messages,
                )
                self._unwritten.written(None if stored.error is None else len(stored.batches))
                self.delivery.spooled(stored.batches, self._clocks.radio())
                if stored.error is not None:
                    raise stored.error
                self._note_writable()
                self.device_messages.written()
                self._unwritten_messages = []
            case None:
                # What has come led to nothing, so that it need not be known again.
                self.device_messages.cut()
                self.device_messages.written()

    def _note_full(self, spool_bytes: int) -> None:
        self.metrics.count("spool_full")
        if not self._full:
            log.error(
                "spool is full: samples wait in memory, the oldest will be dropped and counted",
                spool_bytes=spool_bytes,
                hint="see why the cluster does not acknowledge batches, or let the spool be larger: --spool-size",
            )
        self._full = True

    def _note_writable(self) -> None:
        if self._full or self.stores.spool.path in self._unwritable:
            log.warning("samples are written to the spool again", dropped=self.metrics.value("samples_dropped"))
        self._full = False
        self._unwritable.discard(self.stores.spool.path)

    async def _flush_rejected(self) -> None:
        quarantine = self.stores.quarantine
        frames = quarantine.take_pending()
        try:
            if frames:
                await self.stores.in_thread(store_rejected, self.stores, frames)
                self._unwritable.discard(quarantine.path)
        finally:
            dropped = quarantine.dropped - self.metrics.value("quarantine_dropped")
            if dropped:
                self.metrics.count("quarantine_dropped", by=dropped)

    async def _flush_deletions(self) -> None:
        deletions = self.delivery.take_deletions()
        spool = self.stores.spool
        if deletions:
            try:
                delete = partial(delete_acknowledged, writers_read=self.delivery.reads_writers)
                await self.stores.in_thread(delete, self.stores, deletions, self.delivery.cluster)
            except StoreError:
                self.delivery.put_back_deletions(deletions)
                raise
        if spool.room.shrinks:
            await self.stores.in_thread(spool.room.shrink)

    async def _flush_catalog(self) -> None:
        changes = self.intake.take_changes()
        if not changes:
            return
        try:
            await self.stores.in_thread(store_catalog, self.stores, changes)
        except StoreError:
            self.intake.put_back(changes)
            raise
        self._unwritable.discard(self.stores.catalog.path)

    async def _write(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except StoreError as error:
            self.metrics.count("store_errors")
            if error.path in self._unwritable:
                return  # that is known
            self._unwritable.add(error.path)
            self._times_unwritable[error.path] += 1
            times = self._times_unwritable[error.path]
            if is_logged(times):
                log.error("cannot write to the data folder", error=str(error), times=times)  # noqa: TRY400 (explained)

    async def _flush_regularly(self) -> None:
        while True:
            await self._wait_for_batches()
            await self.flush()
            if self._flushes.pauses(waits=self.fleet.waits, unwritten=bool(self._unwritten)):
                await self._pause()

    async def _pause(self) -> None:
        """Let batches become larger, unless the broker seems to wait for acknowledgements."""
        seconds = self.settings.flush_interval / 1e6
        if not self._has_device_session:
            await asyncio.sleep(seconds)
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (left := self._flushes.pause_left(until, loop.time())) > 0:
            await self._wait(left)

    async def _wait_for_batches(self) -> None:
        """Wait until tuples wait and no mote is expected to send more of them, but no longer than the settings say."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while (left := self._flushes.seconds_left(began, loop.time(), complete=self.fleet.is_complete())) > 0:
            await self._wait(left)

    async def _wait(self, seconds: float) -> None:
        """Wait until messages are received, but no longer."""
        self._received.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._received.wait()

    async def _on_connect(self) -> None:
        self.fleet.attention.lost()  # of the connection before
        self.receiver.connected()
        self.unpublished.connected()
        if self._sender is not None:
            self._sender.cancel()
        if self._tasks is not None:
            self._sender = self._tasks.create_task(self._send_batches(), name="send batches")

    async def _send_batches(self) -> None:
        while True:
            self.delivery.connected(self._clocks.radio())
            try:
                await self.delivery.send(self.catalog.publish_offers)
            except LinkError as error:
                # If the connection is lost, the link connects again and replaces this task.
                log.warning("a batch was not published", error=str(error))
                self.delivery.disconnected(self._clocks.radio())
                await asyncio.sleep(_PAUSE_AFTER_FAILED_PUBLISH_SECONDS)
                await self.link.connected.wait()

    async def _advance_time(self) -> None:
        while True:
            await asyncio.sleep(_CLOCK_SECONDS)
            self._note_time()

    def _note_time(self) -> None:
        """Let time pass in the cores."""
        now_us = self._clocks.radio()
        self._look_for_pause()
        if self._backlog.waits:
            self._backlog.time_passed(now_us, len(self.device_messages))
            self.devices.hold_promises(held=self._backlog.waits)
        attentive = self.link.connected.is_set() and not self._backlog.waits
        self.fleet.attention.time_passed(now_us, connected=attentive)
        self.intake.carry_out(self.fleet.time_passed(now_us, replan=False))
        self._note_waiting()
        self.merging.time_passed()
        self.devices.time_passed()
        self.delivery.time_passed(now_us)

    async def _send_echoes(self) -> None:
        """While streams have no time but what this proxy promises, find out whether all that was sent is here."""
        attention = self.fleet.attention
        while True:
            await asyncio.sleep(_CLOCK_SECONDS)
            now_us = self._clocks.radio()
            if not (attention.echo_due(now_us) and self.fleet.awaits_silence()):
                continue
            attention.echo_sent(now_us)
            try:
                await self.link.publish(self._echo)
            except LinkError as error:
                attention.lost()
                log.debug("the message to oneself was not published", error=str(error))

    async def _send_markers(self) -> None:
        """While messages of devices may wait at the broker, send what comes after the last of them."""
        while True:
            marker = self._backlog.next_marker(self._clocks.radio())
            if marker is not None:
                try:
                    await self.link.publish(Message(topics.proxy_backlog(self.settings.name, marker), b""))
                except LinkError as error:
                    log.debug("the marker was not published", error=str(error))
            await asyncio.sleep(_CLOCK_SECONDS)

    async def _write_rest(self) -> None:
        self._stopping = True
        self.devices.finish()
        self.intake.carry_out(self.fleet.skip_gaps())
        await self.flush()

    async def _shut_down(self) -> None:
        await self._write_rest()
        with contextlib.suppress(LinkError, TimeoutError):
            async with asyncio.timeout(_SHUTDOWN_SECONDS):
                await self.link.publish(self._session.will)


def fleet_limits(settings: ProxySettings) -> FleetLimits:
    """Return the settings that concern the fleet."""
    return FleetLimits(
        motes=settings.max_motes,
        streams=settings.max_streams,
        tracking=TrackingLimits(
            silence_after_us=settings.silence_after,
            patience_us=settings.patience,
            clock=ClockBounds(settings.max_clock_ahead or None, settings.max_clock_behind or None),
            clock_tolerance_us=settings.clock_tolerance,
            reorder_within_us=settings.reorder_within,
        ),
        batches=BatchLimits(settings.waiting_samples, settings.batch_rows, settings.batch_size),
        style=ProgramStyle(
            settings.samples_per_packet,
            ListenSchedule(settings.listen_every, settings.listen_for),
            settings.longest_silence or 0,
        ),
    )
