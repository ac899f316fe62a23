"""Devices that publish JSON by their own rules: topics by pattern, fields by path. Nothing is ever sent to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as default
from typing import Any

from msgspec.structs import replace

from protocols.errors import SchemaError
from protocols.wire.packets import SampleValue
from protocols.wire.programs import SECOND_US, SamplingProgram
from protocols.wire.streams import Field, StreamSchema, check_value
from proxy.drivers.device_feed import DeviceDescription, DeviceFeed, FeedTimes
from proxy.drivers.driver import NOTHING, PASSIVE, Capabilities, DriverOutput, KnownDevice, Notice, Rejection
from proxy.drivers.field_mapping import FieldMapping, TimeMapping
from proxy.drivers.names import NameTable
from proxy.drivers.payloads import PayloadError, read_json
from proxy.drivers.push_down import push_down
from proxy.drivers.topic_pattern import TopicPattern

MOTE_PART = "mote"
"""The part of the topic that names the device."""


@dataclass(frozen=True, slots=True)
class FixedProperty:
    """A property of each device.

    Parameters
    ----------
    field
        Of the stream; fixed.
    part
        The part of the topic that holds it, as text; empty if it is configured.
    value, values
        What it is for every device, and for single ones by name.
    """

    field: Field
    part: str = ""
    value: SampleValue = None
    values: Mapping[str, SampleValue] = default(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JsonDriverPlan:
    """The configuration of a driver of JSON devices.

    Parameters
    ----------
    name
        Of the driver.
    pattern
        Topics; its part ``{mote}`` names the device.
    stream, kind
        Of the motes.
    fields
        Sampled fields.
    properties
        Fixed fields.
    mote
        Name of the only device, if the pattern has no ``{mote}``.
    prefix
        Before the name of each device.
    time
        Where the time is; None stamps values on arrival.
    times
        Bounds on the instants of values.
    default_period_us, minimum_period_us
        As in an announcement.
    max_motes
        Devices at most, as any client can publish on a new topic.
    """

    name: str
    pattern: TopicPattern
    stream: str
    kind: str
    fields: tuple[FieldMapping, ...]
    properties: tuple[FixedProperty, ...] = ()
    mote: str = ""
    prefix: str = ""
    time: TimeMapping | None = None
    times: FeedTimes = default(default_factory=FeedTimes)
    default_period_us: int = SECOND_US
    minimum_period_us: int = 1_000
    max_motes: int = 10_000

    @property
    def schema(self) -> StreamSchema:
        """The stream's schema: properties, then sampled fields."""
        return StreamSchema(self.stream, (*(p.field for p in self.properties), *(each.field for each in self.fields)))


