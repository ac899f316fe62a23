"""CREATE RELATION and DROP RELATION."""

from __future__ import annotations

import pytest

from cluster.language.catalog import Catalog, CatalogError, StaticRelation
from cluster.language.comparisons import Comparison
from cluster.language.declarations import CreateRelation, DropRelation
from cluster.language.errors import FjordSqlError, masked, masked_span
from cluster.language.translation import parse_statement, translate
from cluster.operators.columns import Column
from protocols.wire.streams import FieldType
from tests.cluster.language.example_catalog import CATALOG

COLUMNS = (
    Column("kind", FieldType.TEXT),
    Column("lanes", FieldType.INTEGER),
    Column("cost", FieldType.REAL),
    Column("open", FieldType.BOOLEAN),
)
ENDING = "REFRESH EVERY 30 SECONDS"
ADDRESS = "postgresql://anna:s3cr%40et@db.example/roads"


def created(text: str) -> CreateRelation:
    statement = parse_statement(text)
    assert isinstance(statement, CreateRelation)
    return statement


def test_create_relation_with_every_clause():
    statement = created(
        "CREATE RELATION incidents (segment TEXT, cost REAL UNIT 'EUR', since TIMESTAMP, open BOOLEAN)\n"
        "FROM 'postgresql://anna@db/roads' QUERY 'SELECT * FROM incidents WHERE kind = ''crash'''\n"
        "REFRESH EVERY 30 SECONDS STALE AFTER 5 MINUTES;"
    )
    assert (statement.name, statement.source) == ("incidents", "postgresql://anna@db/roads")
    assert statement.columns == (
        Column("segment", FieldType.TEXT),
        Column("cost", FieldType.REAL, "EUR"),
        Column("since", FieldType.INTEGER),
        Column("open", FieldType.BOOLEAN),
    )
    assert (statement.query, statement.table) == ("SELECT * FROM incidents WHERE kind = 'crash'", None)
    assert (statement.refresh_us, statement.stale_us) == (30_000_000, 300_000_000)


def test_create_relation_with_no_more_than_it_needs():
    statement = created(f"CREATE RELATION roads FROM 'roads.csv' {ENDING}")
    assert (statement.columns, statement.query, statement.table, statement.stale_us) == ((), None, None, None)


@pytest.mark.parametrize(("words", "parts"), [("a", ("a",)), ('public."Old Ones"', ("public", "Old Ones"))])
def test_a_table_may_have_a_schema(words, parts):
    assert created(f"CREATE RELATION a FROM 'sqlite:///x.db' TABLE {words} {ENDING}").table == parts


@pytest.mark.parametrize(
    ("where", "meant"),
    [
        ("kind = 'crash'", [Comparison("kind", "=", ("crash",))]),
        ("2 <= Lanes", [Comparison("lanes", ">=", (2,))]),
        ("cost > -1.5 AND (lanes < 4)", [Comparison("cost", ">", (-1.5,)), Comparison("lanes", "<", (4,))]),
        ("lanes BETWEEN 2 AND 3", [Comparison("lanes", ">=", (2,)), Comparison("lanes", "<=", (3,))]),
        ("kind IN ('crash', 'jam')", [Comparison("kind", "in", ("crash", "jam"))]),
        ("kind IS NULL", [Comparison("kind", "is null")]),
        ("cost IS NOT NULL AND lanes < 2.5", [Comparison("cost", "is not null"), Comparison("lanes", "<", (2.5,))]),
        ("open", [Comparison("open", "=", (True,))]),
        ("NOT open AND open = TRUE", [Comparison("open", "=", (False,)), Comparison("open", "=", (True,))]),
    ],
)
def test_conditions_of_a_relation_become_comparisons(where, meant):
    for place in ("", "QUERY 'SELECT 1' ", "TABLE b "):
        statement = created(f"CREATE RELATION a FROM 'sqlite:///x.db' {place}WHERE {where} {ENDING}")
        assert list(statement.condition_on(COLUMNS)) == meant


