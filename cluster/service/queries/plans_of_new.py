"""The plan with which a new query costs least beside those that run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cluster.costs.choice import cheapest
from cluster.costs.load import Option
from cluster.fjord.operator_statistics import Rates
from cluster.operators.size_ranges import ranges_of
from cluster.physical.nodes import PhysicalPlan
from cluster.plan.alternatives import Alternative, alternatives
from cluster.plan.history import has_own_beginning
from cluster.plan.pane_families import with_family
from cluster.plan.sized import quality_of
from cluster.service.queries.pane_options import family_of_new, narrows_panes, pane_users
from cluster.service.queries.plan_options import Figures, has_choice, options_of
from cluster.service.queries.planned_text import PlannedText
from cluster.service.registry.running_queries import RegisteredQuery


def may_choose(query: PlannedText, physical: PhysicalPlan) -> bool:
    """Return whether it is worth while to look for another plan of a new query beside those that run."""
    return has_choice(query.node) or narrows_panes(query.node, physical)


def with_cheapest_plan(query: PlannedText, physical: PhysicalPlan, figures: Figures) -> PlannedText:
    """Return a new query that joins with the plan that costs least beside those that run."""
    if has_own_beginning(query.node) or ranges_of(query.query.node):
        return query
    planned = query.in_epoch(physical.epoch + 1)
    first = options_of(planned, (Alternative(query.node),), figures)
    if not first:
        return query
    plans = alternatives(query.node)
    options = [*first, *(each for each in options_of(planned, plans, figures) if each.number != 1)]
    best = cheapest(options, _running_beside(options, physical))
    return query if best.number == 1 else replace(query, node=plans[best.number - 1].node)


def _running_beside(options: Sequence[Option], physical: PhysicalPlan) -> list[Option]:
    """Return what runs in the fragments that plans would join, a plan for each query group."""
    return [
        replace(each, number=0, group=str(group))
        for each in {option.fragment: option for option in options}.values()
        if each.fragment in physical.by_identity
        for group in physical.by_identity[each.fragment].groups
    ]


def in_cheapest_family(
    query: PlannedText,
    queries: Sequence[RegisteredQuery],
    physical: PhysicalPlan,
    figures: Figures,
    rates: Callable[[str], Rates],
) -> PlannedText:
    """Return a new query whose window would make the panes of others narrow in the family in which it costs least.

    Parameters
    ----------
    query
        The new query.
    queries, physical
        Those that run, and their plan.
    figures
        What plans cost by.
    rates
        Of an operator, by its name.
    """
    if has_own_beginning(query.node) or quality_of(query.node) is not None:
        return query
    running = pane_users(queries, physical, figures, rates, lambda _: False)
    family = family_of_new(query.in_epoch(physical.epoch + 1), running, figures)
    return query if family is None or family <= 0 else replace(query, node=with_family(query.node, family))
