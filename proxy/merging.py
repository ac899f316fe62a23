"""Demand becomes a sampling program: the rate and the fields that answer every query.

Pure functions. Papers/fjords.md section 3: a sensor samples as often as its users need and no more, as a lower rate
is a proportionally longer life; when nobody asks it sleeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import gcd

from protocols.demands import QueryDemand
from protocols.durations import format_duration
from protocols.programs import SLEEP, ListenSchedule, SamplingProgram
from protocols.streams import FieldName, StreamSchema


@dataclass(frozen=True, slots=True)
class RefusedDemand:
    """A query's demand that cannot be answered, and why."""

    query: str
    reason: str


@dataclass(frozen=True, slots=True)
class FoldedDemand:
    """What all queries on a stream need together, before any sensor's limits.

    Parameters
    ----------
    fields
        Sampled fields that are needed, in schema order.
    queries
        How many queries ask; 0 sleeps.
    periods_us
        Sample periods that queries state, each with one that states it, shortest first.
    takes_default
        Whether a query takes each sensor's default period.
    refused
        Demands left out.
    """

    fields: tuple[FieldName, ...] = ()
    queries: int = 0
    periods_us: tuple[tuple[int, str], ...] = ()
    takes_default: bool = False
    refused: tuple[RefusedDemand, ...] = ()


@dataclass(frozen=True, slots=True)
class SensorLimits:
    """What a mote can do, as it announced."""

    default_period_us: int
    minimum_period_us: int


@dataclass(frozen=True, slots=True)
class ProgramStyle:
    """What the deployer, not a query, decides about every program."""

    samples_per_packet: int = 1
    listen: ListenSchedule = field(default_factory=ListenSchedule)


@dataclass(frozen=True, slots=True)
class Merged:
    """A program and, in words, why it is this one."""

    program: SamplingProgram
    reason: str


def fold_demands(demands: Iterable[QueryDemand], schema: StreamSchema) -> FoldedDemand:
    """Fold the demands of all queries on a stream.

    A demand that names a field the stream lacks is refused; the others go on. If no query needs a sampled field, the
    first one is sampled all the same: that a sample exists is what such queries ask for.
    """
    known = set(schema.field_names)
    wanted: set[FieldName] = set()
    refused: list[RefusedDemand] = []
    queries: set[str] = set()
    periods_us: dict[int, str] = {}
    takes_default = False
    for demand in demands:
        unknown = [name for name in demand.fields if name not in known]
        if unknown:
            reason = f"stream {schema.name!r} has no field {', '.join(map(repr, unknown))}"
            refused.append(RefusedDemand(demand.query, reason))
            continue
        queries.add(demand.query)
        wanted.update(demand.fields)
        if demand.period_us is None:
            takes_default = True
        else:
            periods_us[demand.period_us] = min(demand.query, periods_us.get(demand.period_us, demand.query))
    sampled = [each.name for each in schema.sampled]
    fields = tuple(name for name in sampled if name in wanted) or tuple(sampled[:1])
    if not queries:
        return FoldedDemand(refused=tuple(refused))
    return FoldedDemand(fields, len(queries), tuple(sorted(periods_us.items())), takes_default, tuple(refused))


def program_for(folded: FoldedDemand, limits: SensorLimits, style: ProgramStyle) -> Merged:
    """Return the program of one sensor that answers a folded demand."""
    if folded.queries == 0:
        return Merged(SLEEP, "nobody asks: sleep")
    if not folded.fields:
        return Merged(SLEEP, "its stream has no field to sample: sleep")
    period_us, why = _period_for(folded, limits)
    reason = (
        f"{', '.join(folded.fields)} every {format_duration(period_us)} ({why}) "
        f"for {folded.queries} {'query' if folded.queries == 1 else 'queries'}"
    )
    program = SamplingProgram(folded.fields, period_us, style.samples_per_packet, style.listen)
    return Merged(program, reason)


def _period_for(folded: FoldedDemand, limits: SensorLimits) -> tuple[int, str]:
    """Return the longest period that has every sample any query asks for, and why it is this one.

    Queries with periods of 2 s and 3 s both get exactly their samples from one of 1 s. Where the sensor is too slow for
    that, the shortest period asked for is the best there is.
    """
    wanted = dict(folded.periods_us)
    reasons = {period_us: f"asked by query {query!r}" for period_us, query in wanted.items()}
    if folded.takes_default:
        reasons[limits.default_period_us] = "the sensor's default"
    shared_us, shortest_us = gcd(*reasons), min(reasons)
    asked = ", ".join(format_duration(period_us) for period_us in sorted(reasons))
    shared_reason = reasons.get(shared_us, f"the longest with all samples of {asked}")
    if shared_us >= limits.minimum_period_us:
        return shared_us, shared_reason
    if shortest_us >= limits.minimum_period_us:
        return shortest_us, f"{reasons[shortest_us]}; too slow for {shared_reason}"
    return limits.minimum_period_us, f"its fastest; {format_duration(shortest_us)} {reasons[shortest_us]}"


def merge_demands(
    demands: Sequence[QueryDemand], schema: StreamSchema, limits: SensorLimits, style: ProgramStyle | None = None
) -> tuple[Merged, tuple[RefusedDemand, ...]]:
    """Return the sampling program that answers `demands`, with the demands that were refused.

    Parameters
    ----------
    demands
        One or more per query.
    schema
        Of the stream they are on.
    limits
        Of the sensor.
    style
        Packet size and listen windows; None takes the defaults.
    """
    folded = fold_demands(demands, schema)
    return program_for(folded, limits, style or ProgramStyle()), folded.refused
