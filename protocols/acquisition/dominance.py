"""Dominated needs: every report that answers another need answers them, too, and as soon."""

from __future__ import annotations

import math
from collections.abc import Sequence

from protocols.acquisition.covering import answers
from protocols.acquisition.needs import Need, NeedKind
from protocols.acquisition.program_reports import event_reports, pane_reports, sampling_report
from protocols.wire.programs import SamplingProgram

MOST_COMPARED = 64
"""The strongest needs, with which all others are compared; weaker ones rarely dominate another."""


def undominated(needs: Sequence[Need]) -> tuple[Need, ...]:
    """Return the needs that no other one dominates.

    Of many needs, some that are dominated may stay.
    """
    kept: list[Need] = []
    strongest: list[tuple[Need, SamplingProgram]] = []
    for need in sorted(set(needs), key=_strength):
        if not any(_implied(need, other, least) for other, least in strongest):
            kept.append(need)
            if len(strongest) < MOST_COMPARED:
                strongest.append((need, _least(need)))
    return tuple(kept)


def _strength(need: Need) -> tuple[object, ...]:
    """Return a key by which a need comes before all those that it dominates: no part of it is larger than theirs."""
    kinds = (NeedKind.SAMPLES, NeedKind.EVENTS, NeedKind.PANES, NeedKind.TALLIES)
    read = {*need.fields, *(name for name, _ in need.bands)}
    widths = (_width(high) - _width(low) for _, intervals in need.bands for low, high in intervals)
    return (
        *(kinds.index(need.kind), need.period_us, -len(read), len(need.bands)),
        *(need.patience_us, need.silence_us, -round(math.fsum(widths), 12), repr(need)),
    )


def _width(bound: float) -> float:
    """Return a bound on a finite scale, in the order of all bounds, infinite ones among them."""
    return math.atan(math.copysign(math.log1p(abs(bound)), bound))


def _implied(need: Need, other: Need, least: SamplingProgram) -> bool:
    """Return whether another need dominates this one; `least` is the least report that answers the other."""
    if need.patience_us < other.patience_us or need.silence_us < other.silence_us:
        return False
    tolerant = all(width <= dict(need.tolerances).get(name, 0.0) for name, width in other.tolerances)
    return tolerant and answers(least, need)


def _least(need: Need) -> SamplingProgram:
    """Return the least report that answers a need."""
    order = tuple(dict.fromkeys((*need.fields, *(name for name, _ in need.bands)))) or ("any",)
    found = [sampling_report((need,), order)]
    if need.kind is NeedKind.PANES:
        found = pane_reports((need,), order) or found
    elif need.threshold is not None:
        found = event_reports((need,)) or found
    alone = found[-1]
    return SamplingProgram(alone.fields, alone.every_us, bands=alone.bands, report=alone.kind)
