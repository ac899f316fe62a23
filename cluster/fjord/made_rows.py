"""How many rows a plan makes of one tuple, and in a second: an upper estimate, made before anything runs.

Most operators make about one row of each row. Two make more. An aggregate over a sliding window answers once per slide:

    a tuple          |-----------------)        RANGE 6 SLIDE 1
    answers          |--|--|--|--|--|--)        6 rows, of this tuple alone

A window over rows that last, where multiplicities matter, takes each once per microsecond (`Split`). Joins, windows
and aggregates above multiply these rows further: a row of a join has as many partners as there are rows of the other
side at an instant (`valid`), so joins of joins multiply too. In a join by equality it has those of its key only
(`per_key`): nothing is known of how many rows of a stream share a value, and one partner is assumed, as of a key; rows
of a product do share the values of the side that they have in common. In a relation a row has as many partners as its
rows and keys let expect, or one where these are not known.

No estimate of :mod:`cluster.costs.estimates` is higher, but for equalities between more rows than there are keys
assumed: it has the same assumptions otherwise, and lets conditions drop rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from types import MappingProxyType
from typing import TypeVar

from cluster.costs.partners import NO_SIZES, Sizes, most_partners
from cluster.fjord.operators.join_condition import equal_columns
from cluster.language.quantities import written
from cluster.operators.characteristics import KEYS_ASSUMED
from cluster.operators.columns import QUERY_GROUP, VISIBLE_FROM, Schema
from cluster.operators.kept_extent import KeptTuples
from cluster.operators.source import MOST_READINGS
from cluster.physical import operations as kinds
from cluster.physical.nodes import Fragment, OperatorNode, PaneWindow
from cluster.physical.operations import Operation
from cluster.physical.rules.awaited_windows import MOST_LAG_US
from cluster.planning_budget import spend

T = TypeVar("T")

NO_RATES: Mapping[str, float] = MappingProxyType({})
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


class RowFlows:
    """The flows of all nodes of a fragment, as if it had one query.

    Parameters
    ----------
    fragment
        The fragment.
    tuples_per_second
        By stream; streams that have brought no tuples are missing.
    sizes
        Of relations, by identity; in one that is missing a tuple finds one row.
    """

    def __init__(self, fragment: Fragment, tuples_per_second: Mapping[str, float], sizes: Sizes = NO_SIZES) -> None:
        self._fragment = fragment
        self._sizes = sizes
        self._rates = tuples_per_second
        self._found: dict[str, RowFlow] = {}
        for node in fragment.nodes:
            spend()
            self._found[node.id] = _finite(self._flow(node, [self._found[each] for each in node.inputs]))

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
                return _lasting(RowFlow(1, 1, self._rates.get(operation.stream, 0.0), 1, 0.0, 0.0), 1)
            case kinds.ScanAggregates():
                return RowFlow(0, 0, 0.0, 1, 0.0, 0.0)  # they replace samples, which are counted
            case kinds.Split():
                return _split(below[0])
            case kinds.TimeWindow():
                longer_us = None if operation.size_us is None else operation.size_us + operation.slide_us
                return _longer(replace(below[0], at_once=below[0].per_tuple), longer_us)
            case kinds.GridWindow():
                step_us = max(operation.slide_us, operation.grid.step.usual_us)  # each row lasts until a boundary
                return _longer(replace(below[0], at_once=below[0].per_tuple), operation.grid.size_us + step_us)
            case kinds.SessionWindow():
                lasting_us = operation.session.longest_us if operation.session.early else 1
                return _lasting(replace(below[0], at_once=below[0].per_tuple), lasting_us)
            case kinds.UntilNext():
                flow = replace(below[0], at_once=below[0].per_tuple)
                last = groups_of(tuple(each for each in operation.columns if each.name in operation.keys))
                return _lasting(flow, operation.longest_us, last) if operation.lasts else _lasting(flow, 1)
            case kinds.CountWindow() | kinds.SharedCountWindow():
                return _lasting(replace(below[0], at_once=below[0].per_tuple), None, rows_of_window(operation))
            case kinds.KeptExtent():
                return _of_kept(operation.kept, below[0])
            case kinds.Granularity():
                return _longer(below[0], operation.granule_us)
            case kinds.MergeAggregate():
                return self._merged(node, operation, below[0])
            case kinds.PaneAggregate():
                flows = list(self._from_panes(operation, below[0]))
                most, _ = max(flows, key=lambda each: each[0].per_tuple)
                return replace(most, made_per_second=sum(each.made_per_second * times for each, times in flows))
            case kinds.Lookup():
                return _looked_up(most_partners(operation.table, self._sizes), below[0])
            case kinds.Ranked():
                return _ranked(operation, below[0])
            case kinds.Held():
                return RowFlow(0, 0, KEYS_ASSUMED * 1e6 / MOST_LAG_US, MOST_LAG_US, KEYS_ASSUMED, 1.0)
            case kinds.Changes() | kinds.PatternMatch():
                return _lasting(below[0], 1)
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
            return _changing(keys, below)
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


def _finite(flow: RowFlow) -> RowFlow:
    """Return a flow whose amounts can be multiplied: products of many streams exceed what a number holds."""
    return replace(
        flow,
        per_tuple=min(flow.per_tuple, _MOST),
        at_once=min(flow.at_once, _MOST),
        per_second=min(flow.per_second, _MOST),
        valid=min(flow.valid, _MOST),
        per_key=min(flow.per_key, _MOST),
        made_per_second=min(flow.made_per_second, _MOST),
        read_once=min(flow.read_once, _MOST),
    )


def _lasting(flow: RowFlow, lasting_us: int | None, most: float = _MOST) -> RowFlow:
    """Return rows that are valid so long instead, and of which there are never more than so many at an instant."""
    valid = most if lasting_us is None else min(most, flow.per_second * lasting_us / 1e6)
    return replace(flow, lasting_us=lasting_us, valid=valid, per_key=_of_a_key(valid), made_per_second=0.0)


def _of_a_key(valid: float) -> float:
    """Return how many of so many rows of streams have one value in a column by which they are joined."""
    return min(valid / KEYS_ASSUMED, 1.0)


def _looked_up(times: float, below: RowFlow) -> RowFlow:
    """Return rows with their partners in a relation, of which each has so many."""
    return RowFlow(
        below.per_tuple * times,
        below.at_once * times,
        below.per_second * times,
        below.lasting_us,
        below.valid * times,
        below.per_key * times,
        below.per_second * (times - 1),
        "a relation of which each tuple finds many rows" if times > 1 else below.because,
        below.read_once * times,
    )


def _longer(flow: RowFlow, longer_us: int | None) -> RowFlow:
    """Return rows that are valid so much longer; with None for ever, which nothing above that keeps rows may read."""
    if longer_us is None:
        return replace(flow, lasting_us=None, made_per_second=0.0)
    more = flow.per_second * longer_us / 1e6
    return replace(
        flow,
        lasting_us=None if flow.lasting_us is None else flow.lasting_us + longer_us,
        valid=flow.valid + more,
        per_key=max(flow.per_key, _of_a_key(flow.valid + more)),
        made_per_second=0.0,
    )


def _changing(keys: int, below: RowFlow) -> RowFlow:
    """Return an aggregate that changes where a row begins and where one ends; a group has one row at an instant.

    That it does both is not counted as made: it is no more than rows that are read.
    """
    valid = min(below.valid, 1.0) if keys == 1 else below.valid
    at_ends = 0.0 if below.lasting_us == 1 else min(below.per_second, max(keys * 1e6 - below.per_second, 0.0))
    return replace(
        below,
        at_once=below.at_once if keys > 1 else 1,
        per_second=below.per_second + at_ends,
        valid=valid,
        per_key=_of_a_key(min(valid, keys)),
        made_per_second=0.0,
        at_ends_per_second=at_ends,
    )


def rows_of_window(window: kinds.CountWindow | kinds.SharedCountWindow) -> float:
    """Return how many tuples a window by count has of all its keys: those in it, and those of the incomplete slide.

    Of a shared one, a younger query has tuples that an older one has, too: so many for all of them.
    """
    slide_rows = window.slide_rows if isinstance(window, kinds.CountWindow) else 1
    partitioned = set(window.keys) - {QUERY_GROUP.name}
    return float((window.rows or 0) + slide_rows - 1) * (KEYS_ASSUMED if partitioned else 1)


CHANGED_ROWS = 3
"""How many rows a tuple changes where an extent keeps fewer: its own, the one before of its key, and one that loses."""


def _of_kept(kept: KeptTuples, below: RowFlow) -> RowFlow:
    """Return the coalesced rows of what is kept: all at each border, or those that change with a tuple."""
    if kept.in_steps:
        window = PaneWindow(kept.size_us, kept.slide_us)
        shown = min(below.per_second * window.slides, kept.most * 1e6 / kept.slide_us)
        return _shown_each_slide(below, window, shown, shown)
    made = below.per_second * CHANGED_ROWS
    changed = replace(
        below,
        per_tuple=below.per_tuple * CHANGED_ROWS,
        at_once=below.per_tuple,
        per_second=made,
        read_once=below.read_once * CHANGED_ROWS,
    )
    return replace(_lasting(changed, kept.longest_us, kept.most), made_per_second=made - below.per_second)


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
    # Rows that last already are in more windows than tuples are.
    counted = tuples.valid - tuples.per_second * window.slide_us / 1e6
    made = max(partial * window.slides, min(counted, keys) * 1e6 / window.slide_us)
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
        valid := per_second * slide_us / 1e6,
        _of_a_key(valid),
        max(made - tuples.per_second, 0.0),
        because,
        tuples.read_once * times,
    )


def _ranked(operation: kinds.Ranked, rows: RowFlow) -> RowFlow:
    """Return rows by their places: when one begins or ends, those behind it move, or one takes the last place.

    With many rows in a group, few of them have one of the first places.
    """
    most = _MOST if operation.most is None else float(max(operation.most, 1))
    valid = rows.valid / groups_of(tuple(each for each in operation.columns if each.name in operation.keys))
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


def rates_text(alone: Fragment, tuples_per_second: Mapping[str, float], demanded: Mapping[str, float]) -> str:
    """Return in words what the streams of a query bring, and those that will bring more for it."""
    return ", ".join(
        f"{stream} would bring {demanded[stream]:,.0f} tuples per second for it"
        if stream in demanded
        else f"{stream} brings {tuples_per_second.get(stream, 0.0):,.0f} tuples per second"
        for stream in sorted(alone.streams)
    )


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
    per_second = min(below.per_second * times, max(below.valid * 1e6, below.per_second))
    return RowFlow(
        below.per_tuple * times,
        below.at_once,
        per_second,
        1,
        below.valid,
        below.per_key,
        per_second - below.per_second,
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
        valid=(left.valid + right.valid) * share,
        per_key=(left.per_key + right.per_key) * share,
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
        left.valid,
        left.per_key,
        0.0,
        because,
        left.read_once + right.read_once,
    )
    match operation:
        case kinds.Join():
            return _joined(operation, left, right, both)
        case kinds.SemiJoin():
            tried = 0.0 if _finds_by_key(operation) else _paired(left, left.valid, right, right.valid)
            made = max(tried - both.per_second, 0.0)
            return replace(both, at_once=left.at_once, lasting_us=left.lasting_us, made_per_second=made)
        case kinds.Difference():
            # Rows of the left, cut where those of the right begin and end.
            return replace(both, at_once=left.at_once, lasting_us=left.lasting_us)
        case kinds.Intersection():
            return replace(both, lasting_us=_shortest(left, right))
        case kinds.Zip():
            return _lasting(both, 1)
        case kinds.StampJoin() if operation.latest:
            return replace(_lasting(left, 1), because=because)
        case kinds.StampJoin():
            return _near(operation, left, right, both)
        case _:
            return both


def _joined(join: kinds.Join, left: RowFlow, right: RowFlow, both: RowFlow) -> RowFlow:
    """Return the pairs of a join: of two joined rows, one begins while the other is valid."""
    by_key = _finds_by_key(join)
    of_left, of_right = (
        max(each.at_once, each.per_key if by_key else each.valid) for each in (left, right)
    )  # how many partners each has to offer
    per_tuple = left.per_tuple * right.at_once + right.per_tuple * left.at_once
    per_second = _paired(left, of_left, right, of_right)
    lasting_us = _shortest(left, right)
    ended = _MOST if lasting_us is None else per_second * lasting_us / 1e6
    of_a_key = (left.per_key * of_right, right.per_key * of_left)
    valid = (left.valid * of_right, right.valid * of_left)
    return RowFlow(
        per_tuple,
        left.at_once * right.at_once,
        per_second,
        lasting_us,
        min(sum(valid) if by_key else min(valid), ended),
        min(of_a_key) if by_key else max(of_a_key),
        max(per_second - both.per_second, 0.0),
        both.because,
        per_tuple,
    )


def _near(join: kinds.StampJoin, left: RowFlow, right: RowFlow, both: RowFlow) -> RowFlow:
    """Return the pairs of an interval join: those within the bounds, of equal keys, and one for each tuple at least."""
    pairs = 2 * left.per_tuple * right.per_tuple
    alone = both.per_second if join.kind != "inner" else 0.0
    near = (join.high_us - (join.low_us or 0) + 1) / 1e6
    tried = left.per_second * right.per_second * near
    if any(one != QUERY_GROUP.name for one, _ in join.keys):
        tried = min(tried / KEYS_ASSUMED, both.per_second)
    made = max(tried - both.per_second, 0.0)
    found = RowFlow(
        pairs,
        1,
        max(both.per_second, tried) + alone,
        1,
        both.valid,
        both.per_key,
        because=both.because,
        read_once=max(pairs, both.read_once),
    )
    return replace(_lasting(found, 1), made_per_second=made)


def _paired(left: RowFlow, of_left: float, right: RowFlow, of_right: float) -> float:
    """Return how many pairs a join has in a second, if a row finds so many of each side."""
    return left.per_second * of_right + right.per_second * of_left


def _finds_by_key(join: kinds.Join | kinds.SemiJoin) -> bool:
    """Return whether a hash table finds partners; otherwise all pairs of each query group are tried."""
    equal = equal_columns(join.predicate, [column.name for column in join.right])
    return any(QUERY_GROUP.name not in columns for columns in equal)


def _shortest(left: RowFlow, right: RowFlow) -> int | None:
    return min((each.lasting_us for each in (left, right) if each.lasting_us is not None), default=None)


def _longest(left: RowFlow, right: RowFlow) -> int | None:
    if left.lasting_us is None or right.lasting_us is None:
        return None
    return max(left.lasting_us, right.lasting_us)
