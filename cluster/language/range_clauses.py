"""``MIN a, MAX b`` and ``COARSEST a, FINEST b``: syntax -> the best size, and the range beside it."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET, UnsetType

from cluster.language.context import Context
from cluster.language.errors import FjordSqlError
from cluster.language.quantities import duration_us, read_quantity, row_count, written
from cluster.language.syntax import Bounds, Quantity
from cluster.operators.window_shapes import Allowed

ONLY_BEST = "{}, so the best is always delivered"
"""The warning about a range in a text that an earlier version has accepted."""


def window_size(size: Quantity | Bounds, context: Context) -> tuple[int, Allowed | UnsetType]:
    """Return the size of a window by time, the longest if it has a range, and the range.

    Raises
    ------
    FjordSqlError
        If a bound has no meaning, or the range contains no size.
    """
    if not isinstance(size, Bounds):
        return read_quantity(size, duration_us, context), UNSET
    least_us, most_us = _bounds(size, duration_us, context)
    if least_us > most_us:
        _refuse(size, "this range is the wrong way round", "write MIN a, MAX b", context)
        return most_us, UNSET
    return most_us, Allowed(least_us, most_us) if least_us < most_us else UNSET


def in_steps(
    size: Quantity | Bounds, allowed: Allowed | UnsetType, slide_us: int, context: Context
) -> Allowed | UnsetType:
    """Return the range of a window that slides; its bounds are multiples of the slide, as all sizes are.

    Raises
    ------
    FjordSqlError
        If they are not.
    """
    if not isinstance(allowed, Allowed) or not isinstance(size, Bounds):
        return allowed
    for bound, found_us in ((size.this, allowed.worst_us), (size.expression, allowed.best_us)):
        if found_us % slide_us:
            below_us = found_us - found_us % slide_us
            near = f"{written(below_us)} or {written(below_us + slide_us)}" if below_us else written(slide_us)
            reason = f"{written(found_us)} is no multiple of the slide, {written(slide_us)}, by which a range changes"
            _refuse(bound, reason, f"write {near}", context)
            return UNSET
    return allowed


def granule(size: Quantity | Bounds, context: Context) -> tuple[int, Allowed | UnsetType]:
    """Return the granule of a granularity, the finest if it has a range, and the range; errors as for windows."""
    if not isinstance(size, Bounds):
        return read_quantity(size, duration_us, context), UNSET
    coarsest_us, finest_us = _bounds(size, duration_us, context)
    if coarsest_us < finest_us:
        _refuse(size, "this range is the wrong way round", "write COARSEST a, FINEST b", context)
        return finest_us, UNSET
    if left_us := coarsest_us % finest_us:
        reason = f"instants {written(coarsest_us)} apart are not among those {written(finest_us)} apart"
        fits_us = coarsest_us - left_us
        _refuse(size, reason, f"write COARSEST {written(fits_us)}, or another multiple of the finest", context)
        return finest_us, UNSET
    return finest_us, Allowed(coarsest_us, finest_us) if coarsest_us > finest_us else UNSET


def row_bound(size: Quantity | Bounds, context: Context) -> int:
    """Return how many tuples a window by count has; it stays at the most of a range.

    Where such a window ends no stamp says, so there is no instant at which another one could take its place.

    Raises
    ------
    FjordSqlError
        If a bound has no meaning, or the range is the wrong way round.
    """
    if not isinstance(size, Bounds):
        return read_quantity(size, row_count, context)
    least, most = _bounds(size, row_count, context)
    if least > most:
        _refuse(size, "this range is the wrong way round", "write MIN a, MAX b", context)
    else:
        context.warn(
            f"ROWS MIN {least}, MAX {most} stays at {most}: windows by count are not adapted, as there is no instant "
            "at which tuples leave them; a window by time, RANGE MIN a, MAX b, is"
        )
    return most


def _bounds(size: Bounds, read: Callable[[str, str | None], int], context: Context) -> tuple[int, int]:
    """Return both bounds as written; the best twice where a kept text has a faulty first one, which was ignored."""
    best = read_quantity(size.expression, read, context)
    try:
        return read_quantity(size.this, read, context), best
    except FjordSqlError:
        if not context.registered:
            raise
        return best, best


def _refuse(at: Quantity | Bounds, reason: str, hint: str, context: Context) -> None:
    """Refuse a range; in a text that was accepted before, the best of it is delivered, with a warning.

    Raises
    ------
    FjordSqlError
        Unless the text was accepted before.
    """
    if not context.registered:
        raise context.error(at, reason, hint)
    context.warn(ONLY_BEST.format(reason))
