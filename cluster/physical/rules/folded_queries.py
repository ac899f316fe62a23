"""Queries with one template as one fragment: the template's pipelines, exchanges and operators, and its subscribers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from cluster.operators import Aggregate, Node
from cluster.operators.columns import QUERY_GROUP, VISIBLE_FROM, Scalar, identity_of
from cluster.physical.nodes import Fragment, Host, OperatorNode, Subscriber, host_of
from cluster.physical.operations import Sink
from cluster.physical.rules.awaited_windows import MOST_LAG_US
from cluster.physical.rules.behind_exchange import behind_exchange
from cluster.physical.rules.marks import marked
from cluster.physical.rules.partitioning import exchange_of
from cluster.physical.rules.pieces import with_origins
from cluster.physical.rules.pipelines import pipeline
from cluster.physical.rules.query_groups import group_of
from cluster.physical.rules.sensor_demands import sensor_demands
from cluster.physical.rules.templates import shares_tuples, template_of
from cluster.physical.subscriber_tally import SubscriberTally
from cluster.plan.called_functions import called_by, functions_of
from cluster.plan.epoch import PlannedQuery
from cluster.plan.pipelines import pipelines_of
from cluster.plan.stored_plans import encoded


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
