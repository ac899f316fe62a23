"""Sources that need no server: SQLite, CSV, Parquet and Delta."""

from __future__ import annotations

import sqlite3
import tracemalloc
from contextlib import closing

import polars as pl
import pytest
from deltalake import write_deltalake

from cluster.language.comparisons import Comparison
from cluster.language.errors import FjordSqlError
from cluster.operators.columns import Column
from cluster.relations.fitting import all_columns
from cluster.relations.frames import CsvSource
from cluster.relations.source import (
    BATCH_LETTERS,
    BATCH_ROWS,
    LONGEST_TEXT,
    Limits,
    SourceAwayError,
    SourceSchemaError,
    SourceTooLargeError,
    batches,
)
from protocols.wire.streams import FieldType
from tests.cluster.relations.source_cases import CONDITIONS, INCIDENTS, ROWS, frame, meant, opened, same
from tests.peak_memory import growth_kib

KINDS = ["sqlite", "csv", "parquet", "delta"]


def write_sqlite(path, rows=ROWS, lane="INTEGER"):
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TABLE IF EXISTS incidents")
        database.execute(
            f"CREATE TABLE incidents (segment TEXT, lane {lane}, cost REAL, open BOOLEAN, since TIMESTAMP)"
        )
        database.execute("CREATE INDEX by_segment ON incidents (segment)")
        database.executemany(
            "INSERT INTO incidents VALUES (?, ?, ?, ?, strftime('%Y-%m-%d %H:%M:%f', ? / 1000000.0, 'unixepoch'))", rows
        )


def make(kind, folder):
    """The table of incidents as a source of some kind."""
    match kind:
        case "sqlite":
            write_sqlite(folder / "roads.db")
            return opened(f"sqlite:///{folder}/roads.db")
        case "csv":
            frame().write_csv(folder / "incidents.csv")
            return opened(f"{folder}/incidents.csv")
        case "parquet":
            frame().write_parquet(folder / "incidents.parquet", row_group_size=2)
            return opened(f"{folder}/incidents.parquet")
        case _:
            write_deltalake(folder / "incidents", frame().slice(0, 2).to_arrow())
            write_deltalake(folder / "incidents", frame().slice(2).to_arrow(), mode="append")
            return opened(f"delta:{folder}/incidents")


@pytest.fixture(params=KINDS)
def source(request, tmp_path):
    return make(request.param, tmp_path)


def test_columns_are_discovered_with_fjords_types(source):
    assert all_columns(source.columns()) == INCIDENTS


def test_all_rows_come_as_often_as_they_are_there(source):
    found = source.rows(INCIDENTS)
    assert list(found.schema.items()) == [
        ("segment", pl.String), ("lane", pl.Int64), ("cost", pl.Float64), ("open", pl.Boolean), ("since", pl.Int64),
    ]  # fmt: skip
    assert same(found, ROWS)


def test_only_the_wanted_columns_come_and_integers_may_be_reals_or_texts(source):
    found = source.rows((Column("Lane", FieldType.REAL),))
    assert same(found, [(1.0,), (2.0,), (None,), (1.0,)])
    assert same(source.rows((Column("lane", FieldType.TEXT),)), [("1",), ("2",), (None,), ("1",)])


@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
def test_conditions_choose_rows(source, condition):
    assert same(source.rows(INCIDENTS, condition), meant(condition))


def test_a_missing_column_is_named_and_the_closest_suggested(source):
    with pytest.raises(SourceSchemaError, match="no column 'segmnt'") as caught:
        source.rows((Column("segmnt", FieldType.TEXT),))
    hint = "did you mean segment?"
    if isinstance(source, CsvSource):  # its first line may be anything
        hint = "the first line of the file does not have this name"
    assert (caught.value.column, caught.value.hint) == ("segmnt", hint)


@pytest.mark.parametrize(
    ("name", "type_"), [("segment", FieldType.INTEGER), ("cost", FieldType.INTEGER), ("open", FieldType.REAL)]
)
def test_a_type_the_source_cannot_give_is_an_error(source, name, type_):
    with pytest.raises(SourceSchemaError, match=f"column '{name}' is .* cannot be {type_.value}") as caught:
        source.rows((Column(name, type_),))
    assert "declare it" in caught.value.hint


