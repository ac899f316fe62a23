"""How many rows a plan makes of one tuple, and in a second: an upper estimate, made before anything runs.

Most operators make about one row of each row. Two make more. An aggregate over a sliding window answers once per slide:

    a tuple          |-----------------)        RANGE 6 SLIDE 1
    answers          |--|--|--|--|--|--)        6 rows, of this tuple alone

A window over rows that last, where multiplicities matter, takes each once per microsecond (`Split`). Joins, windows
and aggregates above multiply these rows further. The number of partners of a tuple in a relation, or in a join by
equality, is not known beforehand: one is assumed. In a join without an equality each tuple is
tried with all that are valid, and these pairs are counted as made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import TypeVar

from cluster.costs.selectivity import KEYS_ASSUMED
from cluster.fjord.operators.join_condition import equal_columns
from cluster.language.columns import QUERY_GROUP, VISIBLE_FROM, Schema
from cluster.language.context import MOST_READINGS
from cluster.language.kept_tuples import KeptTuples
from cluster.language.quantities import written
from cluster.physical import operations as kinds
from cluster.physical.nodes import Fragment, OperatorNode, PaneWindow
from cluster.physical.operations import Operation
from cluster.physical.rules.awaited_windows import MOST_LAG_US
from cluster.planning_budget import spend

T = TypeVar("T")

_FRACTIONS = 1 << 20
_MOST = 1e30


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
    made_per_second
        How many more rows the operator on top makes in a second, before it merges them, than it receives.
    because
        Why more than one row is made of a row, in words; empty if that is not so.
    read_once
        How many rows one tuple makes at most, if the query reads it only once.
    """

    per_tuple: float
    at_once: float
    per_second: float
    lasting_us: int | None
    made_per_second: float = 0.0
    because: str = ""
    read_once: float = 1.0


