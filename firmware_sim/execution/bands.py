"""Band filters: they select the samples that count."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from firmware_sim.execution.reporter import Values
from protocols.wire.programs import Band, SamplingProgram


def in_bands(program: SamplingProgram) -> Callable[[Values], bool]:
    """Return whether values count for a program: each field with bands has to lie in one of them.

    NULL lies in no band.

    Examples
    --------
    >>> counts = in_bands(SamplingProgram(("speed",), 1000, bands=(Band("speed", high=30.0), Band("speed", low=80.0))))
    >>> [counts((speed,)) for speed in (30, 31.0, 90.0, None)]
    [True, False, True, False]
    """
    by_place: dict[int, list[Band]] = {}
    for band in program.bands:
        by_place.setdefault(program.fields.index(band.field), []).append(band)

    def count(values: Values) -> bool:
        return all(_in_one(values[place], bands) for place, bands in by_place.items())

    return count


def _in_one(value: object, bands: Iterable[Band]) -> bool:
    if not isinstance(value, int | float):
        return False
    return any((band.low is None or band.low <= value) and (band.high is None or value <= band.high) for band in bands)
