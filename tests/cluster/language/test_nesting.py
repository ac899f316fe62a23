"""Nesting: 200 levels of anything are accepted, more are refused with their place, and nothing overflows."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import pytest

from cluster.fjord.acceptance import check_supported
from cluster.language.catalog import BaseStream, Catalog
from cluster.language.errors import FjordSqlError
from cluster.language.nesting import DEEPEST_NESTING
from cluster.language.parsing import FjordSqlParser
from cluster.language.statement_trees import LONGEST_TEXT
from cluster.language.translation import parse_statement, translate
from cluster.plan.demand import demands_of
from cluster.plan.epoch import Plan, PlannedQuery, decode_plan, encode_plan
from cluster.plan.explain import explain
from cluster.plan.rewrite import rewrite
from cluster.planning_budget import Budget, limited
from protocols.wire.streams import Field, FieldType, StreamSchema

CATALOG = Catalog.of(
    [
        BaseStream(
            StreamSchema("t", (Field("v", FieldType.INTEGER), Field("x", FieldType.REAL), Field("k", FieldType.TEXT)))
        ),
        BaseStream(StreamSchema("o", (Field("total", FieldType.INTEGER),))),
    ]
)
WINDOW = "WINDOW(RANGE 1 SECONDS)"
SMALL_STACK = 1024**2
"""Bytes: an eighth of what a thread of Python or a worker of Spark has."""

Nested = Callable[[int], str]
NESTED: dict[str, Nested] = {
    "parentheses": lambda n: f"SELECT {'(' * n}v{')' * n} FROM t",
    "parentheses of a condition": lambda n: f"SELECT v FROM t WHERE {'(' * n}v > 1{')' * n}",
    "functions": lambda n: f"SELECT {'ABS(' * n}v{')' * n} FROM t",
    "functions of several": lambda n: f"SELECT {'COALESCE(v, ' * n}1{')' * n} FROM t",
    "IF": lambda n: f"SELECT {'IF(v > 1, ' * n}1{', 2)' * n} FROM t",
    "CASE": lambda n: f"SELECT {'CASE WHEN v > 1 THEN ' * n}v{' END' * n} FROM t",
    "ELSE": lambda n: f"SELECT {'CASE WHEN v > 1 THEN 1 ELSE ' * n}v{' END' * n} FROM t",
    "NOT": lambda n: f"SELECT v FROM t WHERE {'NOT ' * n}v > 1",
    "NOT with parentheses": lambda n: f"SELECT v FROM t WHERE {'NOT (' * n}v > 1{')' * n}",
    "alternatives": lambda n: f"SELECT v FROM t WHERE {'NOT (v > 1 OR ' * n}v > 2{')' * n}",
    "signs": lambda n: f"SELECT {'- ' * n}v FROM t",
    "operators on the right": lambda n: f"SELECT {'v - (' * n}v{')' * n} FROM t",
    "IN": lambda n: f"SELECT v FROM t WHERE v IN {'(' * n}1{')' * n}",
    "subqueries of FROM": lambda n: f"SELECT v FROM {'(SELECT v FROM ' * n}t{') q' * n}",
    "distinct subqueries": lambda n: f"SELECT DISTINCT v FROM {'(SELECT DISTINCT v FROM ' * n}t {WINDOW}{') q' * n}",
    "subqueries of EXISTS": lambda n: (
        f"SELECT v FROM t {WINDOW}{f' WHERE EXISTS (SELECT total FROM o {WINDOW}' * n}{')' * n}"
    ),
    "subqueries of IN": lambda n: f"SELECT v FROM t{' WHERE v IN (SELECT v FROM t' * n}{')' * n}",
    "WITH": lambda n: f"{'WITH a AS (' * n}SELECT v FROM t{') SELECT v FROM a' * n}",
    "set operations": lambda n: f"SELECT v FROM t{' UNION ALL (SELECT v FROM t' * n}{')' * n}",
}
CHAINS: dict[str, tuple[Nested, int]] = {
    "AND": (lambda n: "SELECT v FROM t WHERE " + " AND ".join(f"v <> {each}" for each in range(n)), 5_000),
    "OR": (lambda n: "SELECT v FROM t WHERE " + " OR ".join(f"v = {each}" for each in range(n)), 5_000),
    "||": (lambda n: f"SELECT {' || '.join(['k'] * n)} AS a FROM t", 5_000),
    "+": (lambda n: f"SELECT {' + '.join(['v'] * n)} AS a FROM t", 300),
    "UNION ALL": (lambda n: " UNION ALL ".join(["SELECT v FROM t"] * n), 500),
    "WITH": (
        lambda n: (
            "WITH a0 AS (SELECT v FROM t)"
            + "".join(f", a{each + 1} AS (SELECT v FROM a{each} WHERE v > {each})" for each in range(n))
            + f" SELECT v FROM a{n}"
        ),
        200,
    ),
}
"""What is long, not nested, and how long it may at least be."""


def planned(text: str) -> None:
    """Do everything that is done with a query before it runs; and write its plan, and read it again."""
    node = rewrite(translate(text, CATALOG).node).node
    check_supported(node)
    demands_of("q", node)
    assert explain(node)
    plan = Plan(1, (PlannedQuery("q", 1, node),))
    assert decode_plan(encode_plan(plan)) == plan


def with_small_stack(work: Callable[[], None]) -> None:
    """Do some work in a thread with little stack: should it need more, the process would die."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again where the test sees it
            failures.append(error)

    before = threading.stack_size(SMALL_STACK)
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    if failures:
        raise failures[0]


