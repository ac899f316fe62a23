"""What sampling programs cost that are made of given parts: with the best packets, on one sensor in one world."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from protocols.acquisition.covering import holds_all
from protocols.acquisition.effort import PRICING_STEPS, Effort
from protocols.acquisition.needs import Need, intervals_of
from protocols.acquisition.observed import Observed
from protocols.acquisition.parts import Abilities, ProgramStyle, assembled, sends_samples
from protocols.errors import OverloadError, ProgramError
from protocols.power.estimate import Shares, Workload, draw_mw, is_regular, rates_of
from protocols.power.limits import check_program, most_records
from protocols.power.profile import DeviceProfile
from protocols.wire.packets import is_too_long
from protocols.wire.programs import Part, SamplingProgram, SendOnChange
from protocols.wire.streams import FieldName

_FEW_RECORDS = 8


@dataclass(frozen=True, slots=True)
class Candidate:
    """A program and its mean draw; infinite if the sensor cannot run it."""

    program: SamplingProgram
    milliwatts: float


@dataclass(frozen=True, slots=True)
class Sensor:
    """What decides about the cost of a program on a sensor.

    Parameters
    ----------
    order
        Its sampled fields, in schema order.
    minimum_period_us
        The fastest it can sample.
    profile
        Its energy.
    abilities
        What it can do.
    """

    order: tuple[FieldName, ...]
    minimum_period_us: int
    profile: DeviceProfile
    abilities: Abilities = field(default_factory=Abilities)


class Pricing:
    """The costs of programs on one sensor; each is found out once.

    Parameters
    ----------
    sensor, style
        Which sensor, and what its deployer decides.
    observed
        What its stream's values are like.
    effort
        How much work there may be; spent here, and looked at by who asks for prices.
    """

    def __init__(self, sensor: Sensor, style: ProgramStyle, observed: Observed, effort: Effort | None = None) -> None:
        self.sensor = sensor
        self.style = style
        self.observed = observed
        self.effort = effort or Effort()
        self._known: dict[tuple[frozenset[Part], int, bool], Candidate] = {}
        self._shares: dict[Part, Shares] = {}

    def candidate(self, parts: Sequence[Part], needs: Sequence[Need], *, thorough: bool = True) -> Candidate:
        """Return the program of these parts, which answer these needs.

        Parameters
        ----------
        parts, needs
            Parts that send nothing of their own are left out.
        thorough
            Whether packets with fewer records than possible are tried, too.
        """
        # The same parts in another order are the same program; but how long its records may wait is up to the needs.
        patience_us = min(need.patience_us for need in needs)
        key = (frozenset(parts), patience_us, thorough)
        found = self._known.get(key)
        if found is None:
            kept = tuple(sorted(without_idle(key[0]), key=repr))
            found = self._known[key] = self._priced(kept, patience_us, thorough=thorough)
        return found

    def shares(self, part: Part) -> Shares:
        """Return how many of the samples that a part looks at it sends."""
        found = self._shares.get(part)
        if found is None:
            found = self._shares[part] = _shares(part, self.observed)
        return found

    def _priced(self, parts: tuple[Part, ...], patience_us: int, *, thorough: bool) -> Candidate:
        sensor, style = self.sensor, self.style
        workload = _workload([self.shares(part) for part in parts], self.observed)
        single = assembled(parts, sensor.order, style, 1)
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


def workload_of(parts: Sequence[Part], observed: Observed) -> Workload:
    """Return what a sensor meets that runs these parts in a world as observed."""
    return _workload([_shares(part, observed) for part in parts], observed)


def without_idle(parts: Iterable[Part]) -> list[Part]:
    """Return parts without those that send only samples that another one sends anyway."""
    return [part for part in parts if not any(other != part and includes(other, part) for other in parts)]


@lru_cache(maxsize=65_536)
def includes(one: Part, other: Part) -> bool:
    """Return whether one part sends all samples that another one sends."""
    return (
        one.report is None
        and other.report is None
        and other.every_us % one.every_us == 0
        and set(other.fields) <= set(one.fields)
        and holds_all(intervals_of(one.bands), intervals_of(other.bands))
    )


def goes_together(parts: Sequence[Part]) -> bool:
    """What a changed sample leaves out can be filled in only if no other part's samples stand in between."""
    senders = [part for part in parts if sends_samples(part)]
    return len(senders) < 2 or not any(isinstance(part.report, SendOnChange) for part in senders)  # noqa: PLR2004


def _shares(part: Part, observed: Observed) -> Shares:
    bands = intervals_of(part.bands)
    changed = 1.0
    if isinstance(part.report, SendOnChange):
        changed = observed.changed_share((each.field, each.width) for each in part.report.dead_bands)
    return Shares(observed.kept_share(bands), changed, observed.following_share(bands, part.every_us))


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
    """Yield a program with as many records to a packet as radio, deployer and patience allow, and with fewer.

    More records to a packet are not always cheaper: while they wait the mote may have to ask, and a longer payload may
    take one symbol more.
    """
    most = max(1, min(style.samples_per_packet, most_records(profile, program)))
    if is_regular(program):
        # A record that waits for a full packet waits for all but one of the others.
        rate = rates_of(program, workload).records
        most = max(1, min(most, math.floor(rate * patience_us / 1e6 + 1e-9)))
        patience_us = 0
    elif patience_us == 0:
        most = 1  # a record that nobody waits for must not wait for others
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
