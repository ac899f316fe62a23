"""Reports that answer groups of needs, programs made of reports, and the traits of sensors that determine them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from protocols.acquisition.needs import MOST_INTERVALS, Bands, Need, NeedKind, bands_of, fewer, united
from protocols.power.profiles import DeviceProfile, find_profile, is_preset
from protocols.wire.catalog import DeviceEntry, MoteEntry
from protocols.wire.packets import Announcement
from protocols.wire.programs import (
    DeadBand,
    ListenSchedule,
    Measure,
    Panes,
    ProgramReport,
    SamplingProgram,
    SendOnChange,
    Several,
    VehicleCount,
    VehicleEvents,
)
from protocols.wire.streams import FieldName

_DIVISORS = (1, 2, 3)
MOST_VEHICLES_PER_SECOND = 1_000
"""The most events a second: without vehicles that a mote leaves out, answers would differ."""


@dataclass(frozen=True, slots=True)
class ProgramStyle:
    """The deployer's choices for all programs.

    Parameters
    ----------
    samples_per_packet
        How many samples make a packet at most.
    listen
        When radios listen.
    longest_silence_us
        A sensor that samples sends a packet at least this often, whatever it samples; 0 leaves it to what is cheapest.
    """

    samples_per_packet: int = 1
    listen: ListenSchedule = field(default_factory=ListenSchedule)
    longest_silence_us: int = 0


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a device can do besides sampling at a rate; the proxy does the rest."""

    filters: bool = True
    sends_on_change: bool = True
    aggregates: bool = True
    detects_events: bool = True
    several: bool = True
    """Several of these at a time."""
    keeps_time: bool = True
    """Samples at whole multiples of its period, so that those that it leaves out can be made again."""


def sampling_report(needs: Sequence[Need], order: Sequence[FieldName]) -> ProgramReport:
    """Return the report that sends all samples that these needs include."""
    # Samples carry the fields of all bands: a report for several needs selects less strictly than each of them.
    banded = {name for need in needs for name, _ in need.bands}
    fields = tuple(name for name in order if name in banded or name in _fields(needs, order)) or tuple(order[:1])
    every_us = math.gcd(*(need.period_us for need in needs))
    return ProgramReport(fields, every_us, bands_of(_bands_for_all(needs)))


def changes_report(needs: Sequence[Need], order: Sequence[FieldName]) -> ProgramReport | None:
    """Return the report that sends these samples only when they have changed; None if that does not answer the needs.

    The proxy fills in the samples that were left out: they differ from the last one by no more than the queries'
    tolerances, which may be zero.
    """
    plain = sampling_report(needs, order)
    silence_us = _longest_silence(needs)
    if plain.bands or silence_us < 2 * plain.every_us or any(need.threshold is not None for need in needs):
        return None
    widths: dict[FieldName, float] = {}
    for need in needs:
        allowed = dict(need.tolerances)
        for name in dict.fromkeys((*need.fields, *(name for name, _ in need.bands))):
            width = allowed.get(name, 0.0)
            widths[name] = min(widths.get(name, width), width)
    dead_bands = tuple(DeadBand(name, widths.get(name, 0.0)) for name in plain.fields)
    return ProgramReport(plain.fields, plain.every_us, (), SendOnChange(dead_bands, silence_us))


def allow_changes(needs: Sequence[Need], able: Abilities) -> bool:
    """Return whether a device may send changes only, for needs that a report of changes answers.

    For a device that samples when it likes, only if each query allows it: it would see other rows than beside others.
    """
    return able.sends_on_change and (able.keeps_time or all(each.silence_us or each.tolerances for each in needs))


def pane_reports(needs: Sequence[Need], order: Sequence[FieldName], listen_every_us: int = 0) -> list[ProgramReport]:
    """Return the reports that send panes of which all windows of these needs can be made; none if there is none.

    Panes wider than `listen_every_us` may cost less if they are divided: their packets replace polls, and panes that
    end together share a packet.
    """
    first = needs[0]
    if any(
        need.kind is not NeedKind.PANES or (need.period_us, need.bands) != (first.period_us, first.bands)
        for need in needs
    ):
        return []
    measures = tuple(each for each in Measure if any(each in need.measures for need in needs))
    wanted = _fields(needs, order) or tuple(order[:1])
    looked_at = tuple(name for name in order if name in wanted or name in dict(first.bands))
    return [
        ProgramReport(looked_at, first.period_us, bands_of(first.bands), Panes(pane_us, measures))
        for pane_us in _widths(needs, listen_every_us)
    ]


def event_reports(needs: Sequence[Need], listen_every_us: int = 0) -> list[ProgramReport]:
    """Return the reports that detect the events of these needs; none if the needs are about different events.

    If vehicles are rare, a record for each costs less than a count for every pane.
    """
    first = needs[0]
    if first.threshold is None or any(
        (need.threshold, need.period_us) != (first.threshold, first.period_us) for need in needs
    ):
        return []
    events = ProgramReport(first.fields, first.period_us, (), VehicleEvents(first.threshold, MOST_VEHICLES_PER_SECOND))
    if any(need.kind is NeedKind.EVENTS for need in needs):
        return [events]
    counts = [
        ProgramReport(first.fields, first.period_us, (), VehicleCount(first.threshold, pane_us))
        for pane_us in _widths(needs, listen_every_us)
    ]
    return [events, *counts]