def test_what_is_too_large_is_refused_with_figures(tmp_path):
    for kind in KINDS:
        source = make(kind, tmp_path)
        source._limits = Limits(max_rows=3)
        with pytest.raises(SourceTooLargeError, match=r"4 rows.*the limit is 3"):
            source.rows(INCIDENTS)
        source._limits = Limits(max_bytes=10)
        with pytest.raises(SourceTooLargeError, match="the limit is 10"):
            source.rows(INCIDENTS)


def test_long_texts_are_refused_before_all_of_a_batch_is_in_memory(tmp_path):
    """Batches of 20,000 rows, checked when they were complete, once held 3 GB of two texts."""
    with closing(sqlite3.connect(tmp_path / "long.db")) as database:
        database.execute("CREATE VIEW incidents AS SELECT printf('%.*c', 1000000, 'x') AS note FROM one, one AS other")
        database.execute("CREATE TABLE one (place INTEGER)")
        database.executemany("INSERT INTO one VALUES (?)", [(place,) for place in range(20)])
        database.commit()
    source = opened(f"sqlite:///{tmp_path}/long.db", limits=Limits(max_bytes=40_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(SourceTooLargeError, match="the limit is 40,000,000 bytes"):
            source.rows((Column("note", FieldType.TEXT),))
        assert tracemalloc.get_traced_memory()[1] < 60_000_000
    finally:
        tracemalloc.stop()


def test_short_rows_of_a_csv_file_are_refused_before_all_of_them_are_in_memory(tmp_path):
    """To infer their types from all rows at once took 26 times the file, and only then they were counted."""
    (tmp_path / "short.csv").write_text("n\n" + "1\n" * 12_000_000)
    source = opened(f"{tmp_path}/short.csv", limits=Limits(max_bytes=6_000_001))

    def read():
        with pytest.raises(SourceTooLargeError, match=r"96,000,000 bytes or more .12,000,000 rows., the limit is 6,"):
            source.rows((Column("n", FieldType.INTEGER),))

    assert growth_kib(read) < 100_000
    assert source.columns()[0].type is FieldType.INTEGER
    with pytest.raises(SourceTooLargeError, match="the file has 24,000,002 bytes"):
        opened(f"{tmp_path}/short.csv", limits=Limits(max_bytes=2_000_000)).columns()


@pytest.mark.parametrize("limit", [9 * 8 - 1, 9 * 8, 10**6])
def test_rows_of_a_csv_file_are_counted_as_they_are_kept(tmp_path, limit):
    pl.DataFrame({"n": range(10), "t": ["x" * place for place in range(10)]}).write_csv(tmp_path / "a.csv")
    source = opened(f"{tmp_path}/a.csv", limits=Limits(max_bytes=limit))
    condition = (Comparison("n", ">", (0,)),)
    if limit < 9 * 8:
        with pytest.raises(SourceTooLargeError, match=r"72 bytes or more \(9 rows\), the limit is 71"):
            source.rows((Column("n", FieldType.INTEGER),), condition)
    else:
        assert source.rows((Column("n", FieldType.INTEGER),), condition).height == 9


@pytest.mark.parametrize("letters", [LONGEST_TEXT, LONGEST_TEXT + 1])
def test_a_text_that_is_longer_than_any_is_refused_before_it_is_in_memory(tmp_path, letters):
    """A value of SQLite has up to 1 GB, and was in memory several times before any limit was looked at."""
    with closing(sqlite3.connect(tmp_path / "long.db")) as database:
        database.execute("CREATE TABLE incidents (note TEXT, photo BLOB, lane INTEGER)")
        database.execute(
            "INSERT INTO incidents VALUES (printf('%.*c', ?, 'x'), zeroblob(?), 3)", (letters, 2 * LONGEST_TEXT)
        )
        database.commit()
    source = opened(f"sqlite:///{tmp_path}/long.db")
    # What is not asked for may be as long as it likes.
    assert source.rows((Column("lane", FieldType.INTEGER),))["lane"].to_list() == [3]
    if letters <= LONGEST_TEXT:
        assert source.rows((Column("note", FieldType.TEXT),))["note"].str.len_chars().to_list() == [letters]
        return
    with pytest.raises(SourceTooLargeError, match="a value that is longer than 16,777,216 characters") as caught:
        source.rows((Column("note", FieldType.TEXT),))
    assert "substr" in caught.value.hint


def test_what_sqlite_computes_is_refused_before_it_is_in_memory(tmp_path):
    with closing(sqlite3.connect(tmp_path / "long.db")) as database:
        database.execute("CREATE VIEW incidents AS SELECT replace(hex(zeroblob(150000000)), '00', 'x') AS note")
    source = opened(f"sqlite:///{tmp_path}/long.db")

    def read():
        with pytest.raises(SourceTooLargeError, match="a value that is longer"):
            source.rows((Column("note", FieldType.TEXT),))

    assert growth_kib(read) < 100_000


def test_batches_end_with_their_rows_or_their_letters():
    rows = [(None, 3, "x" * (BATCH_LETTERS // 4)) for _ in range(10)]
    assert [len(batch) for batch in batches(iter(rows))] == [4, 4, 2]
    short = [(place, "a") for place in range(BATCH_ROWS + 1)]
    assert [len(batch) for batch in batches(iter(short))] == [BATCH_ROWS, 1]
    assert [row for batch in batches(iter(short)) for row in batch] == short
    assert list(batches(iter([]))) == []


@pytest.mark.parametrize(
    "address", ["sqlite:///{0}/no.db", "{0}/no.csv", "csv:{0}/no.txt", "parquet:{0}/no.parquet", "delta:{0}/no"]
)
def test_what_is_not_there_is_away(tmp_path, address):
    source = opened(address.format(tmp_path))
    with pytest.raises(SourceAwayError):
        source.columns()
    with pytest.raises(SourceAwayError):
        source.rows(INCIDENTS)


def test_row_counts_come_from_statistics(tmp_path):
    assert {kind: make(kind, tmp_path).estimate() for kind in KINDS} == {
        "sqlite": 4, "csv": None, "parquet": 4, "delta": 4,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("address", "more", "reason", "offending"),
    [
        ("mysql://h/db", "", "no such source", "'mysql://h/db'"),
        ("incidents", "", "no such source", "'incidents'"),
        ("catalog:streams", "", "no catalog 'streams'", "'catalog:streams'"),
        ("sqlite:", "", "name of a file is missing", "'sqlite:'"),
        ("a.csv", "TABLE x", "only a database has tables", "x"),
        ("a.csv", "QUERY 'SELECT 1'", "only a database", "'SELECT 1'"),
    ],
)
def test_a_bad_address_is_underlined(address, more, reason, offending):
    with pytest.raises(FjordSqlError, match=reason) as caught:
        opened(address, more=more)
    assert caught.value.offending == offending


# SQLite


@pytest.fixture
def roads(tmp_path):
    write_sqlite(tmp_path / "roads.db")
    return tmp_path / "roads.db"


def test_sqlite_knows_the_types_of_what_a_query_computes(roads):
    query = "SELECT segment, lane * 2 AS twice, cost / 3 AS part, NULL AS never, count(*) OVER () AS n FROM incidents"
    source = opened(f"sqlite:{roads}", more=f"QUERY '{query} -- all;'")
    columns = all_columns(source.columns())
    assert [column.type.value for column in columns] == ["text", "integer", "real", "text", "integer"]
    assert source.rows(columns).row(0) == ("s1", 2, 12.5 / 3, None, 4)


def test_sqlite_serves_conditions_by_its_index(roads):
    source = opened(f"sqlite:{roads}")
    asked = []
    with source._opened() as database:
        database.set_trace_callback(asked.append)
    source.rows(INCIDENTS, (Comparison("segment", "=", ("s1",)),))
    with closing(sqlite3.connect(roads)) as database:
        plan = database.execute(
            f'EXPLAIN QUERY PLAN SELECT q.segment FROM {source._from} AS q WHERE q."segment" = ?', ["s1"]
        ).fetchall()
    assert "by_segment" in str(plan)


@pytest.mark.parametrize(
    ("value", "lane", "shown"),
    [("north", "INTEGER", "a text that is no integer"), (1.5, "INTEGER", "a real"), (b"\x00", "TEXT", "a blob")],
)
def test_a_value_that_is_not_of_its_columns_type_is_named(tmp_path, value, lane, shown):
    write_sqlite(tmp_path / "r.db", [("s1", value, None, None, None)], lane)
    source = opened(f"sqlite:{tmp_path}/r.db")
    type_ = FieldType.INTEGER if lane == "INTEGER" else FieldType.TEXT
    with pytest.raises(SourceSchemaError, match=f"column 'lane' holds {shown}") as caught:
        source.rows((Column("lane", type_),))
    assert caught.value.column == "lane"
    assert "north" not in str(caught.value)


def test_sqlite_is_never_written_to(roads):
    for text in ("SELECT 1 AS a) AS q; DROP TABLE incidents; --", "SELECT load_extension(''x'') AS a"):
        with pytest.raises(SourceSchemaError):
            opened(f"sqlite:{roads}", more=f"QUERY '{text}'").columns()
    with closing(sqlite3.connect(roads)) as database:
        assert database.execute("SELECT count(*) FROM incidents").fetchone() == (4,)


def test_a_query_that_takes_too_long_is_broken_off(roads):
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) AS i FROM n"
    source = opened(f"sqlite:{roads}", more=f"QUERY '{endless}'", limits=Limits(read_seconds=0.2))
    with pytest.raises(SourceAwayError, match=r"not read within 0\.2 seconds"):
        source.columns()


def test_no_table_of_this_name(roads):
    with pytest.raises(SourceSchemaError, match="no such table"):
        opened(f"sqlite:{roads}", more="TABLE nothing").columns()


# Files


def test_texts_of_a_csv_file_stay_as_written_where_they_are_declared(tmp_path):
    (tmp_path / "a.csv").write_text("code,since,empty\n007,2012-03-01,\n008,2012-03-02,\n")
    source = opened(f"{tmp_path}/a.csv")
    assert [column.type.value for column in all_columns(source.columns())] == ["integer", "integer", "text"]
    wanted = (Column("code", FieldType.TEXT), Column("since", FieldType.TEXT))
    assert source.rows(wanted).row(0) == ("007", "2012-03-01")


def test_a_file_with_broken_content_says_so(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"no parquet")
    (tmp_path / "a.csv").write_bytes(b"a,b\n1,2\n3,4,5,6\n")
    for name in ("a.parquet", "a.csv"):
        with pytest.raises(SourceSchemaError, match="cannot be read"):
            opened(f"{tmp_path}/{name}").rows((Column("a", FieldType.INTEGER), Column("b", FieldType.INTEGER)))


def test_what_is_no_number_is_null(tmp_path):
    pl.DataFrame({"a": [1.0, float("nan"), float("inf")]}).write_parquet(tmp_path / "a.parquet")
    assert opened(f"{tmp_path}/a.parquet").rows((Column("a", FieldType.REAL),))["a"].to_list() == [1.0, None, None]


def test_types_that_are_none_of_fjords(tmp_path):
    odd = pl.DataFrame({"a": [1], "b": [[1]], "c": [b"x"], "big": pl.Series([2**63], dtype=pl.UInt64)})
    odd.write_parquet(tmp_path / "a.parquet")
    source = opened(f"{tmp_path}/a.parquet")
    with pytest.raises(SourceSchemaError, match=r"column 'b' is of type List\(Int64\)") as caught:
        all_columns(source.columns())
    assert "declare the columns you need" in caught.value.hint
    assert source.rows((Column("a", FieldType.INTEGER),)).rows() == [(1,)]
    with pytest.raises(SourceSchemaError, match="conversion"):
        source.rows((Column("big", FieldType.INTEGER),))


def test_names_no_query_could_use(tmp_path):
    for name in ("two words", "fjord_a", "a-b"):
        pl.DataFrame({name: [1]}).write_csv(tmp_path / "a.csv")
        with pytest.raises(SourceSchemaError, match="no query could use"):
            all_columns(opened(f"{tmp_path}/a.csv").columns())
    pl.DataFrame({"a": [1], "A": [2]}).write_csv(tmp_path / "a.csv")
    with pytest.raises(SourceSchemaError, match="two columns"):
        all_columns(opened(f"{tmp_path}/a.csv").columns())


def test_zones_and_units_of_time_become_microseconds(tmp_path):
    instant = pl.Series([0]).cast(pl.Datetime("us"))
    pl.DataFrame(
        {
            "ns": instant.cast(pl.Datetime("ns")),
            "zoned": instant.dt.replace_time_zone("UTC").dt.convert_time_zone("America/Los_Angeles"),
            "day": pl.Series([1]).cast(pl.Int32).cast(pl.Date),
        }
    ).write_parquet(tmp_path / "a.parquet")
    source = opened(f"{tmp_path}/a.parquet")
    assert source.rows(all_columns(source.columns())).row(0) == (0, 0, 86_400_000_000)
