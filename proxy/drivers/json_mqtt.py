"""Devices that publish JSON by their own rules: topics by pattern, fields by path. Nothing is ever sent to them.

Pure. Each message is a tuple with all fields, whatever queries run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as default
from typing import Any, Final

import msgspec

from protocols.errors import SchemaError
from protocols.wire.packets import SampleValue
from protocols.wire.programs import SECOND_US, SamplingProgram
from protocols.wire.streams import Field, FieldType, StreamSchema, check_value
from proxy.drivers.device import Device, DeviceDriver, DeviceTraits, StreamColumns, decode_state, defaults_of, events_of
from proxy.drivers.device_feed import DeviceDescription, FeedTimes
from proxy.drivers.driver import (
    NOTHING,
    PASSIVE,
    SHOWN,
    Capabilities,
    DriverOutput,
    KnownDevice,
    Notice,
    Rejection,
    VersionRange,
    read_version,
)
from proxy.drivers.field_mapping import LONGEST_TEXT, FieldMapping, Reading, TimeMapping, read_fields
from proxy.drivers.payloads import MISSING, NameTable, PayloadError, TopicPattern, look_up, read_json

MOTE_PART = "mote"
"""The part of the topic that names the device."""
SENSOR = "sensor"
"""The fixed column with the device's own name."""
MUTE_US: Final = 60 * SECOND_US
"""Properties of a device that change more often than this are announced with a delay."""


