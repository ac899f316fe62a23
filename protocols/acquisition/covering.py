"""Whether a report of a sampling program answers a need, exactly or within its tolerance."""

from __future__ import annotations

from bisect import bisect_right

from protocols.acquisition.needs import Bands, Intervals, Need, NeedKind, intervals_of
from protocols.wire.programs import Panes, SamplingProgram, SendOnChange, VehicleCount, VehicleEvents


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
