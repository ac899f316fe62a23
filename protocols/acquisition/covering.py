"""Whether a part of a sampling program tells all that a need asks for, exactly or within its tolerance."""

from __future__ import annotations

from bisect import bisect_right

from protocols.acquisition.needs import Bands, Intervals, Need, NeedKind, intervals_of
from protocols.wire.programs import Panes, SamplingProgram, SendOnChange, VehicleCount, VehicleEvents


def answers(part: SamplingProgram, need: Need) -> bool:
    """Return whether a part's records are enough to answer a need.

    Parameters
    ----------
    part
        One part of a program, as :func:`protocols.wire.programs.parts_of` returns it.
    need
        What it asks for.
    """
    match part.report:
        case None | SendOnChange():
            return _samples_answer(part, need)
        case Panes(pane_us=pane_us, measures=measures):
            return (
                need.kind is NeedKind.PANES
                and part.period_us == need.period_us
                and aggregates_the_same(part, need)
                and need.pane_us % pane_us == 0
                and set(need.fields) <= set(part.fields)
                and set(need.measures) <= set(measures)
            )
        case VehicleEvents(threshold=threshold):
            return need.threshold == threshold and need.period_us == part.period_us
        case VehicleCount(threshold=threshold, every_us=every_us):
            return (
                need.kind is NeedKind.TALLIES
                and need.threshold == threshold
                and need.period_us == part.period_us
                and need.pane_us % every_us == 0
            )
        case _:
            return False


def aggregates_the_same(part: SamplingProgram, need: Need) -> bool:
    """Return whether panes of a part are made of the very samples that a need is about.

    Where the sensor was told to save its battery, these are samples at a multiple of the need's period.
    """
    return (
        isinstance(part.report, Panes)
        and part.period_us % need.period_us == 0
        and intervals_of(part.bands) == need.bands
    )


def holds_all(part: Bands, need: Bands) -> bool:
    """Return whether every sample in the bands of a need is in those of a part."""
    wanted = dict(need)
    return all(name in wanted and _within(wanted[name], intervals) for name, intervals in part)


def _samples_answer(part: SamplingProgram, need: Need) -> bool:
    if need.period_us % part.period_us:
        return False
    read = {*need.fields, *dict(need.bands)}
    if not read <= set(part.fields) or not holds_all(intervals_of(part.bands), need.bands):
        return False
    if need.threshold is not None and part.bands:
        return False
    if isinstance(part.report, SendOnChange):
        allowed = dict(need.tolerances)
        widths = {each.field: each.width for each in part.report.dead_bands}
        return all(widths.get(name, 0.0) <= allowed.get(name, 0.0) for name in read)
    return True


def _within(inner: Intervals, outer: Intervals) -> bool:
    begins = [low for low, _ in outer]
    places = [bisect_right(begins, begin) - 1 for begin, _ in inner]
    return all(place >= 0 and end <= outer[place][1] for place, (_, end) in zip(places, inner, strict=True))
