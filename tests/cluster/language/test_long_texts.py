"""Whatever is quoted in a message, it stays short."""

from __future__ import annotations

import msgspec
import pytest

from cluster.language import declarations, selects
from cluster.language.errors import LONGEST_MESSAGE, FjordSqlError
from cluster.language.scope import MOST_COLUMNS
from cluster.language.translation import CreateStream, SelectStatement, parse_statement, translate
from protocols.wire.streams import LONGEST_UNIT, MOST_FIELDS, StreamSchema
from tests.cluster.language.example_catalog import CATALOG, TRAFFIC

LONG = "x" * 90_000
COUNT_OF_PLACE = len(", at line 1, column 100000")


def _understand(text: str) -> None:
    if isinstance(parse_statement(text), SelectStatement):
        translate(text, CATALOG)


@pytest.mark.parametrize(
    "text",
    [
        f'SELECT "{LONG}" FROM traffic',
        f'SELECT "{"x x" * 30_000}" FROM traffic',
        f"SELECT {LONG}.lane FROM traffic",
        f"SELECT lane FROM {LONG}",
        f"SELECT lane AS {LONG} FROM traffic",
        f"SELECT {LONG}(lane) FROM traffic",
        f"SELECT CAST(lane AS {LONG}) FROM traffic",
        f"SELECT lane FROM traffic WINDOW(RANGE 5 {LONG})",
        f"SELECT lane FROM traffic WHERE lane = '{'1' * 90_000}'",
        f"CREATE STREAM {LONG} (lane REAL) SOURCE mqtt()",
        f"CREATE STREAM x ({LONG} REAL) SOURCE mqtt()",
        f"CREATE STREAM x (lane REAL) SOURCE mqtt() ORDERED BY {LONG}",
    ],
)
def test_a_message_quotes_long_texts_in_part(text):
    with pytest.raises(FjordSqlError) as caught:
        _understand(text)
    error = caught.value
    assert len(error.message) <= LONGEST_MESSAGE + len(" ... ") + COUNT_OF_PLACE
    assert len(error.hint or "") <= LONGEST_MESSAGE + len(" ... ")


def test_a_warning_quotes_long_texts_in_part():
    query = translate(f"SELECT lane FROM traffic WHERE {'+'.join(['lane'] * 1_900)} = NULL", CATALOG)
    assert [len(each) <= LONGEST_MESSAGE + len(" ... ") for each in query.warnings] == [True]


def test_what_a_stream_may_declare_fits_into_messages_about_it():
    columns = [f"{'c' * 60}{number} REAL UNIT '{'x' * LONGEST_UNIT}'" for number in range(MOST_FIELDS)]
    statement = parse_statement(f"CREATE STREAM x ({', '.join(columns)}, at TIMESTAMP) SOURCE mqtt() ORDERED BY at")
    assert isinstance(statement, CreateStream)
    schema = statement.stream.schema
    assert msgspec.json.decode(msgspec.json.encode(schema), type=StreamSchema) == schema
    with pytest.raises(FjordSqlError, match="at most 256 columns"):
        parse_statement(f"CREATE STREAM x ({', '.join(columns)}, more REAL) SOURCE mqtt()")


def test_a_stream_that_was_declared_before_is_taken_up_whatever_its_columns():
    statement = parse_statement('CREATE STREAM x ("a b" REAL) SOURCE mqtt()', registered=True)
    assert isinstance(statement, CreateStream)


def test_columns_of_a_relation_are_counted_before_they_are_compared(monkeypatch):
    compared = []
    monkeypatch.setattr(declarations, "_column", lambda column, *_: compared.append(column))
    columns = ", ".join(f"c{number} REAL" for number in range(7_000))
    with pytest.raises(FjordSqlError, match="at most 256 columns"):
        parse_statement(f"CREATE RELATION x ({columns}) FROM 'x.csv' REFRESH EVERY 1 HOUR")
    assert compared == []


def test_stars_are_bounded_before_they_are_expanded(monkeypatch):
    made = []
    star = selects._star
    monkeypatch.setattr(selects, "_star", lambda column, at: made.append(1) or star(column, at))
    text = f"SELECT {', '.join('*' * 900)} FROM traffic"
    with pytest.raises(FjordSqlError, match=r"\* stands for more than 4,096 columns"):
        translate(text, CATALOG)
    assert MOST_COLUMNS - len(TRAFFIC.fields) < len(made) <= MOST_COLUMNS
    translate(text, CATALOG, registered=True)
    assert len(made) > MOST_COLUMNS
