"""Reals as they enter: from stream tables and relations, whatever has been stored; and keys that are equal."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.fjord.lookup_tables import KeyIndex, LookupTable
from cluster.fjord.relation_tables import RelationTables, SlicedTable, cut, slice_file
from cluster.fjord.row_order import bucket_numbers
from cluster.fjord.stream_scan import RowsInFile, StreamScan
from cluster.operators import Filter, Project, Relation
from cluster.operators.columns import Column, Output
from cluster.plan.scalar_texts import read_scalar
from cluster.scalars.real_values import finite, settled, settled_rows
from cluster.storage.relation_versions import RelationVersions
from protocols.wire.streams import FieldType

ODD = [-0.0, 0.0, math.nan, math.inf, -math.inf, None, 1.5]
SETTLED = [0.0, 0.0, None, None, None, None, 1.5]


def same(found: list[Any], expected: list[Any]) -> bool:
    """Return whether values are equal, and a zero as positive."""
    return [repr(value) for value in found] == [repr(value) for value in expected]


@given(st.lists(st.none() | st.floats()))
def test_a_settled_column_is_finite_and_has_one_zero(values: list[float | None]) -> None:
    column = pl.Series("r", values, pl.Float64)
    expected = [None if each is None or not math.isfinite(each) else each + 0.0 for each in values]
    assert same(settled(column).to_list(), expected)
    assert settled(column).name == "r"
    assert finite(column).to_list() == expected
    assert same(settled(settled(column)).to_list(), expected)


def test_what_is_settled_is_not_copied() -> None:
    column = pl.Series("r", [1.0, None, 0.0])
    assert settled(column) is column
    assert finite(column) is column


def test_settling_reals_leaves_other_columns_as_they_are() -> None:
    rows = pl.DataFrame({"r": ODD, "i": range(7), "s": ["a"] * 7})
    assert settled_rows(rows).columns == ["r", "i", "s"]
    assert same(settled_rows(rows)["r"].to_list(), SETTLED)


@pytest.mark.parametrize("between", [None, (0, 100)])
def test_a_scan_gives_settled_samples_events_and_aggregates(tmp_path: Path, between: tuple[int, int] | None) -> None:
    (tmp_path / "traffic").mkdir()
    stored = pl.DataFrame(
        {
            "fjord_start_us": range(7),
            "fjord_default_rate": [True] * 7,
            "r": ODD,
            "fjord_form": ["f"] * 7,
            "fjord_pane_us": [1] * 7,
            "fjord_samples": [1] * 7,
            "fjord_sum_r": ODD,
        }
    )
    stored.drop("fjord_form", "fjord_pane_us", "fjord_samples").write_parquet(tmp_path / "traffic" / "samples.parquet")
    stored.with_columns(pl.lit(None, pl.Int64).alias("fjord_samples")).write_parquet(tmp_path / "traffic" / "e.parquet")
    stored.write_parquet(tmp_path / "traffic" / "a.parquet")
    columns = (Column("r", FieldType.REAL),)

    def scan(file: str) -> StreamScan:
        return StreamScan([RowsInFile(str(tmp_path / "traffic" / file))], 9, between_us=between)

    assert same(scan("samples.parquet").samples(columns).rows["r"].to_list(), SETTLED)
    assert same(scan("e.parquet").events("f", columns).rows["r"].to_list(), SETTLED)
    own = ["fjord_form", "fjord_pane_us", "fjord_samples", "fjord_sum_r"]
    aggregates = scan("a.parquet").aggregates(columns, own)
    assert same(aggregates.rows["r"].to_list(), SETTLED)
    assert same(aggregates.rows["fjord_sum_r"].to_list(), ODD)


RELATION = Relation("prices", "prices@1", (Column("item", FieldType.INTEGER), Column("price", FieldType.REAL)))


def committed(folder: Path, rows: pl.DataFrame) -> RelationTables:
    versions = RelationVersions(folder / RELATION.identity)
    versions.prepare(rows)
    versions.commit(rows, {})
    return RelationTables(str(folder), {RELATION.identity: 1}, memory_bytes=100)


@pytest.mark.parametrize("memory_bytes", [10_000, 1])
def test_a_table_of_a_relation_is_settled(tmp_path: Path, memory_bytes: int) -> None:
    rows = pl.DataFrame({"item": range(7), "price": ODD})
    committed(tmp_path, rows)
    tables = RelationTables(str(tmp_path), {RELATION.identity: 1}, memory_bytes=memory_bytes)
    positive = read_scalar('"price" >= 0', FieldType.BOOLEAN)
    outputs = (
        Output("item", read_scalar('"item"', FieldType.INTEGER)),
        Output("price", read_scalar('"price"', FieldType.REAL)),
    )
    for table, expected in (
        (Project(RELATION, outputs), {(n, repr(value)) for n, value in enumerate(SETTLED)}),
        (Filter(RELATION, positive), {(0, "0.0"), (1, "0.0"), (6, "1.5")}),
    ):
        ((_, parts),) = tables.pieces(table, "item", frozenset({"traffic"}), 0, 1)
        assert not isinstance(parts, Exception)
        found = [part.rows for _, part in parts.parts(pl.Series(range(7)))]
        assert {(item, repr(price)) for item, price in pl.concat(found).rows()} == expected


def test_equal_reals_are_in_one_bucket() -> None:
    numbers = bucket_numbers(pl.Series([0.0, -0.0]), 1000)
    assert numbers[0] == numbers[1]


EXACT = 2**53
LARGE = [EXACT - 1, EXACT, EXACT + 1, EXACT + 2, -EXACT, -EXACT - 1, 2**62, 2**62 + 1, 3, 5]


@given(st.lists(st.sampled_from(LARGE), min_size=1), st.lists(st.sampled_from(LARGE).map(float)))
def test_an_integer_key_is_found_by_the_nearest_real(keys: list[int], probes: list[float]) -> None:
    pairs = [
        (asked, found) for asked, probe in enumerate(probes) for found, key in enumerate(keys) if float(key) == probe
    ]
    matches = KeyIndex(pl.Series(keys)).matches(pl.Series(probes, dtype=pl.Float64))
    assert list(zip(matches.probed.tolist(), matches.found.tolist(), strict=True)) == pairs
    mirrored = KeyIndex(pl.Series(probes, dtype=pl.Float64)).matches(pl.Series(keys))
    assert sorted(zip(mirrored.found.tolist(), mirrored.probed.tolist(), strict=True)) == sorted(pairs)


def test_slices_have_the_integers_that_a_real_equals_together(tmp_path: Path) -> None:
    rows = pl.DataFrame({"item": LARGE})
    rows.write_parquet(tmp_path / "snapshot.parquet")
    cut(tmp_path / "snapshot.parquet", tmp_path / "slices", 64, "item", lambda piece: piece)
    sliced = SlicedTable(
        64, pl.Int64(), lambda number: LookupTable(pl.read_parquet(slice_file(tmp_path / "slices", number)))
    )
    probes = pl.Series([float(each) for each in LARGE])
    found = 0
    for places, part in sliced.parts(probes):
        found += len(part.index("item").matches(probes[places]).probed)
    assert found == sum(float(one) == float(other) for one in LARGE for other in LARGE)
