"""Sampling programs in words."""

from __future__ import annotations

from protocols.text.quantities import format_duration
from protocols.wire.programs import (
    Band,
    Panes,
    SamplingProgram,
    SendOnChange,
    VehicleCount,
    VehicleEvents,
    reports_of,
)


def words_of(program: SamplingProgram) -> str:
    """Return what a program does, in words.

    Examples
    --------
    >>> words_of(SamplingProgram(("speed",), 500_000, bands=(Band("speed", high=10.0),)))
    'speed up to 10 every 500ms'
    """
    if program.sleeping:
        return "sleep"
    return " and ".join(_report(alone) for alone in reports_of(program))


def _report(alone: SamplingProgram) -> str:
    every = f"every {format_duration(alone.period_us)}"
    banded = {band.field for band in alone.bands}
    what = ", ".join(
        [name for name in alone.fields if name not in banded]
        + [
            f"{name} {' or '.join(band_words(band) for band in alone.bands if band.field == name)}"
            for name in sorted(banded)
        ]
    )
    match alone.report:
        case Panes(pane_us=pane_us, measures=measures):
            names = ", ".join(each.value.replace("_", " ") for each in measures) or "number"
            return f"{names} of {what} sampled {every}, each {format_duration(pane_us)}"
        case SendOnChange(dead_bands=dead_bands):
            by = ", ".join(f"{each.width:g}" for each in dead_bands)
            return f"{what} {every} when changed by more than {by}"
        case VehicleEvents(threshold=threshold):
            return f"when {threshold.field} rises to {threshold.above:g} and falls to {threshold.below:g}, seen {every}"
        case VehicleCount(threshold=threshold, every_us=every_us):
            how_often = f"how often {threshold.field} rises to {threshold.above:g}"
            return f"{how_often} each {format_duration(every_us)}, seen {every}"
        case _:
            return f"{what} {every}"


def band_words(band: Band) -> str:
    """Return which values a band holds, in words."""
    if band.low is None:
        return "any" if band.high is None else f"up to {band.high:g}"
    if band.high is None:
        return f"from {band.low:g}"
    return f"{band.low:g}" if band.low == band.high else f"{band.low:g} to {band.high:g}"
