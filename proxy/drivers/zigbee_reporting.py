"""A sampling program as the attribute reporting of a Zigbee device.

Facts: the request's fields are those of ``bridge/request/device/configure_reporting`` in the Zigbee2MQTT documentation
("MQTT topics and messages"; its bridge extension insists on ``endpoint`` and on numbers). Intervals are the 16-bit
seconds of the Zigbee Cluster Library's Configure Reporting command, where a maximum of 0xffff turns reports off and one
of 0 the periodic ones. Clusters, attributes and scales are those of zigbee-herdsman-converters (``modernExtend.ts``,
``reporting.ts``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import msgspec

from protocols.wire.programs import SECOND_US, SamplingProgram, SendOnChange
from proxy.drivers.driver import Capabilities
from proxy.drivers.zigbee_devices import Endpoint, ExposedProperty, ZigbeeDevice

SHORTEST_SECONDS: Final = 1
LONGEST_SECONDS: Final = 65_534
"""65,535 turns reports off."""

_WIDEST_CHANGE: Final = 32_767
"""What a signed attribute of 16 bits holds."""

REPORTING = Capabilities(
    changes_rate=True,
    sends_on_change=True,
    shortest_period_us=SHORTEST_SECONDS * SECOND_US,
    longest_period_us=LONGEST_SECONDS * SECOND_US,
)


@dataclass(frozen=True, slots=True)
class Attribute:
    """Where in the Zigbee Cluster Library a property comes from.

    Parameters
    ----------
    cluster, attribute
        As zigbee-herdsman names them.
    step
        What one raw unit is in the property's unit; None if raw units are no fixed share of it, or if the attribute has
        but a few values: every change is reported then.
    whole
        Whether a raw value is a whole number.
    """

    cluster: str
    attribute: str
    step: Fraction | None
    whole: bool = True


_HUNDREDTH, _TENTH, _ONE = Fraction(1, 100), Fraction(1, 10), Fraction(1)

ATTRIBUTES: Final[dict[tuple[str, str], Attribute]] = {
    ("temperature", "°C"): Attribute("msTemperatureMeasurement", "measuredValue", _HUNDREDTH),
    ("humidity", "%"): Attribute("msRelativeHumidity", "measuredValue", _HUNDREDTH),
    ("soil_moisture", "%"): Attribute("msSoilMoisture", "measuredValue", _HUNDREDTH),
    ("pressure", "hPa"): Attribute("msPressureMeasurement", "measuredValue", _ONE),
    ("pressure", "kPa"): Attribute("msPressureMeasurement", "measuredValue", _TENTH),
    ("flow", "m³/h"): Attribute("msFlowMeasurement", "measuredValue", _TENTH),
    ("local_temperature", "°C"): Attribute("hvacThermostat", "localTemp", _HUNDREDTH),
    ("co2", "ppm"): Attribute("msCO2", "measuredValue", Fraction(1_000_000), whole=False),
    ("pm25", "µg/m³"): Attribute("pm25Measurement", "measuredValue", _ONE, whole=False),
    # Raw illuminance is 10,000 * log10(lux) + 1: no dead band in lux is one in raw units.
    ("illuminance", "lx"): Attribute("msIlluminanceMeasurement", "measuredValue", None),
    ("illuminance_lux", "lx"): Attribute("msIlluminanceMeasurement", "measuredValue", None),
    # Divisors differ from device to device.
    ("power", "W"): Attribute("haElectricalMeasurement", "activePower", None),
    ("occupancy", ""): Attribute("msOccupancySensing", "occupancy", None),
    ("state", ""): Attribute("genOnOff", "onOff", None),
}
"""By property and unit, both as Zigbee2MQTT writes them."""


class ReportingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a request, but for its transaction."""

    id: str
    endpoint: int
    cluster: str
    attribute: str
    minimum_report_interval: int
    maximum_report_interval: int
    reportable_change: int | float
    option: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class ReportingPlan:
    """How a device is to report.

    Parameters
    ----------
    requests
        By field.
    dead_bands
        Fields whose dead band the device applies.
    left_out
        What the device cannot do, in words.
    """

    requests: dict[str, ReportingRequest]
    dead_bands: frozenset[str]
    left_out: tuple[str, ...]


def reportable(device: ZigbeeDevice, exposed: ExposedProperty) -> tuple[Attribute, Endpoint] | None:
    """Return the attribute behind a property, and the endpoint that serves it; None if that is not known."""
    key = exposed.key.removesuffix(f"_{exposed.endpoint}") if exposed.endpoint else exposed.key
    attribute = ATTRIBUTES.get((key, exposed.unit))
    if attribute is None:
        return None
    serving = [each for each in device.endpoints if attribute.cluster in each.clusters]
    if exposed.endpoint:
        serving = [each for each in serving if exposed.endpoint in {each.name, each.number}]
    return (attribute, serving[0]) if serving else None


def plan_reporting(device: ZigbeeDevice, program: SamplingProgram) -> ReportingPlan:
    """Return how a device is to report for a program, as :func:`push_down` leaves it to the device.

    Without dead bands it reports once per period, changed or not. With them it reports no more often than once per
    period, on changes, and at the latest after the longest silence.
    """
    requests: dict[str, ReportingRequest] = {}
    kept: set[str] = set()
    left_out: list[str] = []
    report = program.report if isinstance(program.report, SendOnChange) else None
    widths = {} if report is None else {each.field: each.width for each in report.dead_bands}
    minimum = _seconds(program.period_us)
    maximum = minimum if report is None else max(minimum, _seconds(report.maximum_silence_us))
    for exposed in device.properties:
        name = exposed.field.name
        if name not in program.fields:
            continue
        found = reportable(device, exposed)
        if found is None:
            left_out.append(f"{name}: the device reports it by its own rules")
            continue
        attribute, endpoint = found
        change = reportable_change(attribute, widths.get(name, 0.0))
        if report is not None:
            if attribute.step is not None or name not in widths:
                kept.add(name)
            else:
                left_out.append(f"{name}: the dead band")
        requests[name] = ReportingRequest(
            id=device.address,
            endpoint=int(endpoint.number),
            cluster=attribute.cluster,
            attribute=attribute.attribute,
            minimum_report_interval=minimum,
            maximum_report_interval=maximum,
            reportable_change=change,
        )
    return ReportingPlan(requests, frozenset(kept), tuple(left_out))


def reportable_change(attribute: Attribute, width: float) -> int | float:
    """Return a dead band in raw units: never wider than `width`, so that no change is missed.

    Examples
    --------
    >>> temperature = ATTRIBUTES["temperature", "°C"]
    >>> reportable_change(temperature, 0.25), reportable_change(temperature, 0.001)
    (25, 1)
    """
    if attribute.step is None:
        return 1
    raw = Fraction(str(width)) / attribute.step if math.isfinite(width) else Fraction(_WIDEST_CHANGE)
    if not attribute.whole:
        return float(raw)
    return min(_WIDEST_CHANGE, max(1, int(raw)))


def _seconds(duration_us: int) -> int:
    return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, duration_us // SECOND_US))