@pytest.mark.parametrize(
    ("where", "offending", "reason"),
    [
        ("kind LIKE 'c%'", "kind LIKE 'c%'", "compares columns with values"),
        ("kind = 'a' OR kind = 'b'", "kind = 'a' OR kind = 'b'", "compares columns with values"),
        ("kind <> 'a'", "kind <> 'a'", "compares columns with values"),
        ("lanes = cost", "lanes = cost", "compares columns with values"),
        ("lanes + 1 = 2", "lanes + 1 = 2", "compares columns with values"),
        ("kind IN (SELECT 1)", "kind IN (SELECT 1)", "compares columns with values"),
        ("r.lanes = 2", "r.lanes = 2", "compares columns with values"),
        ("lanes BETWEEN 1 AND cost", "lanes BETWEEN 1 AND cost", "compares columns with values"),
        ("lane = 2", "lane", "no column 'lane'"),
        ("kind = 2", "kind", "'kind' is text and compared with texts"),
        ("lanes IN (1, 'two')", "lanes", "'lanes' is integer and compared with numbers"),
        ("open = 1", "open", "'open' is boolean and compared with TRUE and FALSE"),
        ("open > FALSE", "open", "has no order"),
        ("cost", "cost", "'cost' is real and compared with numbers"),
    ],
)
def test_what_no_source_could_decide_is_refused(where, offending, reason):
    with pytest.raises(FjordSqlError, match=reason) as caught:
        created(f"CREATE RELATION a FROM 'b' WHERE {where} {ENDING}").condition_on(COLUMNS)
    assert caught.value.offending == offending


def test_drop_relation_names_the_relation():
    assert parse_statement("DROP RELATION incidents") == DropRelation("DROP RELATION incidents", "incidents")


@pytest.mark.parametrize(
    ("text", "offending", "reason", "hint"),
    [
        (f"CREATE RELATION 'a' FROM 'b' {ENDING}", "'a'", "the name of a relation", None),
        (f"CREATE RELATION \"a b\" FROM 'b' {ENDING}", '"a b"', "no name for a relation", "letters"),
        (f"CREATE RELATION a (b TEXTT) FROM 'b' {ENDING}", "TEXTT", "no type 'TEXTT'", "text"),
        (f"CREATE RELATION a (b TEXT FIXED) FROM 'b' {ENDING}", "b", "FIXED", "no sensor"),
        (f"CREATE RELATION a (b TEXT, B REAL) FROM 'b' {ENDING}", "B", "two columns", None),
        (f"CREATE RELATION a (fjord_b TEXT) FROM 'b' {ENDING}", "fjord_b", "Fjord's own", None),
        (f"CREATE RELATION a (b TEXT FROM 'b' {ENDING}", "FROM", "closing parenthesis", "UNIT"),
        (f"CREATE RELATION a FROM b {ENDING}", "b", "in quotes", "postgresql://"),
        (f"CREATE RELATION a FROM 'b' QUERY x {ENDING}", "x", "in quotes", "SELECT"),
        (f"CREATE RELATION a FROM 'b' TABLE 'x' {ENDING}", "'x'", "name of a table", None),
        ("CREATE RELATION a FROM 'b'", "", "REFRESH was expected", "REFRESH EVERY"),
        ("CREATE RELATION a FROM 'b' REFRESH 30 SECONDS", "30", "EVERY was expected", "REFRESH EVERY"),
        ("CREATE RELATION a FROM 'b' REFRESH EVERY 30 FORTNIGHTS", "FORTNIGHTS", "no unit of time", None),
        ("CREATE RELATION a FROM 'b' REFRESH EVERY 30", "30", "needs a unit", "write 30 SECONDS"),
        ("CREATE RELATION a FROM 'b' REFRESH EVERY 10 MS", "10 MS", "1 SECOND at most", None),
        (f"CREATE RELATION a FROM 'b' {ENDING} STALE 5 MINUTES", "5", "AFTER was expected", "STALE AFTER"),
        (f"CREATE RELATION a FROM 'b' {ENDING} STALE AFTER 5 SECONDS", "5 SECONDS", "shorter than", "never stale"),
        ("DROP TABLE a", "TABLE", "STREAM was expected", "DROP RELATION"),
    ],
)
def test_errors_underline_their_place(text, offending, reason, hint):
    with pytest.raises(FjordSqlError, match=reason) as caught:
        parse_statement(text)
    assert caught.value.offending == offending
    assert hint is None or hint in str(caught.value.hint)


