"""A sampling program as the attribute reporting of a Zigbee device, and a change of it in progress. Pure.

**How much of a sampling program a device carries out itself, and what is left to the proxy and to the cluster.**

Pure functions. A device carries out as much as it can, as that saves energy; its driver adds bands, dead bands and the
rate, which cost the proxy almost nothing. Aggregates and events that a device cannot report are left to the cluster.

Facts: the request's fields are those of ``bridge/request/device/configure_reporting`` in the Zigbee2MQTT documentation
("MQTT topics and messages"; its bridge extension insists on ``endpoint`` and on numbers). Intervals are the 16-bit
seconds of the Zigbee Cluster Library's Configure Reporting command, where a maximum of 0xffff turns reports off and one
of 0 the periodic ones. Clusters, attributes and scales are those of zigbee-herdsman-converters (``modernExtend.ts``,
``reporting.ts``).

**A change of a Zigbee device's reporting in progress: which requests are open, failed, or done.**

A device on batteries sleeps, and a request to it fails then; it is sent again once the device has sent a message.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import msgspec

from protocols.text.quantities import format_duration
from protocols.wire.programs import (
    SECOND_US,
    Panes,
    SamplingProgram,
    SendOnChange,
    Several,
    VehicleCount,
    VehicleEvents,
)
from proxy.drivers.driver import Capabilities
from proxy.drivers.zigbee_devices import Endpoint, ExposedProperty, ZigbeeDevice


@dataclass(frozen=True, slots=True)
class PushDown:
    """A program, split between a device, its driver and the cluster.

    Parameters
    ----------
    accepted
        The part of device and driver together, which packets name.
    device
        The part of the device.
    left_out
        What the device leaves out, in words.
    """

    accepted: SamplingProgram
    device: SamplingProgram
    left_out: tuple[str, ...] = ()


def push_down(program: SamplingProgram, capabilities: Capabilities) -> PushDown:
    """Split a program for a device.

    A dead band is pushed down only where bands are, too: a device that drops small changes before the proxy checks
    the bands would hide a value that has just entered one.
    """
    if program.sleeping:
        return PushDown(program, program)
    left_out: list[str] = []
    accepted = program
    report = program.report
    events = isinstance(report, VehicleEvents | VehicleCount) and not capabilities.detects_events
    panes = isinstance(report, Panes) and not capabilities.aggregates
    several = isinstance(report, Several) and not (capabilities.aggregates and capabilities.detects_events)
    if events or panes or several:
        left_out.append("several reports at once" if several else "vehicles" if events else "partial aggregates")
        # Bands select events, not samples; all samples are needed to find events.
        accepted = msgspec.structs.replace(program, report=None, bands=() if events else program.bands)
    device = accepted
    if device.bands and not capabilities.filters:
        left_out.append("bands")
        device = msgspec.structs.replace(device, bands=())
    if isinstance(device.report, SendOnChange) and (not capabilities.sends_on_change or device.bands != accepted.bands):
        left_out.append("dead bands")
        device = msgspec.structs.replace(device, report=None)
    if not capabilities.changes_rate:
        left_out.append(f"one sample in {format_duration(program.period_us)}")
    elif program.period_us < capabilities.shortest_period_us:
        shortest = format_duration(capabilities.shortest_period_us)
        left_out.append(f"a period of {format_duration(program.period_us)}: its shortest is {shortest}")
    elif program.period_us > capabilities.longest_period_us:
        left_out.append(f"a period beyond {format_duration(capabilities.longest_period_us)}")
    return PushDown(accepted, device, tuple(left_out))


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


@dataclass(slots=True)
class _Open:
    request: ReportingRequest
    attempts: int = 0
    transaction: str = ""
    sent_us: int = 0
    failed_us: int | None = None
    awake_since: bool = False


class ReportingChange:
    """The requests of one program.

    Parameters
    ----------
    program
        To be run.
    requests
        By field.
    dead_bands
        Fields whose dead band the device keeps once its request is accepted.
    """

    def __init__(
        self, program: SamplingProgram, requests: dict[str, ReportingRequest], dead_bands: frozenset[str]
    ) -> None:
        self.program = program
        self.not_before_us: int | None = None
        self._open = {name: _Open(request) for name, request in requests.items()}
        self._kept = dead_bands
        self._accepted: set[str] = set()

    @property
    def settled(self) -> bool:
        """Whether no request is left."""
        return not self._open

    @property
    def dead_bands(self) -> frozenset[str]:
        """Fields whose dead band the device now keeps."""
        return self._kept & self._accepted

    def not_before(self, instant_us: int | None) -> None:
        """Note that no sample of the program may be stamped before an instant."""
        if instant_us is not None:
            self.not_before_us = instant_us if self.not_before_us is None else max(instant_us, self.not_before_us)

    def device_awake(self) -> None:
        """Note that the device is awake."""
        for each in self._open.values():
            each.awake_since = True

    def owns(self, transaction: str) -> bool:
        """Return whether a request of this change has this transaction."""
        return self._field(transaction) is not None

    def accepted(self, transaction: str) -> None:
        """Note that the device has accepted a request."""
        name = self._field(transaction)
        if name is not None:
            self._accepted.add(name)
            del self._open[name]

    def failed(self, transaction: str, radio_us: int) -> str:
        """The device, or the bridge, failed; return which field it was about."""
        name = self._field(transaction)
        if name is None:
            return ""
        self._mark_failed(self._open[name], radio_us)
        return name

    def due(
        self, radio_us: int, *, answer_within_us: int, retry_after_us: int, attempts: int
    ) -> tuple[list[tuple[str, ReportingRequest]], list[str]]:
        """Return the requests to send now, and the fields that are given up."""
        due: list[tuple[str, ReportingRequest]] = []
        unable: list[str] = []
        for name, each in list(self._open.items()):
            if each.transaction and radio_us - each.sent_us >= answer_within_us:
                self._mark_failed(each, radio_us)
            if each.transaction:
                continue
            if each.attempts >= attempts:
                unable.append(name)
                del self._open[name]
            elif each.failed_us is None or each.awake_since or radio_us - each.failed_us >= retry_after_us:
                due.append((name, each.request))
        return due, unable

    def sent(self, name: str, transaction: str, radio_us: int) -> None:
        """Note that a request was sent."""
        each = self._open[name]
        each.attempts += 1
        each.transaction, each.sent_us = transaction, radio_us

    def _field(self, transaction: str) -> str | None:
        return next(
            (name for name, each in self._open.items() if transaction and each.transaction == transaction), None
        )

    @staticmethod
    def _mark_failed(each: _Open, radio_us: int) -> None:
        each.transaction, each.failed_us, each.awake_since = "", radio_us, False
