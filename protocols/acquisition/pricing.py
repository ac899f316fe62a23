"""Costs of the sampling programs of given reports, with the best packet size, on one sensor."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from protocols.acquisition.effort import PRICING_STEPS, Effort
from protocols.acquisition.needs import Need, holds_all, intervals_of
from protocols.acquisition.observed import Observed
from protocols.acquisition.program_reports import Abilities, ProgramStyle, assembled, sends_samples
from protocols.errors import OverloadError, ProgramError
from protocols.power.estimate import Shares, Workload, draw_mw, is_regular, rates_of
from protocols.power.payload import check_program, most_records
from protocols.power.profiles import DeviceProfile
from protocols.wire.packets import is_too_long
from protocols.wire.programs import ProgramReport, SamplingProgram, SendOnChange
from protocols.wire.streams import FieldName

_FEW_RECORDS = 8


@dataclass(frozen=True, slots=True)
class Candidate:
    """A program and its mean draw; infinite if the sensor cannot run it."""

    program: SamplingProgram
    milliwatts: float


@dataclass(frozen=True, slots=True)
class Sensor:
    """The properties of a sensor that determine the cost of a program.

    Parameters
    ----------
    order
        Its sampled fields, in schema order.
    minimum_period_us
        The fastest it can sample.
    profile
        Its energy model.
    abilities
        What it can do.
    """

    order: tuple[FieldName, ...]
    minimum_period_us: int
    profile: DeviceProfile
    abilities: Abilities = field(default_factory=Abilities)


class Pricing:
    """The costs of programs on one sensor; each is computed once.

    Parameters
    ----------
    sensor, style
        The sensor, and its deployer's choices.
    observed
        Statistics of its stream's values.
    effort
        The steps that are left; spent here, and checked by callers.
    """

    def __init__(self, sensor: Sensor, style: ProgramStyle, observed: Observed, effort: Effort | None = None) -> None:
        self.sensor = sensor
        self.style = style
        self.observed = observed
        self.effort = effort or Effort()
        self._known: dict[tuple[frozenset[ProgramReport], int, bool], Candidate] = {}
        self._shares: dict[ProgramReport, Shares] = {}

    def candidate(self, reports: Sequence[ProgramReport], needs: Sequence[Need], *, thorough: bool = True) -> Candidate:
        """Return the program of these reports, which answer these needs.

        Parameters
        ----------
        reports, needs
            Parts that send nothing of their own are left out.
        thorough
            Whether packets with fewer records than possible are priced, too.
        """
        # The same reports in another order are the same program; but the needs determine how long its records may wait.
        patience_us = min(need.patience_us for need in needs)
        key = (frozenset(reports), patience_us, thorough)
        found = self._known.get(key)
        if found is None:
            kept = tuple(sorted(without_idle(key[0]), key=repr))
            found = self._known[key] = self._priced(kept, patience_us, thorough=thorough)
        return found

    @property
    def remembered(self) -> int:
        """How many prices it remembers."""
        return len(self._known)

    def shares(self, report: ProgramReport) -> Shares:
        """Return the shares of its samples that a report sends."""
        found = self._shares.get(report)
        if found is None:
            found = self._shares[report] = _shares(report, self.observed)
        return found

    def _priced(self, reports: tuple[ProgramReport, ...], patience_us: int, *, thorough: bool) -> Candidate:
        sensor, style = self.sensor, self.style
        workload = _workload([self.shares(report) for report in reports], self.observed)
        single = assembled(reports, sensor.order, style, 1)
        best = Candidate(single, math.inf)
        if single.period_us < sensor.minimum_period_us or is_too_long(single):
            return best
        for program in _packed(single, sensor.profile, style, workload, patience_us, thorough=thorough):
            self.effort.spend(PRICING_STEPS)
            try:
                check_program(sensor.profile, program)
                milliwatts = float(draw_mw(sensor.profile, program, workload).sum())
            except (ProgramError, OverloadError):
                continue
            if milliwatts < best.milliwatts:
                best = Candidate(program, milliwatts)
        return best


def workload_of(reports: Sequence[ProgramReport], observed: Observed) -> Workload:
    """Return the workload of a sensor with these reports, by the values observed."""
    return _workload([_shares(report, observed) for report in reports], observed)


def without_idle(reports: Iterable[ProgramReport]) -> list[ProgramReport]:
    """Return reports without those all of whose samples another one sends."""
    return [report for report in reports if not any(other != report and includes(other, report) for other in reports)]


@lru_cache(maxsize=65_536)
def includes(one: ProgramReport, other: ProgramReport) -> bool:
    """Return whether one report sends all samples that another one sends."""
    return (
        one.kind is None
        and other.kind is None
        and other.every_us % one.every_us == 0
        and set(other.fields) <= set(one.fields)
        and holds_all(intervals_of(one.bands), intervals_of(other.bands))
    )


def goes_together(reports: Sequence[ProgramReport]) -> bool:
    """Return whether samples that changes leave out can be filled in: no other report may send samples in between."""
    senders = [report for report in reports if sends_samples(report)]
    return len(senders) < 2 or not any(isinstance(report.kind, SendOnChange) for report in senders)  # noqa: PLR2004


def _shares(report: ProgramReport, observed: Observed) -> Shares:
    bands = intervals_of(report.bands)
    changed = 1.0
    if isinstance(report.kind, SendOnChange):
        changed = observed.changed_share((each.field, each.width) for each in report.kind.dead_bands)
    return Shares(observed.kept_share(bands), changed, observed.following_share(bands, report.every_us))


def _workload(shares: Sequence[Shares], observed: Observed) -> Workload:
    first = shares[0]
    return Workload(
        observed.vehicles_per_second,
        first.kept,
        first.changed,
        observed.loss,
        first.following,
        tuple(shares) if len(shares) > 1 else (),
    )


def _packed(
    program: SamplingProgram,
    profile: DeviceProfile,
    style: ProgramStyle,
    workload: Workload,
    patience_us: int,
    *,
    thorough: bool,
) -> Iterator[SamplingProgram]:
    """Yield a program with as many records per packet as radio, deployer and patience allow, and with fewer.

    More records per packet are not always cheaper: while they wait the mote may have to poll, and a longer payload may
    take one symbol more.
    """
    most = max(1, min(style.samples_per_packet, most_records(profile, program)))
    if is_regular(program):
        # A record that waits for a full packet waits for all but one of the others.
        rate = rates_of(program, workload).records
        most = max(1, min(most, math.floor(rate * patience_us / 1e6 + 1e-9)))
        patience_us = 0
    elif patience_us == 0:
        most = 1  # a record without patience must not wait for others
    if not thorough:
        sizes = {most}
    else:
        sizes = set(range(1, most + 1)) if most <= _FEW_RECORDS else {1, 2, 3, 5, most // 2, most}
    for size in sorted(sizes):
        yield _with_packets(program, size, 0 if size == 1 else patience_us)


def _with_packets(program: SamplingProgram, packet: int, patience_us: int) -> SamplingProgram:
    return SamplingProgram(
        program.fields, program.period_us, packet, program.listen, program.bands, program.report, patience_us
    )