@pytest.mark.parametrize("text", [f"CREATE RELATION a FROM 'b' {ENDING}", "DROP RELATION a"])
def test_a_declaration_is_no_query(text):
    with pytest.raises(FjordSqlError, match="not a declaration") as caught:
        translate(text, CATALOG)
    assert "fjord relation create" in str(caught.value.hint)


def test_no_error_shows_a_password():
    text = f"CREATE RELATION a FROM '{ADDRESS}' REFRESH EVERY 30 FORTNIGHTS"
    with pytest.raises(FjordSqlError) as caught:
        parse_statement(text)
    assert caught.value.offending == "FORTNIGHTS"
    assert "s3cr" not in caught.value.underlined() + caught.value.text
    assert caught.value.underlined().splitlines()[1].index("^") == caught.value.underlined().index("FORTNIGHTS")
    statement = created(f"CREATE RELATION a FROM '{ADDRESS}' {ENDING}")
    assert "s3cr" not in repr(statement) + statement.shown + str(statement.error("no")) + statement.error("no").text
    assert statement.error("no").offending == "'postgresql://anna:***@db.example/roads'"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://anna@db/roads", "postgresql://anna@db/roads"),
        ("postgresql://anna:a:b@c@db:5432/roads", "postgresql://anna:***@db:5432/roads"),
        ("postgresql://db/roads?user=anna&password=x&a=b", "postgresql://db/roads?user=anna&password=***&a=b"),
        ("postgresql://:x@db", "postgresql://:***@db"),
        ("http://127.0.0.1:8642/v1", "http://127.0.0.1:8642/v1"),
        ("SELECT a FROM b", "SELECT a FROM b"),
    ],
)
def test_passwords_are_masked(text, shown):
    assert masked(text) == shown


@pytest.mark.parametrize(
    "part", ["a", "a-", "a:", "a://", "a://b:", "a://b:c@ ", "://", "@", "password ", "password= ", "password='"]
)
def test_masking_takes_no_longer_than_reading(part):
    """It once took 7 s for 20,000 letters without a space; for so many that would be half a day, and end the tests."""
    text = part * (2_000_000 // len(part))
    assert FjordSqlError(text, text=text, start=0, end=len(text), hint=text).message


@pytest.mark.parametrize("width", [1, 3, 9])
def test_what_is_underlined_stays_underlined(width):
    text = f"ab postgresql://u:{'x' * width}@h cd"
    shown, start, end = masked_span(text, text.index("cd"), len(text))
    assert shown[start:end] == "cd"
    shown, start, end = masked_span(text, 3, text.index(" cd"))
    assert shown[start:end] == "postgresql://u:***@h"


def test_streams_and_relations_share_their_names():
    relation = StaticRelation("roads", "roads@1", (Column("segment", FieldType.TEXT),))
    catalog = Catalog.of([relation])
    with pytest.raises(CatalogError, match="already a relation 'Roads'"):
        catalog.with_stream(StaticRelation("Roads", "Roads@2", relation.columns))
    with pytest.raises(CatalogError, match="relation 'roads' is in use by q1"):
        catalog.without("roads", used_by=["q1"])
    assert catalog.without("roads").names == ()
