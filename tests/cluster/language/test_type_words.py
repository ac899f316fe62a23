"""The words for types: the same in CAST and in declarations; what promises other values than it keeps is none."""

from __future__ import annotations

import pytest

from cluster.language.errors import FjordSqlError
from cluster.language.translation import CreateRelation, CreateStream, parse_statement, translate, translate_derived
from cluster.language.typing_rules import COLUMN_TYPES, hint_for
from protocols.wire.streams import FieldType
from tests.cluster.language.example_catalog import CATALOG

WORDS = {
    FieldType.BOOLEAN: ("BOOLEAN", "BOOL"),
    FieldType.INTEGER: ("INTEGER", "INT", "BIGINT"),
    FieldType.REAL: ("REAL", "FLOAT", "DOUBLE", "DOUBLE PRECISION", "double  precision"),
    FieldType.TEXT: ("TEXT", "STRING", "VARCHAR", "varchar"),
}
NO_LONGER = ("SMALLINT", "INT64", "LONG", "FLOAT8", "CHAR", "STR", "CLOB", "LONGVARCHAR")
EVERY = [(word, kind) for kind, words in WORDS.items() for word in words]
STREAM = "CREATE STREAM x (a {}) SOURCE mqtt()"
RELATION = "CREATE RELATION x (a {}) FROM 'x.csv' REFRESH EVERY 1 MINUTE"


def test_the_table_of_type_words_is_complete():
    words = {" ".join(word.upper().split()) for word, _ in EVERY}
    assert set(COLUMN_TYPES) == words | {"TIMESTAMP"}


@pytest.mark.parametrize(("word", "kind"), EVERY)
def test_each_type_word_means_the_same_in_streams_relations_and_cast(word, kind):
    stream, relation = parse_statement(STREAM.format(word)), parse_statement(RELATION.format(word))
    assert isinstance(stream, CreateStream)
    assert isinstance(relation, CreateRelation)
    assert [stream.stream.schema.fields[0].type, relation.columns[0].type] == [kind, kind]
    canonical = translate(f"SELECT CAST(lane AS {kind.value}) AS x FROM traffic", CATALOG).node
    assert translate(f"SELECT CAST(lane AS {word}) AS x FROM traffic", CATALOG).node == canonical
    assert translate(f"SELECT lane::{word} AS x FROM traffic", CATALOG).node == canonical


@pytest.mark.parametrize("word", NO_LONGER)
def test_what_was_registered_goes_on_with_a_warning(word):
    text = f"SELECT CAST(lane AS {word}) AS x FROM traffic"
    with pytest.raises(FjordSqlError, match=f"{word} is no type"):
        translate(text, CATALOG)
    (warning,) = translate(text, CATALOG, registered=True).warnings
    assert warning.startswith(f"{word} is no type of FjordSQL any more: ")
    assert translate_derived(f"CREATE STREAM old AS {text}", CATALOG, registered=True).warnings == (warning,)


def test_registered_declarations_go_on():
    for text in (STREAM, RELATION):
        with pytest.raises(FjordSqlError, match="there is no type 'SMALLINT'"):
            parse_statement(text.format("SMALLINT"))
    stream = parse_statement(STREAM.format("SMALLINT"), registered=True)
    relation = parse_statement(RELATION.format("SMALLINT"), registered=True)
    assert isinstance(stream, CreateStream)
    assert isinstance(relation, CreateRelation)
    assert [stream.stream.schema.fields[0].type, relation.columns[0].type] == [FieldType.INTEGER] * 2


@pytest.mark.parametrize(("word", "hint"), [
    *((word, "write INTEGER") for word in ("SMALLINT", "TINYINT", "LONG", "BYTE", "INT1", "INT8", "INT64", "INT128")),
    *((word, "write REAL") for word in ("FLOAT4", "FLOAT8", "FLOAT32", "FLOAT64", "DECIMAL", "NUMERIC(10, 2)")),
    *((word, "write TEXT") for word in ("CHAR", "NVARCHAR", "VARCHAR(10)", "CLOB", "STR", "CHARACTER VARYING")),
])  # fmt: skip
def test_what_is_meant_by_words_of_others(word, hint):
    assert hint in (hint_for(word) or "")
    assert hint in (hint_for(word.lower()) or "")


def test_other_words_get_no_suggestion():
    assert hint_for("POINT") is None
    assert hint_for("BLOB") is None
