"""The drivers of a proxy: a TOML file with one ``[[driver]]`` per kind of device.

Every setting, with examples that a test reads, is in docs/how-to/connect-devices.md.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from protocols.errors import FjordError
from protocols.text.durations import parse_duration_us
from protocols.wire import streams
from protocols.wire.names import NAME_SHAPE, fault_of_identifier, normal
from protocols.wire.streams import FieldType
from protocols.wire.topics import check_name
from proxy.drivers.device_feed import FeedTimes
from proxy.drivers.driver import Driver
from proxy.drivers.field_mapping import FieldMapping, TimeForm, TimeMapping, parse_zone
from proxy.drivers.json_mqtt import MOTE_PART, FixedProperty, JsonDriver, JsonDriverPlan
from proxy.drivers.payloads import parse_path
from proxy.drivers.topic_pattern import TopicPattern
from proxy.drivers.zigbee2mqtt import Zigbee2MqttDriver, ZigbeeDriverPlan
from proxy.errors import ConfigurationError

_HINT = "docs/how-to/connect-devices.md describes every setting"


def _duration(value: object) -> object:
    return parse_duration_us(value) if isinstance(value, str) else value


def _name(value: object) -> object:
    return check_name(normal(value)) if isinstance(value, str) else value


def _field_name(value: object) -> object:
    if not isinstance(value, str):
        return value
    name = normal(value)
    if (fault := fault_of_identifier(name)) is not None:
        raise ConfigurationError(f"{value[:80]!r} is no name for a field: {fault}", hint=NAME_SHAPE)
    return name


Duration = Annotated[int, BeforeValidator(_duration), Field(ge=1, le=2**62)]
Name = Annotated[str, BeforeValidator(_name)]
FieldName = Annotated[str, BeforeValidator(_field_name)]
Scalar = bool | int | float | str


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class FieldSettings(_Settings):
    """One ``[[driver.field]]``."""

    name: FieldName
    path: str
    type: FieldType
    unit: str = Field("", max_length=32)
    optional: bool = False
    scale: float = Field(1.0, allow_inf_nan=False)
    offset: float = Field(0.0, allow_inf_nan=False)
    true: Scalar = True
    false: Scalar = False

    def mapping(self) -> FieldMapping:
        """Return the field and where it is."""
        field = streams.Field(self.name, self.type, self.unit)
        path = parse_path(self.path)
        return FieldMapping(field, path, self.optional, self.scale, self.offset, self.true, self.false)


class PropertySettings(_Settings):
    """One ``[[driver.property]]``: from a part of the topic, or configured."""

    name: FieldName
    type: FieldType = FieldType.TEXT
    unit: str = Field("", max_length=32)
    part: str = ""
    value: Scalar | None = None
    values: dict[str, Scalar] = Field(default_factory=dict)

    def fixed(self) -> FixedProperty:
        """Return the property.

        Raises
        ------
        SchemaError
            If a value is of another type.
        """
        field = streams.Field(self.name, self.type, self.unit, fixed=True)
        values = {device: streams.check_value(field, value) for device, value in self.values.items()}
        return FixedProperty(field, self.part, streams.check_value(field, self.value), values)


class TimeSettings(_Settings):
    """``[driver.time]``: the instant of the values, as the device sends it."""

    path: str
    form: TimeForm
    zone: str = "+00:00"
    max_delay: Duration = 10_000_000
    max_ahead: Duration = 60_000_000


class JsonSettings(_Settings):
    """A ``[[driver]]`` of kind ``json``."""

    kind: Literal["json"]
    name: Name
    topic: str
    stream: Name
    device_kind: str = Field("json", max_length=64)
    mote: str = ""
    prefix: str = Field("", max_length=32)
    default_period: Duration = 1_000_000
    minimum_period: Duration = 1_000
    silence_after: Duration = 3_600_000_000
    max_motes: int = Field(10_000, ge=1, le=1_000_000)
    time: TimeSettings | None = None
    field: list[FieldSettings] = Field(min_length=1, max_length=200)
    property: list[PropertySettings] = Field(default_factory=list, max_length=50)

    def driver(self) -> Driver:
        """Return the driver.

        Raises
        ------
        FjordError
            If the settings do not go together.
        """
        pattern = TopicPattern(self.topic)
        if (MOTE_PART in pattern.parts) == bool(self.mote):
            raise ConfigurationError(
                "topic: a device is named either by {mote} in the topic or by the setting mote",
                hint="write tele/{mote}/SENSOR, or mote = 'greenhouse' for a single device",
            )
        for fixed in self.property:
            if fixed.part and fixed.part not in pattern.parts:
                raise ConfigurationError(
                    f"property {fixed.name!r}: the topic has no part {fixed.part!r}",
                    hint=f"its parts are {', '.join(pattern.parts)}",
                )
            if fixed.part and fixed.type is not FieldType.TEXT:
                raise ConfigurationError(f"property {fixed.name!r}: a part of a topic is text")
        time, times = None, FeedTimes(silence_after_us=self.silence_after)
        if self.time is not None:
            try:
                time = TimeMapping(parse_path(self.time.path), self.time.form, parse_zone(self.time.zone))
            except ValueError as error:
                raise ConfigurationError(f"time.zone: {error}") from error
            times = FeedTimes(self.time.max_delay, self.time.max_ahead, self.silence_after)
        plan = JsonDriverPlan(
            name=self.name,
            pattern=pattern,
            stream=self.stream,
            kind=self.device_kind,
            fields=tuple(each.mapping() for each in self.field),
            properties=tuple(each.fixed() for each in self.property),
            mote=self.mote,
            prefix=self.prefix,
            time=time,
            times=times,
            default_period_us=self.default_period,
            minimum_period_us=self.minimum_period,
            max_motes=self.max_motes,
        )
        return JsonDriver(plan)


class ZigbeeSettings(_Settings):
    """A ``[[driver]]`` of kind ``zigbee2mqtt``."""

    kind: Literal["zigbee2mqtt"]
    name: Name = "zigbee2mqtt"
    base: str = Field("zigbee2mqtt", pattern=r"^[^+#/\x00]+(/[^+#/\x00]+)*$")
    stream: str = Field("{base}_{model}", min_length=1, max_length=200)
    prefix: str = Field("", max_length=32)
    default_period: Duration = 60_000_000
    request: Literal["device/configure_reporting", "device/reporting/configure"] = "device/configure_reporting"
    answer_within: Duration = 30_000_000
    retry_after: Duration = 60_000_000
    attempts: int = Field(3, ge=1, le=100)
    silence_after: Duration = 90_000_000_000

    def driver(self) -> Driver:
        """Return the driver."""
        plan = ZigbeeDriverPlan(
            name=self.name,
            base=self.base,
            stream=self.stream,
            prefix=self.prefix,
            default_period_us=self.default_period,
            request=self.request,
            answer_within_us=self.answer_within,
            retry_after_us=self.retry_after,
            attempts=self.attempts,
            times=FeedTimes(silence_after_us=self.silence_after),
        )
        return Zigbee2MqttDriver(plan)


_KINDS: dict[str, type[JsonSettings | ZigbeeSettings]] = {"json": JsonSettings, "zigbee2mqtt": ZigbeeSettings}


def load_drivers(file: Path) -> list[Driver]:
    """Return the drivers that a TOML file describes.

    Raises
    ------
    ConfigurationError
        Names the file, the entry and the setting.
    """
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} is not TOML: {error}") from error
    return read_drivers(content, str(file))


def read_drivers(content: dict[str, Any], origin: str) -> list[Driver]:
    """Return the drivers that `content` describes; `origin` is where it is from, for errors.

    Raises
    ------
    ConfigurationError
        Names the origin, the entry and the setting.
    """
    entries = content.get("driver", [])
    if set(content) - {"driver"} or not isinstance(entries, list):
        raise ConfigurationError(f"{origin}: only [[driver]] entries are known here", hint=_HINT)
    drivers = [_driver(entry, f"{origin}: driver {number}") for number, entry in enumerate(entries, start=1)]
    for name, count in Counter(driver.name for driver in drivers).items():
        if count > 1:
            raise ConfigurationError(f"{origin}: {count} drivers are named {name!r}", hint="give each its own name")
    return drivers


def _driver(entry: Any, where: str) -> Driver:
    kind = entry.get("kind") if isinstance(entry, dict) else None
    model = _KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise ConfigurationError(f"{where}: kind = {kind!r} is unknown", hint=f"kinds are {', '.join(_KINDS)}")
    if entry.get("name"):
        where = f"{where} ({entry['name']!r})"
    try:
        return model.model_validate(entry).driver()
    except ValidationError as error:
        first = error.errors()[0]
        setting = ".".join(str(part + 1) if isinstance(part, int) else part for part in first["loc"]) or "entry"
        raise ConfigurationError(f"{where}: {setting} = {first['input']!r}: {first['msg']}", hint=_HINT) from error
    except FjordError as error:
        raise ConfigurationError(f"{where}: {error.message}", hint=error.hint or _HINT) from error
