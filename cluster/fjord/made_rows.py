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

What an operator makes of rows stands with it (:mod:`cluster.fjord.running_kind`); here it is asked for all nodes.

No estimate of :mod:`cluster.costs.estimates` is higher, but for equalities between more rows than there are keys
assumed: it has the same assumptions otherwise, and lets conditions drop rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from types import MappingProxyType
from typing import TypeVar

from cluster.costs.partners import NO_SIZES, Sizes
from cluster.fjord.row_flow import MOST, RowFlow, finite
from cluster.fjord.running_kind import InputFlows
from cluster.fjord.running_kinds import running_kind
from cluster.physical.nodes import Fragment, OperatorNode, PaneWindow
from cluster.planning_budget import spend

T = TypeVar("T")

NO_RATES: Mapping[str, float] = MappingProxyType({})
_FRACTIONS = 1 << 20


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
        self._found: dict[str, RowFlow] = {}
        for node in fragment.nodes:
            spend()
            inputs = InputFlows(node, [self._found[each] for each in node.inputs], fragment, tuples_per_second, sizes)
            self._found[node.id] = finite(running_kind(node.operation).flow(node.operation, inputs))

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

    def window_of(self, node: OperatorNode) -> PaneWindow | None:
        """Return the window whose answers a node merges, if it slides in steps; None for any other node."""
        return running_kind(node.operation).window(node.operation, node, self._fragment)


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
    return round(min(amount, MOST) * _FRACTIONS)


def approximate(amount: int) -> float:
    """Return a sum of amounts of :func:`exact`."""
    return amount / _FRACTIONS
