"""COMPLETENESS(): the samples that are counted for a query, and where a query can use it.

The share of samples seen is known where the samples that are due are known: for the sensors that a query
reads, at its sample period. So it is an aggregate of windows directly over one stream, grouped by fixed properties of
sensors. Their proxies count, pane by pane (proxy/counting/sample_account.py).
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import msgspec

from cluster.errors import PlanError
from cluster.language.quantities import written
from cluster.operators import Aggregate, Node
from cluster.operators.scalar_expressions import columns_of
from cluster.operators.walks import nodes_of
from cluster.operators.words import readable
from cluster.plan.pane_query import PaneQuery, pane_query_of
from cluster.plan.push_down import fixed_columns, pushed_of, split_predicate
from protocols.wire.frames import LONGEST_PERIOD_US


def check_completeness(node: Node) -> None:
    """Raise an error if a plan uses completeness where it is not known.

    Raises
    ------
    PlanError
        Gives the reason, and a remedy.
    """
    if not _asks(node):
        return
    windowed = pane_query_of(node)
    if windowed is None or windowed.source.lookups:
        raise PlanError(
            "COMPLETENESS() is known only of a windowed aggregate over one stream that is the whole query",
            hint="give the stream a window with a slide, WINDOW(RANGE 5 MINUTES SLIDE 5 MINUTES), and ask for "
            "COMPLETENESS() in a query of its own, without joins and subqueries",
        )
    if windowed.own_pane_us > LONGEST_PERIOD_US:
        raise PlanError(
            f"COMPLETENESS() is counted in panes of at most {written(LONGEST_PERIOD_US)}, "
            f"and those of this window have {written(windowed.own_pane_us)}",
            hint="let the window slide by less",
        )
    fixed = fixed_columns(windowed.source)
    for key in windowed.keys:
        if not columns_of(key) <= fixed:
            raise PlanError(
                f"COMPLETENESS() of groups by {readable(key)} cannot be known: that is sampled, so the group of "
                "a missing sample is not known",
                hint=f"group by fixed fields: {', '.join(sorted(fixed)) or 'this stream has none'}",
            )


def _asks(node: Node) -> bool:
    calls = (call for each in nodes_of(node) if isinstance(each, Aggregate) for call in each.calls)
    return any(call.function == "completeness" for call in calls)


def fields_read(query: PaneQuery) -> frozenset[str]:
    """Return the columns of the stream that a windowed aggregate reads from single samples."""
    arguments = {name for call in query.calls for scalar in call.reads for name in columns_of(scalar)}
    conditions = [each.predicate for each in query.source.lookups]
    read = arguments.union(*(columns_of(each) for each in (query.predicate, *conditions, *query.keys) if each))
    return frozenset(read & {column.name for column in query.source.sampled})


@lru_cache(maxsize=65_536)
def count_fingerprint(query: PaneQuery) -> str | None:
    """Return the fingerprint of the counts of missing samples that a query uses; None if it uses none.

    It is equal for all queries that get the same samples in the same way and count in equal panes, in every cluster
    and for ever.
    """
    if not query.counts_samples:
        return None
    pushed, source = pushed_of(query), query.source
    if pushed is None:
        bands = split_predicate(source, query.predicate).bands
        samples: object = (source.detector, source.sample_period_us, bands, sorted(fields_read(query)))
    else:
        samples = pushed.fingerprint
    what = msgspec.json.encode((source.stream, samples, query.tolerances, query.slowest_us, query.own_pane_us))
    return f"c{hashlib.blake2b(what, digest_size=8).hexdigest()}"
