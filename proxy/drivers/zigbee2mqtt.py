"""Zigbee2MQTT: its devices as motes, whose reporting is set through the bridge.

Facts from the Zigbee2MQTT documentation ("MQTT topics and messages", "Device-Availability"): a request's response comes
on the same topic with ``response`` for ``request`` and repeats its ``transaction``; ``status`` is ``ok`` or ``error``,
then with ``error`` in words; availability is ``online`` or ``{"state": "online"}``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from protocols.wire.frames import KIBIBYTE, MEBIBYTE
from protocols.wire.packets import Announcement, SampleValue
from protocols.wire.programs import SECOND_US, SamplingProgram, program_number
from protocols.wire.streams import Field, FieldType, StreamSchema
from proxy.drivers.device import (
    Device,
    DeviceDriver,
    DeviceTraits,
    MergedColumns,
    StreamColumns,
    decode_state,
    defaults_of,
    events_of,
)
from proxy.drivers.device_feed import DeviceDescription, DeviceFeed, FeedTimes
from proxy.drivers.driver import (
    NOTHING,
    PASSIVE,
    SHOWN,
    Capabilities,
    DriverOutput,
    KnownDevice,
    Notice,
    Publication,
    Rejection,
)
from proxy.drivers.field_mapping import FieldMapping, FieldRules, Reading, read_fields
from proxy.drivers.payloads import NameTable, PayloadError, identifier, read_json
from proxy.drivers.zigbee_devices import BATTERY, MAX_DEVICES, ZigbeeDevice, read_devices
from proxy.drivers.zigbee_reporting import REPORTING, ReportingChange, plan_reporting, push_down, reportable

MAX_DEVICES_BYTES = 8 * MEBIBYTE
_MAX_DESCRIPTION_BYTES: Final = 32 * KIBIBYTE
_NAMED = (Field("sensor", FieldType.TEXT, fixed=True), Field("address", FieldType.TEXT, fixed=True))
"""The fixed columns with a device's friendly name and its IEEE address."""
_NO_STATE = ("bridge/", "/set", "/get", "/availability")
_description = msgspec.msgpack.Decoder(ZigbeeDevice)
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
    same_within_us
        Messages of the same content within this time are copies of one; 0 if none are.
    rules
        What is known of fields beyond what the bridge states, by their names without case.
    stored_always, expected_every_us
        As in :class:`~proxy.drivers.driver.Capabilities`.
    mains
        Whether its devices have no batteries; None to take the bridge's word for it.
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
    same_within_us: int = 0
    rules: Mapping[str, FieldRules] = field(default_factory=dict)
    stored_always: bool = False
    expected_every_us: int | None = None
    mains: bool | None = None


@dataclass(slots=True)
class _Known:
    unit: Device
    capabilities: Capabilities
    device: ZigbeeDevice | None = None
    """None if the bridge has not listed it since a restart, and nothing was kept of it."""
    fields: tuple[FieldMapping, ...] = ()
    description: bytes = b""
    columns: MergedColumns | None = None
    change: ReportingChange | None = None

    @property
    def feed(self) -> DeviceFeed:
        """Its packets."""
        return self.unit.feed

    @property
    def stated(self) -> tuple[Announcement, Capabilities]:
        """What the fleet knows of it."""
        return self.feed.announcement(), self.capabilities


