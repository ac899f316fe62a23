"""Push-down to sensors: the bands of values, widened if need be, properties and aggregates that they can evaluate.

**Widening bands that are more, or longer, than a demand may carry.**

A demand may always cover more than a query needs, because the cluster discards the rest. So the closest
intervals are united, and texts that are too long are cut, downwards or upwards.

A windowed aggregate can be pushed down if it groups by fixed fields only, sensors support its aggregates, and its
condition restricts, apart from fixed fields, only the intervals of sampled values: then it needs only a pane's
aggregates of the samples in these bands (papers/fjords.md section 3, predefined aggregation).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise

import msgspec
from msgspec.structs import replace

from cluster.operators import Source
from cluster.operators.aggregate_functions import AGGREGATE_FUNCTIONS
from cluster.operators.columns import Scalar
from cluster.operators.scalar_expressions import columns_of, conjunction_of, conjuncts_of, plain_column
from cluster.operators.source import Detector
from cluster.plan.pane_query import PaneQuery
from cluster.plan.predicate_intervals import Interval, Intervals, extract_ranges
from cluster.planning_budget import spend
from protocols.acquisition.needs import bands_of, fewer, intervals_of
from protocols.wire.demands import LONGEST_TEXT, MOST_BANDS, PropertyBand, QueryDemand
from protocols.wire.frames import LONGEST_PERIOD_US
from protocols.wire.programs import Band, Measure
from protocols.wire.streams import FieldType

_LETTERS = 8
"""Letters of texts, from the first difference on, by which the distance of texts is measured."""
_LAST_LETTER = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def with_fewer_bands(demand: QueryDemand, most: int) -> QueryDemand:
    """Return a demand with at most so many bands, and as many conditions on sensors, where it may cover more.

    A demand for aggregates may not be widened: it is for the samples in exactly its bands.
    """
    bands = demand.bands if demand.panes is not None else widened_bands(demand.bands, most)
    return replace(demand, bands=bands, sensors=widened_conditions(demand.sensors, most))


def widened_bands(bands: Sequence[Band], most: int = MOST_BANDS) -> tuple[Band, ...]:
    """Return at most so many bands that hold all values of the given ones; the given ones, if they are no more.

    Examples
    --------
    >>> [(each.low, each.high) for each in widened_bands([Band("v", 1, 2), Band("v", 3, 4), Band("v", 9, 9)], 2)]
    [(1, 4), (9, 9)]
    """
    if len(bands) <= most:
        return tuple(bands)
    spend(len(bands))
    by_field = intervals_of(bands)
    if sum(len(intervals) for _, intervals in by_field) > most:
        each = most // len(by_field)
        # If there is no space for one interval of a field, there is no condition on it any more.
        by_field = tuple((name, fewer(intervals, each)) for name, intervals in by_field) if each else ()
    return bands_of(by_field)


def widened_conditions(bands: Sequence[PropertyBand], most: int = MOST_BANDS) -> tuple[PropertyBand, ...]:
    """Return at most so many conditions, without long texts, that hold for every sensor for which the given ones do."""
    carried = [_with_shorter_texts(each) for each in bands]
    if len(carried) <= most:
        return tuple(carried)
    spend(len(carried))
    by_field = {name: list(some) for name, some in groupby(sorted(carried, key=_field_of), key=_field_of)}
    each = most // len(by_field)
    return tuple(band for some in by_field.values() for band in _fewer(some, each)) if each else ()


def _field_of(band: PropertyBand) -> str:
    return band.field


def _fewer(bands: Sequence[PropertyBand], most: int) -> list[PropertyBand]:
    """Return at most so many bands of one field that hold all values of the given ones: the closest are united."""
    found: list[PropertyBand] = []
    for band in sorted(bands, key=_begin):
        if found and _meet(found[-1], band):
            found[-1] = _united(found[-1], band)
        else:
            found.append(band)
    if len(found) <= most:
        return found
    gaps = _gaps(found)
    kept = sorted(sorted(range(len(gaps)), key=lambda place: (gaps[place], place))[len(gaps) - most + 1 :])
    begins = [0, *(place + 1 for place in kept)]
    ends = [*kept, len(found) - 1]
    return [_united(found[begin], found[end]) for begin, end in zip(begins, ends, strict=True)]


def _begin(band: PropertyBand) -> tuple[bool, int | float | str, bool]:
    return (False, 0, False) if band.low is None else (True, band.low, band.low_open)


def _meet(band: PropertyBand, after: PropertyBand) -> bool:
    """Return whether no value lies between a band and one that begins no earlier."""
    if band.high is None or after.low is None:
        return True
    if band.high == after.low:
        return not (band.high_open and after.low_open)
    return bool(after.low < band.high)  # type: ignore[operator]  # both are of the field's type


def _united(band: PropertyBand, after: PropertyBand) -> PropertyBand:
    """Return the band from the beginning of one to the end of either."""
    if band.high is None or after.high is None:
        return replace(band, high=None, high_open=False)
    further = after.high > band.high  # type: ignore[operator]  # both are of the field's type
    if further or (after.high == band.high and not after.high_open):
        return replace(band, high=after.high, high_open=after.high_open)
    return band


def _gaps(bands: Sequence[PropertyBand]) -> list[float] | list[int]:
    """Return the distance between each band of one field and the next."""
    between = [(band.high, after.low) for band, after in pairwise(bands)]
    texts = [bound for ends in between for bound in ends if isinstance(bound, str)]
    if not texts:
        return [float(low) - float(high) for high, low in between]  # type: ignore[arg-type]  # only the ends are None
    first, last = min(texts), max(texts)
    same = next(
        (place for place, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first)
    )
    numbers = {text: _number(text[same : same + _LETTERS]) for text in texts}
    return [numbers[str(low)] - numbers[str(high)] for high, low in between]


def _number(text: str) -> int:
    """Return a number that grows with a text of up to so many letters."""
    return int.from_bytes(text.encode("utf-32-be", "surrogatepass").ljust(4 * _LETTERS, b"\0"))


def _with_shorter_texts(band: PropertyBand) -> PropertyBand:
    low, high = band.low, band.high
    if isinstance(low, str) and len(low) > LONGEST_TEXT:
        band = replace(band, low=low[:LONGEST_TEXT], low_open=False)
    if isinstance(high, str) and len(high) > LONGEST_TEXT:
        band = replace(band, high=_after(high[:LONGEST_TEXT]), high_open=True)
    return band if band.high is not None else replace(band, high_open=False)


def _after(prefix: str) -> str | None:
    """Return the first text after all that begin with a prefix, None if there is none."""
    kept = prefix.rstrip(chr(_LAST_LETTER))
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


MEASURES: Mapping[str, tuple[Measure, ...]] = {
    name: row.measures for name, row in AGGREGATE_FUNCTIONS.items() if row.measures
}
"""The measures of which each aggregate is composed that devices can compute."""
NUMBERS = (FieldType.INTEGER, FieldType.REAL)
MOST_PAIRS = 1_000
"""Most pairs of intervals of one field that are compared to intersect several conditions."""
LARGEST_EXACT = 2**53
"""Sensors compare values as reals; not all integers beyond this are reals."""


@dataclass(frozen=True, slots=True)
class PushablePredicate:
    """The part of a condition that sensors can evaluate: bands of sampled values, and conditions on sensors.

    Parameters
    ----------
    bands
        Intervals of sampled fields.
    sensors
        Intervals of fixed fields.
    fixed
        The part of the condition that reads fixed fields only; None for none.
    exactly
        True if the bands and `fixed` together are equivalent to the condition; else they hold for more tuples.
    """

    bands: tuple[Band, ...] = ()
    sensors: tuple[PropertyBand, ...] = ()
    fixed: Scalar | None = None
    exactly: bool = True


@dataclass(frozen=True, slots=True)
class Pushed:
    """The part of a windowed aggregate that sensors compute.

    Parameters
    ----------
    fingerprint
        Identifies the samples, or the events, that are aggregated; tuples carry it.
    predicate
        The condition on these.
    measures
        By field: the needed measures.
    counts_events
        True if events are counted; single events are then not reported.
    """

    fingerprint: str
    predicate: PushablePredicate
    measures: tuple[tuple[str, tuple[Measure, ...]], ...]
    counts_events: bool = False


@lru_cache(maxsize=65_536)
def pushed_of(query: PaneQuery) -> Pushed | None:
    """Return what sensors can compute of a windowed aggregate; None if they must report every sample (or event)."""
    source = query.source
    if source.lookups or query.own_pane_us > LONGEST_PERIOD_US:
        return None
    fixed = fixed_columns(source)
    pushable = split_predicate(source, query.predicate)
    if not pushable.exactly or not all(columns_of(key) <= fixed for key in query.keys):
        return None
    measures: dict[str, tuple[Measure, ...]] = {}
    types = {column.name: column.type for column in source.columns}
    for call in query.calls:
        if call.function == "completeness":
            continue  # the proxy reports the missing samples
        if call.function not in MEASURES or call.distinct or call.order is not None:
            return None
        if call.argument is None:
            continue
        name = plain_column(call.argument)
        if source.detector is not None or name is None or name in fixed or types.get(name) not in NUMBERS:
            return None
        both = {*measures.get(name, ()), *MEASURES[call.function]}
        measures[name] = tuple(each for each in Measure if each in both)
    if source.detector is not None and pushable.bands:
        return None
    what = fingerprint_of(source.stream, source.detector, source.sample_period_us, pushable.bands, counted=True)
    return Pushed(what, pushable, tuple(sorted(measures.items())), source.detector is not None)


def event_fingerprint(source: Source) -> str:
    """Return the fingerprint of events that are reported one by one."""
    return fingerprint_of(source.stream, source.detector, source.sample_period_us, (), counted=False)


def fingerprint_of(
    stream: str, detector: Detector | None, period_us: int | None, bands: Iterable[Band], *, counted: bool
) -> str:
    """Return the fingerprint of samples or events that are pushed down; equal for ever, in every cluster."""
    what = msgspec.json.encode((stream, detector, period_us, tuple(bands), counted))
    return hashlib.blake2b(what, digest_size=8).hexdigest()


def fixed_columns(source: Source) -> frozenset[str]:
    """Return the columns of a source that are properties of sensors."""
    return frozenset(source.fixed)


@lru_cache(maxsize=65_536)
def split_predicate(source: Source, predicate: Scalar | None) -> PushablePredicate:
    """Split a condition directly above a source into the part that sensors can evaluate, and the rest."""
    fixed = fixed_columns(source)
    about_sensors: list[Scalar] = []
    about_samples: list[Scalar] = []
    known = {column.name for column in source.sampled}
    parts = [part for part in conjuncts_of(predicate) if columns_of(part) <= known]
    for part in parts:
        (about_sensors if columns_of(part) <= fixed else about_samples).append(part)
    types = {column.name: column.type for column in source.columns}
    sampled = extract_ranges(conjunction_of(about_samples), source.columns)
    bands: list[Band] = []
    exactly = not sampled.rest and len(parts) == len(conjuncts_of(predicate))
    for name, unions in sampled.intervals.items():
        ranges, whole = _intersection(unions)
        found = _bands(name, ranges, types[name])
        exactly &= whole and found is not None
        bands += found or ()
    widened = widened_bands(bands)
    exactly &= intervals_of(widened) == intervals_of(bands)
    owned = extract_ranges(conjunction_of(about_sensors), source.columns)
    sensors = [
        PropertyBand(name, each.low, each.high, each.low_open, each.high_open)
        for name, unions in owned.intervals.items()
        for each in _intersection(unions)[0]
    ]
    return PushablePredicate(
        tuple(sorted(widened, key=lambda band: (band.field, -math.inf if band.low is None else band.low))),
        widened_conditions(sensors),
        conjunction_of(about_sensors),
        exactly,
    )


def _bands(name: str, intervals: Intervals, kind: FieldType) -> tuple[Band, ...] | None:
    """Return closed intervals of reals; None if there is none, or not all values are reals."""
    found: list[Band] = []
    for each in intervals:
        low, high = each.low, each.high
        if isinstance(low, str) or isinstance(high, str):
            return None
        if any(bound is not None and abs(bound) > LARGEST_EXACT for bound in (low, high)) and kind is FieldType.INTEGER:
            return None
        if low is not None and each.low_open:
            low = low + 1 if kind is not FieldType.REAL else math.nextafter(low, math.inf)
        if high is not None and each.high_open:
            high = high - 1 if kind is not FieldType.REAL else math.nextafter(high, -math.inf)
        if low == math.inf or high == -math.inf or (low is not None and high is not None and low > high):
            continue
        found.append(Band(name, None if low is None else float(low), None if high is None else float(high)))
    return tuple(found) or None


def _intersection(unions: Iterable[Intervals]) -> tuple[Intervals, bool]:
    """Return the intersection of unions, or a superset of it where there are many; and whether it is exact."""
    found: Intervals = (Interval(),)
    whole = True
    for union in unions:
        if len(found) > 1 and len(found) * len(union) > MOST_PAIRS:
            whole = False
            continue
        spend(len(found) * len(union))
        found = tuple(both for one in found for other in union if (both := _both(one, other)) is not None)
    return found, whole


def _both(one: Interval, other: Interval) -> Interval | None:
    low, low_open = _tighter((one.low, one.low_open), (other.low, other.low_open), least=False)
    high, high_open = _tighter((one.high, one.high_open), (other.high, other.high_open), least=True)
    if low is not None and high is not None:
        if isinstance(low, str) != isinstance(high, str) or low > high:  # type: ignore[operator]
            return None
        if low == high and (low_open or high_open):
            return None
    return Interval(low, high, low_open, high_open)


_Bound = tuple[int | float | str | None, bool]


def _tighter(one: _Bound, other: _Bound, *, least: bool) -> _Bound:
    if one[0] is None:
        return other
    if other[0] is None:
        return one
    if one[0] == other[0]:
        return one[0], one[1] or other[1]
    first_is_less = one[0] < other[0]  # type: ignore[operator]
    return one if first_is_less == least else other
