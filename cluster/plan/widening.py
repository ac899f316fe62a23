"""Widening bands that are more, or longer, than a demand may carry.

A demand may always cover more than a query needs, because the cluster discards the rest. So the closest
intervals are united, and texts that are too long are cut, downwards or upwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

from msgspec.structs import replace

from cluster.planning_budget import spend
from protocols.acquisition.needs import bands_of, fewer, intervals_of
from protocols.wire.demands import LONGEST_TEXT, MOST_BANDS, PropertyBand, QueryDemand
from protocols.wire.programs import Band

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
