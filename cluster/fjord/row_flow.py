"""The rows of a part of a plan, as amounts, and what operators of many kinds do to them.

Made with the assumptions of :mod:`cluster.fjord.upper_estimates`, which asks each kind of operator for its rows. What
only one kind does stands with its operator (``cluster/fjord/operators``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cluster.language.quantities import written
from cluster.operators.characteristics import KEYS_ASSUMED
from cluster.operators.columns import QUERY_GROUP, VISIBLE_FROM, Schema
from cluster.physical.nodes import PaneWindow

MOST = 1e30
"""No amount is above this."""


@dataclass(frozen=True, slots=True)
class RowFlow:
    """The rows of a part of a plan.

    Parameters
    ----------
    per_tuple
        How many one tuple of a stream makes at most.
    at_once
        How many of those may be valid at the same instant.
    per_second
        How many there are in a second.
    lasting_us
        How long each is valid at most; None if that is not known.
    valid
        How many are valid at an instant, at the rates of streams.
    per_key
        How many of these have the same value in a column by which rows are joined, as assumed.
    made_per_second
        How many more rows the operator on top makes in a second, before it merges them, than it receives.
    because
        Why more than one row is made of a row, in words; empty if that is not so.
    read_once
        How many rows one tuple makes at most, if the query reads it only once.
    at_ends_per_second
        How many of those of a second begin where a row of an aggregate's input ends.
    """

    per_tuple: float
    at_once: float
    per_second: float
    lasting_us: int | None
    valid: float
    per_key: float
    made_per_second: float = 0.0
    because: str = ""
    read_once: float = 1.0
    at_ends_per_second: float = 0.0


def finite(flow: RowFlow) -> RowFlow:
    """Return a flow whose amounts can be multiplied: products of many streams exceed what a number holds."""
    return replace(
        flow,
        per_tuple=min(flow.per_tuple, MOST),
        at_once=min(flow.at_once, MOST),
        per_second=min(flow.per_second, MOST),
        valid=min(flow.valid, MOST),
        per_key=min(flow.per_key, MOST),
        made_per_second=min(flow.made_per_second, MOST),
        read_once=min(flow.read_once, MOST),
    )


def groups_of(keys: Schema) -> int:
    """Return how many groups an aggregate is assumed to have."""
    return KEYS_ASSUMED if {key.name for key in keys} - {QUERY_GROUP.name, VISIBLE_FROM.name} else 1


def of_a_key(valid: float) -> float:
    """Return how many of so many rows of streams have one value in a column by which they are joined."""
    return min(valid / KEYS_ASSUMED, 1.0)


def lasting(flow: RowFlow, lasting_us: int | None, most: float = MOST) -> RowFlow:
    """Return rows that are valid so long instead, and of which there are never more than so many at an instant."""
    valid = most if lasting_us is None else min(most, flow.per_second * lasting_us / 1e6)
    return replace(flow, lasting_us=lasting_us, valid=valid, per_key=of_a_key(valid), made_per_second=0.0)


def as_they_come(flow: RowFlow) -> RowFlow:
    """Return the rows of an operator that makes none of its own."""
    return replace(flow, made_per_second=0.0)


def windowed(flow: RowFlow) -> RowFlow:
    """Return the rows of a window, before it is known how long they are valid: all of a tuple may be at once."""
    return replace(flow, at_once=flow.per_tuple)


def longer(flow: RowFlow, longer_us: int | None) -> RowFlow:
    """Return rows that are valid so much longer; with None for ever, which nothing above that keeps rows may read."""
    if longer_us is None:
        return replace(flow, lasting_us=None, made_per_second=0.0)
    more = flow.per_second * longer_us / 1e6
    return replace(
        flow,
        lasting_us=None if flow.lasting_us is None else flow.lasting_us + longer_us,
        valid=flow.valid + more,
        per_key=max(flow.per_key, of_a_key(flow.valid + more)),
        made_per_second=0.0,
    )


def slid(keys: int, tuples: RowFlow, window: PaneWindow, pane_us: int) -> RowFlow:
    """Return the answers of an aggregate whose window slides.

    Parameters
    ----------
    keys
        How many groups there are.
    tuples
        The rows that are aggregated.
    window
        The window.
    pane_us
        Tuples of one pane are one partial row.
    """
    partial = min(tuples.per_second, keys * 1e6 / pane_us)
    # Rows that last already are in more windows than tuples are.
    counted = tuples.valid - tuples.per_second * window.slide_us / 1e6
    made = max(partial * window.slides, min(counted, keys) * 1e6 / window.slide_us)
    return shown_each_slide(tuples, window, min(made, keys * 1e6 / window.slide_us), made)


def shown_each_slide(tuples: RowFlow, window: PaneWindow, per_second: float, made: float) -> RowFlow:
    """Return rows of a window that last for a slide: how many there are in a second, of so many that are made."""
    size_us, slide_us, times = window.size_us, window.slide_us, window.slides
    because = f"a window of {written(size_us)} that moves every {written(slide_us)}" if times > 1 else tuples.because
    return RowFlow(
        tuples.per_tuple * times,
        1,
        per_second,
        slide_us,
        valid := per_second * slide_us / 1e6,
        of_a_key(valid),
        max(made - tuples.per_second, 0.0),
        because,
        tuples.read_once * times,
    )


def of_both(left: RowFlow, right: RowFlow) -> RowFlow:
    """Return a row for each of either side, as many of them valid as of the left: what operators on two begin with."""
    return RowFlow(
        left.per_tuple + right.per_tuple,
        left.at_once + right.at_once,
        left.per_second + right.per_second,
        longest(left, right),
        left.valid,
        left.per_key,
        0.0,
        larger(left, right).because,
        left.read_once + right.read_once,
    )


def larger(left: RowFlow, right: RowFlow) -> RowFlow:
    """Return the side of which one tuple makes more rows."""
    return max((left, right), key=lambda each: each.per_tuple)


def paired(left: RowFlow, of_left: float, right: RowFlow, of_right: float) -> float:
    """Return how many pairs a join has in a second, if a row finds so many of each side."""
    return left.per_second * of_right + right.per_second * of_left


def shortest(left: RowFlow, right: RowFlow) -> int | None:
    """Return how long rows of both sides are valid together."""
    return min((each.lasting_us for each in (left, right) if each.lasting_us is not None), default=None)


def longest(left: RowFlow, right: RowFlow) -> int | None:
    """Return how long rows of any side are valid."""
    if left.lasting_us is None or right.lasting_us is None:
        return None
    return max(left.lasting_us, right.lasting_us)