class RowFlows:
    """The flows of all nodes of a fragment, as if it had one query.

    Parameters
    ----------
    fragment
        The fragment.
    tuples_per_second
        By stream; streams that have brought no tuples are missing.
    """

    def __init__(self, fragment: Fragment, tuples_per_second: Mapping[str, float]) -> None:
        self._fragment = fragment
        self._rates = tuples_per_second
        self._found: dict[str, RowFlow] = {}
        for node in fragment.nodes:
            spend()
            self._found[node.id] = self._flow(node, [self._found[each] for each in node.inputs])

    def __iter__(self) -> Iterator[tuple[OperatorNode, RowFlow]]:
        """Yield every node with its flow, after its inputs."""
        yield from ((node, self._found[node.id]) for node in self._fragment.nodes)

    def of(self, node_id: str) -> RowFlow:
        """Return the flow of a node."""
        return self._found[node_id]

    @property
    def answers(self) -> RowFlow:
        """The flow of the fragment's answers."""
        return self._found[self._fragment.sink.id]

    def _flow(self, node: OperatorNode, below: list[RowFlow]) -> RowFlow:  # noqa: C901, PLR0911, PLR0912 - a case per kind
        operation = node.operation
        match operation:
            case kinds.Scan():
                return RowFlow(1, 1, self._rates.get(operation.stream, 0.0), 1)
            case kinds.ScanAggregates():
                return RowFlow(0, 0, 0.0, 1)  # they replace samples, which are counted
            case kinds.Split():
                return _split(below[0])
            case kinds.TimeWindow():
                lasting_us = None
                if operation.size_us is not None and below[0].lasting_us is not None:
                    lasting_us = below[0].lasting_us + operation.size_us + operation.slide_us
                return replace(below[0], at_once=below[0].per_tuple, lasting_us=lasting_us, made_per_second=0.0)
            case kinds.GridWindow():
                return _on_grid(operation, below[0])
            case kinds.SessionWindow():
                lasting_us = operation.session.longest_us if operation.session.early else 1
                return replace(below[0], at_once=below[0].per_tuple, lasting_us=lasting_us, made_per_second=0.0)
            case kinds.UntilNext():
                lasting_us = operation.longest_us if operation.lasts else 1
                return replace(below[0], at_once=below[0].per_tuple, lasting_us=lasting_us, made_per_second=0.0)
            case kinds.CountWindow() | kinds.SharedCountWindow():
                return replace(below[0], at_once=below[0].per_tuple, lasting_us=None, made_per_second=0.0)
            case kinds.KeptExtent():
                return _of_kept(operation.kept, below[0])
            case kinds.Granularity():
                lasting = None if below[0].lasting_us is None else below[0].lasting_us + operation.granule_us
                return replace(below[0], lasting_us=lasting, made_per_second=0.0)
            case kinds.MergeAggregate():
                return self._merged(node, operation, below[0])
            case kinds.PaneAggregate():
                flows = list(self._from_panes(operation, below[0]))
                most, _ = max(flows, key=lambda each: each[0].per_tuple)
                return replace(most, made_per_second=sum(each.made_per_second * times for each, times in flows))
            case kinds.Ranked():
                return _ranked(operation, below[0])
            case kinds.Held():
                return RowFlow(0, 0, KEYS_ASSUMED * 1e6 / MOST_LAG_US, MOST_LAG_US)
            case kinds.Changes() | kinds.PatternMatch():
                return replace(below[0], lasting_us=1, made_per_second=0.0)
            case (
                kinds.Join()
                | kinds.SemiJoin()
                | kinds.Zip()
                | kinds.StampJoin()
                | kinds.Union()
                | kinds.Difference()
                | kinds.Intersection()
            ):
                return _of_two(operation, *below)
            case _:
                return replace(below[0], made_per_second=0.0)

    def _merged(self, node: OperatorNode, operation: kinds.MergeAggregate, below: RowFlow) -> RowFlow:
        window = self.window_of(node)
        keys = groups_of(operation.keys)
        if window is None:
            return replace(below, at_once=below.at_once if keys > 1 else 1, made_per_second=0.0)
        return _slid(keys, below, window, window.slide_us)

    def _from_panes(self, operation: kinds.PaneAggregate, below: RowFlow) -> Iterator[tuple[RowFlow, int]]:
        """Yield the answers of each window that shares panes, and over how many different conditions it is."""
        pane_us = next(
            each.operation.width_us for each in self._fragment.nodes if isinstance(each.operation, kinds.Panes)
        )
        for (size_us, slide_us), times in sorted(self._fragment.tally.windows.items()):
            yield _slid(groups_of(operation.keys), below, PaneWindow(size_us, slide_us), pane_us), times

    def window_of(self, node: OperatorNode) -> PaneWindow | None:
        """Return the window whose answers a node merges, if it slides in steps; None for any other node."""
        if isinstance(node.operation, kinds.PaneAggregate):
            windows = sorted(self._fragment.tally.windows)
            return PaneWindow(*min(windows, key=lambda length: length[1] / length[0]))
        if not isinstance(node.operation, kinds.MergeAggregate) or node.operation.slide_us == 1:
            return None
        below = node
        while below.inputs:
            below = self._fragment.by_id[below.inputs[0]]
            if isinstance(below.operation, kinds.TimeWindow):
                size_us = below.operation.size_us
                return None if size_us is None else PaneWindow(size_us, below.operation.slide_us)
        return None


def _on_grid(window: kinds.GridWindow, below: RowFlow) -> RowFlow:
    """Return the rows of a window on a grid; each lasts until a boundary."""
    lasting_us = None
    if below.lasting_us is not None:
        lasting_us = below.lasting_us + window.grid.size_us + max(window.slide_us, window.grid.step.usual_us)
    return replace(below, at_once=below.per_tuple, lasting_us=lasting_us, made_per_second=0.0)


CHANGED_ROWS = 3
"""How many rows a tuple changes where an extent keeps fewer: its own, the one before of its key, and one that loses."""


