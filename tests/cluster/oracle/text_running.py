"""From a text to rows: FjordSQL read, translated and rewritten, and run on the real edges and operators.

Samples come as motes take them, all of them, live; the relation never changes. So some of what a text says changes
nothing here; what it changes elsewhere is shown there:

    WITHIN, AT LEAST, LIFETIME   what motes sample and send: tests/protocols/acquisition; tests/system/test_lifetime.py,
                                 test_push_down.py
    EVENTS                       what a detector sees in samples, here given by stream: test_vehicles.py
    SINCE                        what is stored: tests/cluster/spark/test_backfill.py
    COMPLETENESS()               what proxies counted; here nothing, so NULL: test_completeness.py
    ERROR_BOUND                  its value is defined here, that it holds is shown in test_error_bounds.py
    changing relations           relation_definition.py, beside this file
    relations that flow          tests/cluster/local/test_flowing_relations.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.acceptance import check_supported
from cluster.fjord.scalars import POLARS_TYPES
from cluster.functions.calling import CALLS
from cluster.language.catalog import Catalog
from cluster.language.translation import Query, translate, translate_derived
from cluster.local.engine import MemoryTables, RelationRows
from cluster.operators import Held, Node, Relation, Source
from cluster.operators.walks import from_below
from cluster.plan.rewrite import rewrite
from tests.cluster.functions.declared import RULES
from tests.cluster.oracle.definition import Row, Streams
from tests.cluster.oracle.proving import LAGS_US, delivered
from tests.cluster.oracle.running import run_plan, stream_read
from tests.cluster.oracle.text_world import CATALOG, PLACES, World, as_read
from tests.cluster.published_tuples import with_values


@dataclass(frozen=True)
class Planned:
    """The plan of a text as it is translated, and rewritten; `applied` are the rules that made that."""

    node: Node
    better: Node
    applied: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def streams(self) -> frozenset[str]:
        """What the harness has to bring."""
        return frozenset(stream_read(each) for node in (self.node, self.better) for each in _sources(node))


def accepted(derived: Sequence[str], query: str, catalog: Catalog = CATALOG) -> Query:
    """Return a text as it is translated.

    Raises
    ------
    FjordError
        If it is refused.
    """
    for each in derived:
        catalog = catalog.with_stream(translate_derived(each, catalog))
    return translate(query, catalog)


def planned(derived: Sequence[str], query: str) -> Planned:
    """Return the plans of a text.

    Raises
    ------
    FjordError
        If it is refused.
    """
    CALLS.use(RULES)
    translated = accepted(derived, query)
    better = rewrite(translated.node)
    return Planned(translated.node, better.node, better.applied, translated.warnings)


def runnable(node: Node) -> PlanError | None:
    """Return why a plan cannot be run; None if it can."""
    if _joins_relation(node):
        return PlanError("relations are looked up only after rewriting")
    if any(isinstance(each, Held) for each in from_below(node)):
        return PlanError("rows of relations that flow begin with streams, and here no stream begins")
    try:
        check_supported(node)
    except PlanError as error:
        return error
    return None


def run_text(plan: Node, world: World, streams: Streams, seed: int) -> list[Row]:
    """Return the rows of the answer, with micro-batches and restarts that follow from a seed."""
    CALLS.use(RULES)
    batches, restarts = delivered(streams, seed)
    return run_plan(
        plan, batches, restart_after=restarts, tables=tables_of(world.places), lag_us=LAGS_US[seed % len(LAGS_US)]
    )


def streams_of(world: World, names: frozenset[str]) -> Streams:
    """Return what a text reads of a stream set."""
    return {
        name: [(stamp, with_values(row, map(as_read, row))) for stamp, row in world.streams[name]]
        for name in sorted(names)
    }


def tables_of(rows: Sequence[Row]) -> MemoryTables:
    """Return the relation, which never changes."""
    schema = {column.name: POLARS_TYPES[column.type] for column in PLACES.columns}
    return MemoryTables({PLACES.identity: [RelationRows(pl.DataFrame(rows, schema=schema, orient="row"))]})


def _joins_relation(node: Node) -> bool:
    return isinstance(node, Relation) or any(_joins_relation(each) for each in node.inputs)


def _sources(node: Node) -> Iterator[Source]:
    if isinstance(node, Source):
        yield node
    for each in node.inputs:
        yield from _sources(each)
