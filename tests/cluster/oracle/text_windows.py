"""What windows mean, in DuckDB: the interval of each tuple, from `vs` until just before `ve`."""

from __future__ import annotations

from collections.abc import Sequence

from tests.cluster.oracle.text_forms import Window

FOR_EVER = 1_000_000_000


def time_intervals(table: str, window: Window) -> str:
    """Return SQL for the intervals of a window by time (papers/pipes_algebra.md section 3)."""
    if window.size is None:
        return f"SELECT *, t AS vs, {FOR_EVER} AS ve FROM {table}"
    if window.slide == 1:
        return f"SELECT *, t AS vs, t + {window.size} AS ve FROM {table}"
    # On [k0 - 1, k1 - 1): the first multiples that are at least t + 1 and t + w + 1.
    begin, end = (
        f"((t + {shift + window.slide - 1}) // {window.slide}) * {window.slide} - 1" for shift in (1, window.size + 1)
    )
    return f"SELECT *, {begin} AS vs, {end} AS ve FROM {table}"


def row_intervals(numbered: str, window: Window, keys: Sequence[str]) -> str:
    """Return SQL for the intervals of a window by rows, numbered from 1 within their group.

    A tuple comes with that which completes its step, and goes with that which completes the step in which it is one of
    too many; what has not come yet ends nothing.
    """
    if window.size is None:
        return f"SELECT *, t AS vs, {FOR_EVER} AS ve FROM {numbered}"
    same = "".join(f" AND {{0}}.{key} IS NOT DISTINCT FROM n.{key}" for key in keys)
    step = window.slide
    begin, end = (f"(({number} + {step - 1}) // {step}) * {step}" for number in ("n.i", f"(n.i + {window.size})"))
    return (
        f"SELECT n.*, b.t AS vs, coalesce(e.t, {FOR_EVER}) AS ve FROM {numbered} n "
        f"JOIN {numbered} b ON b.r = n.r AND b.i = {begin}{same.format('b')} "
        f"LEFT JOIN {numbered} e ON e.r = n.r AND e.i = {end}{same.format('e')}"
    )
