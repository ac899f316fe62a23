"""A comment is a space: it may stand wherever one may, and changes neither meaning nor places."""

from __future__ import annotations

import pytest

from cluster.language.dialect import FjordSQL
from cluster.language.errors import FjordSqlError
from cluster.language.statement_texts import without_comments
from cluster.language.translation import parse_statement, translate, translate_derived
from cluster.operators import Source
from tests.cluster.language.example_catalog import CATALOG as STREAMS
from tests.cluster.language.test_damaged_statements import meaning
from tests.cluster.language.valid_statements import STATEMENTS

COMMENTS = ('/* it\'s "x" -- ; */', " -- /* it's ; \n", "/* a /* b */ c */", "/* sqlglot.anonymous */")


@pytest.mark.parametrize("comment", COMMENTS)
def test_comments_may_stand_between_all_words(comment):
    for statement in STATEMENTS:
        places = sorted({end for token in FjordSQL().tokenize(statement) for end in (token.start, token.end + 1)})
        parts = [statement[start:end] for start, end in zip([0, *places], [*places, len(statement)], strict=True)]
        assert meaning(comment.join((*parts, ""))) == meaning(statement)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT lane, COUNT(*) AS n FROM traffic WINDOW(RANGE 1 HOUR) GROUP{}BY lane",
        "SELECT lane FROM traffic WINDOW(PARTITION{}BY sensor ROWS 3)",
        "SELECT CAST(lane AS DOUBLE{}PRECISION) AS x FROM traffic",
        "SELECT lane FROM traffic;{}",
        "{}SELECT lane FROM traffic",
    ],
)
def test_comments_may_stand_within_keywords_of_two_words(text):
    expected = translate(text.format(" "), STREAMS).node
    assert {translate(text.format(comment), STREAMS).node for comment in COMMENTS} == {expected}


def test_what_looks_like_a_comment_in_quotes_is_text():
    text = "SELECT 'a -- b' AS x, 'it''s /* c' AS y FROM traffic WHERE sensor = '*/' -- 'd"
    assert without_comments(text) == text[: -len("-- 'd")] + " " * len("-- 'd")
    outputs = translate(text, STREAMS).node.outputs
    assert [each.scalar.sql for each in outputs] == ["'a -- b'", "'it''s /* c'"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT /* lne */ »lne« FROM traffic", "there is no column 'lne'"),
        ("SELECT lane -- a\n FROM /* b */ »trafic«", "there is no stream 'trafic'"),
        ("SELECT lane FROM traffic »ORDER /* a */ BY« lane", "ORDER BY needs LIMIT"),
        ("SELECT /* lane REPLACE */ t.* REPLACE (»1 AS lane«) FROM traffic t", "* REPLACE is not part"),
        ("WITH a AS /* MATERIALIZED */ »MATERIALIZED« (SELECT lane FROM traffic) SELECT lane FROM a", "MATERIALIZED"),
        ("/* SELECT */ »SELECT« FROM traffic", "nothing is selected"),
        ("SELECT lane FROM traffic »/* a /* b */«", "a comment is opened here and never closed"),
        ("SELECT lane FROM traffic »{«# a #}", "'{' was not expected here"),
    ],
)
def test_errors_beside_comments_have_their_places(text, reason):
    before, offending, after = text.replace("«", "»").split("»")
    with pytest.raises(FjordSqlError) as caught:
        translate(f"{before}{offending}{after}", STREAMS)
    assert reason in caught.value.reason
    assert (caught.value.start, caught.value.offending) == (len(before), offending)
    assert caught.value.text == f"{before}{offending}{after}"


def test_the_query_of_a_derived_stream_begins_behind_its_name():
    text = "CREATE STREAM /* ß AS */ fresh /* AS */ AS /* b */ SELECT sensor FROM traffic -- c\n; -- d"
    assert parse_statement(text).query == "/* b */ SELECT sensor FROM traffic"
    assert isinstance(translate_derived(text, STREAMS).node.input, Source)
