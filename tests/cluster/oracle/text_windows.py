"""What windows mean, in DuckDB: the interval of each tuple, from `vs` until just before `ve`."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.operators.window_shapes import Session
from tests.cluster.oracle.session_windows import session_closings
from tests.cluster.oracle.text_forms import Window

FOR_EVER = 1_000_000_000


def time_intervals(table: str, window: Window) -> str:
    """Return SQL for the intervals of a window by time (papers/pipes_algebra.md section 3)."""
    if window.size is None:
        return f"SELECT *, t AS vs, {FOR_EVER} AS ve FROM {table}"
    if window.kind != "RANGE":
        return _since_boundary(table, window)
    if window.offset:
        # On [k0 - 1, k1 - 1): the first boundaries after t and after t + w.
        begin, end = (_after(f"t + {shift}", window.slide, window.offset) for shift in (0, window.size))
        return f"SELECT *, {begin} - 1 AS vs, {end} - 1 AS ve FROM {table}"
    if window.slide == 1:
        return f"SELECT *, t AS vs, t + {window.size} AS ve FROM {table}"
    # On [k0 - 1, k1 - 1): the first multiples that are at least t + 1 and t + w + 1.
    begin, end = (
        f"((t + {shift + window.slide - 1}) // {window.slide}) * {window.slide} - 1" for shift in (1, window.size + 1)
    )
    return f"SELECT *, {begin} AS vs, {end} AS ve FROM {table}"


def session_intervals(table: str, window: Window, keys: Sequence[str]) -> str:
    """Return SQL for the intervals of sessions: until they close, or the instant at which they do."""
    session = Session(window.size or 0, window.longest, window.early)
    closings = session_closings(table, "r", "t", keys, session)
    same = "".join(f" AND c.{key} IS NOT DISTINCT FROM s.{key}" for key in keys)
    interval = "s.t AS vs, c.closes AS ve" if window.early else "c.closes AS vs, c.closes + 1 AS ve"
    return f"SELECT s.*, {interval} FROM {table} s JOIN ({closings}) c ON c.r = s.r AND c.t = s.t{same}"


def until_next_intervals(table: str, window: Window, keys: Sequence[str]) -> str:
    """Return SQL for the intervals until the next later stamp of a key."""
    by = ", ".join(("r", *keys))
    stamps = f"SELECT DISTINCT {by}, t FROM {table}"
    ends = f"SELECT *, lead(t) OVER (PARTITION BY {by} ORDER BY t) AS later FROM ({stamps})"
    same = "".join(f" AND e.{key} IS NOT DISTINCT FROM s.{key}" for key in keys)
    longest = FOR_EVER if window.size is None else f"s.t + {window.size}"
    return (
        f"SELECT s.*, s.t AS vs, least(coalesce(e.later, {FOR_EVER}), {longest}) AS ve FROM {table} s "
        f"JOIN ({ends}) e ON e.r = s.r AND e.t = s.t{same}"
    )


def _after(instant: str, step: int, offset: int = 0) -> str:
    """Return the first boundary after an instant of 0 or later."""
    return f"((({instant}) - {offset} + {step}) // {step} * {step} + {offset})"


def _since_boundary(table: str, window: Window) -> str:
    """Return SQL for a window that is reset, or by the calendar: only one of its boundaries is near."""
    slide, size = window.slide, window.size or 0
    if window.kind == "RESET":
        boundary = _after("t", size, window.offset)
        following = f"{boundary} + {size}"
    else:
        boundary = f"CASE WHEN t < {window.offset} THEN {window.offset} ELSE {FOR_EVER} END"
        following = str(FOR_EVER)
        if window.kind == "CALENDAR":
            return f"SELECT *, {boundary} - 1 AS vs, {FOR_EVER} AS ve FROM {table}"
    if slide == 1:
        return f"SELECT *, t AS vs, {boundary} AS ve FROM {table}"
    begin = f"least({_after('t', slide)}, {boundary})"
    end = f"least({_after(boundary, slide)}, {following})"
    return f"SELECT *, {begin} - 1 AS vs, {end} - 1 AS ve FROM {table}"


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
