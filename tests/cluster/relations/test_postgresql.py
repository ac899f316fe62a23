"""PostgreSQL, asked for real."""

from __future__ import annotations

import json
import time

import pytest

from cluster.language.comparisons import Comparison
from cluster.operators.columns import Column
from cluster.relations.allowed_hosts import AllowedHosts
from cluster.relations.fitting import all_columns
from cluster.relations.opening import Reach
from cluster.relations.source import LONGEST_TEXT, Limits, SourceAwayError, SourceSchemaError, SourceTooLargeError
from protocols.wire.streams import FieldType
from tests.cluster.relations.source_cases import CONDITIONS, INCIDENTS, ROWS, meant, opened, same
from tests.peak_memory import growth_kib
from tests.postgres_server import PASSWORD, PASSWORD_WRITTEN, USER

pytestmark = pytest.mark.system

TABLE = "CREATE TABLE incidents (segment text, lane integer, cost numeric(10, 2), open boolean, since timestamptz)"


@pytest.fixture
def database(postgres):
    name = postgres.new_database()
    rows = ", ".join(
        f"({'NULL' if s is None else repr(s)}, {'NULL' if lane is None else lane}, {'NULL' if c is None else c}, "
        f"{'NULL' if o is None else o}, {'NULL' if at is None else f'to_timestamp({at / 1e6!r})'})"
        for s, lane, c, o, at in ROWS
    )
    postgres.execute(TABLE, f"INSERT INTO incidents VALUES {rows}", database=name)
    return postgres.url(name)


def test_columns_and_rows_of_a_table_are_read(database):
    source = opened(database)
    assert all_columns(source.columns()) == INCIDENTS
    assert same(source.rows(INCIDENTS), ROWS)


@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
def test_conditions_choose_rows(database, condition):
    assert same(opened(database).rows(INCIDENTS, condition), meant(condition))


def test_every_type_becomes_one_of_fjords(postgres):
    name = postgres.new_database()
    postgres.execute(
        "CREATE TYPE mood AS ENUM ('calm', 'busy')",
        "CREATE TABLE incidents (a smallint, b bigint, c real, d double precision, e numeric, f uuid, g mood, "
        "h jsonb, i date, j timestamp, k timestamptz, l interval, m integer[], n varchar(5), o char(3))",
        "INSERT INTO incidents VALUES (1, 2, 1.5, 'NaN', 'Infinity', '00000000-0000-0000-0000-000000000001', 'busy', "
        """'{"x": 1}', '1970-01-02', '1970-01-01 00:00:01', '1970-01-01 01:00:00+01', '1 day', '{1,2}', 'ab', 'c')""",
        "INSERT INTO incidents (i, k) VALUES ('infinity', '-infinity')",
        database=name,
    )
    source = opened(postgres.url(name))
    columns = all_columns(source.columns())
    assert "".join(column.type.value[0] for column in columns) == "iirrrtttiiitttt"
    first, second = source.rows(columns).rows()
    assert first == (
        1, 2, 1.5, None, None, "00000000-0000-0000-0000-000000000001", "busy", '{"x": 1}', 86_400_000_000, 1_000_000, 0,
        "1 day", "{1,2}", "ab", "c",
    )  # fmt: skip
    assert set(second) == {None}


def test_what_no_text_can_hold_is_refused_unless_left_out(postgres):
    name = postgres.new_database()
    postgres.execute("CREATE TABLE incidents (a int, photo bytea)", database=name)
    source = opened(postgres.url(name))
    with pytest.raises(SourceSchemaError, match="column 'photo' is of type bytea"):
        all_columns(source.columns())
    assert source.rows((Column("a", FieldType.INTEGER),)).height == 0


