"""The needs of queries on one sensor, and whether a report of a sampling program covers one."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from itertools import pairwise

from protocols.wire.demands import PropertyBand, QueryDemand, RefusedDemand
from protocols.wire.frames import Value
from protocols.wire.programs import (
    Band,
    Measure,
    Panes,
    SamplingProgram,
    SendOnChange,
    Threshold,
    VehicleCount,
    VehicleEvents,
)
from protocols.wire.streams import FieldName, FieldType, StreamSchema

Intervals = tuple[tuple[float, float], ...]
"""Lowest and highest values, both included; disjoint and ascending."""
Bands = tuple[tuple[FieldName, Intervals], ...]
"""By field, in the order of names: the intervals one of which has to contain its value."""
MOST_INTERVALS = 16
"""The most intervals of a field in bands of samples; neighbours are united until there are as few."""
MOST_PANE_INTERVALS = 64
"""The most intervals of all fields in bands of aggregates; with more, sensors send samples instead."""


class NeedKind(StrEnum):
    """The kind of records that answer a need."""

    SAMPLES = "samples"
    PANES = "panes"
    """Aggregates of samples, pane by pane."""
    EVENTS = "events"
    """Events that a detector finds, with their durations."""
    TALLIES = "tallies"
    """Numbers of events that a detector finds, pane by pane."""


@dataclass(frozen=True, slots=True)
class Need:
    """The need of queries with equal demands on one sensor.

    Parameters
    ----------
    kind
        Kind of records.
    fields
        Sampled fields, in schema order.
    period_us
        Sample period.
    bands
        Bands of the samples that are needed.
    tolerances
        By how much values may be wrong; a field without one has to be exact.
    pane_us, measures
        Of panes and tallies: their width, and the measures.
    threshold
        The detector, of events and tallies.
    patience_us
        How late records may arrive.
    slowest_us
        The longest period that is acceptable to save batteries.
    silence_us
        How long samples that equal the one before may stay away; 0 if its queries need each of them.
    """

    kind: NeedKind
    fields: tuple[FieldName, ...]
    period_us: int
    bands: Bands = ()
    tolerances: tuple[tuple[FieldName, float], ...] = ()
    pane_us: int = 0
    measures: tuple[Measure, ...] = ()
    threshold: Threshold | None = None
    patience_us: int = 0
    slowest_us: int = 0
    silence_us: int = 0


@dataclass(frozen=True, slots=True)
class DemandClass:
    """Demands that differ in the query's name only; `demand` has no particular name."""

    demand: QueryDemand
    queries: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """The push-down fingerprint of its aggregates or events; empty for samples."""
        if self.demand.panes is not None:
            return self.demand.panes.fingerprint
        return self.demand.events.fingerprint if self.demand.events is not None else ""


@dataclass(frozen=True)
class FoldedDemands:
    """The demands on a stream without duplicates.

    Parameters
    ----------
    schema
        Of the stream; None while it is not known.
    classes
        Different demands.
    refused
        Demands left out.
    """

    schema: StreamSchema | None = None
    classes: tuple[DemandClass, ...] = ()
    refused: tuple[RefusedDemand, ...] = ()
    conditions: Mapping[tuple[PropertyBand, ...], tuple[int, ...]] = field(default_factory=dict)
    """Places of classes by their conditions on sensors."""

    @cached_property
    def looked_at(self) -> tuple[FieldName, ...]:
        """The fixed fields that conditions look at: sensors with the same values of them are alike."""
        return tuple(sorted({band.field for condition in self.conditions for band in condition}))

    @property
    def queries(self) -> int:
        """The number of demanding queries."""
        return len({query for each in self.classes for query in each.queries})

    def concerning(self, properties: Mapping[str, Value]) -> tuple[int, ...]:
        """Return the places of the classes that apply to a sensor with these properties."""
        found: list[int] = []
        for condition, places in self.conditions.items():
            if _is_about(condition, properties):
                found.extend(places)
        return tuple(sorted(found))


