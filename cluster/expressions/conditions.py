"""Conditions: what AND and OR connect, and what an equality says about two sides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from cluster.expressions.nodes import Binary, Chain, Expression, Group, bare, chain
from cluster.expressions.walks import found_from_below
from cluster.shared_nodes import remembered


@remembered
def conjuncts(condition: Expression) -> tuple[Expression, ...]:
    """Return the conditions that AND connects, without parentheses, each different one once.

    >>> from cluster.expressions.text import text_of
    >>> from cluster.expressions.nodes import Column
    >>> a, b, c = map(Column, "abc")
    >>> [text_of(each) for each in conjuncts(chain("AND", (a, Group(chain("OR", (b, c))), a)))]
    ['"a"', '"b" OR "c"']
    """
    return _connected(condition, "AND")


@remembered
def disjuncts(condition: Expression) -> tuple[Expression, ...]:
    """Return the conditions that OR connects, without parentheses, each different one once."""
    return _connected(condition, "OR")


def _connected(condition: Expression, word: str) -> tuple[Expression, ...]:
    found: dict[Expression, None] = {}
    seen: set[int] = set()
    waiting = [condition]
    while waiting:
        part = bare(waiting.pop())
        if isinstance(part, Chain) and part.word == word:
            if id(part) not in seen:
                seen.add(id(part))
                waiting.extend(reversed(part.parts))
        else:
            found[part] = None
    return tuple(found)


@found_from_below
def _conditions(condition: Expression, operands: Sequence[int]) -> int:
    """Return how many conditions AND connects, repetitions counted."""
    if isinstance(condition, Group):
        return operands[0]
    return sum(operands) if isinstance(condition, Chain) and condition.word == "AND" else 1


def repeats_itself(condition: Expression) -> bool:
    """Return whether a condition stands twice among those that AND connects."""
    return _conditions(condition) > len(conjuncts(condition))


def all_of(conditions: Iterable[Expression]) -> Expression | None:
    """Return the condition that all of some hold, each different one once; None if there are none."""
    unique = tuple(dict.fromkeys(conditions))
    if len(unique) <= 1:
        return unique[0] if unique else None
    return chain("AND", tuple(Group(each) if is_alternative(each) else each for each in unique))


def is_alternative(condition: Expression) -> bool:
    """Return whether OR connects its parts."""
    return isinstance(condition, Chain) and condition.word == "OR"


def equal_sides(condition: Expression) -> tuple[Expression, Expression] | None:
    """Return both sides of an equality; None for anything else."""
    found = condition if isinstance(condition, Binary) and condition.sign == "=" else None
    return None if found is None else cast("tuple[Expression, Expression]", found.operands)
