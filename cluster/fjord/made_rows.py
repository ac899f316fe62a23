"""How many rows a plan makes: of one tuple, and in a second. An estimate from above, made before anything runs.

Most operators make about a row of a row. Two make more. An aggregate over a window that slides answers once per slide:

    a tuple          |-----------------)        RANGE 6 SLIDE 1
    answers          |--|--|--|--|--|--)        6 rows, of this tuple alone

And a window over rows that last, where copies count, takes them once per microsecond (`Split`). What such rows meet in
joins, windows and aggregates above multiplies on. How many rows of a relation a tuple meets, and how many tuples meet
each other in a join by equality, nobody knows beforehand: each is taken to meet one. Where nothing must be equal, each
is tried with all that are valid, and they are counted as made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from cluster.fjord.operators.join_condition import equal_columns
from cluster.fjord.validity import copies_that_matter
from cluster.language.algebra import (
    MEMBER,
    SINCE,
    Aggregate,
    AntiJoin,
    CountWindow,
    Difference,
    Dstream,
    Granularity,
    Intersection,
    Istream,
    Join,
    Node,
    PartitionedWindow,
    Relation,
    SemiJoin,
    Source,
    TimeWindow,
    Union,
    Zip,
    inputs_of,
    schema_of,
)
from cluster.language.instants import has_chronons
from cluster.language.quantities import written
from cluster.language.readings import MOST_READINGS
from cluster.plan.cuts import is_chain

KEYS_ASSUMED = 1_000
"""How many keys an aggregate has, since nobody knows how many there will be."""


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
        How long each is valid at most; None if nobody knows.
    made_per_second
        How many more the operator on top makes in a second, before it merges them, than it is given.
    because
        What makes more than a row of a row, in words; empty if nothing does.
    read_once
        How many one tuple makes at most, where the query reads it once only.
    """

    per_tuple: float
    at_once: float
    per_second: float
    lasting_us: int | None
    made_per_second: float = 0.0
    because: str = ""
    read_once: float = 1.0


class RowFlows:
    """The flows of all parts of a plan.

    Parameters
    ----------
    node
        The plan.
    tuples_per_second
        By stream; a stream that is not there has brought nothing yet.
    """

    def __init__(self, node: Node, tuples_per_second: Mapping[str, float]) -> None:
        self._rates = tuples_per_second
        # By identity: an equal part of a plan costs the same, and to find out whether parts are equal costs more.
        self._found: dict[int, tuple[Node, RowFlow, bool]] = {}
        self._follow(node, copies_matter=True)

    def __iter__(self) -> Iterator[tuple[Node, RowFlow]]:
        """Yield every part with its flow, inputs before what reads them."""
        yield from ((node, flow) for node, flow, _ in self._found.values())

    def of(self, node: Node) -> RowFlow:
        """Return the flow of a part of the plan."""
        return self._found[id(node)][1]

    def _follow(self, node: Node, *, copies_matter: bool) -> RowFlow:
        known = self._found.get(id(node))
        if known is not None and (known[2] or not copies_matter):
            return known[1]
        matters = copies_that_matter(node, above=copies_matter)
        below = [
            self._follow(each, copies_matter=matter) for each, matter in zip(inputs_of(node), matters, strict=True)
        ]
        flow = self._flow(node, below, copies_matter=copies_matter)
        self._found[id(node)] = (node, flow, copies_matter)
        return flow

    def _flow(self, node: Node, below: list[RowFlow], *, copies_matter: bool) -> RowFlow:
        match node:
            case Source():
                return RowFlow(1, 1, self._rates.get(node.stream, 0.0), 1)
            case Relation():
                return RowFlow(0, 1, 0.0, None)
            case TimeWindow():
                counted = _split(node, below[0]) if copies_matter else below[0]
                lasting_us = None
                if node.size_us is not None and counted.lasting_us is not None:
                    lasting_us = counted.lasting_us + node.size_us + node.slide_us
                return replace(counted, at_once=counted.per_tuple, lasting_us=lasting_us)
            case CountWindow() | PartitionedWindow():
                counted = _split(node, below[0])
                return replace(counted, at_once=counted.per_tuple, lasting_us=None)
            case Granularity():
                (flow,) = below
                lasting = None if flow.lasting_us is None else flow.lasting_us + node.granule_us
                return replace(flow, lasting_us=lasting, made_per_second=0.0)
            case Aggregate():
                window = _window_of(node.input) if is_chain(node.input) else None
                if window is None or window.size_us is None or window.slide_us == 1:
                    at_once = below[0].at_once if groups_of(node) > 1 else 1
                    return replace(below[0], at_once=at_once, made_per_second=0.0)
                return slid(node, below[0], window.size_us, window.slide_us, window.slide_us)
            case Istream() | Dstream():
                return replace(below[0], lasting_us=1, made_per_second=0.0)
            case Join() | SemiJoin() | AntiJoin() | Zip() | Union() | Difference() | Intersection():
                return _of_two(node, *below)
            case _:
                return replace(below[0], made_per_second=0.0)


