"""The drivers of a proxy: a TOML file with one ``[[driver]]`` per kind of device.

Every setting, with examples that a test reads, is in docs/how-to/connect-devices.md.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from protocols.errors import FjordError
from protocols.text.closeness import did_you_mean
from protocols.text.quantities import parse_duration_us
from protocols.wire import streams
from protocols.wire.names import NAME_SHAPE, fault_of_identifier, normal
from protocols.wire.streams import FieldType
from protocols.wire.topics import check_name
from proxy.drivers.device_feed import FeedTimes
from proxy.drivers.driver import PASSIVE, Capabilities, Driver, VersionRange
from proxy.drivers.field_mapping import (
    DAY_US,
    NO_RULES,
    FaultyValueError,
    FieldKind,
    FieldMapping,
    FieldRules,
    Implausible,
    TimeForm,
    TimeMapping,
    parse_zone,
)
from proxy.drivers.json_mqtt import MOTE_PART, FixedProperty, JsonDriver, JsonDriverPlan, VersionMapping
from proxy.drivers.payloads import TopicPattern, parse_path
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


class _Rules(_Settings):
    """What is known of a field beyond its type; the same for all kinds of drivers."""

    kind: FieldKind | None = None
    modulus: int | float | None = Field(None, gt=0, le=2**62, allow_inf_nan=False)
    valid: list[float] | None = Field(None, min_length=2, max_length=2)
    no_value: list[float] = Field(default_factory=list, max_length=50)

    def rules(self, name: str, kind: FieldKind, *, decimal_comma: bool = False) -> FieldRules:
        """Return the rules of a field; `kind` is what it is unless the settings say otherwise."""
        kind = self.kind or kind
        low, high = self.valid or (None, None)
        if self.modulus is not None and kind is not FieldKind.COUNTER:
            raise ConfigurationError(f"field {name!r}: modulus is for a counter", hint="write kind = 'counter'")
        if low is not None and high is not None and not low <= high:
            raise ConfigurationError(f"field {name!r}: no number lies in valid = [{low}, {high}]")
        found = FieldRules(kind, self.modulus, low, high, tuple(self.no_value), decimal_comma=decimal_comma)
        return NO_RULES if found == NO_RULES else found


class FieldSettings(_Rules):
    """One ``[[driver.field]]`` of kind ``json``."""

    name: FieldName
    path: str
    type: FieldType
    unit: str = Field("", max_length=32)
    optional: bool = False
    default: Scalar | None = None
    scale: float = Field(1.0, allow_inf_nan=False)
    offset: float = Field(0.0, allow_inf_nan=False)
    true: Scalar = True
    false: Scalar = False

    def mapping(self, *, decimal_comma: bool) -> FieldMapping:
        """Return the field and where it is.

        Raises
        ------
        FjordError
            If its settings do not go together.
        """
        field = streams.Field(self.name, self.type, self.unit)
        rules = self.rules(self.name, FieldKind.LEVEL, decimal_comma=decimal_comma)
        numeric = self.type in {FieldType.INTEGER, FieldType.REAL}
        if not numeric and (rules.kind is FieldKind.COUNTER or self.valid is not None or self.no_value):
            raise ConfigurationError(f"field {self.name!r}: only numbers are counters, or have valid or no_value")
        path = parse_path(self.path)
        mapping = FieldMapping(field, path, self.optional, self.scale, self.offset, self.true, self.false, rules)
        return mapping if self.default is None else _with_default(mapping, self.default)


class ZigbeeFieldSettings(_Rules):
    """One ``[[driver.field]]`` of kind ``zigbee2mqtt``: what the bridge does not state of a field."""

    name: FieldName


class PropertySettings(_Settings):
    """One ``[[driver.property]]``: from a part of the topic, from messages, or configured."""

    name: FieldName
    type: FieldType = FieldType.TEXT
    unit: str = Field("", max_length=32)
    part: str = ""
    path: str | None = None
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
        path = None if self.path is None else parse_path(self.path)
        return FixedProperty(field, self.part, path, streams.check_value(field, self.value), values)


class MappingSettings(_Settings):
    """One ``[[driver.mapping]]``: other paths of fields, for some versions of the bridge."""

    versions: str = Field(min_length=1, max_length=200)
    paths: dict[FieldName, str] = Field(default_factory=dict)

    def mapping(self, fields: tuple[FieldMapping, ...]) -> VersionMapping:
        """Return all fields with these paths.

        Raises
        ------
        ConfigurationError
            If it names another field, or versions in another form.
        """
        try:
            versions = VersionRange.parse(self.versions)
        except ValueError as error:
            raise ConfigurationError(f"mapping.versions: {error}") from error
        if unknown := set(self.paths) - {each.field.name for each in fields}:
            raise ConfigurationError(f"mapping.paths: there is no field {min(unknown)!r}")
        paths = {name: parse_path(path) for name, path in self.paths.items()}
        return VersionMapping(
            versions, tuple(replace(each, path=paths.get(each.field.name, each.path)) for each in fields)
        )


class VersionSettings(_Settings):
    """``[driver.version]``: where the bridge publishes its version."""

    topic: str = Field(min_length=1, max_length=1_000, pattern=r"^[^+#\x00]+$")
    path: str = "version"


class TimeSettings(_Settings):
    """``[driver.time]``: the instant of the values, as the device sends it."""

    path: str
    form: TimeForm
    zone: str = "+00:00"
    max_delay: Duration = 10_000_000
    max_ahead: Duration = 60_000_000
    implausible: Implausible = Implausible.REJECT
    plausible_for: Duration = 366 * DAY_US

    def mapping(self) -> TimeMapping:
        """Return where the time is, and what is believed.

        Raises
        ------
        ConfigurationError
            If the zone is not known.
        """
        try:
            zone = parse_zone(self.zone)
        except ValueError as error:
            raise ConfigurationError(f"time.zone: {error}", hint="names need the package tzdata") from error
        plausible_us = max(self.plausible_for, self.max_delay)
        return TimeMapping(parse_path(self.path), self.form, zone, self.implausible, plausible_us, self.max_ahead)


class _DriverSettings(_Settings):
    """What drivers of all kinds have."""

    prefix: str = Field("", max_length=32)
    merge_within: Duration | None = Field(None, le=DAY_US)
    same_within: Duration | None = Field(None, le=DAY_US)
    store: Literal["demanded", "always"] = "demanded"
    expected_every: Duration | None = None
    power: Literal["mains", "battery"] | None = None


class JsonSettings(_DriverSettings):
    """A ``[[driver]]`` of kind ``json``."""

    kind: Literal["json"]
    name: Name
    topic: str
    stream: Name
    device_kind: str = Field("json", max_length=64)
    mote: str = ""
    default_period: Duration = 1_000_000
    minimum_period: Duration = 1_000
    silence_after: Duration = 3_600_000_000
    max_motes: int = Field(10_000, ge=1, le=1_000_000)
    message_id: str | None = None
    decimal: Literal[".", ","] = "."
    time: TimeSettings | None = None
    version: VersionSettings | None = None
    mapping: list[MappingSettings] = Field(default_factory=list, max_length=50)
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
        self._check(pattern)
        decimal_comma = self.decimal == ","
        fields = tuple(each.mapping(decimal_comma=decimal_comma) for each in self.field)
        if self.merge_within is not None:
            _check_merging(self.field)
        time, times = None, FeedTimes(silence_after_us=self.silence_after)
        if self.time is not None:
            time = self.time.mapping()
            times = FeedTimes(self.time.max_delay, self.time.max_ahead, self.silence_after)
        times = replace(times, merge_within_us=self.merge_within or 0)
        plan = JsonDriverPlan(
            name=self.name,
            pattern=pattern,
            stream=self.stream,
            kind=self.device_kind,
            fields=fields,
            properties=tuple(each.fixed() for each in self.property),
            mote=self.mote,
            prefix=self.prefix,
            time=time,
            times=times,
            same_within_us=self.same_within or 0,
            message_id=None if self.message_id is None else parse_path(self.message_id),
            decimal_comma=decimal_comma,
            version_topic="" if self.version is None else self.version.topic,
            version_path=() if self.version is None else parse_path(self.version.path),
            mappings=tuple(each.mapping(fields) for each in self.mapping),
            capabilities=_capabilities(self, times),
            default_period_us=self.default_period,
            minimum_period_us=self.minimum_period,
            max_motes=self.max_motes,
        )
        return JsonDriver(plan)

    def _check(self, pattern: TopicPattern) -> None:
        for fixed in self.property:
            if fixed.part and fixed.part not in pattern.parts:
                raise ConfigurationError(
                    f"property {fixed.name!r}: the topic has no part {fixed.part!r}",
                    hint=f"its parts are {', '.join(pattern.parts)}",
                )
            if fixed.part and fixed.type is not FieldType.TEXT:
                raise ConfigurationError(f"property {fixed.name!r}: a part of a topic is text")
            if fixed.part and fixed.path is not None:
                raise ConfigurationError(f"property {fixed.name!r}: it has a part of the topic and a path")
        if self.mapping and self.version is None:
            raise ConfigurationError("mapping: the bridge's version is not known", hint="add [driver.version]")
        if self.message_id is not None and self.same_within is None:
            raise ConfigurationError("message_id: copies are not recognised", hint="add same_within = '5s'")


class ZigbeeSettings(_DriverSettings):
    """A ``[[driver]]`` of kind ``zigbee2mqtt``."""

    kind: Literal["zigbee2mqtt"]
    name: Name = "zigbee2mqtt"
    base: str = Field("zigbee2mqtt", pattern=r"^[^+#/\x00]+(/[^+#/\x00]+)*$")
    stream: str = Field("{base}_{model}", min_length=1, max_length=200)
    default_period: Duration = 60_000_000
    request: Literal["device/configure_reporting", "device/reporting/configure"] = "device/configure_reporting"
    answer_within: Duration = 30_000_000
    retry_after: Duration = 60_000_000
    attempts: int = Field(3, ge=1, le=100)
    silence_after: Duration = 90_000_000_000
    field: list[ZigbeeFieldSettings] = Field(default_factory=list, max_length=200)

    def driver(self) -> Driver:
        """Return the driver.

        Raises
        ------
        ConfigurationError
            If the settings of a field do not go together.
        """
        rules = {each.name.casefold(): each.rules(each.name, FieldKind.LEVEL) for each in self.field}
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
            times=FeedTimes(silence_after_us=self.silence_after, merge_within_us=self.merge_within or 0),
            same_within_us=self.same_within or 0,
            rules=rules,
            stored_always=self.store == "always",
            expected_every_us=self.expected_every,
            mains=None if self.power is None else self.power == "mains",
        )
        return Zigbee2MqttDriver(plan)


def _capabilities(settings: _DriverSettings, times: FeedTimes) -> Capabilities:
    return msgspec.structs.replace(
        PASSIVE,
        stored_always=settings.store == "always",
        expected_every_us=settings.expected_every,
        mains=settings.power == "mains",
        max_delay_us=(times.max_delay_us or 0) + times.merge_within_us,
    )


def _check_merging(fields: Sequence[FieldSettings]) -> None:
    if any(each.kind is FieldKind.COUNTER and each.default is not None for each in fields):
        raise ConfigurationError(
            "merge_within: a counter with a default would begin anew with each half that leaves it out",
            hint="leave the default out, or merge_within",
        )


def _with_default(mapping: FieldMapping, default: Scalar) -> FieldMapping:
    """Return a mapping with a default, which is written as the device would send it."""
    try:
        return replace(mapping, rules=replace(mapping.rules, default=mapping.raw(default)))
    except FaultyValueError as fault:
        raise ConfigurationError(f"default of field {fault.detail}") from fault


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
    if (unknown := [*content.keys() - {"driver"}]) or not isinstance(entries, list):
        found = f", and there is {min(unknown)!r}" if unknown else ""
        raise ConfigurationError(f"{origin}: only [[driver]] entries are known here{found}", hint=_HINT)
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
        # A setting that there is not may be the one that is missing, misspelt.
        first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        setting = ".".join(str(part + 1) if isinstance(part, int) else part for part in first["loc"]) or "entry"
        if first["type"] == "extra_forbidden":
            meant = did_you_mean(str(first["loc"][-1]), _settings_of(model, first["loc"][:-1]))
            raise ConfigurationError(f"{where}: there is no setting {setting!r}", hint=meant or _HINT) from error
        if first["type"] == "missing":
            raise ConfigurationError(f"{where}: the setting {setting!r} is missing", hint=_HINT) from error
        raise ConfigurationError(f"{where}: {setting} = {first['input']!r}: {first['msg']}", hint=_HINT) from error
    except FjordError as error:
        raise ConfigurationError(f"{where}: {error.message}", hint=error.hint or _HINT) from error


def _settings_of(model: type[BaseModel], place: Sequence[int | str]) -> list[str]:
    """Return the settings that there are at a place in an entry: [3, "name"] is within its fourth table."""
    models = [model]
    for part in place:
        if isinstance(part, str):
            kinds = [each.model_fields[part].annotation for each in models if part in each.model_fields]
            models = [found for kind in kinds for found in _models_in(kind)]
    return [name for each in models for name in each.model_fields]


def _models_in(kind: Any) -> list[type[BaseModel]]:
    if isinstance(kind, type) and not get_args(kind):
        return [kind] if issubclass(kind, BaseModel) else []
    return [found for each in get_args(kind) for found in _models_in(each)]