def test_indexes_serve_conditions(postgres):
    name = postgres.new_database()
    postgres.execute(
        TABLE, "INSERT INTO incidents SELECT 's' || i, i, i, true, to_timestamp(i) FROM generate_series(1, 20000) AS i",
        "CREATE INDEX by_segment ON incidents (segment)", "CREATE INDEX by_since ON incidents (since)",
        "CREATE INDEX by_cost ON incidents (cost)", "CREATE INDEX by_lane ON incidents (lane)", "ANALYZE incidents",
        database=name,
    )  # fmt: skip
    source = opened(postgres.url(name))
    assert source.estimate() == 20_000
    for column, value, index in (
        ("segment", "s7", "by_segment"),
        ("since", 7_000_000, "by_since"),
        ("cost", 7.0, "by_cost"),
        ("lane", 7, "by_lane"),
    ):
        before = scans(postgres, name, index)
        assert source.rows(INCIDENTS, (Comparison(column, "=", (value,)),)).height == 1
        assert scans(postgres, name, index) > before, column


def scans(postgres, name, index):
    """How often an index has served; a server tells when the session that used it is over."""
    for _ in range(1_500):
        if postgres.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fjord'") == [(0,)]:
            break
        time.sleep(0.02)
    return postgres.execute(f"SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = '{index}'", database=name)[
        0
    ][0]


def test_queries_tables_of_schemas_and_estimates(postgres):
    name = postgres.new_database()
    postgres.execute(
        'CREATE SCHEMA "Old One"', 'CREATE TABLE "Old One"."Lanes" (lane int)',
        'INSERT INTO "Old One"."Lanes" VALUES (1), (2)', database=name,
    )  # fmt: skip
    table = opened(postgres.url(name), more='TABLE "Old One"."Lanes"')
    assert table.rows((Column("lane", FieldType.INTEGER),))["lane"].to_list() == [1, 2]
    query = opened(
        postgres.url(name), more='QUERY \'SELECT lane, 100 % 7 AS rest FROM "Old One"."Lanes" WHERE lane > 1 -- x;\''
    )
    assert query.rows(all_columns(query.columns())).rows() == [(2, 2)]
    assert query.estimate() >= 1


def test_nothing_is_ever_written(postgres, database):
    for text in (
        "SELECT 1 AS a) AS q; COMMIT; DROP TABLE incidents; --",
        "WITH gone AS (DELETE FROM incidents RETURNING segment) SELECT segment FROM gone",
        "SELECT nextval(''pg_toast_seq'') AS a",
    ):
        with pytest.raises(SourceSchemaError):
            opened(database, more=f"QUERY '{text}'").rows((Column("a", FieldType.INTEGER),))
    source = opened(database, more="QUERY 'SELECT set_config(''transaction_read_only'', ''on'', false) AS a'")
    assert source.rows((Column("a", FieldType.TEXT),))["a"].to_list() == ["on"]
    assert same(opened(database).rows(INCIDENTS), ROWS)


def test_what_takes_too_long_is_broken_off(database):
    source = opened(database, more="QUERY 'SELECT pg_sleep(30)::text AS a'", limits=Limits(read_seconds=0.3))
    with pytest.raises(SourceAwayError, match="statement timeout"):
        source.rows((Column("a", FieldType.TEXT),))


def test_a_result_that_is_too_large_is_broken_off_with_figures(database):
    source = opened(
        database, more="QUERY 'SELECT i FROM generate_series(1, 1000000) AS i'", limits=Limits(max_bytes=1_000_000)
    )
    with pytest.raises(SourceTooLargeError, match="the limit is 1,000,000 bytes"):
        source.rows((Column("i", FieldType.INTEGER),))


def test_long_texts_are_refused_before_many_of_them_are_in_memory(database):
    """The rows that a cursor fetches together are together in memory: 20,000 of them, once."""
    more = "QUERY 'SELECT repeat(i::text, 1000000) AS note FROM generate_series(1, 400) AS i'"
    source = opened(database, more=more, limits=Limits(max_bytes=60_000_000))

    def read():
        with pytest.raises(SourceTooLargeError, match="the limit is 60,000,000 bytes"):
            source.rows((Column("note", FieldType.TEXT),))

    assert growth_kib(read) < 250_000


