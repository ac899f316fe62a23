"""The operators behind the exchanges of a plan: all stateful ones, and those above them.

They are numbered from the leaves up, so that their state is found again after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping

from cluster.operators import (
    Aggregate,
    CountWindow,
    Held,
    Lookup,
    Node,
    PartitionedWindow,
    SessionWindow,
    TableLookup,
    TimeWindow,
    UntilNext,
)
from cluster.operators.unbounded import named_operator
from cluster.physical import operations
from cluster.physical.errors import UnsupportedPlanError
from cluster.physical.nodes import OperatorNode
from cluster.physical.operations import MergeAggregate, Operation, PartialAggregate, Reorder, Split
from cluster.physical.rules.awaited_windows import MOST_LAG_US, awaited_windows
from cluster.physical.rules.operations import operation_of
from cluster.plan.pipelines import is_pipeline, slide_of
from cluster.planning_budget import spend

LONGEST_SPLIT_US = 100_000
"""Rows that are valid for longer are not split into one per microsecond: 0.1 s is a hundred thousand rows already."""

_Windows = TimeWindow | CountWindow | PartitionedWindow | SessionWindow | UntilNext
_FORMS: dict[type[Node], str] = {
    CountWindow: "a window by rows",
    PartitionedWindow: "a window by rows",
    SessionWindow: "a window of sessions",
    UntilNext: "VALID UNTIL NEXT",
}
"""Windows to which copies matter even if they do not to what is above."""
Exchanges = Mapping[tuple[Node, Aggregate | None], str]
"""By pipeline next to a scan: the id of the exchange above it."""


def behind_exchange(
    identity: str, plan: Node, exchanges: Exchanges, *, lag_us: int = MOST_LAG_US
) -> tuple[OperatorNode, ...]:
    """Return the nodes behind the exchanges of a plan; the last one yields the answer.

    Parameters
    ----------
    identity
        Name of the fragment: part of the name of all state.
    plan
        The plan.
    exchanges
        The exchanges at its pipeline breakers.
    lag_us
        How far windows by count may stay behind their inputs where other operators wait for them.

    Raises
    ------
    UnsupportedPlanError
        If something cannot be run; says why.
    """
    lowering = _Lowering(identity, plan, exchanges, lag_us)
    lowering.add(plan, multiplicity_matters=True)
    return tuple(lowering.nodes)


class _Lowering:
    """Adds nodes from the leaves up."""

    def __init__(self, identity: str, plan: Node, exchanges: Exchanges, lag_us: int) -> None:
        self.nodes: list[OperatorNode] = []
        self._identity = identity
        self._exchanges = exchanges
        self._lag_us = lag_us
        self._awaited = awaited_windows(plan)
        self._added: dict[tuple[Node, bool], str] = {}

    def add(self, node: Node, *, multiplicity_matters: bool) -> str:
        """Add the operators of a node, or find those of an equal node: equal subplans run once.

        Parameters
        ----------
        node
            What to add.
        multiplicity_matters
            False if the operators above are duplicate-insensitive.
        """
        # A pipeline breaker does not depend on what is above.
        key = (node, multiplicity_matters or isinstance(node, Aggregate) or is_pipeline(node))
        if key not in self._added:
            self._added[key] = self._add(node, multiplicity_matters=multiplicity_matters)
        return self._added[key]

    def _add(self, node: Node, *, multiplicity_matters: bool) -> str:
        spend()
        if is_pipeline(node):
            return self._place(Reorder(node.schema), self._exchanges[node, None])
        if isinstance(node, Aggregate):
            return self._add_aggregate(node)
        inputs = [
            self.add(child, multiplicity_matters=matter)
            for child, matter in zip(node.inputs, node.multiplicity_sensitive(above=multiplicity_matters), strict=True)
        ]
        if isinstance(node, _Windows) and not node.input.is_instantaneous:
            exact = multiplicity_matters or not isinstance(node, TimeWindow)
            inputs = [self._split(node, inputs[0])] if exact else inputs
        if isinstance(node, Held):
            return self._place(_held(node), *inputs)
        if isinstance(node, Lookup):
            table = TableLookup(node.table, node.predicate, node.kind)
            return self._place(operations.Lookup(table, tuple(sorted(node.streams))), *inputs)
        return self._place(operation_of(node, self._lag_us if node in self._awaited else None), *inputs)

    def _split(self, window: _Windows, below: str) -> str:
        """Split rows into one per instant, as a window above counts them (papers/pipes_algebra.md section 5.12)."""
        node = window.input
        lasting_us = node.longest_validity_us
        if lasting_us is None or lasting_us > LONGEST_SPLIT_US:
            if not isinstance(window, TimeWindow):
                raise UnsupportedPlanError(
                    f"{_FORMS[type(window)]} takes a row of a subquery with {named_operator(node)} once for every "
                    "microsecond for which it is valid, whatever is asked of it",
                    hint="put the window on the stream itself, or write FROM ISTREAM((SELECT ...) AS q) AS s "
                    "WINDOW(...), which takes a row once, where it begins",
                )
            raise UnsupportedPlanError(
                f"a window over a subquery with {named_operator(node)} would count a row once for every microsecond "
                "for which it is valid",
                hint="put the window on the stream itself, or ISTREAM(...) around the subquery to count a row once, "
                "or ask for DISTINCT, MIN or MAX only, for which copies do not count",
            )
        return self._place(Split(node.schema), below)

    def _add_aggregate(self, node: Aggregate) -> str:
        keys = node.schema[: len(node.keys)]
        if is_pipeline(node.input):
            below = self._exchanges[node.input, node]
            return self._place(MergeAggregate(keys, node.calls, slide_of(node.input)), below)
        (matter,) = node.multiplicity_sensitive(above=True)
        below = self.add(node.input, multiplicity_matters=matter)
        partial = self._place(PartialAggregate(node.keys, node.calls), below)
        return self._place(MergeAggregate(keys, node.calls), partial)

    def _place(self, operation: Operation, *inputs: str) -> str:
        name = f"{self._identity}/{len(self.nodes)} {operation.state_name()}"
        self.nodes.append(OperatorNode(name, operation, inputs))
        return name


def _held(node: Held) -> operations.Held:
    streams = tuple(sorted(node.input.streams))
    table = TableLookup(node.table, None, "inner")
    return operations.Held(table, streams, node.begins_us, node.waits_us, bool(node.marks), node.against)
