"""Random patterns over random streams against their definition, through parser, planner, operators and restarts."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.language import row_pattern_syntax
from cluster.language.accepted_syntax import ROW_PATTERN_SYNTAX, occurrences
from cluster.language.catalog import BaseStream, Catalog
from cluster.language.dialect import FjordSQL
from cluster.language.parsing import FjordSqlParser
from cluster.language.translation import translate
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.oracle.proving import delivered
from tests.cluster.oracle.row_pattern_texts import COLUMNS, random_query, random_stream
from tests.cluster.oracle.running import run_plan

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


def test_drawn_patterns_match_something() -> None:
    found = [proved(seed) for seed in range(60)]
    assert sum(map(bool, found)) > 15


def test_all_that_the_clause_consists_of_is_drawn() -> None:
    drawn = set()
    for seed in range(300):
        text = f"SELECT * FROM {random_query(random.Random(seed)).text} AS m"
        tree = FjordSqlParser(dialect=FjordSQL()).parse_one(FjordSQL().tokenize(text), text)
        drawn |= {each.triple for each in occurrences(tree)}
    closed = (row_pattern_syntax.RowPatternClause, row_pattern_syntax.SkipClause)
    required = {
        (node.__name__, argument, kind)
        for node in closed
        for argument, kinds in ROW_PATTERN_SYNTAX[node].items()
        for kind in kinds
    }
    required |= {("Navigation", "kind", kind) for kind in ROW_PATTERN_SYNTAX[row_pattern_syntax.Navigation]["kind"]}
    assert required - drawn == set()
