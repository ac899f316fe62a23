"""Limits of nesting: parser, typing and the layers that follow work recursively.

Visible nesting is counted before the parser sees it: open parentheses, brackets and CASEs, and signs and NOTs in a row.
Long chains of operators are not nested, but make deep trees, since the left side of each operator is everything
before it. Chains of AND, OR and ||, for which grouping changes nothing, are balanced; others have a limit, too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cluster.language.errors import FjordSqlError
from cluster.language.syntax import QUERIES

DEEPEST_NESTING = 200
"""Levels of parentheses, functions, CASEs, subqueries and signs."""

DEEPEST_EXPRESSION = 2_000
"""Levels of an expression's tree, parentheses not counted: each nested CASE is two, each `+` of a chain one."""

RECURSION_LIMIT = 10_000
"""Python frames that statements within these limits may need: the parser takes up to 30 for a level of nesting,
the later steps up to 4 for a level of a tree. Functions written in Python take next to nothing of a thread's stack."""

BALANCED = (exp.And, exp.Or, exp.DPipe)
"""Operators for which it does not matter how a chain of them is grouped."""

LONGEST_UNBALANCED = 16
"""Operands of a chain that is left as it was read."""

TOO_DEEP = "the statement is nested too deeply"
FLATTER = "write long alternatives as IN (...), and long computations as several queries"

_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
_PREFIXES = {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE, TokenType.PARAMETER}

# The limit belongs to the whole process; it is raised once, here, and never during other work.
sys.setrecursionlimit(max(sys.getrecursionlimit(), RECURSION_LIMIT))


def check_nesting(tokens: Sequence[Token], text: str) -> None:
    """Refuse a statement that is nested too deeply, before anything works on it recursively.

    Raises
    ------
    FjordSqlError
        About the token that opens one level too many.
    """
    level, signs, around = 0, 0, list[int]()
    for before, token in zip([None, *tokens], tokens, strict=False):
        kind = token.token_type
        if kind is TokenType.L_PAREN and before is not None and before.token_type is TokenType.WINDOW:
            around.append(level)  # a clause, in which nothing is nested
        elif kind in _PREFIXES:
            signs += 1
        elif kind in _OPENING:
            # The signs before it hold until it is closed; with one, as in `NOT (...)`, it is one level.
            around.append(level)
            level, signs = level + max(signs, 1), 0
        else:
            signs = 0
            if kind in _CLOSING and around:
                level = around.pop()
        if level + signs > DEEPEST_NESTING:
            raise FjordSqlError(TOO_DEEP, text=text, start=token.start, end=token.end + 1, hint=FLATTER)


def levels_too_deep(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Yield parts of a statement that lie too deep in an expression; levels are counted anew in every query."""
    waiting = [(tree, 0)]
    while waiting:
        part, level = waiting.pop()
        if level > DEEPEST_EXPRESSION:
            yield part
            continue
        level = 0 if isinstance(part, QUERIES) else level + (not isinstance(part, exp.Paren))
        waiting.extend((child, level) for child in part.iter_expressions())


def balanced(tree: exp.Expr | None) -> exp.Expr | None:
    """Return a long chain of one operator as a tree of few levels; any other expression unchanged.

    >>> from sqlglot import parse_one
    >>> chain = parse_one(" AND ".join(["a"] * 64))
    >>> max(each.depth for each in chain.find_all(exp.Column))
    63
    >>> max(each.depth for each in balanced(chain).find_all(exp.Column))
    6
    """
    kind = type(tree)
    if kind not in BALANCED or not isinstance(tree, exp.Binary) or not isinstance(tree.this, kind):
        return tree
    options = {name: value for name, value in tree.args.items() if name not in ("this", "expression")}
    operands: list[exp.Expr] = []
    left: exp.Expr = tree
    while isinstance(left, exp.Binary) and type(left) is kind:
        operands.append(left.expression)
        left = left.this
    operands.append(left)
    if len(operands) <= LONGEST_UNBALANCED:
        return tree
    operands.reverse()
    while len(operands) > 1:
        pairs = zip(operands[::2], operands[1::2], strict=False)
        joined = [kind(this=one, expression=other, **options) for one, other in pairs]
        operands = [*joined, *operands[2 * len(joined) :]]
    return operands[0]