def fold_demands(demands: Iterable[QueryDemand], schema: StreamSchema) -> FoldedDemands:
    """Fold the demands of all queries on a stream.

    A demand that names a field that the stream lacks, or needs what its fields cannot give, is refused; the others are
    kept. If no query needs a sampled field, the first one is sampled all the same: such queries need the existence of
    samples.
    """
    by_class: dict[QueryDemand, list[str]] = {}
    refused: list[RefusedDemand] = []
    for demand in demands:
        problem = _problem(demand, schema)
        if problem:
            refused.append(RefusedDemand(demand.query, problem))
            continue
        normal = _without_query(demand)
        by_class.setdefault(normal, []).append(demand.query)
    classes = tuple(DemandClass(demand, tuple(sorted(set(queries)))) for demand, queries in by_class.items())
    conditions: dict[tuple[PropertyBand, ...], list[int]] = {}
    for place, each in enumerate(classes):
        conditions.setdefault(each.demand.sensors, []).append(place)
    return FoldedDemands(
        schema, classes, tuple(refused), {condition: tuple(places) for condition, places in conditions.items()}
    )


def needs_of(
    classes: Sequence[DemandClass], schema: StreamSchema, default_period_us: int, samples_per_packet: int = 1
) -> dict[Need, tuple[DemandClass, ...]]:
    """Return the needs of classes of demands on a sensor, each with the classes that it comes from.

    Demands with one fingerprint are answered by the same tuples and become one need: all their fields and measures, in
    panes of which all their windows can be made.

    Parameters
    ----------
    classes
        Those that concern the sensor.
    schema
        Of its stream.
    default_period_us
        Of the sensor.
    samples_per_packet
        By the deployer's choice samples wait until there are this many, however often a query emits answers.
    """
    by_fingerprint: dict[str, Need] = {}
    found: dict[Need, list[DemandClass]] = {}
    listed: list[tuple[DemandClass, Need]] = []
    for each in classes:
        need = _need(each.demand, schema, default_period_us, samples_per_packet)
        fingerprint = each.fingerprint
        if fingerprint:
            need = by_fingerprint[fingerprint] = (
                _together(by_fingerprint[fingerprint], need) if fingerprint in by_fingerprint else need
            )
        listed.append((each, need))
    for each, need in listed:
        found.setdefault(by_fingerprint[each.fingerprint] if each.fingerprint else need, []).append(each)
    return {need: tuple(its_classes) for need, its_classes in found.items()}


def intervals_of(bands: Iterable[Band]) -> Bands:
    """Return bands by field, overlapping ones united."""
    by_field: dict[FieldName, list[tuple[float, float]]] = {}
    for band in bands:
        low = -math.inf if band.low is None else band.low
        high = math.inf if band.high is None else band.high
        by_field.setdefault(band.field, []).append((low, high))
    return tuple(sorted((name, united(intervals)) for name, intervals in by_field.items()))


def united(intervals: Iterable[tuple[float, float]]) -> Intervals:
    """Return a union of intervals as disjoint ones.

    Examples
    --------
    >>> united([(5, 9), (0, 2), (1, 3)])
    ((0, 3), (5, 9))
    """
    found: list[tuple[float, float]] = []
    for low, high in sorted(intervals):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return tuple(found)


def fewer(intervals: Intervals, most: int) -> Intervals:
    """Return at most `most` intervals that contain all values of the given ones: the closest ones are united.

    Examples
    --------
    >>> fewer(((0, 1), (2, 3), (9, 9)), 2)
    ((0, 3), (9, 9))
    """
    if len(intervals) <= most:
        return intervals
    gaps = [after[0] - before[1] for before, after in pairwise(intervals)]
    kept = sorted(sorted(range(len(gaps)), key=lambda place: (gaps[place], place))[len(gaps) - most + 1 :])
    begins = [0, *(place + 1 for place in kept)]
    ends = [*kept, len(intervals) - 1]
    return tuple((intervals[begin][0], intervals[end][1]) for begin, end in zip(begins, ends, strict=True))


