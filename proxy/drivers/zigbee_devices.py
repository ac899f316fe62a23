"""The devices of a Zigbee2MQTT bridge, as its retained ``bridge/devices`` lists them.

Facts from the Zigbee2MQTT documentation, guide/usage: "MQTT topics and messages" and "Exposes" (types, ``access`` bits,
``value_on``, units), and the ``publishDevices`` of its bridge extension (``endpoints``, ``clusters``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from protocols.wire.packets import SampleValue
from protocols.wire.streams import Field, FieldType
from proxy.drivers.field_mapping import NO_RULES, FieldKind, FieldMapping, FieldRules
from proxy.drivers.payloads import PayloadError, identifier

MAX_DEVICES = 2_000
MOST_FIELDS = 128
BATTERY = "battery"
"""The property that holds the share of the battery, in percent; it becomes the mote's health."""

_PUBLISHED = 1
"""Bit of ``access``: the property is part of the published state."""
_UNITS = {"°C": "degC", "°F": "degF", "µg/m³": "ug/m3", "m³/h": "m3/h", "m³": "m3", "°": "deg"}
_TYPES = {"numeric": FieldType.REAL, "binary": FieldType.BOOLEAN, "enum": FieldType.TEXT, "text": FieldType.TEXT}
_LONGEST_UNIT = 32
_MAINS = ("mains", "dc source", "emergency mains")
"""How zigbee-herdsman names power sources that are no batteries begin."""
_LONGEST_NUMBER = 3
"""Endpoints go to 255."""


@dataclass(frozen=True, slots=True)
class ExposedProperty:
    """A property of a device's state, as a field.

    Parameters
    ----------
    field
        Of the stream.
    key
        In the state.
    unit
        As Zigbee2MQTT writes it.
    endpoint
        Of the property; empty if the bridge names none.
    value_on, value_off
        What a binary property is when true and false.
    """

    field: Field
    key: str
    unit: str = ""
    endpoint: str = ""
    value_on: SampleValue = True
    value_off: SampleValue = False

    def mapping(self, rules: FieldRules | None) -> FieldMapping:
        """Return how its values are read; without rules, words and switches are events."""
        if rules is None:
            rules = NO_RULES if self.field.type is FieldType.REAL else FieldRules(kind=FieldKind.EVENT)
        path = (self.key,)
        return FieldMapping(self.field, path, optional=True, true=self.value_on, false=self.value_off, rules=rules)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint: its number as text, its name if it has one, and the clusters it serves."""

    number: str
    name: str
    clusters: frozenset[str]


@dataclass(frozen=True, slots=True)
class ZigbeeDevice:
    """A device of the bridge.

    Parameters
    ----------
    address
        IEEE address, which a rename leaves.
    friendly_name
        As its topics name it.
    model, vendor
        Of its definition.
    properties
        What its state holds.
    endpoints
        By number.
    mains
        Whether its power source is no battery.
    """

    address: str
    friendly_name: str
    model: str
    vendor: str
    properties: tuple[ExposedProperty, ...]
    endpoints: tuple[Endpoint, ...] = ()
    mains: bool = False


def read_devices(content: Any) -> tuple[list[ZigbeeDevice], list[str]]:
    """Return the devices with fields, by address, and what is wrong with others, in words.

    The coordinator, and devices that are disabled or not supported, are left out silently.

    Raises
    ------
    PayloadError
        With reason ``shape`` if it is no list, ``too_many_motes`` if it is too long.
    """
    if not isinstance(content, list):
        raise PayloadError("shape", "bridge/devices is not a list of devices")
    if len(content) > MAX_DEVICES:
        raise PayloadError("too_many_motes", f"the bridge has {len(content):,} devices, the limit is {MAX_DEVICES:,}")
    devices: dict[str, ZigbeeDevice] = {}
    wrong: list[str] = []
    for entry in content:
        if not isinstance(entry, dict):
            wrong.append(f"{str(entry)[:40]!r} is not a device")
            continue
        if entry.get("type") == "Coordinator" or entry.get("disabled") is True or entry.get("definition") is None:
            continue
        device = _device(entry)
        if device is None:
            wrong.append(f"device {str(entry.get('friendly_name'))[:64]!r} lacks an address, a name or a definition")
        elif device.properties:
            devices[device.address] = device
    return sorted(devices.values(), key=lambda device: device.address), wrong


def _device(entry: Mapping[str, Any]) -> ZigbeeDevice | None:
    address, friendly_name, definition = (entry.get(key) for key in ("ieee_address", "friendly_name", "definition"))
    if not (isinstance(address, str) and address and isinstance(friendly_name, str) and friendly_name):
        return None
    if not isinstance(definition, dict) or not isinstance(definition.get("exposes"), list):
        return None
    exposes = list(_flatten(definition["exposes"]))
    return ZigbeeDevice(
        address,
        friendly_name,
        _text(definition.get("model")) or "unknown",
        _text(definition.get("vendor")),
        _properties(exposes),
        _endpoints(entry.get("endpoints")),
        _text(entry.get("power_source")).casefold().startswith(_MAINS),
    )


def _flatten(exposes: list[Any]) -> Iterator[Mapping[str, Any]]:
    """Yield generic properties; a light or a switch holds some, a composite holds parts that are no state's own."""
    for expose in exposes:
        if not isinstance(expose, dict):
            continue
        features = expose.get("features")
        if _text(expose.get("type")) in _TYPES:
            yield expose
        elif isinstance(features, list) and "property" not in expose:
            yield from (each for each in features if isinstance(each, dict) and _text(each.get("type")) in _TYPES)


def _properties(exposes: list[Mapping[str, Any]]) -> tuple[ExposedProperty, ...]:
    found: dict[str, ExposedProperty] = {}
    for expose in exposes:
        key, access = expose.get("property"), expose.get("access")
        published = isinstance(access, int) and access & _PUBLISHED
        if not isinstance(key, str) or not key or not published or key == BATTERY or len(found) >= MOST_FIELDS:
            continue
        name = identifier(key)
        if name.casefold() in found:
            continue
        unit = _text(expose.get("unit"))
        on, off = (_plain(expose.get(each), default) for each, default in (("value_on", True), ("value_off", False)))
        if isinstance(on, bool) and isinstance(off, bool):
            on, off = True, False  # the column has what the message has: contacts are "on" where they say false
        field = Field(name, _TYPES[expose["type"]], _UNITS.get(unit, unit)[:_LONGEST_UNIT])
        found[name.casefold()] = ExposedProperty(field, key, unit, _text(expose.get("endpoint")), on, off)
    return tuple(found.values())


def _endpoints(content: Any) -> tuple[Endpoint, ...]:
    if not isinstance(content, dict):
        return ()
    endpoints = []
    for number, endpoint in content.items():
        clusters = endpoint.get("clusters") if isinstance(endpoint, dict) else None
        served = clusters.get("input") if isinstance(clusters, dict) else None
        if isinstance(served, list) and number.isascii() and number.isdigit() and len(number) <= _LONGEST_NUMBER:
            names = frozenset(each for each in served if isinstance(each, str))
            endpoints.append(Endpoint(number, _text(endpoint.get("name")), names))
    return tuple(sorted(endpoints, key=lambda each: (len(each.number), each.number)))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _plain(value: Any, default: bool) -> SampleValue:  # noqa: FBT001 - a value, not a switch
    return value if isinstance(value, str | bool | int | float) else default
