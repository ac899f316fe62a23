"""The queries of examples/nexmark, planned together, and the generator's events as micro-batches."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import polars as pl

from cluster.fjord.batch import NEVER, START
from cluster.fjord.scalars import POLARS_TYPES
from cluster.language.catalog import BaseStream, Catalog, StaticRelation
from cluster.language.statement_texts import statements_in
from cluster.language.translation import CreateStream, parse_statement, translate
from cluster.operators.columns import Column
from cluster.plan.epoch import PlannedQuery
from cluster.plan.rewrite import rewrite
from protocols.wire.batches import DEFAULT_RATE_COLUMN
from protocols.wire.streams import FieldType, StreamSchema

FOLDER = Path(__file__).parents[3] / "examples" / "nexmark"
QUERIES = {file.stem: file.read_text(encoding="utf-8") for file in FOLDER.glob("q*.sql")}
SIDE_INPUT = StaticRelation(
    "side_input", "side_input@1", (Column("key", FieldType.INTEGER), Column("value", FieldType.TEXT))
)
SIDE_ROWS = pl.DataFrame({"key": range(10_000), "value": [f"value {key}" for key in range(10_000)]})


@cache
def generator() -> ModuleType:
    """Return examples/nexmark/generate.py."""
    spec = importlib.util.spec_from_file_location("nexmark_generate", FOLDER / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for the names in their annotations
    spec.loader.exec_module(module)
    return module


@cache
def catalog() -> Catalog:
    """Return the streams of streams.sql, and the relation of q13."""
    streams: list[BaseStream | StaticRelation] = [SIDE_INPUT]
    for each in statements_in((FOLDER / "streams.sql").read_text(encoding="utf-8")):
        statement = parse_statement(each.text)
        assert isinstance(statement, CreateStream)
        streams.append(statement.stream)
    return Catalog.of(streams)


def schemas() -> tuple[StreamSchema, ...]:
    """Return the schemas of the streams."""
    return tuple(each.schema for each in catalog().entries.values() if isinstance(each, BaseStream))


def planned() -> tuple[PlannedQuery, ...]:
    """Return all queries as one plan holds them."""
    return tuple(
        PlannedQuery(name, 1, rewrite(translate(text, catalog()).node).node) for name, text in sorted(QUERIES.items())
    )


def stored(stream: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Return events as rows of a stream table."""
    entry = catalog().entries[stream]
    assert isinstance(entry, BaseStream)
    types = {field.name: POLARS_TYPES[field.type] for field in entry.schema.fields}
    return rows.select(
        pl.col("date_time").alias(START),
        pl.lit(value=True).alias(DEFAULT_RATE_COLUMN),
        *(pl.col(name).cast(kind) for name, kind in types.items()),
    )


def micro_batches(streams: dict[str, pl.DataFrame], count: int) -> Iterator[tuple[dict[str, pl.DataFrame], int]]:
    """Yield what comes together of each stream, in `count` pieces of time, and the watermark then; at last the end."""
    stamps = pl.concat([rows["date_time"] for rows in streams.values()])
    first, last = int(stamps.min() or 0), int(stamps.max() or 0)  # type: ignore[arg-type]
    for number in range(count):
        low, high = (first + (last + 1 - first) * place // count for place in (number, number + 1))
        due = (pl.col("date_time") >= low) & (pl.col("date_time") < high)
        # Out of order within the piece.
        batch = {name: rows.filter(due).reverse() for name, rows in streams.items()}
        yield {name: stored(name, rows) for name, rows in batch.items()}, NEVER if number == count - 1 else high