def assembled(
    reports: Sequence[ProgramReport], order: Sequence[FieldName], style: ProgramStyle, packet: int
) -> SamplingProgram:
    """Return the program of these reports.

    Parameters
    ----------
    reports
        At least one.
    order
        Sampled fields in schema order.
    style
        For its listen schedule.
    packet
        Records per packet.
    """
    if len(reports) == 1:
        (report,) = reports
        return SamplingProgram(report.fields, report.every_us, packet, style.listen, report.bands, report.kind)
    wanted = {name for report in reports for name in report.fields}
    fields = tuple(name for name in order if name in wanted)
    tick_us = math.gcd(*(report.every_us for report in reports))
    return SamplingProgram(fields, tick_us, packet, style.listen, report=Several(tuple(reports)))


def reports_in(program: SamplingProgram) -> tuple[ProgramReport, ...]:
    """Return the reports of a program; one that is not divided is a single report."""
    if isinstance(program.report, Several):
        return program.report.reports
    return (ProgramReport(program.fields, program.period_us, program.bands, program.report),)


def sends_samples(report: ProgramReport) -> bool:
    """Return whether a report sends samples: changed ones or all."""
    return report.kind is None or isinstance(report.kind, SendOnChange)


def _longest_silence(needs: Sequence[Need]) -> int:
    """Return how long a sample that equals the one before may stay away, by all of these needs.

    Beside a need of all samples it may not, whatever the others allow: what is lost is filled in with NULLs, and these
    are for queries that only ask what held for how long.
    """
    silences = {need.silence_us for need in needs}
    if 0 in silences and len(silences) > 1:
        return 0
    return max(min(silences), min(need.patience_us for need in needs))


def _widths(needs: Sequence[Need], listen_every_us: int) -> list[int]:
    """Return the possible widths of panes, widest first."""
    widest_us = math.gcd(*(need.pane_us for need in needs))
    divisors = _DIVISORS if 0 < listen_every_us < widest_us else (1,)
    widths = [widest_us // divisor for divisor in divisors if widest_us % divisor == 0]
    return [width for width in widths if width >= needs[0].period_us]


def _fields(needs: Iterable[Need], order: Sequence[FieldName]) -> tuple[FieldName, ...]:
    """Return the fields that needs include."""
    wanted = {name for need in needs for name in need.fields}
    return tuple(name for name in order if name in wanted)


def _bands_for_all(needs: Sequence[Need]) -> Bands:
    """Return bands that contain all samples of the needs."""
    if any(need.threshold is not None for need in needs):
        return ()
    every = [dict(need.bands) for need in needs]
    names = set(every[0]).intersection(*every[1:])
    found = {name: united(each for bands in every for each in bands[name]) for name in sorted(names)}
    return tuple((name, fewer(intervals, MOST_INTERVALS)) for name, intervals in found.items())


DAY_SECONDS = 86_400.0
ASSUMED_DEVICE = "telosb"
"""The profile that is assumed for a mote that announces none."""


@dataclass(frozen=True, slots=True)
class SensorTraits:
    """The traits of a sensor that determine its program; many sensors have the same.

    Parameters
    ----------
    default_period_us, minimum_period_us
        As announced.
    profile
        Its energy model.
    battery_joules
        Usable energy of a full battery; None for mains or unknown.
    lifetime_us
        How long that should last by its owner's lifetime hint; 0 for none.
    abilities
        What it can do.
    """

    default_period_us: int
    minimum_period_us: int
    profile: DeviceProfile = field(compare=False)
    battery_joules: float | None = None
    lifetime_us: int = 0
    abilities: Abilities = field(default_factory=Abilities)
    device: str = ""
    """Name of the profile."""

    def days(self, milliwatts: float) -> float:
        """Return how many days a full battery lasts at a mean draw."""
        if self.battery_joules is None or milliwatts <= 0:
            return math.inf
        return self.battery_joules / (milliwatts / 1e3) / DAY_SECONDS


def traits_of(mote: Announcement | MoteEntry, abilities: Abilities | None = None) -> SensorTraits:
    """Return the traits of a mote by its announcement or catalog entry; `abilities` of None are all."""
    device = mote.device if is_known(mote.device) else ASSUMED_DEVICE
    return SensorTraits(
        mote.default_period_us,
        mote.minimum_period_us,
        find_profile(device),
        mote.battery_joules,
        mote.lifetime_us,
        abilities or Abilities(),
        device,
    )


def has_energy_model(mote: MoteEntry) -> bool:
    """Return whether a model says what a mote draws under a program.

    Of motes that announce no device, one is assumed. Of a device of another maker nothing is assumed: one on mains has
    no battery, one that publishes by its own rules draws the same whatever is demanded, and of others the profile must
    be known.
    """
    if not isinstance(mote, DeviceEntry):
        return True
    return not (mote.mains or mote.publishes) and is_known(mote.device)


def is_known(device: str) -> bool:
    """Return whether a device has an energy model; else one is assumed."""
    return is_preset(device)
