"""Templates: queries that differ in what they filter, and in nothing else, have one (docs/explanation/folding.md).

    SELECT sensor FROM traffic WHERE speed < 20          q1: speed < 20
    SELECT sensor FROM traffic WHERE speed < 10    ->    q2: speed < 10       one template:  project sensor
    SELECT sensor FROM traffic WHERE lane = 1            q3: lane = 1                        `- groups of traffic

A *template* is a plan without the conditions next to its streams. Queries with one template are one fragment. A tuple
becomes one row per query group whose condition holds, with the group's number in an extra column, and every operator
above keeps groups apart (:mod:`cluster.physical.rules.marks`): it is one more column of a projection, of a key, of
equality, one more equation of a join. A filter further up (HAVING, a condition on both sides of a join) applies to
each group the group's own condition. All operators work instant by instant on whole tuples
(papers/pipes_algebra.md section 3), so each query's rows are exactly those it would have alone; and a query that begins
later has no rows from before.

Zipper joins pair tuples one to one: the partner depends on all tuples before, so queries that began at different times
never share tuples there.

Where a plan only filters, projects, joins and unites, queries with equal conditions share their tuples and the state of
their joins: marks in the rows say from which epoch on they are visible. Windowed aggregates fold further
(:mod:`cluster.physical.rules.shared_panes`).
"""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import replace

from cluster.expressions.nodes import TRUE
from cluster.operators import Filter, Join, Lookup, Node, Project, Source, TimeWindow, Union
from cluster.operators.columns import Scalar
from cluster.operators.scalar_expressions import conjunction_of, conjuncts_of
from cluster.operators.walks import nodes_of
from cluster.plan.pane_query import without_acquisition_hints
from cluster.plan.pipelines import runs_upstream
from protocols.wire.streams import FieldType

ANYTHING = Scalar(TRUE, FieldType.BOOLEAN)
"""The predicate of a template's filter instead of its queries' conditions."""


@lru_cache(maxsize=4096)
def shares_tuples(template: Node) -> bool:
    """Return whether a plan only filters, projects, joins and unites: then tuples can be shared, with VISIBLE_FROM."""
    kinds = Source | Filter | Project | TimeWindow | Join | Union | Lookup
    return all(isinstance(each, kinds) for each in nodes_of(template))


@lru_cache(maxsize=65_536)
def template_of(node: Node) -> tuple[Node, tuple[Scalar | None, ...], tuple[Scalar, ...]]:
    """Return a plan's template, the conditions removed from its sources, and the conditions of filters further up.

    Equal pipelines with equal conditions are one source of the template: equal subplans stay equal.
    """
    places: dict[Node, int] = {}
    choices: dict[tuple[Node, Scalar], int] = {}
    done: dict[tuple[int, int | None], Node] = {}

    def freed(part: Node, place: int | None) -> Node:
        key = (id(part), place)
        if key not in done:
            done[key] = without_conditions(part, place)
        return done[key]

    def without_conditions(part: Node, place: int | None) -> Node:
        if place is None and runs_upstream(part):
            place = places.setdefault(part, len(places))
        if place is not None and isinstance(source := _without_filters(part), Source):
            return replace(without_acquisition_hints(source), occurrence=place)
        inputs = tuple([freed(each, place) for each in part.inputs])
        if place is None and isinstance(part, Filter):
            return Filter(inputs[0], ANYTHING, choices.setdefault((inputs[0], part.predicate), len(choices)))
        return part.with_inputs(inputs)

    template = freed(node, None)
    return template, tuple(map(_condition_of, places)), tuple(predicate for _, predicate in choices)


def _without_filters(node: Node) -> Node:
    while isinstance(node, Filter):
        node = node.input
    return node


def _condition_of(stateless: Node) -> Scalar | None:
    """Return the condition directly above the source of a pipeline."""
    conditions: list[Scalar] = []
    while not isinstance(stateless, Source):
        conditions = [*conjuncts_of(stateless.predicate), *conditions] if isinstance(stateless, Filter) else []
        (stateless,) = stateless.inputs
    return conjunction_of(conditions)
