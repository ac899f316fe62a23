"""Needs that another one implies: whatever answers that answers them, too, and as soon."""

from __future__ import annotations

from collections.abc import Sequence

from protocols.acquisition.covering import answers
from protocols.acquisition.needs import Need, NeedKind
from protocols.acquisition.parts import aggregating_parts, detecting_parts, sampling_part
from protocols.wire.programs import SamplingProgram

MOST_COMPARED = 64
"""With so many of the strongest needs each other one is compared; a weaker one hardly ever implies another."""


def undominated(needs: Sequence[Need]) -> tuple[Need, ...]:
    """Return the needs without those that whatever answers another of them answers, too.

    Where there are many, some that are implied may stay.
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
    kinds = (NeedKind.SAMPLES, NeedKind.EVENTS, NeedKind.PANES, NeedKind.TALLIES)
    return kinds.index(need.kind), need.period_us, -len(need.fields), len(need.bands), repr(need)


def _implied(need: Need, other: Need, least: SamplingProgram) -> bool:
    """Return whether whatever answers another need, as `least` does just so, answers this one, and as soon."""
    if need.patience_us < other.patience_us:
        return False
    tolerant = all(width <= dict(need.tolerances).get(name, 0.0) for name, width in other.tolerances)
    return tolerant and answers(least, need)


def _least(need: Need) -> SamplingProgram:
    """Return the part that answers just this need."""
    order = tuple(dict.fromkeys((*need.fields, *(name for name, _ in need.bands)))) or ("any",)
    found = [sampling_part((need,), order)]
    if need.kind is NeedKind.PANES:
        found = aggregating_parts((need,), order) or found
    elif need.threshold is not None:
        found = detecting_parts((need,)) or found
    part = found[-1]
    return SamplingProgram(part.fields, part.every_us, bands=part.bands, report=part.report)