def _of_kept(kept: KeptTuples, below: RowFlow) -> RowFlow:
    """Return the coalesced rows of what is kept: all at each border, or those that change with a tuple."""
    if kept.in_steps:
        window = PaneWindow(kept.size_us, kept.slide_us)
        shown = min(below.per_second * window.slides, kept.most * 1e6 / kept.slide_us)
        return _shown_each_slide(below, window, shown, shown)
    made = below.per_second * CHANGED_ROWS
    return replace(
        below,
        per_tuple=below.per_tuple * CHANGED_ROWS,
        at_once=below.per_tuple,
        per_second=made,
        lasting_us=kept.longest_us,
        made_per_second=made - below.per_second,
        read_once=below.read_once * CHANGED_ROWS,
    )


def _slid(keys: int, tuples: RowFlow, window: PaneWindow, pane_us: int) -> RowFlow:
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
    made = partial * window.slides
    return _shown_each_slide(tuples, window, min(made, keys * 1e6 / window.slide_us), made)


def _shown_each_slide(tuples: RowFlow, window: PaneWindow, per_second: float, made: float) -> RowFlow:
    """Return rows of a window that last for a slide: how many there are in a second, of so many that are made."""
    size_us, slide_us, times = window.size_us, window.slide_us, window.slides
    because = f"a window of {written(size_us)} that moves every {written(slide_us)}" if times > 1 else tuples.because
    return RowFlow(
        tuples.per_tuple * times,
        1,
        per_second,
        slide_us,
        max(made - tuples.per_second, 0.0),
        because,
        tuples.read_once * times,
    )


def _ranked(operation: kinds.Ranked, rows: RowFlow) -> RowFlow:
    """Return rows by their places: when one begins or ends, those behind it move, or one takes the last place.

    With many rows in a group, few of them have one of the first places.
    """
    most = _MOST if operation.most is None else float(max(operation.most, 1))
    valid = _valid_at_once(rows) / groups_of(tuple(each for each in operation.columns if each.name in operation.keys))
    share = 1.0 if valid <= most else most / valid
    moved = 1.0 if operation.name is None else max(min(most, valid) - operation.above, 1.0)
    per_second = rows.per_second * (1 + 2 * share * moved)
    return replace(
        rows,
        per_tuple=rows.per_tuple * 2,
        at_once=min(rows.at_once, most),
        per_second=per_second,
        made_per_second=per_second - rows.per_second,
    )


def known_at_rates(
    function: Callable[[Fragment, Mapping[str, float]], T],
) -> Callable[[Fragment, Mapping[str, float]], T]:
    """Return a function that computes its result again only when the rates of a fragment's streams have changed."""
    key = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def found(fragment: Fragment, tuples_per_second: Mapping[str, float]) -> T:
        rates = tuple(tuples_per_second.get(stream, 0.0) for stream in fragment.streams)
        known: tuple[tuple[float, ...], T] | None = fragment.__dict__.get(key)
        if known is None or known[0] != rates:
            known = fragment.__dict__[key] = rates, function(fragment, tuples_per_second)
        return known[1]

    return found


def exact(amount: float) -> int:
    """Return an amount as a whole number of small parts, so that sums do not depend on the order of adding."""
    return round(min(amount, _MOST) * _FRACTIONS)


def approximate(amount: int) -> float:
    """Return a sum of amounts of :func:`exact`."""
    return amount / _FRACTIONS


def groups_of(keys: Schema) -> int:
    """Return how many groups an aggregate is assumed to have."""
    return KEYS_ASSUMED if {key.name for key in keys} - {QUERY_GROUP.name, VISIBLE_FROM.name} else 1


def _split(below: RowFlow) -> RowFlow:
    """Return the input of a window: rows that last are split into one per microsecond."""
    if below.lasting_us is None:
        return replace(below, made_per_second=0.0)
    times = below.lasting_us
    return RowFlow(
        below.per_tuple * times,
        below.at_once,
        below.per_second * times,
        1,
        below.per_second * (times - 1),
        f"a window over rows that last {written(times)}, each of which it counts once for every microsecond",
        below.read_once * times,
    )