class JsonDriver:
    """The devices of one topic pattern."""

    def __init__(self, plan: JsonDriverPlan) -> None:
        self._plan = plan
        self._schema = plan.schema
        self._names = NameTable(prefix=plan.prefix)
        self._feeds: dict[str, DeviceFeed] = {}
        self._devices: dict[str, str] = {}
        self._boots: dict[str, int] = {}

    @property
    def name(self) -> str:
        """The name of this driver."""
        return self._plan.name

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """The one filter of the pattern."""
        return (self._plan.pattern.filter,)

    def capabilities_of(self, mote: str) -> Capabilities:
        """Return what one device can do: nothing."""
        _ = mote
        return replace(PASSIVE, max_delay_us=self._plan.times.max_delay_us or 0)

    def owns(self, mote: str) -> bool:
        """Return whether a mote is one of these devices."""
        return mote in self._feeds

    def received(
        self, topic: str, payload: bytes, *, radio_us: int, received_us: int, retained: bool = False
    ) -> DriverOutput:
        """Return the announcement of a new device, and the sample in a message."""
        parts = self._plan.pattern.match(topic)
        if parts is None:
            return NOTHING
        device = parts.get(MOTE_PART, self._plan.mote)
        if retained:
            return _rejected(Rejection("retained", "a value that the broker retained is out of date"))
        try:
            content = read_json(payload)
            values = {each.field.name: each.value(content) for each in self._plan.fields}
            at_us = received_us if self._plan.time is None else self._plan.time.instant_us(content)
            known = len(self._feeds)
            feed = self._feed(device, parts, radio_us)
        except PayloadError as error:
            return _rejected(Rejection(error.reason, str(error), device[:64]))
        output = NOTHING
        if len(self._feeds) > known:
            # In the listen window of the empty packet the fleet can send a program at once.
            hello = feed.empty(radio_us=radio_us, received_us=received_us)
            output = DriverOutput(frames=(feed.announcement(), hello))
        sample = feed.sample(values, at_us=at_us, radio_us=radio_us, received_us=received_us)
        if isinstance(sample, Rejection):
            return output + _rejected(sample)
        return output if sample is None else output + DriverOutput(frames=(sample,))

    def run(
        self,
        mote: str,
        program: SamplingProgram,
        *,
        radio_us: int,
        received_us: int,
        not_before_us: int | None = None,
    ) -> DriverOutput:
        """Start the program at once: the driver alone carries it out, on the messages of the device."""
        feed = self._feeds.get(mote)
        if feed is None:
            return _rejected(Rejection("unknown_mote", f"driver {self.name!r} has no mote {mote!r}", mote))
        if feed.program == program:
            return NOTHING
        parts = push_down(program, PASSIVE)
        if parts.accepted != program:
            detail = f"a device that publishes JSON cannot report {', '.join(parts.left_out)}"
            return _rejected(Rejection("program", detail, mote))
        packet = feed.run(program, radio_us=radio_us, received_us=received_us, not_before_us=not_before_us)
        notices = (Notice(mote, f"left to the proxy: {', '.join(parts.left_out)}"),) if parts.left_out else ()
        return DriverOutput(frames=(packet,), notices=notices)

    def announce(self, mote: str, *, radio_us: int, received_us: int) -> DriverOutput:
        """Return the announcement of a device again."""
        _ = radio_us, received_us
        feed = self._feeds.get(mote)
        return NOTHING if feed is None else DriverOutput(frames=(feed.announcement(),))

    def listen(self, mote: str, *, radio_us: int, received_us: int) -> DriverOutput:
        """Return an empty packet with a listen window: the driver can receive controls at any time."""
        feed = self._feeds.get(mote)
        if feed is None or feed.offline:
            return NOTHING
        return DriverOutput(frames=(feed.empty(radio_us=radio_us, received_us=received_us),))

    def time_passed(self, *, radio_us: int, received_us: int) -> DriverOutput:
        """Return the empty packets that are due."""
        heartbeats = (feed.heartbeat(radio_us=radio_us, received_us=received_us) for feed in self._feeds.values())
        return DriverOutput(frames=tuple(each for each in heartbeats if each is not None))

    def restore(self, devices: Sequence[KnownDevice], *, radio_us: int, received_us: int) -> DriverOutput:
        """Return an announcement and a promise of each device that its messages still describe."""
        output = NOTHING
        plan = self._plan
        for each in devices:
            self._boots[each.mote] = each.boot
            announced = each.announcement
            if announced.stream != self._schema or self._names.name_of(each.device) != each.mote:
                continue
            about = DeviceDescription(
                each.mote,
                plan.kind,
                announced.stream,
                announced.properties,
                plan.default_period_us,
                plan.minimum_period_us,
            )
            feed = self._feeds[each.mote] = DeviceFeed(
                about, plan.times, radio_us=radio_us, boot=each.boot, low_watermark_us=each.low_watermark_us
            )
            self._devices[each.mote] = each.device
            promise = feed.empty(radio_us=radio_us, received_us=received_us)
            output += DriverOutput(frames=(feed.announcement(), promise))
        return output

    def device_of(self, mote: str) -> str:
        """Return the name of a device on its own topics."""
        return self._devices.get(mote, "")

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

    def _feed(self, device: str, parts: Mapping[str, str], radio_us: int) -> DeviceFeed:
        found = self._feeds.get(self._names.known(device) or "")
        if found is None:
            if len(self._feeds) >= self._plan.max_motes:
                raise PayloadError("too_many_motes", f"there are {self._plan.max_motes:,} devices already")
            mote = self._names.name_of(device)
            properties = {each.field.name: self._property(each, mote, device, parts) for each in self._plan.properties}
            about = DeviceDescription(
                mote,
                self._plan.kind,
                self._schema,
                properties,
                self._plan.default_period_us,
                self._plan.minimum_period_us,
            )
            boot = self._boots.get(mote, 1)
            found = self._feeds[mote] = DeviceFeed(about, self._plan.times, radio_us=radio_us, boot=boot)
            self._devices[mote] = device
        return found

    def _property(self, fixed: FixedProperty, mote: str, device: str, parts: Mapping[str, str]) -> SampleValue:
        value: Any = fixed.value
        for name in (device, mote):
            value = fixed.values.get(name, value)
        if fixed.part:
            value = parts.get(fixed.part)
        try:
            return check_value(fixed.field, value)
        except SchemaError as error:
            raise PayloadError("type", str(error)) from error


def _rejected(rejection: Rejection) -> DriverOutput:
    return DriverOutput(rejections=(rejection,))
