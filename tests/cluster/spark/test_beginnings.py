"""Where streams begin: the same however their commits are divided into micro-batches, and read again."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from cluster.fjord.batch import START
from cluster.spark.reading.live import Beginnings
from cluster.spark.reading.reads import TableVersions
from cluster.storage.stream_tables import StreamPosition, StreamTable, arrow_schema
from tests.cluster.local.test_flowing_relations import SCHEMA, frame

Commit = tuple[list[int], int | None]
HISTORIES: list[tuple[list[Commit], int]] = [
    ([([], None), ([], 3), ([7], 3), ([4, 9], 6), ([11], 10)], 3),
    ([([7], None), ([5], 2), ([], 3), ([4, 9], 3), ([], 4), ([5, 30], 9), ([], 40)], 4),
    ([([7], 7), ([9], 9)], 7),
]
"""Stamps and watermark of each commit, and where the stream begins."""


@pytest.mark.parametrize(("commits", "begins"), HISTORIES)
def test_a_stream_begins_at_the_same_instant_in_any_micro_batches(
    commits: list[Commit], begins: int, tmp_path: Path
) -> None:
    table = StreamTable(str(tmp_path / "a"), SCHEMA)
    first = table.version
    for stamps, watermark_us in commits:
        rows = frame([(0, 1, 1)] * len(stamps)).with_columns(pl.Series(START, stamps, pl.Int64))
        stored = rows.with_columns(pl.lit("m").alias("fjord_mote")).to_arrow()
        schema = arrow_schema(SCHEMA)
        table.append([stored.select(schema.names).cast(schema)] if stamps else [], StreamPosition(watermark_us, {}), {})
    versions = range(first, table.version + 1)
    assert len(versions) == len(commits) + 1
    dice = random.Random(1)
    for _ in range(30):
        beginnings = Beginnings(TableVersions(str(tmp_path)))
        cuts = sorted({first, table.version, *dice.sample(versions, dice.randrange(len(versions)))})
        found = []
        for begin, end in pairwise(cuts):
            each = beginnings.between(["a"], {"a": begin}, {"a": end})
            assert beginnings.between(["a"], {"a": begin}, {"a": end}) == each, "planned again"
            found += each.values()
        assert found[:1] == [begins]