@pytest.mark.parametrize("kind", NESTED)
def test_two_hundred_levels_are_accepted(kind: str) -> None:
    with_small_stack(lambda: planned(NESTED[kind](DEEPEST_NESTING)))


@pytest.mark.parametrize("kind", NESTED)
def test_more_than_two_hundred_levels_are_refused_with_the_place(kind: str) -> None:
    text = NESTED[kind](DEEPEST_NESTING + 1)
    with pytest.raises(FjordSqlError, match="nested too deeply") as caught:
        translate(text, CATALOG)
    assert caught.value.offending in ("(", "CASE", "NOT", "-")
    assert caught.value.hint


@pytest.mark.parametrize("kind", [*NESTED, *CHAINS])
def test_the_longest_text_is_refused_or_planned(kind: str) -> None:
    nested = NESTED.get(kind) or CHAINS[kind][0]
    text = nested(LONGEST_TEXT // (len(nested(101)) - len(nested(100)) + 1) - 10)
    assert len(text) <= LONGEST_TEXT

    def tried() -> None:
        with contextlib.suppress(FjordSqlError):
            translate(text, CATALOG)

    with_small_stack(tried)


@pytest.mark.parametrize(
    "kind", ["(", "ABS(", "CASE ", "CASE WHEN ", "NOT ", "- ", "SELECT ", "v IN (", "f(x -> ", "[", "{"]
)
def test_what_is_opened_and_never_closed_is_refused(kind: str) -> None:
    for text in (f"SELECT {kind * 20_000}"[:LONGEST_TEXT], f"SELECT v FROM t WHERE {kind * 20_000}"[:LONGEST_TEXT]):
        with pytest.raises(FjordSqlError):
            translate(text, CATALOG)


@pytest.mark.parametrize("kind", CHAINS)
def test_chains_are_no_nesting(kind: str) -> None:
    chain, length = CHAINS[kind]
    with_small_stack(lambda: planned(chain(length)))


def test_a_declaration_is_nested_as_deeply_as_a_query() -> None:
    text = f"CREATE STREAM a AS {'(' * DEEPEST_NESTING}SELECT v FROM t{')' * DEEPEST_NESTING}"
    assert parse_statement(text).text == text
    with pytest.raises(FjordSqlError, match="nested too deeply"):
        parse_statement(text.replace("AS (", "AS ((").replace("t)", "t))"))


def test_parsing_that_tries_every_join_ends_after_a_bounded_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """JOIN without ON may belong to any of the joins before it: each is tried."""
    steps: list[int] = []
    refuse = FjordSqlParser.refuse

    def counted(self: FjordSqlParser, reason: str, **options: object) -> None:
        steps.append(self._steps)
        refuse(self, reason, **options)  # type: ignore[arg-type] - handed on as they are

    monkeypatch.setattr(FjordSqlParser, "refuse", counted)
    with pytest.raises(FjordSqlError, match="takes too much work to read"):
        translate("SELECT v FROM t" + " JOIN t" * 2_500, CATALOG)
    assert steps[-1] < 200_000


@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "%", "||", "=", "<", "AND", "OR"])
def test_what_is_nested_is_looked_at_once(operator: str) -> None:
    """Looked at twice at each level, it would take steps that double with each."""
    operand = {"||": "'a'", "AND": "TRUE", "OR": "TRUE", "=": "TRUE", "<": "TRUE"}.get(operator, "1")

    def steps(levels: int) -> int:
        text = f"SELECT {'(' * levels}{operand}{f' {operator} {operand})' * levels} AS a FROM t"
        with limited(Budget(600)) as budget:
            translate(text, CATALOG)
        return budget.steps

    assert steps(28) < 3 * steps(14)
