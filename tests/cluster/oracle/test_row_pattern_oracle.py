"""Random patterns over random streams against their definition, through parser, planner, operators and restarts."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.language import syntax
from cluster.language.accepted_syntax import ROW_PATTERN_SYNTAX, occurrences
from cluster.language.catalog import BaseStream, Catalog
from cluster.language.dialect import FjordSQL
from cluster.language.parsing import FjordSqlParser
from cluster.language.translation import translate
from cluster.plan.pipelines import partition_keys
from cluster.plan.rewrite import rewrite
from cluster.testing import ABORT, EOF, QueryRun, ScriptedSource
from cluster.testing.sources import Item
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.oracle.proving import delivered
from tests.cluster.oracle.row_pattern_texts import COLUMNS, random_query, random_stream
from tests.cluster.oracle.running import run_plan
from tests.examples import seeds

READINGS = StreamSchema(
    "readings",
    (Field("k", FieldType.TEXT), Field("x", FieldType.INTEGER), Field("y", FieldType.INTEGER)),
)
CATALOG = Catalog.of([BaseStream(READINGS)])


def proved(seed: int) -> int:
    """Compare the answer of one text with its meaning; return how many rows it has."""
    dice = random.Random(seed)
    query, stream = random_query(dice), random_stream(dice)
    expected = Counter(query.answers(stream))
    text = f"SELECT * FROM {query.text} AS m"
    plan = rewrite(translate(text, CATALOG).node).node
    tuples = {"readings": [(stamp, tuple(row[name] for name in COLUMNS)) for stamp, row in stream]}
    batches, restarts = delivered(tuples, seed)
    rows = run_plan(plan, batches, restart_after=restarts)
    assert all(end == start + 1 for start, end, *_ in rows)
    found = Counter((start, tuple(values)) for start, _, *values in rows)
    assert found == expected, f"{text}\n{stream}\nmissing {expected - found}\nsurplus {found - expected}"
    return expected.total()


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**40))
def test_matches_are_those_of_the_definition(seed: int) -> None:
    proved(seed)


@seeds(60)
def test_matches_are_the_same_in_one_bucket_and_in_several(seed: int) -> None:
    dice = random.Random(f"buckets/{seed}")
    query, stream = random_query(dice), random_stream(dice)
    expected = Counter(query.answers(stream))
    text = f"SELECT * FROM {query.text} AS m"
    for buckets in (1, 4):
        script: list[Item] = [(stamp, row) for stamp, row in stream]
        script.insert(dice.randrange(len(script) + 1), ABORT())
        fields = {"k": str, "x": int, "y": int}
        latest = max((stamp for stamp, _ in stream), default=0)
        source = ScriptedSource(fields, [*script, EOF()], batch_size=dice.choice((1, 7)), lateness=f"{latest}us")
        answers = QueryRun(text, {"readings": source}, buckets=buckets).run()
        assert Counter((each.start, tuple(each.row.values())) for each in answers) == expected, (text, buckets)


ORDERED = "(SELECT k, LAG(x) OVER (ORDER BY STAMP()) AS x FROM readings)"


@pytest.mark.parametrize(
    ("around", "rows", "keys"),
    [
        ("SELECT * FROM {} AS m", "readings", ("k",)),
        ("SELECT * FROM {} AS m", "(SELECT k, x + y AS x FROM readings WHERE y > 1)", ("k",)),
        ("SELECT n + 1 AS n FROM {} AS m WHERE n > 1", "readings", ("k",)),
        ("SELECT k, COUNT(*) AS c FROM {} AS m WINDOW(RANGE 5 US) GROUP BY k", "readings", ()),
        ("SELECT n FROM {} AS m WINDOW(ROWS 3)", "readings", ()),
        ("SELECT * FROM {} AS m", ORDERED, ()),
    ],
)
def test_a_pattern_is_spread_by_its_keys_unless_rows_of_several_meet(
    around: str, rows: str, keys: tuple[str, ...]
) -> None:
    pattern = (
        f"{rows} MATCH_RECOGNIZE (PARTITION BY k ORDER BY STAMP() MEASURES COUNT(*) AS n "
        "PATTERN (A B+) WITHIN INTERVAL '9' SECOND DEFINE A AS x > 1, B AS x < 1)"
    )
    assert partition_keys(rewrite(translate(around.format(pattern), CATALOG).node).node) == keys


def test_drawn_patterns_match_something() -> None:
    found = [proved(seed) for seed in range(60)]
    assert sum(map(bool, found)) > 15


def test_all_that_the_clause_consists_of_is_drawn() -> None:
    drawn = set()
    for seed in range(300):
        text = f"SELECT * FROM {random_query(random.Random(seed)).text} AS m"
        tree = FjordSqlParser(dialect=FjordSQL()).parse_one(FjordSQL().tokenize(text), text)
        drawn |= {each.triple for each in occurrences(tree)}
    closed = (syntax.RowPatternClause, syntax.SkipClause)
    required = {
        (node.__name__, argument, kind)
        for node in closed
        for argument, kinds in ROW_PATTERN_SYNTAX[node].items()
        for kind in kinds
    }
    required |= {("Navigation", "kind", kind) for kind in ROW_PATTERN_SYNTAX[syntax.Navigation]["kind"]}
    assert required - drawn == set()
