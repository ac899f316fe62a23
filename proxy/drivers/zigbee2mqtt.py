"""Zigbee2MQTT: its devices as motes, whose reporting is set through the bridge.

Facts from the Zigbee2MQTT documentation ("MQTT topics and messages", "Device-Availability"): a request's response comes
on the same topic with ``response`` for ``request`` and repeats its ``transaction``; ``status`` is ``ok`` or ``error``,
then with ``error`` in words; availability is ``online`` or ``{"state": "online"}``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from protocols.wire.frames import MEBIBYTE
from protocols.wire.programs import SECOND_US, SamplingProgram, program_number
from protocols.wire.streams import StreamSchema
from proxy.drivers.device_feed import DeviceDescription, DeviceFeed, FeedTimes
from proxy.drivers.driver import (
    NOTHING,
    PASSIVE,
    Capabilities,
    DriverOutput,
    KnownDevice,
    Notice,
    Publication,
    Rejection,
)
from proxy.drivers.names import NameTable, identifier
from proxy.drivers.payloads import PayloadError, read_json
from proxy.drivers.push_down import push_down
from proxy.drivers.reporting_change import ReportingChange
from proxy.drivers.zigbee_devices import BATTERY, ZigbeeDevice, read_devices
from proxy.drivers.zigbee_reporting import REPORTING, plan_reporting, reportable

MAX_DEVICES_BYTES = 8 * MEBIBYTE
_AVAILABILITY = "/availability"
_PERCENT = 100


@dataclass(frozen=True, slots=True)
class ZigbeeDriverPlan:
    """The configuration of a driver of a bridge.

    Parameters
    ----------
    name
        Of the driver.
    base
        Base topic of the bridge.
    stream
        Pattern of stream names; ``{base}``, ``{model}`` and ``{vendor}`` stand for those of the device.
    prefix
        Before the name of each device.
    default_period_us
        As in an announcement.
    request
        Topic of requests below ``bridge/request/``.
    answer_within_us
        How long the bridge may take to answer a request.
    retry_after_us
        How long to wait until a failed request is sent again, unless the device sends a message before.
    attempts
        How often a request is sent, before the device is left to its own reporting.
    times
        Bounds on the instants of values.
    """

    name: str
    base: str = "zigbee2mqtt"
    stream: str = "{base}_{model}"
    prefix: str = ""
    default_period_us: int = 60 * SECOND_US
    request: str = "device/configure_reporting"
    answer_within_us: int = 30 * SECOND_US
    retry_after_us: int = 60 * SECOND_US
    attempts: int = 3
    times: FeedTimes = field(default_factory=lambda: FeedTimes(silence_after_us=25 * 3600 * SECOND_US))


@dataclass(slots=True)
class _Known:
    device: ZigbeeDevice
    feed: DeviceFeed
    capabilities: Capabilities
    change: ReportingChange | None = None


class Zigbee2MqttDriver:
    """The devices of one bridge."""

    def __init__(self, plan: ZigbeeDriverPlan) -> None:
        self._plan = plan
        self._names = NameTable(prefix=plan.prefix)
        self._motes: dict[str, _Known] = {}
        self._by_friendly_name: dict[str, _Known] = {}
        self._streams: dict[str, StreamSchema] = {}
        self._transactions = 0
        self._boots: dict[str, int] = {}

    @property
    def name(self) -> str:
        """The name of this driver."""
        return self._plan.name

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """All topics of the bridge, for friendly names may hold slashes."""
        return (f"{self._plan.base}/#",)

    def capabilities_of(self, mote: str) -> Capabilities:
        """Return what one device can do: nothing, if none of its properties is known to be reportable."""
        known = self._motes.get(mote)
        return PASSIVE if known is None else known.capabilities

    def owns(self, mote: str) -> bool:
        """Return whether a mote is a device of this bridge."""
        return mote in self._motes or (mote in self._boots and not self._motes)

    def restore(self, devices: Sequence[KnownDevice], *, radio_us: int, received_us: int) -> DriverOutput:
        """Note the devices that the bridge is about to list."""
        _ = radio_us, received_us
        self._boots |= {each.mote: each.boot for each in devices}
        return NOTHING

    def device_of(self, mote: str) -> str:
        """Return the friendly name of a device."""
        known = self._motes.get(mote)
        return "" if known is None else known.device.friendly_name

    def state_of(self, mote: str) -> bytes:
        """Return nothing."""
        _ = mote
        return b""

    def counts_of(self, mote: str) -> Mapping[str, int]:
        """Return nothing."""
        _ = mote
        return {}

    def trouble_of(self, mote: str) -> str:
        """Return nothing."""
        _ = mote
        return ""

    def received(
        self, topic: str, payload: bytes, *, radio_us: int, received_us: int, retained: bool = False
    ) -> DriverOutput:
        """Return what follows from a message of the bridge."""
        if not topic.startswith(f"{self._plan.base}/"):
            return NOTHING
        rest = topic[len(self._plan.base) + 1 :]
        mote = ""
        try:
            if rest == "bridge/devices":
                return self._devices(read_json(payload, max_bytes=MAX_DEVICES_BYTES), radio_us, received_us)
            if rest == f"bridge/response/{self._plan.request}":
                return NOTHING if retained else self._answered(read_json(payload), radio_us, received_us)
            known = self._by_friendly_name.get(rest)
            if known is not None:
                mote = known.feed.description.mote
                return NOTHING if retained else self._state(known, read_json(payload), radio_us, received_us)
            known = self._by_friendly_name.get(rest.removesuffix(_AVAILABILITY))
            if known is not None and rest.endswith(_AVAILABILITY):
                known.feed.set_offline(offline=_means_offline(payload))
        except PayloadError as error:
            return _rejected(error.reason, str(error), mote)
        return NOTHING

    def run(
        self,
        mote: str,
        program: SamplingProgram,
        *,
        radio_us: int,
        received_us: int,
        not_before_us: int | None = None,
    ) -> DriverOutput:
        """Request a change of a device's reporting from the bridge; the program runs once the bridge has answered."""
        known = self._motes.get(mote)
        if known is None:
            return _rejected("unknown_mote", f"driver {self.name!r} has no mote {mote!r}", mote)
        if known.change is not None and known.change.program == program:
            known.change.not_before(not_before_us)
            return self._advance(known, radio_us, received_us)
        if known.feed.program == program and known.change is None:
            return NOTHING
        parts = push_down(program, known.capabilities)
        if parts.accepted != program:
            return _rejected("program", f"a Zigbee device cannot report {', '.join(parts.left_out)}", mote)
        # If no query demands anything, the device is left as it is: other systems may use its reports, too.
        plan = plan_reporting(known.device, parts.device)
        known.change = ReportingChange(program, {} if program.sleeping else plan.requests, plan.dead_bands)
        known.change.not_before(not_before_us)
        left = parts.left_out + plan.left_out
        notices = (Notice(mote, f"left to the proxy: {'; '.join(left)}"),) if left else ()
        return DriverOutput(notices=notices) + self._advance(known, radio_us, received_us)

    def announce(self, mote: str, *, radio_us: int, received_us: int) -> DriverOutput:
        """Return the announcement of a device again."""
        _ = radio_us, received_us
        known = self._motes.get(mote)
        return NOTHING if known is None else DriverOutput(frames=(known.feed.announcement(),))

    def listen(self, mote: str, *, radio_us: int, received_us: int) -> DriverOutput:
        """Return an empty packet with a listen window: the bridge can receive requests at any time."""
        known = self._motes.get(mote)
        if known is None or known.feed.offline:
            return NOTHING
        return DriverOutput(frames=(known.feed.empty(radio_us=radio_us, received_us=received_us),))

    def time_passed(self, *, radio_us: int, received_us: int) -> DriverOutput:
        """Return the empty packets and the repeated requests that are due."""
        output = NOTHING
        for known in self._motes.values():
            if known.change is not None:
                output += self._advance(known, radio_us, received_us)
        heartbeats = (
            known.feed.heartbeat(radio_us=radio_us, received_us=received_us) for known in self._motes.values()
        )
        return output + DriverOutput(frames=tuple(each for each in heartbeats if each is not None))

    def _devices(self, content: Any, radio_us: int, received_us: int) -> DriverOutput:
        devices, wrong = read_devices(content)
        before, self._motes, self._by_friendly_name = self._motes, {}, {}
        output = DriverOutput(rejections=tuple(Rejection("shape", each) for each in wrong))
        for device in devices:
            mote = self._names.name_of(device.friendly_name)
            known = before.get(mote)
            if known is None or known.device != device:
                changed = self._known(device, mote, radio_us)
                # A device that only changed is no new mote: the numbers of its packets continue.
                known = changed if known is None else self._renewed(known, changed)
                hello = known.feed.empty(radio_us=radio_us, received_us=received_us)
                output += DriverOutput(frames=(known.feed.announcement(), hello))
            self._motes[mote] = self._by_friendly_name[device.friendly_name] = known
        return output

    def _renewed(self, known: _Known, changed: _Known) -> _Known:
        known.device, known.capabilities = changed.device, changed.capabilities
        known.feed.describe(changed.feed.description)
        return known

    def _known(self, device: ZigbeeDevice, mote: str, radio_us: int) -> _Known:
        about = DeviceDescription(
            mote,
            identifier(device.model),
            self._schema(device),
            {},
            self._plan.default_period_us,
            REPORTING.shortest_period_us,
        )
        can = any(reportable(device, exposed) for exposed in device.properties)
        feed = DeviceFeed(about, self._plan.times, radio_us=radio_us, boot=self._boots.get(mote, 1))
        return _Known(device, feed, REPORTING if can else PASSIVE)

    def _schema(self, device: ZigbeeDevice) -> StreamSchema:
        fields = tuple(exposed.field for exposed in device.properties)
        words = {"{base}": self._plan.base, "{model}": device.model, "{vendor}": device.vendor}
        name = self._plan.stream
        for part, word in words.items():
            name = name.replace(part, word.lower())
        name = identifier(name)[:48].rstrip("_")
        if self._streams.setdefault(name, StreamSchema(name, fields)).fields != fields:
            # The same model with other fields: another firmware, or options of this one device.
            name = f"{name}_{hashlib.sha256(msgspec.json.encode(fields)).hexdigest()[:8]}"
        return StreamSchema(name, fields)

    def _state(self, known: _Known, content: Any, radio_us: int, received_us: int) -> DriverOutput:
        if not isinstance(content, dict):
            raise PayloadError("shape", f"state of {known.device.friendly_name[:64]!r} is not a JSON object")
        battery = content.get(BATTERY)
        share: float | None = None
        if isinstance(battery, int | float) and not isinstance(battery, bool) and 0 <= battery <= _PERCENT:
            share = battery / _PERCENT
        known.feed.message_received(radio_us=radio_us, battery=share)
        known.feed.set_offline(offline=False)
        if known.change is not None:
            known.change.device_awake()
        values = {exposed.field.name: exposed.value(content.get(exposed.key)) for exposed in known.device.properties}
        sample = known.feed.sample(values, at_us=received_us, radio_us=radio_us, received_us=received_us)
        if isinstance(sample, Rejection):
            return DriverOutput(rejections=(sample,))
        return NOTHING if sample is None else DriverOutput(frames=(sample,))

    def _answered(self, content: Any, radio_us: int, received_us: int) -> DriverOutput:
        transaction = content.get("transaction") if isinstance(content, dict) else None
        if not isinstance(transaction, str):
            return NOTHING  # the answer to a request of another client
        for mote, known in self._motes.items():
            if known.change is None or not known.change.owns(transaction):
                continue
            if content.get("status") == "ok":
                known.change.accepted(transaction)
                return self._advance(known, radio_us, received_us)
            reason = str(content.get("error", "it gives no reason"))[:200]
            what = known.change.failed(transaction, radio_us)
            output = _rejected("device_refused", f"{mote!r} does not change its reporting of {what}: {reason}", mote)
            return output + self._advance(known, radio_us, received_us)
        return NOTHING

    def _advance(self, known: _Known, radio_us: int, received_us: int) -> DriverOutput:
        """Send the requests that are due, and start the program when none is left."""
        change, mote = known.change, known.feed.description.mote
        if change is None:
            return NOTHING
        plan = self._plan
        due, unable = change.due(
            radio_us,
            answer_within_us=plan.answer_within_us,
            retry_after_us=plan.retry_after_us,
            attempts=plan.attempts,
        )
        publications: list[Publication] = []
        for name, request in due:
            self._transactions += 1
            transaction = f"fjord/{self.name}/{program_number(change.program):08x}/{radio_us}/{self._transactions}"
            change.sent(name, transaction, radio_us)
            payload = msgspec.json.encode({**msgspec.structs.asdict(request), "transaction": transaction})
            publications.append(Publication(f"{plan.base}/bridge/request/{plan.request}", payload))
        notices = tuple(
            Notice(mote, f"{name} keeps the device's own reporting: the device rejected the change") for name in unable
        )
        output = DriverOutput(publications=tuple(publications), notices=notices)
        if not change.settled:
            return output
        known.change = None
        packet = known.feed.run(
            change.program,
            radio_us=radio_us,
            received_us=received_us,
            not_before_us=change.not_before_us,
            on_device=change.dead_bands,
        )
        return output + DriverOutput(frames=(packet,))


def _means_offline(payload: bytes) -> bool:
    text = payload[:64].strip()
    return text == b"offline" or (text.startswith(b"{") and b'"offline"' in text)


def _rejected(reason: str, detail: str, mote: str) -> DriverOutput:
    return DriverOutput(rejections=(Rejection(reason, detail, mote),))
