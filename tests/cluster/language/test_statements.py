"""CREATE STREAM, DROP STREAM and the catalog they change."""

from __future__ import annotations

import pytest

from cluster.language.catalog import BaseStream, Catalog, CatalogError
from cluster.language.errors import FjordSqlError
from cluster.language.translation import (
    CreateDerivedStream,
    CreateStream,
    DropStream,
    SelectStatement,
    parse_statement,
    translate,
    translate_derived,
)
from cluster.operators import Source
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.language.example_catalog import CATALOG


def test_create_stream_with_units_and_a_stamp():
    text = (
        "CREATE STREAM OpenAuction (itemID INT, seller TEXT FIXED, price REAL UNIT 'EUR' FIXED, open BOOLEAN, "
        "listed TIMESTAMP, ts TIMESTAMP) SOURCE connect('port34100', 7, 0.5) ORDERED BY TS;"
    )
    fields = (
        Field("itemID", FieldType.INTEGER),
        Field("seller", FieldType.TEXT, fixed=True),
        Field("price", FieldType.REAL, "EUR", fixed=True),
        Field("open", FieldType.BOOLEAN),
        Field("listed", FieldType.INTEGER),
    )
    stream = BaseStream(StreamSchema("OpenAuction", fields), stamp="ts")
    assert parse_statement(text) == CreateStream(text, stream, "connect", ("port34100", 7, 0.5))


def test_create_stream_without_a_stamp_takes_the_clock():
    statement = parse_statement("CREATE STREAM s (a INT) SOURCE mqtt")
    assert isinstance(statement, CreateStream)
    assert (statement.name, statement.stream.stamp, statement.arguments) == ("s", None, ())


def test_the_name_of_a_stamp_means_the_stamp():
    statement = parse_statement("CREATE STREAM s (a INT, ts TIMESTAMP) SOURCE mqtt() ORDERED BY ts")
    assert isinstance(statement, CreateStream)
    catalog = Catalog.of([statement.stream])
    assert translate("SELECT ts FROM s", catalog).node == translate("SELECT STAMP() AS ts FROM s", catalog).node
    with pytest.raises(FjordSqlError, match="there is no column 'ts'"):
        translate("SELECT ts FROM (SELECT a FROM s) AS t", catalog)
    with pytest.raises(FjordSqlError, match="ts is neither grouped nor aggregated: a group has no stamp"):
        translate("SELECT ts, COUNT(*) AS n FROM s WINDOW(RANGE 1 HOUR)", catalog)


def test_create_derived_stream():
    text = "CREATE STREAM fast AS\n  SELECT sensor, speed FROM traffic WHERE speed > 60;"
    assert parse_statement(text) == CreateDerivedStream(
        text, "fast", "SELECT sensor, speed FROM traffic WHERE speed > 60"
    )


def test_a_derived_stream_means_its_query():
    catalog = CATALOG.with_stream(
        translate_derived("CREATE STREAM fast AS SELECT sensor, speed FROM traffic WHERE speed > 60", CATALOG)
    )
    named = translate("SELECT sensor FROM FAST WINDOW(RANGE 1 HOUR)", catalog)
    written = translate(
        "SELECT sensor FROM (SELECT sensor, speed FROM traffic WHERE speed > 60) WINDOW(RANGE 1 HOUR)", CATALOG
    )
    assert named.node == written.node
    assert named.reads == {"fast"}


def test_derived_stream_error_points_into_the_whole_statement():
    with pytest.raises(FjordSqlError) as caught:
        translate_derived("CREATE STREAM x AS\nSELECT speeed FROM traffic", CATALOG)
    assert (caught.value.line, caught.value.column) == (2, 8)


def test_drop_stream():
    assert parse_statement("DROP STREAM traffic") == DropStream("DROP STREAM traffic", "traffic")


def test_select_is_not_looked_up_yet():
    assert parse_statement("SELECT a FROM b") == SelectStatement("SELECT a FROM b")


@pytest.mark.parametrize("text", ["DROP STREAM traffic", "CREATE STREAM x AS SELECT lane FROM traffic"])
def test_a_declaration_is_no_query(text):
    with pytest.raises(FjordSqlError, match="a query was expected here"):
        translate(text, CATALOG)


def test_dropping_a_stream_in_use_is_refused():
    fast = translate_derived("CREATE STREAM fast AS SELECT sensor FROM traffic", CATALOG)
    catalog = CATALOG.with_stream(fast)
    with pytest.raises(CatalogError, match="in use by fast"):
        catalog.without("Traffic")
    with pytest.raises(CatalogError, match="in use by query_7"):
        catalog.without("fast", used_by=["query_7"])
    smaller = catalog.without("fast").without("traffic")
    assert smaller.find("traffic") is None
    assert CATALOG.find("TRAFFIC") is not None
    with pytest.raises(CatalogError, match="no stream 'traffic'"):
        smaller.without("traffic")


def test_names_in_a_catalog_have_no_case():
    with pytest.raises(CatalogError, match="already a stream 'TRAFFIC'"):
        CATALOG.with_stream(BaseStream(StreamSchema("TRAFFIC", (Field("a", FieldType.TEXT),))))


def test_source_of_a_query_is_the_stream_as_declared():
    node = translate("SELECT * FROM TRAFFIC", CATALOG).node
    assert isinstance(node, Source)
    assert node.stream == "traffic"


def test_a_query_says_when_its_rows_are_published() -> None:
    def early(text: str) -> bool | None:
        return translate(text, CATALOG).early

    assert early("SELECT lane FROM traffic EMIT EARLY") is True
    assert early("select lane from traffic emit final;") is False
    assert early("(SELECT lane FROM traffic) EMIT EARLY") is True
    assert early("SELECT lane FROM traffic") is None
    assert early("SELECT lane FROM traffic UNION SELECT lane FROM traffic LIFETIME 90 DAYS EMIT FINAL") is False
    assert early("SELECT emit early FROM (SELECT lane AS emit FROM traffic)") is None
    plain = translate("SELECT lane FROM traffic", CATALOG)
    assert translate("SELECT lane FROM traffic EMIT EARLY", CATALOG).node == plain.node
