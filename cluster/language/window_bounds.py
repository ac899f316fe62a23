"""WINDOW_START() and WINDOW_END(): the bounds of the window, or of the session, that an aggregate is over.

    gap 5      |--t---t-----t----)     start: the stamp of the first tuple; end: a gap after the last one so far
               first              closes

They are aggregates over all tuples of a session, so a condition must not remove some of them before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace
from sqlglot import exp

from cluster.expressions.walks import columns_read
from cluster.language.scope import SELECTED
from cluster.language.syntax import TimeFunction, WindowBound, slot_for
from cluster.operators import (
    Aggregate,
    AntiJoin,
    Filter,
    Node,
    Project,
    Ranked,
    SemiJoin,
    SessionWindow,
    Source,
    TimeWindow,
    WindowBounds,
)
from cluster.operators.columns import STAMP, AggregateCall
from cluster.operators.scalar_expressions import column_scalar, passed_on
from cluster.operators.window_shapes import Grid, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import NoReturn

    from cluster.language.context import Context
    from cluster.language.operand_checks import OperandChecker
    from cluster.operators.columns import Names

FIRST = AggregateCall("min(stamp)", "min", column_scalar(STAMP), STAMP.type, unit=STAMP.unit)
LAST = AggregateCall("max(stamp)", "max", column_scalar(STAMP), STAMP.type, unit=STAMP.unit)


def session_below(node: Node) -> SessionWindow | None:
    """Return the window of sessions whose tuples a plan has, or some of them; None if it has others."""
    while isinstance(node, Filter | Project | SemiJoin | AntiJoin):
        node = node.left if isinstance(node, SemiJoin | AntiJoin) else node.input
    return node if isinstance(node, SessionWindow) else None


def with_stamps(node: Node) -> Node:
    """Return a plan of sessions whose tuples have their stamps as a column; the same where they have none."""
    match node:
        case Filter() | SessionWindow():
            return replace(node, input=with_stamps(node.input))
        case Source() if STAMP not in node.columns:
            return replace(node, columns=(*node.columns, STAMP))
        case Project() if STAMP in (below := with_stamps(node.input)).schema and STAMP not in node.schema:
            return replace(node, input=below, outputs=(*node.outputs, *passed_on((STAMP,))))
        case _:
            return node


def check_bound(bound: WindowBound, node: Node, context: Context) -> None:
    """Refuse a bound of sessions of which not all tuples are known.

    Raises
    ------
    FjordSqlError
        If a condition removes tuples, the window stands in a subquery, or the tuples have no stamps.
    """
    while isinstance(node, Filter):
        window = session_below(node)
        if window is None or not columns_read(node.predicate.expression) <= {*window.keys}:
            _refuse_condition(bound, context)
        node = node.input
    if isinstance(node, SemiJoin | AntiJoin):
        _refuse_condition(bound, context)
    if not isinstance(node, SessionWindow):
        reason = f"{bound.this}() is of a window in FROM of its own query, and these sessions are those of a subquery"
        raise context.error(bound, reason, "select it in the subquery, where the sessions are")
    if STAMP not in node.schema:
        reason = f"{bound.this}() goes by the stamps of tuples, and the rows of this subquery have none"
        raise context.error(bound, reason, SELECTED)


def _refuse_condition(bound: WindowBound, context: Context) -> NoReturn:
    reason = f"{bound.this}() is of all tuples of a session, and WHERE removes some of them"
    hint = "write COUNT(*) FILTER (WHERE ...), or choose before: FROM (SELECT ... WHERE ...) AS t WINDOW(SESSION ...)"
    raise context.error(bound, reason, hint)


def check_groups(bound: WindowBound, window: SessionWindow, grouped: frozenset[str], context: Context) -> None:
    """Refuse a bound in groups that may have tuples of several sessions, or only some of one.

    Raises
    ------
    FjordSqlError
        If the groups have other keys than the sessions.
    """
    keys = ", ".join(window.keys)
    if not grouped.issuperset(window.keys):
        reason = f"sessions are those of each {keys}, and a group here may have several of them"
        raise context.error(bound, reason, f"write GROUP BY {keys}")
    if grouped - {*window.keys}:
        reason = f"{bound.this}() is of all tuples of a session, and GROUP BY divides them"
        what = f"group by {keys} only" if keys else "leave GROUP BY out"
        raise context.error(
            bound, reason, f"{what}, with aggregates of the other columns: MAX(x), COUNT(*) FILTER (...)"
        )


def session_bound(bound: WindowBound, window: SessionWindow, name_of: Callable[[AggregateCall], str]) -> exp.Expr:
    """Return a bound in microseconds over the columns of aggregates.

    Parameters
    ----------
    bound
        Which one.
    window
        The sessions.
    name_of
        Returns the column of an aggregate that is to be computed.
    """
    first = slot_for(name_of(FIRST), bound)
    if bound.this == "WINDOW_START":
        return first
    assert bound.this == "WINDOW_END"  # noqa: S101 - there are two
    session = window.session
    gap, longest = (exp.Literal.number(str(each)) for each in (session.gap_us, session.longest_us))
    last = slot_for(name_of(LAST), bound)
    return exp.Least(this=exp.Add(this=last, expression=gap), expressions=[exp.Add(this=first, expression=longest)])


SHAPE = "SELECT WINDOW_END() AS until, COUNT(*) AS n FROM stream WINDOW(RANGE 5 MINUTES SLIDE 5 MINUTES)"


def without_window(checker: OperandChecker, bound: WindowBound) -> NoReturn:
    """Refuse a bound where there is no aggregate.

    Raises
    ------
    FjordSqlError
        Always.
    """
    reason = f"{bound.this}() is a bound of the window of an aggregate, and there is none here"
    raise checker.context.error(bound, reason, SHAPE)


class Bounds:
    """The bounds that one aggregate is asked for.

    Parameters
    ----------
    node
        What is aggregated.
    context
        For errors.
    taken
        Names of its columns.
    written
        The expressions that may ask for bounds.
    """

    def __init__(self, node: Node, context: Context, taken: Names, written: Iterable[exp.Expr]) -> None:
        self._node = node
        self._context = context
        self._sessions: SessionWindow | None = None
        if any(each.find(WindowBound) for each in written) and (sessions := session_below(node)) is not None:
            self._node, self._sessions = with_stamps(node), sessions
        self._asked: list[WindowBound] = []
        self._taken = taken
        self._grid: Grid | None = None
        self._names: dict[str, str] = {}

    @property
    def node(self) -> Node:
        """What is aggregated, with what bounds are computed from."""
        return self._node

    @property
    def names(self) -> frozenset[str]:
        """The columns with the bounds, once there are any."""
        return frozenset(self._names.values())

    def without(
        self, keys: Sequence[exp.Expr], sets: Sequence[tuple[int, ...]] | None
    ) -> tuple[Sequence[exp.Expr], Sequence[tuple[int, ...]] | None]:
        """Return the keys of GROUP BY, and their sets, without bounds: all rows of one instant are of one window.

        Raises
        ------
        FjordSqlError
            If a bound is a key of some sets only, or has no meaning.
        """
        places = [place for place, key in enumerate(keys) if isinstance(key, WindowBound)]
        for place in places:
            bound = keys[place]
            assert isinstance(bound, WindowBound)  # noqa: S101 - see above
            self._check(bound)
            if any(place not in each for each in sets or ()):
                reason = f"{bound.this}() is the same for all rows of an instant, so no set is without it"
                raise self._context.error(bound, reason, "leave it out of GROUP BY: SELECT may have it")
        if not places:
            return keys, sets
        kept = {place: number for number, place in enumerate(n for n in range(len(keys)) if n not in places)}
        left = [tuple(kept[place] for place in each if place in kept) for each in sets or ()]
        return [keys[place] for place in kept], None if sets is None else left

    def value_of(self, bound: WindowBound, name_of: Callable[[AggregateCall], str]) -> exp.Expr:
        """Return the bound as a timestamp over columns of :meth:`above`.

        Parameters
        ----------
        bound
            The bound.
        name_of
            Returns the column of an aggregate that is to be computed.

        Raises
        ------
        FjordSqlError
            If the window has no bounds, or the call has arguments.
        """
        self._check(bound)
        micros: exp.Expr
        if self._sessions is not None:
            micros = session_bound(bound, self._sessions, name_of)
        else:
            micros = slot_for(self._names[bound.this], bound)
        return TimeFunction(this="TIMESTAMP_MICROS", expressions=[micros])

    def _check(self, bound: WindowBound) -> None:
        if bound.expressions:
            raise self._context.error(bound, f"{bound.this} takes no argument", f"it is written {bound.this}()")
        if self._sessions is not None:
            check_bound(bound, self._node, self._context)
            self._asked.append(bound)
        elif self._grid is None:
            self._grid = self._sliding(bound)
            self._names = {name: self._taken.unique(name.lower()) for name in ("WINDOW_START", "WINDOW_END")}

    def above(self, aggregate: Node, grouped: frozenset[str]) -> Node:
        """Return an aggregation with the bounds that it is asked for; `grouped` are the keys of all its groups.

        Raises
        ------
        FjordSqlError
            If a group may have tuples of several windows.
        """
        if self._sessions is not None and self._asked:
            check_groups(self._asked[0], self._sessions, grouped, self._context)
        if self._grid is None:
            return aggregate
        return WindowBounds(aggregate, self._grid, self._names["WINDOW_START"], self._names["WINDOW_END"])

    def _sliding(self, bound: WindowBound) -> Grid:
        node = self._node.below_filters
        if not isinstance(node, TimeWindow):
            reason = f"{bound.this}() is of an aggregate over one stream with a window by time"
            raise self._context.error(bound, reason, SHAPE)
        if node.grid is not UNSET and node.grid.size is None:
            reason = "a window that is reset grows until then: it has no bounds of its own"
            raise self._context.error(bound, reason, "write RANGE 1 DAY SLIDE 1 DAY for whole days")
        grid = _grid_of(node)
        if grid is None:
            reason = "a window without SLIDE moves at every instant"
            raise self._context.error(bound, reason, SHAPE)
        return grid


def _grid_of(window: TimeWindow) -> Grid | None:
    """Return where a window begins and ends; None if it moves at every instant, or has no size."""
    if window.grid is not UNSET:
        return window.grid if window.grid.size is not None else None
    if window.size_us is None or window.slide_us == 1:
        return None
    return Grid(Span("us", window.slide_us), size=Span("us", window.size_us))


def grid_of_answers(node: Node) -> Grid | None:
    """Return where the windows begin and end whose aggregates a plan's rows are; None if they are no such aggregates.

    Of windows with a range of sizes each row has its own.
    """
    node = node.below_filters
    while isinstance(node, Ranked | WindowBounds):
        node = node.input.below_filters
    window = node.input.below_filters if isinstance(node, Aggregate) else None
    if not isinstance(window, TimeWindow) or window.allowed is not UNSET:
        return None
    return _grid_of(window)
