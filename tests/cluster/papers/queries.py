"""Queries from text, checked against printed answers, the oracle, and each other."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cluster.fjord.acceptance import check_supported
from cluster.language.catalog import Catalog
from cluster.language.translation import translate, translate_derived
from cluster.operators import Node
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.oracle.comparison import snapshots_of
from tests.cluster.oracle.definition import Streams, evaluate
from tests.cluster.oracle.running import all_at_once, deliveries, one_by_one, run_plan

TYPES = {"INT": FieldType.INTEGER, "REAL": FieldType.REAL, "TEXT": FieldType.TEXT}


def stream(name: str, columns: str) -> StreamSchema:
    """Return a schema written as ``item INT, price INT``."""
    fields = (column.split() for column in columns.split(","))
    return StreamSchema(name, tuple(Field(column, TYPES[kind]) for column, kind in fields))


def catalog_of(*schemas: StreamSchema, derived: Sequence[str] = ()) -> Catalog:
    """Return a catalog of streams, and of streams derived from them by ``CREATE STREAM name AS ...``."""
    catalog = Catalog.of(schemas)
    for text in derived:
        catalog = catalog.with_stream(translate_derived(text, catalog))
    return catalog


def planned(text: str, catalog: Catalog) -> tuple[Node, Node]:
    """Return a query's plan as translated and as rewritten."""
    node = translate(text, catalog).node
    better = rewrite(node).node
    check_supported(better)
    return node, better


def check_answer(
    text: str, catalog: Catalog, streams: Streams, expected: Sequence[tuple[Any, ...]], instants: int = 60
) -> None:
    """The oracle and the operators, on the plan as translated and as rewritten, say what is printed.

    `expected` holds physical rows: start, end, values.
    """
    wanted = snapshots_of(expected, instants)
    for node in planned(text, catalog):
        meaning = evaluate(node, [streams], instants)
        assert not meaning.ambiguous
        assert meaning.snapshots[0] == wanted
        for batches in (all_at_once(streams), one_by_one(streams), deliveries(streams, random.Random(1))):
            assert snapshots_of(run_plan(node, batches), instants) == wanted


def check_against_oracle(text: str, catalog: Catalog, streams: Streams, instants: int, seed: int) -> int:
    """The operators say what the oracle says, with disorder; return how many rows the answer has."""
    node, better = planned(text, catalog)
    meaning = evaluate(node, [streams], instants)
    assert not meaning.ambiguous
    rows = run_plan(better, deliveries(streams, random.Random(seed), most=6), restart_after=frozenset({1}))
    found = snapshots_of(rows, instants)
    for instant in range(instants):
        assert _rounded(found[instant]) == _rounded(meaning.snapshots[0][instant]), f"at instant {instant}"
    return len(rows)


def _rounded(bag: Mapping[tuple[Any, ...], int]) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for row, count in bag.items():
        found[tuple(round(value, 6) if isinstance(value, float) else value for value in row)] += count
    return found