def _united(left: RowFlow, right: RowFlow) -> RowFlow:
    """Return the rows of both sides, with at most as many copies of a tuple as a query may read its stream.

    Conditions joined by OR unite the rows that satisfy the first with those that satisfy only the second, so many
    unions in a row have far fewer rows than the sum of their sides.
    """
    larger = max((left, right), key=lambda each: each.read_once)
    both = left.per_tuple + right.per_tuple
    share = min(1.0, MOST_READINGS * larger.read_once / both) if both else 1.0
    return replace(
        larger,
        per_tuple=both * share,
        at_once=(left.at_once + right.at_once) * share,
        per_second=(left.per_second + right.per_second) * share,
        lasting_us=_longest(left, right),
        made_per_second=0.0,
        because=max((left, right), key=lambda each: each.per_tuple).because,
    )


def _of_two(operation: Operation, left: RowFlow, right: RowFlow) -> RowFlow:
    if isinstance(operation, kinds.Union):
        return _united(left, right)
    because = max((left, right), key=lambda each: each.per_tuple).because
    both = RowFlow(
        left.per_tuple + right.per_tuple,
        left.at_once + right.at_once,
        left.per_second + right.per_second,
        _longest(left, right),
        0.0,
        because,
        left.read_once + right.read_once,
    )
    match operation:
        case kinds.Join():
            # Of two joined rows, one begins while the other is valid.
            per_tuple = left.per_tuple * right.at_once + right.per_tuple * left.at_once
            per_second = left.per_second * right.at_once + right.per_second * left.at_once
            lasting = min((each.lasting_us for each in (left, right) if each.lasting_us is not None), default=None)
            tried = _tried_per_second(operation, left, right)
            made = max(per_second - both.per_second, tried - both.per_second, 0.0)
            return RowFlow(per_tuple, left.at_once * right.at_once, per_second, lasting, made, because, per_tuple)
        case kinds.SemiJoin():
            made = max(_tried_per_second(operation, left, right) - both.per_second, 0.0)
            return replace(both, at_once=left.at_once, lasting_us=left.lasting_us, made_per_second=made)
        case kinds.Difference():
            # Rows of the left, cut where those of the right begin and end.
            return replace(both, at_once=left.at_once, lasting_us=left.lasting_us)
        case kinds.Intersection():
            lasting = min((each.lasting_us for each in (left, right) if each.lasting_us is not None), default=None)
            return replace(both, lasting_us=lasting)
        case kinds.Zip():
            return replace(both, lasting_us=1)
        case kinds.StampJoin() if operation.latest:
            return replace(left, because=because, lasting_us=1, made_per_second=0.0)
        case kinds.StampJoin():
            return _near(operation, left, right, both)
        case _:
            return both


def _near(join: kinds.StampJoin, left: RowFlow, right: RowFlow, both: RowFlow) -> RowFlow:
    """Return the pairs of an interval join: one partner of each tuple is assumed, or all within the bounds."""
    pairs = 2 * left.per_tuple * right.per_tuple
    alone = both.per_second if join.kind != "inner" else 0.0
    keyed = any(one != QUERY_GROUP.name for one, _ in join.keys)
    near = join.high_us - (join.low_us or 0) + 1
    tried = 0.0 if keyed else left.per_second * right.per_second * near / 1e6
    made = max(tried - both.per_second, 0.0)
    per_second = max(both.per_second, tried) + alone
    return RowFlow(pairs, 1, per_second, 1, made, both.because, max(pairs, both.read_once))


def _tried_per_second(join: kinds.Join | kinds.SemiJoin, left: RowFlow, right: RowFlow) -> float:
    """Return how many pairs are tried in a second; 0 where a hash table finds the partners."""
    equal = equal_columns(join.predicate, [column.name for column in join.right])
    if any(QUERY_GROUP.name not in columns for columns in equal):  # pairs are tried for each query group
        return 0.0
    return left.per_second * _valid_at_once(right) + right.per_second * _valid_at_once(left)


def _valid_at_once(flow: RowFlow) -> float:
    """Return how many rows are valid at one instant, at their rate."""
    return 0.0 if flow.lasting_us is None else flow.per_second * flow.lasting_us / 1e6


def _longest(left: RowFlow, right: RowFlow) -> int | None:
    if left.lasting_us is None or right.lasting_us is None:
        return None
    return max(left.lasting_us, right.lasting_us)