class Zigbee2MqttDriver(DeviceDriver[_Known]):
    """The devices of one bridge."""

    def __init__(self, plan: ZigbeeDriverPlan) -> None:
        traits = DeviceTraits(
            plan.times,
            plan.same_within_us,
            f"Give driver {plan.name!r} another pattern of streams, such as stream = '{{base}}_{{model}}_2', and "
            "restart the proxy",
        )
        super().__init__(traits)
        self._plan = plan
        self._names = NameTable(prefix=plan.prefix)
        self._by_friendly_name: dict[str, _Known] = {}
        self._streams = StreamColumns()
        self._kept_streams: dict[str, str] = {}
        """The streams of devices from before a restart."""
        self._others: frozenset[str] = frozenset()
        """Names of which messages are nothing: of groups, and of devices without fields."""
        self._groups: frozenset[str] = frozenset()
        self._left: dict[str, bytes] = {}
        """What was kept of devices that the bridge does not list any more, by mote, the latest last."""
        self._boots: dict[str, int] = {}
        """Of motes from before a restart, and of those that the bridge does not list any more."""
        self._listed = False
        self._bridge_version = ""
        self._transactions = 0

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

    def received(
        self, topic: str, payload: bytes, *, radio_us: int, received_us: int, retained: bool = False
    ) -> DriverOutput:
        """Return what follows from a message of the bridge."""
        if not topic.startswith(f"{self._plan.base}/"):
            return NOTHING
        rest = topic[len(self._plan.base) + 1 :]
        try:
            if rest == "bridge/devices":
                return self._devices(read_json(payload, max_bytes=MAX_DEVICES_BYTES), radio_us, received_us)
            if rest == f"bridge/response/{self._plan.request}":
                return NOTHING if retained else self._answered(read_json(payload), radio_us, received_us)
            if rest == "bridge/groups":
                with suppress(PayloadError):  # it has nothing but names, of which no message is missed
                    self._groups = _names_in(read_json(payload, max_bytes=MAX_DEVICES_BYTES))
                    self._others |= self._groups
                return NOTHING
            if rest == "bridge/info":
                return self._info(read_json(payload, max_bytes=MAX_DEVICES_BYTES))
            known = self._by_friendly_name.get(rest)
            if known is not None:
                return self._state(known, payload, radio_us, received_us, retained=retained)
            known = self._by_friendly_name.get(rest.removesuffix(_AVAILABILITY))
            if known is not None and rest.endswith(_AVAILABILITY):
                known.feed.set_offline(offline=_means_offline(payload))
            elif known is None and rest not in self._others and not retained and _may_be_state(rest, payload):
                detail = f"the bridge does not list {rest[:64]!r}{'' if self._listed else ' yet'}"
                return _rejected("unlisted", detail, "")
        except PayloadError as error:
            return _rejected(error.reason, str(error), "")
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
        if known.capabilities.publishes or known.device is None:
            return NOTHING
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

    def time_passed(self, *, radio_us: int, received_us: int) -> DriverOutput:
        """Return the empty packets and the repeated requests that are due."""
        output = NOTHING
        for known in self._motes.values():
            if known.change is not None:
                output += self._advance(known, radio_us, received_us)
        return output + super().time_passed(radio_us=radio_us, received_us=received_us)

    def restore(self, devices: Sequence[KnownDevice], *, radio_us: int, received_us: int) -> DriverOutput:
        """Go on with devices from before a restart; what the bridge lists is compared with them."""
        output = NOTHING
        self._boots.update({each.mote: each.boot for each in devices})
        covered = [each for each in devices if each.device and self._covers(each)]
        for known in (*covered, *(each for each in devices if not each.device)):
            self._streams.merge(known.announcement.stream)
            self._kept_streams[known.mote] = known.announcement.stream.name
        for known in covered:
            restored = self._restored(known, radio_us)
            self._motes[known.mote] = self._by_friendly_name[known.device] = restored
            hello = restored.feed.empty(radio_us=radio_us, received_us=received_us)
            output += DriverOutput(frames=(restored.feed.announcement(), hello))
        return output

    @staticmethod
    def _unit(known: _Known) -> Device:
        return known.unit

    def _kept(self, known: _Known) -> bytes:
        return known.description  # messages of a device may come before the next list

    def _covers(self, known: KnownDevice) -> bool:
        return bool(known.device) and known.mote not in self._motes and self._names.name_of(known.device) == known.mote

    def _restored(self, known: KnownDevice, radio_us: int) -> _Known:
        state, before = decode_state(known.state), known.announcement
        description = b"" if state is None else state.description
        device = _read_description(description)
        schema = self._streams.schema_of(before.stream.name) or before.stream
        # A device of which nothing was kept has no program until the bridge lists it.
        about = DeviceDescription(
            known.mote, before.kind, schema, before.properties, before.default_period_us, before.minimum_period_us,
            publishes=False,
        )  # fmt: skip
        unit = Device(
            known.device, about, self._traits, radio_us=radio_us, boot=known.boot, state=state,
            low_watermark_us=known.low_watermark_us,
        )  # fmt: skip
        found = _Known(unit, REPORTING)
        if state is None:
            unit.count("state_unreadable")
        if device is not None:
            self._describe(found, device)
        return found

    def _info(self, content: Any) -> DriverOutput:
        """Note the version of the bridge."""
        version = content.get("version") if isinstance(content, dict) else None
        if not isinstance(version, str) or version[:SHOWN] == self._bridge_version:
            return NOTHING
        before, self._bridge_version = self._bridge_version, version[:SHOWN]
        was = f", was {before}" if before else ""
        return DriverOutput(notices=(Notice("", f"version of the bridge: {self._bridge_version}{was}"),))

    def _devices(self, content: Any, radio_us: int, received_us: int) -> DriverOutput:
        devices, wrong = read_devices(content)
        self._listed = True
        self._others = self._groups | _names_in(content)
        before, self._motes, self._by_friendly_name = self._motes, {}, {}
        output = DriverOutput(rejections=tuple(Rejection("shape", each) for each in wrong))
        # All columns of a stream come before the first of its devices is announced: its devices have the same ones.
        for device in devices:
            self._streams.merge(self._offered(device, self._names.name_of(device.friendly_name)))
        for device in devices:
            mote = self._names.name_of(device.friendly_name)
            known = before.get(mote)
            stated = None if known is None else known.stated
            if known is None:
                known = self._met(device, mote, radio_us)
            output += self._listed_as(known, device)
            if known.stated != stated:
                # A device that only changed is no new mote: the numbers of its packets continue. Where no more than
                # its capabilities are others, the same announcement lets the fleet ask for them, and plan anew.
                hello = known.feed.empty(radio_us=radio_us, received_us=received_us)
                output += DriverOutput(frames=(known.feed.announcement(), hello))
            self._motes[mote] = self._by_friendly_name[device.friendly_name] = known
        for mote, known in before.items():
            if mote not in self._motes:
                # The numbers of its packets begin anew if it comes back.
                self._boots[mote] = known.feed.boot + 1
                times = {"radio_us": radio_us, "received_us": received_us}
                output += DriverOutput(frames=known.unit.time_passed(**times, at_once=True))
                self._leave(mote, known)
        return output

    def _leave(self, mote: str, known: _Known) -> None:
        """Keep the counters of a device that is not listed any more: it may come back."""
        self._left.pop(mote, None)
        self._left[mote] = known.unit.state()
        while len(self._left) > MAX_DEVICES:
            del self._left[next(iter(self._left))]

    def _met(self, device: ZigbeeDevice, mote: str, radio_us: int) -> _Known:
        schema = self._offered(device, mote)
        about = DeviceDescription(mote, identifier(device.model), schema, {}, publishes=False)
        boot = self._boots.get(mote, 1)
        state = decode_state(self._left.pop(mote, b""))
        unit = Device(device.friendly_name, about, self._traits, radio_us=radio_us, boot=boot, state=state)
        return _Known(unit, PASSIVE)

    def _listed_as(self, known: _Known, device: ZigbeeDevice) -> DriverOutput:
        """Note how the bridge lists a device; return what is new that does not fit its stream."""
        mismatches = {} if known.columns is None else known.columns.mismatches
        if known.device != device or known.columns != self._columns_of(device, known.unit.mote):
            self._describe(known, device)
        new = (
            []
            if known.columns is None
            else [each for name, each in known.columns.mismatches.items() if mismatches.get(name) != each]
        )
        rejections = tuple(Rejection("mismatch", f"{each}. {self._traits.remedy}", known.unit.mote) for each in new)
        return DriverOutput(rejections=rejections)

    def _describe(self, known: _Known, device: ZigbeeDevice) -> None:
        plan, mote = self._plan, known.unit.mote
        columns = self._columns_of(device, mote)
        fields = _fields(device, plan.rules)
        known.device, known.fields, known.columns = device, fields, columns
        known.description = _write_description(device)
        can = any(reportable(device, exposed) for exposed in device.properties)
        known.capabilities = msgspec.structs.replace(
            REPORTING if can else PASSIVE,
            stored_always=plan.stored_always,
            event_fields=events_of(fields, columns),
            expected_every_us=plan.expected_every_us,
            mains=device.mains if plan.mains is None else plan.mains,
            max_delay_us=plan.times.merge_within_us,
        )
        if known.capabilities.publishes:
            known.change = None  # its end would start a program that the fleet has forgotten
        named: dict[str, SampleValue] = {"sensor": device.friendly_name[:1_024], "address": device.address[:1_024]}
        fixed = {each.name for each in columns.schema.fixed}
        offered = {each.name for each in self._offered(device, mote).fixed}
        properties = {column: named[own] for own, column in columns.names.items() if own in named and own in offered}
        known.feed.describe(
            DeviceDescription(
                mote,
                identifier(device.model),
                columns.schema,
                {name: value for name, value in properties.items() if name in fixed},
                plan.default_period_us,
                REPORTING.shortest_period_us,
                publishes=known.capabilities.publishes,
                events=events_of(fields, columns),
                defaults=defaults_of(fields, columns),
            )
        )
        known.unit.map(fields, columns)

    def _columns_of(self, device: ZigbeeDevice, mote: str) -> MergedColumns:
        return self._streams.merge(self._offered(device, mote))

    def _offered(self, device: ZigbeeDevice, mote: str) -> StreamSchema:
        """Return the stream of a device with its own columns."""
        words = {"{base}": self._plan.base, "{model}": device.model, "{vendor}": device.vendor}
        name = self._plan.stream
        for part, word in words.items():
            name = name.replace(part, word.lower())
        name = identifier(name)[:48].rstrip("_")
        kept = self._kept_streams.get(mote, "")
        # In earlier versions a device with other fields than the first of its model had a stream with a hash.
        if re.fullmatch(re.escape(name) + "_[0-9a-f]{8}", kept):
            name = kept
        own = tuple(exposed.field for exposed in device.properties)
        taken = {each.name.casefold() for each in own}
        return StreamSchema(name, (*(each for each in _NAMED if each.name not in taken), *own))

    def _state(self, known: _Known, payload: bytes, radio_us: int, received_us: int, *, retained: bool) -> DriverOutput:
        try:
            reading = _read_state(known, payload, radio_us, retained=retained)
            values = tuple(reading.values.items())
            return known.unit.received(
                reading, None, content=lambda: values, radio_us=radio_us, received_us=received_us
            )
        except PayloadError as error:
            return known.unit.rejected(error)

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


