"""Delete or insert a token anywhere in a right statement: it is refused, means something else, or is a known synonym.

What is accepted with the same meaning and the same names is either a word that FjordSQL gives no meaning on purpose, or
one that was read and ignored. The sample is the same in every run; more of it runs with ``FJORD_DAMAGE=1.0`` (an hour).
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlglot import exp

from cluster.language.declarations import CreateRelation
from cluster.language.dialect import FjordSQL
from cluster.language.errors import FjordSqlError
from cluster.language.parsing import FjordSqlParser
from cluster.language.stream_item import ITEM_CLAUSES
from cluster.language.translation import (
    CreateDerivedStream,
    SelectStatement,
    parse_statement,
    translate,
    translate_derived,
)
from tests.cluster.language.valid_statements import CATALOG, STATEMENTS

SHARE = float(os.environ.get("FJORD_DAMAGE", "0.003"))
"""Of all insertions; deletions are few, and a hundred times as many of them are tried."""

KEYWORDS = sorted(
    word.upper()
    for word in FjordSQL.Tokenizer.KEYWORDS
    if not word.startswith(("{", "/*", "--", "%}")) and word.strip()
)
MORE = """
    ABOVE | AFTER | AGO | APART_US | AT | BEGINNING | BELOW | BY | DSTREAM | EVENTS | EVERY | FIXED
    HOURS | HZ | ISTREAM | LEAST | LIFETIME | MAX | MIN | MINUTES | MS | ORDERED | QUERY | RATE | REFRESH
    MATCH_RECOGNIZE | MEASURES | PATTERN | DEFINE | SKIP | PAST | AFTER MATCH SKIP TO NEXT ROW | ONE ROW PER MATCH
    EARLY | GAP | KEEP | KEEP 5 TUPLES | TUPLES | MONTH | QUARTERS | RESET | YEARS
    RSTREAM | SAMPLE | SECOND | SINCE | SLIDE | SLIDES | SOURCE | STALE | STREAM | TO | UNIT | WITHIN | ZIP
    ASOF JOIN | ASOF LEFT JOIN | MATCH_CONDITION (TRUE) | WITHIN 5 MINUTES | STAMP() | STAMP(t)
    zz | lane | traffic | t | 5 | 1.5 | 'x' | "q" | NULL | - | + | ( ) | [1] | { | } | ?
    x . | . x | , 5 | zz , | = 1 | AS zz | zz => | @5 | @ x | :x | $1 | ::TEXT | COLLATE x | IGNORE NULLS
    RESPECT NULLS | FILTER (WHERE TRUE) | OVER () | PRECEDING | STAMP | ORDER BY STAMP() | HYSTERESIS | CHANGED(lane)
    QUALIFY TRUE | CURRENT ROW | INTERVAL | ORDER BY 1 | WITHIN GROUP (ORDER BY 1) | MATERIALIZED
    NOT MATERIALIZED | RECURSIVE | TOTALS | STRICT | ASYMMETRIC | SYMMETRIC | NULLS FIRST | ONLY | BY NAME | INTO x
    CORRESPONDING | DEFAULT 1 ON CONVERSION ERROR | FORMAT 'x' | USING (x) | AT TIME ZONE 'x' | EXCEPT (lane)
    REPLACE (lane AS lane) | RENAME (lane AS x) | TABLESAMPLE (5) | FOR UPDATE | (+) | TOP 5 | HINT | AS STRUCT
    |> WHERE TRUE | AS VALUE | DIRECTED | GLOBAL | LATERAL | NATURAL | ASOF | LOCAL | WITH ORDINALITY | (x) | /*+ x */
    UNION ALL BY NAME SELECT lane FROM traffic | ( ) , | , ( ) | , ROLLUP(lane) | GROUPING(lane)
"""
OF_CLAUSES = [word for each in ITEM_CLAUSES for word in each.words]
INSERTED = [*KEYWORDS, *OF_CLAUSES, *(word.strip() for line in MORE.strip().split("\n") for word in line.split(" | "))]

SYNONYMS = {
    "deleted AS": "AS may be left out before a name",
    "inserted AS": "or put there",
    "inserted ALL": "SELECT ALL is SELECT, as in standard SQL",
    "inserted DISTINCT": "UNION DISTINCT is UNION, as in standard SQL",
    "inserted INNER": "INNER JOIN is JOIN",
    "inserted OUTER": "LEFT OUTER JOIN is LEFT JOIN, and so with RIGHT and FULL",
    "inserted ;": "a statement may end with semicolons",
    "inserted ANY": "of one row, any is the row",
    "inserted SOME": "likewise",
    "inserted , 5": "EXISTS asks for rows only",
    "inserted EXCEPT (lane)": "likewise",
    "inserted , ( )": "beside other keys, the set without keys adds none",
    "inserted ( ) ,": "likewise",
    "deleted HOURS": "of MIN a, MAX b the first is not used yet",
    "deleted ,": "of MIN a, MAX b the comma may be left out",
    "inserted /*+ x */": "a hint is a comment",
    "deleted ASC": "ascending is the default",
    "deleted ASYMMETRIC": "likewise",
    "inserted ASYMMETRIC": "likewise",
    "deleted ALL": "SUM(ALL x) is SUM(x)",
}
"""What changes nothing, and why it may."""


def meaning(text: str) -> object:
    """Return what a statement means, and which names it has."""
    tree = FjordSqlParser(dialect=FjordSQL()).parse_one(FjordSQL().tokenize(text), text)
    names = sorted(each.name for each in tree.find_all(exp.Identifier))
    match parse_statement(text):
        case SelectStatement():
            return names, translate(text, CATALOG).node
        case CreateDerivedStream():
            return names, translate_derived(text, CATALOG).node
        case CreateRelation() as statement:
            return names, replace(
                statement, text="", _spans={}, where=tuple(each.comparison for each in statement.where)
            )
        case statement:
            return names, replace(statement, text="")


def damaged(text: str, chance: random.Random) -> Iterator[tuple[str, str]]:
    """Yield what was done to a text, and the text after it."""
    tokens = FjordSQL().tokenize(text)
    for token in tokens:
        if chance.random() < SHARE * 100:
            yield f"deleted {token.text.upper()}", f"{text[: token.start]} {text[token.end + 1 :]}"
    for start in (*(token.start for token in tokens), len(text)):
        for word in INSERTED:
            if chance.random() < SHARE:
                yield f"inserted {word}", f"{text[:start]} {word} {text[start:]}"


@pytest.mark.parametrize("statement", STATEMENTS)
def test_no_word_is_read_and_ignored(statement):
    right = meaning(statement)
    ignored = []
    for damage, text in damaged(statement, random.Random(statement)):
        try:
            same = meaning(text) == right
        except FjordSqlError:
            continue
        if same and damage not in SYNONYMS:
            ignored.append((damage, text))
    assert not ignored
