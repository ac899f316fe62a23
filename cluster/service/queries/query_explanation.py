"""What a query would do if it were added: its plan, where it would run, what it would share, in words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cluster.costs.estimate_text import estimate_text
from cluster.costs.partners import expected_partners
from cluster.costs.prices import SHIPPED, Prices
from cluster.fjord.measured_partners import measured_partners
from cluster.fjord.measured_selectivities import measured_selectivities
from cluster.fjord.operator_statistics import Rates
from cluster.language.translation import Query
from cluster.physical.lookup_choices import lookup_choices
from cluster.physical.lowering import lower_alone
from cluster.physical.nodes import Fragment, PhysicalPlan
from cluster.physical.placement import emission_words, placement_of
from cluster.physical.sharing import sharing_of
from cluster.plan.explain import explained
from cluster.plan.relations_read import RelationSize
from cluster.plan.rewrite import Rewritten
from cluster.service.queries.history import HistoryRead, history_text
from cluster.service.queries.planned_text import is_early


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What surrounds a query in its cluster.

    Parameters
    ----------
    running
        The plan that runs.
    sizes
        Of relations, by identity.
    memory_bytes, buckets
        What one table of relations may take of a worker's memory; how many buckets there are downstream.
    history_rows
        About how many rows of history a micro-batch reads.
    tuples_per_second
        By stream, of those that the query reads, where it is known.
    rates
        Of the operators of the plan that runs, by name.
    bounds
        Returns in words what a query may need at most, given its fragment and `tuples_per_second`.
    prices
        What steps of operators cost here.
    """

    running: PhysicalPlan
    sizes: Mapping[str, RelationSize]
    memory_bytes: int
    buckets: int
    history_rows: int
    tuples_per_second: Mapping[str, float]
    rates: Callable[[str], Rates]
    bounds: Callable[[Fragment, Mapping[str, float]], str]
    prices: Prices = SHIPPED


def explanation(query: Query, rewritten: Rewritten, reads: tuple[HistoryRead, ...], surroundings: Surroundings) -> str:
    """Return as text the plan of a query, how it would be run, and what it would share with those that run.

    Parameters
    ----------
    query, rewritten
        The query, and its plan as it would be added.
    reads
        The history that it would read first.
    surroundings
        Those of the query.
    """
    node = rewritten.node
    emission = emission_words(node, early=is_early(query))
    lookups = lookup_choices(
        node, surroundings.sizes, memory_bytes=surroundings.memory_bytes, buckets=surroundings.buckets
    )
    selectivities = measured_selectivities(surroundings.running, surroundings.rates)
    partners = expected_partners(node, surroundings.sizes)
    partners |= measured_partners(surroundings.running, surroundings.rates)
    estimate = estimate_text(
        node, surroundings.tuples_per_second, selectivities, surroundings.prices, partners=partners
    )
    if estimate:
        estimate += f"\n{surroundings.bounds(lower_alone(node), surroundings.tuples_per_second)}"
    sections = [
        explained(query, rewritten).rstrip(),
        *([f"It would first read\n{history_text(reads, surroundings.history_rows)}"] if reads else []),
        f"It would run\n{placement_of(node)}",
        *([f"It would process, as estimated\n{estimate}"] if estimate else []),
        *([f"It would publish\n  {emission}"] if emission else []),
        *([f"It would look up\n{lookups}"] if lookups else []),
        f"It would share\n{sharing_of(node, surroundings.running)}",
    ]
    return "\n\n".join(sections) + "\n"