def bands_of(bands: Bands) -> tuple[Band, ...]:
    """Return intervals as bands of a program."""
    return tuple(
        Band(name, None if low == -math.inf else low, None if high == math.inf else high)
        for name, intervals in bands
        for low, high in intervals
    )


def _need(demand: QueryDemand, schema: StreamSchema, default_period_us: int, samples_per_packet: int) -> Need:
    sampled = [each.name for each in schema.sampled]
    period_us = demand.period_us or default_period_us
    patience_us = max(demand.output_us, samples_per_packet * period_us)
    tolerances = tuple(sorted((each.field, each.width) for each in demand.tolerances if each.width > 0))
    if demand.events is not None:
        field_name = demand.events.threshold.field
        kind = NeedKind.EVENTS if demand.panes is None else NeedKind.TALLIES
        return Need(
            kind,
            (field_name,),
            period_us,
            pane_us=0 if demand.panes is None else demand.panes.pane_us,
            threshold=demand.events.threshold,
            patience_us=max(demand.output_us, period_us),
        )
    bands = intervals_of(demand.bands)
    panes = demand.panes
    if sum(len(intervals) for _, intervals in bands) > MOST_PANE_INTERVALS:
        panes = None  # samples will do, too; the cluster leaves out those that no query needs
    if panes is None:
        bands = tuple((name, fewer(intervals, MOST_INTERVALS)) for name, intervals in bands)
    read = {*demand.fields, *(name for name, _ in bands)} if panes is None else set(demand.fields)
    fields = tuple(name for name in sampled if name in read)
    if panes is None:
        return Need(
            NeedKind.SAMPLES,
            fields or tuple(sampled[:1]),
            period_us,
            bands,
            tolerances,
            patience_us=patience_us,
            slowest_us=demand.slowest_us,
            silence_us=demand.silence_us,
        )
    return Need(
        NeedKind.PANES,
        fields,
        period_us,
        bands,
        tolerances,
        panes.pane_us,
        _in_order(panes.measures),
        patience_us=patience_us,
        slowest_us=demand.slowest_us,
    )


def found_in_samples(need: Need, samples_per_packet: int) -> Need:
    """Return a need whose events are found in samples: these wait for a full packet, as those of other needs do."""
    if need.kind is not NeedKind.EVENTS:
        return need
    return replace(need, patience_us=max(need.patience_us, samples_per_packet * need.period_us))


def _together(one: Need, other: Need) -> Need:
    """Return a need that includes two needs with one fingerprint."""
    exact = {name for need in (one, other) for name in need.fields if name not in dict(need.tolerances)}
    widths = {
        name: min(dict(need.tolerances).get(name, math.inf) for need in (one, other))
        for need in (one, other)
        for name, _ in need.tolerances
        if name not in exact
    }
    order = dict.fromkeys((*one.fields, *other.fields))
    slowest = (one.slowest_us, other.slowest_us)
    return replace(
        one,
        fields=tuple(order),
        tolerances=tuple(sorted(widths.items())),
        pane_us=math.gcd(one.pane_us, other.pane_us),
        measures=_in_order((*one.measures, *other.measures)),
        patience_us=min(one.patience_us, other.patience_us),
        slowest_us=min(slowest) if all(slowest) else 0,
    )


def _in_order(measures: Iterable[Measure]) -> tuple[Measure, ...]:
    """Return measures in the order of their definition; with any of them, how many values are not NULL."""
    wanted = set(measures)
    return tuple(each for each in Measure if each in wanted or (wanted and each is Measure.COUNT))


def _without_query(demand: QueryDemand) -> QueryDemand:
    return QueryDemand("any", *(getattr(demand, name) for name in demand.__struct_fields__[1:]))