@pytest.mark.parametrize("letters", [LONGEST_TEXT, LONGEST_TEXT + 1, 200_000_000])
def test_a_text_that_is_longer_than_any_is_refused_and_not_sent(database, letters):
    source = opened(database, more=f"QUERY 'SELECT repeat(''x'', {letters}) AS note, 3 AS lane'")
    assert source.rows((Column("lane", FieldType.INTEGER),))["lane"].to_list() == [3]
    if letters <= LONGEST_TEXT:
        assert source.rows((Column("note", FieldType.TEXT),))["note"].str.len_chars().to_list() == [letters]
        return

    def read():
        with pytest.raises(SourceTooLargeError, match="a value that is longer than 16,777,216 characters"):
            source.rows((Column("note", FieldType.TEXT),))

    assert growth_kib(read) < 120_000


@pytest.mark.parametrize(
    "change",
    [
        lambda url: url.replace(PASSWORD_WRITTEN, "wr%6Fng"),
        lambda url: url.replace("127.0.0.1", "no-such-host.invalid"),
        lambda url: url.replace(PASSWORD_WRITTEN, "bad%zzescape"),
        lambda url: url.rsplit("/", 1)[0] + "/nowhere",
        lambda url: (
            url.replace(f":{PASSWORD_WRITTEN}", "").replace("/test", "/test") + f"?password={PASSWORD_WRITTEN}x"
        ),
    ],
    ids=["password", "host", "escape", "database", "option"],
)
def test_no_error_shows_a_password(database, change):
    source = opened(change(database), limits=Limits(connect_seconds=3))
    with pytest.raises((SourceAwayError, SourceSchemaError)) as caught:
        source.columns()
    shown = json.dumps([str(caught.value), source.shown, repr(caught.value)])
    for secret in (PASSWORD, PASSWORD_WRITTEN, "wrong", "wr%6Fng", "zzescape"):
        assert secret not in shown
    assert caught.value.__cause__ is None


def test_a_password_comes_from_the_file_of_credentials_and_not_from_the_process(
    postgres, database, tmp_path, monkeypatch
):
    address = postgres.url(database.rsplit("/", 1)[1], password=None)
    credentials = tmp_path / "credentials"
    credentials.write_text(f"127.0.0.1:{postgres.port}:*:{USER}:{PASSWORD}\n")
    credentials.chmod(0o600)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    monkeypatch.setenv("PGPASSFILE", str(credentials))
    with pytest.raises(SourceAwayError, match="no password supplied"):
        opened(address).rows(INCIDENTS)
    reach = Reach(hosts=AllowedHosts(credentials=credentials))
    assert same(opened(address, reach=reach).rows(INCIDENTS), ROWS)


def test_an_address_may_leave_out_host_and_port_but_the_environment_gives_no_password(postgres, database, monkeypatch):
    monkeypatch.setenv("PGHOST", "127.0.0.1")
    monkeypatch.setenv("PGPORT", str(postgres.port))
    name = database.rsplit("/", 1)[1]
    assert same(opened(f"postgresql://{USER}:{PASSWORD_WRITTEN}@/{name}").rows(INCIDENTS), ROWS)


@pytest.mark.parametrize(
    "expression",
    [
        "segment::integer",
        "segment::regclass::text",
        "(segment || ''x'')::numeric",
        "segment::timestamp",
        "1 / (lane - lane)",
    ],
)
def test_no_error_quotes_a_value_of_a_row(postgres, expression):
    name = postgres.new_database()
    postgres.execute(TABLE, "INSERT INTO incidents VALUES ('hunter2', 1)", database=name)
    source = opened(postgres.url(name), more=f"QUERY 'SELECT {expression} AS a FROM incidents'")
    with pytest.raises(SourceSchemaError, match=r"the database failed on a value: \w+ \(\w{5}\)") as caught:
        source.rows((Column("a", FieldType.TEXT),))
    assert "hunter2" not in str(caught.value)


def test_errors_about_a_statement_are_passed_on(database):
    for more, words in (
        ("QUERY 'SELECT nothing FROM incidents'", 'column "nothing" does not exist'),
        ("TABLE nothing", 'relation "nothing" does not exist'),
        ("QUERY 'SELECT FROM FROM'", "syntax error"),
    ):
        with pytest.raises(SourceSchemaError, match=words):
            opened(database, more=more).columns()


def test_a_server_that_is_down_is_away(database):
    source = opened(database.replace(":" + database.split(":")[3].split("/")[0] + "/", ":1/"))
    with pytest.raises(SourceAwayError, match="refused"):
        source.columns()
