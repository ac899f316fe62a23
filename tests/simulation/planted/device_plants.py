"""Faults that are planted between devices of other makers and their streams.

Tests find what a simulation does not: that a clash of names is named, that each start gives a device another boot
(tests/proxy/test_device_ownership.py), and that a spool on a full disk empties (tests/proxy/test_full_disk.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from proxy.drivers import device_feed, field_mapping, zigbee2mqtt
from proxy.drivers.device_feed import DeviceFeed
from proxy.drivers.driver import NOTHING
from proxy.drivers.driver_registry import DriverRegistry
from proxy.drivers.zigbee2mqtt import Zigbee2MqttDriver
from proxy.fleet import fleet as fleets
from proxy.fleet.batching import CutBatch
from proxy.records.record_reader import RecordReader
from proxy.running.driven_devices import DrivenDevices
from proxy.running.frame_intake import FrameIntake
from proxy.storage.spool import Spool
from tests.simulation.planted.plant import Plants, Simulation, nothing, put

if TYPE_CHECKING:
    from collections.abc import Iterable

PLANTS = Plants(Simulation.PROXIES)
SECOND_US = 1_000_000


@PLANTS.planted("devices sampled in slots", "what a device publishes is stamped by the device, or when it came")
def _slots() -> None:
    as_published = RecordReader._as_published

    def in_slots(self: RecordReader, packet: Any, starts_us: tuple[int, ...], *rest: Any) -> Any:
        return as_published(self, packet, tuple(each // SECOND_US * SECOND_US for each in starts_us), *rest)

    put(RecordReader, "_as_published", in_slots)


@PLANTS.planted("only the first message of a slot", "each message of a device is a tuple of its own")
def _first_of_slot() -> None:
    add = DeviceFeed.add
    last: dict[str, int] = {}

    def first(self: DeviceFeed, values: Any, stamp_us: int, **given: Any) -> Any:
        mote, slot = self.description.mote, stamp_us // SECOND_US
        if last.get(mote) == slot:
            return ()
        last[mote] = slot
        return add(self, values, stamp_us, **given)

    put(DeviceFeed, "add", first)


@PLANTS.planted("default rate by modulus", "a query without SAMPLE gets all tuples of a device that publishes freely")
def _by_modulus() -> None:
    at_default_rate = CutBatch._at_default_rate

    def by_modulus(self: CutBatch, starts_us: Any) -> Any:
        return at_default_rate(self, starts_us) & (np.asarray(starts_us) % SECOND_US == 0)

    put(CutBatch, "_at_default_rate", by_modulus)


@PLANTS.planted("neighbours forgotten in a restart", "SAMPLE takes the first tuple of a period, whatever restarts")
def _neighbours_forgotten() -> None:
    put(Spool, "stamps", lambda _: {})


@PLANTS.planted("strictness ignores what drives a mote", "with keys, a restart shuts out no driven device")
def _strict() -> None:
    put(DriverRegistry, "has_no_key", lambda *_: False)


@PLANTS.planted("devices forgotten in a restart", "the first message after a start of the proxy is a tuple")
def _forgotten() -> None:
    put(DrivenDevices, "restore", nothing)


@PLANTS.planted("no promises in silence", "a stream has time though its devices are silent")
def _no_promises() -> None:
    put(fleets.Fleet, "_promise_us", nothing)


@PLANTS.planted("promises ignore how late a device may be", "the time of a silent stream waits for its device's delay")
def _hasty() -> None:
    from proxy.motes import mote_tracking

    put(mote_tracking, "age_of", lambda *_: -60 * SECOND_US)


@PLANTS.planted("messages acknowledged before they are on disk", "a device's message outlives a kill of the proxy")
def _early_acknowledgement() -> None:
    from proxy.running.session_messages import SessionMessages, _Fate

    handled = SessionMessages.handled

    def at_once(self: SessionMessages) -> None:
        handled(self)
        for each in self._waiting:
            each.fate = _Fate.WRITTEN

    put(SessionMessages, "handled", at_once)


@PLANTS.planted("messages that come again not recognised", "a message that the broker sends again is one tuple")
def _not_recognised() -> None:
    from proxy.running.session_messages import SessionMessages

    received = SessionMessages.received

    def new(self: SessionMessages, message: Any) -> bool:
        return received(self, msgspec.structs.replace(message, again=False))

    put(SessionMessages, "received", new)


@PLANTS.planted("no session for devices", "the broker keeps messages of devices while the proxy is away")
def _no_session() -> None:
    from proxy.running import service

    put(service, "lasting_session", nothing)


@PLANTS.planted("counters forgotten in a restart", "a counter goes on in its column, also after a restart")
def _counters_forgotten() -> None:
    put(Spool, "states", lambda _: {})


@PLANTS.planted("NULL overwrites in merges", "halves are merged field by field")
def _null_overwrites() -> None:
    from proxy.drivers.device_feed import HalfTuple

    def merge(self: HalfTuple, values: dict[str, Any]) -> int:
        self.values = {name: values.get(name) for name in {**self.values, **values}}
        return 0

    put(HalfTuple, "merge", merge)


@PLANTS.planted("a broken field rejects its message", "a field that cannot be read costs that field only")
def _broken_rejects() -> None:
    from proxy.drivers import json_mqtt
    from proxy.drivers.payloads import PayloadError

    read = field_mapping.read_fields

    def strict(mappings: Iterable[Any], payload: Any) -> Any:
        reading = read(mappings, payload)
        if reading.faults:
            raise PayloadError("type", "a field is broken")
        return reading

    put(json_mqtt, "read_fields", strict)


@PLANTS.planted("copies by gateways are tuples", "one message by two gateways is one tuple")
def _copies() -> None:
    from proxy.drivers.device_feed import RecentMessages

    put(RecentMessages, "is_copy", lambda *_: False)


@PLANTS.planted("retained copies are tuples", "a message that the broker has retained is no new one")
def _retained() -> None:
    received = DrivenDevices.received

    def fresh(self: DrivenDevices, message: Any) -> None:
        received(self, msgspec.structs.replace(message, retain=False))

    put(DrivenDevices, "received", fresh)


@PLANTS.planted("rejections of devices not counted", "a message of a device is a tuple, or counted by name")
def _uncounted() -> None:
    put(FrameIntake, "reject", nothing)


@PLANTS.planted("updates of bridges ignored", "a column that a bridge adds comes, and stays")
def _updates_ignored() -> None:
    devices = Zigbee2MqttDriver._devices

    def first(self: Zigbee2MqttDriver, content: Any, *given: Any, **times: Any) -> Any:
        return NOTHING if self._listed else devices(self, content, *given, **times)

    put(Zigbee2MqttDriver, "_devices", first)


@PLANTS.planted("updates of devices that publish freely ignored", "a column that a bridge adds comes, and stays")
def _updates_of_free_ignored() -> None:
    listed_as = Zigbee2MqttDriver._listed_as

    def first(self: Zigbee2MqttDriver, known: Any, device: Any) -> Any:
        seen = known.device is not None and known.capabilities.publishes
        return NOTHING if seen else listed_as(self, known, device)

    put(Zigbee2MqttDriver, "_listed_as", first)


@PLANTS.planted("capabilities that change not announced", "a device that turns into a free publisher loses no message")
def _unannounced_capabilities() -> None:
    put(zigbee2mqtt._Known, "stated", property(lambda self: self.feed.announcement()))


@PLANTS.planted("markers behind the backlog ignored", "a stream whose devices never pause has time after a restart")
def _markers_ignored() -> None:
    from proxy.running.session_messages import Backlog

    put(Backlog, "marker_received", nothing)


@PLANTS.planted("tuples stamped on arrival", "a tuple has the time that its device gave to it")
def _on_arrival() -> None:
    stamp = DeviceFeed.stamp
    put(device_feed.DeviceFeed, "stamp", lambda self, _, received_us: stamp(self, None, received_us))