def slid(node: Aggregate, tuples: RowFlow, size_us: int, slide_us: int, pane_us: int) -> RowFlow:
    """Return the answers of an aggregate whose window slides.

    Parameters
    ----------
    node
        The aggregate.
    tuples
        What it aggregates.
    size_us, slide_us
        Its window.
    pane_us
        Tuples of one pane are one partial row.
    """
    times, keys = -(-size_us // slide_us), groups_of(node)
    partial = min(tuples.per_second, keys * 1e6 / pane_us)
    made = partial * times
    because = f"a window of {written(size_us)} that moves every {written(slide_us)}" if times > 1 else tuples.because
    return RowFlow(
        tuples.per_tuple * times,
        1,
        min(made, keys * 1e6 / slide_us),
        slide_us,
        max(made - tuples.per_second, 0.0),
        because,
        tuples.read_once * times,
    )


def groups_of(node: Aggregate) -> int:
    """Return how many groups an aggregate is taken to have."""
    return KEYS_ASSUMED if set(node.keys) - {MEMBER.name, SINCE.name} else 1


def _split(node: TimeWindow | CountWindow | PartitionedWindow, below: RowFlow) -> RowFlow:
    """Return what a window is given: rows that last are cut into one per microsecond."""
    if has_chronons(node.input) or below.lasting_us is None:
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
    """Return the rows of both sides: of a tuple no more copies than times that a query may read its stream.

    Conditions joined by OR unite what meets the first of them with what meets the second only, so that many unions in
    a row have far fewer rows than the sum of their sides.
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


def _of_two(node: Node, left: RowFlow, right: RowFlow) -> RowFlow:
    if isinstance(node, Union):
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
    match node:
        case Join():
            # Of two rows that meet, one begins while the other is valid.
            per_tuple = left.per_tuple * right.at_once + right.per_tuple * left.at_once
            per_second = left.per_second * right.at_once + right.per_second * left.at_once
            lasting = min((each.lasting_us for each in (left, right) if each.lasting_us is not None), default=None)
            tried = _tried_per_second(node, left, right)
            made = max(per_second - both.per_second, tried - both.per_second, 0.0)
            return RowFlow(per_tuple, left.at_once * right.at_once, per_second, lasting, made, because, per_tuple)
        case SemiJoin() | AntiJoin():
            made = max(_tried_per_second(node, left, right) - both.per_second, 0.0)
            return replace(both, at_once=left.at_once, lasting_us=left.lasting_us, made_per_second=made)
        case Difference():
            # Rows of the left, cut where those of the right begin and end.
            return replace(both, at_once=left.at_once, lasting_us=left.lasting_us)
        case Intersection():
            lasting = min((each.lasting_us for each in (left, right) if each.lasting_us is not None), default=None)
            return replace(both, lasting_us=lasting)
        case Zip():
            return replace(both, lasting_us=1)
        case _:
            return both


def _tried_per_second(node: Join | SemiJoin | AntiJoin, left: RowFlow, right: RowFlow) -> float:
    """Return how many pairs are tried in a second; 0 where a hash table finds those that meet."""
    equal = equal_columns(node.predicate, [column.name for column in schema_of(node.right)])
    if any(one != MEMBER.name for one, _ in equal):  # of each group of queries, pairs are tried all the same
        return 0.0
    return left.per_second * _valid_at_once(right) + right.per_second * _valid_at_once(left)


def _valid_at_once(flow: RowFlow) -> float:
    """Return how many rows are valid at one instant, at the rate at which they come."""
    return 0.0 if flow.lasting_us is None else flow.per_second * flow.lasting_us / 1e6


def _longest(left: RowFlow, right: RowFlow) -> int | None:
    if left.lasting_us is None or right.lasting_us is None:
        return None
    return max(left.lasting_us, right.lasting_us)


def _window_of(node: Node) -> TimeWindow | None:
    """Return the window in a chain, or None."""
    while not isinstance(node, Source | TimeWindow):
        (node,) = inputs_of(node)
    return node if isinstance(node, TimeWindow) else None
