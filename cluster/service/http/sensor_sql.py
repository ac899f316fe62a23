"""One-shot queries in SQL over the relation ``sensors``.

Such a query is parsed as FjordSQL, with ORDER BY and LIMIT since a catalog is finite. Only expressions that are known
to be harmless are accepted. Polars runs SQL that is generated from the checked tree, never the text of the request: in
a process of its own (:mod:`cluster.service.http.sensor_questions`), for Polars reads SQL by recursion without a limit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import polars as pl
from sqlglot import exp, generator, parser
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from cluster.language.accepted_syntax import ONE_SHOT_QUESTIONS
from cluster.language.catalog import Catalog
from cluster.language.context import Context
from cluster.language.dialect import FjordSQL, FjordSqlGenerator
from cluster.language.errors import FjordSqlError
from cluster.language.functions import AGGREGATES
from cluster.language.ignored_syntax import refuse_ignored_syntax
from cluster.language.parsing import FjordSqlParser
from cluster.language.quantities import NO_NUMBER
from cluster.language.syntax import span_of
from cluster.language.typing_rules import TYPE_WORDS, written_type
from cluster.operators.columns import unique_name
from protocols.text.closeness import did_you_mean
from protocols.wire.names import NAME_SHAPE, is_identifier

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RELATION = "sensors"
LONGEST_QUERY = 10_000
"""Characters."""
DEEPEST = 100
"""Levels of a syntax tree: the following steps are recursive."""
MOST_IN_A_ROW = 16
"""Operands of a chain of one operator that stay as they are written."""
MOST_NODES = 5_000
"""Of a syntax tree."""

CLAUSES = ("expressions", "distinct", "where", "group", "having", "order", "limit", "offset")
"""Parts of a SELECT, besides FROM, as the syntax tree calls them."""
AFTER_WHERE = CLAUSES[3:]
KNOW_ALIASES = ("group", "having", "order")

AGGREGATES_HERE = (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Median, exp.Stddev)
FUNCTIONS_HERE = (exp.Abs, exp.Round, exp.Floor, exp.Ceil, exp.Lower, exp.Upper, exp.Coalesce, exp.Concat)
HARMLESS = frozenset({
    *AGGREGATES_HERE, *FUNCTIONS_HERE,
    exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered, exp.Limit, exp.Offset, exp.Distinct,
    exp.Alias, exp.Column, exp.Identifier, exp.Star, exp.Literal, exp.Boolean, exp.Null, exp.Paren,
    exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Is, exp.In, exp.Between, exp.Like,
    exp.ILike, exp.NullSafeEQ, exp.NullSafeNEQ,
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg, exp.DPipe, exp.Case, exp.If, exp.Cast, exp.TryCast,
    exp.DataType,
})  # fmt: skip
"""The nodes that a query may consist of."""

ALLOWED = (
    "write one SELECT over sensors, with WHERE, GROUP BY, HAVING, ORDER BY, LIMIT, operators, CASE, CAST and "
    + ", ".join(each.sql_name() for each in (*AGGREGATES_HERE, *FUNCTIONS_HERE))
)

CONDITIONS = (exp.Predicate, exp.Connector, exp.Not, exp.Boolean, exp.Null)
"""The nodes that are true, false or unknown, besides columns and casts of type BOOLEAN."""

CHAINS = (exp.DPipe, exp.And, exp.Or)
"""Operators of which a long chain means the same however it is put in parentheses."""

_ENDINGS = (TokenType.ORDER_BY, TokenType.LIMIT, TokenType.OFFSET)


class _Parser(FjordSqlParser):
    QUERY_MODIFIER_PARSERS: ClassVar[dict[TokenType, Callable[..., object]]] = {
        **FjordSqlParser.QUERY_MODIFIER_PARSERS,
        **{kind: parser.Parser.QUERY_MODIFIER_PARSERS[kind] for kind in _ENDINGS},
    }
    QUERY_MODIFIER_TOKENS: ClassVar[set[TokenType]] = set(QUERY_MODIFIER_PARSERS)


class _Generator(FjordSqlGenerator):
    TYPE_MAPPING: ClassVar[dict[Any, str]] = generator.Generator.TYPE_MAPPING

    def ordered_sql(self, expression: exp.Ordered) -> str:
        """Always write the place of NULLs: Polars has another default."""
        direction = "DESC" if expression.args.get("desc") else "ASC"
        nulls = "FIRST" if expression.args.get("nulls_first") else "LAST"
        return f"{self.sql(expression, 'this')} {direction} NULLS {nulls}"


class _SensorSql(FjordSQL):
    NULL_ORDERING = "nulls_are_last"
    Parser = _Parser


class _PolarsSql(_SensorSql):
    SAFE_DIVISION = False
    Generator = _Generator


def select(relation: pl.DataFrame, sql: str) -> pl.DataFrame:
    """Return the result of a SELECT over `relation`, under the name ``sensors``.

    Raises
    ------
    FjordSqlError
        If it is anything but one harmless SELECT, or names an unknown column.
    """
    return _run(relation, _parse(sql), sql)


def where(relation: pl.DataFrame, condition: str) -> pl.DataFrame:
    """Return the rows of `relation` for which a condition is true; errors are those of :func:`select`."""
    sql = f"SELECT * FROM {RELATION} WHERE {condition}"  # noqa: S608 - checked below, and generated again
    tree = _parse(sql)
    for part in (part for clause in AFTER_WHERE for part in _parts(tree, clause)):
        raise _error(sql, part, "a condition ends before this", "write a whole SELECT")
    return _run(relation, tree, sql)


def answer(rows: pl.DataFrame, *, condition: str | None, sql: str | None) -> bytes:
    """Return the result as JSON: names of columns, and rows as objects."""
    if sql is not None:
        rows = select(rows, sql)
    elif condition is not None:
        rows = where(rows, condition)
    return msgspec.json.encode({"columns": rows.columns, "rows": rows.to_dicts()})


def _parse(sql: str) -> exp.Select:
    """Return the tree of a query that consists of harmless parts only; its names are not resolved yet."""
    if len(sql) > 2 * LONGEST_QUERY:
        raise FjordSqlError(f"more than {LONGEST_QUERY:,} characters", text=sql, start=LONGEST_QUERY, end=len(sql))
    dialect = _SensorSql()
    try:
        tree = _Parser(dialect=dialect).parse_one(dialect.tokenize(sql), sql)
    except TokenError:
        raise FjordSqlError("a quote or a comment is never closed", text=sql, start=0, end=len(sql)) from None
    except RecursionError:
        raise FjordSqlError("this is nested too deeply", text=sql, start=0, end=len(sql)) from None
    _flatten_chains(tree)
    deepest, nodes = _nested_below(tree, DEEPEST)
    if deepest:
        raise _error(sql, deepest[0], "this is nested too deeply", "write long alternatives as IN (...)")
    if nodes > MOST_NODES:
        raise _error(sql, tree, f"this has {nodes:,} parts, the limit is {MOST_NODES:,}", "ask several shorter queries")
    if not isinstance(tree, exp.Select):
        raise _error(sql, tree, "this is not one SELECT", ALLOWED)
    for clause, content in tree.args.items():
        if content and clause not in (*CLAUSES, "from_"):
            at = content[0] if isinstance(content, list) else content
            word = clause.strip("_").upper().removesuffix("S")
            raise _error(sql, at if isinstance(at, exp.Expr) else tree, f"{word} is not possible here", ALLOWED)
    _check_source(tree, sql)
    for part in (part for clause in CLAUSES for part in _parts(tree, clause)):
        _check_part(part, sql)
    for aggregate in (each for part in _parts(tree, "where") for each in part.find_all(exp.AggFunc)):
        raise _error(sql, aggregate, "an aggregate cannot stand in WHERE", "HAVING is the condition on groups")
    for number in (each for each in tree.find_all(exp.Literal) if not each.is_string):
        try:
            real = float(number.this)
        except ValueError:
            raise _error(sql, number, *NO_NUMBER) from None
        if not math.isfinite(real):
            raise _error(sql, number, "this number is larger than every real", "the largest is about 1.8e308")
    refuse_ignored_syntax(tree, Context(sql, Catalog()), ONE_SHOT_QUESTIONS)
    return tree


def _flatten_chains(tree: exp.Expr) -> None:
    """Put long chains of an operator into a form that is as deep as the logarithm of their length."""
    waiting: list[exp.Expr] = [tree]
    while waiting:
        node = waiting.pop()
        if type(node) in CHAINS and type(node.parent) is not type(node):
            operands = _operands(node)
            if len(operands) > MOST_IN_A_ROW:
                balanced = _balanced(type(node), operands)
                node.set("this", balanced.this)
                node.set("expression", balanced.expression)
            waiting += operands
        else:
            waiting += _children(node)


def _operands(chain: exp.Expr) -> list[exp.Expr]:
    """Return what a chain of one operator joins, in order."""
    found: list[exp.Expr] = []
    waiting = [chain]
    while waiting:
        node = waiting.pop()
        if type(node) is type(chain):
            waiting += (node.expression, node.this)
        else:
            found.append(node)
    return found


def _balanced(operator: type[exp.Expr], operands: Sequence[exp.Expr]) -> exp.Expr:
    """Return the chain of two or more operands with as few levels as possible."""
    half = len(operands) // 2
    sides = [
        each[0] if len(each) == 1 else exp.paren(_balanced(operator, each), copy=False)
        for each in (operands[:half], operands[half:])
    ]
    return operator(this=sides[0], expression=sides[1])


def _children(node: exp.Expr) -> list[exp.Expr]:
    found: list[exp.Expr] = []
    for value in node.args.values():
        found += [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, exp.Expr)]
    return found


def _nested_below(tree: exp.Expr, levels: int) -> tuple[list[exp.Expr], int]:
    """Return the nodes so many levels below a tree, whatever their operators are, and how many nodes lie above them."""
    level, nodes = [tree], 0
    for _ in range(levels):
        nodes += len(level)
        level = [child for node in level for child in _children(node)]
    return level, nodes


def _check_source(tree: exp.Select, sql: str) -> None:
    source = tree.args["from_"].this if tree.args.get("from_") else tree
    table = source.this
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise _error(sql, source, f"only {RELATION} can be queried here", ALLOWED)
    if table.name.casefold() != RELATION:
        raise _error(sql, table, f"there is no table {table.name!r}", f"{RELATION} is the only one")
    if extra := [part for name, part in source.args.items() if part and name not in {"this", "alias"}]:
        raise _error(sql, extra[0], "this belongs to streams; the catalog is the present state", ALLOWED)


def _check_part(part: exp.Expr, sql: str) -> None:
    for node in part.walk():
        if type(node) not in HARMLESS or (isinstance(node, exp.Star) and any(node.args.values())):
            name = node.name if isinstance(node, exp.Anonymous) else node.key.upper()
            what = f"function {name}" if isinstance(node, exp.Func) else name
            raise _error(sql, node, f"{what} is not possible here", ALLOWED)
        if isinstance(node, exp.DataType) and written_type(node.meta.get("written", "")) not in TYPE_WORDS:
            raise _error(sql, node.parent or node, "CAST results in BOOLEAN, INTEGER, REAL or TEXT", None)


def _run(relation: pl.DataFrame, tree: exp.Select, sql: str) -> pl.DataFrame:
    """Resolve names, generate the SQL again and run it in Polars."""
    source = tree.args["from_"].this
    owner = source.args["alias"].name if source.args.get("alias") else RELATION
    for question in [each for each in tree.find_all(exp.Is) if isinstance(each.expression, exp.Boolean)]:
        question.replace(_truth(question, relation, sql))
    for between in tree.find_all(exp.Between):
        between.set("symmetric", None)  # ASYMMETRIC, which changes nothing
    aliases = _name_outputs(tree, sql)
    for clause in CLAUSES:
        names = [*relation.columns, *(aliases if clause in KNOW_ALIASES else ())]
        for column in [each for part in _parts(tree, clause) for each in part.find_all(exp.Column)]:
            qualifier = ".".join(part.name for part in column.parts[:-1])
            if qualifier and qualifier.casefold() != owner.casefold():
                raise _error(sql, column, f"there is no table {qualifier!r}", f"this one is called {owner}")
            column.replace(column.this if isinstance(column.this, exp.Star) else _resolved(column, names, sql))
    for number in list(tree.find_all(exp.Literal)):
        if not number.is_string and not number.this.isdecimal():  # Polars would compute with decimals
            number.replace(exp.cast(number.copy(), exp.DType.DOUBLE))
    for cast in list(tree.find_all(exp.Cast)):
        if type(cast) is exp.Cast:  # as in FjordSQL, what cannot be converted is NULL
            cast.replace(exp.TryCast(this=cast.this, to=cast.to))
    tree.set("from_", exp.From(this=exp.to_table(RELATION)))
    written = tree.sql(dialect=_PolarsSql, comments=False)
    try:
        with pl.SQLContext({RELATION: relation}, register_globals=False, eager=True) as context:
            return context.execute(written).cast({pl.Decimal: pl.Float64})
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(error).partition("\n")[0]
        raise FjordSqlError(reason, text=sql, start=0, end=len(sql)) from error


def _truth(question: exp.Is, relation: pl.DataFrame, sql: str) -> exp.Expr:
    """Return ``IS TRUE`` and ``IS FALSE`` without NULL: Polars would answer NULL, and compare numbers with 1."""
    asked, wanted = question.this, bool(question.expression.this)
    match asked.unnest():
        case exp.Column(name=name):
            types = {column.casefold(): kind for column, kind in relation.schema.items()}
            possible = types.get(name.casefold(), pl.Boolean) == pl.Boolean
        case exp.Cast(to=kind):
            possible = kind.is_type(exp.DType.BOOLEAN)
        case condition:
            possible = isinstance(condition, CONDITIONS)
    if not possible:
        reason = f"IS {question.expression.sql()} asks about a condition; this is none"
        raise _error(sql, asked, reason, "write a comparison, such as (segment > 3) IS TRUE")
    known = exp.Coalesce(this=asked, expressions=[exp.Boolean(this=not wanted)])
    return exp.paren(known if wanted else exp.Not(this=known))


def _name_outputs(tree: exp.Select, sql: str) -> list[str]:
    """Name the columns that SELECT computes, as FjordSQL does; return the names given by AS or here."""
    names: list[str] = []
    items = []
    for place, item in enumerate(tree.expressions, start=1):
        if isinstance(item, exp.Alias) and not is_identifier(item.alias):
            raise _error(sql, item.args["alias"], f"{item.alias!r} is no name for a column", NAME_SHAPE)
        named = item
        if not isinstance(item, (exp.Alias, exp.Column, exp.Star)):
            function = AGGREGATES.get(type(item))
            argument = item.this if function and isinstance(item.this, exp.Column) else None
            words = [function.name, *([argument.name] if argument else [])] if function else ["column", str(place)]
            named = exp.alias_(item, unique_name("_".join(words), names), quoted=True)
        items.append(named)
        names.append(named.alias_or_name)
    tree.set("expressions", items)
    return [item.alias for item in items if isinstance(item, exp.Alias)]


def _resolved(column: exp.Column, names: Sequence[str], sql: str) -> exp.Column:
    by_folded = {name.casefold(): name for name in names}
    name = by_folded.get(column.name.casefold())
    if name is None:
        close = did_you_mean(column.name, names)
        known = f"the columns are {', '.join(names)}; texts go into single quotes"
        raise _error(sql, column, f"there is no column {column.name!r}", f"{close} {known}" if close else known)
    return exp.column(name, quoted=True)


def _parts(tree: exp.Select, clause: str) -> list[exp.Expr]:
    content = tree.args.get(clause) or []
    return list(content) if isinstance(content, list) else [content]


def _error(sql: str, part: exp.Expr, reason: str, hint: str | None) -> FjordSqlError:
    start, end = span_of(part) or (0, len(sql))
    return FjordSqlError(reason, text=sql, start=start, end=end, hint=hint)