def _read_state(known: _Known, payload: bytes, radio_us: int, *, retained: bool) -> Reading:
    """Return the values of a state; raises PayloadError."""
    if retained:
        raise PayloadError("retained", "a value that the broker retained is out of date")
    content = read_json(payload)
    if not isinstance(content, dict):
        raise PayloadError("shape", f"state of {known.unit.name[:64]!r} is not a JSON object")
    battery = content.get(BATTERY)
    share: float | None = None
    if isinstance(battery, int | float) and not isinstance(battery, bool) and 0 <= battery <= _PERCENT:
        share = battery / _PERCENT
    known.feed.message_received(radio_us=radio_us, battery=share)
    known.feed.set_offline(offline=False)
    if known.change is not None:
        known.change.device_awake()
    if known.device is None:
        raise PayloadError("unlisted", f"the bridge has not listed {known.unit.name[:64]!r} yet")
    return read_fields(known.fields, content)


def _names_in(content: Any) -> frozenset[str]:
    """Return the names of all devices, or groups, in a list of the bridge."""
    listed = content if isinstance(content, list) else []
    names = (each.get("friendly_name") for each in listed if isinstance(each, dict))
    return frozenset(each for each in names if isinstance(each, str))


def _may_be_state(topic: str, payload: bytes) -> bool:
    return payload[:1] == b"{" and not topic.startswith(_NO_STATE[0]) and not topic.endswith(_NO_STATE[1:])


def _fields(device: ZigbeeDevice, rules: Mapping[str, FieldRules]) -> tuple[FieldMapping, ...]:
    return tuple(each.mapping(rules.get(each.field.name.casefold())) for each in device.properties)


def _write_description(device: ZigbeeDevice) -> bytes:
    content = msgspec.msgpack.encode(device)
    return content if len(content) <= _MAX_DESCRIPTION_BYTES else b""


def _read_description(content: bytes) -> ZigbeeDevice | None:
    """Return how a device was listed; None if that was not kept, or by a version with another form."""
    try:
        return _description.decode(content) if content else None
    except (msgspec.DecodeError, ValueError):
        return None


def _rejected(reason: str, detail: str, mote: str) -> DriverOutput:
    return DriverOutput(rejections=(Rejection(reason, detail, mote),))
