"""Queries with one template as one fragment: its pipelines, exchanges, operators behind them, and subscribers.

**The operators behind the exchanges of a plan: all stateful ones, and those above them.**

They are numbered from the leaves up, so that their state is found again after a restart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

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
from cluster.operators.columns import QUERY_GROUP, VISIBLE_FROM, Scalar, identity_of
from cluster.operators.walks import named_operator
from cluster.physical import operations
from cluster.physical.errors import UnsupportedPlanError
from cluster.physical.nodes import Fragment, Host, OperatorNode, Subscriber, host_of
from cluster.physical.operations import MergeAggregate, Operation, PartialAggregate, Reorder, Sink, Split
from cluster.physical.rules.folding import group_of, marked, shares_tuples, template_of
from cluster.physical.rules.operations import operation_of
from cluster.physical.rules.partitioning import exchange_of
from cluster.physical.rules.pieces import MOST_LAG_US, awaited_windows, with_origins
from cluster.physical.rules.pipelines import pipeline
from cluster.physical.rules.sensor_demands import sensor_demands
from cluster.physical.subscriber_tally import SubscriberTally
from cluster.plan.epoch import PlannedQuery
from cluster.plan.names_read import called_by, functions_of
from cluster.plan.pipelines import is_pipeline, pipelines_of, slide_of
from cluster.plan.stored_plans import encoded
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


@dataclass(frozen=True, slots=True)
class FoldedQuery:
    """A query and its template.

    Parameters
    ----------
    template
        The plan that they have in common.
    conditions
        By source of the template: the query's own condition; None for all tuples.
    choices
        By filter of the template: the query's own condition.
    """

    template: Node
    conditions: tuple[Scalar | None, ...]
    choices: tuple[Scalar, ...]

    @classmethod
    def of(cls, node: Node) -> FoldedQuery:
        """Split a query's plan into template and conditions."""
        return cls(*template_of(node))

    @property
    def identity(self) -> str:
        """Name of the fragment; depends on the template only, unless that calls functions of users.

        A function that fails is no matter of queries that call it with other tuples.
        """
        if functions_of(self.template) or called_by(self.choices):
            return _identity(self.template, (*self.conditions, *self.choices))
        return _identity(self.template)

    def subscriber(self, query: PlannedQuery) -> Subscriber:
        """Return the query as a subscriber.

        Where queries may share tuples, its group is a digest of its conditions; else the epoch with which it began,
        which no other query of the engine ever has.
        """
        shared = shares_tuples(self.template)
        group = group_of((*self.conditions, *self.choices)) if shared else query.since_epoch
        demands = sensor_demands(query)
        return Subscriber(
            query.name,
            query.since_epoch,
            group,
            self.conditions,
            self.choices,
            demands=demands,
            early=query.early,
            since=query.since,
            until=query.until,
            **query.node.time_bounds._asdict(),
        )

    def fragment(self, subscribers: Sequence[Subscriber]) -> Fragment:
        """Return the fragment that answers some queries with this template."""
        nodes, host = _nodes(self.identity, self.template)
        return Fragment(self.identity, host, nodes, tuple(subscribers), shares_tuples(self.template))

    def changed(self, _: SubscriberTally, subscribers: tuple[Subscriber, ...]) -> Fragment:
        """Return the fragment with other subscribers, whatever they need together."""
        return self.fragment(subscribers)


@lru_cache(maxsize=16_384)
def _identity(template: Node, conditions: tuple[Scalar | None, ...] = ()) -> str:
    what = encoded(template) + (identity_of(conditions) if conditions else b"")
    return f"fold-{hashlib.blake2b(what, digest_size=8).hexdigest()}@0"


@lru_cache(maxsize=4096)
def _nodes(identity: str, template: Node) -> tuple[tuple[OperatorNode, ...], Host]:
    marks = (QUERY_GROUP, VISIBLE_FROM) if shares_tuples(template) else (QUERY_GROUP,)
    host = host_of(template)
    return nodes_of(identity, marked(template, marks), host), host


def nodes_of(identity: str, plan: Node, host: Host, *, lag_us: int = MOST_LAG_US) -> tuple[OperatorNode, ...]:
    """Return the nodes of a fragment with one plan, marked or not.

    Parameters
    ----------
    identity
        Name of the fragment.
    plan
        The plan.
    host
        The host that runs it.
    lag_us
        How far windows by count may stay behind their inputs where other operators wait for them.

    Raises
    ------
    UnsupportedPlanError
        If it cannot be run; says why.
    """
    pipelines = pipelines_of(plan)
    if host is Host.STATELESS:
        ((stateless, _),) = pipelines
        nodes = pipeline(f"{identity}/0", stateless, None)
        return (*nodes, OperatorNode(f"{identity}/1 {Sink.state_name()}", Sink(), (nodes[-1].id,)))
    exchanges = {each: f"{identity}/{number}" for number, each in enumerate(pipelines)}
    upstream = tuple(node for each, name in exchanges.items() for node in _pipeline(plan, name, *each))
    behind = behind_exchange(identity, plan, exchanges, lag_us=lag_us)
    sink = OperatorNode(f"{identity} {Sink.state_name()}", Sink(), (behind[-1].id,))
    return with_origins((*upstream, *behind, sink))


def _pipeline(plan: Node, name: str, stateless: Node, aggregate: Aggregate | None) -> Iterator[OperatorNode]:
    nodes = pipeline(name, stateless, aggregate)
    yield from nodes
    yield OperatorNode(name, exchange_of(plan, stateless, aggregate), (nodes[-1].id,))
