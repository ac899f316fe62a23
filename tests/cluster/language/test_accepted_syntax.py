"""Nothing is accepted and ignored: rules read every argument of a tree, and a tree has every word of its text."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.expressions.called_functions import FUNCTIONS
from cluster.language.accepted_syntax import (
    DECLARATION_SYNTAX,
    QUERY_SYNTAX,
    ROW_PATTERN_SYNTAX,
    TIME_SYNTAX,
    VALIDITY_SYNTAX,
    WINDOW_BOUND_SYNTAX,
    accepted_triples,
    occurrences,
)
from cluster.language.context import Context
from cluster.language.dialect import FjordSQL
from cluster.language.errors import FjordSqlError
from cluster.language.functions import AGGREGATES
from cluster.language.parsing import FjordSqlParser
from cluster.language.selects import Translator
from cluster.language.translation import parse_statement, translate, translate_derived
from cluster.scalars.scalar_function import Family
from tests.cluster.language.fixture_files import pairs
from tests.cluster.language.valid_statements import CATALOG, QUERIES

HOUR = "WINDOW(RANGE 1 HOUR)"

# In every text, the part that the error must underline stands between » and «.
ARGUMENTS = [
    ("WITH a(»x«) AS (SELECT lane FROM traffic) SELECT lane FROM a", "a list of columns", "AS in SELECT"),
    ("WITH a AS »MATERIALIZED« (SELECT lane FROM traffic) SELECT lane FROM a", "MATERIALIZED is not", "runs once"),
    ("SELECT t.* REPLACE (»lane + 1 AS lane«) FROM traffic t", "* REPLACE is not", "name the columns"),
    ("SELECT t.* RENAME (»lane AS x«) FROM traffic t", "* RENAME is not", "name the columns"),
    ("SELECT CAST(sensor AS REAL DEFAULT »0« ON CONVERSION ERROR) AS x FROM traffic", "DEFAULT is not", "COALESCE"),
    ("SELECT CAST(sensor AS REAL FORMAT »'99'«) AS x FROM traffic", "FORMAT is not", "no format"),
    ("SELECT CAST(sensor AS TEXT COLLATE »de«) AS x FROM traffic", "'de' is not", None),
    ("SELECT »nosuch«.traffic.lane FROM traffic", "a name before stream.column", "stream.column"),
    ("SELECT »nosuch«.t.* FROM traffic t", "a name before stream.column", "stream.column"),
    ("SELECT lane FROM traffic UNION ALL (SELECT lane FROM traffic) AS »x«", "a name behind a query", "FROM"),
    (
        (
            f"SELECT t.lane FROM traffic t {HOUR} JOIN weather w "
            "JOIN »weather x ON x.sensor = w.sensor« ON t.sensor = w.sensor"
        ),
        "not part of FjordSQL here",
        None,
    ),
]
WORDS = [
    ("SELECT lane FROM traffic@»5«", "'5' was not expected", None),
    ("SELECT lane, speed»,« , open FROM traffic", "something is missing after it", None),
    ("SELECT »,« lane, speed FROM traffic", "something is missing before it", None),
    ("SELECT lane FROM traffic WHERE lane IN (1, 2»,«)", "something is missing after it", None),
    ("SELECT lane FROM traffic WHERE lane IN »[«1, 2]", "IN is followed by a list", "IN (1, 2)"),
    (f"SELECT lane, COUNT(*) FROM traffic {HOUR} GROUP BY lane»,«", "something is missing after it", None),
    (f"SELECT COUNT(*) FROM traffic {HOUR} GROUP BY »DISTINCT« lane", "'DISTINCT' was not expected", None),
    ("SELECT TRIM»(«sensor AS x FROM traffic", "never closed", None),
    ("SELECT CAST(lane AS REAL»()«) AS x FROM traffic", "'()' was not expected", None),
    ("SELECT ABS(»ALL« lane) AS x FROM traffic", "'ALL' was not expected", None),
    ("SELECT »{«fn ABS(lane)} AS x FROM traffic", "was not expected", None),
    ("SELECT 'a' »'b'« AS x FROM traffic", "was not expected", None),
    ("SELECT »REAL '5'« AS x FROM traffic", "CAST was expected", None),
    ("SELECT lane AS »'x'« FROM traffic", "an alias was expected", "a name has no quotes, or double ones"),
    ('SELECT »"ABS"«(lane) AS x FROM traffic', "was not expected", None),
    ("SELECT lane FROM traffic WHERE sensor LIKE 'a' AND LIKE('a'»,« sensor)", "was not expected", None),
    ("SELECT »+«lane AS x FROM traffic", "was not expected", None),
    ("»;« SELECT lane FROM traffic", "was not expected", None),
    ("WITH a AS (SELECT lane FROM traffic) »WITH« b AS (SELECT lane FROM traffic) SELECT lane FROM a", "WITH", None),
    ("SELECT t.lane FROM traffic t ZIP JOIN weather w »ON«", "'ON' was not expected", None),
]


@pytest.mark.parametrize(("text", "reason", "hint"), ARGUMENTS + WORDS)
def test_what_no_rule_reads_is_refused_with_its_place(text, reason, hint):
    before, offending, after = text.replace("«", "»").split("»")
    plain = f"{before}{offending}{after}"
    for asked, ask in ((plain, translate), (f"CREATE STREAM fresh AS {plain}", translate_derived)):
        if plain.startswith(";") and ask is translate_derived:
            continue
        with pytest.raises(FjordSqlError) as caught:
            ask(asked, CATALOG)
        assert reason in caught.value.reason
        assert caught.value.offending == offending
        assert caught.value.start == len(asked) - len(plain) + len(before)
        assert (caught.value.hint is None) if hint is None else (hint in str(caught.value.hint))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT CASE WHEN open THEN 1 ELSE IF(open, 1, 2) END AS x FROM traffic",
        "SELECT CASE IF(open, 1, 2) WHEN IF(open, 1, 2) THEN IF(open, 1, 2) ELSE 3 END AS x FROM traffic",
        "SELECT CASE WHEN IF(open, TRUE, FALSE) THEN 1 ELSE IF(open, IF(open, 2, 3), 4) END AS x FROM traffic",
    ],
)
def test_the_words_of_if_and_case_are_distinguished(text):
    translate(text, CATALOG)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE STREAM x (a REAL, b »TEXT FIXED FIXED«) SOURCE mqtt()",
        "CREATE STREAM x (a REAL UNIT »'mph'« UNIT 'km/h') SOURCE mqtt()",
        "CREATE STREAM x (a REAL»,«) SOURCE mqtt()",
        "CREATE RELATION x FROM 'a.csv' WHERE a BETWEEN »SYMMETRIC« 2 AND 1 REFRESH EVERY 1 MINUTE",
        "DROP STREAM x»;«; ;a",
    ],
)
def test_what_no_rule_reads_in_a_declaration_is_refused(text):
    with pytest.raises(FjordSqlError):
        parse_statement(text.replace("»", "").replace("«", ""))


def test_the_tables_name_arguments_that_there_are():
    for node, arguments in (*QUERY_SYNTAX.items(), *DECLARATION_SYNTAX.items()):
        assert set(arguments) <= {*node.arg_types, "lifetime", "top"}, node


def test_every_function_is_in_the_table():
    assert {*FUNCTIONS, *AGGREGATES} <= set(QUERY_SYNTAX)


def test_distinct_is_in_the_table_where_it_can_be_written():
    for kind, aggregate in AGGREGATES.items():
        more = {"quantile": ", 0.5", "separator": ", '-'"}
        share = "".join(written for slot, written in more.items() if slot in QUERY_SYNTAX[kind])
        column = {Family.BOOLEAN: "open", Family.TEXT: "sensor"}.get(aggregate.parameter, "speed")
        text = f"SELECT {aggregate.name}(DISTINCT {column}{share}) AS x FROM traffic"
        if "Distinct" in QUERY_SYNTAX[kind].get("this", ()):
            translate(text, CATALOG)
        else:
            with pytest.raises(FjordSqlError):
                translate(text, CATALOG)


def test_every_argument_of_a_tree_is_listed_with_its_node_and_kind():
    text = "SELECT t.lane, (5) AS x FROM traffic t WHERE NOT open"
    tree = FjordSqlParser(dialect=FjordSQL()).parse_one(FjordSQL().tokenize(text), text)
    found = [each.triple for each in occurrences(tree)]
    assert [triple for triple in found if triple[0] not in ("Identifier", "Table", "From")] == [
        ("Select", "expressions", "column"),
        ("Select", "expressions", "Alias"),
        ("Select", "from_", "From"),
        ("Select", "where", "Where"),
        ("Column", "this", "Identifier"),
        ("Column", "table", "Identifier"),
        ("Alias", "this", "number"),
        ("Alias", "alias", "Identifier"),
        ("Paren", "this", "number"),
        ("Literal", "this", "integer"),
        ("StreamItem", "this", "Table"),
        ("StreamItem", "alias", "Identifier"),
        ("Where", "this", "condition"),
        ("Not", "this", "column"),
        ("Column", "this", "Identifier"),
    ]
    assert set(found) <= accepted_triples()


@pytest.mark.parametrize("query", [pair[1] for pair in pairs(Path(__file__).parent / "fixtures")])
def test_translation_leaves_the_tree_as_it_is(query):
    tree = FjordSqlParser(dialect=FjordSQL()).parse_one(FjordSQL().tokenize(query), query)
    before = repr(tree)
    Translator(Context(query, CATALOG)).query(tree)
    assert repr(tree) == before


SETTINGS = {
    ("Count", "big_int"),
    ("Concat", "safe"),
    ("DPipe", "safe"),
    ("Div", "safe"),
    ("TryCast", "safe"),
    ("Greatest", "ignore_nulls"),
    ("Least", "ignore_nulls"),
    ("SequenceFrame", "between"),
    ("SequenceFrame", "interval"),
    ("SequenceFrame", "until_interval"),
    ("SequenceOrder", "this"),
}
"""What sqlglot notes on every node of a class, whatever the text says."""
SAME_WITHOUT = {
    ("Identifier", "quoted"): "a name in quotes is the name",
    ("Identifier", "this"): "the alias of a stream that nothing refers to",
    ("StreamItem", "alias"): "likewise",
    ("Column", "table"): "a name that only one stream has",
    ("Stamp", "table"): "likewise",
    ("Literal", "is_string"): "the number of an interval, which may be in quotes",
    ("Stamp", "this"): "it is always the same",
    ("Validity", "this"): "likewise",
    ("Validity", "table"): "the interval of the only stream that has one",
    ("StringAgg", "order"): "texts are in their order anyway",
    ("StringAgg", "within"): "where that order is written",
    ("Join", "kind"): "CROSS JOIN is the comma",
    ("Quantity", "unit"): "of the bound that is allowed for, but not used yet",
    ("Navigation", "offset"): "LAST(x, 0) is LAST(x)",
    ("PatternText", "expressions"): "what stands there is understood when it is parsed",
    ("RowPatternClause", "one_row"): "there is no other way",
    ("RowPatternClause", "interval"): "another way to write a duration",
    ("SequenceFrame", "until"): "0 PRECEDING is the tuple itself, or all with its stamp",
    ("Over", "order"): "there is no other order than that of stamps",
    ("Select", "expressions"): "EXISTS asks for rows only; what is selected is checked all the same",
}
"""Arguments without which a query can mean the same, and why."""


UNREAD = {("PatternText", "expressions"), ("RowPatternClause", "one_row"), ("RowPatternClause", "interval")}
"""Of these, the ones that never make a difference."""


def test_every_argument_of_the_table_is_read_by_a_rule():
    read: set[tuple[str, str]] = set()
    ignored: dict[tuple[str, str], str] = {}
    for query in QUERIES:
        tree = FjordSqlParser(dialect=FjordSQL()).parse_one(FjordSQL().tokenize(query), query)
        right = Translator(Context(query, CATALOG)).query(tree)
        for place, node in enumerate(tree.walk()):
            for argument, held in list(node.args.items()):
                if held in (None, False, []):
                    continue
                copy = tree.copy()
                list(copy.walk())[place].set(argument, None)
                try:
                    same = Translator(Context(query, CATALOG)).query(copy) == right
                except (ClusterError, AttributeError, LookupError, TypeError, ValueError, AssertionError):
                    same = False
                name = (type(node).__name__, argument)
                if same and name not in SETTINGS:
                    ignored[name] = query
                elif not same:
                    read.add(name)
    assert {name: query for name, query in ignored.items() if name not in SAME_WITHOUT} == {}
    tables = (QUERY_SYNTAX, TIME_SYNTAX, ROW_PATTERN_SYNTAX, WINDOW_BOUND_SYNTAX, VALIDITY_SYNTAX)
    syntax = [each for table in tables for each in table.items()]
    table = {(node.__name__, argument) for node, arguments in syntax for argument in arguments}
    unread = {("Identifier", "quoted"), ("Stamp", "this"), ("Validity", "this"), ("StringAgg", "within"), *UNREAD}
    assert table - read - SETTINGS == unread