@dataclass(frozen=True, slots=True)
class FixedProperty:
    """A property of each device.

    Parameters
    ----------
    field
        Of the stream; fixed.
    part
        The part of the topic that holds it, as text; empty if it is none.
    path
        Where messages have it; None if they do not.
    value, values
        What it is for every device, and for single ones by name.
    """

    field: Field
    part: str = ""
    path: tuple[str, ...] | None = None
    value: SampleValue = None
    values: Mapping[str, SampleValue] = default(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VersionMapping:
    """Other paths of fields, for some versions of the bridge.

    Parameters
    ----------
    versions
        For which.
    fields
        All fields, with these paths.
    """

    versions: VersionRange
    fields: tuple[FieldMapping, ...]


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
    same_within_us
        Messages of the same content within this time are copies of one; 0 if none are.
    message_id
        Where a message has what its copies have in common; None for all its values.
    decimal_comma
        Whether numbers in texts have a decimal comma.
    version_topic, version_path
        Where the bridge publishes its version; empty for nowhere.
    mappings
        By version of the bridge; the first that includes it counts.
    capabilities
        Of each device.
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
    same_within_us: int = 0
    message_id: tuple[str, ...] | None = None
    decimal_comma: bool = False
    version_topic: str = ""
    version_path: tuple[str, ...] = ()
    mappings: tuple[VersionMapping, ...] = ()
    capabilities: Capabilities = PASSIVE
    default_period_us: int = SECOND_US
    minimum_period_us: int = 1_000
    max_motes: int = 10_000

    @property
    def has_sensor_column(self) -> bool:
        """Whether the device's name is a column of its own: unless a field or property has its name."""
        own = (*(each.field for each in self.properties), *(each.field for each in self.fields))
        return SENSOR not in {each.name.casefold() for each in own}

    @property
    def reads_words(self) -> bool:
        """Whether a field is the whole payload, and may be text without quotes."""
        mapped = (*self.fields, *(each for mapping in self.mappings for each in mapping.fields))
        return any(not each.path and each.field.type in {FieldType.TEXT, FieldType.BOOLEAN} for each in mapped)

    @property
    def schema(self) -> StreamSchema:
        """The stream's schema: the name of the device, properties, then sampled fields."""
        sensor = (Field(SENSOR, FieldType.TEXT, fixed=True),) if self.has_sensor_column else ()
        own = (*(p.field for p in self.properties), *(each.field for each in self.fields))
        return StreamSchema(self.stream, sensor + own)


@dataclass(slots=True)
class _Announced:
    """The properties of a device: those of its last announcement, when they changed, and its newest message's stamp."""

    properties: dict[str, SampleValue]
    changed_radio_us: int | None = None
    newest_us: int | None = None


class JsonDriver(DeviceDriver[Device]):
    """The devices of one topic pattern."""

    def __init__(self, plan: JsonDriverPlan) -> None:
        traits = DeviceTraits(
            plan.times,
            plan.same_within_us,
            f"Give the stream or the columns of driver {plan.name!r} other names in the drivers' file, and restart the "
            "proxy",
        )
        super().__init__(traits)
        self._plan = plan
        self._names = NameTable(prefix=plan.prefix)
        self._announced: dict[str, _Announced] = {}
        self._of_topics: dict[str, tuple[Device, Mapping[str, str]]] = {}
        """Devices by their topics, with the parts of these; empty where a device may have many."""
        self._one_topic = not set(plan.pattern.parts) - {MOTE_PART}
        self._says_properties = any(each.path is not None or each.part for each in plan.properties)
        """Whether messages say what a device's properties are."""
        self._reads_words = plan.reads_words
        self._boots: dict[str, int] = {}
        """Of motes from before a restart, also of those that are no devices of the present file."""
        self._streams = StreamColumns(units_may_come=True)
        self._columns = self._streams.merge(plan.schema)
        self._capabilities = plan.capabilities
        self._note_events()
        self._fields: tuple[FieldMapping, ...] | None = None if plan.mappings else plan.fields
        self._version_read = ""
        self._version_trouble = f"no version was received on {plan.version_topic}" if plan.mappings else ""

    @property
    def name(self) -> str:
        """The name of this driver."""
        return self._plan.name

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """The filter of the pattern, and the topic of the bridge's version if there is one."""
        version = (self._plan.version_topic,) if self._plan.version_topic else ()
        return (self._plan.pattern.filter, *version)

    def capabilities_of(self, mote: str) -> Capabilities:
        """Return what one device can do: publish by its own rules."""
        _ = mote
        return self._capabilities

    def received(
        self, topic: str, payload: bytes, *, radio_us: int, received_us: int, retained: bool = False
    ) -> DriverOutput:
        """Return the announcement of a new device, and the tuple of a message."""
        plan = self._plan
        if plan.version_topic and topic == plan.version_topic:
            return self._version(payload)
        known: Device | None
        found = self._of_topics.get(topic)
        if found is not None:
            known, parts = found
            name = known.name
        else:
            matched = plan.pattern.match(topic)
            if matched is None:
                return NOTHING
            parts = matched
            name = parts.get(MOTE_PART, plan.mote)
            known = self._motes.get(self._names.known(name) or "")
            if known is not None and self._one_topic:
                self._of_topics[topic] = known, parts
        try:
            return self._message(
                name, known, parts, payload, radio_us=radio_us, received_us=received_us, retained=retained
            )
        except PayloadError as error:
            if known is not None:
                return known.rejected(error)
            return _rejected(Rejection(error.reason, str(error), self._names.likely(name)))

    def run(
        self,
        mote: str,
        program: SamplingProgram,
        *,
        radio_us: int,
        received_us: int,
        not_before_us: int | None = None,
    ) -> DriverOutput:
        """Do nothing: what a device publishes does not depend on programs."""
        _ = program, radio_us, received_us, not_before_us
        if mote not in self._motes:
            return _rejected(Rejection("unknown_mote", f"driver {self.name!r} has no mote {mote!r}", mote))
        return NOTHING

    def restore(self, devices: Sequence[KnownDevice], *, radio_us: int, received_us: int) -> DriverOutput:
        """Go on with devices from before a restart, and with the columns that their stream had."""
        output = NOTHING
        covered: list[KnownDevice] = []
        self._boots.update({each.mote: each.boot for each in devices})
        for known in devices:
            if not known.device:
                continue
            if len(self._motes) + len(covered) >= self._plan.max_motes or not self._covers(known):
                text = f"driver {self.name!r} does not drive {known.device[:64]!r} as {known.mote!r} any more"
                output += DriverOutput(notices=(Notice(known.mote, text),))
                continue
            covered.append(known)
        # The columns that the stream had come first: a file may add to them, and change nothing.
        self._streams = StreamColumns(units_may_come=True)
        for known in (*covered, *(each for each in devices if not each.device)):
            if known.announcement.stream.name == self._plan.stream:
                self._streams.merge(known.announcement.stream)
        self._columns = self._streams.merge(self._plan.schema)
        self._note_events()
        for known in covered:
            output += self._restored(known, radio_us, received_us)
        return output

    @staticmethod
    def _unit(known: Device) -> Device:
        return known

    def _kept(self, known: Device) -> bytes:
        _ = known
        return self._version_read.encode()

    def trouble_of(self, mote: str) -> str:
        """Return what keeps values of a device from their stream."""
        if mote not in self._motes:
            return ""
        return "; ".join(filter(None, (self._version_trouble, super().trouble_of(mote))))

    def _message(
        self,
        name: str,
        device: Device | None,
        parts: Mapping[str, str],
        payload: bytes,
        *,
        radio_us: int,
        received_us: int,
        retained: bool,
    ) -> DriverOutput:
        plan = self._plan
        if retained:
            raise PayloadError("retained", "a value that the broker retained is out of date")
        if self._fields is None:
            raise PayloadError("bridge_version", f"{self._version_trouble}: which paths its fields have is not known")
        content = read_json(payload, decimal_comma=plan.decimal_comma, words=self._reads_words)
        reading = read_fields(self._fields, content)
        at_us = None if plan.time is None else plan.time.stamp_us(content, received_us)
        output = NOTHING
        if device is None:
            device = self._met(name, parts, content, reading, radio_us)
            output = DriverOutput(frames=(device.feed.announcement(),))
        elif self._says_properties:
            output = self._properties_of_message(device, parts, content, at_us, radio_us)
        if plan.time is not None and at_us is None:
            device.count("receipt_time")
        device.feed.message_received(radio_us=radio_us)
        compared = None
        if not plan.same_within_us:
            pass
        elif plan.message_id is None:
            values = tuple(reading.values.items())
            compared = lambda: (at_us, values)  # noqa: E731 - most messages are compared with none
        elif (found := look_up(content, plan.message_id)) is not MISSING and found is not None:
            compared = lambda: found  # noqa: E731 - as above
        try:
            tuples = device.received(reading, at_us, content=compared, radio_us=radio_us, received_us=received_us)
        except PayloadError as error:
            tuples = device.rejected(error)
        return tuples if output is NOTHING else output + tuples

    def _met(self, name: str, parts: Mapping[str, str], content: Any, reading: Reading, radio_us: int) -> Device:
        """Return a device that is met for the first time, by a message with one of its fields."""
        if not reading.values:
            # It may be of something else on such a topic, and a device is kept for ever.
            raise PayloadError("missing", "it has none of the fields, and no device of this name is known")
        if len(self._motes) >= self._plan.max_motes:
            raise PayloadError("too_many_motes", f"there are {self._plan.max_motes:,} devices already")
        mote = self._names.name_of(name)
        try:
            properties = self._properties(name, parts, content)
        except PayloadError:
            self._names.forget(name)  # a message that is rejected leaves nothing behind
            raise
        boot = self._boots.get(mote, 1)
        device = Device(name, self._description(mote, properties), self._traits, radio_us=radio_us, boot=boot)
        self._add(device, properties)
        return device

    def _restored(self, known: KnownDevice, radio_us: int, received_us: int) -> DriverOutput:
        properties = self._properties(known.device, None, MISSING)
        for each in self._plan.properties:
            name = self._columns.names.get(each.field.name)
            before = None if name is None else known.announcement.properties.get(name)
            if name is not None and before is not None and (each.part or each.path is not None):
                properties[name] = before
        state = decode_state(known.state)
        device = Device(
            known.device,
            self._description(known.mote, properties),
            self._traits,
            radio_us=radio_us,
            boot=known.boot,
            state=state,
            low_watermark_us=known.low_watermark_us,
        )
        self._add(device, properties)
        output = NOTHING
        if state is not None and state.description and not self._version_read:
            output += self._read_by(state.description.decode(errors="replace"))
        notices: list[Notice] = []
        if state is None:
            device.count("state_unreadable")
            notices.append(Notice(known.mote, "its counters begin anew: what was kept of them cannot be read"))
        if self._columns.absent:
            named = ", ".join(self._columns.absent)
            notices.append(Notice(known.mote, f"columns that the file does not have any more are NULL: {named}"))
        hello = (device.feed.empty(radio_us=radio_us, received_us=received_us),) if device.feed.can_promise else ()
        rejections = tuple(
            Rejection("mismatch", f"{each}. {self._traits.remedy}", known.mote)
            for each in self._columns.mismatches.values()
        )
        return output + DriverOutput((device.feed.announcement(), *hello), (), rejections, tuple(notices))

    def _note_events(self) -> None:
        events = events_of(self._plan.fields, self._columns)
        self._capabilities = msgspec.structs.replace(self._capabilities, event_fields=events)

    def _covers(self, known: KnownDevice) -> bool:
        """Return whether a device from before a restart is still one of these, by the same name."""
        named = known.device == self._plan.mote if self._plan.mote else bool(known.device)
        if not named or known.mote in self._motes:
            return False
        had = self._names.known(known.device)
        if self._names.name_of(known.device) == known.mote:
            return True
        if had is None:
            self._names.forget(known.device)
        return False

    def _add(self, device: Device, properties: dict[str, SampleValue]) -> None:
        device.map(self._fields or self._plan.fields, self._columns)
        self._motes[device.mote] = device
        self._announced[device.mote] = _Announced(properties)

    def _description(self, mote: str, properties: Mapping[str, SampleValue]) -> DeviceDescription:
        plan = self._plan
        return DeviceDescription(
            mote,
            plan.kind,
            self._columns.schema,
            properties,
            plan.default_period_us,
            plan.minimum_period_us,
            events=events_of(plan.fields, self._columns),
            defaults=defaults_of(plan.fields, self._columns),
        )

    def _properties_of_message(
        self, device: Device, parts: Mapping[str, str], content: Any, at_us: int | None, radio_us: int
    ) -> DriverOutput:
        """Return a new announcement if properties have changed, and the last change is not too near.

        Messages that are older than the newest one, or late, change nothing.
        """
        announced = self._announced[device.mote]
        if at_us is not None:
            if device.feed.is_late(at_us) or (announced.newest_us is not None and at_us < announced.newest_us):
                return NOTHING
            announced.newest_us = at_us
        found = self._properties(device.name, parts, content, announced.properties)
        if found == announced.properties:
            return NOTHING
        if announced.changed_radio_us is not None and radio_us - announced.changed_radio_us < MUTE_US:
            device.count("property_delayed")
            device.troubles["properties"] = "its properties change too often: give what changes to a [[driver.field]]"
            return NOTHING
        device.troubles.pop("properties", None)
        self._announced[device.mote] = _Announced(found, radio_us, announced.newest_us)
        device.feed.describe(replace(device.feed.description, properties=found))
        return DriverOutput(frames=(device.feed.announcement(),))

    def _properties(
        self,
        name: str,
        parts: Mapping[str, str] | None,
        content: Any,
        before: Mapping[str, SampleValue] | None = None,
    ) -> dict[str, SampleValue]:
        """Return the properties of a device, by the stream's names; what a message does not have stays as before."""
        plan, names = self._plan, self._columns.names
        found: dict[str, SampleValue] = {}
        if plan.has_sensor_column and SENSOR in names:
            found[names[SENSOR]] = name if len(name) <= LONGEST_TEXT else self._names.name_of(name)
        for fixed in plan.properties:
            column = names.get(fixed.field.name)
            if column is not None:
                old = None if before is None else before.get(column)
                found[column] = self._property(fixed, name, parts, content, old)
        return found

    def _property(
        self, fixed: FixedProperty, name: str, parts: Mapping[str, str] | None, content: Any, before: SampleValue
    ) -> SampleValue:
        value: Any = fixed.value
        for each in (name, self._names.known(name)):
            value = value if each is None else fixed.values.get(each, value)
        if fixed.part:
            value = before if parts is None else parts.get(fixed.part)
        elif fixed.path is not None:
            given = look_up(content, fixed.path)
            if given is MISSING or given is None:
                return before if before is not None else value
            value = given
            if fixed.field.type is FieldType.TEXT and isinstance(value, list | dict):
                value = msgspec.json.encode(value).decode()
        try:
            checked = check_value(fixed.field, value)
        except (SchemaError, OverflowError) as error:
            raise PayloadError("type", f"property {str(error)[:200]}") from error
        if isinstance(checked, str) and len(checked) > LONGEST_TEXT:
            raise PayloadError("type", f"property {fixed.field.name!r} has more than {LONGEST_TEXT:,} characters")
        return checked

    def _version(self, payload: bytes) -> DriverOutput:
        """Note the version of the bridge."""
        try:
            found = look_up(read_json(payload), self._plan.version_path)
        except PayloadError as error:
            return _rejected(Rejection(error.reason, str(error)))
        return self._read_by("" if found is MISSING else str(found)[:SHOWN])

    def _read_by(self, written: str) -> DriverOutput:
        """Read fields by the mapping of this version of the bridge from now on."""
        plan, version = self._plan, read_version(written)
        mapping = next((each for each in plan.mappings if version and each.versions.includes(version)), None)
        fields = plan.fields if mapping is None else mapping.fields
        trouble = ""
        if mapping is None and plan.mappings:
            trouble = (
                f"version {written!r} of the bridge has no [[driver.mapping]], so fields are read by their own paths: "
                "add one for it"
            )
        if (fields, trouble, written) == (self._fields, self._version_trouble, self._version_read):
            return NOTHING
        self._fields, self._version_trouble, self._version_read = fields, trouble, written
        for device in self._motes.values():
            device.map(fields, self._columns)
        return DriverOutput(notices=(Notice("", trouble or f"version of the bridge: {written}"),))


def _rejected(rejection: Rejection) -> DriverOutput:
    return DriverOutput(rejections=(rejection,))