def _problem(demand: QueryDemand, schema: StreamSchema) -> str:
    """Return why sensors of a stream cannot answer a demand; empty if they can."""
    known = {each.name: each for each in schema.fields}
    named = [*demand.fields, *(each.field for each in demand.bands), *(each.field for each in demand.tolerances)]
    named += [each.field for each in demand.sensors]
    if demand.events is not None:
        named.append(demand.events.threshold.field)
    unknown = sorted({name for name in named if name not in known})
    if unknown:
        return f"stream {schema.name!r} has no field {', '.join(map(repr, unknown))}"
    looked_at = [band.field for band in demand.bands]
    if demand.events is not None:
        looked_at.append(demand.events.threshold.field)
    for name in looked_at:
        if known[name].fixed or known[name].type is FieldType.TEXT:
            return f"field {name!r} of stream {schema.name!r} is not sampled as a number"
    for condition in demand.sensors:
        if not known[condition.field].fixed:
            return f"field {condition.field!r} of stream {schema.name!r} is sampled: it cannot choose sensors"
    measured = demand.panes.measures if demand.panes is not None and demand.events is None else ()
    texts = [name for name in demand.fields if known[name].type is FieldType.TEXT and not known[name].fixed]
    if measured and texts:
        return f"field {texts[0]!r} of stream {schema.name!r} is text and cannot be added up"
    return ""


def _is_about(condition: tuple[PropertyBand, ...], properties: Mapping[str, Value]) -> bool:
    by_field: dict[FieldName, bool] = {}
    for band in condition:
        by_field[band.field] = by_field.get(band.field, False) or band.holds(properties.get(band.field))
    return all(by_field.values())


def answers(alone: SamplingProgram, need: Need) -> bool:
    """Return whether a report's records answer a need.

    Parameters
    ----------
    report
        A report as a program of its own, from :func:`protocols.wire.programs.reports_of`.
    need
        The need.
    """
    match alone.report:
        case None | SendOnChange():
            return _samples_answer(alone, need)
        case Panes(pane_us=pane_us, measures=measures):
            return (
                need.kind is NeedKind.PANES
                and alone.period_us == need.period_us
                and aggregates_the_same(alone, need)
                and need.pane_us % pane_us == 0
                and set(need.fields) <= set(alone.fields)
                and set(need.measures) <= set(measures)
            )
        case VehicleEvents(threshold=threshold):
            return need.threshold == threshold and need.period_us == alone.period_us
        case VehicleCount(threshold=threshold, every_us=every_us):
            return (
                need.kind is NeedKind.TALLIES
                and need.threshold == threshold
                and need.period_us == alone.period_us
                and need.pane_us % every_us == 0
            )
        case _:
            return False


def aggregates_the_same(alone: SamplingProgram, need: Need) -> bool:
    """Return whether panes of a report are made of exactly the samples of a need.

    If periods are longer to save the battery, these are samples at a multiple of the need's period.
    """
    return (
        isinstance(alone.report, Panes)
        and alone.period_us % need.period_us == 0
        and intervals_of(alone.bands) == need.bands
    )


def holds_all(alone: Bands, need: Bands) -> bool:
    """Return whether every sample in the bands of a need is in those of a report."""
    wanted = dict(need)
    return all(name in wanted and _within(wanted[name], intervals) for name, intervals in alone)


def _samples_answer(alone: SamplingProgram, need: Need) -> bool:
    if need.period_us % alone.period_us:
        return False
    read = {*need.fields, *dict(need.bands)}
    if not read <= set(alone.fields) or not holds_all(intervals_of(alone.bands), need.bands):
        return False
    if need.threshold is not None and alone.bands:
        return False
    if isinstance(alone.report, SendOnChange):
        allowed = dict(need.tolerances)
        widths = {each.field: each.width for each in alone.report.dead_bands}
        return all(widths.get(name, 0.0) <= allowed.get(name, 0.0) for name in read)
    return True


def _within(inner: Intervals, outer: Intervals) -> bool:
    begins = [low for low, _ in outer]
    places = [bisect_right(begins, begin) - 1 for begin, _ in inner]
    return all(place >= 0 and end <= outer[place][1] for place, (_, end) in zip(places, inner, strict=True))
